//! Attaching by WebSocket (RFC 6455), for clients that cannot speak [`cowork_client::stream`]:
//! browsers, and whatever else has a WebSocket and nothing better.
//!
//! A message is binary: one byte that names its channel, and the contents. Both protocols are one
//! conversation: frames of the one become messages of the other ([`bridge`]), so an attachment
//! knows nothing of this.
//!
//! Deliberately absent: text messages, and extensions. An offer to compress is not taken up.

mod bridge;
mod frame;

use crate::session::Attachment;
use crate::trouble::Trouble;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The one version there is.
const VERSION: &str = "13";
/// What the key of a client is answered with, according to the RFC.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The name of our messages, for clients that name protocols.
const MESSAGES: &str = "cowork-stream.v1";
/// What a protocol starts with that is the token: a browser can send no other header.
const TOKEN: &str = "cowork-token.";

/// The values of a header that is a list.
fn list(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Whether a client wants a WebSocket.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    list(headers, header::UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
}

/// The token that a client of a WebSocket shows, if it shows one among its protocols.
pub(super) fn token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut shown = list(headers, header::SEC_WEBSOCKET_PROTOCOL);
    let coded = shown.find_map(|protocol| protocol.strip_prefix(TOKEN))?;
    URL_SAFE_NO_PAD.decode(coded).ok().filter(|_| is_wanted(headers))
}

/// What a client's key is answered with, if it is one.
fn accept(key: &str) -> Option<String> {
    let key = key.trim();
    STANDARD.decode(key).ok().filter(|bytes| bytes.len() == 16)?;
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    Some(STANDARD.encode(hash.as_ref()))
}

/// An answer that turns the connection into a WebSocket.
#[derive(Debug)]
pub(super) struct Handshake(HeaderMap);

impl Handshake {
    /// Reads what a client wants.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Trouble> {
        let upgrades = list(headers, header::CONNECTION).any(|v| v.eq_ignore_ascii_case("upgrade"));
        if !upgrades {
            return Err(Trouble::malformed("a WebSocket needs `Connection: Upgrade`"));
        }
        if !list(headers, header::SEC_WEBSOCKET_VERSION).any(|version| version == VERSION) {
            let sentence = format!("WebSockets have version {VERSION} here");
            return Err(Trouble::refused("no-upgrade", sentence)
                .with_status(StatusCode::UPGRADE_REQUIRED)
                .with_hint(format!("send `Sec-WebSocket-Version: {VERSION}`")));
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
        let answer = key.and_then(accept).and_then(|key| HeaderValue::try_from(key).ok());
        let answer = answer
            .ok_or_else(|| Trouble::malformed("`Sec-WebSocket-Key` must be 16 bytes in base64"))?;
        let mut out = HeaderMap::new();
        out.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        out.insert(header::SEC_WEBSOCKET_ACCEPT, answer);
        if list(headers, header::SEC_WEBSOCKET_PROTOCOL).any(|protocol| protocol == MESSAGES) {
            let messages = HeaderValue::from_static(MESSAGES);
            out.insert(header::SEC_WEBSOCKET_PROTOCOL, messages);
        }
        Ok(Self(out))
    }

    /// Switches, and serves the attachment over messages.
    pub(super) fn switch(self, upgrade: OnUpgrade, attachment: Attachment) -> Response {
        tokio::spawn(async move {
            match upgrade.await {
                Ok(stream) => {
                    let (near, far) = tokio::io::duplex(bridge::BUFFER);
                    tokio::spawn(attachment.serve(far));
                    bridge::bridge(TokioIo::new(stream), near).await;
                }
                // It broke off before it began.
                Err(_) => attachment.serve(tokio::io::empty()).await,
            }
        });
        (StatusCode::SWITCHING_PROTOCOLS, self.0).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::{Handshake, accept, is_wanted, token};
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter();
        pairs.map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_key_is_answered_as_in_the_rfc() {
        let answer = accept("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for bad in ["", "dGhlIHNhbXBsZSBub25j", "not base64", "dGhlIHNhbXBsZSBub25jZQ"] {
            assert_eq!(accept(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_is_among_the_protocols_of_a_websocket_alone() {
        let shown = ("sec-websocket-protocol", "cowork-stream.v1, cowork-token.c2VjcmV0");
        assert_eq!(token(&headers(&[shown, ("upgrade", "websocket")])).unwrap(), b"secret");
        assert_eq!(token(&headers(&[shown])), None);
        let bad = ("sec-websocket-protocol", "cowork-token.c2VjcmV0=");
        assert_eq!(token(&headers(&[bad, ("upgrade", "websocket")])), None);
    }

    #[test]
    fn a_protocol_is_chosen_if_it_is_offered() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let mut all = vec![("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket"), key];
        assert!(Handshake::read(&headers(&all)).is_err());
        all.push(("sec-websocket-version", "13"));
        assert!(is_wanted(&headers(&all)));
        let Handshake(out) = Handshake::read(&headers(&all)).unwrap();
        assert!(!out.contains_key("sec-websocket-protocol"));
        all.push(("sec-websocket-protocol", "other, cowork-stream.v1"));
        let Handshake(out) = Handshake::read(&headers(&all)).unwrap();
        assert_eq!(out.get("sec-websocket-protocol").unwrap(), "cowork-stream.v1");
        all.retain(|line| *line != key);
        assert!(Handshake::read(&headers(&all)).is_err());
    }
}

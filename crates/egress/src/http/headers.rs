//! Headers that are between two hops, and stay there.

use super::refuse::refusal;
use crate::office::Refusal;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// The protocol that a request or an answer wants to go over to, if it is one that passes. Another
/// version of HTTP does not: its requests would not be looked into.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let listed = |name: &str| connection(headers).any(|word| word.eq_ignore_ascii_case(name));
    let wanted = headers.get(UPGRADE)?;
    let text = wanted.to_str().ok()?.to_ascii_lowercase();
    let barred = |word: &str| {
        let word = word.trim();
        word.is_empty() || word == "h2c" || word.starts_with("http/") || word.starts_with("tls/")
    };
    (listed("upgrade") && !text.split(',').any(barred)).then(|| wanted.clone())
}

fn connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Removes what is between two hops. Framing is decided anew by whoever sends it on.
pub(super) fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = connection(headers)
        .filter_map(|word| word.parse().ok())
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
        .collect();
    let trailers = headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|text| {
            text.split(',').any(|word| word.trim().eq_ignore_ascii_case("trailers"))
        })
    });
    for name in listed {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        EXPECT,
        HTTP2_SETTINGS,
        KEEP_ALIVE,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        PROXY_CONNECTION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Headers that tell some hosts to take a request for another one.
const OVERRIDES: [&str; 5] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Refuses a request that could be another one to its host than to the rule that allowed it.
pub(super) fn refuse_overrides(headers: &HeaderMap) -> Result<(), Refusal> {
    let overrides =
        |name: &&HeaderName| OVERRIDES.contains(&name.as_str().replace('_', "-").as_str());
    match headers.keys().find(overrides) {
        None => Ok(()),
        Some(name) => {
            let sentence = format!("{name} asks the host for another request than this one");
            Err(refusal("method-override", sentence, "send the request that is meant"))
        }
    }
}

/// Puts back the wish to go over to another protocol.
pub(super) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// How a body is encoded, if it is.
pub(super) fn encoding(headers: &HeaderMap) -> Option<String> {
    headers.get(CONTENT_ENCODING).map(word)
}

/// A value that is one word, or some with commas: the name of a protocol, of an encoding. Whatever
/// else it is, is not told.
pub(super) fn word(value: &HeaderValue) -> String {
    /// Longest one that is told.
    const MOST: usize = 32;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._/, ".contains(byte);
    match value.to_str() {
        Ok(text) if text.len() <= MOST && text.as_bytes().iter().all(plain) => {
            text.to_ascii_lowercase()
        }
        _ => "other".to_owned(),
    }
}

/// About how many bytes headers are on the wire.
pub(super) fn weight(headers: &HeaderMap) -> u64 {
    let each = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    u64::try_from(headers.iter().map(each).sum::<usize>()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_connection_lists_goes() {
        let mut map = headers(&[
            ("connection", "close, X-Hop, content-length, host"),
            ("x-hop", "1"),
            ("content-length", "3"),
            ("host", "a"),
            ("te", "trailers, deflate"),
            ("proxy-authorization", "Basic x"),
            ("x-end", "1"),
        ]);
        strip(&mut map);
        let mut names: Vec<&str> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "host", "te", "x-end"]);
        assert_eq!(map["te"], "trailers");
    }

    #[test]
    fn another_http_is_no_upgrade() {
        for protocol in ["h2c", "HTTP/2.0", "websocket, h2c", "TLS/1.0", ""] {
            let map = headers(&[("connection", "Upgrade"), ("upgrade", protocol)]);
            assert_eq!(upgrade(&map), None, "{protocol}");
        }
        let map = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&map).unwrap(), "websocket");
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
    }
}

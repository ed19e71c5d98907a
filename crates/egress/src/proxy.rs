//! The HTTP proxy of the session: `CONNECT` is served here, requests that name their host elsewhere.

use crate::arrival::{Arrival, say_last};
use crate::capture::{Visitor, place_of};
use crate::http;
use crate::office::Refusal;
use crate::prefixed::Prefixed;
use bytes::{Bytes, BytesMut};
use cowork_api::egress::{Target, Via};
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest that the head of a request may take.
const TIME_TO_ASK: Duration = Duration::from_secs(10);
/// Longest head of a request.
const MAX_HEAD: usize = 64 * 1024;
/// Most lines in it.
const MAX_HEADERS: usize = 128;
const CONNECT: &[u8] = b"CONNECT ";

/// How a request to the proxy begins.
enum Asked {
    /// `CONNECT`, with what follows its head.
    Connect { authority: String, first: Bytes },
    /// Something else, with what was read of it.
    Other(Bytes),
    /// Nothing that can be served; this is the answer.
    Garbage(&'static str),
    /// Nothing at all.
    Nothing,
}

/// Serves one connection to the HTTP proxy.
pub(crate) async fn serve(visitor: Visitor) {
    let Visitor { house, flow, mut stream } = visitor;
    let permit = house.hearing.acquire().await;
    let asked = timeout(TIME_TO_ASK, hear(&mut stream)).await;
    drop(permit);
    let (authority, first) = match asked {
        Ok(Ok(Asked::Connect { authority, first })) => (authority, first),
        Ok(Ok(Asked::Other(first))) => {
            return http::forward(house, flow, Prefixed::new(first, stream)).await;
        }
        Ok(Ok(Asked::Garbage(sentence))) => {
            let target = Target { via: Via::Connect, ..flow.unsaid() };
            let refusal = Refusal::new("bad-request", sentence, "");
            return refuse(Visitor { house, flow, stream }, &target, &refusal).await;
        }
        Err(_elapsed) => return say_last(stream, &answer(408, "Request Timeout", "", "")).await,
        Ok(Ok(Asked::Nothing) | Err(_)) => return,
    };
    let Some((host, port)) = split(&authority) else {
        let target = Target { host: authority, via: Via::Connect, ..flow.unsaid() };
        let refusal = Refusal::new("bad-request", "CONNECT wants host:port", "");
        return refuse(Visitor { house, flow, stream }, &target, &refusal).await;
    };
    let target = Target { host: host.into(), port, via: Via::Connect, ..flow.unsaid() };
    match place_of(&house, host) {
        Ok(place) => {
            let target = Target { host: place.to_string(), ..target };
            Arrival { house, flow, stream, first, target, place }.serve().await;
        }
        Err(refusal) => refuse(Visitor { house, flow, stream }, &target, &refusal).await,
    }
}

/// Records that something was refused, and says so.
async fn refuse(visitor: Visitor, target: &Target, refusal: &Refusal) {
    visitor.house.office.refuse(&visitor.flow, 0, target, refusal);
    say_last(visitor.stream, &refused(refusal, target)).await;
}

/// Reads until it is known what is asked.
async fn hear(stream: &mut TcpStream) -> io::Result<Asked> {
    let mut bytes = BytesMut::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(Asked::Nothing);
        }
        let begins = bytes.get(..CONNECT.len()).unwrap_or(&bytes);
        if !CONNECT.starts_with(begins) {
            let looks_like_http = begins.first().is_some_and(u8::is_ascii_uppercase);
            return Ok(if looks_like_http {
                Asked::Other(bytes.freeze())
            } else {
                Asked::Garbage("this is an HTTP proxy")
            });
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(length)) => {
                let authority = request.path.unwrap_or_default().to_owned();
                let first = bytes.split_off(length).freeze();
                return Ok(Asked::Connect { authority, first });
            }
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) => {
                return Ok(Asked::Garbage("the head of the request is too long"));
            }
            Err(_) => return Ok(Asked::Garbage("the head of the request cannot be read")),
        }
    }
}

/// The host and the port of `host:port`; an IPv6 address is in brackets.
fn split(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = authority.rsplit_once(':')?;
    let port = port_of(port)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (bracketed || !host.contains(':')).then_some((host, port))
}

/// A port, written in the one way that everybody reads alike: without a sign, and without a zero first.
pub(crate) fn port_of(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

/// What programs that know another sandbox look for, in `x-proxy-error`, where something is forbidden.
pub(crate) const BLOCKED: &str = "blocked-by-sandbox-runtime";

/// The answer that says why something does not pass.
pub(crate) fn refused(refusal: &Refusal, target: &Target) -> Vec<u8> {
    let phrase = match refusal.status() {
        400 => "Bad Request",
        429 => "Too Many Requests",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => &refusal.phrase(),
    };
    let blocked = (refusal.status() == 403).then(|| format!("x-proxy-error: {BLOCKED}\r\n"));
    let again = refusal.again().map(|seconds| format!("retry-after: {seconds}\r\n"));
    let code = format!("x-cowork-deny: {}\r\n", refusal.code);
    let headers = [Some(code), blocked, again].into_iter().flatten().collect::<String>();
    answer(refusal.status(), phrase, &headers, &refusal.body(target))
}

fn answer(status: u16, phrase: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n{headers}\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_port_is_always_named() {
        assert_eq!(split("example.com:443"), Some(("example.com", 443)));
        assert_eq!(split("[::1]:443"), Some(("[::1]", 443)));
        for wrong in ["example.com", "example.com:", "::1:443", "a:0", "a:99999", ""] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
        for wrong in ["a:+443", "a:-443", "a:0443", "a: 443", "a:443 ", "a:4 43", "a:0x1bb", "a:00"]
        {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}

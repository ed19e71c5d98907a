//! Who is let in: whoever shows the token on the address, and no page of a browser anywhere.
//!
//! A page that a user looks at can send requests to this host, and by a name of its own for it
//! (DNS rebinding) it can read the answers. It does not know the token; and it cannot hide where it
//! comes from (`Origin`), nor by which name it asks (`Host`).

use super::websocket;
use crate::settings::Settings;
use crate::trouble::Trouble;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// What the user allows beside what is always allowed.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    origins: Arc<[String]>,
    hosts: Arc<[String]>,
}

impl Allowed {
    pub(super) fn new(settings: &Settings) -> Self {
        let (origins, hosts) = (settings.origins.clone(), settings.hosts.clone());
        Self { origins: origins.into(), hosts: hosts.into() }
    }

    /// Refuses pages of places that are not allowed.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let known = |origin: &[u8]| {
            self.origins.iter().any(|known| origin.eq_ignore_ascii_case(known.as_bytes()))
        };
        let foreign = headers.get_all(ORIGIN).iter().find(|origin| !known(origin.as_bytes()));
        let Some(origin) = foreign else { return Ok(()) };
        let shown = String::from_utf8_lossy(origin.as_bytes()).escape_debug().to_string();
        let sentence = format!("pages of `{shown}` are not allowed here");
        let hint = "if it is your own, start the daemon with `--allow-origin ORIGIN`";
        Err(Trouble::forbidden("foreign-origin", sentence).with_hint(hint))
    }

    /// Refuses names that anybody can give to this host.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        if hosts.next().is_none() && self.is_own(host) {
            return Ok(());
        }
        let sentence = format!("this is not `{}`", host.escape_debug());
        let hint = "use its IP address, or start the daemon with `--allow-host NAME`";
        Err(Trouble::forbidden("foreign-host", sentence).with_hint(hint))
    }

    /// Whether a host is an address, `localhost`, or allowed.
    fn is_own(&self, host: &str) -> bool {
        let port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, number)) if port(number) => name,
            _ => host,
        };
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if let Some(inner) = inner {
            return inner.parse::<Ipv6Addr>().is_ok();
        }
        let known = |known: &String| known.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(known)
    }
}

/// Keeps pages out, on every listener.
pub(super) async fn keep_pages_out(allowed: Allowed, request: Request, next: Next) -> Response {
    match allowed.check_origin(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(trouble) => trouble.into_response(),
    }
}

/// Lets through who asks for this host and shows the token.
pub(super) async fn check(allowed: Allowed, token: &str, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Err(trouble) = allowed.check_host(headers) {
        return trouble.into_response();
    }
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
    let shown = shown.map(|shown| shown.as_bytes().to_vec()).or_else(|| websocket::token(headers));
    if is_same(&shown.unwrap_or_default(), token.as_bytes()) {
        return next.run(request).await;
    }
    let trouble = Trouble::forbidden("no-token", "this address needs a bearer token")
        .with_status(axum::http::StatusCode::UNAUTHORIZED)
        .with_hint("send `Authorization: Bearer TOKEN`");
    ([(WWW_AUTHENTICATE, "Bearer")], trouble).into_response()
}

/// Compares in a time that depends on the lengths alone.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0u8, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::{Allowed, is_same};

    #[test]
    fn a_token_is_the_whole_token() {
        assert!(is_same(b"secret", b"secret"));
        for other in [&b"secre"[..], b"secret1", b"Secret", b""] {
            assert!(!is_same(other, b"secret"));
        }
    }

    #[test]
    fn a_host_is_an_address_or_a_name_that_nobody_else_can_give() {
        let allowed = Allowed { hosts: ["box.example".to_owned()].into(), ..Allowed::default() };
        for own in ["127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "10.1.2.3:8", "localhost"] {
            assert!(allowed.is_own(own), "{own}");
        }
        for own in ["LocalHost:1", "box.example:8000", "BOX.example"] {
            assert!(allowed.is_own(own), "{own}");
        }
        for other in ["", "evil.example", "127.0.0.1.evil.example", "::1", "localhost.evil:80"] {
            assert!(!allowed.is_own(other), "{other}");
        }
        for other in
            ["[::1].evil", "[evil.example]", "127.0.0.1:80:90", "localhost:x", "a@localhost"]
        {
            assert!(!allowed.is_own(other), "{other}");
        }
    }
}

//! What a request asks for: which host, which path. And how it is written for the host.

use super::body::Body;
use super::credentials::{Channel, Draft};
use super::headers;
use super::refuse::refusal;
use super::target::ambiguous;
use super::upstream::Version;
use crate::office::Refusal;
use crate::proxy::port_of;
use cowork_api::egress::Target;
use cowork_policy::egress::Place;
use http::header::{COOKIE, HOST, HeaderMap, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Uri, request::Parts};

/// What a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The host.
    pub(super) place: Place,
    /// All of it, for decisions and records.
    pub(super) target: Target,
    /// The host and port, as the request wrote them.
    pub(super) authority: String,
}

/// Fills in what can be told of a request, whether it is in order or not.
pub(super) fn describe(parts: &Parts, base: &Target) -> Target {
    let mut target = base.clone();
    target.method = Some(parts.method.as_str().to_owned());
    target.path = Some(parts.uri.path().to_owned());
    target.query = parts.uri.query().map(query_names).unwrap_or_default();
    if target.host.is_empty() {
        parts.uri.host().unwrap_or_default().clone_into(&mut target.host);
        target.port = parts.uri.port_u16().unwrap_or(80);
    }
    target
}

/// The names of what is in a query. What does not look like a name may be a value, and is not told.
fn query_names(query: &str) -> Vec<String> {
    /// Most names that are told, and the longest: a part without a value may be one itself.
    const MOST: usize = 16;
    const LONGEST: usize = 40;
    const LONGEST_ALONE: usize = 16;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]$".contains(&byte);
    let mut names: Vec<String> = Vec::new();
    for part in query.split(['&', ';']).filter(|part| !part.is_empty()) {
        let (name, longest) = match part.split_once('=') {
            Some((name, _)) => (name, LONGEST),
            None => (part, LONGEST_ALONE),
        };
        let is_name = !name.is_empty() && name.len() <= longest && name.bytes().all(plain);
        let name = if is_name { name } else { "…" };
        if names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
        if names.len() >= MOST {
            break;
        }
    }
    names
}

/// Reads a request on a connection that was allowed to `place`, or on one to the proxy.
pub(super) fn read(
    parts: &Parts,
    base: &Target,
    place: Option<&Place>,
    channel: Channel,
) -> Result<Wanted, Refusal> {
    let mut target = describe(parts, base);
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        let sentence = format!("{} is not carried", parts.method);
        return Err(refusal("method", sentence, "use another method"));
    }
    if let Some(why) = ambiguous(parts.uri.path()) {
        let sentence = format!("the path can be read in more than one way: {why}");
        return Err(refusal("ambiguous-target", sentence, "write it in one way"));
    }
    let scheme = parts.uri.scheme_str();
    let expected = if channel == Channel::Verified { "https" } else { "http" };
    if scheme.is_some_and(|scheme| scheme != expected) {
        let sentence = format!("the request does not name {expected}, which it came by");
        return Err(refusal("malformed", sentence, "use CONNECT for https"));
    }
    let named = names(parts)?;
    let place = if let Some(place) = place {
        place.clone()
    } else {
        let Some(authority) = parts.uri.authority() else {
            let sentence = "the request names no host: this is a proxy";
            return Err(refusal("malformed", sentence, "write the URL in full"));
        };
        let text = authority.host();
        let place = text.parse().map_err(|why| Refusal::no_host(text, &why))?;
        target.host = format!("{place}");
        target.port = authority.port_u16().unwrap_or(80);
        place
    };
    for authority in &named {
        same(authority, &place, target.port)?;
    }
    let authority = match named.first() {
        Some(authority) => authority.as_str().to_owned(),
        None => written(&place, target.port, channel),
    };
    Ok(Wanted { place, target, authority })
}

/// Every host that a request names.
fn names(parts: &Parts) -> Result<Vec<Authority>, Refusal> {
    let mut named = Vec::new();
    named.extend(parts.uri.authority().cloned());
    let mut hosts = parts.headers.get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        let authority = Authority::try_from(host.as_bytes());
        named.push(authority.map_err(|_cause| {
            refusal("malformed", "the request's Host is no host", "send one host")
        })?);
    }
    if hosts.next().is_some() {
        return Err(refusal("malformed", "the request has more than one Host", "send one"));
    }
    if named.is_empty() && parts.version != http::Version::HTTP_10 {
        return Err(refusal("malformed", "the request names no host", "send Host"));
    }
    Ok(named)
}

/// Whether a name in a request is the host that was allowed.
fn same(authority: &Authority, place: &Place, port: u16) -> Result<(), Refusal> {
    let named: Option<Place> = authority.host().parse().ok();
    let user = authority.as_str().contains('@');
    // A port that is left out is the one of the connection; one that is no number is none.
    let tail = authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, tail)| tail);
    let named_port = || authority.port().and_then(|named| port_of(named.as_str()));
    let fits = !tail.contains(':') || named_port() == Some(port);
    if named.as_ref() == Some(place) && fits && !user {
        return Ok(());
    }
    let sentence = format!("the connection is to {place}:{port}, the request names {authority}");
    Err(refusal("host-mismatch", sentence, "open a connection to the host that is meant"))
}

/// The host and port, as a request writes them.
pub(super) fn written(place: &Place, port: u16, channel: Channel) -> String {
    let host = match place {
        Place::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        _ => place.to_string(),
    };
    match (channel, port) {
        (Channel::Verified, 443) | (Channel::Plain, 80) => host,
        _ => format!("{host}:{port}"),
    }
}

/// A request as it is written for a host.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) parts: Parts,
    pub(super) authority: String,
    pub(super) channel: Channel,
    /// The protocol that it wants to go over to.
    pub(super) upgrade: Option<HeaderValue>,
}

impl Outgoing {
    /// Takes over a draft that has its secrets.
    pub(super) fn fill(&mut self, draft: Draft) -> Result<(), Refusal> {
        let Draft { headers, path, query } = draft;
        self.parts.headers = headers;
        self.set_path(&path, query.as_deref())
    }

    /// Sets the path and the query.
    fn set_path(&mut self, path: &str, query: Option<&str>) -> Result<(), Refusal> {
        let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let uri = text.parse::<Uri>().map_err(|_cause| {
            refusal(
                "ambiguous-target",
                "the target of the request is no path",
                "write it in one way",
            )
        })?;
        self.parts.uri = uri;
        Ok(())
    }

    /// Writes it for a host that speaks `version`, and leaves nothing behind.
    pub(super) fn write(&mut self, version: Version, body: Body) -> Result<Request<Body>, Refusal> {
        let malformed =
            || refusal("malformed", "the request cannot be written for the host", "write it anew");
        let path = self.parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        match version {
            Version::One => {
                self.parts.version = http::Version::HTTP_11;
                self.parts.uri = path.parse().map_err(|_cause| malformed())?;
                let host = HeaderValue::from_str(&self.authority).map_err(|_cause| malformed())?;
                self.parts.headers.insert(HOST, host);
                join_cookies(&mut self.parts.headers);
                if let Some(protocol) = self.upgrade.clone() {
                    headers::ask_upgrade(&mut self.parts.headers, protocol);
                }
            }
            Version::Two => {
                self.parts.version = http::Version::HTTP_2;
                let scheme = if self.channel == Channel::Verified { "https" } else { "http" };
                let uri = Uri::builder().scheme(scheme).authority(self.authority.as_str());
                self.parts.uri = uri.path_and_query(path).build().map_err(|_cause| malformed())?;
                self.parts.headers.remove(HOST);
            }
        }
        let empty = Request::new(()).into_parts().0;
        Ok(Request::from_parts(std::mem::replace(&mut self.parts, empty), body))
    }
}

/// HTTP/2 may write a cookie header in parts, HTTP/1.1 not.
fn join_cookies(headers: &mut HeaderMap) {
    let parts: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if parts.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::query_names;

    #[test]
    fn names_are_told_and_values_are_not() {
        for (query, names) in [
            ("beta=true&a=1&a=2", vec!["beta", "a"]),
            ("wsdl", vec!["wsdl"]),
            ("sk-ant-0123456789abcdef", vec!["…"]),
            ("=value&&x[]=1;y=2", vec!["…", "x[]", "y"]),
            ("\u{1b}[31m=1&%41=2&a b=3", vec!["…"]),
            ("", vec![]),
        ] {
            assert_eq!(query_names(query), names, "{query}");
        }
        let long = format!("{}=1", "n".repeat(41));
        assert_eq!(query_names(&long), ["…"]);
        let many: Vec<String> = (0..100).map(|number| format!("n{number}=1")).collect();
        assert_eq!(query_names(&many.join("&")).len(), 16);
    }
}

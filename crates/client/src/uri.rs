//! Targets of requests: bytes of any kind as text that HTTP accepts, and back.
//!
//! A path or a value is never pasted into a target; it goes through [`segment`], [`path`] or a
//! [`Query`], so that no name can reach beyond its place.

/// Bytes that need no escape anywhere in a target (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn escape_into(out: &mut String, bytes: &[u8], keep: &[u8]) {
    for byte in bytes {
        if is_unreserved(*byte) || keep.contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = char::from_digit(u32::from(digit), 16).unwrap_or('0');
                out.push(digit.to_ascii_uppercase());
            }
        }
    }
}

/// One segment of a path: `/` is escaped as well. `.` and `..`, which some servers resolve, are
/// escaped whole.
pub fn segment(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    match bytes {
        b"." => "%2E".to_owned(),
        b".." => "%2E%2E".to_owned(),
        _ => {
            let mut out = String::new();
            escape_into(&mut out, bytes, b"");
            out
        }
    }
}

/// Several segments: each `/` stays one.
pub fn path(bytes: impl AsRef<[u8]>) -> String {
    let segments: Vec<String> = bytes.as_ref().split(|byte| *byte == b'/').map(segment).collect();
    segments.join("/")
}

/// The bytes that an escaped text stands for, or `None` if an escape is none.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(out)
}

/// A path with names and values behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    target: String,
    separator: char,
}

impl Query {
    /// Starts with a path that is escaped already.
    pub fn new(path: impl Into<String>) -> Self {
        Self { target: path.into(), separator: '?' }
    }

    /// Adds a name and its value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.target.push(self.separator);
        self.separator = '&';
        escape_into(&mut self.target, name.as_bytes(), b"");
        self.target.push('=');
        escape_into(&mut self.target, value.as_ref(), b":,/");
        self
    }

    /// Adds a name and its value, if there is one.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The whole target.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl From<Query> for String {
    fn from(query: Query) -> Self {
        query.target
    }
}

#[cfg(test)]
mod tests {
    use super::{Query, path, segment, unescape};

    #[test]
    fn no_name_reaches_beyond_its_segment() {
        assert_eq!(segment("a/b?c#d e"), "a%2Fb%3Fc%23d%20e");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("..."), "...");
        assert_eq!(path("a/../b c/\u{e9}"), "a/%2E%2E/b%20c/%C3%A9");
    }

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&segment(&all)), Some(all.clone()));
        assert_eq!(unescape(&path(&all)), Some(all.clone()));
        let query = Query::new("/x").with("n", &all);
        let (_, value) = query.target().split_once('=').expect("it has a value");
        assert_eq!(unescape(value), Some(all));
    }

    #[test]
    fn broken_escapes_are_none() {
        for text in ["%", "%4", "%zz", "%+1"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }

    #[test]
    fn queries_are_joined() {
        let query = Query::new("/v1/audit").with("type", "a&b=c").with_some("x", None::<&str>);
        assert_eq!(query.with("since", "now").target(), "/v1/audit?type=a%26b%3Dc&since=now");
    }
}

//! The target of a request: its path and its query.
//!
//! Programs do not agree about what some targets mean: `/a/../b`, `/a//b`, `/a%2fb`, `/a;x/b`. A
//! rule about paths would be decided about one meaning and the server would serve another, so such
//! a target is never matched with a rule. What is left has one meaning.
//!
//! Deliberately absent: changing a target. What was decided about is what is sent.

use std::borrow::Cow;

/// Why programs do not agree about what a target means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousTarget {
    /// It does not begin with `/`.
    #[error("the path of a request begins with `/`")]
    NotAbsolute,
    /// It has a control character, a space, or a character outside ASCII, as itself.
    #[error(
        "the target of a request has only printable ASCII characters, others are written as %XX"
    )]
    Character,
    /// It has a fragment.
    #[error("the target of a request has no `#`")]
    Fragment,
    /// It has a backslash.
    #[error("some servers take `\\` in a path for `/`")]
    Backslash,
    /// It has a part that is `.` or `..`.
    #[error("a path with `.` or `..` as a part is another path for some servers")]
    Dots,
    /// It has an empty part.
    #[error("a path with `//` is another path for some servers")]
    EmptyPart,
    /// It has parameters.
    #[error("some servers leave out what follows `;` in a part of a path")]
    Parameters,
    /// It has a `%` that two hexadecimal digits do not follow.
    #[error("`%` in a path is followed by two hexadecimal digits")]
    Escape,
    /// It has an escape for what divides paths, or for a control character.
    #[error(
        "some servers take %2e, %2f, %5c and escapes of control characters for what they stand for, before they look at the path"
    )]
    HiddenDivider,
    /// Its escapes are no UTF-8.
    #[error("the escapes of a path are UTF-8")]
    Encoding,
}

/// Divides a target into its path and its query, if all programs agree about the path.
pub fn check(target: &str) -> Result<(&str, Option<&str>), AmbiguousTarget> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    if !path.starts_with('/') {
        return Err(AmbiguousTarget::NotAbsolute);
    }
    if target.contains('#') {
        return Err(AmbiguousTarget::Fragment);
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(AmbiguousTarget::Character);
    }
    if path.contains('\\') {
        return Err(AmbiguousTarget::Backslash);
    }
    let decoded = decode(path)?;
    if path.contains(';') {
        return Err(AmbiguousTarget::Parameters);
    }
    parts(path)?;
    if let Cow::Owned(bytes) = &decoded
        && str::from_utf8(bytes).is_err()
    {
        return Err(AmbiguousTarget::Encoding);
    }
    Ok((path, query))
}

/// Refuses parts that are not there for every server. Only the last one may be empty.
fn parts(path: &str) -> Result<(), AmbiguousTarget> {
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        match part {
            "." | ".." => return Err(AmbiguousTarget::Dots),
            "" if parts.peek().is_some() => return Err(AmbiguousTarget::EmptyPart),
            _ => {}
        }
    }
    Ok(())
}

/// The bytes that a path stands for. Fails where an escape hides what divides paths, once or twice.
pub(super) fn decode(path: &str) -> Result<Cow<'_, [u8]>, AmbiguousTarget> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (byte, after) = escaped(rest).ok_or(AmbiguousTarget::Escape)?;
        if divides(byte) {
            return Err(AmbiguousTarget::HiddenDivider);
        }
        bytes.push(byte);
        rest = after;
    }
    if hides_divider(&bytes) {
        return Err(AmbiguousTarget::HiddenDivider);
    }
    Ok(Cow::Owned(bytes))
}

/// What a decoded path is for a server that decodes it once more, if that is another one. What is no
/// escape stays as it is.
pub(super) fn decode_again(decoded: &[u8]) -> Option<Vec<u8>> {
    let mut parts = decoded.split(|byte| *byte == b'%');
    let mut bytes = parts.next()?.to_vec();
    let mut another = false;
    for part in parts {
        if let Some((byte, rest)) = escaped(part) {
            another = true;
            bytes.push(byte);
            bytes.extend_from_slice(rest);
        } else {
            bytes.push(b'%');
            bytes.extend_from_slice(part);
        }
    }
    another.then_some(bytes)
}

/// Whether decoded bytes have an escape for what divides paths: `%252e` and `%25%32%65` are `.` for
/// a server that decodes twice.
fn hides_divider(decoded: &[u8]) -> bool {
    let mut behind = decoded.split(|byte| *byte == b'%').skip(1);
    behind.any(|text| escaped(text).is_some_and(|(byte, _)| divides(byte)))
}

fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], rest) = text.split_first_chunk::<2>()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(*high)? << 4 | digit(*low)?, rest))
}

/// Whether a byte, once decoded, changes how a path is divided or where it ends.
fn divides(byte: u8) -> bool {
    matches!(byte, b'.' | b'/' | b'\\') || byte.is_ascii_control()
}

#[cfg(test)]
mod tests {
    use super::{AmbiguousTarget, check, decode};
    use proptest::prelude::*;
    use std::borrow::Cow;

    #[test]
    fn plain_targets_are_divided() {
        let table = [
            ("/", "/", None),
            ("/a/b", "/a/b", None),
            ("/a/b/", "/a/b/", None),
            ("/a?b=c", "/a", Some("b=c")),
            ("/a?", "/a", Some("")),
            ("/a?b?c", "/a", Some("b?c")),
            ("/a?q=100%&r=..//%2f;x\\", "/a", Some("q=100%&r=..//%2f;x\\")),
            ("/caf%C3%A9", "/caf%C3%A9", None),
            ("/a%20b/%7Eada", "/a%20b/%7Eada", None),
            ("/...", "/...", None),
            ("/.a/b..", "/.a/b..", None),
            ("/a:b@c,d=e+f!$&'()*", "/a:b@c,d=e+f!$&'()*", None),
            ("/100%25", "/100%25", None),
            ("/%3f%23%3b", "/%3f%23%3b", None),
        ];
        for (target, path, query) in table {
            assert_eq!(check(target), Ok((path, query)), "{target}");
        }
    }

    #[test]
    fn what_means_two_things_is_refused() {
        use AmbiguousTarget as A;
        let table = [
            ("", A::NotAbsolute),
            ("*", A::NotAbsolute),
            ("a/b", A::NotAbsolute),
            ("?/a", A::NotAbsolute),
            ("http://example.com/", A::NotAbsolute),
            ("/a b", A::Character),
            ("/a\0", A::Character),
            ("/a\r\nx: y", A::Character),
            ("/a\u{7f}", A::Character),
            ("/é", A::Character),
            ("/a?é", A::Character),
            ("/a#b", A::Fragment),
            ("/a?b#c", A::Fragment),
            ("/a\\b", A::Backslash),
            ("/..", A::Dots),
            ("/a/../b", A::Dots),
            ("/a/./b", A::Dots),
            ("/a/.", A::Dots),
            ("//a", A::EmptyPart),
            ("/a//b", A::EmptyPart),
            ("/a//", A::EmptyPart),
            ("/a;b", A::Parameters),
            ("/a/..;/b", A::Parameters),
            ("/a%", A::Escape),
            ("/a%2", A::Escape),
            ("/a%zz", A::Escape),
            ("/a%+1", A::Escape),
            ("/a/%2e%2e/b", A::HiddenDivider),
            ("/a/%2E./b", A::HiddenDivider),
            ("/a%2fb", A::HiddenDivider),
            ("/a%2Fb", A::HiddenDivider),
            ("/a%5cb", A::HiddenDivider),
            ("/a%00", A::HiddenDivider),
            ("/a%0d%0a", A::HiddenDivider),
            ("/a%7f", A::HiddenDivider),
            ("/a/%252e%252e/b", A::HiddenDivider),
            ("/a%252Fb", A::HiddenDivider),
            ("/a/%25%32%65%25%32%65/b", A::HiddenDivider),
            ("/a%25%32fb", A::HiddenDivider),
            ("/a%252%66b", A::HiddenDivider),
            ("/a%25%35%63b", A::HiddenDivider),
            ("/a%25%30%61", A::HiddenDivider),
            ("/%c0%ae%c0%ae/b", A::Encoding),
            ("/%ff", A::Encoding),
        ];
        for (target, error) in table {
            assert_eq!(check(target), Err(error), "{target:?}");
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let decoded = |path| decode(path).map(Cow::into_owned);
        assert_eq!(decoded("/%61dmin"), Ok(b"/admin".to_vec()));
        assert_eq!(decoded("/a%2A"), Ok(b"/a*".to_vec()));
        assert_eq!(decoded("/%e2%82%ac"), Ok("/€".as_bytes().to_vec()));
    }

    /// What a server that does not care reads: an escape is a byte, anything else is itself.
    fn read_once(path: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < path.len() {
            let digits = path.get(at + 1..at + 3).filter(|_| path[at] == b'%');
            let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
            let escape = digits.and_then(|digits| str::from_utf8(digits).ok());
            bytes.push(escape.map_or(path[at], |text| u8::from_str_radix(text, 16).unwrap()));
            at += if escape.is_some() { 3 } else { 1 };
        }
        bytes
    }

    proptest! {
        /// A target that is accepted has the same parts whether a server decodes it not at all, once
        /// or twice, and in whatever way its parts are put together.
        #[test]
        fn an_accepted_path_is_one_path(
            target in "[/a.%25ef2;\\\\?#\u{e9}]{0,16}|/[a-z/.%2e]{0,12}|/(/|%25|%32|%65|2|e|a){0,9}"
        ) {
            let Ok((path, query)) = check(&target) else { return Ok(()) };
            let joined = query.map_or(path.to_owned(), |query| format!("{path}?{query}"));
            prop_assert_eq!(&joined, &target);
            let dividers = |bytes: &[u8]| {
                bytes.iter().copied().filter(|byte| b"/.\\".contains(byte)).collect::<Vec<_>>()
            };
            let mut bytes = path.as_bytes().to_vec();
            for _ in 0..3 {
                prop_assert!(bytes.starts_with(b"/"));
                prop_assert!(!bytes.contains(&b'\\') && !bytes.iter().any(u8::is_ascii_control));
                prop_assert!(!bytes.windows(2).any(|two| two == b"//"));
                let dots = bytes.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b".."));
                prop_assert!(!dots, "{}", bytes.escape_ascii());
                prop_assert_eq!(dividers(&bytes), dividers(path.as_bytes()));
                bytes = read_once(&bytes);
            }
        }
    }
}

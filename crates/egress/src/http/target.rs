//! Request targets that no host should get.
//!
//! What is refused here has no honest use, whatever rules say. Paths that programs do not agree
//! about and that are in use (`/@scope%2fname`, `/a//b`) are left to the rules: one about paths does
//! not allow them, one about all requests does.

/// Why a path has no one reading; nothing if it has.
pub(super) fn ambiguous(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("it does not begin with a slash");
    }
    let bytes = path.as_bytes();
    if bytes.iter().any(|byte| !byte.is_ascii_graphic()) {
        return Some("it has characters that are written as escapes");
    }
    if bytes.contains(&b'\\') {
        return Some("it has a backslash");
    }
    if bytes.contains(&b'#') {
        return Some("it has a fragment");
    }
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digit = |index: usize| char::from(*bytes.get(index)?).to_digit(16);
        let Some((high, low)) = digit(at + 1).zip(digit(at + 2)) else {
            return Some("it has an escape that is none");
        };
        match high * 16 + low {
            0x2e => return Some("it has an escaped dot"),
            0x5c => return Some("it has an escaped backslash"),
            0..0x20 | 0x7f => return Some("it has an escaped control character"),
            _ => {}
        }
    }
    let dots = |part: &str| part == "." || part == "..";
    // Parameters of a part are no part of its name for some: `..;x`.
    let named = |part: &str| part.split(';').next().is_some_and(dots);
    if unescape_slash(path).split('/').any(named) {
        return Some("it has a part of dots only");
    }
    None
}

fn unescape_slash(path: &str) -> String {
    path.replace("%2f", "/").replace("%2F", "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_one_reading_is_known() {
        for path in [
            "",
            "a",
            "*",
            "/..",
            "/a/../b",
            "/a/./b",
            "/a/.",
            "/%2e%2e/b",
            "/a%2E",
            "/a\\b",
            "/a%5cb",
            "/a%5Cb",
            "/%",
            "/%g1",
            "/%1",
            "/a%00",
            "/a%0d%0ab",
            "/ä",
            "/a b",
            "/a#b",
            "/a/..%2fb",
            "/a%2f../b",
            "/a/..;x/b",
            "/a/%7f",
        ] {
            assert!(ambiguous(path).is_some(), "{path}");
        }
        for path in ["/", "/a", "/a.b/..c/c..", "/%20", "/@scope%2fname", "//a", "/a;b=c", "/a:b"] {
            assert_eq!(ambiguous(path), None, "{path}");
        }
    }
}

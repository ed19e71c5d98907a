//! What stands for a secret in a session: shaped like it, and worth nothing elsewhere.

use super::vault::random;
use crate::trouble::Trouble;

/// Longest part of a secret that its placeholder shares: what tells its kind, as `sk-ant-`.
const MAX_PREFIX: usize = 8;
/// Fewest characters that are made up: no text has them by chance.
const LEAST: usize = 12;
/// Fewest characters of a secret that follow a part that is told.
const LEAST_UNTOLD: usize = 16;

/// Makes one up. It is as long as the secret, begins with what tells its kind, and has a digit
/// where that has one, a letter of the same case where that has one. For a secret that is too short
/// for that it is longer.
pub(crate) fn stand_in(secret: &str) -> Result<String, Trouble> {
    let prefix = kind_of(secret);
    let rest = secret.strip_prefix(prefix).unwrap_or(secret);
    let shape = if rest.chars().filter(char::is_ascii_alphanumeric).count() < LEAST {
        "a1".repeat(LEAST)
    } else {
        rest.to_owned()
    };
    let mut entropy = vec![0; shape.len()];
    random(&mut entropy)?;
    let mut made = prefix.to_owned();
    for (c, byte) in shape.chars().zip(entropy) {
        made.push(match c {
            '0'..='9' => char::from(b'0' + byte % 10),
            'a'..='z' => char::from(b'a' + byte % 26),
            'A'..='Z' => char::from(b'A' + byte % 26),
            '-' | '_' | '.' | ':' | '/' | '+' | '=' => c,
            _ => 'x',
        });
    }
    Ok(made)
}

/// What tells the kind of a secret: letters up to the last hyphen or underscore near its beginning,
/// if that leaves enough that is not told.
fn kind_of(secret: &str) -> &str {
    let separator = |(_, c): &(usize, char)| matches!(c, '-' | '_');
    let near = secret.char_indices().take_while(|(at, c)| {
        *at < MAX_PREFIX && (c.is_ascii_alphabetic() || matches!(c, '-' | '_'))
    });
    let last = near.filter(separator).last();
    let (kind, rest) =
        last.and_then(|(at, _)| secret.split_at_checked(at + 1)).unwrap_or(("", secret));
    let untold = rest.chars().filter(char::is_ascii_alphanumeric).count();
    if untold >= LEAST_UNTOLD { kind } else { "" }
}

#[cfg(test)]
mod tests {
    use super::stand_in;

    #[test]
    fn it_is_shaped_like_the_secret() {
        let secrets = [
            ("sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWx0123456789", "sk-ant-"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
            ("AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""),
        ];
        for (secret, prefix) in secrets {
            let made = stand_in(secret).unwrap();
            assert!(made.starts_with(prefix) && made != secret, "{made}");
            assert_eq!(made.len(), secret.len());
            for (one, other) in made.chars().zip(secret.chars()) {
                assert_eq!(one.is_ascii_digit(), other.is_ascii_digit());
                assert_eq!(one.is_ascii_uppercase(), other.is_ascii_uppercase());
            }
            assert_ne!(made, stand_in(secret).unwrap(), "each session has its own");
        }
    }

    #[test]
    fn nothing_is_told_of_a_secret_that_has_no_kind() {
        for (secret, part) in
            [("s3cr3t-", "s3c"), ("hunt_r2-Z", "hun"), ("pass-word-12345", "pass")]
        {
            assert!(!stand_in(secret).unwrap().starts_with(part), "{secret}");
        }
    }

    #[test]
    fn a_short_secret_has_one_that_no_text_contains() {
        for secret in ["x", "hunter2", "sk-1", "日本語のパスワード"] {
            assert!(stand_in(secret).unwrap().len() >= 16, "{secret}");
        }
    }
}

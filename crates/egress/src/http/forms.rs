//! The forms in which secrets may come back from a host.
//!
//! A secret is known as it is, with escapes of URLs, and inside base64, wherever it begins there:
//! hosts say back whole headers, and `user:secret` is encoded as one text.
//!
//! Deliberately absent: what takes effort to undo. A host that means to hand a secret over can.

use super::escape;
use super::scrub::{Needle, SHORTEST, Scrub};
use super::sigv4::Key;
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use cowork_api::egress::{Carrier, Credential, Secret};
use std::collections::HashSet;
use std::sync::Arc;

/// Takes the secrets of a session out of an answer to a request that got `credential`. Secrets
/// that the request did not get are replaced by texts of their length, so that most answers keep
/// their framing.
pub(super) fn scrub(secrets: &[Secret], credential: Option<&Credential>) -> Option<Scrub> {
    let mut needles = Vec::new();
    for secret in secrets {
        let own = credential.filter(|credential| credential.secret == secret.name);
        let found = needles_of(secret, own.map(|credential| &credential.carrier));
        if own.is_some() {
            needles.extend(found);
        } else {
            needles.extend(found.into_iter().map(Needle::fitted));
        }
    }
    (!needles.is_empty()).then(|| Scrub::new(needles))
}

/// Every form of a secret, and what takes its place.
fn needles_of(secret: &Secret, carrier: Option<&Carrier>) -> Vec<Needle> {
    let placeholder = secret.placeholder.as_str();
    let Ok(value) = std::str::from_utf8(&secret.value.0) else { return Vec::new() };
    let mut texts: Vec<(&str, &str)> = Vec::new();
    let signs = carrier == Some(&Carrier::AwsSignature);
    if signs || (carrier.is_none() && placeholder.contains(':')) {
        let stands = Key::parse(placeholder);
        let stands = stands.iter().flat_map(Key::secrets).chain(std::iter::repeat_n("hidden", 2));
        let values = Key::parse(value);
        texts.extend(values.iter().flat_map(Key::secrets).zip(stands));
    }
    if !signs {
        texts.push((value, placeholder));
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    if let Some(Carrier::Basic { user }) = carrier {
        let whole = |word: &str| STANDARD.encode(format!("{user}:{word}"));
        pairs.push((whole(value), whole(placeholder)));
    }
    for (value, put) in texts {
        pairs.extend(forms(value, put));
    }
    let mut seen = HashSet::new();
    pairs.retain(|(value, _)| value.len() >= SHORTEST && seen.insert(value.clone()));
    let name: Arc<str> = secret.name.as_str().into();
    let needle = |(find, put): (String, String)| Needle {
        name: Arc::clone(&name),
        find: find.into(),
        put: put.into(),
    };
    pairs.into_iter().map(needle).collect()
}

/// The forms of one text.
fn forms(value: &str, put: &str) -> Vec<(String, String)> {
    let escaped = escape(value, b"-._~");
    let mut pairs = vec![
        (value.to_owned(), put.to_owned()),
        (lower_escapes(&escaped), put.to_owned()),
        (escaped, put.to_owned()),
        (STANDARD.encode(value), STANDARD.encode(put)),
    ];
    for before in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            pairs.push((inside(engine, before, value), inside(engine, before, put)));
        }
    }
    pairs
}

/// The characters of base64 that a text alone decides where `before` bytes stand in front of it.
fn inside(engine: &GeneralPurpose, before: usize, text: &str) -> String {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(text.as_bytes());
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    engine.encode(&bytes).get(from..to).unwrap_or_default().to_owned()
}

/// The same text with escapes in small letters (`%2f`).
fn lower_escapes(escaped: &str) -> String {
    let mut digits = 0_u8;
    let lower = |letter: char| {
        let digit = digits > 0;
        digits = if letter == '%' { 2 } else { digits.saturating_sub(1) };
        if digit { letter.to_ascii_lowercase() } else { letter }
    };
    escaped.chars().map(lower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::URL_SAFE;
    use cowork_api::egress::{CredentialMode, Hidden, Renewal};

    const VALUE: &str = "real>?/0123456789abcd~";
    const PLACEHOLDER: &str = "fake>?/0123456789abcd~";

    fn secret(name: &str, value: &str, placeholder: &str) -> Secret {
        let (name, placeholder) = (name.to_owned(), placeholder.to_owned());
        Secret { name, placeholder, value: Hidden(value.into()), renewal: Renewal::Never }
    }

    fn clean(text: &str, secrets: &[Secret]) -> String {
        let credential = Credential {
            secret: "key".into(),
            mode: CredentialMode::Swap,
            carrier: Carrier::Bearer,
        };
        let out = scrub(secrets, Some(&credential)).unwrap().whole(text.as_bytes());
        String::from_utf8(out.map_or_else(|| text.into(), Vec::from)).unwrap()
    }

    #[test]
    fn a_secret_inside_base64_is_found_wherever_it_begins() {
        let secrets = [secret("key", VALUE, PLACEHOLDER)];
        for before in ["", "a", "a:", "me:", "user:"] {
            for after in ["", "x", ":x"] {
                let text = format!("{before}{VALUE}{after}");
                for engine in [&STANDARD, &URL_SAFE] {
                    let cleaned = clean(&engine.encode(&text), &secrets);
                    let said = String::from_utf8(engine.decode(cleaned).unwrap()).unwrap();
                    assert!(!said.contains("real"), "{said}");
                    assert!(said.contains("ake>?/0123456789abcd"), "{said}");
                }
            }
        }
    }

    #[test]
    fn escapes_are_found_in_either_case() {
        let secrets = [secret("key", VALUE, PLACEHOLDER)];
        for text in ["<real%3E%3F%2F0123456789abcd~>", "<real%3e%3f%2f0123456789abcd~>"] {
            assert_eq!(clean(text, &secrets), format!("<{PLACEHOLDER}>"));
        }
    }

    #[test]
    fn short_forms_are_left_alone() {
        assert_eq!(scrub(&[secret("key", "abc", "efg")], None).map(|_| ()), None);
    }

    #[test]
    fn secrets_of_other_rules_are_replaced_in_their_length() {
        let secrets =
            [secret("key", VALUE, "short"), secret("other", "another-secret-value", "stand-in")];
        assert_eq!(clean("<another-secret-value>", &secrets), "<stand-in************>");
        assert_eq!(clean(&format!("<{VALUE}>"), &secrets), "<short>");
        assert!(scrub(&secrets[1..], None).unwrap().keeps_length());
    }

    #[test]
    fn parts_of_keys_of_other_rules_are_found() {
        let key = secret("aws", "AKIDEXAMPLE:wJalrXUtnFEMI", "AKIAPLACEHO:placeholder00");
        assert_eq!(clean("<wJalrXUtnFEMI>", &[key]), "<placeholder00>");
    }
}

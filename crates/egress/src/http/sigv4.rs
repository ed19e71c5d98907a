//! Signs requests to AWS anew (signature version 4).
//!
//! The session signs with what stands for the real key; what it names in its signature (the scope,
//! the headers that are signed, the hash of the body) is kept, and signed with the real key.
//!
//! Bodies that are signed piece by piece are signed anew on their way (`pieces`).
//!
//! Deliberately absent: signatures in the query, and those of version 4A. Both are refused.

use super::escape;
use super::pieces::{Pieces, Tail};
use super::refuse::refusal;
use crate::office::Refusal;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use ring::{digest, hmac};

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Says that the body comes in pieces, and that none of them is signed.
const UNSIGNED_PIECES: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// Says that the body comes in pieces that are signed, without and with trailers.
const PIECES: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const PIECES_AND_TRAILERS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
/// The parameter of a query that says whose key a signature there was made with.
const IN_QUERY: &str = "x-amz-credential";

/// Most bytes of a body that is hashed here, because the request does not say its hash.
pub(super) const MAX_HASHED: u64 = 1024 * 1024;

/// Why a request is refused that cannot be signed anew.
pub(super) fn unsigned(why: &str) -> Refusal {
    let sentence = format!("the request cannot be signed anew: {why}");
    refusal("unsigned-request", sentence, "sign it with one hash, or none, of its body")
}

/// The signature that a request brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// Whose key it says it was made with.
    pub(super) id: String,
    /// `date/region/service/aws4_request`.
    scope: String,
    /// Names of the headers that are signed, sorted.
    signed: Vec<String>,
}

/// A key, as the secret has it: `id:key` or `id:key:token`.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    /// The id.
    pub(super) id: &'a str,
    word: &'a str,
    token: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// Reads one.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let (id, word) = (parts.next()?, parts.next()?);
        Some(Self { id, word, token: parts.next() })
    }

    /// The parts that are secret.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &'a str> {
        [Some(self.word), self.token].into_iter().flatten()
    }
}

/// What of a request is signed, beside its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed<'a> {
    /// The method.
    pub(super) method: &'a str,
    /// The path.
    pub(super) path: &'a str,
    /// The query.
    pub(super) query: &'a str,
    /// The body, if it had to be read.
    pub(super) body: Option<&'a [u8]>,
}

impl Signature {
    /// Reads the signature of a request; none if it has none of this kind.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let fields = text.strip_prefix(ALGORITHM)?;
        let field = |name: &str| {
            let mut fields = fields.split(',').map(str::trim);
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let (id, scope) = field("Credential")?.split_once('/')?;
        if scope.split('/').count() != 4 || !scope.ends_with("/aws4_request") {
            return None;
        }
        let mut signed: Vec<String> =
            field("SignedHeaders")?.split(';').map(str::to_ascii_lowercase).collect();
        signed.sort_unstable();
        signed.dedup();
        Some(Self { id: id.to_owned(), scope: scope.to_owned(), signed })
    }

    /// Whose key a signature in the query was made with, if there is one.
    pub(super) fn in_query(query: &str) -> Option<&str> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(IN_QUERY));
        let (_, value) = found.next()?;
        value.split(['/', '%']).next()
    }

    /// Whether the body has to be read: the request does not say its hash.
    pub(super) fn wants_body(headers: &HeaderMap) -> bool {
        !headers.contains_key(CONTENT)
    }

    /// Signs a request anew. Gives what signs the pieces of its body, if they are signed.
    pub(super) fn renew(
        mut self,
        headers: &mut HeaderMap,
        signed: Signed<'_>,
        key: Key<'_>,
    ) -> Result<Option<Pieces>, &'static str> {
        let mut tail = None;
        let payload = match headers.get(CONTENT).map(HeaderValue::to_str) {
            Some(Ok(said)) if said.starts_with("STREAMING-") => {
                tail = match said {
                    UNSIGNED_PIECES => None,
                    PIECES => Some(Tail::Nothing),
                    PIECES_AND_TRAILERS => Some(Tail::Trailers),
                    _ => return Err("its body comes in pieces of a kind that is not known"),
                };
                said.to_owned()
            }
            Some(Ok(said)) => said.to_owned(),
            Some(Err(_)) => return Err("the hash of its body is no text"),
            None => hex(digest::digest(&digest::SHA256, signed.body.unwrap_or_default()).as_ref()),
        };
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.ok_or("it has no x-amz-date")?.to_owned();
        headers.remove(TOKEN);
        self.signed.retain(|name| name != TOKEN.as_str());
        if let Some(token) = key.token {
            let token = HeaderValue::from_str(token);
            let mut token = token.map_err(|_cause| "the secret's token is no header value")?;
            token.set_sensitive(true);
            headers.insert(TOKEN, token);
            self.signed.push(TOKEN.as_str().to_owned());
            self.signed.sort_unstable();
        }
        let canonical = self.canonical(headers, signed, &payload)?;
        let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("{ALGORITHM}\n{date}\n{}\n{hash}", self.scope);
        let signing = self.signing_key(key.word);
        let signature = hex(mac(&signing, to_sign.as_bytes()).as_ref());
        let value = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
            key.id,
            self.scope,
            self.signed.join(";"),
        );
        let value = HeaderValue::from_str(&value);
        headers.insert(AUTHORIZATION, value.map_err(|_cause| "the secret's id is no text")?);
        let when = format!("{date}\n{}", self.scope);
        Ok(tail.map(|tail| Pieces::new(&signing, when, signature, tail)))
    }

    fn service(&self) -> &str {
        self.scope.split('/').nth(2).unwrap_or_default()
    }

    fn canonical(
        &self,
        headers: &HeaderMap,
        signed: Signed<'_>,
        payload: &str,
    ) -> Result<String, &'static str> {
        let mut text = format!("{}\n", signed.method);
        if self.service() == "s3" {
            text.push_str(signed.path);
        } else {
            // Other services take the path as it was sent, encoded once more.
            text.push_str(&escape(signed.path, b"-._~/"));
        }
        text.push('\n');
        text.push_str(&canonical_query(signed.query));
        text.push('\n');
        for name in &self.signed {
            text.push_str(name);
            text.push(':');
            let values = headers.get_all(name.as_str()).iter();
            for (index, value) in values.enumerate() {
                let value = value.to_str().map_err(|_cause| "a signed header is no text")?;
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&value.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
            }
            text.push('\n');
        }
        Ok(format!("{text}\n{}\n{payload}", self.signed.join(";")))
    }

    fn signing_key(&self, key: &str) -> hmac::Tag {
        let first = format!("AWS4{key}");
        let mut parts = self.scope.split('/');
        let date = parts.next().unwrap_or_default();
        let start = hmac::sign(&hmac_key(first.as_bytes()), date.as_bytes());
        parts.fold(start, |tag, part| mac(&tag, part.as_bytes()))
    }
}

pub(super) fn hmac_key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

fn mac(key: &hmac::Tag, message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac_key(key.as_ref()), message)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}

fn canonical_query(query: &str) -> String {
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (pair.to_owned(), String::new()),
    };
    let mut pairs: Vec<(String, String)> =
        query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    pairs.sort();
    let joined: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    joined.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn signed(service: &str, names: &str, extra: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", "example.amazonaws.com".parse().unwrap());
        headers.insert("x-amz-date", "20150830T123600Z".parse().unwrap());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=PLACEHOLDER/20150830/us-east-1/{service}/aws4_request, \
             SignedHeaders={names}, Signature=00"
        );
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        for (name, value) in extra {
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn renew(mut headers: HeaderMap, request: Signed<'_>) -> Result<HeaderMap, &'static str> {
        let signature = Signature::of(&headers).unwrap();
        assert_eq!(signature.id, "PLACEHOLDER");
        signature.renew(&mut headers, request, Key::parse(KEY).unwrap())?;
        Ok(headers)
    }

    fn get(query: &str) -> Signed<'_> {
        Signed { method: "GET", path: "/", query, body: None }
    }

    #[test]
    fn the_published_examples() {
        // From the signature version 4 test suite: get-vanilla, post-vanilla, and a query in order.
        let plain = signed("service", "host;x-amz-date", &[]);
        let headers = renew(plain.clone(), get("")).unwrap();
        assert_eq!(
            headers[AUTHORIZATION],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        let post = Signed { method: "POST", ..get("") };
        let headers = renew(plain.clone(), post).unwrap();
        let text = headers[AUTHORIZATION].to_str().unwrap();
        assert!(text.ends_with("5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"));
        let headers = renew(plain, get("Param2=value2&Param1=value1")).unwrap();
        let text = headers[AUTHORIZATION].to_str().unwrap();
        assert!(text.ends_with("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"));
    }

    #[test]
    fn pieces_of_another_kind_are_refused_and_an_unsigned_body_passes() {
        let names = "host;x-amz-content-sha256;x-amz-date";
        let pieces = [("x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")];
        assert!(renew(signed("s3", names, &pieces), get("")).is_err());
        let unsigned = [("x-amz-content-sha256", "UNSIGNED-PAYLOAD")];
        renew(signed("s3", names, &unsigned), get("")).unwrap();
    }

    #[test]
    fn a_token_is_signed_with_the_rest() {
        let mut headers = signed("s3", "host;x-amz-date", &[("x-amz-security-token", "other")]);
        let signature = Signature::of(&headers).unwrap();
        let key = Key::parse("id:key:token:with:colons").unwrap();
        signature.renew(&mut headers, get(""), key).unwrap();
        assert_eq!(headers[TOKEN], "token:with:colons");
        let text = headers[AUTHORIZATION].to_str().unwrap();
        assert!(text.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"), "{text}");
    }
}

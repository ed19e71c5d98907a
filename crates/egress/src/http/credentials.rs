//! Secrets in requests: the session knows placeholders, hosts get values.
//!
//! A value is put in only where the rule that allowed the request names its secret, and only over
//! verified TLS: in the open not even a body gets it. A placeholder that goes anywhere else stops
//! the request.
//!
//! Deliberately absent: where secrets come from, and bodies (`exchange` replaces in small ones).

use super::body::Trailers;
use super::decode;
use super::escape;
use super::forms;
use super::refuse::refusal;
use super::scrub::{Needle, Scrub, find};
use super::sigv4::{Key, Signature};
use crate::office::Refusal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_api::egress::{Carrier, Credential, CredentialMode, Rule, Secret, Used};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, TRAILER};
use http::request::Parts;

/// How names of headers end that carry credentials, as far as they are known.
const CARRIERS: [&str; 5] = ["authorization", "apikey", "accesstoken", "authtoken", "cookie"];
/// Last words of names of headers that carry credentials.
const WORDS: [&str; 6] = ["auth", "key", "password", "secret", "signature", "token"];
/// Headers with such words that carry none: the keys of web sockets and of requests that are sent
/// once more are made up by the client, and what guards a form is of use only with a cookie.
const HARMLESS: [&str; 6] = [
    "csrf-token",
    "idempotency-key",
    "sec-websocket-key",
    "x-csrf-token",
    "x-idempotency-key",
    "x-xsrf-token",
];
/// Where clients that cannot set headers put credentials, beside names of protocols.
const PROTOCOLS: &str = "sec-websocket-protocol";
/// What compresses messages of web sockets: they could not be searched any more.
const EXTENSIONS: &str = "sec-websocket-extensions";
/// Parameters of the query that carry credentials, as far as they are known.
const PARAMETERS: [&str; 17] = [
    "access_token",
    "api_key",
    "apikey",
    "awsaccesskeyid",
    "client_secret",
    "jwt",
    "key",
    "oauth_token",
    "private_token",
    "sig",
    "signature",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-credential",
    "x-goog-signature",
];

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Anybody on the way can read it.
    Plain,
    /// Over TLS, to a host that has proved its name.
    Verified,
}

/// The part of a request that secrets are put into.
#[derive(Debug)]
pub(super) struct Draft {
    /// The headers.
    pub(super) headers: HeaderMap,
    /// The path.
    pub(super) path: String,
    /// The query, without its question mark.
    pub(super) query: Option<String>,
}

/// What was done, and what remains to be done.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Secrets that were put in.
    pub(super) used: Vec<Used>,
    /// Takes the values out of the answer.
    pub(super) scrub: Option<Scrub>,
    /// Whether the host gets a secret: its answer is looked into, however it is encoded.
    pub(super) searched: bool,
    /// Replaces in the body of the request.
    pub(super) body: Option<Scrub>,
    /// What becomes of the request's trailers.
    pub(super) trailers: Trailers,
    /// Sign with this secret.
    pub(super) sign: Option<(Signature, Secret)>,
}

/// Puts secrets into a request.
pub(super) fn apply(
    draft: &mut Draft,
    rule: Option<&Rule>,
    secrets: &[Secret],
    channel: Channel,
) -> Result<Applied, Refusal> {
    let credential = rule.and_then(|rule| rule.credential.as_ref());
    let own = credential.map(|credential| credential.secret.as_str());
    for secret in secrets.iter().filter(|secret| Some(secret.name.as_str()) != own) {
        if !secret.placeholder.is_empty() && draft.has(&secret.placeholder) {
            let sentence = format!(
                "the request carries the placeholder of the secret {}, which is not for this host",
                secret.name
            );
            return Err(refusal("placeholder-misdirected", sentence, "leave it out"));
        }
    }
    let scrub = forms::scrub(secrets, credential);
    let Some(credential) = credential else {
        if scrub.is_some() {
            decode::narrow(&mut draft.headers);
        }
        return Ok(Applied { scrub, ..Applied::default() });
    };
    // What is compressed cannot be searched for the secret as it comes.
    draft.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    draft.headers.remove(EXTENSIONS);
    let Some(secret) = secrets.iter().find(|secret| secret.name == credential.secret) else {
        if credential.mode == CredentialMode::Swap {
            return Ok(Applied { scrub, ..Applied::default() });
        }
        let sentence = format!("the secret {} is not set", credential.secret);
        return Err(refusal("no-secret", sentence, "the user can set it: `cowork secret set`"));
    };
    let hand = Hand { credential, secret, value: text(secret)? };
    if channel == Channel::Plain {
        if hand.is_needed(draft)? {
            let sentence = format!("the secret {} is sent over TLS only", secret.name);
            return Err(refusal("plaintext-credential", sentence, "use https"));
        }
        return Ok(Applied { scrub, searched: true, ..Applied::default() });
    }
    Ok(Applied { scrub, searched: true, ..hand.put(draft)? })
}

fn text(secret: &Secret) -> Result<&str, Refusal> {
    let text = std::str::from_utf8(&secret.value.0).ok();
    text.filter(|text| !text.is_empty() && !text.bytes().any(|byte| byte.is_ascii_control()))
        .ok_or_else(|| {
            let sentence = format!("the secret {} is no text that headers can have", secret.name);
            refusal("no-secret", sentence, "the user can set it anew: `cowork secret set`")
        })
}

/// The secret that the head of a request gets, if it gets one.
pub(super) fn uses<'s>(
    draft: &Draft,
    rule: Option<&Rule>,
    secrets: &'s [Secret],
) -> Option<&'s Secret> {
    let credential = rule.and_then(|rule| rule.credential.as_ref())?;
    let secret = secrets.iter().find(|secret| secret.name == credential.secret)?;
    let used = credential.mode != CredentialMode::Swap || draft.has(&secret.placeholder);
    used.then_some(secret)
}

impl Draft {
    /// What is in the head of a request, which loses its headers to it.
    pub(super) fn of(parts: &mut Parts) -> Self {
        Self {
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().map(str::to_owned),
            headers: std::mem::take(&mut parts.headers),
        }
    }

    /// Whether a text is somewhere in it, also inside what Basic authentication encodes.
    fn has(&self, text: &str) -> bool {
        let inside = |value: &HeaderValue| {
            let plain = find(value.as_bytes(), text.as_bytes()).is_some();
            plain || basic(value).is_some_and(|pair| pair.contains(text))
        };
        self.path.contains(text)
            || self.query.as_ref().is_some_and(|query| query.contains(text))
            || self.headers.values().any(inside)
    }

    /// Sets a parameter of the query; takes away others of its name.
    fn set_parameter(&mut self, name: &str, value: &str) {
        self.remove_parameter(name);
        let query = self.query.get_or_insert_default();
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(&encode(name));
        query.push('=');
        query.push_str(&encode(value));
    }

    fn remove_parameter(&mut self, name: &str) {
        let Some(query) = &self.query else { return };
        let others = |pair: &&str| !alike(&parameter(pair.trim_end_matches(SEPARATORS)).0, name);
        let kept: String = query.split_inclusive(SEPARATORS).filter(others).collect();
        if kept.len() < query.len() {
            let kept = kept.trim_end_matches(SEPARATORS);
            self.query = (!kept.is_empty()).then(|| kept.to_owned());
        }
    }
}

/// What stands between the parts of a query: programs do not agree about it.
const SEPARATORS: [char; 2] = ['&', ';'];

/// Whether two names are one to programs that turn them into variables.
fn alike(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Whether a header carries a credential, as far as its name tells.
fn carries(name: &str) -> bool {
    let name = name.replace('_', "-");
    let word = name.rsplit('-').next().unwrap_or_default();
    let carrier = WORDS.contains(&word) || CARRIERS.iter().any(|end| name.ends_with(end));
    name == PROTOCOLS || (carrier && !HARMLESS.contains(&name.as_str()))
}

/// One secret, on its way into one request.
struct Hand<'a> {
    credential: &'a Credential,
    secret: &'a Secret,
    value: &'a str,
}

impl Hand<'_> {
    /// Whether the head of a request gets the secret.
    fn is_needed(&self, draft: &Draft) -> Result<bool, Refusal> {
        let Credential { mode, carrier, .. } = self.credential;
        Ok(*mode != CredentialMode::Swap
            || draft.has(&self.secret.placeholder)
            || (*carrier == Carrier::AwsSignature && self.signature(draft, *mode)?.is_some()))
    }

    fn put(&self, draft: &mut Draft) -> Result<Applied, Refusal> {
        let pinned = self.credential.mode == CredentialMode::Pin;
        if pinned {
            self.refuse_others(draft)?;
            draft.headers.remove(TRAILER);
        }
        let trailers = if pinned { Trailers::Dropped } else { Trailers::Carried };
        let mut applied = Applied { trailers, ..Applied::default() };
        match (self.credential.mode, &self.credential.carrier) {
            (mode, Carrier::AwsSignature) => {
                applied.sign = self.signature(draft, mode)?;
                if let Some((signature, _)) = &applied.sign {
                    let own = Key::parse(&self.secret.placeholder);
                    let foreign_removed = own.is_none_or(|own| own.id != signature.id);
                    applied.used.push(Used { foreign_removed, ..self.used("signature") });
                }
            }
            (CredentialMode::Swap, _) => {
                applied.used = self.swap(draft)?;
                let needle = Needle {
                    name: self.secret.name.as_str().into(),
                    find: self.secret.placeholder.as_bytes().to_vec(),
                    put: self.value.as_bytes().to_vec(),
                };
                applied.body = Some(Scrub::new(vec![needle]));
            }
            (CredentialMode::Inject | CredentialMode::Pin, carrier) => {
                let used = self.inject(draft, carrier)?;
                applied.used.push(used);
            }
        }
        Ok(applied)
    }

    /// Replaces the placeholder wherever it is. Says where it was.
    fn swap(&self, draft: &mut Draft) -> Result<Vec<Used>, Refusal> {
        let placeholder = self.secret.placeholder.as_str();
        let mut used = Vec::new();
        if placeholder.is_empty() {
            return Ok(used);
        }
        let mut note = |place: String| used.push(self.used(place));
        for (name, value) in &mut draft.headers {
            let swapped = if let Some(pair) = basic(value).filter(|pair| pair.contains(placeholder))
            {
                format!("Basic {}", STANDARD.encode(pair.replace(placeholder, self.value)))
            } else if find(value.as_bytes(), placeholder.as_bytes()).is_some() {
                let text = value.to_str().map_err(|_cause| self.unusable())?;
                text.replace(placeholder, self.value)
            } else {
                continue;
            };
            *value = self.header(&swapped)?;
            note(format!("header {name}"));
        }
        if let Some(query) = draft.query.as_mut().filter(|query| query.contains(placeholder)) {
            *query = query.replace(placeholder, &encode(self.value));
            note("query".to_owned());
        }
        if draft.path.contains(placeholder) {
            draft.path = draft.path.replace(placeholder, &encode(self.value));
            note("path".to_owned());
        }
        Ok(used)
    }

    /// Puts the secret where it belongs, and tells whether something else was there.
    fn inject(&self, draft: &mut Draft, carrier: &Carrier) -> Result<Used, Refusal> {
        let (name, value) = match carrier {
            Carrier::Bearer => (AUTHORIZATION, format!("Bearer {}", self.value)),
            Carrier::Basic { user } => (AUTHORIZATION, self.basic(user)),
            Carrier::Header(name) => {
                let name = name.parse::<HeaderName>().map_err(|_cause| self.unusable())?;
                (name, self.value.to_owned())
            }
            Carrier::Query(name) => {
                let query = draft.query.as_deref().unwrap_or_default();
                let foreign_removed = query
                    .split(SEPARATORS)
                    .map(parameter)
                    .any(|(found, value)| alike(&found, name) && value != self.secret.placeholder);
                draft.set_parameter(name, self.value);
                return Ok(Used { foreign_removed, ..self.used(format!("query {name}")) });
            }
            Carrier::AwsSignature => return Err(self.unusable()),
        };
        let place = format!("header {name}");
        let foreign_removed = !draft.headers.get_all(&name).iter().all(|value| self.is_ours(value));
        draft.headers.insert(name, self.header(&value)?);
        Ok(Used { foreign_removed, ..self.used(place) })
    }

    /// As it is recorded.
    fn used(&self, place: impl Into<String>) -> Used {
        let (secret, mode) = (self.secret.name.clone(), self.credential.mode);
        Used { secret, mode, place: place.into(), foreign_removed: false }
    }

    fn basic(&self, user: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{}", self.value)))
    }

    /// The signature that the request brought, if it is to be made anew.
    fn signature(
        &self,
        draft: &Draft,
        mode: CredentialMode,
    ) -> Result<Option<(Signature, Secret)>, Refusal> {
        let Some(signature) = Signature::of(&draft.headers) else {
            let id = draft.query.as_deref().and_then(Signature::in_query);
            let own = Key::parse(&self.secret.placeholder).map(|key| key.id);
            if id.is_some() && id == own {
                let sentence = "a signature in the query cannot be made anew";
                let hint = "send the request with its signature in a header";
                return Err(refusal("unsigned-request", sentence, hint));
            }
            if mode == CredentialMode::Swap {
                return Ok(None);
            }
            let sentence = "the request has no AWS signature that could be made anew";
            let hint = "configure the AWS client with the placeholders of the session";
            return Err(refusal("unsigned-request", sentence, hint));
        };
        let known = Key::parse(&self.secret.placeholder).is_some_and(|key| key.id == signature.id);
        match mode {
            CredentialMode::Swap if !known => Ok(None),
            CredentialMode::Pin if !known => Err(self.foreign("header authorization")),
            _ => Ok(Some((signature, self.secret.clone()))),
        }
    }

    /// Refuses credentials that are not ours, and takes ours away: it is put in anew.
    fn refuse_others(&self, draft: &mut Draft) -> Result<(), Refusal> {
        let signs = self.credential.carrier == Carrier::AwsSignature;
        let own = match &self.credential.carrier {
            Carrier::Header(name) => name.as_str(),
            _ => AUTHORIZATION.as_str(),
        };
        let suspect = |name: &&HeaderName| alike(name.as_str(), own) || carries(name.as_str());
        let names: Vec<HeaderName> = draft.headers.keys().filter(suspect).cloned().collect();
        let mut parameters: Vec<&str> = PARAMETERS.to_vec();
        if let Carrier::Query(name) = &self.credential.carrier {
            parameters.push(name);
        }
        for name in names {
            let signature = name == AUTHORIZATION || name == "x-amz-security-token";
            if signs && signature {
                continue;
            }
            if alike(name.as_str(), PROTOCOLS) {
                if draft.headers.get_all(name).iter().any(looks_like_key) {
                    return Err(self.foreign("header sec-websocket-protocol"));
                }
                continue;
            }
            if !draft.headers.get_all(&name).iter().all(|value| self.is_ours(value)) {
                return Err(self.foreign(&format!("header {name}")));
            }
            draft.headers.remove(name);
        }
        for name in parameters {
            let query = draft.query.as_deref().unwrap_or_default();
            let foreign = |pair: &str| {
                let (found, value) = parameter(pair);
                alike(&found, name) && value != self.secret.placeholder
            };
            if query.split(SEPARATORS).any(foreign) {
                return Err(self.foreign(&format!("query {name}")));
            }
            draft.remove_parameter(name);
        }
        Ok(())
    }

    /// Whether a header has our placeholder, and no other credential.
    fn is_ours(&self, value: &HeaderValue) -> bool {
        let placeholder = self.secret.placeholder.as_str();
        if placeholder.is_empty() {
            return false;
        }
        if let Some(pair) = basic(value) {
            let halves = pair.split_once(':');
            return halves.is_some_and(|(user, word)| user == placeholder || word == placeholder);
        }
        let Ok(text) = value.to_str() else { return false };
        let text = text.trim();
        let bare = ["Bearer ", "bearer ", "token ", "Token "]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .unwrap_or(text);
        bare.trim() == placeholder
    }

    fn header(&self, text: &str) -> Result<HeaderValue, Refusal> {
        let mut value = HeaderValue::from_str(text).map_err(|_cause| self.unusable())?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn foreign(&self, place: &str) -> Refusal {
        let sentence = format!("the request brings a credential of its own ({place})");
        let hint = format!("send none: the host gets the secret {}", self.secret.name);
        refusal("foreign-credential", sentence, &hint)
    }

    fn unusable(&self) -> Refusal {
        let sentence = format!("the secret {} cannot be put into the request", self.secret.name);
        refusal("no-secret", sentence, "the rule says where it goes")
    }
}

/// Whether a protocol's name seems to carry a credential: `openai-insecure-api-key.…`.
fn looks_like_key(value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    ["key", "token", "bearer", "auth"].iter().any(|word| text.contains(word))
}

/// What Basic authentication encodes.
fn basic(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?.trim();
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let engine = base64::engine::GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        base64::engine::GeneralPurposeConfig::new()
            .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    String::from_utf8(engine.decode(encoded.trim()).ok()?).ok()
}

/// The name and the value of a part of a query, decoded.
fn parameter(pair: &str) -> (String, String) {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    (decode(name), decode(value))
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let mut digit = || char::from(ahead.next()?).to_digit(16);
        let escaped =
            digit().zip(digit()).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match (byte, escaped) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                bytes = ahead;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn encode(text: &str) -> String {
    escape(text, b"-._~")
}

//! Rules from what people write.
//!
//! [`build`] makes a rule of its parts, whoever wrote them: a command line, a policy file, a preset,
//! the API. What is refused here never reaches a matcher: parts that do not go together, allowances
//! that are no limit, and texts that could mean two things.
//!
//! Deliberately absent: what the host can enforce. [`fits_listeners`] says which rules need more
//! than listeners on single ports.

mod error;
mod host;
mod quota;
mod shown;

use super::address;
use super::matcher::MAX_RANGE;
use super::target;
use crate::Bytes;
use cowork_api::egress::{
    Action, Carrier, Credential, CredentialMode, Host, MAX_CAPTURE, Network, Ports, Quota, Request,
    Rule, Tls,
};

pub use error::RuleError;

/// Most bytes of a host with all that is beside it.
const MOST_TEXT: usize = 2048;
/// Most ports and ranges of one rule.
const MOST_PORTS: usize = 64;
/// Most methods of one rule.
const MOST_METHODS: usize = 32;
/// Most paths of one rule.
const MOST_PATHS: usize = 256;
/// Most bytes of one path.
const MOST_PATH: usize = 512;
/// Most ranges that names may lead to.
const MOST_NETWORKS: usize = 64;
/// Most characters of a reason.
const MOST_REASON: usize = 500;

/// Last parts of names that no public name has: everything below them is somebody's own.
const PRIVATE_ENDS: [&str; 11] = [
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "private",
    "test",
];

/// What becomes of what a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// It passes.
    #[default]
    Allow,
    /// The user is asked.
    Ask,
    /// It is refused.
    Deny,
}

impl Verb {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A rule, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleParts {
    /// The preset that it belongs to.
    pub preset: Option<String>,
    /// What becomes of it.
    pub verb: Verb,
    /// Which hosts, as after `--allow`: `example.com`, `*.example.com:8443`,
    /// `GET https://example.com/v1/**`.
    pub host: String,
    /// Which ports, where they are not beside the host: `443`, `8000-8100`, `80,443`, `*`.
    pub ports: Option<String>,
    /// Which methods, where they are not beside the host; all without this.
    pub methods: Vec<String>,
    /// Which paths, where they are not beside the host; all without this.
    pub paths: Vec<String>,
    /// More methods with paths: each is one kind of request.
    pub http: Vec<Request>,
    /// Whether what is inside TLS is looked into.
    pub tls: Tls,
    /// Which private addresses its names may lead to, e.g. `10.20.0.0/16`.
    pub resolves_to: Vec<String>,
    /// The secret that its requests get.
    pub secret: Option<SecretParts>,
    /// Told to whoever a denial refuses.
    pub reason: Option<String>,
    /// Bytes that may be sent in a time, e.g. `200M/1h`.
    pub upload: Option<String>,
    /// Requests in a time, e.g. `120/1m`.
    pub requests: Option<String>,
    /// Connections at a time.
    pub connections: Option<u32>,
    /// How much of each body is kept, e.g. `64KB`.
    pub capture: Option<String>,
}

/// A secret that a rule's requests get, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretParts {
    /// The secret's name.
    pub name: String,
    /// What is done with it: [`CredentialMode::Swap`] without this.
    pub mode: Option<CredentialMode>,
    /// Where it is put: [`Carrier::Bearer`] without this.
    pub carrier: Option<Carrier>,
}

impl RuleParts {
    /// What is written after `--allow`, `--deny` and their likes.
    pub fn new(verb: Verb, host: impl Into<String>) -> Self {
        Self { verb, host: host.into(), ..Self::default() }
    }
}

/// Makes a rule of its parts.
pub fn build(parts: &RuleParts) -> Result<Rule, RuleError> {
    if parts.host.len() > MOST_TEXT {
        return Err(RuleError::TooMany { key: "host", most: MOST_TEXT });
    }
    let written = host::parse(&parts.host)?;
    check_width(parts, &written.host)?;
    let ports = which_ports(parts, &written)?;
    let http = which_requests(parts, &written)?;
    let capture = capture(parts)?;
    let mut rule = Rule {
        name: String::new(),
        action: action(parts)?,
        host: written.host,
        ports,
        http,
        // Of what is not looked into there is nothing to keep.
        tls: if parts.tls == Tls::AsNeeded && capture.is_some() { Tls::Inspect } else { parts.tls },
        resolves_to: which_networks(parts)?,
        credential: which_credential(parts)?,
        limits: limits(parts)?,
    };
    check_together(parts, &rule)?;
    rule.name = shown::name(parts.preset.as_deref(), parts.verb, &rule);
    Ok(rule)
}

/// Refuses a rule about more ports in a row than listeners are made for.
pub fn fits_listeners(rule: &Rule) -> Result<(), RuleError> {
    let fits = match (&rule.action, &rule.ports) {
        (Action::Deny { .. }, _) | (_, Ports::Web) => true,
        (_, Ports::All) => false,
        (_, Ports::Some(ranges)) => {
            ranges.iter().all(|(from, to)| to.saturating_sub(*from) < MAX_RANGE)
        }
    };
    if fits { Ok(()) } else { Err(RuleError::TooManyPorts { rule: rule.name.as_str().into() }) }
}

/// Reads where a secret is put: `bearer`, `basic:USER`, `header:NAME`, `query:NAME` or `aws`.
pub fn carrier(text: &str) -> Result<Carrier, RuleError> {
    let token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        (1..=128).contains(&text.len()) && text.bytes().all(fits)
    };
    let user = |text: &str| {
        text.len() <= 256 && !text.contains(':') && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match text.split_once(':') {
        None if text == "bearer" => Ok(Carrier::Bearer),
        None if text == "aws" => Ok(Carrier::AwsSignature),
        Some(("basic", name)) if user(name) => Ok(Carrier::Basic { user: name.to_owned() }),
        Some(("header", name)) if token(name) => Ok(Carrier::Header(name.to_ascii_lowercase())),
        Some(("query", name)) if token(name) => Ok(Carrier::Query(name.to_owned())),
        _ => Err(RuleError::Carrier { text: text.into() }),
    }
}

fn check_width(parts: &RuleParts, host: &Host) -> Result<(), RuleError> {
    let text = || parts.host.trim().into();
    match (parts.verb, host) {
        (Verb::Allow, Host::Any) => Err(RuleError::Everything { text: text() }),
        (Verb::Allow, Host::Network(Network { bits: 0, .. })) => {
            Err(RuleError::Everything { text: text() })
        }
        (Verb::Allow, Host::Below(name) | Host::Domain(name))
            if !name.contains('.') && !PRIVATE_ENDS.contains(&name.as_str()) =>
        {
            Err(RuleError::TooWide { text: text(), last: name.as_str().into() })
        }
        _ => Ok(()),
    }
}

fn which_ports(parts: &RuleParts, written: &host::Written) -> Result<Ports, RuleError> {
    let ports = match (&parts.ports, &written.ports) {
        (Some(_), Some(_)) => return Err(RuleError::Twice { key: "ports" }),
        (Some(text), None) => Some(host::ports(text)?),
        (None, ports) => ports.clone(),
    };
    match (ports, parts.verb, &written.host) {
        (Some(Ports::Some(ranges)), ..) if ranges == [(80, 80), (443, 443)] => Ok(Ports::Web),
        (Some(ports), ..) => Ok(ports),
        // What is refused is refused altogether.
        (None, Verb::Deny, _) => Ok(Ports::All),
        (None, _, Host::Loopback) => Err(RuleError::NoPort),
        (None, Verb::Allow | Verb::Ask, _) => Ok(Ports::Web),
    }
}

fn which_requests(parts: &RuleParts, written: &host::Written) -> Result<Vec<Request>, RuleError> {
    if !parts.methods.is_empty() && !written.methods.is_empty() {
        return Err(RuleError::Twice { key: "methods" });
    }
    if !parts.paths.is_empty() && written.path.is_some() {
        return Err(RuleError::Twice { key: "paths" });
    }
    let first = Request {
        methods: parts.methods.iter().chain(&written.methods).cloned().collect(),
        paths: parts.paths.iter().chain(&written.path).cloned().collect(),
    };
    let some = |request: &&Request| !request.methods.is_empty() || !request.paths.is_empty();
    let first = Some(&first).filter(some);
    if first.is_some() && !parts.http.is_empty() {
        return Err(RuleError::Twice { key: "http" });
    }
    if parts.http.iter().any(|request| !some(&request)) {
        let sentence = "an entry of `http` names methods, paths or both";
        return Err(RuleError::Contradiction { key: "http", sentence });
    }
    let requests: Result<Vec<Request>, RuleError> =
        first.into_iter().chain(&parts.http).map(request).collect();
    let requests = requests?;
    let paths: usize = requests.iter().map(|request| request.paths.len()).sum();
    if paths > MOST_PATHS || requests.len() > MOST_PATHS {
        return Err(RuleError::TooMany { key: "paths", most: MOST_PATHS });
    }
    Ok(requests)
}

fn request(request: &Request) -> Result<Request, RuleError> {
    if request.methods.len() > MOST_METHODS {
        return Err(RuleError::TooMany { key: "methods", most: MOST_METHODS });
    }
    let methods: Result<_, _> = request.methods.iter().map(|text| method(text)).collect();
    for path in &request.paths {
        check_path(path)?;
    }
    Ok(Request { methods: methods?, paths: request.paths.clone() })
}

fn method(text: &str) -> Result<String, RuleError> {
    let fits = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    if !(1..=32).contains(&text.len()) || !text.bytes().all(fits) {
        return Err(RuleError::Method { text: text.into() });
    }
    Ok(text.to_ascii_uppercase())
}

/// A pattern is right if it is a path when its stars are something.
fn check_path(text: &str) -> Result<(), RuleError> {
    if text.contains('?') {
        return Err(RuleError::Query);
    }
    if text.len() > MOST_PATH {
        return Err(RuleError::TooMany { key: "paths", most: MOST_PATH });
    }
    match target::check(&text.replace('*', "x")) {
        Ok(_) => Ok(()),
        Err(cause) => Err(RuleError::Path { text: text.into(), cause }),
    }
}

fn which_networks(parts: &RuleParts) -> Result<Vec<Network>, RuleError> {
    if parts.resolves_to.len() > MOST_NETWORKS {
        return Err(RuleError::TooMany { key: "resolves_to", most: MOST_NETWORKS });
    }
    let network = |text: &String| {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let network = host::network(inner.unwrap_or(text))?;
        if address::is_never_reached(&network) {
            return Err(RuleError::NeverReached { text: text.as_str().into() });
        }
        Ok(network)
    };
    parts.resolves_to.iter().map(network).collect()
}

fn which_credential(parts: &RuleParts) -> Result<Option<Credential>, RuleError> {
    let Some(SecretParts { name, mode, carrier }) = &parts.secret else { return Ok(None) };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
        return Err(RuleError::Secret { text: name.as_str().into() });
    }
    let mode = mode.unwrap_or(CredentialMode::Swap);
    let carrier = carrier.clone().unwrap_or(Carrier::Bearer);
    Ok(Some(Credential { secret: name.clone(), mode, carrier }))
}

fn action(parts: &RuleParts) -> Result<Action, RuleError> {
    let reason = parts.reason.as_deref().unwrap_or_default();
    if reason.chars().count() > MOST_REASON || reason.chars().any(char::is_control) {
        return Err(RuleError::Reason);
    }
    match parts.verb {
        Verb::Deny => Ok(Action::Deny { reason: reason.to_owned() }),
        Verb::Allow | Verb::Ask if !reason.is_empty() => {
            let sentence = "only a rule that denies has a reason";
            Err(RuleError::Contradiction { key: "reason", sentence })
        }
        Verb::Allow => Ok(Action::Allow),
        Verb::Ask => Ok(Action::Ask),
    }
}

fn limits(parts: &RuleParts) -> Result<Quota, RuleError> {
    if parts.connections == Some(0) {
        return Err(RuleError::Zero { key: "connections" });
    }
    Ok(Quota {
        upload: parts.upload.as_deref().map(quota::upload).transpose()?,
        requests: parts.requests.as_deref().map(quota::requests).transpose()?,
        connections: parts.connections,
    })
}

/// How much of each body is kept of the requests of a rule.
pub fn capture(parts: &RuleParts) -> Result<Option<u64>, RuleError> {
    let Some(text) = &parts.capture else { return Ok(None) };
    match text.trim().parse::<Bytes>().map(Bytes::get) {
        Ok(bytes @ 1..=MAX_CAPTURE) => Ok(Some(bytes)),
        _ => Err(RuleError::Capture { text: text.as_str().into() }),
    }
}

/// Refuses parts that do not go together.
fn check_together(parts: &RuleParts, rule: &Rule) -> Result<(), RuleError> {
    let limited = rule.limits != Quota::default();
    let looks_inside =
        !rule.http.is_empty() || rule.credential.is_some() || rule.limits.requests.is_some();
    let literal = matches!(rule.host, Host::Network(_) | Host::Loopback);
    let contradictions = [
        (
            parts.verb == Verb::Deny && (limited || rule.credential.is_some()),
            if limited { "limits" } else { "auth" },
            "a rule that denies lets nothing through: it has no limits and no secret",
        ),
        (
            parts.verb == Verb::Deny && !rule.resolves_to.is_empty(),
            "resolves_to",
            "a rule that denies is about names: write another one for the addresses",
        ),
        (
            rule.tls == Tls::Tunnel && looks_inside,
            "tls",
            "methods, paths, a secret and requests per time need what is inside TLS to be looked \
             into: leave out `tunnel`, or them",
        ),
        (
            rule.tls == Tls::Tunnel && parts.capture.is_some(),
            "capture",
            "bodies are kept of what is looked into: leave out `tunnel`, or `capture`",
        ),
        (
            parts.verb == Verb::Deny && parts.capture.is_some(),
            "capture",
            "a rule that denies lets nothing through: there are no bodies to keep",
        ),
        (
            literal && !rule.resolves_to.is_empty(),
            "resolves_to",
            "only a name leads to addresses: this rule names them already",
        ),
        (
            matches!(rule.host, Host::Any) && rule.credential.is_some(),
            "auth",
            "a secret belongs to hosts that are named",
        ),
    ];
    match contradictions.into_iter().find(|(there, ..)| *there) {
        Some((_, key, sentence)) => Err(RuleError::Contradiction { key, sentence }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! The part `network`.

use crate::address;
use crate::domain::{Domain, Hosts, Purpose};
use crate::read::{At, Need, Reader, Strange};
use cowork_api::egress::Network as Range;

const KEYS: &[&str] = &[
    "allowAllUnixSockets",
    "allowLocalBinding",
    "allowMachLookup",
    "allowPlaintextHeaderSet",
    "allowUnixSockets",
    "allowedDomains",
    "ambiguousRequestTarget",
    "deniedDomainReasons",
    "deniedDomains",
    "deniedResolvedAddresses",
    "filterRequest",
    "httpProxyPort",
    "mitmProxy",
    "parentProxy",
    "refuseOpaqueTunnels",
    "requireHostMatch",
    "socksProxyPort",
    "strictAllowlist",
    "stripResponseHeaders",
    "tlsTerminate",
];

const TERMINATION: &[&str] = &[
    "caCertPath",
    "caKeyPath",
    "excludeDomains",
    "extraCaCertPaths",
    "handshakeTimeoutMs",
    "maxTunnels",
];

/// What cannot be honoured, and why, if it is there.
const REFUSED: [(&str, &str); 5] = [
    (
        "filterRequest",
        "it is a function, which a file cannot hold; `cowork run --policy` has rules for methods \
         and paths",
    ),
    (
        "httpProxyPort",
        "cowork decides about connections itself and hands them to no other proxy; use \
         `parentProxy` for one between this host and the world",
    ),
    (
        "socksProxyPort",
        "cowork decides about connections itself and hands them to no other proxy; use \
         `parentProxy` for one between this host and the world",
    ),
    ("mitmProxy", "cowork looks into TLS itself (`tlsTerminate`) and hands it to no other proxy"),
    ("stripResponseHeaders", "cowork takes no headers out of answers"),
];

/// What is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// What is allowed.
    pub allowed: Vec<Domain>,
    /// What is denied, whatever is allowed.
    pub denied: Vec<Denied>,
    /// Where no name may lead to.
    pub denied_addresses: Vec<Range>,
    /// Whether what is inside TLS is looked into.
    pub tls: Option<Termination>,
    /// The proxy between this host and the world.
    pub parent: Option<ParentProxy>,
}

/// Something that is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The entry, as it is written.
    pub text: String,
    /// What it means.
    pub domain: Domain,
    /// What whoever is refused is told.
    pub reason: Option<String>,
}

/// What is inside TLS is looked into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    /// Except for these hosts.
    pub exclude: Vec<Domain>,
}

/// A proxy between this host and the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentProxy {
    /// Where it is.
    pub url: String,
    /// What is reached without it, divided by commas.
    pub except: String,
}

pub(super) fn read(reader: &mut Reader, at: &At<'_>) -> Network {
    reader.known(at, KEYS, Strange::Told);
    refused(reader, at, &REFUSED);
    needless(reader, at);
    if reader.flag(at, "allowAllUnixSockets") == Some(true) {
        reader.wrong(
            at.key("allowAllUnixSockets"),
            "cowork cannot honour it: sockets that are made in the sandbox work without it, and \
             those of this host are never reached; leave it out",
        );
    }
    if reader.flag(at, "refuseOpaqueTunnels") == Some(true) {
        reader.wrong(
            at.key("refuseOpaqueTunnels"),
            "cowork cannot honour it: with `tlsTerminate` hosts are looked into except those in \
             `excludeDomains`; leave it out",
        );
    }
    let allowed = domains(reader, at, "allowedDomains", Purpose::Allow, Need::Required);
    let reasons = reader.pairs(at, "deniedDomainReasons");
    let mut denied = Vec::new();
    for (key, text) in reader.texts(at, "deniedDomains", Need::Required) {
        let reason = reasons.iter().find(|(entry, _)| *entry == text);
        match Domain::parse(&text, Purpose::Deny) {
            Ok(domain) => {
                let reason = reason.map(|(_, reason)| reason.clone());
                denied.push(Denied { text, domain, reason });
            }
            Err(error) => reader.wrong(key, error.to_string()),
        }
    }
    let mut denied_addresses = Vec::new();
    for (key, text) in reader.texts(at, "deniedResolvedAddresses", Need::Optional) {
        match address::range(&text) {
            Some(range) => denied_addresses.push(range),
            None => reader.wrong(
                key,
                "an address or a range is expected, as `10.0.0.0/8`, `192.168.1.10` or `fc00::/7`",
            ),
        }
    }
    let tls = reader.object(at, "tlsTerminate").map(|at| termination(reader, &at));
    let parent = reader.object(at, "parentProxy").and_then(|at| parent(reader, &at));
    Network { allowed, denied, denied_addresses, tls, parent }
}

fn refused(reader: &mut Reader, at: &At<'_>, list: &[(&str, &str)]) {
    for (name, why) in list.iter().filter(|(name, _)| at.has(name)) {
        reader.wrong(at.key(name), format!("cowork cannot honour it: {why}"));
    }
}

/// Entries of a list of hosts.
pub(super) fn domains(
    reader: &mut Reader,
    at: &At<'_>,
    name: &str,
    purpose: Purpose,
    need: Need,
) -> Vec<Domain> {
    let mut domains = Vec::new();
    for (key, text) in reader.texts(at, name, need) {
        match Domain::parse(&text, purpose) {
            Ok(domain) => domains.push(domain),
            Err(error) => reader.wrong(key, error.to_string()),
        }
    }
    domains
}

/// Checks what has no meaning here: what is for macOS, what is always so, and what goes with
/// functions that a file cannot hold.
fn needless(reader: &mut Reader, at: &At<'_>) {
    for name in
        ["allowLocalBinding", "allowPlaintextHeaderSet", "requireHostMatch", "strictAllowlist"]
    {
        reader.flag(at, name);
    }
    reader.word(at, "ambiguousRequestTarget", &["refuse", "asSpelled", "normalize"]);
    reader.texts(at, "allowUnixSockets", Need::Optional);
    for (key, text) in reader.texts(at, "allowMachLookup", Need::Optional) {
        if text.strip_suffix('*').unwrap_or(&text).contains('*') {
            reader.wrong(key, "a `*` is expected at the end alone");
        }
    }
}

fn termination(reader: &mut Reader, at: &At<'_>) -> Termination {
    const REFUSED: [(&str, &str); 4] = [
        (
            "caCertPath",
            "every session has an authority of its own, whose key never leaves memory; leave it \
             out",
        ),
        (
            "extraCaCertPaths",
            "commands trust this host's authorities and the session's own; set \
             COWORK_EXTRA_ROOTS for the daemon, or trust the authority on this host",
        ),
        ("handshakeTimeoutMs", "cowork has limits of its own for connections"),
        ("maxTunnels", "cowork has limits of its own for connections"),
    ];
    reader.known(at, TERMINATION, Strange::Told);
    if at.has("caCertPath") == at.has("caKeyPath") {
        refused(reader, at, REFUSED.get(..1).unwrap_or_default());
    } else {
        reader.wrong(at.key("caCertPath"), "`caCertPath` and `caKeyPath` go together");
    }
    refused(reader, at, REFUSED.get(1..).unwrap_or_default());
    let exclude = domains(reader, at, "excludeDomains", Purpose::Hosts, Need::Optional);
    Termination { exclude }
}

fn parent(reader: &mut Reader, at: &At<'_>) -> Option<ParentProxy> {
    reader.known(at, &["http", "https", "noProxy"], Strange::Told);
    let mut url = |name: &str| {
        let url = reader.text(at, name)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            reader.wrong(at.key(name), "an address is expected, as `http://proxy.example:3128`");
        }
        Some(url)
    };
    let (http, https) = (url("http"), url("https"));
    if let (Some(http), Some(https)) = (&http, &https)
        && http != https
    {
        reader.wrong(
            at.key("http"),
            "cowork cannot honour it: everything goes through one proxy; name the same for `http` \
             and `https`",
        );
    }
    let except = reader.text(at, "noProxy").unwrap_or_default();
    https.or(http).map(|url| ParentProxy { url, except })
}

impl Network {
    /// The hosts with names that are allowed: a secret goes to no others.
    pub fn named(&self) -> impl Iterator<Item = &Domain> {
        let is_named = |domain: &&Domain| matches!(domain.hosts, Hosts::Name(_) | Hosts::Below(_));
        self.allowed.iter().filter(is_named)
    }
}

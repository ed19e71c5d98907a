//! Hosts and ports as people write them.

use super::super::address;
use super::super::name::{HostName, HostNameError};
use super::RuleError;
use cowork_api::egress::{HOST_NAME, Host, Network, Ports};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is written beside a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) methods: Vec<String>,
    pub(super) host: Host,
    pub(super) ports: Option<Ports>,
    pub(super) path: Option<String>,
}

/// A method before a host. One that nobody knows is in capitals: otherwise it is a name with a space
/// in it.
fn method(text: &str) -> Result<String, RuleError> {
    const KNOWN: [&str; 9] =
        ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    let known = KNOWN.iter().any(|known| known.eq_ignore_ascii_case(text));
    if known || !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err(RuleError::Method { text: text.into() })
    }
}

/// Reads `[METHOD,… ]HOST[:PORTS]` or `[METHOD,… ]http[s]://HOST[:PORTS][/PATH]`.
pub(super) fn parse(text: &str) -> Result<Written, RuleError> {
    let mut words = text.split_ascii_whitespace();
    let (methods, rest) = match (words.next(), words.next(), words.next()) {
        (None, ..) => return Err(RuleError::NoHost),
        (Some(rest), None, _) => (Vec::new(), rest),
        (Some(methods), Some(rest), None) => {
            let methods = methods.split(',').map(method);
            (methods.collect::<Result<Vec<_>, _>>()?, rest)
        }
        _ => return Err(RuleError::Malformed { text: text.into() }),
    };
    let Some((scheme, rest)) = rest.split_once("://") else {
        let (host, ports) = host_and_ports(rest)?;
        return Ok(Written { methods, host, ports, path: None });
    };
    let port = match scheme.to_ascii_lowercase().as_str() {
        "https" => 443,
        "http" => 80,
        _ => return Err(RuleError::Scheme { text: text.into() }),
    };
    if rest.contains(['?', '#']) {
        return Err(RuleError::Query);
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(RuleError::UserInfo);
    }
    if authority.is_empty() {
        return Err(RuleError::NoHost);
    }
    let (host, ports) = host_and_ports(authority)?;
    let ports = ports.unwrap_or_else(|| Ports::Some(vec![(port, port)]));
    // `https://example.com/` is what browsers show for the host as a whole.
    let path = (!matches!(path, "" | "/")).then(|| path.to_owned());
    Ok(Written { methods, host, ports: Some(ports), path })
}

fn host_and_ports(text: &str) -> Result<(Host, Option<Ports>), RuleError> {
    let malformed = || RuleError::Address { text: text.into() };
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or_else(malformed)?;
        let (bits, ports) = match after.split_once(':') {
            Some((bits, list)) => (bits, Some(ports(list)?)),
            None => (after, None),
        };
        let whole = format!("{inner}{bits}");
        let network = network(&whole)?;
        return if network.address.is_ipv6() {
            Ok((Host::Network(network), ports))
        } else {
            Err(malformed())
        };
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        let write = format!("[{address}]");
        return Err(RuleError::Spelling { text: text.into(), write: write.into() });
    }
    if let Some((address, rest)) = text.split_once('/')
        && address.parse::<Ipv6Addr>().is_ok()
    {
        let (bits, ports) = match rest.split_once(':') {
            Some((bits, list)) => (bits, Some(ports(list)?)),
            None => (rest, None),
        };
        return Ok((Host::Network(network(&format!("{address}/{bits}"))?), ports));
    }
    let (host, ports) = match text.split_once(':') {
        Some((host, list)) => (host, Some(ports(list)?)),
        None => (text, None),
    };
    Ok((one_host(host, text)?, ports))
}

/// A host without ports. `whole` is what it was written in, with them.
fn one_host(text: &str, whole: &str) -> Result<Host, RuleError> {
    if let Some((address, _)) = text.split_once('/') {
        return if address.parse::<Ipv4Addr>().is_ok() {
            network(text).map(Host::Network)
        } else {
            Err(RuleError::NoScheme { text: whole.into() })
        };
    }
    if text.parse::<Ipv4Addr>().is_ok() {
        return network(text).map(Host::Network);
    }
    let name = |name: &str| {
        let parsed: Result<HostName, HostNameError> = name.parse();
        match parsed {
            Ok(name) => Ok(name.as_str().to_owned()),
            Err(HostNameError::Empty) => Err(RuleError::NoHost),
            Err(cause) => Err(RuleError::Host { text: name.into(), cause }),
        }
    };
    if matches!(text, "*" | "**") {
        return Ok(Host::Any);
    }
    let (below, domain) = (text.strip_prefix("*."), text.strip_prefix("**."));
    if below.or(domain).unwrap_or(text).contains('*') {
        return Err(RuleError::Wildcard { text: text.into() });
    }
    if let Some(rest) = below {
        return Ok(Host::Below(name(rest)?));
    }
    if let Some(rest) = domain {
        return Ok(Host::Domain(name(rest)?));
    }
    let name = name(text)?;
    match name.as_str() {
        "host" | HOST_NAME => Ok(Host::Loopback),
        "localhost" => Err(RuleError::Localhost),
        other if other.ends_with(".localhost") => Err(RuleError::Localhost),
        _ => Ok(Host::Name(name)),
    }
}

/// Reads an address, or a range of them as `10.0.0.0/8`.
pub(super) fn network(text: &str) -> Result<Network, RuleError> {
    let malformed = || RuleError::Address { text: text.into() };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_no_address| malformed())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => {
            decimal(bits).and_then(|bits| u8::try_from(bits).ok()).ok_or_else(malformed)?
        }
        None => most,
    };
    if bits > most {
        return Err(malformed());
    }
    let spelling = |network: Network| RuleError::Spelling {
        text: text.into(),
        write: shown_network(&network).into(),
    };
    if let (IpAddr::V6(_), inner @ IpAddr::V4(_)) = (address, address.to_canonical()) {
        let bits = bits.checked_sub(96).ok_or_else(malformed)?;
        return Err(spelling(Network { address: inner, bits }));
    }
    let first = address::leading(address, bits);
    let network = Network { address: first, bits };
    if first == address { Ok(network) } else { Err(spelling(network)) }
}

/// Reads `443`, `8000-8100`, `80,443` or `*`.
pub(super) fn ports(text: &str) -> Result<Ports, RuleError> {
    if text == "*" {
        return Ok(Ports::All);
    }
    let malformed = || RuleError::Port { text: text.into() };
    let port = |text| decimal(text).filter(|port| *port != 0).ok_or_else(malformed);
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (port(from)?, port(to)?);
        if from > to {
            return Err(malformed());
        }
        ranges.push((from, to));
    }
    if ranges.len() > super::MOST_PORTS {
        return Err(RuleError::TooMany { key: "ports", most: super::MOST_PORTS });
    }
    Ok(Ports::Some(ranges))
}

/// A number without a sign or leading zeros.
fn decimal(text: &str) -> Option<u16> {
    let plain = text == "0" || !text.starts_with('0');
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (plain && digits).then(|| text.parse().ok()).flatten()
}

/// A range as it is written.
pub(super) fn shown_network(network: &Network) -> String {
    let Network { address, bits } = network;
    match address {
        IpAddr::V4(_) if *bits == 32 => address.to_string(),
        IpAddr::V4(_) => format!("{address}/{bits}"),
        IpAddr::V6(_) if *bits == 128 => format!("[{address}]"),
        IpAddr::V6(_) => format!("[{address}/{bits}]"),
    }
}

/// A host as it is written.
pub(super) fn shown_host(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Below(name) => format!("*.{name}"),
        Host::Domain(name) => format!("**.{name}"),
        Host::Network(network) => shown_network(network),
        Host::Loopback => "host".to_owned(),
        Host::Any => "*".to_owned(),
    }
}

/// Ports as they are written behind a colon.
pub(super) fn shown_ports(ports: &Ports) -> String {
    match ports {
        Ports::Web => "80,443".to_owned(),
        Ports::All => "*".to_owned(),
        Ports::Some(ranges) => {
            let shown = |(from, to): &(u16, u16)| {
                if from == to { from.to_string() } else { format!("{from}-{to}") }
            };
            ranges.iter().map(shown).collect::<Vec<_>>().join(",")
        }
    }
}

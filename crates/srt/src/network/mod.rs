//! Rules of what is reached, from domains.
//!
//! The order of srt's decision is that of every rule: a denial wins over an allowance, and what no
//! rule is about is refused. A name leads to public and private addresses alike, as with srt, but
//! never to this host, its neighbours on the wire, or what serves a machine's own secrets; denied
//! addresses are denied to names that lead there as well.

use crate::address;
use crate::domain::{Domain, Hosts};
use crate::read::{Issue, Wrong};
use crate::settings::Network;
use cowork_api::egress::{Network as Range, Tls};
use cowork_policy::egress::rule::{self, RuleParts, SecretParts, Verb};
use std::net::IpAddr;

/// Names lead to any private address.
const ANYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The rules, each of which can be made.
pub fn rules(network: &Network) -> Result<Vec<RuleParts>, Wrong> {
    let mut rules = Vec::new();
    let mut issues = Vec::new();
    let mut keep = |key: String, parts: RuleParts| match rule::build(&parts) {
        // Of two that say the same, one is enough.
        Ok(_) if rules.contains(&parts) => {}
        Ok(_) => rules.push(parts),
        Err(error) => issues.push(Issue { key, sentence: error.to_string() }),
    };
    for (number, denied) in network.denied.iter().enumerate() {
        let key = format!("network.deniedDomains.{number}");
        let parts = RuleParts::new(Verb::Deny, host(&denied.domain, None));
        keep(key, RuleParts { reason: denied.reason.clone(), ..parts });
    }
    for (number, range) in network.denied_addresses.iter().enumerate() {
        for host in denied(range, &network.allowed) {
            let key = format!("network.deniedResolvedAddresses.{number}");
            keep(key, RuleParts::new(Verb::Deny, host));
        }
    }
    for (number, domain) in network.allowed.iter().enumerate() {
        let key = format!("network.allowedDomains.{number}");
        let named = matches!(domain.hosts, Hosts::Name(_) | Hosts::Below(_));
        let resolves_to = ANYWHERE.iter().filter(|_| named).map(ToString::to_string).collect();
        let tls = treatment(network, domain);
        let parts = RuleParts::new(Verb::Allow, host(domain, Some("*")));
        keep(key, RuleParts { resolves_to, tls, ..parts });
    }
    if issues.is_empty() { Ok(rules) } else { Err(Wrong { issues }) }
}

/// Refuses what cannot be in force behind a proxy that looks names up itself.
pub fn behind_proxy(network: &Network) -> Result<(), Wrong> {
    if network.denied_addresses.is_empty() {
        return Ok(());
    }
    let key = "network.deniedResolvedAddresses".to_owned();
    let sentence =
        "cowork cannot enforce it behind a proxy, which looks names up itself".to_owned();
    Err(Wrong { issues: vec![Issue { key, sentence }] })
}

/// The rules by which some hosts get a secret, by its name, in place of what stands for it: all
/// that are allowed, or those of `hosts`.
pub fn with_secret(
    network: &Network,
    hosts: Option<&[Domain]>,
    name: &str,
) -> Result<Vec<RuleParts>, String> {
    let mut rules: Vec<RuleParts> = Vec::new();
    for allowed in network.named() {
        let narrower = |host: &Domain| {
            let hosts = if allowed.covers(host) { &host.hosts } else { &allowed.hosts };
            Domain { hosts: hosts.clone(), port: allowed.port }
        };
        let meant: Vec<Domain> = match hosts {
            None => vec![allowed.clone()],
            Some(hosts) => hosts.iter().filter(|host| host.meets(allowed)).map(narrower).collect(),
        };
        for domain in meant {
            let exclude = network.tls.as_ref().map_or(&[][..], |tls| &tls.exclude);
            if exclude.iter().any(|excluded| excluded.covers(&domain)) {
                continue;
            }
            if let Some(excluded) = exclude.iter().find(|excluded| excluded.meets(&domain)) {
                return Err(format!(
                    "cowork cannot honour it for `{domain}` without `{excluded}` of \
                     `network.tlsTerminate.excludeDomains`: name the hosts in `injectHosts`"
                ));
            }
            let secret = SecretParts { name: name.to_owned(), ..SecretParts::default() };
            let parts = RuleParts {
                resolves_to: ANYWHERE.iter().map(ToString::to_string).collect(),
                secret: Some(secret),
                ..RuleParts::new(Verb::Allow, host(&domain, Some("*")))
            };
            rule::build(&parts).map_err(|error| error.to_string())?;
            if !rules.contains(&parts) {
                rules.push(parts);
            }
        }
    }
    Ok(rules)
}

/// What is inside TLS is looked into where that is asked for, and where no host that is meant is
/// excluded.
fn treatment(network: &Network, domain: &Domain) -> Tls {
    let named = matches!(domain.hosts, Hosts::Name(_) | Hosts::Below(_));
    match &network.tls {
        Some(tls) if tls.exclude.iter().any(|excluded| excluded.meets(domain)) => Tls::AsNeeded,
        Some(_) if named => Tls::Inspect,
        Some(_) | None => Tls::AsNeeded,
    }
}

/// As a rule writes hosts; `every` stands for all ports where none is named.
fn host(domain: &Domain, every: Option<&str>) -> String {
    let host = match &domain.hosts {
        // The loopback of this host has a name of its own in a session.
        Hosts::Localhost => "host".to_owned(),
        hosts => Domain { hosts: hosts.clone(), port: None }.to_string(),
    };
    match (domain.port, every) {
        (Some(port), _) => format!("{host}:{port}"),
        (None, Some(every)) => format!("{host}:{every}"),
        (None, None) => host,
    }
}

/// The hosts of the denials of a range. An address that is allowed by itself is not denied, on the
/// ports that are allowed.
fn denied(range: &Range, allowed: &[Domain]) -> Vec<String> {
    let mut parts = vec![*range];
    let mut hosts = Vec::new();
    for domain in allowed {
        let Hosts::Address(literal) = domain.hosts else { continue };
        let before = parts.len();
        parts = parts.iter().flat_map(|part| address::without(part, literal)).collect();
        let had = parts.len() != before;
        if let Some(port) = domain.port.filter(|_| had) {
            hosts.extend(other_ports(literal, port));
        }
    }
    hosts.extend(parts.iter().map(address::shown));
    hosts
}

fn other_ports(address: IpAddr, port: u16) -> Vec<String> {
    let whole = |range: String| match address {
        IpAddr::V4(address) => format!("{address}:{range}"),
        IpAddr::V6(address) => format!("[{address}]:{range}"),
    };
    let below = (port > 1).then(|| format!("1-{}", port - 1));
    let above = port.checked_add(1).map(|next| format!("{next}-65535"));
    below.into_iter().chain(above).map(whole).collect()
}

#[cfg(test)]
mod tests;

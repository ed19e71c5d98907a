//! What a command reaches: rules from settings, and how they are replaced while it runs.

use super::masks::Masks;
use super::wrong;
use crate::failure::{Failure, note};
use cowork_api::egress::Tls;
use cowork_client::types::{
    NetworkChange, NetworkRule, ParentProxy, RuleAction, TlsTreatment, WantedNetwork,
};
use cowork_policy::egress::rule::{self, RuleParts, Verb};
use cowork_srt::settings::Network;
use cowork_srt::{Settings, Wrong, network};

/// The ports that hosts are reached on where not every port can be.
pub(crate) const USUAL: &str = "22,80,443,3000,5000,8000,8080,8443,9418";

/// Rules, and what they are made with.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    parts: Vec<RuleParts>,
    masks: Masks,
    /// Which ports stand for all of them.
    ports: Ports,
    /// The proxy between this host and the world.
    parent: Option<ParentProxy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    All,
    Usual,
}

impl Reach {
    pub(super) fn new(settings: &Settings, masks: &Masks) -> Result<Self, Failure> {
        let parts = parts(&settings.network, masks).map_err(|found| wrong(&found))?;
        let parent = parent(&settings.network)?;
        check(&settings.network, parent.as_ref()).map_err(|found| wrong(&found))?;
        Ok(Self { parts, masks: masks.clone(), ports: Ports::All, parent })
    }

    /// Whether there are no rules: a session needs no network for it.
    pub(super) fn is_nothing(&self) -> bool {
        self.parts.is_empty()
    }

    /// The network of the session.
    pub(super) fn network(&self) -> WantedNetwork {
        let parent = self.parent.clone();
        WantedNetwork { rules: self.rules(), parent, ..WantedNetwork::default() }
    }

    /// The same on fewer ports; nothing if that makes no difference.
    pub(super) fn with_usual_ports(&self) -> Option<Self> {
        let narrow = Self { ports: Ports::Usual, ..self.clone() };
        (narrow.rules() != self.rules()).then_some(narrow)
    }

    fn rules(&self) -> Vec<NetworkRule> {
        self.parts.iter().map(|parts| self.rule(parts)).collect()
    }

    fn rule(&self, parts: &RuleParts) -> NetworkRule {
        let host = match (parts.verb, self.ports, parts.host.strip_suffix(":*")) {
            (Verb::Allow | Verb::Ask, Ports::Usual, Some(host)) => format!("{host}:{USUAL}"),
            _ => parts.host.clone(),
        };
        NetworkRule {
            action: match parts.verb {
                Verb::Allow => RuleAction::Allow,
                Verb::Ask => RuleAction::Ask,
                Verb::Deny => RuleAction::Deny,
            },
            host,
            tls: match parts.tls {
                Tls::AsNeeded => TlsTreatment::Auto,
                Tls::Inspect => TlsTreatment::Inspect,
                Tls::Tunnel => TlsTreatment::Tunnel,
            },
            resolves_to: parts.resolves_to.clone(),
            secret: parts.secret.as_ref().map(|secret| secret.name.clone()),
            reason: parts.reason.clone(),
            ..NetworkRule::default()
        }
    }

    /// What must be changed so that the rules are those of other settings, and these from then on.
    pub(super) fn turn(&self, settings: &Settings) -> Result<(NetworkChange, Self), Wrong> {
        let parts = parts(&settings.network, &self.masks)?;
        check(&settings.network, self.parent.as_ref())?;
        let next = Self { parts, ..self.clone() };
        let (old, new) = (self.names(), next.names());
        let change = NetworkChange {
            add: next.rules(),
            remove: old.into_iter().filter(|name| !new.contains(name)).collect(),
            ..NetworkChange::default()
        };
        Ok((change, next))
    }

    /// The names that the rules are known by.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for parts in &self.parts {
            let host = self.rule(parts).host;
            let made = rule::build(&RuleParts { host, ..parts.clone() });
            names.extend(made.map(|rule| rule.name));
        }
        names.sort();
        names.dedup();
        names
    }
}

/// The proxy that the settings name, or else the caller's variables.
fn parent(settings: &Network) -> Result<Option<ParentProxy>, Failure> {
    let variable = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| std::env::var(name).ok());
        value.filter(|value| !value.is_empty())
    };
    let has_password = |url: &str| url.contains('@');
    if let Some(parent) = &settings.parent {
        if has_password(&parent.url) {
            let sentence = "`network.parentProxy` has a password, which would be written down";
            let hint = "start the daemon with COWORK_PARENT_PROXY and COWORK_NO_PROXY, and leave \
                        it out";
            return Err(Failure::input(sentence, hint));
        }
        let (url, except) = (parent.url.clone(), parent.except.clone());
        return Ok(Some(ParentProxy { url, except }));
    }
    let url =
        variable(["HTTPS_PROXY", "https_proxy"]).or_else(|| variable(["HTTP_PROXY", "http_proxy"]));
    let Some(url) = url else { return Ok(None) };
    if has_password(&url) {
        note(
            "the proxy in HTTPS_PROXY or HTTP_PROXY has a password and is not used: start the \
             daemon with COWORK_PARENT_PROXY",
        );
        return Ok(None);
    }
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    Ok(Some(ParentProxy { url, except: variable(["NO_PROXY", "no_proxy"]).unwrap_or_default() }))
}

/// Refuses what a proxy makes unenforceable, where it is ever used.
fn check(settings: &Network, parent: Option<&ParentProxy>) -> Result<(), Wrong> {
    let is_used = |parent: &ParentProxy| parent.except.split(',').all(|one| one.trim() != "*");
    if parent.is_some_and(is_used) { network::behind_proxy(settings) } else { Ok(()) }
}

fn parts(settings: &Network, masks: &Masks) -> Result<Vec<RuleParts>, Wrong> {
    let mut parts = network::rules(settings)?;
    parts.extend(masks.rules(settings)?);
    Ok(parts)
}

//! Rules and presets, as policy reads them.

use crate::trouble::Trouble;
use cowork_api::egress::{Credential, Host, Rule, Tls};
use cowork_client::types::{NetworkRule, Preset, RuleAction, TlsTreatment};
use cowork_policy::egress::presets;
use cowork_policy::egress::rule::{
    RuleError, RuleParts, SecretParts, Verb, build, capture as captured,
};

fn refused(error: &RuleError) -> Trouble {
    Trouble::refused("bad-rule", error.to_string())
}

fn parts(rule: &NetworkRule, credential: Option<Credential>) -> RuleParts {
    RuleParts {
        preset: None,
        verb: match rule.action {
            RuleAction::Allow => Verb::Allow,
            RuleAction::Ask => Verb::Ask,
            RuleAction::Deny => Verb::Deny,
        },
        host: rule.host.clone(),
        ports: None,
        methods: rule.methods.clone(),
        paths: rule.paths.clone(),
        http: Vec::new(),
        tls: match rule.tls {
            TlsTreatment::Auto => Tls::AsNeeded,
            TlsTreatment::Inspect => Tls::Inspect,
            TlsTreatment::Tunnel => Tls::Tunnel,
        },
        resolves_to: rule.resolves_to.clone(),
        secret: credential.map(|credential| SecretParts {
            name: credential.secret,
            mode: Some(credential.mode),
            carrier: Some(credential.carrier),
        }),
        reason: rule.reason.clone(),
        upload: rule.upload.clone(),
        requests: rule.requests.clone(),
        connections: rule.connections,
        capture: rule.capture.clone(),
    }
}

/// A rule, as the user wrote it.
pub(crate) fn parse(rule: &NetworkRule, credential: Option<Credential>) -> Result<Rule, Trouble> {
    build(&parts(rule, credential)).map_err(|error| refused(&error))
}

/// How much is kept of each body of the requests of a rule.
pub(crate) fn capture(rule: &NetworkRule) -> Option<u64> {
    captured(&parts(rule, None)).ok().flatten()
}

/// What a rule is known by.
pub(crate) fn name_of(rule: &NetworkRule) -> String {
    let parts = parts(rule, None);
    build(&parts)
        .map_or_else(|_bad| format!("{} {}", parts.verb.word(), rule.host), |rule| rule.name)
}

/// The rules of a preset.
pub(crate) fn preset_rules(name: &str) -> Result<Vec<Rule>, Trouble> {
    presets::rules(name).map_err(|error| Trouble::missing("no-preset", error.to_string()))
}

/// Every preset.
pub(crate) fn presets() -> Vec<Preset> {
    let shown = |preset: &presets::Preset| Preset {
        name: preset.name().to_owned(),
        description: preset.description().to_owned(),
        hosts: preset.rules().iter().map(|rule| host_of(&rule.host)).collect(),
    };
    presets::all().iter().map(shown).collect()
}

/// A host, as it is written in a rule.
fn host_of(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Below(name) => format!("*.{name}"),
        Host::Domain(name) => format!("**.{name}"),
        Host::Network(network) => format!("{}/{}", network.address, network.bits),
        Host::Loopback => "host".into(),
        Host::Any => "*".into(),
    }
}

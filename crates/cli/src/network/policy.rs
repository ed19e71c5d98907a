//! Rules as people write them, checked before they are sent: on a command line, or in a policy file.

use crate::failure::Failure;
use cowork_api::egress;
use cowork_client::types::{NetworkRule, Otherwise, RuleAction, TlsTreatment, WantedNetwork};
use cowork_policy::egress::rule::{RuleParts, SecretParts, Verb};
use cowork_policy::egress::{file, presets, rule};
use cowork_policy::files::Settings;
use std::io::Read;
use std::path::Path;

/// Longest policy file.
const MAX_FILE: u64 = 1024 * 1024;

/// Refuses what is no rule.
pub(crate) fn check(rule: &NetworkRule) -> Result<(), Failure> {
    let parts = RuleParts {
        methods: rule.methods.clone(),
        paths: rule.paths.clone(),
        tls: match rule.tls {
            TlsTreatment::Auto => egress::Tls::AsNeeded,
            TlsTreatment::Inspect => egress::Tls::Inspect,
            TlsTreatment::Tunnel => egress::Tls::Tunnel,
        },
        resolves_to: rule.resolves_to.clone(),
        secret: rule.secret.clone().map(|name| SecretParts { name, ..SecretParts::default() }),
        reason: rule.reason.clone(),
        upload: rule.upload.clone(),
        requests: rule.requests.clone(),
        connections: rule.connections,
        capture: rule.capture.clone(),
        ..RuleParts::new(verb(rule.action), &rule.host)
    };
    match rule::build(&parts) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::input(error.to_string(), "")),
    }
}

/// Refuses what is no preset.
pub(crate) fn check_preset(name: &str) -> Result<(), Failure> {
    match presets::rules(name) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::input(error.to_string(), "")),
    }
}

fn verb(action: RuleAction) -> Verb {
    match action {
        RuleAction::Allow => Verb::Allow,
        RuleAction::Ask => Verb::Ask,
        RuleAction::Deny => Verb::Deny,
    }
}

/// What a policy file says.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// What may be reached.
    pub(super) network: WantedNetwork,
    /// What becomes of the rest, if it says so.
    pub(super) otherwise: Option<Otherwise>,
    /// What may be changed in granted folders, and how.
    pub(crate) files: Settings,
}

impl Policy {
    /// Whether it says anything about the network.
    pub(super) fn has_network(&self) -> bool {
        let WantedNetwork { presets, rules, .. } = &self.network;
        !presets.is_empty() || !rules.is_empty() || self.otherwise.is_some()
    }
}

/// Reads a policy file.
pub(super) fn read(path: &Path) -> Result<Policy, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::input(format!("cannot read the policy `{shown}`"), "")
            .with_cause(error.to_string())
    };
    let mut text = String::new();
    let policy = std::fs::File::open(path).map_err(unreadable)?;
    policy.take(MAX_FILE + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_FILE) {
        let sentence = format!("the policy `{shown}` is longer than a policy can be");
        return Err(Failure::input(sentence, "").with_cause("it has more than 1M"));
    }
    let wrong = |cause: String| {
        Failure::input(format!("the policy `{shown}` cannot be used"), "").with_cause(cause)
    };
    let policy = file::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let mut rules = Vec::new();
    for parts in &policy.parts {
        rules.extend(written(parts).map_err(wrong)?);
    }
    let otherwise = policy.otherwise.map(|otherwise| match otherwise {
        egress::Otherwise::Deny => Otherwise::Deny,
        egress::Otherwise::Ask => Otherwise::Ask,
    });
    let network = WantedNetwork { presets: policy.presets, rules, ..WantedNetwork::default() };
    Ok(Policy { network, otherwise, files: policy.files })
}

/// The rules of the API that say what one of a file says: one for each kind of request.
fn written(parts: &RuleParts) -> Result<Vec<NetworkRule>, String> {
    let host = match &parts.ports {
        Some(ports) => format!("{}:{ports}", parts.host),
        None => parts.host.clone(),
    };
    let secret = match &parts.secret {
        Some(SecretParts { name, mode: None, carrier: None }) => Some(name.clone()),
        Some(SecretParts { name, .. }) => {
            return Err(format!(
                "`{host}`: how a secret is used is said where it is kept: leave out `mode` and \
                 `carrier`, and say `cowork secret set {name} --mode … --as …`"
            ));
        }
        None => None,
    };
    let mut kinds = parts.http.clone();
    if kinds.is_empty() || !parts.methods.is_empty() || !parts.paths.is_empty() {
        let (methods, paths) = (parts.methods.clone(), parts.paths.clone());
        kinds.insert(0, egress::Request { methods, paths });
    }
    let limited = parts.upload.is_some() || parts.requests.is_some() || parts.connections.is_some();
    if limited && kinds.len() > 1 {
        return Err(format!(
            "`{host}`: limits are counted for one kind of request: write a rule for each"
        ));
    }
    let rules = kinds.into_iter().map(|kind| NetworkRule {
        action: match parts.verb {
            Verb::Allow => RuleAction::Allow,
            Verb::Ask => RuleAction::Ask,
            Verb::Deny => RuleAction::Deny,
        },
        host: host.clone(),
        methods: kind.methods,
        paths: kind.paths,
        tls: match parts.tls {
            egress::Tls::AsNeeded => TlsTreatment::Auto,
            egress::Tls::Inspect => TlsTreatment::Inspect,
            egress::Tls::Tunnel => TlsTreatment::Tunnel,
        },
        resolves_to: parts.resolves_to.clone(),
        secret: secret.clone(),
        reason: parts.reason.clone(),
        upload: parts.upload.clone(),
        requests: parts.requests.clone(),
        connections: parts.connections,
        capture: parts.capture.clone(),
    });
    Ok(rules.collect())
}

#[cfg(test)]
mod tests {
    use super::{check, written};
    use cowork_client::types::{NetworkRule, RuleAction};
    use cowork_policy::egress::file;

    fn of(text: &str) -> Result<Vec<NetworkRule>, String> {
        let policy = file::parse(text).map_err(|error| error.to_string())?;
        let rules = policy.parts.iter().map(written).collect::<Result<Vec<_>, _>>()?;
        Ok(rules.concat())
    }

    #[test]
    fn a_file_says_what_options_say() {
        let rules = of("[[egress.allow]]\nhost = \"db.internal\"\nports = [5432, \"6000-6010\"]\n\
                        resolves_to = [\"10.20.0.0/16\"]\n\
                        [[egress.deny]]\nhost = \"**.paste.example\"\nreason = \"no\"\n")
        .expect("it is a policy");
        let expected = [
            NetworkRule {
                host: "db.internal:5432,6000-6010".into(),
                resolves_to: vec!["10.20.0.0/16".into()],
                ..NetworkRule::default()
            },
            NetworkRule {
                action: RuleAction::Deny,
                host: "**.paste.example".into(),
                reason: Some("no".into()),
                ..NetworkRule::default()
            },
        ];
        assert_eq!(rules, expected);
        for rule in &rules {
            assert!(check(rule).is_ok(), "{rule:?}");
        }
    }

    #[test]
    fn kinds_of_requests_are_rules_of_their_own() {
        let http =
            "http = [{ methods = [\"POST\"], paths = [\"/v1/**\"] }, { methods = [\"GET\"] }]\n";
        let text = format!("[[egress.allow]]\nhost = \"a.example\"\n{http}");
        let rules = of(&text).expect("it is a policy");
        let kinds: Vec<_> = rules.iter().map(|rule| (&rule.methods, &rule.paths)).collect();
        assert_eq!(
            kinds,
            [
                (&vec!["POST".to_owned()], &vec!["/v1/**".to_owned()]),
                (&vec!["GET".into()], &vec![])
            ]
        );
        let limited = of(&format!("{text}limits = {{ requests = \"120/1m\" }}\n"));
        assert!(limited.is_err_and(|why| why.contains("one kind of request")));
    }

    #[test]
    fn a_secret_is_used_as_it_is_kept() {
        let rule = |auth: &str| format!("[[egress.allow]]\nhost = \"a.example\"\nauth = {auth}\n");
        let rules = of(&rule("{ secret = \"token\" }")).expect("it is a policy");
        assert_eq!(rules.first().and_then(|rule| rule.secret.as_deref()), Some("token"));
        let pinned = of(&rule("{ secret = \"token\", mode = \"pin\" }"));
        assert!(pinned.is_err_and(|why| why.contains("cowork secret set token")));
    }
}

//! From options to the network of a session, and that network in words.
//!
//! The daemon checks all of it again. It is checked here first, so that a plan can be shown without
//! it.

mod policy;

pub(crate) use policy::{Policy, check, check_preset};

use crate::arguments::{Headless, Net, NetworkOptions, RuleDetails, Tls};
use crate::failure::Failure;
use crate::show::units;
use cowork_client::types::{
    Network, NetworkBrief, NetworkRule, Otherwise, RuleAction, TlsTreatment, WantedNetwork,
};

/// The policy file that the options name; one that says nothing if they name none.
pub(crate) fn policy(options: &NetworkOptions) -> Result<Policy, Failure> {
    options.policy.as_deref().map_or_else(|| Ok(Policy::default()), policy::read)
}

/// The option that asks for a network, if one does. A policy may be about files alone.
pub(crate) fn asked(options: &NetworkOptions, policy: &Policy) -> Option<&'static str> {
    if policy.has_network() { options.asked() } else { options.asked_beside_policy() }
}

/// What the options and a policy ask for; nothing if there is to be no network.
pub(crate) fn wanted(
    options: &NetworkOptions,
    policy: &Policy,
) -> Result<Option<WantedNetwork>, Failure> {
    match (options.net, asked(options, policy)) {
        (None | Some(Net::Off), None) => return Ok(None),
        (Some(Net::Off), Some(option)) => {
            let sentence = format!("with `--net off` there is no network for `{option}`");
            return Err(Failure::input(sentence, "leave one of them out"));
        }
        (None | Some(Net::Ask | Net::Deny), _) => {}
    }
    let mut wanted = policy.network.clone();
    wanted.otherwise = match options.net {
        Some(Net::Ask) => Otherwise::Ask,
        Some(Net::Deny) => Otherwise::Deny,
        None | Some(Net::Off) => policy.otherwise.unwrap_or_default(),
    };
    let lists = [
        (RuleAction::Allow, &options.allow),
        (RuleAction::Ask, &options.ask),
        (RuleAction::Deny, &options.deny),
    ];
    let rules = lists.into_iter().flat_map(|(action, hosts)| {
        hosts.iter().map(move |host| NetworkRule {
            action,
            host: host.clone(),
            ..NetworkRule::default()
        })
    });
    for rule in rules {
        check(&rule)?;
        wanted.rules.push(rule);
    }
    for name in &options.presets {
        check_preset(name)?;
        wanted.presets.push(name.clone());
    }
    wanted.secrets.clone_from(&options.secrets);
    wanted.headless = options.headless == Headless::Always;
    Ok(Some(wanted))
}

/// An allowance for a host.
pub(crate) fn allowance(host: &str, details: &RuleDetails) -> NetworkRule {
    NetworkRule {
        action: RuleAction::Allow,
        host: host.to_owned(),
        methods: details.methods.iter().map(|method| method.to_ascii_uppercase()).collect(),
        paths: details.paths.clone(),
        tls: match details.tls {
            None => TlsTreatment::Auto,
            Some(Tls::Inspect) => TlsTreatment::Inspect,
            Some(Tls::Tunnel) => TlsTreatment::Tunnel,
        },
        resolves_to: details.resolves_to.clone(),
        secret: details.secret.clone(),
        reason: None,
        upload: details.upload.clone(),
        requests: details.requests.clone(),
        connections: details.connections,
        capture: details.capture.clone(),
    }
}

/// The word for what becomes of something.
pub(crate) fn action(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "allow",
        RuleAction::Ask => "ask",
        RuleAction::Deny => "deny",
    }
}

/// What becomes of what no rule is about, and whether nobody is there to be asked.
pub(crate) fn otherwise(choice: (Otherwise, bool)) -> &'static str {
    match choice {
        (Otherwise::Deny, _) => "otherwise refused",
        (Otherwise::Ask, false) => "otherwise you are asked",
        (Otherwise::Ask, true) => "otherwise refused, as nobody is there to be asked",
    }
}

/// The network of a session on one line.
pub(crate) fn summary(brief: Option<&NetworkBrief>, network: Option<&Network>) -> String {
    let Some(brief) = brief else { return "none".to_owned() };
    let rules = usize::try_from(brief.rules).unwrap_or(usize::MAX);
    let rules = units::count(rules, "rule", "rules");
    let egress = match network.and_then(|network| network.egress.as_ref()) {
        Some(egress) => {
            let again = match usize::try_from(egress.restarts).unwrap_or(usize::MAX) {
                0 => String::new(),
                restarts => format!(", started again {}", units::count(restarts, "time", "times")),
            };
            format!("egress running (pid {}{again})", egress.pid)
        }
        None if brief.up => "egress running".to_owned(),
        None => "no egress runs: nothing passes".to_owned(),
    };
    format!("{rules}, {}; {egress}", otherwise((brief.otherwise, brief.headless)))
}

/// The ports of a session that this host reaches, one on a line.
pub(crate) fn published(network: Option<&Network>) -> Vec<String> {
    let ports = network.iter().flat_map(|network| &network.published);
    ports.map(|port| format!("127.0.0.1:{} is port {}", port.outside, port.inside)).collect()
}

/// What a network that is asked for would be, a sentence each.
pub(crate) fn plan(wanted: Option<&WantedNetwork>) -> Vec<String> {
    let Some(wanted) = wanted else {
        return vec![
            "give it no network: no route, no names, only a loopback of its own".to_owned(),
        ];
    };
    let mut lines =
        vec!["let a process outside be the only way out of its network, by rules".to_owned()];
    let rules = wanted.rules.iter();
    lines.extend(rules.map(|rule| {
        let what = match rule.action {
            RuleAction::Allow => "let it reach",
            RuleAction::Ask if wanted.headless => "refuse, as nobody is there to be asked,",
            RuleAction::Ask => "ask you before it reaches",
            RuleAction::Deny => "refuse",
        };
        format!("{what} {}{}", rule.host, confined(rule))
    }));
    let presets = wanted.presets.iter();
    lines.extend(presets.map(|name| format!("let it reach the hosts of the preset {name}")));
    let secrets = wanted.secrets.iter();
    lines.extend(secrets.map(|name| {
        format!("put the secret {name} into its requests to the secret's hosts, on their way")
    }));
    lines.push(match wanted.otherwise {
        Otherwise::Ask if wanted.headless => {
            "refuse every other host: nobody is there to be asked".to_owned()
        }
        Otherwise::Deny => "refuse every other host".to_owned(),
        Otherwise::Ask => "ask you before it reaches any other host".to_owned(),
    });
    lines
}

/// What a rule is confined to, in brackets.
fn confined(rule: &NetworkRule) -> String {
    let details = details(rule);
    if details.is_empty() { details } else { format!(" ({details})") }
}

/// What a rule is confined to, and what else it says.
pub(crate) fn details(rule: &NetworkRule) -> String {
    let mut parts = Vec::new();
    let mut list = |word: &str, items: &[String]| {
        if !items.is_empty() {
            parts.push(format!("{word} {}", items.join(" ")));
        }
    };
    list("methods", &rule.methods);
    list("paths", &rule.paths);
    list("resolves to", &rule.resolves_to);
    match rule.tls {
        TlsTreatment::Auto => {}
        TlsTreatment::Inspect => parts.push("TLS inspected".to_owned()),
        TlsTreatment::Tunnel => parts.push("TLS tunnelled".to_owned()),
    }
    let mut one = |word: &str, item: Option<&String>| {
        parts.extend(item.map(|item| format!("{word} {item}")));
    };
    one("secret", rule.secret.as_ref());
    one("upload", rule.upload.as_ref());
    one("requests", rule.requests.as_ref());
    one("connections", rule.connections.map(|most| most.to_string()).as_ref());
    one("bodies kept up to", rule.capture.as_ref());
    one("because", rule.reason.as_ref());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Policy, details, plan, summary, wanted};
    use crate::arguments::{Net, NetworkOptions};
    use cowork_client::types::{NetworkBrief, NetworkRule, Otherwise, RuleAction, WantedNetwork};

    fn rule(action: RuleAction, host: &str) -> NetworkRule {
        NetworkRule { action, host: host.to_owned(), ..NetworkRule::default() }
    }

    #[test]
    fn without_rules_there_is_no_network() {
        for net in [None, Some(Net::Off)] {
            let options = NetworkOptions { net, ..NetworkOptions::default() };
            assert_eq!(wanted(&options, &Policy::default()).expect("it is no contradiction"), None);
        }
        assert_eq!(plan(None).len(), 1);
    }

    #[test]
    fn rules_keep_their_kind_and_the_rest_is_refused() {
        let options = NetworkOptions {
            allow: vec!["a.example".into(), "host:80".into()],
            ask: vec!["b.example".into()],
            deny: vec!["c.example".into()],
            ..NetworkOptions::default()
        };
        let expected = WantedNetwork {
            otherwise: Otherwise::Deny,
            rules: vec![
                rule(RuleAction::Allow, "a.example"),
                rule(RuleAction::Allow, "host:80"),
                rule(RuleAction::Ask, "b.example"),
                rule(RuleAction::Deny, "c.example"),
            ],
            ..WantedNetwork::default()
        };
        assert_eq!(
            wanted(&options, &Policy::default()).expect("it is no contradiction"),
            Some(expected)
        );
    }

    #[test]
    fn off_and_a_rule_contradict_each_other() {
        let options = NetworkOptions {
            net: Some(Net::Off),
            secrets: vec!["x".into()],
            ..NetworkOptions::default()
        };
        let refused = format!("{:?}", wanted(&options, &Policy::default()));
        assert!(
            refused.contains("with `--net off` there is no network for `--secret`"),
            "{refused}"
        );
    }

    #[test]
    fn a_network_is_told_on_one_line() {
        assert_eq!(summary(None, None), "none");
        let brief =
            NetworkBrief { otherwise: Otherwise::Deny, headless: false, rules: 1, up: false };
        assert_eq!(
            summary(Some(&brief), None),
            "1 rule, otherwise refused; no egress runs: nothing passes"
        );
    }

    #[test]
    fn details_of_a_rule_are_words() {
        let rule = NetworkRule {
            methods: vec!["GET".into(), "HEAD".into()],
            upload: Some("200M/1h".into()),
            ..rule(RuleAction::Allow, "a.example")
        };
        assert_eq!(details(&rule), "methods GET HEAD, upload 200M/1h");
    }
}

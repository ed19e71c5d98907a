//! `cowork allow` and `cowork deny`: what a session may reach, changed while it runs.

use super::{on, target};
use crate::arguments::{Allow, Deny, Output};
use crate::daemon;
use crate::failure::Failure;
use crate::network::{action, allowance, check, check_preset, details, otherwise};
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, progress};
use cowork_client::http::{Client, Method};
use cowork_client::types::{NamedRule, Network, NetworkChange, NetworkRule, RuleAction};
use std::process::ExitCode;

/// `cowork allow`.
pub(crate) fn allow(options: &Allow) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let change = if options.remove {
        let presets = options.presets.iter().map(|name| format!("preset {name}"));
        let wanted = options.rules.iter().cloned().chain(presets).collect::<Vec<_>>();
        removal(&mut client, &options.session, &wanted, RuleAction::Allow)?
    } else {
        let rules = options.rules.iter().map(|host| allowance(host, &options.details));
        let add: Vec<NetworkRule> = rules.collect();
        add.iter().try_for_each(check)?;
        options.presets.iter().try_for_each(|name| check_preset(name))?;
        let alone = add.is_empty();
        NetworkChange {
            add,
            presets: options.presets.clone(),
            secrets: options.details.secret.clone().filter(|_name| alone).into_iter().collect(),
            ..NetworkChange::default()
        }
    };
    changed(&mut client, &options.session, &change, &options.output)
}

/// `cowork deny`.
pub(crate) fn deny(options: &Deny) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let change = if options.remove {
        removal(&mut client, &options.session, &options.rules, RuleAction::Deny)?
    } else {
        let rules = options.rules.iter().map(|host| NetworkRule {
            action: RuleAction::Deny,
            host: host.clone(),
            reason: options.reason.clone(),
            ..NetworkRule::default()
        });
        let add: Vec<NetworkRule> = rules.collect();
        add.iter().try_for_each(check)?;
        NetworkChange { add, ..NetworkChange::default() }
    };
    changed(&mut client, &options.session, &change, &options.output)
}

/// The removal of rules, each named by its host or as it is shown.
fn removal(
    client: &mut Client,
    session: &str,
    wanted: &[String],
    kind: RuleAction,
) -> Result<NetworkChange, Failure> {
    let (id, network) = network(client, session)?;
    let mut remove = Vec::new();
    for text in wanted {
        let names = named(&network, text, kind);
        if names.is_empty() {
            let sentence = format!("session {id} has no rule `{} {text}`", action(kind));
            return Err(Failure::input(
                sentence,
                format!("list them with `cowork net rules {id}`"),
            ));
        }
        remove.extend(names);
    }
    // One name may stand for several rules.
    remove.sort();
    remove.dedup();
    Ok(NetworkChange { remove, ..NetworkChange::default() })
}

/// The names of the rules and presets that a text means.
fn named(network: &Network, text: &str, kind: RuleAction) -> Vec<String> {
    let preset = text
        .strip_prefix("preset ")
        .is_some_and(|preset| network.presets.iter().any(|known| known == preset));
    if preset {
        return vec![text.to_owned()];
    }
    let means =
        |name: &str, rule: &NetworkRule| name == text || (rule.action == kind && rule.host == text);
    let rules = network.rules.iter().filter(|known| means(&known.name, &known.rule));
    rules.map(|known| known.name.clone()).collect()
}

/// Changes the network, and tells what is in force from then on.
fn changed(
    client: &mut Client,
    session: &str,
    change: &NetworkChange,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let (_, network) = progress::during("changing the rules", || {
        on(client, session, |client, id| {
            client.send::<Network>(Method::Patch, target(id, "/network"), change)
        })
    })?;
    told(&network, output)
}

/// The network of the session that the user names.
pub(crate) fn network(client: &mut Client, session: &str) -> Result<(String, Network), Failure> {
    on(client, session, |client, id| client.get(target(id, "/network")))
}

/// Prints rules in force.
pub(crate) fn told(network: &Network, output: &Output) -> Result<ExitCode, Failure> {
    if output.json { show::json(network) } else { show::print(text(network)) }
}

fn text(network: &Network) -> String {
    let mut text = table(&network.rules, &network.presets);
    text.push_str(otherwise((network.otherwise, network.headless)));
    text.push('\n');
    text
}

/// Rules and presets under titles.
pub(crate) fn table(rules: &[NamedRule], presets: &[String]) -> String {
    let mut table = Table::new(["RULE", "HOST", "DETAILS"]);
    for known in rules {
        let tone = match known.rule.action {
            RuleAction::Allow => Tone::Good,
            RuleAction::Ask => Tone::Warning,
            RuleAction::Deny => Tone::Bad,
        };
        table.row([
            Cell::new(&known.name, tone),
            (&known.rule.host).into(),
            details(&known.rule).into(),
        ]);
    }
    for preset in presets {
        let name = Cell::new(format!("preset {preset}"), Tone::Good);
        table.row([name, "its hosts".into(), "see `cowork net presets`".into()]);
    }
    table.render(Colour::of_stdout())
}

#[cfg(test)]
mod tests {
    use super::{named, text};
    use cowork_client::types::{NamedRule, Network, NetworkRule, RuleAction};

    fn network() -> Network {
        let rule = |action: RuleAction, name: &str, host: &str| NamedRule {
            name: name.to_owned(),
            rule: NetworkRule { action, host: host.to_owned(), ..NetworkRule::default() },
        };
        Network {
            presets: vec!["github".into()],
            rules: vec![
                rule(RuleAction::Allow, "allow a.example", "a.example"),
                rule(RuleAction::Deny, "deny a.example", "a.example"),
                rule(RuleAction::Allow, "preset github", "github.com"),
            ],
            ..Network::default()
        }
    }

    #[test]
    fn a_rule_is_meant_by_its_host_or_its_name() {
        let of = |text, kind| named(&network(), text, kind);
        assert_eq!(of("a.example", RuleAction::Allow), ["allow a.example"]);
        assert_eq!(of("a.example", RuleAction::Deny), ["deny a.example"]);
        assert_eq!(of("deny a.example", RuleAction::Allow), ["deny a.example"]);
        assert_eq!(of("preset github", RuleAction::Allow), ["preset github"]);
        assert!(of("b.example", RuleAction::Allow).is_empty());
        assert!(of("preset pypi", RuleAction::Allow).is_empty());
    }

    #[test]
    fn rules_are_a_table_with_the_rest_below() {
        let text = text(&network());
        assert!(text.starts_with("RULE "), "{text}");
        assert!(text.ends_with("\notherwise refused\n"), "{text}");
    }
}

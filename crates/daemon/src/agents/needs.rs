//! What an agent must reach and prove itself with, as changes of a session's network.

use crate::daemon::Daemon;
use crate::network::name_of;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_agents::{Agent, Choice, Credential, Need};
use cowork_client::types::{NetworkChange, NetworkRule, WantedNetwork};
use std::sync::Arc;

impl Daemon {
    /// The secrets that an agent proves itself with: of each credential the one that is wanted, or the
    /// first that is stored.
    pub(super) fn choose_secrets<'a>(
        &self,
        session: &Session,
        agent: &'a Agent,
        wanted: Option<&str>,
    ) -> Result<Vec<&'a Choice>, Trouble> {
        if let Some(wanted) = wanted {
            let all = agent.credentials.iter().flat_map(|credential| &credential.choices);
            if !all.clone().any(|choice| choice.secret == wanted) {
                let names: Vec<&str> = all.map(|choice| choice.secret.as_str()).collect();
                let name = wanted.escape_debug();
                let sentence = format!("{} does not use the secret `{name}`", agent.title());
                return Err(Trouble::refused("no-credential", sentence)
                    .with_hint(format!("it uses {}", names.join(", "))));
            }
        }
        let stored = self.secrets.known_to(&session.id)?;
        let mut chosen = Vec::new();
        for credential in &agent.credentials {
            let choices = &credential.choices;
            let meant = choices.iter().find(|choice| Some(choice.secret.as_str()) == wanted);
            let found = match meant {
                Some(meant) => Some(meant).filter(|choice| stored.contains_key(&choice.secret)),
                None => choices.iter().find(|choice| stored.contains_key(&choice.secret)),
            };
            match (found, meant, credential.need) {
                (Some(found), ..) => chosen.push(found),
                (None, None, Need::Optional) => {}
                (None, meant, _) => return Err(no_credential(agent, credential, meant)),
            }
        }
        Ok(chosen)
    }

    /// Lets a session reach what the agent must reach, with the secrets that were chosen. What it
    /// reaches already stays as it is.
    pub(super) async fn connect_agent(
        self: &Arc<Self>,
        session: &Arc<Session>,
        agent: &Agent,
        chosen: &[&Choice],
    ) -> Result<(), Trouble> {
        let has = session.doc().spec.network.unwrap_or_default();
        let mut change = missing(&has, &agent.network.hosts, &agent.network.presets);
        let stored = self.secrets.known_to(&session.id)?;
        for choice in chosen {
            let rivals = agent.credentials.iter().flat_map(|credential| &credential.choices);
            change.remove.extend(rivals_of(choice, rivals, &has));
            // A secret goes to its own hosts; one that names none, to those of the definition.
            if stored.get(&choice.secret).is_some_and(|kept| !kept.hosts.is_empty()) {
                if !has.secrets.contains(&choice.secret) {
                    change.secrets.push(choice.secret.clone());
                }
                continue;
            }
            let rules = choice.hosts.iter().map(|host| NetworkRule {
                host: host.clone(),
                secret: Some(choice.secret.clone()),
                ..NetworkRule::default()
            });
            change.add.extend(rules.filter(|rule| !has.rules.contains(rule)));
        }
        let nothing = change.add.is_empty()
            && change.presets.is_empty()
            && change.secrets.is_empty()
            && change.remove.is_empty();
        if nothing {
            return Ok(());
        }
        self.change_network(session, change).await
    }

    /// Lets a session reach lists of hosts.
    pub(super) async fn connect_presets(
        self: &Arc<Self>,
        session: &Arc<Session>,
        presets: &[String],
    ) -> Result<(), Trouble> {
        let has = session.doc().spec.network.unwrap_or_default();
        let change = missing(&has, &[], presets);
        if change.presets.is_empty() { Ok(()) } else { self.change_network(session, change).await }
    }
}

fn missing(has: &WantedNetwork, hosts: &[String], presets: &[String]) -> NetworkChange {
    let rules =
        hosts.iter().map(|host| NetworkRule { host: host.clone(), ..NetworkRule::default() });
    let named = |rule: &NetworkRule| has.rules.iter().any(|known| name_of(known) == name_of(rule));
    NetworkChange {
        add: rules.filter(|rule| !named(rule)).collect(),
        presets: presets.iter().filter(|preset| !has.presets.contains(preset)).cloned().collect(),
        ..NetworkChange::default()
    }
}

/// Rules of other secrets for the same hosts: of two, one would be refused.
fn rivals_of<'a>(
    chosen: &Choice,
    all: impl Iterator<Item = &'a Choice>,
    has: &WantedNetwork,
) -> Vec<String> {
    let mut names = Vec::new();
    let rivals = all.filter(|other| other.secret != chosen.secret);
    for rival in rivals.filter(|other| other.hosts.iter().any(|host| chosen.hosts.contains(host))) {
        if has.secrets.contains(&rival.secret) {
            names.push(format!("secret {}", rival.secret));
        }
        let rules = has.rules.iter().filter(|rule| rule.secret.as_ref() == Some(&rival.secret));
        names.extend(rules.map(name_of));
    }
    names
}

fn no_credential(agent: &Agent, credential: &Credential, meant: Option<&Choice>) -> Trouble {
    let choices =
        credential.choices.iter().filter(|choice| meant.is_none_or(|meant| meant == *choice));
    let commands: Vec<String> = choices
        .map(|choice| {
            let hosts = choice.hosts.join(" --host ");
            let Choice { secret, variable, about, .. } = choice;
            format!("`cowork secret set {secret} --host {hosts} --env {variable}` with {about}")
        })
        .collect();
    let sentence = format!("{} has no credential: none of its secrets is stored", agent.title());
    Trouble::refused("no-credential", sentence)
        .with_hint(format!("store one with {}", commands.join(", or ")))
}

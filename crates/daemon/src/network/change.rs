//! What a session may reach, looked at and changed while it runs.

use super::line::Line;
use super::parse::{name_of, parse};
use super::{parent, trust};
use crate::daemon::Daemon;
use crate::session::{Doc, Session};
use crate::trouble::Trouble;
use cowork_api::egress::{Rules, Socket, ToEgress};
use cowork_client::types::{
    Egress, NamedRule, Network, NetworkBrief, NetworkChange, NetworkFlow, NetworkRule, Publish,
    PublishedPort, Traffic, WantedNetwork,
};
use cowork_policy::egress::Matcher;
use cowork_session::life::{Misfit, State};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most rules of a session, and most that stand for all sessions.
pub(crate) const MAX_RULES: usize = 1000;
/// Most ports of a session that are published.
const MAX_PUBLISHED: usize = 64;
/// Sockets that lead inwards and are handed over at a time.
const INWARD: usize = 8;
/// Where the catalogue keeps the rules that stand for all sessions.
const STANDING: &str = "network.standing";

impl Daemon {
    /// The network of a session.
    pub(crate) fn network(&self, session: &Session) -> Result<Network, Trouble> {
        let doc = session.doc();
        let wanted = doc.spec.network.clone().unwrap_or_default();
        let mut rules: Vec<NamedRule> = wanted.rules.iter().map(named).collect();
        rules.extend(
            self.secret_rules(&doc)?
                .iter()
                .map(|(name, rule)| NamedRule { name: name.clone(), rule: rule.clone() }),
        );
        rules.extend(self.standing()?.iter().map(named));
        let egress = doc.network.egress.as_ref().filter(|_| session.line().is_some());
        Ok(Network {
            otherwise: wanted.otherwise,
            headless: wanted.headless,
            presets: wanted.presets,
            rules,
            generation: doc.network.generation,
            egress: egress.map(|egress| Egress {
                pid: egress.pid,
                restarts: doc.network.restarts,
                confinement: egress.confinement.clone(),
                all_ports: egress.all_ports,
            }),
            published: doc.network.published,
        })
    }

    /// The network of a session, in short.
    pub(crate) fn network_brief(&self, session: &Session, doc: &Doc) -> Option<NetworkBrief> {
        let wanted = doc.spec.network.as_ref()?;
        let rules = self.rules_of(doc).map_or(0, |rules| rules.rules.len());
        Some(NetworkBrief {
            otherwise: wanted.otherwise,
            headless: wanted.headless,
            rules: u32::try_from(rules).unwrap_or(u32::MAX),
            up: session.line().is_some_and(|line| !line.is_gone()),
        })
    }

    /// Changes what a session may reach: checked, recorded, and then in force.
    pub(crate) async fn change_network(
        self: &Arc<Self>,
        session: &Arc<Session>,
        change: NetworkChange,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        if doc.state == State::Ended {
            return Err(Misfit::Ended.into());
        }
        let wanted = merged(doc.spec.network.clone().unwrap_or_default(), &change)?;
        let mut next = doc.clone();
        next.spec.network = Some(wanted.clone());
        self.check_network(&wanted, &self.secrets.known_to(&session.id)?)?;
        let live = matches!(doc.state, State::Ready | State::Running | State::Paused);
        let ports_mode = doc.network.egress.as_ref().is_some_and(|egress| !egress.all_ports);
        let line = session.line();
        let ports = match &line {
            Some(line) if live && ports_mode => {
                line.lacks(Self::port_sockets(&Matcher::new(self.rules_of(&next)?))?)
            }
            _ => Vec::new(),
        };
        let data = json!({
            "add": change.add, "presets": change.presets, "secrets": change.secrets,
            "remove": change.remove, "otherwise": change.otherwise,
            "generation": doc.network.generation + 1,
        });
        self.book.record("network.changed", Some(&session.id), &data)?;
        // Before the rules that need them are written down: whoever takes over relies on it.
        if let Some(line) = &line {
            line.hand_over(&self.make_sockets(session, &ports).await?).await?;
        }
        session.change(&self.book, |doc| {
            doc.spec.network = Some(wanted);
            doc.network.generation += 1;
        })?;
        if live && line.is_none() {
            let opened = self.open_network(session).await;
            if opened.is_err() && doc.spec.network.is_none() {
                session.settle(&self.book, |doc| doc.spec.network = None);
            }
            opened?;
        } else if let Some(line) = line {
            self.renew(session, &line).await?;
        }
        crate::session::tell(self, &session.doc());
        Ok(())
    }

    /// Sends a session's egress process its rules and secrets as they are now.
    pub(crate) async fn renew_rules(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let Some(line) = session.line() else { return Ok(()) };
        session.change(&self.book, |doc| doc.network.generation += 1)?;
        let doc = session.doc();
        if doc.network.egress.as_ref().is_some_and(|egress| !egress.all_ports) {
            let ports = line.lacks(Self::port_sockets(&Matcher::new(self.rules_of(&doc)?))?);
            line.hand_over(&self.make_sockets(session, &ports).await?).await?;
        }
        self.renew(session, &line).await?;
        crate::session::tell(self, &doc);
        Ok(())
    }

    async fn renew(self: &Arc<Self>, session: &Session, line: &Line) -> Result<(), Trouble> {
        self.choose_placeholders(session)?;
        let doc = session.doc();
        let rules = self.rules_of(&doc)?;
        // What is written down is in force before anything else can fail.
        let secrets = self.secrets_of(&doc)?;
        self.tell_captures(session, line).await?;
        line.tell(&ToEgress::Rules(Box::new(rules.clone()))).await?;
        line.tell(&ToEgress::Secrets(secrets)).await?;
        self.watch_tokens();
        self.write_files(&doc)?;
        self.trust_as_needed(&doc, &rules)
    }

    /// Lets a session trust its own authority, if something is looked into.
    pub(crate) fn trust_as_needed(&self, doc: &Doc, rules: &Rules) -> Result<(), Trouble> {
        let about = self.folders.session(&doc.id).join("about");
        let authority = doc.network.egress.as_ref().and_then(super::KeptEgress::authority);
        let done = match authority.filter(|_| cowork_policy::egress::inspects(rules)) {
            Some(authority) => trust::install(&about, &authority),
            None => trust::lay(&about),
        };
        done.map_err(|error| Trouble::of_disk("cannot write the session's certificates", &error))
    }

    /// Rules that stand for every session with a network.
    pub(crate) fn standing(&self) -> Result<Vec<NetworkRule>, Trouble> {
        let text = self.book.catalogue.get(STANDING)?;
        let Some(text) = text else { return Ok(Vec::new()) };
        serde_json::from_str(&text)
            .map_err(|error| Trouble::host("the standing rules cannot be understood", error))
    }

    /// Adds a rule for every session with a network.
    pub(crate) async fn add_standing(self: &Arc<Self>, rule: NetworkRule) -> Result<(), Trouble> {
        let mut all = self.standing()?;
        all.retain(|known| name_of(known) != name_of(&rule));
        if all.len() >= MAX_RULES {
            let sentence = format!("{MAX_RULES} rules stand for every session already");
            return Err(Trouble::conflict("too-many", sentence));
        }
        self.check_standing(&rule)?;
        all.push(rule.clone());
        self.book.record("network.standing", None, &json!({ "add": rule }))?;
        self.keep_standing(&all).await
    }

    /// Refuses a rule that cannot be enforced in one of the sessions, or in those to come.
    fn check_standing(&self, rule: &NetworkRule) -> Result<(), Trouble> {
        let rules = [parse(rule, None)?];
        parent::check(&rules, self.settings.parent.as_ref())?;
        for session in self.all() {
            parent::check(&rules, parent::of(&session.doc())?.as_ref())?;
        }
        Ok(())
    }

    /// Takes away a rule for every session.
    pub(crate) async fn remove_standing(self: &Arc<Self>, name: &str) -> Result<(), Trouble> {
        let mut all = self.standing()?;
        let before = all.len();
        all.retain(|known| name_of(known) != name);
        if all.len() == before {
            let sentence = format!("no rule `{}` stands for every session", name.escape_debug());
            return Err(Trouble::missing("no-rule", sentence));
        }
        self.book.record("network.standing", None, &json!({ "remove": name }))?;
        self.keep_standing(&all).await
    }

    async fn keep_standing(self: &Arc<Self>, all: &[NetworkRule]) -> Result<(), Trouble> {
        let text = serde_json::to_string(all)
            .map_err(|error| Trouble::host("cannot write down a rule", error))?;
        self.book.catalogue.set(STANDING, &text)?;
        for session in self.all() {
            // One that dies is told when it is started again.
            drop(self.renew_rules(&session).await);
        }
        Ok(())
    }

    /// Makes a port of the session reachable at the host's loopback.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        session: &Arc<Session>,
        wanted: &Publish,
    ) -> Result<PublishedPort, Trouble> {
        if wanted.inside == 0 || wanted.outside == Some(0) {
            return Err(Trouble::malformed("a port is a number from 1 to 65535"));
        }
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        if !matches!(doc.state, State::Ready | State::Running | State::Paused) {
            return Err(Misfit::NotLive(doc.state).into());
        }
        if doc.network.published.len() >= MAX_PUBLISHED {
            let sentence = format!("{MAX_PUBLISHED} ports are published already");
            return Err(Trouble::conflict("too-many", sentence));
        }
        let data = json!({ "inside": wanted.inside, "outside": wanted.outside });
        self.book.record("network.published", Some(&session.id), &data)?;
        if doc.spec.network.is_none() {
            session.change(&self.book, |doc| doc.spec.network = Some(WantedNetwork::default()))?;
        }
        if session.line().is_none() {
            self.open_network(session).await?;
        }
        let line = session.line().ok_or_else(|| {
            Trouble::conflict("no-egress", "the session's egress process does not run")
        })?;
        self.lead_inward(session, &line).await?;
        let outside = line.publish(wanted.inside, wanted.outside.unwrap_or(0)).await?;
        let port = PublishedPort { inside: wanted.inside, outside };
        session.settle(&self.book, |doc| doc.network.published.push(port));
        Ok(port)
    }

    /// Lets go of a published port.
    pub(crate) async fn unpublish(
        self: &Arc<Self>,
        session: &Arc<Session>,
        outside: u16,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        if !session.doc().network.published.iter().any(|port| port.outside == outside) {
            let sentence = format!("the session has no port published as {outside}");
            return Err(Trouble::missing("no-port", sentence));
        }
        let data = json!({ "outside": outside });
        self.book.record("network.unpublished", Some(&session.id), &data)?;
        session.change(&self.book, |doc| {
            doc.network.published.retain(|port| port.outside != outside);
        })?;
        if let Some(line) = session.line() {
            line.tell(&ToEgress::Unpublish { outside }).await?;
        }
        Ok(())
    }

    /// Publishes what was published before the egress process was started again.
    pub(crate) async fn publish_again(self: &Arc<Self>, session: &Arc<Session>, line: &Line) {
        let ports = session.doc().network.published;
        if ports.is_empty() || self.lead_inward(session, line).await.is_err() {
            return;
        }
        for port in ports {
            if line.publish(port.inside, port.outside).await.is_err() {
                let data = json!({ "outside": port.outside, "reason": "the port is taken" });
                drop(self.book.record("network.unpublished", Some(&session.id), &data));
                session.settle(&self.book, |doc| {
                    doc.network.published.retain(|known| *known != port);
                });
            }
        }
    }

    /// Hands over sockets that lead inwards.
    pub(crate) async fn lead_inward(
        self: &Arc<Self>,
        session: &Session,
        line: &Line,
    ) -> Result<(), Trouble> {
        let sockets = self.make_sockets(session, &[Socket::Inward; INWARD]).await?;
        line.hand_over(&sockets).await
    }

    /// What a session reaches, and what it was refused.
    pub(crate) async fn traffic(&self, session: &Session) -> Traffic {
        let flows = match session.line() {
            Some(line) => {
                let mut flows = line.flows().await.map(|(flows, _)| flows).unwrap_or_default();
                for flow in &mut flows {
                    flow.target.process = line.owners().of(flow.flow);
                }
                flows
            }
            None => Vec::new(),
        };
        let flows = flows.into_iter().map(|flow| NetworkFlow {
            flow: flow.flow,
            target: super::records::target(&flow.target),
            rule: flow.rule,
            up: flow.up,
            down: flow.down,
            ms: flow.ms,
            held: flow.held,
        });
        self.recall_traffic(session);
        let flows = flows.collect();
        session.with_tally(|tally| Traffic {
            refused: tally.refused(),
            noticed: tally.noticed(),
            flows,
            hosts: tally.hosts(),
        })
    }
}

fn named(rule: &NetworkRule) -> NamedRule {
    NamedRule { name: name_of(rule), rule: rule.clone() }
}

/// What a session may reach after a change.
fn merged(old: WantedNetwork, change: &NetworkChange) -> Result<WantedNetwork, Trouble> {
    let mut new = old;
    for name in &change.remove {
        let before = new.rules.len() + new.presets.len() + new.secrets.len();
        let preset = name.strip_prefix("preset ").unwrap_or(name);
        let secret = name.strip_prefix("secret ").unwrap_or(name);
        new.rules.retain(|rule| name_of(rule) != *name);
        new.presets.retain(|known| known != preset);
        new.secrets.retain(|known| known != secret);
        if new.rules.len() + new.presets.len() + new.secrets.len() == before {
            let sentence = format!("the session has no rule `{}`", name.escape_debug());
            return Err(Trouble::missing("no-rule", sentence).with_hint(
                "see `cowork net rules ID`; rules for every session: `cowork net standing`",
            ));
        }
    }
    if change.add.len().max(change.remove.len()) > MAX_RULES {
        return Err(too_many_rules());
    }
    // Of several with one name the last counts.
    let mut names = BTreeSet::new();
    let mut added: Vec<NetworkRule> =
        change.add.iter().rev().filter(|rule| names.insert(name_of(rule))).cloned().collect();
    added.reverse();
    new.rules.retain(|known| !names.contains(&name_of(known)));
    new.rules.extend(added);
    for (all, more) in [(&mut new.presets, &change.presets), (&mut new.secrets, &change.secrets)] {
        for name in more {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
    }
    new.otherwise = change.otherwise.unwrap_or(new.otherwise);
    if new.rules.len() > MAX_RULES {
        return Err(too_many_rules());
    }
    Ok(new)
}

pub(crate) fn too_many_rules() -> Trouble {
    Trouble::conflict("too-many", format!("a session has at most {MAX_RULES} rules"))
}

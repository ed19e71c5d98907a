//! From what the user asked for to the rules an egress process goes by.

use super::kept_secret::{KeptRenewal, Known};
use super::parse::{capture, name_of, parse, preset_rules};
use super::{Line, parent, secrets};
use crate::daemon::Daemon;
use crate::session::{Doc, Session};
use crate::trouble::Trouble;
use cowork_api::egress::{
    Action, Capture, Carrier, Host, Otherwise, Rule, Rules, Socket, ToEgress,
};
use cowork_client::types::{self, NetworkExplanation, NetworkRule, RuleAction, WantedNetwork};
use cowork_policy::egress::{Matcher, Outcome, Place, Treatment, rule};

/// Most ports that are listened on where not every port arrives.
const MAX_PORTS: usize = 100;

/// Where a secret is put, as the user writes it.
pub(crate) fn carrier(text: &str) -> Result<Carrier, Trouble> {
    rule::carrier(text).map_err(|error| Trouble::refused("bad-secret", error.to_string()))
}

/// Refuses hosts that no rule can be about.
pub(crate) fn check_host(host: &str) -> Result<(), Trouble> {
    let rule = NetworkRule { host: host.to_owned(), ..NetworkRule::default() };
    parse(&rule, None).map(drop)
}

/// The longest URL that is explained, in characters: with each of them escaped as four bytes, what
/// is asked for still fits into the target of a request.
pub(crate) const MAX_URL: usize = 4096;

impl Daemon {
    /// Refuses a network that cannot be: rules that cannot be understood, presets and secrets that
    /// are not there.
    pub(crate) fn check_network(
        &self,
        wanted: &WantedNetwork,
        known: &Known,
    ) -> Result<(), Trouble> {
        if wanted.rules.len() > super::change::MAX_RULES {
            return Err(super::change::too_many_rules());
        }
        if let Some(name) = secrets::named_by(wanted).iter().find(|name| !known.contains_key(*name))
        {
            return Err(secrets::missing(name));
        }
        let own = parent::wanted(wanted)?;
        let rules = self.compile(wanted, 0, known)?.rules;
        parent::check(&rules, own.as_ref().or(self.settings.parent.as_ref()))
    }

    /// The rules of a session: its own, those of its presets and secrets, and those that stand for
    /// every session. What needs a secret that is gone is refused.
    pub(crate) fn rules_of(&self, doc: &Doc) -> Result<Rules, Trouble> {
        match &doc.spec.network {
            Some(wanted) => {
                self.compile(wanted, doc.network.generation, &self.secrets.known_to(&doc.id)?)
            }
            None => Ok(Rules::default()),
        }
    }

    /// The rules of a session that may reach what is wanted.
    pub(crate) fn compile(
        &self,
        wanted: &WantedNetwork,
        generation: u64,
        known: &Known,
    ) -> Result<Rules, Trouble> {
        let mut rules = Vec::new();
        for rule in &wanted.rules {
            rules.push(with_secret(rule, known)?);
        }
        for (name, rule) in rules_of_secrets(&wanted.secrets, known) {
            rules.push(Rule { name, ..with_secret(&rule, known)? });
        }
        for (name, rule) in denials_of_renewals(wanted, known) {
            rules.push(Rule { name, ..parse(&rule, None)? });
        }
        for rule in self.standing()? {
            rules.push(with_secret(&rule, known)?);
        }
        for preset in &wanted.presets {
            rules.extend(preset_rules(preset)?);
        }
        let otherwise = match wanted.otherwise {
            types::Otherwise::Deny => Otherwise::Deny,
            types::Otherwise::Ask => Otherwise::Ask,
        };
        Ok(Rules { generation, otherwise, rules })
    }

    /// Rules that let a session reach the hosts of its secrets, with their names.
    pub(crate) fn secret_rules(&self, doc: &Doc) -> Result<Vec<(String, NetworkRule)>, Trouble> {
        let wanted = doc.spec.network.as_ref();
        let names = wanted.map(|wanted| wanted.secrets.as_slice()).unwrap_or_default();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        Ok(rules_of_secrets(names, &self.secrets.known_to(&doc.id)?))
    }

    /// The rules of a session of whose requests bodies are kept.
    pub(crate) fn captures_of(&self, doc: &Doc) -> Result<Vec<Capture>, Trouble> {
        let Some(wanted) = &doc.spec.network else { return Ok(Vec::new()) };
        let standing = self.standing()?;
        let kept = |rule| Some(Capture { rule: name_of(rule), bytes: capture(rule)? });
        Ok(wanted.rules.iter().chain(&standing).filter_map(kept).collect())
    }

    /// Tells an egress process of whose requests bodies are kept: before rules that would let them pass.
    /// One that never heard of any may be of an earlier version, and need not know.
    pub(crate) async fn tell_captures(
        &self,
        session: &Session,
        line: &Line,
    ) -> Result<(), Trouble> {
        let doc = session.doc();
        let captures = self.captures_of(&doc)?;
        let heard = doc.network.egress.as_ref().is_some_and(|egress| egress.captures);
        if captures.is_empty() && !heard {
            return Ok(());
        }
        if !heard {
            session.change(&self.book, |doc| {
                if let Some(egress) = &mut doc.network.egress {
                    egress.captures = true;
                }
            })?;
        }
        line.tell(&ToEgress::Captures(captures)).await
    }

    /// Sockets for every port that rules are about.
    pub(crate) fn port_sockets(matcher: &Matcher) -> Result<Vec<Socket>, Trouble> {
        for rule in &matcher.rules().rules {
            rule::fits_listeners(rule)
                .map_err(|error| Trouble::refused("network-unenforceable", error.to_string()))?;
        }
        let ports = matcher.ports();
        if ports.len() > MAX_PORTS {
            let sentence = format!(
                "the rules are about {} ports, and this host's kernel needs a socket for each",
                ports.len()
            );
            return Err(Trouble::refused("network-unenforceable", sentence)
                .with_hint(format!("name at most {MAX_PORTS} ports")));
        }
        Ok(ports.into_iter().map(Socket::Port).collect())
    }

    /// Whether something would pass, and by which rule.
    pub(crate) fn explain_network(
        &self,
        session: &Session,
        url: &str,
        method: Option<&str>,
    ) -> Result<NetworkExplanation, Trouble> {
        if url.chars().count() > MAX_URL {
            let sentence = format!("a URL of more than {MAX_URL} characters is not explained");
            return Err(Trouble::refused("bad-url", sentence).with_hint("shorten its path"));
        }
        let (place, port, path) = destination(url)?;
        let doc = session.doc();
        let matcher = Matcher::new(self.rules_of(&doc)?);
        let request = path.as_deref().map(|path| (method.unwrap_or("GET"), path));
        let found = matcher.explain(&place, port, request);
        let hint = if found.hint.is_empty() { String::new() } else { format!(" ({})", found.hint) };
        if found.outcome == Outcome::Ask && doc.spec.network.is_some_and(|wanted| wanted.headless) {
            return Ok(NetworkExplanation {
                outcome: "deny".into(),
                code: "nobody-to-ask".into(),
                rule: found.rule,
                tls: None,
                sentence: format!("{}, and nobody is there to be asked", found.sentence),
            });
        }
        Ok(NetworkExplanation {
            outcome: match found.outcome {
                Outcome::Allow => "allow",
                Outcome::Ask => "ask",
                _ => "deny",
            }
            .into(),
            code: found.code.into(),
            rule: found.rule,
            tls: found.treatment.map(|treatment| {
                match treatment {
                    Treatment::Inspect => "inspect",
                    Treatment::Tunnel => "tunnel",
                }
                .into()
            }),
            sentence: format!("{}{hint}", found.sentence),
        })
    }
}

/// Rules that let a session reach the hosts of secrets, with their names.
fn rules_of_secrets(names: &[String], known: &Known) -> Vec<(String, NetworkRule)> {
    let mut rules = Vec::new();
    for name in names {
        for host in known.get(name).map(|kept| kept.hosts.as_slice()).unwrap_or_default() {
            let rule = NetworkRule {
                host: host.clone(),
                secret: Some(name.clone()),
                ..NetworkRule::default()
            };
            rules.push((format!("secret {name}"), rule));
        }
    }
    rules
}

/// Where the tokens of a session's secrets are renewed: that is done on the host, and what is answered
/// there are tokens that the host does not know of. A rule of the session's own that names the very path
/// says otherwise.
fn denials_of_renewals(wanted: &WantedNetwork, known: &Known) -> Vec<(String, NetworkRule)> {
    let mut denials = Vec::new();
    for name in secrets::named_by(wanted) {
        let renewal = known.get(&name).and_then(|kept| kept.renewal.as_ref());
        let Some(place) = renewal.and_then(KeptRenewal::place) else { continue };
        let path = place.path.split('?').next().unwrap_or_default().to_owned();
        let allows = |rule: &NetworkRule| {
            parse(rule, None).is_ok_and(|rule| {
                let names = rule.http.iter().any(|request| request.paths.contains(&path));
                rule.action == Action::Allow && rule.host == Host::Name(place.host.clone()) && names
            })
        };
        if wanted.rules.iter().any(allows) {
            continue;
        }
        let reason = format!("the secret `{name}` is renewed on the host, and nowhere else");
        let rule = NetworkRule {
            action: RuleAction::Deny,
            host: format!("{}:{}", place.host, place.port),
            paths: spellings(path),
            reason: Some(reason),
            ..NetworkRule::default()
        };
        denials.push((format!("renewal of {name}"), rule));
    }
    denials
}

/// A path, and the same with a slash at its end or without: many servers take one for the other.
fn spellings(path: String) -> Vec<String> {
    match path.trim_end_matches('/') {
        "" => vec![path],
        plain => vec![plain.to_owned(), format!("{plain}/")],
    }
}

fn with_secret(rule: &NetworkRule, known: &Known) -> Result<Rule, Trouble> {
    let Some(secret) = &rule.secret else { return parse(rule, None) };
    if let Some(kept) = known.get(secret) {
        return parse(rule, Some(kept.credential(secret)?));
    }
    let reason = format!("the secret `{secret}` is gone");
    Ok(Rule { action: Action::Deny { reason }, ..parse(rule, None)? })
}

/// Where a URL, or a host with a port, leads: the place, the port, and the path of a URL.
fn destination(url: &str) -> Result<(Place, u16, Option<String>), Trouble> {
    let bad = || {
        let sentence = format!("`{}` is neither a URL nor a host with a port", url.escape_debug());
        Trouble::refused("bad-url", sentence).with_hint("e.g. `https://example.com/path`")
    };
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, url),
    };
    let usual = match scheme.as_deref() {
        Some("http" | "ws") => Some(80),
        Some("https" | "wss") => Some(443),
        Some("ssh") => Some(22),
        Some(_) => None,
        None => Some(443),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or_else(bad)?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
            (host, Some(port.parse::<u16>().map_err(|_large| bad())?))
        }
        _ => (authority, None),
    };
    let port = port.or(usual).filter(|port| *port > 0).ok_or_else(bad)?;
    let place = match host {
        "host" => Place::HostLoopback,
        host => host
            .parse()
            .map_err(|error: cowork_policy::egress::HostNameError| bad().with_cause(error))?,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let web = matches!(scheme.as_deref(), Some("http" | "https" | "ws" | "wss"));
    let path = if path.is_empty() { "/" } else { path };
    Ok((place, port, web.then(|| path.to_owned())))
}

//! Hosts that no rule is about and the user is asked about.
//!
//! Whoever waits is in the egress process; a request stands for it here. It ends when the user
//! answers, when nobody waits any more, or with the process.

use super::line::Line;
use crate::book::now;
use crate::daemon::Daemon;
use crate::session::{Session, plain};
use crate::trouble::Trouble;
use cowork_api::egress::{Answer, Ask, HOST_NAME, Target, ToEgress};
use cowork_client::types::{
    Access, Decide, Decision, NetworkChange, NetworkRule, Request, RequestState, RuleAction,
};
use cowork_policy::egress::Matcher;
use serde_json::json;
use std::sync::Arc;

/// What such a request is called.
pub(crate) const KIND: &str = "host";
/// Longest text of a request, in bytes.
const MAX_TEXT: usize = 2000;
/// Most that wait in a session at a time, and most of one in its life with this daemon.
const MAX_ASKS: usize = 32;
const MAX_EVER: u32 = 1000;

impl Daemon {
    /// Something waits for the user. What cannot be recorded is not asked, and answered with no.
    pub(crate) fn host_asked(
        self: &Arc<Self>,
        session: &Arc<Session>,
        line: &Arc<Line>,
        ask: &Ask,
    ) {
        if line.asks().contains_key(&ask.ask) {
            return;
        }
        if session.doc().spec.network.is_some_and(|wanted| wanted.headless) {
            return answer(line, ask.ask, Answer::Nobody);
        }
        // The process keeps to limits of its own; it is not believed.
        let too_many = line.asks().len() >= MAX_ASKS || session.count_ask() > MAX_EVER;
        let request = if too_many {
            Err(Trouble::conflict("too-many", "too many questions were put already"))
        } else {
            self.host_request(session, &ask.target)
        };
        let request = match request {
            Ok(request) => request,
            Err(trouble) => {
                return answer(line, ask.ask, Answer::Deny { reason: trouble.sentence });
            }
        };
        line.asks().insert(ask.ask, request);
    }

    /// The number of the request about a target; of one that an earlier daemon made, if there is
    /// one.
    fn host_request(&self, session: &Session, target: &Target) -> Result<u64, Trouble> {
        let wanted = short(&format!("{}:{}", target.host, target.port));
        let pending = self.pending_requests(Some(&session.id))?;
        let taken: Vec<u64> =
            session.line().map(|line| line.asks().values().copied().collect()).unwrap_or_default();
        let same = |request: &&Request| {
            request.kind == KIND && request.wanted == wanted && !taken.contains(&request.id)
        };
        if let Some(known) = pending.iter().find(same) {
            return Ok(known.id);
        }
        let request = Request {
            id: self.book.catalogue.number_request()?,
            session: session.id.clone(),
            asker: None,
            kind: KIND.into(),
            wanted,
            reason: short(&reason(target, self.what_else(session, target))),
            access: Access::Read,
            state: RequestState::Pending,
            created: now(),
            decided: None,
            decision: None,
            note: None,
            grant: None,
        };
        let data = json!({
            "request": request.id, "kind": KIND, "wanted": request.wanted,
            "target": super::records::target(target),
        });
        self.put_question(&request, &data, |_| Ok(()))?;
        Ok(request.id)
    }

    /// What else than one method and path an answer is about, in words.
    fn what_else(&self, session: &Session, target: &Target) -> &'static str {
        let matcher = self.rules_of(&session.doc()).map(Matcher::new);
        match (matcher, target.host.parse()) {
            (Ok(matcher), Ok(place)) if matcher.asks_singly(&place, target.port) => "",
            _ => ", and what else waits for this host",
        }
    }

    /// Nothing waits for an answer any more.
    pub(crate) fn host_withdrawn(&self, line: &Line, ask: u64) {
        let Some(id) = line.asks().remove(&ask) else { return };
        if let Ok(mut request) = self.request(id)
            && request.state == RequestState::Pending
        {
            request.note = Some("withdrawn: nothing waits for it any more".into());
            drop(self.close_request(request, RequestState::Expired));
        }
    }

    /// Requests about hosts that nothing waits for: all but those that stand for asks of `line`.
    pub(crate) fn expire_hosts(
        &self,
        session: &Session,
        line: Option<&Line>,
    ) -> Result<(), Trouble> {
        let held: Vec<u64> =
            line.map(|line| line.asks().values().copied().collect()).unwrap_or_default();
        for mut request in self.pending_requests(Some(&session.id))? {
            if request.kind == KIND && !held.contains(&request.id) {
                request.note = Some("withdrawn: nothing waits for it any more".into());
                match self.close_request(request, RequestState::Expired) {
                    // The user was quicker.
                    Err(trouble) if trouble.code == "answered" => {}
                    done => drop(done?),
                }
            }
        }
        Ok(())
    }

    /// The user answers about a host.
    pub(crate) async fn decide_host(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut request: Request,
        decide: &Decide,
    ) -> Result<Request, Trouble> {
        let line = session.line();
        let note = decide.note.as_deref().map(plain);
        let rule = |action| NetworkRule {
            action,
            host: host_of(&request.wanted),
            reason: note.clone().filter(|_| action == RuleAction::Deny),
            ..NetworkRule::default()
        };
        let stands = matches!(decide.decision, Decision::AllowSession | Decision::AllowAlways);
        if stands && request.wanted.starts_with("host:") {
            // In a rule this name is the host's own loopback, which nobody asked for.
            return Err(Trouble::refused("bad-rule", "a name `host` can be allowed once only")
                .with_hint("say `allow` without `--session` and `--always`"));
        }
        let answer = match decide.decision {
            Decision::AllowOnce | Decision::AllowSession | Decision::AllowAlways => Answer::Allow,
            Decision::RejectOnce | Decision::RejectAlways => {
                Answer::Deny { reason: note.clone().unwrap_or_default() }
            }
        };
        // Rules that answer it have it withdrawn: it is answered here.
        let ask = line.as_ref().and_then(|line| take(line, request.id));
        let ruled = match decide.decision {
            Decision::AllowOnce | Decision::RejectOnce => Ok(()),
            Decision::AllowSession => {
                let change = NetworkChange {
                    add: vec![rule(RuleAction::Allow)],
                    ..NetworkChange::default()
                };
                self.change_network(session, change).await
            }
            Decision::AllowAlways => self.add_standing(rule(RuleAction::Allow)).await,
            Decision::RejectAlways => self.add_standing(rule(RuleAction::Deny)).await,
        };
        if let (Err(_), Some(line), Some(ask)) = (&ruled, &line, ask) {
            line.asks().insert(ask, request.id);
        }
        ruled?;
        request.decision = Some(decide.decision);
        request.note = note;
        let state = match answer {
            Answer::Allow => RequestState::Allowed,
            Answer::Deny { .. } | Answer::Nobody => RequestState::Rejected,
        };
        let request = self.close_request(request, state)?;
        if let (Some(line), Some(ask)) = (line, ask) {
            line.asks().remove(&ask);
            line.tell(&ToEgress::Answer { ask, answer }).await?;
        }
        Ok(request)
    }
}

/// The ask that a request stands for, which it does no longer.
fn take(line: &Line, request: u64) -> Option<u64> {
    let mut asks = line.asks();
    let ask = asks.iter().find(|(_, known)| **known == request).map(|(ask, _)| *ask)?;
    asks.remove(&ask);
    Some(ask)
}

/// Answers without the user.
fn answer(line: &Arc<Line>, ask: u64, answer: Answer) {
    let line = Arc::clone(line);
    tokio::spawn(async move { line.tell(&ToEgress::Answer { ask, answer }).await });
}

/// The host of a rule about what was asked for.
fn host_of(wanted: &str) -> String {
    match wanted.strip_prefix(HOST_NAME) {
        Some(port) => format!("host{port}"),
        None => wanted.to_owned(),
    }
}

/// What is wanted of the host first, and by whom; and what else an answer is about.
fn reason(target: &Target, more: &str) -> String {
    let what = match (&target.method, &target.path) {
        (Some(method), Some(path)) => format!("{method} {path}"),
        (Some(method), None) => method.clone(),
        _ => "a connection".to_owned(),
    };
    let by = target.process.as_ref().map(|by| format!(" by {} ({})", by.name, by.pid));
    // The path comes from whoever asks: what is ours is not pushed out by it.
    let room = MAX_TEXT.saturating_sub(more.len() + by.as_ref().map_or(0, String::len));
    let mut what = plain(&what);
    while what.len() > room {
        what.pop();
    }
    what + &by.unwrap_or_default() + more
}

/// A hostile text, plain and not too long.
fn short(text: &str) -> String {
    let mut short = plain(text);
    while short.len() > MAX_TEXT {
        short.pop();
    }
    short
}

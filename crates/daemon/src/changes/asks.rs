//! Changes that the user is asked about before they are made.
//!
//! Whoever waits is held by the session's broker; a request stands for it here. It ends when the
//! user answers, when nobody waits any more, or with the sandbox.

use super::kept::StandingRule;
use super::show;
use crate::book::now;
use crate::daemon::Daemon;
use crate::session::{Doc, Session, document_of_request, plain};
use crate::trouble::Trouble;
use cowork_api::files::{Ask, NamePolicy as Wire, Refusal};
use cowork_api::keeper::Request as ToKeeper;
use cowork_client::types::{
    Access, Decide, Decision, Grant, NamePolicy, NewProtectedName, Raw, Request, RequestState,
    WantedWrites,
};
use cowork_policy::files::Judge;
use serde_json::json;
use std::sync::Arc;

/// What such a request is called.
pub(crate) const KIND: &str = "file";
/// Longest text of a request, in bytes.
const MAX_TEXT: usize = 2000;
/// Most that wait in a session at a time, and most of one in its life with this daemon.
const MAX_ASKS: usize = 32;
const MAX_EVER: u32 = 1000;

/// What whoever waits is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It may go on.
    Yes,
    /// It is refused.
    No,
}

impl Daemon {
    /// Somebody waits for the user. What cannot be recorded is not asked, and answered with no.
    pub(crate) async fn file_asked(self: &Arc<Self>, id: &str, ask: &Ask) {
        let Some(session) = self.find(id) else {
            self.answer_ask(id, ask.ask, Answer::No).await;
            return;
        };
        let doc = session.doc();
        let asks = doc.changes.asks;
        if asks.contains_key(&ask.ask) {
            return;
        }
        if doc.spec.headless {
            let refusal = Refusal {
                grant: ask.grant.clone(),
                path: ask.path.clone(),
                operation: ask.operation.clone(),
                reason: format!("nobody is there to be asked: {}", ask.reason),
                process: ask.process.clone(),
            };
            // What it was about is not done, whether that can be recorded or not.
            drop(self.book.record("files.refused", Some(id), &super::refusal(&refusal)));
            self.answer_ask(id, ask.ask, Answer::No).await;
            return;
        }
        // The broker keeps to limits of its own; it is not believed.
        let too_many = asks.len() >= MAX_ASKS || session.count_ask() > MAX_EVER;
        let asked = if too_many {
            Err(Trouble::conflict("too-many", "too many questions were put already"))
        } else {
            self.file_request(&session, ask)
        };
        if asked.is_err() {
            self.answer_ask(id, ask.ask, Answer::No).await;
        }
    }

    /// Puts the question to the user: recorded, and kept beside who waits, in one step.
    fn file_request(&self, session: &Session, ask: &Ask) -> Result<(), Trouble> {
        let doc = session.doc();
        let grant = doc.grants.iter().find(|kept| kept.grant.name == ask.grant);
        let root = grant.map_or_else(|| ask.grant.clone(), |kept| kept.grant.path.lossy());
        let path = String::from_utf8_lossy(&ask.path);
        let wanted = if path.is_empty() { root } else { format!("{root}/{path}") };
        let reason = format!("{} by {}: {}", ask.operation, ask.process, ask.reason);
        let request = Request {
            id: self.book.catalogue.number_request()?,
            session: session.id.clone(),
            asker: None,
            kind: KIND.into(),
            wanted: short(&wanted),
            reason: short(&reason),
            access: Access::Write,
            state: RequestState::Pending,
            created: now(),
            decided: None,
            decision: None,
            note: None,
            grant: Some(ask.grant.clone()),
        };
        let id = request.id;
        let data = json!({
            "request": id, "kind": KIND, "grant": ask.grant, "path": Raw::new(ask.path.clone()),
            "operation": ask.operation, "reason": ask.reason, "process": plain(&ask.process),
        });
        let text = document_of_request(&request)?;
        // What a rule would be about, for the answer.
        let path = serde_json::to_string(&Raw::new(ask.path.clone())).unwrap_or_default();
        let waits = |doc: &mut Doc| {
            doc.changes.asks.insert(ask.ask, id);
            Ok(data)
        };
        session.record(&self.book, "request.created", waits, |catalogue| {
            catalogue.add_request(id, &session.id, &text)?;
            catalogue.set(&path_key(id), &path)
        })?;
        self.book.note("request.pending", Some(&session.id), &json!({ "request": request }));
        Ok(())
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn file_withdrawn(&self, id: &str, ask: u64) {
        let Some(session) = self.find(id) else { return };
        let request = session.settle(&self.book, |doc| doc.changes.asks.remove(&ask));
        if let Some(request) = request {
            self.expire_file(request);
        }
    }

    /// The broker that held whoever waited is gone, or the sandbox is.
    pub(crate) fn expire_files(&self, session: &Session) {
        if session.doc().changes.asks.is_empty() {
            return;
        }
        let asks = session.settle(&self.book, |doc| std::mem::take(&mut doc.changes.asks));
        for request in asks.into_values() {
            self.expire_file(request);
        }
    }

    fn expire_file(&self, id: u64) {
        cowork_sys::ignore(self.book.catalogue.unset(&path_key(id)));
        if let Ok(mut request) = self.request(id)
            && request.state == RequestState::Pending
        {
            request.note = Some("withdrawn: nothing waits for it any more".into());
            drop(self.close_request(request, RequestState::Expired));
        }
    }

    async fn answer_ask(self: &Arc<Self>, session: &str, ask: u64, answer: Answer) {
        let allowed = answer == Answer::Yes;
        let answer = ToKeeper::AnswerAsk { session: session.to_owned(), ask, allowed };
        // A keeper that is gone has nobody waiting.
        drop(self.engine.post(answer, &[]).await);
    }

    /// The user answers about a change.
    pub(crate) async fn decide_file(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut request: Request,
        decide: &Decide,
    ) -> Result<Request, Trouble> {
        let (answer, state) = match decide.decision {
            Decision::AllowOnce | Decision::AllowSession | Decision::AllowAlways => {
                (Answer::Yes, RequestState::Allowed)
            }
            Decision::RejectOnce | Decision::RejectAlways => (Answer::No, RequestState::Rejected),
        };
        let note = decide.note.as_deref().map(plain);
        match decide.decision {
            Decision::AllowOnce | Decision::RejectOnce => {}
            Decision::AllowSession | Decision::AllowAlways | Decision::RejectAlways => {
                self.remember_file(session, &request, decide.decision).await?;
            }
        }
        request.decision = Some(decide.decision);
        request.note = note;
        let id = request.id;
        let request = self.close_request(request, state)?;
        cowork_sys::ignore(self.book.catalogue.unset(&path_key(id)));
        let ask = session.settle(&self.book, |doc| {
            let ask = doc.changes.asks.iter().find(|(_, known)| **known == id);
            let ask = ask.map(|(ask, _)| *ask)?;
            doc.changes.asks.remove(&ask);
            Some(ask)
        });
        if let Some(ask) = ask {
            self.answer_ask(&session.id, ask, answer).await;
        }
        Ok(request)
    }

    /// Makes a rule of an answer, so that the same is not asked again.
    async fn remember_file(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Request,
        decision: Decision,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        let name = request.grant.as_deref().unwrap_or_default();
        let granted = doc.grants.iter().find(|kept| kept.grant.name == name);
        // A folder that is gone is not asked about again.
        let Some(grant) = granted.map(|kept| kept.grant.clone()) else { return Ok(()) };
        let path = self.book.catalogue.get(&path_key(request.id))?;
        let path = path.and_then(|text| serde_json::from_str::<Raw>(&text).ok());
        let path = path.and_then(|raw| raw.bytes()).unwrap_or_default();
        let rules = self.rules_for(&doc, &grant)?;
        let judge = Judge::new(&rules);
        let verdict = judge.name(&path);
        let rule = verdict.rule.and_then(|rule| rules.names.get(rule));
        let asks = rule.filter(|rule| rule.policy == Wire::Ask);
        match (asks, decision) {
            (Some(asks), Decision::AllowSession) => {
                let new = NewProtectedName {
                    pattern: asks.pattern.clone(),
                    policy: NamePolicy::Flag,
                    reason: Some(asks.reason.clone()),
                    grant: Some(grant.name.clone()),
                };
                self.add_name_rule(session, &new).await.map(drop)
            }
            (Some(asks), _) => {
                let policy = match decision {
                    Decision::RejectAlways => Wire::Deny,
                    _ => Wire::Flag,
                };
                let rule = StandingRule {
                    folder: grant.path.clone(),
                    pattern: asks.pattern.clone(),
                    policy: show::shown_policy(policy),
                    reason: asks.reason.clone(),
                };
                self.stand(session, &grant, rule).await
            }
            // It was asked because of how much is changed or cannot be saved.
            (None, Decision::AllowSession) => self.unguard(session, &grant).await,
            (None, _) => Err(Trouble::refused("bad-rule", "this can be answered once only")
                .with_hint("it is not about a name: say it without `--always`")),
        }
    }

    async fn stand(
        self: &Arc<Self>,
        session: &Session,
        grant: &Grant,
        rule: StandingRule,
    ) -> Result<(), Trouble> {
        let mut standing = self.standing_names()?;
        standing.retain(|known| known.folder != rule.folder || known.pattern != rule.pattern);
        let data = json!({ "folder": rule.folder, "pattern": rule.pattern, "policy": rule.policy });
        self.book.record("files.protected", Some(&session.id), &data)?;
        standing.push(rule);
        self.set_standing_names(&standing)?;
        for other in self.all() {
            let has = |name: &str| {
                let doc = other.doc();
                let mut kept = doc.grants.iter();
                kept.any(|kept| kept.grant.path == grant.path && kept.grant.name == name)
            };
            let names: Vec<String> =
                other.doc().grants.into_iter().map(|kept| kept.grant.name).collect();
            for name in names.iter().filter(|name| has(name)) {
                self.renew_writes(&other, Some(name)).await?;
            }
        }
        Ok(())
    }

    /// Asks no more about how much is changed in a folder, for this session.
    async fn unguard(
        self: &Arc<Self>,
        session: &Arc<Session>,
        grant: &Grant,
    ) -> Result<(), Trouble> {
        let mut writes: WantedWrites = grant.writes.clone();
        writes.guards.removals = Some(0);
        writes.guards.share = Some(0);
        writes.caps.ask = Some(false);
        let data = json!({ "name": grant.name, "writes": writes });
        self.book.record("grant.changed", Some(&session.id), &data)?;
        session.change(&self.book, |doc| {
            for kept in doc.grants.iter_mut().filter(|kept| kept.grant.name == grant.name) {
                kept.grant.writes = writes.clone();
            }
        })?;
        self.renew_writes(session, Some(&grant.name)).await
    }
}

/// Where the catalogue keeps the path that a request is about, as long as it waits.
fn path_key(request: u64) -> String {
    format!("file/{request}")
}

/// A hostile text, plain and not too long.
fn short(text: &str) -> String {
    let mut short = plain(text);
    while short.len() > MAX_TEXT {
        short.pop();
    }
    short
}

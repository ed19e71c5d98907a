//! Changes in the audit: spelled out one by one up to a limit for each set and each hour, counted
//! beyond.
//!
//! Looked at when a command ends, at heartbeats while something is new, and at the end. No clerk is
//! sent while the log has the length that it had.

use super::authors::Authors;
use super::clerk::{Meanwhile, Origins};
use super::kept::{Audited, Budget};
use super::show;
use super::store::Store;
use crate::daemon::Daemon;
use crate::session::{Session, plain};
use crate::trouble::Trouble;
use cowork_api::files::{Mutation, Refusal, Report, Typed, Work};
use cowork_client::types::Raw;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most changes in one record.
const RECORD: usize = 200;
/// Most sets of which it is told one by one what was only counted.
const MAX_COUNTED: usize = 1000;
/// What stands beside the operations where it is counted how many cannot be undone.
const LOST: &str = "cannot be undone";
/// Most changes that a clerk lists at once.
const BATCH: u32 = 50_000;

/// Why the changes of a session are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A heartbeat.
    Beat,
    /// The end of something: what was only counted is told.
    End,
}

impl Daemon {
    /// Records what is new. What goes wrong is tried again on the next occasion.
    pub(crate) async fn audit_changes(self: &Arc<Self>, session: &Arc<Session>, why: Occasion) {
        let _turn = match why {
            Occasion::End => session.auditing.lock().await,
            // Somebody is at it.
            Occasion::Beat => match session.auditing.try_lock() {
                Ok(turn) => turn,
                Err(_busy) => return,
            },
        };
        let Ok(Some(store)) = self.store_of(session) else { return };
        while self.audit_batch(session, &store).await == Ok(Left::More) {}
        if why == Occasion::End {
            drop(self.tell_counted(session, &store));
        }
    }

    /// Whether the log of a session has grown since it was looked at.
    pub(crate) fn has_new_changes(&self, session: &Session) -> bool {
        let doc = session.doc();
        let Some(name) = doc.changes.store else { return false };
        length(&self.stores_folder().join(name)) != doc.changes.audited.length
    }

    async fn audit_batch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        store: &Store,
    ) -> Result<Left, Unaudited> {
        let audited = session.doc().changes.audited;
        let length = length(&store.path);
        if length == audited.length {
            return Ok(Left::Nothing);
        }
        let work = Work::Mutations { after: audited.seq, most: BATCH, looked: audited.looked };
        let report = self.clerk(store, work, Meanwhile::GoesOn).await?;
        let Report::Mutations { mutations, left, typed, more_typed, looked } = report else {
            return Err(Unaudited);
        };
        let origins = if mutations.is_empty() && typed.is_empty() {
            Origins::default()
        } else {
            self.origins_of_sets(store).await.unwrap_or_default()
        };
        let authors = if mutations.is_empty() {
            Authors::default()
        } else {
            self.authors(store, audited.seq, None).await
        };
        let more = left > 0 && !mutations.is_empty();
        let mut part = Part::after(&audited);
        for mutation in mutations {
            part.add(mutation);
            if part.spelled.len() >= RECORD {
                part = self.spell(session, store, &part, (&origins, &authors))?;
            }
        }
        if !part.spelled.is_empty() {
            part = self.spell(session, store, &part, (&origins, &authors))?;
        }
        let looked = looked.max(audited.looked);
        if !typed.is_empty() {
            session.settle(&self.book, |doc| part.settle(&mut doc.changes.audited));
            self.tell_types(session, store, (typed, more_typed, looked), &origins)?;
            part = Part::after(&session.doc().changes.audited);
        }
        session.settle(&self.book, |doc| {
            part.settle(&mut doc.changes.audited);
            doc.changes.audited.looked = looked;
            if !more {
                doc.changes.audited.length = length;
            }
        });
        Ok(if more { Left::More } else { Left::Nothing })
    }

    /// Records a part, and begins the next.
    fn spell(
        &self,
        session: &Session,
        store: &Store,
        part: &Part,
        by: (&Origins, &Authors),
    ) -> Result<Part, Trouble> {
        let changes: Vec<Value> =
            part.spelled.iter().map(|mutation| told(store, mutation, by)).collect();
        let change = |doc: &mut crate::session::Doc| {
            part.settle(&mut doc.changes.audited);
            Ok(json!({ "changes": changes }))
        };
        session.record(&self.book, "files.changed", change, |_| Ok(()))?;
        Ok(Part::after(&session.doc().changes.audited))
    }

    /// Records files of refused types that sets left. They were not seen before they were written.
    fn tell_types(
        &self,
        session: &Session,
        store: &Store,
        (typed, mut more, looked): (Vec<Typed>, u64, u64),
        origins: &Origins,
    ) -> Result<(), Trouble> {
        let mut budget = session.doc().changes.audited.budget;
        let hour = hour();
        let mut files = Vec::new();
        for typed in typed {
            if files.len() >= RECORD || !budget.take(typed.set, hour) {
                more += 1;
                continue;
            }
            files.push(json!({
                "path": store.entry.host(&typed.at),
                "set": typed.set,
                "command": origins.commands.get(&typed.set),
                "task": origins.tasks.get(&typed.set),
                "reason": typed.why,
            }));
        }
        let change = |doc: &mut crate::session::Doc| {
            doc.changes.audited.budget = budget;
            doc.changes.audited.looked = looked;
            Ok(json!({ "files": files, "more": more }))
        };
        session.record(&self.book, "files.flagged", change, |_| Ok(()))
    }

    /// Records how many changes there were beyond those that were spelled out.
    fn tell_counted(&self, session: &Session, store: &Store) -> Result<(), Trouble> {
        if session.doc().changes.audited.beyond.is_empty() {
            return Ok(());
        }
        let change = |doc: &mut crate::session::Doc| {
            let audited = &mut doc.changes.audited;
            let beyond = std::mem::take(&mut audited.beyond);
            let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
            for (operation, count) in beyond.values().flatten() {
                *counted.entry(operation).or_default() += count;
            }
            let last = audited.seq;
            Ok(json!({ "counted": counted, "sets": beyond, "last": last, "store": store.name }))
        };
        session.record(&self.book, "files.changed", change, |_| Ok(()))
    }
}

/// Changes that go into one record, and those that are only counted up to the last of them. What is
/// recorded and how far that went is kept together.
struct Part {
    spelled: Vec<Mutation>,
    counted: Vec<Mutation>,
    budget: Budget,
    /// The last of all.
    seq: u64,
    /// Since 1970.
    hour: u64,
}

impl Part {
    /// Begins after what is known.
    fn after(audited: &Audited) -> Self {
        let (budget, seq) = (audited.budget.clone(), audited.seq);
        Self { spelled: Vec::new(), counted: Vec::new(), budget, seq, hour: hour() }
    }

    fn add(&mut self, mutation: Mutation) {
        self.seq = mutation.seq;
        if self.budget.take(mutation.set, self.hour) {
            self.spelled.push(mutation);
        } else {
            self.counted.push(mutation);
        }
    }

    /// Says that it is known.
    fn settle(&self, audited: &mut Audited) {
        for mutation in &self.counted {
            let room = audited.beyond.len() < MAX_COUNTED;
            let known = room || audited.beyond.contains_key(&mutation.set);
            let of_set = audited.beyond.entry(if known { mutation.set } else { 0 }).or_default();
            *of_set.entry(mutation.operation.clone()).or_default() += 1;
            if mutation.lost.is_some() {
                *of_set.entry(LOST.to_owned()).or_default() += 1;
            }
        }
        audited.budget.clone_from(&self.budget);
        audited.seq = self.seq;
    }
}

/// The hour that it is, since 1970.
fn hour() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs() / 3600)
}

/// Whether there is more to look at.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    More,
}

/// The changes could not be looked at or recorded now.
#[derive(Debug, PartialEq, Eq)]
struct Unaudited;

impl From<Trouble> for Unaudited {
    fn from(_: Trouble) -> Self {
        Self
    }
}

/// How long the log of a store is.
pub(super) fn length(store: &std::path::Path) -> u64 {
    std::fs::symlink_metadata(store.join("log")).map_or(0, |log| log.len())
}

fn told(store: &Store, mutation: &Mutation, (origins, authors): (&Origins, &Authors)) -> Value {
    let to = mutation.to.as_ref().map(|path| {
        let at = cowork_api::files::Place { grant: mutation.at.grant.clone(), path: path.clone() };
        store.entry.host(&at)
    });
    let path: Raw = store.entry.host(&mutation.at);
    json!({
        "time": show::moment(mutation.time),
        "set": mutation.set,
        "command": origins.commands.get(&mutation.set),
        "task": origins.tasks.get(&mutation.set),
        "process": mutation.process,
        "program": authors.of_mutation(mutation),
        "operation": mutation.operation,
        "path": path,
        "to": to,
        "lost": mutation.lost,
    })
}

/// A refused change, as it is recorded.
pub(crate) fn refusal(refusal: &Refusal) -> Value {
    json!({
        "grant": refusal.grant,
        "path": Raw::new(refusal.path.clone()),
        "operation": refusal.operation,
        "reason": refusal.reason,
        "process": plain(&refusal.process),
    })
}

//! Changes in the audit: spelled out one by one up to a limit, counted beyond.
//!
//! Looked at when a command ends, at heartbeats while something is new, and at the end. No clerk is
//! sent while the log has the length that it had.

use super::clerk::Meanwhile;
use super::show;
use super::store::Store;
use crate::daemon::Daemon;
use crate::session::{Session, plain};
use crate::trouble::Trouble;
use cowork_api::files::{Mutation, Refusal, Report, Work};
use cowork_client::types::Raw;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most changes in one record.
const RECORD: usize = 200;
/// Most changes of a session that are spelled out; those beyond are counted by operation.
const MAX_SPELLED: u64 = 10_000;
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
        let work = Work::Mutations { after: audited.seq, most: BATCH };
        let report = self.clerk(store, work, Meanwhile::GoesOn).await?;
        let Report::Mutations { mutations, left } = report else { return Err(Unaudited) };
        let commands = if mutations.is_empty() {
            BTreeMap::new()
        } else {
            self.commands_of_sets(store).await.unwrap_or_default()
        };
        let room = MAX_SPELLED.saturating_sub(audited.spelled);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(mutations.len());
        let (spelled, counted) = mutations.split_at(room);
        for part in spelled.chunks(RECORD) {
            self.spell(session, store, part, &commands)?;
        }
        let last = mutations.last().map(|last| last.seq);
        let more = left > 0 && last.is_some();
        session.settle(&self.book, |doc| {
            let audited = &mut doc.changes.audited;
            for mutation in counted {
                *audited.counted.entry(mutation.operation.clone()).or_default() += 1;
            }
            audited.seq = last.unwrap_or(audited.seq);
            if !more {
                audited.length = length;
            }
        });
        Ok(if more { Left::More } else { Left::Nothing })
    }

    fn spell(
        &self,
        session: &Session,
        store: &Store,
        part: &[Mutation],
        commands: &BTreeMap<u32, u32>,
    ) -> Result<(), Trouble> {
        let changes: Vec<Value> =
            part.iter().map(|mutation| told(store, mutation, commands)).collect();
        let count = u64::try_from(part.len()).unwrap_or(0);
        let last = part.last().map_or(0, |last| last.seq);
        let change = |doc: &mut crate::session::Doc| {
            doc.changes.audited.seq = last;
            doc.changes.audited.spelled += count;
            Ok(json!({ "changes": changes }))
        };
        session.record(&self.book, "files.changed", change, |_| Ok(()))
    }

    /// Records how many changes there were beyond those that were spelled out.
    fn tell_counted(&self, session: &Session, store: &Store) -> Result<(), Trouble> {
        if session.doc().changes.audited.counted.is_empty() {
            return Ok(());
        }
        let change = |doc: &mut crate::session::Doc| {
            let audited = &mut doc.changes.audited;
            let counted = std::mem::take(&mut audited.counted);
            Ok(json!({ "counted": counted, "last": audited.seq, "store": store.name }))
        };
        session.record(&self.book, "files.changed", change, |_| Ok(()))
    }
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

fn told(store: &Store, mutation: &Mutation, commands: &BTreeMap<u32, u32>) -> Value {
    let to = mutation.to.as_ref().map(|path| {
        let at = cowork_api::files::Place { grant: mutation.at.grant.clone(), path: path.clone() };
        store.entry.host(&at)
    });
    let path: Raw = store.entry.host(&mutation.at);
    json!({
        "time": show::moment(mutation.time),
        "set": mutation.set,
        "command": commands.get(&mutation.set),
        "process": mutation.process,
        "operation": mutation.operation,
        "path": path,
        "to": to,
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

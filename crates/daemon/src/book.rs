//! Everything the daemon remembers: the catalogue, the audit, and the events made from both.
//!
//! Invariant: what is done was recorded first. If it cannot be recorded it is not done.

use crate::trouble::Trouble;
use cowork_audit::{Filter, Head, Ledger, Record};
use cowork_session::catalogue::{Catalogue, CatalogueError, Together};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

/// Most events that are kept; older ones are forgotten.
const MAX_EVENTS: u64 = 100_000;
/// After so many new events the old ones are looked at.
const TRIM_EVERY: u64 = 1_000;
/// The name under which the catalogue remembers the head of the audit.
const HEAD: &str = "audit.head";
/// And that of the last record that is known to be on the disk: what came after it can be lost with
/// the power.
const SYNCED: &str = "audit.synced";

/// The moment, as it is written everywhere.
pub(crate) fn now() -> String {
    at(SystemTime::now())
}

/// A moment, as it is written everywhere.
pub(crate) fn at(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Milliseconds between a written moment and now.
pub(crate) fn millis_since(moment: &str) -> u64 {
    let since = humantime::parse_rfc3339(moment).ok();
    let passed = since.and_then(|since| SystemTime::now().duration_since(since).ok());
    passed.map_or(0, |passed| u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
}

/// What the daemon remembers.
pub(crate) struct Book {
    pub(crate) catalogue: Catalogue,
    ledger: Mutex<Ledger>,
    audit: PathBuf,
    latest: watch::Sender<u64>,
    /// Records of the last daemon that the catalogue does not know of.
    pub(crate) ahead: Vec<Record>,
}

impl Book {
    /// Opens what is in the state folder.
    pub(crate) fn open(state: &Path) -> Result<Self, Trouble> {
        let catalogue = Catalogue::open(&state.join("state.db"))?;
        let audit = state.join("audit");
        let opened = Ledger::open(&audit, head_of(&catalogue, SYNCED)?.as_ref())?;
        let found = opened.ledger.head().seq;
        let known = head_of(&catalogue, HEAD)?;
        let after = known.as_ref().map_or(0, |known| known.seq);
        let lost = known.filter(|known| known.seq > found);
        // The last daemon was killed before the catalogue knew of these.
        let ahead = cowork_audit::read(&audit, &Filter { after, ..Filter::default() })?;
        let (_, last) = catalogue.event_range()?;
        let book = Self {
            catalogue,
            ledger: Mutex::new(opened.ledger),
            audit,
            latest: watch::channel(last).0,
            ahead,
        };
        if let Some(cut) = opened.cut {
            book.record("audit.repaired", None, &serde_json::json!({ "unfinished": cut }))?;
        }
        if let Some(known) = lost {
            let data = serde_json::json!({ "from": found + 1, "to": known.seq });
            book.record("audit.lost", None, &data)?;
        }
        Ok(book)
    }

    /// The folder with the files of the audit.
    pub(crate) fn audit_folder(&self) -> &Path {
        &self.audit
    }

    /// The head of the audit as the catalogue knows it.
    pub(crate) fn known_head(&self) -> Result<Option<Head>, Trouble> {
        head_of(&self.catalogue, HEAD)
    }

    /// Records a decision or an act, in the audit and as an event.
    pub(crate) fn record(
        &self,
        kind: &str,
        session: Option<&str>,
        data: &Value,
    ) -> Result<(), Trouble> {
        self.record_with(kind, session, data, |_| Ok(()))
    }

    /// Records something, and writes what belongs to it into the catalogue in the same step.
    pub(crate) fn record_with(
        &self,
        kind: &str,
        session: Option<&str>,
        data: &Value,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        let time = now();
        // The lock is held until the catalogue knows the head too: heads must not be overtaken.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let head = ledger.append(&time, kind, session, data)?;
        let text = data.to_string();
        let id = self.catalogue.together(|catalogue| {
            catalogue.set(HEAD, &format!("{} {}", head.seq, head.hash))?;
            belongs(catalogue)?;
            catalogue.add_event(&time, kind, session, &text)
        })?;
        drop(ledger);
        self.tell(id)?;
        Ok(())
    }

    /// Writes something into the catalogue, with events that need no record, in one step.
    pub(crate) fn write(
        &self,
        session: &str,
        events: &[(&str, Value)],
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        let time = now();
        let id = self.catalogue.together(|catalogue| {
            belongs(catalogue)?;
            let mut last = 0;
            for (kind, data) in events {
                last = catalogue.add_event(&time, kind, Some(session), &data.to_string())?;
            }
            Ok(last)
        })?;
        Ok(self.tell(id)?)
    }

    /// Tells of something that needs no record. What cannot be told is not worth failing for.
    pub(crate) fn note(&self, kind: &str, session: Option<&str>, data: &Value) {
        let added = self.catalogue.add_event(&now(), kind, session, &data.to_string());
        if let Ok(id) = added {
            drop(self.tell(id));
        }
    }

    fn tell(&self, id: u64) -> Result<(), CatalogueError> {
        self.latest.send_modify(|latest| *latest = id.max(*latest));
        if id > 0 && id.is_multiple_of(TRIM_EVERY) {
            self.catalogue.trim_events(MAX_EVENTS)?;
        }
        Ok(())
    }

    /// The number of the last record.
    pub(crate) fn last_record(&self) -> u64 {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).head().seq
    }

    /// The number of the last event, and every new one.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Makes the audit survive a loss of power.
    pub(crate) fn sync(&self) -> Result<(), Trouble> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.sync()?;
        let head = ledger.head();
        Ok(self.catalogue.set(SYNCED, &format!("{} {}", head.seq, head.hash))?)
    }
}

fn head_of(catalogue: &Catalogue, name: &str) -> Result<Option<Head>, Trouble> {
    let known = catalogue.get(name)?;
    let known = known.as_ref().and_then(|known| known.split_once(' '));
    Ok(known.and_then(|(seq, hash)| Some(Head { seq: seq.parse().ok()?, hash: hash.to_owned() })))
}

//! Everything the daemon remembers: the catalogue, the audit, and the events made from both.
//!
//! Invariants: what is done was recorded first; if it cannot be recorded it is not done. What is
//! recorded is recorded once: what the catalogue could not be told of a record it is told by
//! whoever tries again, or by the next daemon ([`crate::session::catch_up`]).

use crate::trouble::Trouble;
use cowork_audit::{Filter, Head, Ledger, LedgerError, Record};
use cowork_session::catalogue::{Catalogue, CatalogueError, Together};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

/// After so many new events the old ones are looked at, or sooner where few are kept.
const TRIM_EVERY: u64 = 1_000;
/// The name under which the catalogue remembers the head of the audit.
const HEAD: &str = "audit.head";
/// And that of the last record that is known to be on the disk: what came after it can be lost with
/// the power.
const SYNCED: &str = "audit.synced";
/// Most records that the catalogue does not know of and that are held for another try.
const MAX_OWED: usize = 1_000;

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

/// The head of the audit in a state folder, as its catalogue knows it. Nothing is opened for
/// writing: there may be nobody to write it.
pub(crate) fn remembered_head(state: &Path) -> Result<Option<Head>, Trouble> {
    Ok(head_in(Catalogue::peek(&state.join("state.db"), HEAD)?.as_deref()))
}

/// What the daemon remembers.
pub(crate) struct Book {
    pub(crate) catalogue: Catalogue,
    pen: Mutex<Pen>,
    audit: PathBuf,
    latest: watch::Sender<u64>,
    /// Most events that are kept; older ones are forgotten.
    most_events: u64,
    /// Records of the last daemon that the catalogue does not know of.
    pub(crate) ahead: Vec<Record>,
}

/// The one writer of the audit.
struct Pen {
    ledger: Ledger,
    /// Records of this daemon that the catalogue does not know of. As long as there are any, the
    /// head that it knows stays before them.
    owed: Vec<Owed>,
    /// Whether there were more than are held.
    beyond: bool,
}

/// A record that the catalogue does not know of.
struct Owed {
    time: String,
    kind: String,
    session: Option<String>,
    data: Value,
}

impl Owed {
    /// Whether this is the record of the same thing: a command ends once, and so does whatever an
    /// egress process tells. Anything else is done anew when it is tried again.
    fn is_of(&self, kind: &str, session: Option<&str>, data: &Value) -> bool {
        let same = match kind {
            "command.ended" => self.data.get("command") == data.get("command"),
            "task.ended" => self.data.get("task") == data.get("task"),
            _ => data.get("egress").is_some() && self.data == *data,
        };
        self.kind == kind && self.session.as_deref() == session && same
    }
}

impl Book {
    /// Opens what is in the state folder.
    pub(crate) fn open(state: &Path, most_events: u64) -> Result<Self, Trouble> {
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
            pen: Mutex::new(Pen { ledger: opened.ledger, owed: Vec::new(), beyond: false }),
            audit,
            latest: watch::channel(last).0,
            most_events,
            ahead,
        };
        book.catch_up()?;
        if let Some(cut) = opened.cut {
            book.record("audit.repaired", None, &serde_json::json!({ "unfinished": cut }))?;
        }
        if let Some(known) = lost {
            let data = serde_json::json!({ "from": found + 1, "to": known.seq });
            book.record("audit.lost", None, &data)?;
        }
        Ok(book)
    }

    /// Tells the catalogue of what the last daemon recorded and could not tell it; records what
    /// became of the rest.
    fn catch_up(&self) -> Result<(), Trouble> {
        if self.ahead.is_empty() {
            return Ok(());
        }
        let left = self
            .catalogue
            .together(|catalogue| crate::session::catch_up::catch_up(catalogue, &self.ahead))?;
        let (_, last) = self.catalogue.event_range()?;
        self.tell(last)?;
        for left in left {
            self.record(left.kind, Some(&left.session), &left.data)?;
        }
        Ok(())
    }

    fn pen(&self) -> MutexGuard<'_, Pen> {
        self.pen.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.record_all(session, &[(kind, data)], belongs)
    }

    /// Records several things of a session, in this order, and writes what belongs to them into the
    /// catalogue in the same step.
    pub(crate) fn record_all(
        &self,
        session: Option<&str>,
        entries: &[(&str, &Value)],
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        self.record_and_tell(session, entries, None, belongs)
    }

    /// Records something, with what belongs to it, and an event after it that needs no record.
    pub(crate) fn record_told(
        &self,
        session: &str,
        entry: (&str, &Value),
        told: Option<(&str, &Value)>,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        self.record_and_tell(Some(session), &[entry], told, belongs)
    }

    fn record_and_tell(
        &self,
        session: Option<&str>,
        entries: &[(&str, &Value)],
        told: Option<(&str, &Value)>,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        // The lock is held until the catalogue knows the head too: heads must not be overtaken.
        let mut pen = self.pen();
        let mut times = Vec::with_capacity(entries.len());
        for (written, (kind, data)) in entries.iter().enumerate() {
            match pen.write(kind, session, data) {
                Ok(time) => times.push(time),
                Err(error) => {
                    pen.owe_all(session, entries.iter().take(written), times);
                    return Err(error.into());
                }
            }
        }
        let whole = pen.owed.is_empty() && !pen.beyond;
        let head = whole.then(|| text_of(pen.ledger.head()));
        let written = self.catalogue.together(|catalogue| {
            if let Some(head) = &head {
                catalogue.set(HEAD, head)?;
            }
            belongs(catalogue)?;
            crate::keyed::note_begun(catalogue, session, entries)?;
            let mut last = 0;
            for ((kind, data), time) in entries.iter().zip(&times) {
                last = catalogue.add_event(time, kind, session, &data.to_string())?;
            }
            if let Some((kind, data)) = told {
                last = catalogue.add_event(&now(), kind, session, &data.to_string())?;
            }
            Ok(last)
        });
        if written.is_err() {
            pen.owe_all(session, entries.iter(), times);
        }
        Ok(self.tell(written?)?)
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
        let every = TRIM_EVERY.min(self.most_events).max(1);
        let mut due = false;
        self.latest.send_modify(|latest| {
            // Several events can be told at once.
            due = id / every > *latest / every;
            *latest = id.max(*latest);
        });
        if due {
            self.catalogue.trim_events(self.most_events)?;
        }
        Ok(())
    }

    /// The number of the last record.
    pub(crate) fn last_record(&self) -> u64 {
        self.pen().ledger.head().seq
    }

    /// The number of the last event, and every new one.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Makes the audit survive a loss of power.
    pub(crate) fn sync(&self) -> Result<(), Trouble> {
        let pen = self.pen();
        pen.ledger.sync()?;
        Ok(self.catalogue.set(SYNCED, &text_of(pen.ledger.head()))?)
    }
}

impl Pen {
    /// Appends a record to the audit, unless it is there and only the catalogue does not know of
    /// it. Gives the moment of the record.
    fn write(
        &mut self,
        kind: &str,
        session: Option<&str>,
        data: &Value,
    ) -> Result<String, LedgerError> {
        let again = self.owed.iter().position(|owed| owed.is_of(kind, session, data));
        let time = if let Some(index) = again {
            self.owed.swap_remove(index).time
        } else {
            let time = now();
            self.ledger.append(&time, kind, session, data)?;
            time
        };
        if kind == "session.created" {
            self.give_up_on(session);
        }
        Ok(time)
    }

    /// Remembers records that the catalogue was not told of.
    fn owe_all<'e>(
        &mut self,
        session: Option<&str>,
        entries: impl Iterator<Item = &'e (&'e str, &'e Value)>,
        times: Vec<String>,
    ) {
        for ((kind, data), time) in entries.zip(times) {
            let session = session.map(ToOwned::to_owned);
            self.owe(Owed { time, kind: (*kind).to_owned(), session, data: (*data).clone() });
        }
    }

    /// What is owed of an earlier session of the same name is nothing of the new one's.
    fn give_up_on(&mut self, session: Option<&str>) {
        let before = self.owed.len();
        self.owed.retain(|owed| owed.session.as_deref() != session);
        self.beyond |= self.owed.len() < before;
    }

    fn owe(&mut self, owed: Owed) {
        if self.owed.len() < MAX_OWED {
            self.owed.push(owed);
        } else {
            self.beyond = true;
        }
    }
}

/// A head as the catalogue keeps it.
fn text_of(head: &Head) -> String {
    format!("{} {}", head.seq, head.hash)
}

fn head_of(catalogue: &Catalogue, name: &str) -> Result<Option<Head>, Trouble> {
    Ok(head_in(catalogue.get(name)?.as_deref()))
}

fn head_in(text: Option<&str>) -> Option<Head> {
    let (seq, hash) = text?.split_once(' ')?;
    Some(Head { seq: seq.parse().ok()?, hash: hash.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::Book;
    use cowork_audit::{Filter, Record};
    use cowork_session::catalogue::{CatalogueError, Together};
    use cowork_testbed::{Folder, Person};
    use serde_json::{Value, json};

    /// Records something, and the catalogue takes it.
    #[track_caller]
    fn record(book: &Book, kind: &str, data: &Value) {
        book.record(kind, Some("one"), data).expect("there is room");
    }

    /// Records something, and the catalogue does not take what belongs to it.
    #[track_caller]
    fn record_alone(book: &Book, kind: &str, data: &Value) {
        let refused = |_: &Together<'_>| Err(CatalogueError::NoRequest { id: 0 });
        let done = book.record_with(kind, Some("one"), data, refused);
        assert!(done.is_err(), "it is told");
    }

    fn kinds(records: &[Record]) -> Vec<&str> {
        records.iter().map(|record| record.kind.as_str()).collect()
    }

    #[test]
    fn what_the_catalogue_did_not_take_is_recorded_once() {
        let folder = Folder::new(Person::Root, "book");
        let book = Book::open(folder.path(), 1000).expect("it is new");
        record(&book, "session.created", &json!({}));
        let known = book.known_head().expect("it can be read").expect("there is one");
        assert_eq!(known.seq, 1);
        record_alone(&book, "command.ended", &json!({ "command": 1, "output": 0 }));
        record(&book, "command.ended", &json!({ "command": 2, "output": 0 }));
        // What it does not know of lies after the head that it knows.
        assert_eq!(book.known_head().expect("it can be read"), Some(known));
        record(&book, "command.ended", &json!({ "command": 1, "output": 7 }));
        assert_eq!(book.known_head().expect("it can be read").map(|head| head.seq), Some(3));
        let all = cowork_audit::read(book.audit_folder(), &Filter::default());
        let all = all.expect("it can be read");
        assert_eq!(kinds(&all), ["session.created", "command.ended", "command.ended"]);
        assert_eq!(book.catalogue.event_range().expect("it can be read").1, 3, "each is told");
        // Whatever else is tried again is done again.
        record_alone(&book, "session.paused", &json!({}));
        record(&book, "session.paused", &json!({}));
        assert_eq!(book.last_record(), 5);
        drop(book);
        let book = Book::open(folder.path(), 1000).expect("it is whole");
        assert_eq!(kinds(&book.ahead), ["session.paused", "session.paused"]);
    }

    #[test]
    fn several_records_are_one_step() {
        let folder = Folder::new(Person::Root, "book");
        let book = Book::open(folder.path(), 1000).expect("it is new");
        let flows = [json!({ "egress": "e", "number": 1 }), json!({ "egress": "e", "number": 2 })];
        let entries = flows.each_ref().map(|flow| ("network.decided", flow));
        let refused = |_: &Together<'_>| Err(CatalogueError::NoRequest { id: 0 });
        assert!(book.record_all(Some("one"), &entries, refused).is_err(), "it is told");
        assert!(book.known_head().expect("it can be read").is_none());
        assert_eq!(book.catalogue.event_range().expect("it can be read").1, 0, "none is told");
        book.record_all(Some("one"), &entries, |_| Ok(())).expect("there is room");
        assert_eq!(book.known_head().expect("it can be read").map(|head| head.seq), Some(2));
        assert_eq!(book.catalogue.event_range().expect("it can be read").1, 2, "each is told");
        let all = cowork_audit::read(book.audit_folder(), &Filter::default());
        assert_eq!(all.expect("it can be read").len(), 2, "each is recorded once");
    }

    #[test]
    fn what_is_owed_to_an_earlier_session_is_nothing_of_a_later_one() {
        let folder = Folder::new(Person::Root, "book");
        let book = Book::open(folder.path(), 1000).expect("it is new");
        let data = json!({ "command": 1 });
        record_alone(&book, "command.ended", &data);
        record(&book, "session.created", &json!({}));
        record(&book, "command.ended", &data);
        assert_eq!(book.last_record(), 3);
        assert!(book.known_head().expect("it can be read").is_none());
    }
}

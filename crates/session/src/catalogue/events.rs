//! What happened, in order, for those who come back and want to know what they missed.
//!
//! Invariant: the numbers of the events that are kept have no gaps, so whoever has seen one knows
//! by its number whether anything was dropped since.

use super::documents::{execute, rows};
use super::{Catalogue, CatalogueError, Hold, signed, unsigned};
use rusqlite::{Connection, Row};

/// Which events are wanted: those to which everything applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// About this session.
    pub session: Option<String>,
    /// Of this type, or of those that begin with it and a dot: `grant` is also `grant.added`.
    pub kind: Option<String>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its number, from 1.
    pub id: u64,
    /// When it happened.
    pub time: String,
    /// What happened.
    pub kind: String,
    /// The session it is about.
    pub session: Option<String>,
    /// Whatever belongs to it.
    pub data: String,
}

impl EventRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: unsigned(row.get(0)?),
            time: row.get(1)?,
            kind: row.get(2)?,
            session: row.get(3)?,
            data: row.get(4)?,
        })
    }
}

impl<H: Hold> Catalogue<H> {
    /// Adds an event and says its number.
    pub fn add_event(
        &self,
        time: &str,
        kind: &str,
        session: Option<&str>,
        data: &str,
    ) -> Result<u64, CatalogueError> {
        let sql = "INSERT INTO event (time, kind, session, data) VALUES (?1, ?2, ?3, ?4)";
        self.run("add an event", |connection| {
            execute(connection, sql, (time, kind, session, data))?;
            Ok(unsigned(connection.last_insert_rowid()))
        })
    }

    /// Wanted events with higher numbers than `after`, in order.
    pub fn events(
        &self,
        after: u64,
        filter: &EventFilter,
        limit: u32,
    ) -> Result<Vec<EventRow>, CatalogueError> {
        // `/` is the character behind `.`: between them are all types that begin with the words.
        let sql = match (&filter.session, &filter.kind) {
            (None, None) => {
                "SELECT id, time, kind, session, data FROM event
                 WHERE id > ?1 AND ?3 IS NULL AND ?4 IS NULL ORDER BY id LIMIT ?2"
            }
            (Some(_), None) => {
                "SELECT id, time, kind, session, data FROM event
                 WHERE session = ?3 AND id > ?1 AND ?4 IS NULL ORDER BY id LIMIT ?2"
            }
            (None, Some(_)) => {
                "SELECT id, time, kind, session, data FROM event
                 WHERE id > ?1 AND ?3 IS NULL
                 AND (kind = ?4 OR (kind > ?4 || '.' AND kind < ?4 || '/'))
                 ORDER BY id LIMIT ?2"
            }
            (Some(_), Some(_)) => {
                "SELECT id, time, kind, session, data FROM event
                 WHERE session = ?3 AND id > ?1
                 AND (kind = ?4 OR (kind > ?4 || '.' AND kind < ?4 || '/'))
                 ORDER BY id LIMIT ?2"
            }
        };
        let parameters = (signed(after), limit, &filter.session, &filter.kind);
        self.run("read the events", |connection| rows(connection, sql, parameters, EventRow::read))
    }

    /// The last events of exactly one type about a session, in order.
    pub fn last_events(
        &self,
        session: &str,
        kind: &str,
        limit: u32,
    ) -> Result<Vec<EventRow>, CatalogueError> {
        let sql = "SELECT id, time, kind, session, data FROM event
                   WHERE session = ?1 AND kind = ?2 ORDER BY id DESC LIMIT ?3";
        let mut last = self.run("read the last events", |connection| {
            rows(connection, sql, (session, kind, limit), EventRow::read)
        })?;
        last.reverse();
        Ok(last)
    }

    /// The numbers of the first event that is kept and of the last one there was. If none is kept,
    /// the first is the one that comes next: it is higher than the last by one.
    pub fn event_range(&self) -> Result<(u64, u64), CatalogueError> {
        let sql = "SELECT min(id) FROM event";
        self.run("read the numbers of events", |connection| {
            let last = last_event(connection)?;
            let first: Option<i64> =
                connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
            Ok((unsigned(first.unwrap_or(last + 1)), unsigned(last)))
        })
    }

    /// Drops all events but the last `keep`.
    pub fn trim_events(&self, keep: u64) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM event WHERE id <= ?1";
        self.run("drop old events", |connection| {
            let dropped = last_event(connection)?.saturating_sub(signed(keep));
            execute(connection, sql, [dropped]).map(drop)
        })
    }
}

/// The number of the last event there was.
fn last_event(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

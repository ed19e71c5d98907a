//! Answers that were given, for those who ask again, and single values by name.

use super::documents::{execute, text};
use super::{Catalogue, CatalogueError, Hold, signed, unsigned};
use rusqlite::{Connection, OptionalExtension};

/// An answer that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// What was asked: whoever asks something else with the same key made a mistake.
    pub fingerprint: String,
    /// The status of the answer.
    pub status: u16,
    /// The answer.
    pub body: String,
    /// When it was given.
    pub at: String,
}

/// A call with a key, as it was written down before anything was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was asked.
    pub fingerprint: String,
    /// The kind of what was recorded for it; none if nothing was.
    pub kind: Option<String>,
    /// The session that it made, or in which it made something; none also if that is gone.
    pub session: Option<String>,
    /// The number of what it made in the session.
    pub number: Option<u64>,
}

impl<H: Hold> Catalogue<H> {
    /// Writes down that a call with a key came, in place of an earlier one with the key.
    pub fn put_attempt(
        &self,
        key: &str,
        fingerprint: &str,
        at: &str,
    ) -> Result<(), CatalogueError> {
        let sql = "INSERT OR REPLACE INTO attempt (key, fingerprint, at) VALUES (?1, ?2, ?3)";
        self.run("note a call", |connection| {
            execute(connection, sql, (key, fingerprint, at)).map(drop)
        })
    }

    /// Notes the kind of the first record of a call.
    pub fn begin_attempt(&self, key: &str, kind: &str) -> Result<(), CatalogueError> {
        let sql = "UPDATE attempt SET kind = ?2 WHERE key = ?1 AND kind IS NULL";
        self.run("note what a call did", |connection| {
            execute(connection, sql, (key, kind)).map(drop)
        })
    }

    /// Notes what a call made.
    pub fn bind_attempt(
        &self,
        key: &str,
        kind: &str,
        session: Option<&str>,
        number: Option<u64>,
    ) -> Result<(), CatalogueError> {
        let sql = "UPDATE attempt SET kind = ?2, session = ?3, number = ?4 WHERE key = ?1";
        self.run("note what a call made", |connection| {
            execute(connection, sql, (key, kind, session, number.map(signed))).map(drop)
        })
    }

    /// The call that came with this key.
    pub fn attempt(&self, key: &str) -> Result<Option<Call>, CatalogueError> {
        let sql = "SELECT fingerprint, kind, session, number FROM attempt WHERE key = ?1";
        self.run("look for a call", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let attempt = statement.query_row([key], |row| {
                let number: Option<i64> = row.get(3)?;
                Ok(Call {
                    fingerprint: row.get(0)?,
                    kind: row.get(1)?,
                    session: row.get(2)?,
                    number: number.map(unsigned),
                })
            });
            attempt.optional()
        })
    }

    /// Forgets a call that nothing came of.
    pub fn drop_attempt(&self, key: &str) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM attempt WHERE key = ?1";
        self.run("forget a call", |connection| execute(connection, sql, [key]).map(drop))
    }

    /// Forgets the calls that made something of a session which never was.
    pub fn drop_attempts_of(&self, session: &str) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM attempt WHERE session = ?1";
        self.run("forget calls", |connection| execute(connection, sql, [session]).map(drop))
    }

    /// Remembers an answer by the key of the one who asked, in place of an earlier one.
    pub fn remember(&self, key: &str, answer: &Remembered) -> Result<(), CatalogueError> {
        let sql = "INSERT OR REPLACE INTO answer (key, fingerprint, status, body, at)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let Remembered { fingerprint, status, body, at } = answer;
        self.run("remember an answer", |connection| {
            execute(connection, sql, (key, fingerprint, status, body, at)).map(drop)
        })
    }

    /// The answer that was given to this key.
    pub fn recall(&self, key: &str) -> Result<Option<Remembered>, CatalogueError> {
        let sql = "SELECT fingerprint, status, body, at FROM answer WHERE key = ?1";
        self.run("recall an answer", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let answer = statement.query_row([key], |row| {
                Ok(Remembered {
                    fingerprint: row.get(0)?,
                    status: row.get(1)?,
                    body: row.get(2)?,
                    at: row.get(3)?,
                })
            });
            answer.optional()
        })
    }

    /// Forgets the answers that were given, and the calls that came, before a time, compared as
    /// text.
    pub fn forget_before(&self, at: &str) -> Result<(), CatalogueError> {
        self.run("forget old answers", |connection| {
            execute(connection, "DELETE FROM attempt WHERE at < ?1", [at])?;
            execute(connection, "DELETE FROM answer WHERE at < ?1", [at]).map(drop)
        })
    }

    /// Sets a value, in place of an earlier one.
    pub fn set(&self, name: &str, value: &str) -> Result<(), CatalogueError> {
        let sql = "INSERT OR REPLACE INTO setting (name, value) VALUES (?1, ?2)";
        self.run("set a value", |connection| execute(connection, sql, (name, value)).map(drop))
    }

    /// Forgets a value that was set; fine if it was not.
    pub fn unset(&self, name: &str) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM setting WHERE name = ?1";
        self.run("forget a value", |connection| execute(connection, sql, [name]).map(drop))
    }

    /// A value that was set.
    pub fn get(&self, name: &str) -> Result<Option<String>, CatalogueError> {
        self.run("read a value", |connection| value(connection, name))
    }
}

/// A value that was set.
pub(super) fn value(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    text(connection, "SELECT value FROM setting WHERE name = ?1", [name])
}

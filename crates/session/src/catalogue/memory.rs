//! Answers that were given, for those who ask again, and single values by name.

use super::documents::{execute, text};
use super::{Catalogue, CatalogueError, Hold};
use rusqlite::OptionalExtension;

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

impl<H: Hold> Catalogue<H> {
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

    /// Forgets the answers that were given before a time, compared as text.
    pub fn forget_before(&self, at: &str) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM answer WHERE at < ?1";
        self.run("forget old answers", |connection| execute(connection, sql, [at]).map(drop))
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
        let sql = "SELECT value FROM setting WHERE name = ?1";
        self.run("read a value", |connection| text(connection, sql, [name]))
    }
}

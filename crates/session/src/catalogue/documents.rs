//! Sessions, and the commands and requests that belong to one.

use super::{Catalogue, CatalogueError, Hold, signed, unsigned};
use rusqlite::{Connection, OptionalExtension, Params, Row};

/// Whether a request waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Pending,
    /// It was answered, or is no longer of interest.
    Decided,
}

/// Which requests are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Those that wait for an answer.
    Pending,
    /// All.
    All,
}

impl<H: Hold> Catalogue<H> {
    /// Puts the document of a session, in place of an earlier one.
    pub fn put_session(&self, id: &str, doc: &str) -> Result<(), CatalogueError> {
        let sql = "INSERT INTO session (id, doc) VALUES (?1, ?2)
                   ON CONFLICT (id) DO UPDATE SET doc = excluded.doc";
        self.run("put a session", |connection| execute(connection, sql, (id, doc)).map(drop))
    }

    /// The document of a session.
    pub fn session(&self, id: &str) -> Result<Option<String>, CatalogueError> {
        let sql = "SELECT doc FROM session WHERE id = ?1";
        self.run("read a session", |connection| text(connection, sql, [id]))
    }

    /// All sessions and their documents, in the order in which they were first put.
    pub fn sessions(&self) -> Result<Vec<(String, String)>, CatalogueError> {
        let sql = "SELECT id, doc FROM session ORDER BY place";
        self.run("read the sessions", |connection| {
            rows(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// Removes a session with its commands and requests. Its events stay.
    pub fn remove_session(&self, id: &str) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM session WHERE id = ?1";
        self.run("remove a session", |connection| execute(connection, sql, [id]).map(drop))
    }

    /// Puts the document of a command, in place of an earlier one.
    pub fn put_command(&self, session: &str, number: u32, doc: &str) -> Result<(), CatalogueError> {
        let sql = "INSERT INTO command (session, number, doc) VALUES (?1, ?2, ?3)
                   ON CONFLICT (session, number) DO UPDATE SET doc = excluded.doc";
        self.run("put a command", |connection| {
            execute(connection, sql, (session, number, doc)).map(drop)
        })
    }

    /// The document of a command.
    pub fn command(&self, session: &str, number: u32) -> Result<Option<String>, CatalogueError> {
        let sql = "SELECT doc FROM command WHERE session = ?1 AND number = ?2";
        self.run("read a command", |connection| text(connection, sql, (session, number)))
    }

    /// Commands of a session with higher numbers than `after`, and their documents, in order.
    pub fn commands(
        &self,
        session: &str,
        after: u32,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, CatalogueError> {
        let sql = "SELECT number, doc FROM command WHERE session = ?1 AND number > ?2
                   ORDER BY number LIMIT ?3";
        self.run("read the commands", |connection| {
            rows(connection, sql, (session, after, limit), |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// The highest number of a session's commands; 0 if it has none.
    pub fn last_command(&self, session: &str) -> Result<u32, CatalogueError> {
        let sql = "SELECT coalesce(max(number), 0) FROM command WHERE session = ?1";
        self.run("read the last command", |connection| {
            connection.prepare_cached(sql)?.query_row([session], |row| row.get(0))
        })
    }

    /// Gives the number of a new request. Numbers count from 1 and are never given again, whatever
    /// becomes of the request.
    pub fn number_request(&self) -> Result<u64, CatalogueError> {
        let begin = "INSERT INTO sqlite_sequence (name, seq) SELECT 'request', 0
                     WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'request')";
        let next = "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'request' RETURNING seq";
        self.run("number a request", |connection| {
            execute(connection, begin, ())?;
            let id: i64 = connection.prepare_cached(next)?.query_row([], |row| row.get(0))?;
            Ok(unsigned(id))
        })
    }

    /// Adds a request, which is pending, under the number that it was given.
    pub fn add_request(&self, id: u64, session: &str, doc: &str) -> Result<(), CatalogueError> {
        let sql = "INSERT INTO request (id, session, pending, doc) VALUES (?1, ?2, 1, ?3)";
        self.run("add a request", |connection| {
            execute(connection, sql, (signed(id), session, doc)).map(drop)
        })
    }

    /// Puts the document of a request that waits in place of the earlier one. What was decided
    /// stays as it is.
    pub fn put_request(
        &self,
        id: u64,
        standing: Standing,
        doc: &str,
    ) -> Result<(), CatalogueError> {
        let sql = "UPDATE request SET pending = ?2, doc = ?3 WHERE id = ?1 AND pending = 1";
        let pending = standing == Standing::Pending;
        let changed = self.run("put a request", |connection| {
            execute(connection, sql, (signed(id), pending, doc))
        })?;
        if changed == 0 { Err(CatalogueError::NoRequest { id }) } else { Ok(()) }
    }

    /// The document of a request.
    pub fn request(&self, id: u64) -> Result<Option<String>, CatalogueError> {
        let sql = "SELECT doc FROM request WHERE id = ?1";
        self.run("read a request", |connection| text(connection, sql, [signed(id)]))
    }

    /// Requests with higher numbers than `after`, and their documents, in order.
    pub fn requests(
        &self,
        wanted: Requests,
        session: Option<&str>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, String)>, CatalogueError> {
        let sql = match (wanted, session) {
            (Requests::All, None) => {
                "SELECT id, doc FROM request WHERE id > ?2 AND ?1 IS NULL ORDER BY id LIMIT ?3"
            }
            (Requests::All, Some(_)) => {
                "SELECT id, doc FROM request WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
            }
            (Requests::Pending, None) => {
                "SELECT id, doc FROM request
                 WHERE pending = 1 AND id > ?2 AND ?1 IS NULL ORDER BY id LIMIT ?3"
            }
            (Requests::Pending, Some(_)) => {
                "SELECT id, doc FROM request
                 WHERE pending = 1 AND session = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
            }
        };
        self.run("read the requests", |connection| {
            rows(connection, sql, (session, signed(after), limit), |row| {
                Ok((unsigned(row.get(0)?), row.get(1)?))
            })
        })
    }

    /// How many requests of a session wait for an answer.
    pub fn count_pending(&self, session: &str) -> Result<u32, CatalogueError> {
        let sql = "SELECT count(*) FROM request WHERE session = ?1 AND pending = 1";
        self.run("count the requests", |connection| {
            connection.prepare_cached(sql)?.query_row([session], |row| row.get(0))
        })
    }
}

/// Changes something and says how many rows it was.
pub(super) fn execute(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute(parameters)
}

/// The text in the one column of the one row, if there is one.
pub(super) fn text(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached(sql)?.query_row(parameters, |row| row.get(0)).optional()
}

/// All rows.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    each: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(parameters, each)?.collect()
}

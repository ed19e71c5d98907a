//! Tasks of a session, and the messages of each.

use super::documents::{execute, rows, text};
use super::{Catalogue, CatalogueError, Hold, signed, unsigned};

impl<H: Hold> Catalogue<H> {
    /// Puts the document of a task, in place of an earlier one.
    pub fn put_task(&self, session: &str, number: u32, doc: &str) -> Result<(), CatalogueError> {
        let sql = "INSERT INTO task (session, number, doc) VALUES (?1, ?2, ?3)
                   ON CONFLICT (session, number) DO UPDATE SET doc = excluded.doc";
        self.run("put a task", |connection| {
            execute(connection, sql, (session, number, doc)).map(drop)
        })
    }

    /// The document of a task.
    pub fn task(&self, session: &str, number: u32) -> Result<Option<String>, CatalogueError> {
        let sql = "SELECT doc FROM task WHERE session = ?1 AND number = ?2";
        self.run("read a task", |connection| text(connection, sql, (session, number)))
    }

    /// Tasks of a session with higher numbers than `after`, and their documents, in order.
    pub fn tasks(
        &self,
        session: &str,
        after: u32,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, CatalogueError> {
        let sql = "SELECT number, doc FROM task WHERE session = ?1 AND number > ?2
                   ORDER BY number LIMIT ?3";
        self.run("read the tasks", |connection| {
            rows(connection, sql, (session, after, limit), |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// The highest number of a session's tasks; 0 if it has none.
    pub fn last_task(&self, session: &str) -> Result<u32, CatalogueError> {
        let sql = "SELECT coalesce(max(number), 0) FROM task WHERE session = ?1";
        self.run("read the last task", |connection| {
            connection.prepare_cached(sql)?.query_row([session], |row| row.get(0))
        })
    }

    /// Forgets a task with its messages; fine if there is none.
    pub fn remove_task(&self, session: &str, number: u32) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM task WHERE session = ?1 AND number = ?2";
        self.run("remove a task", |connection| {
            execute(connection, sql, (session, number)).map(drop)
        })
    }

    /// Puts a message of a task, in place of an earlier one with its number.
    pub fn put_message(
        &self,
        session: &str,
        task: u32,
        number: u64,
        doc: &str,
    ) -> Result<(), CatalogueError> {
        let sql = "INSERT OR REPLACE INTO message (session, task, number, doc)
                   VALUES (?1, ?2, ?3, ?4)";
        self.run("put a message", |connection| {
            execute(connection, sql, (session, task, signed(number), doc)).map(drop)
        })
    }

    /// Messages of a task with higher numbers than `after`, and their documents, in order.
    pub fn messages(
        &self,
        session: &str,
        task: u32,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, String)>, CatalogueError> {
        let sql = "SELECT number, doc FROM message
                   WHERE session = ?1 AND task = ?2 AND number > ?3 ORDER BY number LIMIT ?4";
        self.run("read the messages", |connection| {
            rows(connection, sql, (session, task, signed(after), limit), |row| {
                Ok((unsigned(row.get(0)?), row.get(1)?))
            })
        })
    }

    /// Forgets the messages of a task up to a number.
    pub fn trim_messages(
        &self,
        session: &str,
        task: u32,
        up_to: u64,
    ) -> Result<(), CatalogueError> {
        let sql = "DELETE FROM message WHERE session = ?1 AND task = ?2 AND number <= ?3";
        self.run("drop old messages", |connection| {
            execute(connection, sql, (session, task, signed(up_to))).map(drop)
        })
    }
}

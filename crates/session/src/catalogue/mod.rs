//! The catalogue of sessions: what is known about them, their commands, tasks, requests and
//! events, in one `SQLite` file.
//!
//! What it holds are documents, JSON text that only its user understands; the catalogue knows by
//! which names they are found and in which order. One process has it open. A write is there for
//! the next process once the call has returned, and after a failed one everything is as before;
//! after a loss of power the last writes may be missing, never a part of one.
//!
//! Deliberately absent: the meaning of a document, output of commands (`output`), the audit record
//! (`cowork-audit`), and repair: a damaged file is left as it is, for a person to decide about.

mod documents;
mod error;
mod events;
mod memory;
mod schema;
mod tasks;

pub use documents::{Requests, Standing};
pub use error::CatalogueError;
pub use events::{EventFilter, EventRow};
pub use memory::{Call, Remembered};

use error::Attempt;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The catalogue, or a part of it that is written as a whole ([`Together`]).
#[derive(Debug)]
pub struct Catalogue<H = Whole> {
    hold: H,
    file: Arc<Path>,
}

/// Several reads and writes of a catalogue that happen all or not at all.
pub type Together<'t> = Catalogue<Held<'t>>;

/// The hold on a catalogue of its one owner, who may be many threads.
#[derive(Debug)]
pub struct Whole {
    connection: Mutex<Connection>,
    /// Locked as long as the catalogue is open, and let go after the connection.
    _lock: File,
}

/// The hold on a catalogue within a transaction.
#[derive(Debug)]
pub struct Held<'t>(&'t Transaction<'t>);

/// A way to hold a catalogue. There are two, [`Whole`] and [`Held`].
pub trait Hold: sealed::Reach {}

impl Hold for Whole {}
impl Hold for Held<'_> {}

mod sealed {
    use rusqlite::Connection;

    /// Reaches the connection for one piece of work.
    pub trait Reach {
        /// The outcome; none if the transaction was undone by an earlier failure.
        fn reach<T>(&self, work: impl FnOnce(&Connection) -> T) -> Option<T>;
    }
}

impl sealed::Reach for Whole {
    fn reach<T>(&self, work: impl FnOnce(&Connection) -> T) -> Option<T> {
        // A panic elsewhere undid its transaction on its way out: the connection is whole.
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&connection))
    }
}

impl sealed::Reach for Held<'_> {
    fn reach<T>(&self, work: impl FnOnce(&Connection) -> T) -> Option<T> {
        // SQLite ends a transaction by itself when the disk is full. What would be written after
        // that would stay, without what came before it.
        (!self.0.is_autocommit()).then(|| work(self.0))
    }
}

impl Catalogue {
    /// Opens the catalogue in a file, which is made if there is none.
    ///
    /// Besides the file there are, while it is open, `-wal`, and `.lock`; after a change of the
    /// schema also a copy from before, `.v1.bak` for version 1.
    pub fn open(file: &Path) -> Result<Self, CatalogueError> {
        let (connection, lock) = schema::open(file)?;
        let hold = Whole { connection: Mutex::new(connection), _lock: lock };
        Ok(Self { hold, file: file.into() })
    }

    /// A value that was set in the catalogue of a file, which nobody may have open; none if there is
    /// no such file. Nothing is locked, made or changed.
    pub fn peek(file: &Path, name: &str) -> Result<Option<String>, CatalogueError> {
        let Some(connection) = schema::look(file)? else { return Ok(None) };
        let attempt = Attempt { attempted: "read a value", file };
        memory::value(&connection, name).map_err(|error| attempt.failed(error))
    }

    /// Does several things as one: if `work` fails, none of them was done.
    ///
    /// `work` uses what it is given; using the catalogue itself there would wait forever.
    pub fn together<T>(
        &self,
        work: impl FnOnce(&Together<'_>) -> Result<T, CatalogueError>,
    ) -> Result<T, CatalogueError> {
        let attempt = Attempt { attempted: "write several things at once", file: &self.file };
        let mut connection = self.hold.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| attempt.failed(error))?;
        let done = work(&Catalogue { hold: Held(&transaction), file: Arc::clone(&self.file) })?;
        if transaction.is_autocommit() {
            return Err(attempt.undone());
        }
        transaction.commit().map_err(|error| attempt.failed(error))?;
        Ok(done)
    }
}

impl<H: Hold> Catalogue<H> {
    fn run<T>(
        &self,
        attempted: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CatalogueError> {
        let attempt = Attempt { attempted, file: &self.file };
        let done = self.hold.reach(work).ok_or_else(|| attempt.undone())?;
        done.map_err(|error| attempt.failed(error))
    }
}

/// A number as `SQLite` has it. What is beyond is as good as the largest: nothing is there.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that was counted, or made by counting.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

//! The file of the catalogue: how it is made, checked, opened and brought up to date.
//!
//! Invariant: under its own name there is never a file that is not a whole catalogue of some
//! version. A new one is made under another name first. A file that turns out to be damaged, or of
//! a later version, is not written at all, and neither are the files beside it.

use super::error::Attempt;
use super::{CatalogueError, signed};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Every version of the schema, as what makes it from the one before it. What was released is
/// never changed; a change is a new version at the end.
const VERSIONS: [&str; 4] = [
    // Documents are kept in the order in which they were first put.
    "CREATE TABLE session (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        doc TEXT NOT NULL
    ) STRICT;
    CREATE TABLE command (
        session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        doc TEXT NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE request (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        pending INTEGER NOT NULL,
        doc TEXT NOT NULL
    ) STRICT;
    CREATE TABLE event (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        kind TEXT NOT NULL,
        session TEXT,
        data TEXT NOT NULL
    ) STRICT;
    CREATE TABLE answer (
        key TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        status INTEGER NOT NULL,
        body TEXT NOT NULL,
        at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE setting (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;",
    // What is asked for by session, and what has become too old, is found without reading all.
    "CREATE INDEX request_by_session ON request (session, id);
    CREATE INDEX request_pending ON request (session, id) WHERE pending = 1;
    CREATE INDEX event_by_session ON event (session, id);
    CREATE INDEX answer_by_age ON answer (at);",
    // Tasks of agents, and what is said in each.
    "CREATE TABLE task (
        session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        doc TEXT NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE message (
        session TEXT NOT NULL,
        task INTEGER NOT NULL,
        number INTEGER NOT NULL,
        doc TEXT NOT NULL,
        PRIMARY KEY (session, task, number),
        FOREIGN KEY (session, task) REFERENCES task (session, number) ON DELETE CASCADE
    ) STRICT, WITHOUT ROWID;",
    // Calls with a key, from before anything is done for them.
    "CREATE TABLE attempt (
        key TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        at TEXT NOT NULL,
        kind TEXT,
        session TEXT REFERENCES session (id) ON DELETE SET NULL,
        number INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX attempt_by_age ON attempt (at);
    CREATE INDEX attempt_by_session ON attempt (session);",
];

/// Says in the file that it is a catalogue: `cwrk`.
const APPLICATION: i64 = 0x6377_726b;

/// The length of a page, of which a file has a whole number.
const PAGE_BYTES: u64 = 4096;

/// How often a lock that somebody has is tried again, and after how long.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// How long somebody else's access is waited for. Nobody has any business in the file.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many pages the write-ahead file has when they are copied back. Whoever writes then waits for
/// the disk, so it is done seldom.
const WAL_PAGES: u64 = 4000;

/// How many statements are kept prepared: all there are.
const STATEMENTS: usize = 64;

/// Opens the catalogue, and the lock that keeps others out.
pub(super) fn open(file: &Path) -> Result<(Connection, File), CatalogueError> {
    let lock = lock(file)?;
    match std::fs::symlink_metadata(file) {
        Ok(found) => measure(file, &found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(file)?,
        Err(error) => return Err(Attempt { attempted: "look at", file }.refused(file, error)),
    }
    let (connection, version) = checked(file)?;
    configure(&connection).map_err(|e| Attempt { attempted: "set options", file }.failed(e))?;
    let connection = if version < latest() {
        keep_copy(&connection, file, version)?;
        migrate(connection, file, version)?
    } else {
        connection
    };
    set_checkpoint_on_close(&connection, file, Close::Checkpoint)?;
    Ok((connection, lock))
}

/// Refuses what cannot be a whole catalogue by its kind and its length. `SQLite` takes an empty
/// file for a new database, and the missing end of the last page for zeros.
fn measure(file: &Path, found: &Metadata) -> Result<(), CatalogueError> {
    let attempt = Attempt { attempted: "look at", file };
    if !found.is_file() {
        return Err(attempt.corrupt("it is not a regular file"));
    }
    // A crash can leave a page half copied, with the whole of it in the file beside.
    let wal = std::fs::symlink_metadata(beside(file, "-wal")).map_or(0, |wal| wal.len());
    if found.len() == 0 || (wal == 0 && !found.len().is_multiple_of(PAGE_BYTES)) {
        return Err(attempt.corrupt("its end is missing"));
    }
    Ok(())
}

/// The version that this program writes.
fn latest() -> i64 {
    i64::try_from(VERSIONS.len()).unwrap_or(i64::MAX)
}

/// A file beside the catalogue.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}

/// Takes the lock of the catalogue, and finds out whether its folder can be written.
fn lock(file: &Path) -> Result<File, CatalogueError> {
    let path = beside(file, ".lock");
    let attempt = Attempt { attempted: "lock", file };
    let opened =
        OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
    let lock = opened.map_err(|error| attempt.refused(&path, error))?;
    let mut tries = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            // A program that is being started has a copy of every lock until it is executed.
            Err(TryLockError::WouldBlock) if tries < TRIES => sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(CatalogueError::Locked { file: file.to_path_buf() });
            }
            Err(TryLockError::Error(error)) => return Err(attempt.refused(&path, error)),
        }
        tries += 1;
    }
    let folder = folder(file);
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let writable = accessat(CWD, folder, access, AtFlags::EACCESS);
    writable.map_err(|errno| attempt.refused(folder, errno.into()))?;
    Ok(lock)
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes an empty catalogue.
fn create(file: &Path) -> Result<(), CatalogueError> {
    let attempt = Attempt { attempted: "make", file };
    for suffix in ["-wal", "-journal"] {
        // SQLite would put what is in there into whatever file has the name before it.
        let leftover = beside(file, suffix);
        if std::fs::symlink_metadata(&leftover).is_ok_and(|found| found.len() > 0) {
            return Err(
                attempt.corrupt(format!("it is gone, but `{}` is there", leftover.display()))
            );
        }
    }
    let new = beside(file, ".new");
    let made = fill(&new, attempt);
    if made.is_err() {
        discard(&new);
    }
    made?;
    settle(&new, file, attempt)
}

/// Makes an empty catalogue under another name than that of the attempt.
fn fill(new: &Path, attempt: Attempt<'_>) -> Result<(), CatalogueError> {
    discard(new);
    empty(new).map_err(|error| attempt.refused(new, error))?;
    let connection = connect(new)?;
    let failed = |error| attempt.failed(error);
    // What a crash leaves under this name is discarded by the next attempt.
    connection.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    connection.pragma_update(None, "page_size", signed(PAGE_BYTES)).map_err(failed)?;
    connection.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
    let connection = migrate(connection, attempt.file, 0)?;
    connection.close().map_err(|(_, error)| attempt.failed(error))
}

/// Makes an empty file that only its owner can read. What `SQLite` makes beside it is like it.
fn empty(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes a file under construction, and what `SQLite` may have left beside it.
fn discard(new: &Path) {
    for path in [new.to_path_buf(), beside(new, "-journal"), beside(new, "-wal")] {
        // What is not there needs not be removed; what cannot be is met again by who makes it.
        cowork_sys::ignore(std::fs::remove_file(path));
    }
}

/// Gives a finished file its name, so that it has it even after a loss of power.
fn settle(new: &Path, name: &Path, attempt: Attempt<'_>) -> Result<(), CatalogueError> {
    let synced = File::open(new).and_then(|file| file.sync_all());
    synced.map_err(|error| attempt.refused(new, error))?;
    std::fs::rename(new, name).map_err(|error| attempt.refused(name, error))?;
    let synced = File::open(folder(name)).and_then(|folder| folder.sync_all());
    synced.map_err(|error| attempt.refused(folder(name), error))
}

fn connect(file: &Path) -> Result<Connection, CatalogueError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let attempt = Attempt { attempted: "open the file", file };
    let connection = Connection::open_with_flags(file, flags).map_err(|e| attempt.failed(e))?;
    // A file that cannot be written is opened for reading without a word.
    if connection.is_readonly("main").map_err(|error| attempt.failed(error))? {
        return Err(CatalogueError::ReadOnly { file: file.to_path_buf() });
    }
    connection.busy_timeout(PATIENCE).map_err(|e| attempt.failed(e))?;
    set_checkpoint_on_close(&connection, file, Close::AsItIs)?;
    // The lock of a whole life, and no memory shared with others.
    let exclusive = connection.pragma_update(None, "locking_mode", "EXCLUSIVE");
    exclusive.map_err(|error| attempt.failed(error))?;
    Ok(connection)
}

/// Opens a catalogue to look at it, if there is one, without a lock and without leaving a trace:
/// whoever wrote it is gone.
pub(super) fn look(file: &Path) -> Result<Option<Connection>, CatalogueError> {
    let attempt = Attempt { attempted: "open the file", file };
    match std::fs::symlink_metadata(file) {
        Ok(found) => measure(file, &found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(attempt.refused(file, error)),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let failed = |error| attempt.failed(error);
    let beside = std::fs::symlink_metadata(beside(file, "-wal")).map_or(0, |wal| wal.len());
    if beside == 0 {
        // `SQLite` would make a file beside it in order to look for what is not there.
        let mut name = String::from("file:");
        for byte in file.as_os_str().as_bytes() {
            let digits = [byte >> 4, byte & 15];
            let digits = digits.iter().filter_map(|digit| char::from_digit((*digit).into(), 16));
            name.push('%');
            name.extend(digits);
        }
        name.push_str("?immutable=1");
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        return Connection::open_with_flags(name, flags).map(Some).map_err(failed);
    }
    // Its locks do nothing; what is in the file beside stays there.
    let connection =
        Connection::open_with_flags_and_vfs(file, flags, c"unix-none").map_err(failed)?;
    set_checkpoint_on_close(&connection, file, Close::AsItIs)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
    Ok(Some(connection))
}

/// What happens to the write-ahead file when the connection is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Close {
    /// It stays: the catalogue may not be what it seems.
    AsItIs,
    /// What is in it comes into the catalogue.
    Checkpoint,
}

fn set_checkpoint_on_close(
    connection: &Connection,
    file: &Path,
    close: Close,
) -> Result<(), CatalogueError> {
    let option = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    let set = connection.set_db_config(option, close == Close::AsItIs);
    set.map_err(|error| Attempt { attempted: "set options", file }.failed(error))?;
    Ok(())
}

/// Connects to a file that is a whole catalogue of a version that is known, and says which.
fn checked(file: &Path) -> Result<(Connection, i64), CatalogueError> {
    let connection = connect(file)?;
    let error = match check(&connection, file) {
        Ok(version) => return Ok((connection, version)),
        Err(error) => error,
    };
    drop(connection);
    let wal = beside(file, "-wal");
    if std::fs::symlink_metadata(&wal).is_ok_and(|found| found.len() == 0) {
        // `SQLite` made it in order to look into it. If it stays, it is still harmless.
        cowork_sys::ignore(std::fs::remove_file(wal));
    }
    Err(error)
}

/// Checks that the file is a whole catalogue of a version that is known, and says which.
fn check(connection: &Connection, file: &Path) -> Result<i64, CatalogueError> {
    let attempt = Attempt { attempted: "read the version", file };
    let number = |pragma| {
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(|e| attempt.failed(e))
    };
    let (application, found): (i64, i64) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION || found < 1 {
        return Err(attempt.corrupt("it is the database of another program"));
    }
    if found > latest() {
        return Err(CatalogueError::Newer { file: file.to_path_buf(), found, known: latest() });
    }
    let attempt = Attempt { attempted: "check everything", file };
    let finding: String = connection
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(|error| attempt.failed(error))?;
    if finding != "ok" {
        return Err(attempt.corrupt(finding.lines().next().unwrap_or_default()));
    }
    Ok(found)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // The write-ahead file is synced before it is copied back, and not for every write.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", signed(WAL_PAGES))?;
    connection.pragma_update(None, "journal_size_limit", signed(WAL_PAGES * PAGE_BYTES))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Keeps a copy of the catalogue as it was before a change of its schema.
fn keep_copy(connection: &Connection, file: &Path, version: i64) -> Result<(), CatalogueError> {
    let attempt = Attempt { attempted: "keep a copy", file };
    let name = beside(file, &format!(".v{version}.bak"));
    let new = beside(&name, ".new");
    discard(&new);
    empty(&new).map_err(|error| attempt.refused(&new, error))?;
    let target = new.to_str().ok_or_else(|| {
        attempt.refused(&new, io::Error::new(io::ErrorKind::InvalidFilename, "it is not text"))
    })?;
    let copied = connection.execute("VACUUM INTO ?1", [target]);
    if copied.is_err() {
        discard(&new);
    }
    copied.map_err(|error| attempt.failed(error))?;
    settle(&new, &name, attempt)
}

/// Brings the schema up to date, version by version.
fn migrate(
    mut connection: Connection,
    file: &Path,
    version: i64,
) -> Result<Connection, CatalogueError> {
    let attempt = Attempt { attempted: "change the schema", file };
    let known = usize::try_from(version).unwrap_or(VERSIONS.len());
    for (change, number) in VERSIONS.iter().zip(1..=latest()).skip(known) {
        let mut step = || -> rusqlite::Result<()> {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(change)?;
            transaction.pragma_update(None, "user_version", number)?;
            transaction.commit()
        };
        step().map_err(|error| attempt.failed(error))?;
    }
    Ok(connection)
}

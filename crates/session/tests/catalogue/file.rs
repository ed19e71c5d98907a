//! The file of a catalogue: made, brought up to date, kept from others, and refused untouched if
//! it is not what it should be.

use crate::support::{END, Place, again, fill, inner, must_succeed};
use cowork_session::catalogue::{Catalogue, CatalogueError, EventFilter, Requests};
use cowork_testbed::Person;
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

/// How many moments of a migration it is killed at.
const MOMENTS: u32 = 40;

/// The first version, as it was released.
const VERSION_1: &str = "
    PRAGMA application_id = 0x6377726b;
    CREATE TABLE session (
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
    ) STRICT, WITHOUT ROWID;
    PRAGMA user_version = 1;
    PRAGMA journal_mode = WAL;
    INSERT INTO session (id, doc) VALUES ('zeal', 'one'), ('apple', 'two'), ('gone', 'three');
    DELETE FROM session WHERE id = 'gone';
    INSERT INTO command VALUES ('zeal', 1, 'make');
    INSERT INTO request (session, pending, doc) VALUES ('zeal', 1, 'may I?'), ('apple', 0, 'no');
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        INSERT INTO event (time, kind, session, data)
        SELECT 'time ' || i, 'kind', 'zeal', 'data' FROM n;
    DELETE FROM event WHERE id <= 1000;
    INSERT INTO answer VALUES ('key', 'print', 200, 'body', 'at');
    INSERT INTO setting VALUES ('head', '42');
";

fn version(file: &Path) -> (i64, i64) {
    let connection = Connection::open(file).unwrap();
    let get = |name| connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
    (get("application_id"), get("user_version"))
}

/// What the hand-made catalogue has in it, whatever its version.
#[track_caller]
fn has_everything(catalogue: &Catalogue) {
    let sessions = catalogue.sessions().unwrap();
    assert_eq!(sessions, [("zeal".into(), "one".into()), ("apple".into(), "two".into())]);
    assert_eq!(catalogue.command("zeal", 1).unwrap().as_deref(), Some("make"));
    let pending = catalogue.requests(Requests::Pending, Some("zeal"), 0, 9).unwrap();
    assert_eq!(pending, [(1, "may I?".into())]);
    assert_eq!(catalogue.event_range().unwrap(), (1001, 3000));
    let about = EventFilter { session: Some("zeal".into()), kind: None };
    assert_eq!(catalogue.events(0, &about, 9999).unwrap().len(), 2000);
    assert_eq!(catalogue.recall("key").unwrap().unwrap().status, 200);
    assert_eq!(catalogue.get("head").unwrap().as_deref(), Some("42"));
}

fn names(place: &Place) -> Vec<String> {
    place.files().into_keys().collect()
}

#[test]
fn a_new_catalogue_is_empty_and_private() {
    let place = Place::new();
    let catalogue = place.open();
    assert_eq!(catalogue.sessions().unwrap(), []);
    catalogue.put_session("a", "").unwrap();
    let entries = std::fs::read_dir(place.folder.path()).unwrap();
    let modes: Vec<(String, u32)> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    assert_eq!(modes.len(), 3, "{modes:?}");
    assert!(modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
    drop(catalogue);
    assert_eq!(names(&place), ["state.db"], "a closed catalogue is one file");
    assert_eq!(version(&place.file()), (0x6377_726b, 4));
}

#[test]
fn an_older_catalogue_is_brought_up_to_date_after_a_copy_was_made() {
    let place = Place::new();
    Connection::open(place.file()).unwrap().execute_batch(VERSION_1).unwrap();
    has_everything(&place.open());
    assert_eq!(version(&place.file()).1, 4);
    assert_eq!(names(&place), ["state.db", "state.db.v1.bak"]);
    let copy = place.folder.path().join("state.db.v1.bak");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(version(&copy).1, 1);

    let count = |file: &Path, kind: &str| -> i64 {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL";
        Connection::open(file).unwrap().query_row(sql, [kind], |row| row.get(0)).unwrap()
    };
    let fresh = Place::new();
    drop(fresh.open());
    for file in [place.file(), fresh.file()] {
        assert_eq!(count(&file, "index"), 6, "old and new have the same schema");
        assert_eq!(count(&file, "table"), 10, "old and new have the same schema");
    }

    has_everything(&place.open());
    std::fs::rename(&copy, place.file()).unwrap();
    has_everything(&place.open());
    assert_eq!(names(&place), ["state.db", "state.db.v1.bak"], "the copy is a catalogue itself");
}

/// The program that wrote it was killed: its last writes are beside the file.
#[test]
fn an_older_catalogue_is_brought_up_to_date_with_what_is_beside_it() {
    let test = "file::an_older_catalogue_is_brought_up_to_date_with_what_is_beside_it";
    if let Some(folder) = inner() {
        let connection = Connection::open(folder.join("state.db")).unwrap();
        connection.execute_batch(VERSION_1).unwrap();
        println!("{END}");
        std::process::abort();
    }
    let place = Place::new();
    let output = again(test, Person::Root, place.folder.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(END));
    assert!(place.files()["state.db-wal"].len() > 100_000);
    has_everything(&place.open());
    std::fs::rename(place.folder.path().join("state.db.v1.bak"), place.file()).unwrap();
    has_everything(&place.open());
}

#[test]
fn a_migration_that_is_killed_is_done_by_the_next_one() {
    if let Some(folder) = inner() {
        println!("opening");
        drop(Catalogue::open(&folder.join("state.db")).unwrap());
        return;
    }
    let test = "file::a_migration_that_is_killed_is_done_by_the_next_one";
    let old = Place::new();
    Connection::open(old.file()).unwrap().execute_batch(VERSION_1).unwrap();
    let old = old.files().remove("state.db").unwrap();
    let timed = Place::new();
    timed.folder.write("state.db", &old);
    let start = Instant::now();
    drop(timed.open());
    let takes = start.elapsed();
    let (mut copied, mut migrated) = (0, 0);
    for moment in 0..MOMENTS {
        let place = Place::new();
        place.folder.write("state.db", &old);
        let mut command = again(test, Person::Root, place.folder.path());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(said.map(Result::unwrap).any(|line| line.ends_with("opening")));
        std::thread::sleep(takes * 3 / 2 * moment / MOMENTS);
        process.kill().unwrap();
        process.wait().unwrap();
        copied += u32::from(place.files().contains_key("state.db.v1.bak"));
        migrated += u32::from(place.files()["state.db"] != old);
        has_everything(&place.open());
        assert!(!names(&place).iter().any(|name| name.ends_with("-wal")));
    }
    println!("of {MOMENTS}, {copied} were killed after the copy, {migrated} after the change");
    assert!(copied > 0 && copied < MOMENTS, "{copied}");
}

/// Opens a catalogue that must be refused, and not be touched.
#[track_caller]
fn refused(place: &Place) -> CatalogueError {
    let before = place.files();
    let error = Catalogue::open(&place.file()).unwrap_err();
    assert!(before == place.files(), "nothing was touched: {error}");
    error
}

#[track_caller]
fn corrupt(place: &Place) -> String {
    let error = refused(place);
    assert!(matches!(error, CatalogueError::Corrupt { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_catalogue_of_a_later_version_is_refused() {
    let place = Place::new();
    fill(&place.open());
    Connection::open(place.file()).unwrap().pragma_update(None, "user_version", 5).unwrap();
    let error = refused(&place);
    assert!(matches!(error, CatalogueError::Newer { found: 5, known: 4, .. }), "{error:?}");
    assert!(error.to_string().ends_with("it was written by a later one"), "{error}");
}

#[test]
fn what_is_no_catalogue_is_refused() {
    let place = Place::new();
    for text in [&b"this is not a database"[..], &[0; 4096], &vec![0xff; 100_000], b"x"] {
        place.folder.write("state.db", text);
        let sentence = corrupt(&place);
        assert!(sentence.contains("nothing was changed. Move it"), "{sentence}");
        assert!(sentence.contains("the audit record are not affected"), "{sentence}");
    }
    let other = Place::new();
    Connection::open(other.file()).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(corrupt(&other).contains("the database of another program"));

    let link = Place::new();
    symlink(other.file(), link.file()).unwrap();
    assert!(corrupt(&link).contains("not a regular file"));
    assert!(Command::new("rm").arg(link.file()).status().unwrap().success());
    assert!(Command::new("mkfifo").arg(link.file()).status().unwrap().success());
    let error = Catalogue::open(&link.file()).unwrap_err();
    assert!(matches!(error, CatalogueError::Corrupt { .. }), "{error:?}");
}

#[test]
fn a_truncated_catalogue_is_refused() {
    let place = Place::new();
    fill(&place.open());
    let whole = place.files().remove("state.db").unwrap();
    assert!(whole.len() > 10 * 4096);
    for length in (0..whole.len()).step_by(2048).chain([1, 15, 16, 99, 100, whole.len() - 1]) {
        place.folder.write("state.db", &whole[..length]);
        corrupt(&place);
    }
    place.folder.write("state.db", &whole);
    assert_eq!(place.open().sessions().unwrap().len(), 3);
}

#[test]
fn a_catalogue_with_a_page_of_something_else_is_refused() {
    let place = Place::new();
    fill(&place.open());
    let whole = place.files().remove("state.db").unwrap();
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for page in 0..whole.len() / 4096 {
        for garbage in [&[0; 4096][..], &[0xff; 4096], &noise] {
            let mut damaged = whole.clone();
            damaged[page * 4096..][..4096].copy_from_slice(garbage);
            place.folder.write("state.db", damaged);
            corrupt(&place);
        }
    }
}

#[test]
fn a_damaged_header_is_refused() {
    let place = Place::new();
    fill(&place.open());
    let whole = place.files().remove("state.db").unwrap();
    // The magic words, the page size, what is reserved in pages, and the version of the schema.
    for at in (0..18).chain([20, 21, 22, 23, 47]) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        place.folder.write("state.db", damaged);
        refused(&place);
    }
}

/// A catalogue whose program was killed, so that its last writes are beside it.
fn killed(test: &str) -> Place {
    if let Some(folder) = inner() {
        fill(&Catalogue::open(&folder.join("state.db")).unwrap());
        let catalogue = Catalogue::open(&folder.join("state.db")).unwrap();
        catalogue.set("written", "last").unwrap();
        println!("{END}");
        std::process::abort();
    }
    let place = Place::new();
    let output = again(test, Person::Root, place.folder.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(END));
    assert!(!place.files()["state.db-wal"].is_empty());
    place
}

#[test]
fn what_is_beside_a_damaged_catalogue_stays_there() {
    let place = killed("file::what_is_beside_a_damaged_catalogue_stays_there");
    let before = place.files();
    let mut damaged = before["state.db"].clone();
    // The middle: what was written last is in no page of it.
    let middle = damaged.len() / 4096 / 2 * 4096;
    damaged[middle..][..4096].fill(0xff);
    place.folder.write("state.db", &damaged);
    corrupt(&place);
    place.folder.write("state.db", &before["state.db"]);
    let catalogue = place.open();
    assert_eq!(catalogue.get("written").unwrap().as_deref(), Some("last"));
}

#[test]
fn what_was_beside_a_catalogue_does_not_get_into_another() {
    let place = killed("file::what_was_beside_a_catalogue_does_not_get_into_another");
    std::fs::remove_file(place.file()).unwrap();
    assert!(corrupt(&place).contains("it is gone, but"));
    std::fs::remove_file(place.folder.path().join("state.db-wal")).unwrap();
    assert_eq!(place.open().sessions().unwrap(), []);
}

#[test]
fn a_catalogue_has_one_user() {
    let test = "file::a_catalogue_has_one_user";
    if let Some(folder) = inner() {
        let error = Catalogue::open(&folder.join("state.db")).unwrap_err();
        assert!(matches!(error, CatalogueError::Locked { .. }), "{error:?}");
        assert!(error.to_string().ends_with("is in use by another process"), "{error}");
        println!("{END}");
        return;
    }
    let place = Place::new();
    let catalogue = place.open();
    catalogue.put_session("a", "").unwrap();
    must_succeed(again(test, Person::Root, place.folder.path()));
    let error = Catalogue::open(&place.file()).unwrap_err();
    assert!(matches!(error, CatalogueError::Locked { .. }), "{error:?}");
    catalogue.put_session("b", "").unwrap();
    drop(catalogue);
    assert_eq!(place.open().sessions().unwrap().len(), 2);
}

#[test]
fn many_who_make_a_catalogue_at_once_make_one() {
    for _ in 0..20 {
        let place = Place::new();
        let start = Barrier::new(8);
        let open = || {
            start.wait();
            Catalogue::open(&place.file())
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (one, others): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        assert_eq!(one.len(), 1);
        let locked = |other: &Result<_, _>| matches!(other, Err(CatalogueError::Locked { .. }));
        assert!(others.iter().all(locked), "{others:?}");
    }
}

/// Somebody looks into the file with a program that knows nothing of our lock.
#[test]
fn a_catalogue_that_another_program_writes_is_not_opened() {
    let place = Place::new();
    fill(&place.open());
    let mut other = Connection::open(place.file()).unwrap();
    let transaction = other.transaction().unwrap();
    transaction.execute("INSERT INTO setting VALUES ('foreign', '1')", []).unwrap();
    let error = Catalogue::open(&place.file()).unwrap_err();
    assert!(matches!(error, CatalogueError::Locked { .. }), "{error:?}");
    transaction.commit().unwrap();
    drop(other);
    let catalogue = place.open();
    assert_eq!(catalogue.get("foreign").unwrap().as_deref(), Some("1"));
    let other = Connection::open(place.file()).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(other.execute("DELETE FROM setting", []).is_err(), "and keeps others out");
    assert_eq!(catalogue.get("foreign").unwrap().as_deref(), Some("1"));
}

#[test]
fn a_catalogue_that_is_damaged_while_it_is_open_says_so() {
    let place = Place::new();
    let catalogue = place.open();
    fill(&catalogue);
    let large = "x".repeat(20_000_000);
    catalogue.set("large", &large).unwrap();
    drop(catalogue);
    let catalogue = place.open();
    let length = std::fs::metadata(place.file()).unwrap().len();
    let mut file = std::fs::OpenOptions::new().write(true).open(place.file()).unwrap();
    // Behind the pages that the check at the start may have kept in memory.
    file.write_all(&vec![0xff; usize::try_from(length).unwrap()]).unwrap();
    let error = catalogue.get("large").unwrap_err();
    assert!(matches!(error, CatalogueError::Corrupt { .. }), "{error:?}");
}

#[test]
fn a_value_is_looked_at_without_a_trace() {
    let place = Place::new();
    assert_eq!(Catalogue::peek(&place.file(), "name").unwrap(), None);
    let look = |name, expected: Option<&str>| {
        let before = place.files();
        let found = Catalogue::peek(&place.file(), name).unwrap();
        assert_eq!(found.as_deref(), expected);
        assert_eq!(place.files(), before);
    };
    let catalogue = place.open();
    catalogue.set("name", "first").unwrap();
    drop(catalogue);
    look("name", Some("first"));
    look("other", None);
    // Whoever is killed leaves a file beside it, with what was written last.
    let catalogue = place.open();
    catalogue.set("name", "last").unwrap();
    assert!(place.files().contains_key("state.db-wal"));
    look("name", Some("last"));
    drop(catalogue);
    look("name", Some("last"));
}

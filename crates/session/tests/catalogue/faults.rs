//! Death of the writer at any moment, a full disk, a folder that cannot be written.

use crate::support::{END, Place, again, again_on_tmpfs, files, fill, inner, must_succeed};
use cowork_session::catalogue::{Catalogue, CatalogueError, EventFilter};
use cowork_testbed::{Folder, Person};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often a writer is killed.
const DEATHS: u64 = 60;

/// Writes events, alone and together with a command and a session, and says each once it is done.
fn write_until_killed(file: &Path) {
    let catalogue = Catalogue::open(file).unwrap();
    let padding = "x".repeat(3000);
    loop {
        let id = catalogue.add_event("time", "alone", None, &padding).unwrap();
        println!("written {id}");
        let id = catalogue
            .together(|all| {
                let id = all.add_event("time", "together", None, &padding)?;
                all.put_session(&format!("session {}", id % 50), &padding)?;
                all.put_command(&format!("session {}", id % 50), u32::try_from(id).unwrap(), "")?;
                all.set("last", &id.to_string())?;
                Ok(id)
            })
            .unwrap();
        println!("written {id}");
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_said_was_written() {
    let test = "faults::a_killed_writer_loses_nothing_that_it_said_was_written";
    if let Some(folder) = inner() {
        return write_until_killed(&folder.join("state.db"));
    }
    let place = Place::new();
    let mut before = 0;
    for death in 0..DEATHS {
        let mut command = again(test, Person::Root, place.folder.path());
        let mut writer = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said = said.filter_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok());
        let wanted = usize::try_from(death * 13 % 200).unwrap();
        let mut last = if death % 5 == 0 { before } else { said.nth(wanted).unwrap() };
        std::thread::sleep(Duration::from_micros(death * 197 % 5000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        if let Some(later) = said.last() {
            last = later;
        }
        let catalogue = place.open();
        let (_, found) = catalogue.event_range().unwrap();
        assert!((last..=last + 1).contains(&found), "said {last}, found {found}");
        let events = catalogue.events(before, &EventFilter::default(), u32::MAX).unwrap();
        assert!(events.iter().map(|row| row.id).eq(before + 1..=found));
        let together = events.iter().rev().find(|row| row.kind == "together");
        if let Some(row) = together {
            assert_eq!(catalogue.get("last").unwrap(), Some(row.id.to_string()));
            let session = format!("session {}", row.id % 50);
            assert_eq!(u64::from(catalogue.last_command(&session).unwrap()), row.id);
        }
        before = found;
    }
    assert!(before > 1000, "{before}");
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_is_there() {
    let test = "faults::a_full_disk_refuses_writes_and_keeps_what_is_there";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=16m"));
    };
    let (file, ballast) = (disk.join("state.db"), disk.join("ballast"));
    std::fs::write(&ballast, vec![0; 1024 * 1024]).unwrap();
    let catalogue = Catalogue::open(&file).unwrap();
    fill(&catalogue);
    let padding = "x".repeat(10_000);
    let mut last = catalogue.event_range().unwrap().1;
    let error = loop {
        match catalogue.add_event("", "", None, &padding) {
            Ok(id) => last = id,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CatalogueError::Full { .. }), "{error:?}");
    assert!(error.to_string().starts_with("there is no space left"), "{error}");

    let mut tried = Vec::new();
    let undone = catalogue.together(|all| {
        tried.push(all.put_session("new", "").is_ok());
        let full = all.put_session("large", &"x".repeat(20_000_000));
        assert!(matches!(full, Err(CatalogueError::Full { .. })), "{full:?}");
        let after = all.put_session("after", "");
        tried.push(after.is_ok());
        Ok(())
    });
    assert_eq!(tried, [true, false], "nothing is written behind a failure");
    assert!(matches!(undone, Err(CatalogueError::Undone { .. })), "{undone:?}");
    assert_eq!(catalogue.session("new").unwrap(), None);

    assert_eq!(catalogue.event_range().unwrap().1, last, "everything is still there");
    assert_eq!(catalogue.sessions().unwrap().len(), 3);
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(catalogue.add_event("", "", None, &padding).unwrap(), last + 1);
    drop(catalogue);
    let catalogue = Catalogue::open(&file).unwrap();
    assert_eq!(catalogue.event_range().unwrap(), (1, last + 1));
    println!("{END}");
}

#[test]
fn a_full_disk_gets_no_catalogue_and_no_piece_of_one() {
    let test = "faults::a_full_disk_gets_no_catalogue_and_no_piece_of_one";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=8m"));
    };
    let (file, ballast) = (disk.join("state.db"), disk.join("ballast"));
    let mut refused = 0;
    for free in (0..256).step_by(4) {
        std::fs::write(&ballast, vec![0; (8192 - free) * 1024]).unwrap();
        let opened = Catalogue::open(&file);
        let left = || files(&disk).into_keys().collect::<Vec<_>>();
        match opened {
            // The catalogue is whole, and there was no room to open it.
            Err(CatalogueError::Full { .. }) if left().contains(&"state.db".to_owned()) => {}
            Err(CatalogueError::Full { .. }) => assert_eq!(left(), ["ballast"], "{free} KiB"),
            Err(error) => panic!("{free} KiB: {error:?}"),
            Ok(_) => break,
        }
        refused += 1;
        std::fs::remove_file(&ballast).unwrap();
    }
    assert!((5..60).contains(&refused), "{refused}");
    std::fs::remove_file(&ballast).unwrap();
    fill(&Catalogue::open(&file).unwrap());
    println!("{END}");
}

#[test]
fn a_read_only_file_system_is_said_to_be_one() {
    let test = "faults::a_read_only_file_system_is_said_to_be_one";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=4m"));
    };
    let file = disk.join("state.db");
    fill(&Catalogue::open(&file).unwrap());
    let remount = |options: &str| {
        let status = Command::new("mount").args(["-o", options]).arg(&disk).status().unwrap();
        assert!(status.success());
    };
    remount("remount,ro");
    for file in [&file, &disk.join("new.db")] {
        let error = Catalogue::open(file).unwrap_err();
        assert!(matches!(error, CatalogueError::ReadOnly { .. }), "{error:?}");
    }
    remount("remount,rw");
    assert_eq!(Catalogue::open(&file).unwrap().sessions().unwrap().len(), 3);
    println!("{END}");
}

#[test]
fn a_catalogue_of_somebody_else_cannot_be_written() {
    let test = "faults::a_catalogue_of_somebody_else_cannot_be_written";
    let Some(folder) = inner() else {
        let place = Place::new();
        fill(&place.open());
        let set = |name: &str, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place.folder.path().join(name), mode).unwrap();
        };
        set(".", 0o755);
        set("state.db", 0o644);
        must_succeed(again(test, Person::User, place.folder.path()));
        // The lock can be taken, but the file cannot be written.
        set(".", 0o777);
        set("state.db.lock", 0o666);
        return must_succeed(again(test, Person::User, place.folder.path()));
    };
    let error = Catalogue::open(&folder.join("state.db")).unwrap_err();
    assert!(matches!(error, CatalogueError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().ends_with("cannot be written: it is read-only"), "{error}");
    println!("{END}");
}

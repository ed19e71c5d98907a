//! Death of the writer at any moment, a full disk, a folder that cannot be written, and readers
//! beside a writer.

use crate::bench::{END, again, again_on_tmpfs, files, fill, inner, must_succeed, time, whole};
use cowork_audit::{Filter, Head, Ledger, LedgerError, read};
use cowork_testbed::{Folder, Person};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a writer is killed.
const DEATHS: u64 = 100;

/// How large the files are that a writer is killed over.
const FILE_BYTES: u64 = 256 * 1024;

/// Writes records of all sizes and says each head once it has it.
fn write_until_killed(folder: &Path) {
    let mut ledger = Ledger::open_with(folder, None, FILE_BYTES).unwrap().ledger;
    loop {
        let number = ledger.head().seq;
        // Large records are torn more often.
        let size = if number.is_multiple_of(4) { 100_000 } else { 200 };
        let head = ledger.append(&time(number), "test", None, &json!("x".repeat(size))).unwrap();
        println!("written {} {}", head.seq, head.hash);
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_said_was_written() {
    if let Some(folder) = inner() {
        return write_until_killed(&folder);
    }
    let test = "faults::a_killed_writer_loses_nothing_that_it_said_was_written";
    let mut torn = 0;
    for death in 0..DEATHS {
        let folder = Folder::new(Person::Root, "audit");
        let mut command = again(test, Person::Root, folder.path());
        let mut writer = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let heads = |line: String| {
            let (seq, hash) = line.strip_prefix("written ")?.split_once(' ')?;
            Some(Head { seq: seq.parse().ok()?, hash: hash.to_owned() })
        };
        let wanted = usize::try_from(death % 7).unwrap();
        let mut last = said.by_ref().filter_map(heads).nth(wanted).unwrap();
        std::thread::sleep(Duration::from_micros(death * 97 % 3000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        if let Some(later) = said.filter_map(heads).last() {
            last = later;
        }
        let opened = Ledger::open_with(folder.path(), Some(&last), FILE_BYTES).unwrap();
        torn += u64::from(opened.cut.is_some());
        let mut ledger = opened.ledger;
        let found = ledger.head().seq - last.seq;
        assert!(found <= 1, "{found} records nobody was told of");
        whole(folder.path(), Some(&last));
        let head = fill(&mut ledger, 2);
        assert_eq!(whole(folder.path(), Some(&head)).records, last.seq + found + 2);
    }
    println!("{torn} of {DEATHS} deaths tore a line");
}

#[test]
fn a_full_disk_refuses_records_and_keeps_those_that_are_there() {
    let test = "faults::a_full_disk_refuses_records_and_keeps_those_that_are_there";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=600k"));
    };
    let (folder, ballast) = (disk.join("audit"), disk.join("ballast"));
    let mut ledger = Ledger::open_with(&folder, None, 100_000).unwrap().ledger;
    for size in [1000, 10, 30_000, 100] {
        std::fs::write(&ballast, vec![0; 200 * 1024]).unwrap();
        let data = json!("x".repeat(size));
        let error = loop {
            match ledger.append(&time(1), "test", None, &data) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LedgerError::NoSpace { .. }), "{error:?}");
        let head = ledger.head().clone();
        assert_eq!(whole(&folder, Some(&head)).head, head);
        assert!(ledger.append(&time(1), "test", None, &json!("x".repeat(30_000))).is_err());
        assert_eq!(*ledger.head(), head);
        std::fs::remove_file(&ballast).unwrap();
        fill(&mut ledger, 20);
        assert_eq!(whole(&folder, Some(&head)).records, head.seq + 20);
        // Room for the next round: the record is made anew, as its end is what matters.
        drop(ledger);
        std::fs::remove_dir_all(&folder).unwrap();
        ledger = Ledger::open_with(&folder, None, 100_000).unwrap().ledger;
    }
    println!("{END}");
}

#[test]
fn a_disk_without_room_for_another_file_refuses_records() {
    let test = "faults::a_disk_without_room_for_another_file_refuses_records";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=1m,nr_inodes=5"));
    };
    let (folder, ballast) = (disk.join("audit"), disk.join("ballast"));
    std::fs::write(&ballast, "").unwrap();
    let mut ledger = Ledger::open_with(&folder, None, 2000).unwrap().ledger;
    let error = loop {
        match ledger.append(&time(1), "test", None, &json!("x".repeat(500))) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::NoSpace { .. }), "{error:?}");
    let head = ledger.head().clone();
    whole(&folder, Some(&head));
    std::fs::remove_file(&ballast).unwrap();
    fill(&mut ledger, 2);
    assert_eq!(whole(&folder, Some(&head)).records, head.seq + 2);
    println!("{END}");
}

#[test]
fn a_read_only_file_system_is_said_to_be_one() {
    let test = "faults::a_read_only_file_system_is_said_to_be_one";
    let Some(disk) = inner() else {
        let folder = Folder::new(Person::Root, "disk");
        return must_succeed(again_on_tmpfs(test, folder.path(), "size=1m"));
    };
    let folder = disk.join("audit");
    let head = fill(&mut Ledger::open(&folder, None).unwrap().ledger, 3);
    let mut remount = Command::new("mount");
    assert!(remount.args(["-o", "remount,ro"]).arg(&disk).status().unwrap().success());
    for path in [&folder, &disk.join("new")] {
        let error = Ledger::open(path, None).unwrap_err();
        assert!(matches!(error, LedgerError::ReadOnly { .. }), "{error:?}");
    }
    assert_eq!(whole(&folder, Some(&head)).records, 3);
    assert_eq!(read(&folder, &Filter::default()).unwrap().len(), 3);
    println!("{END}");
}

#[test]
fn a_folder_of_somebody_else_cannot_be_written() {
    let test = "faults::a_folder_of_somebody_else_cannot_be_written";
    let Some(folder) = inner() else {
        let folder = Folder::new(Person::Root, "audit");
        fill(&mut Ledger::open(folder.path(), None).unwrap().ledger, 3);
        for entry in ["00000001.jsonl", "."] {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(folder.path().join(entry), mode).unwrap();
        }
        return must_succeed(again(test, Person::User, folder.path()));
    };
    let error = Ledger::open(&folder, None).unwrap_err();
    assert!(matches!(&error, LedgerError::ReadOnly { path } if *path == folder), "{error:?}");
    assert!(error.to_string().ends_with("cannot be written: it is read-only"));
    assert_eq!(whole(&folder, None).records, 3);
    println!("{END}");
}

/// Lines get no longer than the process may make its files, and what was written of one cannot be
/// cut off as long as the file may only grow.
#[test]
fn a_piece_of_a_line_that_cannot_be_cut_off_is_cut_off_by_the_next_record() {
    let test = "faults::a_piece_of_a_line_that_cannot_be_cut_off_is_cut_off_by_the_next_record";
    let Some(folder) = inner() else {
        let folder = Folder::new(Person::Root, "audit");
        return must_succeed(again(test, Person::Root, folder.path()));
    };
    let file = folder.join("00000001.jsonl");
    let attribute = |change: &str| {
        assert!(Command::new("chattr").arg(change).arg(&file).status().unwrap().success());
    };
    let mut ledger = Ledger::open(&folder, None).unwrap().ledger;
    let head = fill(&mut ledger, 2);
    let length = std::fs::metadata(&file).unwrap().len();
    let limits = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(length + 100), ..limits }).unwrap();
    attribute("+a");
    let error = ledger.append(&time(3), "test", None, &json!("x".repeat(1000))).unwrap_err();
    attribute("-a");
    assert!(matches!(error, LedgerError::NoSpace { .. }), "{error:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), length + 100, "a piece is there");
    setrlimit(Resource::Fsize, limits).unwrap();
    assert_eq!(*ledger.head(), head);
    fill(&mut ledger, 2);
    assert_eq!(whole(&folder, Some(&head)).records, 4);
    println!("{END}");
}

#[test]
fn a_line_that_is_finished_in_time_is_no_problem() {
    let folder = Folder::new(Person::Root, "audit");
    let head = fill(&mut Ledger::open(folder.path(), None).unwrap().ledger, 3);
    let mut bytes = files(folder.path()).remove("00000001.jsonl").unwrap();
    let rest = bytes.split_off(bytes.len() - 100);
    let path = folder.write("00000001.jsonl", bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&rest).unwrap();
        });
        assert_eq!(whole(folder.path(), Some(&head)).records, 3);
    });
}

#[test]
fn a_record_can_be_read_and_proved_while_it_is_written() {
    let folder = Folder::new(Person::Root, "audit");
    let mut ledger = Ledger::open_with(folder.path(), None, 50_000).unwrap().ledger;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..400 {
                let size = if number % 3 == 0 { 30_000 } else { 100 };
                let data = json!("x".repeat(size));
                ledger.append(&time(number), "test", None, &data).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut known = Head::default();
        while !done.load(Ordering::Relaxed) {
            known = whole(folder.path(), Some(&known)).head;
            let records = read(folder.path(), &Filter::default()).unwrap();
            assert!(records.iter().map(|record| record.seq).eq(1..=records.len() as u64));
        }
    });
    assert!(files(folder.path()).len() > 5);
    assert_eq!(whole(folder.path(), None).records, 400);
}

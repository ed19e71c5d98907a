//! Writing: the chain goes on over files and over processes, and is what the format says.

use crate::bench::{files, fill, open, time, whole};
use cowork_audit::{
    Filter, GENESIS, Head, Ledger, LedgerError, MAX_RECORD, export_jsonl, read, verify,
};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn folder() -> Folder {
    Folder::new(Person::Root, "audit")
}

#[test]
fn a_new_record_starts_at_the_genesis() {
    let folder = folder();
    let path = folder.path().join("made/on/the/way");
    let ledger = open(&path);
    assert_eq!(*ledger.head(), Head { seq: 0, hash: GENESIS.to_owned() });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let file = path.join("00000001.jsonl");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(whole(&path, Some(ledger.head())).records, 0);
}

#[test]
fn the_chain_goes_on_over_files_and_openings() {
    let folder = folder();
    let mut head = Head::default();
    for round in 1..=10_u64 {
        let mut ledger = Ledger::open_with(folder.path(), Some(&head), 1500).unwrap().ledger;
        assert_eq!(*ledger.head(), head);
        head = fill(&mut ledger, 7);
        assert_eq!(head.seq, round * 7);
        ledger.sync().unwrap();
    }
    let verification = whole(folder.path(), Some(&head));
    assert_eq!((verification.records, verification.head), (70, head));
    let files = files(folder.path());
    assert_eq!(u64::try_from(files.len()).unwrap(), verification.files);
    assert!(files.len() > 10 && files.values().all(|file| file.len() <= 1500));
    let records = read(folder.path(), &Filter::default()).unwrap();
    assert!(records.iter().map(|record| record.seq).eq(1..=70));
    for (name, bytes) in files {
        let first = String::from_utf8(bytes).unwrap();
        let seq = name.trim_start_matches('0').trim_end_matches(".jsonl");
        assert!(first.starts_with(&format!("{{\"seq\":{seq},")), "{name}");
    }
}

#[test]
fn what_was_appended_is_what_is_read() {
    let folder = folder();
    let mut ledger = open(folder.path());
    let data = json!({"path": "/a b/\u{1b}[0m", "n": [0, -1, 1.5, null, true], "deep": {"é": "\u{1F980}"}});
    let head = ledger.append("2026-02-03T04:05:06.789Z", "a.b", Some("x\"y"), &data).unwrap();
    let record = read(folder.path(), &Filter::default()).unwrap().remove(0);
    assert_eq!((record.seq, &record.hash, record.previous.as_str()), (1, &head.hash, GENESIS));
    assert_eq!((record.kind.as_str(), record.session.as_deref()), ("a.b", Some("x\"y")));
    assert_eq!((record.time.as_str(), record.data), ("2026-02-03T04:05:06.789Z", data));
}

/// The commands are those of the crate's documentation.
#[test]
fn every_hash_can_be_checked_with_standard_tools() {
    let folder = folder();
    fill(&mut open(folder.path()), 6);
    let mut lines = Vec::new();
    export_jsonl(folder.path(), &Filter::default(), &mut lines).unwrap();
    let exported = folder.write("exported", &lines);
    let mut previous = GENESIS.to_owned();
    for line in 1..=6 {
        let script = format!(
            "sed -n {line}p \"$1\" | sed 's/,\"hash\":\"[0-9a-f]*\"}}$/}}/' | tr -d '\\n' | sha256sum"
        );
        let hash = output(&script, &exported);
        let hash = hash.split(' ').next().unwrap();
        let text = output(&format!("sed -n {line}p \"$1\""), &exported);
        assert!(text.contains(&format!("\"previous\":\"{previous}\",\"hash\":\"{hash}\"}}")));
        previous = hash.to_owned();
    }
}

fn output(script: &str, file: &Path) -> String {
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, "sh"]).arg(file).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    let folder = folder();
    let ledger = open(folder.path());
    let error = Ledger::open(folder.path(), None).unwrap_err();
    assert!(matches!(&error, LedgerError::Locked { folder: at } if at == folder.path()));
    assert!(error.to_string().ends_with("is being written by another process"));
    drop(ledger);
    Ledger::open(folder.path(), None).unwrap();
}

#[test]
fn a_record_that_is_too_large_is_refused_and_the_next_one_is_written() {
    let folder = folder();
    let mut ledger = open(folder.path());
    fill(&mut ledger, 1);
    let large = json!("x".repeat(MAX_RECORD));
    let error = ledger.append(&time(1), "large", None, &large).unwrap_err();
    assert!(matches!(error, LedgerError::TooLarge { bytes } if bytes > MAX_RECORD));
    let envelope = 400;
    ledger.append(&time(2), "large", None, &json!("x".repeat(MAX_RECORD - envelope))).unwrap();
    let head = fill(&mut ledger, 1);
    drop(ledger);
    assert_eq!(whole(folder.path(), Some(&head)).records, 3);
    assert_eq!(*open(folder.path()).head(), head);
}

#[test]
fn an_unfinished_last_line_is_cut_off_wherever_it_ends() {
    let folder = folder();
    let mut ledger = open(folder.path());
    let before = fill(&mut ledger, 3);
    let length = files(folder.path())["00000001.jsonl"].len();
    fill(&mut ledger, 1);
    drop(ledger);
    let written = files(folder.path());
    assert_eq!(written.len(), 1, "the last line is in the same file");
    let bytes = &written["00000001.jsonl"];
    for end in length + 1..bytes.len() {
        let file = folder.write("00000001.jsonl", &bytes[..end]);
        // A verification waits for the line to be finished, so not every end is asked about.
        if end == length + 1 {
            let problems = verify(folder.path(), None).unwrap().problems;
            assert_eq!(problems[0].sentence, "the line is unfinished");
        }
        let opened = Ledger::open_with(folder.path(), Some(&before), 1500).unwrap();
        assert_eq!(opened.cut.unwrap().as_bytes(), &bytes[length..end]);
        assert_eq!(*opened.ledger.head(), before);
        assert_eq!(std::fs::read(file).unwrap(), &bytes[..length]);
    }
    let mut ledger = open(folder.path());
    let head = fill(&mut ledger, 5);
    assert_eq!(whole(folder.path(), Some(&head)).records, 8);
}

#[test]
fn an_unfinished_first_line_of_a_file_is_cut_off_too() {
    let folder = folder();
    let mut ledger = open(folder.path());
    let mut before = Head::default();
    while files(folder.path()).len() < 2 {
        before = ledger.head().clone();
        fill(&mut ledger, 1);
    }
    drop(ledger);
    let last = files(folder.path()).into_iter().next_back().unwrap();
    for end in [0, 1, last.1.len() - 1] {
        folder.write(&last.0, &last.1[..end]);
        let mut opened = Ledger::open_with(folder.path(), Some(&before), 1500).unwrap();
        assert_eq!(opened.cut.is_some(), end > 0);
        assert_eq!(*opened.ledger.head(), before);
        assert_eq!(whole(folder.path(), Some(&before)).head, before);
        let head = fill(&mut opened.ledger, 1);
        assert_eq!(whole(folder.path(), Some(&head)).head.seq, before.seq + 1);
    }
}

#[test]
fn a_remembered_head_must_be_there() {
    let folder = folder();
    let mut ledger = open(folder.path());
    let early = fill(&mut ledger, 4);
    let late = fill(&mut ledger, 20);
    drop(ledger);
    for known in [&Head::default(), &early, &late] {
        Ledger::open(folder.path(), Some(known)).unwrap();
    }
    let future = Head { seq: late.seq + 3, ..late.clone() };
    let error = Ledger::open(folder.path(), Some(&future)).unwrap_err();
    assert!(matches!(error, LedgerError::Missing { from: 25, to: 27, .. }), "{error}");
    for known in [&early, &late] {
        let other = Head { seq: known.seq, hash: GENESIS.to_owned() };
        let error = Ledger::open(folder.path(), Some(&other)).unwrap_err();
        assert!(matches!(error, LedgerError::Replaced { seq, .. } if seq == known.seq));
    }
    let all = files(folder.path());
    for name in all.keys().rev() {
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let error = Ledger::open(folder.path(), Some(&late)).unwrap_err();
        assert!(matches!(error, LedgerError::Missing { to: 24, .. }), "{error}");
    }
}

#[test]
fn a_damaged_end_is_not_continued() {
    let folder = folder();
    let mut ledger = open(folder.path());
    fill(&mut ledger, 3);
    drop(ledger);
    let text = folder.read("00000001.jsonl").unwrap();
    let last = text.rfind("quoted").unwrap();
    let mut changed = text.clone();
    changed.replace_range(last..=last, "Q");
    for damaged in [&changed, &format!("{text}garbage\n"), &format!("{text}\n")] {
        folder.write("00000001.jsonl", damaged);
        let error = Ledger::open(folder.path(), None).unwrap_err();
        let lines = u64::try_from(damaged.lines().count()).unwrap();
        assert!(matches!(error, LedgerError::Broken { line, .. } if line == lines), "{error}");
        assert_eq!(folder.read("00000001.jsonl").as_ref(), Some(damaged), "nothing is repaired");
    }
    folder.write("00000001.jsonl", "x".repeat(9 * 1024 * 1024));
    let error = Ledger::open(folder.path(), None).unwrap_err();
    assert!(matches!(error, LedgerError::Broken { .. }), "{error}");
}

#[test]
fn a_link_in_place_of_a_file_is_refused() {
    let folder = folder();
    let elsewhere = Folder::new(Person::Root, "elsewhere");
    let mut ledger = open(folder.path());
    let head = fill(&mut ledger, 2);
    drop(ledger);
    let (file, target) = (folder.path().join("00000001.jsonl"), elsewhere.path().join("file"));
    std::fs::rename(&file, &target).unwrap();
    symlink(&target, &file).unwrap();
    let before = std::fs::read(&target).unwrap();
    for error in [
        Ledger::open(folder.path(), None).unwrap_err(),
        read(folder.path(), &Filter::default()).unwrap_err(),
    ] {
        assert!(matches!(&error, LedgerError::NotAFile { path } if *path == file), "{error}");
    }
    let problems = verify(folder.path(), Some(&head)).unwrap().problems;
    assert_eq!(problems[0].file, "00000001.jsonl");
    assert!(problems[0].sentence.contains("is not a regular file"), "{problems:?}");
    assert!(problems[1].sentence.contains("records 1 to 2 are missing"), "{problems:?}");
    assert_eq!(std::fs::read(&target).unwrap(), before);
}

#[test]
fn a_folder_or_a_pipe_in_place_of_a_file_is_refused() {
    for make in ["mkdir", "mkfifo"] {
        let folder = folder();
        let file = folder.path().join("00000001.jsonl");
        assert!(Command::new(make).arg(&file).status().unwrap().success());
        let error = Ledger::open(folder.path(), None).unwrap_err();
        let refused = matches!(error, LedgerError::NotAFile { .. } | LedgerError::Io { .. });
        assert!(refused, "{make}: {error}");
        let problems = verify(folder.path(), None).unwrap().problems;
        assert_eq!(problems.len(), 1, "{make}: {problems:?}");
    }
}

//! `audit` and `events`: what is recorded, and that changing it is found.

use super::{Desk, id, text};
use crate::support::{for_everyone, send, until, wait};
use cowork_testbed::Person;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;

for_everyone!(
    every_act_is_recorded,
    records_are_exported,
    a_changed_record_is_found,
    a_removed_record_is_found,
    tampering_that_stops_the_daemon_is_found,
    events_are_shown_as_they_happen,
);

/// The types of a session's records, in their order.
#[track_caller]
fn kinds(desk: &Desk, id: &str) -> Vec<String> {
    let records = desk.json(&["audit", "--json", id]);
    records.as_array().expect("it is a list").iter().map(|one| text(&one["type"])).collect()
}

fn every_act_is_recorded(person: Person) {
    let desk = Desk::new(person);
    let id = &id("recorded", person);
    desk.make(id, &[]);
    let data = cowork_testbed::Folder::new(person, "data");
    let data = format!("{}:ro=data", data.path().display());
    let password = "hunter2";
    let secret = format!("PASSWORD={password}");
    desk.good(&["exec", "--env", &secret, id, "--", "sh", "-c", "exit 0"]);
    desk.good(&["grant", id, &data]);
    desk.good(&["revoke", id, "data"]);
    desk.good(&["pause", id]);
    desk.good(&["resume", id]);
    desk.good(&["set", id, "--open-files", "64"]);
    desk.good(&["stop", id]);
    desk.good(&["start", id]);
    desk.good(&["rm", id]);
    let expected = [
        "session.created",
        "session.ready",
        "command.started",
        "command.ended",
        "grant.added",
        "grant.revoking",
        "grant.revoked",
        "session.paused",
        "session.resumed",
        "limits.changed",
        "session.stopped",
        "session.started",
        "session.ready",
        "session.removed",
    ];
    assert_eq!(kinds(&desk, id), expected);
    let records = desk.good(&["audit", "--json", id]);
    assert!(records.contains("\"PASSWORD\"") && !records.contains(password), "{records}");
    let shown = desk.good(&["audit", id, "--type", "command.ended"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("code=0"), "{shown}");
    assert_eq!(desk.good(&["audit", id, "--until", "1h"]).lines().count(), 1);
    assert_eq!(desk.good(&["audit", id, "--since", "1h"]).lines().count(), 1 + expected.len());
    assert_eq!(desk.say(&["audit", id, "--since", "yesterday"]).code, 1);
}

fn records_are_exported(person: Person) {
    let desk = Desk::new(person);
    let id = &id("exported", person);
    desk.make(id, &[]);
    desk.good(&["exec", id, "--", "echo", "a \"quoted\", word"]);
    let lines = desk.good(&["audit", "export", id]);
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is a document"))
        .collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[2]["data"]["argv"][1], "a \"quoted\", word");
    desk.work.write("records.csv", desk.good(&["audit", "export", "--format", "csv", id]));
    let read = "import csv, json, sys\n\
                rows = list(csv.DictReader(open(sys.argv[1])))\n\
                print(len(rows), rows[2]['type'], json.loads(rows[2]['data'])['argv'][1])";
    let mut python = person.command("/usr/bin/python3");
    python.args(["-c", read]).arg(desk.work.path().join("records.csv"));
    let read = crate::support::finish(python, Vec::new());
    assert_eq!(read.good(), "4 command.started a \"quoted\", word\n");
}

/// A daemon of its own with some records, and the file they are in.
fn recorded(person: Person) -> (Desk, std::path::PathBuf) {
    let desk = Desk::apart(person);
    desk.make("tampered", &[]);
    assert_eq!(desk.sh("tampered", "exit 3").code, 3);
    let verified = desk.good(&["audit", "verify"]);
    assert!(verified.starts_with("whole: ") && verified.contains(" in 1 file\n"), "{verified}");
    desk.good(&["daemon", "--stop"]);
    let folder = desk.daemon().join("state/audit");
    let mut files = std::fs::read_dir(folder).expect("there are records");
    let file = files.next().expect("there is a file").expect("it can be read").path();
    (desk, file)
}

fn a_changed_record_is_found(person: Person) {
    let (desk, file) = recorded(person);
    let text = std::fs::read_to_string(&file).expect("records are text");
    let line = text.lines().position(|line| line.contains("\"code\":3")).expect("it is recorded");
    std::fs::write(&file, text.replace("\"code\":3", "\"code\":0")).expect("tests run as root");
    let found = desk.say(&["audit", "verify"]);
    assert_eq!((found.code, found.err.as_str()), (1, ""));
    assert!(found.text().starts_with("NOT whole: "), "{}", found.text());
    let name = file.file_name().and_then(|name| name.to_str()).expect("it is text");
    let place = format!("{name}:{}: the record was changed", line + 1);
    assert!(found.text().contains(&place), "{} in {}", place, found.text());
    let told: Value = serde_json::from_str(desk.say(&["audit", "verify", "--json"]).text())
        .expect("it is a document");
    assert_eq!(told["whole"], false, "{told}");
}

fn a_removed_record_is_found(person: Person) {
    let (desk, file) = recorded(person);
    let text = std::fs::read_to_string(&file).expect("records are text");
    let whole = |line: &&str| !line.contains("\"code\":3");
    let kept: String = text.split_inclusive('\n').filter(whole).collect();
    assert_ne!(kept, text);
    std::fs::write(&file, kept).expect("tests run as root");
    let found = desk.say(&["audit", "verify"]);
    assert_eq!(found.code, 1, "{}", found.text());
    assert!(found.text().starts_with("NOT whole: "), "{}", found.text());
}

/// What the daemon was sure of is gone or another: it does not go on with that, and the record can
/// still be verified and read, as it was found.
fn tampering_that_stops_the_daemon_is_found(person: Person) {
    let (desk, file) = recorded(person);
    let name = file.file_name().and_then(|name| name.to_str()).expect("it is text");
    let whole = std::fs::read_to_string(&file).expect("records are text");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let (last, number) = (lines[lines.len() - 1], lines.len() as u64);
    let before = lines[..lines.len() - 1].concat();
    let cases = [
        ("removed", Some(lines[..lines.len() - 2].concat()), number - 1, "are missing at the end"),
        ("changed", Some(before.clone() + &last.replace("daemon", "demon")), number, "was changed"),
        ("cut", Some(before.clone() + last.split_at(last.len() / 2).0), number, "unfinished"),
        ("emptied", Some(String::new()), 1, "are missing at the end"),
        ("gone", None, 1, "are missing at the end"),
    ];
    let owner = std::fs::metadata(&file).expect("it is there");
    let write = |text: Option<&str>| match text {
        Some(text) => {
            std::fs::write(&file, text).expect("tests run as root");
            let (user, group) = (owner.uid(), owner.gid());
            std::os::unix::fs::chown(&file, Some(user), Some(group)).expect("tests run as root");
        }
        None => std::fs::remove_file(&file).expect("tests run as root"),
    };
    let verified = || desk.say(&["audit", "verify"]);
    for (what, kept, record, sentence) in cases {
        write(kept.as_deref());
        for again in [false, true] {
            let found = verified();
            assert_eq!((found.code, found.err.as_str()), (1, ""), "{what}: {}", found.text());
            assert!(found.text().starts_with("NOT whole: "), "{what}: {}", found.text());
            let told = desk.say(&["audit", "verify", "--json"]);
            assert_eq!((told.code, told.err.as_str()), (1, ""), "{what}: {}", told.text());
            let told: Value = serde_json::from_str(told.text()).expect("it is a document");
            assert_eq!(told["whole"], false, "{what}: {told}");
            let problem = &told["problems"][0];
            assert_eq!(problem["file"], name, "{what}: {told}");
            assert_eq!(problem["record"], record, "{what}: {told}");
            assert!(text(&problem["sentence"]).contains(sentence), "{what}: {told}");
            assert!(found.text().contains(&format!("{name}:")), "{what}: {}", found.text());
            assert!(found.text().contains(&record.to_string()), "{what}: {}", found.text());
            assert_eq!(std::fs::read_to_string(&file).ok(), kept, "{what}");
            if again {
                continue;
            }
            // Asking for anything else says why there is no answer, and leaves all as it is.
            let refused = desk.say(&["ls"]);
            assert_eq!((refused.code, refused.text()), (125, ""), "{what}");
            for part in ["tampered with", "`cowork audit verify`", name] {
                assert!(refused.err.contains(part), "{what}: {}", refused.err);
            }
        }
        if !["removed", "cut"].contains(&what) {
            continue;
        }
        let exported = desk.say(&["audit", "export"]);
        let kept = kept.as_deref().unwrap_or_default().split_inclusive('\n');
        let kept: String = kept.filter(|line| line.ends_with('\n')).collect();
        assert_eq!((exported.code, exported.text()), (0, kept.as_str()), "{what}");
        assert!(exported.err.contains("the files of the audit themselves"), "{}", exported.err);
        let listed = desk.say(&["audit", "--json", "--type", "command.ended", "tampered"]);
        let listed: Value = serde_json::from_str(listed.text()).expect("it is a list");
        let ended = kept.matches("\"command.ended\"").count();
        assert_eq!(listed.as_array().map(Vec::len), Some(ended), "{what}: {listed}");
    }
    write(Some(&whole));
    let found = verified();
    assert_eq!((found.code, found.err.as_str()), (0, ""), "{}", found.text());
    assert!(found.text().starts_with("whole: "), "{}", found.text());
    desk.good(&["ls"]);
    assert!(desk.good(&["audit", "verify"]).starts_with("whole: "));
}

fn events_are_shown_as_they_happen(person: Person) {
    let desk = Desk::new(person);
    let id = &id("happens", person);
    desk.make(id, &[]);
    let mut child = desk.spawn(&["events", "--json", "--after", "0", id]);
    let output = BufReader::new(child.0.stdout.take().expect("it is a pipe"));
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).expect("every line is a document");
            tell.send(event).expect("somebody listens");
        }
    });
    let mut events = Vec::new();
    let mut seen = |kind: &str| {
        until("it happens", || {
            events.extend(told.try_iter());
            events.iter().any(|event: &Value| event["type"] == kind)
        });
    };
    seen("session.ready");
    assert_eq!(desk.sh(id, "exit 5").code, 5);
    seen("command.ended");
    send(&child.0, Signal::INT);
    wait(&mut child.0);
    reader.join().expect("it ends with its pipe");
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["id"].as_u64()).collect();
    assert_eq!(numbers.len(), events.len());
    assert!(numbers.is_sorted_by(|a, b| a < b), "none is doubled: {numbers:?}");
    assert!(events.iter().all(|event| event["session"] == id.as_str()));

    let kept = desk.json(&["events", "--json", "--no-follow", "--after", "0", id]);
    let kept: Vec<&Value> =
        kept.as_array().expect("it is a list").iter().take(events.len()).collect();
    assert_eq!(kept, events.iter().collect::<Vec<_>>(), "the same can be had later");
    let last = numbers.last().expect("there are some").to_string();
    assert_eq!(desk.sh(id, "exit 6").code, 6);
    let ended = ["events", "--no-follow", "--type", "command.ended", "--after", &last, id];
    let ended = desk.good(&ended);
    assert_eq!(ended.lines().count(), 1, "{ended}");
    assert!(ended.contains(" command.ended ") && ended.contains("code=6"), "{ended}");
}

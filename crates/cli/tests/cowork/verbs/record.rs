//! `audit` and `events`: what is recorded, and that changing it is found.

use super::{Desk, id, text};
use crate::support::{for_everyone, send, until, wait};
use cowork_testbed::Person;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};

for_everyone!(
    every_act_is_recorded,
    records_are_exported,
    a_changed_record_is_found,
    a_removed_record_is_found,
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

//! The record of everything: what is in it, what is not, and that no change of it goes unnoticed.

use crate::for_everyone;
use crate::look::{joined, names, until};
use crate::site::Site;
use crate::trouble::fails_to_start;
use cowork_client::http::{Method, Request, Upload};
use cowork_client::types::Verified;
use cowork_testbed::Person;
use serde_json::json;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

for_everyone!(
    a_changed_record_is_found,
    missing_records_are_told_at_the_start,
    secrets_and_contents_are_not_recorded,
);

/// The file of a site's record, and its lines.
struct Ledger {
    path: PathBuf,
    lines: Vec<String>,
}

impl Ledger {
    fn of(site: &Site) -> Self {
        let folder = site.state().join("audit");
        let path = folder.join(names(&folder).pop_first().expect("there is a file"));
        let text = std::fs::read_to_string(&path).expect("it is there");
        Self { path, lines: text.lines().map(str::to_owned).collect() }
    }

    /// Writes other lines in its place; its owner and mode stay.
    fn write(&self, lines: &[String]) {
        let text = joined(lines.iter().map(|line| format!("{line}\n")));
        let file = std::fs::File::options().write(true).open(&self.path).expect("it is there");
        file.write_all_at(text.as_bytes(), 0).expect("tests are root");
        file.set_len(text.len() as u64).expect("tests are root");
    }
}

/// A site whose record has a few lines.
fn busy_site(person: Person) -> Site {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    for index in 0..5 {
        drop(room.run(&format!("echo {index}")));
    }
    site
}

fn a_changed_record_is_found(person: Person) {
    let site = busy_site(person);
    let ledger = Ledger::of(&site);
    let lines = &ledger.lines;
    let verified = || -> Verified { site.client().get("/v1/audit/verify").expect("it answers") };
    assert!(verified().whole);
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        lines
    };
    let length = lines.len();
    let cases = [
        ("changed", with(&|all| all[4] = all[4].replacen("\"type\":\"", "\"type\":\"x", 1)), 5),
        ("removed", with(&|all| drop(all.remove(4))), 5),
        ("swapped", with(&|all| all.swap(4, 5)), 5),
        ("doubled", with(&|all| all.insert(4, all[3].clone())), 5),
        ("shortened", with(&|all| all.truncate(length - 2)), length as u64 - 2),
    ];
    let name = crate::room::name_of(&ledger.path);
    for (what, bad, line) in cases {
        ledger.write(&bad);
        let found = verified();
        assert!(!found.whole, "{what}");
        let problem = found.problems.first().unwrap_or_else(|| panic!("{what}: {found:?}"));
        assert_eq!(problem.file.rsplit('/').next(), Some(name.as_str()), "{what}: {found:?}");
        // One that is missing is missed at the next, or at the end of the file.
        assert!([0, line, line + 1].contains(&problem.line), "{what}: {found:?}");
        assert!(!problem.sentence.is_empty());
    }
    ledger.write(lines);
    assert!(verified().whole);
}

fn missing_records_are_told_at_the_start(person: Person) {
    let site = busy_site(person);
    // What may not have come to the disk before a loss of power is told in the record itself.
    site.kill();
    let ledger = Ledger::of(&site);
    let length = ledger.lines.len();
    ledger.write(&ledger.lines[..length - 2]);
    site.spawn();
    let mut code = None;
    until("it answers or gives up", || {
        code = site.try_end();
        code.is_some() || site.info().is_ok()
    });
    if code.is_some() {
        ledger.write(&ledger.lines);
        site.start();
    } else {
        let lost = site.records(&[("type", "audit.lost")]).pop().expect("it is told");
        assert_eq!(lost.data["to"], json!(length), "{lost:?}");
    }
    // What was safe on the disk cannot be lost: the daemon does not go on as if nothing were.
    site.leave();
    let ledger = Ledger::of(&site);
    ledger.write(&ledger.lines[..ledger.lines.len() - 2]);
    let said = fails_to_start(&site);
    assert!(said.contains("audit"), "{said}");
    ledger.write(&ledger.lines);
    site.start();
    site.verify();
}

fn secrets_and_contents_are_not_recorded(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    let secret = "nobody-may-record-this";
    let number = room.start(&json!({
        "shell": "cat; echo $TOKEN; exit 5",
        "env": { "TOKEN": secret },
        "streams": { "stdin": "pipe" },
    }));
    let put = |method, target: String| {
        let upload = Upload { from: &mut secret.as_bytes(), length: None };
        site.client().open(&Request::new(method, target), Some(upload)).expect("it is taken");
    };
    put(Method::Post, room.at(&format!("/commands/{number}/stdin?close=true")));
    put(Method::Put, room.at("/files/uploads/file"));
    assert_eq!(room.ended(number).code, Some(5));
    let output = String::from_utf8(room.output(number, &[])).expect("it is text");
    assert_eq!(output.matches(secret).count(), 2, "it was there to be recorded");
    let export = |format: &str| {
        let request = Request::get(format!("/v1/audit/export?format={format}"));
        let bytes = site.client().call(&request).expect("it is exported");
        String::from_utf8(bytes).expect("it is text")
    };
    for text in [export("jsonl"), export("csv"), Ledger::of(&site).lines.concat()] {
        assert!(!text.contains(secret), "{text}");
        assert!(
            text.contains("TOKEN") && text.contains("cat; echo"),
            "names and words are: {text}"
        );
    }
    assert_eq!(export("jsonl").lines().count(), Ledger::of(&site).lines.len());
    let ended = site.records(&[("type", "command.ended")]).pop().expect("it is recorded");
    assert_eq!(ended.data["code"], json!(5));
    // Parts of it, by session, type and time.
    assert_eq!(site.records(&[("session", "no-such-one")]).len(), 0);
    assert!(site.records(&[("session", room.id())]).len() >= 4);
    assert_eq!(site.records(&[("until", "2020-01-01T00:00:00Z")]).len(), 0);
    assert_eq!(site.records(&[("since", "2020-01-01T00:00:00Z")]).len(), site.records(&[]).len());
    let bad = site.refused(Method::Get, "/v1/audit?since=yesterday", None);
    assert_eq!(bad.status, 422);
}

//! `--json` of every verb that asks the daemon: what it prints is JSON, as one document or as lines.

use super::folders::{ask, waiting};
use super::{Desk, id};
use crate::support::{finish, for_everyone, until};
use cowork_testbed::{Folder, Person};
use serde_json::Value;

for_everyone!(answers_about_sessions_are_json, answers_about_folders_are_json, others_are_json);

/// A desk with a daemon of its own, where every answer is read.
struct Reader {
    desk: Desk,
    home: Folder,
}

impl Reader {
    fn new(person: Person) -> Self {
        Self { desk: Desk::apart(person), home: Folder::new(person, "someone") }
    }

    #[track_caller]
    fn text(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.desk.command(arguments);
        command.env("HOME", self.home.path());
        let ran = finish(command, input.as_bytes().to_vec());
        assert_eq!(ran.code, 0, "{arguments:?}: {} {}", ran.text(), ran.err);
        ran.text().to_owned()
    }

    /// The one document that a verb prints.
    #[track_caller]
    fn one(&self, arguments: &[&str]) -> Value {
        self.told(arguments, "")
    }

    /// The same of a verb that reads something.
    #[track_caller]
    fn told(&self, arguments: &[&str], input: &str) -> Value {
        let text = self.text(arguments, input);
        let read = serde_json::from_str(&text);
        read.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// The documents that a verb prints as it goes, one on each line.
    #[track_caller]
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text(arguments, "");
        assert!(!text.is_empty(), "{arguments:?} says nothing");
        let read = |line: &str| -> Value {
            let read = serde_json::from_str(line);
            read.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"))
        };
        text.lines().map(read).collect()
    }
}

fn answers_about_sessions_are_json(person: Person) {
    let reader = Reader::new(person);
    let (id, other) = (&*id("json", person), &*format!("{}-2", id("json", person)));
    assert_eq!(reader.one(&["new", "--json", "--id", id, "--no-grants"])["id"], id);
    assert_eq!(reader.one(&["init", "--json"])["id"], "default");
    assert_eq!(reader.one(&["init", "--json"])["id"], "default");
    reader.lines(&["run", "--json", "--", "echo", "hello"]);
    let said = reader.lines(&["exec", "--json", id, "--", "echo", "hello"]);
    assert!(said.len() >= 3, "its start, what it says, its end: {said:?}");
    let line = "echo here; until [ -e ~/go ]; do sleep 0.02; done; echo gone";
    reader.one(&["exec", "--json", "--detach", id, "--", "sh", "-c", line]);
    until("it runs", || reader.desk.good(&["logs", id, "2"]) == "here\n");
    reader.lines(&["logs", "--json", id, "2"]);
    assert_eq!(reader.one(&["status", "--json", id])["state"], "running");
    assert_eq!(reader.one(&["status", "--json", id, "--process", "sh"])["running"], true);
    assert_eq!(reader.one(&["pause", "--json", id])["state"], "paused");
    assert_eq!(reader.one(&["resume", "--json", id])["state"], "running");
    assert_eq!(reader.one(&["pause", "--json", id, "2"])["state"], "paused");
    assert_eq!(reader.one(&["resume", "--json", id, "2"])["state"], "running");
    reader.desk.good(&["exec", "--detach", id, "--", "sh", "-c", "sleep 0.5; touch ~/go"]);
    let said = reader.lines(&["attach", "--json", "--from", "0", id, "2"]);
    assert!(said.len() >= 2, "what it says, its end: {said:?}");
    reader.desk.good(&["exec", "--detach", id, "--", "sleep", "1000"]);
    reader.one(&["cancel", "--json", id, "4"]);
    reader.one(&["cancel", "--json", id]);
    reader.one(&["ls", "--json"]);
    reader.one(&["set", "--json", id, "--label", "a=b"]);
    for usage in [&["usage", "--json"][..], &["usage", "--json", id]] {
        reader.one(usage);
    }
    reader.one(&["usage", "--json", "--history", id]);
    assert_eq!(reader.one(&["stop", "--json", id])["state"], "stopped");
    assert_eq!(reader.one(&["start", "--json", id])["state"], "ready");
    reader.one(&["explain", "--json", "--no-grants"]);
    reader.desk.good(&["new", "--id", other, "--no-grants"]);
    reader.one(&["rm", "--json", id, other]);
    reader.one(&["delete", "--json"]);
}

fn answers_about_folders_are_json(person: Person) {
    let reader = Reader::new(person);
    let id = &*id("json", person);
    reader.desk.good(&["new", "--id", id, "--no-grants"]);
    let (data, staged) = (Folder::new(person, "data"), Folder::new(person, "staged"));
    data.write("file", "text\n");
    let path = data.path().to_str().expect("test folders are text");
    assert_eq!(reader.one(&["grant", "--json", id, &format!("{path}:ro=data")])["name"], "data");
    reader.one(&["grant", "--json", id, &format!("{path}=data")]);
    reader.one(&["grant", "--json", id, &format!("{}:staged=staged", staged.path().display())]);
    let at = reader.one(&["path", "--json", id, &format!("{path}/file")]);
    assert_eq!(at["session"], format!("/sessions/{id}/mnt/data/file"), "{at}");
    let from = reader.desk.work.write("upload", "text");
    let from = from.to_str().expect("test folders are text");
    reader.one(&["cp", "--json", from, &format!("{id}:uploads/")]);
    let change = "echo other > mnt/data/file; touch mnt/staged/new";
    reader.desk.good(&["exec", id, "--", "sh", "-c", change]);
    reader.one(&["changes", "--json", id]);
    reader.one(&["diff", "--json", id]);
    reader.one(&["history", "--json", path]);
    reader.one(&["undo", "--json", id]);
    reader.one(&["redo", "--json", id]);
    reader.one(&["apply", "--json", id]);
    reader.desk.good(&["exec", id, "--", "touch", "mnt/staged/newer"]);
    reader.one(&["discard", "--json", id]);
    reader.one(&["protect", "add", "--json", id, "*.kdbx"]);
    reader.one(&["protect", "list", "--json", id]);
    reader.one(&["protect", "remove", "--json", id, "*.kdbx"]);
    ask(&reader.desk, id, "a folder");
    let request = waiting(&reader.desk, id);
    let decided = reader.one(&["decide", "--json", &request, "reject"]);
    assert_eq!(decided["state"], "rejected", "{decided}");
    reader.one(&["revoke", "--json", id, "data"]);
}

fn others_are_json(person: Person) {
    let reader = Reader::new(person);
    let id = &*id("json", person);
    reader.desk.good(&["new", "--id", id, "--no-grants"]);
    reader.one(&["allow", "--json", id, "a.example"]);
    reader.one(&["deny", "--json", id, "b.example"]);
    reader.one(&["net", "--json", id]);
    reader.one(&["net", "rules", "--json", id]);
    reader.one(&["net", "explain", "--json", id, "https://a.example/"]);
    reader.one(&["net", "presets", "--json"]);
    reader.one(&["net", "standing", "--json"]);
    let published = reader.one(&["publish", "--json", id, "8080:0"]);
    let port = published["outside"].to_string();
    reader.one(&["unpublish", "--json", id, &port]);
    reader.told(&["secret", "set", "--json", "key", "--host", "a.example"], "value");
    reader.one(&["secret", "ls", "--json"]);
    reader.one(&["secret", "rm", "--json", "key"]);
    reader.one(&["agents", "--json"]);
    reader.one(&["tasks", "--json"]);
    reader.one(&["requests", "--json"]);
    reader.one(&["audit", "--json"]);
    assert_eq!(reader.one(&["audit", "verify", "--json"])["whole"], true);
    reader.one(&["events", "--json", "--no-follow", "--after", "0"]);
    reader.one(&["doctor", "--json"]);
    reader.one(&["daemon", "--json", "--stop"]);
}

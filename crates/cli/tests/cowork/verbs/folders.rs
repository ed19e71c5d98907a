//! `grant`, `revoke`, `requests`, `decide`: folders that come and go while a session runs.

use super::{Desk, asleep, id, text};
use crate::support::{Ran, for_everyone, until};
use cowork_testbed::{Folder, Person, SECRET};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

for_everyone!(
    a_folder_appears_while_the_session_runs,
    who_holds_on_to_a_folder_is_killed_and_named,
    sensitive_places_have_to_be_meant,
    a_folder_that_is_asked_for_is_given,
    no_is_an_answer,
    a_folder_is_granted_for_a_time,
    a_session_reads_its_skills,
    skills_in_a_sensitive_place_have_to_be_meant,
    what_is_mounted_in_a_folder_is_told,
);

fn show(folder: &Folder) -> &str {
    folder.path().to_str().expect("test folders are text")
}

fn a_folder_appears_while_the_session_runs(person: Person) {
    let desk = Desk::new(person);
    let id = &id("granted", person);
    desk.make(id, &[]);
    let data = Folder::new(person, "data");
    data.write("file", "text\n");
    // One command lives through all of it.
    let number = desk.start(
        id,
        "until cat mnt/data/file 2>/dev/null; do sleep 0.02; done
         until echo 1 2>/dev/null > mnt/data/written; do sleep 0.02; done
         while [ -e mnt/data/file ]; do sleep 0.02; done; echo gone",
    );
    let at = format!("/sessions/{id}/mnt/data\n");
    assert_eq!(desk.good(&["grant", id, &format!("{}:ro=data", show(&data))]), at);
    until("it reads", || desk.good(&["logs", id, &number]) == "text\n");
    let refused = desk.sh(id, "echo > mnt/data/other");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("Read-only file system"), "{}", refused.err);
    assert_eq!(data.read("written"), None);

    assert_eq!(desk.good(&["grant", id, &format!("{}=data", show(&data))]), at);
    until("it writes", || data.read("written").as_deref() == Some("1\n"));
    assert_eq!(crate::support::owner(&data.path().join("written")).0, person.uid());
    let again = desk.say(&["grant", id, &format!("{}=data", show(&data))]);
    assert_eq!(again.done(), at);
    assert_eq!(again.err, format!("cowork: session {id} has that folder already\n"));

    let said = desk.good(&["revoke", id, "data"]);
    assert!(said.ends_with("the folder is gone from the session: the kernel says so\n"), "{said}");
    assert_eq!(desk.sh(id, "ls mnt/data").code, 2, "it is not there any more");
    assert!(!desk.sh(id, "ls mnt").good().contains("data"));
    assert_eq!(data.read("file").as_deref(), Some("text\n"), "the host's folder is as it was");
    let sentence = "cowork: the session has no granted folder `data`\n  hint: it has: work\n";
    desk.refused(&["revoke", id, "data"], 1, sentence);
    desk.refused(
        &["grant", id, "/nowhere"],
        1,
        "cowork: there is no folder `/nowhere`\n  hint: check the path, or make the folder first\n",
    );
}

fn who_holds_on_to_a_folder_is_killed_and_named(person: Person) {
    let desk = Desk::new(person);
    let id = &id("holders", person);
    desk.make(id, &[]);
    let data = Folder::new(person, "data");
    desk.good(&["grant", id, &format!("{}=data", show(&data))]);
    desk.start(id, "cd mnt/data; touch in; exec sleep 1000");
    desk.start(id, "touch mnt/work/out; exec sleep 1001");
    until("one is in it", || data.read("in").is_some() && desk.work.read("out").is_some());
    until("both sleep", || {
        let found = crate::support::inside(desk.work.path());
        found.iter().filter(|process| process.name() == "sleep").count() == 2
    });
    let revoked = desk.json(&["revoke", "--json", id, "data"]);
    let killed = revoked["killed"].as_array().expect("it is a list");
    assert_eq!(killed.len(), 1, "{revoked}");
    assert_eq!(killed[0]["name"], "sleep");
    assert_eq!(revoked["certainty"], "kernel");
    let left = crate::support::inside(desk.work.path());
    let left: Vec<String> = left
        .iter()
        .filter(|process| process.name() == "sleep")
        .map(|process| process.file("cmdline"))
        .collect();
    assert_eq!(left, ["sleep\u{0}1001\u{0}"], "who did not hold on lives");

    desk.good(&["grant", id, &format!("{}=data", show(&data))]);
    desk.start(id, "cd mnt/data; touch again; exec sleep 1002");
    asleep(&desk, "1002");
    let said = desk.good(&["revoke", id, "data"]);
    let start = "1 process held on to the folder and had to be killed:\n  ";
    assert!(said.starts_with(start), "{said}");
}

fn sensitive_places_have_to_be_meant(person: Person) {
    let desk = Desk::new(person);
    let id = &id("sensitive", person);
    desk.make(id, &[]);
    let keys = person.home().join(".ssh");
    let keys = keys.to_str().expect("test folders are text");
    let reason = format!("cowork: `{keys}` gives access to `{keys}`: SSH keys\n");
    let hint = "  hint: grant a folder inside it, or mean it with `--force`\n";
    desk.refused(&["grant", id, keys], 1, &format!("{reason}{hint}"));
    assert_ne!(desk.sh(id, "cat mnt/*/id_secret").code, 0);
    let state = person.state();
    let refused = desk.say(&["grant", id, state.to_str().expect("test folders are text")]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("holds cowork's own state"), "{}", refused.err);
    let refused = desk.say(&["grant", id, "/"]);
    assert_eq!((refused.code, refused.text()), (1, ""), "{}", refused.err);

    let forced = desk.say(&["grant", "--force", id, &format!("{keys}:ro=keys")]);
    assert_eq!(forced.done(), format!("/sessions/{id}/mnt/keys\n"));
    assert_eq!(forced.err, reason, "the reason is told even then");
    assert_eq!(desk.sh(id, "cat mnt/keys/id_secret").good(), SECRET);
    desk.good(&["revoke", id, "keys"]);
    assert_ne!(desk.sh(id, "cat mnt/keys/id_secret").code, 0);
}

/// A program of Python that asks for a folder and prints the answer.
const ASK: &str = r#"
import http.client, json, os, socket, sys
connection = http.client.HTTPConnection("cowork")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(os.environ["COWORK_REQUESTS"])
wish = {"wanted": sys.argv[1], "reason": "to test", "access": "ro", "wait": 60}
connection.request("POST", "/v1/ask", json.dumps(wish), {"Content-Type": "application/json"})
print(connection.getresponse().read().decode())
"#;

/// Starts a command that asks for a folder.
#[track_caller]
pub(super) fn ask(desk: &Desk, id: &str, wanted: &str) -> String {
    let number = desk.good(&["exec", "--detach", id, "--", "python3", "-c", ASK, wanted]);
    number.trim_end().to_owned()
}

/// The number of the request that waits.
#[track_caller]
pub(super) fn waiting(desk: &Desk, id: &str) -> String {
    let mut found = Value::Null;
    until("it asks", || {
        found = desk.json(&["requests", "--json", id]);
        found.as_array().is_some_and(|found| !found.is_empty())
    });
    found[0]["id"].to_string()
}

fn a_folder_that_is_asked_for_is_given(person: Person) {
    crate::support::need("python3", "python3");
    let desk = Desk::new(person);
    let id = &id("asking", person);
    desk.make(id, &[]);
    let invoices = Folder::new(person, "invoices");
    invoices.write("january", "12.50");
    let number = ask(&desk, id, "last year's invoices");
    let request = &waiting(&desk, id);
    let table = desk.good(&["requests", id]);
    let by = format!("command {number}: \"python3\" (");
    for part in [id.as_str(), &by, "pending", "ro", "last year's invoices", "to test"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    desk.refused(
        &["decide", request, "allow"],
        1,
        "cowork: which folder is meant?\n  hint: name it: `cowork decide ID allow --path FOLDER`\n",
    );
    let said =
        desk.good(&["decide", request, "allow", "--path", show(&invoices), "--name", "bills"]);
    assert_eq!(said, format!("session {id} has it as mnt/bills\n"));
    let answer: Value =
        serde_json::from_str(&desk.good(&["logs", "--follow", id, &number])).expect("it is JSON");
    assert_eq!(text(&answer["state"]), "allowed");
    assert_eq!(text(&answer["at"]), format!("/sessions/{id}/mnt/bills"));
    assert_eq!(
        desk.sh(id, "cat mnt/bills/january; echo > mnt/bills/x || echo no").text(),
        "12.50no\n"
    );
    assert_eq!(desk.json(&["requests", "--json", id]), serde_json::json!([]));
    assert!(desk.good(&["requests", "--all", id]).contains("allowed"));
    let sentence = format!("cowork: request {request} was answered already\n");
    desk.refused(&["decide", request, "reject"], 1, &sentence);
}

fn no_is_an_answer(person: Person) {
    crate::support::need("python3", "python3");
    let desk = Desk::new(person);
    let id = &id("refused", person);
    desk.make(id, &[]);
    let number = ask(&desk, id, "your diary");
    let request = &waiting(&desk, id);
    assert_eq!(desk.good(&["decide", request, "reject", "--note", "it is private"]), "");
    let answer: Value =
        serde_json::from_str(&desk.good(&["logs", "--follow", id, &number])).expect("it is JSON");
    assert_eq!(text(&answer["state"]), "rejected");
    assert_eq!(text(&answer["note"]), "it is private");
    assert_eq!(desk.sh(id, "ls mnt").good(), "outputs\nskills\nuploads\nwork\n");
    desk.refused(
        &["decide", "999999", "reject"],
        1,
        "cowork: there is no request 999999\n  hint: see `cowork requests`\n",
    );
    desk.refused(
        &["decide", request, "reject", "--session"],
        1,
        "cowork: a no is for once or for always\n  hint: say `--always`, or nothing\n",
    );
}

fn a_folder_is_granted_for_a_time(person: Person) {
    let desk = Desk::new(person);
    let id = &id("for-a-time", person);
    desk.make(id, &[]);
    let data = Folder::new(person, "data");
    let grant = format!("{}=data", show(&data));
    desk.good(&["grant", id, &grant, "--for", "1h"]);
    let status = desk.good(&["status", id]);
    assert!(status.contains("   until 2"), "{status}");
    // The same folder again: another time, and nothing else.
    desk.good(&["grant", id, &grant, "--for", "2s"]);
    until("it has ended", || !desk.good(&["status", id]).contains("mnt/data"));
    let refused = desk.say(&["grant", id, &grant, "--for", "99999d"]);
    assert!(refused.err.contains("a folder is not granted for `99999d`"), "{}", refused.err);
}

/// What is done to find skills and to try to change them.
const READ_SKILLS: &str = "cat \"$COWORK_SKILLS/sums/SKILL.md\"; echo > mnt/skills/new || echo ro";

fn a_session_reads_its_skills(person: Person) {
    let desk = Desk::new(person);
    let skills = Folder::new(person, "skills");
    skills.write("sums/SKILL.md", "# Sums\n");
    let path = show(&skills).to_owned();
    let id = &id("skilled", person);
    desk.make(id, &["--skills", &path]);
    let seen = |ran: &Ran| {
        assert_eq!((ran.code, ran.text()), (0, "# Sums\nro\n"), "{}", ran.err);
        assert!(ran.err.contains("Read-only file system"), "{}", ran.err);
    };
    seen(&desk.sh(id, READ_SKILLS));
    assert_eq!(skills.read("new"), None);
    assert!(desk.sh(id, "cat COWORK.md").good().contains("/mnt/skills`"));
    // It is told where they are, on both sides, and files can be taken from there.
    assert!(desk.good(&["status", id]).contains(&format!("skills      {path}\n")));
    assert_eq!(text(&desk.json(&["status", "--json", id])["skills"]), path);
    let inside = format!("/sessions/{id}/mnt/skills/sums");
    assert_eq!(desk.good(&["path", id, &format!("{path}/sums")]), format!("{inside}\n"));
    assert_eq!(desk.good(&["cp", &format!("{id}:skills/sums/SKILL.md"), "-"]), "# Sums\n");
    let written = desk.say(&["cp", &format!("{path}/sums/SKILL.md"), &format!("{id}:skills/new")]);
    assert_eq!((written.code, written.text()), (1, ""), "{}", written.err);
    assert_eq!(skills.read("new"), None);
    // They are as much part of it as its home.
    desk.good(&["stop", id]);
    desk.good(&["start", id]);
    seen(&desk.sh(id, READ_SKILLS));
    let created = desk.json(&["audit", "--json", "--type", "session.created", id]);
    assert_eq!(created[0]["data"]["skills"]["path"], path.as_str(), "{created}");
    assert_eq!(created[0]["data"]["skills"]["sensitive"], Value::Null, "{created}");
    // Another folder in its place is not shown.
    desk.good(&["stop", id]);
    let before = skills.path().with_extension("before");
    std::fs::rename(skills.path(), &before).expect("tests run as root");
    std::fs::create_dir(skills.path()).expect("tests run as root");
    let started = desk.say(&["start", id]);
    std::fs::remove_dir(skills.path()).expect("it is empty");
    std::fs::rename(&before, skills.path()).expect("tests run as root");
    assert_eq!((started.code, started.text()), (1, ""), "{}", started.err);
    desk.good(&["start", id]);
    seen(&desk.sh(id, READ_SKILLS));

    // Only for one command, with and without a daemon.
    for more in [&[][..], &["--no-daemon"]] {
        let run = ["run", "--no-grants", "--skills", &path];
        let run = [&run, more, &["--", "sh", "-c", READ_SKILLS]].concat();
        seen(&desk.say(&run));
    }
}

fn skills_in_a_sensitive_place_have_to_be_meant(person: Person) {
    let desk = Desk::apart(person);
    let secret = person.home().join(".ssh");
    let secret = secret.to_str().expect("it is text");
    for line in [
        &["new", "--skills", secret][..],
        &["run", "--no-grants", "--skills", secret, "--", "true"],
        &["run", "--no-grants", "--no-daemon", "--skills", secret, "--", "true"],
        &["init", "--skills", secret],
    ] {
        let refused = desk.say(line);
        assert_ne!(refused.code, 0, "{line:?}");
        assert!(refused.err.contains("SSH keys") && refused.err.contains("--force"), "{line:?}");
    }
    assert!(desk.ids().is_empty());
    let home = Folder::new(person, "someone");
    let mut init = desk.command(&["init", "--skills", secret, "--force"]);
    init.env("HOME", home.path());
    let made = crate::support::finish(init, Vec::new());
    assert!(made.done().starts_with("default  ready\n"), "{}", made.err);
    assert_eq!(desk.good(&["exec", "cat mnt/skills/id_secret"]), SECRET);
    let created = desk.json(&["audit", "--json", "--type", "session.created", "default"]);
    let why = text(&created[0]["data"]["skills"]["sensitive"]);
    assert!(why.contains("SSH keys"), "{created}");
    desk.good(&["delete"]);
}

/// A file system that is mounted somewhere, as long as this is there.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf) -> Self {
        std::fs::create_dir(&at).expect("the folder is ours");
        let options = ["-t", "tmpfs", "-o", "size=1m,mode=755", "none"];
        let done = Command::new("mount").args(options).arg(&at).status();
        assert!(done.expect("there is a mount").success());
        std::fs::write(at.join("file"), "below").expect("it is ours");
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

fn what_is_mounted_in_a_folder_is_told(person: Person) {
    // A keeper that is there before the mount sees it only where the host shares its mounts.
    let desk = Desk::apart(person);
    let folder = Folder::new(person, "outer");
    let mounted = Mounted::new(folder.path().join("below"));
    let id = &id("mounted", person);
    desk.make(id, &[]);
    let given = format!("{}:ro=outer", folder.path().display());
    let granted = desk.say(&["grant", id, &given]);
    let told = format!("`{}` is mounted inside the granted folder", mounted.0.display());
    assert!(granted.code == 0 && granted.err.contains(&told), "{}", granted.err);
    assert_eq!(desk.sh(id, "cat mnt/outer/below/file").good(), "below");
    let shown = desk.json(&["status", "--json", id]);
    let grants = shown["grants"].as_array().expect("there are some");
    let outer = grants.iter().find(|grant| grant["name"] == "outer").expect("it is granted");
    let path = mounted.0.to_str().expect("it is text");
    assert_eq!(outer["submounts"], serde_json::json!([path]));
    // Also where it is granted from the beginning, to a session and to a single command.
    let ran = desk.say(&["run", "--grant", &given, "--", "cat", "mnt/outer/below/file"]);
    let told = format!("`{}` is mounted inside", mounted.0.display());
    assert!(ran.err.contains(&told), "{}", ran.err);
    assert_eq!((ran.code, ran.text()), (0, "below"));
    // A folder without any is granted without a word about it.
    let plain = Folder::new(person, "plain");
    let granted = desk.say(&["grant", id, &format!("{}:ro=plain", plain.path().display())]);
    assert!(granted.code == 0 && !granted.err.contains("mounted"), "{}", granted.err);
}

//! The session named `default`, in its short forms. One test: there is only one such session.

use super::{Desk, is_there};
use crate::support::{finish, for_everyone};
use cowork_testbed::Person;

for_everyone!(the_default_session_has_short_forms);

fn the_default_session_has_short_forms(person: Person) {
    let desk = Desk::apart(person);
    let none = "cowork: there is no session `default`\n  hint: run `cowork init` first\n";
    for verb in ["stop", "start", "delete", "logs", "pause"] {
        desk.refused(&[verb], 1, none);
    }
    desk.refused(&["exec", "true"], 125, none);
    let daemon = desk.good(&["status"]);
    assert!(
        daemon.starts_with("daemon  running\n") && daemon.contains("`cowork init`"),
        "{daemon}"
    );
    desk.refused(&["shell"], 125, none);

    let home = cowork_testbed::Folder::new(person, "someone");
    let at_home = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.env("HOME", home.path());
        finish(command, Vec::new())
    };
    let made = at_home(&["init"]);
    assert!(made.done().starts_with("default  ready\n"), "{}", made.text());
    let workspace = home.path().join("cowork-workspace");
    assert!(workspace.is_dir());
    let status = desk.json(&["status", "--json"]);
    let limit = |name: &str| {
        let limits = status["limits"].as_array().expect("it is a list");
        limits.iter().find(|limit| limit["limit"] == name).map(|limit| limit["value"].clone())
    };
    // Four processors and four gigabytes, as far as the host has them.
    let host = cowork_sandbox::host::size();
    assert_eq!(limit("cpus"), Some(host.cpus.min(4).to_string().into()), "{status}");
    let memory = cowork_policy::Bytes::new(4 << 30).min(host.memory);
    assert_eq!(limit("memory"), Some(memory.to_string().into()), "{status}");
    assert_eq!(limit("disk"), Some("10G".into()), "{status}");
    assert_eq!(status["grants"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["grants"][0]["path"], workspace.to_str().expect("it is text"), "{status}");
    assert_eq!(status["grants"][0]["access"], "rw", "{status}");
    let pid = status["sandbox"]["pid"].clone();
    assert!(at_home(&["init"]).good().starts_with("default  ready\n"));
    assert_eq!(desk.json(&["status", "--json"])["sandbox"]["pid"], pid, "it is the same");

    let line = "cd /workspace && echo one | tr a-z A-Z > file; pwd; exit 3";
    let said = desk.say(&["exec", line]);
    assert_eq!((said.code, said.text(), said.err.as_str()), (3, "/workspace\n", ""));
    let file = std::fs::read_to_string(workspace.join("file"));
    assert_eq!(file.ok().as_deref(), Some("ONE\n"));
    assert_eq!(desk.good(&["exec", "--", "echo", "a  b"]), "a  b\n");
    let shell = finish(desk.command(&["shell"]), b"echo kept > ~/file; pwd; exit 4\n".to_vec());
    assert_eq!((shell.code, shell.text()), (4, "/sessions/default\n"), "{}", shell.err);

    assert_eq!(desk.good(&["stop"]), "");
    assert_eq!(desk.state("default"), "stopped");
    assert_eq!(desk.good(&["start"]), "");
    assert_eq!(desk.good(&["exec", "cat ~/file /workspace/file"]), "kept\nONE\n");
    assert_eq!(desk.good(&["stop"]), "");
    assert!(at_home(&["init"]).good().starts_with("default  ready\n"), "init starts it as well");
    let told = at_home(&["init", "--memory", "1G"]);
    told.done();
    let note = "cowork: the session `default` exists already: change its limits with `cowork set \
                default`\n";
    assert_eq!(told.err, note);

    assert_eq!(desk.good(&["delete"]), "");
    assert_eq!(desk.ids(), Vec::<String>::new());
    assert!(is_there(workspace.join("file")), "the workspace is the user's");
    desk.refused(&["delete"], 1, none);

    let elsewhere = home.path().join("elsewhere");
    let elsewhere = elsewhere.to_str().expect("it is text");
    let other = ["--workspace", elsewhere, "--cpus", "0.5", "--memory", "512M", "--disk", "2G"];
    let made = at_home(&[&["init", "--json"], &other[..]].concat());
    let status: serde_json::Value = serde_json::from_str(made.done()).expect("it is JSON");
    for (name, value) in [("cpus", "0.5"), ("memory", "512M"), ("disk", "2G")] {
        let limits = status["limits"].as_array().expect("it is a list");
        let found = limits.iter().find(|limit| limit["limit"] == name).expect("it has one");
        assert_eq!(found["value"], value, "{status}");
    }
    assert_eq!(desk.good(&["exec", "cd /workspace && touch file && pwd"]), "/workspace\n");
    assert!(is_there(home.path().join("elsewhere/file")));
    assert_eq!(desk.good(&["delete"]), "");
}

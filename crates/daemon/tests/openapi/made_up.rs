//! Requests that schemathesis makes up from the document, thousands of them, at a daemon with
//! sessions, commands, grants, files and pending requests.
//!
//! Every check of schemathesis is made. What it is told beside the document is in
//! `schemathesis.toml` and `hooks.py`; that each operation also succeeded at least once is checked
//! here. Left out is `shutdown`, which has a test of its own.

use crate::site::{Site, TOKEN, until};
use cowork_client::http::Method;
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest run of schemathesis; a run takes less than a minute.
const LONGEST: Duration = Duration::from_mins(10);

/// What does not succeed here. Attaching needs an upgrade, a rule for every session an answer to a
/// session that asks, a published port its number, and a task the program of an agent: none of these
/// is made up. The tests of tasks are in `crates/cli/tests/tasks`.
const APART: [&str; 11] = [
    "attach",
    "removeRule",
    "unpublishPort",
    "prepareAgent",
    "createTask",
    "showTask",
    "listMessages",
    "steerTask",
    "pauseTask",
    "resumeTask",
    "cancelTask",
];

/// Sessions that stay as they are; the others are stopped, changed and removed.
const STEADY: [&str; 2] = ["steady-one", "steady-two"];
const OTHERS: [&str; 3] = ["spare-one", "doomed-one", "stopped-one"];
/// Requests of each steady session.
const ASKED: usize = 6;

/// A name that is protected.
const PATTERN: &str = "*.made-up";

/// Asks for a folder from inside a session.
const ASK: &str = r#"
import http.client, json, socket
connection = http.client.HTTPConnection("cowork")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/cowork.sock")
wish = {"wanted": "a folder", "reason": "to look"}
connection.request("POST", "/v1/ask", json.dumps(wish), {"Content-Type": "application/json"})
assert connection.getresponse().status == 200
"#;

/// Makes what the requests are to meet; tells the hooks about it.
fn furnish(site: &Site, folder: &Folder) -> PathBuf {
    folder.write("docs/a.txt", "a text");
    folder.write("docs/folder/b.txt", "another");
    folder.write("more/c.txt", "a third");
    let docs = folder.path().join("docs");
    let more = folder.path().join("more");
    folder.write("stage/d.txt", "a fourth");
    folder.write("kept/e.txt", "a fifth");
    let grants = json!([
        { "path": docs },
        { "path": folder.path().join("stage"), "access": "staged" },
        { "path": folder.path().join("kept") },
    ]);
    for id in STEADY.iter().chain(&OTHERS) {
        let new = json!({ "id": id, "grants": grants });
        site.json(Method::Post, "/v1/sessions", Some(&new));
    }
    site.json(Method::Post, "/v1/sessions/stopped-one/stop", None);
    let commands = [
        json!({ "argv": ["cat"], "streams": { "stdin": "pipe" } }),
        json!({ "argv": ["sleep", "600"] }),
        json!({ "shell": "echo out; echo err >&2" }),
        json!({ "argv": ["sleep", "600"], "streams": { "stdin": "terminal" } }),
    ];
    for id in STEADY {
        let at = |rest: &str| format!("/v1/sessions/{id}/{rest}");
        for command in &commands {
            site.json(Method::Post, &at("commands"), Some(command));
        }
        let name = json!({ "pattern": PATTERN, "policy": "deny" });
        site.json(Method::Post, &at("protected"), Some(&name));
        for file in ["outputs/a.txt", "uploads/folder/b.txt"] {
            site.ask(Method::Put, &at(&format!("files/{file}")), None);
        }
        for _ in 0..ASKED {
            let ask = json!({ "argv": ["python3", "-c", ASK] });
            site.json(Method::Post, &at("commands"), Some(&ask));
        }
    }
    let pending = || site.json(Method::Get, "/v1/requests?state=pending", None);
    let wanted = ASKED * STEADY.len();
    until("every request waits", || pending()["items"].as_array().map(Vec::len) == Some(wanted));
    let sessions = [STEADY.as_slice(), &OTHERS].concat();
    let facts = json!({
        "url": format!("http://{}", site.address),
        "token": TOKEN,
        "sessions": sessions,
        "steady": STEADY,
        "spare": "spare-one",
        "doomed": "doomed-one",
        "requests": (1..=wanted).collect::<Vec<_>>(),
        "commands": (1..=commands.len()).collect::<Vec<_>>(),
        "grants": ["docs"],
        "secrets": ["made-up"],
        "patterns": [PATTERN],
        "urls": ["https://example.com/x"],
        "roots": ["outputs", "uploads", "docs"],
        "files": ["a.txt", "folder", "folder/b.txt"],
        "folders": [docs, more],
        "inside": ["/sessions/steady-one/mnt/docs/a.txt"],
        "bodies": bodies(&docs, &more),
        "tally": folder.path().join("tally.json"),
    });
    folder.write("facts.json", facts.to_string())
}

/// Requests that succeed, to be sent among those that are made up.
fn bodies(docs: &Path, more: &Path) -> Value {
    json!({
        "createSession": [
            {},
            { "grants": [{ "path": docs, "access": "ro" }, { "path": more }], "workspace": "work" },
            { "life": "once", "best_effort": true, "limits": { "memory": "1G", "cpus": "0.5" } },
            { "profile": "nested", "debugger": true, "labels": { "a": "b" } },
        ],
        "changeSession": [{ "labels": { "x": "y" }, "limits": { "scratch": "1G" } }],
        "startCommand": [
            { "argv": ["cat"] },
            { "shell": "echo out; exit 3", "timeout": "5s" },
            { "argv": ["sleep", "60"], "timeout": "100ms" },
            { "argv": ["tty"], "streams": { "stdin": "terminal" }, "size": { "columns": 9, "rows": 9 } },
            { "argv": ["pwd"], "cwd": "mnt/docs", "env": { "A": "b" }, "umask": 18 },
        ],
        "changeNetwork": [{ "add": [{ "host": "example.com" }] }, { "otherwise": "ask" }],
        "applyChanges": [{}],
        "discardChanges": [{}],
        "undo": [{}, { "all": true }, { "all": true, "on_conflict": "ours" }],
        "redo": [{}],
        "protect": [{ "pattern": "*.more", "policy": "ask" }],
        "publishPort": [{ "inside": 8000 }],
        "ask": [{ "wanted": "a folder", "reason": "to look" }],
        "setSecret": [{ "value": "a value of some length", "hosts": ["example.com"] }],
        "decide": [
            { "decision": "allow_session", "path": docs, "name": "again" },
            { "decision": "allow_once", "path": more, "access": "ro" },
            { "decision": "reject_always", "note": "no" },
        ],
    })
}

/// Runs schemathesis to its end.
fn make_up(site: &Site, folder: &Folder, facts: &Path) {
    let program = std::env::var_os("COWORK_SCHEMATHESIS");
    let program = program.expect("COWORK_SCHEMATHESIS says where schemathesis is");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi");
    let log = std::fs::File::create(folder.path().join("log")).expect("the folder is ours");
    let mut command = Command::new(program);
    command
        .arg("--config-file")
        .arg(here.join("schemathesis.toml"))
        .args(["run", &format!("http://{}/v1/openapi.json", site.address)])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--checks", "all", "--exclude-operation-id", "shutdown", "--no-color"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("HOME", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", here.join("hooks.py"))
        .env("COWORK_FUZZ", facts)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("it is open"))
        .stderr(log);
    let mut child = command.spawn().expect("schemathesis is there");
    let start = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        if start.elapsed() > LONGEST {
            drop(child.kill());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let said = folder.read("log").unwrap_or_default();
    println!("{said}");
    assert!(status.success(), "schemathesis: {status}");
}

/// Every operation was tried, succeeded at least once, and never failed.
fn check(folder: &Folder) {
    let tally = folder.read("tally.json").expect("the hooks wrote it");
    let tally: BTreeMap<String, BTreeMap<String, u32>> =
        serde_json::from_str(&tally).expect("it is JSON");
    let document: Value =
        serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("it is JSON");
    let operations = document["paths"].as_object().expect("it has paths").values();
    let operations = operations.flat_map(|methods| methods.as_object().expect("methods").values());
    let names = operations.map(|operation| operation["operationId"].as_str().expect("an id"));
    // The document was asked for to begin with.
    for name in names.filter(|name| !["shutdown", "openapi"].contains(name)) {
        let answers = tally.get(name).unwrap_or_else(|| panic!("{name} was not tried"));
        println!("{name}: {answers:?}");
        assert!(!answers.keys().any(|status| status.starts_with('5')), "{name}: {answers:?}");
        let good = answers.keys().any(|status| status.starts_with('2'));
        let apart = APART.contains(&name);
        assert!(good || apart, "{name} never succeeded: {answers:?}");
    }
}

fn made_up_requests_meet_no_failure(person: Person) {
    let site = Site::new(person);
    let folder = Folder::new(person, "made-up");
    let before = site.info().expect("it answers").pid;
    let facts = furnish(&site, &folder);
    make_up(&site, &folder, &facts);
    check(&folder);
    assert_eq!(site.info().expect("it still answers").pid, before);
    assert!(!site.said().contains("panicked"), "{}", site.said());
    let verified = site.json(Method::Get, "/v1/audit/verify", None);
    assert_eq!(verified["whole"], true, "{verified}");
}

#[test]
#[ignore = "needs schemathesis; `cargo xtask test` installs it and runs this"]
fn made_up_requests_meet_no_failure_as_root() {
    made_up_requests_meet_no_failure(Person::Root);
}

#[test]
#[ignore = "needs schemathesis; `cargo xtask test` installs it and runs this"]
fn made_up_requests_meet_no_failure_as_user() {
    made_up_requests_meet_no_failure(Person::User);
}

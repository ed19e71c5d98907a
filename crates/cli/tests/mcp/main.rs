//! The tools of `cowork mcp`, driven by the official client of MCP for Python: over standard input
//! and output and over HTTP at the daemon, in the newest revision and in older ones, as root and as
//! an ordinary user. What is called and checked is in `client.py`.
//!
//! `cargo xtask test` installs the client; `COWORK_MCP_CLIENT` names the folder of Python's packages
//! that it is in, and `COWORK_MCP_INSPECTOR` that of npm's packages with the protocol's inspector.
//! Without them these tests are ignored, and counted as such.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "what is not in an answer reads as null")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

use cowork_testbed::{Folder, Person, programs};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time that a scenario takes, on a slow and busy machine.
const DEADLINE: Duration = Duration::from_mins(5);
/// The newest revision of the protocol.
const NEWEST: &str = "2026-07-28";

/// The server's program, beside the others.
fn server() -> PathBuf {
    programs().join("cowork-mcp")
}

/// The packages of the client, copied to where an ordinary user can read them.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let from = std::env::var_os("COWORK_MCP_CLIENT").expect(
            "`COWORK_MCP_CLIENT` names the folder of Python's packages with the client of MCP: see \
             `cargo xtask test`",
        );
        let to = server().with_file_name("packages");
        let copied = Command::new("cp").arg("-r").args([Path::new(&from), &to]).status();
        assert!(copied.expect("cp is there").success(), "cannot copy {}", to.display());
        to
    })
}

/// The client with a scenario, started by a person.
fn client(person: Person, words: [&str; 3], folder: &Folder) -> Command {
    let program = server().with_file_name("cowork");
    let script = server().with_file_name("client.py");
    // The source may lie where an ordinary user cannot read it.
    std::fs::write(&script, include_str!("client.py")).expect("the folder is ours");
    let mut command = person.command("/usr/bin/python3");
    command.env("PYTHONPATH", packages());
    command.arg(script).args(words).arg(program).arg(folder.path());
    command.current_dir(folder.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn wait(child: &mut Child) -> bool {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status.success();
        }
        if Instant::now() > end {
            child.kill().expect("it is our child");
            panic!("the client did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn run(person: Person, words: [&str; 3]) {
    let folder = Folder::new(person, "granted");
    let mut child = client(person, words, &folder).spawn().expect("Python is there");
    assert!(wait(&mut child), "{words:?}: see above");
    assert_eq!(servers(folder.path()), Vec::<u32>::new(), "no server is left");
}

/// Servers that were started for a folder's test.
fn servers(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ours = |pid: &u32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        let here = std::fs::read_link(format!("/proc/{pid}/cwd"));
        program.is_ok_and(|program| program == server()) && here.is_ok_and(|here| here == folder)
    };
    pids.filter(ours).collect()
}

fn every_tool(person: Person) {
    run(person, ["tour", "stdio", NEWEST]);
    run(person, ["tour", "stdio", "legacy"]);
}

fn every_tool_over_http(person: Person) {
    run(person, ["tour", "http", NEWEST]);
    run(person, ["tour", "http", "legacy"]);
}

fn refusals_are_clear(person: Person) {
    run(person, ["refusals", "stdio", "auto"]);
}

fn refusals_are_clear_over_http(person: Person) {
    run(person, ["refusals", "http", "auto"]);
}

fn staged_folders_are_read_as_the_session_sees_them(person: Person) {
    run(person, ["staged", "stdio", "auto"]);
}

fn the_user_is_asked_for_folders(person: Person) {
    run(person, ["asking", "stdio", "auto"]);
    run(person, ["asking", "http", "legacy"]);
}

fn commands_tell_how_they_go_and_end_with_their_call(person: Person) {
    run(person, ["progress", "stdio", "auto"]);
    run(person, ["progress", "stdio", "legacy"]);
    run(person, ["progress", "http", "auto"]);
}

fn bad_arguments_are_said_to_be(person: Person) {
    run(person, ["bad", "stdio", "auto"]);
    run(person, ["bad", "http", "legacy"]);
}

fn older_revisions_are_spoken(person: Person) {
    run(person, ["raw", "stdio", "legacy"]);
}

fn on_tcp_the_token_is_needed(person: Person) {
    run(person, ["address", "http", "auto"]);
}

/// Whoever kills the client ends the server, and with it what it ran.
fn a_killed_client_leaves_nothing_running(person: Person) {
    let folder = Folder::new(person, "granted");
    let mut command = client(person, ["left", "stdio", "auto"], &folder);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("Python is there");
    let mut session = String::new();
    let out = child.stdout.take().expect("it is a pipe");
    BufReader::new(out).read_line(&mut session).expect("it says the session");
    let session = session.trim();
    assert!(!session.is_empty(), "the client did not get so far");
    assert_eq!(servers(folder.path()).len(), 1);
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    let end = Instant::now() + Duration::from_mins(1);
    while !servers(folder.path()).is_empty() {
        assert!(Instant::now() < end, "the server stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut status = person.cowork();
    let status = status.args(["ls", "--json"]).output().expect("`cowork` is there");
    let list = String::from_utf8_lossy(&status.stdout).into_owned();
    let sessions: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
    let ours = sessions.as_array().into_iter().flatten();
    let ours: Vec<_> = ours.filter(|one| one["id"] == session).collect();
    let [own] = ours.as_slice() else { panic!("its files stay: {list}") };
    assert_eq!(own["state"], "stopped", "{list}");
    assert_eq!(own["running"], serde_json::json!([]), "{list}");
    let removed = person.cowork().args(["rm", session]).status().expect("`cowork` is there");
    assert!(removed.success());
}

/// The inspector's answer to one method, which it checks against the protocol's schemas.
#[track_caller]
fn inspect(person: Person, folder: &Folder, words: &[&str]) -> serde_json::Value {
    static INSPECTOR: OnceLock<PathBuf> = OnceLock::new();
    let from = std::env::var_os("COWORK_MCP_INSPECTOR").expect(
        "`COWORK_MCP_INSPECTOR` names the folder of npm's packages with the inspector: see \
         `cargo xtask test`",
    );
    let packages = INSPECTOR.get_or_init(|| {
        let to = server().with_file_name("inspector");
        let copied = Command::new("cp").arg("-r").args([Path::new(&from), &to]).status();
        assert!(copied.expect("cp is there").success(), "cannot copy {}", to.display());
        // It looks for the version of the repository that it comes from.
        let beside = to.join("node_modules/@modelcontextprotocol/package.json");
        std::fs::write(beside, r#"{"name": "inspector", "version": "1"}"#)
            .expect("the copy is ours");
        to
    });
    let program = packages.join("node_modules/@modelcontextprotocol/inspector-cli/build/cli.js");
    let mut command = person.command("node");
    command.arg(program).arg("--cli").arg(server().with_file_name("cowork")).arg("mcp");
    let done = command.args(words).current_dir(folder.path()).output().expect("Node is there");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{words:?}: {out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}: {out}\n{err}"))
}

/// The inspector reads what the server offers, and its answers to calls good and bad.
fn the_inspector_finds_nothing_wrong(person: Person) {
    let folder = Folder::new(person, "granted");
    let listed = inspect(person, &folder, &["--method", "tools/list"]);
    let tools = listed["tools"].as_array().expect("a list");
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    for name in ["create_session", "run_command", "request_cowork_directory", "present_files"] {
        let tool = named(name).unwrap_or_else(|| panic!("no {name} in {listed}"));
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["annotations"].is_object(), "{tool}");
    }
    let list = ["--method", "tools/call", "--tool-name", "list_sessions"];
    let answer = inspect(person, &folder, &list);
    assert_ne!(answer["isError"], true, "{answer}");
    assert!(answer["structuredContent"].is_object(), "{answer}");
    let read = ["--method", "tools/call", "--tool-name", "read_file"];
    let bad = [&read[..], &["--tool-arg", "session=nowhere", "--tool-arg", "path=a"]].concat();
    let answer = inspect(person, &folder, &bad);
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()));
}

/// Makes each function a test for both persons.
macro_rules! for_everyone {
    ($($name:ident),+ $(,)?) => {
        mod as_root {
            $(
                #[test]
                #[ignore = "needs clients of MCP, which `cargo xtask test` installs"]
                fn $name() { super::$name(cowork_testbed::Person::Root); }
            )+
        }
        mod as_user {
            $(
                #[test]
                #[ignore = "needs clients of MCP, which `cargo xtask test` installs"]
                fn $name() { super::$name(cowork_testbed::Person::User); }
            )+
        }
    };
}

for_everyone! {
    every_tool,
    every_tool_over_http,
    refusals_are_clear,
    refusals_are_clear_over_http,
    staged_folders_are_read_as_the_session_sees_them,
    the_user_is_asked_for_folders,
    commands_tell_how_they_go_and_end_with_their_call,
    bad_arguments_are_said_to_be,
    older_revisions_are_spoken,
    on_tcp_the_token_is_needed,
    a_killed_client_leaves_nothing_running,
    the_inspector_finds_nothing_wrong,
}

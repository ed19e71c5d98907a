//! The real Codex in a session.

use crate::for_everyone;
use crate::model::outputs;
use crate::site::Site;
use cowork_testbed::Person;

for_everyone!(
    #[ignore = "needs Codex from the registry: `cargo xtask test`"]
    it_reads_writes_and_runs_in_the_folder,
    #[ignore = "needs Codex from the registry: `cargo xtask test`"]
    a_program_of_the_model_runs_too,
    #[ignore = "needs Codex from the registry: `cargo xtask test`"]
    it_does_a_task,
);

const PACKAGE: &str = if cfg!(target_arch = "aarch64") {
    "@openai/codex-linux-arm64"
} else {
    "@openai/codex-linux-x64"
};
const PROGRAM: &str = if cfg!(target_arch = "aarch64") {
    "vendor/aarch64-unknown-linux-musl/bin/codex"
} else {
    "vendor/x86_64-unknown-linux-musl/bin/codex"
};
const KEY: &str = "sk-proj-4f6b2a9c7d1e8f3059abYXCVBNMqwertzuiopASDFGHJ";

/// A model that Codex does not know is given plain tools.
fn it_reads_writes_and_runs_in_the_folder(person: Person) {
    turn(person, "codex-plain", &["--model", "ours"]);
}

fn a_program_of_the_model_runs_too(person: Person) {
    turn(person, "codex-program", &[]);
}

fn it_does_a_task(person: Person) {
    let site = Site::of(person);
    site.install(PACKAGE, PROGRAM, "codex");
    let desk = site.desk("codex-task", "input.txt", "what the file says\n");
    let secret = ["--host", "api.openai.com", "--env", "OPENAI_API_KEY"];
    site.tell(&desk, &[&["secret", "set", "openai"][..], &secret].concat(), KEY).good();
    let ask = ["ask", "--agent", "codex", "--model", "ours", "work in desk <codex-task>"];
    let said = site.say(&desk, &ask);
    assert!(said.out.contains("the model got 1 results, and the key sk-"), "{said:?}");
    assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "the key came back");
    for part in ["> ", "written.txt\n", "reached  api.openai.com"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let written = site.folder.read("codex-task/written.txt");
    assert_eq!(written.as_deref(), Some("by the model\n"));
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    let tasks: serde_json::Value =
        serde_json::from_str(&site.say(&desk, &["tasks", id, "--json"]).good()).expect("JSON");
    assert_eq!((&tasks[0]["state"], &tasks[0]["agent"]), (&"done".into(), &"codex".into()));
    assert!(tasks[0]["conversation"].is_string(), "{tasks}");
    // The next one goes on with the conversation.
    site.say(&desk, &["ask", "--agent", "codex", "--model", "ours", "and once more"]).good();
    let last = site.seen().into_iter().rev().find(|seen| seen.path == "/v1/responses");
    let told = last.expect("it arrived").body.to_string();
    assert!(told.contains("work in desk <codex-task>"), "{told}");
    site.nowhere(&desk, id, KEY);
}

fn turn(person: Person, name: &str, more: &[&str]) {
    let site = Site::of(person);
    site.install(PACKAGE, PROGRAM, "codex");
    let desk = site.desk(name, "input.txt", "what the file says\n");
    let secret = ["--host", "api.openai.com", "--env", "OPENAI_API_KEY"];
    site.tell(&desk, &[&["secret", "set", "openai"][..], &secret].concat(), KEY).good();
    let prompt = format!("work in desk <{name}>");
    let mut words = vec!["codex", "--", "exec", "--json", "--skip-git-repo-check"];
    words.extend(more);
    words.push(&prompt);
    let said = site.say(&desk, &words).good();
    assert!(said.contains("the model got 1 results, and the key sk-"), "{said}");
    assert!(!said.contains(KEY), "the key came back: {said}");
    let written = site.folder.read(&format!("{name}/written.txt"));
    assert_eq!(written.as_deref(), Some("by the model\n"));
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    let seen = site.seen();
    let turns: Vec<_> = seen.iter().filter(|seen| seen.path == "/v1/responses").collect();
    assert!(turns.iter().all(|seen| seen.key == KEY && seen.host == "api.openai.com"));
    let told: String = turns.iter().map(|seen| outputs(&seen.body).concat()).collect();
    for part in ["what the file says", "42", &format!("/sessions/{id}/mnt/{name}")] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(session["grants"][1]["path"], Site::package(PACKAGE).as_str());
    site.nowhere(&desk, id, KEY);
}

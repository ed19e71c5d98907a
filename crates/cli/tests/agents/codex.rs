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

//! `cowork ask` with the real Claude Code: questions are requests, and a conversation goes on.

use crate::for_everyone;
use crate::site::{Said, Site};
use cowork_testbed::Person;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    #[ignore = "needs Claude Code from the registry: `cargo xtask test`"]
    a_task_asks_before_it_writes_and_runs,
);

const PACKAGE: &str = if cfg!(target_arch = "aarch64") {
    "@anthropic-ai/claude-code-linux-arm64"
} else {
    "@anthropic-ai/claude-code-linux-x64"
};
const KEY: &str = "sk-ant-api03-7d1e8f3059ab4f6b2a9cASKINGkjhgfdsapoiuztr";

fn json(site: &Site, desk: &Path, words: &[&str]) -> Value {
    let said = site.say(desk, words).good();
    serde_json::from_str(&said).expect("it is JSON")
}

/// Runs `cowork ask`, and says yes to every question about a tool: what came of it, and the questions.
fn ask(site: &Site, desk: &Path, prompt: &str) -> (Said, Vec<String>) {
    let mut command = site.cowork(desk, &["ask", prompt]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is there");
    let begin = Instant::now();
    let mut asked = Vec::new();
    while child.try_wait().expect("it is ours").is_none() {
        assert!(begin.elapsed() < Duration::from_mins(2), "it takes too long: {asked:?}");
        let pending = json(site, desk, &["requests", "--json"]);
        for request in pending.as_array().expect("a list") {
            let wanted = request["wanted"].as_str().expect("it is text");
            if request["kind"] == "tool" && wanted.contains("/mnt/asked/") {
                asked.push(wanted.to_owned());
                let number = request["id"].to_string();
                site.say(desk, &["decide", &number, "allow"]).good();
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().expect("it ends");
    (Said::of(&output), asked)
}

fn a_task_asks_before_it_writes_and_runs(person: Person) {
    let site = Site::of(person);
    site.install(PACKAGE, "claude", "claude");
    let desk = site.desk("asked", "input.txt", "what the file says\n");
    let secret = ["--host", "api.anthropic.com", "--env", "ANTHROPIC_API_KEY"];
    site.tell(&desk, &[&["secret", "set", "anthropic"][..], &secret].concat(), KEY).good();
    let (said, asked) = ask(&site, &desk, "work in desk <asked>");
    assert!(said.out.contains("the model got 3 results"), "{said:?}");
    assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "the key came back");
    assert!(asked.iter().any(|wanted| wanted.starts_with("Write: ")), "{asked:?}");
    assert!(asked.iter().any(|wanted| wanted.starts_with("Bash: ")), "{asked:?}");
    assert_eq!(site.folder.read("asked/written.txt").as_deref(), Some("by the model\n"));
    assert_eq!(site.folder.read("asked/ran.txt").as_deref(), Some("ran\n"));
    for part in ["> Read: ", "> Write: ", "> Bash: ", "added    ", "reached  api.anthropic.com"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    assert!(site.seen().iter().any(|seen| seen.key == KEY), "the model saw the real key");
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    // The second task is of the same conversation, and of the same process.
    let (again, _) = ask(&site, &desk, "and once more in desk <asked>");
    assert!(again.out.contains("the model got 3 results"), "{again:?}");
    let tasks = json(&site, &desk, &["tasks", id, "--json"]);
    assert_eq!(tasks[0]["command"], tasks[1]["command"], "{tasks}");
    assert_eq!(tasks[0]["conversation"], tasks[1]["conversation"], "{tasks}");
    assert!(tasks[0]["conversation"].is_string() && tasks[1]["usage"]["turns"].is_number());
    // A process that is gone is replaced, and the conversation goes on.
    let command = tasks[1]["command"].to_string();
    site.say(&desk, &["cancel", id, &command]).good();
    let (third, _) = ask(&site, &desk, "and a last time in desk <asked>");
    assert!(third.out.contains("the model got 3 results"), "{third:?}");
    let tasks = json(&site, &desk, &["tasks", id, "--json"]);
    assert_ne!(tasks[1]["command"], tasks[2]["command"]);
    site.nowhere(&desk, id, KEY);
}

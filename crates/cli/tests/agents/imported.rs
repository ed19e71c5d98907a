//! What `claude` is signed in with on the host is taken over, and `cowork claude` works with it: by
//! then it has expired, and the host has got another one.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

for_everyone!(
    a_login_that_was_taken_over_is_the_agents_credential,
    #[ignore = "needs Claude Code from the registry: `cargo xtask test`"]
    a_turn_is_done_with_a_login_that_was_taken_over,
);

const PACKAGE: &str = if cfg!(target_arch = "aarch64") {
    "@anthropic-ai/claude-code-linux-arm64"
} else {
    "@anthropic-ai/claude-code-linux-x64"
};
const OLD: &str = "sk-ant-oat01-59ab4f6b2a9c7d91e8f30OLDlkjhgfdsapoiqwertz";
const REFRESH: &str = "sk-ant-ort01-7d91e8f3059ab4f6b2a9cREFRESHhgfdsapoiyxcv";
const ROTATED: &str = "sk-ant-ort01-b2a9c7d91e8f3059ab4f6ROTATEDgfdsapoiyxcvb";
const FRESH: &str = "sk-ant-oat01-a9c7d91e8f3059ab4f6b2FRESHfdsapoiyxcvbnml";

/// Takes over a login that has expired, and lets the place that renews it answer.
fn take_over(site: &Site, desk: &Path) {
    let renewed =
        json!({ "access_token": FRESH, "refresh_token": ROTATED, "expires_in": 28_800_u32 });
    site.offer("/v1/oauth/token", renewed.to_string().into_bytes());
    let login = json!({ "claudeAiOauth": {
        "accessToken": OLD, "refreshToken": REFRESH, "expiresAt": 1_000, "scopes": ["user:inference"],
    } });
    let file = site.folder.write("login/.credentials.json", login.to_string());
    let file = file.to_str().expect("it is UTF-8");
    site.say(desk, &["secret", "import", "claude", "--from", file]).good();
    let listed = site.say(desk, &["agents", "--json"]).good();
    let all: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    let claude = all.as_array().into_iter().flatten().find(|agent| agent["name"] == "claude");
    let secrets = claude.expect("it is built in")["credentials"][0]["secrets"].clone();
    let stored = secrets.as_array().into_iter().flatten().any(|secret| secret["stored"] == true);
    assert!(stored, "{secrets}");
}

/// Asserts that the model was shown the renewed token alone, and the session none.
#[track_caller]
fn look(site: &Site, desk: &Path, said: &str) {
    let seen = site.seen();
    let asked: Vec<_> = seen.iter().filter(|seen| seen.path == "/v1/oauth/token").collect();
    assert_eq!(asked.len(), 1, "it is renewed once: {asked:?}");
    assert_eq!(asked[0].host, "platform.claude.com");
    assert_eq!(asked[0].body["refresh_token"], REFRESH);
    let mut calls = seen.iter().filter(|seen| seen.path.starts_with("/v1/messages"));
    assert!(calls.clone().next().is_some(), "{seen:?}");
    assert!(calls.all(|seen| seen.key == FRESH && seen.host == "api.anthropic.com"));
    let session = site.session_in(desk);
    let id = session["id"].as_str().expect("an id");
    for token in [OLD, REFRESH, ROTATED, FRESH] {
        assert!(!said.contains(token), "a token came back: {said}");
        site.nowhere(desk, id, token);
    }
}

fn a_login_that_was_taken_over_is_the_agents_credential(person: Person) {
    let site = Site::alone(person);
    let desk = site.desk("taken", "input.txt", "text\n");
    let none = site.say(&desk, &["claude", "--program", "/usr/bin/true"]);
    assert_eq!(none.code, 125);
    assert!(none.err.contains("`cowork secret import claude`"), "{}", none.err);
    let text = "#!/bin/sh\nenv | grep TOKEN; echo \"in $COWORK_SESSION\"; exec curl -sS -H \"Authorization: Bearer \
                $CLAUDE_CODE_OAUTH_TOKEN\" https://api.anthropic.com/v1/messages/count\n";
    let program = site.folder.write("programs/claude/claude", text);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
    site.offer("/v1/messages/count", b"counted\n".to_vec());
    take_over(&site, &desk);
    let said =
        site.say(&desk, &["claude", "--program", program.to_str().expect("it is UTF-8")]).good();
    assert!(said.contains("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-"), "{said}");
    assert!(said.ends_with("counted\n"), "{said}");
    look(&site, &desk, &said);
    // The session can be named, wherever that is said.
    let elsewhere = site.desk("elsewhere", "input.txt", "");
    let session = site.session_in(&desk);
    let id = session["id"].as_str().expect("an id");
    let program = program.to_str().expect("it is UTF-8");
    let again = site.say(&elsewhere, &["claude", id, "--program", program]).good();
    assert!(again.contains(&format!("in {id}\n")), "{again}");
    let listed = site.say(&elsewhere, &["ls", "--json"]).good();
    assert!(!listed.contains("/elsewhere\""), "no other session was made: {listed}");
    let nobody = site.say(&elsewhere, &["claude", "no-such-session", "--program", program]);
    assert!(nobody.code != 0 && nobody.err.contains("no-such-session"), "{nobody:?}");
}

fn a_turn_is_done_with_a_login_that_was_taken_over(person: Person) {
    let site = Site::alone(person);
    site.install(PACKAGE, "claude", "claude");
    let desk = site.desk("signed", "input.txt", "what the file says\n");
    take_over(&site, &desk);
    let prompt = ["-p", "work in desk <signed>", "--allowedTools", "Read,Write,Bash"];
    let said = site.say(&desk, &[&["claude", "--"][..], &prompt].concat()).good();
    assert!(said.contains("the model got 3 results"), "{said}");
    look(&site, &desk, &said);
}

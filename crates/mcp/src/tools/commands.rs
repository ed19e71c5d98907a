//! Running commands, and reading what they wrote.

use super::{About, Answer, Effect, Entry, World};
use crate::call::{Call, target};
use crate::inside::{Kept, Ran, Work, run};
use crate::refusal::Refusal;
use crate::text::{harmless, shown};
use cowork_client::http::Request;
use cowork_client::types::{Command, CommandState, NewCommand, Raw};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;

/// Most bytes of each stream in the answer to a command.
const MAX_OUTPUT: usize = 32 * 1024;
/// Most bytes of output in one answer to `read_output`.
const MAX_PART: u64 = 64 * 1024;
/// Longest input of a command, in bytes.
const MAX_STDIN: usize = 8 * 1024 * 1024;
/// Seconds that a command has without a limit of its own.
const DEFAULT_TIME: u32 = 600;
/// Most seconds that a command can have.
const MAX_TIME: u32 = 86_400;

pub(super) fn tools() -> Vec<Entry> {
    let run = About {
        name: "run_command",
        title: "Run a command",
        description: "Runs a command in a session and waits for its end. Give either `argv`, the \
            words as they are, or `shell`, a line for /bin/sh. It starts in the session's own \
            folder unless `cwd` says otherwise, e.g. `mnt/NAME` for a granted folder. What it \
            changes in `rw` folders is recorded: see list_changes and undo_changes. Of each of \
            stdout and stderr at most 32 KiB come back, from the beginning and the end; read_output \
            gives the rest. A command that does not end by itself is ended after \
            `timeout_seconds` (600). Permission denied on a write can mean that the user has \
            protected the name.",
        effect: Effect::Destroys,
        world: World::Open,
    };
    let output = About {
        name: "read_output",
        title: "Read a command's output",
        description: "Reads what a command of run_command wrote, from an offset on, at most \
            64 KiB at a time: `next` says where to go on.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    vec![Entry::new(&run, run_command), Entry::new(&output, read_output)]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The words of the command; the first is the program.
    #[serde(default)]
    #[schemars(length(min = 1, max = 10_000))]
    argv: Option<Vec<String>>,
    /// In place of `argv`: a line for the shell.
    #[serde(default)]
    #[schemars(length(min = 1, max = 131_072))]
    shell: Option<String>,
    /// The folder to start in; relative ones are taken from the session's own.
    #[serde(default)]
    cwd: Option<String>,
    /// Variables of its own.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What it reads; nothing without it.
    #[serde(default)]
    stdin: Option<String>,
    /// Seconds after which it is ended.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_TIME))]
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
struct Done {
    /// The session it ran in.
    session: String,
    /// Its number there.
    command: u32,
    /// Its exit status, or 128+n if signal n ended it; none if the sandbox ended under it.
    exit_code: Option<u8>,
    /// Whether its time was over.
    timed_out: bool,
    /// Why it ended, where its exit status does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Standard output, as far as it fits.
    stdout: String,
    /// Standard error, likewise.
    stderr: String,
    /// All bytes of standard output.
    stdout_bytes: u64,
    /// All bytes of standard error.
    stderr_bytes: u64,
    /// Whether something was left out: `read_output` gives it.
    truncated: bool,
    /// How long it took.
    milliseconds: u64,
}

impl Answer for Done {
    fn text(&self) -> Option<String> {
        let mut text = match self.exit_code {
            Some(code) => format!("exit code {code}"),
            None => "no exit code".to_owned(),
        };
        if let Some(reason) = &self.reason {
            cowork_sys::ignore(write!(text, " ({reason})"));
        }
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                cowork_sys::ignore(write!(text, "\n--- {name}\n{stream}"));
            }
        }
        Some(text)
    }
}

fn run_command(call: &Call, wanted: &Run) -> Result<Done, Refusal> {
    let bad = |sentence: String| Err(Refusal::new("bad-arguments", sentence));
    if wanted.argv.as_ref().is_some_and(Vec::is_empty)
        || wanted.argv.is_some() == wanted.shell.is_some()
    {
        return bad("either `argv` or `shell` is wanted".to_owned());
    }
    if wanted.stdin.as_ref().is_some_and(|stdin| stdin.len() > MAX_STDIN) {
        return bad(format!("`stdin` has at most {MAX_STDIN} bytes"));
    }
    let time = wanted.timeout_seconds.unwrap_or(DEFAULT_TIME);
    if time == 0 || time > MAX_TIME {
        return bad(format!("`timeout_seconds` is between 1 and {MAX_TIME}"));
    }
    let command = NewCommand {
        argv: wanted.argv.clone().unwrap_or_default().into_iter().map(Raw::Text).collect(),
        shell: wanted.shell.clone(),
        cwd: wanted.cwd.clone().map(Raw::Text),
        env: wanted.env.clone().into_iter().map(|(name, value)| (name, Raw::Text(value))).collect(),
        timeout: Some(format!("{time}s")),
        ..NewCommand::default()
    };
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let work =
        Work { command, stdin: wanted.stdin.clone().map(String::into_bytes), keep: MAX_OUTPUT };
    let Ran { command, stdout, stderr } = run(call, &mut client, &session, work)?;
    Ok(done(command, stdout, stderr))
}

fn done(command: Command, stdout: Kept, stderr: Kept) -> Done {
    let code = command.reason.as_ref().map(|reason| reason.code.as_str());
    let timed_out = matches!(code, Some("timeout" | "time-over"));
    let (stdout_bytes, stderr_bytes) = (stdout.total, stderr.total);
    let (stdout, cut_out) = joined(stdout, "stdout");
    let (stderr, cut_err) = joined(stderr, "stderr");
    Done {
        session: command.session,
        command: command.number,
        exit_code: command.code,
        timed_out,
        reason: command.reason.map(|reason| harmless(&reason.sentence)),
        stdout,
        stderr,
        stdout_bytes,
        stderr_bytes,
        truncated: cut_out || cut_err,
        milliseconds: command.usage.map_or(0, |usage| usage.wall_ms),
    }
}

/// What is kept of a stream, with a word about what is missing in the middle.
fn joined(kept: Kept, name: &str) -> (String, bool) {
    let (head, missing, tail) = kept.parts();
    if missing == 0 {
        let whole = [head, tail].concat();
        return (shown(&whole), false);
    }
    let gap = format!(
        "\n[{missing} bytes are left out here: read_output with stream `{name}` and from {}]\n",
        head.len()
    );
    (format!("{}{gap}{}", shown(&head), shown(&tail)), true)
}

/// Which stream is wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Stream {
    #[default]
    Stdout,
    Stderr,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadOutput {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The number of the command, as `run_command` gave it.
    #[schemars(range(min = 1))]
    command: u32,
    /// Which stream.
    #[serde(default)]
    stream: Stream,
    /// How many bytes of the stream are left out.
    #[serde(default)]
    from: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The output.
    text: String,
    /// Where to go on; none if this was all there is.
    next: Option<u64>,
    /// Whether the command still runs.
    running: bool,
}

impl Answer for Output {
    fn text(&self) -> Option<String> {
        let mut text = self.text.clone();
        if let Some(next) = self.next {
            cowork_sys::ignore(write!(text, "\n[there is more: from {next}]"));
        }
        Some(text)
    }
}

fn read_output(call: &Call, wanted: &ReadOutput) -> Result<Output, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let path = format!("/commands/{}", wanted.command);
    let command: Command = client.get(target(&session.id, &path))?;
    let stream = match wanted.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let query = Query::new(target(&session.id, &format!("{path}/output")))
        .with("stream", stream)
        .with("from", wanted.from.to_string());
    let response = client.open(&Request::get(query), None)?;
    let mut bytes = Vec::new();
    response.take(MAX_PART + 1).read_to_end(&mut bytes).map_err(|error| {
        Refusal::new("no-daemon", format!("cannot read the daemon's answer: {error}"))
    })?;
    let most = usize::try_from(MAX_PART).unwrap_or(usize::MAX);
    let more = bytes.len() > most;
    bytes.truncate(most);
    Ok(Output {
        text: shown(&bytes),
        next: more.then_some(wanted.from.saturating_add(MAX_PART)),
        running: matches!(
            command.state,
            CommandState::Starting | CommandState::Running | CommandState::Paused
        ),
    })
}

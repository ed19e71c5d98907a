//! Commands of a session.

use super::{ID, Process, Raw, SPAN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one of a command's streams is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// The null device.
    Null,
    /// A pipe.
    #[default]
    Pipe,
    /// The command's terminal.
    Terminal,
    /// For standard error: wherever standard output goes.
    Stdout,
}

/// The streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Streams {
    /// Standard input: `null` unless somebody will send any.
    pub stdin: StreamKind,
    /// Standard output.
    pub stdout: StreamKind,
    /// Standard error.
    pub stderr: StreamKind,
}

impl Default for Streams {
    fn default() -> Self {
        Self { stdin: StreamKind::Null, stdout: StreamKind::Pipe, stderr: StreamKind::Pipe }
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// A command to start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCommand {
    /// Its words; the first is the program.
    #[schemars(length(max = 65_536))]
    pub argv: Vec<Raw>,
    /// In place of words: a line for the shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The folder it starts in, in the session; relative ones are taken from the session's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Raw>,
    /// Variables of its own.
    #[schemars(extend("propertyNames" = { "pattern": "^[^=]+$" }))]
    pub env: BTreeMap<String, Raw>,
    /// Its streams. With any of them a terminal, it has one of its own.
    pub streams: Streams,
    /// The size of its terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Time until it is cancelled, e.g. `90s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub timeout: Option<String>,
    /// Permission bits that its new files do not get, as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 511))]
    pub umask: Option<u32>,
}

/// Where a command is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommandState {
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// Its processes stand still.
    Paused,
    /// It has ended.
    Exited,
    /// It could not be started; the reason says why.
    Refused,
    /// The sandbox ended under it.
    Interrupted,
}

/// A command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// Its number in the session.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// The session.
    #[schemars(regex(pattern = ID))]
    pub session: String,
    /// Its words.
    pub argv: Vec<Raw>,
    /// The folder it started in, in the session.
    pub cwd: Raw,
    /// Where it is in its life.
    pub state: CommandState,
    /// Why it was refused or interrupted, or ended by us or by a limit.
    pub reason: Option<Reason>,
    /// Its process id in the session.
    pub pid: Option<i32>,
    /// Its streams.
    pub streams: Streams,
    /// When it was started.
    #[schemars(extend("format" = "date-time"))]
    pub started: String,
    /// When it ended.
    #[schemars(extend("format" = "date-time"))]
    pub ended: Option<String>,
    /// The exit status, or 128+n for signal n, as shells say it.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// What it used, with the children it waited for.
    pub usage: Option<CommandUsage>,
    /// Bytes of output kept, of all streams.
    pub output: u64,
    /// Bytes of output that are no longer kept: the oldest go first.
    pub dropped: u64,
    /// Time from its start until it is cancelled, e.g. `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// In a session that lives once: how many things it left in its folder for deliverables, which
    /// go with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<u64>,
}

/// Why something is as it is: a stable code and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable between versions: `timeout`, `cancelled`, `not-found`, `not-executable`, `bad-cwd`,
    /// `bad-command`, `failed`, `sandbox-lost`, `stopped`, `revoked`, `time-over`, `memory`.
    pub code: String,
    /// For people.
    pub sentence: String,
}

/// What a command used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandUsage {
    /// CPU microseconds in user mode.
    pub user_us: u64,
    /// CPU microseconds in the kernel.
    pub system_us: u64,
    /// Largest resident size of any of its processes, in KiB.
    pub peak_kib: u64,
    /// Milliseconds from start to end.
    pub wall_ms: u64,
    /// Bytes read from storage.
    #[serde(default)]
    pub read: u64,
    /// Bytes written to storage.
    #[serde(default)]
    pub written: u64,
    /// Most processes that it was seen to have at a time.
    #[serde(default)]
    pub processes: u32,
}

/// What a command uses now, or has used if it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageOfCommand {
    /// When this was measured.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// CPU microseconds of its processes, and of those they waited for.
    pub cpu_us: u64,
    /// Bytes of memory now.
    pub memory: u64,
    /// Most bytes of memory that one of its processes has had; while it runs, of those it has now.
    pub memory_peak: u64,
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
    /// How many processes it has.
    pub processes: u32,
    /// The first of them.
    pub listed: Vec<Process>,
    /// Milliseconds since it was started, or from start to end.
    pub wall_ms: u64,
    /// Most processes that it was seen to have at a time: whenever it was measured.
    #[serde(default)]
    pub most_processes: u32,
}

/// A signal to send.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalCommand {
    /// The signal's number.
    #[schemars(range(min = 1, max = 64))]
    pub signal: i32,
    /// Who gets it.
    #[serde(default)]
    pub whom: Whom,
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Whom {
    /// The command's first process.
    Leader,
    /// Every process of the command's first group.
    #[default]
    Group,
    /// The group that the terminal has in the foreground.
    Foreground,
    /// Everything the command started.
    Tree,
}

/// How to cancel.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cancel {
    /// Time between asking and killing, e.g. `5s`; 5 seconds without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub grace: Option<String>,
}

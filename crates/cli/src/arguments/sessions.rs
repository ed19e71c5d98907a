//! Options of verbs that make, change and end sessions.

use super::grant::GrantParser;
use super::{NetworkOptions, Output, WriteOptions};
use clap::Args;
use cowork_policy::seccomp::Profile;
use cowork_policy::{Bytes, Cpus, GrantSpec, SessionId, Span};
use std::path::PathBuf;

// A session, or the default one.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

// A session at a glance, or one question about it.
#[derive(Debug, Args)]
#[command(after_help = "With --process the exit code says whether such a process runs: 0 if one \
                        does, 1 if none does.")]
pub(crate) struct Glance {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Only whether a process runs, by its name, or by its id in the session or on this host
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
}

// What a session may use.
#[derive(Debug, Default, Args)]
pub(crate) struct Limits {
    /// Most memory of the whole session, e.g. 4G
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<Bytes>,

    /// Most processors of the whole session, e.g. 1.5
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<Cpus>,

    /// Most processes and threads of the whole session
    #[arg(long, value_name = "NUMBER")]
    pub(crate) processes: Option<u32>,

    /// Most open files of each process
    #[arg(long, value_name = "NUMBER")]
    pub(crate) open_files: Option<u32>,

    /// Most space in memory: /tmp and the like, together with a home that is not kept
    #[arg(long, value_name = "BYTES")]
    pub(crate) scratch: Option<Bytes>,

    /// End the session after this time, e.g. 90s, 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
}

// What a session is made from.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct SessionOptions {
    /// A folder to grant, as `PATH[:ro|rw|direct|staged][=NAME]`; without any, `run` and `explain`
    /// grant the current folder
    ///
    /// It appears in the session as mnt/NAME, writable unless `:ro` says otherwise. With `rw` every
    /// change is recorded and can be undone; with `direct` none is; with `staged` changes wait until
    /// `cowork apply`. A folder whose own name ends in `=word` or `:word` is written with a slash at
    /// the end.
    #[arg(long = "grant", value_name = "GRANT", value_parser = GrantParser)]
    pub(crate) grants: Vec<GrantSpec>,

    /// Grant no folder at all, not even the current one
    #[arg(long, conflicts_with = "grants")]
    pub(crate) no_grants: bool,

    /// Grant folders even if they hold keys, passwords or cowork's own state
    #[arg(long)]
    pub(crate) force: bool,

    /// The walls around the session: `strict`, or `nested` for programs that bring a sandbox of
    /// their own (Chromium, bwrap)
    #[arg(long, default_value_t = Profile::Strict)]
    pub(crate) profile: Profile,

    /// Let debuggers and tracers work inside the session
    #[arg(long)]
    pub(crate) debugger: bool,

    /// Keep the session's home in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,

    /// Show this folder as mnt/outputs, so that deliverables stay
    #[arg(long, value_name = "FOLDER")]
    pub(crate) outputs: Option<PathBuf>,

    /// Show this folder read-only as mnt/skills: what an agent is to know how to do
    #[arg(long, value_name = "FOLDER")]
    pub(crate) skills: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) writes: WriteOptions,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Accept limits that this host can only approximate
    #[arg(long)]
    pub(crate) best_effort: bool,

    /// The session's id, e.g. zealous-ramanujan; made up without it
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<SessionId>,
}

#[derive(Debug, Args)]
#[command(after_help = "Prints the id of the session. Its home and mnt/outputs are kept in the \
                        daemon's state folder until `cowork rm`.")]
pub(crate) struct New {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// Most space on disk of home and outputs together, e.g. 10G; the session is paused beyond it
    #[arg(long, value_name = "BYTES")]
    pub(crate) disk: Option<Bytes>,

    /// A name and a value to find the session by
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,

    /// A name at the top of the session's file system for the first granted folder, e.g. workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) workspace: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// The states of a session.
const STATES: [&str; 7] = ["creating", "ready", "running", "paused", "stopped", "failed", "ended"];

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only sessions in this state
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    pub(crate) state: Option<String>,

    /// Only sessions with this label
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,

    /// Only ids, one on a line
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,

    /// Keep what the session left in mnt/outputs
    #[arg(long)]
    pub(crate) keep_outputs: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Keep what the session left in mnt/outputs
    #[arg(long)]
    pub(crate) keep_outputs: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Limits are changed while the session runs. Those that no cgroup keeps (that on \
                        open files; without cgroups of one's own, those on processes and memory too) \
                        only root can raise then: stop the session, change the limit, and start it."
)]
pub(crate) struct Set {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Most space on disk of home and outputs together, e.g. 10G
    #[arg(long, value_name = "BYTES")]
    pub(crate) disk: Option<Bytes>,

    /// Set a label
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,

    /// Take a label away
    #[arg(long = "unlabel", value_name = "NAME")]
    pub(crate) unlabels: Vec<String>,

    /// What becomes of hosts that no rule is about, from now on
    #[arg(long, value_name = "WORD", value_parser = ["deny", "ask"])]
    pub(crate) net: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Makes the session `default` if there is none, and starts it if it is \
                        stopped; what is already as it should be stays as it is. The workspace is \
                        a folder of yours: it is made if it is missing, and appears in the session \
                        as /workspace.")]
pub(crate) struct Init {
    /// The folder to work in; ~/cowork-workspace without it
    #[arg(long, value_name = "FOLDER")]
    pub(crate) workspace: Option<PathBuf>,

    /// Most processors; 4 without it, or as many as the host has
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<Cpus>,

    /// Most memory; 4G without it, or as much as the host has
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<Bytes>,

    /// Most space on disk of home and outputs together; 10G without it
    #[arg(long, value_name = "BYTES")]
    pub(crate) disk: Option<Bytes>,

    /// Show this folder read-only as mnt/skills: what an agent is to know how to do
    #[arg(long, value_name = "FOLDER")]
    pub(crate) skills: Option<PathBuf>,

    /// Show the skills even if they are in a place with keys, passwords or cowork's own state
    #[arg(long, requires = "skills")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// Also list every rule of the filter of system calls with its reason
    #[arg(long)]
    pub(crate) syscalls: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses a label.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write `NAME=VALUE`".to_owned()),
    }
}

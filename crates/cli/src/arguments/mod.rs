//! The command line: verbs, options and what they teach.

mod agents;
mod changes;
mod commands;
mod grant;
mod mcp;
mod network;
mod sessions;
mod srt;
mod tasks;
mod watching;

pub(crate) use agents::{AgentNamed, AgentRun, Agents};
pub(crate) use changes::{
    Apply, ChangesOf, Choice, Diff, Discard, Guard, HistoryOf, Protect, ProtectAdd, ProtectList,
    ProtectRemove, ProtectVerb, Redo, Undo, WriteOptions,
};
pub(crate) use commands::{
    Attach, Cancel, CommandOptions, Exec, Logs, Run, Shell, Start, StreamName,
};
pub(crate) use grant::{Answer, Copy, Decide, Grant, PathOf, Requests, Revoke};
pub(crate) use mcp::Mcp;
pub(crate) use network::{
    Allow, Client, Deny, Har, Headless, Mode, Net, NetExplain, NetVerb, NetView, NetworkOptions,
    Program, PublishPort, RuleDetails, SecretImport, SecretOptions, SecretRemove, SecretSet,
    SecretVerb, Standing, Tls, Unpublish,
};
pub(crate) use sessions::{
    Delete, Explain, Glance, Init, Limits, List, New, Remove, SessionOptions, Set, Target,
};
pub(crate) use srt::{ImportFrom, Policy, PolicyImport, PolicyVerb, Srt};
pub(crate) use tasks::{Ask, TaskNamed, TaskOf, TaskSteer, TaskVerb, Tasks};
pub(crate) use watching::{Audit, AuditFilter, AuditVerb, Daemon, Doctor, Events, Export, Usage};

use crate::failure::Returns;
use clap::{Args, Parser, Subcommand};

/// The session that the short forms mean.
pub(crate) const DEFAULT: &str = "default";

/// Gives an AI agent a computer of its own inside yours: it sees the folders you grant and
/// nothing else of your machine.
#[derive(Debug, Parser)]
#[command(
    name = "cowork",
    version,
    disable_help_subcommand = true,
    after_help = "Examples:\n  cowork run -- python3 build.py        this folder, nothing else\n  \
                  cowork run --grant ~/notes:ro -- bash  a shell that can read your notes\n  \
                  cowork new --grant ~/project           a session that stays\n  \
                  cowork exec ID -- make                 a command in it\n  \
                  cowork grant ID ~/data:ro              one more folder, while it runs\n  \
                  cowork changes ID; cowork undo ID      what it did, and back\n  \
                  cowork run --allow pypi.org -- COMMAND a host, and no other
  \
                  cowork init; cowork shell              the default session, and a shell in it\n  \
                  cowork explain --grant .               the plan, before anything runs\n  \
                  cowork doctor                          what this host can do\n\n\
                  Sessions are named by their id or a unique start of it. Every verb that prints \
                  something takes --json.\n\n\
                  Exit codes: `run`, `exec`, `shell` and `attach` return the command's own, and \
                  125 for a failure of cowork. Others return 0, 1 if asking otherwise helps (not \
                  found, refused), 2 for a wrong command line, 125 for trouble of the host or the \
                  daemon."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

// The options of one verb are looked at, not those of all: they are a third of a start's time. Types
// of options have no doc comments, which would take the place of their verb's.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Verb {
    /// Run a command in a session made for it, and leave nothing behind
    Run(Run),
    /// Make a session that stays until it is removed
    New(New),
    /// List sessions
    Ls(List),
    /// Show a session at a glance: state, protection, limits, grants, commands
    Status(Glance),
    /// Run a command in a session
    Exec(Exec),
    /// Open a shell in a session
    Shell(Shell),
    /// Run Claude Code in a session on the current folder
    Claude(AgentRun),
    /// Run Codex in a session on the current folder
    Codex(AgentRun),
    /// Run Gemini CLI in a session on the current folder
    Gemini(AgentRun),
    /// Run opencode in a session on the current folder
    Opencode(AgentRun),
    /// Run an agent by its name in a session on the current folder
    Agent(AgentNamed),
    /// List agents: where their programs are, and which credentials they have
    Agents(Agents),
    /// Give a task to an agent in a session on the current folder, and print its answer
    Ask(Ask),
    /// List tasks of agents
    Tasks(Tasks),
    /// Show a task of an agent, steer it, pause it, resume it, or call it off
    Task(TaskOf),
    /// Run a command as `srt` would, with its settings
    Srt(Srt),
    /// Write a policy from settings of other sandboxes
    Policy(Policy),
    /// Show what a command wrote
    Logs(Logs),
    /// Connect to a command that runs
    Attach(Attach),
    /// Grant a folder to a session while it runs, or change what it may do with one
    Grant(Grant),
    /// Take a granted folder away from a session while it runs
    Revoke(Revoke),
    /// Show what a session changed in folders, what cannot be undone, and what may run here
    Changes(ChangesOf),
    /// Show how files differ from before a session changed them
    Diff(Diff),
    /// Take changes of a session back: of the last command, of a set, of some paths, or all
    Undo(Undo),
    /// Take the last undo back
    Redo(Redo),
    /// Show which sessions changed a folder, also those that are gone
    History(HistoryOf),
    /// Carry staged changes over into their folders
    Apply(Apply),
    /// Throw staged changes away
    Discard(Discard),
    /// Say which names are marked, asked about or refused when a session changes them
    Protect(Protect),
    /// Allow a session to reach hosts, at once
    Allow(Allow),
    /// Forbid a session to reach hosts, at once
    Deny(Deny),
    /// Show what a session reaches and what it was refused; its rules; whether something would pass
    Net(NetView),
    /// Keep secrets that sessions use without knowing them
    Secret(SecretOptions),
    /// Let this host reach a port of a session
    Publish(PublishPort),
    /// Take a published port back
    Unpublish(Unpublish),
    /// List what sessions ask you for
    Requests(Requests),
    /// Answer a request of a session
    Decide(Decide),
    /// Copy files into a session or out of it
    Cp(Copy),
    /// Translate a path between this host and a session
    Path(PathOf),
    /// Let every process of a session, or one command, stand still
    Pause(CommandOptions),
    /// Let what stands still go on
    Resume(CommandOptions),
    /// End every process of a session, or one command: ask, wait, kill
    Cancel(Cancel),
    /// Stop a session: its processes end, its home is kept
    Stop(Target),
    /// Start a session that is stopped
    Start(Target),
    /// Remove a session with everything it kept
    Rm(Remove),
    /// Change a session's limits, labels and network while it runs
    Set(Set),
    /// Show what sessions use: processor, memory, storage, processes
    Usage(Usage),
    /// Show the record of every decision and act, verify or export it
    Audit(Audit),
    /// Show what happens, as it happens
    Events(Events),
    /// Make the default session, with ~/cowork-workspace as /workspace
    Init(Init),
    /// Remove the default session
    Delete(Delete),
    /// Show the plan of a session step by step, and which protection is in force; run nothing
    Explain(Explain),
    /// Look at what this host can do for sessions, and how to get what is missing
    Doctor(Doctor),
    /// Let a client of the Model Context Protocol use sessions as tools
    Mcp(Mcp),
    /// Run the daemon in the foreground, or stop it
    Daemon(Daemon),
    /// Explain a verb
    Help {
        /// The verb
        verb: Option<String>,
    },
    /// Write a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man,
}

impl Verb {
    /// What the exit code stands for.
    pub(crate) fn returns(&self) -> Returns {
        match self {
            Self::Run(_) | Self::Exec(_) | Self::Shell(_) | Self::Attach(_) => Returns::Command,
            Self::Claude(_)
            | Self::Codex(_)
            | Self::Gemini(_)
            | Self::Opencode(_)
            | Self::Agent(_) => Returns::Command,
            Self::Srt(_) => Returns::Srt,
            _ => Returns::Outcome,
        }
    }
}

/// What the exit code of a command line stands for that cannot be understood.
pub(crate) fn returns(verb: Option<&std::ffi::OsStr>) -> Returns {
    match verb.and_then(std::ffi::OsStr::to_str) {
        Some("run" | "exec" | "shell" | "attach") => Returns::Command,
        Some("claude" | "codex" | "gemini" | "opencode" | "agent") => Returns::Command,
        Some("srt") => Returns::Srt,
        _ => Returns::Outcome,
    }
}

// How something is printed.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Write JSON, as the daemon's API has it
    #[arg(long)]
    pub(crate) json: bool,
}

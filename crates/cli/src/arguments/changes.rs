//! Options of verbs about changes of granted folders.

use super::Output;
use clap::{Args, Subcommand};
use cowork_policy::Bytes;
use cowork_policy::files::ending;
use std::path::PathBuf;

// What is allowed where changes are recorded.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WriteOptions {
    /// A folder below each `rw` grant that is written without a record, at full speed, e.g.
    /// `node_modules`
    #[arg(long, value_name = "SUBFOLDER")]
    pub(crate) direct: Vec<PathBuf>,

    /// Ask when a command removes or overwrites more than so many files; `off` for never
    #[arg(long, value_name = "NUMBER|off", value_parser = guard)]
    pub(crate) guard: Option<Guard>,

    /// Most bytes that may be added to a folder, e.g. 2G
    #[arg(long, value_name = "BYTES")]
    pub(crate) quota: Option<Bytes>,

    /// Most files that may be added to a folder
    #[arg(long, value_name = "NUMBER")]
    pub(crate) quota_files: Option<u64>,

    /// Refuse files that end in this too, e.g. `zip`
    #[arg(long, value_name = "ENDING", value_parser = ending)]
    pub(crate) block: Vec<String>,

    /// Do not refuse files that end in this, e.g. `jar`
    #[arg(long, value_name = "ENDING", value_parser = ending)]
    pub(crate) unblock: Vec<String>,
}

/// When to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Never.
    Off,
    /// After so many files.
    After(u32),
}

fn guard(text: &str) -> Result<Guard, String> {
    match (text, text.parse()) {
        ("off", _) => Ok(Guard::Off),
        (_, Ok(number)) if number > 0 => Ok(Guard::After(number)),
        _ => Err("write a number of files, or `off`".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Shows what differs from before the session, in folders that are granted `rw` \
                        or `staged`. First comes what a person should know: what cannot be undone, \
                        and what this machine may execute. Sessions that are gone are named by \
                        their whole id, as long as their changes are kept; see `cowork history`."
)]
pub(crate) struct ChangesOf {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Only this path and what is below: of this host, or /sessions/ID/mnt/...
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,

    /// Only the changes of this set
    #[arg(long, value_name = "NUMBER")]
    pub(crate) set: Option<u32>,

    /// Show also which program made each change
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Only these paths and what is below: of this host, or /sessions/ID/mnt/...
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Only the changes of this set
    #[arg(long, value_name = "NUMBER")]
    pub(crate) set: Option<u32>,

    #[command(flatten)]
    pub(crate) output: Output,
}

// What to do where the user has changed something since.
#[derive(Clone, Copy, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Choice {
    /// Leave what you have changed since as it is
    #[arg(long, conflicts_with_all = ["theirs", "both"])]
    pub(crate) ours: bool,

    /// Bring back what was, over what you have changed since; `cowork redo` takes that back
    #[arg(long, conflicts_with = "both")]
    pub(crate) theirs: bool,

    /// Bring back what was, and keep what you have changed since beside it
    #[arg(long)]
    pub(crate) both: bool,

    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without a path and a set: the last set that is not undone, which is what the \
                        last command did. With paths: everything the session did to them. What you \
                        have changed since is never overwritten unless you say so. Exit code 1 if \
                        something stands in the way; nothing was done then.\n\n\
                        Examples:\n  cowork undo ID                take the last command back\n  \
                        cowork undo ID --all          take everything back\n  \
                        cowork undo ID src/main.rs    one file, as it was before the session\n  \
                        cowork undo ID --set 3 --dry-run"
)]
pub(crate) struct Undo {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Only these paths and what is below: of this host, or /sessions/ID/mnt/...
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Only this set, from `cowork changes`
    #[arg(long = "set", value_name = "NUMBER")]
    pub(crate) sets: Vec<u32>,

    /// Every set
    #[arg(long, conflicts_with = "sets")]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) choice: Choice,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    #[command(flatten)]
    pub(crate) choice: Choice,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Applied changes are a set of their own, and `cowork undo` takes them back."
)]
pub(crate) struct Apply {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Only these paths and what is below: of this host, or /sessions/ID/mnt/...
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Only these granted folders
    #[arg(value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Changes are kept for COWORK_CHANGES_DAYS days after their session is gone \
                        (14), and up to COWORK_CHANGES_BYTES of all sessions (5G); the oldest are \
                        forgotten first. The daemon reads both when it starts."
)]
pub(crate) struct HistoryOf {
    /// Only what is about this file or folder
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Protect {
    #[command(subcommand)]
    pub(crate) verb: ProtectVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProtectVerb {
    /// List the rules for names in a session, with their reasons
    List(ProtectList),
    /// Make a rule for names, in force at once
    Add(ProtectAdd),
    /// Take a rule back that you made
    Remove(ProtectRemove),
}

#[derive(Debug, Args)]
pub(crate) struct ProtectList {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A pattern has components with `*`, `?` and `**`. It is meant at any depth \
                        unless it starts with `/`, which is the granted folder. A rule replaces the \
                        one with the same pattern; of several that match, the strictest counts.\n\n\
                        Example:\n  cowork protect add ID '.github/workflows/**' --ask"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct ProtectAdd {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// Which names
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,

    /// Ask you before it is changed; so without another option
    #[arg(long, conflicts_with_all = ["deny", "flag", "allow"])]
    pub(crate) ask: bool,

    /// Refuse changes
    #[arg(long, conflicts_with_all = ["flag", "allow"])]
    pub(crate) deny: bool,

    /// Mark it among the changes
    #[arg(long, conflicts_with = "allow")]
    pub(crate) flag: bool,

    /// Nothing in particular
    #[arg(long)]
    pub(crate) allow: bool,

    /// Only in this granted folder
    #[arg(long, value_name = "NAME")]
    pub(crate) grant: Option<String>,

    /// Why, for whoever is asked or refused
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct ProtectRemove {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The rule's pattern
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,

    /// Only the rule about this granted folder
    #[arg(long, value_name = "NAME")]
    pub(crate) grant: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

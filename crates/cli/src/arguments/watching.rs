//! Options of verbs that look: usage, audit, events, the host, the daemon.

use super::Output;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// The session; without it all that live
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// One command of the session, while it runs or afterwards
    #[arg(value_name = "NUMBER", requires = "session", conflicts_with = "history")]
    pub(crate) command: Option<u32>,

    /// What was measured over time
    #[arg(long, requires = "session")]
    pub(crate) history: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) verb: Option<AuditVerb>,

    #[command(flatten)]
    pub(crate) filter: AuditFilter,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check that no record was removed, changed or reordered
    Verify(Output),
    /// Write records for another program
    Export(Export),
}

// Which records.
#[derive(Debug, Args)]
pub(crate) struct AuditFilter {
    /// Only records of this session
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Only records since then: a span of time before now, e.g. 2h, or a moment in RFC 3339
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Only records until then
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// Only records of this type, e.g. grant.added
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
}

/// A format of exported records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One object of JSON on each line
    Jsonl,
    /// Values separated by commas
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) filter: AuditFilter,

    /// The format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
}

#[derive(Debug, Args)]
#[command(after_help = "Goes on until it is interrupted. A connection that breaks is made again, \
                        without losing or repeating an event.")]
pub(crate) struct Events {
    /// Only events of this session
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Only events of this type, e.g. session.state
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,

    /// Start after the event with this number; 0 for all that are kept
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<u64>,

    /// Show what there is and end
    #[arg(long)]
    pub(crate) no_follow: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The daemon is started by the first verb that needs it, and leaves when it \
                        has had no session and no client for a while. It is found at api.sock in \
                        $COWORK_RUNTIME_DIR, else $XDG_RUNTIME_DIR/cowork, else /run/cowork for \
                        root, else /run/user/UID/cowork, else /tmp/cowork-UID. It keeps sessions \
                        in $COWORK_STATE_DIR, else $XDG_STATE_HOME/cowork, else \
                        ~/.local/state/cowork. For root without either variable of cowork's it is \
                        the system's daemon, in /run/cowork and /var/lib/cowork, once its unit has \
                        made the latter."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Daemon {
    /// Stop every session, and the daemon with them
    #[arg(long, conflicts_with = "arguments")]
    pub(crate) stop: bool,

    /// Leave the terminal first
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// Options of coworkd itself
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) arguments: Vec<OsString>,

    #[command(flatten)]
    pub(crate) output: Output,
}

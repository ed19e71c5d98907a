//! Options of verbs that run agents.

use super::Output;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is said below the options of every verb that runs an agent.
const AFTER: &str = "Without SESSION the agent works in the current folder: in the session that it had \
                     there before, or in a new one, which is kept until `cowork rm`. What it keeps \
                     (conversations, settings) is in the session's home.\n\n\
                     The agent sees that folder, its own program, its hosts and a placeholder of its \
                     credential, and nothing else of this machine. Store the credential once with \
                     `cowork secret set`; `cowork agents` says which.\n\n\
                     The agent's own exit status is returned; 125 if cowork itself failed.";

// How an agent is run.
#[derive(Debug, Default, Args)]
#[command(after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct AgentRun {
    /// The session; without it one for the current folder
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Make a new session, even if there is one for this folder
    #[arg(long, conflicts_with = "session")]
    pub(crate) new: bool,

    /// Let the agent use a sandbox of its own inside the session. Changes of the folder are not
    /// recorded then, unless they are staged
    #[arg(long, conflicts_with = "session")]
    pub(crate) nested: bool,

    /// Let changes of the folder wait until `cowork apply`
    #[arg(long, conflicts_with = "session")]
    pub(crate) staged: bool,

    /// Grant the current folder even if it holds keys, passwords or cowork's own state
    #[arg(long, conflicts_with = "session")]
    pub(crate) force: bool,

    /// Install the agent in the session's home with npm, and use that one
    #[arg(long, conflicts_with = "program")]
    pub(crate) install: bool,

    /// The agent's program on this host, in place of the one on your PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<PathBuf>,

    /// The secret that the agent proves itself with, if several are stored
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Option<String>,

    /// Set a variable for the agent, or pass one of yours by its name alone
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<OsString>,

    /// Arguments for the agent
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

// An agent by its name.
#[derive(Debug, Args)]
pub(crate) struct AgentNamed {
    /// The agent, as `cowork agents` lists it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) run: AgentRun,
}

// Lists agents.
#[derive(Debug, Args)]
#[command(
    after_help = "A file `NAME.toml` in ~/.config/cowork/agents defines an agent, or another one \
                        in place of a built-in one; see docs/agents.md."
)]
pub(crate) struct Agents {
    #[command(flatten)]
    pub(crate) output: Output,
}

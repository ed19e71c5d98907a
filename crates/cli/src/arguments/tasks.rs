//! Options of verbs about tasks of agents.

use super::{AgentRun, Output};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What is said below the options of `ask`.
const AFTER: &str = "Without `--session` the agent works in the current folder: in the session that it \
                     had there before, or in a new one, which is kept until `cowork rm`.\n\n\
                     What the agent says and does is written to standard error as it happens, its \
                     answer to standard output, and what came of it to standard error at the end. \
                     When it asks whether it may use a tool you are asked; without a terminal the \
                     question waits for `cowork decide`. A task goes on when this program is ended: \
                     see `cowork tasks`.\n\n\
                     Returns 0 if the task is done, 3 if it failed, 4 if it was cancelled, 5 if it was \
                     interrupted; 1, 2 and 125 as other verbs do.";

// A task for an agent.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Ask {
    /// What is to be done; `-` to read it from standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,

    /// The session; without it one for the current folder
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// The agent
    #[arg(long, value_name = "NAME", default_value = "claude")]
    pub(crate) agent: String,

    /// The model, as the agent calls it
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Make a new session, even if there is one for this folder
    #[arg(long, conflicts_with = "session")]
    pub(crate) new: bool,

    /// Let the agent use every tool without asking; the session's limits hold as ever
    #[arg(long, conflicts_with = "no")]
    pub(crate) yes: bool,

    /// Refuse every tool that has to be asked for
    #[arg(long)]
    pub(crate) no: bool,

    /// The agent's program on this host, in place of the one on your PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,

    /// The secret that the agent proves itself with, in place of the first one that is stored
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Ask {
    /// As the verbs say it that run agents.
    pub(crate) fn run(&self) -> AgentRun {
        AgentRun { session: self.session.clone(), new: self.new, ..AgentRun::default() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Tasks {
    /// The session; without it all
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TaskOf {
    #[command(subcommand)]
    pub(crate) verb: TaskVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// Show a task: what was said and done, and what came of it
    Show(TaskNamed),
    /// Say something to the agent while it works
    Steer(TaskSteer),
    /// Let the agent stand still
    Pause(TaskNamed),
    /// Let the agent go on
    Resume(TaskNamed),
    /// Call the task off
    Cancel(TaskNamed),
}

// A task.
#[derive(Debug, Args)]
pub(crate) struct TaskNamed {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The number of the task; without it the last one
    #[arg(value_name = "TASK")]
    pub(crate) task: Option<u32>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TaskSteer {
    #[command(flatten)]
    pub(crate) named: TaskNamed,

    /// What is said; `-` to read it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) say: String,
}

//! Options of verbs that start commands and speak to them.

use super::{Output, SessionOptions};
use clap::{Args, ValueEnum};
use cowork_policy::Span;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where a command starts.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The folder in the session to start in; without it, the session's own
    #[arg(long = "cd", value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    /// Start in the current folder, as the session sees it
    #[arg(long, conflicts_with = "folder")]
    pub(crate) here: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "The command's own exit status is returned; 128+n if signal n ended it. \
                        124: its time was over. 125: cowork itself failed. 126: the command \
                        cannot be executed. 127: there is no such command.\n\n\
                        Inside, the session's folder is /sessions/<id>, with the granted folders \
                        in mnt/<name>. mnt/outputs is for deliverables. `cowork run --here -- make` \
                        starts in the current folder, mnt/<its name>.\n\n\
                        The session is listed and recorded by the daemon as long as it lives, and \
                        its record stays. With --no-daemon nothing is listed or recorded, and \
                        nothing but `cowork run` itself has to run.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// Set a variable for the command, or pass one of yours by its name alone
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<OsString>,

    #[command(flatten)]
    pub(crate) start: Start,

    /// Say on standard error which protection is in force
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Make the session without the daemon: nothing is recorded or listed
    #[arg(long, conflicts_with = "json")]
    pub(crate) no_daemon: bool,

    #[command(flatten)]
    pub(crate) output: Output,

    /// The command and its arguments; cowork's own options end at its first word
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "cowork exec [OPTIONS] [SESSION] -- COMMAND...\n       cowork exec [OPTIONS] \
                      \"SHELL LINE\"",
    after_help = "The command's own exit status is returned; 128+n if signal n ended it. 124: its \
                  time was over. 125: cowork itself failed. 126: the command cannot be executed. \
                  127: there is no such command.\n\n\
                  On a terminal, Ctrl-P Ctrl-Q leaves the command running; `cowork attach` comes \
                  back to it. With --json every piece of output is a line, between one that says \
                  `started` and one that says `ended`."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Exec {
    /// Set a variable for the command, or pass one of yours by its name alone
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<OsString>,

    #[command(flatten)]
    pub(crate) start: Start,

    /// Cancel the command after this time, e.g. 90s, 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// Leave the command running and print its number
    #[arg(long, short)]
    pub(crate) detach: bool,

    /// Give the command a terminal even if none of your streams is one
    #[arg(long, short)]
    pub(crate) terminal: bool,

    /// Send nothing of standard input
    #[arg(long, short = 'n')]
    pub(crate) no_stdin: bool,

    #[command(flatten)]
    pub(crate) output: Output,

    /// The session; without it the one named `default`. Without a command: a line for the shell of
    /// the default session
    #[arg(value_name = "SESSION")]
    pub(crate) words: Vec<OsString>,

    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Set a variable for the shell, or pass one of yours by its name alone
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<OsString>,

    #[command(flatten)]
    pub(crate) start: Start,
}

/// Which of a command's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamName {
    /// In the order in which they were written
    All,
    /// Standard output
    Stdout,
    /// Standard error
    Stderr,
    /// The command's terminal
    Terminal,
}

#[derive(Debug, Args)]
#[command(after_help = "Control characters and escape sequences are shown, not sent to your \
                        terminal. With --raw bytes are written as they are. With --json each piece \
                        is a line with its offset.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Logs {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// The command's number; without it the last one that was started
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u32>,

    /// Go on until the command has ended
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Start at this byte of the output
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub(crate) from: u64,

    /// Only this stream
    #[arg(long, value_enum, default_value_t = StreamName::All)]
    pub(crate) stream: StreamName,

    /// Write bytes as they are
    #[arg(long)]
    pub(crate) raw: bool,

    /// With --raw: also onto a terminal, which may act on them
    #[arg(long, requires = "raw")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-P Ctrl-Q on a terminal leaves the command running. Signals that this \
                        program gets are passed on to the command. Its exit status is returned."
)]
pub(crate) struct Attach {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// The command's number; without it the last one that was started
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u32>,

    /// Start at this byte of the output; without it only what is new is shown
    #[arg(long, value_name = "OFFSET")]
    pub(crate) from: Option<u64>,

    /// Send nothing of standard input
    #[arg(long, short = 'n')]
    pub(crate) no_stdin: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

// A session, or one command of it.
#[derive(Debug, Args)]
pub(crate) struct CommandOptions {
    /// The session; without it the one named `default`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Only this command
    #[arg(value_name = "NUMBER")]
    pub(crate) number: Option<u32>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) whom: CommandOptions,

    /// Time between asking and killing; 5s without it
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Span>,
}

//! The command line: verbs, options and what they teach.

use clap::{Args, Parser, Subcommand};
use cowork_policy::seccomp::Profile;
use cowork_policy::{Bytes, Cpus, GrantSpec, Span};
use std::ffi::OsString;
use std::path::PathBuf;

/// Gives an AI agent a computer of its own inside yours: it sees the folders you grant and
/// nothing else of your machine.
#[derive(Debug, Parser)]
#[command(
    name = "cowork",
    version,
    disable_help_subcommand = true,
    after_help = "Examples:\n  cowork run -- python3 build.py        this folder, nothing else\n  \
                  cowork run --grant ~/notes:ro -- bash  a shell that can read your notes\n  \
                  cowork explain --grant .               the plan, before anything runs\n  \
                  cowork doctor                          what this host can do"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command in a session made for it, and leave nothing behind
    Run(Run),
    /// Show the plan of a session step by step, and which protection is in force; run nothing
    Explain(Explain),
    /// Look at what this host can do for sessions, and how to get what is missing
    Doctor(Doctor),
    /// Write a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man,
}

#[derive(Debug, Args)]
#[command(after_help = "The command's own exit status is returned; 128+n if signal n ended it. \
                        124: its time was over. 125: cowork itself failed. 126: the command \
                        cannot be executed. 127: there is no such command.\n\n\
                        Inside, the session's folder is /sessions/<id>, with the granted folders \
                        in mnt/<name>. mnt/outputs is for deliverables.")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// Set a variable for the command, or pass one of yours by its name alone
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) environment: Vec<OsString>,

    /// The folder in the session that the command starts in
    #[arg(long = "cd", value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    /// Say on standard error which protection is in force
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// The command and its arguments; cowork's own options end at its first word
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// Also list every rule of the filter of system calls with its reason
    #[arg(long)]
    pub(crate) syscalls: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Write the facts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a session is made from.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct SessionOptions {
    /// A folder to grant, as `PATH[:ro|rw][=NAME]`. Without any, the current folder is granted
    ///
    /// It appears in the session as mnt/NAME, writable unless `:ro` says otherwise. A folder whose
    /// own name ends in `=word` or `:word` is written with a slash at the end.
    #[arg(long = "grant", value_name = "GRANT", value_parser = GrantParser)]
    pub(crate) grants: Vec<GrantSpec>,

    /// Grant no folder at all, not even the current one
    #[arg(long, conflicts_with = "grants")]
    pub(crate) no_grants: bool,

    /// The walls around the session: `strict`, or `nested` for programs that bring a sandbox of
    /// their own (Chromium, bwrap)
    #[arg(long, default_value_t = Profile::Strict)]
    pub(crate) profile: Profile,

    /// Let debuggers and tracers work inside the session
    #[arg(long)]
    pub(crate) debugger: bool,

    /// Keep the session's home in this folder instead of in memory
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,

    /// Show this folder as mnt/outputs, so that deliverables stay
    #[arg(long, value_name = "FOLDER")]
    pub(crate) outputs: Option<PathBuf>,

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

    /// Most space for home, /tmp and the like together
    #[arg(long, value_name = "BYTES")]
    pub(crate) scratch: Option<Bytes>,

    /// End the session after this time, e.g. 90s, 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// Accept limits that this host can only approximate
    #[arg(long)]
    pub(crate) best_effort: bool,

    /// The session's id, e.g. zealous-ramanujan; made up without it
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<cowork_policy::SessionId>,
}

/// Parses a grant without requiring its path to be UTF-8.
#[derive(Clone, Debug)]
struct GrantParser;

impl clap::builder::TypedValueParser for GrantParser {
    type Value = GrantSpec;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<GrantSpec, clap::Error> {
        GrantSpec::parse(value).map_err(|error| {
            let mut refused =
                clap::Error::new(clap::error::ErrorKind::ValueValidation).with_cmd(command);
            let name = argument.map_or_else(|| "--grant".to_owned(), ToString::to_string);
            let mut value = format!("{}: {error}", value.to_string_lossy().escape_debug());
            if let Some(cause) = std::error::Error::source(&error) {
                value = format!("{value}: {cause}");
            }
            refused.insert(
                clap::error::ContextKind::InvalidArg,
                clap::error::ContextValue::String(name),
            );
            refused.insert(
                clap::error::ContextKind::InvalidValue,
                clap::error::ContextValue::String(value),
            );
            refused
        })
    }
}

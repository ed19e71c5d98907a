//! Options of verbs about folders and files, and about what sessions ask for.

use super::{Output, WriteOptions};
use clap::{Args, ValueEnum};
use cowork_policy::{GrantSpec, GrantSpecError, MODES, Span};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The folder, as `PATH[:ro|rw|direct|staged][=NAME]`
    #[arg(value_name = "GRANT", value_parser = GrantParser)]
    pub(crate) folder: GrantSpec,

    /// Grant it even if it holds keys, passwords or cowork's own state
    #[arg(long)]
    pub(crate) force: bool,

    /// Revoke it by itself after this time, e.g. `2h`
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) span: Option<Span>,

    #[command(flatten)]
    pub(crate) writes: WriteOptions,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The name of the granted folder in the session
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// Only requests of this session
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Also those that were answered
    #[arg(long, short)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answer {
    /// Yes
    #[value(alias = "yes")]
    Allow,
    /// No
    #[value(aliases = ["no", "deny"])]
    Reject,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A session describes the folder it would like and why; it never names one. \
                        Which folder that is, you say with --path. \
                        A session that wants to reach a host, or to change a protected file, waits for \
                        the answer: no --path."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Decide {
    /// The request's number, from `cowork requests`
    #[arg(value_name = "REQUEST")]
    pub(crate) request: u64,

    /// The answer
    #[arg(value_enum)]
    pub(crate) answer: Answer,

    /// The folder that is meant
    #[arg(long, value_name = "FOLDER")]
    pub(crate) path: Option<PathBuf>,

    /// Its name in the session
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Grant it for reading only
    #[arg(long, conflicts_with = "rw")]
    pub(crate) ro: bool,

    /// Grant it for reading and writing
    #[arg(long)]
    pub(crate) rw: bool,

    /// The same answer whenever this session asks for the same
    #[arg(long, conflicts_with = "always")]
    pub(crate) session: bool,

    /// The same answer whenever any session asks for the same
    #[arg(long)]
    pub(crate) always: bool,

    /// Grant it even if it holds keys, passwords or cowork's own state
    #[arg(long)]
    pub(crate) force: bool,

    /// A word to the one who asked
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "One side is `SESSION:PATH`. Its path starts with `outputs`, `uploads` or \
                        the name of a granted folder, as in mnt; any other path means uploads on \
                        the way in, and outputs on the way out. `-` is standard input or output.\n\n\
                        Examples:\n  cowork cp data.csv ID:                into its uploads\n  \
                        cowork cp -r ID:outputs .             everything it delivered\n  \
                        cowork cp ID:outputs/report.pdf -     to standard output")]
pub(crate) struct Copy {
    /// Copy folders with everything in them
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// What to copy, and where to
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct PathOf {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The path; one that starts with /sessions/SESSION is the session's, any other the host's
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,

    /// It is the session's, whatever it looks like
    #[arg(long)]
    pub(crate) inside: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses a grant without requiring its path to be UTF-8.
#[derive(Clone, Debug)]
pub(super) struct GrantParser;

impl clap::builder::TypedValueParser for GrantParser {
    type Value = GrantSpec;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<GrantSpec, clap::Error> {
        GrantSpec::parse(value).map_err(|error| {
            let mut refused =
                clap::Error::new(clap::error::ErrorKind::ValueValidation).with_cmd(command);
            let (sentence, hint) = said(&error);
            // `failure::usage` shows it.
            refused.insert(
                clap::error::ContextKind::Custom,
                clap::error::ContextValue::Strings(vec![sentence, hint]),
            );
            refused
        })
    }
}

/// What is wrong with a grant, and how to write it.
fn said(error: &GrantSpecError) -> (String, String) {
    let part = |mark: char| format!("end the folder with `/` if the `{mark}` is part of its name");
    match error {
        GrantSpecError::NoPath { spec } => (
            format!("grant `{}` names no folder", spec.display()),
            "write `PATH[:ro|rw|direct|staged][=name]`".into(),
        ),
        GrantSpecError::NoAccess { spec } => (
            format!("grant `{}` has no access mode after `:`", spec.display()),
            format!("use {MODES}; {}", part(':')),
        ),
        GrantSpecError::UnknownAccess { spec, error } => (
            format!("grant `{}` has an unknown access mode `{}`", spec.display(), error.mode()),
            format!("use {MODES}; {}", part(':')),
        ),
        GrantSpecError::NoName { spec } => (
            format!("grant `{}` has no name after `=`", spec.display()),
            format!("give one; {}", part('=')),
        ),
        GrantSpecError::AccessAfterName { spec, access } => (
            format!("grant `{}` has its access mode after the name", spec.display()),
            format!("write `PATH:{access}=name`; {}", part('=')),
        ),
        GrantSpecError::NameEncoding { .. } => {
            (error.to_string(), "give it a name of UTF-8: `PATH=name`".into())
        }
        GrantSpecError::Name { source, .. } => {
            (format!("{error}: {source}"), format!("give it another: `PATH=name`; {}", part('=')))
        }
    }
}

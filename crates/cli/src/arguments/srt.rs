//! Options of the verb that stands in for srt, and of the one that imports its settings.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    disable_version_flag = true,
    override_usage = "cowork srt [OPTIONS] [--] COMMAND...\n       cowork srt [OPTIONS] -c LINE",
    after_help = "Takes the place of `srt`, with its settings file: the command sees this host's \
                  files at their own paths, changes what `allowWrite` names, and reaches what \
                  `allowedDomains` names. What a setting asks for and cannot be given is refused \
                  by its name. See docs/srt.md.\n\n\
                  The command's own exit status is returned; 128+n if signal n ended it; 1 if it \
                  was not run."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Srt {
    /// Say which version of srt this stands in for
    #[arg(short = 'V', long = "version")]
    pub(crate) version: bool,

    /// Say on standard error what is done
    #[arg(short, long)]
    pub(crate) debug: bool,

    /// The settings [default: ~/.srt-settings.json, if it is there]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Run a line of the shell, as it is
    #[arg(short = 'c', value_name = "LINE")]
    pub(crate) line: Option<OsString>,

    /// Read settings from this open descriptor while the command runs, one document a line
    #[arg(long, value_name = "DESCRIPTOR", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) control_fd: Option<i32>,

    /// The command and its arguments; options end at its first word
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Write the policy that says what the settings of another sandbox say
    Import(PolicyImport),
}

#[derive(Debug, Args)]
#[command(after_help = "The policy is written to standard output, for `--policy`. What has no \
                        equivalent there is a comment in it.\n\n\
                        Example:\n  cowork policy import srt > policy.toml\n  \
                        cowork run --policy policy.toml -- COMMAND")]
pub(crate) struct PolicyImport {
    /// Whose settings
    #[arg(value_enum)]
    pub(crate) from: ImportFrom,

    /// The file [default: ~/.srt-settings.json, or ~/.claude/settings.json]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Whose settings are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// Those of srt
    Srt,
    /// Those of Claude Code
    ClaudeCode,
}

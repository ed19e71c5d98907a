//! Where the workspace and its built programs are, and how its commands are started.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs that are shipped.
pub(crate) const PROGRAMS: [&str; 6] =
    ["cowork", "coworkd", "cowork-keeper", "cowork-init", "cowork-egress", "cowork-mcp"];

/// Why a verb ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The arguments are none that the verb knows.
    Usage,
    /// What was attempted on what, and what became of it.
    Sentence(String),
    /// What is missing on this host, without which there is nothing to be done.
    Missing(String),
}

impl Failure {
    pub(crate) fn usage() -> Self {
        Self::Usage
    }

    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self::Sentence(sentence.into())
    }

    /// A failure to do something to a path.
    pub(crate) fn at(attempt: &str, path: &Path, cause: impl Display) -> Self {
        Self::Sentence(format!("cannot {attempt} `{}`: {cause}", path.display()))
    }
}

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A kind of build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// What `cargo build` makes.
    Dev,
    /// What `cargo build --release` makes.
    Release,
}

/// The folder that programs of this kind of build are in: this program is beside them, since it
/// was built with the same configuration.
pub(crate) fn built(profile: Profile) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let target = own.parent().and_then(Path::parent);
    let target = target.ok_or_else(|| Failure::new("this program was not built by cargo"))?;
    Ok(target.join(match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    }))
}

/// The cargo that started this program, to be run in the workspace.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

/// Builds every program and test of the workspace. It is always all of them: cargo builds what
/// they depend on again for every set of features, and a part of them has another set.
pub(crate) fn build(options: &[&str]) -> Result<(), Failure> {
    succeed(cargo(["build", "--workspace", "--all-targets"]).args(options))
}

/// A test program of the workspace, with its tests that need more than a compiler.
pub(crate) fn demanding(name: &str) -> Command {
    cargo(["test", "--workspace", "--test", name, "--", "--ignored"])
}

/// Runs a command to its end, its output being the terminal's.
pub(crate) fn succeed(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` failed: {status}", line(command))))
}

/// Runs a command to its end and gives back what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`{}` failed: {}\n{said}", line(command), output.status)))
}

/// Like [`output`], for a command that writes UTF-8.
pub(crate) fn text(command: &mut Command) -> Result<String, Failure> {
    let written = output(command)?;
    String::from_utf8(written)
        .map_err(|error| Failure::new(format!("`{}` wrote no UTF-8: {error}", line(command))))
}

/// A command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<OsString> = std::iter::once(program)
        .chain(command.get_args())
        .map(|word| if word.is_empty() { "''".into() } else { word.to_owned() })
        .collect();
    words.join(OsStr::new(" ")).to_string_lossy().into_owned()
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot start `{}`: {error}", line(command)))
}

//! `cargo xtask run`: the programs of this workspace, built as they are shipped.

use crate::workspace::{Failure, Profile, built, cargo, succeed};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes `cowork` with these arguments, in the caller's folder.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let [separator, arguments @ ..] = arguments else { return Err(Failure::usage()) };
    if separator != "--" {
        return Err(Failure::usage());
    }
    build()?;
    let error = Command::new(built(Profile::Release)?.join("cowork")).args(arguments).exec();
    Err(Failure::new(format!("cannot start `cowork`: {error}")))
}

/// Builds the programs as they are shipped. Only a person at a terminal is shown the progress:
/// the first build takes minutes, and later ones have nothing to say.
pub(crate) fn build() -> Result<(), Failure> {
    let mut build = cargo(["build", "--release"]);
    if !std::io::stderr().is_terminal() {
        build.arg("--quiet");
    }
    succeed(&mut build)
}

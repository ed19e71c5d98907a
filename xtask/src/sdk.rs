//! The Python SDK: its checks and tests, at the shipped programs.
//!
//! Its tools are installed once for every list of them into a virtual environment of Python's beside
//! the built programs, from the index that pip is configured to use. An ordinary user runs tests with
//! them, so every folder on the way there must be open to everybody; where one is not, they are
//! installed anew in a folder that is thrown away.

use crate::workspace::{Failure, Profile, built, line, root, succeed};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Reading and entering a folder, for everybody.
const OPEN: u32 = 0o005;

/// Runs all of the SDK's checks.
pub(crate) fn check() -> Result<(), Failure> {
    let programs = built(Profile::Release)?;
    // Debian's, whose module for environments is among the packages, and which everybody can execute.
    let mut command = Command::new("/usr/bin/python3");
    command.arg(root().join("sdk/python/tools/ci.py")).arg(&programs);
    let target = programs.parent().unwrap_or(&programs);
    if target.ancestors().all(is_open) {
        command.arg(target.join("sdk"));
    }
    println!("$ {}", line(&command));
    succeed(&mut command)
}

fn is_open(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|found| found.permissions().mode() & OPEN == OPEN)
}

//! Schemathesis, which makes up requests from the document of the API, in a virtual environment of
//! Python's beside the built programs.
//!
//! It is installed once for every list of requirements, from the index that pip is configured to
//! use. Without it the requests are not made up, and the step fails.

use crate::workspace::{Failure, Profile, built, line, root, succeed};
use std::path::PathBuf;
use std::process::Command;

/// What is installed, each package with its version.
const REQUIREMENTS: &str = "crates/daemon/tests/openapi/requirements.txt";

/// The program; installed first where it is missing.
pub(crate) fn schemathesis() -> Result<PathBuf, Failure> {
    let programs = built(Profile::Dev)?;
    let environment = programs.parent().unwrap_or(&programs).join("schemathesis");
    let program = environment.join("bin/schemathesis");
    let requirements = root().join(REQUIREMENTS);
    let wanted =
        std::fs::read(&requirements).map_err(|error| Failure::at("read", &requirements, error))?;
    // Written last: an installation that broke off has none.
    let installed = environment.join("requirements.txt");
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        println!("schemathesis is there");
        return Ok(program);
    }
    // Debian's, whose module for environments is among the packages.
    let mut make = Command::new("/usr/bin/python3");
    shown(make.args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    shown(install.arg(&requirements))?;
    std::fs::write(&installed, wanted).map_err(|error| Failure::at("write", &installed, error))?;
    Ok(program)
}

fn shown(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", line(command));
    succeed(command)
}

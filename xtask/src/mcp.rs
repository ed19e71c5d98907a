//! The official client of the Model Context Protocol for Python, in a virtual environment beside
//! the built programs.
//!
//! It is installed once for every list of requirements, from the index that pip is configured to
//! use. Without it the tools are not tried, and the step fails.

use crate::workspace::{Failure, Profile, built, line, root, succeed};
use std::path::PathBuf;
use std::process::Command;

/// What is installed, each package with its version.
const REQUIREMENTS: &str = "crates/cli/tests/mcp/requirements.txt";

/// The folder of packages that has the client; installed first where it is missing.
pub(crate) fn packages() -> Result<PathBuf, Failure> {
    let programs = built(Profile::Dev)?;
    let environment = programs.parent().unwrap_or(&programs).join("mcp-client");
    let packages = environment.join("packages");
    let requirements = root().join(REQUIREMENTS);
    let wanted =
        std::fs::read(&requirements).map_err(|error| Failure::at("read", &requirements, error))?;
    // Written last: an installation that broke off has none.
    let installed = environment.join("requirements.txt");
    if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        println!("the client of MCP is there");
        return Ok(packages);
    }
    // Debian's, which is the one that runs the client.
    let mut make = Command::new("/usr/bin/python3");
    shown(make.args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--target"]);
    shown(install.arg(&packages).arg("--requirement").arg(&requirements))?;
    std::fs::write(&installed, wanted).map_err(|error| Failure::at("write", &installed, error))?;
    Ok(packages)
}

fn shown(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", line(command));
    succeed(command)
}

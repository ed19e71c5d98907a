//! Agents from the npm registry, which the tests run in sessions, beside the built programs.
//!
//! Each is installed once for every version, and only the package with the program for this machine.
//! Without them the agents are not tested, and the step fails.

use crate::workspace::{Failure, Profile, built, line, succeed};
use std::path::PathBuf;
use std::process::Command;

/// Claude Code, and Codex: the package for a machine, with its version.
const PACKAGES: [&str; 2] = [
    "@anthropic-ai/claude-code-linux-{arch}@2.1.325",
    "@openai/codex-linux-{arch}@npm:@openai/codex@0.166.0-linux-{arch}",
];

/// The folder that they are in; installed first where they are missing.
pub(crate) fn installed() -> Result<PathBuf, Failure> {
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let wanted = PACKAGES.map(|package| package.replace("{arch}", arch));
    let programs = built(Profile::Dev)?;
    let folder = programs.parent().unwrap_or(&programs).join("agents");
    // Written last: an installation that broke off has none.
    let note = folder.join("installed.txt");
    let text = wanted.join("\n");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == text) {
        println!("the agents are there");
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| Failure::at("make", &folder, error))?;
    let mut install = Command::new("npm");
    install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    install.arg("--prefix").arg(&folder).args(&wanted);
    println!("$ {}", line(&install));
    succeed(&mut install)?;
    std::fs::write(&note, text).map_err(|error| Failure::at("write", &note, error))?;
    Ok(folder)
}

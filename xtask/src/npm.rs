//! Packages from the npm registry, which the tests run, beside the built programs.
//!
//! Each set is installed once for every list of versions. Without it what needs it is not tested,
//! and the step fails.

use crate::workspace::{Failure, Profile, built, line, succeed};
use std::path::PathBuf;
use std::process::Command;

/// Claude Code, and Codex: the package for a machine, with its version.
const AGENTS: [&str; 2] = [
    "@anthropic-ai/claude-code-linux-{arch}@2.1.325",
    "@openai/codex-linux-{arch}@npm:@openai/codex@0.166.0-linux-{arch}",
];

/// The inspector of the Model Context Protocol; later ones need a newer Node than Debian's.
const INSPECTOR: [&str; 1] = ["@modelcontextprotocol/inspector-cli@1.0.3"];

/// The folder that the agents are in.
pub(crate) fn agents() -> Result<PathBuf, Failure> {
    installed("agents", &AGENTS)
}

/// The folder that the inspector is in.
pub(crate) fn inspector() -> Result<PathBuf, Failure> {
    installed("mcp-inspector", &INSPECTOR)
}

/// The folder of a set of packages; installed first where they are missing.
fn installed(name: &str, packages: &[&str]) -> Result<PathBuf, Failure> {
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let wanted: Vec<String> =
        packages.iter().map(|package| package.replace("{arch}", arch)).collect();
    let programs = built(Profile::Dev)?;
    let folder = programs.parent().unwrap_or(&programs).join(name);
    // Written last: an installation that broke off has none.
    let note = folder.join("installed.txt");
    let text = wanted.join("\n");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == text) {
        println!("{name}: installed");
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

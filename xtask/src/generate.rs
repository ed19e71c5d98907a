//! `cargo xtask generate`: the files that are made from the programs' own definitions of their
//! command line and of the API.
//!
//! They are committed, so that a reader and a packager find them without building anything;
//! `cargo xtask tidy` compares them with what the programs print.

use crate::workspace::{Failure, Profile, build, built, output, root};
use std::path::Path;
use std::process::Command;

/// Each generated file, by its path in the workspace, and the program and arguments that print it.
pub(crate) const FILES: [(&str, &str, &[&str]); 5] = [
    ("docs/man/cowork.1", "cowork", &["man"]),
    ("docs/openapi.json", "coworkd", &["--openapi"]),
    ("completions/cowork.bash", "cowork", &["completions", "bash"]),
    ("completions/cowork.zsh", "cowork", &["completions", "zsh"]),
    ("completions/cowork.fish", "cowork", &["completions", "fish"]),
];

/// Writes every generated file.
pub(crate) fn generate() -> Result<(), Failure> {
    for (name, contents) in contents()? {
        let path = root().join(name);
        let folder = path.parent().unwrap_or(root());
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::at("make the folder", folder, error))?;
        std::fs::write(&path, contents).map_err(|error| Failure::at("write", &path, error))?;
        println!("{name}");
    }
    Ok(())
}

/// What each generated file should say.
pub(crate) fn contents() -> Result<Vec<(&'static str, Vec<u8>)>, Failure> {
    build(&["--quiet"])?;
    let programs = built(Profile::Dev)?;
    let print = |program: &str, arguments: &[&str]| print(&programs.join(program), arguments);
    FILES.into_iter().map(|(name, by, arguments)| Ok((name, print(by, arguments)?))).collect()
}

fn print(program: &Path, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
    let mut command = Command::new(program);
    // The width of help texts follows the terminal; the files are the same everywhere.
    command.args(arguments).env_clear();
    output(&mut command)
}

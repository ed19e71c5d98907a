//! `cargo xtask generate`: the files that are made from the command line's own definition.
//!
//! They are committed, so that a reader and a packager find them without building anything;
//! `cargo xtask tidy` compares them with what the program prints.

use crate::workspace::{Failure, Profile, built, cargo, output, root, succeed};
use std::path::Path;
use std::process::Command;

/// Each generated file, by its path in the workspace, and the arguments of `cowork` that print it.
pub(crate) const FILES: [(&str, &[&str]); 4] = [
    ("docs/man/cowork.1", &["man"]),
    ("completions/cowork.bash", &["completions", "bash"]),
    ("completions/cowork.zsh", &["completions", "zsh"]),
    ("completions/cowork.fish", &["completions", "fish"]),
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
    succeed(&mut cargo(["build", "--quiet", "--package", "cowork"]))?;
    let cowork = built(Profile::Dev)?.join("cowork");
    FILES.into_iter().map(|(name, arguments)| Ok((name, print(&cowork, arguments)?))).collect()
}

fn print(cowork: &Path, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
    let mut command = Command::new(cowork);
    // The width of help texts follows the terminal; the files are the same everywhere.
    command.args(arguments).env_clear();
    output(&mut command)
}

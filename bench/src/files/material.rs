//! What is unpacked, searched, checked out and built: made once, the same for everybody.

use super::disk::run;
use crate::options::Effort;
use crate::stopped::Stopped;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Files in the archive, a hundred in each folder.
    pub(super) files: usize,
    /// Files in the repository.
    pub(super) tracked: usize,
    /// Files for the compiler.
    pub(super) sources: usize,
    /// Packages for npm, each with fifty files.
    pub(super) packages: usize,
    pub(super) transactions: usize,
    /// Lines that a shell appends.
    pub(super) lines: usize,
}

impl Size {
    pub(super) fn of(effort: Effort) -> Self {
        let (quick, full) = (
            Self {
                files: 1000,
                tracked: 500,
                sources: 8,
                packages: 4,
                transactions: 50,
                lines: 200,
            },
            Self {
                files: 10_000,
                tracked: 5000,
                sources: 40,
                packages: 20,
                transactions: 500,
                lines: 1000,
            },
        );
        effort.pick(quick, full)
    }
}

/// Everything that jobs need: a folder with tools, and one that every contender gets a copy of.
#[derive(Debug)]
pub(super) struct Material {
    folder: PathBuf,
    /// The Rust toolchain, if it can be read, else why not.
    pub(super) rust: Result<PathBuf, String>,
}

impl Material {
    /// Makes it all in a new folder. `program` is the small program that changes files.
    pub(super) fn make(folder: PathBuf, program: &Path, size: Size) -> Result<Self, Stopped> {
        let failed = |error: std::io::Error| Stopped::at(folder.display(), error);
        for place in ["", "tools", "tools/packs", "tools/tree", "model"] {
            std::fs::create_dir(folder.join(place)).map_err(failed)?;
        }
        std::fs::copy(program, folder.join("tools/files")).map_err(failed)?;
        let rust = toolchain();
        if let Ok(rust) = &rust {
            std::os::unix::fs::symlink(rust, folder.join("rust")).map_err(failed)?;
        }
        let material = Self { folder, rust };
        material.trees(size).map_err(|error| Stopped::at("make files to work with", error))?;
        material.pack()?;
        Ok(material)
    }

    pub(super) fn tools(&self) -> PathBuf {
        self.folder.join("tools")
    }

    /// A folder to work in, new, beside the tools.
    pub(super) fn copy(&self, name: &str) -> Result<PathBuf, Stopped> {
        let to = self.folder.join(name);
        let mut command = Command::new("cp");
        run(command.arg("-a").arg(self.folder.join("model")).arg(&to))?;
        Ok(to)
    }

    fn trees(&self, size: Size) -> std::io::Result<()> {
        let at = |place: &str| self.folder.join(place);
        fill(&at("tools/tree"), size.files)?;
        fill(&at("model/repo"), size.tracked)?;
        for number in 0..size.packages {
            let name = format!("pack{number}");
            let package = at(&format!("tools/packs/{name}/package"));
            fill(&package, 50)?;
            let text = format!("{{\"name\":\"{name}\",\"version\":\"1.0.0\"}}\n");
            std::fs::write(package.join("package.json"), text)?;
        }
        for folder in ["model/app", "model/c", "model/hello/src"] {
            std::fs::create_dir_all(at(folder))?;
        }
        let needs: Vec<_> = (0..size.packages)
            .map(|number| format!("\"pack{number}\":\"file:../../tools/packs/pack{number}.tgz\""))
            .collect();
        let app = format!(
            "{{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{{{}}}}}\n",
            needs.join(",")
        );
        std::fs::write(at("model/app/package.json"), app)?;
        for number in 0..size.sources {
            std::fs::write(at(&format!("model/c/f{number}.c")), source(number))?;
        }
        let manifest = "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
        std::fs::write(at("model/hello/Cargo.toml"), manifest)?;
        let main = "fn main() {\n    println!(\"hello\");\n}\n";
        std::fs::write(at("model/hello/src/main.rs"), main)?;
        let mut sql = String::from("create table t(n integer, text text);\n");
        for number in 0..size.transactions {
            // Writing to a string cannot fail.
            cowork_sys::ignore(writeln!(sql, "insert into t values({number}, 'row {number}');"));
        }
        std::fs::write(at("tools/transactions.sql"), sql)
    }

    /// Archives, and the repository with a branch that has next to nothing.
    fn pack(&self) -> Result<(), Stopped> {
        let script = r#"
            set -e
            tar -C tools -cf tools/tree.tar tree; rm -rf tools/tree
            for pack in tools/packs/*; do tar -C "$pack" -czf "$pack.tgz" package; rm -rf "$pack"; done
            cd model/repo
            export GIT_AUTHOR_NAME=b GIT_AUTHOR_EMAIL=b@localhost GIT_COMMITTER_NAME=b GIT_COMMITTER_EMAIL=b@localhost
            git init -q .; git config gc.auto 0; git config maintenance.auto false
            git checkout -q -b files; git add .; git commit -q -m files
            git checkout -q --orphan empty; git rm -rfq .; echo empty > README
            git add README; git commit -q -m empty; git gc -q"#;
        let mut command = Command::new("bash");
        run(command.args(["-c", script]).current_dir(&self.folder))
    }
}

/// Files of about a kilobyte, a hundred in each folder.
fn fill(folder: &Path, files: usize) -> std::io::Result<()> {
    for number in 0..files {
        let below = folder.join(format!("d{}", number / 100));
        if number.is_multiple_of(100) {
            std::fs::create_dir_all(&below)?;
        }
        let line = format!("this is line and file {number} of a tree with many files\n");
        std::fs::write(below.join(format!("f{number}.txt")), line.repeat(16 + number % 8))?;
    }
    Ok(())
}

/// A file that keeps a compiler busy for a moment.
fn source(number: usize) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for function in 0..40 {
        let line = format!(
            "int f{number}_{function}(const char *text, int n) {{ char room[64]; \
             snprintf(room, sizeof room, \"%s %d\", text, n); \
             return (int)strlen(room) * {function} + atoi(text); }}\n"
        );
        text.push_str(&line);
    }
    text
}

/// The toolchain of whoever runs this.
fn toolchain() -> Result<PathBuf, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir("/").stdin(Stdio::null());
    let said = rustc.output().map_err(|error| format!("there is no `rustc`: {error}"))?;
    if !said.status.success() {
        return Err("`rustc` does not say where its toolchain is".into());
    }
    let path = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    match std::fs::metadata(path.join("bin/cargo")) {
        Ok(_) => Ok(path),
        Err(error) => Err(format!("{}: {error}", path.join("bin/cargo").display())),
    }
}

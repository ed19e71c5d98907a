//! `cargo xtask tidy`: the rules of this workspace that the compiler does not know.
//!
//! A broken rule is a sentence with the file and line it is about. All rules are checked before
//! any failure is reported, so that one run shows everything there is to do.
//!
//! Deliberately absent: what rustfmt and clippy already say.

mod crates;
mod rust;
mod source;
mod supply;
mod tested;

use crate::generate;
use crate::workspace::{Failure, root, text};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages in the lock file; more than that is more than can be known.
const MAX_PACKAGES: usize = 300;

/// Checks every rule.
pub(crate) fn tidy() -> Result<(), Failure> {
    let files = files()?;
    let mut findings = source::check(&files);
    findings.extend(crates::edges()?);
    findings.extend(crates::no_async_runtime()?);
    findings.extend(supply::check()?);
    findings.extend(lock(&files));
    findings.extend(changelog(&files));
    findings.extend(tested::check(&files));
    findings.extend(files.iter().flat_map(machine_paths));
    findings.extend(generated()?);
    findings.sort();
    let broken = findings.iter().filter(|finding| finding.weight == Weight::Broken).count();
    for finding in findings {
        println!("{finding}");
    }
    match broken {
        0 => Ok(()),
        1 => Err(Failure::new("one rule of this workspace is broken")),
        more => Err(Failure::new(format!("rules of this workspace are broken in {more} places"))),
    }
}

/// A place where a rule is broken, or soon will be.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: PathBuf,
    /// Counted from 1; `None` for the file as a whole.
    line: Option<usize>,
    weight: Weight,
    sentence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Tidy fails.
    Broken,
    /// Worth knowing.
    Note,
}

impl Finding {
    fn file(path: &Path, sentence: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, weight: Weight::Broken, sentence: sentence.into() }
    }

    /// `line` is counted from 0, as iterators do.
    fn line(path: &Path, line: usize, sentence: impl Into<String>) -> Self {
        Self { line: Some(line + 1), ..Self::file(path, sentence) }
    }

    fn note(path: &Path, sentence: impl Into<String>) -> Self {
        Self { weight: Weight::Note, ..Self::file(path, sentence) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if self.weight == Weight::Note {
            write!(f, " note:")?;
        }
        write!(f, " {}", self.sentence)
    }
}

/// A text file of the workspace.
#[derive(Debug)]
struct File {
    /// Relative to the workspace.
    path: PathBuf,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// Every text file that is committed, or would be; in a tree without a repository, every text
/// file that no tool has made.
fn files() -> Result<Vec<File>, Failure> {
    let mut paths = Vec::new();
    if std::fs::metadata(root().join(".git")).is_ok() {
        paths.extend(committed()?);
    } else {
        walk(Path::new(""), &mut paths)?;
    }
    let mut files = Vec::new();
    for path in paths {
        let full = root().join(&path);
        match std::fs::read(&full) {
            Ok(bytes) => {
                files.extend(String::from_utf8(bytes).ok().map(|text| File { path, text }));
            }
            // Deleted, but not yet from the index.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::at("read", &full, error)),
        }
    }
    Ok(files)
}

fn committed() -> Result<Vec<PathBuf>, Failure> {
    let mut git = Command::new("git");
    // The checks run as root; the files may be somebody else's.
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]);
    git.args(["--cached", "--others", "--exclude-standard"]).current_dir(root());
    Ok(text(&mut git)?.split_terminator('\0').map(PathBuf::from).collect())
}

/// Folders that tools make.
const MADE: [&str; 4] = ["target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let full = root().join(folder);
    let unreadable = |error| Failure::at("list", &full, error);
    for entry in std::fs::read_dir(&full).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && !MADE.iter().any(|made| path == Path::new(made)) {
            walk(&path, paths)?;
        }
    }
    Ok(())
}

fn named<'a>(files: &'a [File], name: &str) -> Option<&'a File> {
    files.iter().find(|file| file.path == Path::new(name))
}

fn lock(files: &[File]) -> Option<Finding> {
    let file = named(files, "Cargo.lock")?;
    let packages = file.text.lines().filter(|line| *line == "[[package]]").count();
    let sentence = format!("{packages} packages, {MAX_PACKAGES} are allowed");
    (packages > MAX_PACKAGES).then(|| Finding::file(&file.path, sentence))
}

fn changelog(files: &[File]) -> Option<Finding> {
    let file = named(files, "CHANGELOG.md")?;
    let is_version = |line: &str| {
        let title = line.strip_prefix("## ").map(|title| title.trim_start_matches('['));
        title.is_some_and(|title| {
            title.starts_with("Unreleased") || title.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let sentence = "there is neither a heading `## Unreleased` nor one with a version";
    (!file.text.lines().any(is_version)).then(|| Finding::file(&file.path, sentence))
}

/// A file that knows where it was written does not work elsewhere.
fn machine_paths(file: &File) -> Vec<Finding> {
    // Written in halves, so that this file is no finding. Root's home is also what tests and
    // attacks reach for in vain.
    let subject = source::is_integration_test(&file.path) || file.path.starts_with("escape");
    let home = (!subject).then_some(concat!("/ro", "ot/"));
    let folders = [Some(concat!("/wo", "rk/")), home];
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for folder in folders.into_iter().flatten() {
            let absolute = line.match_indices(folder).any(|(at, _)| {
                let before = line.get(..at).and_then(|before| before.chars().next_back());
                !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '*'))
            });
            if absolute {
                let sentence = format!("names `{folder}`, a folder of one machine");
                findings.push(Finding::line(&file.path, number, sentence));
            }
        }
    }
    findings
}

fn generated() -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (name, expected) in generate::contents()? {
        if std::fs::read(root().join(name)).ok() != Some(expected) {
            let sentence = "is not what the programs print; run `cargo xtask generate`";
            findings.push(Finding::file(Path::new(name), sentence));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::{File, changelog, lock, machine_paths};

    fn file(path: &str, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn paths_of_one_machine_are_found_and_others_are_not() {
        let work = ["/wo", "rk/x"].concat();
        let at = |text: &str| {
            let found = machine_paths(&file("a.md", text));
            found.iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(at(&format!("a\nsee {work}")), [Some(2)]);
        assert_eq!(at(&format!("`{work}` and /ro{}/y", "ot")), [Some(1), Some(1)]);
        let home = format!("/ro{}/x", "ot");
        assert_eq!(machine_paths(&file("crates/cli/tests/input.rs", home)), []);
        assert_eq!(at(&format!("frame{work} .{work} …/network/x")), [None::<usize>; 0]);
    }

    #[test]
    fn a_changelog_has_a_version() {
        let broken = |text: &str| changelog(&[file("CHANGELOG.md", text)]).is_some();
        assert!(!broken("# Changes\n## Unreleased\n"));
        assert!(!broken("## [Unreleased]"));
        assert!(!broken("## 0.1.0"));
        assert!(broken("# Changes\n## Soon\n"));
        assert_eq!(changelog(&[]), None);
    }

    #[test]
    fn the_lock_file_has_a_budget() {
        let with = |packages: usize| [file("Cargo.lock", "[[package]]\n".repeat(packages))];
        assert_eq!(lock(&with(300)), None);
        assert!(lock(&with(301)).is_some());
    }
}

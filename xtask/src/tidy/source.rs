//! What Rust files must say, must not say, and how long they may be.

use super::rust::{Views, words};
use super::{File, Finding};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of one file without its tests: aimed at, and refused beyond.
const AIM_LINES: usize = 500;
const MAX_LINES: usize = 800;

/// All lines of the crate with the unsafe code: it has to be read as a whole.
const MAX_SYS_LINES: usize = 1500;
const SYS: &str = "crates/sys/src";

/// Where unsafe code may be: in the crate for it, and in attacks, which do what a crate for safe
/// calls does not offer.
const UNSAFE_IN: [&str; 2] = [SYS, "escape"];

/// The daemon, and the only file of it that starts a process: the keeper.
const DAEMON: &str = "crates/daemon/src";
const STARTS_THE_KEEPER: &str = "crates/daemon/src/engine.rs";
/// Calls that make a process of this one, and functions of ours that start a program.
const STARTS: [&str; 6] = ["fork", "vfork", "clone3", "posix_spawn", "start_program", "CommandExt"];

/// Parts of names that say nothing.
const EMPTY_NAMES: [&str; 3] = ["Manager", "Helper", "Util"];

/// Words that promise work. They carry the number of the issue that has the promise.
const PROMISES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Checks every Rust file, and the promises in the comments of every other file that has them.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let rust: Vec<(&File, Views)> = files
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file, Views::of(&file.text)))
        .collect();
    let tests: BTreeSet<PathBuf> =
        rust.iter().flat_map(|(file, views)| test_files(&file.path, views)).collect();
    let mut findings = Vec::new();
    for (file, views) in &rust {
        findings.extend(module_doc(file));
        findings.extend(unsafe_words(&file.path, views));
        findings.extend(forbids_unsafe(&file.path, views));
        findings.extend(empty_names(&file.path, views));
        findings.extend(starts_of_processes(&file.path, views));
        findings.extend(promises(&file.path, &views.comments));
        if !tests.contains(&file.path) && !is_integration_test(&file.path) {
            findings.extend(length(file, views));
        }
    }
    for file in files.iter().filter(|file| has_number_signs(&file.path)) {
        findings.extend(promises(&file.path, &file.text));
    }
    findings.extend(sys_length(files));
    findings
}

/// Files whose comments start with `#`.
fn has_number_signs(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("toml" | "sh" | "py" | "yml" | "yaml")) || path.starts_with(".ci")
}

pub(super) fn is_integration_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
}

/// The files that a file says are modules of its tests.
fn test_files(path: &Path, views: &Views) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default();
    let folder = match stem.to_str() {
        Some("mod" | "lib" | "main") => folder.to_path_buf(),
        _ => folder.join(stem),
    };
    let modules = views.test_modules();
    let files = modules.iter().map(|name| [format!("{name}.rs"), format!("{name}/mod.rs")]);
    files.flatten().map(|name| folder.join(name)).collect()
}

fn module_doc(file: &File) -> Option<Finding> {
    let opens = file.text.trim_start().starts_with("//!");
    let sentence = "does not open with `//!` and its purpose";
    (!opens).then(|| Finding::line(&file.path, 0, sentence))
}

fn may_be_unsafe(path: &Path) -> bool {
    UNSAFE_IN.iter().any(|folder| path.starts_with(folder))
}

fn unsafe_words(path: &Path, views: &Views) -> Vec<Finding> {
    if may_be_unsafe(path) {
        return Vec::new();
    }
    let lines = views.code.lines().enumerate();
    let lines = lines.filter(|(_, line)| words(line).any(|word| word == "unsafe"));
    let sentence = format!("unsafe code belongs into `{SYS}`");
    lines.map(|(number, _)| Finding::line(path, number, sentence.as_str())).collect()
}

fn forbids_unsafe(path: &Path, views: &Views) -> Option<Finding> {
    let is_root = path.ends_with("src/lib.rs")
        || path.ends_with("src/main.rs")
        || path.parent().is_some_and(|folder| folder.ends_with("src/bin"));
    if !is_root || may_be_unsafe(path) {
        return None;
    }
    let forbids = views.code.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    let sentence = "is the root of a crate and does not say `#![forbid(unsafe_code)]`";
    (!forbids).then(|| Finding::line(path, 0, sentence))
}

/// The daemon has threads, and what a copy of it would hold is not to be known: it never forks.
fn starts_of_processes(path: &Path, views: &Views) -> Vec<Finding> {
    if !path.starts_with(DAEMON) {
        return Vec::new();
    }
    let tests: BTreeSet<usize> = views.test_lines().into_iter().collect();
    let lines: Vec<(usize, &str)> =
        views.code.lines().enumerate().filter(|(number, _)| !tests.contains(number)).collect();
    let sentence = "the daemon starts the keeper and no other process";
    let starts = lines.iter().filter(|(_, line)| words(line).any(|word| STARTS.contains(&word)));
    let mut findings: Vec<_> =
        starts.map(|(number, _)| Finding::line(path, *number, sentence)).collect();
    // As names of modules are broken over lines.
    let code: String = lines.iter().flat_map(|(_, line)| line.split_whitespace()).collect();
    let mut imports = code.split("process::{").skip(1).filter_map(|rest| rest.split('}').next());
    let imported = imports.any(|names| names.split(',').any(|name| name.starts_with("Command")));
    let launches = path != Path::new(STARTS_THE_KEEPER) && code.contains("Link::launch");
    if imported || launches || code.contains("process::Command") || code.contains("client::Keeper")
    {
        findings.push(Finding::file(path, sentence));
    }
    findings
}

fn empty_names(path: &Path, views: &Views) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in views.code.lines().enumerate() {
        let mut words = words(line);
        while let Some(word) = words.next() {
            if !matches!(word, "struct" | "enum" | "trait" | "type" | "union") {
                continue;
            }
            let Some(name) = words.next() else { break };
            if let Some(part) = EMPTY_NAMES.into_iter().find(|part| name.contains(part)) {
                let sentence = format!("`{name}`: `{part}` says nothing; name what it is or does");
                findings.push(Finding::line(path, number, sentence));
            }
        }
    }
    findings
}

fn promises(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for promise in PROMISES {
            if words(line).any(|word| word == promise) && !has_issue(line) {
                let sentence = format!("{promise} without the number of an issue, like `#12`");
                findings.push(Finding::line(path, number, sentence));
            }
        }
    }
    findings
}

fn has_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()))
}

fn length(file: &File, views: &Views) -> Option<Finding> {
    let lines = file.text.lines().count().saturating_sub(views.test_lines().len());
    if lines > MAX_LINES {
        let sentence = format!("{lines} lines without tests, {MAX_LINES} are allowed");
        return Some(Finding::file(&file.path, sentence));
    }
    let sentence = format!("{lines} lines without tests, {AIM_LINES} are aimed at");
    (lines > AIM_LINES).then(|| Finding::note(&file.path, sentence))
}

fn sys_length(files: &[File]) -> Option<Finding> {
    let sys = files.iter().filter(|file| file.path.starts_with(SYS));
    let lines: usize = sys.map(|file| file.text.lines().count()).sum();
    let sentence = format!("{lines} lines in all, {MAX_SYS_LINES} are allowed");
    (lines > MAX_SYS_LINES).then(|| Finding::file(Path::new(SYS), sentence))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::File;

    fn file(path: &str, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[track_caller]
    fn expect(files: &[File], expected: &[&str]) {
        let found: Vec<String> = check(files).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_good_file_is_no_finding() {
        let text = "//! Doc.\n\n#![forbid(unsafe_code)]\n\n// unsafe\nfn f() { \"unsafe\"; }\n";
        expect(&[file("crates/api/src/lib.rs", text)], &[]);
    }

    #[test]
    fn unsafe_code_is_only_where_it_belongs() {
        let text = "//! Doc.\nunsafe fn f() {}\n";
        expect(&[file("crates/sys/src/mount.rs", text), file("escape/src/main.rs", text)], &[]);
        expect(
            &[file("crates/sandbox/src/kernel.rs", text)],
            &["crates/sandbox/src/kernel.rs:2: unsafe code belongs into `crates/sys/src`"],
        );
    }

    #[test]
    fn every_crate_root_forbids_unsafe_code() {
        let text = "//! #![forbid(unsafe_code)]\n";
        let said = "is the root of a crate and does not say `#![forbid(unsafe_code)]`";
        for path in ["xtask/src/main.rs", "crates/api/src/lib.rs", "crates/sandbox/src/bin/a.rs"] {
            expect(&[file(path, text)], &[&format!("{path}:1: {said}")]);
        }
        expect(&[file("crates/api/src/plan.rs", text), file("escape/src/main.rs", text)], &[]);
    }

    #[test]
    fn the_daemon_starts_the_keeper_and_nothing_else() {
        let said = "the daemon starts the keeper and no other process";
        let path = "crates/daemon/src/session/mod.rs";
        for code in [
            "use std::process::Command;",
            "use std::process::{ExitCode, Command};",
            "use tokio::process::{\n    Child,\n    Command,\n};",
            "fn f() { std::process::Command::new(a); }",
            "fn f() { cowork_sandbox::client::Link::launch(a); }",
            "use cowork_sandbox::client::Keeper;",
        ] {
            let text = format!("//! Doc.\n{code}\n");
            expect(&[file(path, text.as_str())], &[&format!("{path}: {said}")]);
            expect(&[file("crates/sandbox/src/client/link.rs", text)], &[]);
        }
        let text = "//! Doc.\nfn f() {\n    cowork_sys::fork(a);\n}\n";
        expect(&[file(path, text)], &[&format!("{path}:3: {said}")]);
        let engine = "//! Doc.\n// It could fork.\nfn f() { client::Link::launch(a); }\n\
                      use std::process::ExitCode;\nuse cowork_client::types::Command;\n\
                      #[cfg(test)]\nmod tests {\n    use std::process::Command;\n}\n";
        expect(&[file("crates/daemon/src/engine.rs", engine)], &[]);
    }

    #[test]
    fn a_module_opens_with_its_purpose() {
        let said = "crates/api/src/plan.rs:1: does not open with `//!` and its purpose";
        expect(&[file("crates/api/src/plan.rs", "// A plan.\n//! Doc.\n")], &[said]);
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        let text = "//! Doc.\nstruct Session;\npub(crate) struct SessionManager<T>(T);\n";
        let said = "a.rs:3: `SessionManager`: `Manager` says nothing; name what it is or does";
        expect(&[file("a.rs", text)], &[said]);
    }

    #[test]
    fn promises_carry_an_issue() {
        let word = ["TO", "DO"].concat();
        let text = format!("//! Doc.\n// {word} #12: a\n// {word}: b\nlet x = \"{word}\";\n");
        let said = format!("{word} without the number of an issue, like `#12`");
        expect(&[file("a.rs", text)], &[&format!("a.rs:3: {said}")]);
        expect(&[file("a.toml", format!("# {word}\n"))], &[&format!("a.toml:1: {said}")]);
        expect(&[file("a.md", format!("{word}\n"))], &[]);
    }

    #[test]
    fn tests_do_not_count_as_length() {
        let of = |lines: usize| format!("//! Doc.\n{}", "// a\n".repeat(lines - 1));
        let with_tests =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", of(500), "a\n".repeat(400));
        expect(&[file("a.rs", with_tests), file("tests/a.rs", of(900))], &[]);
        expect(
            &[file("a.rs", of(501))],
            &["a.rs: note: 501 lines without tests, 500 are aimed at"],
        );
        expect(&[file("a.rs", of(801))], &["a.rs: 801 lines without tests, 800 are allowed"]);
        let parent = file("src/x/mod.rs", "//! Doc.\n#[cfg(test)]\nmod proof;\n");
        expect(&[parent, file("src/x/proof.rs", of(900))], &[]);
    }

    #[test]
    fn the_unsafe_crate_has_a_budget() {
        let text = format!("//! Doc.\n{}", "//\n".repeat(499));
        let files = [1, 2, 3, 4].map(|n| file(&format!("crates/sys/src/{n}.rs"), text.as_str()));
        expect(files.get(..3).unwrap(), &[]);
        expect(&files, &["crates/sys/src: 2000 lines in all, 1500 are allowed"]);
    }
}

//! What a machine may execute, for the mark "runs on your machine".
//!
//! A file is judged by its mode, its first bytes and its name. Nothing is refused for it.
//!
//! Deliberately absent: libraries, archives and documents, which take a program that opens them.

use super::judge::Judge;
use super::protected::{Protected, protected};
use cowork_api::files::{NamePolicy, Rules};
use std::sync::LazyLock;

/// Any of the three bits that let somebody execute a file.
const EXECUTABLE: u32 = 0o111;

/// Longest name of an interpreter that is shown.
const MAX_INTERPRETER: usize = 64;

/// Why the machine may execute the file at `path`, below a granted folder, with these permissions
/// and first bytes; nothing if it does not by itself.
pub fn runs_here(path: &[u8], mode: u32, start: &[u8]) -> Option<String> {
    let interpreter = interpreter(start);
    if mode & EXECUTABLE != 0 {
        return Some(match interpreter {
            Some(name) => format!("it is executable, by `{name}`"),
            None if start.starts_with(b"\x7fELF") => "it is an executable program".to_owned(),
            None => "it is executable".to_owned(),
        });
    }
    by_name(path, start).or_else(|| interpreter.map(|name| format!("it is a script for `{name}`")))
}

/// What is known about names that run, apart from those that tools run when they are called.
static PROTECTED: LazyLock<Judge> = LazyLock::new(|| known(|policy| policy != NamePolicy::Allow));

/// What is known about the others. They are files, and nothing lies below them.
static COMMON: LazyLock<Judge> = LazyLock::new(|| known(|policy| policy == NamePolicy::Allow));

fn known(of: impl Fn(NamePolicy) -> bool) -> Judge {
    let running = protected().iter().filter(|entry| entry.runs() && of(entry.policy()));
    Judge::new(&Rules { names: running.flat_map(Protected::rules).collect(), ..Rules::default() })
}

fn by_name(path: &[u8], start: &[u8]) -> Option<String> {
    let components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let (name, above) = components.split_last()?;
    if *name == b".git" && start.starts_with(b"gitdir:") {
        return Some("it says where the repository is whose hooks git runs".to_owned());
    }
    if is_git_config(name, above) {
        return config_reason(start);
    }
    let reason = PROTECTED.name(path).reason;
    // The thousands of packages of a project are run by way of what is outside of them.
    let is_package =
        |name: &&[u8]| matches!(*name, b"node_modules" | b"site-packages" | b"dist-packages");
    let common = || COMMON.name(name).reason.filter(|_| !above.iter().any(is_package));
    reason.or_else(common).map(str::to_owned)
}

/// Whether this is the configuration of a repository.
fn is_git_config(name: &[u8], above: &[&[u8]]) -> bool {
    let is_config = matches!(name, b"config" | b"config.worktree");
    is_config && above.iter().any(|folder| folder.ends_with(b".git"))
}

/// The keys of a git configuration whose values git runs (git-config(1)).
const RUN_BY_GIT: [&str; 19] = [
    "hookspath",
    "fsmonitor",
    "sshcommand",
    "gitproxy",
    "askpass",
    "editor",
    "pager",
    "program",
    "helper",
    "textconv",
    "command",
    "driver",
    "clean",
    "smudge",
    "process",
    "cmd",
    "uploadpack",
    "receivepack",
    "alternaterefscommand",
];

fn config_reason(start: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(start).to_ascii_lowercase();
    if text.lines().any(|line| line.trim_start().starts_with("[alias")) {
        return Some("it has commands of its own for git, which can run programs".to_owned());
    }
    if text.lines().any(|line| line.trim_start().starts_with("[include")) {
        return Some("it includes another file, which can name programs that git runs".to_owned());
    }
    let key = |line: &str| {
        let setting = line.rsplit(']').next().unwrap_or(line);
        let word = setting.split('=').next().unwrap_or_default().trim().to_owned();
        RUN_BY_GIT.into_iter().find(|known| *known == word)
    };
    text.lines()
        .find_map(key)
        .map(|key| format!("its key `{key}` names a program that git runs, or where"))
}

/// What a script says it is run by.
fn interpreter(start: &[u8]) -> Option<String> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let line: String =
        line.trim().chars().filter(|c| !c.is_control()).take(MAX_INTERPRETER).collect();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::runs_here;

    #[track_caller]
    fn check(path: &str, mode: u32, start: &str, expected: Option<&str>) {
        let found = runs_here(path.as_bytes(), mode, start.as_bytes());
        assert_eq!(found.as_deref(), expected, "{path}");
    }

    #[test]
    fn what_can_be_executed_runs() {
        check("bin/x", 0o100_755, "", Some("it is executable"));
        check("bin/x", 0o100_744, "\x7fELF\x02", Some("it is an executable program"));
        check("bin/x", 0o100_711, "#!/bin/sh -e\nls", Some("it is executable, by `/bin/sh -e`"));
        check(
            "x",
            0o100_644,
            "#! /usr/bin/env node\r\n",
            Some("it is a script for `/usr/bin/env node`"),
        );
        check("x", 0o100_644, "#!\x1b[2J\n", Some("it is a script for `[2J`"));
        check("x", 0o100_644, "#!\n", None);
        check("notes.txt", 0o100_644, "hello", None);
        check("lib.so", 0o100_644, "\x7fELF", None);
    }

    #[test]
    fn what_tools_run_is_known_by_its_name() {
        let build = Some("a build runs it");
        check("Makefile", 0o644, "", build);
        check("crates/a/BUILD.RS", 0o644, "", build);
        check(
            "web/package.json",
            0o644,
            "",
            Some("a package manager runs the scripts that it names"),
        );
        check("node_modules/a/package.json", 0o644, "", None);
        check("node_modules/.bin/a", 0o755, "", Some("it is executable"));
        check("workspace/a.txt", 0o644, "", None);
        check("dockerfiles.d/a.txt", 0o644, "", None);
        check("AGENTS.md", 0o644, "", None);
        for path in [".git/hooks/pre-commit", ".envrc", ".github/workflows/ci.yml", "conftest.py"] {
            assert!(runs_here(path.as_bytes(), 0o644, b"").is_some(), "{path}");
        }
        check(".git/hooks/pre-commit.sample", 0o644, "", None);
    }

    #[test]
    fn a_repository_that_says_what_git_runs_is_told_from_one_that_does_not() {
        let plain = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\
                     \turl = https://editor.example/pager.git\n\tfetch = +refs/heads/*\n\
                     [branch \"helper\"]\n\tmerge = refs/heads/program\n";
        check(".git/config", 0o644, plain, None);
        for (line, key) in [
            ("[core]\n\thooksPath = ../x", "hookspath"),
            ("[core]\nfsmonitor=./x", "fsmonitor"),
            ("[core] sshCommand = x", "sshcommand"),
            ("[credential]\n helper = !x", "helper"),
            ("[filter \"a\"]\n\tclean = x", "clean"),
            ("[merge \"a\"]\n\tdriver = x %A", "driver"),
        ] {
            let expected = format!("its key `{key}` names a program that git runs, or where");
            check("a/.git/config", 0o644, &format!("{plain}{line}\n"), Some(&expected));
        }
        check(
            ".git/config",
            0o644,
            "[include]\npath = x",
            Some("it includes another file, which can name programs that git runs"),
        );
        check(
            ".git/config",
            0o644,
            "[alias]\nx = !y",
            Some("it has commands of its own for git, which can run programs"),
        );
        check(
            "sub/.git",
            0o644,
            "gitdir: ../x",
            Some("it says where the repository is whose hooks git runs"),
        );
        check("config", 0o644, "hookspath = x", None);
    }
}

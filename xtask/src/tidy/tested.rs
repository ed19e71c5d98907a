//! What the table of srt's keys says is tested is tested: every name in it is a function of the tests.

use super::{File, Finding, named};

/// The document with the table.
const TABLE: &str = "docs/srt.md";
/// Where the tests are, a module each.
const TESTS: &str = "crates/cli/tests/srt";

/// Checks every name in the last column of the table.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let Some(table) = named(files, TABLE) else { return Vec::new() };
    let mut findings = Vec::new();
    for (number, line) in table.text.lines().enumerate() {
        for name in tests(line) {
            if !is_test(files, &name) {
                let sentence = format!("names the test `{name}`, which is not in {TESTS}");
                findings.push(Finding::line(&table.path, number, sentence));
            }
        }
    }
    findings
}

/// The tests that a line names, as `module::function`: a function without a module is of the one that
/// was named before it.
fn tests(line: &str) -> Vec<String> {
    let cell = match line.strip_prefix('|') {
        Some(row) => row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default(),
        None => line,
    };
    let mut module = None;
    let mut found = Vec::new();
    for word in cell.split('`').skip(1).step_by(2) {
        let plain = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        match (word.split_once("::"), module) {
            (Some((of, name)), _) if plain(of) && plain(name) => {
                module = Some(of);
                found.push(word.to_owned());
            }
            (None, Some(of)) if plain(word) && word.contains('_') => {
                found.push(format!("{of}::{word}"));
            }
            _ => {}
        }
    }
    found
}

/// Whether it is a function that is run: one that is defined, and listed or marked as a test.
fn is_test(files: &[File], name: &str) -> bool {
    let Some((module, function)) = name.split_once("::") else { return false };
    let Some(file) = named(files, &format!("{TESTS}/{module}.rs")) else { return false };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("fn {function}(")));
    let marked = at.and_then(|at| lines.get(at.checked_sub(1)?)) == Some(&"#[test]");
    let listed = || {
        let lists = file.text.split("for_everyone!(").skip(1);
        let mut names =
            lists.flat_map(|list| list.split(')').next().unwrap_or_default().split(','));
        names.any(|listed| listed.trim() == function)
    };
    at.is_some() && (marked || listed())
}

#[cfg(test)]
mod tests {
    use super::{check, tests};
    use crate::tidy::File;

    #[test]
    fn names_are_read_from_the_last_column() {
        let row = "| `a::b` | yes | a `word` | `files::one`, `two_more`, unit |";
        assert_eq!(tests(row), ["files::one", "files::two_more"]);
        assert_eq!(
            tests("`--fd` is tested by `network::rules_change`; `line` has others"),
            ["network::rules_change"]
        );
        assert_eq!(tests("|---|---|"), Vec::<String>::new());
    }

    #[test]
    fn what_is_named_must_be_run() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let found = |table: &str| {
            let module = "for_everyone!(listed, missing);\nfn listed() {}\nfn idle() {}\n\
                          #[test]\nfn marked() {}\n";
            let files = [file("docs/srt.md", table), file("crates/cli/tests/srt/files.rs", module)];
            check(&files).len()
        };
        assert_eq!(found("| x | `files::listed` |\n| y | `files::marked` |"), 0);
        assert_eq!(found("| x | `files::idle` |\n| y | `files::missing`, `no_such` |"), 3);
        assert_eq!(found("| x | `other::listed` |"), 1);
    }
}

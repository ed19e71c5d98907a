//! What documents say is tested is tested: every test that the table of srt's keys names, and every
//! test and attack that the table of invariants names, is there and is run.

use super::{File, Finding, named};

/// The document with the table.
const TABLE: &str = "docs/srt.md";
/// Where the tests are, a module each.
const TESTS: &str = "crates/cli/tests/srt";

/// The document with the invariants, which are the rows that begin with a number.
const INVARIANTS: &str = "ARCHITECTURE.md";
/// Where attacks are.
const ATTACKS: &str = "escape/src";

/// Checks every name in the last columns of both tables.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = srt(files);
    findings.extend(invariants(files));
    findings
}

fn invariants(files: &[File]) -> Vec<Finding> {
    let Some(table) = named(files, INVARIANTS) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, text) in table.text.lines().enumerate() {
        let cells: Vec<&str> = text.split('|').map(str::trim).collect();
        let ["", number, _, checked, ""] = cells.as_slice() else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let mut found = 0;
        for word in checked.split('`').skip(1).step_by(2) {
            let (kind, there) = match word {
                name if is_function(name) => ("test", is_run(files, name)),
                name if is_attack(name) => ("attack", is_made(files, name)),
                _ => continue,
            };
            found += 1;
            if !there {
                let sentence = format!("names the {kind} `{word}`, which is not there");
                findings.push(Finding::line(&table.path, line, sentence));
            }
        }
        if found == 0 {
            let sentence = format!("invariant {number} names no test that checks it");
            findings.push(Finding::line(&table.path, line, sentence));
        }
    }
    findings
}

/// `what_a_test_says`: several words of lower case.
fn is_function(word: &str) -> bool {
    word.contains('_')
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// `class.name-of-attack`.
fn is_attack(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '.' | '-'));
    let file = [".rs", ".toml", ".md", ".sh"].iter().any(|end| word.ends_with(end));
    plain && !file && word.contains(['.', '-'])
}

fn is_made(files: &[File], name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    files.iter().any(|file| file.path.starts_with(ATTACKS) && file.text.contains(&quoted))
}

/// Whether a function of that name is a test: marked as one, in a list of scenarios, or one of
/// Python's.
fn is_run(files: &[File], name: &str) -> bool {
    let (rust, python) = (format!("fn {name}("), format!("def {name}("));
    files.iter().any(|file| {
        if !file.is_rust() {
            return name.starts_with("test_") && file.text.contains(&python);
        }
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        let Some(at) = lines.iter().position(|line| line.contains(&rust)) else { return false };
        let above = lines.get(..at).unwrap_or_default().iter().rev();
        let mut above = above.take_while(|line| line.starts_with(['#', '/']));
        let marked = above
            .any(|line| ["#[test]", "#[tokio::test"].iter().any(|mark| line.starts_with(mark)));
        marked || lines.iter().any(|line| line.trim_end_matches(',') == name)
    })
}

fn srt(files: &[File]) -> Vec<Finding> {
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
    fn invariants_name_tests_and_attacks_that_are_there() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let found = |cell: &str| {
            let tests = "for_everyone!(\n    one_listed,\n);\nfn one_listed() {}\nfn an_idle_one() {}\n\
                         #[test]\n#[ignore]\nfn one_marked() {}\n";
            let files = [
                file(
                    "ARCHITECTURE.md",
                    &format!("| # | what | by |\n|---|---|---|\n| 1 | x | {cell} |\n"),
                ),
                file("crates/x/tests/a.rs", tests),
                file("escape/src/x.rs", "attack(\"mount.one-way\")"),
                file("sdk/tests/a.py", "    def test_it_all(self) -> None:"),
            ];
            check(&files).len()
        };
        for good in
            ["`one_listed`", "`a/b.rs`; `one_marked`", "escape: `mount.one-way`", "`test_it_all`"]
        {
            assert_eq!(found(good), 0, "{good}");
        }
        for bad in
            ["`an_idle_one`", "`one_marked`, `no_such_test`", "`mount.other`", "`a/b.rs`", ""]
        {
            assert_eq!(found(bad), 1, "{bad}");
        }
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

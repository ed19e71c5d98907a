//! Patterns, and the same patterns read by somebody who takes no short cut.

use super::{Key, MAX_PARTS, MAX_PATTERN, Pattern};
use crate::files::fold::fold;
use proptest::prelude::*;

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check(text: &str, hits: &[&str], misses: &[&str]) {
    let pattern = pattern(text);
    for path in hits {
        assert!(pattern.matches(path.as_bytes()), "`{text}` misses `{path}`");
    }
    for path in misses {
        assert!(!pattern.matches(path.as_bytes()), "`{text}` covers `{path}`");
    }
}

#[test]
fn a_name_is_found_at_any_depth_with_all_below() {
    check(".envrc", &[".envrc", "a/b/.envrc", ".envrc/x/y", "/.envrc"], &["envrc", ".envrc2", ""]);
    check("a/b", &["a/b", "x/a/b", "a/b/c"], &["a", "b", "a/x/b", "xa/b"]);
    check("a/b/", &["a/b", "a/b/c"], &["a"]);
}

#[test]
fn a_slash_at_the_start_ties_it_to_the_folder() {
    check("/a", &["a", "a/b", "/a"], &["x/a"]);
    check("/a/*/c", &["a/b/c", "a/b/c/d"], &["a/c", "x/a/b/c", "a/b/b/c"]);
    check("/**/a", &["a", "x/y/a"], &["b"]);
}

#[test]
fn two_stars_stand_for_any_number_of_parts() {
    check(".vscode/**", &[".vscode/x", "a/.vscode/x/y"], &[".vscode", "a/.vscode"]);
    check("a/**/b", &["a/b", "a/x/b", "a/x/y/z/b/c"], &["a", "b", "b/a"]);
    check("**", &["a", "a/b"], &[""]);
    check("a/**/**/b", &["a/b", "a/x/b"], &["a/x"]);
    assert_eq!(pattern("**/a"), pattern("a"));
    assert_eq!(pattern("/**/**/a/"), pattern("a"));
}

#[test]
fn stars_and_ranges_stay_within_a_part() {
    check("*.mk", &["a.mk", ".mk", "x/y.mk"], &["a.mkx", "mk", "a.m/k"]);
    check("a*b*c", &["abc", "axxbxxbc", "ac/abc"], &["ab", "acb"]);
    check("a?c", &["abc", "aéc", "a日c"], &["ac", "abbc"]);
    check("?", &["é", "日", "x/y"], &["éé", "xy/zz"]);
    check("*??", &["日本", "ab", "x日y"], &["日", "a"]);
    check("[a-c]x[!0-9]", &["axy", "Bx-", "cxé"], &["dxy", "ax1", "ax"]);
    check("[A-C]", &["a", "B"], &["d"]);
    check(r"[\]x]", &["]", "x"], &["y"]);
    check("[a-]", &["a", "-"], &["b"]);
    check(r"\*\[\!\\", &[r"*[!\"], &["x[!"]);
}

#[test]
fn a_part_can_be_what_it_does_not_say() {
    check(
        ".git/hooks/!*.sample",
        &[".git/hooks/pre-commit", ".git/hooks/a/b.sample", ".git/hooks/sample"],
        &[".git/hooks", ".git/hooks/x.sample", ".git/hooks/x.SAMPLE", ".git/hooks/d.sample/x"],
    );
    check(r"\!x", &["!x"], &["x", "y"]);
}

#[test]
fn every_spelling_that_a_file_system_takes_for_it_counts() {
    let names = [
        ".GIT/Config",
        ".g\u{200C}it/config",
        ".git\u{FEFF}/con\u{FB01}g",
        ".git./config ",
        ".git::$INDEX_ALLOCATION/config::$DATA",
        "git~1/config",
        "GIT~2/CONFIG",
        "./.git//config",
    ];
    check("*.git/config", &names, &["git/config"]);
    check(".git/config", &names, &["git/config", ".git/config.lock", "gits~1/config"]);
    check(".\u{FB01}sh", &[".fish", ".FISH"], &[]);
}

#[test]
fn bytes_that_are_no_text_are_names_too() {
    assert!(pattern("a?c").matches(b"a\xFFc"));
    assert!(pattern("a*c").matches(b"a\xFF\xFEc"));
    assert!(pattern("[!a]x").matches(b"\xFFx"));
    assert!(!pattern("[a-z]x").matches(b"\xFFx"));
    assert!(pattern(".git/x").matches(b"\xFF/.git/x"));
}

#[test]
fn what_leads_to_a_name_is_told_from_what_only_contains_it() {
    let leads =
        |text: &str, path: &str| pattern(text).leads_through(&super::Folded::new(path.as_bytes()));
    for (text, path) in [
        (".git/hooks/**", ".git"),
        (".git/hooks/**", "a/.GIT"),
        (".git/hooks/**", "a/.git/hooks"),
        (".git/hooks/**", "a/.git/hooks/x"),
        (".git/modules/**/hooks/**", ".git/modules/a/b"),
        ("/a/b", "a"),
        (".envrc", ".envrc"),
    ] {
        assert!(leads(text, path), "{text} {path}");
    }
    for (text, path) in [
        (".git/hooks/**", "a"),
        (".git/hooks/**", ".git/objects"),
        (".git/hooks/**", ""),
        ("/a/b", "x"),
        ("/a/b", "x/a"),
        (".envrc", "a"),
    ] {
        assert!(!leads(text, path), "{text} {path}");
    }
}

#[test]
fn what_is_no_pattern_is_refused_with_a_sentence() {
    for (text, sentence) in [
        ("", "the pattern is empty"),
        ("/", "the pattern is empty"),
        ("//", "the pattern is empty"),
        ("a//b", "pattern `a//b` has nothing between two slashes"),
        ("a/../b", "pattern `a/../b` contains `..`, which is no name"),
        ("./a", "pattern `./a` contains `.`, which is no name"),
        ("a\nb", r"pattern `a\nb` contains `\n`"),
        ("a\0", r"pattern `a\0` contains `\0`"),
        (
            "a**",
            "pattern `a**` has `**` beside other characters: write `*` within a name, or `**` \
             alone between slashes",
        ),
        (
            "a[b",
            r"pattern `a[b` has a `[` that starts no range: write `[a-z]`, or `\[` for the character",
        ),
        (
            "[z-a]",
            r"pattern `[z-a]` has a `[` that starts no range: write `[a-z]`, or `\[` for the character",
        ),
        (
            "[!]",
            r"pattern `[!]` has a `[` that starts no range: write `[a-z]`, or `\[` for the character",
        ),
        (r"a\", r"pattern `a\\` ends with `\`: write `\\` for the character"),
        (
            "!a",
            r"pattern `!a` starts with `!`: it would match nearly everything; write a rule with `allow` for what is not protected, or `\!` for the character",
        ),
        ("a/!*", "pattern `a/!*` has the part `!*`, which no name matches"),
        ("a/!", "pattern `a/!` has nothing between two slashes"),
        ("a./b", "pattern `a./b` has the part `a.`, which no name matches"),
        ("* ", "pattern `* ` has the part `* `, which no name matches"),
        ("\u{200D}", r"pattern `\u{200d}` has the part `\u{200d}`, which no name matches"),
    ] {
        let error = text.parse::<Pattern>().map_err(|error| error.to_string());
        assert_eq!(error, Err(sentence.to_owned()), "{text:?}");
    }
    let long = "a".repeat(MAX_PATTERN + 1);
    let sentence = "the pattern is 513 bytes long: at most 512 are allowed";
    assert_eq!(long.parse::<Pattern>().unwrap_err().to_string(), sentence);
    let deep = vec!["a"; MAX_PARTS + 1].join("/");
    let sentence = "the pattern has 33 parts: at most 32 are allowed";
    assert_eq!(deep.parse::<Pattern>().unwrap_err().to_string(), sentence);
}

#[test]
fn the_deepest_pattern_works() {
    let text = vec!["a"; MAX_PARTS].join("/");
    let path = vec!["a"; MAX_PARTS + 40].join("/");
    assert!(pattern(&text).matches(path.as_bytes()));
    assert!(
        pattern(&format!("{}/b", vec!["**/a"; 15].join("/")))
            .matches(format!("{path}/b").as_bytes())
    );
    assert!(!pattern(&format!("{}/b", vec!["**/a"; 15].join("/"))).matches(path.as_bytes()));
}

#[test]
fn a_path_that_is_as_long_as_can_be_takes_no_time() {
    let path = "a/".repeat(2048);
    let star = pattern("**/a/**/a/**/a/**/a/**/b");
    let start = std::time::Instant::now();
    assert!(!star.matches(path.as_bytes()));
    let name = "a".repeat(4096);
    assert!(!pattern("*a*a*a*a*a*a*a*a*b").matches(name.as_bytes()));
    assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn a_key_is_in_every_path() {
    for (text, key) in [
        (".git/hooks/!*.sample", Key::Name(b"hooks")),
        (".VSCODE/**", Key::Name(b".vscode")),
        ("*.tar.GZ", Key::Ending(b"gz")),
        ("*.x/*", Key::Ending(b"x")),
        ("*x", Key::None),
        ("a*/b?", Key::Start(b"b")),
        ("a*/*.x", Key::Ending(b"x")),
        ("?a", Key::None),
    ] {
        assert_eq!(pattern(text).key(), key, "{text}");
    }
}

/// Reads a pattern in the simplest way there is: by trying everything.
mod naive {
    pub(super) fn covers(text: &str, path: &[Vec<u8>]) -> bool {
        let (anchored, text) = text.strip_prefix('/').map_or((false, text), |text| (true, text));
        let text = text.strip_suffix('/').unwrap_or(text);
        let mut parts: Vec<&str> = text.split('/').collect();
        if parts.last() == Some(&"**") {
            parts.push("*");
        }
        if !anchored {
            parts.insert(0, "**");
        }
        (1..=path.len()).any(|length| all(&parts, &path[..length]))
    }

    fn all(parts: &[&str], path: &[Vec<u8>]) -> bool {
        match (parts, path) {
            ([], []) => true,
            (["**", rest @ ..], _) => (0..=path.len()).any(|skip| all(rest, &path[skip..])),
            ([part, rest @ ..], [name, below @ ..]) => one(part, name) && all(rest, below),
            _ => false,
        }
    }

    fn one(part: &str, name: &[u8]) -> bool {
        let name: Vec<char> = str::from_utf8(name).unwrap().chars().collect();
        match part.strip_prefix('!') {
            Some(part) => !chars(&part.chars().collect::<Vec<_>>(), &name),
            None => chars(&part.chars().collect::<Vec<_>>(), &name),
        }
    }

    fn chars(part: &[char], name: &[char]) -> bool {
        match (part, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=name.len()).any(|skip| chars(rest, &name[skip..])),
            (['?', rest @ ..], [_, below @ ..]) => chars(rest, below),
            (['[', first, '-', last, ']', rest @ ..], [c, below @ ..]) => {
                (*first..=*last).contains(c) && chars(rest, below)
            }
            (['[', '!', first, '-', last, ']', rest @ ..], [c, below @ ..]) => {
                !(*first..=*last).contains(c) && chars(rest, below)
            }
            ([one, rest @ ..], [c, below @ ..]) => {
                one.to_lowercase().eq(c.to_lowercase()) && chars(rest, below)
            }
            _ => false,
        }
    }
}

fn written() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[abé]",
        1 => Just("*".to_owned()),
        1 => Just("?".to_owned()),
        1 => Just("[a-b]".to_owned()),
        1 => Just("[!a-b]".to_owned()),
    ];
    let word = proptest::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat());
    let part = prop_oneof![5 => word.clone(), 1 => word.prop_map(|word| format!("!{word}")),
                           2 => Just("**".to_owned())];
    let parts = proptest::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    ("/?", parts, "/?").prop_map(|(start, parts, end)| start + &parts + &end)
}

fn walked() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = "[aAbéÉc]{1,4}".prop_map(|name| {
        let mut folded = Vec::new();
        fold(name.as_bytes(), &mut folded);
        folded
    });
    proptest::collection::vec(name, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn patterns_match_what_a_naive_reader_says(text in written(), path in walked()) {
        let Ok(pattern) = text.parse::<Pattern>() else { return Ok(()) };
        let joined = path.join(&b'/');
        prop_assert_eq!(pattern.matches(&joined), naive::covers(&text, &path), "{}", text);
    }

    #[test]
    fn what_leads_nowhere_covers_nothing_by_its_name(
        text in written(), folder in walked(), other in walked(), below in walked(),
    ) {
        let Ok(pattern) = text.parse::<Pattern>() else { return Ok(()) };
        let leads = |path: &[Vec<u8>]| pattern.leads_through(&super::Folded::new(&path.join(&b'/')));
        if folder.is_empty() || other.is_empty() || leads(&folder) || leads(&other) {
            return Ok(());
        }
        let covers = |path: &[Vec<u8>]| pattern.matches(&[path, &below].concat().join(&b'/'));
        prop_assert_eq!(covers(&folder), covers(&other), "{}", text);
    }

    #[test]
    fn an_example_matches(text in written()) {
        let Ok(pattern) = text.parse::<Pattern>() else { return Ok(()) };
        let is_plain = !text.contains('!');
        prop_assert!(!is_plain || pattern.matches(&pattern.example()), "{}", text);
    }

    #[test]
    fn nothing_makes_it_fail(text in any::<String>(), path in any::<Vec<u8>>()) {
        if let Ok(pattern) = text.parse::<Pattern>() {
            pattern.matches(&path);
        }
    }
}

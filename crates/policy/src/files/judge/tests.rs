//! Verdicts, and the same verdicts without an index.

use super::{Judge, Verdict};
use crate::files::{Contents, Pattern, default_rules};
use cowork_api::files::{NamePolicy, NameRule, Rules};
use proptest::prelude::*;
use std::sync::LazyLock;

fn rules(list: &[(&str, NamePolicy)]) -> Rules {
    let rule = |(pattern, policy): &(&str, NamePolicy)| NameRule {
        pattern: (*pattern).to_owned(),
        policy: *policy,
        reason: format!("because of {pattern}"),
    };
    Rules { names: list.iter().map(rule).collect(), ..Rules::default() }
}

#[test]
fn the_strictest_rule_counts_and_of_equals_the_first() {
    use NamePolicy::{Allow, Ask, Deny, Flag};
    let judge = Judge::new(&rules(&[
        ("a", Flag),
        ("*.x", Ask),
        ("a/b", Deny),
        ("b", Deny),
        ("c", Allow),
        ("?", Allow),
    ]));
    for (path, policy, rule) in [
        ("a", Flag, Some(0)),
        ("a/q.x", Ask, Some(1)),
        ("a/b/q.x", Deny, Some(2)),
        ("b", Deny, Some(3)),
        ("c", Allow, Some(4)),
        ("d", Allow, Some(5)),
        ("nothing", Allow, None),
        ("", Allow, None),
    ] {
        let verdict = judge.name(path.as_bytes());
        assert_eq!((verdict.policy, verdict.rule), (policy, rule), "{path}");
    }
    assert_eq!(judge.name(b"a").reason, Some("because of a"));
    assert_eq!(judge.name(b"nothing"), Verdict::FREE);
}

#[test]
fn a_rule_that_cannot_be_read_is_about_everything() {
    let judge = Judge::new(&rules(&[("a//b", NamePolicy::Deny)]));
    assert_eq!(judge.name(b"x").policy, NamePolicy::Deny);
    assert_eq!(judge.link(b"x").policy, NamePolicy::Deny);
    assert!(judge.may_cover(b"x"));
}

#[test]
fn git_works_unasked_and_its_hooks_do_not() {
    let judge = Judge::new(&default_rules());
    for path in [
        ".git",
        ".git/HEAD",
        ".git/config",
        ".git/config.lock",
        ".git/hooks",
        ".git/hooks/pre-commit.sample",
        ".git/info/exclude",
        ".git/objects/ab/cdef",
        ".git/refs/heads/main",
        ".git/index.lock",
        ".git/worktrees/w/HEAD",
        ".git/modules/lib/hooks/update.sample",
        "sub/.git",
        "bare.git/hooks/update.sample",
        "src/main.rs",
        "node_modules/x/index.js",
        "target/debug/build/x/output",
        ".env",
    ] {
        assert!(judge.name(path.as_bytes()).policy <= NamePolicy::Flag, "{path}");
        assert_eq!(judge.is_blocked_name(path.as_bytes()), None, "{path}");
    }
    for path in [
        ".git/hooks/pre-commit",
        "a/.git/hooks/post-checkout",
        ".git/modules/lib/hooks/update",
        "bare.git/hooks/update",
        "GIT~1/hooks/pre-commit",
        ".g\u{200D}it/hooks/pre-commit",
        ".git/hoo\u{212A}s/pre-commit",
        "home/.bashrc",
        ".SSH/config",
        ".config/systemd/user/x.service",
    ] {
        assert_eq!(judge.name(path.as_bytes()).policy, NamePolicy::Ask, "{path}");
    }
}

#[test]
fn a_link_counts_for_what_it_leads_to() {
    let judge = Judge::new(&default_rules());
    for path in [".git", "a/.GIT", ".git/hooks", ".git/modules/x", ".config", ".ssh"] {
        assert_eq!(judge.link(path.as_bytes()).policy, NamePolicy::Ask, "{path}");
        assert!(judge.may_cover(path.as_bytes()), "{path}");
    }
    for path in ["a", "latest", "node_modules/.bin/x", "src/lib", ".git/objects/x"] {
        assert_eq!(judge.link(path.as_bytes()).policy, NamePolicy::Allow, "{path}");
        assert!(!judge.may_cover(path.as_bytes()), "{path}");
    }
    assert_eq!(judge.link(b".vscode").policy, NamePolicy::Flag);
    assert!(!judge.may_cover(b".vscode"));
}

#[test]
fn types_are_refused_by_their_ending() {
    let judge = Judge::new(&default_rules());
    let exe = "files that end in `.exe` are refused here: it is a program for Windows";
    for path in ["setup.exe", "a/b/SETUP.EXE", "x.exe.", "x.e\u{200B}xe", "x.tar.exe", ".exe"] {
        assert_eq!(judge.is_blocked_name(path.as_bytes()), Some(exe), "{path}");
    }
    for path in ["Foo.app", "x.dmg", "x.msi", "lib/x.jar", "x.scr", "x.lnk", "x.pkg"] {
        assert!(judge.is_blocked_name(path.as_bytes()).is_some(), "{path}");
    }
    for path in [
        "exe",
        "x.exe/y",
        "x.bat",
        "x.ps1",
        "x.deb",
        "example.com",
        "x.so",
        "X.class",
        "gradle/wrapper/gradle-wrapper.jar",
        "node_modules/n/vendor/notifu.exe",
        ".venv/lib/python3.12/site-packages/pip/_vendor/distlib/t64.exe",
        "",
    ] {
        assert_eq!(judge.is_blocked_name(path.as_bytes()), None, "{path}");
    }
    let own = Judge::new(&Rules { blocked: vec!["Zip".to_owned()], ..Rules::default() });
    assert_eq!(own.is_blocked_name(b"a.ZIP"), Some("files that end in `.Zip` are refused here"));
    assert_eq!(own.is_blocked_name(b"a.exe"), None);
}

#[test]
fn a_folder_lets_out_what_it_let_in() {
    let judge = Judge::new(&default_rules());
    let lets_out = |from: &str, to: &str| judge.may_let_out(from.as_bytes(), to.as_bytes());
    for (from, to) in [
        ("node_modules", "tools"),
        ("a/node_modules", "a/Node"),
        ("node_modules/deep", "deep"),
        ("gradle", "tools"),
        ("gradle/wrapper", "gradle/other"),
    ] {
        assert!(lets_out(from, to), "{from} to {to}");
    }
    for (from, to) in [
        ("a", "b"),
        ("node_modules/a", "node_modules/.a"),
        ("a/node_modules", "b/node_modules"),
        ("tools", "node_modules"),
        ("node_modules", "node_modules/a/node_modules"),
    ] {
        assert!(!lets_out(from, to), "{from} to {to}");
    }
    let nothing = Rules { blocked: Vec::new(), blocked_contents: false, ..default_rules() };
    assert!(!Judge::new(&nothing).may_let_out(b"node_modules", b"tools"));
}

#[test]
fn contents_count_where_they_are_looked_at() {
    let shortcut =
        [&[0x4C, 0, 0, 0, 1, 0x14, 2, 0, 0, 0, 0, 0, 0xC0][..], &[0; 6], &[0x46]].concat();
    let refused = |rules: &Rules, path: &[u8], file: &[u8]| {
        let none = |_: u64, _: &mut [u8]| 0;
        Judge::new(rules).blocked_contents(path, &Contents::new(file, file.len() as u64, &none))
    };
    let mut rules = default_rules();
    assert!(Judge::new(&rules).looks_at_contents());
    let reason = Some("it begins like a shortcut for Windows");
    assert_eq!(refused(&rules, b"notes.txt", &shortcut), reason);
    assert_eq!(refused(&rules, b"node_modules/x", &shortcut), None);
    // Who wants programs for Java under their own name wants them.
    let java = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0META-INF/";
    assert_eq!(refused(&rules, b"notes.txt", java), Some("it begins like a program for Java"));
    rules.blocked.retain(|ending| ending != "jar");
    assert_eq!(refused(&rules, b"notes.txt", java), None);
    let rules = Rules { blocked_contents: false, ..default_rules() };
    assert!(!Judge::new(&rules).looks_at_contents());
    assert_eq!(refused(&rules, b"notes.txt", &shortcut), None);
}

struct Default {
    rules: Rules,
    patterns: Vec<Pattern>,
    judge: Judge,
}

static DEFAULT: LazyLock<Default> = LazyLock::new(|| {
    let rules = default_rules();
    let patterns = rules.names.iter().map(|rule| rule.pattern.parse().unwrap()).collect();
    Default { judge: Judge::new(&rules), rules, patterns }
});

/// Every rule in turn.
fn plainly(path: &[u8]) -> Verdict<'static> {
    let mut best = Verdict::FREE;
    for (number, rule) in DEFAULT.rules.names.iter().enumerate() {
        let matches = DEFAULT.patterns[number].matches(path);
        if matches && (best.rule.is_none() || rule.policy > best.policy) {
            best = Verdict { policy: rule.policy, reason: Some(&rule.reason), rule: Some(number) };
        }
    }
    best
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(".git".to_owned()),
        Just("GIT~1".to_owned()),
        Just("hooks".to_owned()),
        Just("modules".to_owned()),
        Just("Config".to_owned()),
        Just(".config".to_owned()),
        Just("systemd".to_owned()),
        Just("x.service".to_owned()),
        Just("x.sample".to_owned()),
        Just(".bash\u{200C}rc".to_owned()),
        Just("site.git".to_owned()),
        Just(".vscode".to_owned()),
        "[a-c.]{1,3}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_index_changes_no_verdict(path in proptest::collection::vec(name(), 0..6)) {
        let path = path.join("/");
        let expected = plainly(path.as_bytes());
        prop_assert_eq!(DEFAULT.judge.name(path.as_bytes()), expected, "{}", path);
    }

    #[test]
    fn a_link_is_judged_no_milder_than_a_file(path in proptest::collection::vec(name(), 0..6)) {
        let (path, judge) = (path.join("/"), &DEFAULT.judge);
        prop_assert!(judge.link(path.as_bytes()).policy >= judge.name(path.as_bytes()).policy);
    }
}

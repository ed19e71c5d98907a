//! Policies from settings.

use crate::desk::Desk;
use cowork_testbed::{Person, Said};

fn import(desk: &Desk, arguments: &[&str]) -> Said {
    let mut command = desk.person.cowork();
    command.args(["policy", "import"]).args(arguments).current_dir(desk.here());
    Said::of(&command.output().expect("the program is there"))
}

/// The policy is one that `--policy` takes: the plan of a session shows its rules.
#[test]
fn settings_become_a_policy_that_can_be_used() {
    let desk = Desk::new(Person::User, "import");
    let srt = desk.text(
        r#"{"network": {"allowedDomains": ["example.com", "*.example.org:443"],
            "deniedDomains": ["bad.example.org"],
            "deniedDomainReasons": {"bad.example.org": "ask \"ada\""}},
            "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []}}"#,
    );
    let claude = desk.elsewhere(
        "claude.json",
        r#"{"sandbox": {"enabled": true, "network": {"allowedDomains": ["example.com"]},
            "filesystem": {"allowWrite": ["~/out"]}}}"#,
    );
    for (from, file, rules) in [
        (
            "srt",
            &srt,
            &[
                "let it reach example.com:*",
                "let it reach *.example.org:443",
                "refuse bad.example.org (because ask",
            ][..],
        ),
        ("claude-code", &claude, &["let it reach example.com:*"]),
    ] {
        let ran = import(&desk, &[from, file]);
        let policy = desk.folder.write("policy.toml", ran.good()).display().to_string();
        let mut explain = desk.person.cowork();
        explain.args(["explain", "--policy", &policy, "--no-grants"]).current_dir(desk.here());
        let explained = Said::of(&explain.output().expect("the program is there")).good();
        for rule in rules {
            assert!(explained.contains(rule), "{rule}: {explained}");
        }
    }
}

#[test]
fn what_cannot_be_imported_is_told() {
    let desk = Desk::new(Person::User, "wrong");
    let missing = import(&desk, &["srt", "/no/such/file"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("does not exist"), "{missing:?}");
    let wrong = import(&desk, &["srt", &desk.text("{}")]);
    assert!(wrong.code == 1 && wrong.err.contains("network: it is required"), "{wrong:?}");
    let other = import(&desk, &["codex"]);
    assert_eq!(other.code, 2, "{other:?}");
}

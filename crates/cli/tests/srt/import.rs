//! Policies from settings.

use crate::desk::Desk;
use crate::for_everyone;
use cowork_testbed::{Person, Said};

for_everyone!(denied_names_are_denied_by_the_policy);

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

/// What settings deny is denied in a session with the policy, and what they allow is not.
fn denied_names_are_denied_by_the_policy(person: Person) {
    let desk = Desk::new(person, "denied");
    desk.folder.write("kept/file.txt", "as it was\n");
    let srt = desk.text(
        r#"{"network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": ["kept", "*.lock"]}}"#,
    );
    let policy = import(&desk, &["srt", &srt]).good();
    let policy = desk.elsewhere("policy.toml", &policy);
    let grant = format!("{}=work", desk.here().display());
    let script = "cd mnt/work; for name in kept/file.txt new.lock .mcp.json sub/.bashrc \
                  .git/hooks/pre-commit free.txt; do mkdir -p $(dirname $name); \
                  echo x 2>/dev/null > $name && echo wrote $name; done; true";
    let mut run = desk.person.cowork();
    let words = ["run", "--policy", &policy, "--grant", &grant, "--", "sh", "-c", script];
    let said = Said::of(&run.args(words).output().expect("the program is there")).good();
    assert_eq!(said, "wrote free.txt\n");
    assert_eq!(desk.folder.read("kept/file.txt").as_deref(), Some("as it was\n"));
    assert_eq!(desk.folder.read("free.txt").as_deref(), Some("x\n"));
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

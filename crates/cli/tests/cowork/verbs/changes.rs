//! `changes`, `diff`, `undo`, `redo`, `history`, `protect`, `apply`, `discard`: what sessions did to
//! folders.

use super::{Desk, id, text};
use crate::support::{for_everyone, until};
use cowork_testbed::Person;
use std::process::Stdio;

for_everyone!(
    what_a_command_did_is_shown_and_taken_back,
    a_conflict_is_shown_with_both_versions,
    what_a_session_that_is_gone_did_is_taken_back,
    protected_names_are_refused_by_rule,
    refused_types_are_said_with_a_grant,
    a_policy_says_what_may_be_changed,
    staged_changes_are_applied_or_discarded,
    without_the_daemon_rules_hold_and_nothing_is_recorded,
    where_nobody_can_be_asked_nothing_waits,
    whoever_is_held_up_by_a_question_is_told,
);

fn what_a_command_did_is_shown_and_taken_back(person: Person) {
    let desk = Desk::new(person);
    let id = &id("changes", person);
    desk.work.write("kept", "one\ntwo\n");
    desk.make(id, &["--guard", "off"]);
    assert_eq!(desk.good(&["changes", id]), "nothing is changed\n");
    desk.sh(id, "cd mnt/work; echo 2 > kept; echo new > new").good();
    let said = desk.good(&["changes", id]);
    let added = format!("added     {}/new", desk.path());
    assert!(said.contains("CHANGE ") && said.contains(&added), "{said}");
    assert!(said.contains(&format!("modified  {}/kept", desk.path())), "{said}");
    assert!(said.contains("command 1") && said.contains("sh -c"), "{said}");
    let document = desk.json(&["changes", "--json", id]);
    assert_eq!(document["sets"][0]["command"], 1);
    assert_eq!(document["changes"].as_array().map(Vec::len), Some(2));
    assert!(!said.contains("PROGRAM"), "{said}");
    let detail = desk.good(&["changes", "--verbose", id, "kept"]);
    let row = detail.lines().skip_while(|line| !line.starts_with("PATH ")).nth(1);
    let row = row.unwrap_or_else(|| panic!("{detail}"));
    assert!(row.starts_with(&format!("{}/kept ", desk.path())), "{detail}");
    assert!(row.contains("  sh -c 'cd mnt/work; echo 2"), "{detail}");
    // Paths are meant from where the user is, and in the session's view.
    let diff = desk.good(&["diff", id, "kept"]);
    assert!(diff.contains("\n-one\n-two\n+2\n"), "{diff}");
    assert!(!diff.contains("+new"), "{diff}");
    assert_eq!(desk.good(&["diff", id, &format!("/sessions/{id}/mnt/work/kept")]), diff);
    let tried = desk.good(&["undo", "--dry-run", id]);
    assert!(tried.ends_with("2 names would be brought back\n"), "{tried}");
    assert_eq!(desk.work.read("new").as_deref(), Some("new\n"));
    let said = desk.good(&["undo", id, "kept"]);
    assert!(said.contains("1 name brought back, as set 2"), "{said}");
    assert_eq!(desk.work.read("kept").as_deref(), Some("one\ntwo\n"));
    assert_eq!(desk.work.read("new").as_deref(), Some("new\n"));
    desk.good(&["redo", id]);
    assert_eq!(desk.work.read("kept").as_deref(), Some("2\n"));
    desk.good(&["undo", "--all", id]);
    assert_eq!(
        (desk.work.read("kept").as_deref(), desk.work.read("new")),
        (Some("one\ntwo\n"), None)
    );
    let history = desk.good(&["history", "."]);
    assert!(history.contains(&format!("session {id} of ")), "{history}");
    assert!(history.contains("kept 14 days after a session is gone, up to 5G of all"), "{history}");
    desk.refused(
        &["undo", id],
        1,
        "cowork: there is nothing to undo there\n  hint: see `cowork changes`\n",
    );
}

fn a_conflict_is_shown_with_both_versions(person: Person) {
    let desk = Desk::new(person);
    let id = &id("conflict", person);
    desk.work.write("file", "before\n");
    desk.make(id, &["--guard", "off"]);
    desk.sh(id, "echo theirs > mnt/work/file").good();
    desk.work.write("file", "mine\n");
    let refused = desk.say(&["undo", id]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("--ours"), "{refused:?}");
    let shown = refused.text();
    both_versions(&desk, shown);
    let tried = desk.say(&["undo", "--dry-run", id]);
    assert_eq!(tried.code, 1, "{tried:?}");
    both_versions(&desk, tried.text());
    assert_eq!(desk.work.read("file").as_deref(), Some("mine\n"));
    assert_eq!(desk.say(&["undo", "--theirs", id]).code, 0);
    assert_eq!(desk.work.read("file").as_deref(), Some("before\n"));
    assert_eq!(desk.say(&["redo", id]).code, 0);
    assert_eq!(desk.work.read("file").as_deref(), Some("mine\n"));
    let kept = desk.good(&["undo", "--both", id]);
    assert!(kept.contains("kept as `file.yours-1`"), "{kept}");
    assert_eq!(desk.work.read("file").as_deref(), Some("before\n"));
    assert_eq!(desk.work.read("file.yours-1").as_deref(), Some("mine\n"));
}

/// What is shown of a file that said `before`, and now says `mine`.
#[track_caller]
fn both_versions(desk: &Desk, shown: &str) {
    let path = format!("{}/file", desk.path());
    let row = shown.lines().find(|line| line.starts_with(&path) && !line.ends_with("(+)"));
    let row = row.unwrap_or_else(|| panic!("{shown}"));
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let [_, now, before, outcome] = cells.as_slice() else { panic!("{row}") };
    assert!(now.starts_with("file, 5 B, changed "), "{row}");
    assert!(before.starts_with("file, 7 B, changed "), "{row}");
    assert_eq!(*outcome, "nothing is done");
    let head = shown.lines().find(|line| line.starts_with("CHANGED SINCE")).expect("a head");
    let columns: Vec<&str> =
        head.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(columns, ["CHANGED SINCE", "NOW", "BEFORE", "OUTCOME"]);
    assert!(shown.contains(&format!("{path}: before (-) and now (+)\n")), "{shown}");
    assert!(shown.contains("\n-before\n+mine\n"), "{shown}");
}

fn what_a_session_that_is_gone_did_is_taken_back(person: Person) {
    let desk = Desk::new(person);
    let id = &id("once", person);
    desk.work.write("precious", "data\n");
    let grant = format!("{}=work", desk.path());
    let run = ["run", "--id", id, "--guard", "off", "--grant", &grant, "--cd", "mnt/work"];
    let ran = desk.say(&[&run[..], &["--", "rm", "precious"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "no word where no person looks");
    assert_eq!(desk.work.read("precious"), None);
    assert!(desk.good(&["changes", id]).contains("deleted"));
    assert!(desk.good(&["history", desk.path()]).contains("gone since"));
    desk.good(&["undo", id]);
    assert_eq!(desk.work.read("precious").as_deref(), Some("data\n"));
}

fn protected_names_are_refused_by_rule(person: Person) {
    let desk = Desk::new(person);
    let id = &id("protect", person);
    desk.make(id, &[]);
    let said = desk.good(&["protect", "list", id]);
    assert!(said.starts_with("POLICY") && said.contains(".envrc"), "{said}");
    desk.good(&["protect", "add", id, "ci/**", "--deny", "--reason", "CI runs it"]);
    assert_ne!(desk.sh(id, "mkdir mnt/work/ci && echo x > mnt/work/ci/run").code, 0);
    assert_eq!(desk.work.read("ci/run"), None);
    let rules = desk.json(&["protect", "list", "--json", id]);
    assert_eq!(
        (text(&rules[0]["pattern"]), text(&rules[0]["policy"])),
        ("ci/**".into(), "deny".into())
    );
    desk.good(&["protect", "remove", id, "ci/**"]);
    desk.sh(id, "mkdir -p mnt/work/ci && echo x > mnt/work/ci/run").good();
    let refused = desk.say(&["protect", "remove", id, "ci/**"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("you made no rule for `ci/**` here"), "{}", refused.err);
}

fn refused_types_are_said_with_a_grant(person: Person) {
    let desk = Desk::new(person);
    let id = &id("types", person);
    let wrong = desk.say(&["new", "--block", "a/b"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("`a/b` is no ending of names"), "{}", wrong.err);
    desk.make(id, &["--block", ".Zip", "--unblock", "jar"]);
    desk.work.write("other/kept", "kept\n");
    let other = desk.work.path().join("other").display().to_string();
    let made = |at: &str| {
        let script = format!("cd mnt/{at} && for i in zip jar exe; do echo x > a.$i; done; ls");
        let listed = desk.sh(id, &script);
        listed.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(made("work"), ["a.jar", "other"]);
    desk.good(&["grant", id, &format!("{other}:rw=other"), "--unblock", "exe"]);
    // What was said for the session holds there too.
    assert_eq!(made("other"), ["a.exe", "a.jar", "kept"]);
    // The same folder, by other rules from now on.
    desk.good(&["grant", id, &format!("{other}:rw=other"), "--block", "jar"]);
    desk.sh(id, "cd mnt/other && rm *").good();
    assert_eq!(made("other"), [""; 0]);
}

fn a_policy_says_what_may_be_changed(person: Person) {
    let desk = Desk::new(person);
    let id = &id("policy", person);
    let beside = cowork_testbed::Folder::new(person, "beside");
    let policy = "[files]\ndeny = [{ pattern = \"ci/**\", reason = \"CI runs it\" }]\n\
                  allow = [\".envrc\"]\nblock = [\"zip\"]\nunblock = [\"jar\"]\n\
                  quota = { files = 6 }\n";
    let policy = beside.write("policy.toml", policy).display().to_string();
    let script = "mkdir ci; echo x > ci/run; echo x > .envrc; echo x > a.zip; echo x > a.jar; \
                  echo x > .bashrc; for i in 1 2 3 4; do echo x > $i; done; true";
    let found = |desk: &Desk| {
        let names = ["ci/run", ".envrc", "a.zip", "a.jar", "3", "4"];
        names.map(|name| desk.work.read(name).is_some())
    };
    let expected = [false, true, false, true, true, false];
    desk.make(id, &["--policy", &policy]);
    // Nobody answers a question here: `.bashrc` is as protected as ever.
    let ran = desk.sh(id, &format!("cd mnt/work; {}", script.replace("echo x > .bashrc; ", "")));
    assert_eq!((ran.code, found(&desk)), (0, expected), "{ran:?}");
    assert!(ran.err.contains("Disk quota exceeded"), "{}", ran.err);
    let rules = desk.json(&["protect", "list", "--json", id]);
    let first = [0, 1].map(|at| ["pattern", "policy"].map(|key| text(&rules[at][key])));
    assert_eq!(first, [[".envrc", "allow"], ["ci/**", "deny"]].map(|it| it.map(str::to_owned)));
    // It is about files alone: there is no network.
    assert_eq!(desk.json(&["status", "--json", id])["network"], serde_json::Value::Null);
    desk.good(&["protect", "remove", id, "ci/**"]);
    desk.sh(id, "cd mnt/work; rm 1; echo x > ci/run").good();
    // The same without the daemon, for a folder that is as it was.
    let other = Desk::new(person);
    let grant = format!("{}=work", other.path());
    let run = ["run", "--no-daemon", "--policy", &policy, "--grant", &grant, "--cd", "mnt/work"];
    let ran = other.say(&[&run[..], &["--", "sh", "-c", script]].concat());
    assert_eq!((ran.code, found(&other)), (0, expected), "{ran:?}");
    assert_eq!(other.work.read(".bashrc"), None);
    let explained = other.good(&["explain", "--policy", &policy, "--grant", &grant]);
    for step in ["keep it from changing ci/** (CI runs it)", "keep it from making files in .zip"] {
        assert!(explained.contains(step), "{explained}");
    }
    // With rules for the network it needs the daemon.
    let both = beside.write("both.toml", "[egress]\npresets = [\"github\"]\n[files]\n");
    let both = both.display().to_string();
    let refused = other.say(&["run", "--no-daemon", "--policy", &both, "--", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("so `--policy` needs it"), "{}", refused.err);
}

fn staged_changes_are_applied_or_discarded(person: Person) {
    let desk = Desk::new(person);
    let id = &id("staged", person);
    desk.make(id, &[]);
    let data = cowork_testbed::Folder::new(person, "data");
    data.write("file", "old\n");
    let path = data.path().to_str().expect("test folders are text");
    desk.good(&["grant", id, &format!("{path}:staged=data")]);
    desk.sh(id, "echo new > mnt/data/file; echo a > mnt/data/a").good();
    assert_eq!((data.read("file").as_deref(), data.read("a")), (Some("old\n"), None));
    desk.good(&["apply", id, &format!("{path}/a")]);
    assert_eq!(
        (data.read("file").as_deref(), data.read("a").as_deref()),
        (Some("old\n"), Some("a\n"))
    );
    assert_eq!(desk.good(&["discard", id, path]), format!("nothing is staged of {path}\n"));
    assert_eq!(desk.sh(id, "cat mnt/data/file").good(), "old\n");
}

fn without_the_daemon_rules_hold_and_nothing_is_recorded(person: Person) {
    let desk = Desk::new(person);
    let grant = format!("{}=work", desk.path());
    let run = ["run", "--no-daemon", "--grant", &grant, "--cd", "mnt/work", "--", "sh", "-c"];
    let ran = desk.say(&[&run[..], &["echo fine > fine; echo bad > .envrc"]].concat());
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("without the daemon nobody can be asked"), "{}", ran.err);
    assert_eq!(desk.work.read("fine").as_deref(), Some("fine\n"));
    assert_eq!(desk.work.read(".envrc"), None);
    let explained = desk.say(&["explain", "--grant", &grant]);
    assert!(explained.text().contains("with `--no-daemon` nothing is recorded"));
}

fn where_nobody_can_be_asked_nothing_waits(person: Person) {
    let desk = Desk::new(person);
    let id = &id("alone", person);
    let grant = format!("{}=work", desk.path());
    let line = "echo fine > mnt/work/fine; echo bad > mnt/work/.envrc";
    let run = ["run", "--id", id, "--grant", &grant, "--", "sh", "-c", line];
    // A test has no terminal.
    let ran = desk.say(&run);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("Permission denied"), "{}", ran.err);
    let refused = "cowork: sh was refused to create work/.envrc: nobody is there to be asked: ";
    assert!(ran.err.contains(refused), "{}", ran.err);
    assert_eq!(desk.work.read("fine").as_deref(), Some("fine\n"));
    assert_eq!(desk.work.read(".envrc"), None);
    let told = desk.good(&["audit", id, "--type", "files.refused"]);
    assert!(told.contains(".envrc") && told.contains("nobody is there to be asked"), "{told}");
}

fn whoever_is_held_up_by_a_question_is_told(person: Person) {
    let desk = Desk::new(person);
    let id = &id("held", person);
    desk.make(id, &[]);
    let beside = cowork_testbed::Folder::new(person, "beside");
    let told = std::fs::File::create(beside.path().join("told")).expect("ours");
    let mut exec = desk.command(&["exec", id, "--", "sh", "-c", "echo use > mnt/work/.envrc"]);
    exec.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told);
    let mut exec = exec.spawn().expect("the program is there");
    let said = || beside.read("told").unwrap_or_default();
    until("it is told", || said().lines().count() == 3);
    let said = said();
    let said = said.trim_end();
    let request = said.strip_prefix("cowork: request ").and_then(|rest| rest.split(' ').next());
    let request = request.unwrap_or_else(|| panic!("{said}"));
    assert!(said.contains("waits for your answer (file): "), "{said}");
    assert!(said.contains(&format!("{}/.envrc\n", desk.path())), "{said}");
    assert!(said.ends_with(&format!("`cowork decide {request} allow`, or `reject`")), "{said}");
    assert_eq!(desk.work.read(".envrc"), None);
    desk.good(&["decide", request, "yes"]);
    assert!(exec.wait().expect("ours").success());
    assert_eq!(desk.work.read(".envrc").as_deref(), Some("use\n"));
}

//! What a person sees: colours, how long something takes, a session at a glance.

use super::{Desk, id};
use crate::programs::tty::Tty;
use crate::support::{Process, for_everyone, until};
use cowork_testbed::{Folder, Person, programs};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

for_everyone!(
    colours_are_for_terminals,
    who_waits_longer_than_a_second_is_told,
    who_waits_for_an_answer_is_told,
    who_waits_for_a_keeper_of_ones_own_is_told,
    protection_is_named,
    whether_a_process_runs_is_answered,
);

/// What `cowork` shows on a terminal, with variables.
fn on_terminal(desk: &Desk, variables: &[&str], arguments: &[&str]) -> String {
    shown_by(desk, programs(), variables, arguments)
}

/// The same, of the programs in a folder.
fn shown_by(desk: &Desk, folder: &Path, variables: &[&str], arguments: &[&str]) -> String {
    let program = folder.join("cowork");
    let apart = desk.apart.as_ref().map_or_else(Vec::new, |folder| {
        let at = |name| folder.path().join(name).display().to_string();
        vec![
            format!("COWORK_RUNTIME_DIR={}", at("run")),
            format!("COWORK_STATE_DIR={}", at("state")),
        ]
    });
    let words = variables.iter().map(OsStr::new).chain([program.as_os_str()]);
    let words = apart.iter().map(OsStr::new).chain(words);
    let words = [OsStr::new("/usr/bin/env")].into_iter().chain(words);
    let words: Vec<&OsStr> = words.chain(arguments.iter().map(OsStr::new)).collect();
    let mut tty = Tty::start_program(desk.person, desk.work.path(), &words);
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    tty.seen().to_owned()
}

fn colours_are_for_terminals(person: Person) {
    let desk = Desk::new(person);
    let id = &id("coloured", person);
    desk.make(id, &[]);
    let escape = '\u{1b}';
    let green = "\u{1b}[32mready\u{1b}[0m";
    for arguments in [["status", id], ["ls", "--all"]] {
        let arguments = if arguments[0] == "ls" { &arguments[..1] } else { &arguments[..] };
        let seen = on_terminal(&desk, &[], arguments);
        assert!(seen.contains(green), "{arguments:?}: {seen:?}");
        for variable in ["NO_COLOR=1", "TERM=dumb"] {
            let seen = on_terminal(&desk, &[variable], arguments);
            assert!(!seen.contains(escape) && seen.contains("ready"), "{variable}: {seen:?}");
        }
        assert!(on_terminal(&desk, &["NO_COLOR="], arguments).contains(green), "empty is unset");
        let piped = desk.good(arguments);
        assert!(!piped.contains(escape) && piped.contains("ready"), "{piped:?}");
    }
}

fn who_waits_longer_than_a_second_is_told(person: Person) {
    let desk = Desk::new(person);
    let id = &id("slow", person);
    desk.make(id, &[]);
    let started = |line: &str| {
        let number = desk.start(id, line);
        until("it runs", || desk.good(&["logs", id, &number]) == "here\n");
        number
    };
    let stubborn = started("trap '' TERM; echo here; while :; do sleep 0.1; done");
    let seen = on_terminal(&desk, &[], &["cancel", id, &stubborn, "--grace", "2500ms"]);
    assert!(seen.contains("\rending processes: 1s"), "{seen:?}");
    assert!(seen.contains("\rending processes: 2s"), "{seen:?}");
    assert!(seen.ends_with("\r\u{1b}[K"), "it is gone at the end: {seen:?}");
    // What is done at once says nothing, and neither does anything where nobody looks.
    let quick = started("echo here; exec sleep 1000");
    let seen = on_terminal(&desk, &[], &["cancel", id, &quick]);
    assert!(!seen.contains("ending processes"), "{seen:?}");
    let stubborn = started("trap '' TERM; echo here; while :; do sleep 0.1; done");
    assert_eq!(desk.good(&["cancel", id, &stubborn, "--grace", "1500ms"]), "");
}

fn who_waits_for_an_answer_is_told(person: Person) {
    let desk = Desk::apart(person);
    let id = &id("waiting", person);
    desk.make(id, &[]);
    assert_eq!(desk.sh(id, "echo new > mnt/work/new").code, 0);
    let number = desk.start(id, "sleep 1000");
    let keeper = desk.json(&["status", "--json"])["keeper"].as_u64();
    let keeper = u32::try_from(keeper.expect("it runs")).expect("it is small");
    let keeper = Process::look(keeper).expect("it runs");
    let rows = [
        (&["changes", id][..], "reading the changes"),
        (&["diff", id], "comparing files"),
        (&["history"], "reading the history"),
        (&["usage"], "measuring"),
        (&["usage", id], "measuring"),
        (&["usage", id, &number], "measuring"),
        (&["status", id], "looking at the session"),
        (&["status", id, "--process", "sleep"], "looking at the session"),
    ];
    for (arguments, what) in rows {
        // The keeper answers late.
        keeper.signal(Signal::STOP);
        let seen = std::thread::scope(|scope| {
            let answer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1500));
                keeper.signal(Signal::CONT);
            });
            let seen = on_terminal(&desk, &[], arguments);
            answer.join().expect("it goes on");
            seen
        });
        assert!(seen.contains(&format!("\r{what}: 1s")), "{arguments:?}: {seen:?}");
        assert!(seen.contains("\r\u{1b}[K"), "{arguments:?}: {seen:?}");
    }
}

fn who_waits_for_a_keeper_of_ones_own_is_told(person: Person) {
    let desk = Desk::new(person);
    // The same programs, of which the keeper takes its time before it begins.
    let slow = Folder::new(person, "slow");
    for name in ["cowork", "coworkd", "cowork-init"] {
        let copied = std::fs::copy(programs().join(name), slow.path().join(name));
        copied.expect("there is room");
    }
    let keeper = programs().join("cowork-keeper");
    let script = format!("#!/bin/sh\nsleep 1.5\nexec {} \"$@\"\n", keeper.display());
    let keeper = slow.write("cowork-keeper", &script);
    std::fs::set_permissions(keeper, PermissionsExt::from_mode(0o755)).expect("it is ours");
    for (arguments, what) in [
        (&["doctor"][..], "looking at the host"),
        (&["explain", "--grant", desk.path()], "making a session to look at"),
    ] {
        let seen = shown_by(&desk, slow.path(), &[], arguments);
        assert!(seen.contains(&format!("\r{what}: 1s")), "{arguments:?}: {seen:?}");
        assert!(seen.contains("\r\u{1b}[K"), "{arguments:?}: {seen:?}");
    }
}

fn protection_is_named(person: Person) {
    let desk = Desk::new(person);
    let id = &id("named", person);
    desk.make(id, &[]);
    let session = desk.json(&["status", "--json", id]);
    let layers = session["enforcement"].as_array().expect("it is a list");
    let shown = desk.good(&["status", id]);
    let line = shown.lines().find(|line| line.trim_start().starts_with("protection"));
    let line = line.expect("it is shown");
    let mut in_force = 0;
    for layer in layers {
        let name = layer["layer"].as_str().expect("it has a name");
        let is_in_force = layer["state"] == "in force";
        assert_eq!(line.contains(name), is_in_force, "{name}: {line}");
        assert!(shown.contains(name), "{name}: {shown}");
        in_force += usize::from(is_in_force);
    }
    assert!(in_force > 5, "{shown}");
    assert!(line.contains(&format!("{in_force} of {} layers in force: ", layers.len())), "{line}");
}

fn whether_a_process_runs_is_answered(person: Person) {
    let desk = Desk::new(person);
    let id = &id("process", person);
    desk.make(id, &[]);
    let asked = |process: &str| desk.say(&["status", id, "--process", process]);
    let none = asked("sleep");
    assert_eq!((none.code, none.text(), none.err.as_str()), (1, "", ""));
    desk.start(id, "exec sleep 1000");
    until("it runs", || asked("sleep").code == 0);
    let found = desk.json(&["status", "--json", id, "--process", "sleep"]);
    assert_eq!(found["running"], true, "{found}");
    let (pid, inside) = (&found["processes"][0]["pid"], &found["processes"][0]["inside"]);
    let line = format!("sleep: process {inside} in the session, {pid} on this host\n");
    for process in ["sleep", &pid.to_string(), &inside.to_string()] {
        assert_eq!(asked(process).good(), line, "{process}");
    }
    let none = desk.say(&["status", "--json", id, "--process", "slee"]);
    assert_eq!((none.code, none.err.as_str()), (1, ""));
    let none: serde_json::Value = serde_json::from_str(none.text()).expect("it is JSON");
    assert_eq!(none, serde_json::json!({ "running": false, "processes": [] }));
}

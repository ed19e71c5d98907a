//! Limits by cgroup v2 with controllers, as desktops and servers with systemd have them: in a group
//! that is the programs' own, in a terminal's, and where nothing may be shared out.
//!
//! Where controllers are with cgroup v1, as on some build machines, they are taken from there for as
//! long as these tests run. That is felt by everybody on the host, so they are ignored unless
//! `cargo xtask test` runs them, alone. Where controllers cannot be had, which is said with the reason,
//! it is still seen that sessions are made, and where.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what was not run, and why, is told")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod controllers;

use controllers::{Controllers, Group};
use cowork_testbed::{Person, Said, programs};
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// Uses a processor for two seconds and says for how much of that it had one.
const BUSY: &str = "
import time
start = time.monotonic()
while time.monotonic() - start < 2: pass
print(int(time.process_time() / (time.monotonic() - start) * 100))
";
/// Starts processes until it is refused, and says how many.
const FORKS: &str = "
import os, time
count = 0
try:
    while count < 1000:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError:
    pass
print(count, flush=True)
";

/// Starts a program in a group, as this person: it waits until it is there.
fn start_in(group: &Group, person: Person, program: &[&str]) -> Child {
    let mut command = person.command("/bin/sh");
    command.args(["-c", "read go; exec \"$@\"", "sh"]).args(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a shell is there");
    group.enter(child.id());
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(b"go\n").expect("it reads");
    child
}

/// Runs a command in a session of its own, made by a keeper that is in a group.
fn run_in(group: &Group, person: Person, options: &[&str], command: &[&str]) -> Said {
    let cowork = programs().join("cowork").to_string_lossy().into_owned();
    let mut line = vec![cowork.as_str(), "run", "--no-daemon", "--no-grants"];
    line.extend(options);
    line.push("--");
    line.extend(command);
    let child = start_in(group, person, &line);
    Said::of(&child.wait_with_output().expect("it was started"))
}

fn python(program: &str) -> [&str; 3] {
    ["/usr/bin/python3", "-c", program]
}

fn number(said: Said) -> u32 {
    let said = said.good();
    said.trim().parse().unwrap_or_else(|_| panic!("no number: {said}"))
}

/// Somebody else's process in a group, until this is dropped.
struct Bystander(Child);

impl Bystander {
    fn new(group: &Group) -> Self {
        let child = Command::new("/bin/sleep").arg("1000").spawn().expect("sleep is there");
        group.enter(child.id());
        Self(child)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It may have been killed with its group.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
#[ignore = "takes controllers from the whole host; `cargo xtask test` runs it alone"]
fn limits_are_kept_by_cgroup_v2() {
    let Some(controllers) = Controllers::take() else { return };
    for person in Person::ALL {
        a_group_of_the_programs_own(&controllers, person);
        a_terminal(&controllers, person);
        nothing_may_be_shared_out(&controllers, person);
    }
}

/// What systemd delegates: the programs go to a leaf of it, sessions beside that.
fn a_group_of_the_programs_own(controllers: &Controllers, person: Person) {
    let own = controllers.group("delegated", person);
    let said = run_in(&own, person, &[], &["/bin/echo", "well"]);
    assert_eq!(said.good(), "well\n", "{person:?}");
    assert_eq!(own.children(), ["cowork.programs"], "{person:?}: nothing else is left");
    assert_eq!(own.processes(), "", "{person:?}");
    if !controllers.are_there {
        return;
    }
    let share = number(run_in(&own, person, &["--cpus", "0.2"], &python(BUSY)));
    assert!((5..=40).contains(&share), "{person:?}: {share} % of a processor");
    let forks = number(run_in(&own, person, &["--processes", "40"], &python(FORKS)));
    assert_eq!(forks, 38, "{person:?}: init and the program itself count too");
    assert_eq!(own.children(), ["cowork.programs"], "{person:?}: nothing else is left");
}

/// Among others' processes nothing is shared out; the group above has no process, and is the
/// person's too. The limit on processes that the terminal is under holds there as well.
fn a_terminal(controllers: &Controllers, person: Person) {
    if !controllers.are_there {
        return;
    }
    let slice = controllers.group("slice", person);
    slice.share_out();
    let terminal = slice.child("terminal", person);
    terminal.write("pids.max", "100");
    let bystander = Bystander::new(&terminal);
    let share = number(run_in(&terminal, person, &["--cpus", "0.2"], &python(BUSY)));
    assert!((5..=40).contains(&share), "{person:?}: {share} % of a processor");
    let forks = number(run_in(&terminal, person, &["--processes", "400"], &python(FORKS)));
    assert_eq!(forks, 98, "{person:?}: no more than the terminal may have");
    assert_eq!(terminal.read("cgroup.subtree_control"), "", "{person:?}");
    assert_eq!(slice.children(), ["terminal"], "{person:?}: nothing else is left");
    drop(bystander);
}

/// A group with others' processes below one that is not the person's: sessions are made all the
/// same, and what cannot be kept is refused.
fn nothing_may_be_shared_out(controllers: &Controllers, person: Person) {
    let above = controllers.group("above", Person::Root);
    if controllers.are_there {
        above.share_out();
    }
    let terminal = above.child("terminal", person);
    if controllers.are_there && person == Person::Root {
        // Every group is root's own: what stops it is a limit that it must not escape.
        terminal.write("cpu.max", "90000 100000");
    }
    let bystander = Bystander::new(&terminal);
    let said = run_in(&terminal, person, &[], &["/bin/echo", "well"]);
    assert_eq!(said.good(), "well\n", "{person:?}");
    assert_eq!(terminal.read("cgroup.subtree_control"), "", "{person:?}");
    assert_eq!(terminal.children(), Vec::<String>::new(), "{person:?}: nothing is left");
    if !controllers.are_there {
        return;
    }
    let refused = run_in(&terminal, person, &["--cpus", "0.2"], &["/bin/echo", "well"]);
    assert_ne!(refused.code, 0, "{person:?}: {refused:?}");
    assert!(refused.err.contains("CPU"), "{person:?}: {refused:?}");
    drop(bystander);
}

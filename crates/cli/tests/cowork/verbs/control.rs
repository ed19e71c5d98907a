//! `pause`, `resume`, `cancel`, `set`, `usage`: sessions and commands under control.

use super::{Desk, id, text};
use crate::support::{Process, for_everyone, inside, until};
use cowork_testbed::Person;
use serde_json::Value;
use std::time::{Duration, Instant};

for_everyone!(
    a_session_stands_still,
    one_command_stands_still,
    what_ignores_a_request_is_killed,
    limits_change_while_it_runs,
    usage_is_measured,
);

/// A line of the shell that counts in a file.
fn count(file: &str) -> String {
    format!("i=0; while :; do i=$((i+1)); echo $i > mnt/work/{file}; sleep 0.01; done")
}

fn reached(desk: &Desk, file: &str) -> u64 {
    let text = desk.work.read(file).unwrap_or_default();
    text.trim_end().parse().unwrap_or_default()
}

/// Checks that a counter goes on.
#[track_caller]
fn goes_on(desk: &Desk, file: &str) {
    let before = reached(desk, file);
    until("it counts on", || reached(desk, file) > before + 3);
}

/// Checks that a counter does not.
#[track_caller]
fn stands(desk: &Desk, file: &str) {
    let before = desk.work.read(file);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(desk.work.read(file), before);
}

fn a_session_stands_still(person: Person) {
    let desk = Desk::new(person);
    let id = &id("paused", person);
    desk.make(id, &[]);
    desk.start(id, &count("one"));
    desk.start(id, &count("two"));
    goes_on(&desk, "one");
    goes_on(&desk, "two");
    assert_eq!(desk.good(&["pause", id]), "");
    stands(&desk, "one");
    stands(&desk, "two");
    assert_eq!(desk.state(id), "paused");
    desk.refused(
        &["exec", id, "--", "true"],
        125,
        "cowork: the session is paused: resume it first\n  hint: resume it with `cowork resume`\n",
    );
    // Longer than any heartbeat waits: who stands still is not taken for dead.
    std::thread::sleep(Duration::from_secs(8));
    let status = desk.json(&["status", "--json", id]);
    assert_eq!((&status["state"], &status["sandbox"]["restarts"]), (&"paused".into(), &0.into()));
    stands(&desk, "one");
    assert_eq!(desk.good(&["resume", id]), "");
    goes_on(&desk, "one");
    goes_on(&desk, "two");
    desk.refused(&["resume", id], 1, "cowork: the session is not paused\n");
}

fn one_command_stands_still(person: Person) {
    let desk = Desk::new(person);
    let id = &id("pausedone", person);
    desk.make(id, &[]);
    let one = desk.start(id, &count("one"));
    desk.start(id, &count("two"));
    goes_on(&desk, "one");
    assert_eq!(desk.good(&["pause", id, &one]), "");
    stands(&desk, "one");
    goes_on(&desk, "two");
    assert_eq!(desk.good(&["resume", id, &one]), "");
    goes_on(&desk, "one");
}

fn what_ignores_a_request_is_killed(person: Person) {
    let desk = Desk::new(person);
    let id = &id("cancelled", person);
    desk.make(id, &[]);
    let stubborn = "trap '' TERM INT HUP; (trap '' TERM; touch mnt/work/on; sleep 1000) & \
                    while :; do sleep 0.05; done";
    let number = desk.start(id, stubborn);
    let polite = desk.start(
        id,
        "trap 'touch mnt/work/asked; exit 9' TERM; touch mnt/work/polite; \
                                 while :; do sleep 0.02; done",
    );
    until("both run", || desk.work.read("on").is_some() && desk.work.read("polite").is_some());
    let found = inside(desk.work.path());
    let start = Instant::now();
    assert_eq!(desk.good(&["cancel", "--grace", "1s", id, &number]), "");
    assert!(start.elapsed() >= Duration::from_millis(900), "it is asked first");
    assert!(start.elapsed() < Duration::from_secs(20), "and then killed");
    let attached = desk.say(&["attach", id, &number]);
    assert_eq!(attached.code, 128 + 9, "{}", attached.err);
    let left = inside(desk.work.path());
    let stubborn_left = left.iter().any(|process| process.file("cmdline").contains("1000"));
    assert!(!stubborn_left, "its children ended with it: {left:?}");
    assert_eq!(desk.work.read("asked"), None, "the other one was left alone");
    let ended = format!("cowork: command {number} has ended\n");
    desk.refused(&["cancel", id, &number], 1, &ended);
    // And the whole session's.
    assert_eq!(desk.good(&["cancel", id]), "");
    assert!(desk.work.read("asked").is_some());
    assert_eq!(desk.say(&["attach", id, &polite]).code, 9);
    assert_eq!(desk.state(id), "ready", "the session goes on");
    let of_session = |process: &&Process| process.name() != "cowork-init";
    assert_eq!(inside(desk.work.path()).iter().filter(of_session).count(), 0, "{found:?}");
    assert_eq!(desk.sh(id, "echo on").good(), "on\n");
}

/// How many processes a line can start.
fn children(desk: &Desk, id: &str) -> usize {
    let line = "import subprocess\nn = 0\ntry:\n while n < 60:\n  subprocess.Popen(['sleep', '5'])\n\
                \x20 n += 1\nexcept OSError: pass\nprint(n)";
    let ran = desk.say(&["exec", id, "--", "python3", "-c", line]);
    let number = ran.done().trim_end().parse().expect("it is a number");
    desk.good(&["cancel", "--grace", "0s", id]);
    number
}

/// A limit of a session, as it is told.
#[track_caller]
fn limit(desk: &Desk, id: &str, name: &str) -> Value {
    let limits = desk.json(&["status", "--json", id])["limits"].clone();
    let found = limits.as_array().and_then(|all| all.iter().find(|limit| limit["limit"] == name));
    found.unwrap_or_else(|| panic!("{name} in {limits}")).clone()
}

/// Raises the number of processes: while it runs if a control group counts them, else between its
/// runs, as the refusal says.
#[track_caller]
fn raised(desk: &Desk, id: &str) {
    let arguments = ["set", id, "--processes", "100"];
    if text(&limit(desk, id, "processes")["means"]).contains("cgroup") {
        assert_eq!(desk.good(&arguments), "");
        return;
    }
    let sentence = "cowork: the limit on processes cannot be raised while the session runs\n  \
                    because: Operation not permitted (os error 1)\n  hint: stop the session, \
                    change the limit, and start it\n";
    desk.refused(&arguments, 1, sentence);
    assert_eq!(limit(desk, id, "processes")["value"], "20", "nothing has changed");
    desk.good(&["stop", id]);
    assert_eq!(desk.good(&arguments), "");
    desk.good(&["start", id]);
}

fn limits_change_while_it_runs(person: Person) {
    let desk = Desk::new(person);
    let id = &id("limited", person);
    desk.make(id, &["--processes", "100", "--best-effort"]);
    assert_eq!(children(&desk, id), 60);
    assert_eq!(desk.good(&["set", id, "--processes", "20"]), "");
    let few = children(&desk, id);
    assert!((1..20).contains(&few), "{few}");
    raised(&desk, id);
    assert_eq!(children(&desk, id), 60);
    assert_eq!(desk.good(&["set", id, "--open-files", "64"]), "");
    assert_eq!(desk.sh(id, "ulimit -n").good(), "64\n");
    let write = "head -c 6000000 /dev/zero > /tmp/big";
    assert_eq!(desk.good(&["set", id, "--scratch", "4M"]), "");
    let full = desk.sh(id, write);
    assert!(full.err.contains("No space left on device"), "{} {}", full.code, full.err);
    assert_eq!(desk.good(&["set", id, "--scratch", "64M"]), "");
    desk.sh(id, write).good();
    assert_eq!(limit(&desk, id, "open files")["value"], "64");
    assert_eq!(limit(&desk, id, "scratch")["value"], "64M");
    let few = desk.say(&["set", id, "--processes", "0"]);
    assert_ne!(few.code, 0);
    assert!(!few.err.is_empty());
    assert_eq!(desk.good(&["set", id, "--timeout", "1s"]), "");
    until("its time is over", || desk.state(id) != "ready");
}

fn usage_is_measured(person: Person) {
    let desk = Desk::new(person);
    let id = &id("measured", person);
    desk.make(id, &[]);
    let line = "head -c 5000000 /dev/urandom > mnt/outputs/file; i=0; \
                while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1000 & touch mnt/work/on; wait";
    desk.start(id, line);
    until("it has worked", || desk.work.read("on").is_some());
    let usage = desk.json(&["usage", "--json", id]);
    let number = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name} in {usage}"));
    assert!(number("processes") >= 2, "{usage}");
    for name in ["wall_ms", "cpu_us", "memory", "memory_peak"] {
        assert!(number(name) > 0, "{name} in {usage}");
    }
    let table = desk.good(&["usage", id]);
    assert!(table.starts_with("SESSION "), "{table}");
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with(id.as_str())), "{table}");
    let disk = |usage: &Value| usage["disk"].as_u64().is_some_and(|bytes| bytes >= 5_000_000);
    until("the disk is measured", || disk(&desk.json(&["usage", "--json", id])));
    until("it is measured over time", || {
        let history = desk.json(&["usage", "--history", "--json", id]);
        history.as_array().is_some_and(|all| all.iter().any(disk))
    });
    assert!(desk.good(&["usage"]).contains(id.as_str()));
    // One command, while it runs and afterwards.
    let number =
        desk.start(id, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exec sleep 1000");
    let of = || desk.json(&["usage", "--json", id, &number]);
    until("it sleeps", || of()["listed"][0]["name"] == "sleep");
    let now = of();
    assert!(now["processes"] == 1 && now["cpu_us"].as_u64() > Some(0), "{now}");
    let table = desk.good(&["usage", id, &number]);
    let row = table.lines().nth(1).expect("it has a row");
    assert!(table.starts_with("COMMAND ") && row.starts_with(&number), "{table}");
    desk.good(&["cancel", id, &number]);
    let then = of();
    assert!(then["processes"] == 0 && then["cpu_us"].as_u64() > Some(0), "{then}");
    let missing =
        format!("cowork: session `{id}` has no command 99\n  hint: see `cowork status`\n");
    desk.refused(&["usage", id, "99"], 1, &missing);
}

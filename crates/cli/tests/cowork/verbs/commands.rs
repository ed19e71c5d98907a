//! `exec` and its commands: codes, streams, times, signals.

use super::{Desk, id};
use crate::support::{finish, for_everyone, send, until, wait};
use cowork_testbed::Person;
use rustix::process::Signal;

for_everyone!(
    the_code_is_the_commands,
    streams_are_kept_apart,
    a_command_has_its_time,
    signals_reach_the_command,
    commands_run_beside_each_other,
    a_command_is_told_in_lines,
);

fn the_code_is_the_commands(person: Person) {
    let desk = Desk::new(person);
    let id = &id("codes", person);
    desk.make(id, &[]);
    for code in [0, 1, 7, 125, 255] {
        assert_eq!(desk.sh(id, &format!("exit {code}")).code, code);
    }
    for signal in [9, 15] {
        assert_eq!(desk.sh(id, &format!("kill -{signal} $$")).code, 128 + signal);
    }
    let missing = desk.say(&["exec", id, "--", "nonesuch"]);
    assert_eq!(missing.code, 127);
    assert!(missing.err.starts_with("cowork: there is no command `nonesuch` in the session\n"));
    desk.work.write("plain", "text\n");
    let plain = desk.say(&["exec", id, "--", "mnt/work/plain"]);
    assert_eq!(plain.code, 126, "{}", plain.err);
    let elsewhere = desk.say(&["exec", "--cd", "/nowhere", id, "--", "true"]);
    assert_eq!(elsewhere.code, 125, "{}", elsewhere.err);
    assert!(elsewhere.err.contains("/nowhere") && elsewhere.err.contains("  hint: "));
    let here = desk.say(&["exec", "--here", id, "--", "pwd"]);
    assert_eq!(here.good(), format!("/sessions/{id}/mnt/work\n"));
    desk.refused(
        &["exec", id, "true"],
        125,
        "cowork: it is not clear where the command starts\n  hint: write `--` before it: `cowork \
         exec SESSION -- COMMAND`\n",
    );
}

fn streams_are_kept_apart(person: Person) {
    let desk = Desk::new(person);
    let id = &id("streams", person);
    desk.make(id, &[]);
    let said = desk.sh(id, "echo out; echo err >&2");
    assert_eq!((said.code, said.text(), said.err.as_str()), (0, "out\n", "err\n"));
    let input: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let echoed = finish(desk.command(&["exec", id, "--", "cat"]), input.clone());
    assert_eq!((echoed.code, echoed.err.as_str()), (0, ""));
    assert!(echoed.out == input, "every byte comes back");
    let unread = desk.command(&["exec", "--no-stdin", id, "--", "cat"]);
    assert_eq!(finish(unread, b"not read".to_vec()).good(), "");
    let mut command = desk.command(&[
        "exec",
        "--env",
        "ONE=1",
        "--env",
        "MINE",
        "--cd",
        "mnt/work",
        id,
        "--",
        "sh",
        "-c",
        "echo $ONE $MINE; pwd",
    ]);
    command.env("MINE", "2");
    let expected = format!("1 2\n/sessions/{id}/mnt/work\n");
    assert_eq!(finish(command, Vec::new()).good(), expected);
    let terminal = desk.say(&["exec", "--terminal", "--no-stdin", id, "--", "sh", "-c", "tty <&1"]);
    assert!(terminal.good().starts_with("/dev/pts/"), "{}", terminal.text());
}

fn a_command_has_its_time(person: Person) {
    let desk = Desk::new(person);
    let id = &id("timely", person);
    desk.make(id, &[]);
    let sentence = "cowork: the command's time was over\n  hint: give it more with `--timeout`\n";
    desk.refused(&["exec", "--timeout", "1s", id, "--", "sleep", "1000"], 124, sentence);
    assert_eq!(desk.good(&["exec", "--timeout", "1m", id, "--", "echo", "done"]), "done\n");
    assert_eq!(desk.state(id), "ready", "the session goes on");
}

/// An ordinary user's limit on memory is kept by means that count nothing.
#[test]
fn who_is_killed_for_memory_is_told_so() {
    let person = Person::Root;
    let desk = Desk::new(person);
    let id = &id("greedy", person);
    desk.make(id, &["--memory", "64M"]);
    let sentence = "cowork: the command was killed: the session's memory was used up\n  hint: give it more \
                    with `--memory`, or `cowork set --memory` while it runs\n";
    let greedy = "b = bytearray(400_000_000)";
    desk.refused(&["exec", id, "--", "/usr/bin/python3", "-c", greedy], 137, sentence);
    desk.refused(&["exec", id, "--", "sh", "-c", "kill -9 $$"], 137, "");
}

fn signals_reach_the_command(person: Person) {
    let desk = Desk::new(person);
    let id = &id("signals", person);
    desk.make(id, &[]);
    for (signal, name, code) in [(Signal::TERM, "TERM", 33), (Signal::INT, "INT", 34)] {
        let line = format!(
            "trap 'exit {code}' {name}; touch mnt/work/{name}; while :; do sleep 0.02; done"
        );
        let mut child = desk.spawn(&["exec", id, "--", "sh", "-c", &line]);
        until("it waits", || desk.work.read(name).is_some());
        send(&child.0, signal);
        assert_eq!(wait(&mut child.0), code);
    }
    let mut child = desk.spawn(&["exec", id, "--", "sh", "-c", "touch mnt/work/on; sleep 1000"]);
    until("it waits", || desk.work.read("on").is_some());
    send(&child.0, Signal::TERM);
    assert_eq!(wait(&mut child.0), 128 + 15);
}

fn commands_run_beside_each_other(person: Person) {
    let desk = Desk::new(person);
    let id = &id("beside", person);
    desk.make(id, &[]);
    let line = |own: u32| {
        format!("touch mnt/work/{own}; until [ -e mnt/work/go ]; do sleep 0.02; done; exit {own}")
    };
    let mut children: Vec<_> =
        (1..=5).map(|own| desk.spawn(&["exec", id, "--", "sh", "-c", &line(own)])).collect();
    until("all run", || (1..=5).all(|own| desk.work.read(&own.to_string()).is_some()));
    let status = desk.json(&["status", "--json", id]);
    assert_eq!(status["running"].as_array().map(Vec::len), Some(5), "{status}");
    assert_eq!(status["state"], "running");
    desk.work.write("go", "");
    let codes: Vec<i32> = children.iter_mut().map(|child| wait(&mut child.0)).collect();
    assert_eq!(codes, [1, 2, 3, 4, 5]);
    assert_eq!(desk.state(id), "ready");
}

fn a_command_is_told_in_lines(person: Person) {
    let desk = Desk::new(person);
    let id = &id("lines", person);
    desk.make(id, &[]);
    let said = desk.say(&["exec", "--json", id, "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!((said.code, said.err.as_str()), (3, ""));
    let lines: Vec<serde_json::Value> = said
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is a document"))
        .collect();
    assert!(lines.len() >= 3, "{lines:?}");
    let whole = said.text();
    assert!(whole.starts_with('{') && whole.contains("started") && whole.contains("out\\n"));
    assert!(whole.lines().last().is_some_and(|line| line.contains("ended")), "{whole}");
}

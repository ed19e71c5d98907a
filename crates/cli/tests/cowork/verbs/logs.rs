//! `exec --detach`, `logs`, `attach`: output that is read later, by somebody else.

use super::{Desk, id};
use crate::support::{finish, for_everyone, until, wait};
use cowork_testbed::Person;
use std::io::Read;

for_everyone!(
    output_is_kept_and_followed,
    escape_sequences_are_shown_and_not_sent,
    streams_and_offsets_can_be_chosen,
    a_running_command_can_be_joined,
    commands_that_are_not_there,
);

/// Waits until a command has ended.
#[track_caller]
fn ended(desk: &Desk, id: &str) {
    until("it has ended", || desk.state(id) == "ready");
}

fn output_is_kept_and_followed(person: Person) {
    let desk = Desk::new(person);
    let id = &id("followed", person);
    desk.make(id, &[]);
    let line = "echo first; until [ -e mnt/work/go ]; do sleep 0.02; done; echo second; exit 4";
    assert_eq!(desk.start(id, line), "1");
    until("it has written", || desk.good(&["logs", id, "1"]) == "first\n");
    assert_eq!(desk.state(id), "running");
    let mut child = desk.spawn(&["logs", "--follow", id]);
    let mut first = [0; 6];
    let mut output = child.0.stdout.take().expect("it is a pipe");
    output.read_exact(&mut first).expect("it follows");
    assert_eq!(&first, b"first\n");
    assert_eq!(child.0.try_wait().expect("it is our child"), None, "it waits for more");
    desk.work.write("go", "");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("it is text");
    assert_eq!((rest.as_str(), wait(&mut child.0)), ("second\n", 0));
    assert_eq!(desk.good(&["logs", id]), "first\nsecond\n");
    let attached = desk.say(&["attach", "--from", "0", id, "1"]);
    assert_eq!((attached.code, attached.text()), (4, "first\nsecond\n"), "{}", attached.err);
}

fn escape_sequences_are_shown_and_not_sent(person: Person) {
    let desk = Desk::new(person);
    let id = &id("escapes", person);
    desk.make(id, &[]);
    desk.start(id, r"printf 'a\033[31mred\033]0;title\007\tb\n\302\233c\377\n'");
    ended(&desk, id);
    let shown = desk.good(&["logs", id]);
    assert!(shown.starts_with("a\\u{1b}[31mred\\u{1b}]0;title"), "{shown:?}");
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{shown:?}");
    let raw = desk.say(&["logs", "--raw", id]);
    let written = b"a\x1b[31mred\x1b]0;title\x07\tb\n\xc2\x9bc\xff\n";
    assert_eq!((raw.code, raw.out.as_slice()), (0, &written[..]));
}

fn streams_and_offsets_can_be_chosen(person: Person) {
    let desk = Desk::new(person);
    let id = &id("chosen", person);
    desk.make(id, &[]);
    desk.start(id, "echo out; sleep 0.2; echo err >&2");
    desk.start(id, "echo another");
    ended(&desk, id);
    let logs = |options: &[&str]| desk.good(&[&["logs", id, "1"], options].concat());
    assert_eq!(logs(&[]), "out\nerr\n");
    assert_eq!(logs(&["--stream", "stdout"]), "out\n");
    assert_eq!(logs(&["--stream", "stderr"]), "err\n");
    assert_eq!(logs(&["--from", "4"]), "err\n");
    assert_eq!(desk.good(&["logs", id]), "another\n", "the last one, without a number");
}

fn a_running_command_can_be_joined(person: Person) {
    let desk = Desk::new(person);
    let id = &id("joined", person);
    desk.make(id, &[]);
    let line = "echo before; read word; echo got $word; exit 6";
    let number = desk.good(&["exec", "--detach", "--terminal", id, "--", "sh", "-c", line]);
    until("it has written", || desk.good(&["logs", id]).starts_with("before"));
    let joined = finish(desk.command(&["attach", id, number.trim_end()]), b"hello\n".to_vec());
    assert_eq!(joined.code, 6, "{}", joined.err);
    assert!(joined.text().contains("got hello"), "{}", joined.text());
    assert!(!joined.text().contains("before"), "only what is new is shown: {}", joined.text());
}

fn commands_that_are_not_there(person: Person) {
    let desk = Desk::new(person);
    let id = &id("uncommanded", person);
    desk.make(id, &[]);
    let none = format!(
        "cowork: no command was started in session `{id}`\n  hint: start one with `cowork exec \
         {id} -- COMMAND`\n"
    );
    desk.refused(&["logs", id], 1, &none);
    desk.refused(&["attach", id], 125, &none);
    let missing =
        format!("cowork: session `{id}` has no command 99\n  hint: see `cowork status`\n");
    desk.refused(&["logs", id, "99"], 1, &missing);
    desk.refused(&["attach", id, "99"], 125, &missing);
    desk.refused(&["cancel", id, "99"], 1, &missing);
}

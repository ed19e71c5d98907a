//! `exec`, `shell` and `attach` on a terminal: its size follows, it is left and found again, and the
//! exit status comes through.

use super::{Desk, id};
use crate::programs::tty::Tty;
use crate::support::for_everyone;
use cowork_testbed::Person;

for_everyone!(
    a_command_on_a_terminal_is_left_and_found_again,
    a_shell_on_a_terminal_is_left_and_found_again,
);

/// What leaves a command: Ctrl-P, Ctrl-Q.
const LEAVE: &str = "\u{10}\u{11}";

fn tty(desk: &Desk, arguments: &[&str]) -> Tty {
    Tty::start(desk.person, desk.work.path(), arguments)
}

/// The window gets another size, and the command hears of it.
#[track_caller]
fn resize(tty: &mut Tty, rows: u16, columns: u16) {
    tty.press("trap 'stty size' WINCH; echo 'tr'ap set\r");
    tty.see("trap set");
    tty.resize(rows, columns);
    tty.press("sleep 0.5; echo 'af'ter\r");
    let said = tty.see("after");
    assert!(said.contains(&format!("{rows} {columns}")), "it is told of the new size: {said:?}");
    tty.press("trap - WINCH; stty size\r");
    tty.see(&format!("{rows} {columns}"));
}

/// Leaves a shell that is used by the name of a command, finds it again from a window of another
/// size, and lets it end.
fn left_and_found(desk: &Desk, id: &str, mut first: Tty, number: &str) {
    first.press("value=kept; stty size\r");
    first.see("31 97");
    resize(&mut first, 20, 60);
    first.press("echo $$ > mnt/work/pid; echo 'wr'itten\r");
    first.see("written");
    first.press(LEAVE);
    let code = first.end();
    assert_eq!(code, 0, "it goes on, and whoever leaves has not failed: {}", first.seen());
    assert!(first.seen().contains(&format!("attach {id} {number}")), "{}", first.seen());
    let state = || desk.json(&["status", "--json", id])["state"].clone();
    assert_eq!(state(), "running");
    // Whoever leaves once more, before anything is typed, ends nothing either.
    let mut second = tty(desk, &["attach", id, number]);
    second.press("echo [$value]\r");
    second.see("[kept]");
    second.press(LEAVE);
    assert_eq!(second.end(), 0);
    let mut last = tty(desk, &["attach", id, number]);
    last.press("echo [$value] $$\r");
    let pid = desk.work.read("pid").expect("it was written");
    last.see(&format!("[kept] {}", pid.trim_end()));
    last.press("stty size\r");
    last.see("31 97");
    resize(&mut last, 44, 111);
    // The first of the two keys goes through to the program, if it is followed by another one.
    last.press("read -n 2 -s keys; printf '%q\\n' \"$keys\"\r");
    last.press("\u{10}x");
    last.see("$'\\020x'");
    last.press("exit 37\r");
    assert_eq!(last.end(), 37, "{}", last.seen());
    assert_eq!(state(), "ready");
}

fn a_command_on_a_terminal_is_left_and_found_again(person: Person) {
    let desk = Desk::new(person);
    let id = &id("terminal", person);
    desk.make(id, &[]);
    let first = tty(&desk, &["exec", id, "--", "bash", "--norc", "-i"]);
    left_and_found(&desk, id, first, "1");
}

fn a_shell_on_a_terminal_is_left_and_found_again(person: Person) {
    let desk = Desk::new(person);
    let id = &id("shelled", person);
    desk.make(id, &[]);
    let first = tty(&desk, &["shell", id]);
    left_and_found(&desk, id, first, "1");
}

//! `run` through the daemon: listed and recorded while it lives, and then gone.

use super::{Desk, Started, asleep, id, is_there};
use crate::support::{Process, for_everyone, send, traces, until, wait};
use cowork_testbed::Person;
use rustix::process::Signal;
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    a_run_is_listed_while_it_lives,
    a_run_ends_with_who_started_it,
    a_run_can_be_cancelled_from_elsewhere,
    a_run_can_be_stopped_from_elsewhere,
    a_run_can_be_removed_from_elsewhere,
);

const WAIT: &str = "cd mnt/*desk; (sleep 1000 & exec sleep 1000) & touch on; \
                    until [ -e go ]; do sleep 0.02; done; exit 3";

fn a_run_is_listed_while_it_lives(person: Person) {
    let desk = Desk::new(person);
    let id = &id("oneshot", person);
    let mut child = desk.spawn(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    until("it runs", || desk.work.read("on").is_some());
    assert!(desk.ids().contains(id));
    let status = desk.json(&["status", "--json", id]);
    assert_eq!(
        (&status["state"], &status["life"]),
        (&"running".into(), &"once".into()),
        "{status}"
    );
    let found = asleep(&desk, "1000");
    desk.work.write("go", "");
    assert_eq!(wait(&mut child.0), 3);
    until("it is not listed any more", || !desk.ids().contains(id));
    assert!(!found.iter().any(Process::exists), "{found:?}");
    until("nothing of it is left", || traces(id).is_empty());
    assert!(!is_there(person.state().join("sessions").join(id)));
    let record = desk.good(&["audit", id]);
    assert!(record.contains("session.created") && record.contains("code=3"), "{record}");
}

fn a_run_ends_with_who_started_it(person: Person) {
    let desk = Desk::new(person);
    let id = &id("widowed", person);
    let mut child = desk.spawn(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    until("it runs", || desk.work.read("on").is_some());
    let found = asleep(&desk, "1000");
    send(&child.0, Signal::KILL);
    assert_eq!(wait(&mut child.0), 128 + 9);
    let end = Instant::now() + Duration::from_secs(10);
    until("its processes are gone", || !found.iter().any(Process::exists));
    until("it is not listed any more", || !desk.ids().contains(id));
    assert!(Instant::now() < end, "within seconds");
    until("nothing of it is left", || traces(id).is_empty());
}

fn a_run_can_be_cancelled_from_elsewhere(person: Person) {
    let desk = Desk::new(person);
    let id = &id("cancelledrun", person);
    let mut child = desk.spawn(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    until("it runs", || desk.work.read("on").is_some());
    let said = desk.say(&["cancel", "--grace", "1s", id]);
    let code = wait(&mut child.0);
    assert!(code == 128 + 15 || code == 128 + 9, "{code}");
    until("it is not listed any more", || !desk.ids().contains(id));
    assert_eq!(said.good(), "");
}

/// Ends a run from elsewhere, and checks that whoever started it is told why.
#[track_caller]
fn ends_by(person: Person, id: &str, verb: &str, why: &str) {
    let desk = Desk::new(person);
    // The daemon has a reason to stay.
    desk.make(&format!("{id}-other"), &[]);
    let file = desk.work.write("told", "");
    let told = std::fs::File::create(file).expect("the folder is ours");
    let mut command = desk.command(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told);
    let mut child = Started(command.spawn().expect("the program is there"));
    until("it runs", || desk.work.read("on").is_some());
    assert_eq!(desk.good(&[verb, id]), "");
    let end = Instant::now() + Duration::from_secs(10);
    while child.0.try_wait().expect("it is our child").is_none() {
        assert!(Instant::now() < end, "`run` goes on without its session");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(wait(&mut child.0), 125);
    let sentence = format!("cowork: the command was interrupted\n  because: {why}\n");
    assert_eq!(desk.work.read("told"), Some(sentence));
    until("it is not listed any more", || !desk.ids().iter().any(|listed| listed == id));
}

fn a_run_can_be_stopped_from_elsewhere(person: Person) {
    ends_by(person, &id("stoppedrun", person), "stop", "the session was stopped");
}

fn a_run_can_be_removed_from_elsewhere(person: Person) {
    ends_by(person, &id("removedrun", person), "rm", "the session was removed");
}

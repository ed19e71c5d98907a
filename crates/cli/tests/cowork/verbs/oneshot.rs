//! `run` through the daemon: listed and recorded while it lives, and then gone.

use super::{Desk, id};
use crate::support::{Process, for_everyone, inside, send, traces, until, wait};
use cowork_testbed::Person;
use rustix::process::Signal;

for_everyone!(
    a_run_is_listed_while_it_lives,
    a_run_ends_with_who_started_it,
    a_run_can_be_cancelled_from_elsewhere,
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
    assert_eq!((&status["state"], &status["life"]), (&"running".into(), &"run".into()), "{status}");
    let found = inside(desk.work.path());
    assert!(found.len() >= 3, "{found:?}");
    desk.work.write("go", "");
    assert_eq!(wait(&mut child), 3);
    assert!(!desk.ids().contains(id), "it is not listed any more");
    assert!(!found.iter().any(Process::exists), "{found:?}");
    until("nothing of it is left", || traces(id).is_empty());
    assert!(!person.state().join("sessions").join(id).exists());
    let record = desk.good(&["audit", id]);
    assert!(record.contains("session.created") && record.contains("code=3"), "{record}");
}

fn a_run_ends_with_who_started_it(person: Person) {
    let desk = Desk::new(person);
    let id = &id("widowed", person);
    let mut child = desk.spawn(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    until("it runs", || desk.work.read("on").is_some());
    let found = inside(desk.work.path());
    assert!(found.iter().any(|process| process.name() == "sleep"), "{found:?}");
    send(&child, Signal::KILL);
    assert_eq!(wait(&mut child), 128 + 9);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    until("its processes are gone", || !found.iter().any(Process::exists));
    until("it is not listed any more", || !desk.ids().contains(id));
    assert!(std::time::Instant::now() < end, "within seconds");
    until("nothing of it is left", || traces(id).is_empty());
}

fn a_run_can_be_cancelled_from_elsewhere(person: Person) {
    let desk = Desk::new(person);
    let id = &id("stopped", person);
    let mut child = desk.spawn(&["run", "--id", id, "--", "bash", "-c", WAIT]);
    until("it runs", || desk.work.read("on").is_some());
    assert_eq!(desk.good(&["cancel", "--grace", "1s", id]), "");
    let code = wait(&mut child);
    assert!(code == 128 + 15 || code == 128 + 9, "{code}");
    until("it is not listed any more", || !desk.ids().contains(id));
}

//! `daemon`: it starts by itself, is alone, and leaves nothing that runs.

use super::{Desk, asleep, is_there};
use crate::support::{Process, finish, for_everyone, need, processes_of, send, until};
use cowork_testbed::{Folder, Person, programs};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

for_everyone!(
    it_stops_with_everything_it_runs,
    it_leaves_when_nobody_needs_it,
    a_second_one_is_refused,
    it_runs_in_the_foreground_until_it_is_interrupted,
);

/// The daemons that run for a desk.
fn running(desk: &Desk) -> Vec<Process> {
    let mine = format!("COWORK_RUNTIME_DIR={}/run\u{0}", desk.daemon().display());
    let mut found = processes_of(&programs().join("coworkd"));
    found.extend(processes_of(&programs().join("cowork-keeper")));
    found.retain(|process| process.file("environ").contains(&mine));
    found
}

fn it_stops_with_everything_it_runs(person: Person) {
    let desk = Desk::apart(person);
    let none = desk.say(&["daemon", "--stop"]);
    assert_eq!((none.code, none.text(), none.err.as_str()), (0, "", "cowork: no daemon runs\n"));
    desk.make("swept-away", &[]);
    desk.sh("swept-away", "echo kept > file").good();
    desk.start("swept-away", "sleep 1000 & touch mnt/work/on; wait");
    until("it runs", || desk.work.read("on").is_some());
    let found = asleep(&desk, "1000");
    let daemons = running(&desk);
    assert!(!daemons.is_empty());
    assert_eq!(desk.good(&["daemon", "--stop"]), "");
    assert!(!found.iter().any(Process::exists), "no process of a session is left");
    until("nothing of it runs", || !daemons.iter().any(Process::exists));
    let run = crate::support::listing(&desk.daemon().join("run"));
    assert!(!run.iter().any(|name| name.contains("sock")), "{run:?}");
    // What was there is there again.
    assert_eq!(desk.state("swept-away"), "stopped");
    desk.good(&["start", "swept-away"]);
    assert_eq!(desk.sh("swept-away", "cat file").good(), "kept\n");
}

fn it_leaves_when_nobody_needs_it(person: Person) {
    let desk = Desk::apart(person);
    let mut command = desk.command(&["ls"]);
    command.env("COWORK_IDLE", "1");
    assert!(finish(command, Vec::new()).good().starts_with("ID "));
    let daemons = running(&desk);
    assert!(!daemons.is_empty());
    until("it has left", || !daemons.iter().any(Process::exists));
}

fn a_second_one_is_refused(person: Person) {
    let desk = Desk::apart(person);
    desk.make("alone", &[]);
    let before: BTreeSet<Process> = running(&desk).into_iter().collect();
    let refused = desk.say(&["daemon"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("another coworkd uses `"), "{}", refused.err);
    let other = Folder::new(person, "other");
    for arguments in [&["daemon"][..], &["ls"]] {
        let mut command = desk.command(arguments);
        command.env("COWORK_RUNTIME_DIR", other.path().join("run"));
        let refused = finish(command, Vec::new());
        assert_eq!((refused.code, refused.text()), (125, ""), "{}", refused.err);
        let sentence = format!("another coworkd uses `{}/state`", desk.daemon().display());
        assert!(refused.err.contains(&sentence), "{}", refused.err);
    }
    let after: BTreeSet<Process> = running(&desk).into_iter().collect();
    assert_eq!(before, after);
    assert_eq!(desk.sh("alone", "echo on").good(), "on\n", "the first one goes on");
}

fn it_runs_in_the_foreground_until_it_is_interrupted(person: Person) {
    let desk = Desk::apart(person);
    // It stays, though nobody needs it.
    let mut daemon = desk.spawn(&["daemon"]);
    until("it serves", || is_there(desk.daemon().join("run/api.sock")));
    let serving = running(&desk);
    std::thread::sleep(Duration::from_secs(3));
    assert!(daemon.0.try_wait().expect("it is our child").is_none(), "it stays");
    desk.make("beside-it", &[]);
    assert_eq!(desk.sh("beside-it", "echo served").good(), "served\n");
    desk.start("beside-it", "touch mnt/work/on; exec sleep 1000");
    until("it runs", || desk.work.read("on").is_some());
    let command = asleep(&desk, "1000");
    assert!(serving.iter().all(Process::exists), "it is the one that was started");
    send(&daemon.0, Signal::INT);
    until("it ends", || daemon.0.try_wait().expect("it is our child").is_some());
    assert_eq!(daemon.0.wait().expect("it is our child").code(), Some(0));
    until("the one that served has left", || !serving[0].exists());
    // What runs goes on, and the next daemon has it.
    assert!(command.iter().all(Process::exists) && !command.is_empty());
    assert_eq!(desk.state("beside-it"), "running");
    assert_eq!(desk.sh("beside-it", "echo again").good(), "again\n");
}

/// A daemon with the environment that its unit gives it, in folders of the test's own.
#[test]
fn root_means_the_daemon_of_the_system_once_there_is_one() {
    need("unshare", "util-linux");
    let home = Folder::new(Person::Root, "root");
    let script = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib && \
                  mkdir -m 700 -p /run/user/0 && export XDG_RUNTIME_DIR=/run/user/0 && \
                  echo \"without: $(cowork daemon --stop 2>&1)\" && \
                  mkdir -m 700 /run/cowork /var/lib/cowork && \
                  { COWORK_RUNTIME_DIR=/run/cowork COWORK_STATE_DIR=/var/lib/cowork \
                    coworkd --stay & } && daemon=$! && \
                  until [ -S /run/cowork/api.sock ]; do sleep 0.1; done && \
                  cowork ls --quiet && cowork daemon --stop && wait $daemon && echo \"ended: $?\" && \
                  cowork ls --quiet && ls /run/cowork/api.sock && cowork daemon --stop && \
                  ls -A \"$HOME\"; ls -A /run/user/0";
    let mut command = Person::Root.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.env_remove("COWORK_RUNTIME_DIR").env_remove("COWORK_STATE_DIR");
    let path = format!("{}:/usr/bin:/bin", programs().display());
    command.env("HOME", home.path()).env("PATH", path).env("COWORK_IDLE", "3");
    let said = finish(command, Vec::new());
    let expected = "without: cowork: no daemon runs\nended: 0\n/run/cowork/api.sock\ncowork\n";
    assert_eq!((said.text(), said.err.as_str()), (expected, ""), "it left nothing elsewhere");
}

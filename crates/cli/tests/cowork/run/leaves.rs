//! What a run without a daemon leaves behind: nothing, however it ended; and what runs beside it is
//! not disturbed.

use crate::support::{
    Process, cowork, descendants, for_everyone, listing, processes_of, run, send, traces, until,
    wait,
};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

for_everyone!(
    nothing_is_left_when_it_ends,
    nothing_is_left_when_cowork_is_killed,
    nothing_is_left_when_the_keeper_is_killed,
    nothing_is_left_whenever_it_is_ended,
    nothing_is_left_whenever_the_keeper_is_killed,
    two_runs_do_not_disturb_each_other,
    ten_runs_at_once,
);

/// A run that waits in a session of a known id, with a child and a grandchild, for `go`.
fn waiting(person: Person, here: &Path, id: &str) -> Child {
    let inside = "cd mnt/*work; (sleep 1000 & exec sleep 1000) & touch $COWORK_SESSION; \
                  echo x > /tmp/file; echo y > ~/file; echo z > /dev/shm/file; \
                  while [ ! -e go-$COWORK_SESSION ]; do sleep 0.02; done; exit 3";
    let mut command =
        cowork(person, here, &["run", "--no-daemon", "--id", id, "--", "bash", "-c", inside]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program is there")
}

/// The processes of a run that has come to wait.
fn processes(child: &Child, work: &Folder, id: &str) -> Vec<Process> {
    until("it waits", || work.read(id).is_some());
    let mut found = Vec::new();
    until("all of it runs", || {
        found = descendants(child.id());
        found.iter().filter(|process| process.name() == "sleep").count() >= 2
    });
    let names: BTreeSet<&str> = found.iter().map(Process::name).collect();
    assert!(names.contains("bash") && names.contains("cowork-keeper"), "{names:?}");
    found
}

/// The host's mounts. A session's are in a namespace of its own.
fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted")
}

fn nothing_is_left_when_it_ends(person: Person) {
    let id = format!("ending-{}", word(person));
    let work = Folder::new(person, "work");
    work.write("mine", "");
    let before = mounts();
    let mut child = waiting(person, work.path(), &id);
    let found = processes(&child, &work, &id);
    assert!(!traces(&id).is_empty(), "the session can be seen while it lives");
    assert_eq!(mounts(), before);
    work.write(&format!("go-{id}"), "");
    assert_eq!(wait(&mut child), 3);
    // Nothing waits here: when `cowork` has ended, everything has.
    let left: Vec<&Process> = found.iter().filter(|process| process.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(traces(&id), Vec::<String>::new());
    assert_eq!(mounts(), before);
    let expected = ["mine".to_owned(), format!("go-{id}"), id];
    assert_eq!(listing(work.path()), BTreeSet::from(expected));
}

fn nothing_is_left_when_cowork_is_killed(person: Person) {
    let id = format!("killed-{}", word(person));
    let work = Folder::new(person, "work");
    let before = mounts();
    let mut child = waiting(person, work.path(), &id);
    let found = processes(&child, &work, &id);
    send(&child, Signal::KILL);
    assert_eq!(wait(&mut child), 128 + 9);
    until("every process is gone", || !found.iter().any(Process::exists));
    until("every trace is gone", || traces(&id).is_empty());
    assert_eq!(mounts(), before);
}

fn nothing_is_left_when_the_keeper_is_killed(person: Person) {
    let id = format!("orphan-{}", word(person));
    let work = Folder::new(person, "work");
    let mut child = waiting(person, work.path(), &id);
    let found = processes(&child, &work, &id);
    let keeper = found.iter().find(|process| process.name() == "cowork-keeper").expect("it runs");
    keeper.kill();
    assert_eq!(wait(&mut child), 125);
    until("every process is gone", || !found.iter().any(Process::exists));
    assert_eq!(traces(&id), Vec::<String>::new());
}

/// A signal that comes while the session is being made ends it as well.
fn nothing_is_left_whenever_it_is_ended(person: Person) {
    let work = Folder::new(person, "work");
    let id = format!("early-{}", word(person));
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::KILL, 137)] {
        for milliseconds in 0..30 {
            let arguments = ["run", "--no-daemon", "--id", &id, "--", "sleep", "1000"];
            let mut command = cowork(person, work.path(), &arguments);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("the program is there");
            std::thread::sleep(Duration::from_millis(milliseconds));
            send(&child, signal);
            assert_eq!(wait(&mut child), code, "after {milliseconds} ms");
        }
        until("every trace is gone", || traces(&id).is_empty());
    }
}

/// Also what the keeper starts for a moment while it makes a session ends with it.
fn nothing_is_left_whenever_the_keeper_is_killed(person: Person) {
    let work = Folder::new(person, "work");
    for step in 0..250 {
        let mut command =
            cowork(person, work.path(), &["run", "--no-daemon", "--", "sleep", "1000"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program is there");
        let mut keeper = None;
        until("the keeper runs", || {
            assert!(child.try_wait().expect("it is our child").is_none(), "it ended by itself");
            keeper =
                descendants(child.id()).into_iter().find(|found| found.name() == "cowork-keeper");
            keeper.is_some()
        });
        std::thread::sleep(Duration::from_micros(40 * step));
        keeper.expect("it was found").kill();
        let ended = within_ten_seconds(|| child.try_wait().expect("it is our child").is_some());
        let left = if ended { Vec::new() } else { orphaned_keepers(person) };
        // What should not be there does not outlive the test.
        left.iter().for_each(Process::end);
        assert!(ended, "at step {step} `cowork` waited for {left:?}, which has no keeper");
        assert_eq!(wait(&mut child), 125, "at step {step}");
    }
    // Keepers of other tests become orphans too, for a moment: those that are there now have to go.
    let mut left = orphaned_keepers(person);
    within_ten_seconds(|| !left.iter().any(Process::exists));
    left.retain(Process::exists);
    left.iter().for_each(Process::end);
    assert!(left.is_empty(), "{left:?}");
}

fn within_ten_seconds(mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while !so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Keepers of these tests that nobody waits for.
fn orphaned_keepers(person: Person) -> Vec<Process> {
    let program = cowork_testbed::programs().join("cowork-keeper");
    let mut keepers = processes_of(&program);
    let of = format!("\nUid:\t{}\t", person.uid());
    keepers.retain(|keeper| {
        let status = keeper.file("status");
        status.contains("\nPPid:\t1\n") && status.contains(&of)
    });
    keepers
}

fn two_runs_do_not_disturb_each_other(person: Person) {
    let work = Folder::new(person, "work");
    let ids = ["first", "second"].map(|which| format!("{which}-{}", word(person)));
    let mut children = ids.each_ref().map(|id| waiting(person, work.path(), id));
    for (child, id) in children.iter().zip(&ids) {
        drop(processes(child, &work, id));
    }
    let [first, second] = &mut children;
    work.write(&format!("go-{}", ids[0]), "");
    assert_eq!(wait(first), 3);
    let said = run(
        person,
        work.path(),
        &["run", "--", "sh", "-c", "ls /tmp /dev/shm; ls -d /proc/[0-9]* | wc -l"],
    );
    let (_, count) = said.good().trim_end().rsplit_once('\n').expect("several lines");
    assert!(count.parse::<u32>().is_ok_and(|count| count < 8), "{}", said.text());
    assert!(!said.text().contains("file"), "nothing is shared: {}", said.text());
    assert!(second.try_wait().expect("it is our child").is_none(), "the other one goes on");
    work.write(&format!("go-{}", ids[1]), "");
    assert_eq!(wait(second), 3);
    // The same person may use the same id at the same time: a name is no lock.
    let same = format!("same-{}", word(person));
    let mut twice = [(); 2].map(|()| waiting(person, work.path(), &same));
    for child in &twice {
        drop(processes(child, &work, &same));
    }
    work.write(&format!("go-{same}"), "");
    assert_eq!(twice.each_mut().map(wait), [3, 3]);
}

fn ten_runs_at_once(person: Person) {
    let work = Folder::new(person, "work");
    let mut children: Vec<Child> = (0..10)
        .map(|number| {
            let inside = format!("cd mnt/*work; echo {number} > {number}; exit {number}");
            let mut command = cowork(person, work.path(), &["run", "--", "sh", "-c", &inside]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("the program is there")
        })
        .collect();
    for (number, child) in (0..).zip(&mut children) {
        assert_eq!(wait(child), number);
        assert_eq!(work.read(&number.to_string()), Some(format!("{number}\n")));
    }
}

fn word(person: Person) -> String {
    let word = match person {
        Person::Root => "root",
        Person::User => "user",
    };
    // Two runs of these tests at the same time do not take each other's sessions for their own.
    format!("{word}{}", std::process::id())
}

//! Pausing, resuming, cancelling: sessions and commands, judged by what goes on in them.

use crate::for_everyone;
use crate::look::{Process, until, with_argument};
use crate::room::Room;
use crate::site::Site;
use cowork_client::http::{HttpError, Method};
use cowork_client::types::{CommandState, State};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

for_everyone!(
    a_paused_command_stands_still,
    a_paused_session_stands_still,
    a_start_is_answered_in_a_session_that_is_paused_meanwhile,
    cancelling_ends_the_whole_tree,
    time_outs_end_the_whole_tree,
    cancelling_a_session_leaves_it_usable,
);

/// A counter in a granted folder, which the host can look at without asking the daemon.
struct Counter(Folder);

impl Counter {
    fn new(room: Room<'_>) -> Self {
        let folder = Folder::new(room.site.person, "counter");
        let body = json!({ "path": folder.path(), "name": "counter" });
        room.site.post(room.at("/grants"), &body);
        Self(folder)
    }

    /// A line of the shell that counts in a file, with children all the time.
    fn line(name: &str) -> String {
        format!("while :; do echo x >> mnt/counter/{name}; sleep 0.01; done")
    }

    fn value(&self, name: &str) -> usize {
        self.0.read(name).unwrap_or_default().len()
    }

    #[track_caller]
    fn goes_on(&self, name: &str) {
        let before = self.value(name);
        until("the counter goes on", || self.value(name) > before + 4);
    }

    #[track_caller]
    fn stands_still(&self, name: &str) {
        let before = self.value(name);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(self.value(name), before, "it stands still");
    }
}

fn a_paused_command_stands_still(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let counter = Counter::new(room);
    let held = room.sh(&format!(
        "(bash -c '{}' &); setsid bash -c '{}' & {}",
        Counter::line("orphan"),
        Counter::line("child"),
        Counter::line("held"),
    ));
    let free = room.sh(&Counter::line("free"));
    for name in ["held", "child", "orphan", "free"] {
        counter.goes_on(name);
    }
    assert_eq!(room.tell_command(held, "pause", &json!({})).state, CommandState::Paused);
    for name in ["held", "child", "orphan"] {
        counter.stands_still(name);
    }
    counter.goes_on("free");
    assert_eq!(room.command(held).state, CommandState::Paused);
    assert_eq!(room.state(), State::Running);
    assert_eq!(room.tell_command(held, "resume", &json!({})).state, CommandState::Running);
    for name in ["held", "child", "orphan"] {
        counter.goes_on(name);
    }
    // What stands still can be cancelled too.
    room.tell_command(held, "pause", &json!({}));
    let ended = room.tell_command(held, "cancel", &json!({ "grace": "1s" }));
    assert_eq!(ended.state, CommandState::Exited);
    counter.stands_still("child");
    counter.stands_still("orphan");
    room.tell_command(free, "cancel", &json!({}));
    site.verify();
}

fn a_paused_session_stands_still(person: Person) {
    let site = Site::new(person);
    let (room, other) = (site.plain_room(), site.plain_room());
    let (counter, others) = (Counter::new(room), Counter::new(other));
    let number = room.sh(&Counter::line("held"));
    other.sh(&Counter::line("free"));
    counter.goes_on("held");
    assert_eq!(room.tell("pause").state, State::Paused);
    counter.stands_still("held");
    others.goes_on("free");
    assert_eq!(room.tell("pause").state, State::Paused, "pausing again is no failure");
    // Nothing can be started in it, and it says why.
    let body = json!({ "shell": "true" });
    for (target, code) in [
        (room.at("/commands"), "paused"),
        (room.at(&format!("/commands/{number}/cancel")), "paused"),
        (room.at(&format!("/commands/{number}/pause")), "paused"),
    ] {
        let body = if target.ends_with("/commands") { &body } else { &json!({}) };
        let problem = site.refused(Method::Post, target, Some(body));
        assert_eq!((problem.status, problem.code.as_str()), (409, code));
    }
    // Folders come and go while it stands still.
    let folder = Folder::new(person, "new");
    folder.write("file", "there");
    site.post(room.at("/grants"), &json!({ "path": folder.path(), "name": "new" }));
    counter.stands_still("held");
    // A new daemon finds it paused.
    site.kill();
    site.start();
    assert_eq!(room.state(), State::Paused);
    counter.stands_still("held");
    assert_eq!(room.tell("resume").state, State::Running);
    counter.goes_on("held");
    assert_eq!(room.run("cat mnt/new/file").text(), "there");
    let problem = site.refused(Method::Post, room.at("/resume"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (409, "not-paused"));
    // It can be stopped and removed without being resumed.
    room.tell("pause");
    assert_eq!(room.tell("stop").state, State::Stopped);
    other.tell("pause");
    other.remove();
    site.verify();
}

/// A tree whose members do not want to end: a child that left the group, and one that lost its
/// parent. One that did both is nobody's, and ends with the session.
fn stubborn(mark: &str) -> String {
    let loop_ = "trap \"\" TERM HUP INT; while :; do sleep 0.1; done";
    format!("(bash -c '{loop_}' {mark} &); setsid bash -c '{loop_}' {mark} & echo ready; {loop_}")
}

fn tree(mark: &str) -> Vec<Process> {
    let mut found = Vec::new();
    until("the whole tree runs", || {
        found = with_argument(mark).into_iter().filter(|one| one.name == "bash").collect();
        found.len() >= 3
    });
    found
}

fn cancelling_ends_the_whole_tree(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let mark = format!("stubborn-{}", room.id());
    let number = room.sh(&stubborn(&mark));
    let bystander = room.sh("sleep 1000");
    let found = tree(&mark);
    let begun = Instant::now();
    let ended = room.tell_command(number, "cancel", &json!({ "grace": "500ms" }));
    assert!(begun.elapsed() >= Duration::from_millis(450), "they had their time");
    assert_eq!((ended.state, ended.signal), (CommandState::Exited, Some(9)));
    assert_eq!(ended.reason.map(|reason| reason.code).as_deref(), Some("cancelled"));
    until("the whole tree is gone", || !found.iter().any(Process::exists));
    assert!(room.command(bystander).code.is_none(), "what is not of the tree goes on");
    // Who ends when asked has no more to fear than that.
    let number = room.sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done");
    room.until_says(number, "ready");
    let begun = Instant::now();
    let ended = room.tell_command(number, "cancel", &json!({}));
    assert!(begun.elapsed() < Duration::from_secs(4), "nobody waits in vain");
    assert_eq!((ended.code, ended.signal), (Some(3), None));
    assert_eq!(room.output(number, &[("stream", "stdout")]), b"ready\nbye\n");
    let problem = site.refused(
        Method::Post,
        room.at(&format!("/commands/{bystander}/cancel")),
        Some(&json!({ "grace": "long" })),
    );
    assert_eq!((problem.status, problem.code.as_str()), (422, "bad-grace"));
}

fn time_outs_end_the_whole_tree(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.start(&json!({ "argv": ["sleep", "1000"], "timeout": "300ms" }));
    let ended = room.ended(number);
    assert_eq!(ended.reason.map(|reason| reason.code).as_deref(), Some("timeout"));
    assert_eq!(ended.signal, Some(15));
    let usage = ended.usage.expect("it is known");
    assert!((290..30_000).contains(&usage.wall_ms), "{usage:?}");
    let quick = room.finish(room.start(&json!({ "shell": "echo quick", "timeout": "60s" })));
    assert!(quick.command.reason.is_none());
    // A daemon that dies meanwhile does not make it endless.
    let mark = format!("timed-{}", room.id());
    let number = room.start(&json!({ "shell": stubborn(&mark), "timeout": "1s" }));
    let found = tree(&mark);
    site.kill();
    site.start();
    let ended = room.ended(number);
    assert_eq!(ended.reason.map(|reason| reason.code).as_deref(), Some("timeout"));
    until("the whole tree is gone", || !found.iter().any(Process::exists));
    site.verify();
}

fn a_start_is_answered_in_a_session_that_is_paused_meanwhile(person: Person) {
    const ROUNDS: u32 = 40;
    let site = Site::new(person);
    let room = site.plain_room();
    let body = json!({ "argv": ["true"] });
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let start = || site.ask(Method::Post, room.at("/commands"), Some(&body));
            let starts = [scope.spawn(start), scope.spawn(start), scope.spawn(start)];
            std::thread::sleep(Duration::from_micros(u64::from(round) * 100));
            room.tell("pause");
            // Nobody waits for somebody to resume the session.
            let answered = || starts.iter().all(ScopedJoinHandle::is_finished);
            until("every start is answered", answered);
            room.tell("resume");
            for start in starts {
                match start.join().expect("it asks") {
                    Ok(_) => {}
                    Err(HttpError::Problem(problem)) => assert_eq!(problem.code, "paused"),
                    Err(error) => panic!("no answer: {error:?}"),
                }
            }
        });
    }
    until("all have ended", || room.state() == State::Ready);
    site.verify();
}

fn cancelling_a_session_leaves_it_usable(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let mark = format!("whole-{}", room.id());
    let stubborn_one = room.sh(&stubborn(&mark));
    let polite = room.sh("sleep 1000");
    let found = tree(&mark);
    let body = json!({ "grace": "300ms" });
    site.post(room.at("/cancel"), &body);
    for number in [stubborn_one, polite] {
        let ended = room.ended(number);
        assert_eq!(ended.reason.map(|reason| reason.code).as_deref(), Some("cancelled"));
    }
    until("the whole tree is gone", || !found.iter().any(Process::exists));
    assert_eq!(room.state(), State::Ready);
    assert_eq!(room.run("echo usable").text(), "usable\n");
    // One that is paused is cancelled as well.
    let number = room.sh("sleep 1000");
    room.tell("pause");
    assert_eq!(room.tell("cancel").state, State::Ready);
    assert_eq!(room.command(number).signal, Some(15));
}

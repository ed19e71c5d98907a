//! Stopping every process of a session where it is, and letting them go on.

use crate::bench::{
    Bench, Room, as_everybody, as_root, as_user, ask, descendants, eventually, is_ready, state_of,
};
use cowork_api::guest::{FromInit, ToInit};
use cowork_api::keeper::Request;
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;
use std::time::Duration;

/// Counts in a file as fast as it can, with a child that does the same.
const COUNTER: &str = "
import os, sys
name = 'child' if os.fork() == 0 else 'parent'
fd = os.open(sys.argv[1] + '/' + name, os.O_RDWR | os.O_CREAT, 0o644)
count = 0
while True:
    count += 1
    os.pwrite(fd, b'%020d' % count, 0)
";

/// The same from two threads, when the first one has ended.
const WITHOUT_THE_FIRST: &str = "
import ctypes, os, sys, threading
ready = threading.Barrier(3)
def count(name):
    fd = os.open(sys.argv[1] + '/' + name, os.O_RDWR | os.O_CREAT, 0o644)
    ready.wait()
    count = 0
    while True:
        count += 1
        os.pwrite(fd, b'%020d' % count, 0)
exit = ctypes.CDLL(None).syscall
for name in ['parent', 'child']:
    threading.Thread(target=count, args=[name]).start()
ready.wait()
exit(60, 0)
";

fn freeze(keeper: &mut Keeper, room: &Room) {
    ask(keeper, Request::Freeze { session: room.id() }).expect("it freezes");
}

fn thaw(keeper: &mut Keeper, room: &Room) {
    ask(keeper, Request::Thaw { session: room.id() }).expect("it thaws");
}

fn counts(folder: &Folder) -> [Option<u64>; 2] {
    ["parent", "child"].map(|name| folder.read(name)?.parse().ok())
}

#[test]
fn nothing_counts_while_it_is_frozen_and_all_go_on_after() {
    as_everybody(|bench| count(bench, COUNTER));
}

#[test]
fn a_process_whose_first_thread_has_ended_stands_still_too() {
    as_everybody(|bench| count(bench, WITHOUT_THE_FIRST));
}

fn count(bench: &Bench, counter: &str) {
    let (mut keeper, mut room) = bench.room();
    let folder = bench.folder("counts");
    let wanted = crate::bench::grant_of(folder.path(), "counts", cowork_api::plan::Access::Write);
    crate::bench::grant(&mut keeper, &room, wanted).expect("granted");
    let _counter = room.python(counter, &[&room.granted("counts")]);
    let all_count = |before: [Option<u64>; 2]| {
        let now = counts(&folder);
        now.iter().zip(before).all(|(now, before)| *now > before)
    };
    assert!(eventually(|| all_count([Some(0); 2])), "nobody counts");
    for _ in 0..3 {
        freeze(&mut keeper, &room);
        // Twice is once.
        freeze(&mut keeper, &room);
        let still = counts(&folder);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(counts(&folder), still, "somebody counts while frozen");
        thaw(&mut keeper, &room);
        assert!(eventually(|| all_count(still)), "somebody does not go on");
    }
}

#[test]
fn a_frozen_cgroup_has_a_silent_init_that_answers_later() {
    as_root(|bench| {
        let (mut keeper, mut room) = bench.room();
        assert!(room.ping());
        freeze(&mut keeper, &room);
        room.send(&ToInit::Ping { nonce: 5 }, &[]);
        assert!(!is_ready(&room.session, Duration::from_millis(500)), "a frozen init answered");
        thaw(&mut keeper, &room);
        assert!(matches!(room.hear(), (FromInit::Pong { nonce: 5 }, _)));
    });
}

#[test]
fn without_a_cgroup_init_answers_while_the_rest_stands_still() {
    as_user(|bench| {
        let (mut keeper, mut room) = bench.room();
        let sleeper = room.start(&["/bin/sh", "-c", "sleep 1000 & wait"]);
        let pid = room.host_pid(sleeper.pid);
        assert!(eventually(|| descendants(pid).len() == 1));
        freeze(&mut keeper, &room);
        let stopped = |pid| state_of(pid) == Some('T');
        assert!(descendants(room.status.init).into_iter().all(stopped), "somebody runs");
        assert!(room.ping());
        thaw(&mut keeper, &room);
        let runs = |pid| state_of(pid) == Some('S');
        assert!(eventually(|| descendants(room.status.init).into_iter().all(runs)));
    });
}

#[test]
fn what_was_stopped_before_stays_stopped_after() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let sleeper = room.start(&["/bin/sh", "-c", "kill -STOP $$; echo went on"]);
        let pid = room.host_pid(sleeper.pid);
        assert!(eventually(|| state_of(pid) == Some('T')));
        freeze(&mut keeper, &room);
        thaw(&mut keeper, &room);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(state_of(pid), Some('T'));
    });
}

#[test]
fn a_frozen_session_can_be_ended() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut sleeper = room.start(&["/bin/sleep", "1000"]);
        freeze(&mut keeper, &room);
        ask(&mut keeper, Request::Destroy { session: room.id() }).expect("it ends");
        assert_eq!(sleeper.rest(), "");
        assert_eq!(state_of(room.status.init), None);
    });
}

#[test]
fn a_shell_does_not_notice_that_it_was_frozen() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let script = "set -m; sleep 2; echo \"slept: $?\"; jobs; echo end";
        for _ in 0..5 {
            let mut shell = room.start(&["/bin/bash", "-c", script]);
            let pid = room.host_pid(shell.pid);
            assert!(eventually(|| descendants(pid).len() == 1));
            freeze(&mut keeper, &room);
            thaw(&mut keeper, &room);
            assert_eq!(shell.rest(), "slept: 0\nend\n");
        }
    });
}

#[test]
fn many_processes_all_stand_still_and_all_go_on() {
    as_user(|bench| {
        let (mut keeper, mut room) = bench.room();
        let script = "for i in $(seq 200); do sleep 1000 & done; echo started; wait";
        let mut shell = room.start(&["/bin/sh", "-c", script]);
        shell.expect("started");
        let init = room.status.init;
        let all = |letter| descendants(init).into_iter().all(|pid| state_of(pid) == Some(letter));
        freeze(&mut keeper, &room);
        assert_eq!(descendants(init).len(), 201);
        assert!(all('T'), "somebody runs");
        thaw(&mut keeper, &room);
        assert!(eventually(|| all('S')), "somebody does not go on");
    });
}

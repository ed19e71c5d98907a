//! Commands as a client that records everything sees them: their whole tree, and how many there may
//! be.

use crate::bench::{Room, Running, as_everybody, descendants, eventually, lives, state_of};
use cowork_api::guest::{Ending, FromInit, Refusal, Stdio, ToInit, Whom};
use std::time::Duration;

fn signal_tree(room: &Room, running: &Running, signal: i32) {
    room.send(&ToInit::Signal { command: running.number, signal, whom: Whom::Tree }, &[]);
}

/// Starts a family: a child, a grandchild whose parent has ended, and one in a session of its own.
const FAMILY: &str = "
sleep 1001 &
(sleep 1002 &)
setsid sh -c 'sleep 1003 & sleep 1004 & wait' &
setsid sh -c '(sleep 1005 &); sleep 1006' &
echo started
";

fn sleepers(room: &Room) -> Vec<i32> {
    let mut found: Vec<i32> = descendants(room.status.init)
        .into_iter()
        .filter(|pid| {
            crate::bench::arguments_of(*pid).starts_with("sleep 100") && state_of(*pid) != Some('Z')
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn a_signal_to_the_tree_finds_orphans_that_share_a_process_session() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let bystander = room.start(&["/bin/sleep", "2000"]);
        let mut family = room.start(&["/bin/sh", "-c", &format!("{FAMILY} wait")]);
        family.expect("started");
        assert!(eventually(|| sleepers(&room).len() == 6), "{:?}", sleepers(&room));
        let all = sleepers(&room);
        signal_tree(&room, &family, 19);
        let stopped = |pid: &i32| state_of(*pid) == Some('T');
        assert!(eventually(|| all.iter().all(stopped)), "somebody runs");
        assert!(lives(room.host_pid(bystander.pid)));
        signal_tree(&room, &family, 18);
        assert!(eventually(|| !all.iter().any(stopped)), "somebody stands still");
        assert_eq!(sleepers(&room), all);
        signal_tree(&room, &family, 9);
        assert_eq!(room.ending(&family), Ending::Signal(9));
        assert!(eventually(|| sleepers(&room).is_empty()), "{:?}", sleepers(&room));
        assert!(lives(room.host_pid(bystander.pid)));
    });
}

#[test]
fn what_an_ended_command_left_behind_is_still_its_tree() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let script = "sleep 1001 & (sleep 1002 &) ; sh -c 'sleep 1003 & setsid sleep 1004 & wait' & echo started";
        let mut family = room.start(&["/bin/sh", "-c", script]);
        family.expect("started");
        assert_eq!(room.ending(&family), Ending::Status(0));
        assert!(eventually(|| sleepers(&room).len() == 4), "{:?}", sleepers(&room));
        signal_tree(&room, &family, 15);
        assert!(eventually(|| sleepers(&room).is_empty()), "{:?}", sleepers(&room));
        // Once its end is acknowledged it is forgotten, with its number.
        let mut again = room.start(&["/bin/sh", "-c", "sleep 1001 & echo started"]);
        again.expect("started");
        assert_eq!(room.ending(&again), Ending::Status(0));
        room.send(&ToInit::Acknowledge { command: again.number }, &[]);
        signal_tree(&room, &again, 9);
        assert!(room.ping());
        // Its child may not have become what it is to be when it ended.
        assert!(eventually(|| sleepers(&room).len() == 1), "it was not meant");
    });
}

/// Starts processes as fast as it can, each with a session of its own, and lets none be found by
/// its parent for long.
const BOLTER: &str = "
import os, time
print('started', flush=True)
while True:
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
    time.sleep(0.002)
";

#[test]
fn a_command_that_keeps_starting_processes_is_caught_whole() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let mut bolter = room.python(BOLTER, &[]);
        bolter.expect("started");
        std::thread::sleep(Duration::from_millis(300));
        signal_tree(&room, &bolter, 9);
        assert_eq!(room.ending(&bolter), Ending::Signal(9));
        let init = room.status.init;
        assert!(eventually(|| descendants(init).is_empty()), "{:?}", descendants(init));
    });
}

#[test]
fn a_signal_to_all_leaves_nobody_but_init() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let mut family = room.start(&["/bin/sh", "-c", &format!("{FAMILY} wait")]);
        family.expect("started");
        let other = room.start(&["/bin/sleep", "1000"]);
        room.send(&ToInit::SignalAll { signal: 9 }, &[]);
        assert_eq!(room.ending(&family), Ending::Signal(9));
        assert_eq!(room.ending(&other), Ending::Signal(9));
        let init = room.status.init;
        assert!(eventually(|| descendants(init).is_empty()), "{:?}", descendants(init));
        for signal in [0, -1, 1000] {
            room.send(&ToInit::SignalAll { signal }, &[]);
        }
        assert!(room.ping());
    });
}

/// Starts a command that ends at once, and hears both.
fn run_quietly(room: &mut Room) -> Result<u32, Refusal> {
    let mut execute = room.execute(&["/bin/true"]);
    execute.stdio = [Stdio::Null; 3];
    let number = execute.command;
    room.send(&ToInit::Execute(execute), &[]);
    match room.hear().0 {
        FromInit::Started { command, .. } => {
            assert_eq!(command, number);
            assert_eq!(room.ending_of(number).0, Ending::Status(0));
            Ok(number)
        }
        FromInit::Refused { command, why } => {
            assert_eq!(command, number);
            Err(why)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_never_acknowledges_runs_as_many_commands_as_it_likes() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        for _ in 0..1100 {
            run_quietly(&mut room).expect("it runs");
        }
    });
}

#[test]
fn unacknowledged_endings_are_bounded_and_none_is_forgotten() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let first = run_quietly(&mut room).expect("it runs");
        room.send(&ToInit::Report { nonce: 1 }, &[]);
        assert!(matches!(room.hear().0, FromInit::Report { nonce: 1, .. }));
        for _ in 1..1024 {
            run_quietly(&mut room).expect("it runs");
        }
        let full = run_quietly(&mut room).expect_err("there are too many");
        assert!(matches!(full, Refusal::Failed { errno: 11, .. }), "{full:?}");
        room.send(&ToInit::Acknowledge { command: first }, &[]);
        run_quietly(&mut room).expect("there is room again");
        room.send(&ToInit::Report { nonce: 2 }, &[]);
        let FromInit::Report { nonce: 2, running, ended } = room.hear().0 else {
            panic!("no report");
        };
        assert_eq!((running.len(), ended.len()), (0, 1024));
        assert!(ended.iter().all(|(command, ..)| *command != first));
    });
}

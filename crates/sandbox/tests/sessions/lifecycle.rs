//! From the making of a session to the end of its commands.

use crate::bench::{Room, as_everybody, descendants, eventually, new_plan, state_of};
use cowork_api::guest::{Ending, FromInit, Stdio, ToInit, Whom};
use cowork_api::keeper::{FailureCode, LayerState, Reply, Request};
use rustix::fd::AsFd;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn a_session_is_made_answers_and_runs_commands() {
    as_everybody(|bench| {
        let plan = new_plan();
        let floor = plan.floor.clone();
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        for layer in floor {
            let seen = room.status.enforcement.iter().find(|entry| entry.layer == layer);
            assert_eq!(seen.map(|entry| entry.state), Some(LayerState::InForce), "{layer:?}");
        }
        assert!(room.ping());
        assert_eq!(room.run(&["/bin/echo", "hello"]), (Ending::Status(0), "hello\n".into()));
        assert_eq!(room.run(&["sh", "-c", "exit 42"]), (Ending::Status(42), String::new()));
        assert_eq!(room.run(&["sh", "-c", "kill -TERM $$"]).0, Ending::Signal(15));
        let said = room.shell("id -u; id -g; pwd; hostname; echo $$");
        let home = room.home();
        let mut lines = said.lines();
        assert_eq!(
            lines.by_ref().take(4).collect::<Vec<_>>(),
            ["1000", "1000", &*home, &*room.id()]
        );
        let again = Request::Status { session: room.id() };
        let status = crate::bench::ask(&mut keeper, again).expect("it is there");
        assert_eq!(status, Reply::Session(room.status.clone()));
        let end = Request::Destroy { session: room.id() };
        assert_eq!(crate::bench::ask(&mut keeper, end.clone()), Ok(Reply::Done));
        assert_eq!(state_of(room.status.init), None);
        let gone = crate::bench::ask(&mut keeper, end).expect_err("it is gone");
        assert_eq!(gone.code, FailureCode::NoSession);
    });
}

#[test]
fn what_a_command_used_is_told() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let busy = "import time; x = b'x' * (64 << 20)\nwhile time.process_time() < 0.3: pass";
        let running = room.python(busy, &[]);
        let (ending, usage) = room.ending_of(running.number);
        assert_eq!(ending, Ending::Status(0));
        assert!(usage.user_us + usage.system_us >= 250_000, "{usage:?}");
        assert!(usage.peak_kib >= 64 * 1024, "{usage:?}");
    });
}

#[test]
fn several_commands_run_at_once() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let mut all: Vec<_> = (0..50).map(|_| room.start(&["/bin/cat"])).collect();
        for (index, running) in all.iter_mut().enumerate() {
            running.say(&index.to_string());
        }
        for (index, running) in all.iter_mut().enumerate().rev() {
            running.expect(&index.to_string());
            running.input = None;
        }
        for running in &all {
            assert_eq!(room.ending(running), Ending::Status(0));
        }
    });
}

#[test]
fn sessions_of_one_keeper_do_not_see_each_other() {
    as_everybody(|bench| {
        let (mut keeper, mut one) = bench.room();
        let mut other = Room::make(&mut keeper, new_plan());
        let _sleeper = one.start(&["/bin/sleep", "54321"]);
        one.shell("echo mine > /tmp/file; echo mine > ~/file; echo mine > /dev/shm/file");
        let seen = other.shell("cat /tmp/file ~/file /dev/shm/file 2>/dev/null; ls /sessions; cat /proc/[0-9]*/cmdline | grep -c '5432[1]'");
        assert_eq!(seen, format!("{}\n0\n", other.id()));
        let mut plan = new_plan();
        plan.id = one.id();
        let twice = crate::bench::ask(&mut keeper, Request::Create(Box::new(plan)));
        assert_eq!(twice.expect_err("it exists").code, FailureCode::SessionExists);
        assert!(one.ping() && other.ping());
    });
}

#[test]
fn orphans_are_buried() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let script = "for i in $(seq 50); do (setsid sh -c 'sleep 0.1' &) ; done; echo started";
        assert_eq!(room.shell(script), "started\n");
        let init = room.status.init;
        assert!(eventually(|| descendants(init).is_empty()), "{:?}", descendants(init));
        assert!(room.ping());
    });
}

#[test]
fn signals_reach_whom_they_are_for() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let script = "trap 'echo leader' USR1; sh -c 'trap \"echo child\" USR1; echo ready; \
                      while :; do sleep 0.05; done' & echo ready; while :; do sleep 0.05; done";
        let mut running = room.start(&["/bin/sh", "-c", script]);
        running.expect("ready");
        running.expect("ready");
        let signal = |whom, signal| ToInit::Signal { command: running.number, signal, whom };
        let (leader, group, end) =
            (signal(Whom::Leader, 10), signal(Whom::Group, 10), signal(Whom::Group, 9));
        room.send(&leader, &[]);
        running.expect("leader");
        room.send(&group, &[]);
        // `sleep`, which is in the group too, dies of it; both shells go on.
        let mut heard = Vec::new();
        while !(heard.contains(&"child".to_owned()) && heard.contains(&"leader".to_owned())) {
            heard.push(running.line().expect("it goes on"));
        }
        room.send(&end, &[]);
        assert_eq!(room.ending(&running), Ending::Signal(9));
    });
}

#[test]
fn a_terminal_is_the_sessions_own_and_controls_its_command() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        room.send(&ToInit::OpenTerminal { nonce: 11 }, &[]);
        let (FromInit::Terminal { nonce: 11, errno: 0 }, Some(terminal)) = room.hear() else {
            panic!("no terminal");
        };
        rustix::pty::unlockpt(&terminal).expect("it is a terminal");
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let slave = rustix::pty::ioctl_tiocgptpeer(&terminal, flags).expect("it is a terminal");
        let script = "tty; echo opened > /dev/tty; trap 'echo interrupted' INT; read line; echo \"heard $line\"";
        let mut execute = room.execute(&["/bin/bash", "-c", script]);
        execute.terminal = true;
        execute.stdio = [Stdio::Passed(0); 3];
        let number = execute.command;
        room.send(&ToInit::Execute(execute), &[slave.as_fd()]);
        assert!(matches!(room.hear(), (FromInit::Started { .. }, _)));
        drop(slave);
        let mut terminal = std::fs::File::from(terminal);
        let mut heard = String::new();
        let mut hear_until = |terminal: &mut std::fs::File, wanted: &str| {
            while !heard.contains(wanted) {
                assert!(crate::bench::is_ready(terminal, crate::bench::A_WHILE), "{heard}");
                let mut buffer = [0; 4096];
                let length = terminal.read(&mut buffer).unwrap_or(0);
                assert!(length > 0, "{heard}");
                heard.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        };
        hear_until(&mut terminal, "/dev/pts/0\r\nopened\r\n");
        std::thread::sleep(Duration::from_millis(100));
        // The terminal turns this key into a signal for whom it controls.
        terminal.write_all(&[3]).expect("it is open");
        hear_until(&mut terminal, "interrupted");
        terminal.write_all(b"a line\n").expect("it is open");
        hear_until(&mut terminal, "heard a line\r\n");
        assert_eq!(room.ending_of(number).0, Ending::Status(0));
    });
}

#[test]
fn arguments_of_a_megabyte_and_a_half_arrive() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let long = "x".repeat(100_000);
        let count = "import sys; print(sum(map(len, sys.argv[1:])), len(sys.argv))";
        let mut arguments = vec!["/usr/bin/python3", "-c", count];
        arguments.extend(std::iter::repeat_n(long.as_str(), 15));
        assert_eq!(room.run(&arguments), (Ending::Status(0), "1500000 16\n".into()));
    });
}

#[test]
fn a_command_gets_three_streams_and_no_other_descriptor() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let look = "
import os
def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
print([fd for fd in range(1024) if is_open(fd)])
";
        let said = room.run(&["/usr/bin/python3", "-c", look]).1;
        assert_eq!(said, "[0, 1, 2]\n");
    });
}

#[test]
fn another_client_gets_the_command_socket_again() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let running = room.start(&["/bin/sleep", "1000"]);
        let attach = Request::Attach { session: room.id() };
        let (reply, sockets) = keeper.call(attach).expect("it is there");
        assert!(matches!(reply, Reply::Session(_)));
        let socket = sockets.into_iter().next().expect("the sockets come along");
        let channel = cowork_sandbox::channel::Channel::from(socket);
        let ping = cowork_api::encode(&ToInit::Ping { nonce: 21 });
        channel.send(&ping, &[]).expect("init is there");
        let answer = channel.receive(cowork_sandbox::channel::Peer::Hostile).expect("it speaks");
        let answer = cowork_api::decode::<FromInit>(&answer.expect("it lives").bytes);
        assert_eq!(answer, Ok(FromInit::Pong { nonce: 21 }));
        room.send(&ToInit::Signal { command: running.number, signal: 9, whom: Whom::Leader }, &[]);
        assert_eq!(room.ending(&running), Ending::Signal(9));
    });
}

#[test]
fn a_client_that_does_not_read_stops_nobody() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let ping = cowork_api::encode(&ToInit::Ping { nonce: 1 });
        let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
        let mut sent = 0;
        for _ in 0..20_000 {
            sent += u32::from(rustix::net::send(&room.session, &ping, flags).is_ok());
        }
        assert!(sent > 200, "{sent}");
        let mut other = Room::make(&mut keeper, new_plan());
        assert_eq!(other.shell("echo well"), "well\n");
        // Once the answers that are there are read, the session goes on.
        while crate::bench::is_ready(&room.session, Duration::from_millis(500)) {
            room.session.receive().expect("init lives");
        }
        assert_eq!(room.shell("echo well"), "well\n");
    });
}

//! What holds the process, observed from outside.

use crate::session::{LOOPBACK, Session, allow_loopback, echo, expect_echo, reach, rules};
use cowork_api::egress::{Begin, FromEgress, ToEgress};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_testbed::Person;
use rustix::fd::OwnedFd;
use std::process::{Command, Stdio};

#[test]
fn the_process_is_held_whoever_starts_it() {
    for person in Person::ALL {
        let port = echo();
        let rules = rules([allow_loopback(port)]);
        let session = Session::start_by(person, Begin { rules, ..Begin::default() });
        let uid = if person == Person::Root { 65_534 } else { person.uid() };
        assert_eq!(session.status("Uid"), format!("{uid} {uid} {uid} {uid}"));
        assert_eq!(session.status("Gid"), format!("{uid} {uid} {uid} {uid}"));
        assert_eq!(session.status("Groups"), "");
        assert_eq!(session.status("CapEff"), "0000000000000000");
        assert_eq!(session.status("CapPrm"), "0000000000000000");
        assert_eq!(session.status("NoNewPrivs"), "1");
        assert_eq!(session.status("Seccomp"), "2");
        // One that no program of a session passes either, and one against programs and processes.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).unwrap();
        let filters: u32 = session.status("Seccomp_filters").parse().unwrap();
        assert_eq!(filters, own.trim().parse::<u32>().unwrap() + 2);
        assert_eq!(session.confinement.len(), 4, "{:?}", session.confinement);
        // It is not dumpable: its own files in /proc are root's.
        let file = std::fs::metadata(format!("/proc/{}/environ", session.child.id())).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&file), 0);
        // And it still works.
        expect_echo(&mut session.connect(LOOPBACK, port), b"hello");
    }
}

#[test]
fn every_thread_is_held() {
    let session = Session::start(rules([crate::session::allow_name("nowhere.invalid")]));
    let mut stream = reach(session.http);
    // Looking a name up takes another thread.
    std::io::Write::write_all(&mut stream, b"CONNECT nowhere.invalid:80 HTTP/1.1\r\n\r\n").unwrap();
    assert!(crate::session::head(&mut stream).contains("no-such-name"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", session.child.id())).unwrap();
    let mut count = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(
            status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"),
            "{status}"
        );
        count += 1;
    }
    assert!(count >= 2, "{count}");
}

#[test]
fn a_process_that_hears_nonsense_does_not_begin() {
    let (ours, theirs) = Channel::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cowork-egress"));
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    ours.send(&cowork_api::encode(&ToEgress::Greet), &[]).unwrap();
    let packet = ours.receive(Peer::Hostile).unwrap().unwrap();
    let said: FromEgress = cowork_api::decode(&packet.bytes).unwrap();
    assert!(matches!(said, FromEgress::Failed { .. }), "{said:?}");
    assert!(!child.wait().unwrap().success());
}

#[test]
fn the_process_ends_with_its_line() {
    let port = echo();
    let mut session = Session::start(rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    expect_echo(&mut stream, b"hello");
    let channel = session.channel.take().unwrap();
    rustix::net::shutdown(&*channel, rustix::net::Shutdown::Both).unwrap();
    assert!(session.child.wait().unwrap().success());
    let ended = std::io::Read::read(&mut stream, &mut [0; 8]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

//! What is recorded, and kept until a daemon has taken it.

use crate::session::{LOOPBACK, PATIENCE, Session, allow_loopback, echo, expect_echo, rules};
use cowork_api::egress::{FromEgress, Record, ToEgress, What};
use std::time::{Duration, Instant};

#[test]
fn every_decision_and_every_end_is_recorded_once_in_order() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    for _ in 0..50 {
        expect_echo(&mut session.connect(LOOPBACK, port), b"hello");
    }
    let deadline = Instant::now() + PATIENCE;
    while session.records().len() < 100 {
        assert!(Instant::now() < deadline, "{}", session.records().len());
    }
    std::thread::sleep(Duration::from_millis(100));
    let records = session.records();
    let numbers: Vec<u64> = records.iter().map(|record| record.number).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    for flow in 1..=50 {
        let of: Vec<&Record> = records.iter().filter(|record| record.flow == flow).collect();
        assert!(matches!(
            (&of[0].what, &of[1].what, of.len()),
            (What::Decided { .. }, What::Ended { up: 5, down: 5, .. }, 2)
        ));
    }
}

#[test]
fn what_was_not_acknowledged_is_told_to_the_next_daemon() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    for _ in 0..3 {
        expect_echo(&mut session.connect(LOOPBACK, port), b"hello");
    }
    let deadline = Instant::now() + PATIENCE;
    while session.records().len() < 6 {
        assert!(Instant::now() < deadline);
    }
    session.send(&ToEgress::Acknowledge { upto: 4 });
    session.send(&ToEgress::Greet);
    while session.records().len() < 8 {
        assert!(Instant::now() < deadline);
    }
    std::thread::sleep(Duration::from_millis(100));
    let numbers: Vec<u64> = session.records().iter().map(|record| record.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 5, 6]);
}

#[test]
fn what_flows_is_listed_with_its_bytes() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    expect_echo(&mut stream, b"hello");
    session.send(&ToEgress::Flows { number: 1 });
    let (flows, total) = session.wait(|message| match message {
        FromEgress::Flows { number: 1, flows, total } => Some((flows.clone(), *total)),
        _ => None,
    });
    assert_eq!((flows.len(), total), (1, 1));
    assert_eq!((flows[0].target.host.as_str(), flows[0].target.port), (LOOPBACK, port));
    assert_eq!((flows[0].up, flows[0].down, flows[0].held), (5, 5, false));
    assert!(flows[0].rule.is_some());
    drop(stream);
    session.ended(port);
    session.send(&ToEgress::Flows { number: 2 });
    let total = session.wait(|message| match message {
        FromEgress::Flows { number: 2, total, .. } => Some(*total),
        _ => None,
    });
    assert_eq!(total, 0);
}

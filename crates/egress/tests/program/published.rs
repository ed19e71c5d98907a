//! Ports of the session at the host's loopback.

use crate::session::{Session, echo, expect_echo, reach, rules};
use cowork_api::egress::{FromEgress, Record, Socket, ToEgress, Via, What};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::Read;

fn hand_over_sockets(session: &Session, count: usize) {
    for _ in 0..count {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        session.hand_over(&[(Socket::Inward, socket.as_fd())]);
    }
}

fn publish(session: &Session, number: u32, inside: u16, outside: u16) -> Result<u16, String> {
    session.send(&ToEgress::Publish { number, inside, outside });
    session.wait(|message| match message {
        FromEgress::Published { number: of, outside } if *of == number => Some(outside.clone()),
        _ => None,
    })
}

#[test]
fn a_published_port_leads_inside_until_it_is_let_go() {
    let inside = echo();
    let session = Session::start(rules([]));
    hand_over_sockets(&session, 2);
    let outside = publish(&session, 1, inside, 0).unwrap();
    assert!(publish(&session, 2, inside, outside).is_err());
    let address = ([127, 0, 0, 1], outside).into();
    let mut one = reach(address);
    expect_echo(&mut one, b"hello");
    let mut two = reach(address);
    expect_echo(&mut two, b"hello");
    session.wait(|message| (*message == FromEgress::WantInward).then_some(()));
    // The third waits for a socket.
    let mut three = reach(address);
    hand_over_sockets(&session, 8);
    expect_echo(&mut three, b"hello");
    drop(two);
    assert_eq!(session.ended(inside), ("eof".into(), 5, 5));

    session.send(&ToEgress::Unpublish { outside });
    let ended = one.read(&mut [0; 8]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", outside)).is_err());
    session.wait(|message| match message {
        FromEgress::Record(Record { what: What::Ended { target, how, .. }, .. }) => {
            (target.via == Via::Published && how == "unpublished").then_some(())
        }
        _ => None,
    });
}

#[test]
fn a_port_that_nothing_listens_on_is_reset() {
    let session = Session::start(rules([]));
    hand_over_sockets(&session, 2);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inside = listener.local_addr().unwrap().port();
    drop(listener);
    let outside = publish(&session, 1, inside, 0).unwrap();
    let mut stream = reach(([127, 0, 0, 1], outside).into());
    assert!(stream.read(&mut [0; 8]).is_err());
}

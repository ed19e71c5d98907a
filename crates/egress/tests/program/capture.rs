//! Connections to addresses that stand for names.

use crate::dns::address;
use crate::session::{LOOPBACK, PATIENCE, Session, allow_loopback, echo, expect_echo, rule, rules};
use cowork_api::egress::{Action, Answer, FromEgress, Host, Ports, Socket, ToEgress};
use hickory_proto::rr::RecordType;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A network of its own, with the routes that a session has.
pub(crate) struct Network {
    holder: Child,
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

impl Network {
    pub(crate) fn new() -> Self {
        let prepare = "ip link set lo up && ip route add local 198.18.0.0/15 dev lo && \
                       ip -6 route add local fd63:6f77:6f72:6b00::/96 dev lo && echo && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", prepare])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ready = holder.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
        assert_eq!(ready, 1);
        Self { holder }
    }

    /// Does something in it; what it opens stays in it.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.holder.id());
        let enter = || {
            let namespace = std::fs::File::open(path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    fn connect(&self, address: IpAddr, port: u16) -> std::io::Result<TcpStream> {
        let stream = self.within(|| TcpStream::connect((address, port)))?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(stream)
    }

    /// Hands over a listener on a port of every address.
    pub(crate) fn listen(&self, session: &Session, port: u16) {
        let listener = self.within(|| TcpListener::bind(("::", port)).unwrap());
        session.hand_over(&[(Socket::Port(port), listener.as_fd())]);
    }
}

fn is_reset(stream: &mut TcpStream) -> bool {
    let read = stream.read(&mut [0; 1]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[test]
fn a_connection_to_an_address_reaches_the_name_it_stands_for() {
    let (port, other) = (echo(), echo());
    let session = Session::start(rules([allow_loopback(port)]));
    let network = Network::new();
    network.listen(&session, port);
    network.listen(&session, other);
    for kind in [RecordType::A, RecordType::AAAA] {
        let address = address(&session, &format!("{LOOPBACK}."), kind).unwrap();
        expect_echo(&mut network.connect(address, port).unwrap(), b"hello");
        assert!(is_reset(&mut network.connect(address, other).unwrap()));
    }
    assert!(session.decided(LOOPBACK).allowed);
    assert_eq!(session.ended(port), ("eof".into(), 5, 5));
    assert!(format!("{:?}", session.records()).contains("code: \"port\""));
    // An address that stands for no name, and one that is nowhere.
    let mut unknown = network.connect([198, 19, 255, 1].into(), port).unwrap();
    assert!(is_reset(&mut unknown));
    assert_eq!(session.decided("198.19.255.1").code, "unknown-address");
    let began = Instant::now();
    assert!(network.connect([192, 0, 2, 1].into(), port).is_err());
    assert!(began.elapsed() < PATIENCE / 4);
}

#[test]
fn a_captured_connection_waits_for_the_user_and_is_withdrawn_when_it_leaves() {
    let port = echo();
    let session = Session::start(rules([rule(Action::Ask, Host::Loopback, Ports::All)]));
    let network = Network::new();
    network.listen(&session, port);
    let address = address(&session, &format!("{LOOPBACK}."), RecordType::A).unwrap();
    let mut stream = network.connect(address, port).unwrap();
    // As the beginning of TLS; nobody is there to go on with it.
    stream.write_all(b"\x16\x03\x01").unwrap();
    let ask = session.wait(|message| match message {
        FromEgress::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    drop(stream);
    session.wait(|message| (*message == FromEgress::Withdraw { ask }).then_some(()));
    session.send(&ToEgress::Flows { number: 1 });
    let open = session.wait(|message| match message {
        FromEgress::Flows { total, .. } => Some(*total),
        _ => None,
    });
    assert_eq!(open, 0);
}

#[test]
fn a_greeting_does_not_wait_for_the_user_until_its_program_gives_up() {
    let (port, other) = (echo(), echo());
    let session = Session::start(rules([rule(Action::Ask, Host::Loopback, Ports::All)]));
    let network = Network::new();
    network.listen(&session, port);
    network.listen(&session, other);
    let address = address(&session, &format!("{LOOPBACK}."), RecordType::A).unwrap();
    let mut silent = network.connect(address, other).unwrap();
    let mut greeting = network.connect(address, port).unwrap();
    greeting.write_all(b"\x16\x03\x01").unwrap();
    let began = Instant::now();
    assert!(is_reset(&mut greeting));
    let waited = began.elapsed();
    assert!((Duration::from_secs(7)..Duration::from_millis(9500)).contains(&waited), "{waited:?}");
    assert_eq!(session.decided(LOOPBACK).code, "unanswered");
    // The question stands, and its answer serves the next try, which does not wait.
    assert_eq!(session.count(|message| matches!(message, FromEgress::Withdraw { .. })), 0);
    let ask = session.wait(|message| match message {
        FromEgress::Ask(ask) if ask.target.port == port => Some(ask.ask),
        _ => None,
    });
    session.send(&ToEgress::Answer { ask, answer: Answer::Allow });
    expect_echo(&mut network.connect(address, port).unwrap(), b"hello");
    assert_eq!(session.count(|message| matches!(message, FromEgress::Ask(_))), 2);
    // Whoever says nothing waits on, as programs do to which the server speaks first.
    std::thread::sleep(Duration::from_secs(1));
    silent.set_nonblocking(true).unwrap();
    let waits = silent.read(&mut [0; 1]).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn an_address_that_stands_for_no_name_is_reset_at_once() {
    let session = Session::start(rules([]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    session.hand_over(&[(Socket::Port(address.port()), listener.as_fd())]);
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    let broken = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(began.elapsed() < PATIENCE / 4);
    assert_eq!(session.decided("127.0.0.1").code, "unknown-address");
}

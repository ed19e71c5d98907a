//! Requests that the host makes for itself, by a process that serves no session.

use crate::session::PATIENCE;
use crate::tls::Authority;
use cowork_api::egress::{Errand, FromEgress, Hidden, Parent, Returned, ToEgress};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_testbed::Person;
use rustix::fd::OwnedFd;
use std::process::Stdio;
use std::time::Instant;

const SENT: &str = "grant_type=refresh_token&refresh_token=abc";

fn errand(port: u16, roots: Vec<Vec<u8>>) -> Errand {
    Errand {
        host: "localhost".into(),
        port,
        path: "/token?x=1".into(),
        content_type: "application/x-www-form-urlencoded".into(),
        body: Hidden(SENT.into()),
        roots,
        parent: None,
    }
}

/// Sends a process on an errand; what it says, after it has ended.
fn run(person: Person, errand: Errand) -> Result<Returned, String> {
    let (ours, theirs) = Channel::pair().unwrap();
    let mut command = person.command(env!("CARGO_BIN_EXE_cowork-egress"));
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    ours.send(&cowork_api::encode(&ToEgress::Errand(Box::new(errand))), &[]).unwrap();
    let packet = ours.receive(Peer::Hostile).unwrap().unwrap();
    let FromEgress::Returned(returned) = cowork_api::decode(&packet.bytes).unwrap() else {
        panic!("another answer")
    };
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    returned
}

fn answering(authority: &Authority) -> crate::tls::Server {
    authority.serve(|_| {
        let body = r#"{"access_token":"x"}"#;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        (format!("{head}{body}").into_bytes(), None)
    })
}

#[test]
fn a_place_that_no_name_may_lead_to_is_not_asked() {
    let authority = Authority::new();
    let server = answering(&authority);
    for person in [Person::Root, Person::User] {
        let said = run(person, errand(server.port, vec![authority.root()])).unwrap_err();
        assert!(said.contains("localhost"), "{said}");
        assert!(server.heads.try_recv().is_err());
    }
}

#[test]
fn it_is_made_through_the_parent_and_only_to_who_proves_its_name() {
    let authority = Authority::new();
    let server = answering(&authority);
    // A parent without TLS that leads everything to the server.
    let port = server.port;
    let proxy = crate::session::server(move |mut stream| {
        use std::io::Write as _;
        let head = crate::session::head(&mut stream);
        assert!(head.starts_with("CONNECT tokens.example:443 "), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut far = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back, mut out) = (far.try_clone().unwrap(), stream.try_clone().unwrap());
        std::thread::spawn(move || drop(std::io::copy(&mut back, &mut out)));
        drop(std::io::copy(&mut stream, &mut far));
    });
    let parent = Parent {
        host: "127.0.0.1".into(),
        port: proxy,
        tls: false,
        authorization: None,
        except: Vec::new(),
        socks: None,
    };
    // The certificate is for another name.
    let mut errand = errand(443, vec![authority.root()]);
    errand.host = "tokens.example".into();
    errand.parent = Some(parent);
    let said = run(Person::Root, errand).unwrap_err();
    assert!(said.contains("cannot prove"), "{said}");
    assert!(server.heads.try_recv().is_err(), "nothing was sent");
}

//! The HTTP proxy and the SOCKS proxy.

use crate::session::{
    LOOPBACK, PATIENCE, Session, allow_loopback, allow_name, echo, expect_echo, head, reach, rule,
    rules, server,
};
use cowork_api::egress::{
    Action, Begin, FromEgress, Hidden, Host, Network, Parent, Ports, Quota, Rules, ToEgress,
};
use cowork_testbed::Person;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::time::Instant;

fn answer(mut stream: TcpStream) -> (String, serde_json::Value) {
    let head = head(&mut stream);
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    (head, serde_json::from_str(&body).unwrap_or_default())
}

fn connect(session: &Session, to: &str) -> (String, serde_json::Value) {
    let mut stream = reach(session.http);
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    answer(stream)
}

/// Asks the SOCKS proxy; the stream and the code it answers with.
fn socks(session: &Session, address: &[u8], port: u16) -> (TcpStream, u8) {
    let mut stream = reach(session.socks);
    stream.write_all(&[5, 2, 1, 0]).unwrap();
    let mut chosen = [9; 2];
    stream.read_exact(&mut chosen).unwrap();
    assert_eq!(chosen, [5, 0]);
    let mut request = vec![5, 1, 0];
    request.extend_from_slice(address);
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut answer = [9; 10];
    stream.read_exact(&mut answer).unwrap();
    (stream, answer[1])
}

fn by_name(name: &str) -> Vec<u8> {
    let mut address = vec![3, u8::try_from(name.len()).unwrap()];
    address.extend_from_slice(name.as_bytes());
    address
}

#[test]
fn connect_reaches_what_a_rule_allows() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    expect_echo(&mut stream, b"hello");
    drop(stream);
    let decision = session.decided(LOOPBACK);
    assert_eq!((decision.allowed, decision.code.as_str()), (true, "allowed"));
    assert_eq!(session.ended(port), ("eof".into(), 5, 5));
}

#[test]
fn bytes_that_follow_connect_at_once_are_not_lost() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    let mut stream = reach(session.http);
    write!(stream, "CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\nearly").unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"early");
}

#[test]
fn a_refusal_says_why_to_people_and_to_machines() {
    let reason = "use outputs/ instead".to_owned();
    let session = Session::start(rules([
        allow_name("example.com"),
        rule(Action::Deny { reason }, Host::Domain("paste.example".into()), Ports::All),
    ]));
    let (head, body) = connect(&session, "other.example:443");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(head.contains("x-cowork-deny: no-rule\r\n"), "{head}");
    assert_eq!(
        (&body["error"]["code"], &body["error"]["host"]),
        (&"no-rule".into(), &"other.example".into())
    );
    assert_eq!(body["error"]["port"], 443);
    assert!(body["error"]["hint"].as_str().unwrap().contains("cowork allow"), "{body}");

    let (_, body) = connect(&session, "a.paste.example:443");
    assert_eq!(body["error"]["code"], "denied-by-rule");
    assert_eq!(body["error"]["hint"], "use outputs/ instead");
    let (_, body) = connect(&session, "example.com:22");
    assert_eq!(body["error"]["code"], "port");
    assert!(!session.decided("other.example").allowed);
}

#[test]
fn what_is_no_request_is_answered_so() {
    let session = Session::start(rules([]));
    for (sent, status) in [
        ("\u{5}\u{1}\0", "400"),
        ("CONNECT nowhere HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT a b c d\r\n\r\n", "400"),
        ("CONNECT example.com:+443 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT example.com:0443 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT 0x7f000001:80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT 127.1:80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT a..b:80 HTTP/1.1\r\n\r\n", "400"),
    ] {
        let mut stream = reach(session.http);
        stream.write_all(sent.as_bytes()).unwrap();
        let (head, _) = answer(stream);
        assert_eq!(head.split(' ').nth(1), Some(status), "{sent:?}: {head}");
    }
    let deadline = Instant::now() + PATIENCE;
    while session.refused().len() < 8 {
        assert!(Instant::now() < deadline, "{:?}", session.refused());
    }
    let mut codes = session.refused();
    codes.sort_unstable();
    assert_eq!(codes, [["bad-host"; 3].as_slice(), &["bad-request"; 5]].concat());
}

#[test]
fn socks_reaches_what_a_rule_allows_and_refuses_the_rest() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    let (mut stream, code) = socks(&session, &by_name(LOOPBACK), port);
    assert_eq!(code, 0);
    expect_echo(&mut stream, b"hello");
    assert_eq!(socks(&session, &by_name("other.example"), 443).1, 2);
    assert_eq!(socks(&session, &[1, 127, 0, 0, 1], port).1, 2);
    assert_eq!(socks(&session, &[1, 169, 254, 169, 254], 80).1, 2);
    assert_eq!(socks(&session, &by_name("0x7f.1"), port).1, 1);
}

#[test]
fn socks_only_connects() {
    let session = Session::start(rules([]));
    for command in [2, 3] {
        let mut stream = reach(session.socks);
        stream.write_all(&[5, 1, 0, 5, command, 0, 1, 1, 2, 3, 4, 0, 80]).unwrap();
        let mut answer = [9; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], [5, 0, 5, 7], "{command}");
    }
    // Somebody who insists on a password.
    let mut stream = reach(session.socks);
    stream.write_all(&[5, 1, 2]).unwrap();
    let mut answer = [9; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 0xff]);
}

#[test]
fn an_address_is_reached_only_by_a_rule_that_names_it() {
    let port = echo();
    let session = Session::start(rules([]));
    let to = format!("127.0.0.1:{port}");
    let (_, body) = connect(&session, &to);
    assert_eq!(body["error"]["code"], "no-rule");

    let network = |bits| {
        let network = Network { address: [127, 0, 0, 1].into(), bits };
        rules([rule(Action::Allow, Host::Network(network), Ports::All)])
    };
    session.send(&ToEgress::Rules(Box::new(network(0))));
    session.connect_is_refused(&to, "local-address");
    session.send(&ToEgress::Rules(Box::new(network(32))));
    session.send(&ToEgress::Flows { number: 1 });
    session.wait(|message| matches!(message, FromEgress::Flows { .. }).then_some(()));
    expect_echo(&mut session.connect("127.0.0.1", port), b"hello");
}

impl Session {
    fn connect_is_refused(&self, to: &str, code: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, body) = connect(self, to);
            if body["error"]["code"] == code {
                return;
            }
            assert!(Instant::now() < deadline, "{body}");
        }
    }
}

#[test]
fn a_name_that_leads_to_this_host_is_not_followed() {
    let port = echo();
    let mut named = rule(Action::Allow, Host::Name("localhost".into()), Ports::All);
    named.resolves_to = vec![Network { address: [127, 0, 0, 0].into(), bits: 8 }];
    let session = Session::start(rules([named]));
    let (head, body) = connect(&session, &format!("localhost:{port}"));
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert_eq!(body["error"]["code"], "local-address");
}

/// A proxy that leads every `CONNECT` to `port`, and what it was asked for.
fn parent(port: u16) -> (u16, mpsc::Receiver<String>) {
    let (sender, asked) = mpsc::channel();
    let proxy = server(move |mut stream| {
        let head = head(&mut stream);
        sender.send(head).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back, mut out) = (far.try_clone().unwrap(), stream.try_clone().unwrap());
        std::thread::spawn(move || {
            drop(std::io::copy(&mut back, &mut out));
            drop(out.shutdown(Shutdown::Write));
        });
        drop(std::io::copy(&mut stream, &mut far));
        drop(far.shutdown(Shutdown::Write));
    });
    (proxy, asked)
}

fn behind(proxy: u16, rules: Rules) -> Session {
    let parent = Parent {
        host: "127.0.0.1".into(),
        port: proxy,
        tls: false,
        authorization: Some(Hidden(b"Basic abc".to_vec())),
        except: vec!["direct.invalid".into()],
        socks: None,
    };
    let begin = Begin { rules, parent: Some(parent), ..Begin::default() };
    Session::start_by(Person::Root, begin)
}

#[test]
fn a_parent_proxy_reaches_what_is_not_excepted() {
    let (proxy, asked) = parent(echo());
    let names = ["example.com", "direct.invalid"].map(allow_name);
    let session = behind(proxy, rules(names));
    expect_echo(&mut session.connect("example.com", 443), b"hello");
    let head = asked.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("CONNECT example.com:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic abc\r\n"), "{head}");
    let (_, body) = connect(&session, "other.example:443");
    assert_eq!(body["error"]["code"], "no-rule");
    let (_, body) = connect(&session, "direct.invalid:443");
    assert_eq!(body["error"]["code"], "no-such-name");
    assert!(asked.try_recv().is_err());
}

#[test]
fn a_host_that_is_not_there_is_told_apart_from_one_that_is_refused() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let session = Session::start(rules([allow_loopback(port), allow_name("nowhere.invalid")]));
    let (head, body) = connect(&session, &format!("{LOOPBACK}:{port}"));
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(body["error"]["code"], "refused-by-host");
    assert_eq!(socks(&session, &by_name(LOOPBACK), port).1, 5);
    let (_, body) = connect(&session, "nowhere.invalid:443");
    assert_eq!(body["error"]["code"], "no-such-name");
}

#[test]
fn rules_change_while_connections_last() {
    let port = echo();
    let session = Session::start(rules([allow_loopback(port)]));
    let mut old = session.connect(LOOPBACK, port);
    expect_echo(&mut old, b"before");
    let (other, kept) = (echo(), rules([allow_loopback(port)]));
    session.send(&ToEgress::Rules(Box::new(kept)));
    session.connect_is_refused(&format!("{LOOPBACK}:{other}"), "port");
    expect_echo(&mut old, b"what is allowed still goes on");
    session.send(&ToEgress::Rules(Box::new(rules([]))));
    session.connect_is_refused(&format!("{LOOPBACK}:{port}"), "no-rule");
    // A tunnel would never end by itself.
    let cut = old.read(&mut [0]);
    assert!(matches!(cut, Ok(0)) || cut.is_err(), "{cut:?}");
}

#[test]
fn tls_in_a_tunnel_must_name_the_host_that_was_decided_about() {
    let port = server(|mut stream| {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all));
        drop(stream.write_all(format!("{}", all.len()).as_bytes()));
    });
    let (proxy, _asked) = parent(port);
    let session = behind(proxy, rules([allow_name("example.com")]));
    let hello = |name: &str| {
        let mut message = vec![3, 3];
        message.extend([7; 32]);
        message.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let name = name.as_bytes();
        let length = u8::try_from(name.len()).unwrap();
        message.extend([0, length + 9, 0, 0, 0, length + 5, 0, length + 3, 0, 0, length]);
        message.extend(name);
        let length = u8::try_from(message.len()).unwrap();
        let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
        record.extend(message);
        record
    };
    let mut stream = session.connect("example.com", 443);
    let right = hello("example.com");
    // In small pieces, as some try.
    for piece in right.chunks(7) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, right.len().to_string());

    let mut stream = session.connect("example.com", 443);
    stream.write_all(&hello("evil.example")).unwrap();
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).unwrap();
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 112]);
    let codes = |session: &Session| format!("{:?}", session.records());
    let deadline = Instant::now() + PATIENCE;
    while !codes(&session).contains("sni-mismatch") {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn limits_of_a_rule_hold() {
    let port = echo();
    let mut limited = allow_loopback(port);
    limited.limits = Quota { upload: Some((1000, 600)), requests: None, connections: Some(2) };
    let session = Session::start(rules([limited]));
    let mut one = session.connect(LOOPBACK, port);
    let two = session.connect(LOOPBACK, port);
    let (head, body) = connect(&session, &format!("{LOOPBACK}:{port}"));
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nretry-after: "), "{head}");
    assert_eq!(body["error"]["code"], "quota-connections");
    drop(two);
    assert_eq!(session.ended(port).0, "eof");
    expect_echo(&mut one, &[7; 1000]);
    one.write_all(b"one more").unwrap();
    assert!(one.read(&mut [0; 10]).is_err());
    let deadline = Instant::now() + PATIENCE;
    while !format!("{:?}", session.records()).contains("quota-upload") {
        assert!(Instant::now() < deadline);
    }
}

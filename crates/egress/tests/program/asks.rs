//! What waits for the user.

use crate::session::{
    LOOPBACK, PATIENCE, Session, allow_loopback, echo, expect_echo, head, reach, rule, rules,
    server,
};
use cowork_api::egress::{
    Action, Answer, Ask, Carrier, Credential, CredentialMode, FromEgress, Hidden, Host, Ports,
    Renewal, Rule, Rules, Secret, Source, ToEgress,
};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

fn asking() -> Rules {
    rules([rule(Action::Ask, Host::Loopback, Ports::All)])
}

fn asked(session: &Session) -> Ask {
    session.wait(|message| match message {
        FromEgress::Ask(ask) => Some(ask.clone()),
        _ => None,
    })
}

fn begin_connect(session: &Session, port: u16) -> std::net::TcpStream {
    let mut stream = reach(session.http);
    write!(stream, "CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\n").unwrap();
    stream
}

#[test]
fn what_waits_goes_on_when_the_user_allows_it() {
    let port = echo();
    let session = Session::start(asking());
    let mut stream = begin_connect(&session, port);
    let ask = asked(&session);
    assert_eq!((ask.target.host.as_str(), ask.target.port), (LOOPBACK, port));
    std::thread::sleep(Duration::from_millis(50));
    session.send(&ToEgress::Flows { number: 7 });
    let held = session.wait(|message| match message {
        FromEgress::Flows { number: 7, flows, .. } => Some(flows.iter().any(|flow| flow.held)),
        _ => None,
    });
    assert!(held);
    session.send(&ToEgress::Answer { ask: ask.ask, answer: Answer::Allow });
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
    expect_echo(&mut stream, b"hello");
    let decision = session.decided(LOOPBACK);
    assert!(decision.allowed);
    assert!(decision.held >= 50, "{}", decision.held);
}

#[test]
fn what_waits_is_told_when_the_user_refuses_it() {
    let session = Session::start(asking());
    let mut stream = begin_connect(&session, 80);
    let answer = Answer::Deny { reason: "not today".into() };
    session.send(&ToEgress::Answer { ask: asked(&session).ask, answer });
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.contains("x-cowork-deny: rejected\r\n"), "{all}");
    assert!(all.contains("not today"), "{all}");
}

#[test]
fn a_question_is_withdrawn_when_nobody_waits_for_it() {
    let session = Session::start(asking());
    let one = begin_connect(&session, 80);
    let two = begin_connect(&session, 80);
    let ask = asked(&session).ask;
    drop(one);
    std::thread::sleep(Duration::from_millis(200));
    let withdrawn = |message: &FromEgress| matches!(message, FromEgress::Withdraw { .. });
    let early = session.wait(|message| match message {
        FromEgress::Ask(_) => Some(withdrawn(message)),
        _ => None,
    });
    assert!(!early);
    drop(two);
    session.wait(|message| (*message == FromEgress::Withdraw { ask }).then_some(()));
    // Both waited for the same answer.
    let asks = |message: &FromEgress| match message {
        FromEgress::Ask(ask) => Some(ask.ask),
        _ => None,
    };
    assert_eq!(session.wait(asks), ask);
}

#[test]
fn a_question_is_asked_again_of_the_next_daemon() {
    let port = echo();
    let session = Session::start(asking());
    let mut stream = begin_connect(&session, port);
    let ask = asked(&session);
    session.send(&ToEgress::Greet);
    let deadline = Instant::now() + PATIENCE;
    while session.count(|message| matches!(message, FromEgress::Ask(again) if *again == ask)) < 2 {
        assert!(Instant::now() < deadline);
    }
    session.send(&ToEgress::Answer { ask: ask.ask, answer: Answer::Allow });
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn rules_that_come_with_the_answer_serve_the_next_connection_without_a_question() {
    let port = echo();
    let session = Session::start(asking());
    let mut stream = begin_connect(&session, port);
    let ask = asked(&session).ask;
    let allow = rule(Action::Allow, Host::Loopback, Ports::All);
    session.send(&ToEgress::Rules(Box::new(rules([allow]))));
    session.send(&ToEgress::Answer { ask, answer: Answer::Allow });
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
    session.connect(LOOPBACK, port);
    assert_eq!(session.count(|message| matches!(message, FromEgress::Ask(_))), 1);
}

fn withdrawn(session: &Session, ask: u64) {
    session.wait(|message| (*message == FromEgress::Withdraw { ask }).then_some(()));
}

/// A request that waits for the user, at a server that answers it.
fn begin_request(session: &Session) -> (std::net::TcpStream, u16) {
    let port = answering();
    (request(session, port, "/held"), port)
}

/// A server that answers requests.
fn answering() -> u16 {
    server(|mut stream| {
        // One that is only connected to is asked nothing.
        if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"));
        }
    })
}

fn request(session: &Session, port: u16, path: &str) -> std::net::TcpStream {
    let mut stream = reach(session.http);
    let place = format!("{LOOPBACK}:{port}");
    write!(stream, "GET http://{place}{path} HTTP/1.1\r\nHost: {place}\r\n\r\n").unwrap();
    stream
}

/// Waits until so many wait for the user.
fn held(session: &Session, wanted: usize) {
    let deadline = Instant::now() + PATIENCE;
    for number in 1000.. {
        session.send(&ToEgress::Flows { number });
        let held = session.wait(|message| match message {
            FromEgress::Flows { number: of, flows, .. } if *of == number => {
                Some(flows.iter().filter(|flow| flow.held).count())
            }
            _ => None,
        });
        if held == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{held} wait");
    }
}

/// The paths of all questions, once there are so many.
fn paths_asked(session: &Session, wanted: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let paths = all_paths(session);
        if paths.len() >= wanted {
            return paths;
        }
        assert!(Instant::now() < deadline, "{paths:?}");
    }
}

fn all_paths(session: &Session) -> Vec<String> {
    session.all(|message| match message {
        FromEgress::Ask(ask) => ask.target.path.clone(),
        _ => None,
    })
}

#[test]
fn one_answer_serves_all_of_a_host_that_waits() {
    let port = answering();
    let session = Session::start(asking());
    let mut first = request(&session, port, "/first");
    let ask = asked(&session).ask;
    let mut others: Vec<_> = ["/second", "/third"].map(|path| request(&session, port, path)).into();
    // A connection to the same place waits with them.
    others.push(begin_connect(&session, port));
    held(&session, 4);
    assert_eq!(all_paths(&session), ["/first"]);
    session.send(&ToEgress::Answer { ask, answer: Answer::Allow });
    for stream in [&mut first].into_iter().chain(&mut others) {
        assert!(head(stream).starts_with("HTTP/1.1 200 "));
    }
    // Once is once: the next one is asked about, by its own path.
    let mut next = request(&session, port, "/first");
    held(&session, 1);
    assert_eq!(paths_asked(&session, 2), ["/first", "/first"]);
    let answer = Answer::Deny { reason: String::new() };
    session.send(&ToEgress::Answer { ask: ask + 1, answer });
    assert!(head(&mut next).contains("x-cowork-deny: rejected\r\n"));
}

/// A rule that tells requests apart says that an answer about one is none about another.
fn telling_apart() -> Rules {
    let read = cowork_api::egress::Request { methods: Vec::new(), paths: vec!["/open/**".into()] };
    let allow = rule(Action::Allow, Host::Loopback, Ports::All);
    let ask = rule(Action::Ask, Host::Loopback, Ports::All);
    rules([Rule { http: vec![read], ..allow }, ask])
}

#[test]
fn where_rules_tell_paths_apart_each_is_asked_about() {
    let port = answering();
    let session = Session::start(telling_apart());
    let mut first = request(&session, port, "/first");
    let ask = asked(&session).ask;
    let _second = request(&session, port, "/second");
    let mut same = request(&session, port, "/first");
    held(&session, 3);
    assert_eq!(paths_asked(&session, 2), ["/first", "/second"]);
    session.send(&ToEgress::Answer { ask, answer: Answer::Allow });
    for stream in [&mut first, &mut same] {
        assert!(head(stream).starts_with("HTTP/1.1 200 "));
    }
    held(&session, 1);
}

#[test]
fn a_rule_about_paths_that_comes_parts_those_who_wait_together() {
    let port = answering();
    let session = Session::start(asking());
    let mut first = request(&session, port, "/first");
    let ask = asked(&session).ask;
    let _second = request(&session, port, "/second");
    held(&session, 2);
    session.send(&ToEgress::Rules(Box::new(telling_apart())));
    withdrawn(&session, ask);
    paths_asked(&session, 3);
    // What was asked about all of them is answered no more.
    session.send(&ToEgress::Answer { ask, answer: Answer::Allow });
    held(&session, 2);
    let own = session.all(|message| match message {
        FromEgress::Ask(own) if own.ask != ask && own.target.path.as_deref() == Some("/first") => {
            Some(own.ask)
        }
        _ => None,
    });
    session.send(&ToEgress::Answer { ask: own[0], answer: Answer::Allow });
    assert!(head(&mut first).starts_with("HTTP/1.1 200 "));
    held(&session, 1);
}

#[test]
fn a_rule_that_comes_answers_what_waits() {
    let session = Session::start(asking());
    let (mut stream, port) = begin_request(&session);
    let ask = asked(&session);
    assert_eq!(ask.target.path.as_deref(), Some("/held"));
    // Rules that say nothing of it change nothing.
    let other = [allow_loopback(1), rule(Action::Ask, Host::Loopback, Ports::All)];
    session.send(&ToEgress::Rules(Box::new(rules(other))));
    std::thread::sleep(Duration::from_millis(200));
    let count = |kind: fn(&FromEgress) -> bool| session.count(kind);
    assert_eq!(count(|message| matches!(message, FromEgress::Ask(_))), 1);
    assert_eq!(count(|message| matches!(message, FromEgress::Withdraw { .. })), 0);
    session.send(&ToEgress::Rules(Box::new(rules([allow_loopback(port)]))));
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
    withdrawn(&session, ask.ask);
    assert_eq!(count(|message| matches!(message, FromEgress::Ask(_))), 1);
    let decision = session.decided(LOOPBACK);
    assert!(decision.allowed && decision.source == Source::Policy, "{decision:?}");
    assert!(decision.held >= 200 && decision.rule.is_some(), "{decision:?}");
}

#[test]
fn a_denial_that_comes_refuses_what_waits() {
    let session = Session::start(asking());
    let (mut stream, _) = begin_request(&session);
    let mut tunnel = begin_connect(&session, 80);
    let asks = || session.count(|message| matches!(message, FromEgress::Ask(_)));
    let deadline = Instant::now() + PATIENCE;
    while asks() < 2 {
        assert!(Instant::now() < deadline);
    }
    let deny = Action::Deny { reason: "not here".into() };
    session.send(&ToEgress::Rules(Box::new(rules([rule(deny, Host::Loopback, Ports::All)]))));
    assert!(head(&mut stream).contains("x-cowork-deny: denied-by-rule\r\n"));
    let mut all = String::new();
    tunnel.read_to_string(&mut all).unwrap();
    assert!(all.contains("denied-by-rule") && all.contains("not here"), "{all}");
    withdrawn(&session, 1);
    withdrawn(&session, 2);
}

/// The secret comes in a message of its own.
#[test]
fn what_a_rule_gives_a_secret_waits_for_it() {
    let session = Session::start(asking());
    let (mut stream, port) = begin_request(&session);
    let ask = asked(&session).ask;
    let credential = Credential {
        secret: "token".into(),
        mode: CredentialMode::Inject,
        carrier: Carrier::Bearer,
    };
    let allow = Rule { credential: Some(credential), ..allow_loopback(port) };
    session.send(&ToEgress::Rules(Box::new(rules([allow]))));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(session.count(|message| matches!(message, FromEgress::Withdraw { .. })), 0);
    let secret = Secret {
        name: "token".into(),
        placeholder: "placeholder".into(),
        value: Hidden(b"value".to_vec()),
        renewal: Renewal::Never,
    };
    session.send(&ToEgress::Secrets(vec![secret]));
    withdrawn(&session, ask);
    // It is known, and not sent in the open.
    assert!(head(&mut stream).contains("x-cowork-deny: plaintext-credential\r\n"));
}

#[test]
fn only_so_many_questions_wait() {
    let session = Session::start(asking());
    let _waiting: Vec<_> = (1..=32).map(|port| begin_connect(&session, port)).collect();
    let deadline = Instant::now() + PATIENCE;
    while session.count(|message| matches!(message, FromEgress::Ask(_))) < 32 {
        assert!(Instant::now() < deadline);
    }
    let mut all = String::new();
    begin_connect(&session, 99).read_to_string(&mut all).unwrap();
    assert!(all.contains("too-many-asks") && all.contains("\r\nretry-after: 15\r\n"), "{all}");
}

//! Ends that break, stall, or never say anything.

use crate::for_everyone;
use crate::session::{
    LOOPBACK, PATIENCE, Session, allow_loopback, echo, expect_echo, reach, rules, server,
};
use cowork_api::egress::{FromEgress, Record, Rule, Tls, What};
use cowork_testbed::Person;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

for_everyone!(
    an_end_of_one_direction_leaves_the_other_open,
    the_server_may_speak_first,
    a_broken_end_breaks_the_other,
    a_server_that_breaks_in_the_middle_of_an_answer_is_not_taken_for_whole,
    a_server_that_breaks_in_the_middle_of_a_request_is_told,
    a_broken_client_breaks_the_server_s_end,
    somebody_who_never_asks_is_let_go,
    a_head_without_an_end_is_not_gathered,
    a_receiver_that_does_not_read_costs_no_memory,
    a_killed_process_breaks_what_it_carried,
);

fn an_end_of_one_direction_leaves_the_other_open(person: Person) {
    let port = server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    // Enough for the kernel to take over.
    let sent = vec![7; 3_000_000];
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    assert_eq!(session.ended(port), ("eof".into(), 3_000_000, 3_000_000));
}

fn the_server_may_speak_first(person: Person) {
    let port = server(|mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        drop(stream.read(&mut [0; 1]));
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
}

fn a_broken_end_breaks_the_other(person: Person) {
    let port = server(|mut stream| {
        stream.read_exact(&mut [0; 1]).unwrap();
        // Closed with something unread: the kernel resets.
        std::thread::sleep(Duration::from_millis(50));
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    stream.write_all(b"more than one byte").unwrap();
    let broken = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(session.ended(port).0, "reset");
}

/// What came of a request that is looked into, to a server that breaks in the middle of it: how many
/// bytes came after how long, and how that is recorded.
fn broken_in_the_middle(
    person: Person,
    head: &'static str,
    body: &'static [u8],
    request: &[u8],
) -> (usize, String) {
    let port = server(move |mut stream| {
        let asked = crate::session::head(&mut stream);
        // A part of the body, where there is one.
        if asked.starts_with("POST ") {
            stream.read_exact(&mut [0; 1000]).unwrap();
        }
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let rule = Rule { tls: Tls::Inspect, ..allow_loopback(port) };
    let session = Session::start_as(person, rules([rule]));
    let mut stream = session.connect(LOOPBACK, port);
    let descriptors = session.descriptors();
    let began = Instant::now();
    // It may be told before it has sent everything.
    drop(stream.write_all(request));
    let mut came = Vec::new();
    drop(stream.read_to_end(&mut came));
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    let how = session.wait(|message| match message {
        FromEgress::Record(Record { request: 1, what: What::Ended { how, .. }, .. }) => {
            Some(how.clone())
        }
        _ => None,
    });
    assert!(session.descriptors() <= descriptors, "something is left open");
    let text = String::from_utf8_lossy(&came);
    let length = text.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
    (length, format!("{how} {}", text.lines().next().unwrap_or("nothing")))
}

fn a_server_that_breaks_in_the_middle_of_an_answer_is_not_taken_for_whole(person: Person) {
    let request = format!("GET / HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n\r\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let (length, how) = broken_in_the_middle(person, head, &[b'x'; 100], request.as_bytes());
    assert!(length <= 100 && how.starts_with("error: "), "{length} {how}");
    // In pieces, the last of which never comes: the client does not get it either.
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (_, how) = broken_in_the_middle(person, head, b"3\r\nabc\r\n", request.as_bytes());
    assert!(how.starts_with("error: "), "{how}");
}

fn a_server_that_breaks_in_the_middle_of_a_request_is_told(person: Person) {
    let head = format!("POST / HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n");
    let body = vec![b'x'; 4_000_000];
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    let (_, how) = broken_in_the_middle(person, "", b"", &[head.as_bytes(), &body].concat());
    assert!(how.starts_with("error: ") && how.contains("HTTP/1.1 502 "), "{how}");
}

fn a_broken_client_breaks_the_server_s_end(person: Person) {
    let (sender, outcome) = std::sync::mpsc::channel();
    let port = server(move |mut stream| {
        stream.read_exact(&mut [0; 1]).unwrap();
        sender.send(stream.read(&mut [0; 1]).map_err(|error| error.kind())).unwrap();
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    stream.write_all(b"x").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    let seen = outcome.recv_timeout(PATIENCE).unwrap();
    assert_eq!(seen, Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(session.ended(port).0, "reset");
}

fn somebody_who_never_asks_is_let_go(person: Person) {
    let session = Session::start_as(person, rules([]));
    let mut slow = reach(session.http);
    slow.write_all(b"CONNECT ").unwrap();
    let mut silent = reach(session.socks);
    let began = Instant::now();
    let mut all = String::new();
    slow.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 408 "), "{all}");
    drop(silent.read(&mut [0; 1]));
    let waited = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&waited), "{waited:?}");
}

fn a_head_without_an_end_is_not_gathered(person: Person) {
    let session = Session::start_as(person, rules([]));
    let mut stream = reach(session.http);
    stream.write_all(b"CONNECT a:1 HTTP/1.1\r\n").unwrap();
    let line = format!("x: {}\r\n", "y".repeat(1000));
    let mut sent = 0;
    while sent < 64_000_000 && stream.write_all(line.as_bytes()).is_ok() {
        sent += line.len();
    }
    assert!(sent < 64_000_000);
}

fn a_receiver_that_does_not_read_costs_no_memory(person: Person) {
    let port = server(|mut stream| {
        let chunk = vec![0; 65536];
        while stream.write_all(&chunk).is_ok() {}
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let before = session.memory();
    let stalled: Vec<TcpStream> = (0..50).map(|_| session.connect(LOOPBACK, port)).collect();
    std::thread::sleep(Duration::from_secs(1));
    let grown = session.memory().saturating_sub(before);
    assert!(grown < 50 * 100 * 1024, "{grown}");
    drop(stalled);
}

fn a_killed_process_breaks_what_it_carried(person: Person) {
    let port = echo();
    let mut session = Session::start_as(person, rules([allow_loopback(port)]));
    let mut stream = session.connect(LOOPBACK, port);
    expect_echo(&mut stream, b"hello");
    session.child.kill().unwrap();
    session.child.wait().unwrap();
    let ended = stream.read(&mut [0; 8]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(TcpStream::connect(session.http).is_err());
}

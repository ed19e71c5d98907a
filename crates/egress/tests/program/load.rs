//! Much at once, and much in one.

use crate::for_everyone;
use crate::session::{LOOPBACK, Session, allow_loopback, echo, expect_echo, reach, rules, server};
use cowork_api::egress::{Rule, Tls};
use cowork_testbed::Person;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

for_everyone!(
    a_gibibyte_passes_with_little_memory,
    a_gibibyte_goes_up_with_little_memory,
    a_gibibyte_that_is_looked_into_passes_with_little_memory,
    a_thousand_connections_at_once_come_and_go_without_a_trace,
);

const GIB: u64 = 1024 * 1024 * 1024;

/// A server that sends a gibibyte to whoever sends a byte.
fn source() -> u16 {
    server(|mut stream| {
        stream.read_exact(&mut [0; 1]).unwrap();
        let chunk = vec![7; 256 * 1024];
        let mut left = GIB;
        while left > 0 && stream.write_all(&chunk).is_ok() {
            left -= 256 * 1024;
        }
    })
}

/// Takes everything, and says how many bytes in how long.
fn take(mut stream: std::net::TcpStream) -> (u64, Duration) {
    stream.write_all(b"x").unwrap();
    let began = Instant::now();
    let mut buffer = vec![0; 256 * 1024];
    let mut taken = 0;
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return (taken, began.elapsed()),
            read => taken += u64::try_from(read).unwrap(),
        }
    }
}

fn a_gibibyte_passes_with_little_memory(person: Person) {
    let port = source();
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let before = session.memory();
    let (taken, _) = take(session.connect(LOOPBACK, port));
    assert_eq!(taken, GIB);
    assert_eq!(session.ended(port), ("eof".into(), 1, GIB));
    let grown = session.memory().saturating_sub(before);
    assert!(grown < 4 * 1024 * 1024, "{grown}");
}

/// A server of HTTP that sends a gibibyte, or takes one and says how much came.
fn bulky() -> u16 {
    server(|mut stream| {
        let asked = crate::session::head(&mut stream);
        let chunk = vec![7; 256 * 1024];
        if asked.starts_with("GET ") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n");
            drop(stream.write_all(head.as_bytes()));
            let mut left = GIB;
            while left > 0 && stream.write_all(&chunk).is_ok() {
                left -= 256 * 1024;
            }
            return;
        }
        let mut buffer = chunk;
        let mut left = GIB;
        while left > 0 {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{left} bytes are missing");
            left -= u64::try_from(read).unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole").unwrap();
    })
}

/// Sends a gibibyte. The most memory that the process had meanwhile.
fn give(session: &Session, stream: &mut std::net::TcpStream) -> u64 {
    let chunk = vec![7; 256 * 1024];
    let mut most = 0;
    for number in 0..GIB / (256 * 1024) {
        stream.write_all(&chunk).unwrap();
        if number % 64 == 0 {
            most = most.max(session.memory());
        }
    }
    most
}

fn a_gibibyte_goes_up_with_little_memory(person: Person) {
    let port = server(|mut stream| {
        let mut buffer = vec![0; 256 * 1024];
        let mut taken = 0_u64;
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            taken += u64::try_from(read).unwrap();
        }
        stream.write_all(taken.to_string().as_bytes()).unwrap();
    });
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let before = session.memory();
    let mut stream = session.connect(LOOPBACK, port);
    let most = give(&session, &mut stream);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut taken = String::new();
    stream.read_to_string(&mut taken).unwrap();
    assert_eq!(taken, GIB.to_string());
    assert_eq!(session.ended(port), ("eof".into(), GIB, 10));
    assert!(most.saturating_sub(before) < 4 * 1024 * 1024, "{most} after {before}");
}

fn a_gibibyte_that_is_looked_into_passes_with_little_memory(person: Person) {
    let port = bulky();
    let rule = Rule { tls: Tls::Inspect, ..allow_loopback(port) };
    let session = Session::start_as(person, rules([rule]));
    let before = session.memory();
    let host = format!("Host: {LOOPBACK}:{port}\r\n");
    // Down.
    let mut stream = session.connect(LOOPBACK, port);
    write!(stream, "GET / HTTP/1.1\r\n{host}\r\n").unwrap();
    let head = crate::session::head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (mut buffer, mut left, mut most) = (vec![0; 256 * 1024], GIB, 0);
    while left > 0 {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{left} bytes are missing");
        left -= u64::try_from(read).unwrap();
        if left % 128 == 0 {
            most = most.max(session.memory());
        }
    }
    // Up.
    let mut stream = session.connect(LOOPBACK, port);
    write!(stream, "POST / HTTP/1.1\r\n{host}Content-Length: {GIB}\r\n\r\n").unwrap();
    most = most.max(give(&session, &mut stream));
    let head = crate::session::head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"whole");
    assert!(most.saturating_sub(before) < 8 * 1024 * 1024, "{most} after {before}");
}

fn a_thousand_connections_at_once_come_and_go_without_a_trace(person: Person) {
    let port = echo();
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    expect_echo(&mut session.connect(LOOPBACK, port), b"first");
    let (descriptors, memory) = (session.descriptors(), session.memory());
    let mut streams: Vec<_> = (0..1000).map(|_| session.connect(LOOPBACK, port)).collect();
    for stream in &mut streams {
        expect_echo(stream, b"hello");
    }
    for stream in streams.iter_mut().rev() {
        expect_echo(stream, &vec![7; 20_000]);
    }
    let grown = session.memory().saturating_sub(memory);
    assert!(grown < 32 * 1024 * 1024, "{grown}");
    drop(streams);
    let deadline = Instant::now() + Duration::from_secs(20);
    while session.descriptors() > descriptors + 2 {
        assert!(Instant::now() < deadline, "{}", session.descriptors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prints how fast the relay is, beside a connection without it.
#[test]
#[ignore = "a measurement"]
fn how_fast_it_is() {
    let (port, echo) = (source(), echo());
    let session = Session::start(rules([allow_loopback(port), allow_loopback(echo)]));
    let direct = |port| reach(([127, 0, 0, 1], port).into());
    for _ in 0..3 {
        let rate = |(bytes, time): (u64, Duration)| {
            u128::from(bytes) / 1_000_000 * 1_000_000 / time.as_micros()
        };
        let before = session.computed();
        let (without, with) = (take(direct(port)), take(session.connect(LOOPBACK, port)));
        let computed = session.computed() - before;
        let (without, with) = (rate(without), rate(with));
        println!("bulk: {without} MB/s direct, {with} MB/s by CONNECT, {computed} cs for a GiB");
    }
    let median = |connect: &dyn Fn() -> std::net::TcpStream| {
        let mut times: Vec<Duration> = (0..500)
            .map(|_| {
                let began = Instant::now();
                expect_echo(&mut connect(), b"hello");
                began.elapsed()
            })
            .collect();
        times.sort();
        times[250]
    };
    let steady = |stream: &mut std::net::TcpStream| {
        let mut times: Vec<Duration> = (0..2000)
            .map(|_| {
                let began = Instant::now();
                expect_echo(stream, b"hello");
                began.elapsed()
            })
            .collect();
        times.sort();
        times[1000]
    };
    for _ in 0..3 {
        let (without, with) =
            (median(&|| direct(echo)), median(&|| session.connect(LOOPBACK, echo)));
        println!("new connection: {without:?} direct, {with:?} by CONNECT");
        let (without, with) =
            (steady(&mut direct(echo)), steady(&mut session.connect(LOOPBACK, echo)));
        println!("round trip: {without:?} direct, {with:?} by CONNECT");
    }
    println!("memory of its own: {} KiB", session.memory() / 1024);
}

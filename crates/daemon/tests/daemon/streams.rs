//! What commands read and write, byte by byte.

use crate::for_everyone;
use crate::line::Line;
use crate::look::joined;
use crate::room::Room;
use crate::site::Site;
use cowork_client::http::{Method, Request, Upload};
use cowork_client::stream::ToDaemon;
use cowork_testbed::Person;
use serde_json::json;
use std::io::Read;
use std::time::Duration;

for_everyone!(
    every_byte_arrives_and_comes_back,
    streams_are_kept_apart_and_in_order,
    output_is_read_from_any_place,
    output_is_followed_as_it_comes,
    a_command_is_left_and_found_again,
);

const MIB: usize = 1024 * 1024;

/// Bytes of every kind, not to be guessed from their neighbours.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Compares without printing megabytes.
#[track_caller]
fn same(one: &[u8], other: &[u8]) {
    assert_eq!(one.len(), other.len());
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!(at, None, "they differ");
}

/// More input comes.
const MORE: &str = "";
/// The input ends.
const LAST: &str = "?close=true";

/// Sends input, and `rest` of the query says what comes after it.
fn feed(room: Room<'_>, number: u32, bytes: &[u8], rest: &str) {
    let target = room.at(&format!("/commands/{number}/stdin{rest}"));
    let length = u64::try_from(bytes.len()).ok();
    let upload = Upload { from: &mut &*bytes, length };
    let request = Request::new(Method::Post, target);
    let answer = room.site.client().open(&request, Some(upload)).expect("it reads");
    assert_eq!(answer.status(), 204);
}

fn every_byte_arrives_and_comes_back(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let bytes = noise(8 * MIB + 3);
    // By separate calls.
    let number = room.start(&json!({ "argv": ["cat"], "streams": { "stdin": "pipe" } }));
    let (first, rest) = bytes.split_at(3 * MIB + 1);
    feed(room, number, first, MORE);
    feed(room, number, rest, LAST);
    let ran = room.finish(number);
    same(&ran.out, &bytes);
    assert_eq!(ran.command.output, bytes.len() as u64);
    // By one connection, while it comes back.
    let mut line = Line::start(room, &json!({ "argv": ["cat"], "streams": { "stdin": "pipe" } }));
    let mut sender = line.sender();
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || {
        for piece in sent.chunks(700_001) {
            sender.input(piece);
        }
        sender.input(b"");
    });
    let heard = line.hear_all();
    sending.join().expect("everything was sent");
    same(&heard.out, &bytes);
    assert_eq!(heard.code(), 0);
    // A command that does not read its input does not hold anybody up.
    let mut line =
        Line::start(room, &json!({ "shell": "sleep 0.2", "streams": { "stdin": "pipe" } }));
    line.input(&bytes[..MIB]);
    assert_eq!(line.hear_all().code(), 0);
}

fn streams_are_kept_apart_and_in_order(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let script = "import os, sys, time\n\
                  for i in range(200):\n    \
                      os.write(1, b'%06d\\n' % i * 1000); os.write(2, b'e%05d\\n' % i * 500)\n";
    let ran = room.finish(room.start(&json!({ "argv": ["/usr/bin/python3", "-c", script] })));
    let out: String = (0..200).map(|i| format!("{i:06}\n").repeat(1000)).collect();
    let err: String = (0..200).map(|i| format!("e{i:05}\n").repeat(500)).collect();
    same(&ran.out, out.as_bytes());
    same(&ran.err, err.as_bytes());
    let all = room.output(ran.command.number, &[]);
    assert_eq!(all.len(), out.len() + err.len());
    // What is written one after the other is read one after the other.
    let ran =
        room.run("for i in 1 2 3 4 5; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done");
    let all = room.output(ran.command.number, &[]);
    assert_eq!(String::from_utf8_lossy(&all), "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n");
}

fn output_is_read_from_any_place(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let script = "import sys; sys.stdout.write(''.join('%07d\\n' % i for i in range(300000)))";
    let ran = room.finish(room.start(&json!({ "argv": ["/usr/bin/python3", "-c", script] })));
    let number = ran.command.number;
    let whole = joined((0..300_000).map(|i| format!("{i:07}\n")));
    same(&ran.out, whole.as_bytes());
    for from in [0, 1, 7, 8, 65_535, 65_536, 262_144, 1_000_001, 2_399_999, 2_400_000, 9_999_999] {
        let text = from.to_string();
        let rest = whole.as_bytes().get(from..).unwrap_or_default();
        for stream in ["all", "stdout"] {
            same(&room.output(number, &[("from", &text), ("stream", stream)]), rest);
        }
        assert_eq!(room.output(number, &[("from", &text), ("stream", "stderr")]), b"");
    }
    assert_eq!(room.output(number, &[("from", "end")]), b"");
    for bad in ["from=x", "from=-1", "stream=both", "follow=maybe", "form=1"] {
        let target = room.at(&format!("/commands/{number}/output?{bad}"));
        assert_eq!(site.refused(Method::Get, target, None).status, 400, "{bad}");
    }
}

fn output_is_followed_as_it_comes(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.start(&json!({
        "shell": "while read line; do echo \"got $line\"; done",
        "streams": { "stdin": "pipe" },
    }));
    let target = room.at(&format!("/commands/{number}/output?follow=true"));
    let mut following = site.client().open(&Request::get(target), None).expect("it runs");
    let mut seen = Vec::new();
    for word in ["one", "two", "three"] {
        feed(room, number, format!("{word}\n").as_bytes(), MORE);
        let expected = format!("got {word}\n");
        let mut piece = [0; 100];
        let mut last: Vec<u8> = Vec::new();
        while last.len() < expected.len() {
            let read = following.read(&mut piece).expect("it goes on");
            assert!(read > 0, "it ended early");
            last.extend(&piece[..read]);
        }
        assert_eq!(last, expected.as_bytes());
        seen.extend(last);
    }
    feed(room, number, b"", LAST);
    following.read_to_end(&mut seen).expect("it ends");
    assert_eq!(String::from_utf8_lossy(&seen), "got one\ngot two\ngot three\n");
}

fn a_command_is_left_and_found_again(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let body = json!({
        "shell": "echo first; while read line; do echo \"got $line\"; done; exit 5",
        "streams": { "stdin": "pipe" },
    });
    let mut line = Line::start(room, &body);
    let number = line.hear_until("first").started.expect("it comes first").number;
    line.tell(&ToDaemon::Detach);
    let left = line.hear_all();
    assert!(left.ended.is_none(), "{left:?}");
    // A connection that breaks off is as good.
    let mut line = Line::attach(room, number, "0");
    line.input(b"two\n");
    drop(line.hear_until("got two"));
    drop(line);
    std::thread::sleep(Duration::from_millis(50));
    assert!(room.command(number).code.is_none(), "the command runs on");
    // Two at once see the same; one of them from a place further on.
    let mut one = Line::attach(room, number, "0");
    let mut other = Line::attach(room, number, "6");
    let mut end = Line::attach(room, number, "end");
    drop(end.frame().expect("it is attached"));
    other.input(b"three\n");
    drop(other.hear_until("got three"));
    one.input(b"");
    let one = one.hear_all();
    assert_eq!(String::from_utf8_lossy(&one.out), "first\ngot two\ngot three\n");
    assert_eq!((one.code(), other.hear_all().code()), (5, 5));
    assert_eq!(String::from_utf8_lossy(&end.hear_all().out), "got three\n");
    let target = room.at(&format!("/commands/{number}/attach"));
    let problem = site.refused(Method::Get, target, None);
    assert!([409, 426].contains(&problem.status), "{problem:?}");
}

//! Attached by WebSocket: what comes and goes, what ends it, and who is let in. The frames are made
//! by hand, so that bad ones can be made; clients of others' making are in `tests/openapi`.

use crate::for_everyone;
use crate::look::{PATIENCE, until};
use crate::room::Room;
use crate::site::Site;
use cowork_client::stream::{FromDaemon, MAX_FRAME};
use cowork_client::types::Command;
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

for_everyone!(
    a_command_is_used_by_websocket,
    a_terminal_is_used_by_websocket,
    what_is_not_read_waits_and_is_taken_up_at_an_offset,
    what_does_not_fit_ends_the_connection_and_not_the_command,
    a_page_reaches_nothing,
);

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The example of the RFC, and its answer.
const KEY: &str = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const ANSWER: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";

/// A WebSocket as a client has it.
struct Socket(BufReader<UnixStream>);

/// Everything that came, by channel, and the code at the end.
#[derive(Debug, Default)]
struct Heard {
    started: Option<Command>,
    out: Vec<u8>,
    err: Vec<u8>,
    terminal: Vec<u8>,
    pongs: Vec<Vec<u8>>,
    ended: Option<Command>,
    close: Option<u16>,
}

/// The head of an answer.
fn head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).expect("it answers") == 0 {
            break;
        }
    }
    head
}

/// A masked frame.
fn frame(first: u8, contents: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match contents.len() {
        short @ 0..=125 => frame.push(0x80 | u8::try_from(short).expect("it is short")),
        middle @ 126..=0xffff => {
            frame.push(0xfe);
            frame.extend(u16::try_from(middle).expect("it fits").to_be_bytes());
        }
        long => {
            frame.push(0xff);
            frame.extend(u64::try_from(long).expect("it fits").to_be_bytes());
        }
    }
    let mask = [0xa1, 0x00, 0xff, 0x5c];
    frame.extend(mask);
    frame.extend(contents.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

impl Socket {
    #[track_caller]
    fn attach(room: Room<'_>, number: u32, from: &str) -> Self {
        let stream = UnixStream::connect(room.site.socket()).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        let target = room.at(&format!("/commands/{number}/attach?from={from}"));
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{UPGRADE}{KEY}\r\n");
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(request.as_bytes()).expect("it reads");
        let answer = head(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains(ANSWER), "{answer}");
        Self(stream)
    }

    #[track_caller]
    fn send(&mut self, first: u8, contents: &[u8]) {
        self.0.get_mut().write_all(&frame(first, contents)).expect("the daemon listens");
    }

    /// A message on a channel.
    #[track_caller]
    fn say(&mut self, channel: u8, contents: &[u8]) {
        self.send(BINARY, &[&[channel], contents].concat());
    }

    #[track_caller]
    fn tell(&mut self, message: &Value) {
        self.say(4, message.to_string().as_bytes());
    }

    /// The next frame; nothing at the end.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut start = [0; 2];
        self.0.read_exact(&mut start).ok()?;
        assert_eq!(start[1] & 0x80, 0, "a server masks nothing");
        let length = match start[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("it is whole");
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).expect("it is whole");
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        let mut contents = vec![0; usize::try_from(length).expect("it fits")];
        self.0.read_exact(&mut contents).expect("it is whole");
        Some((start[0], contents))
    }

    /// Hears until something is so, or the end.
    #[track_caller]
    fn hear(&mut self, enough: impl Fn(&Heard) -> bool) -> Heard {
        let mut heard = Heard::default();
        while !enough(&heard) {
            let Some((first, contents)) = self.next() else { return heard };
            assert!(heard.close.is_none(), "something comes after the end");
            match first {
                BINARY => heard.take(&contents),
                PONG => heard.pongs.push(contents),
                PING => {}
                CLOSE => {
                    // It is said back, and the daemon hangs up.
                    cowork_sys::ignore(self.0.get_mut().write_all(&frame(CLOSE, &contents)));
                    heard.close = contents.try_into().ok().map(u16::from_be_bytes);
                }
                other => panic!("a frame of kind {other:#x}"),
            }
        }
        heard
    }

    #[track_caller]
    fn until_says(&mut self, texts: &[&str]) -> Heard {
        let heard = self.hear(|heard| {
            let all = heard.all();
            let said = String::from_utf8_lossy(&all);
            texts.iter().all(|text| said.contains(text))
        });
        assert!(heard.close.is_none(), "{heard:?}");
        heard
    }

    #[track_caller]
    fn hear_all(&mut self) -> Heard {
        self.hear(|_| false)
    }
}

impl Heard {
    fn take(&mut self, message: &[u8]) {
        let (channel, contents) = message.split_first().expect("a message has a channel");
        match channel {
            1 => self.out.extend(contents),
            2 => self.err.extend(contents),
            3 => self.terminal.extend(contents),
            4 => match serde_json::from_slice(contents).expect("it is known") {
                FromDaemon::Started(command) => {
                    assert!(self.all().is_empty(), "it comes first");
                    self.started = Some(*command);
                }
                FromDaemon::Ended(command) => self.ended = Some(*command),
            },
            other => panic!("channel {other}"),
        }
    }

    fn all(&self) -> Vec<u8> {
        [&self.out[..], &self.err, &self.terminal].concat()
    }
}

fn a_command_is_used_by_websocket(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.start(&json!({
        "shell": "while read line; do echo \"got $line\"; echo \"not $line\" >&2; done; exit 7",
        "streams": { "stdin": "pipe" },
    }));
    let mut socket = Socket::attach(room, number, "0");
    socket.say(0, b"one\n");
    let heard = socket.until_says(&["got one", "not one"]);
    assert_eq!(heard.started.map(|command| command.number), Some(number));
    assert_eq!(
        (heard.out.as_slice(), heard.err.as_slice()),
        (&b"got one\n"[..], &b"not one\n"[..])
    );
    // In pieces, with a question between them.
    socket.send(0x02, b"\0tw");
    socket.send(PING, b"there?");
    socket.send(0x00, b"o\n");
    socket.send(0x80, b"three\n");
    let mut heard = socket.until_says(&["got three", "not three"]);
    if heard.pongs.is_empty() {
        heard.pongs = socket.hear(|heard| !heard.pongs.is_empty()).pongs;
    }
    assert_eq!(String::from_utf8_lossy(&heard.out), "got two\ngot three\n");
    assert_eq!(heard.pongs, [b"there?"]);
    // A signal arrives, and one that leaves is told so.
    let mut other = Socket::attach(room, number, "end");
    other.tell(&json!("detach"));
    assert_eq!(other.hear_all().close, Some(1000));
    let mut leaving = Socket::attach(room, number, "0");
    drop(leaving.until_says(&["got three", "not three"]));
    leaving.send(CLOSE, &1000u16.to_be_bytes());
    assert_eq!(leaving.hear_all().close, Some(1000));
    socket.say(0, b"");
    let heard = socket.hear_all();
    assert_eq!(heard.ended.and_then(|command| command.code), Some(7));
    assert_eq!(heard.close, Some(1000));
    let slept = room.sh("sleep 600");
    let mut socket = Socket::attach(room, slept, "0");
    socket.tell(&json!({ "signal": { "signal": 15 } }));
    let heard = socket.hear_all();
    assert_eq!(heard.ended.and_then(|command| command.signal), Some(15));
}

fn a_terminal_is_used_by_websocket(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.start(&json!({
        "shell": "stty size; read line; stty size; read line",
        "streams": { "stdin": "terminal", "stdout": "terminal", "stderr": "terminal" },
        "size": { "columns": 80, "rows": 24 },
    }));
    let mut socket = Socket::attach(room, number, "0");
    drop(socket.until_says(&["24 80"]));
    socket.tell(&json!({ "resize": { "columns": 132, "rows": 43 } }));
    socket.say(0, b"\n");
    drop(socket.until_says(&["43 132"]));
    socket.say(0, b"\n");
    let heard = socket.hear_all();
    assert_eq!((heard.ended.and_then(|command| command.code), heard.close), (Some(0), Some(1000)));
}

fn what_is_not_read_waits_and_is_taken_up_at_an_offset(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let body = json!({ "shell": "seq 1 800000; read line", "streams": { "stdin": "pipe" } });
    let number = room.start(&body);
    let whole: Vec<u8> = (1..=800_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let mut socket = Socket::attach(room, number, "0");
    let so_far = socket.hear(|heard| heard.out.len() > 1_000_000).out;
    // The connection breaks off.
    drop(socket);
    assert!(so_far.len() < whole.len() && whole.starts_with(&so_far));
    let mut socket = Socket::attach(room, number, &so_far.len().to_string());
    let rest = socket.hear(|heard| so_far.len() + heard.out.len() >= whole.len()).out;
    assert!(whole.ends_with(&rest) && so_far.len() + rest.len() == whole.len());
    // Input in messages as long as they may be.
    let number = room.start(&json!({ "argv": ["wc", "-c"], "streams": { "stdin": "pipe" } }));
    let mut socket = Socket::attach(room, number, "0");
    for _ in 0..4 {
        socket.say(0, &vec![b'x'; MAX_FRAME]);
    }
    socket.say(0, b"");
    let count = socket.hear_all().out;
    assert_eq!(String::from_utf8_lossy(&count).trim(), (4 * MAX_FRAME).to_string());
    // Input that nobody reads stays with the client.
    let number = room.start(&json!({ "argv": ["sleep", "600"], "streams": { "stdin": "pipe" } }));
    let mut deaf = Socket::attach(room, number, "0");
    deaf.0.get_ref().set_nonblocking(true).expect("it is a socket");
    let message = frame(BINARY, &vec![0; 100_000]);
    let mut taken = 0;
    let full =
        std::iter::repeat_with(|| deaf.0.get_mut().write(&message)).take(1000).find_map(|put| {
            match put {
                Ok(put) => {
                    taken += put;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    None
                }
                Err(error) => Some(error.kind()),
            }
        });
    assert_eq!(full, Some(std::io::ErrorKind::WouldBlock), "{taken} bytes were taken");
}

fn what_does_not_fit_ends_the_connection_and_not_the_command(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.start(&json!({ "argv": ["cat"], "streams": { "stdin": "pipe" } }));
    let mut unmasked = frame(BINARY, b"\0x");
    unmasked[1] &= 0x7f;
    let table = [
        (unmasked, 1002),
        (frame(0xc2, b"\0x"), 1002),
        (frame(0x80, b"\0x"), 1002),
        (frame(0x83, b"\0x"), 1002),
        (frame(0x09, b""), 1002),
        (frame(PING, &[0; 126]), 1002),
        (frame(0x81, b"{}"), 1003),
        (frame(BINARY, b""), 1008),
        (frame(BINARY, b"\x01x"), 1008),
        (frame(BINARY, b"\x09x"), 1008),
        (frame(BINARY, b"\x04{}"), 1008),
        (frame(BINARY, &vec![0; MAX_FRAME + 2]), 1009),
    ];
    for (row, (bytes, code)) in table.iter().enumerate() {
        let mut socket = Socket::attach(room, number, "0");
        // It may end before everything is sent.
        cowork_sys::ignore(socket.0.get_mut().write_all(bytes));
        assert_eq!(socket.hear_all().close, Some(*code), "row {row}");
    }
    let mut socket = Socket::attach(room, number, "0");
    socket.say(0, b"still there\n");
    drop(socket.until_says(&["still there"]));
    // Handshakes that are none.
    let target = room.at(&format!("/commands/{number}/attach"));
    for (headers, status) in [
        (format!("Upgrade: websocket\r\n{KEY}"), "400"),
        (UPGRADE.to_owned(), "426"),
        (format!("{UPGRADE}Sec-WebSocket-Version: 8\r\n"), "426"),
        (format!("{UPGRADE}Sec-WebSocket-Version: 13\r\n"), "400"),
        (format!("{UPGRADE}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"), "400"),
    ] {
        let mut stream = UnixStream::connect(site.socket()).expect("the daemon listens");
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let answer = head(&mut BufReader::new(stream));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
    socket.say(0, b"");
    assert_eq!(socket.hear_all().close, Some(1000));
    until("nobody is left", || room.command(number).code == Some(0));
}

/// Asks over TCP; the head of the answer.
fn over_tcp(port: u16, target: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let request = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut stream = BufReader::new(stream);
    let answer = head(&mut stream);
    let mut code = [0; 2000];
    let read =
        if answer.contains("problem+json") { stream.read(&mut code).unwrap_or(0) } else { 0 };
    answer + &String::from_utf8_lossy(&code[..read])
}

fn a_page_reaches_nothing(person: Person) {
    let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = free.local_addr().expect("it has an address").port();
    drop(free);
    let folder = Folder::new(person, "token");
    let token = folder.write("token", "a secret of the tests");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let (address, file) = (format!("127.0.0.1:{port}"), token.to_string_lossy().into_owned());
    let site = Site::with(
        person,
        &[
            "--listen",
            &address,
            "--token-file",
            &file,
            "--allow-host",
            "box.example",
            "--allow-origin",
            "https://app.example",
        ],
    );
    let room = site.plain_room();
    let number = room.sh("sleep 600");
    let attach = room.at(&format!("/commands/{number}/attach"));
    let bearer = "Authorization: Bearer a secret of the tests\r\n";
    let own = "Host: 127.0.0.1\r\n";
    // A page knows no token; and with one it is still a page, whoever it says it asks.
    let shown =
        "Sec-WebSocket-Protocol: cowork-stream.v1, cowork-token.YSBzZWNyZXQgb2YgdGhlIHRlc3Rz\r\n";
    let wrong =
        "Sec-WebSocket-Protocol: cowork-stream.v1, cowork-token.YSBzZWNyZXQgb2YgdGhlIHRlc3R6\r\n";
    let page = "Origin: https://evil.example\r\n";
    let websocket = format!("{UPGRADE}{KEY}");
    let table = [
        ("/v1/info", format!("{own}{bearer}"), "200", ""),
        ("/v1/info", format!("Host: localhost:{port}\r\n{bearer}"), "200", ""),
        ("/v1/info", format!("Host: box.example\r\n{bearer}"), "200", ""),
        ("/v1/info", format!("{own}{bearer}Origin: https://app.example\r\n"), "200", ""),
        ("/v1/info", format!("{own}{bearer}{page}"), "403", "foreign-origin"),
        ("/v1/info", format!("{own}{bearer}Origin: null\r\n"), "403", "foreign-origin"),
        ("/mcp", format!("{own}{bearer}{page}"), "403", "foreign-origin"),
        ("/v1/info", format!("Host: evil.example:{port}\r\n{bearer}"), "403", "foreign-host"),
        ("/v1/info", bearer.to_owned(), "403", "foreign-host"),
        ("/v1/info", format!("{own}Host: evil.example\r\n{bearer}"), "403", "foreign-host"),
        ("/v1/info", own.to_owned(), "401", "no-token"),
        ("/v1/info?token=a%20secret%20of%20the%20tests", own.to_owned(), "401", "no-token"),
        ("/v1/info", format!("{own}{shown}"), "401", "no-token"),
        (&attach, format!("{own}{websocket}"), "401", "no-token"),
        (&attach, format!("{own}{websocket}{wrong}"), "401", "no-token"),
        (&attach, format!("{own}{websocket}{page}{shown}"), "403", "foreign-origin"),
        (&attach, format!("{own}{websocket}{page}{bearer}"), "403", "foreign-origin"),
        (&attach, format!("Host: evil.example\r\n{websocket}{shown}"), "403", "foreign-host"),
        (&attach, format!("{own}{websocket}{bearer}"), "101", ""),
        (&attach, format!("{own}{websocket}Origin: https://app.example\r\n{shown}"), "101", ""),
    ];
    for (target, headers, status, code) in table {
        let answer = over_tcp(port, target, &headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
        assert!(answer.contains(code), "{headers}: {answer}");
        // The token is never sent back; the name of the messages is.
        assert!(!answer.contains("cowork-token"), "{answer}");
        let named = status == "101" && headers.contains("cowork-stream.v1");
        assert_eq!(answer.contains("sec-websocket-protocol: cowork-stream.v1"), named, "{answer}");
    }
    // Nor by the socket, should somebody put it on the network.
    let mut stream = UnixStream::connect(site.socket()).expect("the daemon listens");
    let request = format!("GET /v1/info HTTP/1.1\r\nHost: x\r\n{page}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    assert!(head(&mut BufReader::new(stream)).starts_with("HTTP/1.1 403 "));
}

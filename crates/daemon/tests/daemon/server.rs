//! A server on the host's loopback, for sessions to reach or not to reach.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What every request is answered with.
pub(crate) const ANSWER: &str = "hello from the host";

/// A server that remembers what it was asked.
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = Arc::clone(&heard);
        // It ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || answer(stream, &all));
            }
        });
        Self { port, heard }
    }

    /// The heads of all requests so far.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// As a session names it in a rule.
    pub(crate) fn rule(&self) -> String {
        format!("host:{}", self.port)
    }

    /// As a session reaches it.
    pub(crate) fn url(&self) -> String {
        format!("http://host.cowork.internal:{}/path", self.port)
    }
}

fn answer(mut stream: TcpStream, all: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 65_536 {
        match stream.read(&mut byte) {
            Ok(1) => head.extend(byte),
            _ => return,
        }
    }
    all.lock().expect("nobody panics with it").push(String::from_utf8_lossy(&head).into_owned());
    let length = ANSWER.len();
    let text =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{ANSWER}");
    drop(stream.write_all(text.as_bytes()));
    drop(stream.shutdown(Shutdown::Write));
    drop(stream.read_to_end(&mut Vec::new()));
}

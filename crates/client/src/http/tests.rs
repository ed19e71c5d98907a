//! The client against a listener that answers with given bytes.

use super::{Client, HttpError, Method, Request, Upload};
use crate::types::{Info, Page};
use crate::uri::Query;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// A socket at which each connection gets its answers, one per request, and is closed.
struct Server {
    socket: PathBuf,
    requests: JoinHandle<Vec<String>>,
}

impl Server {
    fn new(connections: Vec<Vec<&'static str>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cowork-http-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).expect("the folder is writable");
        let requests = std::thread::spawn(move || {
            let mut heard = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().expect("somebody connects");
                for answer in answers {
                    heard.push(request(&mut stream));
                    stream.write_all(answer.as_bytes()).expect("somebody reads");
                }
            }
            heard
        });
        Self { socket, requests }
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket).expect("somebody listens")
    }

    fn heard(self) -> Vec<String> {
        self.requests.join().expect("every request came")
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Removes a socket at the end.
struct Listening(PathBuf);

/// Reads one request: its head, and as much of a body as that says.
fn request(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).expect("it is open") == 0 {
            break;
        }
        text.extend(byte);
    }
    let head = String::from_utf8(text.clone()).expect("it is text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).expect("the body is there");
    if head.contains("Transfer-Encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            stream.read_exact(&mut byte).expect("the body ends");
            body.extend(byte);
        }
    }
    text.extend(body);
    String::from_utf8(text).expect("it is text")
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn one_connection_serves_many_requests() {
    let server = Server::new(vec![vec![
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsec\r\n3;x=y\r\nond\r\n0\r\nA: b\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfourth",
    ]]);
    let _socket = Listening(server.socket.clone());
    let mut client = server.client();
    assert_eq!(client.call(&Request::get("/1")).expect("an answer"), b"first");
    assert_eq!(client.call(&Request::get("/2")).expect("an answer"), b"second");
    assert_eq!(client.call(&Request::new(Method::Delete, "/3")).expect("an answer"), b"");
    let request = Request::new(Method::Post, "/4").with("X", "a\r\nb").with_json(&[1, 2]);
    assert_eq!(client.call(&request).expect("an answer"), b"fourth");
    let heard = server.heard();
    assert_eq!(heard.first().map(String::as_str), Some("GET /1 HTTP/1.1\r\nHost: cowork\r\n\r\n"));
    assert_eq!(
        heard.last().map(String::as_str),
        Some(
            "POST /4 HTTP/1.1\r\nHost: cowork\r\nX: ab\r\nContent-Type: application/json\r\n\
             Content-Length: 5\r\n\r\n[1,2]"
        )
    );
}

#[test]
fn a_connection_that_was_closed_is_made_again_where_that_is_safe() {
    let server = Server::new(vec![vec![EMPTY], vec![EMPTY]]);
    let _socket = Listening(server.socket.clone());
    let mut client = server.client();
    client.call(&Request::get("/1")).expect("an answer");
    client.call(&Request::get("/2")).expect("an answer on a new connection");
    assert_eq!(server.heard().len(), 2);
}

#[test]
fn a_request_with_an_effect_is_not_sent_twice() {
    let server = Server::new(vec![vec![EMPTY, ""], vec![EMPTY]]);
    let socket = Listening(server.socket.clone());
    let mut client = server.client();
    client.call(&Request::get("/1")).expect("an answer");
    let broken = client.call(&Request::new(Method::Post, "/2"));
    assert!(matches!(broken, Err(HttpError::Broken { .. })), "{broken:?}");
    // The third request is the test's own: nothing came in between.
    client.call(&Request::get("/3")).expect("an answer");
    drop(socket);
    let heard = server.heard();
    assert_eq!(heard.len(), 3);
    assert!(heard.last().is_some_and(|last| last.starts_with("GET /3 ")), "{heard:?}");
}

#[test]
fn problems_are_read() {
    let server = Server::new(vec![vec![
        "HTTP/1.1 404 Not Found\r\nContent-Length: 84\r\n\r\n\
         {\"type\":\"urn:x\",\"code\":\"no-session\",\"title\":\"there is none\",\"status\":404,\"hint\":\"x\"}",
    ]]);
    let _socket = Listening(server.socket.clone());
    let error = server.client().get::<Info>("/v1/info").expect_err("it is a problem");
    let problem = error.problem().expect("it is one of the daemon's");
    assert_eq!((problem.code.as_str(), problem.status), ("no-session", 404));
    assert_eq!(error.to_string(), "there is none");
    let server = Server::new(vec![vec!["HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\nboom"]]);
    let _socket = Listening(server.socket.clone());
    let error = server.client().get::<Info>("/").expect_err("it is a problem");
    let problem = error.problem().expect("it is one of the daemon's");
    assert_eq!((problem.status, problem.detail.as_deref()), (500, Some("boom")));
}

#[test]
fn what_is_not_http_is_garbled() {
    let long: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(100_000)).into_boxed_str(),
    );
    for answer in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        long,
    ] {
        let server = Server::new(vec![vec![answer]]);
        let _socket = Listening(server.socket.clone());
        let said = server.client().call(&Request::get("/"));
        assert!(matches!(said, Err(HttpError::Garbled(_))), "{said:?}");
    }
}

#[test]
fn a_body_that_ends_early_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let server = Server::new(vec![vec![answer]]);
        let _socket = Listening(server.socket.clone());
        let said = server.client().call(&Request::get("/"));
        assert!(matches!(said, Err(HttpError::Broken { .. })), "{answer}: {said:?}");
    }
}

#[test]
fn nobody_there_is_said() {
    let socket = std::env::temp_dir().join(format!("cowork-nobody-{}", std::process::id()));
    let said = Client::connect(&socket);
    assert!(matches!(said, Err(HttpError::NotRunning { .. })), "{said:?}");
}

#[test]
fn uploads_are_sent_as_they_are_read() {
    let server = Server::new(vec![vec![EMPTY], vec![EMPTY], vec![EMPTY]]);
    let _socket = Listening(server.socket.clone());
    let client = server.client();
    // The first connection is the client's own, which is kept for later.
    let mut client = client;
    client.call(&Request::get("/")).expect("an answer");
    let put = Request::new(Method::Put, "/file");
    let upload = Upload { from: &mut &b"known"[..], length: Some(5) };
    client.open(&put, Some(upload)).expect("an answer");
    let upload = Upload { from: &mut &b"unknown"[..], length: None };
    client.open(&put, Some(upload)).expect("an answer");
    let heard = server.heard();
    assert!(heard.get(1).is_some_and(|text| text.ends_with("Content-Length: 5\r\n\r\nknown")));
    assert!(heard.get(2).is_some_and(|text| text.ends_with("\r\n\r\n7\r\nunknown\r\n0\r\n\r\n")));
}

#[test]
fn lists_are_read_to_their_end() {
    let server = Server::new(vec![vec![
        "HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n{\"items\":[1,2],\"next\":\"a\"}",
        "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"items\":[3],\"next\":null}",
    ]]);
    let _socket = Listening(server.socket.clone());
    let query = Query::new("/v1/x").with("state", "y");
    let items: Vec<u32> = server.client().list(&query).expect("a list");
    assert_eq!(items, [1, 2, 3]);
    let heard = server.heard();
    assert!(heard.get(1).is_some_and(|text| text.starts_with("GET /v1/x?state=y&cursor=a ")));
    let page: Page<u32> = serde_json::from_str("{\"items\":[],\"next\":null}").expect("a page");
    assert!(page.items.is_empty());
}

#[test]
fn an_upgraded_connection_is_handed_over_with_what_came() {
    let server = Server::new(vec![vec![
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\nframes",
    ]]);
    let _socket = Listening(server.socket.clone());
    let mut attached =
        server.client().upgrade(Request::new(Method::Post, "/x")).expect("it agrees");
    let mut all = std::mem::take(&mut attached.read);
    attached.stream.read_to_end(&mut all).expect("it is open");
    assert_eq!(all, b"frames");
    let heard = server.heard();
    assert!(heard.first().is_some_and(|text| text.contains("Upgrade: cowork-stream/1\r\n")));
}

#[test]
fn events_are_resumed_where_they_broke() {
    let server = Server::new(vec![
        vec![EMPTY],
        vec![
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e\r\n\
             data: {\"id\":7,\"time\":\"t\",\"type\":\"a\",\"session\":null,\"data\":1}\n\n\
             \r\n",
        ],
        vec![
            "HTTP/1.1 200 OK\r\n\r\n\
             data: {\"id\":7,\"time\":\"t\",\"type\":\"a\",\"session\":null,\"data\":1}\n\n\
             data: {\"id\":8,\"time\":\"t\",\"type\":\"b\",\"session\":null,\"data\":2}\n\n",
        ],
    ]);
    let _socket = Listening(server.socket.clone());
    let mut client = server.client();
    client.call(&Request::get("/")).expect("an answer");
    let events: Vec<u64> =
        client.events("/v1/events", None).take(2).map(|event| event.expect("one").id).collect();
    assert_eq!(events, [7, 8]);
    let heard = server.heard();
    assert!(heard.get(2).is_some_and(|text| text.contains("Last-Event-ID: 7\r\n")), "{heard:?}");
}

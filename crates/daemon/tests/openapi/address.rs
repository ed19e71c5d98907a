//! The document as it is served, the token, and the end of the daemon.

use crate::site::{Site, TOKEN, until};
use cowork_client::http::Method;
use cowork_client::types::Info;
use cowork_testbed::{Person, programs};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Asks over TCP; the head and the body of the answer.
fn over_tcp(site: &Site, target: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(&site.address).expect("it listens");
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers with text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it speaks HTTP");
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_document_is_served_as_it_is_committed() {
    let committed = include_str!("../../../../docs/openapi.json");
    let site = Site::new(Person::Root);
    assert!(site.ask(Method::Get, "/v1/openapi.json", None) == committed.as_bytes());
    let printed = Person::User.command(programs().join("coworkd")).arg("--openapi").output();
    assert!(printed.expect("the program is there").stdout == committed.as_bytes());
}

fn only_who_shows_the_token_is_let_in(person: Person) {
    let site = Site::new(person);
    let (head, body) = over_tcp(&site, "/v1/info", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let info: Info = serde_json::from_str(&body).expect("it says who it is");
    assert_eq!(info.user, person.uid());
    let short = TOKEN.strip_suffix('s').expect("it ends so");
    let refused = [
        String::new(),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {short}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        "Authorization: Bearer\r\n".to_owned(),
        format!("X-Authorization: Bearer {TOKEN}\r\n"),
    ];
    for headers in refused {
        for target in ["/v1/info", "/v1/openapi.json", "/nothing"] {
            let (head, body) = over_tcp(&site, target, &headers);
            assert!(head.starts_with("HTTP/1.1 401 "), "{headers}: {head}");
            assert!(head.contains("www-authenticate: Bearer"), "{head}");
            let problem: Value = serde_json::from_str(&body).expect("a problem is JSON");
            assert_eq!(problem["code"], "no-token");
        }
    }
}

fn shutdown_is_answered_and_obeyed(person: Person) {
    let mut site = Site::new(person);
    let session = site.json(Method::Post, "/v1/sessions", Some(&json!({})));
    let path = format!("/v1/sessions/{}/commands", session["id"].as_str().expect("it has an id"));
    site.json(Method::Post, &path, Some(&json!({ "argv": ["sleep", "600"] })));
    let keeper = site.info().expect("it answers").keeper.expect("there is a session");
    assert_eq!(site.ask(Method::Post, "/v1/shutdown", None), b"");
    let ended = site.wait();
    assert!(ended.success(), "{ended}: {}", site.said());
    let left = std::fs::symlink_metadata(site.socket());
    assert!(left.is_err(), "the socket is still there");
    until("the keeper has left", || std::fs::metadata(format!("/proc/{keeper}")).is_err());
}

mod as_root {
    use super::Person;

    #[test]
    fn only_who_shows_the_token_is_let_in() {
        super::only_who_shows_the_token_is_let_in(Person::Root);
    }

    #[test]
    fn shutdown_is_answered_and_obeyed() {
        super::shutdown_is_answered_and_obeyed(Person::Root);
    }
}

mod as_user {
    use super::Person;

    #[test]
    fn only_who_shows_the_token_is_let_in() {
        super::only_who_shows_the_token_is_let_in(Person::User);
    }

    #[test]
    fn shutdown_is_answered_and_obeyed() {
        super::shutdown_is_answered_and_obeyed(Person::User);
    }
}

//! Who may speak to the daemon, how lists come in parts, and calls that are carried out once.

use crate::for_everyone;
use crate::look::until;
use crate::site::Site;
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{Page, Session};
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

for_everyone!(
    a_call_with_a_key_is_carried_out_once,
    sessions_are_listed_in_parts,
    the_socket_is_its_owners_alone,
    an_address_needs_the_token,
    bad_requests_get_problems,
);

fn keyed(
    site: &Site,
    key: &str,
    target: &str,
    body: &Value,
) -> Result<(u16, bool, Value), HttpError> {
    let request = Request::new(Method::Post, target).with("Idempotency-Key", key).with_json(body);
    // Over a connection of its own, to see status and headers.
    let mut answer = Client::connect(&site.socket())?.open(&request, None)?;
    let (status, again) = (answer.status(), answer.header("idempotent-replayed").is_some());
    let mut text = Vec::new();
    answer.read_to_end(&mut text).expect("it is whole");
    Ok((status, again, serde_json::from_slice(&text).expect("it is JSON")))
}

fn a_call_with_a_key_is_carried_out_once(person: Person) {
    let site = Site::new(person);
    let body = json!({ "labels": { "a": "b" } });
    let call = |key: &str, body: &Value| keyed(&site, key, "/v1/sessions", body);
    let (status, again, first) = call("one", &body).expect("it is made");
    assert_eq!((status, again), (201, false));
    let (status, again, second) = call("one", &body).expect("it is answered");
    assert_eq!((status, again, &second), (201, true, &first));
    assert_eq!(site.sessions().len(), 1);
    let problem = call("one", &json!({})).expect_err("it is another request");
    let problem = problem.problem().expect("the daemon says so");
    assert_eq!((problem.status, problem.code.as_str()), (422, "key-reused"));
    let problem =
        keyed(&site, "one", "/v1/sessions/x/commands", &body).expect_err("another target");
    assert_eq!(problem.problem().map(|problem| problem.status), Some(422));
    // Refusals are remembered as well; other keys and no keys are other calls.
    for _ in 0..2 {
        let error = call("two", &json!({ "id": "BAD" })).expect_err("it is refused");
        assert!(error.problem().is_some_and(|problem| problem.status / 100 == 4), "{error:?}");
    }
    assert_ne!(call("three", &body).expect("it is made").2["id"], first["id"]);
    assert_eq!(site.sessions().len(), 2);
    // Commands as well, and the next daemon knows too.
    let id = first["id"].as_str().expect("it has one").to_owned();
    let target = format!("/v1/sessions/{id}/commands");
    let line = json!({ "shell": "echo x >> count" });
    let start = || keyed(&site, "four", &target, &line).expect("it starts");
    assert!(!start().1);
    site.kill();
    site.start();
    assert!(start().1);
    let room = site.known_room(&id);
    until("it has run", || room.run("cat count").text() == "x\n");
    // Several at once: one is carried out.
    let done: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| call("five", &body))).collect();
        calls.into_iter().map(|call| call.join().expect("it ends")).collect()
    });
    let ids: BTreeSet<String> =
        done.iter().flatten().map(|(_, _, session)| session["id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{done:?}");
    for error in done.iter().filter_map(|one| one.as_ref().err()) {
        assert_eq!(error.problem().map(|problem| problem.code.as_str()), Some("in-progress"));
    }
    assert_eq!(site.sessions().len(), 3);
    let long = call(&"x".repeat(300), &body).expect_err("it is too long");
    assert_eq!(long.problem().map(|problem| problem.status), Some(400));
    site.verify();
}

fn sessions_are_listed_in_parts(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let mut made: BTreeSet<String> = (0..25).map(|_| site.plain_room().id().to_owned()).collect();
    let mut seen: Vec<String> = Vec::new();
    let mut cursor = String::new();
    let mut sizes = Vec::new();
    loop {
        let page: Page<Session> =
            site.client().get(format!("/v1/sessions?limit=10{cursor}")).expect("it can be listed");
        sizes.push(page.items.len());
        seen.extend(page.items.into_iter().map(|session| session.id));
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={next}");
        if sizes.len() == 1 {
            // What is removed between two parts is not listed; the place stays good.
            let last = seen.last().expect("there are some").clone();
            site.known_room(&last).remove();
            let gone = made.last().expect("there are some").clone();
            site.known_room(&gone).remove();
            made.remove(&gone);
        }
    }
    assert_eq!(sizes, [10, 10, 4]);
    assert_eq!(seen, made.into_iter().collect::<Vec<_>>());
    assert_eq!(site.sessions().len(), 23);
    let page = site.get("/v1/sessions?cursor=zzzz");
    assert_eq!(page["items"], json!([]));
    for bad in ["limit=0", "limit=1001", "limit=ten", "state=asleep", "colour=red"] {
        assert_eq!(
            site.refused(Method::Get, format!("/v1/sessions?{bad}"), None).status,
            400,
            "{bad}"
        );
    }
}

/// Asks the daemon who it is, as somebody else; what came back.
fn info_as(uid: u32, site: &Site) -> String {
    let mut curl = std::process::Command::new("/usr/bin/curl");
    curl.args(["-s", "--max-time", "10", "--unix-socket"]).arg(site.socket());
    curl.arg("http://cowork/v1/info").env_clear().uid(uid).gid(uid);
    String::from_utf8(curl.output().expect("curl is there").stdout).expect("it is text")
}

fn the_socket_is_its_owners_alone(person: Person) {
    let site = Site::new(person);
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    };
    assert_eq!(mode(&site.socket()), 0o600);
    assert_eq!(mode(site.runtime()), 0o700);
    assert_eq!(mode(site.state()), 0o700);
    assert!(info_as(person.uid(), &site).contains("\"version\""));
    let stranger = 54_322;
    assert_eq!(info_as(stranger, &site), "");
    // Also where the file system lets them in.
    for (path, mode) in [(site.runtime(), 0o755), (&site.socket(), 0o777)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("tests are root");
    }
    assert!(info_as(person.uid(), &site).contains("\"version\""));
    assert_eq!(info_as(stranger, &site), "");
    std::fs::set_permissions(site.runtime(), PermissionsExt::from_mode(0o700)).expect("it is ours");
    // By default there is no other way in.
    assert_eq!(tcp_sockets(&site), 0);
}

/// How many sockets of the internet the daemon has.
fn tcp_sockets(site: &Site) -> usize {
    let pid = site.info().expect("it answers").pid;
    let mut tables = String::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        tables += &std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    }
    let inodes: BTreeSet<&str> =
        tables.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let handles = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let links = handles.filter_map(|handle| std::fs::read_link(handle.path()).ok());
    links
        .filter(|link| {
            let link = link.to_string_lossy();
            let inode = link.strip_prefix("socket:[").and_then(|link| link.strip_suffix(']'));
            inode.is_some_and(|inode| inodes.contains(inode))
        })
        .count()
}

fn get_over_tcp(port: u16, header: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request =
        format!("GET /v1/info HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn an_address_needs_the_token(person: Person) {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        free.local_addr().expect("it has an address").port()
    };
    let folder = Folder::new(person, "token");
    let secret = "a token of the tests, long enough";
    let token = folder.write("token", format!("{secret}\n"));
    let short = folder.write("short", "short");
    for path in [&token, &short] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("it is ours");
    }
    let open = folder.write("open", secret);
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).expect("it is ours");
    let address = format!("127.0.0.1:{port}");
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    // Bad tokens and none at all: it does not start.
    let state = Folder::new(person, "state");
    let site = Site::unstarted(person, &[], state.path().to_path_buf(), Some(state));
    let missing = folder.path().join("missing");
    for arguments in [
        vec!["--listen".to_owned(), address.clone()],
        vec!["--listen".to_owned(), address.clone(), "--token-file".to_owned(), text(&short)],
        vec!["--listen".to_owned(), address.clone(), "--token-file".to_owned(), text(&open)],
        vec!["--listen".to_owned(), address.clone(), "--token-file".to_owned(), text(&missing)],
        vec!["--listen".to_owned(), "nowhere".to_owned(), "--token-file".to_owned(), text(&token)],
    ] {
        let ended = site.command().args(&arguments).output().expect("it is there");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(125), "{arguments:?}: {said}");
        assert!(said.starts_with("coworkd: ") && !said.contains(secret), "{said}");
    }
    drop(site);
    let site = Site::with(person, &["--listen", &address, "--token-file", &text(&token)]);
    for header in [
        String::new(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        format!("Authorization: Bearer {secret}x\r\n"),
        format!("Authorization: Basic {secret}\r\n"),
        format!("Authorization: bearer{secret}\r\n"),
    ] {
        let answer = get_over_tcp(port, &header);
        assert!(answer.starts_with("HTTP/1.1 401"), "{header}: {answer}");
        assert!(answer.contains("urn:cowork:problem:no-token"), "{answer}");
    }
    let answer = get_over_tcp(port, &format!("Authorization: Bearer {secret}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"pid\""), "{answer}");
    assert_eq!(tcp_sockets(&site), 1);
    assert!(site.records(&[]).iter().all(|record| !record.data.to_string().contains(secret)));
}

/// Sends bytes as they are; what comes back.
fn raw(site: &Site, bytes: &[u8]) -> String {
    let mut stream =
        std::os::unix::net::UnixStream::connect(site.socket()).expect("the daemon listens");
    stream.set_read_timeout(Some(crate::look::PATIENCE)).expect("it is a socket");
    // It may close the connection before everything is sent.
    cowork_sys::ignore(stream.write_all(bytes));
    let mut answer = Vec::new();
    cowork_sys::ignore(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn bad_requests_get_problems(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let post = |kind: &str, body: &str| {
        let head = "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        let length = body.len();
        raw(&site, format!("{head}{kind}Content-Length: {length}\r\n\r\n{body}").as_bytes())
    };
    let json = "Content-Type: application/json\r\n";
    for (kind, body, status) in [
        (json, "{", 400),
        (json, "nonsense", 400),
        (json, "null", 400),
        (json, "{\"id\": 7}", 400),
        (json, "{\"labels\": {\"a\": 1}}", 400),
        ("Content-Type: text/plain\r\n", "{}", 415),
    ] {
        let answer = post(kind, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{body}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(post(json, &format!("{{\"labels\": {deep}}}")).starts_with("HTTP/1.1 400"));
    let long = format!("{{\"id\": \"{}\"}}", "a".repeat(5 * 1024 * 1024));
    assert!(post(json, &long).starts_with("HTTP/1.1 413"));
    for garbage in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let answer = raw(&site, garbage);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let endless = format!("GET /v1/info HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1024 * 1024));
    let answer = raw(&site, endless.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:.200}");
    for target in ["/", "/v1", "/v1/sessions/..%2f..%2fetc", "/v1/sessions/%00", "/v1/sessions/%ff"]
    {
        let problem = site.refused(Method::Get, target, None);
        assert!((400..500).contains(&problem.status), "{target}: {problem:?}");
    }
    // It is as well as before.
    assert!(site.sessions().is_empty());
    assert_eq!(site.plain_room().run("echo fine").text(), "fine\n");
}

//! Secrets: kept by the daemon, put into requests on the way out, and known to no session.

use crate::for_everyone;
use crate::look::until_some;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Network, Secret};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

for_everyone!(
    a_secret_takes_its_place_on_the_way_out,
    secrets_are_listed_without_their_values,
    a_secret_that_is_gone_lets_nothing_through,
);

/// No part of it may be found anywhere but at the server.
const VALUE: &str = "ghp_aSecretOfTheUsers0123456789abcdefghij";

/// An HTTPS server on the host's loopback, with an authority of its own.
struct Server {
    child: Child,
    folder: Folder,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Answers every request with what it was sent, and writes that down.
const SERVE: &str = r#"
import http.server, ssl, sys
folder = sys.argv[1]
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        got = self.headers.get("authorization", "none")
        with open(folder + "/heard", "a") as heard: heard.write(got + "\n")
        body = ("you sent " + got).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/server.pem", folder + "/server.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
open(folder + "/port", "w").write(str(server.server_address[1]))
server.serve_forever()
"#;

fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    command.args(words.split_whitespace()).current_dir(folder);
    let done = command.output().expect("openssl is there");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

impl Server {
    fn start(person: Person) -> Self {
        let folder = Folder::new(person, "server");
        let path = folder.path();
        openssl(
            path,
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=Test \
             -keyout authority.key -out authority.pem",
        );
        openssl(
            path,
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server \
             -keyout server.key -out server.csr",
        );
        std::fs::write(path.join("names"), "subjectAltName=DNS:localhost\n")
            .expect("the folder is ours");
        openssl(
            path,
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial \
             -days 2 -extfile names -out server.pem",
        );
        for name in ["authority.pem", "heard"] {
            std::fs::File::options()
                .create(true)
                .append(true)
                .open(path.join(name))
                .expect("the folder is ours");
        }
        let mut command = Command::new("python3");
        command.args(["-c", SERVE]).arg(path).stdin(Stdio::null());
        let child = command.spawn().expect("python3 is there");
        let port = until_some("the server listens", || {
            std::fs::read_to_string(path.join("port")).ok()?.parse().ok()
        });
        Self { child, folder, port }
    }

    fn authority(&self) -> PathBuf {
        let path = self.folder.path().join("authority.pem");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, open).expect("it is ours");
        path
    }

    fn heard(&self) -> Vec<String> {
        let heard = self.folder.read("heard").unwrap_or_default();
        heard.lines().map(ToOwned::to_owned).collect()
    }

    fn url(&self) -> String {
        format!("https://host.cowork.internal:{}/path", self.port)
    }
}

/// Files below a folder that contain the value.
fn found(folder: &Path) -> Vec<PathBuf> {
    let mut command = Command::new("grep");
    command.args(["-rlF", "--", VALUE]).arg(folder);
    let output = command.output().expect("grep is there");
    String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect()
}

fn set(site: &Site, name: &str, server: &Server) -> Secret {
    let body = json!({
        "value": VALUE, "hosts": [format!("host:{}", server.port)], "variable": "TEST_TOKEN",
    });
    typed(site.ask(Method::Put, format!("/v1/secrets/{name}"), Some(&body)).expect("it is set"))
}

fn room_with<'s>(site: &'s Site, name: &str) -> Room<'s> {
    site.room(&json!({ "network": { "secrets": [name] } }))
}

const CURL: &str = "curl -sS -m 20 -H \"authorization: Bearer $TEST_TOKEN\"";

fn a_secret_takes_its_place_on_the_way_out(person: Person) {
    let server = Server::start(person);
    let site = Site::with_file(person, "COWORK_EXTRA_ROOTS", server.authority());
    set(&site, "test", &server);
    let (room, other) = (room_with(&site, "test"), room_with(&site, "test"));
    let token = room.run("echo -n $TEST_TOKEN").text();
    assert_eq!(token.len(), VALUE.len());
    assert!(token.starts_with("ghp_") && token != VALUE, "{token}");
    assert_ne!(other.run("echo -n $TEST_TOKEN").text(), token, "each session has its own");
    // With and without a proxy; the answer does not bring the value in.
    let direct = format!("env -u https_proxy -u HTTPS_PROXY -u all_proxy -u ALL_PROXY {CURL}");
    for curl in [CURL, &direct] {
        let answer = room.run(&format!("{curl} {}", server.url())).text();
        assert_eq!(answer, format!("you sent Bearer {token}"), "{curl}");
    }
    assert_eq!(server.heard(), vec![format!("Bearer {VALUE}"); 2]);
    // What stands for it in another session stands for nothing here.
    let foreign = other.run("echo -n $TEST_TOKEN").text();
    let line = format!("curl -sS -m 20 -H 'authorization: Bearer {foreign}' {}", server.url());
    let _answer = room.run(&line);
    assert!(!server.heard()[2..].iter().any(|heard| heard.contains(VALUE)), "{:?}", server.heard());
    let used = site.records(&[("type", "network.decided"), ("session", room.id())]);
    assert!(
        used.iter().any(|record| record.data["credentials"][0]["secret"] == "test"),
        "{used:?}"
    );
    // Nothing that is kept has it as it is: state, audit, logs, what the session sees.
    assert_eq!(found(site.state()), Vec::<PathBuf>::new());
    assert_eq!(found(site.runtime()), Vec::<PathBuf>::new());
    assert_ne!(
        room.run(&format!("env | grep -F {VALUE}; grep -rF {VALUE} ~ /etc/session")).code,
        0
    );
    // A daemon that comes knows it, and so does a way out that comes again.
    site.kill();
    site.start();
    let network: Network = typed(site.get(room.at("/network")));
    let pid = network.egress.expect("it has a way out").pid;
    crate::look::Process::look(pid).expect("it runs").signal(rustix::process::Signal::KILL);
    crate::look::until("another one is there", || {
        let network: Network = typed(site.get(room.at("/network")));
        network.egress.is_some_and(|egress| egress.restarts == 1)
    });
    assert_eq!(room.run("echo -n $TEST_TOKEN").text(), token);
    let answer = room.run(&format!("{CURL} {}", server.url())).text();
    assert_eq!(answer, format!("you sent Bearer {token}"));
    assert_eq!(server.heard().last(), Some(&format!("Bearer {VALUE}")));
    site.verify();
}

fn secrets_are_listed_without_their_values(person: Person) {
    let server = Server::start(person);
    let site = Site::new(person);
    let shown = set(&site, "test", &server);
    assert_eq!((shown.name.as_str(), shown.carrier.as_str()), ("test", "bearer"));
    let room = room_with(&site, "test");
    let all: Vec<Secret> = typed(site.get("/v1/secrets")["items"].take());
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].sessions, [room.id()]);
    assert!(!site.get("/v1/secrets").to_string().contains(VALUE));
    for (name, body) in [
        ("test", json!({ "value": "" })),
        ("test", json!({ "value": "two\nlines" })),
        ("test", json!({ "value": "x", "carrier": "cookie" })),
        ("test", json!({ "value": "x", "variable": "A=B" })),
        ("a%20b", json!({ "value": "x" })),
    ] {
        let problem = site.refused(Method::Put, format!("/v1/secrets/{name}"), Some(&body));
        assert_eq!((problem.status, problem.code.as_str()), (422, "bad-secret"), "{body}");
    }
    let problem = site.refused(Method::Delete, "/v1/secrets/other", None);
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-secret"));
    site.kill();
    site.start();
    let again: Vec<Secret> = typed(site.get("/v1/secrets")["items"].take());
    assert_eq!(again, all);
    // In parts, by name.
    for name in ["a", "z"] {
        let body = json!({ "value": "x", "hosts": ["a.example"] });
        site.ask(Method::Put, format!("/v1/secrets/{name}"), Some(&body)).expect("it is set");
    }
    let page = site.get("/v1/secrets?limit=2");
    let names = |page: &serde_json::Value| {
        let all: Vec<Secret> = typed(page["items"].clone());
        all.into_iter().map(|secret| secret.name).collect::<Vec<_>>()
    };
    assert_eq!((names(&page), &page["next"]), (vec!["a".into(), "test".into()], &json!("test")));
    let page = site.get("/v1/secrets?limit=2&cursor=test");
    assert_eq!((names(&page), &page["next"]), (vec!["z".into()], &json!(null)));
    for name in ["a", "z", "test"] {
        let target = format!("/v1/secrets/{name}");
        site.ask(Method::Delete, target, None).expect("it is removed");
    }
    assert_eq!(site.get("/v1/secrets")["items"], json!([]));
    let records = site.records(&[("type", "secret")]);
    assert_eq!(records.len(), 6);
    assert!(records.iter().all(|record| !record.data.to_string().contains(VALUE)));
}

fn a_secret_that_is_gone_lets_nothing_through(person: Person) {
    let server = Server::start(person);
    let site = Site::with_file(person, "COWORK_EXTRA_ROOTS", server.authority());
    set(&site, "test", &server);
    let rule = json!({ "host": format!("host:{}", server.port), "secret": "test" });
    let room = site.room(&json!({ "network": { "rules": [rule] } }));
    let _answer = room.run(&format!("{CURL} -f {}", server.url())).text();
    site.ask(Method::Delete, "/v1/secrets/test", None).expect("it is removed");
    assert_ne!(room.run(&format!("{CURL} -f {}", server.url())).code, 0);
    assert_eq!(server.heard().len(), 1);
    // Another value of the same name is used from then on.
    let body = json!({
        "value": "ghp_another0123456789another0123456789ab", "variable": "TEST_TOKEN",
    });
    site.ask(Method::Put, "/v1/secrets/test", Some(&body)).expect("it is set");
    let _answer = room.run(&format!("{CURL} -f {}", server.url())).text();
    let expected = "Bearer ghp_another0123456789another0123456789ab".to_owned();
    assert_eq!(server.heard().last(), Some(&expected));
}

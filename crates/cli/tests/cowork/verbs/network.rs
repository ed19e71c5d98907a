//! `--allow`, `allow`, `deny`, `net`, `publish`: what a session reaches, and what it does not.
//!
//! The servers are the tests' own, at the host's loopback, which a session reaches by a rule that
//! names it; nothing leaves the machine.

use super::{Desk, id, text};
use crate::programs::tty::Tty;
use crate::support::{for_everyone, need, until};
use cowork_testbed::Person;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

for_everyone!(
    without_rules_there_is_no_network,
    an_allowed_host_is_reached_by_every_kind_of_program,
    a_run_reaches_what_it_may,
    a_refusal_says_why,
    rules_change_while_it_runs,
    what_left_this_machine_is_counted,
    an_unknown_host_waits_for_the_user,
    somebody_at_a_terminal_is_asked,
    the_answer_is_no,
    an_answer_for_always_stands,
    a_port_is_published,
);

/// The name of the host's loopback in a session.
const HOST: &str = "host.cowork.internal";

/// A server of HTTP at the host's loopback. It answers with what it was asked, and keeps it.
pub(super) struct Server {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        let port = listener.local_addr().expect("it is bound").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || drop(answer(&stream, &kept)));
            }
        });
        Self { port, asked }
    }

    /// The lines that it was asked with, each a method and a path.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no request panics").clone()
    }

    /// The rule that allows it.
    pub(super) fn rule(&self) -> String {
        format!("host:{}", self.port)
    }

    /// Its address for a session.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{HOST}:{}{path}", self.port)
    }
}

/// Answers requests on one connection until it closes.
fn answer(stream: &TcpStream, kept: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut from = BufReader::new(stream);
    let mut to = stream;
    loop {
        let mut first = String::new();
        if from.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut words = first.split(' ');
        let what = format!("{} {}", words.next().unwrap_or(""), words.next().unwrap_or(""));
        let mut length = 0;
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let sent = std::io::copy(&mut (&mut from).take(length), &mut std::io::sink())?;
        let body = format!("served {what} {sent}\n");
        kept.lock().expect("no request panics").push(what);
        write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

/// A session that may reach the server, and nothing else.
#[track_caller]
fn served(desk: &Desk, id: &str) -> Server {
    need("curl", "curl");
    let server = Server::start();
    desk.make(id, &["--allow", &server.rule()]);
    server
}

/// What the HTTP proxy answers inside: the body, a blank, and the status.
#[track_caller]
pub(super) fn by_proxy(desk: &Desk, id: &str, url: &str) -> String {
    let line = format!(
        "curl -sS --max-time 60 --noproxy '' -x http://127.0.0.1:3128 -w ' %{{http_code}}' '{url}'"
    );
    desk.sh(id, &line).done().to_owned()
}

/// What is refused, as `net` tells it.
#[track_caller]
fn refused(desk: &Desk, id: &str, host: &str) -> Option<Value> {
    let traffic = desk.json(&["net", "--json", id]);
    let refused = traffic["refused"].as_array().expect("it is a list");
    refused.iter().find(|refusal| refusal["target"]["host"] == host).cloned()
}

fn without_rules_there_is_no_network(person: Person) {
    let desk = Desk::new(person);
    let id = &id("netless", person);
    let server = Server::start();
    desk.make(id, &[]);
    assert!(desk.good(&["status", id]).contains("\n  network     none\n"));
    assert_eq!(desk.json(&["status", "--json", id])["network"], Value::Null);
    assert!(desk.good(&["net", id]).starts_with(&format!("{id}  network: none\n")));
    let line = format!(
        "import socket, time\nstart = time.time()\n\
         for place in [('127.0.0.1', {port}), ('{HOST}', {port}), ('198.51.100.1', 80), \
         ('127.0.0.1', 3128), ('127.0.0.1', 1080)]:\n\
         \x20 try: socket.create_connection(place, 30)\n\
         \x20 except OSError: print('no')\n\
         assert time.time() - start < 20, 'it fails at once'",
        port = server.port
    );
    let ran = desk.say(&["exec", id, "--", "python3", "-c", &line]);
    assert_eq!(ran.good(), "no\nno\nno\nno\nno\n");
    assert!(server.asked().is_empty());
}

fn an_allowed_host_is_reached_by_every_kind_of_program(person: Person) {
    let desk = Desk::new(person);
    let id = &id("served", person);
    let server = served(&desk, id);
    let status = desk.good(&["status", id]);
    assert!(
        status.contains("network     1 rule, otherwise refused; egress running (pid "),
        "{status}"
    );
    let curl = "curl -sS --max-time 60";
    let port = server.port;
    let python = "import sys, urllib.request as u\n\
                  h = [u.ProxyHandler({})] if sys.argv[2] == 'bare' else []\n\
                  print(u.build_opener(*h).open(sys.argv[1], timeout=60).read().decode(), end='')";
    desk.work.write("get.py", python);
    let raw = format!(
        "import socket\ns = socket.create_connection(('{HOST}', {port}), 60)\n\
         s.sendall(b'GET /raw HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n\
         said = b''\nwhile not said.endswith(b' 0\\n'): said += s.recv(1000)\n\
         print(said.decode().split('\\r\\n\\r\\n')[1], end='')"
    );
    desk.work.write("raw.py", raw);
    let url = |path: &str| server.url(path);
    for (path, line) in [
        (
            "/bare",
            format!(
                "env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY {curl} --noproxy '*' {}",
                url("/bare")
            ),
        ),
        (
            "/variables",
            format!(
                "http_proxy=http://127.0.0.1:3128 no_proxy= NO_PROXY= {curl} {}",
                url("/variables")
            ),
        ),
        ("/tunnel", format!("{curl} --noproxy '' -p -x http://127.0.0.1:3128 {}", url("/tunnel"))),
        ("/socks", format!("{curl} --noproxy '' -x socks5h://127.0.0.1:1080 {}", url("/socks"))),
        ("/python", format!("python3 mnt/work/get.py {} bare", url("/python"))),
        ("/usual", format!("python3 mnt/work/get.py {} usual", url("/usual"))),
        ("/raw", "python3 mnt/work/raw.py".to_owned()),
    ] {
        let ran = desk.sh(id, &line);
        assert_eq!(
            (ran.text(), ran.err.as_str()),
            (&*format!("served GET {path} 0\n"), ""),
            "{line}"
        );
    }
    assert_eq!(server.asked().len(), 7);
    // The session's own loopback is its own.
    let own = desk.sh(id, &format!("{curl} --noproxy '*' http://127.0.0.1:{port}/own"));
    assert_eq!((own.code, server.asked().len()), (7, 7), "{}", own.err);
}

fn a_run_reaches_what_it_may(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let server = Server::start();
    let url = server.url("/run");
    let ran = desk.say(&["run", "--allow", &server.rule(), "--", "curl", "-sS", &url]);
    assert_eq!(ran.good(), "served GET /run 0\n");
    let ran = desk.say(&["run", "--", "curl", "-sS", &url]);
    assert_ne!(ran.code, 0);
    assert_eq!(server.asked(), ["GET /run"]);
}

fn a_refusal_says_why(person: Person) {
    let desk = Desk::new(person);
    let id = &id("refusing", person);
    let server = served(&desk, id);
    let said = by_proxy(&desk, id, "http://refused.example/secret-path");
    assert!(said.ends_with(" 403"), "{said}");
    let body: Value = serde_json::from_str(said.trim_end_matches(" 403")).expect(&said);
    let body = body.get("error").unwrap_or(&body);
    assert_eq!((&body["code"], &body["host"]), (&"no-rule".into(), &"refused.example".into()));
    assert!(text(&body["sentence"]).contains("refused.example"), "{said}");
    // By name there is nothing, and at once.
    let line = "import socket\ntry: socket.getaddrinfo('unknown.example', 443)\n\
                except socket.gaierror as error: print(error.errno == socket.EAI_NONAME)";
    let ran = desk.say(&["exec", id, "--", "python3", "-c", line]);
    assert_eq!(ran.good(), "True\n");
    // Another port of what is allowed.
    let said = by_proxy(&desk, id, &format!("http://{HOST}:1/"));
    assert!(said.contains("\"code\":\"port\"") && said.ends_with(" 403"), "{said}");
    by_proxy(&desk, id, "http://refused.example/secret-path");
    until("all of it is told", || {
        let twice = refused(&desk, id, "refused.example").is_some_and(|all| all["times"] == 2);
        twice && refused(&desk, id, "unknown.example").is_some()
    });
    let view = desk.good(&["net", id]);
    let line = view.lines().find(|line| line.starts_with("refused.example:80 ")).expect(&view);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.contains(&"no-rule") && words.contains(&"2"), "{line}");
    let (first, rest) = view.split_once("\n\n").expect(&view);
    assert!(first.starts_with(id.as_str()) && rest.starts_with("REFUSED "), "{view}");
    assert!(server.asked().is_empty());
}

fn rules_change_while_it_runs(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let id = &id("changing", person);
    let server = Server::start();
    let (rule, url) = (&server.rule(), &server.url("/x"));
    desk.make(id, &["--net", "deny"]);
    assert!(by_proxy(&desk, id, url).ends_with(" 403"));
    let force = desk.good(&["allow", id, rule]);
    assert!(force.contains(&format!("allow {rule}")) && force.ends_with("\notherwise refused\n"));
    assert!(by_proxy(&desk, id, url).ends_with(" 200"));
    // The port is one that nothing listened on when the session was made.
    let bare = desk.sh(id, &format!("curl -sS --noproxy '*' {url}"));
    assert_eq!(bare.good(), "served GET /x 0\n");
    let force = desk.good(&["deny", id, rule, "--reason", "leave it in outputs"]);
    assert!(force.contains("because leave it in outputs"), "{force}");
    let said = by_proxy(&desk, id, url);
    let told = said.contains("\"denied-by-rule\"") && said.contains("leave it in outputs");
    assert!(told && said.ends_with(" 403"), "{said}");
    desk.good(&["deny", "--remove", id, rule]);
    assert!(by_proxy(&desk, id, url).ends_with(" 200"));
    let network = desk.json(&["net", "rules", "--json", id]);
    assert_eq!(network["rules"].as_array().map(Vec::len), Some(1), "{network}");
    assert_eq!(desk.good(&["net", "rules", id]).lines().count(), 3);
    desk.good(&["allow", "--remove", id, rule]);
    assert!(by_proxy(&desk, id, url).ends_with(" 403"));
    let sentence = format!(
        "cowork: session {id} has no rule `allow {rule}`\n  \
         hint: list them with `cowork net rules {id}`\n"
    );
    desk.refused(&["allow", "--remove", id, rule], 1, &sentence);
    assert_eq!(server.asked().len(), 3);
    // Methods and paths.
    desk.good(&["allow", id, rule, "--method", "GET", "--path", "/open/**"]);
    assert!(by_proxy(&desk, id, &server.url("/open/a/b")).ends_with(" 200"));
    let said = by_proxy(&desk, id, &server.url("/shut"));
    assert!(said.contains("\"request\"") && said.ends_with(" 403"), "{said}");
    assert!(!server.asked().contains(&"GET /shut".to_owned()));
}

fn what_left_this_machine_is_counted(person: Person) {
    let desk = Desk::new(person);
    let id = &id("counted", person);
    let server = served(&desk, id);
    let line = format!(
        "head -c 300000 /dev/zero | curl -sS --noproxy '*' --data-binary @- {}",
        server.url("/sent")
    );
    assert_eq!(desk.sh(id, &line).good(), "served POST /sent 300000\n");
    until("the bytes are told", || {
        let traffic = desk.json(&["net", "--json", id]);
        let hosts = traffic["hosts"].as_array().expect("it is a list").clone();
        let up =
            hosts.iter().find(|host| host["host"] == HOST).and_then(|host| host["up"].as_u64());
        up.is_some_and(|bytes| (300_000..400_000).contains(&bytes))
    });
    let view = desk.good(&["net", id]);
    assert!(view.contains("\nNothing left this machine\n"), "{view}");
    let (_, stayed) = view.split_once("\nSTAYED ON THIS MACHINE ").expect(&view);
    let line = stayed.lines().find(|line| line.starts_with(HOST)).expect(&view);
    assert!(line.contains("K "), "{line}");
    // What flows is shown while it does.
    let held = format!(
        "import socket\ns = socket.create_connection(('{HOST}', {}))\n\
         s.sendall(b'GET /held HTTP/1.1\\r\\nX: ')\nopen('mnt/work/on', 'w')\nopen('mnt/work/go').read()",
        server.port
    );
    desk.work.write("held.py", held);
    let fifo = desk.work.path().join("go");
    desk.sh(id, "mkfifo mnt/work/go").good();
    desk.start(id, "exec python3 mnt/work/held.py");
    until("it holds on", || desk.work.read("on").is_some());
    until("it is shown", || {
        let view = desk.good(&["net", id]);
        let line = view.lines().find(|line| line.starts_with(&format!("{HOST}:{}", server.port)));
        line.is_some_and(|line| line.contains("allow host:") && line.contains("capture"))
    });
    std::fs::write(fifo, "").expect("somebody reads it");
    let mut watch = desk.spawn(&["net", "--watch", "--json", id]);
    let lines = BufReader::new(watch.0.stdout.take().expect("it is a pipe")).lines();
    for line in lines.take(2) {
        let line = line.expect("a pipe can be read");
        let traffic: Value = serde_json::from_str(&line).expect(&line);
        assert!(traffic["flows"].is_array(), "{line}");
    }
    until("it is over", || desk.good(&["net", id]).contains("\nNothing flows now\n"));
    let har = desk.good(&["net", "har", id]);
    let har: Value = serde_json::from_str(&har).expect(&har);
    assert!(har["log"]["entries"].is_array(), "{har}");
    let file = desk.work.path().join("archive.har");
    let name = file.to_str().expect("test folders are text");
    assert_eq!(desk.good(&["net", "har", id, "--output", name]), "");
    assert!(desk.work.read("archive.har").is_some_and(|text| text.contains("\"log\"")));
}

/// The only request that waits in a session.
#[track_caller]
fn waiting(desk: &Desk, id: &str) -> Value {
    let mut found = Value::Null;
    until("it asks", || {
        let requests = desk.json(&["requests", "--json", id]);
        found = requests.get(0).cloned().unwrap_or_default();
        found.is_object()
    });
    found
}

fn an_unknown_host_waits_for_the_user(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let id = &id("asking", person);
    let server = Server::start();
    desk.make(id, &["--ask", &server.rule()]);
    let url = server.url("/asked");
    let curl = format!("curl -sS --max-time 60 --noproxy '' -x http://127.0.0.1:3128 {url}");
    let number = desk.start(id, &curl);
    let request = waiting(&desk, id);
    assert_eq!((&request["kind"], &request["state"]), (&"host".into(), &"pending".into()));
    let place = format!("{HOST}:{}", server.port);
    assert!(text(&request["wanted"]).contains(&place), "{request}");
    let table = desk.good(&["requests", id]);
    assert!(table.contains(&place) && table.contains(" reach "), "{table}");
    assert!(desk.good(&["net", id]).contains("waits for your answer"));
    assert!(server.asked().is_empty(), "it waits");
    let answer = desk.good(&["decide", &request["id"].to_string(), "allow", "--session"]);
    assert_eq!(answer, format!("session {id} may reach {}\n", text(&request["wanted"])));
    until("it goes on", || desk.good(&["logs", id, &number]) == "served GET /asked 0\n");
    // Not asked again in this session.
    assert!(by_proxy(&desk, id, &url).ends_with(" 200"));
    assert_eq!(desk.json(&["requests", "--json", id]), Value::Array(Vec::new()));
}

/// The same command is refused at once where nobody is.
fn somebody_at_a_terminal_is_asked(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let id = &id("seen", person);
    let server = Server::start();
    let (rule, url) = (server.rule(), server.url("/seen"));
    let run = ["run", "--id", id, "--ask", &rule, "--", "curl", "-sS", &url];
    let alone = desk.say(&run);
    assert!(alone.text().contains("\"nobody-to-ask\""), "{} {}", alone.text(), alone.err);
    let mut tty = Tty::start(person, desk.work.path(), &run);
    until("the session is made", || desk.say(&["status", id]).code == 0);
    let request = waiting(&desk, id);
    desk.good(&["decide", &request["id"].to_string(), "allow"]);
    tty.see("served GET /seen 0");
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    assert_eq!(server.asked(), ["GET /seen"]);
}

fn the_answer_is_no(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let id = &id("denied", person);
    desk.make(id, &["--net", "ask"]);
    assert!(desk.good(&["status", id]).contains("otherwise you are asked"));
    let line = "curl -sS --max-time 60 --noproxy '' -x http://127.0.0.1:3128 \
                -w ' %{http_code}' http://unknown.example/x";
    let number = desk.start(id, line);
    let request = waiting(&desk, id);
    assert!(text(&request["wanted"]).contains("unknown.example:80"), "{request}");
    let answer = ["decide", &request["id"].to_string(), "reject", "--note", "not this one"];
    assert_eq!(desk.good(&answer), "");
    let mut said = String::new();
    until("it is told", || {
        said = desk.good(&["logs", id, &number]);
        said.ends_with(" 403")
    });
    assert!(said.contains("\"rejected\"") && said.contains("not this one"), "{said}");
    // From now on nobody is asked.
    desk.good(&["set", id, "--net", "deny"]);
    assert!(by_proxy(&desk, id, "http://other.example/").contains("\"no-rule\""));
}

fn an_answer_for_always_stands(person: Person) {
    need("curl", "curl");
    let desk = Desk::apart(person);
    let (one, other) = (&id("first", person), &id("second", person));
    let server = Server::start();
    let (rule, url) = (&server.rule(), &server.url("/always"));
    desk.make(one, &["--ask", rule]);
    desk.make(other, &["--net", "deny"]);
    desk.start(one, &format!("curl -sS --max-time 60 -x http://127.0.0.1:3128 {url}"));
    let request = waiting(&desk, one);
    desk.good(&["decide", &request["id"].to_string(), "allow", "--always"]);
    assert!(by_proxy(&desk, other, url).ends_with(" 200"));
    let standing = desk.good(&["net", "standing"]);
    assert!(standing.contains(&format!("\nallow {rule} ")), "{standing}");
    let name = format!("allow {rule}");
    let left = desk.json(&["net", "standing", "--json", "--remove", &name]);
    assert_eq!(left, Value::Array(Vec::new()));
    assert!(by_proxy(&desk, other, url).ends_with(" 403"));
    let gone = desk.say(&["net", "standing", "--remove", &name]);
    assert_eq!((gone.code, gone.text()), (1, ""), "{}", gone.err);
}

fn a_port_is_published(person: Person) {
    let desk = Desk::new(person);
    let id = &id("published", person);
    desk.make(id, &["--net", "deny"]);
    let line = "import http.server as h\n\
                class Hello(h.BaseHTTPRequestHandler):\n\
                \x20 def do_GET(self):\n\
                \x20   self.send_response(200)\n\
                \x20   self.end_headers()\n\
                \x20   self.wfile.write(b'from inside')\n\
                s = h.HTTPServer(('127.0.0.1', 8000), Hello)\n\
                open('mnt/work/on', 'w')\ns.serve_forever()";
    desk.work.write("serve.py", line);
    desk.start(id, "exec python3 mnt/work/serve.py");
    until("it listens", || desk.work.read("on").is_some());
    let address = desk.good(&["publish", id, "8000:0"]);
    let address = address.trim_end();
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        std::io::Result::Ok(said)
    };
    let said = ask().expect("the host reaches it");
    assert!(said.ends_with("from inside"), "{said}");
    let told = format!("{address} is port 8000\n");
    assert!(desk.good(&["status", id]).contains(&told));
    assert!(desk.good(&["net", id]).contains(&told));
    let outside = address.trim_start_matches("127.0.0.1:");
    assert_eq!(desk.good(&["unpublish", id, outside]), "");
    until("nobody listens", || ask().is_err());
    let again = desk.say(&["unpublish", id, outside]);
    assert_eq!((again.code, again.text()), (1, ""), "{}", again.err);
    assert!(again.err.contains(outside), "{}", again.err);
    // A port of the host that is taken.
    let other = TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
    let taken = other.local_addr().expect("it is bound").port();
    let refused = desk.say(&["publish", id, &format!("8000:{taken}")]);
    assert_eq!((refused.code, refused.text()), (1, ""), "{}", refused.err);
    assert!(refused.err.contains(&taken.to_string()), "{}", refused.err);
    drop(other);
    let published = desk.json(&["publish", "--json", id, &format!("8000:{taken}")]);
    assert_eq!((&published["inside"], &published["outside"]), (&8000.into(), &taken.into()));
}

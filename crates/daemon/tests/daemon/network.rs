//! What sessions reach, and what they do not: with and without a proxy, while rules change, while
//! the user is asked, and while programs of ours are killed.

use crate::for_everyone;
use crate::look::{Process, until, until_some};
use crate::room::{Room, typed};
use crate::server::{ANSWER, Server};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Network, NetworkExplanation, PublishedPort, Request, Traffic};
use cowork_testbed::Person;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

for_everyone!(
    rules_hold_with_and_without_a_proxy,
    what_went_where_is_counted_once,
    rules_change_while_it_runs,
    the_user_is_asked_about_a_host,
    a_way_out_that_is_killed_comes_again,
    a_way_out_is_a_child_of_the_keepers,
    a_way_out_that_stands_still_is_ended,
    the_next_daemon_goes_on_with_the_network,
    a_port_is_published_and_let_go_of,
    what_cannot_be_is_refused,
    what_cannot_be_enforced_stops_the_start_and_changes_nothing,
);

/// Reaches something without regard to variables.
const DIRECT: &str = "env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY \
                      -u ALL_PROXY curl -sS -m 20";
/// Reaches something as the variables say.
const CURL: &str = "curl -sS -m 20";

fn network(room: Room<'_>) -> Network {
    typed(room.site.get(room.at("/network")))
}

fn egress(room: Room<'_>) -> Process {
    let pid = network(room).egress.expect("it has a way out").pid;
    let process = Process::look(pid).expect("it runs");
    assert!("cowork-egress".starts_with(&process.name), "{process:?}");
    process
}

fn traffic(room: Room<'_>) -> Traffic {
    typed(room.site.get(room.at("/network/traffic")))
}

fn explain(room: Room<'_>, url: &str) -> NetworkExplanation {
    typed(room.site.get(room.at(&format!("/network/explain?url={url}"))))
}

fn change(room: Room<'_>, body: &Value) -> Network {
    let changed = room.site.ask(Method::Patch, room.at("/network"), Some(body));
    typed(changed.expect("it can be changed"))
}

/// A session that reaches a server.
fn open_room<'s>(site: &'s Site, server: &Server) -> Room<'s> {
    site.room(&json!({ "network": { "rules": [{ "host": server.rule() }] } }))
}

fn rules_hold_with_and_without_a_proxy(person: Person) {
    let site = Site::new(person);
    let (server, other) = (Server::start(), Server::start());
    let room = open_room(&site, &server);
    let way_out = egress(room);
    for curl in [CURL, DIRECT, "curl -sS -m 20 --proxy socks5h://127.0.0.1:1080"] {
        assert_eq!(room.run(&format!("{curl} {}", server.url())).text(), ANSWER, "{curl}");
    }
    // Through the proxy a refusal says what to do; a name that is not allowed does not exist.
    let refused = room.run(&format!("{CURL} -i http://example.com/secret")).text();
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("x-cowork-deny: no-rule"));
    assert_eq!(room.run(&format!("{DIRECT} http://example.com/")).code, 6);
    let refused = room.run(&format!("{CURL} -i {}", other.url())).text();
    assert!(refused.contains("x-cowork-deny: port"), "{refused}");
    assert_ne!(room.run(&format!("{DIRECT} {}", other.url())).code, 0);
    assert_ne!(room.run(&format!("{DIRECT} http://127.0.0.1:{}/", server.port)).code, 0);
    assert_eq!((server.heard().len(), other.heard().len()), (3, 0));
    // What happened is counted, explained and recorded.
    let seen = traffic(room);
    assert!(seen.refused.iter().any(|refusal| refusal.target.host == "example.com"), "{seen:?}");
    assert_eq!(seen.hosts[0].host, "host.cowork.internal");
    assert!(seen.hosts[0].down > 0 && seen.hosts[0].up > 0);
    assert_eq!(explain(room, &server.url()).outcome, "allow");
    assert_eq!(explain(room, "https://example.com/").code, "no-rule");
    let decided = site.records(&[("type", "network.decided"), ("session", room.id())]);
    let allowed = decided.iter().filter(|record| record.data["allowed"] == json!(true)).count();
    assert_eq!(allowed, 3, "{decided:?}");
    assert!(decided.len() > allowed);
    let har = site.get(room.at("/network/har"));
    assert_eq!(har["log"]["entries"].as_array().map(Vec::len), Some(3));
    // Who has no network has nothing of this.
    let alone = site.plain_room();
    assert!(network(alone).egress.is_none());
    assert_ne!(alone.run(&format!("{DIRECT} {}", server.url())).code, 0);
    assert_eq!(alone.run("env | grep -ci proxy").code, 1);
    room.remove();
    until("the way out is gone", || !way_out.exists());
    site.verify();
}

/// Two requests in one connection that is looked into are two, and their connection is no third.
fn what_went_where_is_counted_once(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    let rule = json!({ "host": server.rule(), "methods": ["GET"], "paths": ["/path"] });
    let room = site.room(&json!({ "network": { "rules": [rule] } }));
    let url = server.url();
    assert_eq!(room.run(&format!("{DIRECT} {url} {url}")).text(), [ANSWER; 2].concat());
    let ended = || site.records(&[("type", "network.ended"), ("session", room.id())]);
    until("the connection has ended", || ended().len() == 3);
    let flows: BTreeSet<String> =
        ended().iter().map(|record| record.data["flow"].to_string()).collect();
    assert_eq!(flows.len(), 1, "it is one connection");
    let hosts = traffic(room).hosts;
    assert_eq!((hosts.len(), hosts[0].requests), (1, 2), "{hosts:?}");
    assert!(hosts[0].down >= 2 * ANSWER.len() as u64, "{hosts:?}");
}

fn rules_change_while_it_runs(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    let room = site.plain_room();
    let reach = || room.run(&format!("{CURL} -f {}", server.url())).code;
    assert_ne!(reach(), 0);
    let changed = change(room, &json!({ "add": [{ "host": server.rule() }] }));
    assert_eq!((changed.generation, changed.rules.len()), (1, 1));
    assert_eq!(reach(), 0);
    let way_out = egress(room);
    let deny = json!({ "action": "deny", "host": server.rule(), "reason": "not now" });
    change(room, &json!({ "add": [deny] }));
    let refused = room.run(&format!("{CURL} {}", server.url())).text();
    assert!(refused.contains("denied-by-rule") && refused.contains("not now"), "{refused}");
    change(room, &json!({ "remove": [format!("deny {}", server.rule())] }));
    assert_eq!(reach(), 0);
    change(room, &json!({ "remove": [format!("allow {}", server.rule())] }));
    assert_ne!(reach(), 0);
    assert!(way_out.exists(), "rules change without another process");
    let recorded = site.records(&[("type", "network.changed")]);
    assert_eq!(recorded.len(), 4);
    // What cannot be understood changes and records nothing.
    let bad = json!({ "add": [{ "host": "a b c" }] });
    let problem = site.refused(Method::Patch, room.at("/network"), Some(&bad));
    assert_eq!((problem.status, problem.code.as_str()), (422, "bad-rule"));
    let bad = json!({ "remove": ["allow nothing.example"] });
    let problem = site.refused(Method::Patch, room.at("/network"), Some(&bad));
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-rule"));
    assert_eq!(site.records(&[("type", "network.changed")]).len(), 4);
    let told = room.run("cat ~/COWORK.md").text();
    assert!(told.contains("none so far"), "{told}");
    // A stopped session keeps its rules, and has them when it is started.
    change(room, &json!({ "add": [{ "host": server.rule() }] }));
    room.tell("stop");
    until("the way out is gone", || !way_out.exists());
    assert!(network(room).egress.is_none());
    room.tell("start");
    assert_eq!(reach(), 0);
}

fn pending(room: Room<'_>) -> Vec<Request> {
    let target = format!("/v1/requests?state=pending&session={}", room.id());
    typed(room.site.get(target)["items"].clone())
}

fn decide(site: &Site, id: u64, body: &Value) -> Request {
    typed(site.post(format!("/v1/requests/{id}/decide"), body))
}

fn the_user_is_asked_about_a_host(person: Person) {
    let site = Site::new(person);
    let room = site.room(&json!({ "network": { "otherwise": "ask" } }));
    let ask = |host: &str| {
        let number = room.sh(&format!("{CURL} -i http://{host}/path?query"));
        let request = until_some("it asks", || pending(room).into_iter().next());
        assert_eq!((request.kind.as_str(), request.wanted.clone()), ("host", format!("{host}:80")));
        assert!(request.reason.contains("GET /path") && !request.reason.contains("query"));
        (number, request.id)
    };
    let (number, id) = ask("one.invalid");
    let note = json!({ "decision": "reject_once", "note": "not that one" });
    decide(&site, id, &note);
    let refused = room.finish(number).text();
    assert!(refused.contains("403") && refused.contains("not that one"), "{refused}");
    // Once is once. What is allowed is looked up, and does not exist.
    let (number, id) = ask("one.invalid");
    decide(&site, id, &json!({ "decision": "allow_session" }));
    assert!(room.finish(number).text().contains("no-such-name"));
    assert!(network(room).rules.iter().any(|rule| rule.name.contains("one.invalid")));
    let again = room.run(&format!("{CURL} -i http://one.invalid/")).text();
    assert!(again.contains("no-such-name"), "{again}");
    // For good, for every session.
    let (number, id) = ask("two.invalid");
    decide(&site, id, &json!({ "decision": "reject_always" }));
    assert!(room.finish(number).text().contains("403"));
    let other = site.room(&json!({ "network": { "otherwise": "ask" } }));
    let refused = other.run(&format!("{CURL} -i http://two.invalid/")).text();
    assert!(refused.contains("denied-by-rule"), "{refused}");
    let rules = site.get("/v1/rules")["items"].take();
    let name = rules[0]["name"].as_str().expect("it has a name").to_owned();
    let target = format!("/v1/rules/{}", cowork_client::uri::segment(&name));
    site.ask(Method::Delete, target, None).expect("it can be removed");
    assert_eq!(site.get("/v1/rules"), json!({ "items": [], "next": null }));
    // Whoever gives up is not asked for any more.
    let number = room.sh(&format!("{CURL} http://three.invalid/"));
    let id = until_some("it asks", || pending(room).into_iter().next()).id;
    let body = json!({ "signal": 9 });
    site.post(room.at(&format!("/commands/{number}/signal")), &body);
    until("it is withdrawn", || site.get(format!("/v1/requests/{id}"))["state"] == "expired");
    // A rule that comes answers what waits.
    for (host, action, code) in
        [("five.invalid", "allow", "no-such-name"), ("six.invalid", "deny", "denied-by-rule")]
    {
        let (number, id) = ask(host);
        change(room, &json!({ "add": [{ "action": action, "host": host }] }));
        let said = room.finish(number).text();
        assert!(said.contains(code), "{said}");
        until("it is withdrawn", || site.get(format!("/v1/requests/{id}"))["state"] == "expired");
    }
    // A daemon that comes finds what waits.
    let (number, id) = ask("four.invalid");
    site.kill();
    site.start();
    let known: Vec<u64> = pending(room).into_iter().map(|request| request.id).collect();
    assert_eq!(known, [id]);
    decide(&site, id, &json!({ "decision": "reject_once", "note": "after all" }));
    assert!(room.finish(number).text().contains("after all"));
    site.verify();
}

fn a_way_out_that_is_killed_comes_again(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    let room = open_room(&site, &server);
    for round in 1..=3 {
        let before = egress(room);
        before.signal(Signal::KILL);
        until("another one is there", || {
            network(room).egress.is_some_and(|egress| egress.restarts == round)
        });
        assert_eq!(room.run(&format!("{CURL} {}", server.url())).text(), ANSWER);
        assert_ne!(egress(room), before);
    }
    assert_eq!(site.records(&[("type", "network.lost")]).len(), 3);
    assert_eq!(site.records(&[("type", "network.restored")]).len(), 3);
    // With the sandbox it comes again too.
    let before = egress(room);
    let init = room.show().sandbox.expect("it has one").pid;
    Process::look(init).expect("it runs").signal(Signal::KILL);
    until("the session is well again", || {
        room.show().sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
    });
    until("the old one is gone", || !before.exists());
    assert_eq!(room.run(&format!("{CURL} {}", server.url())).text(), ANSWER);
    site.verify();
}

/// The process that started the way out of a session for the keeper, after a look at all of them.
fn starter(room: Room<'_>) -> Process {
    let daemon = room.site.info().expect("it answers").pid;
    let keeper = room.site.keeper().expect("it runs");
    let way_out = egress(room);
    let starter = way_out.parent().expect("it runs");
    assert_eq!(starter.name, "cowork-starter");
    assert_eq!(starter.parent().as_ref(), Some(&keeper));
    assert!(starter.children().contains(&way_out));
    let daemon = Process::look(i32::try_from(daemon).expect("it is one")).expect("it runs");
    assert!(daemon.children().iter().all(|child| *child == keeper), "{:?}", daemon.children());
    // It is on the host, as the daemon is, and has nothing of the keeper's.
    for kind in ["net", "mnt", "user", "pid", "ipc"] {
        let namespace = |process: &Process| {
            std::fs::read_link(format!("/proc/{}/ns/{kind}", process.pid)).expect("it runs")
        };
        assert_eq!(namespace(&way_out), namespace(&daemon), "{kind}");
    }
    let environment = std::fs::read(format!("/proc/{}/environ", way_out.pid)).expect("it runs");
    assert!(environment.is_empty(), "{:?}", String::from_utf8_lossy(&environment));
    let open = |process: &Process| -> Vec<String> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it runs");
        let open = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        open.map(|file| file.to_string_lossy().into_owned()).collect()
    };
    for process in [&starter, &way_out] {
        let open = open(process);
        assert!(!open.iter().any(|file| file.contains("/proc/") || file == "anon_inode:[pidfd]"));
    }
    starter
}

fn a_way_out_is_a_child_of_the_keepers(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    let room = open_room(&site, &server);
    let first = starter(room);
    site.kill();
    site.start();
    assert_eq!(starter(room), first, "after the daemon was killed");
    let before = egress(room);
    before.signal(Signal::KILL);
    until("another one is there", || {
        network(room).egress.is_some_and(|egress| egress.restarts == 1)
    });
    until("it is buried", || !before.exists());
    assert_eq!(starter(room), first, "after the way out was killed");
    assert_eq!(room.run(&format!("{CURL} {}", server.url())).text(), ANSWER);
    // With the session its way out ends, and nobody is left to be buried.
    let other = open_room(&site, &server);
    assert_eq!(first.children().len(), 2);
    other.remove();
    until("one is left", || first.children() == [egress(room)]);
    // With the keeper all of it ends, however that ends.
    let (keeper, before) = (site.keeper().expect("it runs"), egress(room));
    site.note_keeper();
    keeper.signal(Signal::KILL);
    until("the session is well again", || {
        room.show().sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
    });
    until("nothing is left", || !first.runs() && !before.runs());
    assert_ne!(starter(room), first);
    let last = starter(room);
    site.leave();
    until("nothing is left", || !last.exists());
}

fn a_way_out_that_stands_still_is_ended(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    // With a session the daemon stays, and the keeper.
    let _other = site.plain_room();
    for daemons in 1..=2 {
        let room = open_room(&site, &server);
        let way_out = egress(room);
        if daemons == 2 {
            site.kill();
            site.start();
        }
        way_out.signal(Signal::STOP);
        room.remove();
        until("it is ended", || !way_out.exists());
    }
}

/// The numbers of the records that each process made, in order.
fn numbers(room: Room<'_>) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in room.site.records(&[("type", "network"), ("session", room.id())]) {
        if let (Some(egress), Some(number)) =
            (record.data["egress"].as_str(), record.data["number"].as_u64())
        {
            all.entry(egress.to_owned()).or_default().push(number);
        }
    }
    all
}

fn the_next_daemon_goes_on_with_the_network(person: Person) {
    let site = Site::new(person);
    let server = Server::start();
    let room = open_room(&site, &server);
    let way_out = egress(room);
    let number = room
        .sh(&format!("for i in $(seq 40); do {CURL} {} || exit 1; sleep 0.1; done", server.url()));
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(400));
        site.kill();
        let before = server.heard().len();
        until("it goes on without a daemon", || server.heard().len() > before + 1);
        site.start();
    }
    let _text = room.finish(number).text();
    assert_eq!(egress(room), way_out, "the same process serves on");
    assert_eq!(server.heard().len(), 40);
    until("every request is recorded", || {
        site.records(&[("type", "network.ended"), ("session", room.id())]).len() >= 40
    });
    let numbers = numbers(room);
    assert_eq!(numbers.len(), 1);
    for (egress, numbers) in numbers {
        let whole: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, whole, "{egress}: none is missing, none is there twice");
    }
    assert_eq!(traffic(room).hosts[0].requests, 40);
    // One that died while there was no daemon is replaced.
    site.kill();
    way_out.signal(Signal::KILL);
    site.start();
    until("another one is there", || {
        network(room).egress.is_some_and(|egress| egress.restarts == 1)
    });
    assert_eq!(room.run(&format!("{CURL} {}", server.url())).text(), ANSWER);
    // Rules can be changed by the new daemon.
    change(room, &json!({ "remove": [format!("allow {}", server.rule())] }));
    assert_ne!(room.run(&format!("{CURL} -f {}", server.url())).code, 0);
    site.verify();
}

fn get(port: u16) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn a_port_is_published_and_let_go_of(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.sh("cd /tmp; echo inner > file; exec python3 -um http.server 8765 2>&1");
    room.until_says(number, "Serving");
    let published: PublishedPort =
        typed(site.post(room.at("/network/ports"), &json!({ "inside": 8765 })));
    for _ in 0..20 {
        assert!(get(published.outside).expect("it is reached").contains("inner"));
    }
    assert_eq!(network(room).published, [published]);
    // Each is in the record, with its bytes, and none of them counts as having gone out.
    let ended = || site.records(&[("type", "network.ended"), ("session", room.id())]);
    until("every connection is recorded", || ended().len() == 20);
    for record in ended() {
        let data = record.data;
        assert_eq!(data["target"]["via"], "published", "{data}");
        assert_eq!(data["target"]["port"], 8765, "{data}");
        assert_eq!(data["listener"], published.outside, "{data}");
        let bytes = |way: &str| data[way].as_u64().expect("it is a number");
        assert_eq!(bytes("down"), "GET /file HTTP/1.0\r\n\r\n".len() as u64, "{data}");
        assert!(bytes("up") > "inner\n".len() as u64, "{data}");
    }
    assert_eq!(traffic(room).hosts, []);
    // It is published again by a process that is started again.
    egress(room).signal(Signal::KILL);
    until("it is reached again", || {
        get(published.outside).is_ok_and(|text| text.contains("inner"))
    });
    let problem =
        site.refused(Method::Post, room.at("/network/ports"), Some(&json!({ "inside": 0 })));
    assert_eq!((problem.status, problem.code.as_str()), (400, "malformed"));
    let taken = json!({ "inside": 8765, "outside": published.outside });
    let problem = site.refused(Method::Post, room.at("/network/ports"), Some(&taken));
    assert_eq!((problem.status, problem.code.as_str()), (409, "port-taken"));
    let target = room.at(&format!("/network/ports/{}", published.outside));
    site.ask(Method::Delete, target.clone(), None).expect("it is let go of");
    until("it is closed", || get(published.outside).is_err());
    assert_eq!(site.refused(Method::Delete, target, None).code, "no-port");
    let kinds: Vec<String> =
        site.records(&[("type", "network")]).into_iter().map(|record| record.kind).collect();
    for kind in ["network.published", "network.unpublished"] {
        assert!(kinds.iter().any(|known| known == kind), "{kinds:?}");
    }
}

fn what_cannot_be_is_refused(person: Person) {
    let site = Site::new(person);
    let rule = |host: &str| json!({ "network": { "rules": [{ "host": host }] } });
    let table = [
        (rule(""), 422, "bad-rule"),
        (rule("*"), 422, "bad-rule"),
        (rule("host"), 422, "bad-rule"),
        (rule("example.com:0"), 422, "bad-rule"),
        (json!({ "network": { "presets": ["nothing"] } }), 404, "no-preset"),
        (json!({ "network": { "secrets": ["nothing"] } }), 404, "no-secret"),
        (json!({ "network": { "otherwise": "allow" } }), 400, "malformed"),
    ];
    site.check_refusals("/v1/sessions", &table);
    assert!(site.sessions().is_empty());
    let presets = site.get("/v1/presets");
    let presets = presets.as_array().expect("a list");
    assert!(!presets.is_empty());
    for preset in presets {
        let body = json!({ "network": { "presets": [preset["name"]] }, "life": "once" });
        let room = site.room(&body);
        assert!(network(room).egress.is_some());
        room.remove();
    }
    let room = site.plain_room();
    for url in ["", "ftp", "gopher://x/", "http://a_b:99999/", "http:///x"] {
        let target = room.at(&format!("/network/explain?url={}", cowork_client::uri::segment(url)));
        if !url.is_empty() && url != "ftp" {
            assert_eq!(site.refused(Method::Get, target, None).code, "bad-url", "{url}");
        }
    }
}

fn what_cannot_be_enforced_stops_the_start_and_changes_nothing(person: Person) {
    // Where connections to every port do not arrive there is a socket for each port of the rules.
    let site = Site::with_file(person, "COWORK_CAPTURE", "ports".into());
    let hosts = |hosts: &[String]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({ "host": host })).collect();
        json!({ "network": { "rules": rules } })
    };
    let every = hosts(&["example.com:*".into()]);
    let many = hosts(&["example.com:2000-2100".into()]);
    let ports: Vec<String> = (2000..2101).map(|port| format!("example.com:{port}")).collect();
    let table = [
        (every.clone(), 422, "network-unenforceable"),
        (many, 422, "network-unenforceable"),
        (hosts(&ports), 422, "network-unenforceable"),
    ];
    site.check_refusals("/v1/sessions", &table);
    assert!(site.sessions().is_empty());
    // As many as there can be are no reason; then one more, while it runs, is.
    let server = Server::start();
    let mut most = vec![server.rule()];
    most.extend((2001..2100).map(|port| format!("example.com:{port}")));
    let room = site.room(&hosts(&most));
    for host in ["example.com:*", "example.com:2200"] {
        let add = json!({ "add": [{ "host": host }] });
        let problem = site.refused(Method::Patch, room.at("/network"), Some(&add));
        let told = (problem.status, problem.code.as_str());
        assert_eq!(told, (422, "network-unenforceable"), "{host}");
    }
    // The rules that were there are in force.
    assert_eq!(network(room).rules.len(), most.len());
    assert_eq!(room.run(&format!("{DIRECT} {}", server.url())).text(), ANSWER);
    room.remove();
}

//! What sessions ask for from inside, with the program they have for it, and what the user answers.

use crate::for_everyone;
use crate::look::{Process, until_some};
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::{HttpError, Method};
use cowork_client::types::{Request, RequestState};
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

for_everyone!(
    a_folder_that_was_asked_for_appears,
    no_is_an_answer,
    answers_are_remembered_as_far_as_they_were_meant,
    what_is_asked_is_bounded_and_plain,
    a_session_knows_of_its_own_requests_alone,
    requests_outlive_the_daemon_and_end_with_their_session,
    of_two_answers_at_a_time_one_is_carried_out,
    who_asks_is_told_by_the_kernel,
    what_was_granted_was_allowed_whenever_the_daemon_dies,
);

/// A line of the shell that asks, and prints the status and the answer.
fn asking(body: &Value) -> String {
    calling("/v1/ask", &format!("--json '{}'", body.to_string().replace('\'', "'\\''")))
}

fn calling(path: &str, options: &str) -> String {
    format!(
        "curl -s --unix-socket $COWORK_REQUESTS http://cowork{path} -w '\\n%{{http_code}}' {options}"
    )
}

/// The status and the answer that such a line printed.
#[track_caller]
fn answer(room: Room<'_>, number: u32) -> (u16, Value) {
    let text = room.finish(number).text();
    let (body, status) = text.rsplit_once('\n').expect("it has two parts");
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    (status.parse().expect("it is a number"), body)
}

#[track_caller]
fn ask(room: Room<'_>, body: &Value) -> (u16, Value) {
    answer(room, room.sh(&asking(body)))
}

fn wish(wanted: &str, wait: u64) -> Value {
    json!({ "wanted": wanted, "reason": "to test", "access": "ro", "wait": wait })
}

/// The requests of a session that wait.
fn pending(room: Room<'_>) -> Vec<Request> {
    let page = room.site.get(format!("/v1/requests?state=pending&session={}", room.id()));
    typed(page["items"].clone())
}

#[track_caller]
fn one_pending(room: Room<'_>) -> Request {
    until_some("it asks", || pending(room).pop())
}

fn decide(site: &Site, id: u64, body: &Value) -> Request {
    typed(site.post(format!("/v1/requests/{id}/decide"), body))
}

fn a_folder_that_was_asked_for_appears(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let folder = Folder::new(person, "invoices");
    folder.write("january", "12.50");
    let number = room.sh(&asking(&wish("last year's invoices", 60)));
    let request = one_pending(room);
    assert_eq!(
        (request.wanted.as_str(), request.reason.as_str()),
        ("last year's invoices", "to test")
    );
    assert_eq!(request.session, room.id());
    assert_eq!(room.show().pending, 1);
    let target = format!("/v1/requests/{}/decide", request.id);
    // Which folder is meant is for the user to say, and a sensitive one has to be meant.
    let problem = site.refused(Method::Post, &target, Some(&json!({ "decision": "allow_once" })));
    assert_eq!((problem.status, problem.code.as_str()), (422, "no-path"));
    let body = json!({ "decision": "allow_once", "path": person.home() });
    let problem = site.refused(Method::Post, &target, Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (403, "sensitive"));
    assert_eq!(pending(room).len(), 1, "a refused answer is none");
    let body = json!({ "decision": "allow_once", "path": folder.path(), "name": "invoices", "note": "here" });
    let decided = decide(&site, request.id, &body);
    assert_eq!(
        (decided.state, decided.grant.as_deref()),
        (RequestState::Allowed, Some("invoices"))
    );
    let (status, told) = answer(room, number);
    assert_eq!(status, 200);
    let at = format!("/sessions/{}/mnt/invoices", room.id());
    assert_eq!(
        told,
        json!({ "id": request.id, "state": "allowed", "at": at, "access": "ro", "note": "here" })
    );
    // Nothing of the host is told.
    assert!(!told.to_string().contains("/var/tmp"));
    assert_eq!(room.run(&format!("cat {at}/january")).text(), "12.50");
    assert_ne!(room.run(&format!("touch {at}/new")).code, 0);
    let folders = room.run(&calling("/v1/folders", "")).text();
    assert!(folders.contains(&at) && !folders.contains("/var/tmp"), "{folders}");
    let problem = site.refused(Method::Post, &target, Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (409, "answered"));
    assert_eq!(room.show().grants[0].request, Some(request.id));
    let kinds: Vec<String> = site
        .records(&[("session", room.id())])
        .into_iter()
        .map(|record| record.kind)
        .filter(|kind| kind.starts_with("request.") || kind.starts_with("grant."))
        .collect();
    assert_eq!(kinds, ["request.created", "grant.denied", "grant.added", "request.decided"]);
    site.verify();
}

fn no_is_an_answer(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let number = room.sh(&asking(&wish("everything", 60)));
    let request = one_pending(room);
    let body = json!({ "decision": "reject_once", "note": "no\u{1b}[2J way" });
    assert_eq!(decide(&site, request.id, &body).state, RequestState::Rejected);
    let (status, told) = answer(room, number);
    let expected = json!({ "id": request.id, "state": "rejected", "at": null, "access": null, "note": "no [2J way" });
    assert_eq!((status, told), (200, expected));
    assert!(room.grants().is_empty());
    // Without an answer the asker gets the request back after its time, and can look later.
    let begun = Instant::now();
    let (_, told) = ask(room, &wish("something", 1));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(told["state"], "pending");
    let (_, told) = ask(room, &wish("everything", 0));
    assert_eq!(told["state"], "pending", "no once is not no for ever");
    let later = calling(&format!("/v1/ask/{}", told["id"]), "");
    assert_eq!(answer(room, room.sh(&later)).1["state"], "pending");
    for request in pending(room) {
        decide(&site, request.id, &json!({ "decision": "reject_once" }));
    }
    assert_eq!(answer(room, room.sh(&later)).1["state"], "rejected");
}

fn answers_are_remembered_as_far_as_they_were_meant(person: Person) {
    let site = Site::new(person);
    let (one, two) = (site.plain_room(), site.plain_room());
    let (folder, other) = (Folder::new(person, "folder"), Folder::new(person, "other"));
    let say = |room: Room<'_>, wanted: &str, body: &Value| {
        let (_, told) = ask(room, &wish(wanted, 0));
        decide(&site, told["id"].as_u64().expect("it has a number"), body)
    };
    // For the session.
    let name = "folder";
    say(one, "mine", &json!({ "decision": "allow_session", "path": folder.path(), "name": name }));
    one.revoke(name);
    let (_, told) = ask(one, &wish("mine", 0));
    assert_eq!(told["state"], "allowed");
    assert_eq!(one.grants(), [name]);
    assert_eq!(
        ask(two, &wish("mine", 0)).1["state"],
        "pending",
        "another session is another matter"
    );
    let (_, told) = ask(one, &json!({ "wanted": "mine", "reason": "x", "access": "rw" }));
    assert_eq!(told["state"], "pending", "writing is another matter");
    // For good.
    say(one, "ours", &json!({ "decision": "allow_always", "path": other.path(), "name": "ours" }));
    assert_eq!(ask(two, &wish("ours", 0)).1["state"], "allowed");
    assert_eq!(two.grants(), ["ours"]);
    assert_eq!(ask(two, &wish("ours", 0)).1["state"], "allowed", "what it has it gets again");
    say(one, "secrets", &json!({ "decision": "reject_always" }));
    for room in [one, two] {
        assert_eq!(ask(room, &wish("secrets", 0)).1["state"], "rejected");
    }
    // Also by the next daemon.
    site.kill();
    site.start();
    assert_eq!(ask(two, &wish("secrets", 0)).1["state"], "rejected");
    site.verify();
}

fn what_is_asked_is_bounded_and_plain(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let long = "x".repeat(2001);
    let table = [
        (json!({ "wanted": long, "reason": "r" }), 422),
        (json!({ "wanted": "w", "reason": long }), 422),
        (json!({ "wanted": " ", "reason": "r" }), 422),
        (json!({ "wanted": "w" }), 400),
        (json!({ "wanted": "w", "reason": "r", "path": "/etc" }), 400),
        (json!({ "wanted": "w", "reason": "r", "access": "all" }), 400),
        (json!({ "wanted": "w", "reason": "r", "wait": -1 }), 400),
    ];
    for (body, expected) in &table {
        let (status, told) = ask(room, body);
        assert_eq!(status, *expected, "{body:.100}: {told}");
    }
    let huge = room.run(
        "head -c 300000 /dev/zero | tr '\\0' x | \
                         curl -s --unix-socket $COWORK_REQUESTS http://cowork/v1/ask --json @- \
                         -w '%{http_code}' -o /dev/null",
    );
    assert!(["400", "413"].contains(&huge.text().as_str()), "{huge:?}");
    assert!(pending(room).is_empty());
    // What a terminal would act on, or show in another order, does not come through.
    let hostile = "a\u{1b}]0;title\u{7}\u{9b}2J\r\nb\u{202e}c\u{2066}d";
    let (status, _) = ask(room, &json!({ "wanted": hostile, "reason": hostile }));
    assert_eq!(status, 200);
    let request = one_pending(room);
    let events = site.events(&[("type", "request.pending")]);
    let records = site.records(&[("type", "request.created")]);
    let texts = [
        request.wanted.clone(),
        request.reason,
        events[0].data["request"]["wanted"].as_str().expect("it is told").to_owned(),
        records[0].data["wanted"].as_str().expect("it is recorded").to_owned(),
    ];
    for text in texts {
        let acts = |c: char| {
            c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!text.contains(acts), "{text:?}");
        assert!(text.contains("title") && text.contains('d'), "{text:?}");
    }
    // More than a few at a time do not wait.
    for index in 1..16 {
        assert_eq!(ask(room, &wish(&format!("number {index}"), 0)).0, 200);
    }
    let (status, told) = ask(room, &wish("one more", 0));
    assert_eq!((status, told["code"].as_str()), (409, Some("too-many")));
    decide(&site, request.id, &json!({ "decision": "reject_once" }));
    assert_eq!(ask(room, &wish("one more", 0)).0, 200);
    assert_eq!(room.show().pending, 16);
    // Whoever opens every connection holds up itself alone.
    let hold = "import socket, time\nall = []\nfor _ in range(40):\n    \
                s = socket.socket(socket.AF_UNIX); s.settimeout(1)\n    \
                try: s.connect('/run/cowork.sock'); all.append(s)\n    except OSError: pass\n\
                print('held', flush=True); time.sleep(1000)";
    let number = room.start(&json!({ "argv": ["/usr/bin/python3", "-c", hold] }));
    room.until_says(number, "held");
    let other = site.plain_room();
    assert_eq!(ask(other, &wish("mine", 0)).0, 200);
    assert_eq!(room.run("echo still here").text(), "still here\n");
}

fn a_session_knows_of_its_own_requests_alone(person: Person) {
    let site = Site::new(person);
    let (one, two) = (site.plain_room(), site.plain_room());
    let (_, told) = ask(one, &wish("mine", 0));
    let own = calling(&format!("/v1/ask/{}", told["id"]), "");
    assert_eq!(answer(one, one.sh(&own)).0, 200);
    let (status, refused) = answer(two, two.sh(&own));
    assert_eq!((status, refused["code"].as_str()), (404, Some("no-request")));
    // Nothing of the daemon's own interface is there.
    for path in
        ["/v1/sessions", "/v1/info", "/v1/requests", "/v1/audit", "/v1/ask/x", "/v1/shutdown"]
    {
        let (status, _) = answer(two, two.sh(&calling(path, "")));
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    let (status, _) = answer(
        two,
        two.sh(&calling(&format!("/v1/requests/{}/decide", told["id"]), "--json '{}'")),
    );
    assert_eq!(status, 404);
    assert_eq!(pending(one).len(), 1);
}

fn requests_outlive_the_daemon_and_end_with_their_session(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let folder = Folder::new(person, "folder");
    let (_, told) = ask(room, &wish("later", 0));
    let id = told["id"].as_u64().expect("it has a number");
    site.kill();
    // Who asks while nobody is there is heard when somebody is.
    let waiting_inside = format!("{} --retry 0 --max-time 60", asking(&wish("meanwhile", 60)));
    site.start();
    let number = room.sh(&waiting_inside);
    let request = until_some("it asks", || pending(room).into_iter().find(|one| one.id != id));
    decide(&site, request.id, &json!({ "decision": "reject_once" }));
    assert_eq!(answer(room, number).1["state"], "rejected");
    let body = json!({ "decision": "allow_once", "path": folder.path(), "name": "folder" });
    assert_eq!(decide(&site, id, &body).state, RequestState::Allowed);
    let look = calling(&format!("/v1/ask/{id}"), "");
    assert_eq!(answer(room, room.sh(&look)).1["state"], "allowed");
    let (_, told) = ask(room, &wish("too late", 0));
    let late = told["id"].as_u64().expect("it has a number");
    room.remove();
    let record = site.records(&[("type", "request.decided")]).pop().expect("it is recorded");
    assert_eq!((&record.data["request"], &record.data["state"]), (&json!(late), &json!("expired")));
    let target = format!("/v1/requests/{late}/decide");
    let problem = site.refused(Method::Post, target, Some(&body));
    assert_eq!(problem.status, 404);
    for id in ["0", "99999", "x", "18446744073709551615"] {
        assert_eq!(
            site.refused(Method::Get, format!("/v1/requests/{id}"), None).status,
            404,
            "{id}"
        );
    }
}

/// What several answers at the same time got: their status, and the code of a problem.
fn decide_together(site: &Site, id: u64, answers: &[Value]) -> Vec<(u16, String)> {
    let together = Barrier::new(answers.len());
    let target = format!("/v1/requests/{id}/decide");
    thread::scope(|scope| {
        let say = |body| {
            let (target, together) = (&target, &together);
            scope.spawn(move || {
                together.wait();
                match site.ask(Method::Post, target, Some(body)) {
                    Ok(_) => (200, String::new()),
                    Err(HttpError::Problem(problem)) => (problem.status, problem.code),
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let said: Vec<_> = answers.iter().map(say).collect();
        said.into_iter().map(|said| said.join().expect("it was answered")).collect()
    })
}

fn of_two_answers_at_a_time_one_is_carried_out(person: Person) {
    const ROUNDS: usize = 4;
    let site = Site::new(person);
    let room = site.room(&json!({ "network": { "otherwise": "ask" } }));
    let folders = [Folder::new(person, "one"), Folder::new(person, "two")];
    let allow = |index: usize| {
        let path = folders[index].path();
        json!({ "decision": "allow_once", "path": path, "name": format!("folder-{index}") })
    };
    let reject = || json!({ "decision": "reject_once" });
    let pairs = [[allow(0), allow(1)], [allow(0), reject()], [reject(), allow(1)]];
    let mut closed = BTreeMap::new();
    for (index, pair) in pairs.iter().cycle().take(pairs.len() * ROUNDS).enumerate() {
        let (_, told) = ask(room, &wish(&format!("round {index}"), 0));
        let id = told["id"].as_u64().expect("it has a number");
        let mut got = decide_together(&site, id, pair);
        got.sort();
        assert_eq!(got, [(200, String::new()), (409, "answered".into())], "{pair:?}");
        let request: Request = typed(site.get(format!("/v1/requests/{id}")));
        let granted: Vec<String> = request.grant.clone().into_iter().collect();
        assert_eq!(room.grants(), granted, "what is there is what the one answer says");
        assert_eq!(request.state == RequestState::Allowed, granted.len() == 1);
        for name in &granted {
            room.revoke(name);
        }
        closed.insert(id, 1);
    }
    // An answer that cannot be carried out stands in nobody's way.
    let (_, told) = ask(room, &wish("last", 0));
    let id = told["id"].as_u64().expect("it has a number");
    let missing = json!({ "decision": "allow_once", "path": "/nowhere" });
    let mut got = decide_together(&site, id, &[missing, reject()]);
    got.sort();
    assert_eq!(got[0].0, 200);
    assert!([404, 409, 422].contains(&got[1].0), "{got:?}");
    closed.insert(id, 1);
    // A host is another kind, and so is what it leaves: a rule of the session.
    let curl = "curl -s -m 60 http://made-up.invalid/ > /dev/null";
    for round in 0..ROUNDS {
        let number = room.sh(curl);
        let request = one_pending(room);
        assert_eq!(request.kind, "host");
        let rule = json!({ "decision": "allow_session" });
        let no = reject();
        let answers = if round % 2 == 0 { [rule, no] } else { [no, rule] };
        let mut got = decide_together(&site, request.id, &answers);
        got.sort();
        assert_eq!(got, [(200, String::new()), (409, "answered".into())], "{answers:?}");
        closed.insert(request.id, 1);
        drop(room.ended(number));
        let decided: Request = typed(site.get(format!("/v1/requests/{}", request.id)));
        let rules = site.get(room.at("/network"))["rules"].to_string();
        let stands = rules.contains("made-up.invalid");
        assert_eq!(decided.state == RequestState::Allowed, stands, "{rules}");
        if stands {
            break;
        }
    }
    let mut decided = BTreeMap::new();
    for record in site.records(&[("type", "request.decided")]) {
        *decided.entry(record.data["request"].as_u64().expect("it has one")).or_insert(0) += 1;
    }
    assert_eq!(decided, closed, "each is decided once");
    site.verify();
}

fn what_was_granted_was_allowed_whenever_the_daemon_dies(person: Person) {
    const ROUNDS: u64 = 24;
    let site = Site::new(person);
    let room = site.plain_room();
    let folder = Folder::new(person, "folder");
    let body = json!({ "decision": "allow_once", "path": folder.path(), "name": "folder" });
    for round in 0..ROUNDS {
        let (_, told) = ask(room, &wish(&format!("round {round}"), 0));
        let id = told["id"].as_u64().expect("it has a number");
        let target = format!("/v1/requests/{id}/decide");
        thread::scope(|scope| {
            // It may be killed before it answers.
            scope.spawn(|| drop(site.ask(Method::Post, &target, Some(&body))));
            thread::sleep(Duration::from_micros(500 * round));
            site.kill();
        });
        site.start();
        let request: Request = typed(site.get(format!("/v1/requests/{id}")));
        let granted = room.grants();
        match request.state {
            RequestState::Allowed => assert_eq!(granted, ["folder"]),
            RequestState::Pending => {
                assert_eq!(granted, [""; 0], "{request:?}");
                let rejected = decide(&site, id, &json!({ "decision": "reject_once" }));
                assert_eq!(rejected.state, RequestState::Rejected);
            }
            RequestState::Rejected | RequestState::Expired => panic!("{request:?}"),
        }
        for name in &granted {
            room.revoke(name);
        }
    }
    site.verify();
}

fn who_asks_is_told_by_the_kernel(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    // Some other command, and one that asks by a child, under a name of its own.
    room.sh("sleep 1000");
    let python = "import ctypes, http.client, json, socket, sys\n\
        ctypes.CDLL(None).prctl(15, b'innocent\\x1b[2J', 0, 0, 0)\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect('/run/cowork.sock')\n\
        c = http.client.HTTPConnection('cowork')\n\
        c.sock = s\n\
        body = json.dumps({'wanted': 'invoices', 'reason': 'r', 'wait': 60})\n\
        c.request('POST', '/v1/ask', body, {'Content-Type': 'application/json'})\n\
        print(c.getresponse().status)";
    room.site.post(room.at("/commands"), &json!({ "argv": ["/bin/true"] }));
    let line = "/usr/bin/python3 -c \"$CODE\"; echo over";
    let number = room.start(&json!({ "shell": line, "env": { "CODE": python } }));
    let request = one_pending(room);
    let asker = request.asker.expect("the kernel tells");
    assert_eq!(asker.command, Some(number), "{asker:?}");
    assert_eq!(asker.program, "innocent?[2J", "plain, and what it calls itself");
    let process = Process::look(asker.pid).expect("it waits for its answer");
    let known = format!("NSpid:\t{}\t{}\n", asker.pid, asker.inside.expect("it has one"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", asker.pid)).expect("it runs");
    assert!(status.contains(&known), "{status}");
    assert!(process.exists());
    let records = site.records(&[("session", room.id()), ("type", "request.created")]);
    assert_eq!(records[0].data["asker"]["command"], json!(number), "{records:?}");
    assert_eq!(records[0].data["asker"]["pid"], json!(asker.pid), "{records:?}");
    decide(&site, request.id, &json!({ "decision": "reject_once" }));
    assert_eq!(room.finish(number).text(), "200\nover\n");
    // Whoever asks for the session from outside is nobody in it.
    let body = json!({ "wanted": "more", "reason": "r" });
    site.post(room.at("/requests"), &body);
    assert_eq!(one_pending(room).asker, None);
    site.verify();
}

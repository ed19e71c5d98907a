//! What is asked and recorded of sessions that run: their processes, the limits they meet, samples of
//! what they use, and what becomes of them when their sandbox fails.

use crate::for_everyone;
use crate::line::Line;
use crate::look::{Process, names, until, until_some};
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{Command, Event, Processes, State, Usage};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};

for_everyone!(
    a_process_is_found_by_name_and_by_id,
    samples_are_streamed,
    the_record_says_what_is_in_force,
    the_daemon_holds_no_capability,
    a_killed_first_process_is_noticed_within_a_heartbeat,
    a_sandbox_that_cannot_be_made_is_given_up,
    who_fails_again_and_again_can_be_stopped_and_removed,
);

fn find(room: Room<'_>, query: &str) -> Processes {
    typed(room.site.get(room.at(&format!("/processes{query}"))))
}

fn a_process_is_found_by_name_and_by_id(person: Person) {
    let site = Site::new(person);
    let (room, other) = (site.plain_room(), site.plain_room());
    assert_eq!(find(room, ""), Processes { running: false, processes: Vec::new() });
    let number = room.sh("exec sleep 1000");
    let found =
        until_some("it is found", || Some(find(room, "?name=sleep")).filter(|it| it.running));
    let inside = room.command(number).pid.expect("it runs");
    let [process] = found.processes.as_slice() else { panic!("there is one: {found:?}") };
    assert_eq!((process.name.as_str(), process.inside), ("sleep", Some(inside)));
    // Either id, alone or with the name; and nothing else.
    for query in [
        format!("?pid={inside}"),
        format!("?pid={}", process.pid),
        format!("?name=sleep&pid={inside}"),
        String::new(),
    ] {
        assert_eq!(find(room, &query), found, "{query}");
    }
    for query in ["?name=slee", "?name=Sleep", "?pid=999999", "?name=cowork-init", "?pid=1"] {
        assert!(!find(room, query).running, "{query}");
    }
    assert!(!find(room, &format!("?name=bash&pid={inside}")).running);
    assert!(!find(other, "?name=sleep").running, "that of another session is not its own");
    // Of a long name the kernel keeps the start, which is what is compared.
    let long = "a-program-with-a-long-name";
    room.sh(&format!("cp /bin/sleep /tmp/{long}; exec /tmp/{long} 1000"));
    until("it is found", || find(room, &format!("?name={long}")).running);
    let many = room.sh("for n in $(seq 300); do sleep 2000 & done; exec -a last sleep 3000");
    until("all of them run", || {
        let usage: Usage = typed(site.get(room.at("/usage")));
        usage.processes > 300
    });
    // Some may be shells still.
    until("as many as are told are found", || find(room, "?name=sleep").processes.len() == 256);
    let last = room.command(many).pid.expect("it runs");
    assert!(find(room, &format!("?pid={last}")).running, "it is found among however many");
    room.tell("stop");
    assert!(!find(room, "?name=sleep").running);
}

/// What a session with these limits is recorded to have met, after a script of Python.
fn met(site: &Site, body: &Value, script: &str) -> Vec<(String, u64)> {
    let room = site.room(body);
    let body = json!({ "argv": ["/usr/bin/python3", "-c", script] });
    let mut line = Line::start(room, &body);
    let _heard = line.hear_all();
    drop(line);
    let records = || site.records(&[("type", "limit.hit"), ("session", room.id())]);
    // A command that succeeds is told to have ended first.
    until("it is recorded", || !records().is_empty());
    let records = records().into_iter();
    let limit = |data: &Value| data["limit"].as_str().expect("it is named").to_owned();
    let times = |data: &Value| data["times"].as_u64().expect("it is a number");
    records.map(|record| (limit(&record.data), times(&record.data))).collect()
}

/// Why a command ended, if that is said.
fn code(command: &Command) -> Option<&str> {
    command.reason.as_ref().map(|reason| reason.code.as_str())
}

/// Limits of an ordinary user are kept by means that count nothing.
#[test]
fn limits_that_are_met_are_recorded() {
    let site = Site::new(Person::Root);
    let greedy = "b = bytearray(400_000_000)";
    let crowd = "import os, signal\nmade = []\ntry:\n  while True:\n    pid = os.fork()\n    \
                 if pid == 0: signal.pause()\n    made.append(pid)\nexcept OSError: pass\n\
                 for pid in made: os.kill(pid, 9)";
    for life in ["kept", "once"] {
        let memory = json!({ "life": life, "limits": { "memory": "64M" } });
        assert_eq!(met(&site, &memory, greedy), [("memory".to_owned(), 1)], "{life}");
        let processes = json!({ "life": life, "limits": { "processes": 20 } });
        assert_eq!(met(&site, &processes, crowd), [("processes".to_owned(), 1)], "{life}");
    }
    // What was met is recorded once, also when a later command is looked at.
    let room = site.room(&json!({ "limits": { "memory": "64M" } }));
    let body = json!({ "argv": ["/usr/bin/python3", "-c", greedy] });
    let hits = || site.records(&[("type", "limit.hit"), ("session", room.id())]);
    let records = || hits().len();
    // One that was killed for it says so, and the record says which one; any other is none of it.
    let lasting = room.sh("exec sleep 1000");
    for round in 1..=2 {
        let killed = room.ended(room.start(&body));
        assert_eq!(killed.signal, Some(9));
        assert_eq!(code(&killed), Some("memory"), "{killed:?}");
        assert_eq!(code(&room.run("exit 3").command), None);
        assert_eq!(records(), round);
        assert_eq!(hits()[round - 1].data["command"], json!(killed.number));
    }
    let line = format!("/usr/bin/python3 -c '{greedy}'; exit $?");
    let child = room.ended(room.sh(&line));
    assert_eq!((child.code, child.signal, code(&child)), (Some(137), None, Some("memory")));
    let signal = json!({ "signal": 9 });
    room.site.post(room.at(&format!("/commands/{lasting}/signal")), &signal);
    let killed = room.ended(lasting);
    assert_eq!((killed.signal, code(&killed)), (Some(9), None), "{killed:?}");
    assert_eq!(records(), 3);
    // Also by another daemon.
    site.kill();
    site.start();
    assert_eq!(room.run("exit 4").code, 4);
    assert_eq!(records(), 3);
    assert_eq!(room.ended(room.start(&body)).signal, Some(9));
    assert_eq!(records(), 4);
    // One that was killed while no daemon was there.
    let late = format!("import sys; sys.stdin.readline(); {greedy}");
    let late = room.start(&json!({
        "argv": ["/usr/bin/python3", "-c", late], "streams": { "stdin": "pipe" },
    }));
    let close = room.at(&format!("/commands/{late}/stdin?close=true"));
    site.ask(Method::Post, close, None).expect("its input can be ended");
    site.kill();
    std::thread::sleep(Duration::from_secs(1));
    site.start();
    let late = room.ended(late);
    assert_eq!((late.signal, code(&late)), (Some(9), Some("memory")), "{late:?}");
    assert_eq!(records(), 5);
    site.verify();
}

fn samples_are_streamed(person: Person) {
    let site = Site::new(person);
    let (room, idle) = (site.plain_room(), site.plain_room());
    let once = site.room(&json!({ "life": "once" }));
    let work = "head -c 3M /dev/urandom > file; sync file; \
                dd if=file of=/dev/null bs=1M iflag=direct 2> /dev/null; echo done; exec sleep 1000";
    let mut line = Line::start(once, &json!({ "shell": work }));
    drop(line.hear_until("done"));
    let number = room.sh(work);
    room.until_says(number, "done");
    let client = Client::connect(&site.socket()).expect("the daemon listens");
    let request =
        Request::get("/v1/events?type=usage.sample&after=end").with("Accept", "text/event-stream");
    let mut stream = client.open(&request, None).expect("events are streamed");
    let mut text = String::new();
    let samples = |text: &str| -> Vec<Event> {
        let whole = text.rfind("\n\n").map_or("", |end| text.split_at(end).0);
        let data = whole.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("it is an event")).collect()
    };
    let of = |samples: &[Event], room: Room<'_>| {
        samples.iter().filter(|one| one.session.as_deref() == Some(room.id())).count()
    };
    // Each that does something, twice; by then one that does nothing was passed over.
    let end = Instant::now() + Duration::from_secs(45);
    while of(&samples(&text), room) < 2 || of(&samples(&text), once) < 2 {
        assert!(Instant::now() < end, "no samples: {text}");
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).expect("it goes on");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    let samples = samples(&text);
    assert!(samples.iter().all(|sample| sample.kind == "usage.sample"));
    assert!(of(&samples, idle) < 2, "nothing happens there");
    for room in [room, once] {
        let last = samples.iter().rfind(|one| one.session.as_deref() == Some(room.id()));
        let usage = &last.expect("there is one").data["usage"];
        let usage: Usage = serde_json::from_value(usage.clone()).expect("it is complete");
        assert!(usage.processes >= 1 && usage.wall_ms >= 1000, "{usage:?}");
        assert!(usage.listed.iter().any(|process| process.name == "sleep"), "{usage:?}");
    }
    let history: Vec<Usage> = typed(site.get(room.at("/usage/history?limit=1000"))["items"].take());
    assert!(history.len() >= 2, "{history:?}");
    // Its home is on a disk.
    let last = history.last().expect("there is one");
    assert!(last.written >= 3 << 20 && last.read >= 3 << 20, "{history:?}");
    // A process that was left behind is sampled too.
    room.tell_command(number, "cancel", &json!({}));
    assert_eq!(room.run("setsid sleep 1001 > /dev/null 2>&1 & exit 0").code, 0);
    until("nothing runs", || room.state() == State::Ready);
    let before = site.events(&[("type", "usage.sample"), ("session", room.id())]).len();
    let count = || site.events(&[("type", "usage.sample"), ("session", room.id())]).len();
    until("the first is there", || count() > before);
    until("another is there", || count() > before + 1);
}

fn the_record_says_what_is_in_force(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.plain_room();
    let ready = site.records(&[("type", "session.ready"), ("session", room.id())]);
    let [ready] = ready.as_slice() else { panic!("there is one: {ready:?}") };
    let shown = room.show();
    assert!(shown.enforcement.len() > 5, "{shown:?}");
    let told = serde_json::to_value(&shown.enforcement).expect("it can be written");
    assert_eq!(ready.data["enforcement"], told);
    let limits = ready.data["limits"].as_array().expect("it is a list");
    assert!(limits.iter().any(|limit| limit["limit"] == "processes"), "{limits:?}");
    assert_eq!(ready.data["sandbox"], json!(shown.sandbox.expect("it has one").pid));
    let name = room.grant(work.path(), "rw").name;
    room.regrant(&name, "ro");
    let changed = site.records(&[("type", "grant.changed"), ("session", room.id())]);
    let [changed] = changed.as_slice() else { panic!("there is one: {changed:?}") };
    assert_eq!((&changed.data["name"], &changed.data["access"]), (&json!(name), &json!("ro")));
    site.verify();
}

fn the_daemon_holds_no_capability(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    assert_eq!(room.run("echo works").text(), "works\n");
    let pid = site.info().expect("it answers").pid;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let mut threads = 0;
    for task in tasks.flatten() {
        // A thread may have ended by now.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let line = status.lines().find(|line| line.starts_with(set)).expect("it is told");
            assert!(line.ends_with("\t0000000000000000"), "{line}");
        }
        threads += 1;
    }
    assert!(threads > 1, "all of its threads were looked at");
}

fn a_killed_first_process_is_noticed_within_a_heartbeat(person: Person) {
    /// The time between two heartbeats, and as much again for a busy machine.
    const BEAT: Duration = Duration::from_secs(4);
    let site = Site::new(person);
    let room = site.plain_room();
    let init = Process::look(room.show().sandbox.expect("it has one").pid).expect("it runs");
    init.signal(Signal::KILL);
    let killed = Instant::now();
    until("it is noticed", || {
        !site.events(&[("session", room.id()), ("type", "session.lost")]).is_empty()
    });
    assert!(killed.elapsed() < BEAT, "it took {:?}", killed.elapsed());
    until("it is back", || room.state() == State::Ready);
}

/// A session whose sandbox is lost and cannot be made: its place for outputs is another folder.
fn lose<'a>(site: &'a Site, place: &Folder) -> Room<'a> {
    place.write("outputs/file", "");
    let outputs = place.path().join("outputs");
    let room = site.room(&json!({ "outputs": outputs }));
    // Another folder in its place is not the one that was named.
    std::fs::rename(&outputs, place.path().join("before")).expect("the folder is ours");
    place.write("outputs/file", "");
    let init = Process::look(room.show().sandbox.expect("it has one").pid).expect("it runs");
    init.signal(Signal::KILL);
    room
}

/// The same, after the first tries.
fn lost_for_good(site: &Site, place: &Folder) -> String {
    let room = lose(site, place);
    let tried = || site.events(&[("session", room.id()), ("type", "session.retry")]);
    // Four, or eight, seconds pass until the next try.
    until("it was tried", || tried().len() >= 3);
    assert_eq!(room.state(), State::Creating);
    room.id().to_owned()
}

fn who_fails_again_and_again_can_be_stopped_and_removed(person: Person) {
    let site = Site::with(person, &["--pool", "0", "--stay"]);
    let (place, other) = (Folder::new(person, "place"), Folder::new(person, "place"));
    let id = lost_for_good(&site, &place);
    let begun = Instant::now();
    let labels = json!({ "labels": { "seen": "yes" } });
    let room = site.known_room(&id);
    site.ask(Method::Patch, room.at(""), Some(&labels)).expect("it can be changed");
    assert_eq!(room.tell("stop").state, State::Stopped);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    // Nobody makes it again, and whoever starts it is told why that fails.
    let refused = site.refused(Method::Post, room.at("/start"), Some(&json!({})));
    assert_eq!(refused.code, "folder-changed", "{refused:?}");
    std::fs::rename(place.path().join("outputs"), place.path().join("after")).expect("it is ours");
    std::fs::rename(place.path().join("before"), place.path().join("outputs")).expect("it is ours");
    let id = lost_for_good(&site, &other);
    let begun = Instant::now();
    site.known_room(&id).remove();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    // Longer than until the next try.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(room.state(), State::Failed);
    assert!(site.sessions().iter().all(|session| session.id != id));
    assert!(!names(&site.state().join("sessions")).contains(&id));
    let kinds: Vec<String> =
        site.records(&[("session", &id)]).into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds.last().map(String::as_str), Some("session.removed"), "{kinds:?}");
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("echo back").text(), "back\n");
    site.verify();
}

fn a_sandbox_that_cannot_be_made_is_given_up(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let place = Folder::new(person, "place");
    let outputs = place.path().join("outputs");
    let room = lose(&site, &place);
    let end = Instant::now() + Duration::from_mins(1);
    while room.state() != State::Failed {
        assert!(Instant::now() < end, "it was not given up: {:?}", room.show());
        std::thread::sleep(Duration::from_millis(50));
    }
    let retries = site.events(&[("session", room.id()), ("type", "session.retry")]);
    let times: Vec<u64> = retries.iter().map(|retry| millis(&retry.time)).collect();
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // At once, then after 1, 2, 4 and 8 seconds.
    assert_eq!(times.len(), 5, "{retries:?}");
    for (wait, least) in waits.iter().zip([1000, 2000, 4000, 8000]) {
        assert!((least..least + 3000).contains(&(wait + 20)), "{waits:?}");
    }
    let reason = room.show().reason.expect("it says why");
    assert!(reason.contains("again and again"), "{reason}");
    assert_eq!(site.records(&[("type", "session.failed"), ("session", room.id())]).len(), 1);
    // When the folder is back, so is the session.
    std::fs::rename(&outputs, place.path().join("after")).expect("the folder is ours");
    std::fs::rename(place.path().join("before"), &outputs).expect("the folder is ours");
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("echo back").text(), "back\n");
    site.verify();
}

/// Milliseconds of the day at a moment.
fn millis(time: &str) -> u64 {
    let (_, clock) = time.trim_end_matches('Z').split_once('T').expect("it is a moment");
    let mut parts = clock.split(':').map(|part| part.parse::<f64>().expect("it is a number"));
    let mut next = || parts.next().expect("it has three parts");
    let seconds = (next() * 60.0 + next()) * 60.0 + next();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of day")]
    let millis = (seconds * 1000.0) as u64;
    millis
}

/// As an ordinary user all sessions have the same user id, and their homes one owner.
#[test]
fn the_home_of_an_ended_session_is_unreadable_to_a_later_one() {
    let site = Site::new(Person::Root);
    let one = site.plain_room();
    assert_eq!(one.run("echo secret > ~/file; chmod 644 ~/file").code, 0);
    one.tell("stop");
    let home = site.state().join("sessions").join(one.id()).join("home");
    assert_eq!(std::fs::read_to_string(home.join("file")).ok().as_deref(), Some("secret\n"));
    // It is shown everything that sessions keep, and that is not enough.
    let later = site.plain_room();
    let all = json!({ "path": site.state().join("sessions"), "access": "ro", "name": "all",
                      "force": true });
    site.post(later.at("/grants"), &all);
    let seen = later.run(&format!("ls mnt/all/{}", one.id())).text();
    assert!(seen.contains("home"), "{seen}");
    let tried = later.run(&format!("cat mnt/all/{}/home/file; ls mnt/all/{0}/home", one.id()));
    assert_ne!(tried.code, 0);
    let said = String::from_utf8_lossy(&tried.err).into_owned();
    assert_eq!(said.matches("Permission denied").count(), 2, "{said}");
    assert!(tried.out.is_empty(), "{tried:?}");
}

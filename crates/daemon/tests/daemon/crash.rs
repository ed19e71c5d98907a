//! The daemon killed at any moment: what it said is so, what it had not said is told or undone, and
//! what ran goes on.

use crate::for_everyone;
use crate::line::Line;
use crate::look::{Chance, joined, names, until};
use crate::room::{Room, name_of, typed};
use crate::site::{Site, lock};
use cowork_audit::Ledger;
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{Access, Command, CommandState, Session, State};
use cowork_client::uri::Query;
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

for_everyone!(
    killed_while_sessions_are_made_and_removed,
    killed_while_calls_with_keys_are_sent_again,
    killed_while_folders_come_and_go,
    killed_while_commands_start_and_end,
    killed_while_output_comes,
    killed_while_a_session_is_paused_stopped_and_started,
    an_end_that_is_recorded_and_not_kept_is_recorded_once,
    a_start_that_is_recorded_and_not_kept_has_an_end,
    a_question_that_is_recorded_and_not_kept_has_expired,
    what_is_recorded_and_not_kept_is_finished,
    commands_of_a_session_that_cannot_be_taken_over_end,
);

/// What whoever works while the daemon is killed needs to know, and tells.
#[derive(Default)]
struct Fire {
    over: AtomicBool,
    done: AtomicU32,
}

impl Fire {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Notes what was answered, if anything was; if not, waits a moment before the next call.
    fn note<T>(&self, answer: Option<&T>) {
        if answer.is_some() {
            self.done.fetch_add(1, Ordering::Relaxed);
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Does something over and over in another thread, and kills and starts the daemon meanwhile: so
/// often, or on a slow machine more often, until something was done at all.
fn under_fire(site: &Site, kills: u32, work: impl Fn(&Fire) + Sync) {
    const ENOUGH: u32 = 10;
    let fire = Fire::default();
    let mut chance = Chance::new();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| work(&fire));
        let mut count = 0;
        while !busy.is_finished()
            && (count < kills || (fire.done.load(Ordering::Relaxed) < ENOUGH && count < 10 * kills))
        {
            chance.sleep(300_000);
            site.kill();
            site.start();
            count += 1;
        }
        fire.over.store(true, Ordering::Relaxed);
        busy.join().expect("the other thread does not fail");
    });
}

/// Whether an answer came at all. Anything else than a broken connection is a failure.
#[track_caller]
fn answered(answer: Result<Value, HttpError>) -> Option<Value> {
    match answer {
        Ok(answer) => Some(answer),
        Err(HttpError::NotRunning { .. } | HttpError::Broken { .. }) => None,
        Err(error) => panic!("refused: {error:?}"),
    }
}

fn killed_while_sessions_are_made_and_removed(person: Person) {
    let site = Site::new(person);
    let made: Mutex<BTreeSet<String>> = Mutex::default();
    let removed: Mutex<BTreeSet<String>> = Mutex::default();
    // Asked for, and nobody said what became of it.
    let doubtful: Mutex<BTreeSet<String>> = Mutex::default();
    under_fire(&site, 10, |fire| {
        let mut chance = Chance::new();
        while fire.goes_on() {
            let some = lock(&made).first().cloned();
            match some {
                Some(id) if chance.below(2) == 0 => {
                    lock(&made).remove(&id);
                    let gone = site.ask(Method::Delete, format!("/v1/sessions/{id}"), None);
                    let known = match gone {
                        // A client repeats a removal that nobody answered by itself.
                        Err(HttpError::Problem(problem)) => {
                            assert_eq!(problem.code, "no-session", "{problem:?}");
                            true
                        }
                        other => answered(other).is_some(),
                    };
                    lock(if known { &removed } else { &doubtful }).insert(id);
                    fire.note(known.then_some(&()));
                }
                _ => {
                    let new = answered(site.ask(Method::Post, "/v1/sessions", Some(&json!({}))));
                    if let Some(new) = &new {
                        let session: Session = typed(new.clone());
                        assert_eq!(session.state, State::Ready);
                        lock(&made).insert(session.id);
                    }
                    fire.note(new.as_ref());
                }
            }
        }
    });
    let (made, removed, doubtful) = (lock(&made), lock(&removed), lock(&doubtful));
    println!("{} made, {} removed, {} in doubt", made.len(), removed.len(), doubtful.len());
    assert!(made.len() + removed.len() + doubtful.len() >= 5, "nothing happened");
    let listed: BTreeMap<String, Session> =
        site.sessions().into_iter().map(|session| (session.id.clone(), session)).collect();
    for id in made.iter() {
        let session = listed.get(id).unwrap_or_else(|| panic!("{id} was made and is gone"));
        assert_eq!(session.state, State::Ready, "{session:?}");
        assert_eq!(site.known_room(id).run("echo alive").text(), "alive\n");
    }
    for id in removed.iter() {
        assert!(!listed.contains_key(id), "{id} was removed and is there");
    }
    // Whatever else there is was being made, and is whole or says that it is not.
    for (id, session) in listed.iter().filter(|(id, _)| !made.contains(*id)) {
        match session.state {
            State::Ready => assert_eq!(site.known_room(id).run("echo alive").text(), "alive\n"),
            State::Failed => assert!(session.reason.is_some(), "{session:?}"),
            _ => panic!("{session:?}"),
        }
    }
    check_nothing_orphaned(&site);
    for id in listed.keys() {
        site.known_room(id).remove();
    }
    site.verify();
}

/// Sends a call with a key until it is answered.
fn insist(site: &Site, key: &str, target: &str, body: &Value) -> Value {
    loop {
        let request = Request::new(Method::Post, target).with("Idempotency-Key", key);
        let sent = Client::connect(&site.socket()).and_then(|mut client| {
            let answer = client.call(&request.with_json(body))?;
            Ok(serde_json::from_slice(&answer).expect("answers are JSON"))
        });
        match answered(sent) {
            Some(answer) => return answer,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn killed_while_calls_with_keys_are_sent_again(person: Person) {
    let site = Site::new(person);
    let host = Folder::new(person, "log");
    let room = site.room(&json!({ "grants": [{ "path": host.path(), "name": "log" }] }));
    let made: Mutex<BTreeMap<String, String>> = Mutex::default();
    let run: Mutex<BTreeMap<String, u32>> = Mutex::default();
    under_fire(&site, 30, |fire| {
        let mut count = 0;
        while fire.goes_on() {
            count += 1;
            let key = format!("session {count}");
            let body = json!({ "labels": { "key": key } });
            let session: Session = typed(insist(&site, &key, "/v1/sessions", &body));
            lock(&made).insert(key, session.id);
            let key = format!("command {count}");
            let body = json!({ "shell": format!("echo {count} >> mnt/log/log") });
            let command: Command = typed(insist(&site, &key, &room.at("/commands"), &body));
            lock(&run).insert(count.to_string(), command.number);
            fire.note(Some(&()));
        }
    });
    let (made, run) = (lock(&made), lock(&run));
    println!("{} sessions, {} commands", made.len(), run.len());
    let listed: Vec<(String, String)> = site
        .sessions()
        .into_iter()
        .filter_map(|session| Some((session.labels.get("key")?.clone(), session.id)))
        .collect();
    assert_eq!(listed.len(), made.len(), "one session for each key: {listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeMap<_, _>>(), *made);
    let ended: BTreeMap<&str, Command> =
        run.iter().map(|(key, number)| (key.as_str(), room.ended(*number))).collect();
    let log = host.read("log").unwrap_or_default();
    for (key, command) in &ended {
        let times = log.lines().filter(|line| line == key).count();
        match command.state {
            CommandState::Exited => assert_eq!(times, 1, "{command:?}"),
            // Recorded, and never started.
            CommandState::Interrupted => assert_eq!(times, 0, "{command:?}"),
            _ => panic!("{command:?}"),
        }
    }
    assert_eq!(log.lines().count(), ended.values().filter(|one| one.code == Some(0)).count());
    // Whatever its answer, a key is good for one thing.
    let (key, body) = ("session 1", json!({ "labels": { "key": "another" } }));
    let request = Request::new(Method::Post, "/v1/sessions").with("Idempotency-Key", key);
    match site.client().call(&request.with_json(&body)) {
        Err(HttpError::Problem(problem)) => assert_eq!(problem.code, "key-reused"),
        other => panic!("{other:?}"),
    }
    check_nothing_orphaned(&site);
    site.verify();
}

/// Every sandbox is that of a session that is shown as live, or in the pool; and so is every folder.
#[track_caller]
pub(crate) fn check_nothing_orphaned(site: &Site) {
    let place = format!("/{}/sessions/", name_of(site.state()));
    let end = Instant::now() + crate::look::PATIENCE;
    loop {
        let pooled = usize::try_from(site.info().expect("it answers").pooled).expect("it is small");
        let sessions = site.sessions();
        let live: BTreeSet<&str> = sessions
            .iter()
            .filter(|session| session.sandbox.is_some())
            .map(|session| session.id.as_str())
            .collect();
        let all: BTreeSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
        let running: BTreeSet<String> = crate::look::holders(&place)
            .into_iter()
            .filter(|process| process.name == "cowork-init")
            .filter_map(|process| {
                let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", process.pid));
                let mounts = mounts.ok()?;
                let (_, rest) = mounts.split_once(&place)?;
                Some(rest.split('/').next()?.to_owned())
            })
            .collect();
        let of = |ids: &BTreeSet<&str>, id: &String| ids.contains(id.as_str());
        let spare: Vec<&String> = running.iter().filter(|id| !of(&live, id)).collect();
        let folders = names(&site.state().join("sessions"));
        let strange: Vec<&String> = folders.iter().filter(|id| !of(&all, id)).collect();
        let missing: Vec<&&str> = live.iter().filter(|id| !running.contains(**id)).collect();
        if missing.is_empty() && spare.len() == pooled && strange.len() == pooled {
            return;
        }
        assert!(
            Instant::now() < end,
            "sandboxes of nobody: {spare:?}; folders of nobody: {strange:?}; sessions without \
             sandbox: {missing:?}; {pooled} pooled"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn killed_while_folders_come_and_go(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let folders: Vec<Folder> = (0..4).map(|_| Folder::new(person, "folder")).collect();
    // What is known of each folder: granted with an access, not granted, or in doubt.
    let known: Mutex<BTreeMap<String, Option<Option<Access>>>> = Mutex::default();
    under_fire(&site, 12, |fire| {
        let mut chance = Chance::new();
        let mut index = 0;
        while fire.goes_on() {
            index = (index + 1) % folders.len();
            let name = format!("folder-{index}");
            let before = lock(&known).get(&name).copied();
            let access = if chance.below(2) == 0 { Access::Read } else { Access::Write };
            let one = room.at(&format!("/grants/{name}"));
            let path = folders[index].path();
            // Each step is tried until somebody answers; what was in doubt may be done already.
            let (answer, after) = match before {
                None | Some(Some(None)) => {
                    let body = json!({ "path": path, "name": name, "access": access });
                    (site.ask(Method::Post, room.at("/grants"), Some(&body)), Some(access))
                }
                Some(None) => (site.ask(Method::Delete, one, None), None),
                Some(Some(Some(now))) if now != access => {
                    let body = json!({ "access": access });
                    (site.ask(Method::Patch, one, Some(&body)), Some(access))
                }
                Some(Some(Some(_))) => (site.ask(Method::Delete, one, None), None),
            };
            let state = match answer {
                Ok(_) => Some(after),
                // A client repeats a revocation that nobody answered by itself.
                Err(HttpError::Problem(problem)) if after.is_none() => {
                    assert_eq!(problem.code, "no-grant", "{problem:?}");
                    Some(None)
                }
                Err(error) => {
                    answered(Err(error));
                    None
                }
            };
            fire.note(state.as_ref());
            lock(&known).insert(name, state);
        }
    });
    let shown: BTreeMap<String, Access> =
        room.show().grants.into_iter().map(|grant| (grant.name, grant.access)).collect();
    for (name, state) in lock(&known).iter() {
        if let Some(state) = state {
            assert_eq!(shown.get(name), state.as_ref(), "{name}: {shown:?}");
        }
    }
    // What is shown is what the session sees.
    let line = "for f in mnt/folder-*; do [ -d $f ] || continue; echo -n \"${f#mnt/} \"; \
                if touch $f/probe 2>/dev/null; then echo rw; else echo ro; fi; done";
    let seen = room.run(line).text();
    let expected = joined(shown.iter().map(|(name, access)| {
        format!("{name} {}\n", if *access == Access::Read { "ro" } else { "rw" })
    }));
    assert_eq!(seen, expected);
    let told = room.run("grep -o 'mnt/folder-.' COWORK.md | sort").text();
    let expected = joined(shown.keys().map(|name| format!("mnt/{name}\n")));
    assert_eq!(told, expected);
    for name in shown.keys() {
        room.revoke(name);
    }
    assert_eq!(room.run("ls -d mnt/folder-* 2>/dev/null | wc -l").text(), "0\n");
    assert_eq!(room.show().sandbox.expect("it runs").restarts, 0, "nothing was lost");
    site.verify();
}

fn killed_while_commands_start_and_end(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let started: Mutex<BTreeMap<String, Option<u32>>> = Mutex::default();
    under_fire(&site, 12, |fire| {
        let mut index = 0;
        while fire.goes_on() {
            index += 1;
            let token = format!("token-{index}-");
            let line = format!("echo {token} >> mnt/work/log; exit {}", index % 200);
            let body = json!({ "argv": ["bash", "-c", line] });
            let answer = answered(site.ask(Method::Post, room.at("/commands"), Some(&body)));
            let number = answer.map(|answer| typed::<Command>(answer).number);
            fire.note(number.as_ref());
            lock(&started).insert(token, number);
        }
    });
    until("every command is over", || room.show().running.is_empty());
    let listed: Vec<Command> = site
        .client()
        .list(&Query::new(room.at("/commands")).with("limit", "50"))
        .expect("they can be listed");
    let log = work.read("log").unwrap_or_default();
    let started = lock(&started);
    println!("{} commands, {} listed", started.len(), listed.len());
    assert!(started.len() >= 10, "nothing happened");
    for (token, number) in started.iter() {
        let ran = log.lines().filter(|line| line == token).count();
        let of_it =
            |command: &&Command| command.argv.iter().any(|word| word.lossy().contains(token));
        let found: Vec<&Command> = listed.iter().filter(of_it).collect();
        assert!(found.len() <= 1, "{token} is there twice");
        match (number, found.first()) {
            (Some(number), Some(command)) => {
                assert_eq!(command.number, *number);
                assert_eq!((command.state, ran), (CommandState::Exited, 1), "{command:?}");
            }
            (Some(_), None) => panic!("{token} was started and nobody knows it"),
            (None, Some(command)) if command.state == CommandState::Exited => assert_eq!(ran, 1),
            (None, Some(command)) => {
                assert_eq!((command.state, ran), (CommandState::Interrupted, 0), "{command:?}");
                assert_eq!(
                    command.reason.as_ref().map(|why| why.code.as_str()),
                    Some("not-started")
                );
            }
            (None, None) => assert_eq!(ran, 0, "{token} ran and nobody knows it"),
        }
        if let Some(command) = found.first().filter(|command| command.state == CommandState::Exited)
        {
            let index: u32 =
                token.split('-').nth(1).and_then(|part| part.parse().ok()).expect("it has one");
            assert_eq!(command.code.map(u32::from), Some(index % 200), "{command:?}");
        }
    }
    site.verify();
}

/// Writes numbers to standard output and to standard error, with a pause now and then.
const COUNT: &str = "import sys, time, random
n = int(sys.argv[1])
for i in range(n):
    sys.stdout.write('%08d\\n' % i)
    if i % 3 == 0: sys.stderr.write('e%07d\\n' % i)
    if random.random() < 0.0002:
        sys.stdout.flush(); sys.stderr.flush(); time.sleep(random.random() / 20)
";

fn killed_while_output_comes(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let lines = 120_000;
    let argv = json!(["/usr/bin/python3", "-c", COUNT, lines.to_string()]);
    let numbers: Vec<u32> = (0..2).map(|_| room.start(&json!({ "argv": argv }))).collect();
    let on_terminal = room.start(&json!({
        "argv": ["/usr/bin/python3", "-c", COUNT, "30000"],
        "streams": { "stdin": "terminal", "stdout": "terminal", "stderr": "pipe" },
    }));
    // Somebody follows it, and takes it up again where it broke off.
    let followed = Mutex::new(Vec::new());
    under_fire(&site, 8, |fire| {
        while fire.goes_on() {
            let from = lock(&followed).len();
            let Ok(mut line) = Line::try_attach(room, numbers[0], &from.to_string()) else {
                fire.note(None::<&()>);
                continue;
            };
            fire.note(Some(&()));
            while let Ok(Some((channel, bytes))) = line.frame() {
                use cowork_client::stream::ChannelId;
                if matches!(channel, ChannelId::Stdout | ChannelId::Stderr) {
                    lock(&followed).extend(bytes);
                }
            }
        }
    });
    let out = joined((0..lines).map(|number| format!("{number:08}\n")));
    let err = joined((0..lines).step_by(3).map(|number| format!("e{number:07}\n")));
    for number in &numbers {
        let ran = room.finish(*number);
        assert_eq!(ran.code, 0);
        assert_eq!((ran.out.len(), ran.err.len()), (out.len(), err.len()));
        assert!(ran.out == out.as_bytes() && ran.err == err.as_bytes(), "the output is damaged");
        assert_eq!(ran.command.output, (out.len() + err.len()) as u64);
    }
    let followed = lock(&followed);
    let all = room.output(numbers[0], &[]);
    assert!(!followed.is_empty());
    assert!(all.starts_with(&followed), "what was followed is what is kept");
    let ran = room.finish(on_terminal);
    assert_eq!(ran.code, 0);
    let terminal = room.output(on_terminal, &[("stream", "terminal")]);
    let expected = joined((0..30_000).map(|number| format!("{number:08}\r\n")));
    assert_eq!(terminal.len(), expected.len());
    assert!(terminal == expected.as_bytes(), "the terminal's output is damaged");
    site.verify();
}

fn killed_while_a_session_is_paused_stopped_and_started(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    assert_eq!(room.run("echo kept > file").code, 0);
    let last: Mutex<Option<State>> = Mutex::default();
    under_fire(&site, 10, |fire| {
        let mut chance = Chance::new();
        while fire.goes_on() {
            let verbs = ["pause", "resume", "stop", "start"];
            let verb = verbs[usize::try_from(chance.below(4)).expect("it is small")];
            let answer = site.ask(Method::Post, room.at(&format!("/{verb}")), Some(&json!({})));
            match answer {
                Ok(session) => {
                    fire.note(Some(&()));
                    *lock(&last) = Some(typed::<Session>(session).state);
                }
                // What does not fit its state is refused, and changes nothing.
                Err(HttpError::Problem(problem)) => assert_eq!(problem.status, 409, "{problem:?}"),
                Err(error) => {
                    answered(Err(error));
                    *lock(&last) = None;
                    fire.note(None::<&()>);
                }
            }
        }
    });
    let now = room.show();
    if let Some(last) = *lock(&last) {
        assert_eq!(now.state, last, "{now:?}");
    }
    match now.state {
        State::Paused => drop(room.tell("resume")),
        State::Stopped | State::Failed => drop(room.tell("start")),
        State::Ready => {}
        _ => panic!("{now:?}"),
    }
    assert_eq!(room.run("cat file; ls -d mnt/work").text(), "kept\nmnt/work\n");
    check_nothing_orphaned(&site);
    site.verify();
}

/// Records something as a daemon does that is killed before it can write anything else.
fn record_alone(site: &Site, kind: &str, session: &str, data: &Value) {
    let opened = Ledger::open(&site.state().join("audit"), None).expect("it is whole");
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let mut ledger = opened.ledger;
    ledger.append(&time, kind, Some(session), data).expect("there is room");
}

/// How often something is recorded of a session, and told: of a command or a folder, if one is named.
#[track_caller]
fn count(site: &Site, kind: &str, session: &str, of: &Value) -> [usize; 2] {
    let is_it = |data: &Value| {
        of.as_object().is_none_or(|of| of.iter().all(|(name, value)| data[name] == *value))
    };
    let filter = [("type", kind), ("session", session)];
    let records = site.records(&filter).into_iter().filter(|record| is_it(&record.data));
    let events = site.events(&filter).into_iter().filter(|event| is_it(&event.data));
    [records.count(), events.count()]
}

fn an_end_that_is_recorded_and_not_kept_is_recorded_once(person: Person) {
    // The next daemon hears of the end from init, or finds the sandbox gone.
    for lost in [false, true] {
        let site = Site::new(person);
        let room = site.plain_room();
        let number = room.sh("echo said; sleep 1; exit 7");
        room.until_says(number, "said");
        site.kill();
        std::thread::sleep(Duration::from_millis(1500));
        let data = json!({
            "command": number, "state": "exited", "code": 7, "signal": null, "reason": null,
            "usage": null, "output": 5,
        });
        record_alone(&site, "command.ended", room.id(), &data);
        if lost {
            let keeper = site.keeper().expect("it runs");
            keeper.signal(rustix::process::Signal::KILL);
            until("the keeper is gone", || !keeper.exists());
        }
        for _ in 0..2 {
            site.start();
            let command = room.ended(number);
            assert_eq!((command.state, command.code), (CommandState::Exited, Some(7)));
            assert_eq!((command.output, command.reason), (5, None));
            let of = json!({ "command": number });
            assert_eq!(count(&site, "command.ended", room.id(), &of), [1, 1]);
            site.kill();
        }
        site.start();
        if lost {
            drop(room.tell("start"));
        }
        assert_eq!(room.run("echo alive").text(), "alive\n");
        site.verify();
    }
}

fn a_start_that_is_recorded_and_not_kept_has_an_end(person: Person) {
    let site = Site::new(person);
    let (room, paused) = (site.plain_room(), site.plain_room());
    for room in [room, paused] {
        assert_eq!(room.run("true").command.number, 1);
    }
    paused.tell("pause");
    site.kill();
    let data = json!({ "command": 2, "argv": ["true"], "cwd": "/", "variables": [] });
    record_alone(&site, "command.started", room.id(), &data);
    site.start();
    site.kill();
    record_alone(&site, "command.started", paused.id(), &data);
    site.start();
    // One that stands still cannot be asked yet.
    assert_eq!(paused.command(2).state, CommandState::Starting);
    paused.tell("resume");
    for room in [room, paused] {
        let command = room.ended(2);
        assert_eq!(command.state, CommandState::Interrupted);
        assert_eq!(command.reason.expect("it says why").code, "not-started");
        assert_eq!(room.run("true").command.number, 3, "no number is given twice");
        for kind in ["command.started", "command.ended"] {
            assert_eq!(count(&site, kind, room.id(), &json!({ "command": 2 })), [1, 1], "{kind}");
        }
    }
    site.verify();
}

fn a_question_that_is_recorded_and_not_kept_has_expired(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    let ask = |wanted: &str| -> u64 {
        let body = json!({ "wanted": wanted, "reason": "r" });
        let asked = site.post(room.at("/requests"), &body);
        asked["id"].as_u64().expect("it has a number")
    };
    let (open, closed) = (ask("one"), ask("two"));
    let no = json!({ "decision": "reject_once" });
    site.post(format!("/v1/requests/{closed}/decide"), &no);
    site.kill();
    // A number is given before anything is recorded.
    let lost = closed + 1000;
    let data = json!({
        "request": lost, "kind": "folder", "wanted": "three", "reason": "r", "access": "ro",
        "asker": null,
    });
    record_alone(&site, "request.created", room.id(), &data);
    for _ in 0..2 {
        site.start();
        let of = |id: u64| json!({ "request": id });
        let expired = json!({ "request": lost, "state": "expired" });
        assert_eq!(count(&site, "request.decided", room.id(), &expired), [1, 1]);
        assert_eq!(count(&site, "request.decided", room.id(), &of(lost)), [1, 1]);
        // Every other is what it was: one waits, and one was answered once.
        assert_eq!(count(&site, "request.decided", room.id(), &of(open)), [0, 0]);
        assert_eq!(count(&site, "request.decided", room.id(), &of(closed)), [1, 1]);
        assert_eq!(room.show().pending, 1);
        site.kill();
    }
    site.start();
    site.post(format!("/v1/requests/{open}/decide"), &no);
    // Each question of the record has its answer there, and a number of its own.
    let numbers = |kind: &str| -> Vec<u64> {
        let records = site.records(&[("type", kind), ("session", room.id())]);
        let number = |data: &Value| data["request"].as_u64().expect("it has a number");
        let mut numbers: Vec<u64> = records.iter().map(|record| number(&record.data)).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(numbers("request.created"), [open, closed, lost]);
    assert_eq!(numbers("request.decided"), [open, closed, lost]);
    site.verify();
}

fn what_is_recorded_and_not_kept_is_finished(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "work");
    let body = json!({ "grants": [{ "path": work.path(), "name": "work" }] });
    let (room, leaving) = (site.room(&body), site.plain_room());
    let number = leaving.sh("sleep 1000");
    let once = |kind: &str, id: &str| {
        for _ in 0..2 {
            assert_eq!(count(&site, kind, id, &Value::Null)[0], 1, "{kind} of {id}");
            site.kill();
            site.start();
        }
    };
    site.kill();
    record_alone(&site, "grant.revoking", room.id(), &json!({ "name": "work" }));
    site.start();
    assert_eq!(room.show().grants.len(), 0);
    once("grant.revoking", room.id());
    once("grant.revoked", room.id());
    site.kill();
    record_alone(&site, "grant.added", room.id(), &json!({ "name": "late" }));
    site.start();
    once("grant.failed", room.id());
    site.kill();
    record_alone(&site, "session.created", "never-made", &json!({}));
    site.start();
    once("session.failed", "never-made");
    site.kill();
    record_alone(&site, "session.removed", leaving.id(), &json!({ "left": [] }));
    site.start();
    let left = site.sessions();
    assert!(left.iter().all(|session| session.id == room.id()), "{left:?}");
    let of = json!({ "command": number, "state": "interrupted" });
    assert_eq!(count(&site, "command.ended", leaving.id(), &of), [1, 1]);
    once("session.removed", leaving.id());
    site.kill();
    let keeper = site.keeper().expect("it runs");
    keeper.signal(rustix::process::Signal::KILL);
    until("the keeper is gone", || !keeper.exists());
    record_alone(&site, "session.lost", room.id(), &json!({ "reason": "the keeper died" }));
    site.start();
    once("session.lost", room.id());
    drop(room.tell("start"));
    assert_eq!(room.run("echo alive").text(), "alive\n");
    site.verify();
}

fn commands_of_a_session_that_cannot_be_taken_over_end(person: Person) {
    let site = Site::new(person);
    let (room, other) = (site.plain_room(), site.plain_room());
    let first = room.sh("sleep 1000");
    let second = room.sh("sleep 1000");
    let kept = other.sh("sleep 1000");
    site.kill();
    // Its output cannot be followed any more.
    let folder = site.state().join("sessions").join(room.id()).join("commands");
    std::fs::remove_dir_all(folder.join(second.to_string())).expect("it is there");
    std::fs::write(folder.join(second.to_string()), "").expect("tests are root");
    for _ in 0..2 {
        site.start();
        assert_eq!(room.state(), State::Stopped);
        for number in [first, second] {
            let command = room.command(number);
            assert_eq!(command.state, CommandState::Interrupted, "{command:?}");
            assert_eq!(command.reason.expect("it says why").code, "sandbox-lost");
            let of = json!({ "command": number });
            assert_eq!(count(&site, "command.ended", room.id(), &of), [1, 1]);
        }
        assert_eq!(other.command(kept).state, CommandState::Running);
        site.kill();
    }
    site.start();
    site.verify();
}

/// A room that can be sent to another thread.
const fn is_shared<T: Sync>() {}
const _: () = is_shared::<Room<'static>>();

//! Every program killed at random while several clients are at work; afterwards everything is
//! accounted for.

use crate::crash::check_nothing_orphaned;
use crate::for_everyone;
use crate::look::{Chance, PATIENCE, Process, joined};
use crate::room::{Room, typed};
use crate::site::{Site, lock};
use cowork_client::http::{HttpError, Method};
use cowork_client::types::{Command, CommandState, Session, State};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

for_everyone!(whatever_dies_everything_is_accounted_for);

/// How long everything is killed.
const STORM: Duration = Duration::from_secs(8);

/// A command that writes a known text, and how long that is.
const LINES: usize = 500;

fn script() -> Value {
    let line = format!("for i in $(seq {LINES}); do echo line $i; done");
    json!({ "shell": line })
}

fn text() -> String {
    joined((1..=LINES).map(|number| format!("line {number}\n")))
}

/// What came of a call: an answer, a refusal that fits the weather, or silence.
#[track_caller]
fn weathered(answer: Result<Value, HttpError>) -> Option<Value> {
    match answer {
        Ok(answer) => Some(answer),
        Err(HttpError::NotRunning { .. } | HttpError::Broken { .. }) => {
            std::thread::sleep(Duration::from_millis(10));
            None
        }
        Err(HttpError::Problem(problem)) => {
            assert!([404, 409, 503].contains(&problem.status), "{problem:?}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Commands that were started, by session and number.
type Started = Mutex<BTreeSet<(String, u32)>>;

/// One client: makes, uses and removes sessions of its own.
fn client(site: &Site, folder: &Folder, started: &Started, over: &AtomicBool) {
    let mut chance = Chance::new();
    let mut own: Vec<String> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let index = usize::try_from(chance.below(6)).expect("it is small");
        let Some(id) = own.get(index).cloned() else {
            if own.len() < 4 {
                let made = weathered(site.ask(Method::Post, "/v1/sessions", Some(&json!({}))));
                own.extend(made.map(|made| typed::<Session>(made).id));
            }
            continue;
        };
        let at = |rest: &str| format!("/v1/sessions/{id}{rest}");
        let post =
            |rest: &str, body: &Value| weathered(site.ask(Method::Post, at(rest), Some(body)));
        match chance.below(8) {
            0..=3 => {
                if let Some(command) = post("/commands", &script()) {
                    let number = typed::<Command>(command).number;
                    lock(started).insert((id.clone(), number));
                }
            }
            4 => {
                post("/grants", &json!({ "path": folder.path(), "name": "work" }));
            }
            5 => {
                weathered(site.ask(Method::Delete, at("/grants/work"), None));
            }
            6 => {
                post("/pause", &json!({}));
                post("/resume", &json!({}));
            }
            _ => {
                weathered(site.ask(Method::Delete, at(""), None));
                own.retain(|known| *known != id);
            }
        }
    }
}

/// Kills something of the site: the daemon, its keeper, or the first process of a session.
fn strike(site: &Site, chance: &mut Chance) -> &'static str {
    site.note_keeper();
    match chance.below(5) {
        0 | 1 => {
            site.kill();
            site.start();
            "daemon"
        }
        2 => {
            if let Some(keeper) = site.keeper() {
                keeper.signal(Signal::KILL);
            }
            "keeper"
        }
        _ => {
            let sessions = site.sessions();
            let inits = sessions.iter().filter_map(|session| Some(session.sandbox.as_ref()?.pid));
            let inits: Vec<Process> = inits
                .filter_map(Process::look)
                .filter(|process| process.name == "cowork-init")
                .collect();
            let count = u64::try_from(inits.len()).expect("it is small").max(1);
            let which = usize::try_from(chance.below(count)).expect("it is small");
            if let Some(init) = inits.get(which) {
                init.signal(Signal::KILL);
            }
            "init"
        }
    }
}

fn whatever_dies_everything_is_accounted_for(person: Person) {
    let site = Site::new(person);
    let folder = Folder::new(person, "work");
    folder.write("mine", "untouched");
    let started = Started::default();
    let over = AtomicBool::new(false);
    let mut chance = Chance::new();
    let mut strikes: BTreeMap<&str, u32> = BTreeMap::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..3).map(|_| scope.spawn(|| client(&site, &folder, &started, &over))).collect();
        let end = Instant::now() + STORM;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100 + chance.below(500)));
            *strikes.entry(strike(&site, &mut chance)).or_default() += 1;
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no client saw what must not be");
        }
    });
    println!("{strikes:?}, {} commands", lock(&started).len());
    let end = Instant::now() + PATIENCE;
    loop {
        let mut restless = site.sessions();
        restless.retain(|session| matches!(session.state, State::Creating | State::Running));
        if restless.is_empty() {
            break;
        }
        if Instant::now() > end {
            for session in &restless {
                tell(&site, &session.id);
            }
            panic!("they do not come to rest: {restless:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    check_outputs(&site, &lock(&started));
    check_nothing_orphaned(&site);
    for session in site.sessions() {
        let room = site.known_room(&session.id);
        check_session(room, &session);
        room.remove();
    }
    assert!(site.sessions().is_empty());
    assert_eq!(folder.read("mine").as_deref(), Some("untouched"));
    assert_eq!(site.plain_room().run("echo as new").text(), "as new\n");
    site.verify();
}

/// Says what happened to a session.
fn tell(site: &Site, id: &str) {
    println!("{:?}", site.known_room(id).show());
    for event in site.events(&[("session", id)]) {
        println!("{event:?}");
    }
}

/// Every command that ended by itself has all of its output; of the others, what there is, is the
/// beginning.
fn check_outputs(site: &Site, started: &BTreeSet<(String, u32)>) {
    let sessions: Vec<String> = site.sessions().into_iter().map(|session| session.id).collect();
    let expected = text();
    let mut whole = 0;
    for (id, number) in started.iter().filter(|(id, _)| sessions.contains(id)) {
        let room = site.known_room(id);
        // A sandbox that was lost a moment ago is noticed by the next beat.
        let end = Instant::now() + PATIENCE;
        let command = loop {
            let command = room.command(*number);
            if !matches!(command.state, CommandState::Starting | CommandState::Running) {
                break command;
            }
            if Instant::now() > end {
                tell(site, id);
                panic!("it does not end: {command:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let output = room.output(*number, &[]);
        match command.state {
            CommandState::Exited if command.signal.is_none() => {
                assert!(output == expected.as_bytes(), "{command:?}: {} bytes", output.len());
                whole += 1;
            }
            CommandState::Exited | CommandState::Interrupted => {
                assert!(expected.as_bytes().starts_with(&output), "{command:?}");
            }
            _ => panic!("{command:?}"),
        }
    }
    println!("{whole} whole outputs");
}

/// A session that is shown as ready works, and its grants are what it sees; any other can be started.
fn check_session(room: Room<'_>, session: &Session) {
    match session.state {
        State::Ready => {}
        State::Paused => drop(room.tell("resume")),
        State::Stopped | State::Failed => {
            assert!(session.reason.is_some(), "{session:?}");
            drop(room.tell("start"));
        }
        State::Creating | State::Running | State::Ended => panic!("{session:?}"),
    }
    let granted = room.grants().contains(&"work".to_owned());
    let seen = room.run("cat mnt/work/mine 2>/dev/null; true").text();
    assert_eq!(seen == "untouched", granted, "{session:?}");
}

//! After the load: what was acknowledged is there, inside as well; then everything is removed.

use crate::client::{Answer, Caller};
use crate::load::{Started, examine, remove};
use crate::look::until_some;
use crate::site::lock;
use crate::world::{Held, Known, World, canary};
use cowork_client::types::{Command, Processes, Session, State};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Checks every session and every command that is left, and removes them.
pub(crate) fn settle(world: &World, started: &[Started]) {
    let mut caller = Caller::new(world);
    let sessions = lock(&world.sessions).clone();
    println!("{} sessions are left, {} commands to look at", sessions.len(), started.len());
    let listed: BTreeSet<String> = world.site.sessions().into_iter().map(|one| one.id).collect();
    for known in &sessions {
        if listed.contains(&known.id) {
            check_session(&mut caller, known);
        } else {
            world.complain(format!("{} was made, not removed, and is gone", known.id));
            known.leaving.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    for started in started {
        await_end(&mut caller, started);
    }
    for session in world.site.sessions() {
        remove(&mut caller, &session.id);
    }
    assert_eq!(world.site.sessions().len(), 0, "all were removed");
}

/// Waits until a command has ended; if it does not, says what is known of it.
fn await_end(caller: &mut Caller<'_>, started: &Started) {
    let end = std::time::Instant::now() + crate::look::PATIENCE;
    while !examine(caller, started) {
        if std::time::Instant::now() > end {
            let command = caller.get("command", started.at());
            let session = caller.get("session", started.known.at(""));
            let mut processes = String::new();
            if let Answer::Done(found) = caller.get("processes", started.known.at("/processes")) {
                let found: Processes = serde_json::from_value(found).expect("they are");
                processes.extend(found.processes.iter().map(|one| doing(one.pid)));
            }
            panic!("{} does not end: {command:?}\nof {session:?}\n{processes}", started.at());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// What a process does, as the kernel tells it.
fn doing(pid: i32) -> String {
    let told = ["stat", "wchan", "syscall", "cmdline"].map(|name| {
        let text = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&text).trim_end().to_owned()
    });
    format!("{told:?}\n")
}

/// Brings a session to life, and looks from inside.
fn check_session(caller: &mut Caller<'_>, known: &Known) {
    let mut last = None;
    let end = std::time::Instant::now() + crate::look::PATIENCE;
    let session = loop {
        if let Answer::Done(session) = caller.get("session", known.at("")) {
            let session: Session = serde_json::from_value(session).expect("it is one");
            match session.state {
                State::Ready | State::Running => break session,
                State::Paused => drop(caller.post("resume", known.at("/resume"), &json!({}))),
                State::Stopped | State::Failed => {
                    drop(caller.post("start", known.at("/start"), &json!({})));
                }
                State::Creating | State::Ended => {}
            }
            last = Some(session);
        }
        if std::time::Instant::now() > end {
            caller.world.complain(format!("{} does not come to life: {last:?}", known.id));
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let listed: BTreeSet<&str> = session.grants.iter().map(|one| one.name.as_str()).collect();
    let grants = lock(&known.grants).clone();
    let mut line = "true".to_owned();
    let mut wanted = String::new();
    for (name, (folder, held)) in &grants {
        match held {
            Held::Given => {
                if !listed.contains(name.as_str()) {
                    let id = &known.id;
                    caller.world.complain(format!("{id}: `{name}` was granted and is not listed"));
                }
                write!(line, "; cat mnt/{name}/canary").expect("memory suffices");
                wanted.push_str(&canary(*folder));
            }
            Held::Revoked => {
                if listed.contains(name.as_str()) {
                    let id = &known.id;
                    caller.world.complain(format!("{id}: `{name}` was revoked and is listed"));
                }
                write!(line, "; test -e mnt/{name} && echo {name} is there")
                    .expect("memory suffices");
            }
            Held::Unknown => {}
        }
    }
    look_inside(caller, known, &line, &wanted);
}

fn look_inside(caller: &mut Caller<'_>, known: &Known, line: &str, wanted: &str) {
    let mut found = None;
    for _ in 0..100 {
        let body = json!({ "shell": line });
        let Answer::Done(command) = caller.post("look", known.at("/commands"), &body) else {
            std::thread::sleep(std::time::Duration::from_millis(100));
            continue;
        };
        let command: Command = serde_json::from_value(command).expect("it is one");
        let target = known.at(&format!("/commands/{}", command.number));
        let ended = until_some("the look inside is over", || {
            let Answer::Done(now) = caller.get("command", target.clone()) else { return None };
            let now: Command = serde_json::from_value(now).expect("it is one");
            now.ended.is_some().then_some(now)
        });
        let lost = ended.reason.as_ref().is_some_and(|reason| reason.code == "sandbox-lost");
        if lost && caller.world.faulty {
            // The last program that was killed; that it was lost is told.
            caller.world.tell("look: lost");
            continue;
        }
        let out = caller.output(&target, "stdout");
        if out.as_deref() == Some(wanted.as_bytes()) {
            return;
        }
        let out = out.map(|out| String::from_utf8_lossy(&out).into_owned());
        found = Some((out, ended));
        break;
    }
    caller.world.complain(format!("{}: `{line}` says {found:?}, not {wanted:?}", known.id));
}

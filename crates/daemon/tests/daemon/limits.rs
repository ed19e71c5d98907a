//! Limits: what a session may use, changed while it runs.

use crate::for_everyone;
use crate::look::until;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Limit, Problem, Session, State};
use cowork_testbed::Person;
use serde_json::{Value, json};

for_everyone!(
    limits_change_while_a_session_runs,
    what_the_host_cannot_keep_is_refused,
    time_runs_out,
);

fn change(room: Room<'_>, limits: &Value) -> Session {
    let body = json!({ "limits": limits });
    typed(room.site.ask(Method::Patch, room.at(""), Some(&body)).expect("they can be changed"))
}

fn refused(room: Room<'_>, limits: &Value) -> Problem {
    room.site.refused(Method::Patch, room.at(""), Some(&json!({ "limits": limits })))
}

fn limit(session: &Session, name: &str) -> Limit {
    let found = session.limits.iter().find(|limit| limit.limit == name);
    found.unwrap_or_else(|| panic!("no limit on {name}: {session:?}")).clone()
}

/// Starts processes until it is refused, at most fifty, and says how many there were.
const FORK: &str = "import os, signal
made = []
try:
    while len(made) < 50:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except OSError:
    pass
print(len(made))
for pid in made:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
";

fn processes(room: Room<'_>) -> u32 {
    let number = room.start(&json!({ "argv": ["/usr/bin/python3", "-c", FORK] }));
    room.finish(number).text().trim().parse().expect("it is a number")
}

fn limits_change_while_a_session_runs(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let lasting = room.sh("sleep 1000");
    assert_eq!(processes(room), 50);
    let changed = change(room, &json!({ "processes": 20, "open_files": 100, "scratch": "16M" }));
    assert_eq!(limit(&changed, "processes").value, "20");
    assert!(processes(room) < 20);
    assert_eq!(room.run("ulimit -n").text(), "100\n");
    let fill = room.run("head -c 64M /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big");
    let size: u64 = fill.text().trim().parse().expect("it is a number");
    assert!(size <= 16 * 1024 * 1024, "{size}");
    let scratch = change(room, &json!({ "scratch": "128M" }));
    assert_eq!(limit(&scratch, "scratch").value, "128M");
    assert_eq!(
        room.run("head -c 64M /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big").text(),
        "67108864\n"
    );
    if person == Person::Root {
        let changed = change(room, &json!({ "processes": 500, "memory": "64M" }));
        assert_eq!(limit(&changed, "memory").strength, "enforced");
        assert_eq!(processes(room), 50);
        let greedy = room.run("/usr/bin/python3 -c 'b = bytearray(200_000_000)'");
        assert_ne!(greedy.code, 0);
        change(room, &json!({ "memory": "1G" }));
        assert_eq!(room.run("/usr/bin/python3 -c 'b = bytearray(200_000_000)'").code, 0);
    } else {
        // An ordinary user's keeper can lower what each process has, and not raise it again.
        let problem = refused(room, &json!({ "processes": 500 }));
        assert_eq!((problem.status, problem.code.as_str()), (422, "limit-unenforceable"));
        assert_eq!(limit(&room.show(), "processes").value, "20");
        assert!(processes(room) < 20);
        room.tell("stop");
        change(room, &json!({ "processes": 500 }));
        room.tell("start");
        assert_eq!(processes(room), 50);
    }
    // What was not named is as it was, also after a new start.
    assert_eq!(limit(&room.show(), "scratch").value, "128M");
    let bad = refused(room, &json!({ "memory": "1" }));
    assert_eq!((bad.status, bad.code.as_str()), (422, "bad-limit"));
    if person == Person::Root {
        assert_eq!(room.tell_command(lasting, "cancel", &json!({})).code, Some(143));
    }
    site.verify();
}

fn what_the_host_cannot_keep_is_refused(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let wanted = json!({ "limits": { "cpus": "0.5", "memory": "256M" } });
    if person == Person::Root {
        let shown = site.room(&wanted).show();
        assert_eq!(limit(&shown, "cpus").strength, "enforced");
        assert_eq!(limit(&shown, "memory").value, "256M");
        return;
    }
    let problem = site.refused(Method::Post, "/v1/sessions", Some(&wanted));
    assert_eq!((problem.status, problem.code.as_str()), (422, "limit-unenforceable"));
    assert!(problem.hint.is_some(), "{problem:?}");
    assert!(site.sessions().is_empty());
    let mut wanted = wanted;
    wanted["best_effort"] = json!(true);
    let shown = site.room(&wanted).show();
    assert_eq!(limit(&shown, "cpus").strength, "none");
    assert_eq!(limit(&shown, "memory").strength, "best-effort");
}

fn time_runs_out(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.room(&json!({ "limits": { "wall": "1s" } }));
    let number = room.sh("sleep 1000");
    until("its time is over", || room.state() == State::Stopped);
    assert!(room.show().reason.is_some());
    let reason = room.command(number).reason.expect("it was interrupted");
    assert_eq!(reason.code, "time-over");
    // Its home is still there, and it can be given more time.
    change(room, &json!({ "wall": "1h" }));
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("echo again").text(), "again\n");
}

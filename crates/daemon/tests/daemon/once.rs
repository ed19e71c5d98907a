//! Sessions that live once: for a command and whoever is attached to it.

use crate::for_everyone;
use crate::line::Line;
use crate::look::{Process, names, until, with_argument};
use crate::site::Site;
use cowork_client::stream::ToDaemon;
use cowork_testbed::{Folder, Person};
use serde_json::json;

for_everyone!(
    a_session_that_lives_once_leaves_nothing,
    it_ends_with_whoever_is_attached,
    it_ends_with_a_killed_daemon_if_its_command_is_over,
);

fn once(site: &Site) -> crate::room::Room<'_> {
    site.room(&json!({ "life": "once" }))
}

fn a_session_that_lives_once_leaves_nothing(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "work");
    let body = json!({ "life": "once", "grants": [{ "path": work.path(), "name": "work" }] });
    let room = site.room(&body);
    assert_eq!(room.show().outputs, None);
    let line = "echo out; echo err >&2; echo x > file; mkdir -p mnt/outputs; touch mnt/outputs/a; \
                echo kept > mnt/work/file; (setsid sleep 1001 &) ; exit 7";
    let mut line = Line::start(room, &json!({ "shell": line }));
    let heard = line.hear_all();
    assert_eq!(
        (heard.code(), heard.out.as_slice(), heard.err.as_slice()),
        (7, &b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(heard.ended.expect("it ended").discarded, Some(1));
    drop(line);
    until("the session is gone", || site.sessions().is_empty());
    assert_eq!(names(&site.state().join("sessions")), [].into());
    assert_eq!(work.read("file").as_deref(), Some("kept\n"));
    assert_eq!(names(work.path()), ["file".to_owned()].into());
    let kinds: Vec<String> =
        site.records(&[("session", room.id())]).into_iter().map(|record| record.kind).collect();
    for kind in ["session.created", "command.started", "command.ended", "session.removed"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
    }
    site.verify();
}

fn it_ends_with_whoever_is_attached(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    // Once by a connection that breaks, once by a client that says so.
    for (leave, input) in [(None, 0), (Some(ToDaemon::Detach), 0), (None, 1_000_000)] {
        let room = once(&site);
        // A child that nobody waits for and that does not want to end.
        let mark = format!("mark-of-{}-{}", room.id(), person.uid());
        let shell = format!(
            "(setsid bash -c 'trap \"\" TERM HUP; while :; do sleep 1; done' {mark} &); \
             echo started; sleep 1000"
        );
        let body = json!({ "shell": shell, "streams": { "stdin": "pipe" } });
        let mut line = Line::start(room, &body);
        drop(line.hear_until("started"));
        until("all of it runs", || !with_argument(&mark).is_empty());
        let held: Vec<Process> = with_argument(&mark);
        // Also while input waits that nobody reads.
        line.input(&vec![b'x'; input.max(1)]);
        if let Some(leave) = leave {
            line.tell(&leave);
        }
        drop(line);
        until("the session is gone", || site.sessions().is_empty());
        until("its processes are gone", || !held.iter().any(Process::exists));
    }
    assert_eq!(names(&site.state().join("sessions")), [].into());
}

fn it_ends_with_a_killed_daemon_if_its_command_is_over(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "work");
    let body = json!({ "life": "once", "grants": [{ "path": work.path(), "name": "work" }] });
    let room = site.room(&body);
    let shell = "echo started; until [ -e mnt/work/go ]; do sleep 0.02; done; touch mnt/work/done";
    let mut line = Line::start(room, &json!({ "shell": shell }));
    drop(line.hear_until("started"));
    site.kill();
    work.write("go", "");
    until("the command goes on without the daemon", || work.read("done").is_some());
    site.start();
    until("the session is gone", || site.sessions().is_empty());
    assert_eq!(names(&site.state().join("sessions")), [].into());
    site.verify();
}

//! Sandboxes that die or hang, and what is made of them.

use crate::for_everyone;
use crate::look::{Process, groups_of, until};
use crate::room::Room;
use crate::site::Site;
use cowork_client::types::{Command, CommandState, State};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

for_everyone!(
    sessions_come_back_after_the_keeper_is_killed,
    only_the_session_whose_init_is_killed_is_made_again,
    sessions_are_reported_lost_when_everything_is_killed,
    who_hangs_is_made_again_and_who_is_paused_is_not,
    who_hangs_holds_up_no_daemon_that_starts,
);

fn init_of(room: Room<'_>) -> Process {
    let pid = room.show().sandbox.expect("it has one").pid;
    let init = Process::look(pid).expect("it runs");
    assert_eq!(init.name, "cowork-init");
    init
}

#[track_caller]
fn is_interrupted(command: &Command) {
    assert_eq!(command.state, CommandState::Interrupted, "{command:?}");
    let reason = command.reason.as_ref().expect("it says why");
    assert_eq!(reason.code, "sandbox-lost", "{command:?}");
}

fn sessions_come_back_after_the_keeper_is_killed(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let body = json!({ "grants": [{ "path": work.path(), "name": "work", "access": "ro" }] });
    let (one, two) = (site.room(&body), site.plain_room());
    let stopped = site.plain_room();
    stopped.tell("stop");
    assert_eq!(one.run("echo kept > file; echo before").code, 0);
    let number = one.sh("echo said; sleep 1000");
    one.until_says(number, "said");
    let before = init_of(one);
    let keeper = site.keeper().expect("it runs");
    site.note_keeper();
    let killed = Instant::now();
    keeper.signal(Signal::KILL);
    let back = |room: Room<'_>| {
        let shown = room.show();
        shown.state == State::Ready && shown.sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
    };
    until("both are back", || back(one) && back(two));
    assert!(killed.elapsed() < Duration::from_secs(5), "it took {:?}", killed.elapsed());
    until("the old one is gone", || !before.exists());
    assert_ne!(site.keeper().expect("there is a new one"), keeper);
    assert_eq!(stopped.state(), State::Stopped);
    is_interrupted(&one.command(number));
    assert_eq!(one.output(number, &[]), b"said\n", "what it said is kept");
    assert_eq!(
        one.run("cat file; ls -d mnt/work; touch mnt/work/x || echo ro").text(),
        "kept\nmnt/work\nro\n"
    );
    assert_eq!(two.run("echo alive").text(), "alive\n");
    assert!(one.show().sandbox.is_some_and(|sandbox| sandbox.connected));
    let kinds: Vec<String> = site.records(&[]).into_iter().map(|record| record.kind).collect();
    for kind in ["keeper.lost", "session.lost", "session.restarted"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
    }
    until("nothing of the old keeper is left", || groups_of(&keeper).is_empty());
    assert_eq!(site.plain_room().run("echo new").text(), "new\n");
    site.verify();
}

fn only_the_session_whose_init_is_killed_is_made_again(person: Person) {
    let site = Site::new(person);
    let (one, two) = (site.plain_room(), site.plain_room());
    assert_eq!(one.run("echo kept > file").code, 0);
    let (first, second) = (one.sh("sleep 1000"), two.sh("sleep 1000"));
    let other = init_of(two);
    for restarts in 1..=2 {
        let init = init_of(one);
        init.signal(Signal::KILL);
        until("it is back", || {
            let shown = one.show();
            shown.state == State::Ready
                && shown.sandbox.is_some_and(|sandbox| sandbox.restarts == restarts)
        });
        until("the old one is gone", || !init.exists());
        assert_eq!(one.run("cat file").text(), "kept\n");
    }
    is_interrupted(&one.command(first));
    assert_eq!(init_of(two), other);
    assert_eq!(two.show().sandbox.map(|sandbox| sandbox.restarts), Some(0));
    assert!(two.command(second).code.is_none());
    let events = site.events(&[("session", one.id())]);
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "session.restarted").count(), 2, "{kinds:?}");
    // The first process of a session cannot be ended from inside.
    let line = "kill -9 1; kill -TERM 1; kill -STOP 1; echo still here";
    assert!(two.run(line).text().contains("still here"));
    assert_eq!(init_of(two), other);
    site.verify();
}

fn sessions_are_reported_lost_when_everything_is_killed(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    assert_eq!(room.run("echo kept > file; echo out > mnt/outputs/file").code, 0);
    let number = room.sh("echo said; sleep 1000");
    room.until_says(number, "said");
    let keeper = site.keeper().expect("it runs");
    // As when the machine is switched off.
    site.kill();
    keeper.signal(Signal::KILL);
    until("the keeper is gone", || !keeper.exists());
    site.start();
    let shown = room.show();
    assert_eq!(shown.state, State::Stopped, "{shown:?}");
    assert!(shown.reason.is_some(), "{shown:?}");
    is_interrupted(&room.command(number));
    assert_eq!(room.output(number, &[]), b"said\n");
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("cat file mnt/outputs/file").text(), "kept\nout\n");
    assert_eq!(room.show().commands, 3);
    until("nothing of the old keeper is left", || groups_of(&keeper).is_empty());
    site.verify();
}

fn who_hangs_is_made_again_and_who_is_paused_is_not(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let (hung, paused, well) = (site.plain_room(), site.plain_room(), site.plain_room());
    let greedy = site.room(&json!({ "limits": { "disk": "1M" } }));
    assert_eq!(hung.run("echo kept > file").code, 0);
    let in_hung = hung.sh("sleep 1000");
    let in_paused = paused.sh("sleep 1000");
    greedy.sh("head -c 3M /dev/urandom > file; sleep 1000");
    paused.tell("pause");
    let before = [hung, paused, well].map(init_of);
    let begun = Instant::now();
    before[0].signal(Signal::STOP);
    until("it is made again", || {
        hung.show().sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
            && hung.state() == State::Ready
    });
    let took = begun.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(14)).contains(&took), "it took {took:?}");
    is_interrupted(&hung.command(in_hung));
    assert_eq!(hung.run("cat file").text(), "kept\n");
    until("the old one is gone", || !before[0].exists());
    let missed: Vec<u64> = site
        .events(&[("session", hung.id()), ("type", "session.heartbeat")])
        .iter()
        .filter_map(|event| event.data["missed"].as_u64())
        .collect();
    assert_eq!(missed, [1, 2, 3]);
    // The record has the first that was missed, and what came of it.
    let records = site.records(&[("session", hung.id())]);
    let at = |kind: &str| {
        let found: Vec<usize> =
            (0..records.len()).filter(|index| records[*index].kind == kind).collect();
        assert_eq!(found.len(), 1, "{kind}: {records:?}");
        found[0]
    };
    assert!(at("session.unresponsive") < at("session.lost"));
    assert_eq!(records[at("session.unresponsive")].data["sandbox"], json!(before[0].pid));
    assert!(site.records(&[("session", well.id()), ("type", "session.unresponsive")]).is_empty());
    // One that is over its limit on disk is paused, and told.
    until("the greedy one is paused", || greedy.state() == State::Paused);
    assert!(greedy.show().reason.is_some_and(|reason| reason.contains("disk")));
    assert_eq!(site.records(&[("type", "limit.hit")]).len(), 1);
    // Whoever stands still on purpose does not answer, and is not dead.
    let rest = Duration::from_secs(9).saturating_sub(begun.elapsed());
    std::thread::sleep(rest);
    for (room, init) in [paused, well].into_iter().zip(&before[1..]) {
        assert_eq!(init_of(room), *init);
        assert_eq!(room.show().sandbox.map(|sandbox| sandbox.restarts), Some(0));
    }
    assert_eq!(paused.state(), State::Paused);
    assert!(paused.show().sandbox.is_some_and(|sandbox| sandbox.missed == 0));
    assert_eq!(paused.tell("resume").state, State::Running);
    assert!(paused.command(in_paused).code.is_none());
    assert_eq!(paused.run("echo alive").text(), "alive\n");
    site.verify();
}

fn who_hangs_holds_up_no_daemon_that_starts(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let (hung, late, well) = (site.plain_room(), site.plain_room(), site.plain_room());
    let in_hung = hung.sh("echo said; sleep 1000");
    let in_late = late.sh("echo one; sleep 1; echo two; exit 7");
    let in_well = well.sh("echo one; sleep 1; echo two; exit 8");
    for (room, number, text) in
        [(hung, in_hung, "said"), (late, in_late, "one"), (well, in_well, "one")]
    {
        room.until_says(number, text);
    }
    let [stopped, slow] = [hung, late].map(init_of);
    stopped.signal(Signal::STOP);
    slow.signal(Signal::STOP);
    site.kill();
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    site.start();
    assert_ne!(well.state(), State::Stopped, "{:?}", well.show());
    assert_eq!(well.run("echo alive").text(), "alive\n");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(7), "it took {took:?}");
    // One that answers late says the same that it would have said before.
    slow.signal(Signal::CONT);
    for (room, number, code) in [(late, in_late, 7), (well, in_well, 8)] {
        let ran = room.finish(number);
        assert_eq!((ran.code, ran.out.as_slice()), (code, b"one\ntwo\n".as_slice()), "{ran:?}");
        let ends = site.records(&[("session", room.id()), ("type", "command.ended")]);
        let ends = ends.iter().filter(|end| end.data["command"] == json!(number));
        assert_eq!(ends.count(), 1);
    }
    assert_eq!(init_of(late), slow);
    // One that never answers is what it always is.
    until("it is made again", || {
        hung.show().sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
            && hung.state() == State::Ready
    });
    is_interrupted(&hung.command(in_hung));
    assert_eq!(hung.output(in_hung, &[]), b"said\n");
    assert_eq!(hung.run("echo alive").text(), "alive\n");
    until("the old one is gone", || !stopped.exists());
    site.verify();
}

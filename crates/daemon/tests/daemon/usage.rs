//! What a session has used, over all its sandboxes and all daemons.

use crate::for_everyone;
use crate::look::{Process, until, until_some};
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{State, Usage, UsageOfCommand};
use cowork_testbed::Person;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

for_everyone!(
    totals_go_on_when_sandboxes_and_daemons_end,
    samples_outlive_the_daemon,
    a_command_is_measured_while_it_runs_and_at_its_end,
);

/// Computes for 0.3 seconds, and writes to storage.
const WORK: &str = "import os, time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
file = os.open('file', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(file, b'x' * 100_000)
os.fsync(file)";

/// What that takes at least, in microseconds: the kernel may count in ticks.
const TAKES: u64 = 250_000;

fn usage(room: Room<'_>) -> Usage {
    typed(room.site.get(room.at("/usage")))
}

fn work(room: Room<'_>) {
    assert_eq!(room.run(&format!("/usr/bin/python3 -c \"{WORK}\"")).code, 0);
}

/// The totals of now, which must not have fallen.
#[track_caller]
fn more(room: Room<'_>, before: &Usage, cpu_us: u64) -> Usage {
    let now = usage(room);
    let at_least = before.cpu_us + cpu_us;
    assert!(now.cpu_us >= at_least, "{} < {at_least}: {before:?} {now:?}", now.cpu_us);
    assert!(now.read >= before.read && now.written >= before.written, "{before:?} {now:?}");
    assert!(now.memory_peak >= before.memory_peak, "{before:?} {now:?}");
    assert!(now.wall_ms >= before.wall_ms, "{before:?} {now:?}");
    now
}

fn totals_go_on_when_sandboxes_and_daemons_end(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    work(room);
    let first = more(room, &Usage::default(), TAKES);
    assert!(first.memory_peak > 0, "{first:?}");
    work(room);
    // It is stopped, and what was not told before counts too.
    room.tell("stop");
    let stopped = more(room, &first, TAKES);
    assert_eq!((stopped.memory, stopped.processes), (0, 0), "{stopped:?}");
    assert!(stopped.wall_ms >= 600, "as long as it computed: {stopped:?}");
    // It is not there, and no time passes for it.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(usage(room).wall_ms, stopped.wall_ms);
    room.tell("start");
    let started = more(room, &stopped, 0);
    work(room);
    let second = more(room, &started, TAKES);
    // The daemon is killed while the session lives, and while it is stopped.
    site.kill();
    site.start();
    let third = more(room, &second, 0);
    work(room);
    let fourth = more(room, &third, TAKES);
    room.tell("stop");
    site.kill();
    site.start();
    let fifth = more(room, &fourth, 0);
    assert_eq!((fifth.memory, fifth.processes), (0, 0), "{fifth:?}");
    // Its sandbox is lost and made again.
    room.tell("start");
    work(room);
    let sixth = more(room, &fifth, TAKES);
    let init = Process::look(room.show().sandbox.expect("it has one").pid).expect("it runs");
    init.signal(Signal::KILL);
    until("it is made again", || {
        let shown = room.show();
        shown.state == State::Ready && shown.sandbox.is_some_and(|sandbox| sandbox.restarts == 1)
    });
    let seventh = more(room, &sixth, 0);
    work(room);
    more(room, &seventh, TAKES);
    site.verify();
}

fn samples_outlive_the_daemon(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    room.sh("while :; do :; done");
    let told = || -> Vec<Usage> {
        let events = site.events(&[("type", "usage.sample"), ("session", room.id())]);
        events.into_iter().map(|event| typed(event.data["usage"].clone())).collect()
    };
    until("it is sampled", || told().len() >= 2);
    let before = told();
    site.kill();
    site.start();
    let history: Vec<Usage> =
        typed(room.site.get(room.at("/usage/history?limit=1000"))["items"].take());
    assert_eq!(history.get(..before.len()), Some(before.as_slice()), "{history:#?}");
    // Another session of its name has a past of its own.
    let (id, last) = (room.id().to_owned(), told().pop().expect("there are some"));
    room.remove();
    let again = site.room(&json!({ "id": id }));
    site.kill();
    site.start();
    let history: Vec<Usage> =
        typed(again.site.get(again.at("/usage/history?limit=1000"))["items"].take());
    assert!(history.iter().all(|usage| usage.time > last.time), "{history:#?}");
    site.verify();
}

/// Computes in a child that is waited for and in one that is left behind, takes memory, writes to
/// storage, says so, and waits.
const BUSY: &str = "import os, subprocess, sys, time
work = 'import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass'
subprocess.run([sys.executable, '-c', work])
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
held = b'x' * (64 << 20)
file = os.open('busy', os.O_WRONLY | os.O_CREAT)
os.write(file, held[:4 << 20])
os.fsync(file)
print('busy', flush=True)
sys.stdin.read()";

fn of_command(room: Room<'_>, number: u32) -> UsageOfCommand {
    typed(room.site.get(room.at(&format!("/commands/{number}/usage"))))
}

fn a_command_is_measured_while_it_runs_and_at_its_end(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    // Another command counts for itself.
    let other = room.sh("while :; do :; done");
    let argv = json!({
        "argv": ["/usr/bin/python3", "-c", BUSY], "streams": { "stdin": "pipe" },
    });
    let number = room.start(&argv);
    room.until_says(number, "busy");
    let now = of_command(room, number);
    assert!((TAKES..20_000_000).contains(&now.cpu_us), "{now:?}");
    assert!(now.memory >= 64 << 20 && now.memory_peak >= 64 << 20, "{now:?}");
    assert!(now.wall_ms >= 300, "{now:?}");
    let names: Vec<&str> = now.listed.iter().map(|process| process.name.as_str()).collect();
    assert_eq!((now.processes, names), (2, vec!["python3"; 2]), "{now:?}");
    let storage = usage(room).written > 0;
    assert!(
        !storage || now.written >= 4 << 20,
        "the session wrote, and so did the command: {now:?}"
    );
    // It is told with the samples of its session.
    let sampled = until_some("both are sampled", || {
        let events = site.events(&[("type", "usage.sample"), ("session", room.id())]);
        let commands = events.into_iter().rev().map(|mut event| event.data["commands"].take());
        commands.map(typed::<Vec<Value>>).find(|commands| commands.len() == 2)
    });
    let of = |number: u32| -> UsageOfCommand {
        let found = sampled.iter().find(|sample| sample["command"] == json!(number));
        typed(found.expect("it runs")["usage"].clone())
    };
    assert_eq!((of(number).processes, of(other).processes), (2, 1), "{sampled:?}");
    assert!(of(number).memory >= 64 << 20 && of(number).cpu_us >= TAKES, "{sampled:?}");
    until("the other one computes", || of_command(room, other).cpu_us >= TAKES);
    assert_eq!(of_command(room, other).processes, 1);
    let close = room.at(&format!("/commands/{number}/stdin?close=true"));
    site.ask(Method::Post, close, None).expect("its input can be ended");
    let ended = room.ended(number).usage.expect("it is measured");
    let then = of_command(room, number);
    assert_eq!((then.memory, then.processes), (0, 0), "{then:?}");
    assert!(now.most_processes >= 2 && then.most_processes >= 2, "{then:?} {now:?}");
    let short = room.run("exec true").command;
    assert_eq!(of_command(room, short.number).most_processes, 1);
    assert_eq!(then.cpu_us, ended.user_us + ended.system_us);
    assert!(then.cpu_us + 50_000 >= now.cpu_us, "{then:?} {now:?}");
    assert!(then.memory_peak >= 64 << 20, "{then:?}");
    assert_eq!((then.read, then.written), (ended.read, ended.written));
    assert!(!storage || then.written >= 4 << 20, "{then:?}");
    // It is known later, and by the next daemon.
    site.kill();
    site.start();
    let later = of_command(room, number);
    assert_eq!(UsageOfCommand { time: then.time.clone(), ..later }, then);
    assert!(of_command(room, other).cpu_us >= TAKES);
    let problem = site.refused(Method::Get, room.at("/commands/99/usage"), None);
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-command"));
    site.verify();
}

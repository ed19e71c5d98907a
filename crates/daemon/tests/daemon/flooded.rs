//! Sessions that use up all they may have: the daemon answers, neighbours go on, and no heartbeat is
//! missed so often that a session would be made again.

use crate::for_everyone;
use crate::look::until;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Session, State, Usage};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

for_everyone!(floods_hold_up_nobody);

/// Longer than it takes to miss three heartbeats.
const FLOODED: Duration = Duration::from_secs(9);
/// How long an answer may take meanwhile.
const ANSWERED: Duration = Duration::from_secs(4);

/// How many processes a session may have.
const PROCESSES: u32 = 40;

/// Every process starts another one for as long as it lives.
const PROCESS_FLOOD: &str = "import os
while True:
    try:
        os.fork()
    except OSError:
        pass
";

/// Takes memory until there is no more, or until it is killed for it.
const MEMORY_FLOOD: &str = "hold = []
try:
    while True:
        hold.append(b'x' * (1 << 20))
except MemoryError:
    pass
";

/// Opens files until there are no more, in several processes, and goes on trying.
const DESCRIPTOR_FLOOD: &str = "import os
for _ in range(8):
    if os.fork() == 0:
        break
told = False
while True:
    try:
        os.open('/dev/null', os.O_RDONLY)
    except OSError:
        if not told:
            print('full', flush=True)
        told = True
";

fn session<'s>(site: &'s Site, limits: &Value) -> Room<'s> {
    // What an ordinary user cannot have enforced is kept as well as it can be.
    site.room(&json!({ "limits": limits, "best_effort": true }))
}

fn python(room: Room<'_>, code: &str) -> u32 {
    room.start(&json!({ "argv": ["/usr/bin/python3", "-c", code] }))
}

/// Does something, which must not take long.
#[track_caller]
fn timed<T>(what: &str, longest: &mut Duration, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = act();
    let took = start.elapsed();
    assert!(took < ANSWERED, "{what} took {took:?}");
    *longest = took.max(*longest);
    done
}

/// It runs, in the sandbox that it was made with.
#[track_caller]
fn goes_on(room: Room<'_>, what: &str) {
    let shown: Session = room.show();
    assert_eq!(shown.state, State::Running, "{what}: {shown:?}");
    assert!(shown.sandbox.is_some_and(|sandbox| sandbox.restarts == 0), "{what} was made again");
}

fn floods_hold_up_nobody(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let neighbour = site.plain_room();
    let lasting = neighbour.sh("sleep 1000");
    let bombed = session(&site, &json!({ "processes": PROCESSES }));
    let greedy = session(&site, &json!({ "memory": "128M" }));
    let opening = session(&site, &json!({ "open_files": 256 }));
    let bomb = python(bombed, PROCESS_FLOOD);
    // The loop outlives what is killed for taking too much.
    let again = format!("while :; do /usr/bin/python3 -c \"{MEMORY_FLOOD}\"; echo again; done");
    let greed = greedy.sh(&again);
    let open = python(opening, DESCRIPTOR_FLOOD);
    // Each of them has come to its limit.
    until("processes are used up", || {
        let usage: Usage = typed(site.get(bombed.at("/usage")));
        usage.processes >= PROCESSES - 5
    });
    greedy.until_says(greed, "again");
    opening.until_says(open, "full");
    let flooded = [
        (bombed, bomb, "with too many processes"),
        (greedy, greed, "with too much memory"),
        (opening, open, "with too many open files"),
    ];
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    while start.elapsed() < FLOODED {
        timed("info", &mut longest, || site.info().expect("it answers"));
        let said = timed("a command of the neighbour", &mut longest, || {
            neighbour.run("echo undisturbed").text()
        });
        assert_eq!(said, "undisturbed\n");
        for (room, _, what) in flooded {
            timed("a look", &mut longest, || goes_on(room, what));
        }
        goes_on(neighbour, "the neighbour");
    }
    println!("as {person:?} the longest answer took {longest:?}");
    let lost = site.records(&[("type", "session.lost")]);
    assert!(lost.is_empty(), "{lost:?}");
    // Nothing of it outlives the command.
    for (room, number, what) in flooded {
        let target = room.at(&format!("/commands/{number}/cancel"));
        site.ask(Method::Post, target, Some(&json!({ "grace": "100ms" }))).expect("it is heard");
        room.ended(number);
        assert_eq!(room.run("echo alive").text(), "alive\n", "{what}");
        until("nothing of it is left", || room.state() == State::Ready);
    }
    neighbour.tell_command(lasting, "cancel", &json!({}));
    site.verify();
}

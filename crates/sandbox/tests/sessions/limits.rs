//! What a session may use, and what happens beyond it.

use crate::bench::{
    Room, as_everybody, as_root, as_user, ask, event, new_plan, new_request, plan_of, state_of,
};
use cowork_api::guest::Ending;
use cowork_api::keeper::{EndReason, FailureCode, LimitKind, Message, Request, Strength};
use cowork_policy::plan::{SessionRequest, Strictness};
use cowork_policy::{Bytes, Limit};

fn strength(room: &Room, kind: LimitKind) -> Strength {
    let found = room.status.limits.iter().find(|state| state.limit == kind);
    found.unwrap_or_else(|| panic!("{kind:?} is not told")).strength
}

#[test]
fn processes_beyond_the_limit_are_refused() {
    const FORKS: &str = "
import os, time
count = 0
try:
    while count < 1000:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError as error:
    print(error.strerror, flush=True)
print(count, flush=True)
";
    as_everybody(|bench| {
        let mut request = new_request();
        request.limits.processes = Limit::asked(40);
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(strength(&room, LimitKind::Processes), Strength::Enforced);
        let mut bomb = room.python(FORKS, &[]);
        bomb.expect("Resource temporarily unavailable");
        let count: u32 = bomb.line().and_then(|line| line.parse().ok()).expect("a number");
        // Init and the bomb itself count too.
        assert_eq!(count, 38);
        assert!(room.ping(), "init is harmed");
        // Another session of the same person has its own count.
        let mut other = Room::make(
            &mut keeper,
            plan_of(&SessionRequest { id: new_request().id, ..request.clone() }),
        );
        assert_eq!(other.shell("echo well"), "well\n");
    });
}

#[test]
fn open_files_beyond_the_limit_are_refused() {
    as_everybody(|bench| {
        let mut request = new_request();
        request.limits.open_files = Limit::asked(100);
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(strength(&room, LimitKind::OpenFiles), Strength::Enforced);
        let said = room
            .run(&[
                "/usr/bin/python3",
                "-c",
                "
import os, resource
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
except (ValueError, OSError):
    print('kept')
count = 3
try:
    while True:
        os.open('/dev/null', os.O_RDONLY)
        count += 1
except OSError as error:
    print(error.strerror, count)
",
            ])
            .1;
        assert_eq!(said, "kept\nToo many open files 100\n");
    });
}

#[test]
fn scratch_beyond_the_limit_is_refused_wherever_it_is_written() {
    as_everybody(|bench| {
        let mut request = new_request();
        request.limits.scratch = Limit::asked(Bytes::new(16 << 20));
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(strength(&room, LimitKind::Scratch), Strength::Enforced);
        let said = room.shell(
            "for at in /tmp /dev/shm ~ ~/mnt/outputs /run; do \
             dd if=/dev/zero of=$at/f bs=1M count=4 2>&1 | grep -o 'No space left on device'; done; \
             cat /tmp/f /dev/shm/f ~/f ~/mnt/outputs/f /run/f 2>/dev/null | wc -c",
        );
        let full = said.matches("No space left on device").count();
        let bytes: u64 = said.lines().last().and_then(|line| line.parse().ok()).expect("a number");
        assert!(full >= 2 && (12 << 20..=16 << 20).contains(&bytes), "{said}");
        // Files are bounded as well as bytes.
        let made = room
            .shell("rm -f /tmp/f; seq -f /tmp/n%g 5000 | xargs touch 2>/dev/null; ls /tmp | wc -l");
        let made: u32 = made.trim().parse().expect("a number");
        assert!(made <= 2048, "{made} files");
    });
}

/// Fills memory and says how far it came.
const EATER: &str = "
import sys
eaten = []
try:
    for i in range(int(sys.argv[1])):
        eaten.append(bytearray(b'x') * (1 << 20))
    print('ate it all', flush=True)
except MemoryError:
    print('refused', flush=True)
";

#[test]
fn memory_beyond_the_limit_kills_in_a_cgroup() {
    as_root(|bench| {
        let mut request = new_request();
        request.limits.memory = Limit::asked(Bytes::new(128 << 20));
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(strength(&room, LimitKind::Memory), Strength::Enforced);
        let mut modest = room.python(EATER, &["32"]);
        assert_eq!(modest.rest(), "ate it all\n");
        assert_eq!(room.ending(&modest), Ending::Status(0));
        let mut greedy = room.python(EATER, &["512"]);
        assert_eq!(greedy.rest(), "");
        // The kernel kills the one that eats, before init.
        assert_eq!(room.ending(&greedy), Ending::Signal(9));
        assert!(room.ping(), "init was killed instead");
    });
}

#[test]
fn a_limit_that_was_asked_for_and_cannot_be_kept_makes_no_session() {
    as_user(|bench| {
        let mut request = new_request();
        request.limits.memory = Limit::asked(Bytes::new(256 << 20));
        let mut keeper = bench.keeper();
        let plan = Box::new(plan_of(&request));
        let refused = ask(&mut keeper, Request::Create(plan)).expect_err("it cannot be kept");
        assert_eq!(refused.code, FailureCode::LimitUnenforceable);
        request.strictness = Strictness::BestEffort;
        let mut room = Room::make(&mut keeper, plan_of(&request));
        assert_eq!(strength(&room, LimitKind::Memory), Strength::BestEffort);
        assert_eq!(strength(&room, LimitKind::Cpus), Strength::None);
        // The best effort is one: a single process does not get more.
        let mut greedy = room.python(EATER, &["512"]);
        assert_eq!(greedy.rest(), "refused\n");
    });
}

#[test]
fn what_cgroups_keep_is_told_as_enforced() {
    as_root(|bench| {
        let (_keeper, room) = bench.room();
        for kind in [LimitKind::Memory, LimitKind::Cpus, LimitKind::Processes] {
            assert_eq!(strength(&room, kind), Strength::Enforced, "{kind:?}");
        }
    });
}

#[test]
fn a_session_whose_time_is_over_is_ended() {
    as_everybody(|bench| {
        let mut plan = new_plan();
        plan.limits.wall = Some(700);
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        assert_eq!(strength(&room, LimitKind::Wall), Strength::Enforced);
        let mut lasting = Room::make(&mut keeper, new_plan());
        let mut sleeper = room.start(&["/bin/sleep", "1000"]);
        assert_eq!(sleeper.rest(), "");
        let (session, reason) = (room.id(), EndReason::TimeOver);
        assert_eq!(event(&mut keeper), Message::SessionEnded { session, reason });
        assert_eq!(state_of(room.status.init), None);
        assert!(lasting.ping());
    });
}

#[test]
fn processors_are_shared_out_by_the_kernel() {
    as_root(|bench| {
        let mut plan = new_plan();
        plan.limits.cpus.value = 200;
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        let busy = "
import time
start = time.monotonic()
while time.monotonic() - start < 3: pass
print(int(time.process_time() * 1000))
";
        let said = room.run(&["/usr/bin/python3", "-c", busy]).1;
        let used: u32 = said.trim().parse().expect("a number");
        // A fifth of three seconds, and what one period may overrun.
        assert!(used <= 900, "{used} ms of 3000");
    });
}

//! What a session uses, and changing what it may use while it runs.

use crate::bench::{
    Bench, Room, as_everybody, as_root, as_user, ask, event, eventually, new_plan, new_request,
    plan_of, state_of,
};
use cowork_api::guest::Ending;
use cowork_api::keeper::{
    EndReason, Failure, FailureCode, LimitKind, Measured, Message, Reply, Request,
};
use cowork_api::plan::Limits;
use cowork_policy::plan::Strictness;
use cowork_policy::{Bytes, Limit};
use cowork_sandbox::client::Keeper;

fn measure(keeper: &mut Keeper, room: &Room) -> Measured {
    match ask(keeper, Request::Measure { session: room.id() }) {
        Ok(Reply::Measured(measured)) => measured,
        other => panic!("not measured: {other:?}"),
    }
}

fn set(keeper: &mut Keeper, room: &Room, limits: Limits) -> Result<Reply, Failure> {
    ask(keeper, Request::SetLimits { session: room.id(), limits })
}

fn told(keeper: &mut Keeper, room: &Room, kind: LimitKind) -> Option<String> {
    match ask(keeper, Request::Status { session: room.id() }) {
        Ok(Reply::Session(status)) => {
            status.limits.into_iter().find(|state| state.limit == kind).map(|state| state.value)
        }
        other => panic!("no status: {other:?}"),
    }
}

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

const BUSY: &str = "
import os, sys, time
if os.fork() == 0:
    while time.process_time() < 0.4: pass
    os._exit(0)
os.wait()
while time.process_time() < 0.4: pass
block = b'x' * (64 << 20)
open('/tmp/file', 'wb').write(b'y' * (8 << 20))
print('done', flush=True)
sys.stdin.read()
";

#[test]
fn what_a_session_uses_is_told() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let before = measure(&mut keeper, &room);
        assert_eq!((before.processes, before.listed.len()), (0, 0), "{before:?}");
        let mut busy = room.python(BUSY, &[]);
        busy.expect("done");
        let sleeper = room.start(&["/bin/sleep", "1000"]);
        // It has its name a moment after it has started.
        let (pid, sleep) = (room.host_pid(sleeper.pid), "/bin/sleep 1000 ");
        assert!(eventually(|| crate::bench::arguments_of(pid) == sleep && name_of(pid) == "sleep"));
        let now = measure(&mut keeper, &room);
        // Half of it was used by a child that is gone.
        let cpu = now.cpu_us - before.cpu_us;
        assert!((700_000..8_000_000).contains(&cpu), "{now:?}");
        assert!(now.memory >= 64 << 20 && now.memory < 1 << 30, "{now:?}");
        assert!(now.memory_peak >= now.memory, "{now:?}");
        let scratch = now.scratch - before.scratch;
        assert!((8 << 20..9 << 20).contains(&scratch), "{before:?} {now:?}");
        assert_eq!(now.processes, 2);
        let mut listed: Vec<_> =
            now.listed.iter().map(|process| (process.inside, process.name.as_str())).collect();
        listed.sort_unstable();
        assert_eq!(listed, [(busy.pid, "python3"), (sleeper.pid, "sleep")]);
        for process in &now.listed {
            assert_eq!(process.pid, room.host_pid(process.inside));
        }
        busy.input = None;
        assert_eq!(room.ending(&busy), Ending::Status(0));
        // What it used stays used, whoever counts it.
        let after = measure(&mut keeper, &room);
        assert!(after.cpu_us >= now.cpu_us, "{now:?} {after:?}");
        assert!(after.memory < now.memory && after.memory_peak >= now.memory, "{after:?}");
        assert_eq!(after.processes, 1);
        let session = "no-such".to_owned();
        let refused = ask(&mut keeper, Request::Measure { session }).expect_err("there is none");
        assert_eq!(refused.code, FailureCode::NoSession);
    });
}

#[test]
fn bytes_read_and_written_are_told() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        let (mut keeper, mut room) = bench.room();
        let wanted =
            crate::bench::grant_of(folder.path(), "project", cowork_api::plan::Access::Write);
        crate::bench::grant(&mut keeper, &room, wanted).expect("it can be granted");
        let at = room.granted("project");
        let write = format!("dd if=/dev/zero of={at}/f bs=1M count=16 conv=fsync 2>&1; echo done");
        assert!(room.shell(&write).ends_with("done\n"));
        let used = measure(&mut keeper, &room);
        assert!((16 << 20..64 << 20).contains(&used.written), "{used:?}");
    });
}

/// How many files a program can open, and how many processes it can make.
const REACH: &str = "
import os, resource, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
files = 0
opened = []
try:
    while files < 5000:
        opened.append(os.open('/dev/null', os.O_RDONLY))
        files += 1
except OSError: pass
for fd in opened: os.close(fd)
count, children = 0, []
try:
    while count < 500:
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        children.append(pid)
        count += 1
except OSError: pass
for pid in children: os.kill(pid, 9)
for pid in children: os.waitpid(pid, 0)
print(files + 3, count)
";

fn reach(room: &mut Room) -> (u32, u32) {
    let said = room.run(&["/usr/bin/python3", "-c", REACH]).1;
    let numbers: Vec<u32> =
        said.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    (numbers[0], numbers[1])
}

fn limited_room(bench: &Bench) -> (Keeper, Room, Limits) {
    let mut request = new_request();
    request.strictness = Strictness::BestEffort;
    request.limits.open_files = Limit::asked(200);
    request.limits.processes = Limit::asked(60);
    request.limits.scratch = Limit::asked(Bytes::new(32 << 20));
    request.limits.memory = Limit::asked(Bytes::new(256 << 20));
    let plan = plan_of(&request);
    let limits = plan.limits;
    let mut keeper = bench.keeper();
    let room = Room::make(&mut keeper, plan);
    (keeper, room, limits)
}

#[test]
fn limits_are_lowered_while_the_session_runs() {
    as_everybody(|bench| {
        let (mut keeper, mut room, mut limits) = limited_room(bench);
        assert_eq!(reach(&mut room), (200, 58));
        // One that runs already gets the new ones too.
        let mut shell = room.start(&["/bin/bash"]);
        shell.say("ulimit -n; ulimit -Hn");
        shell.expect("200");
        shell.expect("200");
        limits.open_files.value = 100;
        limits.processes.value = 30;
        limits.scratch.value = 16 << 20;
        set(&mut keeper, &room, limits).expect("they can be lowered");
        shell.say("ulimit -n; ulimit -Hn");
        shell.expect("100");
        shell.expect("100");
        // The shell counts too.
        assert_eq!(reach(&mut room), (100, 27));
        let full =
            room.shell("dd if=/dev/zero of=/tmp/f bs=1M count=20 2>/dev/null; stat -c %s /tmp/f");
        let bytes: u64 = full.trim().parse().expect("a number");
        assert!(bytes <= 16 << 20 && bytes > 14 << 20, "{bytes}");
        assert_eq!(told(&mut keeper, &room, LimitKind::OpenFiles).as_deref(), Some("100"));
        assert_eq!(told(&mut keeper, &room, LimitKind::Processes).as_deref(), Some("30"));
    });
}

#[test]
fn what_cgroups_keep_is_raised_while_the_session_runs() {
    as_root(|bench| {
        let (mut keeper, mut room, mut limits) = limited_room(bench);
        assert_eq!(reach(&mut room), (200, 58));
        limits.processes.value = 100;
        limits.scratch.value = 64 << 20;
        limits.memory.value = 512 << 20;
        set(&mut keeper, &room, limits).expect("cgroups keep them");
        assert_eq!(reach(&mut room), (200, 98));
        let fill =
            "dd if=/dev/zero of=/tmp/f bs=1M count=48 2>/dev/null; stat -c %s /tmp/f; rm /tmp/f";
        assert_eq!(room.shell(fill), format!("{}\n", 48 << 20));
        let eat = "x = bytearray(b'x') * (300 << 20); print(len(x) >> 20)";
        assert_eq!(room.run(&["/usr/bin/python3", "-c", eat]).1, "300\n");
        limits.memory.value = 128 << 20;
        set(&mut keeper, &room, limits).expect("it can be lowered again");
        assert_eq!(room.run(&["/usr/bin/python3", "-c", eat]).0, Ending::Signal(9));
        limits.memory.value = 512 << 20;
        set(&mut keeper, &room, limits).expect("and raised");
        assert_eq!(room.run(&["/usr/bin/python3", "-c", eat]).1, "300\n");
    });
}

/// Whether this process may raise limits of processes beyond what they are.
fn may_raise() -> bool {
    let status = crate::bench::status_of(std::process::id().try_into().expect("it is small"));
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a set");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("a number");
    effective & (1 << 24) != 0
}

#[test]
fn open_files_are_raised_by_whoever_may_and_refused_to_others() {
    as_everybody(|bench| {
        let (mut keeper, mut room, mut limits) = limited_room(bench);
        let mut shell = room.start(&["/bin/bash"]);
        shell.say("ulimit -S -n 20; ulimit -Hn");
        shell.expect("200");
        limits.open_files.value = 2000;
        limits.scratch.value = 64 << 20;
        let changed = set(&mut keeper, &room, limits);
        let (hard, used) = if may_raise() {
            changed.expect("it may");
            ("2000", 2000)
        } else {
            let refused = changed.expect_err("it may not");
            assert_eq!(refused.code, FailureCode::LimitUnenforceable);
            assert_eq!(refused.hint, "stop the session, change the limit, and start it");
            ("200", 200)
        };
        shell.say("ulimit -Hn; ulimit -Sn");
        shell.expect(hard);
        // What a program set for itself stays.
        shell.expect("20");
        assert_eq!(reach(&mut room).0, used);
        let scratch = told(&mut keeper, &room, LimitKind::Scratch);
        let expected = if may_raise() { "64M" } else { "32M" };
        assert_eq!(scratch.as_deref(), Some(expected));
    });
}

#[test]
fn a_user_is_told_that_a_limit_cannot_be_raised_and_nothing_changes() {
    as_user(|bench| {
        let (mut keeper, mut room, limits) = limited_room(bench);
        for raise in [
            (|limits: &mut Limits| limits.open_files.value = 2000) as fn(&mut Limits),
            |limits| limits.processes.value = 100,
            |limits| limits.memory.value = 1 << 30,
        ] {
            let mut wanted = limits;
            // What could be changed alone is not changed either.
            wanted.scratch.value = 64 << 20;
            wanted.wall = Some(1);
            raise(&mut wanted);
            let refused = set(&mut keeper, &room, wanted).expect_err("a user cannot");
            assert_eq!(refused.code, FailureCode::LimitUnenforceable, "{refused:?}");
            assert_eq!(refused.hint, "stop the session, change the limit, and start it");
        }
        assert_eq!(reach(&mut room), (200, 58));
        let said =
            room.shell("dd if=/dev/zero of=/tmp/f bs=1M count=48 2>/dev/null; stat -c %s /tmp/f");
        let bytes: u64 = said.trim().parse().expect("a number");
        assert!(bytes <= 32 << 20, "{bytes}");
        assert_eq!(told(&mut keeper, &room, LimitKind::OpenFiles).as_deref(), Some("200"));
        assert_eq!(told(&mut keeper, &room, LimitKind::Wall), None);
        // Scratch alone can be raised by anybody.
        let mut wanted = limits;
        wanted.scratch.value = 64 << 20;
        set(&mut keeper, &room, wanted).expect("it is the session's own memory");
        let said =
            room.shell("dd if=/dev/zero of=/tmp/f bs=1M count=48 2>/dev/null; stat -c %s /tmp/f");
        assert_eq!(said, format!("{}\n", 48 << 20));
    });
}

#[test]
fn scratch_is_not_made_smaller_than_what_is_in_it() {
    as_everybody(|bench| {
        let (mut keeper, mut room, mut limits) = limited_room(bench);
        room.shell("dd if=/dev/zero of=/tmp/f bs=1M count=20 2>/dev/null");
        limits.scratch.value = 8 << 20;
        limits.open_files.value = 100;
        let refused = set(&mut keeper, &room, limits).expect_err("more is taken");
        assert_eq!(refused.code, FailureCode::LimitUnenforceable, "{refused:?}");
        assert_eq!(reach(&mut room).0, 200, "something was changed all the same");
        room.shell("rm /tmp/f");
        set(&mut keeper, &room, limits).expect("there is room now");
        assert_eq!(reach(&mut room).0, 100);
    });
}

#[test]
fn a_new_time_counts_from_now_and_can_be_taken_away() {
    as_everybody(|bench| {
        let mut plan = new_plan();
        plan.limits.wall = Some(60_000);
        let mut limits = plan.limits;
        let mut keeper = bench.keeper();
        let room = Room::make(&mut keeper, plan);
        let mut other = Room::make(&mut keeper, new_plan());
        limits.wall = Some(500);
        set(&mut keeper, &room, limits).expect("time can be changed");
        assert!(told(&mut keeper, &room, LimitKind::Wall).is_some());
        let mut timed = limits;
        timed.wall = Some(1000);
        set(&mut keeper, &other, timed).expect("it can be set");
        timed.wall = None;
        set(&mut keeper, &other, timed).expect("it can be taken away");
        let (session, reason) = (room.id(), EndReason::TimeOver);
        assert_eq!(event(&mut keeper), Message::SessionEnded { session, reason });
        assert!(eventually(|| state_of(room.status.init).is_none()));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert!(other.ping());
    });
}

#[test]
fn a_limit_that_must_be_kept_and_cannot_be_is_refused() {
    as_user(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut limits = plan_of(&new_request()).limits;
        limits.memory.demand = cowork_api::plan::Demand::Enforced;
        let refused = set(&mut keeper, &room, limits).expect_err("no cgroup keeps it");
        assert_eq!(refused.code, FailureCode::LimitUnenforceable);
        assert!(room.ping());
    });
}

//! What is left when anybody is killed at any moment: nothing.
//!
//! A scenario adopts every orphan of its own, so that whatever it started and is still there is
//! found among its descendants.

use crate::bench::{
    Bench, Room, arguments_of, as_everybody_apart, as_root, descendants, event, eventually, grant,
    grant_of, is_ready, new_plan, state_of,
};
use cowork_api::guest::ToInit;
use cowork_api::keeper::{EndReason, Message, Reply};
use cowork_api::plan::{Access, SessionPlan};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_sandbox::client::Keeper;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Moments at which somebody is killed, in steps of 100 µs.
const MOMENTS: u64 = 64;

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process");
    // One that is gone already needs no signal.
    cowork_sys::ignore(kill_process(pid, Signal::KILL));
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).expect("it is small")
}

/// Makes this process the one that adopts orphans of its own.
pub(crate) fn adopt_orphans() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("it can");
}

fn bury() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// Nothing that this scenario started is still there.
#[track_caller]
pub(crate) fn assert_nobody_left(what: &str) {
    let gone = eventually(|| {
        bury();
        descendants(own_pid()).is_empty()
    });
    let left: Vec<_> = descendants(own_pid())
        .into_iter()
        .map(|pid| (pid, state_of(pid), waits_in(pid), arguments_of(pid)))
        .collect();
    for (pid, ..) in &left {
        kill(*pid);
    }
    assert!(gone, "{what}: still there: {left:?}");
}

/// Where in the kernel a process waits, for a report.
fn waits_in(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

/// The mounts of this process's namespace, without those of other tests: they vanish with the folder
/// that they lie on, wherever that is removed.
pub(crate) fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let own = [own_pid(), parent].map(|pid| format!("/cowork-test-{pid}-"));
    let is_own = |line: &&str| {
        !line.contains("/cowork-test-") || own.iter().any(|start| line.contains(start))
    };
    text.lines().filter(is_own).map(str::to_owned).collect()
}

#[track_caller]
pub(crate) fn assert_same_mounts(before: &BTreeSet<String>) {
    assert_eq!(mounts(), *before);
}

/// Empty groups of this person's sessions, where keepers of this scenario make them, whose keeper does
/// not run any more. One with a process inside is the matter of whoever left the process.
fn abandoned_groups() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("/proc is mounted");
    let mut found = Vec::new();
    for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
        let point = line.split(' ').nth(4).expect("a mount has a place");
        let controller = point.rsplit('/').next().expect("a place has a name");
        // In v1 a keeper makes its groups below its own; in v2 it may make them further up.
        let below = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|known| known == controller).then_some(path)
        });
        let below = below.unwrap_or_default().trim_start_matches('/');
        look_for_groups(&Path::new(point).join(below), 6, &mut found);
    }
    found
}

fn look_for_groups(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let keeper =
            name.strip_prefix("cowork-").and_then(|rest| rest.split('.').next()?.parse().ok());
        match keeper {
            Some(keeper) if state_of(keeper).is_none() && is_own_and_empty(&entry.path()) => {
                found.push(entry.path());
            }
            Some(_) => {}
            None if depth > 0 => look_for_groups(&entry.path(), depth - 1, found),
            None => {}
        }
    }
}

fn is_own_and_empty(group: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let inside = [group.join("cgroup.procs"), group.join("s/cgroup.procs")];
    let empty = inside
        .iter()
        .all(|file| std::fs::read(file).is_ok_and(|text| text.is_empty()) || !file.is_file());
    std::fs::metadata(group).is_ok_and(|metadata| metadata.uid() == own) && empty
}

/// After one more keeper came and went no group is left whose keeper is gone.
#[track_caller]
pub(crate) fn assert_no_groups_left(bench: &Bench) {
    drop(bench.keeper());
    // Groups of keepers that others have just killed are not ours to judge at this moment.
    let left = || {
        drop(bench.keeper());
        abandoned_groups()
    };
    assert!(eventually(|| left().is_empty()), "groups were left: {:?}", left());
}

/// A keeper whose process and socket are apart, so that either can be killed.
struct Apart {
    child: Child,
    channel: Channel,
}

fn start_apart(bench: &Bench) -> Apart {
    let (channel, there) = Channel::pair().expect("there are descriptors");
    let child = Command::new(bench.programs.join("cowork-keeper"))
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(there)))
        .stdout(Stdio::null())
        .spawn()
        .expect("the keeper starts");
    Apart { child, channel }
}

fn ask_for_session(channel: &Channel, plan: SessionPlan) {
    use cowork_api::keeper::{Call, Request};
    let call = Call { number: 1, request: Request::Create(Box::new(plan)) };
    // A keeper that is already dead hears nothing.
    cowork_sys::ignore(channel.send(&cowork_api::encode(&call), &[]));
}

/// A plan with a grant: as root, that needs one more process while it is made.
fn plan_with_grant(folder: &Path) -> SessionPlan {
    let mut plan = new_plan();
    plan.grants.push(grant_of(folder, "project", Access::Write));
    plan
}

/// Waits without giving the processor away: sleeping is too coarse for these moments.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn a_keeper_killed_at_any_moment_of_a_creation_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let folder = bench.folder("project");
        for moment in 0..MOMENTS {
            let mut keeper = start_apart(bench);
            ask_for_session(&keeper.channel, plan_with_grant(folder.path()));
            pass(Duration::from_micros(moment * 100));
            keeper.child.kill().expect("it is ours");
            keeper.child.wait().expect("it is ours");
            assert_no_usable_session(&mut keeper.channel);
            assert_nobody_left(&format!("keeper killed after {} µs", moment * 100));
        }
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
    });
}

/// Whatever the keeper answered before it died, no session can be used through it.
fn assert_no_usable_session(channel: &mut Channel) {
    // While anybody holds the keeper's end, there is nothing to read and no end either.
    while is_ready(channel, Duration::from_secs(20)) {
        let Ok(Some(packet)) = channel.receive(Peer::Trusted) else { return };
        // The command socket comes first.
        if let Some(commands) = packet.handles.first() {
            let gone = eventually(|| !somebody_listens(commands));
            assert!(gone, "the session outlived its keeper");
        }
    }
}

/// The moment at which a process of the keeper exists and has done nothing yet.
#[test]
fn a_keeper_killed_just_after_each_birth_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let folder = bench.folder("project");
        for birth in 0..120 {
            let mut keeper = start_apart(bench);
            ask_for_session(&keeper.channel, plan_with_grant(folder.path()));
            let pid = keeper.child.id();
            let children = format!("/proc/{pid}/task/{pid}/children");
            let deadline = Instant::now() + Duration::from_secs(5);
            // The seed is the keeper's first child, as root the carrier of an id map the next, and
            // the session the last.
            let births = if bench.person == cowork_testbed::Person::User { 2 } else { 3 };
            let mut seen = BTreeSet::new();
            while seen.len() <= birth % births && Instant::now() < deadline {
                let now = std::fs::read_to_string(&children).unwrap_or_default();
                seen.extend(now.split_whitespace().map(str::to_owned));
            }
            keeper.child.kill().expect("it is ours");
            keeper.child.wait().expect("it is ours");
            assert_nobody_left(&format!("keeper killed after birth {}", birth % births + 1));
        }
        assert_no_groups_left(bench);
    });
}

#[test]
fn a_client_killed_at_any_moment_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let folder = bench.folder("project");
        for moment in 0..MOMENTS {
            let mut client = Command::new(bench.programs.join("cowork"))
                .args(["run", "--no-daemon", "--grant"])
                .arg(folder.path())
                .args(["--", "sleep", "1000"])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the client starts");
            // The client itself takes a while to come to the point.
            pass(Duration::from_micros(moment * 200));
            client.kill().expect("it is ours");
            client.wait().expect("it is ours");
            assert_nobody_left(&format!("client killed after {} µs", moment * 200));
        }
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
    });
}

#[test]
fn a_client_killed_while_its_command_runs_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let folder = bench.folder("project");
        let mut client = Command::new(bench.programs.join("cowork"))
            .args(["run", "--no-daemon", "--grant"])
            .arg(format!("{}:rw=project", folder.path().display()))
            .args(["--", "sh", "-c", "touch mnt/project/started; setsid sleep 1000 & sleep 1000"])
            .stdin(Stdio::null())
            .spawn()
            .expect("the client starts");
        assert!(eventually(|| folder.read("started").is_some()), "the command did not start");
        client.kill().expect("it is ours");
        client.wait().expect("it is ours");
        assert_nobody_left("client killed while its command runs");
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
    });
}

#[test]
fn an_init_killed_ends_the_session_and_is_reported() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let mut keeper = bench.keeper();
        let folder = bench.folder("project");
        for _ in 0..20 {
            let room = Room::make(&mut keeper, new_plan());
            kill(room.status.init);
            let session = room.id();
            let reason = EndReason::InitDied;
            assert_eq!(event(&mut keeper), Message::SessionEnded { session, reason });
        }
        let mut room = Room::make(&mut keeper, new_plan());
        let wanted = grant_of(folder.path(), "project", Access::Write);
        grant(&mut keeper, &room, wanted).expect("it can be granted");
        let at = room.granted("project");
        let mut sleeper = room.start(&["/bin/sh", "-c", &format!("cd {at}; echo in; sleep 1000")]);
        sleeper.expect("in");
        kill(room.status.init);
        assert_eq!(sleeper.rest(), "");
        let session = room.id();
        let reason = EndReason::InitDied;
        assert_eq!(event(&mut keeper), Message::SessionEnded { session, reason });
        let next = Room::make(&mut keeper, new_plan());
        let wanted = grant_of(folder.path(), "project", Access::Write);
        grant(&mut keeper, &next, wanted).expect("the keeper goes on");
        drop(keeper);
        assert_nobody_left("init killed");
        assert_no_groups_left(bench);
    });
}

#[test]
fn an_init_killed_while_it_is_made_fails_the_creation_and_nothing_else() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let mut failed = 0;
        for moment in 0..MOMENTS {
            let mut keeper = start_apart(bench);
            ask_for_session(&keeper.channel, new_plan());
            let deadline = Instant::now() + Duration::from_secs(10);
            let mut victim = None;
            while victim.is_none() && Instant::now() < deadline {
                let children = children_of(keeper.child.id());
                // It comes after the seed.
                victim = children.into_iter().skip_while(|pid| !is_seed(*pid)).nth(1);
            }
            pass(Duration::from_micros(moment * 50));
            let victim = victim.expect("the keeper has a child");
            kill(victim);
            failed += u32::from(creation_failed(&mut keeper.channel, victim));
            drop(keeper.channel);
            keeper.child.wait().expect("it is ours");
            assert_nobody_left(&format!("init killed {} µs after its birth", moment * 50));
        }
        assert!(failed > 0, "no creation was interrupted: the moments are all too late");
        assert_no_groups_left(bench);
    });
}

/// The keeper's children, oldest first.
fn children_of(keeper: u32) -> Vec<i32> {
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let now = std::fs::read_to_string(children).unwrap_or_default();
    now.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a child of a keeper is its seed, or becomes it: it is in the pid namespace of the keeper.
/// Others are the first in one of their own, and so is one that the keeper has for a moment before
/// its seed, which mounts a `/proc` without processes.
fn is_seed(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().count() == 1) && state_of(pid) != Some('Z')
}

/// The keeper's child that becomes its seed, as soon as it is there.
fn seed_to_be(keeper: u32) -> i32 {
    let mut seed = None;
    let found = eventually(|| {
        seed = children_of(keeper).into_iter().find(|pid| is_seed(*pid));
        seed.is_some()
    });
    assert!(found, "the keeper has no seed");
    seed.expect("it was found")
}

/// Whether a process is the first one of a pid namespace: a copy of the seed that waits for a session.
fn is_first(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().next_back() == Some("1"))
}

/// The keeper's child that is its seed by now.
pub(crate) fn seed_of(keeper: u32) -> i32 {
    let named = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "cowork-seed" && state_of(*pid) != Some('Z') && !is_first(*pid)
    };
    let all = || descendants(i32::try_from(keeper).expect("it is small"));
    let mut seed = None;
    assert!(
        eventually(|| {
            seed = all().into_iter().find(named);
            seed.is_some()
        }),
        "no seed"
    );
    seed.expect("it was found")
}

#[test]
fn a_seed_killed_at_any_moment_costs_a_session_at_most() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        for moment in 0..MOMENTS {
            let mut keeper = start_apart(bench);
            ask_for_session(&keeper.channel, new_plan());
            let seed = seed_to_be(keeper.child.id());
            pass(Duration::from_micros(moment * 50));
            kill(seed);
            // It is made by another one, or was made already.
            let answered = is_ready(&keeper.channel, crate::bench::A_WHILE);
            assert!(answered, "the keeper is silent");
            let answer = keeper.channel.receive(Peer::Trusted).expect("it speaks");
            let answer = cowork_api::decode::<Message>(&answer.expect("it lives").bytes);
            let made = matches!(answer, Ok(Message::Answer { result: Ok(_), .. }));
            assert!(made, "seed killed after {} µs: {answer:?}", moment * 50);
            drop(keeper.channel);
            keeper.child.wait().expect("it is ours");
            assert_nobody_left(&format!("seed killed after {} µs", moment * 50));
        }
        assert_no_groups_left(bench);
    });
}

#[test]
fn a_seed_that_died_is_replaced() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let mut keeper = bench.keeper();
        let mut first = Room::make(&mut keeper, new_plan());
        for _ in 0..20 {
            kill(seed_of(keeper.pid()));
            let mut next = Room::make(&mut keeper, new_plan());
            assert_eq!(next.shell("echo well"), "well\n");
        }
        assert_eq!(first.shell("echo well"), "well\n");
        drop(keeper);
        assert_nobody_left("seeds killed");
    });
}

/// The keeper's child that waits for the next session.
fn newborn_of(keeper: u32, sessions: &[i32]) -> i32 {
    let waits = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "cowork-init" && state_of(*pid) == Some('S') && !sessions.contains(pid)
    };
    let mut newborn = None;
    let found = eventually(|| {
        newborn = children_of(keeper).into_iter().find(waits);
        newborn.is_some()
    });
    assert!(found, "nobody waits for the next session");
    newborn.expect("it was found")
}

#[test]
fn a_first_process_that_dies_before_its_session_comes_is_replaced() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let mut keeper = bench.keeper();
        // A keeper of one session makes nothing ready for another.
        let mut rooms: Vec<Room> = (0..2).map(|_| Room::make(&mut keeper, new_plan())).collect();
        for _ in 0..10 {
            let sessions: Vec<i32> = rooms.iter().map(|room| room.status.init).collect();
            let newborn = newborn_of(keeper.pid(), &sessions);
            kill(newborn);
            assert!(eventually(|| state_of(newborn).is_none_or(|state| state == 'Z')));
            let mut next = Room::make(&mut keeper, new_plan());
            assert_eq!(next.shell("echo well"), "well\n");
            rooms.push(next);
        }
        // One that lives becomes the next session's.
        let sessions: Vec<i32> = rooms.iter().map(|room| room.status.init).collect();
        let newborn = newborn_of(keeper.pid(), &sessions);
        let mut next = Room::make(&mut keeper, new_plan());
        assert_eq!(next.status.init, newborn);
        assert_eq!(next.shell("echo well"), "well\n");
        drop(rooms);
        drop(keeper);
        assert_nobody_left("first processes killed");
        assert_no_groups_left(bench);
    });
}

/// Waits for the answer to the first call and says whether it is a failure. A victim that came too late
/// to fail it is followed by the session's end; one that was not told anything yet is replaced.
fn creation_failed(channel: &mut Channel, victim: i32) -> bool {
    let next = || {
        assert!(is_ready(channel, crate::bench::A_WHILE), "the keeper is silent");
        let packet = channel.receive(Peer::Trusted).expect("it speaks").expect("it lives");
        cowork_api::decode::<Message>(&packet.bytes).expect("it is a message")
    };
    match next() {
        Message::Answer { result: Err(_), .. } => true,
        Message::Answer { result: Ok(Reply::Session(made)), .. } if made.init != victim => false,
        Message::Answer { result: Ok(_), .. } => {
            let mut ended = next();
            while matches!(ended, Message::BrokerRestarted { .. }) {
                ended = next();
            }
            let died = matches!(ended, Message::SessionEnded { reason: EndReason::InitDied, .. });
            assert!(died, "{ended:?}");
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_keeper_killed_takes_every_process_with_it() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let (keeper, mut room) = bench.room();
        let script = "setsid sleep 1000 & (sleep 1000 & sleep 1000) & echo started; wait";
        let mut family = room.start(&["/bin/sh", "-c", script]);
        family.expect("started");
        kill(i32::try_from(keeper.pid()).expect("it is small"));
        assert_eq!(family.rest(), "");
        let gone = eventually(|| !somebody_listens(&room.session));
        assert!(gone, "the session's socket still works");
        drop(keeper);
        assert_nobody_left("keeper killed");
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
    });
}

/// Whether anybody still holds the other end of a command socket.
fn somebody_listens(socket: &impl AsFd) -> bool {
    let ping = cowork_api::encode(&ToInit::Ping { nonce: 3 });
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    !matches!(rustix::net::send(socket, &ping, flags), Err(Errno::PIPE | Errno::CONNRESET))
}

#[test]
fn the_next_client_removes_groups_of_a_killed_keeper() {
    as_root(|bench| {
        adopt_orphans();
        let (keeper, room) = bench.room();
        let pid = keeper.pid();
        let groups = || {
            let mut found = Vec::new();
            for entry in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
                find_named(&entry.path(), &format!("cowork-{pid}."), 6, &mut found);
            }
            found
        };
        assert!(!groups().is_empty(), "the session has no group: nothing is shown here");
        kill(i32::try_from(pid).expect("it is small"));
        drop(room);
        // The client's own end sweeps.
        drop(keeper);
        assert!(eventually(|| groups().is_empty()), "groups were left: {:?}", groups());
    });
}

fn find_named(folder: &Path, start: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(start) {
            found.push(entry.path());
        } else if depth > 0 {
            find_named(&entry.path(), start, depth - 1, found);
        }
    }
}

#[test]
fn a_client_that_ends_well_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let (keeper, mut room): (Keeper, Room) = bench.room();
        let other = {
            let mut keeper = bench.keeper();
            let room = Room::make(&mut keeper, new_plan());
            (keeper, room)
        };
        room.start(&["/bin/sleep", "1000"]);
        drop(other);
        drop(keeper);
        // No waiting: when the client has dropped its keeper, nothing is left.
        let left = descendants(own_pid());
        assert!(left.is_empty(), "{left:?}");
        drop(room);
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
    });
}

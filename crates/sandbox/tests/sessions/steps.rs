//! What is left when somebody is killed before any of its system calls: nothing.
//!
//! A tracer lets the keeper, its seed, the first process of a session or its broker go from call to
//! call, and kills it when it is about to make the call with a certain number. The next round waits for one
//! more, until the work is done before. So there is no step at which nobody was killed.

use crate::bench::{Bench, Room, as_everybody_apart, event, eventually, grant, grant_of, new_plan};
use crate::broker::brokers;
use crate::death::{
    adopt_orphans, assert_no_groups_left, assert_nobody_left, assert_same_mounts, mounts, seed_of,
};
use cowork_api::egress::Socket;
use cowork_api::guest::{Ending, FromInit, ToInit};
use cowork_api::keeper::{Message, Request};
use cowork_api::plan::Access;
use cowork_sandbox::client::{ClientError, Keeper};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Kills a running process before its call with a certain number, or, with `child`, the first one
/// that it makes. With `threads` the calls of all its threads count. Says `ready` when it counts, and `killed` when it is about to kill. Calls that change
/// nothing beyond the process itself are not counted: between them everything stays as it is.
const TRACER: &str = "
import ctypes, os, platform, signal, struct, sys
CONT, TO_CALL, SEIZE, INTERRUPT, CALL_INFO = 7, 24, 0x4206, 0x4207, 0x420e
TELL_CALLS, TELL_FORK, TELL_CLONE, ALL, ENTRY = 1, 2, 8, 0x40000000, 1
OPEN, QUIET = {
    'x86_64': (257, {0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 32, 33, 39, 45, 47, 72, 79,
        89, 98, 102, 104, 107, 108, 137, 138, 157, 186, 191, 192, 202, 217, 228, 232, 262, 267, 271,
        281, 292, 302, 332, 436, 437, 444, 445}),
    'aarch64': (56, {8, 9, 17, 22, 23, 24, 25, 43, 44, 50, 57, 61, 62, 63, 67, 73, 78, 79, 80, 98, 113,
        134, 135, 139, 165, 167, 172, 174, 175, 176, 177, 178, 207, 212, 214, 215, 222, 226, 261, 291,
        436, 437, 444, 445}),
}[platform.machine()]
O_CREAT = 0o100
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
left, first, of_child = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == 'child'
options = TELL_CALLS | {'itself': 0, 'threads': TELL_CLONE, 'child': TELL_FORK | TELL_CLONE}[sys.argv[3]]
seized = set()
while new := {int(thread) for thread in os.listdir(f'/proc/{first}/task')} - seized:
    for thread in new:
        # One that a seized thread has just started is traced already.
        if libc.ptrace(SEIZE, thread, None, options) == 0: libc.ptrace(INTERRUPT, thread, None, None)
        elif thread == first: sys.exit(f'it cannot be traced: {os.strerror(ctypes.get_errno())}')
    seized |= new
def is_counted(process):
    info = ctypes.create_string_buffer(88)
    libc.ptrace(CALL_INFO, process, ctypes.c_void_p(88), ctypes.cast(info, ctypes.c_void_p))
    number, flags = struct.unpack_from('Q', info.raw, 24)[0], struct.unpack_from('Q', info.raw, 48)[0]
    return info.raw[0] == ENTRY and not (number in QUIET or number == OPEN and not flags & O_CREAT)
process, status = os.waitpid(first, ALL)
print('ready', flush=True)
while True:
    steps = process != first if of_child else True
    how = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else None
    if how == signal.SIGTRAP | 0x80 and steps and is_counted(process):
        if left == 0: break
        left -= 1
    given = how if how not in (None, signal.SIGTRAP, signal.SIGTRAP | 0x80) and not status >> 16 else 0
    if how is not None: libc.ptrace(TO_CALL if steps else CONT, process, None, given)
    process, status = os.waitpid(-1, ALL)
print('killed', flush=True)
os.kill(process, signal.SIGKILL)
";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Keeper,
    Seed,
    First,
    Broker,
}

struct Tracer {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Tracer {
    /// Has the victim killed before the call with this number, from now on.
    fn attach(keeper: &Keeper, victim: Victim, call: usize) -> Self {
        let (process, which) = match victim {
            Victim::Keeper => (i32::try_from(keeper.pid()).expect("it is small"), "itself"),
            Victim::Seed => (seed_of(keeper.pid()), "itself"),
            Victim::First => (seed_of(keeper.pid()), "child"),
            Victim::Broker => (broker_of(keeper), "threads"),
        };
        let mut child = Command::new("python3")
            .args(["-S", "-E", "-c", TRACER])
            .args([call.to_string(), process.to_string(), which.to_owned()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tracer starts");
        let says = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut tracer = Self { child, says };
        assert_eq!(tracer.line(), "ready\n", "{victim:?}");
        tracer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it speaks");
        line
    }

    /// Lets the victim go, and says whether it was killed.
    fn end(mut self) -> bool {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
        self.line() == "killed\n"
    }
}

/// The broker that a keeper has, or has started again by then.
fn broker_of(keeper: &Keeper) -> i32 {
    assert!(eventually(|| brokers(keeper).len() == 1), "there is no broker");
    brokers(keeper)[0]
}

/// A session, and what is done to one while it lives.
fn work(keeper: &mut Keeper, folder: &Path) -> Result<(), ClientError> {
    let (status, _session) = keeper.create(new_plan())?;
    let session = || status.session.clone();
    let wanted = grant_of(folder, "project", Access::Write);
    keeper.call(Request::Grant { session: session(), grant: wanted })?;
    keeper.call(Request::Freeze { session: session() })?;
    keeper.call(Request::Thaw { session: session() })?;
    keeper.call(Request::Revoke { session: session(), name: "project".to_owned() })?;
    keeper.call(Request::Destroy { session: session() })?;
    Ok(())
}

/// Writes in a folder, and connects to a socket of its own. A call that a broker had in work when it
/// was killed says `EINTR`, and may have been carried out.
const BUSY: &str = "
import errno, os, socket, sys
os.chdir(sys.argv[1])
def done(act):
    while True:
        try: return act()
        except InterruptedError: pass
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOENT, errno.EISCONN, errno.EINVAL): return
            raise
done(lambda: os.mkdir('made'))
with open('made/file', 'w') as file: file.write('written')
done(lambda: os.rename('made/file', 'made/other'))
assert open('made/other').read() == 'written'
here, listener, peer = f'/tmp/{os.getpid()}', socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
done(lambda: listener.bind(here))
listener.listen(1)
peer.setblocking(False)
done(lambda: peer.connect(here))
peer.send(b'x')
assert listener.accept()[0].recv(1) == b'x'
done(lambda: os.unlink('made/other'))
done(lambda: os.rmdir('made'))
";

/// Runs that program to its end, if there is one.
fn keep_busy(room: &mut Room) -> Result<Ending, ClientError> {
    let folder = room.granted("project");
    let mut execute = room.execute(&["/usr/bin/python3", "-I", "-S", "-c", BUSY, &folder]);
    execute.stdio = Default::default();
    room.session.send(&ToInit::Execute(execute), &[])?;
    loop {
        match room.session.receive()?.0 {
            FromInit::Started { .. } => {}
            FromInit::Ended { ending, .. } => return Ok(ending),
            other => panic!("unasked: {other:?}"),
        }
    }
}

fn run_busy(room: &mut Room) -> (Ending, String) {
    let folder = room.granted("project");
    room.run(&["/usr/bin/python3", "-I", "-S", "-c", BUSY, &folder])
}

/// A keeper with a session that may change the folder.
fn busy_room(bench: &Bench, folder: &Path) -> (Keeper, Room) {
    let (mut keeper, room) = bench.room();
    grant(&mut keeper, &room, grant_of(folder, "project", Access::Write)).expect("granted");
    (keeper, room)
}

/// What is asked of a keeper while a session works: sockets in its network, a broker, another access.
fn work_inside(keeper: &mut Keeper, room: &mut Room, folder: &Path) -> Result<(), ClientError> {
    let sockets = vec![Socket::Port(443)];
    keeper.call(Request::Listen { session: room.id(), sockets })?;
    if keep_busy(room)? != Ending::Status(0) {
        // What a command does fails when nobody is there any more who decides it.
        return Err(ClientError::Gone("keeper"));
    }
    let wanted = grant_of(folder, "project", Access::Read);
    keeper.call(Request::Regrant { session: room.id(), grant: wanted })?;
    Ok(())
}

/// Kills the victim before each of its calls in turn, and says how many there were.
fn sweep(
    bench: &Bench,
    victim: Victim,
    round: fn(&mut Keeper, &Path, Tracer, &str) -> bool,
) -> usize {
    adopt_orphans();
    let before = mounts();
    let folder = bench.folder("project");
    let mut call = 0;
    loop {
        let mut keeper = bench.keeper();
        let tracer = Tracer::attach(&keeper, victim, call);
        let what = format!("{victim:?} killed before call {call}");
        let killed = round(&mut keeper, folder.path(), tracer, &what);
        drop(keeper);
        assert_nobody_left(&what);
        if !killed {
            break;
        }
        call += 1;
    }
    assert_same_mounts(&before);
    assert_no_groups_left(bench);
    println!("{victim:?} was killed before each of {call} calls");
    call
}

#[test]
fn a_keeper_killed_before_any_of_its_calls_leaves_nothing() {
    as_everybody_apart(|bench| {
        let calls = sweep(bench, Victim::Keeper, |keeper, folder, tracer, what| {
            let worked = work(keeper, folder);
            let killed = tracer.end();
            assert_eq!(worked.is_err(), killed, "{what}: {worked:?}");
            killed
        });
        assert!(calls > 40, "{calls}");
    });
}

#[test]
fn a_seed_killed_before_any_of_its_calls_costs_no_session() {
    as_everybody_apart(|bench| {
        let calls = sweep(bench, Victim::Seed, |keeper, folder, tracer, what| {
            work(keeper, folder).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            tracer.end()
        });
        assert!(calls > 4, "{calls}");
    });
}

#[test]
fn a_first_process_killed_before_any_of_its_calls_is_no_session() {
    as_everybody_apart(|bench| {
        let calls = sweep(bench, Victim::First, |keeper, _, tracer, what| {
            let made = keeper.create(new_plan());
            let killed = tracer.end();
            // One that dies before it was told anything is replaced, and it may have been killed when
            // it was ready already, or been the one that waits for the next session.
            let failed = matches!(made, Err(ClientError::Refused(_)));
            assert!(failed || made.is_ok(), "{what}: {made:?}");
            assert!(killed || made.is_ok(), "{what}: {made:?}");
            let mut next = Room::make(keeper, new_plan());
            assert_eq!(next.shell("echo well"), "well\n", "{what}");
            killed
        });
        assert!(calls > 40, "{calls}");
    });
}

#[test]
fn a_keeper_killed_while_a_session_works_leaves_nothing() {
    as_everybody_apart(|bench| {
        adopt_orphans();
        let before = mounts();
        let folder = bench.folder("project");
        let mut call = 0;
        loop {
            let (mut keeper, mut room) = busy_room(bench, folder.path());
            let tracer = Tracer::attach(&keeper, Victim::Keeper, call);
            let worked = work_inside(&mut keeper, &mut room, folder.path());
            let killed = tracer.end();
            let what = format!("killed before call {call}");
            assert!(killed || worked.is_ok(), "{what}: {worked:?}");
            drop((keeper, room));
            assert_nobody_left(&what);
            if !killed {
                break;
            }
            call += 1;
        }
        assert_same_mounts(&before);
        assert_no_groups_left(bench);
        println!("it was killed before each of {call} calls");
        assert!(call > 20, "{call}");
    });
}

#[test]
fn a_broker_killed_before_any_of_its_calls_costs_no_change() {
    /// Kills of one session's; a keeper starts a broker that often and more.
    const KILLS: usize = 80;
    as_everybody_apart(|bench| {
        let folder = bench.folder("project");
        let (mut keeper, mut room) = busy_room(bench, folder.path());
        let well = (Ending::Status(0), String::new());
        let mut call = 0;
        loop {
            assert_eq!(run_busy(&mut room), well);
            let tracer = Tracer::attach(&keeper, Victim::Broker, call);
            let worked = run_busy(&mut room);
            let killed = tracer.end();
            assert_eq!(worked, well, "killed before call {call}");
            assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 0, "call {call}");
            if !killed {
                break;
            }
            let session = room.id();
            assert_eq!(event(&mut keeper), Message::BrokerRestarted { session });
            call += 1;
            if call % KILLS == 0 {
                (keeper, room) = busy_room(bench, folder.path());
            }
        }
        println!("it was killed before each of {call} calls");
        assert!(call > 20, "{call}");
    });
}

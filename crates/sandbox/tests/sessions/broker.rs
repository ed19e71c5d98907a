//! Connections to sockets in the file system, and what happens to them when the broker dies.

use crate::bench::{
    Bench, Room, arguments_of, as_everybody, descendants, event, eventually, grant, grant_of,
    new_plan,
};
use cowork_api::guest::{Ending, ToInit};
use cowork_api::keeper::Message;
use cowork_api::plan::Access;
use cowork_sandbox::client::Keeper;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::net::UnixListener;

/// Listens at a path and answers everybody who comes.
const SERVER: &str = "
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(64)
print('listens', flush=True)
while True:
    peer = listener.accept()[0]
    peer.sendall(b'welcome')
    peer.close()
";

/// Connects to a path for every line it hears.
const CLIENT: &str = "
import errno, os, socket, sys
for line in sys.stdin:
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(line.strip())
        print(peer.recv(100).decode(), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    peer.close()
";

/// The broker processes of a keeper.
pub(crate) fn brokers(keeper: &Keeper) -> Vec<i32> {
    let keeper = i32::try_from(keeper.pid()).expect("it is small");
    let all = descendants(keeper);
    all.into_iter().filter(|pid| arguments_of(*pid).starts_with("cowork-broker")).collect()
}

pub(crate) fn kill_broker(keeper: &Keeper) {
    let [broker] = brokers(keeper)[..] else { panic!("one broker: {:?}", brokers(keeper)) };
    let pid = Pid::from_raw(broker).expect("a process");
    kill_process(pid, Signal::KILL).expect("it is there");
}

fn room_with_project(bench: &Bench) -> (Keeper, Room, cowork_testbed::Folder) {
    let (mut keeper, room) = bench.room();
    let folder = bench.folder("project");
    grant(&mut keeper, &room, grant_of(folder.path(), "project", Access::Write)).expect("granted");
    (keeper, room, folder)
}

#[test]
fn sockets_that_the_session_bound_are_reached_wherever_they_lie() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = room_with_project(bench);
        let mut client = room.python(CLIENT, &[]);
        let places =
            ["/tmp/s", "/run/s", &format!("{}/s", room.home()), &room.granted("project/s")];
        for place in places {
            let mut server = room.python(SERVER, &[place]);
            server.expect("listens");
            client.say(place);
            assert_eq!(client.line().as_deref(), Some("welcome"), "{place}");
        }
    });
}

#[test]
fn names_are_resolved_as_the_caller_sees_them() {
    as_everybody(|bench| {
        let (_keeper, mut room, _folder) = room_with_project(bench);
        let mut server = room.python(SERVER, &["/tmp/s"]);
        server.expect("listens");
        let said = room.shell("cd /tmp && mkdir d && ln -s ../s d/link && ln -s /tmp/s absolute");
        assert_eq!(said, "");
        let mut client = room.python(&format!("import os; os.chdir('/tmp/d'){CLIENT}"), &[]);
        for name in ["link", "../s", "../absolute", "/tmp/d/../s", "../d/./link"] {
            client.say(name);
            assert_eq!(client.line().as_deref(), Some("welcome"), "{name}");
        }
        for (name, expected) in [("nothing", "ENOENT"), ("/etc/passwd", "ECONNREFUSED")] {
            client.say(name);
            client.expect(expected);
        }
    });
}

#[test]
fn a_socket_of_the_host_in_a_granted_folder_is_refused() {
    as_everybody(|bench| {
        let (_keeper, mut room, folder) = room_with_project(bench);
        let listener = UnixListener::bind(folder.path().join("host")).expect("ours");
        listener.set_nonblocking(true).expect("ours");
        let mut client = room.python(CLIENT, &[]);
        client.say(&room.granted("project/host"));
        client.expect("EACCES");
        let came = listener.accept().map(|_| ());
        assert_eq!(came.map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    });
}

#[test]
fn a_killed_broker_is_replaced_and_connections_go_on() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut server = room.python(SERVER, &["/tmp/s"]);
        server.expect("listens");
        let mut client = room.python(CLIENT, &[]);
        for _ in 0..5 {
            client.say("/tmp/s");
            client.expect("welcome");
            kill_broker(&keeper);
            assert_eq!(event(&mut keeper), Message::BrokerRestarted { session: room.id() });
            client.say("/tmp/s");
            client.expect("welcome");
        }
    });
}

/// A listener whose queue is full, until it is told to take one out of it.
const FULL: &str = "
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
first = socket.socket(socket.AF_UNIX)
first.connect(sys.argv[1])
print('full', flush=True)
if sys.stdin.readline():
    listener.accept()
    sys.stdin.readline()
";

/// A crowd that waits for room in the queue. The call is made directly: Python's own hides an
/// interruption.
const CROWD: &str = "
import ctypes, errno, os, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack('H108s', socket.AF_UNIX, sys.argv[1].encode())

def connect():
    peer = socket.socket(socket.AF_UNIX)
    failed = libc.connect(peer.fileno(), address, len(address))
    # In one piece: others of the crowd speak at the same time.
    said = errno.errorcode[ctypes.get_errno()] if failed else 'connected'
    os.write(1, said.encode() + b'\\n')

for i in range(int(sys.argv[2])):
    threading.Thread(target=connect).start()
os.write(1, b'waits\\n')
";

#[test]
fn a_connection_that_a_killed_broker_had_in_work_is_made_by_the_next() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut full = room.python(FULL, &["/tmp/s"]);
        full.expect("full");
        let mut stuck = room.python(CROWD, &["/tmp/s", "1"]);
        stuck.expect("waits");
        let said = stuck.says_within(std::time::Duration::from_secs(1));
        assert_eq!(said, None, "the connection did not wait");
        for _ in 0..3 {
            kill_broker(&keeper);
            assert_eq!(event(&mut keeper), Message::BrokerRestarted { session: room.id() });
            let said = stuck.says_within(std::time::Duration::from_millis(300));
            assert_eq!(said, None, "the connection did not wait any longer");
        }
        full.say("take one");
        stuck.expect("connected");
    });
}

#[test]
fn stuck_connections_keep_nobody_else_waiting() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut other = Room::make(&mut keeper, new_plan());
        let mut full = room.python(FULL, &["/tmp/s"]);
        full.expect("full");
        let mut stuck = room.python(CROWD, &["/tmp/s", "300"]);
        // What is beyond the limit is told at once; the rest waits.
        let mut refused = 0;
        let mut waits = false;
        while !waits || refused < 44 {
            match stuck.line().as_deref() {
                Some("waits") => waits = true,
                Some("EAGAIN") => refused += 1,
                said => panic!("{said:?} after {refused}"),
            }
        }
        let mut server = other.python(SERVER, &["/tmp/s"]);
        server.expect("listens");
        let mut client = other.python(CLIENT, &[]);
        client.say("/tmp/s");
        client.expect("welcome");
        // In the session itself, a few more may find a place; soon they are told too.
        let mut more = room.python(CROWD, &["/tmp/s", "20"]);
        let told = (0..2).map(|_| more.line()).any(|line| line.as_deref() == Some("EAGAIN"));
        assert!(told, "nobody is told");
        assert!(room.ping());
        full.input = None;
        let rest = stuck.rest() + &more.rest();
        let ended = |line: &str| matches!(line, "ECONNREFUSED" | "ECONNRESET" | "EAGAIN" | "waits");
        assert!(rest.lines().all(ended), "{rest}");
        // With the queue gone the session can connect again.
        let mut server = room.python(SERVER, &["/tmp/t"]);
        server.expect("listens");
        let mut own = room.python(CLIENT, &[]);
        let connects = eventually(|| {
            own.say("/tmp/t");
            own.line().as_deref() == Some("welcome")
        });
        assert!(connects, "the broker did not recover");
    });
}

#[test]
fn a_killed_caller_does_not_keep_its_place_for_ever() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        // The listener stays, its queue full; only those who wait for it are killed.
        let mut full = room.python(FULL, &["/tmp/s"]);
        full.expect("full");
        for _ in 0..3 {
            let mut crowd = room.python(CROWD, &["/tmp/s", "100"]);
            while crowd.line().as_deref() != Some("waits") {}
            std::thread::sleep(std::time::Duration::from_secs(1));
            let whom = cowork_api::guest::Whom::Leader;
            let end = ToInit::Signal { command: crowd.number, signal: 9, whom };
            room.send(&end, &[]);
            assert_eq!(room.ending(&crowd), Ending::Signal(9));
        }
        let mut server = room.python(SERVER, &["/tmp/t"]);
        server.expect("listens");
        let mut client = room.python(CLIENT, &[]);
        client.say("/tmp/t");
        client.expect("welcome");
    });
}

#[test]
fn a_broker_ends_with_its_session() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut server = room.python(SERVER, &["/tmp/s"]);
        server.expect("listens");
        let mut client = room.python(CLIENT, &[]);
        client.say("/tmp/s");
        client.expect("welcome");
        assert_eq!(brokers(&keeper).len(), 1);
        let request = cowork_api::keeper::Request::Destroy { session: room.id() };
        crate::bench::ask(&mut keeper, request).expect("it ends");
        assert_eq!(brokers(&keeper), Vec::<i32>::new());
    });
}

//! A keeper that outlives its clients, and what the next client finds.

use crate::bench::{
    A_WHILE, Bench, Room, as_everybody, as_everybody_apart, as_root, descendants, eventually,
    is_ready, lives, new_plan, parent_of, state_of,
};
use cowork_api::guest::{Ending, FromInit, ToInit};
use cowork_api::keeper::{EndReason, Failure, FailureCode, Message, Reply, Request, Status};
use cowork_api::plan::SessionPlan;
use cowork_sandbox::client::{ClientError, Link, LinkReceiver, LinkSender, Session};
use cowork_testbed::Folder;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// A resident keeper of a test. What is left of it is killed at the end.
pub(crate) struct Resident {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    _folder: Folder,
}

impl Resident {
    pub(crate) fn start(bench: &Bench) -> Self {
        let folder = bench.folder("resident");
        let socket = folder.path().join("keeper.sock");
        let program = bench.programs.join("cowork-keeper");
        let child = Link::launch(&program, &socket, None).expect("the keeper starts");
        Self { child, socket, _folder: folder }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket)
    }

    /// Waits until the keeper has ended, and says whether it ended well.
    fn ends_within(&mut self, time: Duration) -> Option<bool> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return Some(status.success());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One client, which waits for each answer.
pub(crate) struct Client {
    sender: LinkSender,
    receiver: LinkReceiver,
    calls: u32,
    events: VecDeque<Message>,
}

impl Client {
    fn connect(socket: &std::path::Path) -> Self {
        let link = Link::connect(socket).expect("the keeper listens");
        let (sender, receiver) = link.split();
        Self { sender, receiver, calls: 0, events: VecDeque::new() }
    }

    fn send(&mut self, request: &Request, handles: &[&OwnedFd]) -> u32 {
        self.calls += 1;
        let handles: Vec<_> = handles.iter().map(AsFd::as_fd).collect();
        self.sender.send(self.calls, request, &handles).expect("the keeper is there");
        self.calls
    }

    pub(crate) fn call(&mut self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), Failure> {
        let number = self.send(request, &[]);
        loop {
            let (message, handles) = self.receive().expect("the keeper speaks");
            match message {
                Message::Answer { number: same, result } if same == number => {
                    return result.map(|reply| (reply, handles));
                }
                Message::Answer { .. } => panic!("an answer to nothing: {message:?}"),
                event => self.events.push_back(event),
            }
        }
    }

    /// Asks for several things at once, and for `meanwhile` after them; that is answered first.
    /// Returns the answers of the others.
    pub(crate) fn call_all(
        &mut self,
        requests: &[Request],
        meanwhile: &Request,
    ) -> Vec<Result<Reply, Failure>> {
        let mut numbers: Vec<u32> =
            requests.iter().map(|request| self.send(request, &[])).collect();
        let last = self.send(meanwhile, &[]);
        let mut answers = Vec::new();
        let mut passed_by = false;
        while !numbers.is_empty() {
            let (message, _) = self.receive().expect("the keeper speaks");
            let Message::Answer { number, result } = message else { continue };
            if number == last {
                passed_by = true;
                continue;
            }
            numbers.retain(|waiting| *waiting != number);
            answers.push(result);
        }
        assert!(passed_by, "the keeper was busy until the end");
        answers
    }

    fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), ClientError> {
        assert!(is_ready(&self.receiver, A_WHILE), "the keeper is silent");
        self.receiver.receive()
    }

    fn event(&mut self) -> Message {
        match self.events.pop_front() {
            Some(event) => event,
            None => self.receive().expect("the keeper speaks").0,
        }
    }

    pub(crate) fn create(&mut self, plan: SessionPlan) -> Room {
        let (status, sockets) = sockets(self.call(&Request::Create(Box::new(plan))));
        let [commands, _requests] = sockets;
        Room::of(status, commands.into())
    }

    fn attach(&mut self, session: &str) -> Room {
        let (status, sockets) =
            sockets(self.call(&Request::Attach { session: session.to_owned() }));
        let [commands, _requests] = sockets;
        Room::of(status, commands.into())
    }
}

fn sockets(made: Result<(Reply, Vec<OwnedFd>), Failure>) -> (Status, [OwnedFd; 2]) {
    let Ok((Reply::Session(status), sockets)) = made else { panic!("no session: {made:?}") };
    let sockets = sockets.try_into().expect("both sockets come along");
    (status, sockets)
}

#[test]
fn sessions_outlive_their_client_and_the_next_one_finds_them() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut first = resident.client();
        let mut room = first.create(new_plan());
        let mut cat = room.start(&["/bin/cat"]);
        let status = room.status.clone();
        drop((first, room));
        let mut second = resident.client();
        let (listed, _) = second.call(&Request::Sessions).expect("it answers");
        assert_eq!(listed, Reply::Sessions(vec![status.clone()]));
        let mut room = second.attach(&status.session);
        assert!(room.ping());
        room.send(&ToInit::Report { nonce: 5 }, &[]);
        let (report, _) = room.hear();
        let running = vec![(cat.number, cat.pid)];
        assert_eq!(report, FromInit::Report { nonce: 5, running, ended: Vec::new() });
        cat.say("still here");
        cat.expect("still here");
        let frozen = Request::Freeze { session: status.session.clone() };
        second.call(&frozen).expect("it freezes");
        let (listed, _) = second.call(&Request::Sessions).expect("it answers");
        assert_eq!(listed, Reply::Sessions(vec![Status { frozen: true, ..status }]));
    });
}

/// Starts commands that end with known statuses, without reading a word of what init says.
fn start_unheard(room: &mut Room, count: u32) -> BTreeMap<u32, Ending> {
    let mut expected = BTreeMap::new();
    for index in 0..count {
        let status = u8::try_from(index % 251).expect("it is small");
        let mut execute = room.execute(&["/bin/sh", "-c", &format!("exit {status}")]);
        execute.stdio = [cowork_api::guest::Stdio::Null; 3];
        expected.insert(execute.command, Ending::Status(status));
        room.send(&ToInit::Execute(execute), &[]);
    }
    expected
}

#[test]
fn no_ending_is_lost_while_nobody_reads_and_the_socket_is_full() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut first = resident.client();
        let mut room = first.create(new_plan());
        let (id, init) = (room.id(), room.status.init);
        let expected = start_unheard(&mut room, 1000);
        drop((first, room));
        let mut second = resident.client();
        let mut room = second.attach(&id);
        assert!(eventually(|| descendants(init).is_empty()), "somebody is still there");
        // The socket held a part of it; the rest came when there was room. Nothing is missing.
        let (mut told, mut started) = (BTreeMap::new(), 0);
        while told.len() < expected.len() {
            match room.receive().0 {
                FromInit::Started { .. } => started += 1,
                FromInit::Ended { command, ending, .. } => {
                    assert_eq!(told.insert(command, ending), None, "told twice");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((&told, started), (&expected, expected.len()));
        // Told is not recorded: a third client finds all of them again.
        drop((second, room));
        let mut third = resident.client();
        let mut room = third.attach(&id);
        assert_eq!(unacknowledged(&mut room), expected);
        for command in expected.keys().filter(|command| *command % 2 == 0) {
            room.send(&ToInit::Acknowledge { command: *command }, &[]);
        }
        let left: BTreeMap<_, _> = expected
            .iter()
            .filter(|(command, _)| *command % 2 == 1)
            .map(|(c, e)| (*c, *e))
            .collect();
        assert_eq!(unacknowledged(&mut room), left);
        for command in left.keys() {
            room.send(&ToInit::Acknowledge { command: *command }, &[]);
        }
        assert_eq!(unacknowledged(&mut room), BTreeMap::new());
    });
}

fn unacknowledged(room: &mut Room) -> BTreeMap<u32, Ending> {
    room.send(&ToInit::Report { nonce: 9 }, &[]);
    match room.hear().0 {
        FromInit::Report { nonce: 9, running, ended } if running.is_empty() => {
            ended.into_iter().map(|(command, ending, _)| (command, ending)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptors_that_were_left_come_back_with_what_was_not_read() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut first = resident.client();
        let mut room = first.create(new_plan());
        let session = room.id();
        let (from_output, output) = rustix::pipe::pipe().expect("descriptors");
        let (input, to_input) = rustix::pipe::pipe().expect("descriptors");
        let execute = room.execute(&["/bin/sh", "-c", "echo before; read line; echo $line"]);
        let command = execute.command;
        room.send(&ToInit::Execute(execute), &[input.as_fd(), output.as_fd()]);
        drop((input, output));
        let deposit = Request::Deposit { session: session.clone(), command };
        first.send(&deposit, &[&to_input, &from_output]);
        assert!(is_ready(&from_output, A_WHILE), "the command is silent");
        // The client dies with its copies; what the command wrote is read by nobody.
        drop((first, room, to_input, from_output));
        let mut second = resident.client();
        let withdraw = Request::Withdraw { session: session.clone(), command };
        for _ in 0..2 {
            let (reply, handles) = second.call(&withdraw).expect("they are kept");
            assert_eq!((reply, handles.len()), (Reply::Withdrawn(2), 2));
        }
        let (_, handles) = second.call(&withdraw).expect("they are kept");
        let [to_input, from_output]: [OwnedFd; 2] = handles.try_into().expect("two");
        std::fs::File::from(to_input).write_all(b"after\n").expect("the command reads");
        second.send(&Request::Release { session: session.clone(), command }, &[]);
        let gone = second.call(&withdraw).expect_err("they are released");
        assert_eq!(gone.code, FailureCode::NoDeposit);
        let mut said = String::new();
        std::fs::File::from(from_output).read_to_string(&mut said).expect("it is a pipe");
        assert_eq!(said, "before\nafter\n");
        let nobody = Request::Withdraw { session: "no-such".into(), command };
        let refused = second.call(&nobody).expect_err("there is none");
        assert_eq!(refused.code, FailureCode::NoSession);
    });
}

#[test]
fn what_a_client_left_just_before_it_died_is_there_for_the_next() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut lasting = resident.client();
        let room = lasting.create(new_plan());
        let session = room.id();
        for command in 0..200 {
            let mut dying = resident.client();
            // What it does not read tells the keeper of its death before what it said.
            for _ in 0..command % 7 {
                dying.send(&Request::Survey, &[]);
            }
            let (read, write) = rustix::pipe::pipe().expect("descriptors");
            rustix::io::write(&write, &[7]).expect("there is room");
            dying.send(&Request::Deposit { session: session.clone(), command }, &[&read]);
            drop((dying, read, write));
            let mut next = resident.client();
            let withdraw = Request::Withdraw { session: session.clone(), command };
            let (_, handles) = next.call(&withdraw).unwrap_or_else(|lost| panic!("{lost:?}"));
            let mut byte = [0];
            rustix::io::read(&handles[0], &mut byte).expect("it is a pipe");
            assert_eq!(byte, [7]);
            lasting.send(&Request::Release { session: session.clone(), command }, &[]);
        }
    });
}

#[test]
fn what_a_client_asked_for_just_before_it_died_is_not_made_later() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut lasting = resident.client();
        for _ in 0..20 {
            let mut dying = resident.client();
            for _ in 0..3 {
                dying.send(&Request::Create(Box::new(new_plan())), &[]);
            }
            drop(dying);
            let mut next = resident.client();
            let mut listed = || match next.call(&Request::Sessions) {
                Ok((Reply::Sessions(all), _)) => all,
                other => panic!("{other:?}"),
            };
            let now = listed();
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(listed(), now);
            for status in now {
                lasting.call(&Request::Destroy { session: status.session }).expect("it ends");
            }
        }
    });
}

#[test]
fn released_descriptors_and_those_of_ended_sessions_are_closed() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut client = resident.client();
        let room = client.create(new_plan());
        let session = room.id();
        let is_held = |read: &OwnedFd| !is_ready(read, Duration::from_millis(50));
        let (read, write) = rustix::pipe::pipe().expect("descriptors");
        let (other, other_write) = rustix::pipe::pipe().expect("descriptors");
        let deposit = |command| Request::Deposit { session: session.clone(), command };
        client.send(&deposit(1), &[&write]);
        client.send(&deposit(2), &[&other_write]);
        drop((write, other_write));
        client.call(&Request::Sessions).expect("it answers");
        assert!(is_held(&read) && is_held(&other));
        // More than is kept for one command replaces what was there, and is not kept.
        let (many, many_write) = rustix::pipe::pipe().expect("descriptors");
        client.send(&deposit(1), &[&many_write; 9]);
        drop(many_write);
        assert!(is_ready(&read, A_WHILE) && is_ready(&many, A_WHILE), "the keeper keeps it");
        assert!(is_held(&other));
        client.call(&Request::Destroy { session }).expect("it ends");
        assert!(is_ready(&other, A_WHILE), "the keeper keeps it");
    });
}

#[test]
fn every_client_hears_of_an_end_and_each_gets_its_own_answers() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let (mut one, mut other) = (resident.client(), resident.client());
        let room = one.create(new_plan());
        let lasting = other.create(new_plan());
        let (status, _) =
            other.call(&Request::Status { session: room.id() }).expect("it is everybody's");
        assert_eq!(status, Reply::Session(room.status.clone()));
        let init = Pid::from_raw(room.status.init).expect("a process");
        kill_process(init, Signal::KILL).expect("it is ours");
        let (session, reason) = (room.id(), EndReason::InitDied);
        let expected = Message::SessionEnded { session, reason };
        assert_eq!(one.event(), expected);
        assert_eq!(other.event(), expected);
        drop(one);
        assert!(lives(lasting.status.init));
        let destroy = Request::Destroy { session: lasting.id() };
        assert_eq!(other.call(&destroy).expect("it ends").0, Reply::Done);
    });
}

#[test]
fn a_client_that_does_not_read_is_let_go_and_nobody_waits_for_it() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let (mut deaf, mut other) = (resident.client(), resident.client());
        let room = other.create(new_plan());
        let status = Request::Status { session: room.id() };
        // Its socket holds some answers, the keeper some more.
        let mut sent = 0_u32;
        let call = |number| {
            let call = cowork_api::keeper::Call { number, request: status.clone() };
            cowork_api::encode(&call)
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let gone = eventually(|| {
            use rustix::io::Errno;
            match rustix::net::send(&deaf.receiver, &call(sent), flags) {
                Ok(_) => sent += 1,
                Err(Errno::AGAIN) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return true,
                Err(errno) => panic!("{errno}"),
            }
            sent > 100_000
        });
        assert!(gone && (200..10_000).contains(&sent), "{sent}");
        assert!(matches!(other.call(&status), Ok((Reply::Session(_), _))));
        // What it was told before it was let go is whole; then there is an end.
        let mut heard = 0;
        let end = loop {
            match deaf.receive() {
                Ok((Message::Answer { number, result: Ok(_) }, _)) => {
                    assert_eq!(number, heard);
                    heard += 1;
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(end, ClientError::Gone(_)), "{end:?}");
        assert!(heard > 10 && heard < sent, "{heard} of {sent}");
    });
}

#[test]
fn a_keeper_that_is_asked_to_leave_leaves_nothing() {
    as_everybody_apart(|bench| {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        let before = mounts();
        let mut resident = Resident::start(bench);
        let mut client = resident.client();
        let mut rooms: Vec<Room> = (0..5).map(|_| client.create(new_plan())).collect();
        let commands: Vec<_> =
            rooms.iter_mut().map(|room| room.start(&["/bin/sleep", "1000"])).collect();
        let keeper = i32::try_from(resident.child.id()).expect("it is small");
        // Of the keeper itself, with which it goes.
        let is_starter = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"cowork-starter\n")
        };
        let (starters, family): (Vec<i32>, Vec<i32>) =
            descendants(keeper).into_iter().partition(is_starter);
        assert!(family.len() >= 10 && starters.len() == 1, "{family:?} {starters:?}");
        assert_eq!(client.call(&Request::Leave).expect("it leaves").0, Reply::Done);
        // When it answers, the sessions are gone already.
        let left: Vec<_> =
            family.iter().filter(|pid| state_of(**pid).is_some_and(|state| state != 'Z')).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(resident.ends_within(A_WHILE), Some(true));
        assert!(starters.iter().all(|pid| state_of(*pid).is_none()), "{starters:?}");
        let over = client.receive().map(|(message, _)| message);
        assert!(matches!(over, Err(ClientError::Gone(_))), "{over:?}");
        assert_eq!(mounts(), before);
        drop((commands, rooms));
        let groups = groups_of(keeper);
        assert!(groups.is_empty(), "{groups:?}");
    });
}

fn groups_of(keeper: i32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("cowork-{keeper}.")) {
                found.push(entry.path());
            } else {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_keeper_with_nobody_and_nothing_to_keep_leaves_after_a_while() {
    as_everybody(|bench| {
        let mut idle = Resident::start(bench);
        let mut keeping = Resident::start(bench);
        let mut client = keeping.client();
        let room = client.create(new_plan());
        drop(client);
        drop(idle.client());
        let since = Instant::now();
        assert_eq!(idle.ends_within(Duration::from_secs(30)), Some(true));
        assert!(since.elapsed() > Duration::from_secs(8), "{:?}", since.elapsed());
        assert_eq!(keeping.ends_within(Duration::from_secs(4)), None);
        let mut client = keeping.client();
        client.call(&Request::Destroy { session: room.id() }).expect("it is still there");
        drop(client);
        assert_eq!(keeping.ends_within(Duration::from_secs(30)), Some(true));
    });
}

#[test]
fn the_socket_is_its_owners_alone_and_replaces_a_stale_one() {
    as_everybody(|bench| {
        let mut resident = Resident::start(bench);
        let mode =
            || std::fs::metadata(&resident.socket).expect("it is there").permissions().mode();
        assert_eq!(mode() & 0o777, 0o600);
        let socket = resident.socket.clone();
        resident.child.kill().expect("it is ours");
        resident.child.wait().expect("it is ours");
        // A seed that is being started has the socket for a moment.
        let refused = || matches!(Link::connect(&socket), Err(ClientError::Socket { .. }));
        assert!(eventually(refused));
        let program = bench.programs.join("cowork-keeper");
        resident.child = Link::launch(&program, &socket, None).expect("the keeper starts");
        let mut client = resident.client();
        assert!(matches!(client.call(&Request::Survey), Ok((Reply::Surveyed(_), _))));
        let names = std::fs::read_dir(socket.parent().expect("a folder")).expect("it is there");
        assert_eq!(names.count(), 1, "something was left beside the socket");
    });
}

#[test]
fn a_path_longer_than_an_address_serves_as_well() {
    as_everybody(|bench| {
        let folder = bench.folder("long");
        let long = folder.path().join("x".repeat(200));
        std::fs::create_dir(&long).expect("the folder is ours");
        let socket = long.join("keeper.sock");
        let program = bench.programs.join("cowork-keeper");
        let mut child = Link::launch(&program, &socket, None).expect("the keeper starts");
        let mut client = Client::connect(&socket);
        assert_eq!(client.call(&Request::Leave).expect("it leaves").0, Reply::Done);
        assert!(child.wait().expect("it is ours").success());
    });
}

/// Connects, and says whether anybody listens to it.
const STRANGER: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.settimeout(20)
try:
    print('heard', s.recv(100))
except ConnectionResetError:
    print('heard', b'')
";

#[test]
fn strangers_are_turned_away() {
    as_root(|bench| {
        let resident = Resident::start(bench);
        let open = |path: &std::path::Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
                .expect("it is ours");
        };
        open(&resident.socket);
        open(resident.socket.parent().expect("a folder"));
        let asked = std::process::Command::new("setpriv")
            .args(["--reuid=54321", "--regid=54321", "--clear-groups"])
            .args(["/usr/bin/python3", "-c", STRANGER])
            .arg(&resident.socket)
            .output()
            .expect("it runs");
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "heard b''\n", "{asked:?}");
        let mut client = resident.client();
        assert!(matches!(client.call(&Request::Survey), Ok((Reply::Surveyed(_), _))));
    });
}

#[test]
fn a_keeper_holds_nothing_of_whoever_started_it() {
    as_everybody(|bench| {
        let (read, write) = rustix::pipe::pipe().expect("descriptors");
        // Left open for every program that is executed.
        rustix::io::fcntl_setfd(&write, rustix::io::FdFlags::empty()).expect("it is ours");
        let resident = Resident::start(bench);
        let mut client = resident.client();
        client.call(&Request::Survey).expect("it answers");
        drop(write);
        assert!(is_ready(&read, A_WHILE), "the keeper holds the other end");
    });
}

#[test]
fn a_resident_keeper_survives_what_it_cannot_understand() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut client = resident.client();
        let mut room = client.create(new_plan());
        for garbage in [&[][..], &[0], &[0xff], &[1, 2, 3]] {
            let other = resident.client();
            // A client that is let go for it is not the keeper's end.
            cowork_sys::ignore(rustix::net::send(&other.receiver, garbage, SendFlags::NOSIGNAL));
        }
        assert!(
            matches!(client.call(&Request::Sessions), Ok((Reply::Sessions(all), _)) if all.len() == 1)
        );
        assert!(room.ping());
    });
}

#[test]
fn a_session_socket_can_be_tried_without_waiting() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut client = resident.client();
        let room = client.create(new_plan());
        let session: &Session = &room.session;
        let would_wait = |error: ClientError| {
            matches!(error, ClientError::Socket { source: rustix::io::Errno::AGAIN, .. })
        };
        assert!(session.try_receive().is_err_and(would_wait));
        session.try_send(&ToInit::Ping { nonce: 4 }, &[]).expect("there is room");
        assert!(is_ready(session, A_WHILE));
        assert!(matches!(session.try_receive(), Ok((FromInit::Pong { nonce: 4 }, None))));
        // A frozen init reads nothing.
        let frozen = Request::Freeze { session: room.id() };
        client.call(&frozen).expect("it freezes");
        kill_process(Pid::from_raw(room.status.init).expect("a process"), Signal::STOP)
            .expect("it is ours");
        let full =
            eventually(|| session.try_send(&ToInit::Ping { nonce: 4 }, &[]).is_err_and(would_wait));
        assert!(full, "there is always room");
    });
}

/// A process that was just started, and the keeper's starter, which started it.
fn start_egress(client: &mut Client) -> Result<(i32, i32, Vec<OwnedFd>), Failure> {
    let (reply, handles) = client.call(&Request::StartEgress)?;
    let Reply::Egress { pid } = reply else { panic!("another answer: {reply:?}") };
    assert_eq!(handles.len(), 2);
    Ok((pid, parent_of(pid).expect("it runs"), handles))
}

#[test]
fn what_the_starter_started_ends_with_its_line_or_the_keeper() {
    as_everybody(|bench| {
        let mut resident = Resident::start(bench);
        let mut client = resident.client();
        let (one, starter, line) = start_egress(&mut client).expect("it starts");
        let keeper = i32::try_from(resident.child.id()).expect("it is a process");
        assert_eq!(parent_of(starter), Some(keeper));
        drop(line);
        assert!(eventually(|| state_of(one).is_none()), "it is gone, and buried");
        let stop = |pid: i32| {
            kill_process(Pid::from_raw(pid).expect("it is one"), Signal::STOP).expect("it is ours");
        };
        // What does not leave is ended, and nobody else is.
        let (two, same, line) = start_egress(&mut client).expect("it starts");
        let (three, _, last) = start_egress(&mut client).expect("it starts");
        assert_eq!(same, starter);
        stop(two);
        drop(line);
        std::thread::sleep(Duration::from_millis(300));
        assert!(state_of(two).is_some());
        for pid in [keeper, starter, two] {
            client.send(&Request::EndEgress { pid }, &[]);
        }
        assert!(eventually(|| state_of(two).is_none()), "it is gone, and buried");
        assert!([keeper, starter, three].into_iter().all(|pid| state_of(pid).is_some()));
        // With the keeper it has a moment.
        stop(three);
        drop(last);
        let since = Instant::now();
        client.call(&Request::Leave).expect("it leaves");
        assert_eq!(resident.ends_within(Duration::from_secs(30)), Some(true));
        assert!(since.elapsed() > Duration::from_secs(4), "{:?}", since.elapsed());
        assert!(state_of(three).is_none() && state_of(starter).is_none());
    });
}

#[test]
fn a_keeper_without_its_starter_keeps_its_sessions_and_then_leaves() {
    as_everybody(|bench| {
        let mut resident = Resident::start(bench);
        let mut client = resident.client();
        let room = client.create(new_plan());
        let (_, starter, _line) = start_egress(&mut client).expect("it starts");
        kill_process(Pid::from_raw(starter).expect("it is one"), Signal::KILL).expect("it is ours");
        assert!(eventually(|| state_of(starter).is_none()), "it is buried");
        let refused = start_egress(&mut client).expect_err("nobody is left who could");
        assert_eq!(refused.code, FailureCode::HostUnable);
        assert!(refused.sentence.contains("cowork-egress"), "{refused:?}");
        client.call(&Request::Status { session: room.id() }).expect("it is there");
        client.call(&Request::Destroy { session: room.id() }).expect("it is there");
        assert_eq!(resident.ends_within(Duration::from_secs(5)), Some(true));
    });
}

//! Messages that are none, and messages that contradict themselves.

use crate::bench::{Room, as_everybody, new_plan};
use cowork_api::guest::{Execute, FromInit, Refusal, Stdio, ToInit};
use cowork_api::keeper::{Call, FailureCode, Message, Reply, Request};
use cowork_sandbox::channel::Channel;
use cowork_sandbox::client::Keeper;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::SendFlags;

/// Bytes that look random and are the same every time.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// Packets that no decoder may accept.
fn packets() -> Vec<Vec<u8>> {
    let ping = cowork_api::encode(&ToInit::Ping { nonce: 7 });
    let call = cowork_api::encode(&Call { number: 7, request: Request::Survey });
    let mut packets = vec![vec![0], vec![cowork_api::GENERATION], vec![0xff, 0xff]];
    for whole in [ping, call] {
        let mut other_generation = whole.clone();
        other_generation[0] = cowork_api::GENERATION + 1;
        let mut longer = whole.clone();
        longer.push(0);
        packets.extend([other_generation, longer, whole[..whole.len() - 1].to_vec()]);
    }
    packets.extend((0..400).map(|seed| {
        let length = usize::try_from(seed % 300 + 1).expect("it is small");
        let mut bytes = noise(seed, length);
        // Half of them get past the first check; none is the marker of a large message.
        bytes[0] = if seed % 2 == 0 { cowork_api::GENERATION } else { bytes[0] & 0x7f };
        bytes
    }));
    packets
}

fn send(socket: &impl AsFd, bytes: &[u8], handles: &[BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(handles)));
    }
    let parts = [std::io::IoSlice::new(bytes)];
    sendmsg(socket, &parts, &mut beside, SendFlags::NOSIGNAL).expect("somebody listens");
}

/// Init still does what it is for.
#[track_caller]
fn assert_init_is_well(room: &mut Room) {
    assert!(room.ping(), "init does not answer");
    assert_eq!(room.shell("echo well"), "well\n");
}

#[test]
fn init_ignores_what_it_cannot_understand() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        for packet in packets() {
            // One that happens to be a whole message would be carried out.
            if cowork_api::decode::<ToInit>(&packet).is_err() {
                send(&room.session, &packet, &[]);
            }
        }
        assert_init_is_well(&mut room);
    });
}

#[test]
fn init_closes_descriptors_that_it_was_not_asked_to_take() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let ping = cowork_api::encode(&ToInit::Ping { nonce: 9 });
        for _ in 0..200 {
            let (read, write) = rustix::pipe::pipe().expect("descriptors");
            let handles: Vec<_> = (0..60).map(|_| write.as_fd()).collect();
            send(&room.session, &ping, &handles);
            assert!(matches!(room.hear(), (FromInit::Pong { nonce: 9 }, _)));
            drop(handles);
            drop(write);
            // The end of the pipe is seen only when init holds no copy of it.
            assert!(crate::bench::is_ready(&read, crate::bench::A_WHILE), "init keeps one");
        }
        assert_init_is_well(&mut room);
    });
}

#[test]
fn init_survives_an_empty_packet() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        send(&room.session, &[], &[]);
        assert_init_is_well(&mut room);
    });
}

/// Files in place of the memory that a large message travels in.
fn wrong_memory() -> Vec<(&'static str, OwnedFd)> {
    let (pipe, _) = rustix::pipe::pipe().expect("descriptors");
    let (socket, _) = Channel::pair().expect("descriptors");
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create(c"unsealed", flags).expect("memory");
    let file = std::fs::File::open("/proc/self/exe").expect("it is there");
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let folder = std::fs::File::open("/").expect("it is there");
    vec![
        ("a pipe", pipe),
        ("a socket", socket.into()),
        ("unsealed memory", unsealed),
        ("a file", file.into()),
        ("a device", null.into()),
        ("a folder", folder.into()),
    ]
}

#[test]
fn init_survives_a_large_message_that_is_none() {
    as_everybody(|bench| {
        for (what, handle) in wrong_memory() {
            let (_keeper, mut room) = bench.room();
            send(&room.session, &[0xff], &[handle.as_fd()]);
            eprintln!("{what} in place of a message");
            assert_init_is_well(&mut room);
        }
        let (_keeper, mut room) = bench.room();
        send(&room.session, &[0xff], &[]);
        assert_init_is_well(&mut room);
    });
}

fn refusal(room: &mut Room, execute: Execute, handles: &[BorrowedFd<'_>]) -> Refusal {
    let number = execute.command;
    room.send(&ToInit::Execute(execute), handles);
    match room.hear() {
        (FromInit::Refused { command, why }, _) if command == number => why,
        (other, _) => panic!("not refused: {other:?}"),
    }
}

#[test]
fn commands_that_contradict_themselves_are_refused() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let quiet = |execute: Execute| Execute { stdio: [Stdio::Null; 3], ..execute };
        let malformed = |why: &Refusal| matches!(why, Refusal::Malformed(_));

        let execute = room.execute(&["/bin/true"]);
        let why = refusal(&mut room, execute, &[null.as_fd()]);
        assert!(malformed(&why), "a stream that is not there: {why:?}");
        let execute = quiet(room.execute(&[]));
        let why = refusal(&mut room, execute, &[]);
        assert!(malformed(&why), "no program: {why:?}");
        let execute = quiet(room.execute(&[""]));
        let why = refusal(&mut room, execute, &[]);
        assert!(malformed(&why), "an empty program: {why:?}");
        let execute = quiet(room.execute(&["/bin/echo", "a\0b"]));
        let why = refusal(&mut room, execute, &[]);
        assert!(malformed(&why), "a NUL in an argument: {why:?}");
        let mut execute = quiet(room.execute(&["/bin/true"]));
        execute.environment.push(b"A=\0".to_vec());
        let why = refusal(&mut room, execute, &[]);
        assert!(malformed(&why), "a NUL in a variable: {why:?}");
        let mut execute = quiet(room.execute(&["/bin/true"]));
        execute.folder = b"/tmp\0/x".to_vec();
        let why = refusal(&mut room, execute, &[]);
        assert!(matches!(why, Refusal::Folder { .. }), "a NUL in the folder: {why:?}");
        let mut execute = quiet(room.execute(&["/bin/true"]));
        execute.folder = b"/nowhere".to_vec();
        let why = refusal(&mut room, execute, &[]);
        assert_eq!(why, Refusal::Folder { errno: 2 });
        let execute = quiet(room.execute(&["no-such-program"]));
        assert_eq!(refusal(&mut room, execute, &[]), Refusal::NotFound);
        let execute = quiet(room.execute(&["/etc/passwd"]));
        assert_eq!(refusal(&mut room, execute, &[]), Refusal::NotExecutable { errno: 13 });
        let mut execute = quiet(room.execute(&["/bin/true"]));
        execute.terminal = true;
        let why = refusal(&mut room, execute, &[]);
        assert!(matches!(why, Refusal::Failed { .. }), "no terminal: {why:?}");

        let running = room.start(&["/bin/sleep", "1000"]);
        let mut execute = quiet(room.execute(&["/bin/true"]));
        execute.command = running.number;
        let why = refusal(&mut room, execute, &[]);
        assert!(malformed(&why), "a number in use: {why:?}");
        for (signal, command) in
            [(0, running.number), (-9, running.number), (9999, running.number), (9, 12345)]
        {
            let whom = cowork_api::guest::Whom::Group;
            room.send(&ToInit::Signal { command, signal, whom }, &[]);
        }
        let pid = room.host_pid(running.pid);
        assert_init_is_well(&mut room);
        assert!(crate::bench::lives(pid));
    });
}

/// The keeper still does what it is for, and so does a session that it had.
#[track_caller]
fn assert_keeper_is_well(keeper: &mut Keeper, room: &mut Room) {
    assert!(room.ping(), "the session does not answer");
    let (reply, _) = keeper.call(Request::Survey).expect("the keeper answers");
    assert!(matches!(reply, Reply::Surveyed(_)), "{reply:?}");
    let mut other = Room::make(keeper, new_plan());
    assert_eq!(other.shell("echo well"), "well\n");
}

#[test]
fn the_keeper_answers_what_it_cannot_understand() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        for packet in packets() {
            if cowork_api::decode::<Call>(&packet).is_ok() {
                continue;
            }
            send(&keeper, &packet, &[]);
            let answer = keeper.event().expect("the keeper answers");
            let Message::Answer { number, result: Err(failure) } = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(number, cowork_api::number_of(&packet).unwrap_or_default());
            assert_eq!(failure.code, FailureCode::Malformed);
        }
        assert_keeper_is_well(&mut keeper, &mut room);
    });
}

#[test]
fn the_keeper_survives_an_empty_packet() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        send(&keeper, &[], &[]);
        assert_keeper_is_well(&mut keeper, &mut room);
    });
}

#[test]
fn the_keeper_survives_a_large_message_that_is_none() {
    as_everybody(|bench| {
        for (what, handle) in wrong_memory() {
            let (mut keeper, mut room) = bench.room();
            send(&keeper, &[0xff], &[handle.as_fd()]);
            eprintln!("{what} in place of a message");
            assert_keeper_is_well(&mut keeper, &mut room);
        }
    });
}

#[test]
fn plans_that_contradict_themselves_make_no_session_and_harm_no_other() {
    as_everybody(|bench| {
        use cowork_api::plan::{OwnStep, RootStep};
        let (mut keeper, mut room) = bench.room();
        let mut refuse = |what: &str, change: &dyn Fn(&mut cowork_api::plan::SessionPlan)| {
            let mut plan = new_plan();
            change(&mut plan);
            let made = keeper.call(Request::Create(Box::new(plan)));
            assert!(
                matches!(made, Err(cowork_sandbox::client::ClientError::Refused(_))),
                "{what}: {made:?}"
            );
        };
        refuse("an id that is none", &|plan| plan.id = "../../x".into());
        refuse("an empty id", &|plan| plan.id = String::new());
        refuse("a file of the host that is not there", &|plan| {
            plan.root.push(RootStep::System { from: b"/no/such".to_vec(), at: b"/x".to_vec() });
        });
        refuse("a place that is not there", &|plan| {
            plan.own.push(OwnStep::Terminals { at: b"/no/such".to_vec() });
        });
        refuse("a home that is not there", &|plan| {
            let (from, at) = (b"/no/such".to_vec(), b"/tmp".to_vec());
            plan.own.push(OwnStep::Home { from, at });
        });
        refuse("a name of a grant that leads out", &|plan| {
            plan.own.push(OwnStep::Grants { at: b"/tmp".to_vec(), folders: vec!["../x".into()] });
        });
        refuse("a wall around nothing", &|plan| {
            let right = cowork_api::plan::Right::Read;
            plan.walls.push(cowork_api::plan::Wall { beneath: b"/no/such".to_vec(), right });
        });
        assert_keeper_is_well(&mut keeper, &mut room);
    });
}

//! Packets with descriptors: whatever arrives is read without waiting, and a hostile peer's
//! message is never read from anywhere but its packet.

use crate::Reached;
use cowork_sandbox::channel::{Channel, Peer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create};

/// The packet that says that the message is in the last descriptor.
const SPILLED: &[u8] = &[0xff];

/// The first byte says which descriptors travel, two bits each; the second how much of the rest
/// is the packet, and what is left is in the files.
pub fn channel(input: &[u8]) -> Reached {
    let [handles, split, rest @ ..] = input else { return Reached::NOTHING };
    let (packet, contents) = rest.split_at(usize::from(*split).min(rest.len()));
    let handles: Vec<OwnedFd> = [0, 2, 4, 6]
        .into_iter()
        .filter_map(|shift| handle(handles >> shift & 3, contents))
        .collect();
    let [hostile, trusted] = [Peer::Hostile, Peer::Trusted].map(|peer| {
        let (here, there) = Channel::pair().expect("sockets can be made");
        let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
        here.send(packet, &borrowed).expect("there is room for one packet");
        let received = there.receive(peer);
        received.map(|packet| packet.map(|packet| (packet.bytes, packet.handles.len())))
    });
    match &hostile {
        Ok(None) => panic!("a packet was taken for the end"),
        Ok(Some((bytes, count))) => {
            assert_eq!((bytes.as_slice(), *count), (packet, handles.len()));
            assert_ne!(bytes, SPILLED, "a hostile peer pointed elsewhere");
        }
        Err(error) => assert!(packet == SPILLED || packet.is_empty(), "{error}"),
    }
    if let Ok(Some((bytes, count))) = &trusted {
        let (expected, beside) =
            if packet == SPILLED { (contents, handles.len() - 1) } else { (packet, handles.len()) };
        assert_eq!((bytes.as_slice(), *count), (expected, beside));
    }
    let spilled = Reached(u64::from(packet == SPILLED));
    Reached::by(&(Kind::of(&hostile), Kind::of(&trusted))).and(spilled)
}

/// What a receiver got.
#[derive(Debug)]
enum Kind {
    End,
    Packet,
    Refused,
}

impl Kind {
    fn of<T, E>(outcome: &Result<Option<T>, E>) -> Self {
        match outcome {
            Ok(None) => Self::End,
            Ok(Some(_)) => Self::Packet,
            Err(_) => Self::Refused,
        }
    }
}

/// A descriptor of one of four kinds; the first is none.
fn handle(kind: u8, contents: &[u8]) -> Option<OwnedFd> {
    match kind {
        0 => None,
        1 => Some(file(contents, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)),
        2 => Some(file(contents, SealFlags::GROW)),
        // Reading it would wait for ever.
        _ => Some(terminal()),
    }
}

fn file(contents: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"cowork-fuzz", flags).expect("memory files can be made");
    let mut rest = contents;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).expect("there is memory");
        rest = &rest[written..];
    }
    rustix::fs::fcntl_add_seals(&file, seals).expect("the file can be sealed");
    file
}

fn terminal() -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/ptmx", flags, Mode::empty()).expect("terminals can be made")
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let spilled = |handles: u8| [&[handles, 1], SPILLED, b"elsewhere"].concat();
    vec![
        [&[0, 5][..], b"plain"].concat(),
        spilled(0),
        spilled(1),
        spilled(2),
        spilled(3),
        spilled(0b0001_1111),
        vec![0, 0],
    ]
}

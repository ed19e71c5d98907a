//! A pump that is killed at any moment, again and again, while commands go on writing.
//!
//! This process is the one that keeps the pipes. The pump runs in a process of its own that gets
//! duplicates of them, and is killed with `SIGKILL` after a random time.

use crate::support::{
    PATIENCE, ROOM, Watched, counted, duplicate, folder, from, pieces, pipe, random, same, stream,
};
use crate::terminal::{self, source, terminal};
use cowork_session::output::{Pump, Reader, Source, Stream, repair};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the folder, in the process that is killed.
const FOLDER: &str = "COWORK_TEST_OUTPUT_FOLDER";

/// Says there how much is kept.
const CAP: &str = "COWORK_TEST_OUTPUT_CAP";

/// What a command writes to, kept by this process.
struct Kept {
    out: OwnedFd,
    err: OwnedFd,
    controller: OwnedFd,
    between: (OwnedFd, OwnedFd),
}

impl Kept {
    fn sources(&self) -> Vec<Source> {
        vec![
            from(Stream::Stdout, &self.out),
            from(Stream::Stderr, &self.err),
            source(&self.controller, &self.between),
        ]
    }
}

/// Starts a process with a pump for everything that is kept.
fn start(folder: &Path, kept: &Kept, cap: u64) -> Child {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("sockets can be made");
    let fds = [&kept.out, &kept.err, &kept.controller, &kept.between.0, &kept.between.1];
    let fds = fds.map(|fd| fd.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&ours, &[IoSlice::new(b"!")], &mut beside, SendFlags::empty()).expect("it takes them");
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args(["--exact", "killed::the_process_that_is_killed", "--nocapture"]);
    command.env(FOLDER, folder).env(CAP, cap.to_string());
    command.stdin(theirs).stdout(Stdio::null());
    command.spawn().expect("it runs already")
}

/// Nothing, unless it was started by [`start`].
#[test]
fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(std::io::stdin(), &mut parts, &mut beside, flags).expect("it was sent");
    let mut fds = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let [out, err, controller, read, write] =
        <[OwnedFd; 5]>::try_from(fds).expect("five were sent");
    let kept = Kept { out, err, controller, between: (read, write) };
    let pump = Pump::start().expect("threads");
    let cap = std::env::var(CAP).ok().and_then(|cap| cap.parse().ok()).expect("it was said");
    let log = pump.add(Path::new(&folder), kept.sources(), cap, Box::new(|| {}));
    let log = log.expect("the folder is ours");
    while !log.progress().finished {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Looks at the files as they are: where the last record says that the streams end, and where they
/// do.
fn at_most_one_stream_is_not_covered(folder: &Path) {
    let Ok(index) = std::fs::read(folder.join("index")) else { return };
    assert_eq!(index.len() % 32, 0, "no record is torn by a kill");
    let covered = if index.len() > 32 { &index[index.len() - 24..] } else { &[0; 24] };
    let (covered, _) = covered.as_chunks::<8>();
    let mut open = Vec::new();
    for (name, covered) in ["stdout", "stderr", "terminal"].into_iter().zip(covered) {
        let length = std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
        let covered = u64::from_le_bytes(*covered);
        assert!(length >= covered, "{name} has what the index covers");
        if length > covered {
            open.push(name);
        }
    }
    assert!(open.len() <= 1, "{open:?}");
}

/// Runs three writers, which count to `last`, and kills the pump until they have ended.
fn kill_until_the_end(lines: [&str; 3], last: [u32; 3], cap: u64) {
    let folder = folder();
    let ((out, out_end), (err, err_end), (controller, side)) = (pipe(), pipe(), terminal());
    let kept = Kept { out, err, controller, between: pipe() };
    let sink = || duplicate(&err_end);
    let mut writers = vec![
        crate::support::shell(lines[0], out_end, sink()),
        crate::support::shell(lines[1], sink(), sink()),
        terminal::shell(lines[2], side),
    ];
    drop(err_end);
    let (mut kills, mut state) = (0, 0xC0FF_EE00_1234);
    let deadline = Instant::now() + 3 * PATIENCE;
    while writers.iter_mut().any(|child| child.try_wait().expect("it was started").is_none()) {
        assert!(Instant::now() < deadline, "the writers come to an end");
        let mut killed = start(folder.path(), &kept, cap);
        std::thread::sleep(Duration::from_micros(random(&mut state, 30_000)));
        let ended = killed.try_wait().expect("it was started");
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
        if ended.is_none() {
            killed.kill().expect("it is ours");
            killed.wait().expect("it was started");
            kills += 1;
            at_most_one_stream_is_not_covered(folder.path());
        }
    }
    for mut writer in writers {
        assert!(writer.wait().expect("it was started").success());
    }
    let pump = Pump::start().expect("threads");
    let progress = Watched::capped(&pump, folder.path(), kept.sources(), cap).finished();
    let said = [
        (Stream::Stdout, counted("", last[0], "\n")),
        (Stream::Stderr, counted("e", last[1], "\n")),
        (Stream::Terminal, counted("t", last[2], "\r\n")),
    ];
    assert_eq!(progress.total, said.iter().map(|(_, said)| said.len() as u64).sum::<u64>());
    let pieces = pieces(folder.path(), 1 << 20);
    let mut reader = Reader::open(folder.path()).expect("it is an index");
    for (which, said) in said {
        let (start, alone) = reader.read_stream(which, 0, usize::MAX).expect("it is there");
        let start = usize::try_from(start).expect("it is small");
        same(&alone, &said[start..]);
        same(&stream(&pieces, which), &said[start..]);
    }
    let kept = pieces.iter().map(|piece| piece.bytes.len() as u64).sum::<u64>();
    assert_eq!(kept, progress.total - progress.dropped);
    assert!(kept == progress.total || (cap..=cap + SLACK).contains(&kept), "{progress:?}");
    assert!(on_disk(folder.path()) <= kept + 2 * SLACK, "{} on disk", on_disk(folder.path()));
    assert_eq!(repair(folder.path()).expect("nothing to repair"), progress);
    println!("{kills} kills");
    assert!(kills > 20, "{kills}");
}

/// How much more than the cap may be kept.
const SLACK: u64 = 3 << 20;

/// What the streams' files take of the disk.
fn on_disk(folder: &Path) -> u64 {
    let files = ["stdout", "stderr", "terminal"].map(|name| folder.join(name));
    files.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.blocks() * 512)).sum()
}

/// A shell that writes every number by itself.
fn one_by_one(prefix: &str, last: u32) -> String {
    format!("i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo {prefix}$i; done")
}

#[test]
fn killed_while_writers_write_line_by_line() {
    let last = [200_000, 200_000, 200_000];
    let lines = [one_by_one("", last[0]), one_by_one("e", last[1]), one_by_one("t", last[2])];
    kill_until_the_end([&lines[0], &lines[1], &lines[2]], last, ROOM);
}

#[test]
fn killed_while_writers_flood() {
    let last = [8_000_000, 3_000_000, 300_000];
    let lines = [
        format!("seq {}", last[0]),
        format!("seq -f e%.0f {}", last[1]),
        format!("seq -f t%.0f {}", last[2]),
    ];
    kill_until_the_end([&lines[0], &lines[1], &lines[2]], last, ROOM);
}

#[test]
fn killed_while_the_oldest_bytes_are_let_go_of() {
    let last = [8_000_000, 3_000_000, 100_000];
    let lines = [
        format!("seq {}", last[0]),
        format!("seq -f e%.0f {}", last[1]),
        format!("seq -f t%.0f {}", last[2]),
    ];
    kill_until_the_end([&lines[0], &lines[1], &lines[2]], last, 1 << 20);
}

//! What the claims have in common: a log that is waited for, and writers that count.

use cowork_session::output::{Log, Piece, Progress, Pump, Reader, Source, Stream};
use cowork_sys::ignore;
use cowork_testbed::{Folder, Person};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// More than any output here needs.
pub(crate) const ROOM: u64 = 1 << 40;

/// How long anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A folder for one command's output.
#[must_use]
pub(crate) fn folder() -> Folder {
    Folder::new(Person::Root, "output")
}

/// A pipe that no program inherits unasked: the end to read, the end to write.
#[must_use]
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).expect("pipes can be made")
}

/// A second descriptor of the same thing.
#[must_use]
pub(crate) fn duplicate(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().expect("descriptors are left")
}

/// A source of a stream.
#[must_use]
pub(crate) fn from(stream: Stream, read: &OwnedFd) -> Source {
    Source::Pipe { stream, from: duplicate(read) }
}

/// A log, and the news about it.
pub(crate) struct Watched {
    pub(crate) log: Arc<Log>,
    news: Receiver<()>,
}

impl Watched {
    #[must_use]
    pub(crate) fn add(pump: &Pump, folder: &Path, sources: Vec<Source>) -> Self {
        Self::capped(pump, folder, sources, ROOM)
    }

    #[must_use]
    pub(crate) fn capped(pump: &Pump, folder: &Path, sources: Vec<Source>, cap: u64) -> Self {
        let (sender, news) = channel();
        let wake = Box::new(move || ignore(sender.send(())));
        let log = pump.add(folder, sources, cap, wake).expect("the folder is ours");
        Self { log, news }
    }

    /// Waits, by its news alone, until the log is as it should be.
    #[track_caller]
    pub(crate) fn until(&self, wanted: impl Fn(&Log) -> bool) -> Progress {
        let deadline = Instant::now() + PATIENCE;
        while !wanted(&self.log) {
            let rest = deadline.saturating_duration_since(Instant::now());
            let heard = self.news.recv_timeout(rest) != Err(RecvTimeoutError::Timeout);
            assert!(heard, "{:?} {:?}", self.log.progress(), self.log.error());
        }
        self.log.progress()
    }

    #[track_caller]
    pub(crate) fn finished(&self) -> Progress {
        self.until(|log| log.progress().finished)
    }

    #[track_caller]
    pub(crate) fn total(&self, total: u64) {
        self.until(|log| log.progress().total >= total);
        assert_eq!(self.log.progress().total, total);
    }

    /// How often it was called since the last time that this was asked.
    pub(crate) fn calls(&self) -> usize {
        self.news.try_iter().count()
    }
}

/// Writes all of it.
pub(crate) fn write(to: &OwnedFd, bytes: &[u8]) {
    let mut file = std::fs::File::from(duplicate(to));
    file.write_all(bytes).expect("somebody reads");
}

/// Starts a shell that has two pipes as its output.
#[must_use]
pub(crate) fn shell(line: &str, out: OwnedFd, err: OwnedFd) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(out).stderr(err);
    command.spawn().expect("there is a shell")
}

/// The whole merged output, read in parts of `part` bytes.
#[must_use]
pub(crate) fn pieces(folder: &Path, part: usize) -> Vec<Piece> {
    let mut reader = Reader::open(folder).expect("there is an index");
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let some = reader.read(at, part).expect("the index is whole");
        let Some(last) = some.last() else {
            assert_eq!(at, reader.total().expect("the index is whole"));
            return all;
        };
        assert!(some.iter().map(|piece| piece.bytes.len()).sum::<usize>() <= part);
        at = last.offset + last.bytes.len() as u64;
        all.extend(some);
    }
}

/// What the pieces say of one stream, after a look at their offsets.
#[must_use]
pub(crate) fn stream(pieces: &[Piece], stream: Stream) -> Vec<u8> {
    // The oldest may be gone.
    let mut at = pieces.first().map_or(0, |piece| piece.offset);
    for piece in pieces {
        assert_eq!(piece.offset, at, "pieces leave no gap");
        assert!(!piece.bytes.is_empty(), "a piece has bytes");
        at += piece.bytes.len() as u64;
    }
    let mine = pieces.iter().filter(|piece| piece.stream == stream);
    mine.flat_map(|piece| piece.bytes.iter().copied()).collect()
}

/// The merged output as `stream:text`, neighbours of one stream joined.
#[must_use]
pub(crate) fn told(folder: &Path) -> String {
    let mut told = String::new();
    let mut last = None;
    for piece in pieces(folder, 1 << 20) {
        if last.replace(piece.stream) != Some(piece.stream) {
            told.push_str(piece.stream.name());
            told.push(':');
        }
        told.push_str(&String::from_utf8_lossy(&piece.bytes));
    }
    told
}

/// What `seq` prints, with another end of line.
#[must_use]
pub(crate) fn counted(prefix: &str, last: u32, newline: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 1..=last {
        write!(bytes, "{prefix}{number}{newline}").expect("memory takes it");
    }
    bytes
}

/// Says where two long texts differ.
#[track_caller]
pub(crate) fn same(left: &[u8], right: &[u8]) {
    if left != right {
        let at = left.iter().zip(right).position(|(left, right)| left != right);
        let at = at.unwrap_or(left.len().min(right.len()));
        let near = |bytes: &[u8]| {
            let part = bytes.get(at.saturating_sub(20)..(at + 20).min(bytes.len()));
            String::from_utf8_lossy(part.unwrap_or_default()).into_owned()
        };
        let (here, there) = (near(left), near(right));
        panic!("{} and {} bytes differ at {at}: {here:?} {there:?}", left.len(), right.len());
    }
}

/// A number below `bound` that is another one every time (xorshift64, Marsaglia).
pub(crate) fn random(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

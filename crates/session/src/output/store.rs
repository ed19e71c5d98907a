//! The writing side of one command's folder: streams, index, and how much is kept.
//!
//! Invariant: a stream's file ends where the bytes that were taken from its source end, at every
//! instant, because nothing but `splice` at the file's end makes it longer. One [`Store`] at a time
//! has a folder: the index is locked.
//!
//! Deliberately absent: when to take, and what to do when the disk is full (`worker` knows).

use super::index::{self, Kept, Record, UNIT};
use super::{Ends, PerStream, Progress, Stream};
use cowork_sys::Errno;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::pipe::SpliceFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a piece of one stream may go on before a new record, with a time of its own, is begun.
const PIECE_MS: u64 = 1000;

/// How many bytes beyond the cap are kept before the oldest are let go of, all at once.
const SLACK: u64 = 1024 * 1024;

/// What a file system lets go of at a time.
const PAGE: u64 = 4096;

/// How long the lock of an index is waited for: a killed daemon lets go of it when the last of its
/// system calls has returned.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What came of taking from a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// So many bytes were kept.
    Bytes(usize),
    /// Whoever reads the output is too far behind: nothing was taken.
    Held,
    /// The pipe is empty.
    Nothing,
    /// The pipe is empty and has no writer left.
    End,
}

/// The bytes of one stream that the index does not cover yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    stream: Stream,
    first_ms: u64,
    last_ms: u64,
}

/// A command's folder, open for more output.
#[derive(Debug)]
pub(super) struct Store {
    index: File,
    files: PerStream<Option<File>>,
    /// Where the streams' files end.
    ends: Ends,
    /// Records that the index has.
    records: u64,
    open: Option<Open>,
    cap: u64,
    kept: Kept,
    /// Up to where the disk has got the room of each stream back, as far as is known: a daemon that
    /// was killed may have left some of it.
    freed: Ends,
}

impl Store {
    /// Opens the folder, makes what is missing for `streams`, and repairs what a killed daemon or
    /// a crashed host left. At least a page is kept, whatever the cap is.
    pub(super) fn open(folder: &Path, streams: &[Stream], cap: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let index = open_file(&folder, index::NAME, OFlags::RDWR | OFlags::CREATE)?;
        lock(&index)?;
        let mut files = PerStream::default();
        for stream in Stream::ALL {
            let create = if streams.contains(&stream) { OFlags::CREATE } else { OFlags::empty() };
            *files.get_mut(stream) =
                match open_file(&folder, stream.name(), OFlags::WRONLY | create) {
                    Err(Errno::NOENT) => None,
                    outcome => Some(outcome?),
                };
        }
        let (ends, times) = measure(&files)?;
        let mut kept = prepare(&index)?;
        let (records, covered) = cut(&index, &ends, &mut kept)?;
        let (freed, cap) = (Ends::default(), cap.max(PAGE));
        let mut store = Self { index, files, ends, records, open: None, cap, kept, freed };
        store.cover(covered, &times)?;
        Ok(store)
    }

    /// How far the output has come; whether more comes is for the caller to say.
    pub(super) fn progress(&self) -> Progress {
        Progress { total: self.ends.total(), dropped: self.kept.from, finished: false }
    }

    /// Takes at most `limit` bytes of `stream` from a pipe, without waiting for any. Beyond the cap
    /// the oldest bytes are let go of, but none after `floor`, where somebody still reads.
    pub(super) fn take(
        &mut self,
        stream: Stream,
        pipe: BorrowedFd<'_>,
        limit: usize,
        floor: Option<u64>,
    ) -> io::Result<Taken> {
        let now = now_ms();
        if self.open.is_some_and(|open| open.stream != stream || open.is_old(now)) {
            self.flush()?;
        }
        let total = self.ends.total();
        let ahead = floor.map_or(0, |floor| total.saturating_sub(floor.max(self.kept.from)));
        let room = floor.map_or(u64::MAX, |_| self.cap.saturating_sub(ahead));
        let crowded = ahead > 0 && self.weight() > self.cap.saturating_add(2 * SLACK);
        if room == 0 || crowded {
            return Ok(Taken::Held);
        }
        let Some(file) = self.files.get(stream) else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let limit = limit.min(usize::try_from(room).unwrap_or(limit));
        let end = self.ends.get_mut(stream);
        let mut at = *end;
        let taken = splice(pipe, file.as_fd(), &mut at, limit)?;
        if let Taken::Bytes(length) = taken {
            *end += length as u64;
            let first_ms = self.open.map_or(now, |open| open.first_ms);
            self.open = Some(Open { stream, first_ms, last_ms: now });
            self.forget(floor)?;
        }
        Ok(taken)
    }

    /// Lets go of the oldest bytes, if more than the cap are kept.
    fn forget(&mut self, floor: Option<u64>) -> io::Result<()> {
        let total = self.ends.total();
        let room = self.cap.saturating_add(SLACK);
        if total.saturating_sub(self.kept.from) <= room && self.weight() <= room {
            return Ok(());
        }
        self.flush()?;
        // Tiny pieces of changing streams take more room in the index than themselves.
        let oldest = self.records.saturating_sub(self.cap / UNIT as u64).max(self.kept.record);
        let from = index::before(&self.index, oldest)?.total();
        let from = from.max(total.saturating_sub(self.cap)).min(floor.unwrap_or(u64::MAX));
        if from <= self.kept.from || from >= total {
            return Ok(());
        }
        let record = index::find(&self.index, self.kept.record, self.records, from)?;
        let kept = Kept { from, record };
        let starts = index::starts(&self.index, kept)?;
        // A reader that finds the new beginning looks for nothing before it.
        self.index.write_all_at(&index::header(kept), 0)?;
        for stream in Stream::ALL {
            if let Some(file) = self.files.get(stream) {
                punch(file, *self.freed.get(stream), *starts.get(stream));
            }
        }
        // The header's page stays, and so does the record before the first.
        punch(&self.index, PAGE, index::place(record.saturating_sub(1)));
        self.kept = kept;
        self.freed = starts;
        Ok(())
    }

    /// Bytes of the index that are about what is kept.
    fn weight(&self) -> u64 {
        self.records.saturating_sub(self.kept.record).saturating_mul(UNIT as u64)
    }

    /// Writes the record that is owed, if one is.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(Open { stream, last_ms, .. }) = self.open else { return Ok(()) };
        let record = Record { stream, time_ms: last_ms, ends: self.ends };
        self.index.write_all_at(&record.encode(), index::place(self.records))?;
        self.records += 1;
        self.open = None;
        Ok(())
    }

    /// Owes records for what the streams have beyond `covered`. Only a crash of the host leaves
    /// more than one stream so; then their order is unknown, and that of the codes is as good.
    fn cover(&mut self, covered: Ends, times: &PerStream<u64>) -> io::Result<()> {
        let ends = self.ends;
        self.ends = covered;
        for stream in Stream::ALL {
            let end = *ends.get(stream);
            if end > *covered.get(stream) {
                self.flush()?;
                *self.ends.get_mut(stream) = end;
                let time = *times.get(stream);
                self.open = Some(Open { stream, first_ms: time, last_ms: time });
            }
        }
        Ok(())
    }
}

impl Open {
    fn is_old(&self, now: u64) -> bool {
        now.saturating_sub(self.first_ms) >= PIECE_MS
    }
}

/// Repairs a command's folder whose sources are gone, and says what is there.
///
/// Bytes that no record covers get one, a torn record is cut, and so are records of bytes that a
/// crash of the host has lost.
pub fn repair(folder: &Path) -> io::Result<Progress> {
    let mut store = Store::open(folder, &[], u64::MAX)?;
    store.flush()?;
    Ok(Progress { finished: true, ..store.progress() })
}

fn open_file(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn lock(index: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(index, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
    let sentence = "somebody else is writing the output of this command";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, sentence))
}

/// Where the streams end, and when they were last written.
fn measure(files: &PerStream<Option<File>>) -> io::Result<(Ends, PerStream<u64>)> {
    let (mut ends, mut times) = (Ends::default(), PerStream::default());
    for stream in Stream::ALL {
        if let Some(file) = files.get(stream) {
            let file = file.metadata()?;
            *ends.get_mut(stream) = file.len();
            *times.get_mut(stream) = index::written_ms(&file);
        }
    }
    Ok((ends, times))
}

/// Makes sure of the header. Returns what is kept.
fn prepare(index: &File) -> io::Result<Kept> {
    if let Some(kept) = index::read_header(index)? {
        return Ok(kept);
    }
    // The header is written first and whole: what is shorter has no record yet.
    index.write_all_at(&index::header(Kept::default()), 0)?;
    Ok(Kept::default())
}

/// Gives the whole pages between two places of a file back. A file system that cannot keeps them:
/// they are not read any more.
fn punch(file: &File, from: u64, to: u64) {
    let (from, to) = (from / PAGE * PAGE, to / PAGE * PAGE);
    if from < to {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        cowork_sys::ignore(rustix::fs::fallocate(file, flags, from, to - from));
    }
}

/// Cuts off a torn record, and those of bytes that the streams do not have. Returns how many are
/// left, and what they cover. If not even that is left which says where the kept bytes begin, they
/// begin at the start again, where what was let go of reads as zeros.
fn cut(index: &File, ends: &Ends, kept: &mut Kept) -> io::Result<(u64, Ends)> {
    let length = index.metadata()?.len();
    let mut records = index::records(length);
    let mut covered = Ends::default();
    while records > 0 && records >= kept.record {
        let last = records - 1;
        match index::record(index, last) {
            Ok(record) if record.ends.within(ends) => {
                covered = record.ends;
                break;
            }
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            _ => records = last,
        }
    }
    let lost = records < kept.record || ends.total() < kept.from;
    if lost {
        (records, covered) = (0, Ends::default());
    }
    if index::place(records) < length {
        index.set_len(index::place(records))?;
    }
    if lost {
        *kept = Kept::default();
        index.write_all_at(&index::header(*kept), 0)?;
    }
    Ok((records, covered))
}

/// Moves bytes out of a pipe, without waiting for any.
fn splice(
    pipe: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    at: &mut u64,
    limit: usize,
) -> io::Result<Taken> {
    loop {
        match rustix::pipe::splice(pipe, None, to, Some(at), limit, SpliceFlags::NONBLOCK) {
            Ok(0) => return Ok(Taken::End),
            Ok(length) => return Ok(Taken::Bytes(length)),
            Err(Errno::AGAIN) => return Ok(Taken::Nothing),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

const _: () = assert!(4096 % UNIT == 0, "no record crosses a page");

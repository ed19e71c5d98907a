//! The log of a store: an append-only file of records.
//!
//! After a header each record is a frame: the length of what follows, a checksum of it, and the
//! record. A frame is written with one call before the change that it is about is made. What ends
//! in the middle of a frame, or does not have its checksum, ends the log: whoever opens it for
//! writing cuts it there.

use crate::frames::Brief;
use crate::record::{Entry, Record};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

const NAME: &str = "log";
/// What every log begins with; the last byte is the version of the format.
const HEADER: [u8; 16] = *b"cowork journal\0\x01";
/// So many bytes are before each record.
const HEAD: usize = 8;
/// No record is larger.
const LARGEST: usize = 16 << 20;
/// So many bytes of records are gathered before they are written, where several are.
const GATHERED: usize = 256 << 10;
/// So much of a log is read at once.
const BUFFER: usize = 256 << 10;

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// All whole records, in order.
    pub entries: Vec<Entry>,
    /// The first byte after them.
    pub end: u64,
    /// Whether something follows that is no whole record.
    pub torn: bool,
}

/// Reads the log of a store. A store without a log has an empty one. The log of another version
/// is refused (`EBADMSG`).
pub fn read(store: BorrowedFd<'_>) -> Result<Log, Errno> {
    let mut entries = entries(store)?;
    let all = entries.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok(Log { entries: all, end: entries.end, torn: entries.torn })
}

/// Reads the log of a store record by record.
pub fn entries(store: BorrowedFd<'_>) -> Result<Entries, Errno> {
    Entries::new(open(store)?)
}

/// How far a log was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The first byte after the last whole record.
    end: u64,
    /// The number of that record.
    last: u64,
}

/// Reads a log on from where it was read to.
pub(crate) fn entries_after(store: BorrowedFd<'_>, mark: Mark) -> Result<Entries, Errno> {
    if mark.end == 0 {
        return entries(store);
    }
    let Some(file) = open(store)? else { return Err(Errno::BADMSG) };
    rustix::fs::seek(&file, SeekFrom::Start(mark.end))?;
    Ok(Entries { end: mark.end, last: mark.last, ..Entries::of(Some(file)) })
}

fn open(store: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(store, NAME, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The records of a log, up to the last whole one.
#[derive(Debug)]
pub struct Entries {
    file: Option<OwnedFd>,
    end: u64,
    torn: bool,
    last: u64,
    /// What was read of the file, of which this much is left.
    buffer: Vec<u8>,
    left: Range<usize>,
    /// Where in the buffer the last record is.
    frame: Range<usize>,
}

impl Entries {
    fn new(file: Option<OwnedFd>) -> Result<Self, Errno> {
        let mut entries = Self::of(file);
        if entries.file.is_none() {
            return Ok(entries);
        }
        let start = entries.fill(HEADER.len())?;
        let header = entries.buffer.get(start).unwrap_or_default();
        if header == HEADER {
            entries.consume(HEADER.len());
            entries.end = HEADER.len() as u64;
        } else if HEADER.starts_with(header) {
            entries.torn = !header.is_empty();
            entries.file = None;
        } else {
            return Err(Errno::BADMSG);
        }
        Ok(entries)
    }

    fn of(file: Option<OwnedFd>) -> Self {
        Self { file, end: 0, torn: false, last: 0, buffer: Vec::new(), left: 0..0, frame: 0..0 }
    }

    /// The first byte after the last whole record that was read.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How far the log was read.
    pub(crate) fn mark(&self) -> Mark {
        Mark { end: self.end, last: self.last }
    }

    /// Whether something follows the last record that is no whole one. Known at the end.
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// Goes to the next record: what it begins with.
    pub(crate) fn advance(&mut self) -> Result<Option<Brief>, Errno> {
        let next = self.read();
        if !matches!(next, Ok(Some(_))) {
            self.file = None;
        }
        next
    }

    /// The bytes of that record.
    pub(crate) fn frame(&self) -> &[u8] {
        self.buffer.get(self.frame.clone()).unwrap_or_default()
    }

    fn read(&mut self) -> Result<Option<Brief>, Errno> {
        let head = self.fill(HEAD)?;
        if head.is_empty() {
            return Ok(None);
        }
        self.torn = true;
        let head = self.buffer.get(head).and_then(|head| <[u8; HEAD]>::try_from(head).ok());
        let Some((size, checksum)) = head.map(parts) else { return Ok(None) };
        if size == 0 || size > LARGEST {
            return Ok(None);
        }
        let whole = self.fill(HEAD + size)?;
        let frame = whole.start + HEAD..whole.end;
        let bytes = self.buffer.get(frame.clone()).unwrap_or_default();
        if bytes.len() < size || crc32fast::hash(bytes) != checksum {
            return Ok(None);
        }
        let Some(brief) = Brief::of(bytes).filter(|brief| brief.seq == self.last + 1) else {
            return Ok(None);
        };
        self.torn = false;
        self.last = brief.seq;
        self.end += (HEAD + size) as u64;
        self.frame = frame;
        self.consume(HEAD + size);
        Ok(Some(brief))
    }

    /// Reads until so much is in the buffer, or the file ends; where in the buffer it is.
    fn fill(&mut self, wanted: usize) -> Result<Range<usize>, Errno> {
        let Some(file) = &self.file else { return Ok(0..0) };
        if self.left.len() < wanted {
            self.buffer.copy_within(self.left.clone(), 0);
            self.left = 0..self.left.len();
            self.buffer.resize(BUFFER.max(wanted), 0);
        }
        while self.left.len() < wanted {
            let Some(free) = self.buffer.get_mut(self.left.end..) else { break };
            match rustix::io::read(file, free) {
                Ok(0) => break,
                Ok(length) => self.left.end += length,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        let Range { start, end } = self.left;
        Ok(start..end.min(start + wanted))
    }

    fn consume(&mut self, length: usize) {
        self.left.start += length;
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let whole = |bytes| postcard::from_bytes(bytes).map_err(|_other| Errno::BADMSG);
        match self.advance() {
            Ok(Some(_)) => Some(whole(self.frame())),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// What a frame begins with: the length and the checksum of what follows.
fn head(size: usize, checksum: u32) -> [u8; 8] {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    (u64::from(checksum) << 32 | u64::from(size)).to_le_bytes()
}

fn parts(head: [u8; 8]) -> (usize, u32) {
    let both = u64::from_le_bytes(head);
    let size = usize::try_from(both & u64::from(u32::MAX)).unwrap_or(usize::MAX);
    (size, u32::try_from(both >> 32).unwrap_or(u32::MAX))
}

/// Whose a record is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Author {
    pub(crate) set: u32,
    pub(crate) process: u32,
}

/// The end of a log, to which records are added.
#[derive(Debug)]
pub(crate) struct Writer {
    file: OwnedFd,
    /// The bytes of the file.
    end: u64,
    /// The number of the next record.
    next: u64,
    /// Frames that are not written yet.
    buffer: Vec<u8>,
    /// How many.
    gathered: u64,
    sync: Sync,
}

/// What is known of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// All of it is on the disk.
    Done,
    /// Something was written since.
    Due,
    /// It ends in the middle of a frame that could not be cut off: nothing after it can be read.
    Broken,
}

impl Writer {
    /// Opens the log of a store after its records were read: cuts off what follows the last whole
    /// one.
    pub(crate) fn open(store: BorrowedFd<'_>, read: Mark) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        let file = rustix::fs::openat(store, NAME, flags, Mode::from_raw_mode(0o644))?;
        let length = rustix::fs::fstat(&file)?.st_size;
        let end = read.end;
        let mut writer = Self {
            file,
            end,
            next: read.last + 1,
            buffer: Vec::with_capacity(4096),
            gathered: 0,
            sync: Sync::Due,
        };
        if u64::try_from(length) != Ok(end) {
            rustix::fs::ftruncate(&writer.file, end)?;
        }
        if end == 0 {
            crate::save::settle(store, writer.file.as_fd())?;
            writer.buffer.extend_from_slice(&HEADER);
            writer.flush()?;
        }
        Ok(writer)
    }

    /// The number that the next record gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a record to those that the next flush writes; its number.
    pub(crate) fn gather(&mut self, author: Author, record: Record) -> Result<u64, Errno> {
        if self.buffer.len() > GATHERED {
            self.flush()?;
        }
        let outcome = self.encode(author, record);
        if outcome.is_err() {
            self.forget();
        }
        outcome
    }

    fn encode(&mut self, author: Author, record: Record) -> Result<u64, Errno> {
        if self.sync == Sync::Broken {
            return Err(Errno::IO);
        }
        let seq = self.next;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let Author { set, process } = author;
        let entry = Entry { seq, time, set, process, record };
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 8]);
        let buffer = std::mem::take(&mut self.buffer);
        let Ok(buffer) = postcard::to_extend(&entry, buffer) else { return Err(Errno::INVAL) };
        self.buffer = buffer;
        let size = self.buffer.len() - start - 8;
        let Some((head, payload)) =
            self.buffer.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut::<8>)
        else {
            return Err(Errno::INVAL);
        };
        let checksum = crc32fast::hash(payload);
        *head = self::head(size, checksum);
        if size > LARGEST {
            return Err(Errno::TOOBIG);
        }
        self.next += 1;
        self.gathered += 1;
        Ok(seq)
    }

    /// Writes what was gathered. What cannot be written is forgotten, and the log is as before.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        let outcome = write_all(self.file.as_fd(), &self.buffer);
        if outcome.is_ok() {
            self.end += self.buffer.len() as u64;
            self.sync = Sync::Due;
            self.gathered = 0;
        } else if rustix::fs::ftruncate(&self.file, self.end).is_err() {
            self.sync = Sync::Broken;
        }
        self.forget();
        outcome
    }

    /// Forgets what was gathered and not written.
    fn forget(&mut self) {
        self.next -= self.gathered;
        self.gathered = 0;
        self.buffer.clear();
        self.buffer.shrink_to(2 * GATHERED);
    }

    /// Writes one record; its number.
    pub(crate) fn append(&mut self, author: Author, record: Record) -> Result<u64, Errno> {
        let seq = self.gather(author, record)?;
        self.flush()?;
        Ok(seq)
    }

    /// Whether something was written since it last reached the disk.
    pub(crate) fn sync_due(&self) -> bool {
        self.sync == Sync::Due
    }

    /// Waits until everything is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), Errno> {
        if self.sync_due() {
            rustix::fs::fdatasync(&self.file)?;
            self.sync = Sync::Done;
        }
        Ok(())
    }
}

/// Writes all bytes to the end of a file.
pub(crate) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

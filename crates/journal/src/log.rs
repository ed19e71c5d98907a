//! The log of a store: an append-only file of records.
//!
//! After a header each record is a frame: the length of what follows, a checksum of it, and the
//! record. A frame is written with one call before the change that it is about is made. What ends
//! in the middle of a frame, or does not have its checksum, ends the log: whoever opens it for
//! writing cuts it there.

use crate::record::{Entry, Record};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

const NAME: &str = "log";
/// What every log begins with; the last byte is the version of the format.
const HEADER: [u8; 16] = *b"cowork journal\0\x01";
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
    let file = Some(BufReader::with_capacity(BUFFER, file));
    Ok(Entries { file, end: mark.end, torn: false, last: mark.last, frame: Vec::new() })
}

fn open(store: BorrowedFd<'_>) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(store, NAME, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The records of a log, up to the last whole one.
#[derive(Debug)]
pub struct Entries {
    file: Option<BufReader<File>>,
    end: u64,
    torn: bool,
    last: u64,
    frame: Vec<u8>,
}

impl Entries {
    fn new(file: Option<File>) -> Result<Self, Errno> {
        let file = file.map(|file| BufReader::with_capacity(BUFFER, file));
        let mut entries = Self { file, end: 0, torn: false, last: 0, frame: Vec::new() };
        let Some(file) = &mut entries.file else { return Ok(entries) };
        let mut header = [0; HEADER.len()];
        let length = fill(file, &mut header)?;
        if length == HEADER.len() {
            if header != HEADER {
                return Err(Errno::BADMSG);
            }
            entries.end = HEADER.len() as u64;
        } else if header.get(..length) == HEADER.get(..length) {
            entries.torn = length > 0;
            entries.file = None;
        } else {
            return Err(Errno::BADMSG);
        }
        Ok(entries)
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

    fn read(&mut self) -> Result<Option<Entry>, Errno> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let mut head = [0; 8];
        let length = fill(file, &mut head)?;
        if length == 0 {
            return Ok(None);
        }
        self.torn = true;
        let (size, checksum) = parts(head);
        if length < head.len() || size == 0 || size > LARGEST {
            return Ok(None);
        }
        self.frame.clear();
        self.frame.resize(size, 0);
        if fill(file, &mut self.frame)? < size || crc32fast::hash(&self.frame) != checksum {
            return Ok(None);
        }
        let Ok(entry) = postcard::from_bytes::<Entry>(&self.frame) else { return Ok(None) };
        if entry.seq != self.last + 1 {
            return Ok(None);
        }
        self.torn = false;
        self.last = entry.seq;
        self.end += (head.len() + size) as u64;
        Ok(Some(entry))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let outcome = self.read().transpose();
        if !matches!(outcome, Some(Ok(_))) {
            self.file = None;
        }
        outcome
    }
}

/// Reads until the buffer is full or the file ends; how much was read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut full = 0;
    while let Some(rest) = buffer.get_mut(full..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(length) => full += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(full)
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

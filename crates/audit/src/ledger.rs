//! The one writer of a record.
//!
//! Invariant: between two calls the last file ends with a whole line, or is known to end with an
//! unfinished one that is cut off before anything else is written. A record is one `write`.
//!
//! Deliberately absent: proving records that were written earlier (`verify.rs`). Opening reads the
//! last record, and the one that the caller remembers.

use crate::folder::{Folder, Piece, name};
use crate::line::{self, Content};
use crate::{Head, LedgerError};
use rustix::fs::{Access, AtFlags, FlockOperation, OFlags};
use rustix::fs::{accessat, fdatasync, flock, fstat, fsync, ftruncate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// How long a file may become; the record that would make it longer starts the next one.
pub const FILE_BYTES: u64 = 16 * 1024 * 1024;

/// How long a line may be, with its line feed. A longer record is refused.
pub const MAX_RECORD: usize = 4 * 1024 * 1024;

/// How much of the end of a file is looked at first to find its last line.
const TAIL: u64 = 16 * 1024;

/// How often a lock that somebody has is tried again, and after how long.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The buffer for lines that is kept from one record to the next.
const KEPT_BUFFER: usize = 64 * 1024;

/// The end of a chain of records, open for more.
#[derive(Debug)]
pub struct Ledger {
    folder: Folder,
    current: Current,
    head: Head,
    /// When the next file starts.
    file_bytes: u64,
    /// The line that is written, empty between two records.
    line: Vec<u8>,
}

/// A record that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The record.
    pub ledger: Ledger,
    /// The unfinished last line that was cut off: its writer died before the end of it, so nobody
    /// was told that it was written.
    pub cut: Option<String>,
}

/// The file that is written.
#[derive(Debug)]
struct Current {
    file: File,
    start: u64,
    /// The length of its whole lines.
    length: u64,
    end: End,
}

/// What is at the end of a file.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// Part of a line that could not be written, and could not be cut off either.
    Torn,
}

impl Ledger {
    /// Opens the record in a folder, which is made if there is none, and goes on at its end.
    ///
    /// `known` is a head that the caller remembers elsewhere: if the record ends before it, or has
    /// another record in its place, that is an error. A caller who remembers heads calls
    /// [`Ledger::sync`] before, or a loss of power could take what is remembered.
    pub fn open(folder: &Path, known: Option<&Head>) -> Result<Opened, LedgerError> {
        Self::open_with(folder, known, FILE_BYTES)
    }

    /// Opens the record in a folder as [`Ledger::open`] does, with another length of its files.
    pub fn open_with(
        path: &Path,
        known: Option<&Head>,
        file_bytes: u64,
    ) -> Result<Opened, LedgerError> {
        let folder = writable(path)?;
        let starts = folder.list()?.starts;
        let found = starts.last().map(|&start| Current::open(&folder, start)).transpose()?;
        let head = match (starts.split_last(), &found) {
            (Some((&start, before)), Some((current, ..))) if current.length == 0 => {
                last_of(&folder, before, start)?
            }
            (_, Some((_, last, _))) => last.clone(),
            (_, None) => Head::default(),
        };
        // Nothing is changed before this: what somebody has tampered with stays as it was found.
        if let Some(known) = known {
            confirm(&folder, &starts, &head, known)?;
        }
        let (mut current, cut) = match found {
            Some((current, _, cut)) => (current, cut),
            None => (Current::create(&folder, 1)?, None),
        };
        if cut.is_some() {
            current.cut(&folder)?;
        }
        let ledger = Self { folder, current, head, file_bytes, line: Vec::new() };
        Ok(Opened { ledger, cut })
    }

    /// Appends a record and says the new head.
    ///
    /// It is in the hands of the kernel then: it outlives this process, and a loss of power after
    /// [`Ledger::sync`]. After an error the record is as it was, and the next one can be tried.
    pub fn append(
        &mut self,
        time: &str,
        kind: &str,
        session: Option<&str>,
        data: &serde_json::Value,
    ) -> Result<Head, LedgerError> {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let (seq, previous) = (self.head.seq + 1, self.head.hash.as_str());
        let content = Content { seq, time, kind, session, data, previous };
        let head = content.write(&mut line).map_err(|error| LedgerError::Io {
            attempted: "write a record for",
            path: self.folder.path.clone(),
            source: error.into(),
        })?;
        let written = self.write(&line, seq);
        if line.capacity() <= KEPT_BUFFER {
            self.line = line;
        }
        written?;
        self.head.clone_from(&head);
        Ok(head)
    }

    /// The end of the chain.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Waits until everything that was appended would outlive a loss of power.
    pub fn sync(&self) -> Result<(), LedgerError> {
        let failed = |errno| LedgerError::writing("sync", &self.path(), errno);
        fdatasync(&self.current.file).map_err(failed)
    }

    fn path(&self) -> PathBuf {
        self.folder.file(self.current.start)
    }

    /// Writes one line, in the next file if this one is full.
    fn write(&mut self, line: &[u8], seq: u64) -> Result<(), LedgerError> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if line.len() > MAX_RECORD {
            return Err(LedgerError::TooLarge { bytes: line.len() });
        }
        if self.current.end == End::Torn {
            self.current.cut(&self.folder)?;
        }
        if self.current.length > 0 && self.current.length.saturating_add(length) > self.file_bytes {
            self.sync()?;
            self.current = Current::create(&self.folder, seq)?;
        }
        let cause = match retry_on_intr(|| rustix::io::write(&self.current.file, line)) {
            Ok(written) if written == line.len() => {
                self.current.length += length;
                return Ok(());
            }
            // A regular file takes less than it is given only when there is no more room.
            Ok(_) => Errno::NOSPC,
            Err(errno) => errno,
        };
        self.current.end = End::Torn;
        let error = LedgerError::writing("append to", &self.path(), cause);
        // If it cannot be cut off now, the next record tries again before it is written.
        drop(self.current.cut(&self.folder));
        Err(error)
    }
}

impl Current {
    /// Starts a file.
    fn create(folder: &Folder, start: u64) -> Result<Self, LedgerError> {
        let path = folder.file(start);
        let failed = |errno| LedgerError::writing("make", &path, errno);
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let file = folder.regular(start, flags).map_err(failed)?;
        let file = file.ok_or_else(|| LedgerError::NotAFile { path: path.clone() })?;
        fsync(&folder.handle).map_err(failed)?;
        // It may be there already, if the last attempt came so far and no further.
        match fstat(&file).map_err(failed)?.st_size {
            0 => Ok(Self { file, start, length: 0, end: End::Whole }),
            _ => Err(LedgerError::Broken { file: path, line: 1 }),
        }
    }

    /// Cuts off what was written of a line.
    fn cut(&mut self, folder: &Folder) -> Result<(), LedgerError> {
        let path = folder.file(self.start);
        let failed = |errno| LedgerError::writing("cut an unfinished line off", &path, errno);
        ftruncate(&self.file, self.length).map_err(failed)?;
        self.end = End::Whole;
        Ok(())
    }

    /// Goes on with a file, and says the last record in it and what is to be cut off.
    fn open(folder: &Folder, start: u64) -> Result<(Self, Head, Option<String>), LedgerError> {
        let path = folder.file(start);
        let failed = |errno| LedgerError::writing("open", &path, errno);
        let file = folder.regular(start, OFlags::RDWR | OFlags::APPEND).map_err(failed)?;
        let file = file.ok_or_else(|| LedgerError::NotAFile { path: path.clone() })?;
        let tail = Tail::of(&file).map_err(|error| LedgerError::reading("read", &path, error))?;
        let tail = tail.ok_or_else(|| broken_end(folder, start))?;
        let head = if tail.whole == 0 { Head::default() } else { tail.head(folder, start)? };
        let unfinished = String::from_utf8_lossy(&tail.unfinished).into_owned();
        let unfinished = Some(unfinished).filter(|text| !text.is_empty());
        let end = if unfinished.is_some() { End::Torn } else { End::Whole };
        let current = Self { file, start, length: tail.whole, end };
        Ok((current, head, unfinished))
    }
}

/// The end of a file.
struct Tail {
    /// The length of the whole lines.
    whole: u64,
    /// The last whole line, without its line feed.
    last: Vec<u8>,
    /// What stands after it.
    unfinished: Vec<u8>,
}

impl Tail {
    /// Finds the end of a file; there is none if nothing as short as a record is there.
    fn of(file: &File) -> std::io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        let longest = u64::try_from(2 * MAX_RECORD).unwrap_or(u64::MAX);
        let mut window = TAIL;
        loop {
            let offset = length.saturating_sub(window);
            let mut bytes = vec![0; usize::try_from(length - offset).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut bytes, offset)?;
            if let Some(tail) = Self::within(bytes, offset) {
                return Ok(Some(tail));
            }
            if offset == 0 || window >= longest {
                return Ok(None);
            }
            window *= 2;
        }
    }

    /// Finds the last whole line in the bytes from `offset` to the end of a file.
    fn within(mut bytes: Vec<u8>, offset: u64) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        if end.is_none() && offset > 0 {
            return None;
        }
        let unfinished = bytes.split_off(end.map_or(0, |end| end + 1));
        let whole = offset + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        bytes.pop();
        let begin = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(before) => before + 1,
            None if offset == 0 => 0,
            None => return None,
        };
        let last = bytes.split_off(begin);
        (unfinished.len() <= MAX_RECORD).then_some(Self { whole, last, unfinished })
    }

    /// The record in the last whole line.
    fn head(&self, folder: &Folder, start: u64) -> Result<Head, LedgerError> {
        let intact = line::hashes(&self.last).is_some_and(|(carried, own)| carried == own);
        let front = line::front(&self.last).filter(|front| intact && front.seq >= start);
        let front = front.ok_or_else(|| broken_end(folder, start))?;
        Ok(Head { seq: front.seq, hash: front.hash.into_owned() })
    }
}

/// Opens the folder for one writer.
fn writable(path: &Path) -> Result<Folder, LedgerError> {
    let failed = |errno| LedgerError::writing("write the folder", path, errno);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| LedgerError::writing("make the folder", path, error))?;
    let folder = Folder::open(path)?.ok_or_else(|| failed(Errno::NOENT))?;
    let mut tries = 0;
    loop {
        match flock(&folder.handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            // A program that is being started has a copy of every lock until it is executed.
            Err(Errno::WOULDBLOCK) if tries < TRIES => sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(LedgerError::Locked { folder: path.to_path_buf() });
            }
            Err(errno) => return Err(LedgerError::reading("lock the folder", path, errno)),
        }
        tries += 1;
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(&folder.handle, ".", access, AtFlags::EACCESS).map_err(failed)?;
    Ok(folder)
}

/// The last record before an empty file.
fn last_of(folder: &Folder, before: &[u64], empty: u64) -> Result<Head, LedgerError> {
    let missing = |file: u64, from| LedgerError::Missing {
        file: folder.file(file),
        from,
        to: empty.saturating_sub(1),
    };
    let Some(&start) = before.last() else {
        return if empty == 1 { Ok(Head::default()) } else { Err(missing(1, 1)) };
    };
    let mut last = None;
    let mut lines = folder.read(start)?;
    while let Some(piece) = lines.next()? {
        last = match piece {
            Piece::Line(line) => line::front(line)
                .map(|front| Head { seq: front.seq, hash: front.hash.into_owned() }),
            Piece::TooLong | Piece::Unfinished(_) => None,
        };
    }
    let last = last.ok_or_else(|| lines.broken())?;
    if last.seq + 1 == empty { Ok(last) } else { Err(missing(start, last.seq + 1)) }
}

/// Checks that the record has what the caller remembers.
fn confirm(folder: &Folder, starts: &[u64], head: &Head, known: &Head) -> Result<(), LedgerError> {
    let last = starts.last().copied().unwrap_or(1);
    if known.seq > head.seq {
        let (from, to) = (head.seq + 1, known.seq);
        return Err(LedgerError::Missing { file: folder.file(last), from, to });
    }
    if known.seq == 0 || known == head {
        return Ok(());
    }
    let start = starts.iter().rev().find(|start| **start <= known.seq).copied();
    let missing = |file: u64| LedgerError::Missing {
        file: folder.file(file),
        from: known.seq,
        to: known.seq,
    };
    let start = start.ok_or_else(|| missing(1))?;
    let mut lines = folder.read(start)?;
    while let Some(piece) = lines.next()? {
        let Piece::Line(line) = piece else { continue };
        if line::seq(line) != Some(known.seq) {
            continue;
        }
        let same = line::hashes(line)
            .is_some_and(|(carried, own)| carried == own && carried == known.hash);
        let replaced = LedgerError::Replaced { file: folder.file(start), seq: known.seq };
        return if same { Ok(()) } else { Err(replaced) };
    }
    Err(missing(start))
}

/// Says that the last line of a file is damaged.
fn broken_end(folder: &Folder, start: u64) -> LedgerError {
    let count = || -> Result<u64, LedgerError> {
        let mut lines = folder.read(start)?;
        let mut whole = 0;
        while let Some(piece) = lines.next()? {
            if !matches!(piece, Piece::Unfinished(_)) {
                whole = lines.number();
            }
        }
        Ok(whole)
    };
    match count() {
        Ok(line) => LedgerError::Broken { file: folder.path.join(name(start)), line },
        Err(error) => error,
    }
}

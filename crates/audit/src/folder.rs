//! The folder of the record: its files by name, and their lines.
//!
//! Files are opened beneath a handle of the folder, never through a link, and only if they are
//! regular files.
//!
//! Deliberately absent: any meaning of a line (`line.rs`).

use crate::{LedgerError, MAX_RECORD};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// How much of a file is read at once.
const CHUNK: usize = 256 * 1024;

/// A folder of files with records.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) handle: OwnedFd,
    pub(crate) path: PathBuf,
}

/// What is in a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The first record of every file of the record, by its name, in order.
    pub(crate) starts: Vec<u64>,
    /// Names that do not belong to the record, in order.
    pub(crate) strangers: Vec<OsString>,
}

/// How a file may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a whole line.
    Whole,
    /// In the middle of a line, because one may be on its way into it.
    Growing,
}

impl Listing {
    /// The files of the record in order, by their first records.
    pub(crate) fn files(&self) -> impl Iterator<Item = (u64, Ending)> {
        let last = self.starts.last().copied();
        self.starts.iter().map(move |start| {
            (*start, if last == Some(*start) { Ending::Growing } else { Ending::Whole })
        })
    }
}

/// The name of the file that starts with a record.
pub(crate) fn name(start: u64) -> String {
    format!("{start:08}.jsonl")
}

/// The record that a file of this name starts with.
fn start(file: &str) -> Option<u64> {
    let start = file.strip_suffix(".jsonl")?.parse().ok()?;
    (start > 0 && name(start) == file).then_some(start)
}

impl Folder {
    /// Opens a folder; there is none if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, LedgerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(Self { handle, path: path.to_path_buf() })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(LedgerError::reading("open the folder", path, errno)),
        }
    }

    /// The path of the file that starts with a record.
    pub(crate) fn file(&self, start: u64) -> PathBuf {
        self.path.join(name(start))
    }

    /// Lists what is in it.
    pub(crate) fn list(&self) -> Result<Listing, LedgerError> {
        let failed = |errno| LedgerError::reading("list the folder", &self.path, errno);
        let mut listing = Listing::default();
        for entry in Dir::read_from(&self.handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            match file.to_str() {
                Some("." | "..") => {}
                text => match text.and_then(start) {
                    Some(start) => listing.starts.push(start),
                    None => listing.strangers.push(file),
                },
            }
        }
        listing.starts.sort_unstable();
        listing.strangers.sort_unstable();
        Ok(listing)
    }

    /// Opens the file that starts with a record, for reading.
    pub(crate) fn read(&self, start: u64) -> Result<Lines, LedgerError> {
        let path = self.file(start);
        let failed = |errno| LedgerError::reading("open", &path, errno);
        let file = self.regular(start, OFlags::RDONLY).map_err(failed)?;
        let file = file.ok_or_else(|| LedgerError::NotAFile { path: path.clone() })?;
        Ok(Lines {
            reader: BufReader::with_capacity(CHUNK, file),
            line: Vec::new(),
            offset: 0,
            number: 0,
            path,
        })
    }

    /// Opens the file that starts with a record; there is none if it is not a regular file.
    pub(crate) fn regular(&self, start: u64, flags: OFlags) -> Result<Option<File>, Errno> {
        // Without `NONBLOCK`, opening a pipe would wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.handle, name(start), flags, Mode::RUSR | Mode::WUSR)?;
        let regular = FileType::from_raw_mode(fstat(&file)?.st_mode).is_file();
        Ok(regular.then(|| File::from(file)))
    }
}

/// The lines of a file, one after another, in bounded memory.
#[derive(Debug)]
pub(crate) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Where the piece after the current one starts.
    offset: u64,
    /// The number of the current piece, from 1.
    number: u64,
    path: PathBuf,
}

/// A piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'l> {
    /// A line without its line feed.
    Line(&'l [u8]),
    /// A line that is longer than any record.
    TooLong,
    /// What stands after the last line feed.
    Unfinished(&'l [u8]),
}

impl Lines {
    /// The next piece; none at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Piece<'_>>, LedgerError> {
        self.line.clear();
        let failed = |error| LedgerError::reading("read", &self.path, error);
        let limit = u64::try_from(MAX_RECORD).unwrap_or(u64::MAX);
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line);
        let mut length = read.map_err(failed)?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        let finished = self.line.pop_if(|last| *last == b'\n').is_some();
        let too_long = !finished && length == MAX_RECORD;
        if too_long {
            length += self.reader.skip_until(b'\n').map_err(failed)?;
        }
        self.offset += u64::try_from(length).unwrap_or(u64::MAX);
        Ok(Some(match (finished, too_long) {
            (true, _) => Piece::Line(&self.line),
            (false, true) => Piece::TooLong,
            (false, false) => Piece::Unfinished(&self.line),
        }))
    }

    /// Goes back to before an unfinished piece, to read it again.
    pub(crate) fn back(&mut self) -> Result<(), LedgerError> {
        let length = u64::try_from(self.line.len()).unwrap_or(u64::MAX);
        self.offset = self.offset.saturating_sub(length);
        self.number = self.number.saturating_sub(1);
        let sought: io::Result<u64> = self.reader.seek(SeekFrom::Start(self.offset));
        sought.map_err(|error| LedgerError::reading("read", &self.path, error))?;
        Ok(())
    }

    /// The number of the current piece, from 1; 0 before the first.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Says that the current piece is damaged.
    pub(crate) fn broken(&self) -> LedgerError {
        LedgerError::Broken { file: self.path.clone(), line: self.number }
    }
}

#[cfg(test)]
mod tests {
    use super::{name, start};

    #[test]
    fn files_are_named_by_their_first_record_in_one_way() {
        for seq in [1, 42, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(start(&name(seq)), Some(seq));
        }
        for stranger in ["1.jsonl", "00000000.jsonl", "000000001.jsonl", "+0000001.jsonl", ".jsonl"]
        {
            assert_eq!(start(stranger), None, "{stranger}");
        }
    }
}

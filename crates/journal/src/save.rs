//! Keeps what is about to be lost, and gives it back.
//!
//! Small contents go to the end of the pack; larger ones into a file of their own, without copying
//! where the file system can share blocks, and with holes as holes where it cannot. What is removed
//! goes into the trash of its folder as it is, with nothing copied at all.
//!
//! Deliberately absent: records of it (`log`), and whether something needs to be kept (`hand`).

use crate::log::write_all;
use crate::record::{Saved, Why};
use cowork_api::files::Caps;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, SeekFrom, Uid};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const PACK: &str = "pack";
/// The largest contents that go into the pack.
const SMALL: u64 = 64 << 10;
/// How much is copied at once where the kernel does not copy.
const CHUNK: usize = 256 << 10;

/// Everybody may read what is in a store; the folder above it is private.
const READABLE: Mode = Mode::from_raw_mode(0o644);

/// Whether the files of a folder can be kept without copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// It was not tried yet.
    #[default]
    Unknown,
    /// Their blocks can be shared with the store.
    Works,
    /// They are copied.
    Refused,
}

/// Where contents are kept, open for adding to it.
#[derive(Debug)]
pub(crate) struct Store {
    folder: OwnedFd,
    pack: OwnedFd,
    packed: u64,
    unsynced: bool,
    /// Files of their own that may not be on the disk yet.
    unsynced_copies: Vec<u64>,
    /// Bytes that were copied, in the whole log.
    pub(crate) copied: u64,
    buffer: Vec<u8>,
}

impl Store {
    /// Opens a store.
    pub(crate) fn open(folder: OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        let pack = rustix::fs::openat(&folder, PACK, flags, READABLE)?;
        let packed = u64::try_from(rustix::fs::fstat(&pack)?.st_size).unwrap_or(0);
        if packed == 0 {
            settle(folder.as_fd(), pack.as_fd())?;
        }
        Ok(Self {
            folder,
            pack,
            packed,
            unsynced: false,
            unsynced_copies: Vec::new(),
            copied: packed,
            buffer: Vec::new(),
        })
    }

    /// Whether `size` bytes would be kept, or why not.
    pub(crate) fn would_keep(&self, size: u64, caps: &Caps, sharing: Sharing) -> Result<(), Why> {
        if sharing == Sharing::Works { Ok(()) } else { self.would_copy(size, caps) }
    }

    fn would_copy(&self, size: u64, caps: &Caps) -> Result<(), Why> {
        if size > caps.file {
            Err(Why::Large)
        } else if self.copied.saturating_add(size) > caps.session {
            Err(Why::Full)
        } else {
            Ok(())
        }
    }

    /// Keeps the first `size` bytes of a file for the record with the number `seq`.
    pub(crate) fn keep(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        seq: u64,
        limits: (&Caps, &mut Sharing),
    ) -> Saved {
        let (caps, sharing) = limits;
        let fits = self.would_copy(size, caps);
        let outcome = match fits {
            Ok(()) if size <= SMALL => self.pack(file, size),
            _ => self.copy(file, size, seq, (fits, sharing)),
        };
        outcome.unwrap_or_else(|error| {
            Saved::Lost(match error {
                Errno::NOSPC | Errno::DQUOT => Why::NoSpace,
                _ => Why::Unreadable,
            })
        })
    }

    fn pack(&mut self, file: BorrowedFd<'_>, size: u64) -> Result<Saved, Errno> {
        let offset = self.packed;
        self.buffer.clear();
        self.buffer.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        let length = read_at(file, &mut self.buffer, 0)?;
        self.buffer.truncate(length);
        if let Err(error) = write_all(self.pack.as_fd(), &self.buffer) {
            // What is left of it is in nobody's way, except that later contents come after it.
            if rustix::fs::ftruncate(&self.pack, offset).is_err() {
                let now = rustix::fs::fstat(&self.pack)?.st_size;
                self.packed = u64::try_from(now).unwrap_or(offset);
            }
            return Err(error);
        }
        let length = length as u64;
        self.packed += length;
        self.copied += length;
        self.unsynced |= length > 0;
        Ok(Saved::Pack { offset, length })
    }

    fn copy(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        seq: u64,
        how: (Result<(), Why>, &mut Sharing),
    ) -> Result<Saved, Errno> {
        let (fits, sharing) = how;
        if let (Err(why), Sharing::Refused) = (fits, *sharing) {
            return Ok(Saved::Lost(why));
        }
        let name = format!("b{seq}");
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        let copy = rustix::fs::openat(&self.folder, &*name, flags, READABLE)?;
        let outcome = rustix::fs::fchmod(&copy, READABLE).and_then(|()| {
            if *sharing != Sharing::Refused {
                if rustix::fs::ioctl_ficlone(&copy, file).is_ok() {
                    *sharing = Sharing::Works;
                    return Ok(Saved::Copy(seq));
                }
                *sharing = Sharing::Refused;
            }
            if let Err(why) = fits {
                return Ok(Saved::Lost(why));
            }
            copy_sparse(file, copy.as_fd(), size)?;
            self.copied += size;
            Ok(Saved::Copy(seq))
        });
        if matches!(outcome, Ok(Saved::Copy(_))) {
            self.unsynced_copies.push(seq);
        } else {
            // An empty file more in the store changes nothing.
            cowork_sys::ignore(rustix::fs::unlinkat(&self.folder, &*name, AtFlags::empty()));
        }
        outcome
    }

    /// Removes what was kept for a record that was not written.
    pub(crate) fn discard(&self, trash: Option<BorrowedFd<'_>>, saved: &Saved) {
        let (folder, name) = match (saved, trash) {
            (Saved::Copy(seq), _) => (self.folder.as_fd(), format!("b{seq}")),
            (Saved::Trash(seq), Some(trash)) => (trash, format!("t{seq}")),
            _ => return,
        };
        // What stays is in nobody's way: the next one with its number replaces it.
        cowork_sys::ignore(rustix::fs::unlinkat(folder, name, AtFlags::empty()));
    }

    /// Whether files of the folder that a trash belongs to can be kept without copying.
    pub(crate) fn try_sharing(&self, trash: BorrowedFd<'_>) -> Sharing {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let from = rustix::fs::openat(trash, c".", flags, mode);
        let to = rustix::fs::openat(&self.folder, c".", flags, mode);
        let (Ok(from), Ok(to)) = (from, to) else { return Sharing::Unknown };
        match rustix::fs::ioctl_ficlone(to, from) {
            Ok(()) => Sharing::Works,
            Err(_) => Sharing::Refused,
        }
    }

    /// Waits until everything that was kept is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), Errno> {
        for seq in self.unsynced_copies.drain(..) {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            // One that is gone by now belongs to a record that was not written.
            match rustix::fs::openat(&self.folder, format!("b{seq}"), flags, Mode::empty()) {
                Ok(copy) => rustix::fs::fdatasync(copy)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        if self.unsynced {
            rustix::fs::fdatasync(&self.pack)?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// Makes a new file of a store one that every reader can read, and that the next writer can write
/// to: whoever the folder belongs to.
pub(crate) fn settle(folder: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
    // The mask of the thread may be a caller's.
    rustix::fs::fchmod(file, READABLE)?;
    let stat = rustix::fs::fstat(folder)?;
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    // Whoever may not give it away is the owner, or the only one who writes.
    cowork_sys::ignore(rustix::fs::fchown(file, Some(uid), Some(gid)));
    Ok(())
}

/// Gives a name that is about to be removed another one in the trash.
pub(crate) fn link_to_trash(
    trash: BorrowedFd<'_>,
    from: (BorrowedFd<'_>, &CStr),
    seq: u64,
) -> Result<(), Errno> {
    let (parent, name) = from;
    let kept = format!("t{seq}");
    match rustix::fs::linkat(parent, name, trash, &*kept, AtFlags::empty()) {
        Err(Errno::EXIST) => {
            // Left behind by a record that was never written.
            rustix::fs::unlinkat(trash, &*kept, AtFlags::empty())?;
            rustix::fs::linkat(parent, name, trash, &*kept, AtFlags::empty())
        }
        outcome => outcome,
    }
}

/// Moves a name into the trash.
pub(crate) fn move_to_trash(
    trash: BorrowedFd<'_>,
    from: (BorrowedFd<'_>, &CStr),
    seq: u64,
) -> Result<(), Errno> {
    let (parent, name) = from;
    rustix::fs::renameat(parent, name, trash, format!("t{seq}"))
}

/// Contents that were kept, to be read from the beginning.
#[derive(Debug)]
pub struct Contents {
    file: OwnedFd,
    start: u64,
    length: u64,
    position: u64,
}

/// The kept contents of a file; nothing if there are none: of a link or a pipe, and of what is
/// lost or kept by another record.
pub fn contents(
    store: BorrowedFd<'_>,
    trash: Option<BorrowedFd<'_>>,
    saved: &Saved,
) -> Result<Option<Contents>, Errno> {
    let (folder, name) = match saved {
        Saved::Pack { .. } => (store, PACK.to_owned()),
        Saved::Copy(seq) => (store, format!("b{seq}")),
        Saved::Trash(seq) => (trash.ok_or(Errno::NOENT)?, format!("t{seq}")),
        Saved::Same | Saved::Link(_) | Saved::Empty | Saved::Lost(_) => return Ok(None),
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // Of what lies in the trash only files have contents.
    let look = rustix::fs::statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
    if rustix::fs::FileType::from_raw_mode(look.st_mode) != rustix::fs::FileType::RegularFile {
        return Ok(None);
    }
    let file = rustix::fs::openat(folder, &*name, flags, Mode::empty())?;
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    let (start, length) = match saved {
        Saved::Pack { offset, length } => (*offset, *length),
        _ => (0, size),
    };
    if start.checked_add(length).is_none_or(|end| end > size) {
        return Err(Errno::IO);
    }
    Ok(Some(Contents { file, start, length, position: 0 }))
}

impl Contents {
    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Copies them into an empty file, which then has exactly them: without copying where the file
    /// system can, and with holes as holes.
    pub fn copy_to(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.start == 0 && self.length > SMALL {
            if rustix::fs::ioctl_ficlone(file, &self.file).is_ok() {
                return Ok(());
            }
            return copy_sparse(self.file.as_fd(), file, self.length);
        }
        let mut buffer = vec![0; CHUNK.min(usize::try_from(self.length).unwrap_or(CHUNK))];
        let mut done = 0;
        while done < self.length {
            let length = read_at(self.file.as_fd(), &mut buffer, self.start + done)?;
            let rest = usize::try_from(self.length - done).unwrap_or(length).min(length);
            let bytes = buffer.get(..rest).unwrap_or_default();
            if bytes.is_empty() {
                return Err(Errno::IO);
            }
            write_at(file, bytes, done)?;
            done += bytes.len() as u64;
        }
        Ok(())
    }
}

impl std::io::Read for Contents {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = usize::try_from(self.length - self.position).unwrap_or(usize::MAX);
        let length = rest.min(buffer.len());
        let buffer = buffer.get_mut(..length).unwrap_or_default();
        let length = rustix::io::pread(&self.file, buffer, self.start + self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

/// Reads from a place in a file until the buffer is full or the file ends; how much was read.
fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], start: u64) -> Result<usize, Errno> {
    let mut full = 0;
    while let Some(rest) = buffer.get_mut(full..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, start + full as u64) {
            Ok(0) => break,
            Ok(length) => full += length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(full)
}

fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut start: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, start) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(length) => {
                bytes = bytes.get(length..).unwrap_or_default();
                start += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies the first `size` bytes of a file into an empty one, holes as holes.
fn copy_sparse(from: BorrowedFd<'_>, to: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    let mut position = 0;
    while position < size {
        let (data, hole) = match rustix::fs::seek(from, SeekFrom::Data(position)) {
            Ok(data) => (data, rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(size)),
            Err(Errno::NXIO) => break,
            // A file system that does not say where holes are.
            Err(_) => (position, size),
        };
        let hole = hole.min(size);
        if data < hole {
            copy_range(from, to, data, hole)?;
        }
        position = hole.max(data);
    }
    rustix::fs::ftruncate(to, size)
}

/// Copies a range of a file to the same place of another.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> Result<(), Errno> {
    let mut position = start;
    while position < end {
        let length = usize::try_from(end - position).unwrap_or(usize::MAX).min(1 << 30);
        let (mut at, mut into) = (position, position);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), length) {
            // Some files say so without being at their end: the reader below knows.
            Ok(0) => break,
            Ok(copied) => position += copied as u64,
            Err(Errno::INTR) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::FBIG)) => {
                return Err(error);
            }
            Err(_) => break,
        }
    }
    let mut buffer = Vec::new();
    while position < end {
        buffer.resize(CHUNK, 0);
        let length = read_at(from, &mut buffer, position)?;
        if length == 0 {
            break;
        }
        write_at(to, buffer.get(..length).unwrap_or_default(), position)?;
        position += length as u64;
    }
    Ok(())
}

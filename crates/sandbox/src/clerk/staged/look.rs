//! What is under a name, on either side of a staged folder.

use crate::kernel::retry;
use cowork_api::files::FileKind;
use cowork_journal::record::State;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fgetxattr, flistxattr,
    openat2, readlinkat, statx,
};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

/// Seconds and nanoseconds.
pub(super) type Time = (i64, u32);

/// What is under a name.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) inode: u64,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    /// When it was made, where the file system remembers.
    pub(super) born: Option<Time>,
    /// The device that a device file means.
    device: (u32, u32),
}

impl Seen {
    fn new(stat: &Statx) -> Self {
        let time = |time: &rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let knows_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        Self {
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            mode: stat.stx_mode.into(),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            inode: stat.stx_ino,
            links: stat.stx_nlink,
            size: stat.stx_size,
            mtime: time(&stat.stx_mtime),
            ctime: time(&stat.stx_ctime),
            born: knows_birth.then(|| time(&stat.stx_btime)),
            device: (stat.stx_rdev_major, stat.stx_rdev_minor),
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Permission bits that are carried over. None makes a program run as another user.
    pub(super) fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o1777)
    }

    pub(super) fn file_kind(&self) -> FileKind {
        match self.kind {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        }
    }

    /// Its size, of files.
    pub(super) fn length(&self) -> Option<u64> {
        (self.kind == FileType::RegularFile).then_some(self.size)
    }

    /// Whether a record says that it was just so at the end of a set.
    pub(super) fn is_as(&self, state: &State) -> bool {
        let size = if self.is_folder() { 0 } else { self.size };
        (self.inode, self.mode, size, self.mtime, self.ctime)
            == (state.inode, state.mode, state.size, state.mtime, state.ctime)
    }
}

/// What is under a name; `None` if nothing is.
pub(super) fn look(folder: BorrowedFd<'_>, name: &CStr) -> Result<Option<Seen>, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, wanted) {
        Ok(stat) => Ok(Some(Seen::new(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What a handle holds.
pub(super) fn look_at(handle: BorrowedFd<'_>) -> Result<Seen, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(handle, c"", AtFlags::EMPTY_PATH, wanted).map(|stat| Seen::new(&stat))
}

/// Opens something below a folder. No link is followed, and no mount is crossed.
pub(super) fn open_below(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let path = if path.is_empty() { b".".as_slice() } else { path };
    retry(|| openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
}

/// Opens a folder for reading.
pub(super) fn enter(folder: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_below(folder, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a file for reading. What is no file is not waited for.
pub(in crate::clerk) fn open_file(folder: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_below(folder, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// The names in a folder, sorted.
pub(super) fn names(folder: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Under which names an overlay keeps what it has to remember: `trusted.overlay.` if root mounted
/// it, else `user.overlay.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    /// Nobody in a session can set these.
    Trusted,
    /// The overlay itself keeps these from the session.
    User,
}

impl Marking {
    /// That of overlays which this process's user mounts.
    pub(crate) fn own() -> Self {
        if rustix::process::geteuid().is_root() { Self::Trusted } else { Self::User }
    }

    fn name(self, what: &str) -> String {
        match self {
            Self::Trusted => format!("trusted.overlay.{what}"),
            Self::User => format!("user.overlay.{what}"),
        }
    }

    /// What an overlay remembers about a file.
    pub(super) fn read(self, file: BorrowedFd<'_>, what: &str) -> Option<Vec<u8>> {
        /// Longest that is of interest.
        const MOST: usize = 4096;
        let mut value = vec![0; MOST];
        let length = fgetxattr(file, self.name(what), value.as_mut_slice()).ok()?;
        value.truncate(length);
        Some(value)
    }

    /// Whether a folder hides all that is under the same name below.
    pub(super) fn is_opaque(self, folder: BorrowedFd<'_>) -> bool {
        self.read(folder, "opaque").as_deref() == Some(b"y")
    }

    /// Whether the name says that something below is removed.
    pub(super) fn is_whiteout(self, folder: BorrowedFd<'_>, name: &CStr, seen: &Seen) -> bool {
        match seen.kind {
            FileType::CharacterDevice => seen.device == (0, 0),
            FileType::RegularFile if seen.size == 0 => open_file(folder, name.to_bytes())
                .is_ok_and(|file| self.read(file.as_fd(), "whiteout").is_some()),
            _ => false,
        }
    }
}

/// The attributes of a file that are the user's.
pub(super) fn attributes(file: BorrowedFd<'_>) -> BTreeMap<CString, Vec<u8>> {
    /// Longest list and longest value that the kernel has.
    const MOST: usize = 64 << 10;
    let mut list = vec![0; MOST];
    let length = flistxattr(file, list.as_mut_slice()).unwrap_or(0);
    let names = list.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let of_user = names.filter(|name| {
        name.starts_with(b"user.") && !name.starts_with(b"user.overlay.") && name.len() > 5
    });
    let mut found = BTreeMap::new();
    for name in of_user.filter_map(|name| CString::new(name).ok()) {
        let mut value = vec![0; MOST];
        if let Ok(length) = fgetxattr(file, name.as_c_str(), value.as_mut_slice()) {
            value.truncate(length);
            found.insert(name, value);
        }
    }
    found
}

/// Whether two files have the same contents. What cannot be read is not the same.
pub(super) fn same_contents(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    const CHUNK: usize = 64 << 10;
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    loop {
        let (read, wanted) = (fill(one, &mut left, at)?, fill(other, &mut right, at)?);
        if left.get(..read) != right.get(..wanted) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at += read as u64;
    }
}

/// Reads as much as there is and fits.
fn fill(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// What a symbolic link says.
pub(super) fn target(folder: BorrowedFd<'_>, name: &CStr) -> Result<CString, Errno> {
    readlinkat(folder, name, Vec::new())
}

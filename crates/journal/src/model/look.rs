//! Looks at what is in a granted folder now.
//!
//! Every way to a name starts at the handle of its folder, and neither follows a link nor leaves the
//! file system.

use super::tree::{kind, split};
use super::{Granted, Ground, Journal};
use crate::hand::Folder;
use crate::meta::attributes;
use crate::record::{Meta, Saved, State};
use crate::save;
use cowork_api::Text;
use cowork_api::files::FileKind;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Largest part of a file that is compared at a time.
const CHUNK: usize = 64 * 1024;
/// So many bytes of names are read of a folder at a time.
const LISTED: usize = 64 * 1024;

/// The granted folders, by the numbers that the records give them.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    store: BorrowedFd<'a>,
    folders: BTreeMap<u32, (&'a Folder, Granted)>,
    /// The folder that was looked into last.
    last: RefCell<Option<(u32, Text, Rc<OwnedFd>)>>,
}

/// What is under a name now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// Which inode.
    pub(crate) inode: u64,
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// The owner.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
    /// How many names it has.
    pub(crate) links: u32,
    /// In bytes.
    pub(crate) size: u64,
    /// When its contents were last changed.
    pub(crate) mtime: (i64, u32),
    /// When it was last read.
    pub(crate) atime: (i64, u32),
}

impl<'a> Disk<'a> {
    /// Finds the folders of the records among those that are there.
    pub(crate) fn new(journal: &Journal, ground: &Ground<'a>) -> Self {
        let mut folders = BTreeMap::new();
        for granted in journal.folders() {
            let folder = ground.folders.iter().find(|folder| {
                (folder.device, folder.inode) == (granted.device, granted.inode)
                    && folder.name == granted.name
            });
            if let Some(folder) = folder {
                folders.insert(granted.number, (folder, granted));
            }
        }
        Self { store: ground.store, folders, last: RefCell::new(None) }
    }

    /// Whether the folder with this number is there.
    pub(crate) fn has(&self, folder: u32) -> bool {
        self.folders.contains_key(&folder)
    }

    /// The folder that holds a name.
    pub(crate) fn parent(&self, folder: u32, path: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        let above = split(path).0;
        if let Some((number, last, handle)) = &*self.last.borrow()
            && *number == folder
            && last == above
        {
            return Ok(Rc::clone(handle));
        }
        let (granted, _) = self.folders.get(&folder).ok_or(Errno::NODEV)?;
        let handle = Rc::new(open_folder(granted.root.as_fd(), above)?);
        self.last.replace(Some((folder, above.to_vec(), Rc::clone(&handle))));
        Ok(handle)
    }

    /// Looks anew from now on: folders have other paths.
    pub(crate) fn forget(&self) {
        self.last.replace(None);
    }

    /// What is under a name.
    pub(crate) fn present(&self, folder: u32, path: &[u8]) -> Result<Option<Present>, Errno> {
        let stat = self.parent(folder, path).and_then(|parent| {
            rustix::fs::statat(&*parent, last(path)?, AtFlags::SYMLINK_NOFOLLOW)
        });
        match stat {
            Ok(stat) => Ok(Some(Present::from(&stat))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The names in a folder.
    pub(crate) fn entries(&self, folder: u32, path: &[u8]) -> Result<Vec<Text>, Errno> {
        let (folder, _) = self.folders.get(&folder).ok_or(Errno::NODEV)?;
        entries(open_folder(folder.root.as_fd(), path)?.as_fd())
    }

    /// What a symbolic link says.
    pub(crate) fn target(&self, folder: u32, path: &[u8]) -> Result<Text, Errno> {
        let parent = self.parent(folder, path)?;
        Ok(rustix::fs::readlinkat(&*parent, last(path)?, Vec::new())?.into_bytes())
    }

    /// Opens a file for reading, and nothing that is not one.
    pub(crate) fn open(&self, folder: u32, path: &[u8]) -> Result<std::fs::File, Errno> {
        let parent = self.parent(folder, path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let stat = rustix::fs::statat(&*parent, last(path)?, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(stat.st_mode) != FileKind::File {
            return Err(Errno::INVAL);
        }
        // Only the owner may look without leaving a trace.
        let quiet = flags | OFlags::NOATIME;
        let file = match rustix::fs::openat(&*parent, last(path)?, quiet, Mode::empty()) {
            Err(Errno::PERM) => rustix::fs::openat(&*parent, last(path)?, flags, Mode::empty()),
            outcome => outcome,
        };
        Ok(file?.into())
    }

    /// The extended attributes of a name.
    pub(crate) fn attributes(
        &self,
        folder: u32,
        path: &[u8],
    ) -> Result<Vec<(Text, Vec<u8>)>, Errno> {
        Ok(attributes(self.parent(folder, path)?.as_fd(), &last(path)?))
    }

    /// Kept contents.
    pub(crate) fn kept(&self, folder: u32, saved: &Saved) -> Result<Option<save::Contents>, Errno> {
        save::contents(self.store, self.trash(folder), saved)
    }

    /// Whether a file says what was kept; nothing if that cannot be known.
    pub(crate) fn says(&self, folder: u32, path: &[u8], saved: &Saved) -> Option<bool> {
        let mut kept = self.kept(folder, saved).ok()??;
        let mut file = self.open(folder, path).ok()?;
        same(&mut kept, &mut file).ok()
    }

    /// The grant's name.
    pub(crate) fn grant(&self, folder: u32) -> String {
        self.folders.get(&folder).map(|(_, granted)| granted.name.clone()).unwrap_or_default()
    }

    /// The number of a grant.
    pub(crate) fn number(&self, grant: &str) -> Option<u32> {
        self.folders
            .iter()
            .find(|(_, (_, granted))| granted.name == grant)
            .map(|(number, _)| *number)
    }

    /// The trash of a folder.
    pub(crate) fn trash(&self, folder: u32) -> Option<BorrowedFd<'_>> {
        self.folders.get(&folder).and_then(|(folder, _)| Some(folder.trash.as_ref()?.as_fd()))
    }

    /// The numbers of all that is in the trash of a folder.
    pub(crate) fn in_trash(&self, folder: u32) -> HashSet<u64> {
        let mut numbers = HashSet::new();
        let number =
            |name: &[u8]| std::str::from_utf8(name).ok()?.strip_prefix('t')?.parse::<u64>().ok();
        if let Some(trash) = self.trash(folder) {
            // What cannot be read on is not there.
            cowork_sys::ignore(each_name(trash, |name| numbers.extend(number(name))));
        }
        numbers
    }

    /// What is in the trash of a folder.
    pub(crate) fn trashed(&self, folder: u32, number: u64) -> Option<Present> {
        let trash = self.trash(folder)?;
        let name = format!("t{number}");
        let stat = rustix::fs::statat(trash, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Present::from(&stat))
    }
}

impl Present {
    /// What it is.
    pub(crate) fn kind(&self) -> FileKind {
        kind(self.mode)
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.kind() == FileKind::Folder
    }

    /// What would be recorded of it.
    pub(crate) fn meta(&self, attributes: Vec<(Text, Vec<u8>)>) -> Meta {
        Meta {
            inode: self.inode,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            links: self.links,
            size: self.size,
            mtime: self.mtime,
            atime: self.atime,
            ctime: (0, 0),
            attributes,
        }
    }

    /// Whether it is not what it was at the end of a set. Of a folder the times say nothing: they
    /// change with what is in it.
    pub(crate) fn differs(&self, after: &State) -> bool {
        if self.kind() == FileKind::Folder {
            return (self.inode, self.mode) != (after.inode, after.mode);
        }
        (self.inode, self.mode, self.size, self.mtime)
            != (after.inode, after.mode, after.size, after.mtime)
    }

    /// Whether mode, owner or times are not those of before.
    pub(crate) fn is_altered(&self, before: &Meta) -> bool {
        let mode = |mode: u32| if kind(mode) == FileKind::Link { 0 } else { mode & 0o7777 };
        (mode(self.mode), self.uid, self.gid) != (mode(before.mode), before.uid, before.gid)
            || (self.kind() != FileKind::Folder && self.mtime != before.mtime)
    }
}

impl From<&Stat> for Present {
    fn from(stat: &Stat) -> Self {
        let nanoseconds = |value| u32::try_from(value).unwrap_or(0);
        Self {
            inode: stat.st_ino,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            atime: (stat.st_atime, nanoseconds(stat.st_atime_nsec)),
        }
    }
}

/// Opens a folder beneath another.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    rustix::fs::openat2(
        root,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )
}

/// The last name of a path; `.` for a granted folder itself.
pub(crate) fn last(path: &[u8]) -> Result<CString, Errno> {
    let name = if path.is_empty() { b"." } else { split(path).1 };
    CString::new(name).map_err(|_nul| Errno::INVAL)
}

/// The names in a folder that is held by a handle, sorted.
pub(crate) fn entries(folder: BorrowedFd<'_>) -> Result<Vec<Text>, Errno> {
    let mut names = names_in(folder)?;
    names.sort();
    Ok(names)
}

fn names_in(folder: BorrowedFd<'_>) -> Result<Vec<Text>, Errno> {
    let mut names = Vec::new();
    each_name(folder, |name| names.push(name.to_vec()))?;
    Ok(names)
}

fn each_name(folder: BorrowedFd<'_>, mut note: impl FnMut(&[u8])) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(LISTED);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            note(name);
        }
    }
    Ok(())
}

fn same(one: &mut impl Read, other: &mut impl Read) -> std::io::Result<bool> {
    let mut left = vec![0; CHUNK];
    let mut right = vec![0; CHUNK];
    loop {
        let first = fill(one, &mut left)?;
        let second = fill(other, &mut right)?;
        if left.get(..first) != right.get(..second) {
            return Ok(false);
        }
        if first == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..) {
        match from.read(rest)? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

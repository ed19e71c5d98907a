//! What a name is: which inode, and what would have to be brought back of it.
//!
//! Nothing here follows a symbolic link at the end of a name. Deliberately absent: contents
//! (`save`).

use crate::acl;
use crate::record::{Meta, State};
use cowork_api::Text;
use cowork_api::files::FileKind;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes beyond so many bytes of one file are not kept.
const MOST_ATTRIBUTES: usize = 1 << 20;

/// A file for as long as it exists. The time of its birth tells it from a later one that got the
/// same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    device: (u32, u32),
    inode: u64,
    born: (i64, u32),
}

/// What the kernel says of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look(Statx);

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Looks at a name.
pub(crate) fn look(parent: BorrowedFd<'_>, name: &CStr) -> Result<Look, Errno> {
    rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, WANTED).map(Look)
}

/// Looks at an open file.
pub(crate) fn look_at(file: BorrowedFd<'_>) -> Result<Look, Errno> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, WANTED).map(Look)
}

fn time(stamp: StatxTimestamp) -> (i64, u32) {
    (stamp.tv_sec, stamp.tv_nsec)
}

impl Look {
    /// Which file it is.
    pub(crate) fn key(&self) -> Key {
        let stat = &self.0;
        Key {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            born: time(stat.stx_btime),
        }
    }

    /// Its device and inode.
    pub(crate) fn id(&self) -> (u64, u64) {
        (rustix::fs::makedev(self.0.stx_dev_major, self.0.stx_dev_minor), self.0.stx_ino)
    }

    /// Its number in its file system.
    pub(crate) fn inode(&self) -> u64 {
        self.0.stx_ino
    }

    /// How many names it has.
    pub(crate) fn links(&self) -> u32 {
        self.0.stx_nlink
    }

    /// In bytes.
    pub(crate) fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// What it is.
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(u32::from(self.0.stx_mode))
    }

    /// What it is, as records say it.
    pub(crate) fn kind(&self) -> FileKind {
        match self.file_type() {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        }
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// What is recorded of it, with its attributes and with the owner that it has on disk.
    pub(crate) fn meta(&self, mut attributes: Vec<(Text, Vec<u8>)>, owners: Owners) -> Meta {
        owners.name_on_disk(&mut attributes);
        let stat = &self.0;
        let (uid, gid) = owners.on_disk(stat.stx_uid, stat.stx_gid);
        Meta {
            inode: stat.stx_ino,
            mode: u32::from(stat.stx_mode),
            uid,
            gid,
            links: stat.stx_nlink,
            size: stat.stx_size,
            mtime: time(stat.stx_mtime),
            atime: time(stat.stx_atime),
            ctime: time(stat.stx_ctime),
            attributes,
        }
    }

    /// What is recorded of it at the end of a set.
    pub(crate) fn state(&self) -> State {
        let stat = &self.0;
        State {
            inode: stat.stx_ino,
            mode: u32::from(stat.stx_mode),
            size: if self.is_folder() { 0 } else { stat.stx_size },
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
        }
    }
}

/// How owners that this process sees become owners on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners {
    /// This process.
    pub(crate) own: (u32, u32),
    /// Who that is on disk, where it is somebody else.
    pub(crate) disk: Option<(u32, u32)>,
}

impl Owners {
    fn on_disk(self, uid: u32, gid: u32) -> (u32, u32) {
        let Some((disk_uid, disk_gid)) = self.disk else { return (uid, gid) };
        let (own_uid, own_gid) = self.own;
        (if uid == own_uid { disk_uid } else { uid }, if gid == own_gid { disk_gid } else { gid })
    }

    /// Who access control lists name on disk.
    fn name_on_disk(self, attributes: &mut [(Text, Vec<u8>)]) {
        if self.disk.is_none() {
            return;
        }
        let user = |uid| Some(self.on_disk(uid, u32::MAX).0);
        let group = |gid| Some(self.on_disk(u32::MAX, gid).1);
        for (name, value) in attributes {
            if acl::is_list(name)
                && let Some(translated) = acl::translate(value, user, group)
            {
                *value = translated;
            }
        }
    }
}

/// The path by which this process names what one of its handles is on.
pub(crate) fn handle_path(file: BorrowedFd<'_>) -> Vec<u8> {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into_bytes()
}

/// The extended attributes of a name, as far as this process may read them.
pub(crate) fn attributes(parent: BorrowedFd<'_>, name: &CStr) -> Vec<(Text, Vec<u8>)> {
    // Most files have none, which newer kernels say without a detour.
    if cowork_sys::files::list_attributes(parent, name, &mut []) == Ok(0) {
        return Vec::new();
    }
    let mut path = handle_path(parent);
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
    let path = path.as_slice();
    collect(
        |buffer| rustix::fs::llistxattr(path, buffer),
        |attribute, buffer| rustix::fs::lgetxattr(path, attribute, buffer),
    )
}

/// The extended attributes of what a handle is on. The handle may be one that only names a file.
pub(crate) fn attributes_at(file: BorrowedFd<'_>) -> Vec<(Text, Vec<u8>)> {
    let path = handle_path(file);
    let path = path.as_slice();
    collect(
        |buffer| rustix::fs::listxattr(path, buffer),
        |attribute, buffer| rustix::fs::getxattr(path, attribute, buffer),
    )
}

/// The extended attributes of a file that is open for reading.
pub(crate) fn attributes_of(file: BorrowedFd<'_>) -> Vec<(Text, Vec<u8>)> {
    collect(
        |buffer| rustix::fs::flistxattr(file, buffer),
        |attribute, buffer| rustix::fs::fgetxattr(file, attribute, buffer),
    )
}

/// The largest list of names, and the largest value, that the kernel gives.
const LARGEST: usize = 64 << 10;

fn collect(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Vec<(Text, Vec<u8>)> {
    let mut short = [0; 512];
    let names = match list(&mut short) {
        Ok(0) => return Vec::new(),
        Ok(length) => short.get(..length).unwrap_or_default().to_vec(),
        Err(Errno::RANGE) => {
            let mut long = vec![0; LARGEST];
            let length = list(&mut long).unwrap_or(0);
            long.truncate(length);
            long
        }
        // A file system without attributes, or a file whose attributes may not be listed.
        Err(_) => return Vec::new(),
    };
    let mut kept = Vec::new();
    let mut total = 0;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = match get(name, &mut short) {
            Ok(length) => short.get(..length).unwrap_or_default().to_vec(),
            Err(Errno::RANGE) => {
                let mut long = vec![0; LARGEST];
                let Ok(length) = get(name, &mut long) else { continue };
                long.truncate(length);
                long
            }
            Err(_) => continue,
        };
        total += name.len() + value.len();
        if total > MOST_ATTRIBUTES {
            break;
        }
        kept.push((name.to_vec(), value));
    }
    kept
}

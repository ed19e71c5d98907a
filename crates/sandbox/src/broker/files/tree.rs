//! Looking at everything below a folder, up to a number of names.

use super::folders::Folder;
use super::paths::join;
use cowork_sys::Errno;
use rustix::fs::{Dir, FileType, OFlags};
use std::ops::ControlFlow;

/// How far a look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All there is, or all that was wanted.
    Whole,
    /// There is more, or there may be.
    Cut,
}

/// One name that was found.
pub(super) struct Entry<'a> {
    /// Its path below the granted folder.
    pub(super) path: &'a [u8],
    pub(super) kind: FileType,
    pub(super) inode: u64,
}

/// Visits what is below `top`, a path below the granted folder, at most `most` names. One
/// descriptor is open at a time. What is removed meanwhile is passed over; what cannot be read makes
/// the look incomplete.
pub(super) fn visit(
    folder: &Folder,
    top: &[u8],
    most: usize,
    mut visitor: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
) -> Result<Extent, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let mut folders = vec![top.to_vec()];
    let mut seen = 0;
    let mut extent = Extent::Whole;
    while let Some(path) = folders.pop() {
        let handle = match folder.open_exactly(&path, flags) {
            Ok(handle) => handle,
            // It was removed meanwhile, or is no folder.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            // What is in it nobody knows.
            Err(_) => {
                extent = Extent::Cut;
                continue;
            }
        };
        for entry in Dir::new(handle)? {
            let Ok(entry) = entry else {
                extent = Extent::Cut;
                break;
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            seen += 1;
            if seen > most {
                return Ok(Extent::Cut);
            }
            let path = join(&path, name);
            let kind = entry.file_type();
            let found = Entry { path: &path, kind, inode: entry.ino() };
            if visitor(&found).is_break() {
                return Ok(Extent::Whole);
            }
            // A file system that does not say what it is finds out when it is opened.
            if matches!(kind, FileType::Directory | FileType::Unknown) {
                folders.push(path);
            }
        }
    }
    Ok(extent)
}

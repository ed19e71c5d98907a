//! What names are like when their set is closed, or earlier.

use super::Kept;
use super::set::{Own, Shape};
use crate::log::Author;
use crate::meta::{Look, look};
use crate::record::{At, Record};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Kept {
    /// Records what names are like, of those of which that is not recorded yet.
    pub(super) fn after<'a>(
        &mut self,
        author: Author,
        folder: u32,
        root: BorrowedFd<'_>,
        names: impl IntoIterator<Item = (&'a Vec<u8>, &'a Own)>,
    ) -> Result<(), Errno> {
        let mut finder = Finder::new(root);
        for (path, own) in names {
            let Own::Open { left, .. } = own else { continue };
            let found = finder.look(path).ok().map(|look| look.state());
            let state = Shape::left(*left, found);
            let at = At { folder, path: path.clone() };
            self.log.gather(author, Record::After { at, state })?;
        }
        self.log.flush()
    }
}

/// Looks at names below a folder, of which many are in the same folder.
pub(super) struct Finder<'a> {
    root: BorrowedFd<'a>,
    last: Option<(Vec<u8>, Result<OwnedFd, Errno>)>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, last: None }
    }

    /// Looks at one.
    pub(super) fn look(&mut self, path: &[u8]) -> Result<Look, Errno> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let Some(slash) = slash else {
            let name = c_string(path)?;
            return look(self.root, if path.is_empty() { c"." } else { &name });
        };
        let (above, name) = path.split_at_checked(slash).ok_or(Errno::INVAL)?;
        let name = c_string(name.get(1..).unwrap_or_default())?;
        if self.last.as_ref().is_none_or(|(last, _)| last != above) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let parent = rustix::fs::openat2(self.root, above, flags, Mode::empty(), within);
            self.last = Some((above.to_vec(), parent));
        }
        match &self.last {
            Some((_, Ok(parent))) => look(parent.as_fd(), &name),
            Some((_, Err(error))) => Err(*error),
            None => Err(Errno::NOENT),
        }
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).ok().ok_or(Errno::INVAL)
}

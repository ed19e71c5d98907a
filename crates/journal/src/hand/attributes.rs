//! Changes of mode, owner, times and extended attributes.

use super::set::Known;
use super::{By, Hand, Spot};
use crate::meta::{attributes_at, handle_path, look_at};
use crate::record::Record;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

impl Hand {
    /// Changes permission bits. A symbolic link has none that could be changed (`EOPNOTSUPP`).
    pub fn set_mode(&mut self, by: By, spot: Spot<'_>, mode: Mode) -> Result<(), Errno> {
        let check = |_: BorrowedFd<'_>, kind| match kind {
            FileType::Symlink => Err(Errno::OPNOTSUPP),
            _ => Ok(()),
        };
        self.change(by, &spot, check, |file| {
            match cowork_sys::files::change_mode(file, mode.as_raw_mode()) {
                // A kernel that does not know how, or a wall around it that does not.
                Err(Errno::NOSYS | Errno::PERM) => rustix::fs::chmod(handle_path(file), mode),
                outcome => outcome,
            }
        })
    }

    /// Changes owner and group, by the numbers that this process has for them.
    pub fn set_owner(
        &mut self,
        by: By,
        spot: Spot<'_>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        self.change(
            by,
            &spot,
            |_, _| Ok(()),
            |file| rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH),
        )
    }

    /// Changes times.
    pub fn set_times(&mut self, by: By, spot: Spot<'_>, times: &Timestamps) -> Result<(), Errno> {
        self.change(
            by,
            &spot,
            |_, _| Ok(()),
            |file| rustix::fs::utimensat(file, c"", times, AtFlags::EMPTY_PATH),
        )
    }

    /// Brings the times of a folder back after names in it were changed. That is no change of its
    /// own: whoever changes names there later is in nobody's way.
    pub(crate) fn set_folder_times(
        &mut self,
        by: By,
        spot: Spot<'_>,
        times: &Timestamps,
    ) -> Result<(), Errno> {
        self.check(by, &spot)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(spot.parent, spot.name, flags, Mode::empty())?;
        self.inside_of(by, spot.place(), folder.as_fd())?;
        rustix::fs::utimensat(folder, c"", times, AtFlags::EMPTY_PATH)
    }

    /// Sets an extended attribute.
    #[expect(clippy::too_many_arguments, reason = "they are those of the call, and whose it is")]
    pub fn set_attribute(
        &mut self,
        by: By,
        spot: Spot<'_>,
        name: &CStr,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let check = |file: BorrowedFd<'_>, _| match rustix::fs::getxattr(
            handle_path(file),
            name,
            &mut [0; 0][..],
        ) {
            Ok(_) if flags.contains(XattrFlags::CREATE) => Err(Errno::EXIST),
            Err(Errno::NODATA) if flags.contains(XattrFlags::REPLACE) => Err(Errno::NODATA),
            _ => Ok(()),
        };
        self.change(by, &spot, check, |file| {
            rustix::fs::setxattr(handle_path(file), name, value, flags)
        })
    }

    /// Removes an extended attribute.
    pub fn remove_attribute(&mut self, by: By, spot: Spot<'_>, name: &CStr) -> Result<(), Errno> {
        let check = |file: BorrowedFd<'_>, _| {
            rustix::fs::getxattr(handle_path(file), name, &mut [0; 0][..]).map(drop)
        };
        self.change(by, &spot, check, |file| rustix::fs::removexattr(handle_path(file), name))
    }

    /// Records what a name is like, if that is not known in its set, and changes it. What is
    /// changed is what was looked at, even if the name changes meanwhile.
    fn change(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        check: impl FnOnce(BorrowedFd<'_>, FileType) -> Result<(), Errno>,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.check(by, spot)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(spot.parent, spot.name, flags, Mode::empty())?;
        let found = look_at(file.as_fd())?;
        check(file.as_fd(), found.file_type())?;
        let (key, links) = (found.key(), found.links());
        let told = self.notice(by, spot, &found)?;
        let recorded = match self.known(by, key) {
            Some(_) if told => false,
            Some(Known::Created) => true,
            Some(_) => !self.set(by)?.is_other_name((key, WHAT), links, spot.place()),
            None => false,
        };
        let mut seq = None;
        if !recorded && self.kept.is_some() {
            let owners = self.owners(spot.folder);
            let before = found.meta(attributes_at(file.as_fd()), owners);
            seq = self.record(by, Record::Attributes { at: spot.at(), before })?;
        }
        if let Err(error) = act(file.as_fd()) {
            self.take_back(by, seq);
            return Err(error);
        }
        if !recorded {
            self.learn(by, key, WHAT);
            self.set(by)?.learn_name((key, WHAT), links, spot.place());
        }
        // The mode of a folder is remembered.
        let changed = if found.is_folder() { look_at(file.as_fd()).ok() } else { Some(found) };
        self.touch(by, spot, changed.as_ref());
        Ok(())
    }
}

const WHAT: Known = Known::Attributes;

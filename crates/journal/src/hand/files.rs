//! Changes of contents.

use super::set::Known;
use super::{By, Full, Hand, Opened, Spot};
use crate::meta::{Key, Look, attributes_of, look, look_at};
use crate::record::{Meta, Record, Saved, Why};
use cowork_api::files::FileKind;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often something is tried again that somebody else changed meanwhile.
const TRIES: u32 = 16;

/// What became of one try.
pub(super) enum Try<T> {
    /// It is done.
    Done(T),
    /// Somebody else changed the name meanwhile.
    Again,
}

impl Hand {
    /// Opens a file as `open` does, except that it does not follow a symbolic link and opens
    /// nothing but files. What is about to be written to, and was there before the set, is saved.
    pub fn open_file(
        &mut self,
        by: By,
        spot: Spot<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<Opened, Errno> {
        self.check(by, &spot)?;
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        for _ in 0..TRIES {
            let tried = match look(spot.parent, spot.name) {
                Ok(found) => self.open_existing(by, &spot, &found, flags)?,
                Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {
                    self.open_new(by, &spot, flags, mode)?
                }
                Err(error) => return Err(error),
            };
            if let Try::Done(opened) = tried {
                return Ok(opened);
            }
        }
        Err(Errno::BUSY)
    }

    /// Makes a file and opens it, where the caller has just seen nothing. If there is something
    /// after all, that it was to be made is recorded, and that it was not.
    pub fn create_file(
        &mut self,
        by: By,
        spot: Spot<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        self.check(by, &spot)?;
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        match self.open_new(by, &spot, flags, mode)? {
            Try::Done(Opened::File(file)) => Ok(file),
            Try::Done(Opened::Link | Opened::Special) | Try::Again => Err(Errno::EXIST),
        }
    }

    /// Opens a file that has no name. It is recorded when it gets one.
    #[expect(clippy::too_many_arguments, reason = "they are those of the call, and whose it is")]
    pub fn open_tmpfile(
        &mut self,
        by: By,
        folder: u32,
        dir: BorrowedFd<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        self.granted(folder)?;
        self.set(by)?;
        rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE | OFlags::CLOEXEC, mode)
    }

    fn open_new(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<Try<Opened>, Errno> {
        let exactly = flags | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let outcome = self.create(by, spot, (FileKind::File, None), || {
            rustix::fs::openat(spot.parent, spot.name, exactly, mode)
        });
        match outcome {
            Ok(file) => {
                self.made(by, spot, look_at(file.as_fd()).ok().as_ref());
                Ok(Try::Done(Opened::File(file)))
            }
            Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => Ok(Try::Again),
            Err(error) => Err(error),
        }
    }

    fn open_existing(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
        flags: OFlags,
    ) -> Result<Try<Opened>, Errno> {
        if flags.contains(OFlags::CREATE | OFlags::EXCL) {
            return Err(Errno::EXIST);
        }
        match found.file_type() {
            FileType::Symlink => return Ok(Try::Done(Opened::Link)),
            FileType::Directory => return Err(Errno::ISDIR),
            _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            FileType::RegularFile => {}
            _ => return Ok(Try::Done(Opened::Special)),
        }
        let cut = flags.contains(OFlags::TRUNC);
        let quiet = flags - (OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC);
        let open = |flags| open_same(spot, found, flags);
        let Some(file) = open(quiet)? else { return Ok(Try::Again) };
        if flags & OFlags::ACCMODE == OFlags::RDONLY {
            if cut {
                let Some(writer) = open(OFlags::WRONLY)? else { return Ok(Try::Again) };
                let tried = self.cut(by, spot, found, (writer.as_fd(), 0))?;
                return Ok(tried.map(|()| Opened::File(file)));
            }
            return Ok(Try::Done(Opened::File(file)));
        }
        if cut {
            let tried = self.cut(by, spot, found, (file.as_fd(), 0))?;
            return Ok(tried.map(|()| Opened::File(file)));
        }
        let Try::Done(_) = self.prepare(by, spot, found)? else { return Ok(Try::Again) };
        self.count_overwritten(by, found.key())?;
        Ok(Try::Done(Opened::File(file)))
    }

    /// Cuts a file to a length.
    pub fn truncate(&mut self, by: By, spot: Spot<'_>, length: u64) -> Result<(), Errno> {
        self.check(by, &spot)?;
        for _ in 0..TRIES {
            let found = look(spot.parent, spot.name)?;
            match found.file_type() {
                FileType::Directory => return Err(Errno::ISDIR),
                FileType::Symlink => return Err(Errno::LOOP),
                FileType::RegularFile => {}
                _ => return Err(Errno::INVAL),
            }
            let Some(file) = open_same(&spot, &found, OFlags::WRONLY)? else { continue };
            if let Try::Done(()) = self.cut(by, &spot, &found, (file.as_fd(), length))? {
                return Ok(());
            }
        }
        Err(Errno::BUSY)
    }

    /// Saves a file, then cuts it.
    fn cut(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
        to: (BorrowedFd<'_>, u64),
    ) -> Result<Try<()>, Errno> {
        let (file, length) = to;
        let key = found.key();
        let known = self.known(by, key);
        let Try::Done(seq) = self.prepare(by, spot, found)? else { return Ok(Try::Again) };
        if let Err(error) = rustix::fs::ftruncate(file, length) {
            if seq.is_some() {
                self.take_back(by, seq);
                let set = self.set(by)?;
                set.forget(key);
                if let Some(known) = known {
                    set.learn(key, known);
                }
            }
            return Err(error);
        }
        self.count_overwritten(by, key)?;
        Ok(Try::Done(()))
    }

    /// Counts a file that was there before its set and is opened for writing in it, once. What is
    /// written through the descriptor is seen by nobody.
    fn count_overwritten(&mut self, by: By, key: Key) -> Result<(), Errno> {
        if self.known(by, key).is_none_or(|known| known < Known::Overwritten) {
            self.learn(by, key, Known::Overwritten);
            let set = self.set(by)?;
            set.tally.removed = set.tally.removed.saturating_add(1);
        }
        Ok(())
    }

    /// Saves a file that somebody can write to who opened it before the set.
    pub fn keep_written(&mut self, by: By, spot: Spot<'_>) -> Result<(), Errno> {
        self.check(by, &spot)?;
        for _ in 0..TRIES {
            let found = look(spot.parent, spot.name)?;
            if found.file_type() != FileType::RegularFile {
                return Ok(());
            }
            if let Try::Done(_) = self.prepare(by, &spot, &found)? {
                return Ok(());
            }
        }
        Err(Errno::BUSY)
    }

    /// Records of such a file that it was not saved.
    pub fn lose_written(&mut self, by: By, spot: Spot<'_>, why: Why) -> Result<(), Errno> {
        self.check(by, &spot)?;
        let found = look(spot.parent, spot.name)?;
        let known = self.known(by, found.key()).is_some_and(|known| known >= Known::Saved);
        if known || self.kept.is_none() || found.file_type() != FileType::RegularFile {
            return Ok(());
        }
        let before = self.before(by, &spot, &found);
        self.record(by, Record::Write { at: spot.at(), before, saved: Saved::Lost(why) })?;
        self.learn(by, found.key(), Known::Saved);
        self.touch(by, &spot, Some(&found));
        let set = self.set(by)?;
        set.tally.lost = set.tally.lost.saturating_add(1);
        Ok(())
    }

    /// Saves a file that is about to be written to, if it was not yet in its set; the number of
    /// the record.
    fn prepare(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
    ) -> Result<Try<Option<u64>>, Errno> {
        let (key, links) = (found.key(), found.links());
        let told = self.notice(by, spot, found)?;
        let (before, saved) = match self.known(by, key) {
            Some(Known::Created) if !told => {
                self.touch(by, spot, Some(found));
                return Ok(Try::Done(None));
            }
            Some(Known::Created) => (self.before(by, spot, found), Saved::Same),
            Some(Known::Saved | Known::Overwritten) => {
                let other = self.set(by)?.is_other_name((key, Known::Saved), links, spot.place());
                if !(other || told) || self.kept.is_none() {
                    self.touch(by, spot, Some(found));
                    return Ok(Try::Done(None));
                }
                (self.before(by, spot, found), Saved::Same)
            }
            _ if self.kept.is_none() => {
                self.learn(by, key, Known::Saved);
                return Ok(Try::Done(None));
            }
            _ => {
                let seq = self.next()?;
                let Try::Done(kept) = self.keep_contents(by, spot, found, seq)? else {
                    return Ok(Try::Again);
                };
                kept
            }
        };
        let record = Record::Write { at: spot.at(), before, saved: saved.clone() };
        let seq = match self.record(by, record) {
            Ok(seq) => seq,
            Err(error) => {
                self.discard(spot.folder, &saved);
                return Err(error);
            }
        };
        self.learn(by, key, Known::Saved);
        self.touch(by, spot, Some(found));
        let set = self.set(by)?;
        set.learn_name((key, Known::Saved), links, spot.place());
        Ok(Try::Done(seq))
    }

    /// Keeps a copy of a file's contents.
    pub(super) fn keep_contents(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
        seq: u64,
    ) -> Result<Try<(Meta, Saved)>, Errno> {
        let owners = self.owners(spot.folder);
        let reading = OFlags::RDONLY | OFlags::NOATIME;
        let opened = match open_same(spot, found, reading) {
            Err(Errno::PERM) => open_same(spot, found, OFlags::RDONLY),
            opened => opened,
        };
        let (before, saved) = match opened {
            Ok(Some(file)) => {
                let file = file.as_fd();
                let before = found.meta(attributes_of(file), owners);
                let granted = self.folders.get_mut(&spot.folder).ok_or(Errno::ROFS)?;
                let kept = self.kept.as_mut().ok_or(Errno::ROFS)?;
                let limits = (&granted.caps, &mut granted.sharing);
                let copied = kept.store.copied;
                let saved = kept.store.keep(file, found.size(), seq, limits);
                let copied = kept.store.copied - copied;
                self.set(by)?.tally.copied += copied;
                (before, saved)
            }
            Ok(None) | Err(Errno::NOENT) => return Ok(Try::Again),
            Err(_) => (self.before(by, spot, found), Saved::Lost(Why::Unreadable)),
        };
        if saved == Saved::Lost(Why::NoSpace) && self.full == Full::Refuse {
            return Err(Errno::NOSPC);
        }
        if matches!(saved, Saved::Lost(_)) {
            let set = self.set(by)?;
            set.tally.lost = set.tally.lost.saturating_add(1);
        }
        Ok(Try::Done((before, saved)))
    }
}

impl<T> Try<T> {
    fn map<U>(self, then: impl FnOnce(T) -> U) -> Try<U> {
        match self {
            Self::Done(value) => Try::Done(then(value)),
            Self::Again => Try::Again,
        }
    }
}

/// Opens the file that was looked at; nothing if there is another one under its name by now. What
/// is not a file any more is not waited for.
pub(super) fn open_same(
    spot: &Spot<'_>,
    found: &Look,
    flags: OFlags,
) -> Result<Option<OwnedFd>, Errno> {
    let careful = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(spot.parent, spot.name, careful, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Ok(None),
        Err(error) => return Err(error),
    };
    if look_at(file.as_fd())?.key() != found.key() {
        return Ok(None);
    }
    if !flags.contains(OFlags::NONBLOCK) {
        let status = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, status - OFlags::NONBLOCK)?;
    }
    Ok(Some(file))
}

//! Changes of names: made, removed, renamed.

use super::{By, Hand, Intent, LinkSource, Spot};
use crate::meta::{Look, handle_path, look, look_at};
use crate::record::{At, Record};
use cowork_api::files::FileKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use super::set::Known;

impl Hand {
    /// Makes a folder.
    pub fn make_folder(&mut self, by: By, spot: Spot<'_>, mode: Mode) -> Result<(), Errno> {
        self.absent(by, &spot)?;
        self.create(by, &spot, (FileKind::Folder, None), || {
            rustix::fs::mkdirat(spot.parent, spot.name, mode)
        })?;
        self.made(by, &spot, look(spot.parent, spot.name).ok().as_ref());
        Ok(())
    }

    /// Makes an empty file, a pipe or a socket.
    pub fn make_node(
        &mut self,
        by: By,
        spot: Spot<'_>,
        kind: FileType,
        mode: Mode,
    ) -> Result<(), Errno> {
        let recorded = match kind {
            FileType::RegularFile => FileKind::File,
            FileType::Fifo | FileType::Socket => FileKind::Other,
            _ => return Err(Errno::PERM),
        };
        self.absent(by, &spot)?;
        self.create(by, &spot, (recorded, None), || {
            rustix::fs::mknodat(spot.parent, spot.name, kind, mode, 0)
        })?;
        self.made(by, &spot, look(spot.parent, spot.name).ok().as_ref());
        Ok(())
    }

    /// Makes a symbolic link.
    pub fn make_link(&mut self, by: By, spot: Spot<'_>, target: &CStr) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        self.absent(by, &spot)?;
        self.create(by, &spot, (FileKind::Link, None), || {
            rustix::fs::symlinkat(target, spot.parent, spot.name)
        })?;
        self.made(by, &spot, look(spot.parent, spot.name).ok().as_ref());
        Ok(())
    }

    /// Makes a hard link: another name of a file.
    pub fn add_name(
        &mut self,
        by: By,
        source: LinkSource<'_>,
        spot: Spot<'_>,
    ) -> Result<(), Errno> {
        match source {
            LinkSource::Name(from) => {
                let found = look(from.parent, from.name)?;
                self.absent(by, &spot)?;
                if from.folder != spot.folder {
                    return Err(Errno::XDEV);
                }
                if found.is_folder() {
                    return Err(Errno::PERM);
                }
                self.create(by, &spot, (found.kind(), Some(from.at())), || {
                    let none = AtFlags::empty();
                    rustix::fs::linkat(from.parent, from.name, spot.parent, spot.name, none)
                })?;
                self.touch(by, &spot, Some(&found));
                // What somebody else has made of it stays theirs.
                if let Some(own) = self.told(by, &from).filter(|own| !own.is(&found)) {
                    self.set(by)?.names.touch(spot.folder, spot.path, own);
                }
                self.set(by)?.added.add(spot.place(), found.key());
                Ok(())
            }
            LinkSource::File(file) => {
                let found = look_at(file)?;
                self.absent(by, &spot)?;
                if found.is_folder() {
                    return Err(Errno::PERM);
                }
                self.create(by, &spot, (found.kind(), None), || {
                    let (from, follow) = (handle_path(file), AtFlags::SYMLINK_FOLLOW);
                    rustix::fs::linkat(rustix::fs::CWD, from, spot.parent, spot.name, follow)
                })?;
                self.touch(by, &spot, Some(&found));
                if found.links() == 0 {
                    self.learn(by, found.key(), Known::Created);
                }
                Ok(())
            }
        }
    }

    /// Records that the caller is about to make a name itself.
    pub fn announce(&mut self, by: By, spot: Spot<'_>, kind: FileKind) -> Result<Intent, Errno> {
        self.absent(by, &spot)?;
        self.inside(by, &spot)?;
        let seq = self.record(by, Record::Create { at: spot.at(), kind, link_of: None })?;
        self.touch(by, &spot, None);
        self.set(by)?.tally.created += 1;
        Ok(Intent { by, seq })
    }

    /// Records that the caller is about to make a name itself by a call that fails if there is one, in
    /// a folder of which `knows` says whether the set has recorded it.
    pub(crate) fn announce_back(
        &mut self,
        by: By,
        spot: Spot<'_>,
        (kind, knows): (FileKind, bool),
    ) -> Result<Intent, Errno> {
        self.check(by, &spot)?;
        if !knows {
            self.inside(by, &spot)?;
        }
        let seq = self.record(by, Record::Create { at: spot.at(), kind, link_of: None })?;
        self.touch(by, &spot, None);
        self.set(by)?.tally.created += 1;
        Ok(Intent { by, seq })
    }

    /// Records that what was announced was not done.
    #[expect(clippy::needless_pass_by_value, reason = "an intent fails once")]
    pub fn failed(&mut self, intent: Intent) -> Result<(), Errno> {
        let Intent { by, seq } = intent;
        if let Ok(set) = self.set(by) {
            set.tally.created = set.tally.created.saturating_sub(1);
        }
        self.take_back(by, seq);
        self.pay()
    }

    /// Removes a name that is no folder.
    pub fn remove(&mut self, by: By, spot: Spot<'_>) -> Result<(), Errno> {
        self.check(by, &spot)?;
        let found = look(spot.parent, spot.name)?;
        if found.is_folder() {
            return Err(Errno::ISDIR);
        }
        self.inside(by, &spot)?;
        self.sync_before_many(by)?;
        self.notice(by, &spot, &found)?;
        let added = self.is_added(by, &spot, &found);
        self.remove_kept(by, &spot, &found)?;
        if !added {
            self.count_removed(by, &found);
        }
        self.forget_added(&spot);
        self.touch(by, &spot, None);
        Ok(())
    }

    /// Counts what was removed, and forgets it if that was its last name.
    pub(super) fn count_removed(&mut self, by: By, found: &Look) {
        let key = found.key();
        let Ok(set) = self.set(by) else { return };
        if set.known(key).is_none_or(|known| known < Known::Overwritten) {
            set.tally.removed = set.tally.removed.saturating_add(1);
        }
        if found.links() <= 1 {
            set.forget(key);
        }
    }

    /// Removes an empty folder.
    pub fn remove_folder_entry(&mut self, by: By, spot: Spot<'_>) -> Result<(), Errno> {
        self.check(by, &spot)?;
        if spot.is_root() {
            return Err(Errno::BUSY);
        }
        let found = look(spot.parent, spot.name)?;
        if !found.is_folder() {
            return Err(Errno::NOTDIR);
        }
        if holds_something(&spot) {
            return Err(Errno::NOTEMPTY);
        }
        self.inside(by, &spot)?;
        let before = self.before_if_kept(by, &spot, &found);
        let seq = match before {
            Some(before) => self.record(by, Record::RemoveFolder { at: spot.at(), before })?,
            None => None,
        };
        if let Err(error) = rustix::fs::unlinkat(spot.parent, spot.name, AtFlags::REMOVEDIR) {
            self.take_back(by, seq);
            return Err(error);
        }
        if let Ok(set) = self.set(by) {
            set.forget(found.key());
        }
        self.touch(by, &spot, None);
        Ok(())
    }

    /// Changes a name, or exchanges two. What is under the new one is kept first.
    pub fn rename(
        &mut self,
        by: By,
        from: Spot<'_>,
        to: Spot<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.check(by, &from)?;
        let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        if flags.contains(both) || !both.contains(flags) {
            return Err(Errno::INVAL);
        }
        if from.folder != to.folder {
            return Err(Errno::XDEV);
        }
        if from.is_root() || to.is_root() {
            return Err(Errno::BUSY);
        }
        let found = look(from.parent, from.name)?;
        let target = match look(to.parent, to.name) {
            Ok(target) => Some(target),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        match refusal(&from, &to, (&found, target.as_ref()), flags) {
            Verdict::Refused(error) => return Err(error),
            Verdict::Nothing => return Ok(()),
            Verdict::Possible => {}
        }
        self.inside(by, &from)?;
        if from.above() != to.above() {
            self.inside(by, &to)?;
        }
        self.sync_before_many(by)?;
        self.notice(by, &from, &found)?;
        if let Some(target) = &target {
            self.notice(by, &to, target)?;
            if flags.contains(RenameFlags::EXCHANGE) {
                return self.exchange(by, &from, &to, (&found, target));
            }
        }
        self.rename_over(by, &from, &to, (&found, target.as_ref(), flags))
    }

    fn exchange(
        &mut self,
        by: By,
        from: &Spot<'_>,
        to: &Spot<'_>,
        (found, target): (&Look, &Look),
    ) -> Result<(), Errno> {
        let record = Record::Exchange { one: from.at(), other: to.at(), inode: found.inode() };
        let seq = self.record(by, record)?;
        let flags = RenameFlags::EXCHANGE;
        let outcome = rustix::fs::renameat_with(from.parent, from.name, to.parent, to.name, flags);
        if let Err(error) = outcome {
            self.take_back(by, seq);
            return Err(error);
        }
        self.forget_added(from);
        self.forget_added(to);
        let own = (self.told(by, from), self.told(by, to));
        self.arrive(by, from, target, own.1);
        self.arrive(by, to, found, own.0);
        for set in self.sets.values_mut() {
            set.names.exchange(from.folder, from.path, to.path);
        }
        Ok(())
    }

    fn rename_over(
        &mut self,
        by: By,
        from: &Spot<'_>,
        to: &Spot<'_>,
        what: (&Look, Option<&Look>, RenameFlags),
    ) -> Result<(), Errno> {
        let (found, target, flags) = what;
        let kind = found.kind();
        let added = target.is_some_and(|target| self.is_added(by, to, target));
        let removal = match target {
            Some(target) => self.keep_replaced(by, to, target)?,
            None => None,
        };
        let renaming = Record::Rename { from: from.at(), to: to.at(), kind };
        let records = removal.as_ref().map(|(record, _)| record.clone());
        let seqs = match self.record_both(by, records, renaming) {
            Ok(seqs) => seqs,
            Err(error) => {
                if let Some((_, saved)) = &removal {
                    self.discard(to.folder, saved);
                }
                return Err(error);
            }
        };
        let outcome = rustix::fs::renameat_with(from.parent, from.name, to.parent, to.name, flags);
        if let Err(error) = outcome {
            let (first, second) = seqs;
            self.take_back(by, second);
            self.take_back(by, first);
            if let Some((_, saved)) = &removal {
                self.discard(to.folder, saved);
            }
            return Err(error);
        }
        if let Some(target) = target {
            if target.is_folder() {
                self.set(by)?.forget(target.key());
            } else if !added {
                self.count_removed(by, target);
            }
        }
        self.forget_added(from);
        self.forget_added(to);
        let own = self.told(by, from);
        self.touch(by, from, None);
        self.arrive(by, to, found, own);
        if kind == FileKind::Folder {
            for set in self.sets.values_mut() {
                set.names.rename(from.folder, from.path, to.path);
            }
        }
        Ok(())
    }

    /// Writes the record of a renaming, and before it the one of what is removed by it.
    fn record_both(
        &mut self,
        by: By,
        removal: Option<Record>,
        renaming: Record,
    ) -> Result<(Option<u64>, Option<u64>), Errno> {
        self.pay()?;
        let Some(kept) = &mut self.kept else { return Ok((None, None)) };
        let first = match removal {
            Some(removal) => Some(kept.log.gather(by.author(), removal)?),
            None => None,
        };
        let second = kept.log.append(by.author(), renaming)?;
        Ok((first, Some(second)))
    }

    /// That there is nothing under a name.
    fn absent(&mut self, by: By, spot: &Spot<'_>) -> Result<(), Errno> {
        self.check(by, spot)?;
        match look(spot.parent, spot.name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Records that a name is about to be made, and makes it. It is touched by the caller.
    pub(super) fn create<T>(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        what: (FileKind, Option<At>),
        act: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (kind, link_of) = what;
        self.inside(by, spot)?;
        let seq = if self.kept.is_some() {
            self.record(by, Record::Create { at: spot.at(), kind, link_of })?
        } else {
            None
        };
        let made = match act() {
            Ok(made) => made,
            Err(error) => {
                self.take_back(by, seq);
                return Err(error);
            }
        };
        self.forget_added(spot);
        self.set(by)?.tally.created += 1;
        Ok(made)
    }

    /// Remembers that what is under a name now is new.
    pub(super) fn made(&mut self, by: By, spot: &Spot<'_>, found: Option<&Look>) {
        // What is not remembered is saved without need.
        if let Some(found) = found {
            self.learn(by, found.key(), Known::Created);
        }
        self.touch(by, spot, found);
    }
}

/// What is known of a renaming before it is tried.
enum Verdict {
    /// The kernel refuses it.
    Refused(Errno),
    /// It does nothing.
    Nothing,
    /// It may succeed.
    Possible,
}

fn refusal(
    from: &Spot<'_>,
    to: &Spot<'_>,
    looks: (&Look, Option<&Look>),
    flags: RenameFlags,
) -> Verdict {
    let (found, target) = looks;
    let exchanged = flags.contains(RenameFlags::EXCHANGE);
    match target {
        Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Verdict::Refused(Errno::EXIST),
        None if exchanged => return Verdict::Refused(Errno::NOENT),
        _ => {}
    }
    if within(to.path, from.path) {
        return Verdict::Refused(Errno::INVAL);
    }
    if within(from.path, to.path) {
        return Verdict::Refused(if exchanged { Errno::INVAL } else { Errno::NOTEMPTY });
    }
    let Some(target) = target else { return Verdict::Possible };
    if target.key() == found.key() {
        return Verdict::Nothing;
    }
    if exchanged {
        return Verdict::Possible;
    }
    match (found.is_folder(), target.is_folder()) {
        (true, false) => Verdict::Refused(Errno::NOTDIR),
        (false, true) => Verdict::Refused(Errno::ISDIR),
        (true, true) if holds_something(to) => Verdict::Refused(Errno::NOTEMPTY),
        _ => Verdict::Possible,
    }
}

/// Whether a path leads into a folder.
fn within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Whether there is something in a folder, as far as it can be read.
fn holds_something(spot: &Spot<'_>) -> bool {
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
    let open = |flags| rustix::fs::openat(spot.parent, spot.name, flags, Mode::empty());
    let folder = match open(flags) {
        Err(Errno::PERM) => open(flags - OFlags::NOATIME),
        folder => folder,
    };
    let Ok(folder) = folder else { return false };
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(folder.as_fd(), &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return true;
        }
    }
    false
}

//! What is kept of a name before it is removed or replaced.

use super::files::Try;
use super::set::{Known, Set};
use super::{By, Hand, Spot};
use crate::meta::{Key, Look};
use crate::record::{Meta, Record, Saved, Why};
use crate::save::{link_to_trash, move_to_trash};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// So many added names are remembered. What is not remembered is kept without need.
const MOST_ADDED: usize = 200_000;

/// How something is kept.
enum Keeping {
    /// It is.
    Kept(Saved),
    /// By moving it into the trash, which removes it.
    Movable,
}

/// Names that a set gave to files that had others, as long as nothing happened to them since. Such
/// a name is removed without a trace: a trash that held it would be seen in the file's number of
/// names.
#[derive(Debug, Default)]
pub(super) struct Added {
    names: BTreeMap<(u32, Vec<u8>), Key>,
}

impl Added {
    /// Adds a name of a file.
    pub(super) fn add(&mut self, at: (u32, &[u8]), file: Key) {
        if self.names.len() < MOST_ADDED {
            self.names.insert((at.0, at.1.to_vec()), file);
        }
    }

    fn has(&self, at: (u32, &[u8]), file: Key) -> bool {
        !self.names.is_empty() && self.names.get(&(at.0, at.1.to_vec())) == Some(&file)
    }

    /// Forgets a name and all below it.
    fn forget(&mut self, at: (u32, &[u8])) {
        if self.names.is_empty() {
            return;
        }
        let (folder, path) = at;
        self.names.remove(&(folder, path.to_vec()));
        let below = (folder, [path, b"/"].concat())..(folder, [path, b"0"].concat());
        let below: Vec<_> = self.names.range(below).map(|(name, _)| name.clone()).collect();
        for name in below {
            self.names.remove(&name);
        }
    }
}

impl Hand {
    /// Whether a name is one that the set itself gave to a file that has others still.
    pub(super) fn is_added(&self, by: By, spot: &Spot<'_>, found: &Look) -> bool {
        let added = |set: &Set| set.added.has(spot.place(), found.key());
        found.links() > 1 && self.sets.get(&by.set).is_some_and(added)
    }

    /// Forgets that a set gave a name to something: there is something else under it, or below it,
    /// from now on.
    pub(super) fn forget_added(&mut self, spot: &Spot<'_>) {
        for set in self.sets.values_mut() {
            set.added.forget(spot.place());
        }
    }

    /// What a name is like before it is removed, if it is recorded.
    pub(super) fn before_if_kept(&self, by: By, spot: &Spot<'_>, found: &Look) -> Option<Meta> {
        self.kept.is_some().then(|| self.before(by, spot, found))
    }

    /// Keeps what is under a name, records that it is removed, and removes it.
    pub(super) fn remove_kept(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
    ) -> Result<(), Errno> {
        let name = (spot.parent, spot.name);
        let unlink = || rustix::fs::unlinkat(spot.parent, spot.name, AtFlags::empty());
        let Some(before) = self.before_if_kept(by, spot, found) else { return unlink() };
        let seq = self.next()?;
        let removal = |saved| Record::Remove { at: spot.at(), before: before.clone(), saved };
        let kept = self.keep_name(by, spot, found, seq)?;
        if let (Keeping::Movable, Some(trash)) = (&kept, self.trash(spot.folder)) {
            let recorded = self.record(by, removal(Saved::Trash(seq)))?;
            match move_to_trash(trash.as_fd(), name, seq) {
                Ok(()) => return Ok(()),
                Err(_) => self.take_back(by, recorded),
            }
        }
        let saved = match kept {
            Keeping::Kept(saved) => saved,
            Keeping::Movable => {
                let seq = self.next()?;
                self.keep_copy(by, spot, found, seq)?
            }
        };
        let recorded = match self.record(by, removal(saved.clone())) {
            Ok(recorded) => recorded,
            Err(error) => {
                self.discard(spot.folder, &saved);
                return Err(error);
            }
        };
        if let Err(error) = unlink() {
            self.take_back(by, recorded);
            self.discard(spot.folder, &saved);
            return Err(error);
        }
        Ok(())
    }

    /// Keeps what is about to be replaced by a renaming; the record of its removal, if there is a
    /// log.
    pub(super) fn keep_replaced(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
    ) -> Result<Option<(Record, Saved)>, Errno> {
        let at = spot.at();
        let Some(before) = self.before_if_kept(by, spot, found) else { return Ok(None) };
        if found.is_folder() {
            return Ok(Some((Record::RemoveFolder { at, before }, Saved::Same)));
        }
        let seq = self.next()?;
        let saved = match self.keep_name(by, spot, found, seq)? {
            Keeping::Kept(saved) => saved,
            Keeping::Movable => self.keep_copy(by, spot, found, seq)?,
        };
        Ok(Some((Record::Remove { at, before, saved: saved.clone() }, saved)))
    }

    fn trash(&self, folder: u32) -> Option<Arc<OwnedFd>> {
        self.folders.get(&folder)?.trash.clone()
    }

    /// Keeps what is under a name for the record with the number `seq`.
    fn keep_name(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
        seq: u64,
    ) -> Result<Keeping, Errno> {
        if self.is_added(by, spot, found) {
            return Ok(Keeping::Kept(Saved::Same));
        }
        let trash = self.trash(spot.folder);
        match self.known(by, found.key()) {
            Some(Known::Created) => return Ok(Keeping::Kept(Saved::Same)),
            // Its other names are told from a copy only by what is in the trash.
            Some(Known::Saved | Known::Overwritten) if found.links() <= 1 || trash.is_none() => {
                return Ok(Keeping::Kept(Saved::Same));
            }
            _ => {}
        }
        if found.file_type() == FileType::Symlink {
            let target = rustix::fs::readlinkat(spot.parent, spot.name, Vec::new())?;
            return Ok(Keeping::Kept(Saved::Link(target.into_bytes())));
        }
        let Some(trash) = trash else {
            return self.keep_copy(by, spot, found, seq).map(Keeping::Kept);
        };
        match link_to_trash(trash.as_fd(), (spot.parent, spot.name), seq) {
            Ok(()) => Ok(Keeping::Kept(Saved::Trash(seq))),
            Err(Errno::NOENT) => Err(Errno::NOENT),
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => Ok(Keeping::Movable),
            Err(_) => self.keep_copy(by, spot, found, seq).map(Keeping::Kept),
        }
    }

    /// Keeps a copy of what is under a name.
    fn keep_copy(
        &mut self,
        by: By,
        spot: &Spot<'_>,
        found: &Look,
        seq: u64,
    ) -> Result<Saved, Errno> {
        match found.file_type() {
            FileType::RegularFile => match self.keep_contents(by, spot, found, seq)? {
                Try::Done((_, saved)) => Ok(saved),
                // Whoever changed it meanwhile removed what was to be kept.
                Try::Again => Ok(Saved::Lost(Why::Unreadable)),
            },
            FileType::Fifo | FileType::Socket => Ok(Saved::Empty),
            _ => Ok(Saved::Lost(Why::Unreadable)),
        }
    }
}

//! What names are like as soon as nobody of the session can write to them, and whether somebody
//! else has changed one since.
//!
//! A set may stay open for as long as a command runs. Were it recorded only at its end what its
//! names are like, what a user changes meanwhile would be taken for the set's own. So it is recorded
//! as soon as the files are closed, and nothing after that is the set's until it touches the name
//! again.
//!
//! Deliberately absent: who has which file open. Whoever calls finds that out.

use super::after::Finder;
use super::set::{Own, Shape};
use super::{By, Hand, Kept, Spot};
use crate::log::Author;
use crate::meta::Look;
use crate::record::{At, Record};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::AsFd;

/// A file of a machine: its device and inode.
pub type FileId = (u64, u64);

impl Own {
    /// Whether what is found is what was recorded.
    pub(super) fn is(self, found: &Look) -> bool {
        self == Self::told(Some(&found.state()))
    }
}

impl Hand {
    /// How often names were touched so far.
    pub fn touched(&self) -> u64 {
        self.touched
    }

    /// How many names wait until it can be recorded what they are like, in each open set.
    pub fn waiting(&self) -> Vec<(u32, usize)> {
        let waiting = self.sets.iter().map(|(set, names)| (*set, names.names.waiting()));
        waiting.filter(|(_, count)| *count > 0).collect()
    }

    /// Records what names are like that wait in a set, of at most `most`: those that were last
    /// touched when `until` had been counted, and are not of files that are `open` for writing. Says
    /// how many it recorded.
    pub fn settle(
        &mut self,
        set: u32,
        (until, open): (u64, &HashSet<FileId>),
        most: usize,
    ) -> Result<usize, Errno> {
        self.pay()?;
        let Self { kept: Some(kept), folders, sets, touched: now, .. } = self else {
            return Ok(0);
        };
        let Some(names) = sets.get_mut(&set).map(|set| &mut set.names) else { return Ok(0) };
        let author = Author { set, process: 0 };
        let mut finder: Option<(u32, Finder<'_>)> = None;
        let mut told = Vec::new();
        for _ in 0..most {
            let Some((folder, path)) = names.next() else { break };
            let Some(Own::Open { touched, left }) = names.get(folder, &path) else { continue };
            let Some(granted) = folders.get(&folder) else { continue };
            if touched > until {
                names.wait(folder, path);
                continue;
            }
            let finder = match &mut finder {
                Some((of, finder)) if *of == folder => finder,
                other => &mut other.insert((folder, Finder::new(granted.root.as_fd()))).1,
            };
            let found = finder.look(&path).ok();
            match &found {
                // Its times change with what is in it, until the set is closed.
                Some(found) if found.is_folder() => continue,
                // A file with further names may have been opened by another one since.
                Some(found)
                    if found.file_type() == FileType::RegularFile
                        && (open.contains(&found.id()) || (found.links() > 1 && *now != until)) =>
                {
                    names.wait(folder, path);
                    continue;
                }
                _ => {}
            }
            let state = Shape::left(left, found.map(|found| found.state()));
            let at = At { folder, path: path.clone() };
            if let Err(error) = kept.log.gather(author, Record::After { at, state }) {
                names.wait(folder, path);
                return Err(error);
            }
            let own = Own::told(state.as_ref());
            names.touch(folder, &path, own);
            told.push((folder, path, own));
        }
        kept.log.flush()?;
        for (_, other) in sets.iter_mut().filter(|(number, _)| **number != set) {
            for (folder, path, own) in &told {
                if other.names.waits(*folder, path) {
                    other.names.touch(*folder, path, *own);
                }
            }
        }
        Ok(told.len())
    }

    /// What a set has recorded of a name.
    pub(super) fn told(&self, by: By, spot: &Spot<'_>) -> Option<Own> {
        let own = self.sets.get(&by.set)?.names.get(spot.folder, spot.path);
        own.filter(|own| matches!(own, Own::Told(_)))
    }

    /// Looks whether somebody else has changed what a set is about to change once more: then it is a
    /// file that the set does not know. Says whether it is recorded what the name was like: what the
    /// set does now has to be recorded as well.
    pub(super) fn notice(&mut self, by: By, spot: &Spot<'_>, found: &Look) -> Result<bool, Errno> {
        let (folder, path) = spot.place();
        let Some(kept) = &mut self.kept else { return Ok(false) };
        let Some(set) = self.sets.get_mut(&by.set) else { return Ok(false) };
        match set.names.get(folder, path) {
            None => Ok(false),
            Some(own @ Own::Told(_)) => {
                if !own.is(found) {
                    set.forget(found.key());
                }
                Ok(true)
            }
            Some(Own::Open { left, .. }) => {
                let Some(left) = left.filter(|left| !left.is_same(found)) else {
                    return Ok(false);
                };
                Self::tell_lost(kept, by, spot, left)?;
                set.names.touch(folder, path, Own::told(Some(&left.lost())));
                set.forget(found.key());
                Ok(true)
            }
        }
    }

    /// Records that what a set left under a name is not there any more.
    fn tell_lost(kept: &mut Kept, by: By, spot: &Spot<'_>, left: Shape) -> Result<(), Errno> {
        let record = Record::After { at: spot.at(), state: Some(left.lost()) };
        kept.log.append(by.author(), record).map(drop)
    }

    /// Remembers that something has come to a name from another one, with what was recorded of it
    /// there.
    pub(super) fn arrive(&mut self, by: By, spot: &Spot<'_>, found: &Look, told: Option<Own>) {
        self.touch(by, spot, Some(found));
        if let Some(own) = told
            && let Some(set) = self.sets.get_mut(&by.set)
        {
            set.names.touch(spot.folder, spot.path, own);
        }
    }
}

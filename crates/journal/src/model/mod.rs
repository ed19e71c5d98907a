//! Says from the records of a store what became of each name.
//!
//! The records are all that is looked at: `names` replays them over a tree of which only the
//! touched part is known, and so knows, without a look at any folder, which names are new, gone or
//! moved, and which contents and attributes were kept. `changes` then compares that with the
//! folders as they are.
//!
//! An undo is a set like any other. A set that an undo brought back, together with that undo, has no
//! effect: what they did is nobody's change, unless one of them is itself what is to be undone. But
//! while such a set was in force others used its names: `passing` follows it until it is undone. What
//! names were names of one file is told by `kin`.
//!
//! Deliberately absent: bringing anything back ([`crate::undo`]).

mod bodies;
pub(crate) mod changes;
mod ends;
mod kin;
mod look;
pub(crate) mod names;
mod passing;
mod programs;
mod returns;
mod sets;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

pub(crate) use look::{Disk, Present, last};
pub(crate) use sets::{SOME, Scope};

use crate::hand::{Folder, Left};
use crate::log::{self, Entries};
use crate::record::{Entry, Record};
use cowork_api::Text;
use cowork_api::files::Mark;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// The records of a store, without those that say what did not happen after all.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Vec<Entry>,
    /// How far the log was read.
    mark: log::Mark,
    /// What whoever adds to the log needs to know of what is there.
    left: Left,
    /// Its sets, once somebody has asked.
    sets: OnceCell<BTreeMap<u32, sets::About>>,
}

/// A granted folder, as the records name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number in the records.
    pub number: u32,
    /// The grant's name.
    pub name: String,
    /// Where it lies on the host.
    pub path: Text,
    /// Which folder it is.
    pub device: u64,
    /// Which folder it is.
    pub inode: u64,
}

/// What the records are compared with: the store, and those of the granted folders that are there.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The store.
    pub store: BorrowedFd<'a>,
    /// The folders, in any order. Which one a record means is told by device, inode and name.
    pub folders: &'a [Folder],
}

/// More that a person should know about a name: its path below the granted folder, and its type and
/// permission bits now.
pub type Marks<'a> = &'a dyn Fn(&[u8], u32) -> Vec<Mark>;

impl Journal {
    /// Reads the records of a store.
    pub fn read(store: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut journal = Self::default();
        journal.read_on(store)?;
        Ok(journal)
    }

    /// Takes records, in order.
    pub fn new(entries: Vec<Entry>) -> Self {
        let mut journal = Self::default();
        for entry in entries {
            journal.add(entry);
        }
        journal
    }

    /// Reads what was recorded since; what is left of the log then.
    pub(crate) fn read_on(&mut self, store: BorrowedFd<'_>) -> Result<Entries, Errno> {
        let mut entries = log::entries_after(store, self.mark)?;
        for entry in entries.by_ref() {
            let entry = entry?;
            self.left.read(&entry);
            self.add(entry);
        }
        self.mark = entries.mark();
        Ok(entries)
    }

    /// What the hand that goes on with the log has to know. It is told once.
    pub(crate) fn take_left(&mut self) -> Left {
        std::mem::take(&mut self.left)
    }

    /// Takes the next record. One that did not happen is among the last.
    fn add(&mut self, entry: Entry) {
        self.sets.take();
        let Record::Failed { seq } = entry.record else { return self.entries.push(entry) };
        if let Ok(place) = self.entries.binary_search_by_key(&seq, |entry| entry.seq) {
            self.entries.remove(place);
        }
    }

    /// The records that happened.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The folders that the records are about.
    pub fn folders(&self) -> Vec<Granted> {
        let mut folders: Vec<Granted> = Vec::new();
        for entry in &self.entries {
            let Record::Folder { folder, name, path, device, inode } = &entry.record else {
                continue;
            };
            folders.retain(|known| known.number != *folder);
            folders.push(Granted {
                number: *folder,
                name: name.clone(),
                path: path.clone(),
                device: *device,
                inode: *inode,
            });
        }
        folders
    }
}

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

use crate::frames::{Brief, Frames, Kept, Past, Tag};
use crate::hand::{Folder, Left};
use crate::log;
use crate::record::{At, Entry, Record, State};
use cowork_api::Text;
use cowork_api::files::Mark;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// The records of a store, without those that say what did not happen after all.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    frames: Frames,
    /// How far the log was read.
    mark: log::Mark,
    /// What whoever adds to the log needs to know of what is there.
    left: Left,
    /// Its sets, once somebody has asked.
    sets: OnceCell<BTreeMap<u32, sets::About>>,
}

/// A record of something that was moved into the trash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    pub(crate) set: u32,
    pub(crate) folder: u32,
    pub(crate) inode: u64,
    pub(crate) links: u32,
    /// Its number in the trash.
    pub(crate) number: u64,
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

    /// Reads what was recorded since; how far that is.
    pub(crate) fn read_on(&mut self, store: BorrowedFd<'_>) -> Result<log::Mark, Errno> {
        let mut entries = log::entries_after(store, self.mark)?;
        while let Some(brief) = entries.advance()? {
            self.left.read(brief, entries.frame());
            self.add(brief, entries.frame());
        }
        self.mark = entries.mark();
        Ok(self.mark)
    }

    /// What the hand that goes on with the log has to know. It is told once.
    pub(crate) fn take_left(&mut self) -> Left {
        std::mem::take(&mut self.left)
    }

    /// Takes the next record. One that did not happen is among the last.
    fn add(&mut self, brief: Brief, bytes: &[u8]) {
        self.sets.take();
        if brief.tag != Tag::Failed {
            return self.frames.push(brief, bytes);
        }
        if let Ok(Entry { record: Record::Failed { seq }, .. }) = postcard::from_bytes(bytes) {
            self.frames.remove(seq);
        }
    }

    /// The records that happened, read as a whole: of a log that says much this takes long.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> {
        self.frames.entries()
    }

    /// What was moved into the trash, in order.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Removal> {
        let all = self.frames.all().iter().filter(|frame| frame.brief.tag == Tag::Remove);
        all.filter_map(|frame| {
            let Past { folder, inode, links, kept, .. } = self.frames.past(frame)?;
            let Kept::Trash(number) = kept else { return None };
            Some(Removal { set: frame.brief.set, folder, inode, links, number })
        })
    }

    /// Those of one kind.
    pub(crate) fn tagged(&self, tag: Tag) -> impl Iterator<Item = Entry> {
        let all = self.frames.all().iter().filter(move |frame| frame.brief.tag == tag);
        all.filter_map(|frame| self.frames.entry(frame))
    }

    /// The records of some sets that happened.
    pub fn entries_of(&self, sets: &[u32]) -> impl Iterator<Item = Entry> {
        let all = self.frames.all().iter().filter(|frame| sets.contains(&frame.brief.set));
        all.filter_map(|frame| self.frames.entry(frame))
    }

    /// What the records say of names after sets: which name, and what is there.
    pub fn ends(&self) -> impl Iterator<Item = (At, Option<State>)> {
        self.tagged(Tag::After).filter_map(|entry| match entry.record {
            Record::After { at, state } => Some((at, state)),
            _ => None,
        })
    }

    /// Whether an undo, redo or apply came to its end.
    pub fn is_complete(&self, set: u32) -> bool {
        let complete = |brief: &Brief| (brief.set, brief.tag) == (set, Tag::Complete);
        self.frames.all().iter().rev().any(|frame| complete(&frame.brief))
    }

    /// The folders that the records are about.
    pub fn folders(&self) -> Vec<Granted> {
        let mut folders: Vec<Granted> = Vec::new();
        for entry in self.tagged(Tag::Folder) {
            let Record::Folder { folder, name, path, device, inode } = entry.record else {
                continue;
            };
            folders.retain(|known| known.number != folder);
            folders.push(Granted { number: folder, name, path, device, inode });
        }
        folders
    }
}

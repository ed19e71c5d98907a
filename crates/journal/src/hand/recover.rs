//! What a log says when it is opened again, and what a crash left undone in it.
//!
//! A record is written before its change is made. Of all of them only the last can be about a
//! change that was not made; the folder shows which. Sets that were open are closed with what their
//! names are like now.

use super::Hand;
use super::after::Finder;
use super::set::Names;
use crate::frames::{Brief, Frames, Kept, Past, Tag};
use crate::log::Author;
use crate::record::{At, Entry, Meta, Record, Saved};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;

/// What is known from the records that were there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    numbers: Vec<Number>,
    last_set: u32,
    /// The number of the last record.
    last_seq: u64,
    /// Sets that nobody closed, with what says their names.
    records: BTreeMap<u32, Frames>,
    /// The same, with their names, once all records were read.
    open: BTreeMap<u32, Names>,
    /// The last changes, if nothing was recorded after them: a removal and the renaming that it
    /// belongs to are two records and one change.
    last: Frames,
    /// Bytes that were copied into files of their own, by folder.
    copied: HashMap<u32, u64>,
}

/// A folder's number.
#[derive(Clone, Debug)]
struct Number {
    folder: u32,
    name: String,
    device: u64,
    inode: u64,
}

impl Left {
    /// Takes in the next record.
    pub(crate) fn read(&mut self, brief: Brief, bytes: &[u8]) {
        let Brief { set, seq, tag, .. } = brief;
        self.last_set = self.last_set.max(set);
        self.last_seq = self.last_seq.max(seq);
        match tag {
            Tag::Failed => return self.read_failed(set, bytes),
            Tag::Folder => {
                if let Some(Record::Folder { folder, name, device, inode, .. }) = whole(bytes) {
                    self.add_number(folder, name, device, inode);
                }
            }
            Tag::Set => drop(self.records.insert(set, Frames::default())),
            Tag::Closed => drop(self.records.remove(&set)),
            _ => {}
        }
        if let Some(records) = self.records.get_mut(&set) {
            records.push(brief, bytes);
        }
        // What is removed by a renaming is the record before.
        if tag != Tag::Rename || !self.is_pair(bytes) {
            self.last.clear();
        }
        if tag.is_change() {
            self.last.push(brief, bytes);
        }
        if matches!(tag, Tag::Write | Tag::Remove) {
            self.count_copied();
        }
    }

    fn read_failed(&mut self, set: u32, bytes: &[u8]) {
        let Some(Record::Failed { seq }) = whole(bytes) else { return };
        if self.last.all().iter().all(|last| last.brief.seq != seq) {
            return;
        }
        self.last.remove(seq);
        if let Some(records) = self.records.get_mut(&set) {
            records.remove(seq);
        }
    }

    /// Whether the last record is of what a renaming replaces.
    fn is_pair(&self, renaming: &[u8]) -> bool {
        let last = self.last.entries().next_back().map(|last| last.record);
        matches!(
            (last, whole(renaming)),
            (
                Some(Record::Remove { at, .. } | Record::RemoveFolder { at, .. }),
                Some(Record::Rename { to, .. }),
            ) if at == to
        )
    }

    /// Counts what was copied for the last record.
    fn count_copied(&mut self) {
        let past = self.last.all().last().and_then(|last| self.last.past(last));
        if let Some(Past { folder, size, kept: Kept::Copy, .. }) = past {
            let copied = self.copied.entry(folder).or_default();
            *copied = copied.saturating_add(size);
        }
    }

    /// Finds out, when all records were read, which names the sets have that nobody closed.
    pub(super) fn finish(&mut self) {
        for (set, records) in std::mem::take(&mut self.records) {
            let names = self.open.entry(set).or_default();
            for entry in records.entries() {
                match &entry.record {
                    Record::After { at, .. } => names.leave(at.folder, &at.path),
                    record => names.follow(record),
                }
            }
        }
    }

    /// The number of a folder, and whether it is new.
    pub(super) fn number(&self, name: &str, device: u64, inode: u64) -> (u32, bool) {
        let same = |number: &&Number| {
            number.name == name && number.device == device && number.inode == inode
        };
        let most = self.numbers.iter().map(|number| number.folder).max().unwrap_or(0);
        self.numbers.iter().find(same).map_or((most + 1, true), |number| (number.folder, false))
    }

    /// Remembers the number of a folder.
    pub(super) fn add_number(&mut self, folder: u32, name: String, device: u64, inode: u64) {
        self.numbers.push(Number { folder, name, device, inode });
    }

    /// The number of the last set.
    pub(super) fn last_set(&self) -> u32 {
        self.last_set
    }

    /// Bytes of a folder that were copied into files of their own before the log was opened.
    pub(super) fn take_copied(&mut self, folder: u32) -> u64 {
        self.copied.remove(&folder).unwrap_or(0)
    }
}

/// What a record says.
fn whole(bytes: &[u8]) -> Option<Record> {
    postcard::from_bytes::<Entry>(bytes).ok().map(|entry| entry.record)
}

/// The name that decides whether a change was made; nothing for what is no change.
fn subject(record: &Record) -> Option<&At> {
    match record {
        Record::Write { at, .. }
        | Record::Remove { at, .. }
        | Record::RemoveFolder { at, .. }
        | Record::Create { at, .. }
        | Record::Attributes { at, .. }
        | Record::Rename { to: at, .. }
        | Record::Exchange { one: at, .. } => Some(at),
        Record::Folder { .. }
        | Record::Set { .. }
        | Record::Process { .. }
        | Record::Inside { .. }
        | Record::Failed { .. }
        | Record::After { .. }
        | Record::Closed
        | Record::Complete => None,
    }
}

impl Hand {
    /// Brings in order what a crash left open in a folder.
    pub(super) fn recover(
        &mut self,
        folder: u32,
        root: BorrowedFd<'_>,
        trash: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        // What was about to be replaced has a name in the trash before its record is written. With
        // nothing recorded since, the number that the next record gets is nobody's.
        if let Some(trash) = trash
            && kept.log.next() == self.left.last_seq + 1
        {
            let unrecorded = Saved::Trash(kept.log.next());
            kept.store.discard(Some(trash), &unrecorded);
        }
        let here = |entry: &Entry| subject(&entry.record).is_some_and(|at| at.folder == folder);
        if self.left.last.entries().any(|entry| here(&entry)) {
            let last: Vec<Entry> = std::mem::take(&mut self.left.last).entries().collect();
            for entry in unmade(&last, root).into_iter().rev() {
                let author = Author { set: entry.set, process: entry.process };
                kept.log.append(author, Record::Failed { seq: entry.seq })?;
                if let Some(names) = self.left.open.get_mut(&entry.set) {
                    names.unfollow(&entry.record);
                }
                if let Record::Remove { saved, .. } = &entry.record {
                    kept.store.discard(trash, saved);
                }
            }
        }
        for (set, names) in &mut self.left.open {
            let names = names.take(folder);
            kept.after(Author { set: *set, process: 0 }, folder, root, &names)?;
        }
        Ok(())
    }

    /// Closes the sets that a crash left open. What names in folders that were not added again are
    /// like is not known.
    pub(super) fn close_left(&mut self) -> Result<(), Errno> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        while let Some((set, _)) = self.left.open.first_key_value() {
            let set = *set;
            kept.log.append(Author { set, process: 0 }, Record::Closed)?;
            self.left.open.remove(&set);
        }
        Ok(())
    }
}

/// Which of the last records are about a change that was not made.
fn unmade<'a>(last: &'a [Entry], root: BorrowedFd<'_>) -> Vec<&'a Entry> {
    let mut finder = Finder::new(root);
    match last {
        // What was to be replaced is still there: neither happened.
        [removal, renaming] if still_there(&removal.record, &mut finder) => {
            vec![removal, renaming]
        }
        // The removal was one of its own.
        [_, renaming] if still_there(&renaming.record, &mut finder) => vec![renaming],
        [entry] if still_there(&entry.record, &mut finder) => vec![entry],
        _ => vec![],
    }
}

/// Whether everything is as before a change.
fn still_there(record: &Record, finder: &mut Finder<'_>) -> bool {
    match record {
        Record::Remove { at, before, .. } | Record::RemoveFolder { at, before } => {
            finder.look(&at.path).is_ok_and(|look| look.inode() == before.inode)
        }
        Record::Create { at, .. } | Record::Rename { to: at, .. } => {
            matches!(finder.look(&at.path), Err(Errno::NOENT | Errno::NOTDIR))
        }
        Record::Exchange { one, inode, .. } => {
            finder.look(&one.path).is_ok_and(|look| look.inode() == *inode)
        }
        Record::Attributes { at, before } => as_before(finder, at, before),
        // The file may have been given to somebody who still writes to it.
        Record::Write { .. } => false,
        _ => false,
    }
}

fn as_before(finder: &mut Finder<'_>, at: &At, before: &Meta) -> bool {
    // Whatever changes of a file changes this time as well.
    finder.look(&at.path).is_ok_and(|look| {
        let state = look.state();
        state.inode == before.inode && state.ctime == before.ctime && state.mode == before.mode
    })
}

//! What one set knows: which files are new or saved in it, and which names it touched.

use super::Tally;
use super::keep::Added;
use crate::meta::Key;
use crate::record::{At, Record};
use cowork_api::files::FileKind;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

/// So many files are remembered. What is not remembered is saved once more.
const MOST_FILES: usize = 200_000;
/// So many names are remembered, to say at the end what they are like.
const MOST_NAMES: usize = 1_000_000;

/// What a set did to a file. Later ones include the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Known {
    /// Mode, owner, times and attributes are recorded.
    Attributes,
    /// Its contents are saved too.
    Saved,
    /// Like it, and it counts among those that were overwritten.
    Overwritten,
    /// It is new.
    Created,
}

/// A set that is not closed.
#[derive(Debug, Default)]
pub(super) struct Set {
    known: HashMap<Key, Known>,
    /// Files with several names, and the names by which they were saved.
    several: HashSet<Key>,
    linked: HashSet<u64>,
    inside: HashSet<Key>,
    pub(super) names: Names,
    pub(super) added: Added,
    pub(super) tally: Tally,
    /// Whether everything was brought to the disk before many files were removed.
    pub(super) synced: bool,
}

impl Set {
    /// What the set did to a file.
    pub(super) fn known(&self, key: Key) -> Option<Known> {
        self.known.get(&key).copied()
    }

    /// Remembers what the set did to a file.
    pub(super) fn learn(&mut self, key: Key, known: Known) {
        let room = self.known.len() < MOST_FILES;
        match self.known.entry(key) {
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let most = known.max(*entry.get());
                entry.insert(most);
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                if room {
                    entry.insert(known);
                }
            }
        }
    }

    /// Forgets a file that is gone, or that another set saved.
    pub(super) fn forget(&mut self, key: Key) {
        self.known.remove(&key);
    }

    /// Whether a file of which something is known has several names, and it is known by another.
    pub(super) fn is_other_name(&self, what: (Key, Known), links: u32, at: (u32, &[u8])) -> bool {
        (links > 1 || self.several.contains(&what.0)) && !self.linked.contains(&digest(what, at))
    }

    /// Remembers the name by which something is known of a file that has several.
    pub(super) fn learn_name(&mut self, what: (Key, Known), links: u32, at: (u32, &[u8])) {
        if links > 1 && self.linked.len() < MOST_FILES {
            self.several.insert(what.0);
        }
        if self.several.contains(&what.0) {
            self.linked.insert(digest(what, at));
        }
    }

    /// Whether the times of a folder are recorded.
    pub(super) fn knows_inside(&self, key: Key) -> bool {
        self.inside.contains(&key)
    }

    /// Remembers that the times of a folder are recorded.
    pub(super) fn learn_inside(&mut self, key: Key) {
        if self.inside.len() < MOST_FILES {
            self.inside.insert(key);
        }
    }
}

fn digest(what: (Key, Known), at: (u32, &[u8])) -> u64 {
    let mut hasher = DefaultHasher::new();
    (what, at).hash(&mut hasher);
    hasher.finish()
}

/// Names that a set touched, as they are now: what is in a folder moves with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    folders: BTreeMap<u32, BTreeSet<Vec<u8>>>,
    count: usize,
}

impl Names {
    /// Adds a name.
    pub(super) fn touch(&mut self, folder: u32, path: &[u8]) {
        let names = self.folders.entry(folder).or_default();
        if self.count < MOST_NAMES && !names.contains(path) {
            names.insert(path.to_vec());
            self.count += 1;
        }
    }

    /// A folder has another name: so does everything in it.
    pub(super) fn rename(&mut self, folder: u32, from: &[u8], to: &[u8]) {
        let moved = self.take_below(folder, from);
        self.put_below(folder, to, moved);
    }

    /// Two names are exchanged.
    pub(super) fn exchange(&mut self, folder: u32, one: &[u8], other: &[u8]) {
        let from_one = self.take_below(folder, one);
        let from_other = self.take_below(folder, other);
        self.put_below(folder, other, from_one);
        self.put_below(folder, one, from_other);
    }

    /// What a record says was touched. The records of a set in their order give its names.
    pub(super) fn follow(&mut self, record: &Record) {
        match record {
            Record::Write { at, .. }
            | Record::Remove { at, .. }
            | Record::RemoveFolder { at, .. }
            | Record::Create { at, .. }
            | Record::Attributes { at, .. }
            | Record::Inside { at, .. } => self.touch(at.folder, &at.path),
            Record::Rename { from, to, kind } => {
                self.touch_both(from, to);
                if *kind == FileKind::Folder {
                    self.rename(from.folder, &from.path, &to.path);
                }
            }
            Record::Exchange { one, other, .. } => {
                self.touch_both(one, other);
                self.exchange(one.folder, &one.path, &other.path);
            }
            Record::Folder { .. }
            | Record::Set { .. }
            | Record::Process { .. }
            | Record::Failed { .. }
            | Record::After { .. }
            | Record::Closed
            | Record::Complete => {}
        }
    }

    /// What a record said did not happen.
    pub(super) fn unfollow(&mut self, record: &Record) {
        match record {
            Record::Rename { from, to, kind: FileKind::Folder } => {
                self.rename(from.folder, &to.path, &from.path);
            }
            Record::Exchange { one, other, .. } => {
                self.exchange(one.folder, &one.path, &other.path);
            }
            _ => {}
        }
    }

    /// Takes the names in one folder, in order.
    pub(super) fn take(&mut self, folder: u32) -> BTreeSet<Vec<u8>> {
        let names = self.folders.remove(&folder).unwrap_or_default();
        self.count = self.count.saturating_sub(names.len());
        names
    }

    /// Drops a name.
    pub(super) fn leave(&mut self, folder: u32, path: &[u8]) {
        if self.folders.get_mut(&folder).is_some_and(|names| names.remove(path)) {
            self.count -= 1;
        }
    }

    /// The folders that have names.
    pub(super) fn folders(&self) -> Vec<u32> {
        self.folders.keys().copied().collect()
    }

    fn touch_both(&mut self, one: &At, other: &At) {
        self.touch(one.folder, &one.path);
        self.touch(other.folder, &other.path);
    }

    /// Takes everything below a name; what is left of each is the path below it.
    fn take_below(&mut self, folder: u32, path: &[u8]) -> Vec<Vec<u8>> {
        let Some(names) = self.folders.get_mut(&folder) else { return Vec::new() };
        let start = [path, b"/"].concat();
        let end = [path, b"0"].concat();
        let range = (Bound::Excluded(start.as_slice()), Bound::Excluded(end.as_slice()));
        let below = names.range::<[u8], _>(range).cloned().collect::<Vec<_>>();
        for name in &below {
            names.remove(name);
        }
        self.count = self.count.saturating_sub(below.len());
        below.iter().map(|name| name.get(start.len()..).unwrap_or_default().to_vec()).collect()
    }

    fn put_below(&mut self, folder: u32, path: &[u8], below: Vec<Vec<u8>>) {
        for rest in below {
            self.touch(folder, &[path, b"/", &rest].concat());
        }
    }
}

//! What one set knows: which files are new or saved in it, and which names it touched.

use super::Tally;
use super::keep::Added;
use crate::meta::{Key, Look};
use crate::record::{At, Record, State};
use cowork_api::files::FileKind;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

/// So many files are remembered. What is not remembered is saved once more.
const MOST_FILES: usize = 200_000;
/// So many names are remembered, to say at the end what they are like.
const MOST_NAMES: usize = 1_000_000;
/// So many wait to be told of before the set is closed. The others are told of then.
const MOST_WAITING: usize = 1_000_000;

/// What a set did to a file. Later ones include the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Known {
    /// Mode, owner, times and attributes are recorded.
    Attributes,
    /// Its contents are saved too.
    Saved,
    /// Like it, and it was opened for writing: it counts among those that were overwritten.
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
    folders: BTreeMap<u32, BTreeMap<Vec<u8>, Own>>,
    count: usize,
    /// Names of which it may be time to record what they are like.
    waiting: VecDeque<(u32, Vec<u8>)>,
}

/// What a set knows of a name that it touched last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// It is to be recorded what it is like.
    Open {
        /// When it was touched, as the hand counts.
        touched: u64,
        /// What the set left there, if that is known.
        left: Option<Shape>,
    },
    /// It is recorded; this is a digest of it. What is another state is somebody else's doing.
    Told(u64),
}

/// What cannot change of what a set left under a name, unless somebody else is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    inode: u64,
    /// Type and permission bits, of a folder: those of a file can be changed by whoever has it open.
    mode: Option<u32>,
}

impl Own {
    /// A name that was touched just now, when the hand had counted so far.
    pub(super) fn open(touched: u64, left: Option<&Look>) -> Self {
        Self::Open { touched, left: left.map(Shape::of) }
    }

    /// A name of which it was recorded that it is like this.
    pub(super) fn told(state: Option<&State>) -> Self {
        let mut hasher = DefaultHasher::new();
        state.map(|state| (state.inode, state.mode, state.size, state.mtime)).hash(&mut hasher);
        Self::Told(hasher.finish())
    }
}

impl Shape {
    fn of(look: &Look) -> Self {
        let state = look.state();
        Self { inode: state.inode, mode: look.is_folder().then_some(state.mode) }
    }

    /// Whether something is this.
    fn is(self, found: &State) -> bool {
        self.inode == found.inode && self.mode.is_none_or(|mode| mode == found.mode)
    }

    /// Whether it is the same file or folder.
    pub(super) fn is_same(self, found: &Look) -> bool {
        self.inode == found.inode()
    }

    /// What is recorded of it when somebody else has put something in its place: nothing that is
    /// found there will be like it.
    pub(super) fn lost(self) -> State {
        let mode = self.mode.unwrap_or_default();
        State { inode: self.inode, mode, size: 0, mtime: (0, 0), ctime: (0, 0) }
    }

    /// What the set left, where this is found.
    pub(super) fn left(this: Option<Self>, found: Option<State>) -> Option<State> {
        match (this, found) {
            (None, found) => found,
            (Some(shape), Some(found)) if shape.is(&found) => Some(found),
            (Some(shape), _) => Some(shape.lost()),
        }
    }
}

impl Names {
    /// Adds a name, or says anew what is known of it.
    pub(super) fn touch(&mut self, folder: u32, path: &[u8], own: Own) {
        let names = self.folders.entry(folder).or_default();
        let waits = match names.get_mut(path) {
            Some(known) => matches!(std::mem::replace(known, own), Own::Open { .. }),
            None if self.count < MOST_NAMES => {
                names.insert(path.to_vec(), own);
                self.count += 1;
                false
            }
            None => return,
        };
        if !waits && matches!(own, Own::Open { .. }) {
            self.wait(folder, path.to_vec());
        }
    }

    /// Somebody else, whose changes are recorded too, touched a name.
    pub(super) fn blur(&mut self, folder: u32, path: &[u8], touched: u64) {
        if self.get(folder, path).is_some() {
            self.touch(folder, path, Own::open(touched, None));
        }
    }

    /// What is known of a name.
    pub(super) fn get(&self, folder: u32, path: &[u8]) -> Option<Own> {
        self.folders.get(&folder)?.get(path).copied()
    }

    /// Whether a name is to be recorded still.
    pub(super) fn waits(&self, folder: u32, path: &[u8]) -> bool {
        matches!(self.get(folder, path), Some(Own::Open { .. }))
    }

    /// How many names wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The name that has waited longest.
    pub(super) fn next(&mut self) -> Option<(u32, Vec<u8>)> {
        self.waiting.pop_front()
    }

    /// Lets a name wait.
    pub(super) fn wait(&mut self, folder: u32, path: Vec<u8>) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((folder, path));
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
            | Record::Inside { at, .. } => self.touch(at.folder, &at.path, UNKNOWN),
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
    pub(super) fn take(&mut self, folder: u32) -> BTreeMap<Vec<u8>, Own> {
        let names = self.folders.remove(&folder).unwrap_or_default();
        self.count = self.count.saturating_sub(names.len());
        names
    }

    /// Drops a name.
    pub(super) fn leave(&mut self, folder: u32, path: &[u8]) {
        if self.folders.get_mut(&folder).is_some_and(|names| names.remove(path).is_some()) {
            self.count -= 1;
        }
    }

    /// The folders that have names.
    pub(super) fn folders(&self) -> Vec<u32> {
        self.folders.keys().copied().collect()
    }

    fn touch_both(&mut self, one: &At, other: &At) {
        self.touch(one.folder, &one.path, UNKNOWN);
        self.touch(other.folder, &other.path, UNKNOWN);
    }

    /// Takes everything below a name; what is left of each is the path below it.
    fn take_below(&mut self, folder: u32, path: &[u8]) -> Vec<(Vec<u8>, Own)> {
        let Some(names) = self.folders.get_mut(&folder) else { return Vec::new() };
        let start = [path, b"/"].concat();
        let end = [path, b"0"].concat();
        let range = (Bound::Excluded(start.as_slice()), Bound::Excluded(end.as_slice()));
        let below: Vec<_> =
            names.range::<[u8], _>(range).map(|(name, own)| (name.clone(), *own)).collect();
        for (name, _) in &below {
            names.remove(name);
        }
        self.count = self.count.saturating_sub(below.len());
        let rest = |name: &Vec<u8>| name.get(start.len()..).unwrap_or_default().to_vec();
        below.iter().map(|(name, own)| (rest(name), *own)).collect()
    }

    fn put_below(&mut self, folder: u32, path: &[u8], below: Vec<(Vec<u8>, Own)>) {
        for (rest, own) in below {
            self.touch(folder, &[path, b"/", &rest].concat(), own);
        }
    }
}

/// What the records before say of a name that was touched.
const UNKNOWN: Own = Own::Open { touched: 0, left: None };

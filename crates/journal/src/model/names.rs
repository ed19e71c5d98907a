//! Replays records over a tree of names of which only the touched part is known.
//!
//! A [`Thing`] is one name and keeps its identity when it is renamed; a [`Body`] is what names are
//! names of, so that hard links share one. A name that no record mentions belongs to no thing, and
//! one inside a folder that was renamed is wherever that folder is: to rename a folder with a
//! thousand files changes one thing.
//!
//! The sets that are taken back and all others are replayed alike, and told apart only in what is
//! remembered: of the former what was before, of the latter where they touched the same.

use super::Journal;
use super::ends::Ends;
use super::kin::Kin;
use super::passing::Passing;
use super::returns::Undos;
use super::sets::Scope;
use super::tree::{kind, parts, split};
use crate::record::{At, Entry, Meta, Record, Saved, State};
use cowork_api::Text;
use cowork_api::files::FileKind;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Which thing.
pub(crate) type ThingId = usize;

/// Which body.
pub(crate) type BodyId = usize;

/// Where a thing is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    /// It is a granted folder itself.
    Root,
    /// In this folder, under this name.
    In(ThingId, Text),
    /// Nowhere.
    Gone,
}

/// One name.
#[derive(Clone, Debug)]
pub(crate) struct Thing {
    /// The granted folder.
    pub(crate) folder: u32,
    /// What it is a name of.
    pub(crate) body: BodyId,
    /// Where it is after all records.
    pub(crate) now: Slot,
    /// Where it was before the sets that are taken back.
    pub(crate) home: Slot,
    /// Whether a set that is taken back made, moved or removed it.
    pub(crate) bound: bool,
    /// Another set that moved or removed it afterwards.
    pub(crate) foreign: Option<u32>,
    /// The sets that made, moved or removed it and are taken back.
    pub(crate) sets: BTreeSet<u32>,
    /// The records of theirs that did.
    pub(crate) records: Vec<u64>,
    /// As it was when it was removed, and where it is kept.
    pub(crate) removed: Option<(Meta, Saved)>,
    /// What is known of when it was removed last.
    pub(crate) last: Option<Last>,
    /// Where the sets that are taken back left it, if they put it somewhere.
    pub(crate) left: Option<Slot>,
    /// What is known to be in it, of a folder.
    pub(crate) children: BTreeMap<Text, ThingId>,
}

/// Something that a set removed.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    /// Where it was.
    pub(crate) slot: Slot,
    /// Which set.
    pub(crate) by: u32,
    /// What it was.
    pub(crate) kind: FileKind,
}

/// What names are names of.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Which inode, once known.
    pub(crate) inode: Option<u64>,
    /// What it is, of what was made in the replayed records; otherwise `before` says.
    pub(crate) made: Option<FileKind>,
    /// As it was before the sets that are taken back, if they touched it.
    pub(crate) before: Option<Meta>,
    /// The contents that it had, if they were written to: where they are kept.
    pub(crate) contents: Option<Saved>,
    /// What happened to it.
    pub(crate) traces: BTreeSet<Trace>,
    /// Another set that changed it afterwards.
    pub(crate) foreign: Option<u32>,
    /// The sets that changed it and are taken back.
    pub(crate) sets: BTreeSet<u32>,
    /// The records of theirs that did.
    pub(crate) records: Vec<u64>,
    /// Its names, also those that it has lost.
    pub(crate) names: Vec<ThingId>,
}

/// What can happen to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trace {
    /// Its contents were written to by a set that is taken back.
    Written,
    /// Its mode, owner, times or attributes were changed by one.
    Altered,
    /// The user changed it between two of them.
    Between,
    /// Another set changed names in it afterwards, of a folder.
    Stirred,
}

impl Body {
    /// Whether something happened to it.
    pub(crate) fn was(&self, trace: Trace) -> bool {
        self.traces.contains(&trace)
    }

    /// Whether a set that is taken back changed more of it than its names.
    pub(crate) fn is_touched(&self) -> bool {
        self.was(Trace::Written) || self.was(Trace::Altered)
    }
}

/// What became of all names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// All things that any record mentions.
    pub(crate) things: Vec<Thing>,
    /// What they are names of.
    pub(crate) bodies: Vec<Body>,
    /// The granted folders.
    pub(crate) roots: BTreeMap<u32, ThingId>,
    /// What is expected to be there.
    pub(crate) ends: Ends,
    /// The sets that are undos.
    pub(crate) undos: BTreeSet<u32>,
    pub(super) inodes: HashMap<(u32, u64), BodyId>,
    /// Whether no set is left out, so that a body is of one inode only.
    pub(super) whole: bool,
    /// The record that is applied.
    record: u64,
}

/// Whose record is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Of a set that is taken back.
    Taken(u32),
    /// Of another one.
    Other(u32),
    /// Of one that has no effect: it only says which names are which until it is undone.
    Void(u32),
    /// Of one before all that are taken back: it only says which names are which.
    Earlier,
}

impl Whose {
    /// Whether only names are followed.
    fn is_bystander(self) -> bool {
        matches!(self, Self::Void(_) | Self::Earlier)
    }
}

/// Which part of a body a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Contents(&'a Saved),
    Attributes,
    /// The names in it.
    Inside,
    /// Nothing but that it was there.
    Whole,
}

impl Names {
    /// Replays the records, from the first one of a set that is taken back, or of one that has no
    /// effect by now and had one then.
    pub(crate) fn replay(journal: &Journal, scope: &Scope) -> Self {
        let mut names = Self::default();
        let mut kin = Kin::of(journal, scope);
        let mut passing = Passing::of(journal, scope);
        let mut undos = Undos::default();
        let mut begun = false;
        // Earlier ones say nothing, unless of names that were names of one file.
        let first = if kin.is_some() { 0 } else { passing.first() };
        for frame in journal.frames.since(first) {
            let Some(entry) = journal.frames.entry(frame) else { continue };
            let entry = &entry;
            let taken = scope.taken.contains(&entry.set);
            begun |= taken;
            passing.before(entry, &mut names);
            if let Some(kin) = &mut kin {
                if taken {
                    names.unite(entry, kin);
                }
                kin.follow(entry);
            }
            if taken {
                names.apply(entry, Whose::Taken(entry.set));
            } else if scope.void.contains(&entry.set) {
                names.notice_void(entry);
                passing.follow(entry, &mut names);
            } else if begun {
                names.apply(entry, Whose::Other(entry.set));
            } else if passing.has_begun() {
                names.apply(entry, Whose::Earlier);
            }
            if passing.has_begun() && !scope.void.contains(&entry.set) {
                for (new, old) in undos.follow(entry, scope, &mut names) {
                    passing.take_over(new, old);
                }
            }
            // Before that nothing is told of a name that is taken back, unless by its fellows.
            if begun || kin.is_some() {
                names.ends.apply(entry);
            }
        }
        names
    }

    /// For a replay that leaves no set out.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// The thing that is at a path now; one that is not known yet has been there all the time.
    pub(crate) fn reach(&mut self, folder: u32, path: &[u8]) -> ThingId {
        let mut id = self.roots.get(&folder).copied().unwrap_or_else(|| {
            let root = self.add(folder, Slot::Root, None);
            self.roots.insert(folder, root);
            root
        });
        for part in parts(path) {
            let known = self.things.get(id).and_then(|thing| thing.children.get(part)).copied();
            id = known.unwrap_or_else(|| {
                let child = self.add(folder, Slot::In(id, part.to_vec()), None);
                self.put(child, id, part);
                child
            });
        }
        id
    }

    /// Takes a thing out of where it is.
    pub(crate) fn take(&mut self, id: ThingId) {
        let Some(thing) = self.things.get_mut(id) else { return };
        if let Slot::In(parent, name) = std::mem::replace(&mut thing.now, Slot::Gone)
            && let Some(parent) = self.things.get_mut(parent)
            && parent.children.get(&name) == Some(&id)
        {
            parent.children.remove(&name);
        }
    }

    /// Puts a thing somewhere.
    pub(crate) fn put(&mut self, id: ThingId, parent: ThingId, name: &[u8]) {
        if let Some(folder) = self.things.get_mut(parent) {
            folder.children.insert(name.to_vec(), id);
        }
        if let Some(thing) = self.things.get_mut(id) {
            thing.now = Slot::In(parent, name.to_vec());
        }
    }

    /// Adds a thing that was always there, or was not if `made` says what it is.
    pub(crate) fn add(&mut self, folder: u32, slot: Slot, made: Option<FileKind>) -> ThingId {
        let id = self.things.len();
        let body = self.bodies.len();
        self.bodies.push(Body {
            inode: None,
            made,
            before: None,
            contents: None,
            traces: BTreeSet::new(),
            foreign: None,
            sets: BTreeSet::new(),
            records: Vec::new(),
            names: vec![id],
        });
        self.things.push(Thing {
            folder,
            body,
            now: slot.clone(),
            home: slot,
            bound: false,
            foreign: None,
            sets: BTreeSet::new(),
            records: Vec::new(),
            removed: None,
            last: None,
            left: None,
            children: BTreeMap::new(),
        });
        id
    }

    pub(super) fn apply(&mut self, entry: &Entry, whose: Whose) {
        self.record = entry.seq;
        match &entry.record {
            Record::Write { .. }
            | Record::Attributes { .. }
            | Record::Inside { .. }
            | Record::After { .. }
                if whose.is_bystander() => {}
            Record::Remove { at, before, .. } | Record::RemoveFolder { at, before }
                if whose.is_bystander() =>
            {
                let id = self.reach(at.folder, &at.path);
                self.take_by(id, entry.set, kind(before.mode));
                self.moved(id, whose);
                self.freed(entry);
            }
            Record::Write { at, before, saved } => {
                self.touch(at, before, Part::Contents(saved), whose);
            }
            Record::Attributes { at, before } => {
                self.touch(at, before, Part::Attributes, whose);
            }
            Record::Inside { at, before } => {
                self.touch(at, before, Part::Inside, whose);
            }
            Record::Remove { at, before, saved } => {
                let id = self.removed(at, before, saved, whose);
                self.take_by(id, entry.set, kind(before.mode));
                self.moved(id, whose);
                self.freed(entry);
            }
            Record::RemoveFolder { at, before } => {
                let id = self.removed(at, before, &Saved::Empty, whose);
                self.take_by(id, entry.set, FileKind::Folder);
                self.moved(id, whose);
                self.freed(entry);
            }
            Record::Create { at, kind, link_of } => {
                self.created(at, *kind, link_of.as_ref(), whose);
            }
            Record::Rename { from, to, .. } => {
                let id = self.reach(from.folder, &from.path);
                self.take(id);
                self.settle(id, to, whose);
            }
            Record::Exchange { one, other, .. } => {
                let first = self.reach(one.folder, &one.path);
                let second = self.reach(other.folder, &other.path);
                self.take(first);
                self.take(second);
                self.settle(first, other, whose);
                self.settle(second, one, whose);
            }
            Record::After { at, state: Some(state) } => {
                if let Some(id) = self.find(at.folder, &at.path) {
                    self.notice(id, at, state);
                    self.ended(id, *state);
                }
            }
            Record::Folder { .. }
            | Record::Set { .. }
            | Record::Process { .. }
            | Record::Failed { .. }
            | Record::After { state: None, .. }
            | Record::Closed
            | Record::Complete => {}
        }
    }

    /// Looks whether the user had changed what a set found that has no effect: it was brought back with
    /// all else when that set was undone.
    fn notice_void(&mut self, entry: &Entry) {
        let (Record::Write { at, before, .. }
        | Record::Attributes { at, before }
        | Record::Remove { at, before, .. }) = &entry.record
        else {
            return;
        };
        let state = State {
            inode: before.inode,
            mode: before.mode,
            size: before.size,
            mtime: before.mtime,
            ctime: before.ctime,
        };
        if let Some(id) = self.find(at.folder, &at.path) {
            self.notice(id, at, &state);
        }
    }

    /// Looks whether a name that a set has not touched is like it was said to be last. If not, whoever
    /// moved it moved what the user had changed.
    fn notice(&mut self, id: ThingId, at: &At, state: &State) {
        let is_other = |end: State| {
            kind(end.mode) != FileKind::Folder
                && (end.inode, end.size, end.mtime) != (state.inode, state.size, state.mtime)
        };
        if self.ends.of(at.folder, &at.path).is_some_and(is_other)
            && let Some(index) = self.things.get(id).map(|thing| thing.body)
            && (self.is_made(index) || self.bodies.get(index).is_some_and(Body::is_touched))
            && let Some(body) = self.bodies.get_mut(index)
        {
            body.traces.insert(Trace::Between);
        }
    }

    /// Whether a set that is taken back made a body.
    fn is_made(&self, body: BodyId) -> bool {
        let bound = |id: &ThingId| self.things.get(*id).is_some_and(|thing| thing.bound);
        let body = self.bodies.get(body);
        body.is_some_and(|body| body.made.is_some() && body.names.iter().any(bound))
    }

    /// Takes a thing out of where it is, since a set removed it.
    fn take_by(&mut self, id: ThingId, by: u32, kind: FileKind) {
        if let Some(thing) = self.things.get_mut(id) {
            thing.last = Some(Last { slot: thing.now.clone(), by, kind });
        }
        self.take(id);
    }

    fn removed(&mut self, at: &At, before: &Meta, saved: &Saved, whose: Whose) -> ThingId {
        let id = self.touch(at, before, Part::Whole, whose);
        // The last name of what is to be brought back: that it is gone is somebody else's doing.
        let last = matches!(whose, Whose::Other(_)) && before.links <= 1;
        let touched = self.body(id).is_some_and(Body::is_touched);
        if last
            && touched
            && let Some(thing) = self.things.get_mut(id)
        {
            thing.bound = true;
        }
        if let Some(thing) = self.things.get_mut(id) {
            thing.removed = Some((before.clone(), saved.clone()));
        }
        id
    }

    fn created(&mut self, at: &At, kind: FileKind, link_of: Option<&At>, whose: Whose) {
        // What was made before is one of those that were always there.
        let made = (whose != Whose::Earlier).then_some(kind);
        let id = self.add(at.folder, Slot::Gone, made);
        if let Some(of) = link_of {
            let source = self.reach(of.folder, &of.path);
            let body = self.things.get(source).map(|thing| thing.body);
            if let Some(body) = body {
                self.join(id, body);
            }
        }
        self.settle(id, at, whose);
    }

    /// Puts a thing where a record says, in place of what is still believed to be there.
    fn settle(&mut self, id: ThingId, at: &At, whose: Whose) {
        let (parent, name) = split(&at.path);
        let parent = self.reach(at.folder, parent);
        let stale = self.things.get(parent).and_then(|parent| parent.children.get(name)).copied();
        if let Some(stale) = stale {
            self.displace(stale);
        }
        self.put(id, parent, name);
        self.moved(id, whose);
    }

    /// Takes a thing out of where it cannot be, since something else is there.
    pub(super) fn displace(&mut self, id: ThingId) {
        self.take(id);
        if let Some(thing) = self.things.get_mut(id)
            && !thing.bound
        {
            thing.home = Slot::Gone;
        }
    }

    /// Remembers whose doing it is that a thing is where it is.
    fn moved(&mut self, id: ThingId, whose: Whose) {
        let Some(thing) = self.things.get_mut(id) else { return };
        match whose {
            Whose::Taken(set) => {
                thing.bound = true;
                thing.sets.insert(set);
                thing.records.push(self.record);
                thing.left = Some(thing.now.clone());
            }
            Whose::Other(set) if thing.bound => thing.foreign = Some(set),
            Whose::Void(_) if thing.bound => {}
            Whose::Other(_) | Whose::Void(_) | Whose::Earlier => {
                thing.home.clone_from(&thing.now);
            }
        }
    }

    /// Remembers what a body was before it was touched.
    fn touch(&mut self, at: &At, before: &Meta, part: Part<'_>, whose: Whose) -> ThingId {
        let id = self.reach(at.folder, &at.path);
        self.identify(id, before);
        let Some(index) = self.things.get(id).map(|thing| thing.body) else { return id };
        let bound = self.is_made(index);
        let Some(body) = self.bodies.get_mut(index) else { return id };
        match whose {
            Whose::Taken(set) => {
                if (body.before.is_some() || bound)
                    && self.ends.of(at.folder, &at.path).is_some_and(|end| differs(&end, before))
                {
                    body.traces.insert(Trace::Between);
                }
                body.before.get_or_insert_with(|| before.clone());
                match part {
                    Part::Contents(saved) => {
                        body.traces.insert(Trace::Written);
                        if *saved != Saved::Same && body.contents.is_none() {
                            body.contents = Some(saved.clone());
                        }
                        body.sets.insert(set);
                        body.records.push(self.record);
                    }
                    Part::Attributes => {
                        body.traces.insert(Trace::Altered);
                        body.sets.insert(set);
                        body.records.push(self.record);
                    }
                    Part::Inside | Part::Whole => {}
                }
            }
            Whose::Other(set) => {
                if (body.is_touched() || bound)
                    && matches!(part, Part::Contents(_) | Part::Attributes)
                {
                    body.foreign = Some(set);
                }
                if body.before.is_some() && part == Part::Inside {
                    body.traces.insert(Trace::Stirred);
                }
            }
            Whose::Void(_) | Whose::Earlier => {}
        }
        id
    }
}

fn differs(known: &State, before: &Meta) -> bool {
    kind(before.mode) != FileKind::Folder
        && (known.inode, known.size, known.mtime) != (before.inode, before.size, before.mtime)
}

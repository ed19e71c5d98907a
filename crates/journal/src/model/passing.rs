//! What sets did to names that have no effect by now, for as long as they had one.
//!
//! Between such a set and its undo other sets found names where it had put them. If it renamed a
//! folder, what they changed in there is in the folder with its former name now. So it is followed
//! until it is undone, and then everything is put where it was, as the undo did.
//!
//! Deliberately absent: contents and attributes, of which no other set can have seen anything that the
//! undo did not ask about.

use super::Journal;
use super::names::{Names, Slot, ThingId, Whose};
use super::sets::Scope;
use crate::record::{At, Record};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The sets that are followed.
#[derive(Debug)]
pub(super) struct Passing<'a> {
    scope: &'a Scope,
    /// The first record that is looked at.
    first: u64,
    begun: bool,
    /// What each set moved that is in force.
    moved: BTreeMap<u32, BTreeMap<ThingId, Moved>>,
}

/// Something that a set moved, made or removed.
#[derive(Debug)]
struct Moved {
    /// Where it was before.
    before: Slot,
    /// Where the set left it.
    left: Slot,
    /// Whether a set that is taken back had moved it before.
    bound: bool,
}

impl<'a> Passing<'a> {
    /// Finds out from where on names have to be followed.
    pub(super) fn of(journal: &Journal, scope: &'a Scope) -> Self {
        let mut starts: BTreeMap<u32, u64> = BTreeMap::new();
        for brief in journal.frames.all().iter().map(|frame| frame.brief) {
            starts.entry(brief.set).or_insert(brief.seq);
        }
        let start = |set: &u32| starts.get(set).copied();
        let first = scope.taken.iter().filter_map(start).min().unwrap_or(u64::MAX);
        let in_force = |(_, by): &(&u32, &u32)| start(by).is_some_and(|by| by > first);
        let earliest = scope.undone.iter().filter(in_force).filter_map(|(set, _)| start(set)).min();
        let first = earliest.map_or(first, |earliest| earliest.min(first));
        Self { scope, first, begun: false, moved: BTreeMap::new() }
    }

    /// The first record that is looked at.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Whether names are followed already.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Looks at the next record, before it is applied: an undo puts everything where it was.
    pub(super) fn before(&mut self, entry: &crate::record::Entry, names: &mut Names) {
        self.begun |= entry.seq >= self.first;
        let undone: BTreeSet<u32> = self
            .moved
            .keys()
            .filter(|set| self.scope.undone.get(set) == Some(&entry.set))
            .copied()
            .collect();
        let mut all: BTreeMap<ThingId, Moved> = BTreeMap::new();
        for set in undone {
            for (id, moved) in self.moved.remove(&set).unwrap_or_default() {
                match all.entry(id) {
                    Entry::Occupied(mut known) => known.get_mut().left = moved.left,
                    Entry::Vacant(place) => {
                        place.insert(moved);
                    }
                }
            }
        }
        names.put_back(all);
    }

    /// Lets a new thing stand for the one that it was before.
    pub(super) fn take_over(&mut self, new: ThingId, old: ThingId) {
        for moved in self.moved.values_mut() {
            if let Some(Moved { before, left, .. }) = moved.remove(&old) {
                moved.insert(new, Moved { before, left, bound: true });
            }
        }
    }

    /// Follows a record of a set that has no effect. What an undo did is done at its beginning.
    pub(super) fn follow(&mut self, entry: &crate::record::Entry, names: &mut Names) {
        if !self.begun || !self.scope.undone.contains_key(&entry.set) {
            return;
        }
        let (old, new) = match &entry.record {
            Record::Remove { at, .. } | Record::RemoveFolder { at, .. } => (vec![at], None),
            Record::Create { at, .. } => (vec![], Some(at)),
            Record::Rename { from, to, .. } => (vec![from], Some(to)),
            Record::Exchange { one, other, .. } => (vec![one, other], None),
            _ => return,
        };
        let find = |names: &Names, at: &At| names.find(at.folder, &at.path);
        let mut things: Vec<ThingId> =
            old.into_iter().map(|at| names.reach(at.folder, &at.path)).collect();
        // Something that is not known to be gone makes place for what is new.
        things.extend(new.and_then(|at| find(names, at)));
        let slots: Vec<(ThingId, Slot)> =
            things.into_iter().filter_map(|id| Some((id, names.thing(id)?.now.clone()))).collect();
        names.apply(entry, Whose::Void(entry.set));
        let made = new.and_then(|at| find(names, at)).map(|id| (id, Slot::Gone));
        let all = self.moved.entry(entry.set).or_default();
        for (id, before) in slots.into_iter().chain(made) {
            let Some(thing) = names.thing(id) else { continue };
            let bound = thing.bound;
            let moved = all.entry(id).or_insert(Moved { before, left: Slot::Gone, bound });
            moved.left.clone_from(&thing.now);
        }
    }
}

impl Names {
    /// Puts things where they were, unless somebody has moved them since. One that is taken back goes
    /// to where it was without the set.
    fn put_back(&mut self, moved: BTreeMap<ThingId, Moved>) {
        let mut back = Vec::new();
        for (id, Moved { before, left, bound }) in moved {
            let Some(thing) = self.things.get_mut(id) else { continue };
            // What the set made is nowhere without it.
            if thing.bound && !bound && (thing.home == left || before == Slot::Gone) {
                thing.home.clone_from(&before);
            }
            if thing.now == left {
                self.take(id);
                back.push((id, before));
            }
        }
        for (id, before) in back {
            if let Slot::In(parent, name) = &before {
                let stale =
                    self.thing(*parent).and_then(|folder| folder.children.get(name)).copied();
                if let Some(stale) = stale {
                    self.displace(stale);
                }
                self.put(id, *parent, name);
            }
            if let Some(thing) = self.things.get_mut(id)
                && !thing.bound
            {
                thing.home.clone_from(&thing.now);
            }
        }
    }
}

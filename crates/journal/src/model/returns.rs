//! Which of the names that an undo made are names that were there before.
//!
//! An undo makes a file again under a new name, and the records say no more than that. For what other
//! sets did to it before or afterwards it is the same name as before.

use super::names::{Names, Slot, ThingId};
use super::sets::Scope;
use crate::record::{Entry, Record};
use cowork_api::files::SetKind;
use std::collections::{BTreeMap, HashMap};

/// Undos that are on their way: which sets each undoes, and what it made.
#[derive(Debug, Default)]
pub(super) struct Undos {
    all: BTreeMap<u32, (Vec<u32>, Vec<ThingId>)>,
}

/// Which things are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    /// Those that the undo brought back.
    Restored,
    /// Also those that it replaced, which is how it brings contents back.
    All,
}

impl Undos {
    /// Looks at a record after it was applied. Things that are new, since the undo that made them is
    /// taken back alone, and those that they were before.
    pub(super) fn follow(
        &mut self,
        entry: &Entry,
        scope: &Scope,
        names: &mut Names,
    ) -> Vec<(ThingId, ThingId)> {
        match &entry.record {
            Record::Set { kind: SetKind::Undo(of), .. } => {
                self.all.insert(entry.set, (of.clone(), Vec::new()));
                names.undos.insert(entry.set);
            }
            Record::Create { at, .. } => {
                if let Some((_, made)) = self.all.get_mut(&entry.set) {
                    made.extend(names.find(at.folder, &at.path));
                }
            }
            // One that was interrupted may have left half a file.
            Record::Complete => {
                if let Some((mut of, made)) = self.all.remove(&entry.set) {
                    // What an undo did that was not finished says nothing about what was before.
                    of.retain(|set| !self.all.contains_key(set));
                    if !scope.taken.contains(&entry.set) {
                        names.recognize_made((entry.set, &of), &made, Former::All);
                    } else if of.iter().all(|set| scope.taken.contains(set)) {
                        names.recognize_made((entry.set, &of), &made, Former::Restored);
                    } else {
                        let gone = names.gone_by((entry.set, &of));
                        let former =
                            |new: &ThingId| names.former(*new, entry.set, &gone, Former::Restored);
                        let pair = |new: &ThingId| former(new).map(|old| (*new, old));
                        return made.iter().filter_map(pair).collect();
                    }
                }
            }
            _ => {}
        }
        Vec::new()
    }
}

impl Names {
    /// What is gone that an undo may have brought back or replaced, by where it was last and where
    /// it was before all that is taken back.
    fn gone_by(&self, (undo, of): (u32, &[u32])) -> HashMap<Slot, Vec<ThingId>> {
        let mut gone: HashMap<Slot, Vec<ThingId>> = HashMap::new();
        for (id, thing) in self.things.iter().enumerate() {
            if thing.now == Slot::Gone
                && let Some(last) = &thing.last
                && (last.by == undo || of.contains(&last.by))
            {
                gone.entry(last.slot.clone()).or_default().push(id);
                if matches!(thing.home, Slot::In(..)) && thing.home != last.slot {
                    gone.entry(thing.home.clone()).or_default().push(id);
                }
            }
        }
        gone
    }

    /// What a thing was before that an undo made.
    fn former(
        &self,
        new: ThingId,
        undo: u32,
        gone: &HashMap<Slot, Vec<ThingId>>,
        which: Former,
    ) -> Option<ThingId> {
        let former = gone.get(&self.thing(new)?.now)?;
        let last = |id: &ThingId| self.thing(*id).and_then(|thing| thing.last.as_ref());
        let by = |id: &ThingId| last(id).map(|last| last.by);
        let kind = self.kind(new);
        let alike = |id: &&ThingId| last(id).is_some_and(|last| last.kind == kind) && **id != new;
        let returned = || former.iter().rev().filter(alike).filter(|id| by(id) != Some(undo));
        let place = &self.thing(new)?.now;
        let home = |id: &&ThingId| self.thing(**id).is_some_and(|thing| thing.home == *place);
        let back = returned().find(home).or_else(|| returned().next());
        let rewritten = former.iter().rev().filter(alike).find(|id| by(id) == Some(undo));
        // Of what was there before the undo takes nothing away, so that it was written anew, even if
        // something else had been under that name in between.
        let stays = |id: &&ThingId| self.thing(**id).is_some_and(|thing| thing.home != Slot::Gone);
        let back = back.filter(|_| !rewritten.as_ref().is_some_and(stays));
        back.or(rewritten.filter(|_| which == Former::All)).copied()
    }

    /// Takes what an undo made for what was there before.
    fn recognize_made(&mut self, undo: (u32, &[u32]), made: &[ThingId], which: Former) {
        let gone = self.gone_by(undo);
        for new in made {
            let Some(old) = self.former(*new, undo.0, &gone, which) else { continue };
            let Some(Slot::In(parent, name)) = self.thing(*new).map(|thing| thing.now.clone())
            else {
                continue;
            };
            self.substitute(old, *new, undo.1);
            self.put(old, parent, &name);
            if let Some(thing) = self.things.get_mut(old)
                && !thing.bound
            {
                thing.home.clone_from(&thing.now);
            }
        }
    }

    /// Lets a thing take the place of a new one.
    fn substitute(&mut self, old: ThingId, new: ThingId, of: &[u32]) {
        self.take(new);
        let Some(thing) = self.things.get_mut(new) else { return };
        let children = std::mem::take(&mut thing.children);
        let body = thing.body;
        thing.home = Slot::Gone;
        for (name, child) in children {
            self.put(child, old, &name);
            if let Some(thing) = self.things.get_mut(child)
                && thing.home == Slot::In(new, name.clone())
            {
                thing.home = Slot::In(old, name);
            }
        }
        let Some(thing) = self.things.get_mut(old) else { return };
        let former = thing.body;
        if thing.foreign.is_some_and(|set| of.contains(&set)) {
            thing.foreign = None;
        }
        let known = |body: usize| self.bodies.get(body).is_some_and(|body| body.before.is_some());
        let inode = self.bodies.get(body).and_then(|body| body.inode);
        if !known(body) {
            self.join(new, former);
            if let Some(body) = self.bodies.get_mut(former) {
                body.inode = inode;
            }
        } else if !known(former) {
            self.join(old, body);
        }
        // It is no second name: who gets its inode later is no fellow of it.
        for body in [former, body] {
            if let Some(body) = self.bodies.get_mut(body) {
                body.names.retain(|name| *name != new);
            }
        }
    }
}

//! What an undo looks up before it begins, and tidies up when it is done.

use super::execute::Work;
use super::plan::Step;
use crate::model::names::{Slot, ThingId, Trace};
use crate::model::{Disk, Journal, Removal, Scope};
use cowork_api::files::FileKind;
use cowork_sys::ignore;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Something in the trash: its number, whether it may be taken out, and how many names it has.
type Trashed = (u64, bool, u32);

/// The numbers of what is in the trash of each folder.
pub(super) type There = HashMap<u32, HashSet<u64>>;

impl Work<'_> {
    /// Finds out what is in the trash, and whose it is.
    pub(super) fn find_trash(&mut self, journal: &Journal, scope: &Scope) {
        for Removal { set, folder, inode, number, .. } in journal.removals() {
            let there = self.there.entry(folder).or_insert_with(|| self.disk.in_trash(folder));
            if there.contains(&number) {
                self.trash.entry((folder, inode)).or_default().push(number);
                if !scope.chain.contains(&set) {
                    self.others.insert((folder, number));
                }
            }
        }
    }

    /// Finds out which files that lose a name, and are to be as they were, have names that no record
    /// mentions. Later their number says less: what goes may be kept as one more name.
    pub(super) fn find_shared(&mut self) -> Result<(), Errno> {
        let names = &self.plan.names;
        for id in
            self.plan.steps.iter().filter(|(_, step)| **step == Step::Remove).map(|(id, _)| id)
        {
            let Some((thing, body)) = names.thing(*id).zip(names.body(*id)) else { continue };
            if !body.is_touched() || self.shared.contains(&thing.body) {
                continue;
            }
            let Some(path) = names.path(*id) else { continue };
            let Some(present) = self.disk.present(thing.folder, &path)? else { continue };
            let named = body.names.iter().filter(|id| names.path(**id).is_some()).count();
            let kept = self.trash.get(&(thing.folder, present.inode)).map_or(0, Vec::len);
            if present.kind() == FileKind::File
                && usize::try_from(present.links).is_ok_and(|links| links > named + kept)
            {
                self.shared.insert(thing.body);
            }
        }
        Ok(())
    }

    /// Where in the trash a removed thing is.
    pub(super) fn in_trash(&self, id: ThingId) -> Option<u64> {
        let thing = self.plan.names.thing(id)?;
        let (removed, _) = thing.removed.as_ref()?;
        let numbers = self.trash.get(&(thing.folder, removed.inode))?;
        if let Some(number) = self.trashed.borrow().get(&id) {
            return numbers.contains(number).then_some(*number);
        }
        let (number, found) = numbers.iter().rev().find_map(|number| {
            let found = self.disk.trashed(thing.folder, *number)?;
            self.plan.names.is_like(id, &found).then_some((*number, found))
        })?;
        if numbers.len() == 1 {
            self.trashed.borrow_mut().insert(id, number);
            self.found.borrow_mut().insert((thing.folder, number), found);
        }
        Some(number)
    }

    /// Notes that something is not in the trash any more.
    pub(super) fn left_trash(&mut self, folder: u32, inode: u64, number: u64) {
        if let Some(there) = self.there.get_mut(&folder) {
            there.remove(&number);
        }
        if let Some(numbers) = self.trash.get_mut(&(folder, inode)) {
            numbers.retain(|known| *known != number);
        }
    }

    pub(super) fn watch_folders(&mut self) -> Result<(), Errno> {
        for id in self.plan.times.clone() {
            let Some((thing, body)) = self.plan.names.thing(id).zip(self.plan.names.body(id))
            else {
                continue;
            };
            let (folder, stirred) = (thing.folder, body.was(Trace::Stirred));
            if !self.disk.has(folder) {
                continue;
            }
            let Some(path) = self.plan.names.path(id) else { continue };
            let end = self.plan.names.ends.of(folder, &path);
            let present = self.disk.present(folder, &path)?;
            let changed = end.zip(present).is_some_and(|(end, now)| end.mtime != now.mtime);
            if stirred || changed {
                self.foreign.insert(id);
            }
        }
        Ok(())
    }

    /// Makes folders writable in which names are to be changed. Those that nothing else is to be
    /// done to are as they are now afterwards.
    pub(super) fn unlock_folders(&mut self) -> Result<(), Errno> {
        let mut folders = BTreeSet::new();
        for id in self.plan.steps.keys() {
            let Some(thing) = self.plan.names.thing(*id) else { continue };
            for slot in [&thing.now, &thing.home] {
                if let Slot::In(parent, _) = slot {
                    folders.insert(*parent);
                }
            }
        }
        for id in folders {
            let Some(folder) = self.plan.names.thing(id).map(|thing| thing.folder) else {
                continue;
            };
            let Some(path) = self.plan.names.path(id) else { continue };
            let Some(present) = self.disk.present(folder, &path)? else { continue };
            if !present.is_folder() || present.mode & 0o300 == 0o300 {
                continue;
            }
            let mode = Mode::from_raw_mode((present.mode & 0o7777) | 0o700);
            self.at(folder, &path, |hand, by, spot| hand.set_mode(by, spot, mode))?;
            if !self.plan.bodies.contains(&id) {
                let meta = present.meta(self.disk.attributes(folder, &path)?);
                self.unlocked.insert(id, meta);
            }
        }
        Ok(())
    }

    /// Takes out of the trash what the undo, or a set that it took back, removed although it has other
    /// names still: a trash that holds it would be seen in their number. `void` are the sets that had
    /// no effect before: what had no other name then has none now. `there` is what was in the trash
    /// before the undo and was not taken out of it.
    pub(super) fn thin(
        journal: &Journal,
        disk: &Disk<'_>,
        (undo, sets, void): (u32, &BTreeSet<u32>, &BTreeSet<u32>),
        there: &There,
    ) {
        let removals = || {
            journal.removals().map(|Removal { set, folder, inode, links, number }| {
                let own = sets.contains(&set) || (links > 1 && void.contains(&set));
                // What the undo itself has put there was not looked up.
                let may_be_there =
                    set == undo || there.get(&folder).is_some_and(|there| there.contains(&number));
                (own, may_be_there, (folder, inode), number)
            })
        };
        let mut kept: HashMap<(u32, u64), Vec<Trashed>> = HashMap::new();
        for (own, may_be_there, file, _) in removals() {
            if own && may_be_there {
                kept.insert(file, Vec::new());
            }
        }
        if kept.is_empty() {
            return;
        }
        for (own, may_be_there, file, number) in removals() {
            if let Some(all) = kept.get_mut(&file)
                && may_be_there
                && let Some(found) = disk.trashed(file.0, number)
                && found.inode == file.1
            {
                all.push((number, own, found.links));
            }
        }
        for ((folder, _), all) in kept {
            let count = all.len();
            for (number, _, links) in all.into_iter().filter(|(_, own, _)| *own) {
                // Both numbers become smaller with every one that goes.
                if usize::try_from(links).is_ok_and(|links| links > count)
                    && let Some(trash) = disk.trash(folder)
                {
                    let name = format!("t{number}");
                    ignore(rustix::fs::unlinkat(trash, name, rustix::fs::AtFlags::empty()));
                }
            }
        }
    }
}

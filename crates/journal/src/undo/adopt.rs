//! Finds things that are back already: an undo was interrupted, or the user was faster.

use super::plan::{Plan, Step, join};
use crate::model::names::{Slot, ThingId};
use crate::model::{Disk, Present};
use crate::record::Saved;
use cowork_api::Text;
use cowork_api::files::FileKind;
use rustix::io::Errno;
use std::collections::HashMap;

impl Plan {
    /// Finds things that are back already: an undo was interrupted, or the user was faster.
    pub(super) fn adopt(&mut self, disk: &Disk<'_>) -> Result<(), Errno> {
        let mut gone: Vec<(usize, ThingId)> = self
            .steps
            .iter()
            .filter(|(_, step)| **step == Step::Restore)
            .map(|(id, _)| (self.names.home_path(*id).map_or(0, |path| path.len()), *id))
            .collect();
        gone.sort_unstable();
        let travellers = self.travellers(disk)?;
        for (_, id) in gone {
            let Some(thing) = self.names.thing(id) else { continue };
            let (folder, home) = (thing.folder, thing.home.clone());
            if self.is_elsewhere(id, &travellers, disk)? {
                continue;
            }
            let Slot::In(parent, name) = home else { continue };
            let Some(place) = self.names.path(parent) else { continue };
            let path = join(&place, &name);
            let Some(present) = disk.present(folder, &path)? else { continue };
            let occupant =
                self.names.thing(parent).and_then(|parent| parent.children.get(&name)).copied();
            let leaves = occupant.is_none_or(|other| self.steps.get(&other) == Some(&Step::Remove));
            if leaves && self.is_back(id, occupant, &present, disk) {
                self.step_in(id, occupant, (parent, &name));
                self.recognize(id, &present);
                self.compare_later(id);
            }
        }
        Ok(())
    }

    /// Files that are to be removed, by their number: what an undo of some names brought elsewhere,
    /// or an interrupted one left under a temporary name, is among them.
    fn travellers(&self, disk: &Disk<'_>) -> Result<HashMap<(u32, u64), ThingId>, Errno> {
        let mut found = HashMap::new();
        for (id, step) in &self.steps {
            if *step == Step::Remove
                && self.names.kind(*id) != FileKind::Folder
                && let Some((thing, path)) = self.names.thing(*id).zip(self.names.path(*id))
                && let Some(present) = disk.present(thing.folder, &path)?
            {
                found.insert((thing.folder, present.inode), *id);
            }
        }
        Ok(found)
    }

    /// Whether a thing that is gone is there under another name, which is new; then it is moved.
    fn is_elsewhere(
        &mut self,
        id: ThingId,
        travellers: &HashMap<(u32, u64), ThingId>,
        disk: &Disk<'_>,
    ) -> Result<bool, Errno> {
        let other = self.names.thing(id).and_then(|thing| {
            let (removed, _) = thing.removed.as_ref()?;
            travellers.get(&(thing.folder, removed.inode)).copied()
        });
        let Some((other, thing)) = other.zip(self.names.thing(id)) else { return Ok(false) };
        let (home, folder) = (thing.home.clone(), thing.folder);
        let Some(Slot::In(parent, name)) = self.names.thing(other).map(|thing| thing.now.clone())
        else {
            return Ok(false);
        };
        let Some(path) = self.names.path(other) else { return Ok(false) };
        let Some(present) = disk.present(folder, &path)? else { return Ok(false) };
        if self.steps.get(&other) != Some(&Step::Remove) || !self.is_it(id, &path, &present, disk) {
            return Ok(false);
        }
        self.step_in(id, Some(other), (parent, &name));
        self.recognize(id, &present);
        self.compare_later(id);
        if self.names.thing(id).is_some_and(|thing| thing.now != home) {
            self.steps.insert(id, Step::Move);
        }
        Ok(true)
    }

    fn is_back(
        &self,
        id: ThingId,
        occupant: Option<ThingId>,
        present: &Present,
        disk: &Disk<'_>,
    ) -> bool {
        let Some((Some(removed), body)) =
            self.names.thing(id).map(|thing| thing.removed.as_ref()).zip(self.names.body(id))
        else {
            return false;
        };
        let meta = body.before.as_ref().unwrap_or(&removed.0);
        if present.mode & 0o170_000 != meta.mode & 0o170_000 {
            return false;
        }
        let Some(path) = self.former_path(id) else { return false };
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        match (present.kind(), &removed.1) {
            (FileKind::Folder | FileKind::Other, _) => occupant.is_some(),
            (FileKind::File, Saved::Trash(number)) if disk.trashed(folder, *number).is_some() => {
                disk.trashed(folder, *number).is_some_and(|trashed| trashed.inode == present.inode)
            }
            (FileKind::Link | FileKind::File, _) => self.is_it(id, &path, present, disk),
        }
    }

    /// Whether what is at a path is what a thing was a name of. What was copied is compared; what was
    /// in the trash kept its number, and nobody else got it.
    fn is_it(&self, id: ThingId, path: &[u8], present: &Present, disk: &Disk<'_>) -> bool {
        let Some(thing) = self.names.thing(id) else { return false };
        let Some((_, removed)) = &thing.removed else { return false };
        let contents = self.names.body(id).and_then(|body| body.contents.as_ref());
        match (removed, contents) {
            (Saved::Trash(_) | Saved::Lost(_), _) => self.names.is_like(id, present),
            (Saved::Link(text), _) => disk.target(thing.folder, path).is_ok_and(|now| now == *text),
            (_, Some(saved)) | (saved, None) => {
                disk.says(thing.folder, path, saved).unwrap_or(false)
            }
        }
    }

    /// Where a thing was, by the path that its folder has now.
    fn former_path(&self, id: ThingId) -> Option<Text> {
        let Slot::In(parent, name) = &self.names.thing(id)?.home else { return None };
        Some(join(&self.names.path(*parent)?, name))
    }

    /// Lets a thing that is back take the place of the one that was believed to be there.
    fn step_in(&mut self, id: ThingId, occupant: Option<ThingId>, slot: (ThingId, &[u8])) {
        self.steps.remove(&id);
        if let Some(other) = occupant {
            self.steps.remove(&other);
            self.names.take(other);
            let children = self
                .names
                .things
                .get_mut(other)
                .map(|other| std::mem::take(&mut other.children))
                .unwrap_or_default();
            for (name, child) in children {
                self.names.put(child, id, &name);
                // What is where it was needs no step, although its folder is another now.
                let back = self.names.thing(child).is_some_and(|child| child.home == child.now);
                if back {
                    self.steps.remove(&child);
                }
            }
        }
        self.names.put(id, slot.0, slot.1);
    }

    /// Takes what is there for what the thing is a name of.
    pub(super) fn recognize(&mut self, id: ThingId, present: &Present) {
        let Some(body) = self.names.thing(id).map(|thing| thing.body) else { return };
        if let Some(body) = self.names.bodies.get_mut(body) {
            body.inode = Some(present.inode);
        }
    }

    /// Has the contents of what is back compared with what was kept of it.
    fn compare_later(&mut self, id: ThingId) {
        let Some(thing) = self.names.thing(id) else { return };
        let (body, kept) = (thing.body, thing.removed.as_ref().map(|(_, saved)| saved.clone()));
        if let Some(saved @ (Saved::Pack { .. } | Saved::Copy(_))) = kept
            && let Some(body) = self.names.bodies.get_mut(body)
        {
            body.contents.get_or_insert(saved);
        }
    }
}

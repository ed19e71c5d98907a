//! Which names are names of one file, as inodes tell.

use super::names::{BodyId, Names, ThingId};
use super::tree::kind;
use crate::record::{Entry, Meta, Record, Saved, State};
use cowork_api::files::FileKind;

impl Names {
    /// Learns at the end of a set which inode something has that was made or moved.
    pub(super) fn ended(&mut self, id: ThingId, state: State) {
        let Some(thing) = self.things.get(id) else { return };
        let (folder, index) = (thing.folder, thing.body);
        let Some(body) = self.bodies.get_mut(index) else { return };
        if let Some(inode) = body.inode {
            if self.whole && inode != state.inode {
                self.part(id, state.inode);
            }
            return;
        }
        body.inode = Some(state.inode);
        let fresh = body.made.is_some();
        match self.inodes.get(&(folder, state.inode)).copied() {
            Some(other) if !fresh && self.is_name_of(other, state.mode, 1) => self.join(id, other),
            _ => {
                self.inodes.insert((folder, state.inode), index);
            }
        }
    }

    /// Finds out from the inode whether a name is one of several of a body that is known.
    pub(super) fn identify(&mut self, id: ThingId, before: &Meta) {
        let Some(thing) = self.things.get(id) else { return };
        let (folder, index) = (thing.folder, thing.body);
        let Some(body) = self.bodies.get_mut(index) else { return };
        if body.inode == Some(before.inode) {
            return;
        }
        if body.inode.is_some() {
            // Sets that have no effect, or the user, have put another file under the name.
            if self.whole {
                self.part(id, before.inode);
            } else {
                body.inode = Some(before.inode);
            }
            return;
        }
        body.inode = Some(before.inode);
        let fresh = body.made.is_some();
        match self.inodes.get(&(folder, before.inode)).copied() {
            Some(other) if !fresh && self.is_name_of(other, before.mode, before.links) => {
                self.join(id, other);
            }
            Some(other) if fresh && self.was_removed(other, before) => self.join(id, other),
            _ => {
                self.inodes.insert((folder, before.inode), index);
            }
        }
    }

    /// Forgets whose an inode was that is nobody's after a record: the next file may get its number.
    pub(super) fn freed(&mut self, entry: &Entry) {
        let (at, before) = match &entry.record {
            // What is in the trash keeps it.
            Record::Remove { saved: Saved::Trash(_), .. } => return,
            Record::Remove { at, before, .. } if before.links <= 1 => (at, before),
            Record::RemoveFolder { at, before } => (at, before),
            _ => return,
        };
        self.inodes.remove(&(at.folder, before.inode));
    }

    /// Makes a thing the only name of a body of its own.
    fn part(&mut self, id: ThingId, inode: u64) {
        let Some(thing) = self.things.get(id) else { return };
        let (folder, former) = (thing.folder, thing.body);
        let Some(mut body) = self.bodies.get(former).cloned() else { return };
        if let Some(former) = self.bodies.get_mut(former) {
            former.names.retain(|name| *name != id);
        }
        body.inode = Some(inode);
        body.names = vec![id];
        let index = self.bodies.len();
        self.bodies.push(body);
        self.inodes.insert((folder, inode), index);
        if let Some(thing) = self.things.get_mut(id) {
            thing.body = index;
        }
    }

    fn is_name_of(&self, body: BodyId, mode: u32, links: u32) -> bool {
        // A folder has one name, however many links.
        let file = kind(mode) != FileKind::Folder;
        self.bodies.get(body).filter(|_| file).is_some_and(|body| {
            let before = body.before.as_ref();
            let alike = before.is_none_or(|meta| kind(meta.mode) == kind(mode));
            let several = before.map_or(1, |meta| meta.links).max(links) > 1;
            (several || body.names.len() > 1) && alike
        })
    }

    /// Whether a body lost a name when it was like this: then what is new came from the trash.
    fn was_removed(&self, body: BodyId, before: &Meta) -> bool {
        let state = |meta: &Meta| (meta.inode, meta.size, meta.mtime);
        self.bodies.get(body).is_some_and(|body| {
            body.names.iter().filter_map(|id| self.things.get(*id)?.removed.as_ref()).any(
                |(removed, saved)| {
                    matches!(saved, Saved::Trash(_)) && state(removed) == state(before)
                },
            )
        })
    }

    /// Makes a thing, and all other names of its body, names of another body. Of the former one no
    /// earlier state is known.
    pub(super) fn join(&mut self, id: ThingId, body: BodyId) {
        let Some(former) = self.things.get(id).map(|thing| thing.body) else { return };
        if former == body {
            return;
        }
        let names = self.bodies.get_mut(former).map(|body| std::mem::take(&mut body.names));
        let names = names.unwrap_or_default();
        for name in &names {
            if let Some(thing) = self.things.get_mut(*name) {
                thing.body = body;
            }
        }
        if let Some(body) = self.bodies.get_mut(body) {
            body.names.extend(names);
        }
    }
}

//! Which names an undo is about.

use super::plan::Plan;
use crate::model::Disk;
use crate::model::changes::is_below;
use crate::model::names::{Body, Slot, ThingId};
use crate::record::Saved;
use cowork_api::Text;
use cowork_api::files::{FileKind, Place};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

impl Plan {
    pub(super) fn choose(
        &mut self,
        disk: &Disk<'_>,
        paths: &[Place],
    ) -> Result<BTreeSet<ThingId>, Errno> {
        let all = 0..self.names.things.len();
        if paths.is_empty() {
            self.times.extend(all.clone().filter(|id| self.names.kind(*id) == FileKind::Folder));
            return Ok(all.filter(|id| self.is_candidate(*id)).collect());
        }
        let wanted: Vec<(u32, &[u8])> = paths
            .iter()
            .filter_map(|place| Some((disk.number(&place.grant)?, place.path.as_slice())))
            .collect();
        let mut chosen = BTreeSet::new();
        for id in all {
            let Some(thing) = self.names.thing(id) else { continue };
            let folder = thing.folder;
            let matches = |path: Option<Text>| {
                path.is_some_and(|path| {
                    wanted.iter().any(|(number, top)| *number == folder && is_below(&path, top))
                })
            };
            if matches(self.names.path(id)) || matches(self.names.home_path(id)) {
                if self.is_candidate(id) {
                    chosen.insert(id);
                }
                self.times.insert(id);
            }
        }
        for (folder, path) in &wanted {
            if let Some(now) = self.locate(*folder, path, disk)? {
                chosen.extend(self.fellow(*folder, &now, disk)?);
                chosen.insert(self.names.reach(*folder, &now));
            }
        }
        let mut again = BTreeMap::new();
        loop {
            self.complete(&mut chosen);
            let count = chosen.len();
            for id in chosen.clone() {
                self.send_home(id, &mut chosen, &mut again, disk)?;
            }
            if chosen.len() == count {
                return Ok(chosen);
            }
        }
    }

    /// A name in its place of the file that is at a path, if it was changed by that name, and no record
    /// mentions the path.
    fn fellow(&self, folder: u32, path: &[u8], disk: &Disk<'_>) -> Result<Option<ThingId>, Errno> {
        let Some(present) = disk.present(folder, path)? else { return Ok(None) };
        let is_mentioned = self.names.find(folder, path).is_some();
        if is_mentioned || present.is_folder() || present.links <= 1 {
            return Ok(None);
        }
        for (id, thing) in self.names.things.iter().enumerate() {
            let alike = |body: &Body| body.is_touched() && body.inode == Some(present.inode);
            let stays = thing.folder == folder && thing.home == thing.now;
            if stays
                && self.names.body(id).is_some_and(alike)
                && let Some(other) = self.names.path(id)
                && disk.present(folder, &other)?.is_some_and(|one| one.inode == present.inode)
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Adds what must come back, or make place, for what was chosen.
    fn complete(&self, chosen: &mut BTreeSet<ThingId>) {
        let mut queue: Vec<ThingId> = chosen.iter().copied().collect();
        while let Some(id) = queue.pop() {
            let Some(thing) = self.names.thing(id) else { continue };
            let more: Vec<ThingId> = match &thing.home {
                // A folder goes with all that is in it.
                Slot::Gone => thing.children.values().copied().collect(),
                Slot::In(parent, name) if thing.home != thing.now => {
                    let Some(folder) = self.names.thing(*parent) else { continue };
                    let occupant = folder.children.get(name).copied();
                    let needed = (folder.now == Slot::Gone).then_some(*parent);
                    needed.into_iter().chain(occupant.filter(|other| *other != id)).collect()
                }
                Slot::In(..) | Slot::Root => continue,
            };
            for more in more {
                if self.is_candidate(more) && chosen.insert(more) {
                    queue.push(more);
                }
            }
        }
    }

    /// Has a chosen name go to its former path, also if a folder above it has another path now and
    /// was not chosen: that folder's former place is made again.
    fn send_home(
        &mut self,
        id: ThingId,
        chosen: &mut BTreeSet<ThingId>,
        again: &mut BTreeMap<ThingId, ThingId>,
        disk: &Disk<'_>,
    ) -> Result<(), Errno> {
        let Some(Slot::In(parent, name)) = self.names.thing(id).map(|thing| thing.home.clone())
        else {
            return Ok(());
        };
        let place = self.make_again(parent, chosen, again, disk)?;
        if place != parent
            && let Some(thing) = self.names.things.get_mut(id)
        {
            thing.home = Slot::In(place, name);
            thing.bound = true;
        }
        Ok(())
    }

    /// The path that a name has now which had, or has, this one; nothing if there is none.
    fn locate(&self, folder: u32, path: &[u8], disk: &Disk<'_>) -> Result<Option<Text>, Errno> {
        if disk.present(folder, path)?.is_some() {
            return Ok(Some(path.to_vec()));
        }
        // The longest former path of a known folder that leads to it.
        let leads = (0..self.names.things.len()).filter_map(|id| {
            let thing = self.names.thing(id).filter(|thing| thing.folder == folder)?;
            if thing.home == Slot::Gone {
                return None;
            }
            let home = self.names.home_path(id)?;
            let rest = path.strip_prefix(home.as_slice())?;
            let now = self.names.path(id)?;
            (rest.first() == Some(&b'/') && !home.is_empty())
                .then(|| (home.len(), [&now, rest].concat()))
        });
        let Some((_, now)) = leads.max() else { return Ok(None) };
        Ok(disk.present(folder, &now)?.map(|_| now))
    }

    /// What is where this folder was: itself, or a folder that is made like it.
    fn make_again(
        &mut self,
        like: ThingId,
        chosen: &mut BTreeSet<ThingId>,
        again: &mut BTreeMap<ThingId, ThingId>,
        disk: &Disk<'_>,
    ) -> Result<ThingId, Errno> {
        let Some(thing) = self.names.thing(like).filter(|_| !chosen.contains(&like)) else {
            return Ok(like);
        };
        if let Some(known) = again.get(&like) {
            return Ok(*known);
        }
        let (folder, home) = (thing.folder, thing.home.clone());
        let displaced = thing.home != thing.now;
        let Slot::In(parent, name) = home else { return Ok(like) };
        let above = self.make_again(parent, chosen, again, disk)?;
        if above == parent && !displaced {
            return Ok(like);
        }
        let there = self.names.thing(above).and_then(|folder| folder.children.get(&name)).copied();
        let is_folder = |id: ThingId| -> Result<bool, Errno> {
            let path = self.names.path(id).unwrap_or_default();
            Ok(disk.present(folder, &path)?.is_some_and(|present| present.is_folder()))
        };
        if let Some(there) = there
            && !chosen.contains(&there)
            && is_folder(there)?
        {
            return Ok(there);
        }
        // Something is in the way that goes only if the folder itself comes back.
        if there.is_some() && self.is_candidate(like) {
            chosen.insert(like);
            return Ok(like);
        }
        let path = self.names.path(like).unwrap_or_default();
        let present = disk.present(folder, &path)?.ok_or(Errno::NOENT)?;
        let meta = present.meta(disk.attributes(folder, &path)?);
        let made = self.names.add(folder, Slot::Gone, None);
        if let Some(thing) = self.names.things.get_mut(made) {
            thing.home = Slot::In(above, name);
            thing.bound = true;
            thing.removed = Some((meta, Saved::Empty));
        }
        again.insert(like, made);
        chosen.insert(made);
        Ok(made)
    }
}

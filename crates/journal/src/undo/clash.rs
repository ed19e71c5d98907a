//! Where the user, or a later set, has changed something since, and what is done about it.

use super::describe;
use super::plan::{Plan, Step, join, target};
use crate::model::names::{Slot, ThingId};
use crate::model::{Disk, Present};
use crate::record::{Meta, Saved};
use cowork_api::Text;
use cowork_api::files::{Choice, Conflict, FileKind};
use rustix::io::Errno;
use std::collections::HashMap;

/// Something that is not as the records left it.
#[derive(Clone, Debug)]
pub(super) struct Clash {
    /// The name that it is about.
    pub(super) id: ThingId,
    /// What is wrong.
    pub(super) trouble: Trouble,
    /// What is there now.
    pub(super) present: Option<Present>,
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is not as it was at the end of the last set that touched it.
    Changed,
    /// A later set, which is not taken back, touched it.
    Set(u32),
    /// It is not there.
    Vanished,
    /// Something else is where it was.
    Occupied(ThingId),
    /// It is in a folder that is to be removed.
    Extra,
    /// The folder that it was in is not there.
    Homeless(ThingId),
}

impl Plan {
    /// Decides what is done about each clash, and reports it.
    pub(super) fn settle(
        &mut self,
        clashes: Vec<Clash>,
        disk: &Disk<'_>,
        choice: Choice,
    ) -> Result<(), Errno> {
        let returns = self.returns();
        for clash in clashes {
            let path = match clash.trouble {
                Trouble::Occupied(_) | Trouble::Homeless(_) => self.names.home_path(clash.id),
                _ => self.anywhere(clash.id),
            };
            let at = self.place(clash.id, disk, path);
            let now = match (clash.trouble, &clash.present) {
                (Trouble::Set(set), Some(present)) => {
                    format!("{}, changed by set {set}", describe::present(present))
                }
                (Trouble::Set(set), None) => format!("nothing, removed by set {set}"),
                (_, Some(present)) => describe::present(present),
                (_, None) => "nothing".to_owned(),
            };
            let before = match clash.trouble {
                Trouble::Extra => "nothing".to_owned(),
                _ => self.before(clash.id, &returns),
            };
            let outcome = match choice {
                Choice::Refuse => "nothing is done".to_owned(),
                Choice::Ours => {
                    self.leave(clash.id, &returns);
                    "left as it is".to_owned()
                }
                Choice::Theirs => self.overrule(&clash, disk)?,
                Choice::Both => self.keep_both(&clash, disk)?,
            };
            self.report.conflicts.push(Conflict { at, now, before, outcome });
        }
        Ok(())
    }

    /// Does nothing with a name. What it has replaced is under no other one, and stays away as well.
    fn leave(&mut self, id: ThingId, returns: &HashMap<Slot, ThingId>) {
        let now = self.names.thing(id).map(|thing| &thing.now);
        let replaced = now.and_then(|now| returns.get(now)).copied();
        let replaced = replaced.filter(|other| self.steps.get(other) == Some(&Step::Restore));
        for id in [id].into_iter().chain(replaced) {
            self.steps.remove(&id);
            self.bodies.remove(&id);
        }
    }

    fn before(&self, id: ThingId, returns: &HashMap<Slot, ThingId>) -> String {
        let Some(thing) = self.names.thing(id) else { return "nothing".to_owned() };
        // Of something new, what it has replaced.
        let id = match thing.home {
            Slot::Gone => returns.get(&thing.now).copied(),
            Slot::In(..) | Slot::Root => Some(id),
        };
        match id {
            None => "nothing".to_owned(),
            Some(id) => target(&self.names, id).map_or_else(
                || "as it is, under another name".to_owned(),
                |meta| describe::meta(&meta),
            ),
        }
    }

    fn overrule(&mut self, clash: &Clash, disk: &Disk<'_>) -> Result<String, Errno> {
        match clash.trouble {
            Trouble::Changed | Trouble::Set(_) => {}
            Trouble::Vanished if self.steps.get(&clash.id) == Some(&Step::Remove) => {
                self.steps.remove(&clash.id);
                self.names.take(clash.id);
            }
            Trouble::Vanished => return self.make_anew(clash.id, disk),
            Trouble::Occupied(other) => self.remove_tree(other, disk)?,
            Trouble::Extra => {
                self.remove_tree(clash.id, disk)?;
                return Ok(describe::REMOVED.to_owned());
            }
            Trouble::Homeless(parent) => self.rebuild(parent, disk)?,
        }
        Ok("brought back".to_owned())
    }

    fn keep_both(&mut self, clash: &Clash, disk: &Disk<'_>) -> Result<String, Errno> {
        let id = clash.id;
        match clash.trouble {
            Trouble::Vanished | Trouble::Homeless(_) => self.overrule(clash, disk),
            Trouble::Set(_) if clash.present.is_none() => self.overrule(clash, disk),
            Trouble::Extra => Ok("left as it is".to_owned()),
            Trouble::Occupied(other) => {
                let aside = self.free_name(other, disk)?;
                let outcome = format!("kept as {}", describe::name(&aside));
                self.steps.insert(other, Step::Aside(aside));
                Ok(outcome)
            }
            Trouble::Changed | Trouble::Set(_) if self.steps.get(&id) == Some(&Step::Remove) => {
                let aside = self.free_name(id, disk)?;
                let outcome = format!("kept as {}", describe::name(&aside));
                self.steps.insert(id, Step::Aside(aside));
                Ok(outcome)
            }
            Trouble::Changed | Trouble::Set(_) => {
                let contents = self.names.body(id).and_then(|body| body.contents.clone());
                let kept = contents.filter(|saved| !matches!(saved, Saved::Lost(_)));
                let Some((meta, saved)) = target(&self.names, id).zip(kept) else {
                    return Ok("brought back with what is in it now".to_owned());
                };
                let aside = self.free_name(id, disk)?;
                let outcome = format!("kept as {}", describe::name(&aside));
                self.part(id, aside, (meta, saved));
                Ok(outcome)
            }
        }
    }

    /// Makes the user's version a thing of its own, and the former one a thing that is gone.
    fn part(&mut self, id: ThingId, aside: Text, kept: (Meta, Saved)) {
        let Some(thing) = self.names.thing(id) else { return };
        let (folder, now) = (thing.folder, thing.now.clone());
        let Slot::In(parent, name) = now.clone() else { return };
        self.names.take(id);
        let users = self.names.add(folder, now, None);
        self.names.put(users, parent, &name);
        self.steps.insert(users, Step::Aside(aside));
        self.forget(id, kept);
    }

    /// Takes a thing for gone, to be made from what was kept.
    fn forget(&mut self, id: ThingId, kept: (Meta, Saved)) {
        self.names.take(id);
        self.steps.insert(id, Step::Restore);
        self.bodies.insert(id);
        let Some(thing) = self.names.things.get_mut(id) else { return };
        thing.removed = Some(kept);
        if let Some(body) = self.names.bodies.get_mut(thing.body) {
            body.inode = None;
        }
    }

    /// Brings back something that is not there any more, if it was kept.
    fn make_anew(&mut self, id: ThingId, disk: &Disk<'_>) -> Result<String, Errno> {
        let kept = self.names.body(id).and_then(|body| body.contents.clone());
        let kept = match self.names.kind(id) {
            FileKind::Folder => Some(Saved::Empty),
            _ => kept.filter(|saved| !matches!(saved, Saved::Lost(_))),
        };
        if let Some(kept) = target(&self.names, id).zip(kept) {
            self.forget(id, kept);
            if let Some(Slot::In(parent, _)) = self.names.thing(id).map(|thing| thing.home.clone())
            {
                self.rebuild(parent, disk)?;
            }
            return Ok("brought back".to_owned());
        }
        self.steps.remove(&id);
        self.bodies.remove(&id);
        self.lose(id, disk, "it is not there any more, and was not kept");
        Ok("could not be brought back".to_owned())
    }

    /// Removes something unknown with all that is in it.
    fn remove_tree(&mut self, id: ThingId, disk: &Disk<'_>) -> Result<(), Errno> {
        let mut queue = vec![id];
        while let Some(id) = queue.pop() {
            let Some(folder) = self.names.thing(id).map(|thing| thing.folder) else { continue };
            let Some(path) = self.names.path(id) else { continue };
            let Some(present) = disk.present(folder, &path)? else { continue };
            self.steps.entry(id).or_insert(Step::Remove);
            if present.kind() == FileKind::Folder {
                for name in disk.entries(folder, &path)? {
                    queue.push(self.names.reach(folder, &join(&path, &name)));
                }
            }
        }
        Ok(())
    }

    /// Makes a folder again that the user has removed, and those above it.
    fn rebuild(&mut self, folder: ThingId, disk: &Disk<'_>) -> Result<(), Errno> {
        let mut id = folder;
        while let Some(thing) = self.names.thing(id) {
            let number = thing.folder;
            let place = match (&thing.now, &thing.last) {
                (Slot::Gone, _) if self.steps.get(&id) == Some(&Step::Restore) => break,
                // Another set has removed it.
                (Slot::Gone, Some(last)) => last.slot.clone(),
                (now, _) => now.clone(),
            };
            let Slot::In(parent, _) = place else { break };
            if let Some(path) = self.names.path(id)
                && disk.present(number, &path)?.is_some()
            {
                break;
            }
            let root = disk.present(number, b"")?.ok_or(Errno::NOENT)?;
            let meta = target(&self.names, id).unwrap_or_else(|| root.meta(Vec::new()));
            self.forget(id, (meta, Saved::Empty));
            if let Some(thing) = self.names.things.get_mut(id) {
                thing.home = place;
            }
            id = parent;
        }
        Ok(())
    }

    /// A name beside a thing that nothing has.
    fn free_name(&self, id: ThingId, disk: &Disk<'_>) -> Result<Text, Errno> {
        let Some(Slot::In(parent, name)) = self.names.thing(id).map(|thing| &thing.now) else {
            return Err(Errno::NOENT);
        };
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        let place = self.names.path(*parent).ok_or(Errno::NOENT)?;
        let taken: Vec<&Text> = self
            .steps
            .values()
            .filter_map(|step| match step {
                Step::Aside(name) => Some(name),
                _ => None,
            })
            .collect();
        for number in 1..=u32::MAX {
            let aside = [name, format!(".yours-{number}").as_bytes()].concat();
            if !taken.contains(&&aside) && disk.present(folder, &join(&place, &aside))?.is_none() {
                return Ok(aside);
            }
        }
        Err(Errno::EXIST)
    }
}

//! Carries a plan out: first names, then contents, then attributes, and the times of folders last.
//!
//! Invariant: whatever moment it stops at, each name is as it was or as it will be, or its former
//! state is still in the store; so doing it again finishes it.

use super::describe;
use super::plan::{Plan, Step, join};
use super::prepare::There;
use crate::hand::{By, Hand, Spot};
use crate::model::names::{BodyId, Slot, ThingId};
use crate::model::tree::split;
use crate::model::{Disk, Journal, Present, Scope, last};
use crate::record::Meta;
use cowork_api::Text;
use cowork_api::files::FileKind;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;

/// How names begin that things have on their way.
pub(super) const TEMPORARY: &str = ".cowork-undo-";

/// An undo on its way.
pub(super) struct Work<'a> {
    pub(super) hand: &'a mut Hand,
    pub(super) disk: &'a Disk<'a>,
    pub(super) plan: Plan,
    pub(super) by: By,
    /// Things of which it was said that something was done.
    pub(super) told: HashSet<ThingId>,
    /// Things that were made from what was kept, and need no comparison of contents.
    pub(super) fresh: HashSet<ThingId>,
    /// Folders in which the undo itself made or removed names, as they were.
    pub(super) stirred: BTreeMap<ThingId, Present>,
    /// Folders in which it did more than that with temporary names.
    pub(super) changed: BTreeSet<ThingId>,
    /// Folders that the user has changed since.
    pub(super) foreign: BTreeSet<ThingId>,
    /// What is in the trash of the folders from which something was removed.
    pub(super) there: There,
    /// Which numbers in the trash were once given to a file.
    pub(super) trash: HashMap<(u32, u64), Vec<u64>>,
    /// What is in the trash for other sets.
    pub(super) others: HashSet<(u32, u64)>,
    /// Where things were found in the trash that can only be there.
    pub(super) trashed: RefCell<HashMap<ThingId, u64>>,
    /// What was found there.
    pub(super) found: RefCell<HashMap<(u32, u64), Present>>,
    /// Things that came back from the trash as they were, and the inode of each.
    pub(super) unchanged: HashMap<ThingId, u64>,
    /// The folder in which a name was announced last.
    pub(super) announced: Option<(u32, Text)>,
    /// Folders that were made writable, as they were.
    pub(super) unlocked: HashMap<ThingId, Meta>,
    /// Bodies that have names which no record mentions.
    pub(super) shared: HashSet<BodyId>,
    /// What is to be where.
    claims: HashMap<Slot, ThingId>,
    temporary: u32,
    left: Option<usize>,
}

impl<'a> Work<'a> {
    /// Begins to carry out a plan. After `left` changes it stops, if that is given.
    pub(super) fn new(
        hand: &'a mut Hand,
        disk: &'a Disk<'a>,
        plan: Plan,
        by: By,
        left: Option<usize>,
    ) -> Self {
        let claims = plan
            .steps
            .iter()
            .filter(|(_, step)| matches!(step, Step::Move | Step::Restore))
            .filter_map(|(id, _)| Some((plan.names.thing(*id)?.home.clone(), *id)))
            .collect();
        Self {
            hand,
            disk,
            plan,
            by,
            claims,
            told: HashSet::new(),
            fresh: HashSet::new(),
            stirred: BTreeMap::new(),
            changed: BTreeSet::new(),
            foreign: BTreeSet::new(),
            there: There::new(),
            trash: HashMap::new(),
            others: HashSet::new(),
            trashed: RefCell::default(),
            found: RefCell::default(),
            unchanged: HashMap::new(),
            announced: None,
            unlocked: HashMap::new(),
            shared: HashSet::new(),
            temporary: 0,
            left,
        }
    }

    /// Does everything; the plan comes back with its report, and what is in the trash still.
    pub(super) fn run(mut self, journal: &Journal, scope: &Scope) -> Result<(Plan, There), Errno> {
        self.find_trash(journal, scope);
        self.find_shared()?;
        self.watch_folders()?;
        self.unlock_folders()?;
        self.asides()?;
        self.names()?;
        self.contents()?;
        self.relink()?;
        self.attributes()?;
        self.times()?;
        Ok((self.plan, self.there))
    }

    /// Counts a change; an undo that is interrupted goes no further.
    pub(super) fn tick(&mut self) -> Result<(), Errno> {
        match &mut self.left {
            Some(0) => Err(Errno::CANCELED),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Does something to one name.
    pub(super) fn at<R>(
        &mut self,
        folder: u32,
        path: &[u8],
        act: impl FnOnce(&mut Hand, By, Spot<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.tick()?;
        let parent = self.disk.parent(folder, path)?;
        let name = last(path)?;
        act(self.hand, self.by, Spot { folder, parent: parent.as_fd(), name: &name, path })
    }

    /// Renames. What is under the new name is kept.
    pub(super) fn rename(
        &mut self,
        folder: u32,
        from: &[u8],
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (parent, name) = (self.disk.parent(folder, from)?, last(from)?);
        self.at(folder, to, |hand, by, to| {
            let from = Spot { folder, parent: parent.as_fd(), name: &name, path: from };
            hand.rename(by, from, to, flags)
        })?;
        self.disk.forget();
        self.announced = None;
        // Of two names of one file the kernel leaves both.
        if flags.is_empty() && self.disk.present(folder, from)?.is_some() {
            self.at(folder, from, Hand::remove)?;
        }
        Ok(())
    }

    /// Reports something that was done.
    pub(super) fn did(&mut self, id: ThingId, path: Option<Text>, what: String) {
        self.told.insert(id);
        let place = self.plan.place(id, self.disk, path);
        self.plan.report.done.push((place, what));
    }

    /// Goes on after an error that concerns one name only, and reports it.
    pub(super) fn forgive(&mut self, id: ThingId, outcome: Result<(), Errno>) -> Result<(), Errno> {
        match outcome {
            Ok(()) => Ok(()),
            Err(
                error @ (Errno::CANCELED
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::IO
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::ROFS),
            ) => Err(error),
            Err(error) => {
                self.plan.lose(id, self.disk, &format!("refused: {error}"));
                Ok(())
            }
        }
    }

    /// The temporary name for the next thing, in the granted folder.
    pub(super) fn temporary(&mut self, folder: u32) -> Result<Text, Errno> {
        if let Some(root) = self.plan.names.roots.get(&folder).copied() {
            self.pass(root)?;
        }
        loop {
            self.temporary += 1;
            let name = format!("{TEMPORARY}{}", self.temporary).into_bytes();
            if self.disk.present(folder, &name)?.is_none() {
                return Ok(name);
            }
        }
    }

    /// Remembers what a folder was like before the undo itself changed names in it.
    pub(super) fn stir(&mut self, folder: ThingId) -> Result<(), Errno> {
        self.changed.insert(folder);
        self.pass(folder)
    }

    fn pass(&mut self, folder: ThingId) -> Result<(), Errno> {
        if self.stirred.contains_key(&folder) {
            return Ok(());
        }
        let Some(number) = self.plan.names.thing(folder).map(|thing| thing.folder) else {
            return Ok(());
        };
        if let Some(path) = self.plan.names.path(folder)
            && let Some(present) = self.disk.present(number, &path)?
        {
            self.stirred.insert(folder, present);
        }
        Ok(())
    }

    fn asides(&mut self) -> Result<(), Errno> {
        let steps = std::mem::take(&mut self.plan.steps);
        let (asides, rest) =
            steps.into_iter().partition(|(_, step)| matches!(step, Step::Aside(_)));
        self.plan.steps = rest;
        let asides: BTreeMap<ThingId, Step> = asides;
        for (id, step) in asides {
            let Step::Aside(name) = step else { continue };
            let Some(Slot::In(parent, _)) =
                self.plan.names.thing(id).map(|thing| thing.now.clone())
            else {
                continue;
            };
            let Some(place) = self.plan.names.path(parent) else { continue };
            let outcome = self.shift(id, parent, &name, RenameFlags::NOREPLACE);
            let moved = outcome.is_ok();
            self.forgive(id, outcome)?;
            if moved {
                self.did(id, Some(join(&place, &name)), "your version, kept here".to_owned());
            }
        }
        Ok(())
    }

    /// Renames a thing, also in what is known of names.
    fn shift(
        &mut self,
        id: ThingId,
        parent: ThingId,
        name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let names = &self.plan.names;
        let folder = names.thing(id).map(|thing| thing.folder).ok_or(Errno::NOENT)?;
        let from = names.path(id).ok_or(Errno::NOENT)?;
        let to = join(&names.path(parent).ok_or(Errno::NOENT)?, name);
        if let Some(Slot::In(old, _)) = names.thing(id).map(|thing| thing.now.clone()) {
            self.stir(old)?;
        }
        self.stir(parent)?;
        self.rename(folder, &from, &to, flags)?;
        let occupant = self.plan.names.thing(parent).and_then(|folder| folder.children.get(name));
        if let Some(other) = occupant.copied() {
            self.plan.names.take(other);
        }
        self.plan.names.take(id);
        self.plan.names.put(id, parent, name);
        Ok(())
    }

    /// Brings names where they were, in an order in which each finds its place free.
    fn names(&mut self) -> Result<(), Errno> {
        let mut waiting = self.in_order();
        while !waiting.is_empty() {
            let count = waiting.len();
            let mut still = Vec::new();
            for id in std::mem::take(&mut waiting) {
                match self.plan.steps.get(&id).cloned() {
                    Some(step) if self.is_ready(id, &step) => {
                        self.plan.steps.remove(&id);
                        let outcome = self.step(id, &step);
                        self.forgive(id, outcome)?;
                    }
                    Some(_) => still.push(id),
                    None => {}
                }
            }
            if still.len() == count && !self.loosen(&still)? {
                for id in still {
                    self.plan.steps.remove(&id);
                    self.plan.lose(id, self.disk, "its place is taken, or its folder is missing");
                }
                break;
            }
            waiting = still;
        }
        Ok(())
    }

    fn in_order(&self) -> Vec<ThingId> {
        let names = &self.plan.names;
        let mut order: Vec<(u8, usize, ThingId)> = self
            .plan
            .steps
            .iter()
            .map(|(id, step)| {
                let depth = |path: Option<Text>| {
                    path.map_or(0, |path| path.split(|byte| *byte == b'/').count())
                };
                match step {
                    // Last, since what goes may be another name of what comes.
                    Step::Remove => (4, usize::MAX - depth(names.path(*id)), *id),
                    Step::Move => (1, depth(names.home_path(*id)), *id),
                    Step::Restore | Step::Aside(_) if names.kind(*id) == FileKind::Folder => {
                        (2, depth(names.home_path(*id)), *id)
                    }
                    Step::Restore | Step::Aside(_) => {
                        (3, usize::from(self.in_trash(*id).is_none()), *id)
                    }
                }
            })
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, id)| id).collect()
    }

    fn is_ready(&self, id: ThingId, step: &Step) -> bool {
        let names = &self.plan.names;
        let Some(thing) = names.thing(id) else { return true };
        match step {
            Step::Remove => thing.children.is_empty() && self.heir(id).is_none(),
            Step::Aside(_) => true,
            Step::Move | Step::Restore => {
                let Slot::In(parent, name) = &thing.home else { return true };
                let Some(folder) = names.thing(*parent) else { return true };
                if folder.now == Slot::Gone || names.is_within(*parent, id) {
                    return false;
                }
                match folder.children.get(name) {
                    None => true,
                    Some(other) => self.gives_way(*other, id),
                }
            }
        }
    }

    /// Whether one thing can be replaced by another without a moment in between.
    fn gives_way(&self, old: ThingId, new: ThingId) -> bool {
        let names = &self.plan.names;
        self.plan.steps.get(&old) == Some(&Step::Remove)
            && names.kind(old) != FileKind::Folder
            && names.kind(new) != FileKind::Folder
    }

    /// What is going to replace a thing that is removed.
    fn heir(&self, id: ThingId) -> Option<ThingId> {
        let now = &self.plan.names.thing(id)?.now;
        let heir = self.claims.get(now).copied()?;
        let waits = matches!(self.plan.steps.get(&heir), Some(Step::Move | Step::Restore));
        (waits && self.gives_way(id, heir)).then_some(heir)
    }

    /// Breaks a circle: moves something out of the way. Whether there was something.
    fn loosen(&mut self, waiting: &[ThingId]) -> Result<bool, Errno> {
        for id in waiting.iter().copied() {
            if self.plan.steps.get(&id) != Some(&Step::Move) {
                continue;
            }
            let Some(thing) = self.plan.names.thing(id) else { continue };
            let (folder, now) = (thing.folder, thing.now.clone());
            let root = self.plan.names.roots.get(&folder).copied().ok_or(Errno::NOENT)?;
            let away = matches!(now, Slot::In(parent, name)
                if parent == root && name.starts_with(TEMPORARY.as_bytes()));
            if !away {
                let name = self.temporary(folder)?;
                self.shift(id, root, &name, RenameFlags::NOREPLACE)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step(&mut self, id: ThingId, step: &Step) -> Result<(), Errno> {
        match step {
            Step::Remove => self.remove(id),
            Step::Move => self.move_home(id),
            Step::Restore => self.restore(id),
            Step::Aside(_) => Ok(()),
        }
    }

    fn remove(&mut self, id: ThingId) -> Result<(), Errno> {
        let Some(folder) = self.plan.names.thing(id).map(|thing| thing.folder) else {
            return Ok(());
        };
        let Some(path) = self.plan.names.path(id) else { return Ok(()) };
        let present = self.disk.present(folder, &path)?;
        if let Some(Slot::In(parent, _)) = self.plan.names.thing(id).map(|thing| thing.now.clone())
        {
            self.stir(parent)?;
        }
        if let Some(present) = present {
            self.mend_others(id, folder, &path)?;
            self.at(folder, &path, |hand, by, spot| {
                if present.is_folder() {
                    hand.remove_folder_entry(by, spot)
                } else {
                    hand.remove(by, spot)
                }
            })?;
            if present.is_folder() {
                self.disk.forget();
                self.announced = None;
            }
            if !split(&path).1.starts_with(TEMPORARY.as_bytes()) {
                self.did(id, Some(path), describe::REMOVED.to_owned());
            }
        }
        self.plan.names.take(id);
        Ok(())
    }

    fn move_home(&mut self, id: ThingId) -> Result<(), Errno> {
        let Some(Slot::In(parent, name)) =
            self.plan.names.thing(id).map(|thing| thing.home.clone())
        else {
            return Ok(());
        };
        let from = self.plan.names.path(id).unwrap_or_default();
        let occupant = self.plan.names.thing(parent).and_then(|folder| folder.children.get(&name));
        let flags = match occupant.copied() {
            Some(other) => {
                self.plan.steps.remove(&other);
                RenameFlags::empty()
            }
            None => RenameFlags::NOREPLACE,
        };
        self.shift(id, parent, &name, flags)?;
        let what = format!("moved back from `{}`", String::from_utf8_lossy(&from));
        self.did(id, self.plan.names.path(id), what);
        Ok(())
    }

    fn restore(&mut self, id: ThingId) -> Result<(), Errno> {
        let Some(thing) = self.plan.names.thing(id) else { return Ok(()) };
        let (folder, home) = (thing.folder, thing.home.clone());
        let Slot::In(parent, name) = home else { return Ok(()) };
        let Some(place) = self.plan.names.path(parent) else { return Err(Errno::NOENT) };
        let path = join(&place, &name);
        let occupant = self.plan.names.thing(parent).and_then(|folder| folder.children.get(&name));
        let occupant = occupant.copied();
        self.stir(parent)?;
        if let Some(other) = occupant {
            let on_the_way = self.temporary(folder)?;
            // What is there is better than nothing.
            self.plan.steps.remove(&other);
            if !self.bring(id, &on_the_way)? {
                return Ok(());
            }
            self.rename(folder, &on_the_way, &path, RenameFlags::empty())?;
            self.plan.names.take(other);
        } else if !self.bring(id, &path)? {
            return Ok(());
        }
        self.plan.names.put(id, parent, &name);
        self.learn_inode(id, folder, &path)?;
        self.did(id, Some(path), "brought back".to_owned());
        Ok(())
    }

    /// From now on the other names of a thing's body are names of what is there.
    pub(super) fn learn_inode(
        &mut self,
        id: ThingId,
        folder: u32,
        path: &[u8],
    ) -> Result<(), Errno> {
        let inode = match self.unchanged.get(&id) {
            Some(inode) => Some(*inode),
            None => self.disk.present(folder, path)?.map(|present| present.inode),
        };
        if let Some(body) = self.plan.names.thing(id).map(|thing| thing.body)
            && let Some(body) = self.plan.names.bodies.get_mut(body)
        {
            body.inode = inode;
        }
        Ok(())
    }
}

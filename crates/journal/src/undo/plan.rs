//! What has to be done so that names are as they were.

use super::clash::{Clash, Trouble};
use super::describe;
use crate::model::names::{Body, Names, Slot, Thing, ThingId, Trace};
use crate::model::{Disk, Present};
use crate::record::Meta;
use cowork_api::Text;
use cowork_api::files::{Choice, FileKind, Place, Restored};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What is done with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is new, and goes.
    Remove,
    /// It is gone, and comes back.
    Restore,
    /// It goes back to where it was.
    Move,
    /// It is the user's, and makes place under another name.
    Aside(Text),
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    /// The names as they are; while the plan is carried out they follow.
    pub(super) names: Names,
    /// What is done with names.
    pub(super) steps: BTreeMap<ThingId, Step>,
    /// Names whose contents and attributes are compared with what was.
    pub(super) bodies: BTreeSet<ThingId>,
    /// Folders whose times are brought back.
    pub(super) times: BTreeSet<ThingId>,
    /// What is reported.
    pub(super) report: Restored,
}

/// What a plan is drawn for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    /// Only these names; all if there are none.
    pub(super) paths: &'a [Place],
    /// What to do where the user has changed something since.
    pub(super) choice: Choice,
}

impl Plan {
    /// Draws a plan: which names, what is in the way, and what to do about it.
    pub(super) fn draw(names: Names, disk: &Disk<'_>, task: Task<'_>) -> Result<Self, Errno> {
        let mut plan = Self {
            names,
            steps: BTreeMap::new(),
            bodies: BTreeSet::new(),
            times: BTreeSet::new(),
            report: Restored::default(),
        };
        let chosen = plan.choose(disk, task.paths)?;
        for id in chosen {
            plan.include(id, disk);
        }
        plan.adopt(disk)?;
        let clashes = plan.clashes(disk, task)?;
        plan.settle(clashes, disk, task.choice)?;
        plan.keep_full_folders();
        Ok(plan)
    }

    /// Whether nothing is done because the user has changed something since.
    pub(super) fn is_refused(&self, choice: Choice) -> bool {
        choice == Choice::Refuse && !self.report.conflicts.is_empty()
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.bodies.is_empty()
    }

    /// What would be done.
    pub(super) fn rehearse(mut self, disk: &Disk<'_>) -> Restored {
        let mut told = BTreeSet::new();
        for (id, step) in &self.steps {
            let (path, what) = match step {
                Step::Remove => (self.names.path(*id), describe::REMOVED.to_owned()),
                Step::Restore => (self.names.home_path(*id), "brought back".to_owned()),
                Step::Move => {
                    let from = self.names.path(*id).unwrap_or_default();
                    let what = format!("moved back from `{}`", String::from_utf8_lossy(&from));
                    (self.names.home_path(*id), what)
                }
                Step::Aside(_) => (self.names.path(*id), "your version, kept beside".to_owned()),
            };
            told.insert(*id);
            self.report.done.push((self.place(*id, disk, path), what));
        }
        for id in self.bodies.iter().filter(|id| !told.contains(id)) {
            let body = self.names.body(*id);
            let what = if body.is_some_and(|body| body.was(Trace::Written)) {
                "contents"
            } else {
                "attributes"
            };
            let place = self.place(*id, disk, self.names.path(*id));
            self.report.done.push((place, format!("{what} brought back")));
        }
        self.report
    }

    /// What is to come back where something is that goes, by that place.
    pub(super) fn returns(&self) -> HashMap<Slot, ThingId> {
        let returns =
            self.steps.iter().filter(|(_, step)| matches!(step, Step::Restore | Step::Move));
        let home = |id: ThingId| self.names.thing(id).map(|thing| (thing.home.clone(), id));
        returns.filter_map(|(id, _)| home(*id)).collect()
    }

    /// The place of a path, for people.
    pub(super) fn place(&self, id: ThingId, disk: &Disk<'_>, path: Option<Text>) -> Place {
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        Place { grant: disk.grant(folder), path: path.unwrap_or_default() }
    }

    /// Where a thing is, or else was.
    pub(super) fn anywhere(&self, id: ThingId) -> Option<Text> {
        self.names.path(id).or_else(|| self.names.home_path(id))
    }

    /// Reports something that does not come back.
    pub(super) fn lose(&mut self, id: ThingId, disk: &Disk<'_>, why: &str) {
        let place = self.place(id, disk, self.names.home_path(id).or_else(|| self.names.path(id)));
        self.report.lost.push((place, why.to_owned()));
    }

    pub(super) fn is_candidate(&self, id: ThingId) -> bool {
        let (Some(thing), Some(body)) = (self.names.thing(id), self.names.body(id)) else {
            return false;
        };
        let displaced = thing.bound && thing.home != thing.now;
        let touched = body.is_touched() && thing.home != Slot::Gone;
        displaced || touched
    }

    /// Says what is done with a name that was chosen.
    fn include(&mut self, id: ThingId, disk: &Disk<'_>) {
        let Some(thing) = self.names.thing(id) else { return };
        if !disk.has(thing.folder) {
            self.lose(id, disk, "its folder is not there");
            return;
        }
        let step = match (&thing.home, &thing.now) {
            (Slot::Gone, Slot::In(..)) => Some(Step::Remove),
            (Slot::In(..), Slot::Gone) => Some(Step::Restore),
            (Slot::In(..), Slot::In(..)) if thing.home != thing.now => Some(Step::Move),
            _ => None,
        };
        let touched = self.names.body(id).is_some_and(Body::is_touched);
        if thing.home != Slot::Gone && (touched || step == Some(Step::Restore)) {
            self.bodies.insert(id);
        }
        if let Some(step) = step {
            self.steps.insert(id, step);
        }
    }

    /// Leaves out the removal of folders in which something stays.
    fn keep_full_folders(&mut self) {
        let leaves = |steps: &BTreeMap<ThingId, Step>, id: &ThingId| {
            matches!(steps.get(id), Some(Step::Remove | Step::Move))
        };
        loop {
            let full: Vec<ThingId> = self
                .steps
                .iter()
                .filter(|(id, step)| {
                    **step == Step::Remove
                        && self.names.thing(**id).is_some_and(|thing| {
                            thing.children.values().any(|child| !leaves(&self.steps, child))
                        })
                })
                .map(|(id, _)| *id)
                .collect();
            if full.is_empty() {
                break;
            }
            for id in full {
                self.steps.remove(&id);
            }
        }
    }

    /// Everything that is not as the records left it.
    fn clashes(&mut self, disk: &Disk<'_>, task: Task<'_>) -> Result<Vec<Clash>, Errno> {
        let ids: BTreeSet<ThingId> = self.steps.keys().chain(&self.bodies).copied().collect();
        let mut clashes = Vec::new();
        let mut seen = HashSet::new();
        let returns = self.returns();
        let replaced = self.replaced_since();
        for id in ids {
            let Some(thing) = self.names.thing(id) else { continue };
            let folder = thing.folder;
            let step = self.steps.get(&id).cloned();
            // What nothing replaces may be gone already.
            let may_be_gone = step == Some(Step::Remove) && !returns.contains_key(&thing.now);
            if let Some(path) = self.names.path(id) {
                let present = disk.present(folder, &path)?;
                if present.is_none() && may_be_gone {
                    continue;
                }
                if let Some(trouble) = self.trouble(id, step.as_ref(), present.as_ref()) {
                    clashes.push(Clash { id, trouble, present: present.clone() });
                } else if let Some(present) = &present {
                    self.recognize(id, present);
                }
                if step == Some(Step::Remove)
                    && present.is_some_and(|present| present.kind() == FileKind::Folder)
                {
                    for name in disk.entries(folder, &path)? {
                        let path = join(&path, &name);
                        let id = self.names.reach(folder, &path);
                        if !self.steps.contains_key(&id) {
                            let present = disk.present(folder, &path)?;
                            clashes.push(Clash { id, trouble: Trouble::Extra, present });
                        }
                    }
                }
            } else if step == Some(Step::Restore)
                && let Some(thing) = self.names.thing(id)
                && let Some(set) = thing.foreign.or(replaced.get(&thing.home).copied())
            {
                clashes.push(Clash { id, trouble: Trouble::Set(set), present: None });
            }
            if let Some(clash) = self.occupied(id, step.as_ref(), disk)?
                && seen.insert(clash.id)
            {
                clashes.push(clash);
            } else if let Some(clash) = self.disputed(id, step.as_ref(), &returns) {
                clashes.push(clash);
            }
        }
        if task.paths.is_empty() {
            clashes.extend(self.removed_since());
        }
        Ok(clashes)
    }

    /// Whether two things were at the same place, as far as the records say: sets were undone that
    /// others had built upon.
    fn disputed(
        &self,
        id: ThingId,
        step: Option<&Step>,
        returns: &HashMap<Slot, ThingId>,
    ) -> Option<Clash> {
        if !matches!(step, Some(Step::Restore | Step::Move)) {
            return None;
        }
        let other = *returns.get(&self.names.thing(id)?.home)?;
        let set = *self.names.thing(other)?.sets.last()?;
        (other != id).then_some(Clash { id, trouble: Trouble::Set(set), present: None })
    }

    /// What an undo brought back, which is taken back itself, and another set removed since: both
    /// would be said to have removed it.
    fn removed_since(&self) -> Vec<Clash> {
        let gone = |thing: &Thing| thing.home == Slot::Gone && thing.now == Slot::Gone;
        let things = self.names.things.iter().enumerate();
        things
            .filter(|(_, thing)| gone(thing) && !thing.sets.is_disjoint(&self.names.undos))
            .filter_map(|(id, thing)| {
                let trouble = Trouble::Set(thing.foreign?);
                Some(Clash { id, trouble, present: None })
            })
            .collect()
    }

    /// Places of which another set has removed, or taken away and removed, what replaced something
    /// there.
    fn replaced_since(&self) -> HashMap<Slot, u32> {
        let gone = |thing: &&Thing| thing.home == Slot::Gone && thing.now == Slot::Gone;
        let things = self.names.things.iter().filter(gone);
        things.filter_map(|thing| Some((thing.left.clone()?, thing.foreign?))).collect()
    }

    fn trouble(
        &self,
        id: ThingId,
        step: Option<&Step>,
        present: Option<&Present>,
    ) -> Option<Trouble> {
        let (thing, body) = self.names.thing(id).zip(self.names.body(id))?;
        let Some(present) = present else { return Some(Trouble::Vanished) };
        if let Some(set) = thing.foreign.or(body.foreign) {
            return Some(Trouble::Set(set));
        }
        if body.was(Trace::Between) {
            return Some(Trouble::Changed);
        }
        let only_a_name = step == Some(&Step::Remove) && !self.names.is_new(body);
        let end = self.names.ends.of(thing.folder, &self.names.path(id)?);
        let differs = end.is_some_and(|end| {
            if only_a_name { present.inode != end.inode } else { present.differs(&end) }
        });
        differs.then_some(Trouble::Changed)
    }

    /// Whether a folder that is gone, or in one that is, comes back.
    fn comes_back(&self, folder: ThingId) -> bool {
        let mut id = folder;
        for _ in 0..=self.names.things.len() {
            let Some(thing) = self.names.thing(id) else { return false };
            id = match (&thing.now, &thing.home) {
                (Slot::Root, _) => return true,
                (Slot::In(parent, _), _) => *parent,
                (Slot::Gone, Slot::In(parent, _))
                    if self.steps.get(&id) == Some(&Step::Restore) =>
                {
                    *parent
                }
                (Slot::Gone, _) => return false,
            };
        }
        false
    }

    /// Whether something unknown is where a thing was.
    fn occupied(
        &mut self,
        id: ThingId,
        step: Option<&Step>,
        disk: &Disk<'_>,
    ) -> Result<Option<Clash>, Errno> {
        if !matches!(step, Some(Step::Restore | Step::Move)) {
            return Ok(None);
        }
        let Some(thing) = self.names.thing(id) else { return Ok(None) };
        let (folder, home) = (thing.folder, thing.home.clone());
        let Slot::In(parent, name) = home else { return Ok(None) };
        let Some(place) = self.names.path(parent) else {
            let returns = self.comes_back(parent);
            // In a folder that is not there is nothing, whatever the records say.
            let imagined = self.names.thing(parent).and_then(|parent| parent.children.get(&name));
            if let Some(other) = imagined.copied().filter(|other| !self.steps.contains_key(other)) {
                self.names.take(other);
            }
            let clash = Clash { id, trouble: Trouble::Homeless(parent), present: None };
            return Ok((!returns).then_some(clash));
        };
        let occupant = self.names.thing(parent).and_then(|parent| parent.children.get(&name));
        if let Some(other) = occupant
            && (*other == id || matches!(self.steps.get(other), Some(Step::Remove | Step::Move)))
        {
            return Ok(None);
        }
        let occupant = occupant.copied();
        let path = join(&place, &name);
        let Some(present) = disk.present(folder, &path)? else {
            // Nothing is there, whatever the records say.
            if let Some(other) = occupant {
                self.names.take(other);
            }
            if disk.present(folder, &place)?.is_none() {
                return Ok(Some(Clash { id, trouble: Trouble::Homeless(parent), present: None }));
            }
            return Ok(None);
        };
        let other = self.names.reach(folder, &path);
        Ok(Some(Clash { id, trouble: Trouble::Occupied(other), present: Some(present) }))
    }
}

/// The path of a name in a folder.
pub(super) fn join(place: &[u8], name: &[u8]) -> Text {
    if place.is_empty() { name.to_vec() } else { [place, b"/", name].concat() }
}

/// The first known state of a thing.
pub(super) fn target(names: &Names, id: ThingId) -> Option<Meta> {
    let (thing, body) = names.thing(id).zip(names.body(id))?;
    body.before.clone().or_else(|| thing.removed.as_ref().map(|(meta, _)| meta.clone()))
}

//! Which names were names of one file when a record was written, told from the whole log.
//!
//! Sets that have no effect are left out of a replay, and with them what they say about inodes: a
//! name that they removed and made again is the same name, of another inode. Which names belonged
//! together is therefore told from a replay that leaves nothing out. There a name that turns out to
//! be of another inode than its fellows is one of them no longer, and never was.

use super::Journal;
use super::names::{Names, Slot, ThingId, Whose};
use super::sets::Scope;
use super::tree::kind;
use crate::frames::{Frame, Tag};
use crate::record::{At, Entry, Record};
use cowork_api::Text;
use cowork_api::files::FileKind;

/// A replay of everything that follows the log, and what will be known at its end.
#[derive(Debug)]
pub(super) struct Kin {
    end: Names,
    now: Names,
}

impl Kin {
    /// Reads the log to its end; nothing if there is nothing to be told.
    pub(super) fn of(journal: &Journal, scope: &Scope) -> Option<Self> {
        let asked = |frame: &Frame| {
            let asked = matches!(frame.brief.tag, Tag::Write | Tag::Remove | Tag::Attributes)
                && scope.taken.contains(&frame.brief.set);
            asked && journal.frames.past(frame).is_some_and(|past| is_shared(past.links, past.mode))
        };
        if scope.void.is_empty() || !journal.frames.all().iter().any(asked) {
            return None;
        }
        let mut kin = Self { end: Names::whole(), now: Names::whole() };
        for entry in journal.entries() {
            kin.end.apply(&entry, Whose::Taken(entry.set));
        }
        Some(kin)
    }

    /// Takes the next record.
    pub(super) fn follow(&mut self, entry: &Entry) {
        self.now.apply(entry, Whose::Taken(entry.set));
    }

    /// The other names, before the next record, of the file that it is about.
    fn others(&mut self, at: &At) -> Vec<Text> {
        // Things have the same numbers in both replays: the record itself would reach for it first.
        let id = self.now.reach(at.folder, &at.path);
        let names = self.end.body(id).map(|body| body.names.as_slice()).unwrap_or_default();
        names.iter().filter(|other| **other != id).filter_map(|other| self.path(*other)).collect()
    }

    /// The path that a thing has by now, also one that only a later record mentions.
    fn path(&self, id: ThingId) -> Option<Text> {
        if self.now.thing(id).is_some() {
            return self.now.path(id);
        }
        let thing = self.end.thing(id)?;
        let Slot::In(parent, name) = &thing.home else { return None };
        let mut path = self.path(*parent)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        self.now.find(thing.folder, &path).is_none().then_some(path)
    }
}

impl Names {
    /// Lets the names of the file that the next record is about share one body.
    pub(super) fn unite(&mut self, entry: &Entry, kin: &mut Kin) {
        let Some(at) = shared(entry) else { return };
        for path in kin.others(at) {
            let id = self.reach(at.folder, &at.path);
            let other = self.reach(at.folder, &path);
            let Some((one, two)) = self.body(id).zip(self.body(other)) else { continue };
            if one.made.is_some() || two.made.is_some() {
                continue;
            }
            let bodies = self.thing(id).map(|thing| thing.body).zip(self.thing(other));
            let Some((body, other_body)) = bodies.map(|(body, thing)| (body, thing.body)) else {
                continue;
            };
            match (one.before.is_some(), two.before.is_some()) {
                (_, false) => self.join(other, body),
                (false, true) => self.join(id, other_body),
                (true, true) => {}
            }
        }
    }
}

/// The name in a record that is about a file of several names.
fn shared(entry: &Entry) -> Option<&At> {
    match &entry.record {
        Record::Write { at, before, .. }
        | Record::Remove { at, before, .. }
        | Record::Attributes { at, before } => is_shared(before.links, before.mode).then_some(at),
        _ => None,
    }
}

fn is_shared(links: u32, mode: u32) -> bool {
    links > 1 && kind(mode) != FileKind::Folder
}

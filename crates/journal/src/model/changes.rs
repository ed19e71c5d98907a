//! What changed, as one difference between before and now.
//!
//! A name that was touched and is as it was is no change: files are compared, not believed.

use super::look::Disk;
use super::names::{Names, Slot, ThingId, Trace};
use super::tree::{kind, parts};
use super::{Ground, Journal, Marks, Present};
use crate::acl;
use crate::record::{Meta, Saved};
use crate::undo::describe;
use cowork_api::Text;
use cowork_api::files::{Change, ChangeKind, FileKind, Mark, Place, Selection};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// One change with what its difference is made of.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The change.
    pub(crate) change: Change,
    /// The granted folder's number.
    pub(crate) folder: u32,
    /// Where it was, if it was.
    pub(crate) home: Option<Text>,
    /// Where it is, if it is.
    pub(crate) now: Option<Text>,
    /// What is kept of its contents, if they are others now.
    pub(crate) saved: Option<Saved>,
}

impl Journal {
    /// What changed in the selected sets, by grant and path.
    pub fn changes(
        &self,
        ground: &Ground<'_>,
        selection: &Selection,
        marks: Marks<'_>,
    ) -> Result<Vec<Change>, Errno> {
        let disk = Disk::new(self, ground);
        let found = self.found(&disk, selection, marks)?;
        Ok(found.into_iter().map(|found| found.change).collect())
    }

    /// The same, with where each was and is.
    pub(crate) fn found(
        &self,
        disk: &Disk<'_>,
        selection: &Selection,
        marks: Marks<'_>,
    ) -> Result<Vec<Found>, Errno> {
        let sets = self.selected(&selection.sets);
        let names = Names::replay(self, &self.scope(&sets));
        let view = View { names: &names, disk, marks };
        let mut found = Vec::new();
        let replaced = view.replaced();
        for id in 0..names.things.len() {
            if let Some(change) = view.change(id, &replaced)? {
                found.push(change);
            }
        }
        let wanted = |found: &Found| {
            selection.paths.is_empty()
                || selection.paths.iter().any(|place| {
                    let below = |path: &Option<Text>| {
                        path.as_ref().is_some_and(|path| is_below(path, &place.path))
                    };
                    place.grant == found.change.at.grant
                        && (below(&found.now) || below(&found.home))
                })
        };
        found.retain(wanted);
        found.sort_by(|one, other| one.change.at.cmp(&other.change.at));
        Ok(found)
    }
}

struct View<'a> {
    names: &'a Names,
    disk: &'a Disk<'a>,
    marks: Marks<'a>,
}

impl View<'_> {
    /// Files that are gone and have another one of the same kind under their name: in the eyes of a
    /// person these were written to. New ones by gone ones, and the reverse.
    fn replaced(&self) -> BTreeMap<ThingId, ThingId> {
        let names = self.names;
        let mut replaced = BTreeMap::new();
        for (id, thing) in names.things.iter().enumerate() {
            let Slot::In(parent, name) = &thing.home else { continue };
            if thing.now != Slot::Gone || !thing.bound || names.path(*parent).is_none() {
                continue;
            }
            let heir = names.thing(*parent).and_then(|folder| folder.children.get(name)).copied();
            if let Some(heir) = heir
                && names.thing(heir).is_some_and(|heir| heir.home == Slot::Gone)
                && names.kind(heir) == names.kind(id)
                && !replaced.contains_key(&heir)
            {
                replaced.insert(heir, id);
                replaced.insert(id, heir);
            }
        }
        replaced
    }

    fn change(
        &self,
        id: ThingId,
        replaced: &BTreeMap<ThingId, ThingId>,
    ) -> Result<Option<Found>, Errno> {
        let Some((thing, body)) = self.names.thing(id).zip(self.names.body(id)) else {
            return Ok(None);
        };
        if !self.disk.has(thing.folder) {
            return Ok(None);
        }
        match (&thing.home, &thing.now) {
            (Slot::Gone, Slot::Gone) => Ok(None),
            (Slot::Gone, _) if replaced.contains_key(&id) => Ok(None),
            (Slot::Gone, _) => self.added(id),
            // Another set removed it.
            (_, Slot::Gone) if thing.sets.is_empty() => Ok(None),
            (_, Slot::Gone) if thing.bound => match replaced.get(&id) {
                Some(heir) => self.rewritten(id, *heir),
                None => self.deleted(id),
            },
            (_, Slot::Gone) => Ok(None),
            (home, now) => {
                let moved = thing.bound && home != now;
                if !moved && !body.is_touched() {
                    return Ok(None);
                }
                self.kept(id)
            }
        }
    }

    fn present(&self, id: ThingId) -> Result<Option<(Text, Present)>, Errno> {
        let Some((thing, path)) = self.names.thing(id).zip(self.names.path(id)) else {
            return Ok(None);
        };
        Ok(self.disk.present(thing.folder, &path)?.map(|present| (path, present)))
    }

    fn added(&self, id: ThingId) -> Result<Option<Found>, Errno> {
        let Some((path, present)) = self.present(id)? else { return Ok(None) };
        let mut marks = self.about(id, &path, &present);
        marks.extend(self.runs(id, &path, &present, None));
        Ok(Some(self.found(id, ChangeKind::Added, (None, Some((path, present))), marks)))
    }

    fn deleted(&self, id: ThingId) -> Result<Option<Found>, Errno> {
        let Some(home) = self.names.home_path(id) else { return Ok(None) };
        let Some(meta) = self.before(id) else { return Ok(None) };
        let mut marks = Vec::new();
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        if let Some(present) = self.disk.present(folder, &home)?
            && self.names.find(folder, &home).is_none()
        {
            if present.kind() == kind(meta.mode)
                && (present.size, present.mtime) == (meta.size, meta.mtime)
            {
                return Ok(None);
            }
            marks.push(Mark::Conflict);
        }
        let lost = self.saved(id).as_ref().and_then(lost);
        marks.extend(lost.map(|why| Mark::NotUndoable(why.to_owned())));
        Ok(Some(self.found(id, ChangeKind::Deleted, (Some(home), None), marks)))
    }

    /// A name that was removed and made again.
    fn rewritten(&self, id: ThingId, heir: ThingId) -> Result<Option<Found>, Errno> {
        let Some((path, present)) = self.present(heir)? else { return self.deleted(id) };
        let Some(meta) = self.before(id) else { return Ok(None) };
        let modified = self.is_modified(id, &path, &present, &meta);
        if !modified && !self.is_altered(id, &path, &present, &meta)? {
            return Ok(None);
        }
        let kind = if modified { ChangeKind::Modified } else { ChangeKind::Attributes };
        let mut marks = self.about(heir, &path, &present);
        marks.extend(self.runs(id, &path, &present, Some(&meta)));
        let lost = self.saved(id).as_ref().and_then(lost);
        marks.extend(lost.map(|why| Mark::NotUndoable(why.to_owned())));
        let home = self.names.home_path(id);
        let mut found = self.found(id, kind, (home, Some((path, present))), marks);
        let more = self.names.thing(heir).map(|heir| heir.sets.clone()).unwrap_or_default();
        let sets: BTreeSet<u32> = found.change.sets.iter().copied().chain(more).collect();
        found.change.sets = sets.into_iter().collect();
        Ok(Some(found))
    }

    /// A name that was there before and is there now.
    fn kept(&self, id: ThingId) -> Result<Option<Found>, Errno> {
        let moved =
            self.names.thing(id).is_some_and(|thing| thing.bound && thing.home != thing.now);
        let home = self.names.home_path(id);
        let Some((path, present)) = self.present(id)? else {
            let Some(home) = home else { return Ok(None) };
            let marks = vec![Mark::Conflict];
            return Ok(Some(self.found(id, ChangeKind::Deleted, (Some(home), None), marks)));
        };
        let meta = self.before(id);
        let written = self.names.body(id).is_some_and(|body| body.was(Trace::Written));
        let modified = match &meta {
            Some(meta) if written => self.is_modified(id, &path, &present, meta),
            _ => false,
        };
        let altered = match &meta {
            Some(meta) => self.is_altered(id, &path, &present, meta)?,
            None => false,
        };
        let kind = match &home {
            Some(home) if moved => ChangeKind::Renamed { from: home.clone(), modified },
            _ if modified => ChangeKind::Modified,
            _ if altered => ChangeKind::Attributes,
            _ => return Ok(None),
        };
        let mut marks = self.about(id, &path, &present);
        let newly = modified || altered || moved;
        marks.extend(self.runs(id, &path, &present, meta.as_ref()).into_iter().filter(|_| newly));
        if modified && let Some(why) = self.saved(id).as_ref().and_then(lost) {
            marks.push(Mark::NotUndoable(why.to_owned()));
        }
        Ok(Some(self.found(id, kind, (home, Some((path, present))), marks)))
    }

    fn before(&self, id: ThingId) -> Option<Meta> {
        let (thing, body) = self.names.thing(id).zip(self.names.body(id))?;
        body.before.clone().or_else(|| thing.removed.as_ref().map(|(meta, _)| meta.clone()))
    }

    fn saved(&self, id: ThingId) -> Option<Saved> {
        let (thing, body) = self.names.thing(id).zip(self.names.body(id))?;
        body.contents.clone().or_else(|| thing.removed.as_ref().map(|(_, saved)| saved.clone()))
    }

    fn is_modified(&self, id: ThingId, path: &[u8], present: &Present, meta: &Meta) -> bool {
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        if present.kind() != kind(meta.mode) {
            return true;
        }
        match (present.kind(), self.saved(id)) {
            (FileKind::Folder | FileKind::Other, _) => false,
            (FileKind::Link, Some(Saved::Link(text))) => {
                self.disk.target(folder, path).is_ok_and(|now| now != text)
            }
            (FileKind::File, Some(saved)) if present.size == meta.size => {
                !self.disk.says(folder, path, &saved).unwrap_or(present.mtime == meta.mtime)
            }
            _ => (present.size, present.mtime) != (meta.size, meta.mtime),
        }
    }

    fn is_altered(
        &self,
        id: ThingId,
        path: &[u8],
        present: &Present,
        meta: &Meta,
    ) -> Result<bool, Errno> {
        if present.is_altered(meta) {
            return Ok(true);
        }
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        let mut now = self.disk.attributes(folder, path)?;
        let mut then: Vec<_> =
            meta.attributes.iter().map(|attribute| acl::fill(attribute, &now)).collect();
        now.sort();
        then.sort();
        Ok(now != then)
    }

    /// What a person should know of any name that is there.
    fn about(&self, id: ThingId, path: &[u8], present: &Present) -> Vec<Mark> {
        let mut marks = (self.marks)(path, present.mode);
        let Some((thing, body)) = self.names.thing(id).zip(self.names.body(id)) else {
            return marks;
        };
        let end = self.names.ends.of(thing.folder, path);
        let changed = end.is_some_and(|end| present.differs(&end));
        if changed || body.foreign.is_some() || thing.foreign.is_some() || body.was(Trace::Between)
        {
            marks.push(Mark::Conflict);
        }
        marks
    }

    /// Whether the host may execute a file that it did not execute before.
    fn runs(
        &self,
        id: ThingId,
        path: &[u8],
        present: &Present,
        before: Option<&Meta>,
    ) -> Vec<Mark> {
        if present.kind() != FileKind::File {
            return Vec::new();
        }
        let mark = |why: &str| vec![Mark::RunsHere(why.to_owned())];
        let parts: Vec<&[u8]> = parts(path).collect();
        if parts.windows(2).any(|pair| pair == [b".git".as_slice(), b"hooks"]) {
            return mark("git runs it");
        }
        if present.mode & 0o111 != 0 {
            let was = before.is_some_and(|meta| meta.mode & 0o111 != 0);
            return mark(if was { "a program was changed" } else { "it is executable" });
        }
        let folder = self.names.thing(id).map(|thing| thing.folder).unwrap_or_default();
        let mut start = [0; 2];
        let script = self
            .disk
            .open(folder, path)
            .is_ok_and(|mut file| file.read_exact(&mut start).is_ok() && start == *b"#!");
        if script { mark("it is a script") } else { Vec::new() }
    }

    fn found(
        &self,
        id: ThingId,
        change: ChangeKind,
        where_: (Option<Text>, Option<(Text, Present)>),
        marks: Vec<Mark>,
    ) -> Found {
        let (home, now) = where_;
        let thing = self.names.thing(id);
        let folder = thing.map(|thing| thing.folder).unwrap_or_default();
        let mut sets: BTreeSet<u32> = thing.map(|thing| thing.sets.clone()).unwrap_or_default();
        if let Some(body) = self.names.body(id) {
            sets.extend(&body.sets);
        }
        let meta = self.before(id).filter(|_| home.is_some());
        let file = now.as_ref().map_or_else(|| self.names.kind(id), |(_, present)| present.kind());
        let size = |of: FileKind, size: u64| (of == FileKind::File).then_some(size);
        let before = meta.as_ref().and_then(|meta| size(kind(meta.mode), meta.size));
        let after = now.as_ref().and_then(|(_, present)| size(present.kind(), present.size));
        let now = now.map(|(path, _)| path);
        let path = now.clone().or_else(|| home.clone()).unwrap_or_default();
        Found {
            change: Change {
                at: Place { grant: self.disk.grant(folder), path },
                kind: change,
                file,
                // Of what was only renamed nothing was recorded, and nothing has changed.
                before: before.or(after.filter(|_| home.is_some() && meta.is_none())),
                after,
                sets: sets.into_iter().collect(),
                marks,
            },
            folder,
            saved: self.saved(id),
            home,
            now,
        }
    }
}

fn lost(saved: &Saved) -> Option<&'static str> {
    match saved {
        Saved::Lost(why) => Some(describe::why(*why)),
        _ => None,
    }
}

/// Whether a path is another one or below it.
pub(crate) fn is_below(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    top.is_empty()
        || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

//! Brings contents, attributes and times back.

use super::describe;
use super::execute::Work;
use super::plan::{join, target};
use crate::acl;
use crate::hand::{LinkSource, Opened, Spot};
use crate::model::names::{Body, Slot, ThingId};
use crate::model::tree::{kind, split};
use crate::model::{Present, last};
use crate::record::{Meta, Saved};
use cowork_api::Text;
use cowork_api::files::FileKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;

/// Most names that are looked at to find another name of a file.
const SEARCH: usize = 200_000;

impl Work<'_> {
    /// Makes a removed thing again at a path. Whether it could be made.
    pub(super) fn bring(&mut self, id: ThingId, path: &[u8]) -> Result<bool, Errno> {
        let Some((meta, thing)) = target(&self.plan.names, id).zip(self.plan.names.thing(id))
        else {
            self.plan.lose(id, self.disk, "it is not known what it was");
            return Ok(false);
        };
        let folder = thing.folder;
        let saved = thing.removed.as_ref().map_or(Saved::Same, |(_, saved)| saved.clone());
        match (kind(meta.mode), saved) {
            (FileKind::Folder, _) => {
                let mode = Mode::from_raw_mode((meta.mode & 0o7777) | 0o700);
                self.at(folder, path, |hand, by, spot| hand.make_folder(by, spot, mode))?;
                Ok(true)
            }
            (FileKind::Link, Saved::Link(says)) => {
                if (meta.links > 1 || self.siblings(id) > 0)
                    && let Some(other) = self.other_name(id, folder, &meta)?
                {
                    self.link(folder, &other, path)?;
                    return Ok(true);
                }
                let says = CString::new(says).map_err(|_nul| Errno::INVAL)?;
                self.at(folder, path, |hand, by, spot| hand.make_link(by, spot, &says))?;
                Ok(true)
            }
            (of, saved) => self.bring_file(id, path, (of, &meta, &saved)),
        }
    }

    fn bring_file(
        &mut self,
        id: ThingId,
        path: &[u8],
        was: (FileKind, &Meta, &Saved),
    ) -> Result<bool, Errno> {
        let (of, meta, saved) = was;
        let Some(folder) = self.plan.names.thing(id).map(|thing| thing.folder) else {
            return Ok(false);
        };
        let contents = self.plan.names.body(id).and_then(|body| body.contents.clone());
        let contents = contents.unwrap_or_else(|| saved.clone());
        // A copy is enough unless the file had other names.
        let copied = matches!(contents, Saved::Pack { .. } | Saved::Copy(_));
        if !(copied && meta.links <= 1 && self.siblings(id) == 0) {
            let living = self.living_name(id, folder)?.map(|(_, inode)| inode);
            if let Some(number) = self.in_trash(id)
                && living.is_none_or(|living| {
                    self.disk.trashed(folder, number).is_some_and(|found| found.inode == living)
                })
            {
                self.untrash(folder, path, (number, of))?;
                self.settle_trashed(id, folder, number, meta);
                if !self.others.contains(&(folder, number))
                    && let Some((removed, _)) =
                        self.plan.names.thing(id).and_then(|thing| thing.removed.as_ref())
                {
                    self.left_trash(folder, removed.inode, number);
                }
                return Ok(true);
            }
            if let Some(other) = self.other_name(id, folder, meta)? {
                self.link(folder, &other, path)?;
                return Ok(true);
            }
        }
        if of == FileKind::Other {
            let node = FileType::from_raw_mode(meta.mode);
            let mode = Mode::from_raw_mode(meta.mode & 0o7777);
            if !matches!(node, FileType::Fifo | FileType::Socket) {
                self.plan.lose(id, self.disk, "devices are not made again");
                return Ok(false);
            }
            self.at(folder, path, |hand, by, spot| hand.make_node(by, spot, node, mode))?;
            return Ok(true);
        }
        if let Saved::Lost(why) = contents {
            self.plan.lose(id, self.disk, describe::why(why));
            return Ok(false);
        }
        let Some(kept) = self.disk.kept(folder, &contents).ok().flatten() else {
            self.plan.lose(id, self.disk, "what was kept of it is not there any more");
            return Ok(false);
        };
        self.make_file(folder, path, &kept)?;
        self.fresh.insert(id);
        Ok(true)
    }

    /// Notes what is back from the trash just as it was: it is not looked at again.
    fn settle_trashed(&mut self, id: ThingId, folder: u32, number: u64, meta: &Meta) {
        let Some(found) = self.found.borrow_mut().remove(&(folder, number)) else { return };
        let touched = self.plan.names.body(id).is_some_and(Body::is_touched);
        let alone = found.links <= 1 && meta.links <= 1 && self.siblings(id) == 0;
        let same = (found.mode, found.uid, found.gid, found.mtime)
            == (meta.mode, meta.uid, meta.gid, meta.mtime);
        if same && alone && !touched {
            self.unchanged.insert(id, found.inode);
        }
    }

    fn siblings(&self, id: ThingId) -> usize {
        self.plan.names.body(id).map_or(0, |body| body.names.len().saturating_sub(1))
    }

    /// Makes a file of kept contents, on the disk when this returns.
    fn make_file(
        &mut self,
        folder: u32,
        path: &[u8],
        kept: &crate::save::Contents,
    ) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match self.at(folder, path, |hand, by, spot| hand.open_file(by, spot, flags, mode))? {
            Opened::File(file) => {
                kept.copy_to(file.as_fd())?;
                rustix::fs::fsync(&file)
            }
            Opened::Link | Opened::Special => Err(Errno::EXIST),
        }
    }

    /// Moves something from the trash back to where it was. What another set needs there stays.
    fn untrash(&mut self, folder: u32, path: &[u8], what: (u64, FileKind)) -> Result<(), Errno> {
        let (number, of) = what;
        let trash = self.disk.trash(folder).ok_or(Errno::NOENT)?;
        let needed = self.others.contains(&(folder, number));
        let above = split(path).0;
        let known =
            self.announced.as_ref().is_some_and(|(at, last)| *at == folder && last == above);
        if !known {
            self.announced = Some((folder, above.to_vec()));
        }
        self.at(folder, path, |hand, by, spot| {
            let intent = hand.announce_back(by, spot, (of, known))?;
            let name = format!("t{number}");
            let flags = RenameFlags::NOREPLACE;
            let moved = if needed {
                rustix::fs::linkat(trash, name, spot.parent, spot.name, AtFlags::empty())
            } else {
                rustix::fs::renameat_with(trash, name, spot.parent, spot.name, flags)
            };
            if moved.is_err() {
                hand.failed(intent)?;
            }
            moved
        })
    }

    pub(super) fn link(&mut self, folder: u32, other: &[u8], path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = (self.disk.parent(folder, other)?, last(other)?);
        self.at(folder, path, |hand, by, spot| {
            let source = Spot { folder, parent: parent.as_fd(), name: &name, path: other };
            hand.add_name(by, LinkSource::Name(source), spot)
        })
    }

    /// Another name of what a thing was a name of that is known and in its place, and its inode. Sets
    /// that have no effect may have made all of it again: then the end of the last one says so.
    fn living_name(&self, id: ThingId, folder: u32) -> Result<Option<(Text, u64)>, Errno> {
        let names = &self.plan.names;
        let Some(body) = names.body(id) else { return Ok(None) };
        let Some(inode) = body.inode else { return Ok(None) };
        let mut again = None;
        for other in &body.names {
            let Some(path) = names.path(*other) else { continue };
            let Some(present) = self.disk.present(folder, &path)? else { continue };
            if present.inode == inode {
                return Ok(Some((path, inode)));
            }
            let end = names.ends.of(folder, &path);
            if present.kind() == names.kind(id) && end.is_some_and(|end| !present.differs(&end)) {
                again = again.or(Some((path, present.inode)));
            }
        }
        Ok(again)
    }

    /// Another name that what a thing was a name of has now.
    fn other_name(&self, id: ThingId, folder: u32, meta: &Meta) -> Result<Option<Text>, Errno> {
        let names = &self.plan.names;
        let Some(body) = names.body(id) else { return Ok(None) };
        if let Some((path, _)) = self.living_name(id, folder)? {
            return Ok(Some(path));
        }
        let removed = names.thing(id).and_then(|thing| thing.removed.as_ref());
        let states: Vec<(u64, u64, (i64, u32))> = removed
            .map(|(removed, _)| removed)
            .into_iter()
            .chain([meta])
            .map(|meta| (meta.inode, meta.size, meta.mtime))
            .collect();
        if meta.links <= 1 || body.inode != Some(meta.inode) {
            return Ok(None);
        }
        let mut queue = vec![Text::new()];
        let mut seen = 0;
        while let Some(place) = queue.pop() {
            for name in self.disk.entries(folder, &place).unwrap_or_default() {
                seen += 1;
                let path = join(&place, &name);
                let Some(present) = self.disk.present(folder, &path)? else { continue };
                if present.is_folder() {
                    queue.push(path);
                } else if states.contains(&(present.inode, present.size, present.mtime))
                    && removed.is_none_or(|(_, saved)| {
                        self.disk.says(folder, &path, saved).unwrap_or(true)
                    })
                {
                    return Ok(Some(path));
                }
                if seen > SEARCH {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Brings contents back of files that were written to.
    pub(super) fn contents(&mut self) -> Result<(), Errno> {
        let mut done = BTreeSet::new();
        for id in self.plan.bodies.clone() {
            if self.unchanged.contains_key(&id) {
                continue;
            }
            let Some(thing) = self.plan.names.thing(id) else { continue };
            let (folder, body) = (thing.folder, thing.body);
            let Some(path) = self.plan.names.path(id) else { continue };
            if self.plan.names.kind(id) != FileKind::File || !done.insert(body) {
                continue;
            }
            let outcome = self.rewrite(id, folder, &path);
            self.forgive(id, outcome)?;
        }
        Ok(())
    }

    /// Brings contents and attributes back of a file whose name goes, for its names that no record
    /// mentions.
    pub(super) fn mend_others(
        &mut self,
        id: ThingId,
        folder: u32,
        path: &[u8],
    ) -> Result<(), Errno> {
        let names = &self.plan.names;
        let shared = names.thing(id).is_some_and(|thing| self.shared.contains(&thing.body));
        let Some(meta) = target(names, id).filter(|_| shared) else { return Ok(()) };
        self.rewrite(id, folder, path)?;
        self.adjust(id, folder, path, &meta)?;
        Ok(())
    }

    fn rewrite(&mut self, id: ThingId, folder: u32, path: &[u8]) -> Result<(), Errno> {
        let Some((body, meta)) = self.plan.names.body(id).zip(target(&self.plan.names, id)) else {
            return Ok(());
        };
        let Some(saved) = body.contents.clone() else { return Ok(()) };
        let Some(present) = self.disk.present(folder, path)? else { return Ok(()) };
        if let Saved::Lost(why) = saved {
            let same =
                (present.inode, present.size, present.mtime) == (meta.inode, meta.size, meta.mtime);
            if !same {
                self.plan.lose(id, self.disk, describe::why(why));
            }
            return Ok(());
        }
        if self.fresh.contains(&id)
            || (present.size == meta.size && self.disk.says(folder, path, &saved) == Some(true))
        {
            return Ok(());
        }
        let Some(kept) = self.disk.kept(folder, &saved).ok().flatten() else {
            self.plan.lose(id, self.disk, "what was kept of it is not there any more");
            return Ok(());
        };
        // A file of several names stays the same file, and so does one whose access list names users
        // that cannot be named again.
        let unnameable =
            present.inode == meta.inode && meta.attributes.iter().any(acl::has_unknown);
        if present.links > 1 || meta.links > 1 || self.siblings(id) > 0 || unnameable {
            self.write_in_place(folder, path, (&kept, &present))?;
        } else {
            let on_the_way = self.temporary(folder)?;
            self.make_file(folder, &on_the_way, &kept)?;
            self.adjust(id, folder, &on_the_way, &meta)?;
            if let Some(Slot::In(parent, _)) =
                self.plan.names.thing(id).map(|thing| thing.now.clone())
            {
                self.stir(parent)?;
            }
            self.rename(folder, &on_the_way, path, RenameFlags::empty())?;
            self.learn_inode(id, folder, path)?;
        }
        self.did(id, Some(path.to_vec()), "contents brought back".to_owned());
        Ok(())
    }

    fn write_in_place(
        &mut self,
        folder: u32,
        path: &[u8],
        what: (&crate::save::Contents, &Present),
    ) -> Result<(), Errno> {
        let (kept, present) = what;
        if present.mode & 0o200 == 0 {
            let mode = Mode::from_raw_mode((present.mode & 0o7777) | 0o200);
            self.at(folder, path, |hand, by, spot| hand.set_mode(by, spot, mode))?;
        }
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let open =
            self.at(folder, path, |hand, by, spot| hand.open_file(by, spot, flags, Mode::empty()))?;
        match open {
            Opened::File(file) => {
                kept.copy_to(file.as_fd())?;
                rustix::fs::fsync(&file)
            }
            Opened::Link | Opened::Special => Err(Errno::INVAL),
        }
    }

    /// Brings mode, owner and attributes back, of folders after what is in them.
    pub(super) fn attributes(&mut self) -> Result<(), Errno> {
        let mut order: Vec<(usize, ThingId)> = self
            .plan
            .bodies
            .iter()
            .filter(|id| !self.unchanged.contains_key(id))
            .chain(self.unlocked.keys())
            .filter_map(|id| Some((self.plan.names.path(*id)?.len(), *id)))
            .collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        for (_, id) in order {
            let unlocked = self.unlocked.get(&id).cloned();
            let as_it_was = unlocked.is_some();
            let Some(meta) = unlocked.or_else(|| target(&self.plan.names, id)) else { continue };
            let Some(folder) = self.plan.names.thing(id).map(|thing| thing.folder) else {
                continue;
            };
            let Some(path) = self.plan.names.path(id) else { continue };
            let outcome = self.adjust(id, folder, &path, &meta);
            let changed = outcome == Ok(true) && !as_it_was;
            self.forgive(id, outcome.map(drop))?;
            if changed && !self.told.contains(&id) {
                self.did(id, Some(path), "attributes brought back".to_owned());
            }
        }
        Ok(())
    }

    /// Brings what differs of a name's attributes back. Whether something did.
    fn adjust(
        &mut self,
        id: ThingId,
        folder: u32,
        path: &[u8],
        meta: &Meta,
    ) -> Result<bool, Errno> {
        let Some(present) = self.disk.present(folder, path)? else { return Ok(false) };
        if present.kind() != kind(meta.mode) {
            return Ok(false);
        }
        let mut changed = false;
        if (present.uid, present.gid) != (meta.uid, meta.gid) {
            let (uid, gid) = (Some(meta.uid), Some(meta.gid));
            let outcome =
                self.at(folder, path, |hand, by, spot| hand.set_owner(by, spot, uid, gid));
            match outcome {
                Err(Errno::PERM | Errno::INVAL) => {
                    self.plan.lose(id, self.disk, "its owner may not be changed");
                }
                outcome => outcome?,
            }
            changed = true;
        }
        changed |= self.adjust_extended(id, folder, path, meta)?;
        let mode = if changed {
            // A change of owner or attributes may have changed the mode.
            self.disk.present(folder, path)?.map(|present| present.mode & 0o7777)
        } else {
            Some(present.mode & 0o7777)
        };
        if present.kind() != FileKind::Link && mode != Some(meta.mode & 0o7777) {
            let mode = Mode::from_raw_mode(meta.mode & 0o7777);
            self.at(folder, path, |hand, by, spot| hand.set_mode(by, spot, mode))?;
            changed = true;
        }
        if present.kind() != FileKind::Folder && present.mtime != meta.mtime {
            self.set_times(folder, path, meta)?;
            changed = true;
        }
        Ok(changed)
    }

    fn adjust_extended(
        &mut self,
        id: ThingId,
        folder: u32,
        path: &[u8],
        meta: &Meta,
    ) -> Result<bool, Errno> {
        let present = self.disk.attributes(folder, path)?;
        let wanted: Vec<_> =
            meta.attributes.iter().map(|attribute| acl::fill(attribute, &present)).collect();
        let extra = present.iter().filter(|(name, _)| wanted.iter().all(|(n, _)| n != name));
        let missing = wanted.iter().filter(|attribute| {
            !(present.contains(attribute) || acl::comes_with_mode(attribute, &present))
        });
        let changes: Vec<(&Text, Option<&Vec<u8>>)> = extra
            .map(|(name, _)| (name, None))
            .chain(missing.map(|(name, value)| (name, Some(value))))
            .collect();
        for (name, value) in &changes {
            let name = CString::new(name.as_slice()).map_err(|_nul| Errno::INVAL)?;
            let outcome = self.at(folder, path, |hand, by, spot| match value {
                Some(value) => hand.set_attribute(by, spot, &name, value, XattrFlags::empty()),
                None => hand.remove_attribute(by, spot, &name),
            });
            match outcome {
                // The rest of what it was comes back all the same.
                Err(
                    Errno::PERM
                    | Errno::OPNOTSUPP
                    | Errno::ACCESS
                    | Errno::INVAL
                    | Errno::NODATA
                    | Errno::TOOBIG
                    | Errno::RANGE,
                ) => {
                    let why = refused(name.as_c_str(), value.map(Vec::as_slice));
                    self.plan.lose(id, self.disk, &why);
                }
                outcome => outcome?,
            }
        }
        Ok(!changes.is_empty())
    }

    fn set_times(&mut self, folder: u32, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        let times = times_of(meta);
        self.at(folder, path, |hand, by, spot| hand.set_times(by, spot, &times))
    }

    /// Brings the times of folders back, when nothing changes in them any more.
    pub(super) fn times(&mut self) -> Result<(), Errno> {
        let folders: BTreeSet<ThingId> =
            self.plan.times.iter().chain(self.stirred.keys()).copied().collect();
        for id in folders {
            let Some(folder) = self.plan.names.thing(id).map(|thing| thing.folder) else {
                continue;
            };
            let Some(path) = self.plan.names.path(id) else { continue };
            if !self.disk.has(folder) || self.plan.names.kind(id) != FileKind::Folder {
                continue;
            }
            let Some(meta) = self.times_for(id) else { continue };
            let Some(present) = self.disk.present(folder, &path)? else { continue };
            if present.is_folder() && present.mtime != meta.mtime {
                let times = times_of(&meta);
                let outcome = self
                    .at(folder, &path, |hand, by, spot| hand.set_folder_times(by, spot, &times));
                self.forgive(id, outcome)?;
            }
        }
        Ok(())
    }

    /// The times that a folder gets: those of before; or those that it had until the undo changed
    /// names in it, unless that is a change which it is to show.
    fn times_for(&self, id: ThingId) -> Option<Meta> {
        let before = target(&self.plan.names, id);
        let chosen = self.plan.times.contains(&id);
        if before.is_some() && chosen && !self.foreign.contains(&id) {
            return before;
        }
        if before.is_some() && !chosen && self.changed.contains(&id) {
            return None;
        }
        Some(self.stirred.get(&id)?.meta(Vec::new()))
    }
}

/// The times that something had.
fn times_of(meta: &Meta) -> Timestamps {
    let time = |(seconds, nanoseconds): (i64, u32)| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds),
    };
    Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) }
}

/// Why an attribute does not come back, for a person.
fn refused(name: &CStr, value: Option<&[u8]>) -> String {
    let attribute = (name.to_bytes().to_vec(), value.unwrap_or_default().to_vec());
    if acl::has_unknown(&attribute) {
        return "its access list named users whose numbers are not known".to_owned();
    }
    format!("its attribute `{}` may not be changed", name.to_string_lossy())
}

//! Carries staged changes over into their folder.
//!
//! Everything is done by a [`Hand`] in a set of its own, so that it can be undone. A file gets its
//! new contents under a name of the clerk's and then its own: nobody sees half of it. One that has
//! several names keeps them, and is written to in place.

use super::look::{Seen, attributes, look, look_at, open_below, open_file, target};
use super::walk::{Item, Since, Step, Walk, join};
use super::{Layers, find};
use crate::clerk::Refusal;
use crate::clerk::desk::{Desk, folder, kept_name};
use cowork_api::files::{Choice, Conflict, FileKind, Place, Restored, SetKind};
use cowork_journal::hand::{By, Hand, LinkSource, Opened, Spot};
use cowork_journal::model::Granted;
use cowork_journal::undo::Manner;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod,
    fchown, fsetxattr, futimens,
};
use std::collections::HashMap;
use std::ffi::CString;

/// Most names that are tried for what is kept beside something else.
const TRIES: u32 = 1000;

/// Applies what is staged, at these places or everywhere.
pub(in crate::clerk) fn apply(
    desk: Desk,
    places: &[Place],
    choice: Choice,
    manner: Manner,
) -> Result<Restored, Refusal> {
    let found = find(&desk);
    let mut restored = Restored { done: desk.finished.clone(), ..Restored::default() };
    let is_meant =
        |place: &Place| places.is_empty() || places.iter().any(|one| one.grant == place.grant);
    restored.lost.extend(found.missing.into_iter().filter(|(place, _)| is_meant(place)));
    let walks: Vec<(Layers, Walk)> = found
        .layers
        .into_iter()
        .map(|layers| {
            let walk = layers.walk(&desk, places);
            (layers, walk)
        })
        .collect();
    if walks.iter().any(|(_, walk)| walk.is_cut) {
        let sentence = format!("there are more than {} staged changes", super::MOST);
        return Err(Refusal::new(sentence, "apply a part: name paths"));
    }
    for (layers, walk) in &walks {
        let unknown = walk.unknown.iter().map(|(path, why)| (layers.place(path), why.clone()));
        restored.lost.extend(unknown.filter(|(place, _)| is_meant(place)));
        let conflicts = walk.items.iter().filter(|item| item.since == Since::Changed);
        restored.conflicts.extend(conflicts.map(|item| layers.conflict(item, choice)));
    }
    if choice == Choice::Refuse && !restored.conflicts.is_empty() {
        return Ok(restored);
    }
    if manner == Manner::Rehearsal {
        for (layers, walk) in &walks {
            let meant = walk.items.iter().filter(|item| is_taken(item, choice));
            restored.done.extend(meant.map(|item| (layers.place(&item.path), way(item).into())));
        }
        return Ok(restored);
    }
    if walks.iter().all(|(_, walk)| walk.items.is_empty()) {
        return Ok(restored);
    }
    carry_over(desk, walks, choice, &mut restored)?;
    Ok(restored)
}

fn carry_over(
    desk: Desk,
    walks: Vec<(Layers, Walk)>,
    choice: Choice,
    restored: &mut Restored,
) -> Result<(), Refusal> {
    let failed = |errno| Refusal::kernel("record what is applied", errno);
    let keeping = desk.keeping();
    let trashes: Vec<_> = walks.iter().map(|(layers, _)| desk.trash(&layers.grant)).collect();
    let (store, ..) = desk.hand_over();
    let mut hand = Hand::open(Some(store)).map_err(failed)?;
    keeping.settle();
    let set = hand.begin(SetKind::Apply, 0, Vec::new()).map_err(failed)?;
    restored.set = Some(set);
    for ((layers, walk), trash) in walks.into_iter().zip(trashes) {
        let root = layers.lower.try_clone().map_err(|_error| failed(Errno::MFILE))?;
        let granted = Granted {
            number: 0,
            name: layers.grant.clone(),
            path: layers.kept.path.clone(),
            device: layers.kept.folder.device,
            inode: layers.kept.folder.inode,
        };
        let number = hand.add_folder(folder(granted, root, trash)).map_err(failed)?;
        let mut applier = Applier {
            hand: &mut hand,
            by: By { set, process: 0 },
            folder: number,
            layers: &layers,
            choice,
            at: None,
            names: HashMap::new(),
            kept: HashMap::new(),
            count: 0,
        };
        applier.run(&walk.items, restored);
        hand.remove_folder(number);
    }
    hand.complete(set).and_then(|()| hand.close(set)).map_err(failed)?;
    keeping.settle();
    Ok(())
}

/// Whether a difference is carried over.
fn is_taken(item: &Item, choice: Choice) -> bool {
    match (item.since, choice) {
        (Since::Untouched, _) | (_, Choice::Theirs) => true,
        (Since::Changed, Choice::Refuse | Choice::Ours) => false,
        // Both cannot be kept of something that has no contents.
        (Since::Changed, Choice::Both) => item.step == Step::Replace,
    }
}

/// What is done with a name, in a word.
fn way(item: &Item) -> &'static str {
    match item.step {
        Step::Add => "added",
        Step::Replace => "replaced",
        Step::Remove => "removed",
        Step::Adjust => "attributes set",
    }
}

impl Layers {
    fn place(&self, path: &[u8]) -> Place {
        Place { grant: self.grant.clone(), path: path.to_vec() }
    }

    fn conflict(&self, item: &Item, choice: Choice) -> Conflict {
        let outcome = match choice {
            Choice::Refuse => "nothing is done",
            _ if !is_taken(item, choice) => "left as it is",
            Choice::Both => "kept beside it under another name",
            _ => "replaced by what was staged",
        };
        Conflict {
            at: self.place(&item.path),
            now: describe(item.before.as_ref()),
            before: describe(item.after.as_ref()),
            outcome: outcome.to_owned(),
        }
    }
}

/// What is there, in a few words.
fn describe(seen: Option<&Seen>) -> String {
    let Some(seen) = seen else { return "nothing".into() };
    match seen.file_kind() {
        FileKind::File => format!("a file of {} bytes", seen.size),
        FileKind::Folder => "a folder".into(),
        FileKind::Link => "a symbolic link".into(),
        FileKind::Other => "a pipe, a socket or a device".into(),
    }
}

/// Carries over one folder.
struct Applier<'a> {
    hand: &'a mut Hand,
    by: By,
    folder: u32,
    layers: &'a Layers,
    choice: Choice,
    /// The folder that was worked in last, by its path.
    at: Option<(Vec<u8>, OwnedFd)>,
    /// Under which name a file of several names was carried over, by its inode above.
    names: HashMap<u64, Vec<u8>>,
    /// What the folder's own was kept as, by the path.
    kept: HashMap<Vec<u8>, Vec<u8>>,
    /// How many names of its own it has used.
    count: u64,
}

/// A name, with the folder that it is in.
struct Named {
    parent: OwnedFd,
    name: CString,
    path: Vec<u8>,
}

impl Named {
    fn spot(&self, folder: u32) -> Spot<'_> {
        Spot { folder, parent: self.parent.as_fd(), name: &self.name, path: &self.path }
    }
}

impl Applier<'_> {
    fn run(&mut self, items: &[Item], restored: &mut Restored) {
        let choice = self.choice;
        for item in items.iter().filter(|item| is_taken(item, choice)) {
            let place = self.layers.place(&item.path);
            match self.take(item) {
                Ok(()) => restored.done.push((place, way(item).to_owned())),
                Err(errno) => restored.lost.push((place, reason(errno))),
            }
        }
        for conflict in &mut restored.conflicts {
            if conflict.at.grant == self.layers.grant
                && let Some(kept) = self.kept.get(&conflict.at.path)
            {
                conflict.outcome = format!("kept as `{}`", String::from_utf8_lossy(kept));
            }
        }
        // Last, because what is done in a folder changes its times.
        let is_new = |item: &&Item| item.step == Step::Add && item.file == FileKind::Folder;
        for item in items.iter().rev().filter(is_new) {
            if let (Ok(at), Some(after)) = (self.named(&item.path), &item.after) {
                let spot = at.spot(self.folder);
                cowork_sys::ignore(self.hand.set_times(self.by, spot, &times(after)));
            }
        }
    }

    fn take(&mut self, item: &Item) -> Result<(), Errno> {
        let at = self.named(&item.path)?;
        match (item.step, &item.before, &item.after) {
            (Step::Remove, Some(before), _) if before.is_folder() => {
                self.forget_parent();
                self.hand.remove_folder_entry(self.by, at.spot(self.folder))
            }
            (Step::Remove, _, _) => self.hand.remove(self.by, at.spot(self.folder)),
            (Step::Adjust, _, Some(after)) => self.adjust(&at, after),
            (Step::Add, _, Some(after)) => self.add(&at, after),
            (Step::Replace, Some(before), Some(after)) => {
                if item.since == Since::Changed && self.choice == Choice::Both {
                    self.keep_beside(&at)?;
                    return self.add(&at, after);
                }
                self.replace(&at, before, after)
            }
            _ => Ok(()),
        }
    }

    /// The folder that a path lies in, opened anew when it is another than before.
    fn named(&mut self, path: &[u8]) -> Result<Named, Errno> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => {
                (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default())
            }
            None => (b"".as_slice(), path),
        };
        let name = CString::new(name).map_err(|_nul| Errno::INVAL)?;
        if self.at.as_ref().is_none_or(|(known, _)| known != above) {
            let opened =
                open_below(self.layers.lower.as_fd(), above, OFlags::PATH | OFlags::DIRECTORY)?;
            self.at = Some((above.to_vec(), opened));
        }
        let parent = self.at.as_ref().ok_or(Errno::BADF)?;
        let parent = parent.1.try_clone().map_err(|_error| Errno::MFILE)?;
        Ok(Named { parent, name, path: path.to_vec() })
    }

    fn forget_parent(&mut self) {
        self.at = None;
    }

    fn add(&mut self, at: &Named, after: &Seen) -> Result<(), Errno> {
        let spot = at.spot(self.folder);
        if let Some(first) = self.names.get(&after.inode).cloned() {
            let first = self.named(&first)?;
            let source = LinkSource::Name(first.spot(self.folder));
            return self.hand.add_name(self.by, source, spot);
        }
        match after.kind {
            FileType::RegularFile => {
                let (draft, file) = self.draft(at, after)?;
                drop(file);
                let flags = RenameFlags::NOREPLACE;
                self.finish(&draft, at, flags)?;
            }
            FileType::Directory => {
                self.hand.make_folder(self.by, spot, after.permissions())?;
                self.adjust(at, after)?;
            }
            FileType::Symlink => {
                let (folder, name) = self.staged_parent(&at.path)?;
                self.hand.make_link(self.by, spot, &target(folder.as_fd(), &name)?)?;
                self.own(at, after)?;
                self.hand.set_times(self.by, spot, &times(after))?;
            }
            FileType::Fifo | FileType::Socket => {
                self.hand.make_node(self.by, spot, after.kind, after.permissions())?;
                self.own(at, after)?;
            }
            _ => return Err(Errno::NOTSUP),
        }
        if after.links > 1 && !after.is_folder() {
            self.names.insert(after.inode, at.path.clone());
        }
        Ok(())
    }

    fn replace(&mut self, at: &Named, before: &Seen, after: &Seen) -> Result<(), Errno> {
        let (old, new) = (before.kind, after.kind);
        if (old, new) == (FileType::RegularFile, FileType::RegularFile) {
            if before.links > 1 {
                return self.overwrite(at, after);
            }
            let (draft, file) = self.draft(at, after)?;
            drop(file);
            return self.finish(&draft, at, RenameFlags::empty());
        }
        self.hand.remove(self.by, at.spot(self.folder))?;
        self.add(at, after)
    }

    /// Writes the staged contents into the file that is there.
    fn overwrite(&mut self, at: &Named, after: &Seen) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let opened = self.hand.open_file(self.by, at.spot(self.folder), flags, Mode::empty())?;
        let Opened::File(file) = opened else { return Err(Errno::LOOP) };
        self.fill(&at.path, &file, after)
    }

    /// Makes a file with the staged contents beside the name that it is for.
    fn draft(&mut self, at: &Named, after: &Seen) -> Result<(Named, OwnedFd), Errno> {
        for _ in 0..TRIES {
            self.count += 1;
            let name = format!(".cowork-apply-{}", self.count);
            let draft = at.beside(name.as_bytes())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let spot = draft.spot(self.folder);
            match self.hand.open_file(self.by, spot, flags, Mode::from_raw_mode(0o600)) {
                Ok(Opened::File(file)) => {
                    if let Err(errno) = self.fill(&at.path, &file, after) {
                        cowork_sys::ignore(self.hand.remove(self.by, spot));
                        return Err(errno);
                    }
                    return Ok((draft, file));
                }
                Ok(_) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EXIST)
    }

    fn finish(&mut self, draft: &Named, at: &Named, flags: RenameFlags) -> Result<(), Errno> {
        let (from, to) = (draft.spot(self.folder), at.spot(self.folder));
        let renamed = match self.hand.rename(self.by, from, to, flags) {
            // A file system without the flag: whoever makes the name at this very moment loses.
            Err(Errno::INVAL) if flags == RenameFlags::NOREPLACE => {
                match look(at.parent.as_fd(), &at.name)? {
                    None => self.hand.rename(self.by, from, to, RenameFlags::empty()),
                    Some(_) => Err(Errno::EXIST),
                }
            }
            result => result,
        };
        if renamed.is_err() {
            cowork_sys::ignore(self.hand.remove(self.by, from));
        }
        renamed
    }

    /// Copies contents and everything about them into a file that is new or was saved.
    fn fill(&self, path: &[u8], file: &OwnedFd, after: &Seen) -> Result<(), Errno> {
        let staged = open_file(self.layers.upper.as_fd(), path)?;
        copy(staged.as_fd(), file.as_fd())?;
        let now = look_at(file.as_fd())?;
        if is_root() && (now.uid, now.gid) != (after.uid, after.gid) {
            fchown(file, Some(Uid::from_raw(after.uid)), Some(Gid::from_raw(after.gid)))?;
        }
        for (name, value) in attributes(staged.as_fd()) {
            fsetxattr(file, name.as_c_str(), &value, XattrFlags::empty())?;
        }
        fchmod(file, after.permissions())?;
        futimens(file, &times(after))
    }

    /// Gives a name the owner that it has above. An ordinary user has no choice.
    fn own(&mut self, at: &Named, after: &Seen) -> Result<(), Errno> {
        match look(at.parent.as_fd(), &at.name)? {
            Some(now) if is_root() && (now.uid, now.gid) != (after.uid, after.gid) => {
                let spot = at.spot(self.folder);
                self.hand.set_owner(self.by, spot, Some(after.uid), Some(after.gid))
            }
            _ => Ok(()),
        }
    }

    /// Gives a name the mode, the attributes and the times that it has above.
    fn adjust(&mut self, at: &Named, after: &Seen) -> Result<(), Errno> {
        self.own(at, after)?;
        let spot = at.spot(self.folder);
        if matches!(after.kind, FileType::RegularFile | FileType::Directory) {
            let wanted = open_file(self.layers.upper.as_fd(), &at.path)?;
            let wanted = attributes(wanted.as_fd());
            let there = attributes(open_file(at.parent.as_fd(), at.name.as_bytes())?.as_fd());
            for (name, value) in
                wanted.iter().filter(|(name, value)| there.get(*name) != Some(value))
            {
                let flags = XattrFlags::empty();
                self.hand.set_attribute(self.by, spot, name, value, flags)?;
            }
            for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
                self.hand.remove_attribute(self.by, spot, name)?;
            }
        }
        self.hand.set_mode(self.by, spot, after.permissions())?;
        self.hand.set_times(self.by, spot, &times(after))
    }

    /// Gives what the folder has a name beside its own.
    fn keep_beside(&mut self, at: &Named) -> Result<(), Errno> {
        for number in 1..=TRIES {
            let kept = at.beside(&kept_name(at.name.as_bytes(), number))?;
            let (from, to) = (at.spot(self.folder), kept.spot(self.folder));
            match self.hand.rename(self.by, from, to, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
                Ok(()) => {
                    self.kept.insert(at.path.clone(), kept.name.into_bytes());
                    return Ok(());
                }
            }
        }
        Err(Errno::EXIST)
    }

    /// The folder above that a name lies in, and the name.
    fn staged_parent(&self, path: &[u8]) -> Result<(OwnedFd, CString), Errno> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let above = slash.and_then(|slash| path.get(..slash)).unwrap_or_default();
        let name = slash.map_or(Some(path), |slash| path.get(slash + 1..)).unwrap_or_default();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = open_below(self.layers.upper.as_fd(), above, flags)?;
        Ok((folder, CString::new(name).map_err(|_nul| Errno::INVAL)?))
    }
}

impl Named {
    /// Another name in the same folder.
    fn beside(&self, name: &[u8]) -> Result<Self, Errno> {
        let name = CString::new(name).map_err(|_nul| Errno::INVAL)?;
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        let above = slash.and_then(|slash| self.path.get(..slash)).unwrap_or_default();
        let path = join(above, &name);
        let parent = self.parent.try_clone().map_err(|_error| Errno::MFILE)?;
        Ok(Self { parent, name, path })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The times that something has above. When it was last read is not carried over.
fn times(seen: &Seen) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let (seconds, nanoseconds) = seen.mtime;
    let changed = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: now, last_modification: changed }
}

/// Copies the contents of a file into an empty one.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    const CHUNK: usize = 1 << 30;
    loop {
        match rustix::fs::copy_file_range(from, None, to, None, CHUNK) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                return copy_by_hand(from, to);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// The rest of it, where the kernel does not.
fn copy_by_hand(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    const CHUNK: usize = 256 << 10;
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = match rustix::io::read(from, buffer.as_mut_slice()) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let mut rest = buffer.get(..read).unwrap_or_default();
        while !rest.is_empty() {
            let written = rustix::io::write(to, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
    }
}

/// Why something could not be carried over.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::NOTEMPTY => "the folder still has something in it".into(),
        Errno::XDEV => "something else is mounted there".into(),
        Errno::NOTSUP => "a device cannot be made".into(),
        errno => errno.to_string(),
    }
}

//! Folders whose changes stay beside them: what would change if they were applied, and applying them.
//!
//! In a store `staged/NAME` belongs to the grant of that name: `upper` is the layer of the overlay
//! that takes every change, `folder` says which folder lies below. Both sides are compared as they
//! are now; nothing is remembered about what was applied, but the records say which of the folder's
//! files are as an apply left them.
//!
//! The upper layer is only read: an overlay that is mounted keeps its view of it.

mod apply;
mod look;
#[cfg(test)]
mod tests;
mod walk;

pub(super) use apply::apply;
pub(super) use look::open_file;

use super::desk::{Desk, lies_in, matches_any, open_granted};
use super::marks::Reader;
use cowork_api::files::{Change, Difference, FileKind, Kept, Place, Sets};
use cowork_api::plan::Identity;
use cowork_journal::model::Granted;
use cowork_journal::record::State;
use cowork_sys::Errno;
use look::{Marking, Seen, enter, names};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat, renameat};
use std::collections::HashMap;
use std::fs::File;
use walk::{Item, Step, Walk, Walker};

/// The number that stands for what is staged, where changes have the number of their set.
const STAGED: u32 = 0;
/// The folder of a store that this is about.
const FOLDER: &[u8] = b"staged";
/// How the name of staged changes begins that were discarded.
const DISCARDED: &[u8] = b".discarded-";
/// Says which folder lies below.
const NOTE: &str = "folder";
/// Longest such note.
const NOTE_BYTES: usize = 64 << 10;
/// Most differences that are looked at.
const MOST: usize = 1_000_000;

/// Writes down which folder the changes that are staged in `own` belong to.
pub(crate) fn note(own: BorrowedFd<'_>, kept: &Kept) -> Result<(), Errno> {
    const NEW: &str = "folder.new";
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(own, NEW, flags, Mode::from_raw_mode(0o644))?;
    let bytes = cowork_api::encode(kept);
    if rustix::io::write(&file, &bytes)? != bytes.len() {
        return Err(Errno::NOSPC);
    }
    renameat(own, NEW, own, NOTE)
}

/// Whether what is staged in `own` belongs to another folder.
pub(crate) fn is_of_another(own: BorrowedFd<'_>, folder: Identity) -> bool {
    read_note(own).is_some_and(|kept| kept.folder != folder)
}

fn read_note(own: BorrowedFd<'_>) -> Option<Kept> {
    let file = open_file(own, NOTE.as_bytes()).ok()?;
    let mut bytes = vec![0; NOTE_BYTES];
    let length = rustix::io::pread(&file, bytes.as_mut_slice(), 0).ok()?;
    cowork_api::decode(bytes.get(..length)?).ok()
}

/// Both sides of a staged folder.
#[derive(Debug)]
struct Layers {
    grant: String,
    kept: Kept,
    upper: OwnedFd,
    lower: OwnedFd,
}

/// The staged folders of a store, and those that are not there, with why.
#[derive(Debug, Default)]
struct Found {
    layers: Vec<Layers>,
    missing: Vec<(Place, String)>,
}

fn find(desk: &Desk) -> Found {
    let mut found = Found::default();
    let Ok(all) = enter(desk.store.as_fd(), FOLDER) else { return found };
    for name in names(all.as_fd()).unwrap_or_default() {
        let Ok(grant) = name.to_str().map(str::to_owned) else { continue };
        if name.as_bytes().starts_with(DISCARDED) {
            continue;
        }
        let Ok(own) = enter(all.as_fd(), name.as_bytes()) else { continue };
        let Some(kept) = read_note(own.as_fd()) else { continue };
        let upper = enter(own.as_fd(), b"upper");
        let lower = open_granted(&kept.path, kept.folder).and_then(|lower| {
            enter(lower.as_fd(), b"").map_err(|errno| format!("cannot read the folder: {errno}"))
        });
        match (upper, lower) {
            (Ok(upper), Ok(lower)) => {
                found.layers.push(Layers { grant, kept, upper, lower });
            }
            (Err(errno), _) => {
                let why = format!("cannot read what is staged: {errno}");
                found.missing.push((Place { grant, path: Vec::new() }, why));
            }
            (_, Err(why)) => found.missing.push((Place { grant, path: Vec::new() }, why)),
        }
    }
    found
}

impl Layers {
    /// All differences of the names that are meant.
    fn walk(&self, desk: &Desk, places: &[Place]) -> Walk {
        let known = self.known(desk);
        let is_meant = |path: &[u8], step: Step, file: FileKind| {
            // A folder that is new comes with what is meant in it.
            let leads_there = || {
                (step, file) == (Step::Add, FileKind::Folder)
                    && places
                        .iter()
                        .any(|place| place.grant == self.grant && lies_in(&place.path, path))
            };
            matches_any(places, &self.grant, path) || leads_there()
        };
        let mut walker = Walker {
            marking: Marking::own(),
            known: &known,
            is_meant: &is_meant,
            most: MOST,
            walk: Walk::default(),
        };
        walker.run(self.upper.as_fd(), self.lower.as_fd());
        walker.walk
    }

    /// What the records say of each name after its last set.
    fn known(&self, desk: &Desk) -> HashMap<Vec<u8>, State> {
        let own = |granted: &Granted| {
            (granted.name.as_str(), granted.device, granted.inode)
                == (self.grant.as_str(), self.kept.folder.device, self.kept.folder.inode)
        };
        let Some(number) = desk.journal.folders().into_iter().find(own).map(|own| own.number)
        else {
            return HashMap::new();
        };
        let mut known = HashMap::new();
        for (at, state) in desk.journal.ends().filter(|(at, _)| at.folder == number) {
            match state {
                Some(state) => known.insert(at.path, state),
                None => known.remove(&at.path),
            };
        }
        known
    }
}

/// Whether staged changes are among those that are meant.
pub(super) fn is_meant(sets: &Sets) -> bool {
    match sets {
        Sets::All => true,
        Sets::Last => false,
        Sets::Numbers(numbers) => numbers.contains(&STAGED),
    }
}

/// What would change if it were applied.
pub(super) fn changes(desk: &Desk, places: &[Place], reader: &Reader) -> Vec<Change> {
    let found = find(desk);
    let mut changes = Vec::new();
    for layers in &found.layers {
        let walk = layers.walk(desk, places);
        changes.extend(walk.items.iter().map(|item| layers.change(item, reader)));
    }
    changes
}

impl Layers {
    fn change(&self, item: &Item, reader: &Reader) -> Change {
        let mut change = item.change(&self.grant);
        reader.mark(&mut change, Some(self.upper.as_fd()));
        change
    }

    /// The difference of contents, and what is said instead of it.
    fn compare(&self, item: &Item, left: &mut u64) -> (Option<String>, Option<String>) {
        let has_contents = item.file == FileKind::File && item.step != Step::Adjust;
        if !has_contents {
            return (None, None);
        }
        let side = |root: BorrowedFd<'_>, seen: Option<&Seen>| {
            let length = seen.and_then(Seen::length)?;
            let file = open_file(root, &item.path).ok()?;
            Some((item.path.as_slice(), File::from(file), length))
        };
        let before = side(self.lower.as_fd(), item.before.as_ref());
        let after = side(self.upper.as_fd(), item.after.as_ref());
        let (text, note) = cowork_journal::diff::of_files(before, after);
        let length = text.as_ref().map_or(0, String::len) as u64;
        if length > *left {
            return (None, Some("too long to be shown here; ask for it alone".into()));
        }
        *left -= length;
        (text, note)
    }
}

/// How the contents would differ, `most` bytes of text at the most.
pub(super) fn differences(
    desk: &Desk,
    places: &[Place],
    reader: &Reader,
    most: u64,
) -> Vec<Difference> {
    let mut left = most;
    let mut differences = Vec::new();
    for layers in &find(desk).layers {
        for item in &layers.walk(desk, places).items {
            let change = layers.change(item, reader);
            let (text, note) = layers.compare(item, &mut left);
            differences.push(Difference { change, text, note });
        }
    }
    differences
}

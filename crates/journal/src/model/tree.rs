//! Questions about the tree of names.

use super::look::Present;
use super::names::{Body, Names, Slot, Thing, ThingId};
use crate::record::Meta;
use cowork_api::Text;
use cowork_api::files::FileKind;

impl Names {
    /// The thing with this number.
    pub(crate) fn thing(&self, id: ThingId) -> Option<&Thing> {
        self.things.get(id)
    }

    /// What a thing is a name of.
    pub(crate) fn body(&self, id: ThingId) -> Option<&Body> {
        self.bodies.get(self.things.get(id)?.body)
    }

    /// The path that a thing has now.
    pub(crate) fn path(&self, id: ThingId) -> Option<Text> {
        self.trail(id, |thing| &thing.now)
    }

    /// The path that it had before.
    pub(crate) fn home_path(&self, id: ThingId) -> Option<Text> {
        self.trail(id, |thing| &thing.home)
    }

    /// The thing that is at a path now, if it is known.
    pub(crate) fn find(&self, folder: u32, path: &[u8]) -> Option<ThingId> {
        let mut id = *self.roots.get(&folder)?;
        for part in parts(path) {
            id = *self.things.get(id)?.children.get(part)?;
        }
        Some(id)
    }

    /// Whether nothing had this body before.
    pub(crate) fn is_new(&self, body: &Body) -> bool {
        body.names
            .iter()
            .all(|id| self.things.get(*id).is_none_or(|thing| thing.home == Slot::Gone))
    }

    /// Whether a file is the one that a thing was a name of, as it was when that was removed, or as
    /// it was before. A number alone proves nothing: it is given to another file later.
    pub(crate) fn is_like(&self, id: ThingId, found: &Present) -> bool {
        let Some((thing, body)) = self.thing(id).zip(self.body(id)) else { return false };
        let Some((removed, _)) = &thing.removed else { return false };
        let is = |meta: &Meta| {
            (found.size, found.mtime) == (meta.size, meta.mtime)
                && found.mode & 0o170_000 == meta.mode & 0o170_000
        };
        found.inode == removed.inode && (is(removed) || body.before.as_ref().is_some_and(is))
    }

    /// What a thing is or was.
    pub(crate) fn kind(&self, id: ThingId) -> FileKind {
        let Some(body) = self.body(id) else { return FileKind::Other };
        let removed = self.thing(id).and_then(|thing| thing.removed.as_ref()).map(|(meta, _)| meta);
        match body.before.as_ref().or(removed) {
            Some(meta) => kind(meta.mode),
            None => body.made.unwrap_or(FileKind::Folder),
        }
    }

    /// Whether a thing is, or is inside, another one now.
    pub(crate) fn is_within(&self, id: ThingId, folder: ThingId) -> bool {
        let mut id = id;
        for _ in 0..=self.things.len() {
            if id == folder {
                return true;
            }
            match self.things.get(id).map(|thing| &thing.now) {
                Some(Slot::In(parent, _)) => id = *parent,
                _ => return false,
            }
        }
        false
    }

    fn trail<'a>(&'a self, id: ThingId, of: impl Fn(&'a Thing) -> &'a Slot) -> Option<Text> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut id = id;
        // A home inside itself cannot be: each step goes to a folder that was there before.
        for _ in 0..=self.things.len() {
            match of(self.things.get(id)?) {
                Slot::Root => {
                    parts.reverse();
                    return Some(parts.join(&b'/'));
                }
                Slot::In(parent, name) => {
                    parts.push(name);
                    id = *parent;
                }
                Slot::Gone => return None,
            }
        }
        None
    }
}

/// What a file type is.
pub(crate) fn kind(mode: u32) -> FileKind {
    match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Folder,
        0o120_000 => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// The folder part of a path, and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => {
            let (parent, name) = path.split_at(slash);
            (parent, name.get(1..).unwrap_or_default())
        }
        None => (&[], path),
    }
}

/// The names of a path.
pub(crate) fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

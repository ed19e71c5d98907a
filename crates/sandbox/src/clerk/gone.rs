//! What changed in folders that are not there any more, as far as the records say by themselves.

use super::desk::{Desk, Missing, matches_any};
use cowork_api::files::{Change, ChangeKind, FileKind, Mark, Place, Selection};
use cowork_journal::record::{At, Record};
use rustix::fs::FileType;
use std::collections::BTreeMap;

/// The changes of the selected sets in folders that are not there. None of them can be undone.
pub(super) fn changes(desk: &Desk, selection: &Selection) -> Vec<Change> {
    let sets = desk.journal.selected(&selection.sets);
    let mut all = Vec::new();
    for missing in &desk.missing {
        let mut names = Names { missing, known: BTreeMap::new() };
        for entry in desk.journal.entries_of(&sets) {
            names.read(entry.set, &entry.record);
        }
        all.extend(
            names
                .known
                .into_values()
                .filter(|change| matches_any(&selection.paths, &change.at.grant, &change.at.path)),
        );
    }
    all
}

/// The names of one folder that changed.
struct Names<'a> {
    missing: &'a Missing,
    known: BTreeMap<Vec<u8>, Change>,
}

impl Names<'_> {
    fn read(&mut self, set: u32, record: &Record) {
        match record {
            Record::Write { at, .. } => self.note(set, at, ChangeKind::Modified, FileKind::File),
            Record::Attributes { at, before } => {
                self.note(set, at, ChangeKind::Attributes, kind(before.mode));
            }
            Record::Create { at, kind, .. } => {
                let made = match self.known.get(&at.path) {
                    Some(known) if known.kind == ChangeKind::Deleted => ChangeKind::Modified,
                    _ => ChangeKind::Added,
                };
                self.forget(at);
                self.note(set, at, made, *kind);
            }
            Record::Remove { at, before, .. } | Record::RemoveFolder { at, before } => {
                let known = self.known.get(&at.path);
                let is_new = known.is_some_and(|known| known.kind == ChangeKind::Added);
                self.forget(at);
                if !is_new {
                    self.note(set, at, ChangeKind::Deleted, kind(before.mode));
                }
            }
            Record::Rename { from, to, kind, .. } => {
                let known = self.known.get(&from.path);
                let made = match known.map(|known| known.kind.clone()) {
                    Some(ChangeKind::Added) => ChangeKind::Added,
                    Some(ChangeKind::Renamed { from, modified }) => {
                        ChangeKind::Renamed { from, modified }
                    }
                    known => ChangeKind::Renamed {
                        from: from.path.clone(),
                        modified: known == Some(ChangeKind::Modified),
                    },
                };
                self.forget(from);
                self.forget(to);
                self.note(set, to, made, *kind);
            }
            Record::Exchange { one, other, .. } => {
                self.note(set, one, ChangeKind::Modified, FileKind::File);
                self.note(set, other, ChangeKind::Modified, FileKind::File);
            }
            _ => {}
        }
    }

    fn is_own(&self, at: &At) -> bool {
        at.folder == self.missing.granted.number
    }

    fn forget(&mut self, at: &At) {
        if self.is_own(at) {
            self.known.remove(&at.path);
        }
    }

    /// Notes a change. What it was called first counts, unless only attributes were changed then.
    fn note(&mut self, set: u32, at: &At, kind: ChangeKind, file: FileKind) {
        if !self.is_own(at) {
            return;
        }
        let grant = &self.missing.granted.name;
        let change = self.known.entry(at.path.clone()).or_insert_with(|| Change {
            at: Place { grant: grant.clone(), path: at.path.clone() },
            kind: kind.clone(),
            file,
            before: None,
            after: None,
            sets: Vec::new(),
            marks: vec![Mark::NotUndoable(self.missing.why.clone())],
        });
        if change.kind == ChangeKind::Attributes {
            change.kind = kind;
        }
        if !change.sets.contains(&set) {
            change.sets.push(set);
        }
    }
}

fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

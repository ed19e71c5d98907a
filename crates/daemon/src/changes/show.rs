//! Reports of clerks as the API says them.

use super::authors::Authors;
use super::clerk::Origins;
use super::kept::Entry;
use crate::book::at;
use cowork_api::files::{self, Place};
use cowork_client::types::{
    Change, ChangeConflict, ChangeKind, ChangeMark, ChangeSet, ChangedFile, ChangedFolder,
    Difference, MarkKind, NamePolicy, OnConflict, Raw, Restored, RestoredName, SetKind,
};
use std::time::{Duration, UNIX_EPOCH};

/// Most names that an answer lists of what was brought back.
const MAX_DONE: usize = 1000;

/// A moment that is counted in nanoseconds since 1970.
pub(super) fn moment(nanoseconds: u64) -> String {
    at(UNIX_EPOCH + Duration::from_nanos(nanoseconds))
}

/// A set, with the command and the task it is of.
pub(super) fn set(info: files::SetInfo, origins: &Origins) -> ChangeSet {
    let (kind, undoes) = match info.kind {
        files::SetKind::Command => (SetKind::Command, Vec::new()),
        files::SetKind::Undo(sets) => (SetKind::Undo, sets),
        files::SetKind::Apply => (SetKind::Apply, Vec::new()),
    };
    let folder = |(grant, path): (String, Vec<u8>)| ChangedFolder { grant, path: Raw::new(path) };
    ChangeSet {
        set: info.set,
        kind,
        undoes,
        command: origins.commands.get(&info.set).copied(),
        process: Some(info.root).filter(|root| *root != 0),
        task: origins.tasks.get(&info.set).copied(),
        argv: info.argv.into_iter().map(Raw::new).collect(),
        began: moment(info.began),
        last: moment(info.last),
        records: info.records,
        undone_by: info.undone_by,
        folders: info.folders.into_iter().map(folder).collect(),
    }
}

/// A change, with where it lies on the host and who made it.
pub(super) fn change(entry: &Entry, change: files::Change, authors: &mut Authors) -> Change {
    let (kind, from, modified) = match change.kind {
        files::ChangeKind::Added => (ChangeKind::Added, None, false),
        files::ChangeKind::Modified => (ChangeKind::Modified, None, true),
        files::ChangeKind::Deleted => (ChangeKind::Deleted, None, false),
        files::ChangeKind::Renamed { from, modified } => {
            (ChangeKind::Renamed, Some(Raw::new(from)), modified)
        }
        files::ChangeKind::Attributes => (ChangeKind::Attributes, None, false),
    };
    Change {
        by: authors.of_name(&change.at),
        host: entry.host(&change.at),
        grant: change.at.grant,
        path: Raw::new(change.at.path),
        kind,
        from,
        modified,
        file: match change.file {
            files::FileKind::File => ChangedFile::File,
            files::FileKind::Folder => ChangedFile::Folder,
            files::FileKind::Link => ChangedFile::Link,
            files::FileKind::Other => ChangedFile::Other,
        },
        before: change.before,
        after: change.after,
        sets: change.sets,
        marks: change.marks.into_iter().map(mark).collect(),
    }
}

fn mark(mark: files::Mark) -> ChangeMark {
    let (mark, reason) = match mark {
        files::Mark::NotUndoable(why) => (MarkKind::NotUndoable, Some(why)),
        files::Mark::RunsHere(why) => (MarkKind::RunsHere, Some(why)),
        files::Mark::Protected(why) => (MarkKind::Protected, Some(why)),
        files::Mark::Conflict => (MarkKind::Conflict, None),
        files::Mark::RefusedType(why) => (MarkKind::RefusedType, Some(why)),
    };
    ChangeMark { mark, reason }
}

/// A difference of contents.
pub(super) fn difference(
    entry: &Entry,
    difference: files::Difference,
    authors: &mut Authors,
) -> Difference {
    let files::Difference { change: changed, text, note } = difference;
    Difference { change: change(entry, changed, authors), text, note }
}

/// What was brought back.
pub(super) fn restored(entry: &Entry, restored: files::Restored) -> Restored {
    let name = |(at, how): (Place, String)| RestoredName { host: entry.host(&at), how };
    let conflict = |conflict: files::Conflict| ChangeConflict {
        host: entry.host(&conflict.at),
        now: conflict.now,
        before: conflict.before,
        outcome: conflict.outcome,
    };
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Restored {
        set: restored.set,
        names: count(restored.done.len()),
        done: restored.done.into_iter().take(MAX_DONE).map(name).collect(),
        conflicts: restored.conflicts.into_iter().take(MAX_DONE).map(conflict).collect(),
        lost: restored.lost.into_iter().take(MAX_DONE).map(name).collect(),
    }
}

/// What to do about conflicts, as a clerk is told it.
pub(super) fn choice(choice: OnConflict) -> files::Choice {
    match choice {
        OnConflict::Refuse => files::Choice::Refuse,
        OnConflict::Ours => files::Choice::Ours,
        OnConflict::Theirs => files::Choice::Theirs,
        OnConflict::Both => files::Choice::Both,
    }
}

/// A policy, as the keeper is told it.
pub(super) fn policy(policy: NamePolicy) -> files::NamePolicy {
    match policy {
        NamePolicy::Allow => files::NamePolicy::Allow,
        NamePolicy::Flag => files::NamePolicy::Flag,
        NamePolicy::Ask => files::NamePolicy::Ask,
        NamePolicy::Deny => files::NamePolicy::Deny,
    }
}

/// A policy, as the API says it.
pub(super) fn shown_policy(policy: files::NamePolicy) -> NamePolicy {
    match policy {
        files::NamePolicy::Allow => NamePolicy::Allow,
        files::NamePolicy::Flag => NamePolicy::Flag,
        files::NamePolicy::Ask => NamePolicy::Ask,
        files::NamePolicy::Deny => NamePolicy::Deny,
    }
}

//! Shows the difference between what a file said before and what it says now.
//!
//! Deliberately absent: colours, and the escaping of control characters; both belong to a terminal.

use crate::model::changes::Found;
use crate::model::{Disk, Ground, Journal, Marks};
use crate::record::Saved;
use crate::undo::describe;
use cowork_api::files::{ChangeKind, Difference, FileKind, Mark, Selection};
use rustix::io::Errno;
use similar::TextDiff;
use std::io::Read;
use std::time::Duration;

/// Largest side of a difference that is shown; beyond it only the sizes are.
const MOST: u64 = 1 << 20;

/// So much of a file is looked at to see whether it is text.
const START: usize = 8 << 10;

/// So long a difference is looked for; then a coarser one is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// One side of a difference.
enum Side {
    /// There was, or is, nothing.
    Nothing,
    /// Text.
    Text(String),
    /// Something else, of so many bytes.
    Binary(u64),
    /// More than is shown.
    Large(u64),
    /// It is not known what it was; why.
    Unknown(String),
}

/// The differences of the selected changes, with about `most` bytes of text in all.
pub fn differences(
    journal: &Journal,
    ground: &Ground<'_>,
    selection: &Selection,
    marks: Marks<'_>,
    most: u64,
) -> Result<Vec<Difference>, Errno> {
    let disk = Disk::new(journal, ground);
    let mut left = most;
    let mut differences = Vec::new();
    for found in journal.found(&disk, selection, marks)? {
        let (text, note) = match found.change.file {
            FileKind::File => of_file(&disk, &found),
            FileKind::Link => (None, of_link(&disk, &found)),
            FileKind::Folder | FileKind::Other => (None, None),
        };
        let length = text.as_ref().map_or(0, |text| u64::try_from(text.len()).unwrap_or(u64::MAX));
        let (text, note) = if length > left {
            (None, Some("too long to be shown here; ask for it alone".to_owned()))
        } else {
            left -= length;
            (text, note)
        };
        differences.push(Difference { change: found.change, text, note });
    }
    Ok(differences)
}

fn of_file(disk: &Disk<'_>, found: &Found) -> (Option<String>, Option<String>) {
    match &found.change.kind {
        ChangeKind::Attributes | ChangeKind::Renamed { modified: false, .. } => {
            return (None, None);
        }
        ChangeKind::Added
        | ChangeKind::Modified
        | ChangeKind::Deleted
        | ChangeKind::Renamed { modified: true, .. } => {}
    }
    let before = match (&found.home, &found.saved) {
        (None, _) => Side::Nothing,
        (Some(_), Some(saved)) => kept(disk, found.folder, saved),
        (Some(_), None) => Side::Unknown("what it said was not kept".to_owned()),
    };
    // Where the user has put something in place of what was removed, that is what is there now.
    let users = found.home.as_ref().filter(|_| found.change.marks.contains(&Mark::Conflict));
    let now = found.now.as_ref().or(users);
    let after = match now {
        Some(path) => match disk.open(found.folder, path) {
            Ok(file) => {
                let length = file.metadata().map_or(0, |meta| meta.len());
                side(file, length)
            }
            Err(error) => Side::Unknown(format!("cannot be read: {error}")),
        },
        None => Side::Nothing,
    };
    unified((found.home.as_deref(), &before), (now.map(Vec::as_slice), &after))
}

/// The difference of two files, and what is said instead of it. Each side is its path, its contents
/// and their length; nothing if there is no such file.
pub fn of_files<R: Read>(
    before: Option<(&[u8], R, u64)>,
    after: Option<(&[u8], R, u64)>,
) -> (Option<String>, Option<String>) {
    let read = |file: Option<(_, R, u64)>| match file {
        Some((path, contents, length)) => (Some(path), side(contents, length)),
        None => (None, Side::Nothing),
    };
    let ((home, before), (now, after)) = (read(before), read(after));
    unified((home, &before), (now, &after))
}

fn unified(
    (home, before): (Option<&[u8]>, &Side),
    (now, after): (Option<&[u8]>, &Side),
) -> (Option<String>, Option<String>) {
    let (old, new) = match (before, after) {
        (Side::Unknown(why), _) | (_, Side::Unknown(why)) => return (None, Some(why.clone())),
        (Side::Text(old), Side::Text(new)) => (old.as_str(), new.as_str()),
        (Side::Nothing, Side::Text(new)) => ("", new.as_str()),
        (Side::Text(old), Side::Nothing) => (old.as_str(), ""),
        (one, other) => return (None, Some(summary(one, other))),
    };
    let header = |letter: char, path: Option<&[u8]>| {
        path.map_or_else(
            || "/dev/null".to_owned(),
            |path| format!("{letter}/{}", String::from_utf8_lossy(path)),
        )
    };
    let text = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&header('a', home), &header('b', now))
        .to_string();
    (Some(text), None)
}

fn of_link(disk: &Disk<'_>, found: &Found) -> Option<String> {
    let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let before = match &found.saved {
        Some(Saved::Link(text)) if found.home.is_some() => Some(show(text)),
        _ => None,
    };
    let after = found
        .now
        .as_ref()
        .and_then(|path| disk.target(found.folder, path).ok())
        .map(|to| show(&to));
    match (before, after) {
        (Some(before), Some(after)) if before != after => Some(format!("{before} → {after}")),
        (Some(before), None) => Some(format!("led to {before}")),
        (_, Some(after)) => Some(format!("leads to {after}")),
        (None, None) => None,
    }
}

fn kept(disk: &Disk<'_>, folder: u32, saved: &Saved) -> Side {
    if let Saved::Lost(why) = saved {
        return Side::Unknown(describe::why(*why).to_owned());
    }
    match disk.kept(folder, saved) {
        Ok(Some(contents)) => {
            let length = contents.length();
            side(contents, length)
        }
        Ok(None) | Err(_) => Side::Unknown("what was kept of it is not there any more".to_owned()),
    }
}

fn side(mut from: impl Read, length: u64) -> Side {
    let mut start = Vec::new();
    let limit = u64::try_from(START).unwrap_or(u64::MAX);
    if let Err(error) = from.by_ref().take(limit).read_to_end(&mut start) {
        return Side::Unknown(format!("cannot be read: {error}"));
    }
    if start.contains(&0) {
        return Side::Binary(length);
    }
    if length > MOST {
        return Side::Large(length);
    }
    if let Err(error) = from.take(MOST).read_to_end(&mut start) {
        return Side::Unknown(format!("cannot be read: {error}"));
    }
    match String::from_utf8(start) {
        Ok(text) => Side::Text(text),
        Err(_) => Side::Binary(length),
    }
}

fn summary(before: &Side, after: &Side) -> String {
    let is_binary = |side: &Side| matches!(side, Side::Binary(_));
    let what = if is_binary(before) || is_binary(after) { "binary" } else { "large" };
    let size = |side: &Side| match side {
        Side::Nothing | Side::Unknown(_) => None,
        Side::Text(text) => Some(describe::size(u64::try_from(text.len()).unwrap_or(u64::MAX))),
        Side::Binary(length) | Side::Large(length) => Some(describe::size(*length)),
    };
    match (size(before), size(after)) {
        (Some(before), Some(after)) => format!("{what}, {before} → {after}"),
        (Some(one), None) | (None, Some(one)) => format!("{what}, {one}"),
        (None, None) => what.to_owned(),
    }
}

//! What it takes to bring back what was, and who else can.

use super::ground::{Ground, Place, Way};
use super::material::Size;
use crate::book::Book;
use crate::options::Effort;
use crate::stopped::Stopped;
use std::path::Path;

/// A deletion is undone.
pub(super) fn of_deletes(number: usize) -> String {
    format!("undo of {number} deletions")
}

fn of_creates(number: usize) -> String {
    format!("undo of an untar of {number} files")
}

/// In a session of its own: unpacks and undoes that, unpacks and removes, and undoes the removal.
pub(super) fn measure(
    place: &Place<'_>,
    size: Size,
    effort: Effort,
    book: &mut Book,
) -> Result<(), Stopped> {
    let ground = Ground::at(place, Way::Recorded, place.material.copy("undone")?)?;
    let mut client = place.server.client()?;
    let tree = ground.folder.join("tree");
    let check = |expected: usize| match files_in(&tree) {
        found if found == expected => Ok(()),
        found => Err(Stopped::new(format!("{found} files are there instead of {expected}"))),
    };
    for _ in 0..effort.pick(1, 5) {
        ground.time(place, "exec tar -xf ../tools/tree.tar", "")?;
        check(size.files)?;
        book.took(&of_creates(size.files), ground.undo(&mut client)?.0);
        check(0)?;
        ground.time(place, "exec tar -xf ../tools/tree.tar", "")?;
        ground.time(place, "exec rm -rf tree", "")?;
        check(0)?;
        book.took(&of_deletes(size.files), ground.undo(&mut client)?.0);
        check(size.files)?;
        ground.time(place, "exec rm -rf tree", "")?;
    }
    Ok(())
}

/// How many files there are below a folder, which may not exist.
fn files_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_in(&entry.path()),
        _ => 1,
    };
    entries.map(count).sum()
}

/// Says who cannot do this at all.
pub(super) fn peers(book: &mut Book) {
    for (peer, why) in [
        ("bwrap", "a plain or overlay mount: no record, no undo"),
        ("crun, runc", "a plain mount: no record, no undo"),
        ("firejail", "a plain mount: no record, no undo"),
        ("srt", "a plain mount by bwrap: no record, no undo"),
        ("codex sandbox", "a plain mount by bwrap: no record, no undo"),
        (
            "nono",
            "whole snapshots with --rollback, without .git and large folders; no undo by path",
        ),
    ] {
        book.absent(&format!("undo of one command or path: {peer}"), &format!("cannot: {why}"));
    }
}

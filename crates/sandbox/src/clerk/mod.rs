//! The clerk: looks at what was recorded about a session's folders, undoes it, and applies what was
//! staged.
//!
//! A clerk is a process for one [`Order`]. It sees the host as the keeper does, with the keeper's
//! rights, and leaves a [`Report`]. Paths come from records and from the user: every one is looked up
//! below a handle of its folder, no link is followed, and no mount is crossed. A folder that is no
//! longer the one recorded is not touched.
//!
//! Deliberately absent: making sure that nobody else writes to the same records (the keeper does),
//! and how to bring something back (`cowork-journal` knows).

mod desk;
mod gone;
#[cfg(test)]
mod killed;
mod marks;
mod staged;
#[cfg(test)]
mod tests;

pub(crate) use staged::{is_of_another, note};

use cowork_api::files::{
    Change, Difference, Mark, Order, Place, Report, Restored, Selection, Typed, Work,
};
use cowork_journal::undo::{Manner, What, Wish, undo_read};
use cowork_sys::Errno;
use desk::{Desk, whole};
use marks::Reader;
use rustix::fd::{AsFd, BorrowedFd};
use std::cmp::Ordering;

/// Most changes that are listed at once.
const MAX_CHANGES: usize = 200_000;
/// Most files of refused types that are listed at once.
const MAX_TYPED: usize = 1000;

/// Why an order is not carried out.
#[derive(Debug)]
struct Refusal {
    sentence: String,
    hint: String,
}

impl Refusal {
    fn new(sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: hint.into() }
    }

    /// The kernel refused something; `what` completes "cannot …".
    fn kernel(what: &str, errno: Errno) -> Self {
        let hint = match errno {
            Errno::NOSPC | Errno::DQUOT => "make room on the disk and try again",
            Errno::BADMSG => "they were written by another version of cowork",
            _ => "",
        };
        Self::new(format!("cannot {what}: {errno}"), hint)
    }
}

/// Whether the work changes files or records.
pub(crate) fn changes(work: &Work) -> bool {
    match work {
        Work::Undo { rehearsal, .. }
        | Work::Redo { rehearsal, .. }
        | Work::Apply { rehearsal, .. } => !rehearsal,
        Work::Sets
        | Work::Changes(_)
        | Work::Differences { .. }
        | Work::Mutations { .. }
        | Work::Programs { .. } => false,
    }
}

/// Whether the work is done with the records, whatever the folders are like at the moment.
pub(crate) fn reads_records_alone(work: &Work) -> bool {
    match work {
        Work::Sets | Work::Mutations { .. } | Work::Programs { .. } => true,
        Work::Changes(_)
        | Work::Differences { .. }
        | Work::Undo { .. }
        | Work::Redo { .. }
        | Work::Apply { .. } => false,
    }
}

/// Carries out an order, and writes the report to a file.
pub(crate) fn work(order: &Order, found: BorrowedFd<'_>) -> Result<(), Errno> {
    let report = carry_out(order)
        .unwrap_or_else(|Refusal { sentence, hint }| Report::Failed { sentence, hint });
    let report = cowork_api::encode(&report);
    let mut at = 0;
    while let Some(rest) = report.get(at..).filter(|rest| !rest.is_empty()) {
        // Whoever reads it starts at the beginning.
        at += rustix::io::pwrite(found, rest, at as u64)?;
    }
    Ok(())
}

fn carry_out(order: &Order) -> Result<Report, Refusal> {
    let desk = Desk::open(&order.store)?;
    match &order.work {
        Work::Sets => Ok(Report::Sets(desk.journal.sets())),
        Work::Mutations { after, most, looked } => {
            let (mutations, left) = desk.journal.mutations(*after, *most);
            let (typed, more_typed, looked) = typed(&desk, &Reader::new(order), *looked);
            Ok(Report::Mutations { mutations, left, typed, more_typed, looked })
        }
        Work::Programs { after, selection } => {
            let programs = desk.journal.programs(*after);
            let changed = selection.as_ref();
            let changed = changed.map(|which| desk.journal.changed_by(&programs, which));
            Ok(Report::Programs { programs, changed: changed.unwrap_or_default() })
        }
        Work::Changes(selection) => list(&desk, selection, &Reader::new(order)),
        Work::Differences { selection, most } => {
            differences(&desk, selection, (*most, &Reader::new(order)))
        }
        Work::Undo { selection, choice, .. } => {
            let what = What::Changes(selection.clone());
            take_back(desk, Wish { what, choice: *choice, manner: manner(&order.work) })
        }
        Work::Redo { choice, .. } => {
            let what = What::LastUndo;
            take_back(desk, Wish { what, choice: *choice, manner: manner(&order.work) })
        }
        Work::Apply { paths, choice, .. } => {
            let manner = manner(&order.work);
            let desk = desk.prepare(manner, *choice)?;
            staged::apply(desk, paths, *choice, manner).map(Report::Restored)
        }
    }
}

/// Whether something is changed, or only tried.
fn manner(work: &Work) -> Manner {
    if changes(work) { Manner::Real } else { Manner::Rehearsal }
}

/// Files of refused types that sets left which were closed after a record, how many more there are,
/// and the last such record.
fn typed(desk: &Desk, reader: &Reader, after: u64) -> (Vec<Typed>, u64, u64) {
    let (left, looked) = desk.journal.left_since(after);
    let folders = desk.numbered();
    let mut all = Vec::new();
    let mut more = 0;
    for (set, number, path) in left {
        let Some(folder) = folders.get(&number) else { continue };
        let Some(why) = reader.refused(&folder.name, folder.root.as_fd(), &path) else { continue };
        if all.len() < MAX_TYPED {
            let at = Place { grant: folder.name.clone(), path };
            all.push(Typed { set, at, why });
        } else {
            more += 1;
        }
    }
    (all, more, looked)
}

fn list(desk: &Desk, selection: &Selection, reader: &Reader) -> Result<Report, Refusal> {
    let changes = desk.journal.changes(&desk.ground(), selection, &no_marks);
    let mut changes =
        changes.map_err(|errno| Refusal::kernel("compare the folders with the records", errno))?;
    for change in &mut changes {
        desk.mark(reader, change);
    }
    changes.extend(gone::changes(desk, selection));
    if staged::is_meant(&selection.sets) {
        changes.extend(staged::changes(desk, &selection.paths, reader));
    }
    if changes.len() > MAX_CHANGES {
        let sentence = format!(
            "there are {} changes, and at most {MAX_CHANGES} are listed at once",
            changes.len()
        );
        return Err(Refusal::new(sentence, "ask for a part: name a set or a path"));
    }
    changes.sort_by(by_place);
    let meant = desk.journal.selected(&selection.sets);
    let mut sets = desk.journal.sets();
    sets.retain(|set| meant.contains(&set.set));
    Ok(Report::Changes { sets, changes })
}

/// Marks need a look into the file, which the records do not give.
fn no_marks(_path: &[u8], _mode: u32) -> Vec<Mark> {
    Vec::new()
}

fn by_place(one: &Change, other: &Change) -> Ordering {
    one.at.cmp(&other.at)
}

fn differences(
    desk: &Desk,
    selection: &Selection,
    (most, reader): (u64, &Reader),
) -> Result<Report, Refusal> {
    let ground = desk.ground();
    let found =
        cowork_journal::diff::differences(&desk.journal, &ground, selection, &no_marks, most);
    let mut found: Vec<Difference> =
        found.map_err(|errno| Refusal::kernel("compare the folders with the records", errno))?;
    for difference in &mut found {
        desk.mark(reader, &mut difference.change);
    }
    if staged::is_meant(&selection.sets) {
        let written: usize =
            found.iter().filter_map(|difference| difference.text.as_ref()).map(String::len).sum();
        let left = most.saturating_sub(written as u64);
        found.extend(staged::differences(desk, &selection.paths, reader, left));
    }
    found.sort_by(|one, other| by_place(&one.change, &other.change));
    Ok(Report::Differences(found))
}

/// Undoes or redoes, after what was interrupted before.
fn take_back(desk: Desk, mut wish: Wish) -> Result<Report, Refusal> {
    let desk = desk.prepare(wish.manner, wish.choice)?;
    let mut lost = Vec::new();
    match &mut wish.what {
        What::Changes(selection) => {
            let sets = desk.journal.selected(&selection.sets);
            lost = desk.missing_of(&sets, &selection.paths);
            // A set that is undone in part is still listed with the rest.
            if !lost.is_empty() && selection.paths.is_empty() {
                selection.paths = desk.folders.iter().map(|folder| whole(&folder.name)).collect();
            }
            if !lost.is_empty() && desk.folders.is_empty() {
                return Ok(Report::Restored(Restored { lost, ..Restored::default() }));
            }
        }
        What::LastUndo => {
            let sets: Vec<u32> = desk.journal.last_undo().into_iter().collect();
            if let Some((_, why)) = desk.missing_of(&sets, &[]).into_iter().next() {
                let hint = "put the folder back to where it was, and try again";
                return Err(Refusal::new(why, hint));
            }
        }
    }
    let finished = desk.finished.clone();
    let keeping = desk.keeping();
    let bereft = desk.bereft.clone();
    let (store, journal, folders) = desk.hand_over();
    let outcome = undo_read(store, journal, folders, &wish);
    keeping.settle();
    let mut restored =
        outcome.map_err(|errno| Refusal::kernel("bring back what was before", errno))?;
    for (grant, why) in bereft {
        // Where nothing is missed it is no loss.
        if restored.lost.iter().any(|(place, _)| place.grant == grant) {
            restored.lost.push((whole(&grant), why));
        }
    }
    restored.lost.extend(lost);
    restored.done.splice(0..0, finished);
    Ok(Report::Restored(restored))
}

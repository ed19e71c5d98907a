//! Brings back what was before, name by name.
//!
//! What is to be done follows from two states: the one that the records say was before the selected
//! sets, and the one that is there. An undo that was interrupted is therefore finished by doing it
//! again, and an undo of what is as it was does nothing. Everything is done by a [`Hand`], in a set
//! of its own, so that an undo can be undone.
//!
//! Invariant: nothing is overwritten or removed that the user has changed since, unless the choice
//! says so.
//!
//! Deliberately absent: who may undo, and stopping those who write to the folder meanwhile.

mod adopt;
mod choose;
mod clash;
mod contents;
pub(crate) mod describe;
mod execute;
mod links;
mod plan;
mod prepare;

use crate::hand::{By, Folder, Hand};
use crate::model::names::Names;
use crate::model::{Disk, Ground, Journal};
use cowork_api::Text;
use cowork_api::files::{Choice, Place, Restored, Selection, SetKind};
use execute::Work;
use plan::{Plan, Task};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What is to be undone.
    pub what: What,
    /// What to do where the user has changed something since.
    pub choice: Choice,
    /// Whether it is done or only tried.
    pub manner: Manner,
}

/// What is to be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// These changes.
    Changes(Selection),
    /// The last undo that was not undone itself.
    LastUndo,
}

/// Whether an undo is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It is only said what would be done.
    #[default]
    Rehearsal,
    /// It is done.
    Real,
}

/// Undoes. `folders` are the granted folders of the store that are there, each with its trash.
pub fn undo(store: OwnedFd, folders: Vec<Folder>, wish: &Wish) -> Result<Restored, Errno> {
    let journal = Journal::read(store.as_fd())?;
    begin((store, journal), folders, wish, None)
}

/// Undoes, in a store whose records were read.
pub fn undo_read(
    store: OwnedFd,
    journal: Journal,
    folders: Vec<Folder>,
    wish: &Wish,
) -> Result<Restored, Errno> {
    begin((store, journal), folders, wish, None)
}

/// Undoes, and stops after so many changes as if it were killed (`ECANCELED`), to see what an
/// interrupted undo leaves.
pub fn interrupted(
    store: OwnedFd,
    folders: Vec<Folder>,
    wish: &Wish,
    changes: usize,
) -> Result<Restored, Errno> {
    let journal = Journal::read(store.as_fd())?;
    begin((store, journal), folders, wish, Some(changes))
}

fn begin(
    (store, mut journal): (OwnedFd, Journal),
    folders: Vec<Folder>,
    wish: &Wish,
    left: Option<usize>,
) -> Result<Restored, Errno> {
    let kept = duplicate(&store)?;
    let mut hand = None;
    if wish.manner == Manner::Real {
        hand = Some(Hand::open_read(store, &mut journal)?);
    }
    let mut own = Vec::new();
    for folder in folders {
        own.push(copy_of(&folder)?);
        if let Some(hand) = &mut hand {
            hand.add_folder(folder)?;
        }
    }
    let ground = Ground { store: kept.as_fd(), folders: &own };
    // Adding folders decides what became of the last record.
    journal.read_on(kept.as_fd())?;
    let (sets, paths) = match &wish.what {
        What::Changes(selection) => (journal.selected(&selection.sets), selection.paths.clone()),
        What::LastUndo => (journal.last_undo().into_iter().collect(), Vec::new()),
    };
    if sets.is_empty() {
        return Ok(Restored::default());
    }
    let scope = journal.scope(&sets);
    let disk = Disk::new(&journal, &ground);
    let names = Names::replay(&journal, &scope);
    let plan = Plan::draw(names, &disk, Task { paths: &paths, choice: wish.choice })?;
    if plan.is_refused(wish.choice) {
        return Ok(plan.report);
    }
    let Some(hand) = &mut hand else {
        let mut report = plan.rehearse(&disk);
        describe::tell_once(&mut report.done);
        return Ok(report);
    };
    if plan.is_empty() && !paths.is_empty() {
        return Ok(plan.report);
    }
    let taken = scope.taken.iter().copied().collect();
    let set = hand.begin(SetKind::Undo(taken), 0, arguments(&paths))?;
    let by = By { set, process: 0 };
    let (plan, there) = Work::new(hand, &disk, plan, by, left).run(&journal, &scope)?;
    let mut report = plan.report;
    let mut done = scope.taken;
    done.insert(set);
    journal.read_on(kept.as_fd())?;
    Work::thin(&journal, &disk, (set, &done, &scope.void), &there);
    hand.complete(set)?;
    hand.close(set)?;
    describe::tell_once(&mut report.done);
    report.set = Some(set);
    Ok(report)
}

/// What an undo of some names only is told by.
fn arguments(paths: &[Place]) -> Vec<Text> {
    if paths.is_empty() {
        return Vec::new();
    }
    let name = |place: &Place| [place.grant.as_bytes(), b"/", place.path.as_slice()].concat();
    std::iter::once(crate::model::SOME.to_vec()).chain(paths.iter().map(name)).collect()
}

fn duplicate(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(handle, 0)
}

fn copy_of(folder: &Folder) -> Result<Folder, Errno> {
    Ok(Folder {
        name: folder.name.clone(),
        path: folder.path.clone(),
        device: folder.device,
        inode: folder.inode,
        root: duplicate(&folder.root)?,
        trash: folder.trash.as_ref().map(duplicate).transpose()?,
        caps: folder.caps,
        owner: folder.owner,
    })
}

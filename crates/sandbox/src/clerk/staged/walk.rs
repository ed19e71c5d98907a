//! What applying a staged folder would change.
//!
//! The two sides are compared name by name. What the overlay copied up and nobody changed is no
//! difference, and neither is what was applied already.

use super::look::{
    Marking, Seen, Time, attributes, enter, look, look_at, names, open_file, same_contents, target,
};
use cowork_api::files::{Change, ChangeKind, FileKind, Place};
use cowork_journal::record::State;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::FileType;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};

/// Longest path that is followed: twice what a program can name at once.
const LONGEST: usize = 8192;

/// What is to be done with one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is new.
    Add,
    /// It has other contents.
    Replace,
    /// It goes.
    Remove,
    /// It has another mode, other times or attributes.
    Adjust,
}

/// Whether somebody else changed a name since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nobody.
    Untouched,
    /// The folder's own was changed after it was staged.
    Changed,
}

/// One difference. They are in an order in which they can be applied: what lies in a folder goes
/// before the folder, and comes after it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) step: Step,
    /// What it is, or was.
    pub(super) file: FileKind,
    /// What is in the folder.
    pub(super) before: Option<Seen>,
    /// What is staged.
    pub(super) after: Option<Seen>,
    pub(super) since: Since,
}

impl Item {
    /// The difference, as a person is shown it.
    pub(super) fn change(&self, grant: &str) -> Change {
        Change {
            at: Place { grant: grant.to_owned(), path: self.path.clone() },
            kind: match self.step {
                Step::Add => ChangeKind::Added,
                Step::Replace => ChangeKind::Modified,
                Step::Remove => ChangeKind::Deleted,
                Step::Adjust => ChangeKind::Attributes,
            },
            file: self.file,
            before: self.before.as_ref().and_then(Seen::length),
            after: self.after.as_ref().and_then(Seen::length),
            sets: vec![super::STAGED],
            marks: match self.since {
                Since::Untouched => Vec::new(),
                Since::Changed => vec![cowork_api::files::Mark::Conflict],
            },
        }
    }
}

/// All differences, as far as they were looked at.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) items: Vec<Item>,
    /// What could not be looked at, and why.
    pub(super) unknown: Vec<(Vec<u8>, String)>,
    /// Whether there is more than is listed.
    pub(super) is_cut: bool,
}

/// Compares the two sides of a staged folder.
pub(super) struct Walker<'a> {
    pub(super) marking: Marking,
    /// What the records say of each name after its last set.
    pub(super) known: &'a HashMap<Vec<u8>, State>,
    /// Which differences are listed.
    pub(super) is_meant: &'a dyn Fn(&[u8], Step, FileKind) -> bool,
    /// Most of them.
    pub(super) most: usize,
    pub(super) walk: Walk,
}

/// A folder that may be there on both sides.
#[derive(Clone, Copy)]
struct Sides<'a> {
    path: &'a [u8],
    upper: BorrowedFd<'a>,
    lower: Option<BorrowedFd<'a>>,
}

/// Something in such a folder.
struct Below<'a> {
    sides: Sides<'a>,
    name: &'a CStr,
    path: Vec<u8>,
}

impl Walker<'_> {
    pub(super) fn run(&mut self, upper: BorrowedFd<'_>, lower: BorrowedFd<'_>) {
        self.compare_folder(Sides { path: b"", upper, lower: Some(lower) });
    }

    fn compare_folder(&mut self, sides: Sides<'_>) {
        if let Err(errno) = self.try_folder(sides) {
            self.give_up(sides.path, &reason(errno));
        }
    }

    fn try_folder(&mut self, sides: Sides<'_>) -> Result<(), Errno> {
        if sides.path.len() > LONGEST {
            return Err(Errno::NAMETOOLONG);
        }
        let staged = names(sides.upper)?;
        for name in &staged {
            self.compare_name(sides, name);
            if self.walk.is_cut {
                return Ok(());
            }
        }
        if let Some(lower) = sides.lower
            && self.marking.is_opaque(sides.upper)
        {
            let staged: BTreeSet<&CString> = staged.iter().collect();
            for name in names(lower)?.iter().filter(|name| !staged.contains(name)) {
                let born = look_at(sides.upper)?.born;
                self.remove(lower, name, &join(sides.path, name), born);
            }
        }
        Ok(())
    }

    fn compare_name(&mut self, sides: Sides<'_>, name: &CStr) {
        let path = join(sides.path, name);
        let at = Below { sides, name, path: path.clone() };
        if let Err(errno) = self.try_name(&at) {
            self.give_up(&path, &reason(errno));
        }
    }

    fn try_name(&mut self, at: &Below<'_>) -> Result<(), Errno> {
        let Some(upper) = look(at.sides.upper, at.name)? else { return Ok(()) };
        let lower = match at.sides.lower {
            Some(folder) => look(folder, at.name)?,
            None => None,
        };
        if self.marking.is_whiteout(at.sides.upper, at.name, &upper) {
            if let (Some(folder), Some(_)) = (at.sides.lower, lower) {
                self.remove(folder, at.name, &at.path, upper.born.or(Some(upper.ctime)));
            }
            return Ok(());
        }
        match (upper.is_folder(), lower) {
            (true, Some(lower)) if lower.is_folder() => self.compare_folders(at, upper, lower),
            (true, lower) => {
                if let (Some(folder), Some(_)) = (at.sides.lower, lower) {
                    self.remove(folder, at.name, &at.path, upper.born);
                }
                let inner = enter(at.sides.upper, at.name.to_bytes())?;
                if self.marking.read(inner.as_fd(), "redirect").is_some() {
                    return Err(Errno::OPNOTSUPP);
                }
                self.push(&at.path, Step::Add, (None, Some(upper)), Since::Untouched);
                let path = &at.path;
                self.compare_folder(Sides { path, upper: inner.as_fd(), lower: None });
                Ok(())
            }
            (false, Some(lower)) if lower.is_folder() => {
                if let Some(folder) = at.sides.lower {
                    self.remove(folder, at.name, &at.path, upper.born);
                }
                self.push(&at.path, Step::Add, (None, Some(upper)), Since::Untouched);
                Ok(())
            }
            (false, Some(lower)) => self.compare_files(at, upper, lower),
            (false, None) => {
                self.push(&at.path, Step::Add, (None, Some(upper)), Since::Untouched);
                Ok(())
            }
        }
    }

    /// A folder on both sides: what is in it, then the folder itself.
    fn compare_folders(&mut self, at: &Below<'_>, upper: Seen, lower: Seen) -> Result<(), Errno> {
        let Some(folder) = at.sides.lower else { return Ok(()) };
        let inner = enter(at.sides.upper, at.name.to_bytes())?;
        let below = enter(folder, at.name.to_bytes())?;
        if self.marking.read(inner.as_fd(), "redirect").is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let path = &at.path;
        let sides = Sides { path, upper: inner.as_fd(), lower: Some(below.as_fd()) };
        self.compare_folder(sides);
        if upper.permissions() != lower.permissions()
            || attributes(inner.as_fd()) != attributes(below.as_fd())
        {
            // Names that come and go change both times; only something else changes one of them.
            let since = if lower.ctime == lower.mtime {
                Since::Untouched
            } else {
                self.since(path, &lower, upper.born)
            };
            self.push(path, Step::Adjust, (Some(lower), Some(upper)), since);
        }
        Ok(())
    }

    fn compare_files(&mut self, at: &Below<'_>, upper: Seen, lower: Seen) -> Result<(), Errno> {
        let Some(folder) = at.sides.lower else { return Ok(()) };
        let step = match (upper.kind, lower.kind) {
            (FileType::RegularFile, FileType::RegularFile) => {
                let one = open_file(at.sides.upper, at.name.to_bytes())?;
                let other = open_file(folder, at.name.to_bytes())?;
                let (one, other) = (one.as_fd(), other.as_fd());
                // With the contents still below, only the rest was copied up.
                let is_same = self.marking.read(one, "metacopy").is_some()
                    || upper.size == lower.size && same_contents(one, other)?;
                if !is_same {
                    Some(Step::Replace)
                } else if upper.permissions() != lower.permissions()
                    || upper.mtime != lower.mtime
                    || attributes(one) != attributes(other)
                {
                    Some(Step::Adjust)
                } else {
                    None
                }
            }
            (FileType::Symlink, FileType::Symlink) => {
                let is_same = target(at.sides.upper, at.name)? == target(folder, at.name)?;
                (!is_same).then_some(Step::Replace)
            }
            (one, other) if one == other => {
                (upper.permissions() != lower.permissions()).then_some(Step::Adjust)
            }
            _ => Some(Step::Replace),
        };
        if let Some(step) = step {
            let since = self.since(&at.path, &lower, upper.born.or(Some(upper.ctime)));
            self.push(&at.path, step, (Some(lower), Some(upper)), since);
        }
        Ok(())
    }

    /// Something of the folder that goes, with everything in it.
    fn remove(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &[u8], at: Option<Time>) {
        if self.walk.is_cut {
            return;
        }
        if let Err(errno) = self.try_remove(folder, name, path, at) {
            self.give_up(path, &reason(errno));
        }
    }

    fn try_remove(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        at: Option<Time>,
    ) -> Result<(), Errno> {
        let Some(lower) = look(folder, name)? else { return Ok(()) };
        if !lower.is_folder() {
            let since = self.since(path, &lower, at);
            self.push(path, Step::Remove, (Some(lower), None), since);
            return Ok(());
        }
        if path.len() > LONGEST {
            return Err(Errno::NAMETOOLONG);
        }
        let inner = enter(folder, name.to_bytes())?;
        for name in names(inner.as_fd())? {
            self.remove(inner.as_fd(), &name, &join(path, &name), at);
        }
        // What came into it since is told by itself.
        self.push(path, Step::Remove, (Some(lower), None), Since::Untouched);
        Ok(())
    }

    /// Whether the folder's own was changed after `at`, when it was staged, by anybody but an apply
    /// or another recorded change.
    fn since(&self, path: &[u8], lower: &Seen, at: Option<Time>) -> Since {
        let is_ours = self.known.get(path).is_some_and(|state| lower.is_as(state));
        if is_ours || at.is_some_and(|at| lower.ctime <= at) {
            Since::Untouched
        } else {
            Since::Changed
        }
    }

    fn push(
        &mut self,
        path: &[u8],
        step: Step,
        (before, after): (Option<Seen>, Option<Seen>),
        since: Since,
    ) {
        let file = after.as_ref().or(before.as_ref()).map_or(FileKind::Other, Seen::file_kind);
        if !(self.is_meant)(path, step, file) {
            return;
        }
        if self.walk.items.len() >= self.most {
            self.walk.is_cut = true;
            return;
        }
        self.walk.items.push(Item { path: path.to_vec(), step, file, before, after, since });
    }

    fn give_up(&mut self, path: &[u8], why: &str) {
        self.walk.unknown.push((path.to_vec(), why.to_owned()));
    }
}

/// A path with a name added.
pub(super) fn join(path: &[u8], name: &CStr) -> Vec<u8> {
    if path.is_empty() { name.to_bytes().to_vec() } else { [path, b"/", name.to_bytes()].concat() }
}

/// Why something could not be looked at.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::XDEV => "something else is mounted there".into(),
        Errno::OPNOTSUPP => "it is a folder that was renamed, which cannot be followed".into(),
        errno => errno.to_string(),
    }
}

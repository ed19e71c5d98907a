//! What a person should know about a changed file that the records do not say.

use super::staged::open_file;
use cowork_api::files::{Change, ChangeKind, FileKind, Mark, Order, Rules};
use cowork_policy::files::{Contents, Judge, default_rules, runs_here};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::BTreeMap;

/// How much of a file is looked at.
const START: usize = 4096;

/// Looks at changed files.
#[derive(Debug)]
pub(super) struct Reader {
    judge: Judge,
    /// By grant, where other types are refused than usual.
    types: BTreeMap<String, Judge>,
}

/// What a file is like.
struct Seen {
    file: OwnedFd,
    mode: u32,
    size: u64,
    start: Vec<u8>,
}

impl Reader {
    /// Marks by what always holds and by the user's rules.
    pub(super) fn new(order: &Order) -> Self {
        let mut rules = default_rules();
        rules.names.extend_from_slice(&order.names);
        let types = order.types.iter().map(|types| {
            let (blocked, blocked_contents) = (types.blocked.clone(), types.contents);
            let rules = Rules { blocked, blocked_contents, ..Rules::default() };
            (types.grant.clone(), Judge::new(&rules))
        });
        Self { types: types.collect(), judge: Judge::new(&rules) }
    }

    /// Marks a change of a name below `root`, which is where the file is now.
    pub(super) fn mark(&self, change: &mut Change, root: Option<BorrowedFd<'_>>) {
        let is_there = change.file == FileKind::File
            && !matches!(change.kind, ChangeKind::Deleted | ChangeKind::Attributes);
        let path = &change.at.path;
        if let Some(root) = root.filter(|_| is_there) {
            let seen = Seen::of(root, path);
            // One that cannot be read is judged by its name.
            let (mode, start) = seen.as_ref().map_or((0, &[][..]), |seen| (seen.mode, &seen.start));
            if let Some(why) = runs_here(path, mode, start) {
                // This says more than the mode alone does.
                change.marks.retain(|mark| !matches!(mark, Mark::RunsHere(_)));
                change.marks.push(Mark::RunsHere(why));
            }
            let why = seen.and_then(|seen| self.type_of(&change.at.grant, path, &seen));
            change.marks.extend(why.map(Mark::RefusedType));
        }
        let protected = self.judge.name(path).reason;
        change.marks.extend(protected.map(|why| Mark::Protected(why.to_owned())));
    }

    /// Why a file is one of a refused type, if it is.
    pub(super) fn refused(&self, grant: &str, root: BorrowedFd<'_>, path: &[u8]) -> Option<String> {
        let judge = self.types.get(grant).unwrap_or(&self.judge);
        let seen = judge.looks_at_contents().then(|| Seen::of(root, path)).flatten()?;
        self.type_of(grant, path, &seen)
    }

    fn type_of(&self, grant: &str, path: &[u8], seen: &Seen) -> Option<String> {
        let judge = self.types.get(grant).unwrap_or(&self.judge);
        let read = |at, buffer: &mut [u8]| rustix::io::pread(&seen.file, buffer, at).unwrap_or(0);
        let contents = Contents::new(&seen.start, seen.size, &read);
        judge.blocked_contents(path, &contents).map(str::to_owned)
    }
}

impl Seen {
    fn of(root: BorrowedFd<'_>, path: &[u8]) -> Option<Self> {
        let file = open_file(root, path).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let mut start = vec![0; START];
        let length = rustix::io::pread(&file, &mut start, 0).unwrap_or(0);
        start.truncate(length);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Some(Self { file, mode: stat.st_mode, size, start })
    }
}

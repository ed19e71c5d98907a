//! What a person should know about a changed file that the records do not say.

use super::staged::open_file;
use cowork_api::files::{Change, ChangeKind, FileKind, Mark, NameRule};
use cowork_policy::files::{Judge, default_rules, runs_here};
use rustix::fd::BorrowedFd;

/// How much of a file is looked at.
const START: usize = 4096;

/// Looks at changed files.
#[derive(Debug)]
pub(super) struct Reader {
    judge: Judge,
}

impl Reader {
    /// Marks by what always holds and by the user's rules.
    pub(super) fn new(names: &[NameRule]) -> Self {
        let mut rules = default_rules();
        rules.names.extend_from_slice(names);
        Self { judge: Judge::new(&rules) }
    }

    /// Marks a change of a name below `root`, which is where the file is now.
    pub(super) fn mark(&self, change: &mut Change, root: Option<BorrowedFd<'_>>) {
        let is_there = change.file == FileKind::File
            && !matches!(change.kind, ChangeKind::Deleted | ChangeKind::Attributes);
        if let Some(root) = root.filter(|_| is_there)
            && let Some(why) = runs(root, &change.at.path)
        {
            // This says more than the mode alone does.
            change.marks.retain(|mark| !matches!(mark, Mark::RunsHere(_)));
            change.marks.push(Mark::RunsHere(why));
        }
        let protected = self.judge.name(&change.at.path).reason;
        change.marks.extend(protected.map(|why| Mark::Protected(why.to_owned())));
    }
}

/// Why the machine may execute a file. One that cannot be read is judged by its name.
fn runs(root: BorrowedFd<'_>, path: &[u8]) -> Option<String> {
    let mut start = [0; START];
    let (mode, length) = match open_file(root, path) {
        Ok(file) => {
            let mode = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_mode);
            (mode, rustix::io::pread(&file, &mut start, 0).unwrap_or(0))
        }
        Err(_errno) => (0, 0),
    };
    runs_here(path, mode, start.get(..length).unwrap_or_default())
}

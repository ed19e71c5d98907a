//! What there is on this host: where paths really lead, and what patterns match.

use crate::failure::Failure;
use cowork_srt::glob::{Followed, Step};
use cowork_srt::paths::{Below, Places};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Most names that are looked at to find out what patterns match, of all patterns together.
const MAX_LOOKED_AT: usize = 1_000_000;
/// Deepest folder below the start of a pattern that is looked into.
const MAX_DEPTH: usize = 64;
/// The folder that srt gives commands for temporary files.
const TEMPORARY: &str = "/tmp/claude";

/// The caller's surroundings.
pub(crate) struct Ground {
    /// The user's home.
    pub(crate) home: PathBuf,
    /// The current folder, free of links.
    pub(crate) here: PathBuf,
}

/// What is at a path, with links followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Real {
    /// Where it is, free of links.
    pub(crate) path: PathBuf,
    /// Whether it is a folder.
    pub(crate) kind: Kind,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A folder.
    Folder,
    /// Anything else.
    File,
}

impl Ground {
    pub(crate) fn look() -> Result<Self, Failure> {
        let here = real(Path::new(".")).ok_or_else(|| {
            Failure::input("the current folder is gone", "change to one that is there")
        })?;
        let home = cowork_client::places::home().ok_or_else(|| {
            Failure::input("it is not known where your home is", "set HOME to it")
        })?;
        Ok(Self { home, here: here.path })
    }

    pub(crate) fn places(&self) -> Places<'_> {
        Places { home: &self.home, here: &self.here }
    }

    /// The folder for temporary files, made if it is not there; `None` if it is somebody else's.
    pub(crate) fn temporary() -> Option<PathBuf> {
        let named = ["CLAUDE_CODE_TMPDIR", "CLAUDE_TMPDIR"];
        let named = named.iter().find_map(std::env::var_os).filter(|path| !path.is_empty());
        let path = named.map_or_else(|| PathBuf::from(TEMPORARY), PathBuf::from);
        cowork_sys::ignore(rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)));
        let found = real(&path).filter(|found| found.kind == Kind::Folder)?;
        let own = rustix::fs::stat(&found.path).ok()?.st_uid == rustix::process::getuid().as_raw();
        own.then_some(found.path)
    }
}

/// What is at a path; nothing if it cannot be looked at.
pub(crate) fn real(path: &Path) -> Option<Real> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&handle).ok()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Folder,
        _ => Kind::File,
    };
    Some(Real { path, kind })
}

/// What there is of what patterns are about.
#[derive(Debug)]
pub(crate) struct Walk {
    left: usize,
}

/// There is more below a folder than can be looked at.
#[derive(Debug)]
pub(crate) struct TooMuch;

impl Walk {
    pub(crate) fn new() -> Self {
        Self { left: MAX_LOOKED_AT }
    }

    /// Everything that a pattern matches now. Links are matched, and not followed.
    pub(crate) fn matches(&mut self, below: &Below) -> Result<Vec<PathBuf>, TooMuch> {
        let mut found = Vec::new();
        let start = below.glob.start();
        self.descend(&mut vec![(below.folder.clone(), start)], below, &mut found)?;
        Ok(found)
    }

    fn descend(
        &mut self,
        todo: &mut Vec<(PathBuf, Followed)>,
        below: &Below,
        found: &mut Vec<PathBuf>,
    ) -> Result<(), TooMuch> {
        while let Some((folder, at)) = todo.pop() {
            // What cannot be listed has no names that a command could know of.
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                self.left = self.left.checked_sub(1).ok_or(TooMuch)?;
                let name = entry.file_name();
                match below.glob.follow(&at, &name.to_string_lossy()) {
                    Step::Matches => found.push(entry.path()),
                    Step::Further(next) if is_folder(&entry) => {
                        let path = entry.path();
                        let depth = path.components().count();
                        if depth - below.folder.components().count() > MAX_DEPTH {
                            return Err(TooMuch);
                        }
                        todo.push((path, next));
                    }
                    Step::Further(_) | Step::Nothing => {}
                }
            }
        }
        Ok(())
    }

    /// Every repository of Git at or below a folder, by what `.git` is there: a folder, or a file
    /// that names one.
    pub(crate) fn repositories(&mut self, folder: &Path) -> Result<Vec<Real>, TooMuch> {
        let mut found = Vec::new();
        let mut todo = vec![folder.to_path_buf()];
        while let Some(folder) = todo.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                self.left = self.left.checked_sub(1).ok_or(TooMuch)?;
                let is_folder = is_folder(&entry);
                if entry.file_name() == ".git" {
                    let kind = if is_folder { Kind::Folder } else { Kind::File };
                    found.push(Real { path: entry.path(), kind });
                } else if is_folder {
                    todo.push(entry.path());
                }
            }
        }
        Ok(found)
    }
}

fn is_folder(entry: &std::fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

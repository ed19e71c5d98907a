//! Which folders of this host are sensitive.

use crate::folder::Folder;
use cowork_policy::places::{KnownPlaces, sensitive};
use std::path::{Path, PathBuf};

/// What a grant of a folder would give away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A folder like any other.
    Ordinary,
    /// More than a project; the sentence says what. The user may mean it.
    Sensitive(String),
    /// No folder of files at all.
    Refused(String),
}

/// The places of this process's user.
#[derive(Clone, Debug)]
pub struct Places {
    /// The user's home, as it is named.
    pub home: Option<PathBuf>,
    known: KnownPlaces,
}

impl Places {
    /// Finds the user's home. `state` is the folder that cowork keeps its own state in.
    pub fn find(state: Option<&Path>) -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = home.or_else(home_by_id);
        let both = |path: Option<&Path>| {
            path.into_iter().flat_map(|path| [path.to_path_buf(), resolve(path)]).collect()
        };
        let known = KnownPlaces { homes: both(home.as_deref()), states: both(state) };
        Self { home, known }
    }

    /// What a grant of `folder` would give away.
    pub fn judge(&self, folder: &Folder) -> Verdict {
        let path = folder.path();
        if is_interface(folder) {
            let sentence = format!(
                "`{}` is an interface of the kernel, not a folder of files",
                path.display()
            );
            return Verdict::Refused(sentence);
        }
        let same = |home: &PathBuf| {
            Folder::open(home).is_ok_and(|home| home.identity() == folder.identity())
        };
        // A home by another path, such as a bind mount.
        let path = if self.known.homes.iter().any(same) {
            self.known.homes.first().map_or(path, |home| home.as_path())
        } else {
            path
        };
        sensitive(path, &self.known).map_or(Verdict::Ordinary, Verdict::Sensitive)
    }
}

/// Whether a folder lies in a file system that controls the kernel instead of storing files.
fn is_interface(folder: &Folder) -> bool {
    /// `proc`, `sysfs`, `cgroup`, `cgroup2`, `devpts`, `debugfs`, `tracefs`, `securityfs`, `bpf`.
    const INTERFACES: [i64; 9] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x1cd1,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xcafe_4a11,
    ];
    rustix::fs::fstatfs(folder).is_ok_and(|stat| INTERFACES.contains(&stat.f_type))
}

/// The home of this process's user, for a caller without `HOME`.
fn home_by_id() -> Option<PathBuf> {
    let own = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.find_map(|mut user| (user.nth(2)? == own).then(|| user.nth(2).map(PathBuf::from))?)
}

/// Where a path leads now, free of symbolic links; what does not exist stays as it is named.
fn resolve(path: &Path) -> PathBuf {
    match (Folder::open(path), path.parent(), path.file_name()) {
        (Ok(folder), ..) => folder.path().to_path_buf(),
        (Err(_), Some(parent), Some(name)) => resolve(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}

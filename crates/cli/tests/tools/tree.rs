//! What a folder is like: every name in it, with everything that an undo must bring back.

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, lgetxattr, llistxattr, statx};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Every name below a folder, and the folder itself under the empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<PathBuf, Entry>);

/// What is under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// The first of its names, of a file that has several.
    pub(crate) same_as: Option<PathBuf>,
    /// How many names it has, with those that are kept for an undo.
    pub(crate) links: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) contents: Vec<u8>,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The first name of a file, and how many names of it were found.
type Known = BTreeMap<u64, (PathBuf, u32)>;

impl Tree {
    /// Reads a folder.
    pub(crate) fn of(folder: &Path) -> Self {
        let mut tree = Self(BTreeMap::new());
        let mut known = BTreeMap::new();
        tree.add(folder, Path::new(""), &mut known);
        // A name that is kept for an undo is none of the folder's.
        let alone: Vec<PathBuf> =
            known.into_values().filter(|(_, names)| *names == 1).map(|(name, _)| name).collect();
        for name in alone {
            if let Some(entry) = tree.0.get_mut(&name) {
                entry.same_as = None;
            }
        }
        tree
    }

    fn add(&mut self, folder: &Path, name: &Path, known: &mut Known) {
        let path = folder.join(name);
        let stat = statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
            .expect("what is listed is there");
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let contents = match kind {
            FileType::RegularFile => std::fs::read(&path).expect("tests read everything"),
            FileType::Symlink => {
                let target = std::fs::read_link(&path).expect("it is a link");
                std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str()).to_vec()
            }
            _ => Vec::new(),
        };
        let same_as = (kind != FileType::Directory && stat.stx_nlink > 1).then(|| {
            let first = known.entry(stat.stx_ino).or_insert_with(|| (name.to_path_buf(), 0));
            first.1 += 1;
            first.0.clone()
        });
        let entry = Entry {
            kind,
            mode: u32::from(stat.stx_mode) & 0o7777,
            owner: (stat.stx_uid, stat.stx_gid),
            same_as,
            links: stat.stx_nlink,
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            contents,
            attributes: attributes(&path),
        };
        self.0.insert(name.to_path_buf(), entry);
        if kind == FileType::Directory {
            let mut names: Vec<_> = std::fs::read_dir(&path)
                .expect("tests read everything")
                .map(|entry| entry.expect("it can be read").file_name())
                .collect();
            names.sort();
            for inner in names {
                self.add(folder, &name.join(inner), known);
            }
        }
    }

    /// How this one differs from another one, a line each; empty if it does not.
    pub(crate) fn differences(&self, other: &Self, judge: &Judge<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for name in self.0.keys().chain(other.0.keys()) {
            let line = match (self.0.get(name), other.0.get(name)) {
                (Some(_), None) => "is not there".to_owned(),
                (None, Some(_)) => "should not be there".to_owned(),
                (Some(one), Some(two)) => match judge.difference(name, one, two) {
                    Some(what) => what,
                    None => continue,
                },
                (None, None) => continue,
            };
            let line = format!("`{}` {line}", name.display());
            if !found.contains(&line) {
                found.push(line);
            }
        }
        found
    }
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 64 * 1024];
    let Ok(length) = llistxattr(path, names.as_mut_slice()) else { return Vec::new() };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 * 1024];
        let length = lgetxattr(path, name, value.as_mut_slice()).expect("it was just listed");
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    found.sort();
    found
}

/// What must be equal.
pub(crate) struct Judge<'a> {
    /// Times that are later than this need not be equal; all must be, if there is none.
    pub(crate) until: Option<SystemTime>,
    /// Beginnings of names whose contents and times need not be equal; their ends, after a star.
    pub(crate) any_contents: &'a [&'a str],
    /// What is in names whose times need not be equal.
    pub(crate) any_times: &'a [&'a str],
}

impl Judge<'_> {
    fn difference(&self, name: &Path, expected: &Entry, found: &Entry) -> Option<String> {
        let text = name.to_string_lossy();
        let free = self.any_contents.iter().any(|part| match part.strip_prefix('*') {
            Some(end) => text.ends_with(end),
            None => text.starts_with(part),
        });
        let timeless = free || self.any_times.iter().any(|part| text.contains(part));
        if expected.kind != found.kind {
            return Some(format!("is {:?}, not {:?}", found.kind, expected.kind));
        }
        if expected.mode != found.mode {
            return Some(format!("has mode {:o}, not {:o}", found.mode, expected.mode));
        }
        if expected.owner != found.owner {
            return Some(format!("belongs to {:?}, not {:?}", found.owner, expected.owner));
        }
        if expected.same_as != found.same_as {
            let (found, expected) = (&found.same_as, &expected.same_as);
            return Some(format!("is the same file as {found:?}, not {expected:?}"));
        }
        // What is kept for an undo is kept until everything is undone.
        if self.until.is_none() && expected.links != found.links {
            return Some(format!("has {} names, not {}", found.links, expected.links));
        }
        if expected.attributes != found.attributes {
            return Some("has other attributes".into());
        }
        if !free && expected.contents != found.contents {
            let (found, expected) = (found.contents.len(), expected.contents.len());
            return Some(format!("has other contents ({found} bytes, not {expected})"));
        }
        let must = |time: (i64, u32)| match self.until {
            None => true,
            Some(until) => {
                let since = until.duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
                time.0 < i64::try_from(since.as_secs()).expect("it is not that late")
            }
        };
        let times = (must(expected.mtime), must(found.mtime));
        if !timeless && (times.0 || times.1) && expected.mtime != found.mtime {
            return Some(format!("was changed at {:?}, not {:?}", found.mtime, expected.mtime));
        }
        None
    }
}

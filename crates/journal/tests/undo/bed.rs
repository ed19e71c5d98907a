//! A granted folder with a store and a trash, and a hand that changes things in it.

use cowork_api::files::{
    Caps, Change, Choice, Difference, Place, Restored, Selection, SetKind, Sets,
};
use cowork_journal::diff::differences;
use cowork_journal::hand::{By, Folder, Hand, LinkSource, Opened, Spot};
use cowork_journal::model::{Ground, Journal};
use cowork_journal::undo::{Manner, What, Wish, interrupted, undo};
use cowork_testbed::Person;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CString, OsStr};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where removed things go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trash {
    Beside,
    None,
}

#[derive(Debug)]
pub(crate) struct Bed {
    folder: cowork_testbed::Folder,
    trash: Trash,
    caps: Caps,
}

/// What a name is, as far as an undo brings it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    pub(crate) links: u64,
    pub(crate) contents: Vec<u8>,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first of all names of the same file.
    pub(crate) first_name: String,
}

pub(crate) type Snapshot = BTreeMap<String, Node>;

impl Bed {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, Trash::Beside, Caps::default())
    }

    pub(crate) fn with(name: &str, trash: Trash, caps: Caps) -> Self {
        Self::prepared(name, trash, caps, |_| {})
    }

    /// One whose folder is made ready before anything is in it.
    pub(crate) fn prepared(
        name: &str,
        trash: Trash,
        caps: Caps,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let folder = cowork_testbed::Folder::new(Person::Root, name);
        prepare(folder.path());
        for part in ["grant", "store", "trash"] {
            std::fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        Self { folder, trash, caps }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("grant")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn store(&self) -> OwnedFd {
        directory(&self.folder.path().join("store"))
    }

    pub(crate) fn granted(&self) -> Folder {
        granted(self.folder.path(), self.trash, self.caps)
    }

    /// The folder that holds all.
    pub(crate) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command's changes as one set.
    pub(crate) fn set(&self, act: impl FnOnce(&mut Command)) -> u32 {
        let mut command = Command::begin(self.home(), self.trash, self.caps);
        act(&mut command);
        command.hand.close(command.by.set).unwrap();
        command.by.set
    }

    /// Empties the store and the trash.
    pub(crate) fn forget(&self) {
        for part in ["store", "trash"] {
            let path = self.folder.path().join(part);
            std::fs::remove_dir_all(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
        }
    }

    pub(crate) fn undo(&self, sets: Sets, paths: &[&str], choice: Choice) -> Restored {
        let wish = wish(sets, paths, choice);
        undo(self.store(), vec![self.granted()], &wish).unwrap()
    }

    pub(crate) fn undo_all(&self) -> Restored {
        self.undo(Sets::All, &[], Choice::Refuse)
    }

    pub(crate) fn rehearse(&self, sets: Sets) -> Restored {
        let wish = Wish { manner: Manner::Rehearsal, ..wish(sets, &[], Choice::Refuse) };
        undo(self.store(), vec![self.granted()], &wish).unwrap()
    }

    pub(crate) fn redo(&self) -> Restored {
        let wish = Wish { what: What::LastUndo, choice: Choice::Refuse, manner: Manner::Real };
        undo(self.store(), vec![self.granted()], &wish).unwrap()
    }

    pub(crate) fn interrupted(&self, wish: &Wish, changes: usize) -> Result<Restored, Errno> {
        interrupted(self.store(), vec![self.granted()], wish, changes)
    }

    pub(crate) fn changes(&self, sets: Sets, paths: &[&str]) -> Vec<Change> {
        let What::Changes(selection) = wish(sets, paths, Choice::Refuse).what else { panic!() };
        let (store, folders) = (self.store(), [self.granted()]);
        let ground = Ground { store: store.as_fd(), folders: &folders };
        self.journal().changes(&ground, &selection, &|_, _| Vec::new()).unwrap()
    }

    pub(crate) fn differences(&self, most: u64) -> Vec<Difference> {
        let (store, folders) = (self.store(), [self.granted()]);
        let ground = Ground { store: store.as_fd(), folders: &folders };
        let selection = Selection::default();
        differences(&self.journal(), &ground, &selection, &|_, _| Vec::new(), most).unwrap()
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::read(self.store().as_fd()).unwrap()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        let mut first = BTreeMap::new();
        visit(&self.path(), "", &mut snapshot, &mut first);
        snapshot
    }
}

/// The granted folder of a bed.
pub(crate) fn granted(home: &Path, trash: Trash, caps: Caps) -> Folder {
    let path = home.join("grant");
    let stat = std::fs::metadata(&path).unwrap();
    Folder {
        name: "grant".to_owned(),
        path: path.as_os_str().as_bytes().to_vec(),
        device: stat.dev(),
        inode: stat.ino(),
        root: directory(&path),
        trash: (trash == Trash::Beside).then(|| directory(&home.join("trash"))),
        caps,
        owner: None,
    }
}

pub(crate) fn wish(sets: Sets, paths: &[&str], choice: Choice) -> Wish {
    let paths = paths
        .iter()
        .map(|path| Place { grant: "grant".to_owned(), path: path.as_bytes().to_vec() })
        .collect();
    Wish { what: What::Changes(Selection { sets, paths }), choice, manner: Manner::Real }
}

/// Fails with the names that differ.
#[track_caller]
pub(crate) fn same(found: &Snapshot, expected: &Snapshot, what: &str) {
    let mut differences = Vec::new();
    for name in found.keys().chain(expected.keys().filter(|name| !found.contains_key(*name))) {
        let (now, then) = (found.get(name), expected.get(name));
        if now != then {
            differences.push(format!("`{name}`:\n   now {now:?}\n  then {then:?}"));
        }
    }
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

/// Like it. A name in the trash counts as one until the set that put it there is undone, so that
/// numbers of names say nothing about a state that was not the first.
#[track_caller]
pub(crate) fn same_but_links(found: &Snapshot, expected: &Snapshot, what: &str) {
    let without = |snapshot: &Snapshot| {
        let mut snapshot = snapshot.clone();
        for node in snapshot.values_mut() {
            if node.mode & 0o170_000 != 0o040_000 {
                node.links = 0;
            }
        }
        snapshot
    };
    same(&without(found), &without(expected), what);
}

fn visit(path: &Path, name: &str, snapshot: &mut Snapshot, first: &mut BTreeMap<u64, String>) {
    let stat = std::fs::symlink_metadata(path).unwrap();
    let kind = stat.file_type();
    let contents = if kind.is_file() {
        std::fs::read(path).unwrap()
    } else if kind.is_symlink() {
        std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()
    } else {
        assert!(kind.is_dir() || kind.is_fifo() || kind.is_socket());
        Vec::new()
    };
    let first_name = first.entry(stat.ino()).or_insert_with(|| name.to_owned()).clone();
    snapshot.insert(
        name.to_owned(),
        Node {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            links: stat.nlink(),
            contents,
            attributes: attributes(path),
            first_name,
        },
    );
    if kind.is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for child in names {
            let child_name = child.to_str().unwrap();
            let below = if name.is_empty() {
                child_name.to_owned()
            } else {
                format!("{name}/{child_name}")
            };
            visit(&path.join(&child), &below, snapshot, first);
        }
    }
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut found: Vec<_> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect();
    found.sort();
    found
}

pub(crate) fn directory(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap()
}

/// Changes things as a command of a session does.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) hand: Hand,
    pub(crate) by: By,
    folder: u32,
    root: OwnedFd,
    /// Whether a file can be given further names.
    pub(crate) links: bool,
}

impl Command {
    /// Begins a set in the bed with this home.
    pub(crate) fn begin(home: &Path, trash: Trash, caps: Caps) -> Self {
        let mut hand = Hand::open(Some(directory(&home.join("store")))).unwrap();
        let folder = hand.add_folder(granted(home, trash, caps)).unwrap();
        let set = hand.begin(SetKind::Command, 7, vec![b"command".to_vec()]).unwrap();
        Self {
            hand,
            by: By { set, process: 7 },
            folder,
            root: directory(&home.join("grant")),
            links: true,
        }
    }

    /// Has it recorded what names are like, at a time when nobody has a file open.
    pub(crate) fn settle(&mut self) {
        let until = self.hand.touched();
        for (set, count) in self.hand.waiting() {
            self.hand.settle(set, (until, &HashSet::new()), count).unwrap();
        }
    }

    fn at<R>(
        &mut self,
        path: &str,
        act: impl FnOnce(&mut Hand, By, Spot<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let (parent, name) = self.parent(path)?;
        let spot = Spot {
            folder: self.folder,
            parent: parent.as_fd(),
            name: &name,
            path: path.as_bytes(),
        };
        act(&mut self.hand, self.by, spot)
    }

    fn parent(&self, path: &str) -> Result<(OwnedFd, CString), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&self.root, parent, flags, Mode::empty())?;
        Ok((parent, CString::new(name).unwrap()))
    }

    pub(crate) fn open(&mut self, path: &str, flags: OFlags) -> Result<std::fs::File, Errno> {
        let mode = Mode::from_raw_mode(0o644);
        match self.at(path, |hand, by, spot| hand.open_file(by, spot, flags, mode))? {
            Opened::File(file) => Ok(file.into()),
            Opened::Link => Err(Errno::LOOP),
            Opened::Special => Err(Errno::INVAL),
        }
    }

    pub(crate) fn write(&mut self, path: &str, contents: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        self.open(path, flags)?.write_all(contents).unwrap();
        Ok(())
    }

    pub(crate) fn append(&mut self, path: &str, contents: &[u8]) -> Result<(), Errno> {
        self.open(path, OFlags::WRONLY | OFlags::APPEND)?.write_all(contents).unwrap();
        Ok(())
    }

    pub(crate) fn truncate(&mut self, path: &str, length: u64) -> Result<(), Errno> {
        self.at(path, |hand, by, spot| hand.truncate(by, spot, length))
    }

    pub(crate) fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, Hand::remove)
    }

    pub(crate) fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, |hand, by, spot| hand.make_folder(by, spot, Mode::from_raw_mode(0o755)))
    }

    pub(crate) fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        self.at(path, Hand::remove_folder_entry)
    }

    pub(crate) fn mkfifo(&mut self, path: &str) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o600);
        self.at(path, |hand, by, spot| hand.make_node(by, spot, FileType::Fifo, mode))
    }

    pub(crate) fn symlink(&mut self, path: &str, target: &str) -> Result<(), Errno> {
        let target = CString::new(target).unwrap();
        self.at(path, |hand, by, spot| hand.make_link(by, spot, &target))
    }

    fn two<R>(
        &mut self,
        from: &str,
        to: &str,
        act: impl FnOnce(&mut Hand, By, Spot<'_>, Spot<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let (parent, name) = self.parent(from)?;
        let folder = self.folder;
        self.at(to, |hand, by, to| {
            let from = Spot { folder, parent: parent.as_fd(), name: &name, path: from.as_bytes() };
            act(hand, by, from, to)
        })
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        self.two(from, to, |hand, by, from, to| hand.rename(by, from, to, RenameFlags::empty()))
    }

    pub(crate) fn exchange(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        self.two(from, to, |hand, by, from, to| hand.rename(by, from, to, RenameFlags::EXCHANGE))
    }

    pub(crate) fn link(&mut self, of: &str, path: &str) -> Result<(), Errno> {
        if !self.links {
            return Err(Errno::PERM);
        }
        self.two(of, path, |hand, by, of, to| hand.add_name(by, LinkSource::Name(of), to))
    }

    pub(crate) fn chmod(&mut self, path: &str, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        self.at(path, |hand, by, spot| hand.set_mode(by, spot, mode))
    }

    pub(crate) fn chown(&mut self, path: &str, uid: u32, gid: u32) -> Result<(), Errno> {
        self.at(path, |hand, by, spot| hand.set_owner(by, spot, Some(uid), Some(gid)))
    }

    pub(crate) fn utimes(&mut self, path: &str, seconds: i64) -> Result<(), Errno> {
        let time = Timespec { tv_sec: seconds, tv_nsec: 5 };
        let times = Timestamps { last_access: time, last_modification: time };
        self.at(path, |hand, by, spot| hand.set_times(by, spot, &times))
    }

    pub(crate) fn attribute(&mut self, path: &str, name: &str, value: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).unwrap();
        let flags = XattrFlags::empty();
        self.at(path, |hand, by, spot| hand.set_attribute(by, spot, &name, value, flags))
    }

    pub(crate) fn remove_attribute(&mut self, path: &str, name: &str) -> Result<(), Errno> {
        let name = CString::new(name).unwrap();
        self.at(path, |hand, by, spot| hand.remove_attribute(by, spot, &name))
    }
}

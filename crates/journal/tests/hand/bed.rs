//! A granted folder, its trash and a store.

use cowork_api::files::{Caps, SetKind};
use cowork_journal::hand::{By, Folder, Hand, Opened, Spot};
use cowork_journal::log;
use cowork_journal::record::{At, Entry, Record, Saved};
use cowork_journal::save::contents;
use cowork_testbed::Person;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) const MODE: Mode = Mode::from_raw_mode(0o644);
pub(crate) const WRITE: OFlags = OFlags::WRONLY;
pub(crate) const CREATE: OFlags = OFlags::WRONLY.union(OFlags::CREATE);
pub(crate) const REPLACE: OFlags = CREATE.union(OFlags::TRUNC);

pub(crate) struct Bed {
    base: cowork_testbed::Folder,
    pub(crate) caps: Caps,
    pub(crate) trash: bool,
    pub(crate) owner: Option<(u32, u32)>,
}

/// A name with the handle on its folder.
pub(crate) struct Name {
    parent: OwnedFd,
    last: CString,
    path: Vec<u8>,
}

impl Name {
    pub(crate) fn spot(&self) -> Spot<'_> {
        Spot { folder: 1, parent: self.parent.as_fd(), name: &self.last, path: &self.path }
    }
}

pub(crate) fn folder(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

impl Bed {
    pub(crate) fn new() -> Self {
        let base = cowork_testbed::Folder::new(Person::Root, "hand");
        for name in ["grant", "trash", "store"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        Self { base, caps: Caps::default(), trash: true, owner: None }
    }

    pub(crate) fn grant(&self) -> PathBuf {
        self.base.path().join("grant")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.base.path().join("trash")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.base.path().join("store")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.grant().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.file(name)).ok()
    }

    /// The granted folder, as it is given to a hand.
    pub(crate) fn granted(&self) -> Folder {
        let look = std::fs::metadata(self.grant()).unwrap();
        Folder {
            name: "site".to_owned(),
            path: self.grant().into_os_string().into_encoded_bytes(),
            device: look.dev(),
            inode: look.ino(),
            root: folder(&self.grant()),
            trash: self.trash.then(|| folder(&self.trash())),
            caps: self.caps,
            owner: self.owner,
        }
    }

    /// A hand with the folder, and without a set.
    pub(crate) fn reopen(&self) -> Hand {
        let mut hand = Hand::open(Some(folder(&self.store()))).unwrap();
        assert_eq!(hand.add_folder(self.granted()), Ok(1));
        hand
    }

    /// A hand with the folder and a set.
    pub(crate) fn hand(&self) -> (Hand, By) {
        let mut hand = self.reopen();
        let by = begin(&mut hand);
        (hand, by)
    }

    pub(crate) fn name(&self, path: &str) -> Name {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        Name {
            parent: folder(&self.file(above)),
            last: CString::new(if name.is_empty() { "." } else { name }).unwrap(),
            path: path.as_bytes().to_vec(),
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let log = log::read(folder(&self.store()).as_fd()).unwrap();
        assert!(!log.torn);
        log.entries
    }

    /// What was recorded, but for the folder and the sets.
    pub(crate) fn records(&self) -> Vec<Record> {
        let head = |record: &Record| matches!(record, Record::Folder { .. } | Record::Set { .. });
        self.entries()
            .into_iter()
            .map(|entry| entry.record)
            .filter(|record| !head(record))
            .collect()
    }

    /// What was recorded of changes, without the folders that they were in.
    pub(crate) fn changes(&self) -> Vec<Record> {
        let inside = |record: &Record| matches!(record, Record::Inside { .. });
        self.records().into_iter().filter(|record| !inside(record)).collect()
    }

    /// The kept contents.
    pub(crate) fn kept(&self, saved: &Saved) -> Option<String> {
        let trash = folder(&self.trash());
        let store = folder(&self.store());
        let mut contents = contents(store.as_fd(), Some(trash.as_fd()), saved).unwrap()?;
        let mut text = String::new();
        contents.read_to_string(&mut text).unwrap();
        assert_eq!(contents.length(), text.len() as u64);
        Some(text)
    }

    /// Adds a record to the log that nobody acts upon, as a crash leaves it.
    pub(crate) fn append(&self, set: u32, record: Record) -> u64 {
        let seq = self.entries().len() as u64 + 1;
        let entry = Entry { seq, time: 0, set, process: 7, record };
        let payload = postcard::to_stdvec(&entry).unwrap();
        let mut file = File::options().append(true).open(self.store().join("log")).unwrap();
        let length = u32::try_from(payload.len()).unwrap();
        file.write_all(&length.to_le_bytes()).unwrap();
        file.write_all(&crc32fast::hash(&payload).to_le_bytes()).unwrap();
        file.write_all(&payload).unwrap();
        seq
    }

    pub(crate) fn trashed(&self) -> Vec<String> {
        let mut names = std::fs::read_dir(self.trash())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        names.sort();
        names
    }
}

pub(crate) fn begin(hand: &mut Hand) -> By {
    let set = hand.begin(SetKind::Command, 7, vec![b"sh".to_vec()]).unwrap();
    By { set, process: 7 }
}

pub(crate) fn at(path: &str) -> At {
    At { folder: 1, path: path.as_bytes().to_vec() }
}

pub(crate) fn opened(outcome: Result<Opened, Errno>) -> File {
    match outcome.unwrap() {
        Opened::File(file) => File::from(file),
        other => panic!("a file is opened, not {other:?}"),
    }
}

pub(crate) fn saved(record: &Record) -> &Saved {
    match record {
        Record::Write { saved, .. } | Record::Remove { saved, .. } => saved,
        other => panic!("{other:?} saves nothing"),
    }
}

//! Makes every change of a granted folder: saves what would be lost, records, then acts.
//!
//! What cannot succeed is found out first, with the error that the kernel would give, and is not
//! recorded. What the kernel refuses after all is recorded as failed. What cannot be recorded is
//! not done. One change is on its way at a time, so that after a crash only the last one can be
//! unfinished: it is looked at when its folder is added again.
//!
//! Deliberately absent: whether a change is allowed, and how a path leads to a name. No operation
//! follows a symbolic link at the end of a name.

mod after;
mod attributes;
mod entries;
mod files;
mod keep;
mod recover;
mod set;
mod settle;

pub use settle::FileId;

pub(crate) use recover::Left;

use crate::log::{Author, Writer};
use crate::meta::{Key, Look, Owners, attributes, attributes_at, look, look_at};
use crate::model::Journal;
use crate::record::{At, Meta, Record, Saved, Why};
use crate::save::{Sharing, Store};
use cowork_api::Text;
use cowork_api::files::{Caps, SetKind};
use rustix::io::Errno;
use set::{Known, Own, Set};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// After so many removals a set's records are brought to the disk before it goes on.
const MANY: u32 = 1000;

/// Makes changes, and records them first.
#[derive(Debug)]
pub struct Hand {
    kept: Option<Kept>,
    folders: HashMap<u32, Granted>,
    sets: BTreeMap<u32, Set>,
    last_set: u32,
    /// How often a name was touched.
    touched: u64,
    /// This process: user and group.
    own: (u32, u32),
    /// Failures that could not be recorded yet.
    owed: Vec<(Author, u64)>,
    left: Left,
    full: Full,
}

/// What becomes of a change when there is no room to keep what would be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// It is made: a program goes on, and what is lost is said.
    Lose,
    /// It is not made: whoever takes something back has time to make room.
    Refuse,
}

/// A store that is open.
#[derive(Debug)]
struct Kept {
    log: Writer,
    store: Store,
}

/// A folder in which changes can be made.
#[derive(Debug)]
struct Granted {
    root: OwnedFd,
    trash: Option<Arc<OwnedFd>>,
    caps: Caps,
    owner: Option<(u32, u32)>,
    sharing: Sharing,
}

/// On whose behalf a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The set, from [`Hand::begin`].
    pub set: u32,
    /// The process, by its id in the session; 0 if there is none.
    pub process: u32,
}

/// A name in a granted folder.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The folder, from [`Hand::add_folder`].
    pub folder: u32,
    /// The folder that the name is in, on the writable mount.
    pub parent: BorrowedFd<'a>,
    /// The name; `.` for the granted folder itself.
    pub name: &'a CStr,
    /// The whole path below the granted folder, free of links; empty for the folder itself.
    pub path: &'a [u8],
}

/// A granted folder.
#[derive(Debug)]
pub struct Folder {
    /// The grant's name.
    pub name: String,
    /// Where it lies on the host.
    pub path: Text,
    /// Which folder it is.
    pub device: u64,
    /// Which folder it is.
    pub inode: u64,
    /// A handle on it, on the writable mount.
    pub root: OwnedFd,
    /// A folder on the same mount for what is removed.
    pub trash: Option<OwnedFd>,
    /// How much is copied.
    pub caps: Caps,
    /// Who owns on disk what this process sees as its own: user and group.
    pub owner: Option<(u32, u32)>,
}

/// What opening a name gives.
#[derive(Debug)]
pub enum Opened {
    /// The file.
    File(OwnedFd),
    /// The name is a symbolic link, and is not followed.
    Link,
    /// The name is a pipe, a socket or a device, and is not opened.
    Special,
}

/// What a new name is to be another name of.
#[derive(Clone, Copy, Debug)]
pub enum LinkSource<'a> {
    /// What is under this name.
    Name(Spot<'a>),
    /// An open file of the same mount, perhaps without any name.
    File(BorrowedFd<'a>),
}

/// What a set did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files that existed before the set and were removed, or opened for writing.
    pub removed: u32,
    /// Names that it made.
    pub created: u64,
    /// Bytes that were copied to save them.
    pub copied: u64,
    /// Files whose contents could not be saved.
    pub lost: u32,
}

/// Whether something can be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// There is nothing to save.
    Needless,
    /// It is saved.
    Fits,
    /// It is not saved; why.
    Beyond(Why),
}

/// A change that was recorded and that the caller makes itself.
#[derive(Debug)]
#[must_use = "a change that was announced and not made is a failed one"]
pub struct Intent {
    by: By,
    seq: Option<u64>,
}

impl By {
    fn author(self) -> Author {
        Author { set: self.set, process: self.process }
    }
}

impl Spot<'_> {
    fn at(&self) -> At {
        At { folder: self.folder, path: self.path.to_vec() }
    }

    /// The path of the folder that the name is in.
    fn above(&self) -> &[u8] {
        let slash = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.path.get(..slash).unwrap_or_default()
    }

    /// Whether it is the granted folder itself.
    fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    fn place(&self) -> (u32, &[u8]) {
        (self.folder, self.path)
    }
}

impl Hand {
    /// Opens a store. Without one changes are made and not recorded. What a crash left at the end
    /// of the log that is no whole record is cut off.
    pub fn open(store: Option<OwnedFd>) -> Result<Self, Errno> {
        let mut left = Left::default();
        let mut kept = None;
        if let Some(store) = store {
            let mut entries = crate::log::entries(store.as_fd())?;
            while let Some(brief) = entries.advance()? {
                left.read(brief, entries.frame());
            }
            let log = Writer::open(store.as_fd(), entries.mark())?;
            kept = Some(Kept { log, store: Store::open(store)? });
        }
        Ok(Self::new(kept, left, Full::Lose))
    }

    /// Opens a store whose records were read, and reads them on. With this hand nothing is lost
    /// because a disk is full: what would be is not done.
    pub(crate) fn open_read(store: OwnedFd, journal: &mut Journal) -> Result<Self, Errno> {
        let read = journal.read_on(store.as_fd())?;
        let log = Writer::open(store.as_fd(), read)?;
        let kept = Kept { log, store: Store::open(store)? };
        Ok(Self::new(Some(kept), journal.take_left(), Full::Refuse))
    }

    fn new(kept: Option<Kept>, mut left: Left, full: Full) -> Self {
        left.finish();
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self {
            kept,
            folders: HashMap::new(),
            sets: BTreeMap::new(),
            last_set: left.last_set(),
            touched: 0,
            own,
            owed: Vec::new(),
            left,
            full,
        }
    }

    /// Adds a folder; its number, which is the same for the same folder in a whole log. What a
    /// crash left open there is brought in order first.
    pub fn add_folder(&mut self, folder: Folder) -> Result<u32, Errno> {
        let Folder { name, path, device, inode, root, trash, caps, owner } = folder;
        let (number, new) = self.left.number(&name, device, inode);
        if !new {
            self.recover(number, root.as_fd(), trash.as_ref().map(AsFd::as_fd))?;
        }
        let mut sharing = Sharing::Unknown;
        if let Some(kept) = &mut self.kept {
            if new {
                let record =
                    Record::Folder { folder: number, name: name.clone(), path, device, inode };
                kept.log.append(Author::default(), record)?;
            }
            if let Some(trash) = &trash {
                sharing = kept.store.try_sharing(trash.as_fd());
            }
            let copied = self.left.take_copied(number);
            if sharing != Sharing::Works {
                kept.store.copied = kept.store.copied.saturating_add(copied);
            }
        }
        if new {
            self.left.add_number(number, name, device, inode);
        }
        let trash = trash.map(Arc::new);
        self.folders.insert(number, Granted { root, trash, caps, owner, sharing });
        Ok(number)
    }

    /// Takes a folder away: no change is made in it any more. What names in it are like is recorded
    /// as at the end of every open set.
    pub fn remove_folder(&mut self, folder: u32) {
        let Some(granted) = self.folders.remove(&folder) else { return };
        let Some(kept) = &mut self.kept else { return };
        for (number, set) in &mut self.sets {
            let names = set.names.take(folder);
            let author = Author { set: *number, process: 0 };
            // Without these records nothing is lost but the knowledge of later changes.
            cowork_sys::ignore(kept.after(author, folder, granted.root.as_fd(), &names));
        }
    }

    /// Other limits for a folder.
    pub fn set_caps(&mut self, folder: u32, caps: Caps) {
        if let Some(granted) = self.folders.get_mut(&folder) {
            granted.caps = caps;
        }
    }

    /// Begins a set; its number.
    pub fn begin(&mut self, kind: SetKind, root: u32, argv: Vec<Text>) -> Result<u32, Errno> {
        self.close_left()?;
        let set = self.last_set.checked_add(1).ok_or(Errno::OVERFLOW)?;
        let by = By { set, process: root };
        self.record(by, Record::Set { kind, root, argv })?;
        self.last_set = set;
        self.sets.insert(set, Set::default());
        Ok(set)
    }

    /// Whether no set was ever begun.
    pub fn is_unwritten(&self) -> bool {
        self.last_set == 0
    }

    /// Whether a set was begun and is not closed. A change on behalf of any other is refused
    /// (`ESTALE`).
    pub fn is_open(&self, set: u32) -> bool {
        self.sets.contains_key(&set)
    }

    /// Records the process whose changes follow.
    pub fn process(&mut self, by: By, argv: Vec<Text>) -> Result<(), Errno> {
        self.set(by)?;
        self.record(by, Record::Process { argv }).map(drop)
    }

    /// Closes all sets: what is changed from now on is saved anew.
    pub fn boundary(&mut self) -> Result<(), Errno> {
        self.close_left()?;
        let open = self.sets.keys().copied().collect::<Vec<_>>();
        let mut outcome = Ok(());
        for set in open {
            outcome = outcome.and(self.close_quietly(set));
        }
        outcome.and(self.sync())
    }

    /// Closes a set: records what its names are like, and brings everything to the disk. It is
    /// closed even if that fails.
    pub fn close(&mut self, set: u32) -> Result<(), Errno> {
        self.close_quietly(set)?;
        self.sync()
    }

    fn close_quietly(&mut self, set: u32) -> Result<(), Errno> {
        let Some(mut closed) = self.sets.remove(&set) else { return Ok(()) };
        let author = Author { set, process: 0 };
        self.pay()?;
        let Some(kept) = &mut self.kept else { return Ok(()) };
        for folder in closed.names.folders() {
            let mut names = closed.names.take(folder);
            // Of what others work on still, they say what it is like.
            names.retain(|path, _| !self.sets.values().any(|set| set.names.waits(folder, path)));
            if let Some(granted) = self.folders.get(&folder) {
                kept.after(author, folder, granted.root.as_fd(), &names)?;
            }
        }
        kept.log.append(author, Record::Closed).map(drop)
    }

    /// Records that an undo, redo or apply is complete. It is closed next.
    pub fn complete(&mut self, set: u32) -> Result<(), Errno> {
        let by = By { set, process: 0 };
        self.set(by)?;
        self.record(by, Record::Complete).map(drop)
    }

    /// What a set did so far.
    pub fn tally(&self, set: u32) -> Tally {
        self.sets.get(&set).map(|set| set.tally).unwrap_or_default()
    }

    /// What writing to a file would save.
    pub fn saving(&self, by: By, spot: Spot<'_>) -> Result<Saving, Errno> {
        self.would_save(by, spot, None)
    }

    /// Whether what has a name was made by the same set, or opened for writing.
    pub fn is_touched(&self, by: By, spot: Spot<'_>) -> Result<bool, Errno> {
        let set = self.sets.get(&by.set).ok_or(Errno::STALE)?;
        match look(spot.parent, spot.name) {
            Ok(look) => Ok(set.known(look.key()).is_some_and(|known| known >= Known::Saved)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What removing a name, or renaming something over it, would save.
    pub fn saving_removal(&self, by: By, spot: Spot<'_>) -> Result<Saving, Errno> {
        let granted = self.granted(spot.folder)?;
        self.would_save(by, spot, granted.trash.as_ref().map(|trash| trash.as_fd()))
    }

    fn would_save(
        &self,
        by: By,
        spot: Spot<'_>,
        trash: Option<BorrowedFd<'_>>,
    ) -> Result<Saving, Errno> {
        let granted = self.granted(spot.folder)?;
        let set = self.sets.get(&by.set).ok_or(Errno::STALE)?;
        let look = match look(spot.parent, spot.name) {
            Ok(look) => look,
            Err(Errno::NOENT) => return Ok(Saving::Needless),
            Err(error) => return Err(error),
        };
        let Some(kept) = &self.kept else { return Ok(Saving::Needless) };
        let known = set.known(look.key()).is_some_and(|known| known >= Known::Saved);
        if known || look.file_type() != rustix::fs::FileType::RegularFile {
            return Ok(Saving::Needless);
        }
        if trash.is_some() {
            return Ok(Saving::Fits);
        }
        let fits = kept.store.would_keep(look.size(), &granted.caps, granted.sharing);
        Ok(fits.map_or_else(Saving::Beyond, |()| Saving::Fits))
    }

    fn granted(&self, folder: u32) -> Result<&Granted, Errno> {
        self.folders.get(&folder).ok_or(Errno::ROFS)
    }

    fn set(&mut self, by: By) -> Result<&mut Set, Errno> {
        self.sets.get_mut(&by.set).ok_or(Errno::STALE)
    }

    /// Whether a change may be made at all.
    fn check(&mut self, by: By, spot: &Spot<'_>) -> Result<(), Errno> {
        self.granted(spot.folder)?;
        self.set(by).map(drop)
    }

    fn owners(&self, folder: u32) -> Owners {
        let disk = self.folders.get(&folder).and_then(|granted| granted.owner);
        Owners { own: self.own, disk }
    }

    fn known(&self, by: By, key: Key) -> Option<Known> {
        self.sets.get(&by.set)?.known(key)
    }

    /// Remembers what a set did to a file. For every other set it is a file that somebody else
    /// changed.
    fn learn(&mut self, by: By, key: Key, known: Known) {
        for (number, set) in &mut self.sets {
            if *number == by.set {
                set.learn(key, known);
            } else {
                set.forget(key);
            }
        }
    }

    /// Remembers that a set touched a name, and what it left there. What other sets know of the
    /// name holds no more.
    fn touch(&mut self, by: By, spot: &Spot<'_>, left: Option<&Look>) {
        if self.kept.is_none() {
            return;
        }
        self.touched += 1;
        let (folder, path) = spot.place();
        for (number, set) in &mut self.sets {
            if *number == by.set {
                set.names.touch(folder, path, Own::open(self.touched, left));
            } else {
                set.names.blur(folder, path, self.touched);
            }
        }
    }

    /// What a name is like. The attributes of what is new in its set are never brought back.
    fn before(&self, by: By, spot: &Spot<'_>, look: &Look) -> Meta {
        let attributes = match self.known(by, look.key()) {
            Some(Known::Created) => Vec::new(),
            _ => attributes(spot.parent, spot.name),
        };
        look.meta(attributes, self.owners(spot.folder))
    }

    /// Writes a record; its number if there is a log.
    fn record(&mut self, by: By, record: Record) -> Result<Option<u64>, Errno> {
        self.pay()?;
        let Some(kept) = &mut self.kept else { return Ok(None) };
        kept.log.append(by.author(), record).map(Some)
    }

    /// The number that the next record gets.
    fn next(&mut self) -> Result<u64, Errno> {
        self.pay()?;
        Ok(self.kept.as_ref().map_or(0, |kept| kept.log.next()))
    }

    /// Records that something did not happen after all.
    fn take_back(&mut self, by: By, seq: Option<u64>) {
        let Some(seq) = seq else { return };
        self.owed.push((by.author(), seq));
        // Nothing else is recorded until this is.
        cowork_sys::ignore(self.pay());
    }

    /// Writes the failures that are not recorded yet.
    fn pay(&mut self) -> Result<(), Errno> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let Some(kept) = &mut self.kept else { return Ok(()) };
        for (author, seq) in &self.owed {
            kept.log.gather(*author, Record::Failed { seq: *seq })?;
        }
        kept.log.flush()?;
        self.owed.clear();
        Ok(())
    }

    /// Records what the folder of a name is like, before the first name in it changes in a set.
    fn inside(&mut self, by: By, spot: &Spot<'_>) -> Result<(), Errno> {
        self.inside_of(by, (spot.folder, spot.above()), spot.parent)
    }

    /// Records what a folder is like, before its times change for the first time in a set.
    fn inside_of(&mut self, by: By, at: (u32, &[u8]), folder: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.kept.is_none() {
            return Ok(());
        }
        let look = look_at(folder)?;
        let key = look.key();
        let set = self.set(by)?;
        if set.knows_inside(key) || set.known(key) == Some(Known::Created) {
            return Ok(());
        }
        let (number, path) = at;
        let before = look.meta(attributes_at(folder), self.owners(number));
        let at = At { folder: number, path: path.to_vec() };
        self.record(by, Record::Inside { at, before })?;
        self.touched += 1;
        let own = Own::open(self.touched, Some(&look));
        let set = self.set(by)?;
        set.learn_inside(key);
        set.names.touch(number, path, own);
        Ok(())
    }

    /// Brings the records to the disk before a set removes many files.
    fn sync_before_many(&mut self, by: By) -> Result<(), Errno> {
        let set = self.set(by)?;
        if set.synced || set.tally.removed < MANY {
            return Ok(());
        }
        set.synced = true;
        self.sync()
    }

    fn sync(&mut self) -> Result<(), Errno> {
        match &mut self.kept {
            Some(kept) if kept.log.sync_due() => {
                kept.store.sync()?;
                kept.log.sync()
            }
            _ => Ok(()),
        }
    }

    /// Forgets what was kept for a record that was not written or did not happen.
    fn discard(&self, folder: u32, saved: &Saved) {
        let trash = self.folders.get(&folder).and_then(|granted| granted.trash.as_ref());
        if let Some(kept) = &self.kept {
            kept.store.discard(trash.map(|trash| trash.as_fd()), saved);
        }
    }
}

//! What a clerk works with: the records, and the folders that they are about.

use super::Refusal;
use super::marks::Reader;
use crate::away;
use crate::folder::{identity, open_exactly};
use crate::kernel::{path_of, retry};
use cowork_api::Text;
use cowork_api::files::{Away, Change, Choice, Kept, Place, Selection, SetKind, Sets};
use cowork_api::plan::Identity;
use cowork_journal::hand::Folder;
use cowork_journal::model::{Granted, Ground, Journal};
use cowork_journal::undo::{Manner, What, Wish, undo_read};
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, fchown, openat2};
use std::collections::BTreeMap;

/// The folder of the store in which each granted folder has one for what is removed from it.
const TRASH: &str = "trash";

/// A folder that is not there.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) granted: Granted,
    /// Why, for a person.
    pub(super) why: String,
}

/// What a clerk works with.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) store: OwnedFd,
    pub(super) journal: Journal,
    /// The folders that are there.
    pub(super) folders: Vec<Folder>,
    /// Those that are not.
    pub(super) missing: Vec<Missing>,
    /// Those that are there without what was removed from them, and why.
    pub(super) bereft: Vec<(String, String)>,
    /// What was done first, because it was begun before and not finished.
    pub(super) finished: Vec<(Place, String)>,
}

impl Desk {
    /// Opens a store, and the folders that its records are about.
    pub(super) fn open(kept: &Kept) -> Result<Self, Refusal> {
        let path = path_of(&kept.path);
        let what = format!("open the recorded changes in `{}`", path.display());
        let store = open_exactly(path).map_err(|errno| Refusal::kernel(&what, errno))?;
        let found = identity(store.as_fd()).map_err(|errno| Refusal::kernel(&what, errno))?;
        if found != kept.folder {
            let sentence =
                format!("`{}` is no longer the folder with the recorded changes", path.display());
            return Err(Refusal::new(sentence, "look at what it is now"));
        }
        Self::read(store)
    }

    fn read(store: OwnedFd) -> Result<Self, Refusal> {
        let journal = Journal::read(store.as_fd())
            .map_err(|errno| Refusal::kernel("read the recorded changes", errno))?;
        let mut desk = Self {
            store,
            journal,
            folders: Vec::new(),
            missing: Vec::new(),
            bereft: Vec::new(),
            finished: Vec::new(),
        };
        desk.find_folders();
        Ok(desk)
    }

    fn find_folders(&mut self) {
        for granted in self.journal.folders() {
            let expected = Identity { device: granted.device, inode: granted.inode };
            let away = away::of_folder(self.store.as_fd(), expected);
            match open_granted(&granted.path, expected) {
                Ok(root) => {
                    let trash = match away {
                        Some(away) => self.trash_away(&away, &granted.name, &root),
                        None => self.trash(&granted.name),
                    };
                    self.folders.push(folder(granted, root, trash));
                }
                Err(why) => {
                    let absence =
                        away.and_then(|away| away::absence(&away, path_of(&granted.path)));
                    let why = absence.unwrap_or(why);
                    self.missing.push(Missing { granted, why });
                }
            }
        }
    }

    /// The folder for what is removed from a granted one, if there is one.
    pub(super) fn trash(&self, name: &str) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = format!("{TRASH}/{name}");
        retry(|| openat2(&self.store, path.as_str(), flags, Mode::empty(), resolve)).ok()
    }

    /// The same, of one that is at the top of the granted folder's mount.
    fn trash_away(&mut self, away: &Away, name: &str, root: &OwnedFd) -> Option<OwnedFd> {
        match away::reopen(away, name, root.as_fd()) {
            Ok(trash) => Some(trash),
            Err(why) => {
                self.bereft.push((name.to_owned(), why));
                None
            }
        }
    }

    /// What the records are compared with.
    pub(super) fn ground(&self) -> Ground<'_> {
        Ground { store: self.store.as_fd(), folders: &self.folders }
    }

    /// The folders that are there, by the numbers that records give them.
    pub(super) fn numbered(&self) -> BTreeMap<u32, &Folder> {
        let granted = self.journal.folders();
        let number = |folder: &Folder| {
            let known = |granted: &&Granted| {
                (granted.device, granted.inode, &granted.name)
                    == (folder.device, folder.inode, &folder.name)
            };
            granted.iter().find(known).map(|granted| granted.number)
        };
        self.folders.iter().filter_map(|folder| Some((number(folder)?, folder))).collect()
    }

    /// Marks a change with what a person should know of the file.
    pub(super) fn mark(&self, reader: &Reader, change: &mut Change) {
        let folder = self.folders.iter().find(|folder| folder.name == change.at.grant);
        reader.mark(change, folder.map(|folder| folder.root.as_fd()));
    }

    /// The folders that these sets touched and that are not there, among those that are meant.
    pub(super) fn missing_of(&self, sets: &[u32], places: &[Place]) -> Vec<(Place, String)> {
        let infos = self.journal.sets();
        let touched = |granted: &Granted| {
            let mut own = infos.iter().filter(|info| sets.contains(&info.set));
            own.any(|info| {
                let mut folders = info.folders.iter();
                folders.any(|(name, path)| (name, path) == (&granted.name, &granted.path))
            })
        };
        let is_meant =
            |name: &str| places.is_empty() || places.iter().any(|place| place.grant == name);
        let missing = self
            .missing
            .iter()
            .filter(|missing| touched(&missing.granted) && is_meant(&missing.granted.name));
        missing.map(|missing| (whole(&missing.granted.name), missing.why.clone())).collect()
    }

    /// Before something is changed: finishes an undo that was interrupted, and takes back an apply
    /// that was. Where the user has changed something since, that stays, unless it is chosen now.
    pub(super) fn prepare(self, manner: Manner, choice: Choice) -> Result<Self, Refusal> {
        if manner == Manner::Rehearsal {
            return Ok(self);
        }
        let Some((selection, word)) = self.interrupted() else { return Ok(self) };
        let keeping = self.keeping();
        let again = retained(&self.store)?;
        let (store, journal, folders) = self.hand_over();
        let what = What::Changes(selection);
        let choice = if choice == Choice::Refuse { Choice::Ours } else { choice };
        let wish = Wish { what, choice, manner: Manner::Real };
        let outcome = undo_read(store, journal, folders, &wish);
        keeping.settle();
        let restored = outcome
            .map_err(|errno| Refusal::kernel("finish what was interrupted before", errno))?;
        let mut desk = Self::read(again)?;
        let told = restored.done.into_iter().map(|(place, how)| (place, format!("{word}: {how}")));
        desk.finished = told.collect();
        Ok(desk)
    }

    /// The last set, if it is an undo or an apply that did not come to its end: what is to be undone
    /// for it, and how that is called.
    fn interrupted(&self) -> Option<(Selection, &'static str)> {
        let last = self.journal.sets().into_iter().next_back()?;
        if self.journal.is_complete(last.set) {
            return None;
        }
        match last.kind {
            SetKind::Command => None,
            SetKind::Undo(sets) => {
                let selection = Selection { sets: Sets::Numbers(sets), paths: places(&last.argv) };
                Some((selection, "finished what was interrupted"))
            }
            SetKind::Apply => {
                let sets = Sets::Numbers(vec![last.set]);
                Some((Selection { sets, paths: Vec::new() }, "took back what was interrupted"))
            }
        }
    }

    /// What whoever adds to the records takes.
    pub(super) fn hand_over(self) -> (OwnedFd, Journal, Vec<Folder>) {
        (self.store, self.journal, self.folders)
    }

    /// Whose the records are.
    pub(super) fn keeping(&self) -> Keeping {
        let keeping = Keeping { store: self.store.try_clone().ok() };
        keeping.settle();
        keeping
    }
}

fn retained(store: &OwnedFd) -> Result<OwnedFd, Refusal> {
    store.try_clone().map_err(|error| {
        Refusal::kernel("keep the records open", Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })
}

/// Makes sure that the records stay whose they are: in root mode a broker, which is not root, adds
/// to them next.
#[derive(Debug)]
pub(super) struct Keeping {
    store: Option<OwnedFd>,
}

impl Keeping {
    /// Gives the files that brokers add to the owner of the store.
    pub(super) fn settle(&self) {
        let Some(store) = self.store.as_ref().filter(|_| rustix::process::geteuid().is_root())
        else {
            return;
        };
        let Ok(stat) = rustix::fs::fstat(store) else { return };
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        for name in ["log", "pack"] {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::openat(store, name, flags, Mode::empty()) {
                // A broker that cannot add to it says so when it starts.
                cowork_sys::ignore(fchown(&file, Some(uid), Some(gid)));
            }
        }
    }
}

/// Opens a granted folder, if it is still the one that was recorded. Else it says why not, for a
/// person.
pub(super) fn open_granted(path: &[u8], expected: Identity) -> Result<OwnedFd, String> {
    let path = path_of(path);
    let changed = || format!("`{}` is no longer the folder that was granted", path.display());
    let root = match open_exactly(path) {
        Ok(root) => root,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(changed()),
        Err(errno) => return Err(format!("cannot open `{}`: {errno}", path.display())),
    };
    match identity(root.as_fd()) {
        Ok(found) if found == expected => Ok(root),
        _ => Err(changed()),
    }
}

/// A granted folder itself.
pub(super) fn whole(grant: &str) -> Place {
    Place { grant: grant.to_owned(), path: Vec::new() }
}

/// A folder as it is changed by a clerk: on the host's own mount, by its own identity.
pub(super) fn folder(granted: Granted, root: OwnedFd, trash: Option<OwnedFd>) -> Folder {
    Folder {
        name: granted.name,
        path: granted.path,
        device: granted.device,
        inode: granted.inode,
        root,
        trash,
        caps: cowork_api::files::Caps::default(),
        owner: None,
    }
}

/// The names that an undo was asked for, as its set has them: a word, then grants and paths. None if
/// it was asked for all.
fn places(argv: &[Text]) -> Vec<Place> {
    let named = argv.iter().skip(1).filter_map(|name| {
        let slash = name.iter().position(|byte| *byte == b'/')?;
        let grant = String::from_utf8(name.get(..slash)?.to_vec()).ok()?;
        Some(Place { grant, path: name.get(slash + 1..)?.to_vec() })
    });
    named.collect()
}

/// Whether a name is one of these, or lies below one. All are, if there are none.
pub(super) fn matches_any(places: &[Place], grant: &str, path: &[u8]) -> bool {
    places.is_empty()
        || places.iter().any(|place| place.grant == grant && lies_in(path, &place.path))
}

/// Whether a path is another, or lies below it.
pub(super) fn lies_in(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => above.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

/// How what the user has is called when it is kept beside something else, as in an undo.
pub(super) fn kept_name(name: &[u8], number: u32) -> Vec<u8> {
    [name, format!(".yours-{number}").as_bytes()].concat()
}

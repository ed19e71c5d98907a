//! The door for files: changes in granted folders are made here, after they were judged and recorded.
//!
//! In the session a granted folder is mounted read-only. A call that would change something is read
//! once, its name is resolved as the caller sees it ([`locate`]), and if it is in such a folder the
//! change is judged ([`judge`]) and made by the [`Hand`] on a mount that only the broker holds. All
//! other calls go on in the kernel, whatever their memory says meanwhile: where it would matter, the
//! session's own mount refuses them.
//!
//! Invariants. At most one change is on its way. Nobody waits with the hand locked. A name is where
//! it was judged to be when the change is made: folders are moved by the hand only, and after a move
//! every name is looked at again.
//!
//! Deliberately absent: connections, which never go on in the kernel, and descriptors: what is
//! written through them is not seen here.

mod attributes;
mod bind;
mod call;
mod folders;
mod judge;
mod line;
mod locate;
mod mask;
mod names;
mod open;
mod open_still;
mod paths;
mod quota;
mod refusals;
mod settle;
mod space;
mod tree;
mod walk;
mod who;

use super::Broker;
use crate::common::Commons;
use call::Call;
use cowork_api::files::{BrokeredFolder, FromBroker, Refusal, ToBroker};
use cowork_journal::hand::{By, Hand};
use cowork_journal::record::Why;
use cowork_policy::seccomp::Arch;
use cowork_sys::Errno;
use cowork_sys::seccomp::{AtExec, Notification};
use folders::{Folder, Folders, look};
use line::Line;
use locate::Place;
use mask::Masks;
use open_still::Writable;
use refusals::Refusals;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
pub(super) use settle::Begun;
use settle::{Pace, Under};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use who::Ledger;

/// `AT_FDCWD`.
const HERE: i32 = -100;
/// `AT_SYMLINK_NOFOLLOW`.
const NOFOLLOW: u32 = 0x100;
/// `AT_SYMLINK_FOLLOW`.
const FOLLOW: u32 = 0x400;
/// `AT_EMPTY_PATH`.
const EMPTY_PATH: u32 = 0x1000;
/// How often a call is started anew because folders were moved while it was judged.
const TRIES: u32 = 16;
/// Most entries of the small tables of this module; beyond, one is emptied and filled again.
const MAX_NOTED: usize = 4096;

/// What becomes of a call.
pub(super) enum Outcome {
    /// The kernel carries it out.
    Continue,
    /// It is answered with this.
    Done(Result<i64, Errno>),
    /// It returns a descriptor of this file.
    File(OwnedFd, AtExec),
}

impl Outcome {
    const DONE: Self = Self::Done(Ok(0));
}

/// What carries out one kind of call.
type Carrier = fn(&Call<'_>) -> Result<Outcome, Errno>;

/// Every call that changes files by name, and what carries it out.
const CARRIERS: [(&str, Carrier); 39] = [
    ("open", open::open),
    ("openat", open::openat),
    ("creat", open::creat),
    ("truncate", open::truncate),
    ("unlink", names::unlink),
    ("unlinkat", names::unlinkat),
    ("rmdir", names::rmdir),
    ("rename", names::rename),
    ("renameat", names::renameat),
    ("renameat2", names::renameat2),
    ("link", names::link),
    ("linkat", names::linkat),
    ("symlink", names::symlink),
    ("symlinkat", names::symlinkat),
    ("mkdir", names::mkdir),
    ("mkdirat", names::mkdirat),
    ("mknod", names::mknod),
    ("mknodat", names::mknodat),
    ("chmod", attributes::chmod),
    ("fchmod", attributes::fchmod),
    ("fchmodat", attributes::fchmodat),
    ("fchmodat2", attributes::fchmodat2),
    ("chown", attributes::chown),
    ("lchown", attributes::lchown),
    ("fchownat", attributes::fchownat),
    ("utime", attributes::utime),
    ("utimes", attributes::utimes),
    ("futimesat", attributes::futimesat),
    ("utimensat", attributes::utimensat),
    ("setxattr", attributes::setxattr),
    ("lsetxattr", attributes::lsetxattr),
    ("removexattr", attributes::removexattr),
    ("lremovexattr", attributes::lremovexattr),
    ("bind", bind::bind),
    ("access", space::access),
    ("faccessat", space::faccessat),
    ("faccessat2", space::faccessat2),
    ("statfs", space::statfs),
    ("fstatfs", space::fstatfs),
];

/// The folders of a session and everything that is known about their changes.
pub(super) struct Files {
    /// The session's root.
    root: OwnedFd,
    /// `/proc`.
    processes: OwnedFd,
    hand: Result<Mutex<Hand>, Errno>,
    folders: RwLock<Folders>,
    carriers: HashMap<i32, Carrier>,
    /// The number of `umask`, which is noted and carried out by the kernel.
    umask: Option<i32>,
    line: Line,
    /// The number of the session's first process.
    init: u32,
    ledger: Ledger,
    /// Readable when a set has begun that nobody looks after yet.
    begun: OwnedFd,
    /// What rules refused.
    refusals: Refusals,
    /// Files that somebody could write to at the end of a set, and that are neither kept nor
    /// recorded as lost yet.
    owed: Mutex<Vec<(Writable, Why)>>,
    /// Who waits until sets are closed.
    settling: Mutex<Vec<u64>>,
    /// Calls that are being carried out.
    under: Under,
    masks: Masks,
    /// Whether the keeper has told of all folders that there were when this broker was started.
    introduced: AtomicBool,
    /// How often a folder was moved by the session. Others count beside their folders.
    moves: AtomicU64,
    /// How often anything was changed.
    changes: AtomicU64,
    /// Files with several names of which none is protected, by the set that wanted to know.
    cleared: Mutex<HashSet<(u32, u64, u64)>>,
    /// How many files were counted in a folder, for a set.
    counts: Mutex<HashMap<(u32, u32), u64>>,
    /// How many files a set removed or overwrote, where that is not recorded.
    losses: Option<Mutex<HashMap<u32, u32>>>,
}

impl Files {
    /// Prepares for the session whose first process is `init`.
    pub(super) fn new(line: OwnedFd, store: Option<OwnedFd>, init: u32) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, format!("/proc/{init}/root"), flags, Mode::empty())?;
        let processes = rustix::fs::openat(CWD, "/proc", flags, Mode::empty())?;
        let arch = Arch::native().ok_or(Errno::NOSYS)?;
        let number = |call| i32::try_from(arch.number_of(call)?).ok();
        let carriers =
            CARRIERS.iter().filter_map(|(call, carrier)| Some((number(call)?, *carrier)));
        let losses = store.is_none().then(Mutex::default);
        Ok(Self {
            root,
            processes,
            hand: Hand::open(store).map(Mutex::new),
            folders: RwLock::new(Arc::new([])),
            carriers: carriers.collect(),
            umask: number("umask"),
            line: Line::new(line),
            init,
            ledger: Ledger::new(init),
            refusals: Refusals::default(),
            owed: Mutex::default(),
            settling: Mutex::default(),
            under: Under::default(),
            begun: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            masks: Masks::default(),
            introduced: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            cleared: Mutex::default(),
            counts: Mutex::default(),
            losses,
        })
    }

    /// Carries out a call, if it is one of a file; `None` if it is another. What it has begun ends
    /// when it is answered.
    pub(super) fn decide(
        &self,
        broker: &Broker,
        note: &Notification,
    ) -> Option<(Outcome, Option<Begun>)> {
        if Some(note.number) == self.umask {
            let [mask, ..] = note.arguments;
            self.masks.note(super::low_half(mask));
            return Some((Outcome::Continue, None));
        }
        let carrier = self.carriers.get(&note.number)?;
        self.line.heed_news(self, broker.told());
        let mut outcome = Err(Errno::AGAIN);
        let mut begun = None;
        for _ in 0..TRIES {
            let folders = self.folders();
            if folders.is_empty() {
                return Some((Outcome::Continue, None));
            }
            let call = Call::new(broker, self, note, folders);
            outcome = carrier(&call);
            begun = call.begun.into_inner();
            match outcome {
                // A folder was moved, or a set closed, between judging and acting.
                Err(Errno::STALE) => {}
                _ => break,
            }
        }
        Some((outcome.unwrap_or_else(|errno| Outcome::Done(Err(errno))), begun))
    }

    fn folders(&self) -> Folders {
        Arc::clone(&self.folders.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The hand, for this thread alone.
    fn hand(&self) -> Result<MutexGuard<'_, Hand>, Errno> {
        let hand = self.hand.as_ref().map_err(|errno| *errno)?;
        Ok(hand.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often a folder in these was moved, by this session or another one.
    fn moves(&self, folders: &[Arc<Folder>]) -> u64 {
        let own = self.moves.load(Ordering::SeqCst);
        folders.iter().fold(own, |sum, folder| sum.wrapping_add(folder.commons.moves()))
    }

    /// How often anything in these folders was changed, by this session or another one.
    fn names(&self, folders: &[Arc<Folder>]) -> u64 {
        let own = self.changes.load(Ordering::SeqCst);
        folders.iter().fold(own, |sum, folder| sum.wrapping_add(folder.commons.changes()))
    }

    /// A folder was moved in this one.
    fn note_move(&self, folder: &Folder) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        folder.commons.note_move();
    }

    fn is_cleared(&self, file: (u32, u64, u64)) -> bool {
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner).contains(&file)
    }

    fn clear(&self, file: (u32, u64, u64)) {
        let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        if cleared.len() >= MAX_NOTED {
            cleared.clear();
        }
        cleared.insert(file);
    }

    fn counted(&self, of: (u32, u32)) -> Option<u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(&of).copied()
    }

    fn count(&self, of: (u32, u32), files: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_NOTED {
            counts.clear();
        }
        counts.insert(of, files);
    }

    /// How many files a set has removed, if that is not recorded.
    fn unrecorded_losses(&self, set: u32) -> Option<u32> {
        let losses = self.losses.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(losses.get(&set).copied().unwrap_or_default())
    }

    fn count_loss(&self, set: u32) {
        if let Some(losses) = &self.losses {
            let mut losses = losses.lock().unwrap_or_else(PoisonError::into_inner);
            if losses.len() >= MAX_NOTED {
                losses.clear();
            }
            let count = losses.entry(set).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Carries out a message of the keeper. They come in order, one at a time.
    fn heed(&self, message: ToBroker, handles: Vec<OwnedFd>) {
        match message {
            ToBroker::Folder(about) => {
                let name = about.name.clone();
                self.forget(&name);
                if let Ok(folder) = self.folder(*about, handles) {
                    self.change(|folders| folders.push(Arc::new(folder)));
                }
            }
            ToBroker::Remove { name } => self.forget(&name),
            ToBroker::Rules { name, rules } => {
                if let Some(folder) = self.folders().iter().find(|folder| folder.name == name) {
                    if let Ok(mut hand) = self.hand() {
                        hand.set_caps(folder.number, rules.caps);
                    }
                    folder.set_rules(rules);
                    self.line.forget(folder.number);
                }
            }
            ToBroker::Boundary => {
                self.ledger.boundary(self);
                // Of a broker before this one there may be files that are open still.
                let unwritten = self.hand().is_ok_and(|hand| hand.is_unwritten());
                if !unwritten {
                    self.save_open_files();
                }
                self.introduced.store(true, Ordering::SeqCst);
            }
            // The line takes answers itself.
            ToBroker::Settle { number } => self.settle_later(number),
            ToBroker::Answer { .. } => {}
        }
    }

    fn forget(&self, name: &str) {
        let known = self.folders();
        if let Some(folder) = known.iter().find(|folder| folder.name == name) {
            self.change(|folders| folders.retain(|folder| folder.name != name));
            if let Ok(mut hand) = self.hand() {
                hand.remove_folder(folder.number);
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Folder>>)) {
        let mut known = self.folders.write().unwrap_or_else(PoisonError::into_inner);
        let mut folders = known.to_vec();
        change(&mut folders);
        *known = folders.into();
    }

    /// A folder that the keeper told of.
    fn folder(&self, about: BrokeredFolder, handles: Vec<OwnedFd>) -> Result<Folder, Errno> {
        let mut handles = handles.into_iter();
        let root = handles.next().ok_or(Errno::BADF)?;
        let inside = about.at.clone();
        let seen = self.in_session(&inside)?;
        let trash = if about.trash { handles.next() } else { None };
        let commons = Commons::new(handles, self.init)?;
        let number = self.hand()?.add_folder(cowork_journal::hand::Folder {
            name: about.name.clone(),
            path: about.path.clone(),
            device: about.folder.device,
            inode: about.folder.inode,
            root: rustix::io::fcntl_dupfd_cloexec(&root, 0)?,
            trash,
            caps: about.rules.caps,
            owner: about.owner,
        })?;
        Folder::new(about, number, root, (inside, seen), commons)
    }

    /// The mount that the session has at a path.
    fn in_session(&self, path: &[u8]) -> Result<u64, Errno> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = crate::kernel::retry(|| {
            rustix::fs::openat2(&self.root, path, flags, Mode::empty(), how)
        })?;
        Ok(look(found.as_fd())?.stx_mnt_id)
    }

    /// Waits until the keeper has told of all folders: it ends that with a boundary.
    pub(super) fn wait_for_folders(&self) {
        loop {
            self.line.heed(self);
            if self.introduced.load(Ordering::SeqCst) || self.line.channel().is_closed() {
                return;
            }
            let mut watched = [PollFd::new(self.line.channel(), PollFlags::IN)];
            // Interrupted or not, it is looked again.
            cowork_sys::ignore(poll(&mut watched, None));
        }
    }

    /// Takes messages of the keeper and closes sets, until the session is gone.
    pub(super) fn tend(&self, broker: &Broker) {
        /// How often it is looked whether the processes of a set are gone.
        const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        let mut pace = Pace::default();
        while !broker.is_over() {
            let told = self.refusals.tell_more(&self.line);
            let owes = !told || !self.record_lost_files();
            let pause = (owes || self.ledger.has_sets()).then_some(&PAUSE);
            let mut watched = [
                PollFd::new(self.line.channel(), PollFlags::IN),
                PollFd::new(&broker.listener, PollFlags::empty()),
                PollFd::new(&self.begun, PollFlags::IN),
            ];
            if poll(&mut watched, pause).is_err() {
                continue;
            }
            if self.line.channel().is_closed() {
                return;
            }
            // How many have begun does not matter.
            cowork_sys::ignore(rustix::io::read(&self.begun, &mut [0; 8]));
            self.line.heed(self);
            let settling = std::mem::take(&mut *self.settling());
            self.ledger.sweep(self);
            self.settle_files(&mut pace);
            for number in settling {
                self.line.tell(&FromBroker::Settled { number });
            }
        }
    }

    /// Tells the keeper that a rule refused something; how often it happens is told in any case.
    fn refused(&self, refusal: Refusal) {
        if self.refusals.count() {
            self.line.tell(&FromBroker::Refused(refusal));
        } else {
            self.look_after_sets();
        }
    }

    fn owed(&self) -> MutexGuard<'_, Vec<(Writable, Why)>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settling(&self) -> MutexGuard<'_, Vec<u64>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has sets closed by whoever looks after them, and the keeper told.
    fn settle_later(&self, number: u64) {
        self.settling().push(number);
        self.look_after_sets();
    }

    /// Has a set looked after that has just begun.
    pub(super) fn look_after_sets(&self) {
        // It can only fail because it is readable already.
        cowork_sys::ignore(rustix::io::write(&self.begun, &1_u64.to_ne_bytes()));
    }
}

impl Call<'_> {
    /// Makes a change, if the names that it is about are still where they were judged to be.
    fn act<T>(
        &self,
        places: &[&Place],
        work: impl FnOnce(&mut Hand, By) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let by = self.by()?;
        let mut hand = self.files.hand()?;
        // What is named twice is in one folder.
        let folder = places.first().map(|place| &place.folder);
        let mut inside = folder.map(|folder| folder.commons.enter()).transpose()?;
        if self.files.moves(&self.folders) != self.moves {
            for place in places {
                place.verify()?;
            }
        }
        if self.files.names(&self.folders) != self.changes {
            for place in places {
                place.verify_file()?;
            }
        }
        // Whoever buried the caller must not see its changes happen afterwards.
        self.still_waits()?;
        // Somebody may get a descriptor of what is changed now, and has none before this is answered.
        let begun = self.begun.take();
        self.begun.set(begun.or_else(|| Some(self.files.under.begin(hand.touched()))));
        if let Some(inside) = &mut inside {
            inside.begin();
        }
        let result = work(&mut hand, by);
        self.files.changes.fetch_add(1, Ordering::SeqCst);
        result
    }
}

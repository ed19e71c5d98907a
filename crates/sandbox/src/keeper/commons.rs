//! Which sessions may change folders that overlap, and what their brokers have in common.
//!
//! Every folder that some session may change has one [`Shared`]. A session whose folder is that one,
//! lies in it, or has it inside, gets it: of two that overlap, whoever comes later has what the
//! earlier one has. So nobody who is there already has to be told of anybody who comes.

use crate::common::{BYTES, Common};
use crate::folder::{identity, open_exactly};
use crate::keeper::Session;
use crate::keeper::grant::failure;
use crate::keeper::tree::MountList;
use crate::kernel::{Failed, Step, path_of};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{Grant, Identity};
use cowork_sys::Errno;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, StatxFlags, ftruncate, memfd_create, statx};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

/// Most folders of other sessions that lie in one that is granted, or around it.
const MAX_SHARED: usize = 64;

/// What the brokers of sessions have in common that may change one folder.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Later ones have higher numbers: brokers lock them in this order.
    number: u64,
    folder: Identity,
    /// Where it was found last.
    territory: RefCell<Territory>,
    /// Whether it was not there any longer when it was looked at since.
    moved: Cell<bool>,
    file: OwnedFd,
    common: Common,
}

/// Where a folder lies.
#[derive(Clone, Debug)]
struct Territory {
    /// The file system, and the path in it, whatever is mounted where; nothing if that is not known.
    place: Option<(String, PathBuf)>,
    /// On the host.
    path: PathBuf,
}

impl Shared {
    /// For one more broker.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    fn new(number: u64, folder: Identity, territory: Territory) -> Result<Self, Errno> {
        let file = memfd_create(c"cowork-common", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES)?;
        let common = Common::new(rustix::io::fcntl_dupfd_cloexec(&file, 0)?)?;
        let (territory, moved) = (RefCell::new(territory), Cell::new(false));
        Ok(Self { number, folder, territory, moved, file, common })
    }

    /// What cannot be told overlaps.
    fn overlaps(&self, other: &Territory) -> bool {
        let own = self.territory.borrow();
        let (Some((device, place)), Some((other_device, other))) = (&own.place, &other.place)
        else {
            return true;
        };
        device == other_device
            && (self.moved.get() || place.starts_with(other) || other.starts_with(place))
    }

    /// It was found there now.
    fn is_at(&self, territory: &Territory) {
        self.moved.set(false);
        self.territory.replace(territory.clone());
    }

    /// Whether a session has had it, and nobody has a folder any more that it is of.
    fn is_former_of(self: &Rc<Self>, session: &Session) -> bool {
        /// That of the session, and the one that is looked at.
        const ITS_OWN: usize = 2;
        let mut shares = session.doors.shares.iter();
        Rc::strong_count(self) == ITS_OWN && shares.any(|share| Rc::ptr_eq(&share.shared, self))
    }
}

/// What all sessions of this keeper have in common.
#[derive(Debug, Default)]
pub(crate) struct AllShared {
    made: u64,
    all: Vec<Weak<Shared>>,
}

impl AllShared {
    /// Finds out which folders are no longer where they were: somebody renamed one above. In the host
    /// view.
    pub(crate) fn look_again(&mut self) {
        self.all.retain(|shared| shared.strong_count() > 0);
        for shared in self.all.iter().filter_map(Weak::upgrade) {
            let found = open_exactly(&shared.territory.borrow().path);
            let found = found.and_then(|folder| identity(folder.as_fd()));
            if found != Ok(shared.folder) {
                shared.moved.set(true);
            }
        }
    }

    /// What a session that may change this folder has in common with others, now or later.
    pub(crate) fn of(
        &mut self,
        session: &Session,
        mounts: &mut MountList,
        (grant, folder): (&Grant, &OwnedFd),
    ) -> Result<Vec<Rc<Shared>>, Failure> {
        let path = path_of(&grant.path).to_path_buf();
        let place = place_of(mounts, folder, &path);
        let territory = Territory { place, path };
        let mut shared: Vec<_> = self.all.iter().filter_map(Weak::upgrade).collect();
        let own = shared.iter().find(|shared| shared.folder == grant.folder).cloned();
        if let Some(own) = &own {
            own.is_at(&territory);
        }
        shared.retain(|shared| {
            let is_own = shared.folder == grant.folder;
            is_own || (shared.overlaps(&territory) && !shared.is_former_of(session))
        });
        if own.is_none() {
            self.made += 1;
            let own = Shared::new(self.made, grant.folder, territory)
                .step(|| "make what sessions of a folder have in common".into())
                .map_err(|failed: Failed| failed.into_failure(FailureCode::StepFailed))?;
            let own = Rc::new(own);
            self.all.push(Rc::downgrade(&own));
            shared.push(own);
        }
        if shared.len() > MAX_SHARED {
            let sentence = format!(
                "cannot grant `{}`: more than {MAX_SHARED} folders of other sessions overlap with it",
                path_of(&grant.path).display()
            );
            let hint = "grant a folder inside it, or remove sessions";
            return Err(failure(FailureCode::FolderRefused, sentence, hint));
        }
        shared.sort_by_key(|shared| shared.number);
        Ok(shared)
    }
}

/// Where a folder lies in its file system, which bind mounts do not change.
fn place_of(mounts: &mut MountList, folder: &OwnedFd, path: &Path) -> Option<(String, PathBuf)> {
    let stat = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let mount = mounts.list().iter().find(|mount| mount.id == stat.stx_mnt_id)?;
    let below = path.strip_prefix(&mount.point).ok()?;
    Some((mount.device.clone(), mount.root.join(below)))
}

/// That one session has something in common with others; until its end, also if its folder is taken
/// away before that: its broker may be in the middle of a call.
#[derive(Debug)]
pub(crate) struct Share {
    shared: Rc<Shared>,
    init: u64,
}

impl Share {
    fn new(shared: Rc<Shared>, init: i32) -> Self {
        shared.common.set_users(shared.common.users() + 1);
        Self { shared, init: u64::try_from(init).unwrap_or(u64::MAX) }
    }
}

impl Drop for Share {
    /// The broker is gone by now.
    fn drop(&mut self) {
        let common = &self.shared.common;
        common.is_left_by(self.init);
        common.set_users(common.users().saturating_sub(1));
    }
}

impl Session {
    /// Has the session counted among those that have this in common, before its broker hears of it.
    pub(crate) fn share(&mut self, wanted: &[Rc<Shared>]) {
        for shared in wanted {
            let known = self.doors.shares.iter().any(|share| Rc::ptr_eq(&share.shared, shared));
            if !known {
                self.doors.shares.push(Share::new(Rc::clone(shared), self.pid));
            }
        }
    }

    /// The session's broker is gone, and was not replaced yet.
    pub(crate) fn leave_shared(&self) {
        for share in &self.doors.shares {
            share.shared.common.is_left_by(share.init);
        }
    }
}

//! User ids of sessions: taken from a pool in root mode, mapped on mounts.

use crate::keeper::grounds::{Ground, Grounds};
use crate::kernel::{Failed, Step};
use cowork_sys::Errno;
use cowork_sys::identity::{Slot, give_slot, take_slot};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, fork, leave};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::CString;
use std::rc::Rc;

/// The first id of the pool. The range from 1,879,048,192 to 2,147,352,575 is assigned to nobody
/// by systemd's table of user ids, and lies above the usual ranges for `/etc/subuid`.
pub(super) const FIRST: u32 = 1_900_000_000;
/// How many sessions of all keepers can run at once in root mode.
const COUNT: u32 = 65_536;
/// The user and group that files of a session's home have on disk in root mode.
pub(crate) const NOBODY: u32 = 65_534;
/// The user and group that a session sees itself as.
pub(crate) const INSIDE: u32 = 1000;

/// The ids that this keeper has taken. One file is open for all of them: a file for each would be
/// one more to copy with every process that is made.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    taken: Rc<RefCell<Taken>>,
    /// What the next sessions get.
    ready: RefCell<Vec<Equipped>>,
}

/// The id maps of a session's mounts, by the owner of the files on disk.
pub(crate) type Maps = Vec<((u32, u32), OwnedFd)>;

/// An id with the maps that nearly every session needs: they take longer to make than the mounts.
#[derive(Debug)]
pub(crate) struct Equipped {
    pub(crate) id: PoolId,
    pub(crate) maps: Maps,
}

/// For how many sessions that come one right after the other ids are made ready.
const READY: usize = 2;

/// Owners on disk of what nearly every session shows: its home, and folders of the user who started
/// the keeper.
const USUAL: [(u32, u32); 2] = [(NOBODY, NOBODY), (0, 0)];

#[derive(Debug, Default)]
struct Taken {
    /// One byte per id, locked by open file description: a keeper that crashes gives its ids back at
    /// once, and two keepers never hold the same one.
    locks: Option<OwnedFd>,
    /// Those of this keeper, which its own locks do not keep from it.
    slots: HashSet<u32>,
    /// Where the next free one is looked for.
    next: Option<u32>,
}

/// An id of the pool, this session's until the value is dropped or the keeper dies.
#[derive(Debug)]
pub(crate) struct PoolId {
    pub(crate) id: u32,
    slot: u32,
    pool: Rc<RefCell<Taken>>,
}

impl Drop for PoolId {
    fn drop(&mut self) {
        let mut taken = self.pool.borrow_mut();
        taken.slots.remove(&self.slot);
        if let Some(locks) = &taken.locks {
            // Should it fail, the id is given back with the keeper's end.
            cowork_sys::ignore(give_slot(locks.as_fd(), self.slot));
        }
    }
}

impl Pool {
    /// Takes a free id, with what was made ready for it.
    pub(crate) fn take(&self, grounds: &mut Grounds) -> Result<Equipped, Failed> {
        match self.ready.borrow_mut().pop() {
            Some(ready) => Ok(ready),
            None => Ok(Equipped { id: self.take_bare(grounds)?, maps: Vec::new() }),
        }
    }

    fn take_bare(&self, grounds: &mut Grounds) -> Result<PoolId, Failed> {
        let mut taken = self.taken.borrow_mut();
        if taken.locks.is_none() {
            taken.locks = Some(grounds.within(Ground::HostView, open_locks)?);
        }
        let slot = taken.take()?;
        Ok(PoolId { id: FIRST + slot, slot, pool: Rc::clone(&self.taken) })
    }

    /// Makes an id and its maps ready, if fewer are than can be of use; whether enough are now.
    pub(crate) fn prepare(
        &self,
        proof: &SingleThreaded,
        grounds: &mut Grounds,
    ) -> Result<bool, Failed> {
        if self.ready.borrow().len() < READY {
            let id = self.take_bare(grounds)?;
            let mut maps = Maps::new();
            for owner in USUAL {
                maps.push((owner, mapping(proof, owner, id.id)?));
            }
            self.ready.borrow_mut().push(Equipped { id, maps });
        }
        Ok(self.ready.borrow().len() >= READY)
    }
}

/// Opens the file with the locks, where the host's `/run` is visible.
fn open_locks() -> Result<OwnedFd, Failed> {
    let named = || "open the pool of user ids in /run/cowork".to_owned();
    match mkdirat(CWD, "/run/cowork", Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Failed::new(named(), errno)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(CWD, "/run/cowork/ids", flags, Mode::from_raw_mode(0o600)).step(named)
}

impl Taken {
    fn take(&mut self) -> Result<u32, Failed> {
        let named = || "take a user id".to_owned();
        let locks = self.locks.as_ref().ok_or(Errno::BADF).step(named)?;
        // Keepers start apart from each other, and each goes on where it last found a free one.
        let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let start = self.next.unwrap_or(own);
        for step in 0..COUNT {
            let slot = start.wrapping_add(step) % COUNT;
            if self.slots.contains(&slot) {
                continue;
            }
            if take_slot(locks.as_fd(), slot).step(named)? == Slot::Taken {
                self.next = Some(slot + 1);
                self.slots.insert(slot);
                return Ok(slot);
            }
        }
        Err(Failed::new(format!("take a user id: all {COUNT} are in use"), Errno::AGAIN))
    }
}

/// The map of files of `owner`, made if it is not there yet.
pub(crate) fn known<'m>(
    maps: &'m mut Maps,
    proof: &SingleThreaded,
    owner: (u32, u32),
    session: u32,
) -> Result<BorrowedFd<'m>, Failed> {
    if !maps.iter().any(|(known, _)| *known == owner) {
        maps.push((owner, mapping(proof, owner, session)?));
    }
    let map = maps.iter().find(|(known, _)| *known == owner);
    let (_, map) = map.ok_or(Errno::BADF).step(|| "find an id map".to_owned())?;
    Ok(map.as_fd())
}

/// A user namespace that maps one user and one group of a file system to a session's, for an
/// idmapped mount.
pub(crate) fn mapping(
    proof: &SingleThreaded,
    disk: (u32, u32),
    session: u32,
) -> Result<OwnedFd, Failed> {
    let named = || "make an id map for a mount".to_owned();
    let keeper = rustix::process::getpid();
    let (pid, handle) = match fork(proof, Namespaces::User, None).step(named)? {
        Forked::Child => carry(keeper),
        Forked::Parent { pid, handle } => (pid.as_raw_nonzero().get(), handle),
    };
    let result = write_maps(pid, disk, session).and_then(|()| {
        let path = CString::new(format!("/proc/{pid}/ns/user")).unwrap_or_default();
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).step(named)
    });
    pidfd_send_signal(&handle, Signal::KILL).step(named)?;
    waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED).step(named)?;
    result
}

/// The child only carries the namespace: it waits to be killed, by its keeper or with it.
fn carry(keeper: Pid) -> ! {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    if tied.is_err() || getppid() != Some(keeper) {
        leave(1);
    }
    loop {
        rustix::event::pause();
    }
}

fn write_maps(pid: i32, disk: (u32, u32), session: u32) -> Result<(), Failed> {
    write_map(pid, "uid_map", disk.0, session)?;
    write_map(pid, "gid_map", disk.1, session)
}

/// Maps one id: `inside` in the namespace of process `pid` is `outside` in the keeper's.
pub(crate) fn write_map(pid: i32, name: &str, inside: u32, outside: u32) -> Result<(), Failed> {
    std::fs::write(format!("/proc/{pid}/{name}"), format!("{inside} {outside} 1"))
        .step(|| format!("write the {name} of a session"))
}

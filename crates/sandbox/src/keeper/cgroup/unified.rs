//! Cgroup v2: where the groups of sessions can be made, and with which controllers.
//!
//! A group either holds processes or shares out controllers among its children. The kernel lets one
//! that holds processes share out some of them all the same, and then nobody may enter its
//! children. So controllers are taken only where no process is: in a group that systemd delegated to
//! the daemon, whose own processes then move to a leaf of it; or in the nearest group above that
//! holds none, which on a desktop is the slice of the user's programs.

use super::mounts::CgroupMount;
use super::{CONTROLLERS, Controller, INNER, Patience, group_prefix, open_child, remove, values};
use crate::kernel::{open_folder, read_at, write_at};
use cowork_api::plan::Limits;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::path::Path;
use std::rc::Rc;

/// The group for this project's own processes, below one that is theirs alone. The units ask systemd
/// for it by this name.
const LEAF: &str = "cowork.programs";

/// Where groups of sessions can be made.
#[derive(Debug)]
pub(super) struct Unified {
    pub(super) folder: Rc<OwnedFd>,
    pub(super) controllers: Vec<Controller>,
    /// The least number of processes that a group on the way here allows.
    processes: Option<u64>,
}

/// The group of one session.
#[derive(Debug)]
pub(super) struct UnifiedGroup {
    pub(super) parent: Rc<OwnedFd>,
    pub(super) controllers: Vec<Controller>,
    processes: Option<u64>,
}

impl Unified {
    /// The nearest ancestor of `start` where groups can be made, with as many controllers as can
    /// be had; failing controllers, the nearest where groups can be made at all.
    ///
    /// A session must not escape a limit that its caller is under. One on processes, which systemd
    /// sets for everything it starts, is kept by setting no higher one; others end the way up.
    pub(super) fn find(mount: &CgroupMount, start: &Path) -> Option<Self> {
        let mut plain = None;
        let mut processes: Option<u64> = None;
        let mut folder = start.to_path_buf();
        if folder.file_name().is_some_and(|name| name == LEAF) {
            folder.pop();
        } else {
            move_to_leaf(&folder);
        }
        loop {
            if let Some(found) = Self::try_at(&folder) {
                let found = Self { processes, ..found };
                if !found.controllers.is_empty() {
                    return Some(found);
                }
                plain = plain.or(Some(found));
            }
            if folder == mount.point || is_limited(&folder) {
                return plain;
            }
            processes = [processes, processes_of(&folder)].into_iter().flatten().min();
            if !folder.pop() {
                return plain;
            }
        }
    }

    fn try_at(path: &Path) -> Option<Self> {
        let folder = open_folder(path).ok()?;
        // A group is made and removed to see whether it may be: permission bits alone do not tell.
        let probe = format!("{}probe", group_prefix());
        mkdirat(&folder, &*probe, Mode::from_raw_mode(0o755)).ok()?;
        let controllers = open_child(folder.as_fd(), &probe)
            .and_then(|child| controllers_for(folder.as_fd(), child.as_fd()));
        remove(folder.as_fd(), &probe, Patience::None);
        let controllers = controllers.ok()?;
        Some(Self { folder: Rc::new(folder), controllers, processes: None })
    }

    /// Makes the group of a session.
    pub(super) fn make(&self, name: &str, limits: &Limits) -> Option<UnifiedGroup> {
        mkdirat(&self.folder, name, Mode::from_raw_mode(0o755)).ok()?;
        let made = self.furnish(name, limits);
        if made.is_err() {
            if let Ok(folder) = open_child(self.folder.as_fd(), name) {
                remove(folder.as_fd(), INNER, Patience::None);
            }
            remove(self.folder.as_fd(), name, Patience::None);
        }
        made.ok()
    }

    fn furnish(&self, name: &str, limits: &Limits) -> Result<UnifiedGroup, Errno> {
        let outer = open_child(self.folder.as_fd(), name)?;
        let (parent, processes) = (Rc::clone(&self.folder), self.processes);
        let mut group = UnifiedGroup { parent, controllers: Vec::new(), processes };
        for controller in &self.controllers {
            if group.set(outer.as_fd(), *controller, limits).is_ok() {
                group.controllers.push(*controller);
            }
        }
        mkdirat(&outer, INNER, Mode::from_raw_mode(0o755))?;
        // Where the group belongs to the session's own user, it could make groups below that
        // nobody removes. Older kernels lack the file.
        cowork_sys::ignore(write_at(outer.as_fd(), "cgroup.max.descendants", "1"));
        Ok(group)
    }
}

impl UnifiedGroup {
    /// Sets the limit of one controller.
    pub(super) fn set(
        &self,
        outer: BorrowedFd<'_>,
        controller: Controller,
        limits: &Limits,
    ) -> Result<(), Errno> {
        values::set_unified(outer, controller, limits)?;
        match (controller, self.processes) {
            (Controller::Pids, Some(most)) if most < u64::from(limits.processes.value) => {
                write_at(outer, "pids.max", &most.to_string())
            }
            _ => Ok(()),
        }
    }
}

/// The controllers that children of a group can have; an error if none of them can hold processes.
/// `child` is one of them.
fn controllers_for(
    folder: BorrowedFd<'_>,
    child: BorrowedFd<'_>,
) -> Result<Vec<Controller>, Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    openat(child, "cgroup.procs", flags, Mode::empty())?;
    // Moving a process needs the common ancestor of both groups too.
    openat(folder, "cgroup.procs", flags, Mode::empty())?;
    let mut controllers = Vec::new();
    let mut taken = Vec::new();
    let available = read_at(folder, "cgroup.controllers").unwrap_or_default();
    let shared = read_at(folder, "cgroup.subtree_control").unwrap_or_default();
    let may_share = is_root(folder) || !holds_processes(folder);
    for (controller, name) in CONTROLLERS {
        let has = |list: &str| list.split_whitespace().any(|known| known == name);
        if has(&shared) {
            controllers.push(controller);
        } else if may_share && has(&available) && share(folder, '+', name).is_ok() {
            controllers.push(controller);
            taken.push(name);
        }
    }
    if is_domain(child) {
        return Ok(controllers);
    }
    // Somebody has come in meanwhile: what was taken goes back.
    for name in taken {
        cowork_sys::ignore(share(folder, '-', name));
    }
    if is_domain(child) { Ok(Vec::new()) } else { Err(Errno::OPNOTSUPP) }
}

/// Has a group share out a controller among its children, or no longer.
fn share(folder: BorrowedFd<'_>, sign: char, controller: &str) -> Result<(), Errno> {
    write_at(folder, "cgroup.subtree_control", &format!("{sign}{controller}"))
}

/// Whether a group can hold processes. Older kernels have no other ones, and no file that says so.
fn is_domain(group: BorrowedFd<'_>) -> bool {
    match read_at(group, "cgroup.type") {
        Ok(kind) => matches!(kind.trim(), "domain" | "domain threaded"),
        Err(errno) => errno == Errno::NOENT,
    }
}

/// Whether it is the root of all groups, which may hold processes and share out controllers.
fn is_root(folder: BorrowedFd<'_>) -> bool {
    read_at(folder, "cgroup.events") == Err(Errno::NOENT)
}

fn holds_processes(folder: BorrowedFd<'_>) -> bool {
    read_at(folder, "cgroup.procs").map_or(true, |list| !list.trim().is_empty())
}

/// Moves the processes of a group into a leaf of it, if all of them are this project's: then it was
/// delegated to them. Others' processes stay where they are.
fn move_to_leaf(path: &Path) {
    let Ok(folder) = open_folder(path) else { return };
    if is_root(folder.as_fd()) {
        return;
    }
    let list = read_at(folder.as_fd(), "cgroup.procs").unwrap_or_default();
    if list.trim().is_empty() || !list.lines().all(is_ours) {
        return;
    }
    match mkdirat(&folder, LEAF, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return,
    }
    let Ok(leaf) = open_child(folder.as_fd(), LEAF) else { return };
    for process in list.lines() {
        // One that has ended needs no place. If another one stays, the group is not empty, and
        // nothing is shared out there.
        cowork_sys::ignore(write_at(leaf.as_fd(), "cgroup.procs", process));
    }
}

/// Whether a process is one of this project's programs, by its name.
fn is_ours(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/comm"))
        .is_ok_and(|name| name.starts_with("cowork"))
}

/// Whether a group limits what is in it, beside the number of its processes.
fn is_limited(path: &Path) -> bool {
    let Ok(folder) = open_folder(path) else { return true };
    ["memory.max", "memory.high", "cpu.max"].iter().any(|name| {
        let value = read_at(folder.as_fd(), name);
        value.is_ok_and(|value| !value.starts_with("max"))
    })
}

/// How many processes a group allows, if that is limited.
fn processes_of(path: &Path) -> Option<u64> {
    let folder = open_folder(path).ok()?;
    read_at(folder.as_fd(), "pids.max").ok()?.trim().parse().ok()
}

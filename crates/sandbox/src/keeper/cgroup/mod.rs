//! Cgroups of sessions: what the host offers, found once; one group per session, removed with it.
//!
//! Cgroup v2 gives limits where its controllers can be delegated, and freezing and killing
//! wherever the keeper may make a group at all. Cgroup v1 gives limits to root. Everything is held
//! by descriptors, so that it works from any of the keeper's mount namespaces.

mod mounts;
mod unified;
mod values;

pub(crate) use values::Usage;

use crate::kernel::{open_folder, read_at, write_at};
use cowork_api::keeper::Hits;
use cowork_api::plan::Limits;
use cowork_sys::Errno;
use mounts::{CgroupMount, own_path};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use unified::{Unified, UnifiedGroup};

/// A resource that a cgroup can limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

const CONTROLLERS: [(Controller, &str); 3] =
    [(Controller::Memory, "memory"), (Controller::Pids, "pids"), (Controller::Cpu, "cpu")];

/// Where groups of sessions can be made.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    unified: Option<Unified>,
    legacy: Vec<(Controller, Rc<OwnedFd>)>,
    /// What the names of this keeper's groups start with.
    prefix: String,
    /// How many groups have been made.
    made: Cell<u64>,
}

/// The groups of one session.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Name of the session's folder, in each hierarchy. It does not name the session: it was there
    /// before.
    name: String,
    unified: Option<UnifiedGroup>,
    legacy: Vec<(Controller, Rc<OwnedFd>)>,
}

/// The folder in a session's v2 group that holds the processes. The limits are set on the folder
/// above it, whose files are out of the session's reach: above its cgroup namespace.
const INNER: &str = "s";

impl Cgroups {
    /// Looks for hierarchies in which this process may make groups. Must be called where the
    /// host's mounts are visible.
    pub(crate) fn find() -> Self {
        let mounts = crate::kernel::told_of("self", "mountinfo").unwrap_or_default();
        let own = crate::kernel::told_of("self", "cgroup").unwrap_or_default();
        let mut found = Self { prefix: group_prefix(), ..Self::default() };
        for mount in mounts.lines().filter_map(CgroupMount::parse) {
            if mount.kind == "cgroup2" {
                let start = mount.folder_of(own_path(&own, ""));
                found.unified = found.unified.or_else(|| Unified::find(&mount, &start));
            } else if rustix::process::geteuid().is_root() {
                for (controller, name) in CONTROLLERS {
                    if !mount.options.split(',').any(|option| option == name) {
                        continue;
                    }
                    let folder = mount.folder_of(own_path(&own, name));
                    if let Ok(folder) = open_folder(&folder) {
                        found.legacy.push((controller, Rc::new(folder)));
                    }
                }
            }
        }
        found
    }

    /// Makes the group that the first process of a session is born in, if there is to be one, and
    /// sets the session's limits there.
    pub(crate) fn begin(&self, limits: &Limits) -> Group {
        let number = self.made.get() + 1;
        self.made.set(number);
        let name = format!("{}{number}", self.prefix);
        let unified = self.unified.as_ref().and_then(|unified| unified.make(&name, limits));
        Group { name, unified, legacy: Vec::new() }
    }

    /// Makes the groups that the first process enters by itself, and sets the limits there that are
    /// not set yet. What cannot be made is left out; [`Group::limits`] says what is in force.
    pub(crate) fn complete(&self, group: &mut Group, limits: &Limits) {
        for (controller, parent) in &self.legacy {
            if group.limits(*controller).is_some() {
                continue;
            }
            if make_legacy(parent.as_fd(), &group.name, *controller, limits).is_ok() {
                group.legacy.push((*controller, Rc::clone(parent)));
            }
        }
    }

    /// What the hierarchy offers, for people.
    pub(crate) fn describe(&self) -> String {
        let names = |controllers: &mut dyn Iterator<Item = Controller>| {
            let list: Vec<_> = controllers.map(|c| format!("{c:?}").to_lowercase()).collect();
            if list.is_empty() { "no controllers".to_owned() } else { list.join(", ") }
        };
        let mut parts = Vec::new();
        if let Some(unified) = &self.unified {
            let with = names(&mut unified.controllers.iter().copied());
            parts.push(format!("v2 with {with}"));
        }
        if !self.legacy.is_empty() {
            let with = names(&mut self.legacy.iter().map(|(controller, _)| *controller));
            parts.push(format!("v1 with {with}"));
        }
        if parts.is_empty() { "none that this user may use".to_owned() } else { parts.join("; ") }
    }

    /// Whether a session's limit on `controller` would be kept by a cgroup.
    pub(crate) fn offers(&self, controller: Controller) -> bool {
        self.unified.as_ref().is_some_and(|unified| unified.controllers.contains(&controller))
            || self.legacy.iter().any(|(known, _)| *known == controller)
    }

    pub(crate) fn freezes(&self) -> bool {
        self.unified.is_some()
    }

    /// Removes groups that a keeper left behind which no longer runs. Returns how many could not
    /// be removed, because a process of theirs is still ending.
    pub(crate) fn sweep(&self) -> usize {
        let mut left = 0;
        let unified = self.unified.iter().map(|unified| &unified.folder);
        for parent in unified.chain(self.legacy.iter().map(|(_, folder)| folder)) {
            let Ok(names) = child_folders(parent.as_fd()) else { continue };
            for name in names {
                if keeper_of(&name).is_some_and(|keeper| !is_running(keeper)) {
                    // Its processes died with the keeper; should one not have, it dies now.
                    if let Ok(folder) = open_child(parent.as_fd(), &name) {
                        cowork_sys::ignore(write_at(folder.as_fd(), "cgroup.kill", "1"));
                        remove(folder.as_fd(), INNER, Patience::None);
                    }
                    remove(parent.as_fd(), &name, Patience::None);
                    left += usize::from(open_child(parent.as_fd(), &name).is_ok());
                }
            }
        }
        left
    }
}

/// Marks the groups of sessions; the rest of the name is the keeper and a number.
const PREFIX: &str = "cowork-";

/// A group's name tells which keeper made it: process id and start time, which no other process
/// shares.
fn group_prefix() -> String {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let started = start_time(pid).unwrap_or(0);
    format!("{PREFIX}{pid}.{started}.")
}

fn keeper_of(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_running((pid, started): (i32, u64)) -> bool {
    start_time(pid) == Some(started)
}

/// When a process started that has not ended, in clock ticks since boot: field 22 of its `stat`.
fn start_time(pid: i32) -> Option<u64> {
    let stat = crate::kernel::told_of(pid, "stat")?;
    // The name is in parentheses and may contain anything; the fields after it do not.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        // It is dead, and nobody has buried it.
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn make_legacy(
    parent: BorrowedFd<'_>,
    name: &str,
    controller: Controller,
    limits: &Limits,
) -> Result<(), Errno> {
    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    let folder = open_child(parent, name)?;
    let set = values::set_legacy(folder.as_fd(), controller, limits);
    if let Err(errno) = set {
        remove(parent, name, Patience::None);
        return Err(errno);
    }
    Ok(())
}

impl Group {
    /// The v2 folder to clone the session's first process into.
    pub(crate) fn birthplace(&self) -> Result<Option<OwnedFd>, Errno> {
        self.inner().transpose()
    }

    /// The v2 folder that holds the processes.
    fn inner(&self) -> Option<Result<OwnedFd, Errno>> {
        let group = self.unified.as_ref()?;
        Some(open_child(group.parent.as_fd(), &format!("{}/{INNER}", self.name)))
    }

    /// Files of the v1 groups through which a process with one thread enters them by writing `0`.
    ///
    /// A process that moves itself is the one case in which the kernel takes no global lock; moving
    /// another one waits for an RCU grace period, which costs more than all of the rest together.
    pub(crate) fn entrances(&self) -> Result<Vec<OwnedFd>, Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let tasks = format!("{}/tasks", self.name);
        let folders = self.legacy.iter().map(|(_, parent)| parent);
        folders.map(|parent| openat(parent, &*tasks, flags, Mode::empty())).collect()
    }

    /// Whether a cgroup keeps the limit on `controller`.
    pub(crate) fn limits(&self, controller: Controller) -> Option<&'static str> {
        if self.unified.as_ref().is_some_and(|group| group.controllers.contains(&controller)) {
            return Some("cgroup v2");
        }
        self.legacy.iter().any(|(known, _)| *known == controller).then_some("cgroup v1")
    }

    /// Sets other limits. When one cannot be set, those before it are; the caller sets the old ones
    /// again.
    pub(crate) fn set_limits(&self, limits: &Limits) -> Result<(), (Controller, Errno)> {
        if let Some(group) = &self.unified {
            for controller in &group.controllers {
                self.open(&group.parent)
                    .and_then(|outer| group.set(outer.as_fd(), *controller, limits))
                    .map_err(|errno| (*controller, errno))?;
            }
        }
        for (controller, parent) in &self.legacy {
            self.open(parent)
                .and_then(|folder| values::set_legacy(folder.as_fd(), *controller, limits))
                .map_err(|errno| (*controller, errno))?;
        }
        Ok(())
    }

    /// What the groups say is used.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        if let Some(group) = &self.unified
            && let Ok(outer) = self.open(&group.parent)
        {
            usage.add_unified(outer.as_fd());
        }
        for (_, parent) in &self.legacy {
            if let Ok(folder) = self.open(parent) {
                usage.add_legacy(folder.as_fd());
            }
        }
        usage
    }

    /// How often the limits of the groups were met.
    pub(crate) fn hits(&self) -> Hits {
        let mut hits = Hits::default();
        let outer = self.unified.as_ref().and_then(|group| self.open(&group.parent).ok());
        if let Some(outer) = outer {
            let inner = self.inner().and_then(Result::ok);
            values::add_unified_hits(&mut hits, outer.as_fd(), inner.as_ref().map(AsFd::as_fd));
        }
        for (controller, parent) in &self.legacy {
            if let Ok(folder) = self.open(parent) {
                values::add_legacy_hits(&mut hits, *controller, folder.as_fd());
            }
        }
        hits
    }

    /// The session's folder in a hierarchy.
    fn open(&self, parent: &OwnedFd) -> Result<OwnedFd, Errno> {
        open_child(parent.as_fd(), &self.name)
    }

    /// Stops every process where it is, or thaws them. `None` when there is no group to do it.
    pub(crate) fn freeze(&self, frozen: Frozen) -> Option<Result<(), Errno>> {
        /// Longest wait for processes that are in the middle of a system call. One that waits for
        /// an answer of the broker cannot be frozen at all.
        const PATIENCE: Duration = Duration::from_secs(1);
        const PAUSE: Duration = Duration::from_micros(50);
        let inner = match self.inner()? {
            Ok(inner) => inner,
            Err(errno) => return Some(Err(errno)),
        };
        let (value, wanted) = match frozen {
            Frozen::Yes => ("1", "frozen 1"),
            Frozen::No => ("0", "frozen 0"),
        };
        if let Err(errno) = write_at(inner.as_fd(), "cgroup.freeze", value) {
            return Some(Err(errno));
        }
        if frozen == Frozen::No {
            return Some(Ok(()));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match read_at(inner.as_fd(), "cgroup.events") {
                Ok(events) if events.lines().any(|line| line == wanted) => return Some(Ok(())),
                Ok(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                // Half frozen is not frozen: everything goes on, and the caller is told.
                Ok(_) => {
                    cowork_sys::ignore(write_at(inner.as_fd(), "cgroup.freeze", "0"));
                    return Some(Err(Errno::TIMEDOUT));
                }
                Err(errno) => return Some(Err(errno)),
            }
        }
    }
}

/// Whether processes should stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frozen {
    Yes,
    No,
}

impl Group {
    /// Kills every process at once, where the kernel can do that (Linux 5.14).
    pub(crate) fn kill(&self) {
        if let Some(Ok(inner)) = self.inner() {
            cowork_sys::ignore(write_at(inner.as_fd(), "cgroup.kill", "1"));
        }
    }

    /// Takes the groups away, in which nobody is any more.
    pub(crate) fn remove(&mut self) {
        if let Some(group) = self.unified.take() {
            remove(group.parent.as_fd(), &format!("{}/{INNER}", self.name), Patience::Some);
            remove(group.parent.as_fd(), &self.name, Patience::Some);
        }
        for (_, parent) in std::mem::take(&mut self.legacy) {
            remove(parent.as_fd(), &self.name, Patience::Some);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

/// How often a busy group is asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Once.
    None,
    /// A few times: just after its last process was reaped the kernel may still count it.
    Some,
}

/// Removes an empty group.
fn remove(parent: BorrowedFd<'_>, name: &str, patience: Patience) {
    let attempts = match patience {
        Patience::None => 1,
        Patience::Some => 50,
    };
    for _ in 0..attempts {
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) if patience == Patience::Some => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return,
        }
    }
}

fn open_child(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(parent, name, flags, Mode::empty())
}

fn child_folders(parent: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(open_child(parent, ".")?)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if entry.file_type() == rustix::fs::FileType::Directory && !name.starts_with('.') {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::keeper_of;

    #[test]
    fn only_our_groups_have_a_keeper() {
        assert_eq!(keeper_of("cowork-12.345.7"), Some((12, 345)));
        assert_eq!(keeper_of("cowork-x.y.z"), None);
        assert_eq!(keeper_of("user.slice"), None);
    }
}

//! What a session costs that does nothing.

use crate::book::Book;
use crate::engine::{self, Engine, Room};
use crate::options::Options;
use crate::site::Site;
use crate::stopped::Stopped;
use std::path::{Path, PathBuf};

/// What the processes have for themselves.
pub(crate) const PRIVATE: &str = "idle session: private memory and page tables of its processes";
/// What the kernel charges, with its own structures.
pub(crate) const CHARGED: &str = "idle session: charged by the kernel, its structures included";
const SHARED: &str = "idle session: its processes, with their share of what is shared (PSS)";

pub(crate) const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let project = engine::project(site)?;
    let group = Group::make();
    let mut engine = Engine::start(&site.programs)?;
    if let Ok(group) = &group {
        group.leave()?;
    }
    // The first session builds what all of them share.
    let (first, _) = engine.create(std::slice::from_ref(&project))?;
    engine.destroy(first)?;
    let before = Usage::look(&engine, &[], &group);
    let mut rooms = Vec::new();
    for _ in 0..options.idle {
        rooms.push(engine.create(std::slice::from_ref(&project))?.0);
    }
    let after = Usage::look(&engine, &rooms, &group);
    let each = |before: Result<u64, String>, after: Result<u64, String>| {
        let grown = after?.saturating_sub(before?);
        Ok(to_f64(grown) / MIB / to_f64(u64::try_from(options.idle).unwrap_or(1)))
    };
    let how = format!("{} sessions", options.idle);
    for (name, before, after) in [
        (PRIVATE, before.private, after.private),
        (SHARED, before.shared, after.shared),
        (CHARGED, before.charged, after.charged),
    ] {
        match each(before, after) {
            Ok(mib) => book.value(name, mib, "MiB", &how),
            Err::<f64, String>(why) => book.absent(name, &why),
        }
    }
    // Sessions end before the group that they are in.
    drop(rooms);
    drop(engine);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a measurement has fewer digits than that")]
pub(crate) fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Bytes in use by a keeper and its sessions.
struct Usage {
    private: Result<u64, String>,
    shared: Result<u64, String>,
    charged: Result<u64, String>,
}

impl Usage {
    fn look(engine: &Engine, rooms: &[Room], group: &Result<Group, String>) -> Self {
        let inits = rooms.iter().map(|room| room.init.unsigned_abs());
        let processes: Vec<u32> = std::iter::once(engine.pid()).chain(inits).collect();
        let sum = |file: &str, fields: &[&str]| {
            processes.iter().map(|pid| fields_of(*pid, file, fields)).sum()
        };
        Self {
            private: sum("status", &["RssAnon:", "RssShmem:", "VmPTE:"]),
            shared: sum("smaps_rollup", &["Pss:"]),
            charged: group.as_ref().map_err(Clone::clone).and_then(Group::usage),
        }
    }
}

/// The sum of some fields of a file of a process, in bytes.
pub(crate) fn fields_of(pid: u32, file: &str, fields: &[&str]) -> Result<u64, String> {
    let path = format!("/proc/{pid}/{file}");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let kib = |field: &&str| {
        let value = text.lines().find_map(|line| line.strip_prefix(field))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Ok(fields.iter().filter_map(kib).sum::<u64>() * 1024)
}

/// A memory cgroup that a keeper is started in, and removed at the end.
struct Group {
    folder: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// Makes the group and enters it: who is started now is in it.
    fn make() -> Result<Self, String> {
        let parent = own_group().ok_or("there is no memory controller of cgroup v1 here")?;
        let folder = parent.join(format!("cowork-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self { folder, parent };
        enter(&group.folder).map_err(|stopped| stopped.to_string())?;
        Ok(group)
    }

    fn leave(&self) -> Result<(), Stopped> {
        enter(&self.parent)
    }

    fn usage(&self) -> Result<u64, String> {
        let path = self.folder.join("memory.usage_in_bytes");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.leave());
        drop(std::fs::remove_dir(&self.folder));
    }
}

/// Moves this process, which has one thread, by the file that needs no lock on all processes.
fn enter(folder: &Path) -> Result<(), Stopped> {
    let tasks = folder.join("tasks");
    std::fs::write(&tasks, "0").map_err(|error| Stopped::at(tasks.display(), error))
}

/// The folder of this process's own group in the hierarchy of cgroup v1 that counts memory.
fn own_group() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let point = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let (kind, options) = kind.split_once(' ')?;
        let counts = options.rsplit(' ').next()?.split(',').any(|option| option == "memory");
        let point = mount.split(' ').nth(4)?;
        (kind == "cgroup" && counts).then(|| PathBuf::from(point))
    })?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    })?;
    Some(point.join(path.trim_start_matches('/')))
}

//! Controllers of cgroup v2 and groups that have them.

use cowork_testbed::Person;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The controllers that these tests are about. Memory stays where it is: cgroup v1 gives it away
/// only when nobody has used it.
const WANTED: [&str; 2] = ["pids", "cpu"];

/// Controllers that v2 has until this is dropped.
pub(crate) struct Controllers {
    /// Whether it has them.
    pub(crate) are_there: bool,
    root: PathBuf,
    /// Where v1 had them.
    taken: Vec<(&'static str, PathBuf)>,
}

impl Controllers {
    /// Sees to it that v2 has them. Where that cannot be, a sentence says why; nothing at all where
    /// there is no v2.
    pub(crate) fn take() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        let Some(root) = mounts.lines().find_map(|line| mount_point(line, "cgroup2", None)) else {
            println!("NOT RUN: this host has no cgroup v2");
            return None;
        };
        let mut controllers = Self { are_there: false, root, taken: Vec::new() };
        match controllers.take_all(&mounts) {
            Ok(()) => controllers.are_there = true,
            Err(why) => println!("NOT RUN with controllers: {why}"),
        }
        Some(controllers)
    }

    fn take_all(&mut self, mounts: &str) -> Result<(), String> {
        for wanted in WANTED {
            if self.has(wanted) {
                continue;
            }
            let found = mounts.lines().find_map(|line| mount_point(line, "cgroup", Some(wanted)));
            let Some(place) = found.filter(|place| children_of(place).is_empty()) else {
                return Err(format!("no cgroup v1 has `{wanted}` alone and without groups"));
            };
            if !patiently(|| rustix::mount::unmount(&place, UnmountFlags::empty()).is_ok()) {
                return Err(format!("somebody uses cgroup v1 with `{wanted}`"));
            }
            self.taken.push((wanted, place));
            if !patiently(|| self.has(wanted)) {
                return Err(format!("cgroup v1 does not let go of `{wanted}`"));
            }
        }
        for wanted in WANTED {
            let file = self.root.join("cgroup.subtree_control");
            std::fs::write(file, format!("+{wanted}")).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn has(&self, controller: &str) -> bool {
        let has = std::fs::read_to_string(self.root.join("cgroup.controllers"));
        has.expect("v2 is mounted").split_whitespace().any(|known| known == controller)
    }

    /// A group of a person's.
    pub(crate) fn group(&self, name: &str, person: Person) -> Group {
        Group::new(&self.root, &format!("tried-{}-{name}", std::process::id()), person)
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        for (controller, place) in &self.taken {
            let file = self.root.join("cgroup.subtree_control");
            drop(std::fs::write(file, format!("-{controller}")));
            let options = CString::new(*controller).expect("it is a name");
            let flags = MountFlags::empty();
            let mount = || rustix::mount::mount("cgroup", place, "cgroup", flags, &*options);
            if !patiently(|| mount().is_ok()) {
                println!("`{controller}` cannot be given back to cgroup v1");
            }
        }
    }
}

/// Tries something until it succeeds: a daemon that is about to leave, or a group that is gone, is
/// counted for a while.
fn patiently(mut attempt: impl FnMut() -> bool) -> bool {
    const PATIENCE: Duration = Duration::from_secs(8);
    let end = Instant::now() + PATIENCE;
    while !attempt() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Where a line of mountinfo mounts a hierarchy; of v1, one that has this controller alone.
fn mount_point(line: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    if right.next() != Some(kind) {
        return None;
    }
    if let Some(controller) = controller {
        let mut options = right.nth(1)?.split(',');
        if options.next() != Some("rw") || options.next() != Some(controller) {
            return None;
        }
        if options.next().is_some() {
            return None;
        }
    }
    left.split(' ').nth(4).map(PathBuf::from)
}

fn children_of(place: &Path) -> Vec<String> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir(place).expect("a group can be listed") {
        let entry = entry.expect("a group can be listed");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            children.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    children.sort();
    children
}

/// A group, until it is dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    fn new(parent: &Path, name: &str, person: Person) -> Self {
        let path = parent.join(name);
        std::fs::create_dir(&path).expect("root may make a group");
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            let owner = Some(person.uid());
            std::os::unix::fs::chown(path.join(file), owner, owner).expect("it is root's");
        }
        Self(path)
    }

    /// A group in it.
    pub(crate) fn child(&self, name: &str, person: Person) -> Self {
        Self::new(&self.0, name, person)
    }

    /// Has it share out the controllers, as systemd does for what it starts.
    pub(crate) fn share_out(&self) {
        for wanted in WANTED {
            self.write("cgroup.subtree_control", &format!("+{wanted}"));
        }
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text)
            .unwrap_or_else(|error| panic!("{file} of {}: {error}", self.0.display()));
    }

    pub(crate) fn read(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.0.join(file)).expect("the group is there");
        text.trim().to_owned()
    }

    pub(crate) fn enter(&self, process: u32) {
        self.write("cgroup.procs", &process.to_string());
    }

    pub(crate) fn processes(&self) -> String {
        self.read("cgroup.procs")
    }

    pub(crate) fn children(&self) -> Vec<String> {
        children_of(&self.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in children_of(&self.0) {
            drop(std::fs::remove_dir(self.0.join(child)));
        }
        if !patiently(|| std::fs::remove_dir(&self.0).is_ok()) {
            println!("{} is left", self.0.display());
        }
    }
}

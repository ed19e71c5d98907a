//! What the host sees: processes, mounts and control groups, looked at from outside.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that anything is waited for, on a machine that is slow, busy, and stands still for
/// many seconds when its disk does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until there is something.
#[track_caller]
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.expect("it was just found")
}

/// A process of the host, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// In ticks after the start of the machine.
    pub(crate) started: u64,
}

impl Process {
    /// The process with this number, if there is one.
    pub(crate) fn look(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, rest) = stat.rsplit_once(") ")?;
        let name = start.split_once('(')?.1.to_owned();
        // The 22nd field of the whole is the 20th after the name (proc_pid_stat(5)).
        let started = rest.split(' ').nth(19)?.parse().ok()?;
        Some(Self { pid, name, started })
    }

    /// Whether it still exists, if only as a zombie.
    pub(crate) fn exists(&self) -> bool {
        Self::look(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Whether it still exists and has not ended: one whose parent is gone is buried by whoever buries
    /// such processes on this machine.
    pub(crate) fn runs(&self) -> bool {
        self.exists() && self.stat(0).is_some_and(|state| state != "Z")
    }

    /// Who started it, or took it over.
    pub(crate) fn parent(&self) -> Option<Self> {
        Self::look(self.stat(1)?.parse().ok()?)
    }

    /// A field of its status, counted from the one after the name.
    fn stat(&self, field: usize) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        Some(stat.rsplit_once(") ")?.1.split(' ').nth(field)?.to_owned())
    }

    /// Those that it started and that exist still.
    pub(crate) fn children(&self) -> Vec<Self> {
        let all = processes().into_iter().filter_map(Self::look);
        all.filter(|process| process.parent().as_ref() == Some(self)).collect()
    }

    /// Sends it a signal, if it still exists.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exists()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            // It may have ended meanwhile.
            cowork_sys::ignore(kill_process(pid, signal));
        }
    }
}

/// Every process of the host.
pub(crate) fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processes with a mount from below a place of the host, named by a part of its path.
#[must_use]
pub(crate) fn holders(place: &str) -> Vec<Process> {
    holders_of_any(&[place.to_owned()])
}

/// The same for any of several places.
#[must_use]
pub(crate) fn holders_of_any(places: &[String]) -> Vec<Process> {
    let held = |pid: &i32| {
        let mounts = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let mounts = String::from_utf8_lossy(&mounts);
        places.iter().any(|place| mounts.contains(place.as_str()))
    };
    processes().into_iter().filter(held).filter_map(Process::look).collect()
}

/// Processes that were started with a word among their arguments.
#[must_use]
pub(crate) fn with_argument(word: &str) -> Vec<Process> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != own && String::from_utf8_lossy(&line).contains(word)
    };
    processes().into_iter().filter(has).filter_map(Process::look).collect()
}

/// Control groups that a keeper made and that are still there.
#[must_use]
pub(crate) fn groups_of(keeper: &Process) -> Vec<PathBuf> {
    let prefix = format!("cowork-{}.{}.", keeper.pid, keeper.started);
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 4, &mut |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&prefix) {
            found.push(path.to_path_buf());
        }
    });
    found
}

/// Calls `see` for every folder below another.
fn below(folder: &Path, depth: u32, see: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            see(&entry.path());
            if depth > 0 {
                below(&entry.path(), depth - 1, see);
            }
        }
    }
}

/// The names in a folder; none if it is not there.
#[must_use]
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Several texts as one.
#[must_use]
pub(crate) fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().concat()
}

/// Numbers that look random enough for delays and choices.
pub(crate) struct Chance(u64);

impl Chance {
    /// Starts at a place that is told when the test fails.
    pub(crate) fn new() -> Self {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random numbers");
        let seed = u64::from_ne_bytes(seed) | 1;
        println!("chance: {seed:#x}");
        Self(seed)
    }

    /// The next number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Sleeps for up to so many microseconds.
    pub(crate) fn sleep(&mut self, most: u64) {
        std::thread::sleep(Duration::from_micros(self.below(most)));
    }
}

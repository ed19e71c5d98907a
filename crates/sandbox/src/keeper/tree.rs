//! The processes of a session, seen from outside: who they are, what they hold, stopping them.

use crate::kernel::told_of;
use cowork_sys::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Every process that descends from `init`, without it. Orphans are adopted by init or by a
/// process below it, so nothing of a session is missing, whatever namespaces it made inside.
///
/// The kernel lists the children of each thread. A list that is read while one of them ends may
/// lack another: who needs all of them reads again until nothing is new.
pub(crate) fn descendants(init: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = vec![init];
    while let Some(pid) = next.pop() {
        let Some(children) = children_of(pid) else { return descendants_by_parents(init) };
        found.extend(&children);
        next.extend(children);
    }
    found
}

/// `None` where the kernel does not list children (`CONFIG_PROC_CHILDREN`).
pub(super) fn children_of(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(children);
    };
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(list) => children.extend(list.split(' ').filter_map(|pid| pid.parse::<i32>().ok())),
            // The thread has ended meanwhile, or there are no such lists.
            Err(_) if std::fs::metadata(thread.path()).is_ok() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// The same from the parent that every process of the host names.
pub(super) fn descendants_by_parents(init: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![init];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = told_of(pid, "stat")?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Whether `init` is above `pid`.
///
/// A parent that ends while the way up is read breaks it off: its children have another parent then,
/// and the way is read again. Taken for an answer, it would leave a stopped process behind.
pub(super) fn descends(pid: i32, init: i32) -> bool {
    /// Parents that end in a row, while their descendant stays.
    const TRIES: u32 = 1000;
    (0..TRIES).find_map(|_| is_below(pid, init)).unwrap_or(false)
}

/// The same from one reading; `None` if a parent on the way up was gone.
fn is_below(pid: i32, init: i32) -> Option<bool> {
    /// Deeper than any tree of processes that a session can make.
    const DEPTH: u32 = 100_000;
    let mut at = pid;
    for _ in 0..DEPTH {
        match parent_of(at) {
            Some(parent) if parent == init => return Some(true),
            Some(parent) if parent > 0 => at = parent,
            Some(_) => return Some(false),
            None if at == pid => return Some(false),
            None => return None,
        }
    }
    Some(false)
}

/// The name of a process, for a report.
pub(crate) fn name_of(pid: i32) -> String {
    plain(&told_of(pid, "comm").unwrap_or_default())
}

/// A name that a process chose itself: nothing but plain letters reaches a terminal.
pub(crate) fn plain(name: &str) -> String {
    name.trim_end().chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// Sends a signal to a process that still descends from `init`.
fn send(pid: i32, init: i32, signal: Signal) -> Result<(), Errno> {
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    // The handle is taken first: if the id was reused in between, its owner is not a descendant.
    if !descends(pid.as_raw_nonzero().get(), init) {
        return Err(Errno::SRCH);
    }
    pidfd_send_signal(&handle, signal)
}

/// Kills a process of the session.
pub(crate) fn kill(pid: i32, init: i32) -> Result<(), Errno> {
    send(pid, init, Signal::KILL)
}

/// A granted folder as the session's processes see it.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// Where it is mounted, in the session.
    point: PathBuf,
    /// The file system it lies in, as `fdinfo` names it for watches.
    device: String,
}

impl Hold {
    /// The folder at `point` of the session, which lies in the file system `device`.
    pub(crate) fn new(point: PathBuf, device: u64) -> Self {
        let encoded = rustix::fs::major(device) << 20 | rustix::fs::minor(device);
        Self { point, device: format!("sdev:{encoded:x}") }
    }

    /// Whether process `pid` holds on to the mount or to one below it: by a descriptor, its working
    /// or root directory, its program, or a mapping.
    pub(crate) fn is_on(&self, pid: i32) -> bool {
        let mounts = told_of(pid, "mountinfo").unwrap_or_default();
        let mounts = mounts.lines().filter_map(Mount::parse);
        let copies: HashSet<u64> =
            mounts.filter(|m| m.point.starts_with(&self.point)).map(|m| m.id).collect();
        !copies.is_empty()
            && (holds_descriptor(pid, &copies)
                || holds_place(pid, &copies)
                || maps(pid, &self.point))
    }

    /// Whether process `pid` watches anything in the folder's file system. A watch pins no mount:
    /// it would go on telling names after the folder is gone.
    pub(crate) fn is_watched_by(&self, pid: i32) -> bool {
        any_descriptor(pid, |text| {
            text.lines()
                .filter(|line| line.starts_with("inotify"))
                .any(|line| line.split(' ').any(|field| field == self.device))
        })
    }
}

/// A mount that is attached nowhere and that processes can only have got files of.
#[derive(Clone, Debug)]
pub(crate) struct Loan {
    mount: HashSet<u64>,
    /// Its file system, as mappings name it.
    device: String,
}

impl Loan {
    /// The mount with this number, of the file system `device`.
    pub(crate) fn new(mount: u64, device: u64) -> Self {
        let device = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
        Self { mount: HashSet::from([mount]), device }
    }

    /// Whether process `pid` has a file of it open.
    pub(crate) fn is_open_in(&self, pid: i32) -> bool {
        holds_descriptor(pid, &self.mount)
    }

    /// Whether process `pid` has a file of the same file system mapped so that it can change it. The
    /// kernel does not tell the mount of a mapping.
    pub(crate) fn may_be_mapped_in(&self, pid: i32) -> bool {
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let shared = fields.next().is_some_and(|may| may.ends_with('s'));
            shared && fields.nth(1) == Some(self.device.as_str())
        })
    }
}

/// Whether process `pid` has one of these sockets open.
pub(crate) fn has_socket(pid: i32, sockets: &[u32]) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|entry| {
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        let number = link.to_str().and_then(|text| text.strip_prefix("socket:["));
        let number = number.and_then(|text| text.strip_suffix(']')?.parse().ok());
        number.is_some_and(|number: u32| sockets.contains(&number))
    })
}

fn holds_descriptor(pid: i32, copies: &HashSet<u64>) -> bool {
    any_descriptor(pid, |text| {
        text.lines()
            .filter_map(|line| line.strip_prefix("mnt_id:"))
            .filter_map(|id| id.trim().parse().ok())
            .any(|id: u64| copies.contains(&id))
    })
}

/// Whether what the kernel tells of any of a process's descriptors satisfies `wanted`.
fn any_descriptor(pid: i32, wanted: impl Fn(&str) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    entries
        .flatten()
        .any(|entry| std::fs::read_to_string(entry.path()).is_ok_and(|text| wanted(&text)))
}

fn holds_place(pid: i32, copies: &HashSet<u64>) -> bool {
    ["cwd", "root", "exe"].iter().any(|link| {
        statx(CWD, format!("/proc/{pid}/{link}"), AtFlags::empty(), StatxFlags::MNT_ID)
            .is_ok_and(|stat| copies.contains(&stat.stx_mnt_id))
    })
}

/// Mappings name the path of their file in the namespace of its mount.
fn maps(pid: i32, point: &Path) -> bool {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.split(|byte| *byte == b'\n').any(|line| {
        let Some(start) = line.iter().position(|byte| *byte == b'/') else { return false };
        let path = line.get(start..).unwrap_or_default();
        let path = Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
        path.starts_with(point)
    })
}

/// The mounts of the namespace it was opened in, read again only when they have changed.
#[derive(Debug)]
pub(crate) struct MountList {
    file: OwnedFd,
    mounts: Option<Vec<Mount>>,
}

impl MountList {
    /// The mounts of the namespace that this process is in.
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?;
        Ok(Self { file, mounts: None })
    }

    /// What is mounted inside `folder`.
    pub(crate) fn inside(&mut self, folder: &Path) -> Vec<PathBuf> {
        let points = self.list().iter().map(|mount| &mount.point);
        points.filter(|point| *point != folder && point.starts_with(folder)).cloned().collect()
    }

    /// Everything that is mounted.
    pub(crate) fn list(&mut self) -> &[Mount] {
        // The kernel marks the file when the namespace changes, and takes the mark off by poll.
        let mut watched = [PollFd::new(&self.file, PollFlags::PRI)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let unchanged = poll(&mut watched, Some(&now)) == Ok(0);
        if !unchanged || self.mounts.is_none() {
            self.mounts = Some(self.read());
        }
        self.mounts.as_deref().unwrap_or_default()
    }

    fn read(&self) -> Vec<Mount> {
        let mut text = Vec::new();
        let mut chunk = [0; 16 * 1024];
        if rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(0)).is_err() {
            return Vec::new();
        }
        while let Ok(read @ 1..) = rustix::io::read(&self.file, &mut chunk) {
            text.extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(Mount::parse).collect()
    }
}

/// A line of `mountinfo`.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// The one that it is mounted on.
    pub(crate) parent: u64,
    /// The file system, as its numbers.
    pub(crate) device: String,
    /// Which folder of the file system it shows.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
    /// The type of the file system.
    pub(crate) kind: String,
}

impl Mount {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        let device = fields.next()?.to_owned();
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let kind = fields.skip_while(|field| *field != "-").nth(1)?.to_owned();
        Some(Self { id, parent, device, root, point, kind })
    }
}

/// `mountinfo` writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Mount, unescape};
    use std::path::PathBuf;

    #[test]
    fn spaces_in_mount_points_are_understood() {
        assert_eq!(unescape(r"/a\040b\134c"), PathBuf::from(r"/a b\c"));
        assert_eq!(unescape(r"/a\04"), PathBuf::from(r"/a\04"));
    }

    #[test]
    fn a_line_of_mountinfo_has_what_is_needed() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.id, mount.parent, mount.point), (36, 35, PathBuf::from("/mnt 2")));
        assert_eq!((&*mount.device, mount.root), ("98:0", PathBuf::from("/mnt1")));
        assert_eq!(mount.kind, "ext3");
    }
}

//! Files that can still be written to when a set ends, because somebody has them open or mapped:
//! what is written to them later belongs to the next set, so they are kept for it as they are now.
//! The session stands still.
//!
//! Looked at are the descriptors of every thread and the shared mappings of every process. What
//! cannot be kept is recorded as what cannot be undone, at once or as soon as there is room for a
//! record.
//!
//! Deliberately absent: descriptors that are on their way in a socket. Nobody can write to them
//! there, and what whoever takes them writes belongs to the set in which they were opened.

use super::Files;
use super::folders::{Folder, Folders, identity, look};
use super::paths::{for_kernel, join, split};
use cowork_journal::hand::Spot;
use cowork_journal::record::Why;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Most files that are remembered because they could not even be recorded as lost.
const MOST_OWED: usize = 4096;

/// A file that somebody can write to.
pub(super) struct Writable {
    process: u32,
    folder: Arc<Folder>,
    file: OwnedFd,
}

/// What is to be done about a file.
#[derive(Clone, Copy)]
enum Wish {
    /// Keep it as it is.
    Keep,
    /// Record that it was not kept.
    Lose(Why),
}

impl Files {
    /// Keeps every file of a folder that somebody can write to.
    pub(super) fn save_open_files(&self) {
        for writable in self.writable_files() {
            if let Err(errno) = self.save_open(&writable, Wish::Keep) {
                self.lose_open(writable, errno);
            }
        }
    }

    /// Records again what could not be recorded as lost. Says whether nothing is left.
    pub(super) fn record_lost_files(&self) -> bool {
        let owed = std::mem::take(&mut *self.owed());
        for (writable, why) in owed {
            if self.save_open(&writable, Wish::Lose(why)).is_err() {
                self.owed().push((writable, why));
            }
        }
        self.owed().is_empty()
    }

    /// Records that a file could not be kept, or remembers to do so.
    fn lose_open(&self, writable: Writable, errno: Errno) {
        let why = match errno {
            Errno::NOSPC | Errno::DQUOT => Why::NoSpace,
            _ => Why::Unreadable,
        };
        if self.save_open(&writable, Wish::Lose(why)).is_err() {
            let mut owed = self.owed();
            if owed.len() < MOST_OWED {
                owed.push((writable, why));
            }
        }
    }

    fn save_open(&self, writable: &Writable, wish: Wish) -> Result<(), Errno> {
        let Writable { process, folder, file } = writable;
        let Some((start, name)) = folder.place_of(file.as_fd())? else { return Ok(()) };
        // Somebody who is gone by now wrote on behalf of nobody who can be found.
        let by = match self.ledger.identify_still(self, *process) {
            Err(Errno::SRCH) => return Ok(()),
            by => by?,
        };
        let path = join(&start.path, &name);
        let name = for_kernel(&name)?;
        let spot =
            Spot { folder: folder.number, parent: start.handle.as_fd(), name: &name, path: &path };
        let mut hand = self.hand()?;
        match wish {
            Wish::Keep => hand.keep_written(by, spot),
            Wish::Lose(why) => hand.lose_written(by, spot, why),
        }
    }

    /// Every file of a folder that a process of the session has open or mapped for writing.
    fn writable_files(&self) -> Vec<Writable> {
        let folders = self.writable_folders();
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for process in self.ledger.processes() {
            for (folder, file, identity) in folders.held_by(process) {
                if seen.insert((process, folder.number, identity)) {
                    found.push(Writable { process, folder, file });
                }
            }
        }
        found
    }

    /// The folders, with their writable mounts.
    pub(super) fn writable_folders(&self) -> WritableFolders {
        let folders = self.folders();
        let number = |folder: &Arc<Folder>| Some((number_of(folder)?, Arc::clone(folder)));
        let numbered = folders.iter().filter_map(number).collect();
        WritableFolders { folders, numbered }
    }
}

/// Folders in which files can be open for writing.
pub(super) struct WritableFolders {
    folders: Folders,
    numbered: Vec<(u64, Arc<Folder>)>,
}

impl WritableFolders {
    /// What a process has open or mapped for writing, with the folder it is in and which file it is.
    pub(super) fn held_by(&self, process: u32) -> Vec<(Arc<Folder>, OwnedFd, (u64, u64))> {
        let of_mount = |mount| self.numbered.iter().find(|(number, _)| *number == mount);
        let held = opened(process, |mount| of_mount(mount).is_some());
        let held = held.into_iter().filter_map(|(mount, file)| {
            of_mount(mount).map(|(_, folder)| (Arc::clone(folder), file))
        });
        let all = held.chain(mapped(process, &self.folders));
        all.filter_map(|(folder, file)| {
            let seen_as = identity(&look(file.as_fd()).ok()?);
            Some((folder, file, seen_as))
        })
        .collect()
    }
}

/// The number of a folder's writable mount as the kernel tells it of descriptors.
fn number_of(folder: &Folder) -> Option<u64> {
    let stat = rustix::fs::statx(&*folder.root, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    stat.ok().map(|stat| stat.stx_mnt_id)
}

/// What the threads of a process have open for writing on some mounts, and on which. Threads may
/// have descriptors of their own.
fn opened(process: u32, is_meant: impl Fn(u64) -> bool) -> Vec<(u64, OwnedFd)> {
    let mut found = Vec::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return found };
    for thread in threads.flatten() {
        let Ok(entries) = std::fs::read_dir(thread.path().join("fdinfo")) else { continue };
        for entry in entries.flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let Some(mount) = written_on(&text).filter(|mount| is_meant(*mount)) else { continue };
            let path = thread.path().join("fd").join(entry.file_name());
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::openat(CWD, path, flags, Mode::empty()) {
                found.push((mount, file));
            }
        }
    }
    found
}

/// The mount of a descriptor that can be written to.
fn written_on(fdinfo: &str) -> Option<u64> {
    let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let flags = OFlags::from_bits_retain(flags);
    let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR) && !flags.contains(OFlags::PATH);
    field("mnt_id:").filter(|_| writes)?.parse().ok()
}

/// Files of folders that a process has mapped and can write to. The kernel tells of a mapping the
/// path on its mount and the inode, not the mount: a file of the folder at that path with that
/// inode is the one, or one that is kept without need.
fn mapped(process: u32, folders: &[Arc<Folder>]) -> Vec<(Arc<Folder>, OwnedFd)> {
    let text = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut found = Vec::new();
    let mut looked_closer = None;
    for mapping in String::from_utf8_lossy(&text).lines().filter_map(Mapping::parse) {
        let link = format!("/proc/{process}/map_files/{}", mapping.range);
        let Ok(path) = std::fs::read_link(link) else { continue };
        let of_folder = folders.iter().find_map(|folder| {
            let file = at_path(folder, &path, mapping.inode)?;
            Some((Arc::clone(folder), file))
        });
        let Some(known) = of_folder else { continue };
        // What is mapped for reading from a descriptor that can write can be made writable.
        let closer = looked_closer.get_or_insert_with(|| {
            let details = std::fs::read(format!("/proc/{process}/smaps")).unwrap_or_default();
            changeable(&String::from_utf8_lossy(&details))
        });
        if mapping.writes || closer.contains(mapping.range) {
            found.push(known);
        }
    }
    found
}

/// The file of a folder at a path of its mount, if it is this inode.
fn at_path(folder: &Folder, path: &Path, inode: u64) -> Option<OwnedFd> {
    let inside = folder.inside_of(path.as_os_str().as_bytes())?;
    let parts = split(inside);
    let parent = folder.open_exactly(parts.folder, OFlags::PATH | OFlags::DIRECTORY).ok()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = for_kernel(parts.name).ok()?;
    let file = rustix::fs::openat(&parent, name, flags, Mode::empty()).ok()?;
    let seen = look(file.as_fd()).ok()?;
    (seen.stx_ino == inode).then_some(file)
}

/// A shared mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    /// Its addresses, as the kernel names them.
    range: &'a str,
    inode: u64,
    writes: bool,
}

impl<'a> Mapping<'a> {
    /// A line of `/proc/PID/maps`, if it is a shared mapping of something with an inode.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        let inode = fields.nth(2)?.parse().ok().filter(|inode| *inode != 0)?;
        let shared = rights.ends_with('s') && range.contains('-');
        shared.then_some(Self { range, inode, writes: rights.contains('w') })
    }
}

/// The ranges of `/proc/PID/smaps` that their process can write to, now or after it asked to.
fn changeable(smaps: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut range = "";
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_ascii_whitespace().any(|flag| flag == "mw") {
                found.insert(range.to_owned());
            }
        } else if let Some(first) = line.split_ascii_whitespace().next()
            && !first.ends_with(':')
        {
            range = first;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Mapping, changeable, written_on};

    #[test]
    fn a_descriptor_says_whether_it_can_be_written_to() {
        let info = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t77\nino:\t5\n");
        assert_eq!(written_on(&info("0100001")), Some(77));
        assert_eq!(written_on(&info("02100002")), Some(77));
        assert_eq!(written_on(&info("0100000")), None, "for reading");
        assert_eq!(written_on(&info("012000001")), None, "a path alone");
        assert_eq!(written_on("pos:\t0\n"), None);
    }

    #[test]
    fn a_line_is_a_mapping_that_others_share() {
        let line = "7f00-7f01 rw-s 00000000 08:01 42                 /a file";
        let expected = Mapping { range: "7f00-7f01", inode: 42, writes: true };
        assert_eq!(Mapping::parse(line), Some(expected));
        let line = "7f00-7f01 r--s 00000000 08:01 42                 /a file";
        assert!(Mapping::parse(line).is_some_and(|mapping| !mapping.writes));
        for other in [
            "7f00-7f01 rw-p 00000000 08:01 42                 /a file",
            "7f00-7f01 rw-s 00000000 00:01 0",
            "",
        ] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_can_be_made_writable_counts() {
        let smaps = "10-20 r--s 0 08:01 4 /a\nSize: 4 kB\nVmFlags: rd sh mr mw me ms\n\
                     20-30 r--s 0 08:01 4 /b\nVmFlags: rd sh mr me ms\n";
        assert_eq!(changeable(smaps), ["10-20".to_owned()].into());
    }
}

//! Whole folders of the host: removing one, and saying how much disk some take.
//!
//! What is in them was made by a session and may be anything: names are looked up one at a time
//! below a handle, no link is followed, and no mount is crossed. Nothing here needs more memory or
//! descriptors for a larger or deeper folder.

use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat2, renameat, statx,
    unlinkat,
};
use std::collections::{HashSet, VecDeque};
use std::ffi::{CString, OsStr};

/// Names that are read from a folder at a time.
const BATCH: usize = 4096;
/// How deep folders are entered. One that lies deeper is moved up first.
const DEPTH: u32 = 32;

/// Removes the folder, which `parent` has under `name`, with everything in it.
pub(crate) fn remove(
    folder: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(), Errno> {
    let top = enter(folder, OsStr::new("."))?;
    let mut remover = Remover { top, moved: 0 };
    let top = remover.top.try_clone().map_err(|_error| Errno::MFILE)?;
    remover.clear(top.as_fd(), 0)?;
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Opens a folder below another for reading. Neither a link nor something mounted is entered.
fn enter(base: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    crate::kernel::retry(|| openat2(base, name, flags, Mode::empty(), resolve))
}

struct Remover {
    /// The folder that is removed.
    top: OwnedFd,
    /// How many folders were moved up to it.
    moved: u64,
}

impl Remover {
    /// Removes everything in a folder. What is gone already is as it should be.
    fn clear(&mut self, folder: BorrowedFd<'_>, depth: u32) -> Result<(), Errno> {
        loop {
            let names = some_names(folder)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                match unlinkat(folder, &name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => self.remove_folder(folder, &name, depth)?,
                    Err(errno) => return Err(errno),
                }
            }
        }
    }

    fn remove_folder(
        &mut self,
        base: BorrowedFd<'_>,
        name: &CString,
        depth: u32,
    ) -> Result<(), Errno> {
        match unlinkat(base, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if depth >= DEPTH {
            return self.move_up(base, name);
        }
        let inner = enter(base, name.as_c_str())?;
        self.clear(inner.as_fd(), depth + 1)?;
        match unlinkat(base, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Moves a folder to the top, where it is found again.
    fn move_up(&mut self, base: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
        /// Names that something else may have there.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            self.moved += 1;
            match renameat(base, name, &self.top, format!(".moved-{}", self.moved)) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                result => return result,
            }
        }
        Err(Errno::EXIST)
    }
}

/// Some of the names in a folder; none when it is empty.
fn some_names(folder: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    // A handle of its own starts from the beginning.
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() >= BATCH {
            break;
        }
    }
    Ok(names)
}

/// How many bytes of disk the folders take, looking at no more than `most` files. What cannot be
/// read weighs nothing.
pub(crate) fn weigh(folders: &[OwnedFd], most: u64) -> u64 {
    let mut scales = Scales { bytes: 0, left: most, seen: HashSet::new() };
    for folder in folders {
        if let Ok(top) = enter(folder.as_fd(), OsStr::new(".")) {
            scales.weigh(top);
        }
    }
    scales.bytes
}

struct Scales {
    bytes: u64,
    /// How many files may still be looked at.
    left: u64,
    /// Files with several names that were counted.
    seen: HashSet<(u32, u32, u64)>,
}

impl Scales {
    /// Weighs a folder and everything below it. Folders that are still to be entered are held, up to
    /// a number; one beyond it counts by itself alone.
    fn weigh(&mut self, top: OwnedFd) {
        /// Most folders that wait to be entered.
        const WAITING: usize = 256;
        let mut waiting = VecDeque::from([top]);
        while let Some(folder) = waiting.pop_back() {
            let Ok(entries) = Dir::read_from(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"..") {
                    continue;
                }
                if self.left == 0 {
                    return;
                }
                self.left -= 1;
                let kind = self.count(folder.as_fd(), name);
                let is_below = kind == Some(FileType::Directory) && name.to_bytes() != b".";
                if is_below
                    && waiting.len() < WAITING
                    && let Ok(inner) = enter(folder.as_fd(), name)
                {
                    waiting.push_back(inner);
                }
            }
        }
    }

    /// Adds one file; says what it is.
    fn count(&mut self, base: BorrowedFd<'_>, name: &std::ffi::CStr) -> Option<FileType> {
        /// The unit of `stx_blocks`.
        const BLOCK: u64 = 512;
        let wanted = StatxFlags::TYPE | StatxFlags::BLOCKS | StatxFlags::NLINK | StatxFlags::INO;
        let stat = statx(base, name, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        // A folder is counted by its own `.`, when it is entered.
        let counted = match kind {
            FileType::Directory => name.to_bytes() == b".",
            _ if stat.stx_nlink > 1 => {
                self.seen.insert((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
            }
            _ => true,
        };
        if counted {
            self.bytes = self.bytes.saturating_add(stat.stx_blocks.saturating_mul(BLOCK));
        }
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{remove, weigh};
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    use std::ffi::OsStr;
    use std::path::Path;

    fn open(path: &Path) -> OwnedFd {
        crate::kernel::open_folder(path).unwrap()
    }

    fn scene(name: &str) -> std::path::PathBuf {
        let path =
            Path::new("/var/tmp").join(format!("cowork-folders-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::create_dir(path.join("home")).unwrap();
        path
    }

    #[test]
    fn a_folder_is_removed_and_what_links_lead_to_is_not() {
        let path = scene("links");
        std::fs::write(path.join("canary"), "alive").unwrap();
        std::fs::create_dir(path.join("other")).unwrap();
        std::fs::write(path.join("other/canary"), "alive").unwrap();
        let home = path.join("home");
        std::os::unix::fs::symlink("../canary", home.join("file")).unwrap();
        std::os::unix::fs::symlink("../other", home.join("folder")).unwrap();
        std::os::unix::fs::symlink("/", home.join("root")).unwrap();
        std::fs::hard_link(path.join("canary"), home.join("hard")).unwrap();
        for number in 0..5000 {
            std::fs::write(home.join(format!("{number}")), "").unwrap();
        }
        std::fs::create_dir_all(home.join("a/b/c")).unwrap();
        std::fs::write(home.join("a/b/c/file"), "x").unwrap();
        remove(open(&home).as_fd(), open(&path).as_fd(), OsStr::new("home")).unwrap();
        assert!(std::fs::symlink_metadata(&home).is_err());
        assert_eq!(std::fs::read_to_string(path.join("canary")).unwrap(), "alive");
        assert_eq!(std::fs::read_to_string(path.join("other/canary")).unwrap(), "alive");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_folder_deeper_than_any_number_of_descriptors_is_removed() {
        let path = scene("deep");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, path.join("home"), flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            mkdirat(&at, "deeper", Mode::RWXU).unwrap();
            mkdirat(&at, ".moved-1", Mode::RWXU).unwrap();
            at = openat(&at, "deeper", flags, Mode::empty()).unwrap();
        }
        let home = path.join("home");
        remove(open(&home).as_fd(), open(&path).as_fd(), OsStr::new("home")).unwrap();
        assert!(std::fs::symlink_metadata(&home).is_err());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn folders_weigh_what_is_in_them_once() {
        let path = scene("weight");
        let home = path.join("home");
        let nothing = weigh(&[open(&home)], 1000);
        std::fs::create_dir_all(home.join("a/b")).unwrap();
        std::fs::write(home.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(home.join("a/b/file"), home.join("again")).unwrap();
        std::os::unix::fs::symlink("/usr", home.join("link")).unwrap();
        let all = weigh(&[open(&home)], 1000);
        let most = nothing + (1 << 20) + (64 << 10);
        assert!(all >= 1 << 20 && all <= most, "{nothing} {all}");
        assert_eq!(weigh(&[open(&home)], 0), 0);
        std::fs::remove_dir_all(path).unwrap();
    }
}

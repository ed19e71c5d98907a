//! The folders whose changes go through the broker, and handles on what is in them.
//!
//! Each has two mounts: the session's own, read-only, and one that only the broker holds. A handle
//! of the session says which file is meant; the change is made through a handle of the other mount
//! on the same file. No handle on the session's mount is kept: one would keep it from being
//! unmounted.

use super::paths::{below, for_kernel, split};
use super::quota::Growth;
use crate::common::Commons;
use crate::kernel::retry;
use cowork_api::Text;
use cowork_api::files::{BrokeredFolder, Rules};
use cowork_policy::files::Judge;
use cowork_sys::Errno;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The folders that are known at one instant.
pub(super) type Folders = Arc<[Arc<Folder>]>;

/// Most handles on folders that are kept; beyond, all are dropped and the useful ones come back.
const MAX_CACHED: usize = 256;
/// How often a folder is looked for that is moved at the same time.
const TRIES: u32 = 16;

/// One such folder.
pub(super) struct Folder {
    /// Its number in the log.
    pub(super) number: u32,
    pub(super) name: String,
    /// Where it is in the session.
    pub(super) inside: Vec<u8>,
    /// The folder on the mount that can be written to.
    pub(super) root: Arc<OwnedFd>,
    /// The session's mount.
    pub(super) mount: u64,
    /// The mount that can be written to.
    pub(super) writable: u64,
    /// Its path from the root of that mount, with a slash before it; empty if it is that root.
    below: Vec<u8>,
    submounts: Vec<Text>,
    ruling: RwLock<Arc<Ruling>>,
    pub(super) growth: Growth,
    /// What is between this broker and those of other sessions that may change it.
    pub(super) commons: Commons,
    cache: Mutex<HashMap<(u64, u64), Arc<OwnedFd>>>,
}

/// The rules of a folder, ready to be asked.
pub(super) struct Ruling {
    pub(super) rules: Rules,
    pub(super) judge: Judge,
}

impl Ruling {
    fn new(rules: Rules) -> Arc<Self> {
        let judge = Judge::new(&rules);
        Arc::new(Self { rules, judge })
    }
}

/// A folder in one of them, on the writable mount.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) folder: Arc<Folder>,
    pub(super) handle: Arc<OwnedFd>,
    /// Its path below the granted folder.
    pub(super) path: Vec<u8>,
}

impl Folder {
    pub(super) fn new(
        about: BrokeredFolder,
        number: u32,
        root: OwnedFd,
        (inside, mount): (Vec<u8>, u64),
        commons: Commons,
    ) -> Result<Self, Errno> {
        let below = if about.below.is_empty() {
            Vec::new()
        } else {
            [b"/", about.below.as_slice()].concat()
        };
        Ok(Self {
            number,
            name: about.name,
            inside,
            writable: look(root.as_fd())?.stx_mnt_id,
            root: Arc::new(root),
            mount,
            below,
            submounts: about.submounts,
            ruling: RwLock::new(Ruling::new(about.rules)),
            growth: Growth::default(),
            commons,
            cache: Mutex::new(HashMap::new()),
        })
    }

    pub(super) fn ruling(&self) -> Arc<Ruling> {
        Arc::clone(&self.ruling.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_rules(&self, rules: Rules) {
        *self.ruling.write().unwrap_or_else(PoisonError::into_inner) = Ruling::new(rules);
    }

    /// Whether something else is mounted at this path or above it.
    pub(super) fn is_covered(&self, path: &[u8]) -> bool {
        self.submounts.iter().any(|submount| below(path, submount).is_some())
    }

    /// Whether something is mounted at this path or below it.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.submounts.iter().any(|submount| below(submount, path).is_some())
    }

    pub(super) fn has_submounts(&self) -> bool {
        !self.submounts.is_empty()
    }

    /// The path below the folder of a handle on its writable mount. `ENOENT` if it was removed, or
    /// moved out of the folder.
    pub(super) fn whereabouts(&self, handle: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        let path = match path_of_folder(handle) {
            Ok(path) => path,
            Err(Errno::NOENT) => return Err(Errno::NOENT),
            // No folder, or one that may not be gone into.
            Err(_) => {
                let path = path_of(handle)?;
                if path.ends_with(DELETED) && rustix::fs::fstat(handle)?.st_nlink == 0 {
                    return Err(Errno::NOENT);
                }
                path
            }
        };
        self.inside_of(&path).map(<[u8]>::to_vec).ok_or(Errno::NOENT)
    }

    /// What of a path from the root of the writable mount lies below the folder.
    pub(super) fn inside_of<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let rest = below(path, &self.below)?;
        Some(rest.strip_prefix(b"/").unwrap_or(rest))
    }

    /// A handle on `path` on the writable mount, following no link.
    pub(super) fn open_exactly(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(self.root.as_fd(), path, flags, ResolveFlags::NO_SYMLINKS)
    }

    /// The writable handle of a folder that is held by a handle on the session's mount.
    pub(super) fn writable(
        self: &Arc<Self>,
        held: BorrowedFd<'_>,
        seen: &Statx,
    ) -> Result<Start, Errno> {
        let key = identity(seen);
        let cached = self.cached().get(&key).map(Arc::clone);
        let handle = match cached {
            Some(handle) => handle,
            None => self.find(held, key)?,
        };
        let path = self.whereabouts(handle.as_fd())?;
        Ok(Start { folder: Arc::clone(self), handle, path })
    }

    fn find(&self, held: BorrowedFd<'_>, key: (u64, u64)) -> Result<Arc<OwnedFd>, Errno> {
        for _ in 0..TRIES {
            let path = path_of(held)?;
            let inside = below(&path, &self.inside).ok_or(Errno::NOENT)?;
            match self.open_exactly(inside, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(found) if identity(&look(found.as_fd())?) == key => {
                    let found = Arc::new(found);
                    let mut cache = self.cached();
                    if cache.len() >= MAX_CACHED {
                        cache.clear();
                    }
                    cache.insert(key, Arc::clone(&found));
                    return Ok(found);
                }
                // It was moved, removed or replaced between the two looks.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::NOENT)
    }

    /// The name, on the writable mount, of a file that is held on the session's mount.
    pub(super) fn name_of(
        self: &Arc<Self>,
        held: BorrowedFd<'_>,
        seen: &Statx,
    ) -> Result<Option<(Start, Vec<u8>)>, Errno> {
        for _ in 0..TRIES {
            let path = path_of(held)?;
            let Some(inside) = below(&path, &self.inside) else { return Ok(None) };
            let parts = split(inside);
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let Ok(parent) = self.open_exactly(parts.folder, flags) else { continue };
            let name = for_kernel(parts.name)?;
            let same = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == identity(seen));
            if same {
                let path = self.whereabouts(parent.as_fd())?;
                let folder = Arc::clone(self);
                let start = Start { folder, handle: Arc::new(parent), path };
                return Ok(Some((start, parts.name.to_vec())));
            }
            if rustix::fs::fstat(held)?.st_nlink == 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The name of a file that is held on the writable mount; none if it was removed.
    pub(super) fn place_of(
        self: &Arc<Self>,
        held: BorrowedFd<'_>,
    ) -> Result<Option<(Start, Vec<u8>)>, Errno> {
        let key = identity(&look(held)?);
        for _ in 0..TRIES {
            let path = match self.whereabouts(held) {
                Err(Errno::NOENT) => return Ok(None),
                path => path?,
            };
            let parts = split(&path);
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let Ok(parent) = self.open_exactly(parts.folder, flags) else { continue };
            let name = for_kernel(parts.name)?;
            let same = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == key);
            if same {
                let (folder, path) = (Arc::clone(self), self.whereabouts(parent.as_fd())?);
                return Ok(Some((
                    Start { folder, handle: Arc::new(parent), path },
                    parts.name.to_vec(),
                )));
            }
            if rustix::fs::fstat(held)?.st_nlink == 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, u64), Arc<OwnedFd>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder itself, as a place to start from.
    pub(super) fn start(self: &Arc<Self>) -> Start {
        Start { folder: Arc::clone(self), handle: Arc::clone(&self.root), path: Vec::new() }
    }
}

/// What the kernel puts behind the path of something that was removed.
const DELETED: &[u8] = b" (deleted)";

/// Opens below `base`, never leaving it and its mount, and following no magic link.
pub(super) fn open_beneath(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = for_kernel(path)?;
    let how = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC;
    retry(|| rustix::fs::openat2(base, &path, flags, Mode::empty(), how))
}

/// What a handle holds, and on which mount.
pub(super) fn look(handle: BorrowedFd<'_>) -> Result<Statx, Errno> {
    /// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no later mount gets.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let mask = StatxFlags::TYPE
        | StatxFlags::MODE
        | StatxFlags::INO
        | StatxFlags::NLINK
        | StatxFlags::MNT_ID
        | UNIQUE;
    rustix::fs::statx(handle, c"", AtFlags::EMPTY_PATH, mask)
}

/// Which file it is.
pub(super) fn identity(seen: &Statx) -> (u64, u64) {
    (rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor), seen.stx_ino)
}

pub(super) fn kind_of(seen: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(seen.stx_mode))
}

/// The path of a folder, as the kernel says it; `ENOENT` if it was removed. This thread goes there
/// to ask, since that takes no look-up, and does not stay: it would hold the mount.
fn path_of_folder(folder: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    /// What the kernel puts before the path of what is on a mount that is attached nowhere.
    const DETACHED: &[u8] = b"(unreachable)";
    static HOME: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let home = HOME.get_or_init(|| rustix::fs::open("/", flags, Mode::empty()).ok());
    let home = home.as_ref().ok_or(Errno::ACCESS)?;
    rustix::process::fchdir(folder)?;
    let path = rustix::process::getcwd(Vec::new());
    rustix::process::fchdir(home)?;
    let path = path?.into_bytes();
    Ok(path.strip_prefix(DETACHED).unwrap_or(&path).to_vec())
}

/// The path of a handle, as the kernel says it.
fn path_of(handle: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(rustix::fs::readlinkat(CWD, link, Vec::new())?.into_bytes())
}

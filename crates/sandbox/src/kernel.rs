//! The sequences of kernel operations that several parts use, each with its failure named.

use cowork_api::keeper::{Failure, FailureCode};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, Depth, set_attributes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A kernel operation that failed, with what it was for.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct Failed {
    /// What was attempted, on what.
    pub step: String,
    /// What the kernel said.
    #[source]
    pub errno: Errno,
}

impl Failed {
    pub(crate) fn new(step: impl Into<String>, errno: Errno) -> Self {
        Self { step: step.into(), errno }
    }

    /// The failure as a client is told it.
    pub(crate) fn into_failure(self, code: FailureCode) -> Failure {
        Failure {
            code,
            sentence: format!("cannot {}", self.step),
            errno: self.errno.raw_os_error(),
            hint: String::new(),
        }
    }
}

/// Names the step that a kernel operation belongs to.
pub(crate) trait Step<T> {
    /// `what` completes the sentence "cannot …".
    fn step(self, what: impl FnOnce() -> String) -> Result<T, Failed>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T, Failed> {
        self.map_err(|errno| Failed::new(what(), errno))
    }
}

impl<T> Step<T> for std::io::Result<T> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T, Failed> {
        self.map_err(|error| Failed::new(what(), Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// The path that `text` of a plan names.
pub(crate) fn path_of(text: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(text))
}

/// The same, without its leading slash, for lookups below a handle of the root.
pub(crate) fn below_root(text: &[u8]) -> PathBuf {
    let path = path_of(text);
    path.strip_prefix("/").unwrap_or(path).to_path_buf()
}

/// A new file system that is mounted nowhere yet. An option without a value is a flag.
pub(crate) fn new_file_system(
    kind: &str,
    options: &[(&str, &str)],
    flags: MountAttrFlags,
) -> Result<OwnedFd, Failed> {
    let named = || format!("make a file system of type {kind}");
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).step(named)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(context.as_fd(), *key).step(named)?;
        } else {
            fsconfig_set_string(context.as_fd(), *key, *value).step(named)?;
        }
    }
    fsconfig_create(context.as_fd()).step(named)?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags).step(named)
}

/// Whether a copied mount brings along what is mounted below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The mount alone.
    One,
    /// Everything below it too.
    Tree,
}

/// A copy of the mount at `path` below `base`, mounted nowhere yet. An empty path means `base`.
pub(crate) fn copy_mount(
    base: BorrowedFd<'_>,
    path: &Path,
    extent: Extent,
) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if path.as_os_str().is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if extent == Extent::Tree {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(base, path, flags)
}

/// Changes the attributes of a mount held by `mount`, and of everything below it.
pub(crate) fn restrict(mount: BorrowedFd<'_>, attributes: &Attributes<'_>) -> Result<(), Errno> {
    set_attributes(mount, Depth::Tree, attributes)
}

/// Puts the detached `mount` on top of what `target` holds.
pub(crate) fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

/// A handle on `path` below `root`, following no symbolic link and never leaving `root`.
pub(crate) fn locate(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    retry(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
    })
}

/// `openat2` says `EAGAIN` when a rename anywhere raced with a lookup that must not escape.
pub(crate) fn retry<T>(mut operation: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    /// A lookup that loses this many races is being fought; it fails as refused.
    const ATTEMPTS: u32 = 128;
    for _ in 0..ATTEMPTS {
        match operation() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Writes `text` to a file of a kernel interface in one call.
pub(crate) fn write_at(base: BorrowedFd<'_>, name: &str, text: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(base, name, flags, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}

/// Reads a small file of a kernel interface, with as few calls as it takes: the kernel makes the
/// contents anew for each.
pub(crate) fn read_at(base: BorrowedFd<'_>, name: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(base, name, flags, Mode::empty())?;
    read_all(file.as_fd())
}

/// What the kernel tells of a process in one of its files. Names are chosen by the process itself
/// and need not be text: what is not is replaced, so that nobody hides behind a name.
pub(crate) fn told_of(pid: impl std::fmt::Display, name: &str) -> Option<String> {
    read_at(CWD, &format!("/proc/{pid}/{name}")).ok()
}

/// Reads such a file from its beginning, whatever was read of it before.
pub(crate) fn read_all(file: BorrowedFd<'_>) -> Result<String, Errno> {
    let mut text = Vec::new();
    let mut chunk = [0; 8 * 1024];
    loop {
        let read = rustix::io::pread(file, &mut chunk, text.len() as u64)?;
        text.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if read == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

/// Opens a folder by its path, for use as a base of later lookups.
pub(crate) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

//! Folders of the host, held as handles.
//!
//! After a check a folder is a handle, not a path: what was looked at is what is used.

use cowork_api::plan::Identity;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A folder that was opened, with where it lies.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
    identity: Identity,
}

/// Why a path is not a folder that can be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nothing is there.
    #[error("there is no folder `{}`", .path.display())]
    Missing {
        /// As given.
        path: PathBuf,
    },
    /// It is something else.
    #[error("`{}` is not a folder", .path.display())]
    NotFolder {
        /// As given.
        path: PathBuf,
    },
    /// The kernel refuses it.
    #[error("cannot open the folder `{}`", .path.display())]
    Kernel {
        /// As given.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Folder {
    /// Opens the folder that a person means by `path`, following links as the shell would.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| explain(path, errno))?;
        Self::of(handle).map_err(|errno| explain(path, errno))
    }

    fn of(handle: OwnedFd) -> Result<Self, Errno> {
        let identity = identity(handle.as_fd())?;
        let path = whereabouts(handle.as_fd())?;
        // A folder that was removed, or that lies outside this process's root, has no path that
        // leads to it.
        if self::identity(open_exactly(&path)?.as_fd())? != identity {
            return Err(Errno::NOENT);
        }
        Ok(Self { handle, path, identity })
    }

    /// Where it lies, free of symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which folder it is, whatever its path leads to later.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Opens a file below this folder, following links only as long as they stay below it.
    pub fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        crate::kernel::retry(|| {
            let flags = flags | OFlags::CLOEXEC;
            rustix::fs::openat2(&self.handle, path, flags, Mode::empty(), resolve)
        })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn explain(path: &Path, errno: Errno) -> FolderError {
    let path = path.to_path_buf();
    match errno {
        Errno::NOENT => FolderError::Missing { path },
        Errno::NOTDIR => FolderError::NotFolder { path },
        errno => FolderError::Kernel { path, source: errno.into() },
    }
}

/// Opens `path`, which must contain no symbolic link, and says which folder it is.
pub(crate) fn open_exactly(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    crate::kernel::retry(|| rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve))
}

/// Which file a handle holds.
pub(crate) fn identity(handle: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(handle)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The path of a handle, as the kernel says it.
fn whereabouts(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

//! `mount_setattr`: flags, propagation and id mapping of a mount that is held by its descriptor.

use crate::{Errno, check};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether the mounts below a mount are meant too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The mount alone.
    One,
    /// The mount and everything mounted below it.
    Tree,
}

/// How mounts made below a mount spread to its copies in other namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Neither gives nor takes.
    Private,
    /// Gives to and takes from its peers.
    Shared,
    /// Takes from its master, gives nothing back.
    Slave,
}

/// What to set on a mount. Nothing is ever cleared: a mount only becomes stricter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    /// `MOUNT_ATTR_*` bits to set; see the constants of this module.
    pub set: u64,
    /// The new propagation, if it changes.
    pub propagation: Option<Propagation>,
    /// A user namespace whose map the mount takes over (`MOUNT_ATTR_IDMAP`).
    pub idmap: Option<BorrowedFd<'a>>,
}

/// Writes are refused.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Set-user-id bits and file capabilities have no effect.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device nodes cannot be opened.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Files cannot be executed.
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Changes the attributes of `mount`, which must be the root of a mount.
pub fn set_attributes(
    mount: BorrowedFd<'_>,
    depth: Depth,
    attributes: &Attributes<'_>,
) -> Result<(), Errno> {
    let propagation = match attributes.propagation {
        None => 0,
        Some(Propagation::Private) => libc::MS_PRIVATE,
        Some(Propagation::Shared) => libc::MS_SHARED,
        Some(Propagation::Slave) => libc::MS_SLAVE,
    };
    let mut raw =
        libc::mount_attr { attr_set: attributes.set, attr_clr: 0, propagation, userns_fd: 0 };
    if let Some(userns) = attributes.idmap {
        raw.attr_set |= libc::MOUNT_ATTR_IDMAP;
        raw.userns_fd = u64::try_from(userns.as_raw_fd()).unwrap_or(u64::MAX);
    }
    let flags = libc::AT_EMPTY_PATH
        | match depth {
            Depth::One => 0,
            Depth::Tree => libc::AT_RECURSIVE,
        };
    // SAFETY: the empty path is a static NUL-terminated string, `raw` outlives the call, and the
    // size passed is that of the structure behind the pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const raw,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result).map(|_| ())
}

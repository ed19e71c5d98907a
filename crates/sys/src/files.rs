//! Files that are named by a handle and a name, or by a handle alone, without the detour by `/proc`.

use crate::{Errno, check};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::CStr;

/// `SYS_listxattrat` (Linux 6.13), the same on every architecture.
const LISTXATTRAT: libc::c_long = 465;
/// `SYS_fchmodat2` (Linux 6.6), the same on every architecture.
const FCHMODAT2: libc::c_long = 452;

/// Lists the extended attributes of a name in a folder, following no link; how many bytes the list
/// has. Kernels before 6.13 say `ENOSYS`.
pub fn list_attributes(
    parent: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    // SAFETY: `name` ends with a NUL, and `buffer` is borrowed mutably for the whole call, which is
    // told its length.
    let result = unsafe {
        libc::syscall(
            LISTXATTRAT,
            parent.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    usize::try_from(check(result)?).map_err(|_negative| Errno::INVAL)
}

/// Changes the permission bits of what a handle is on. Kernels before 6.6 say `ENOSYS`.
pub fn change_mode(file: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    // SAFETY: the path is empty and ends with a NUL; the other arguments are numbers.
    let result = unsafe {
        libc::syscall(FCHMODAT2, file.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH)
    };
    check(result).map(|_| ())
}

/// What the far end of a pipe does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// It reads what comes in.
    Reads,
    /// It writes what goes out.
    Writes,
}

impl Far {
    /// Lets the far end open its side of a pipe once more, as `/dev/stdout` and the like do, also
    /// where it has another user id. The pipe has no name: nobody else can open it.
    pub fn may_open_again(self, pipe: BorrowedFd<'_>) -> Result<(), Errno> {
        let mode = match self {
            Self::Reads => 0o644,
            Self::Writes => 0o622,
        };
        rustix::fs::fchmod(pipe, rustix::fs::Mode::from_raw_mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::{change_mode, list_attributes};
    use crate::Errno;
    use rustix::fd::AsFd;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn a_handle_is_enough() {
        let folder = rustix::fs::open("/tmp", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let folder = folder.unwrap();
        let mut buffer = [0; 256];
        let missing = list_attributes(folder.as_fd(), c"no such name at all", &mut buffer);
        assert!(matches!(missing, Err(Errno::NOENT | Errno::NOSYS)), "{missing:?}");
        let file = rustix::fs::memfd_create(c"mode", rustix::fs::MemfdFlags::empty()).unwrap();
        match change_mode(file.as_fd(), 0o640) {
            Ok(()) => {
                assert_eq!(rustix::fs::fstat(&file).unwrap().st_mode & 0o7777, 0o640);
            }
            Err(errno) => assert_eq!(errno, Errno::NOSYS),
        }
    }
}

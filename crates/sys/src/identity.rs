//! Who a process is: keyrings, privilege bits, inherited descriptors, and locks that name a slot.

use crate::{Errno, check, last_errno};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Gives this process a new, empty, anonymous session keyring in place of the inherited one.
pub fn join_new_session_keyring() -> Result<(), Errno> {
    // SAFETY: KEYCTL_JOIN_SESSION_KEYRING with a null name reads no memory of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    };
    check(result).map(|_| ())
}

/// Removes every capability from the bounding set, so that no later exec can gain one.
///
/// The kernel says `EINVAL` one past its last capability; that is where the loop ends.
pub fn empty_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 as libc::c_ulong {
        // SAFETY: PR_CAPBSET_DROP takes a number and no pointer.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result < 0 {
            let errno = last_errno();
            return if errno == Errno::INVAL && capability > 0 { Ok(()) } else { Err(errno) };
        }
    }
    Ok(())
}

/// Marks every descriptor from `first` on to be closed by the next exec.
pub fn close_from_at_exec(first: u32) -> Result<(), Errno> {
    // SAFETY: close_range with CLOEXEC closes nothing now; no descriptor owned by a value of this
    // process becomes invalid while the process runs this program.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    check(result).map(|_| ())
}

/// Closes every descriptor from `first` on. For the first lines of `main`: what is open there was
/// left by the caller, and no value of this process owns it.
pub fn close_inherited(first: u32) -> Result<(), Errno> {
    // SAFETY: close_range takes numbers; see above for why no owned descriptor is closed.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    check(result).map(|_| ())
}

/// A descriptor number above any that a handle is put at by [`hand_over`], so that no copy
/// overwrites one still to be made, and low enough for any limit on open files.
pub const ASIDE: libc::c_int = 16;

/// Puts `handles` at the descriptors 0, 1, 2 and so on, and marks all others to be closed by the
/// next exec. For a process that is about to execute another program and does nothing else.
pub fn hand_over(handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut copies = Vec::with_capacity(handles.len());
    for handle in handles {
        copies.push(rustix::io::fcntl_dupfd_cloexec(handle, ASIDE)?);
    }
    for (copy, place) in copies.iter().zip(0..) {
        // SAFETY: dup2 takes two numbers. What was at `place` is closed without its owner knowing:
        // the caller executes another program next, and no destructor runs before that.
        let result = unsafe { libc::dup2(copy.as_raw_fd(), place) };
        check(libc::c_long::from(result))?;
    }
    close_from_at_exec(u32::try_from(handles.len()).unwrap_or(0))
}

/// Puts `handles` at the descriptors from 3 on, and closes all others. For a forked child that does
/// one thing with them and ends by [`leave`](crate::process::leave).
pub fn keep_only(handles: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Errno> {
    /// The first descriptor after the standard streams.
    const FIRST: libc::c_int = 3;
    // Above every place, so that no copy overwrites one still to be made.
    let count = libc::c_int::try_from(handles.len()).map_err(|_overflow| Errno::MFILE)?;
    let aside = ASIDE.max(FIRST + count);
    let mut copies = Vec::with_capacity(handles.len());
    for handle in handles {
        copies.push(rustix::io::fcntl_dupfd_cloexec(handle, aside)?);
    }
    let mut kept = Vec::with_capacity(copies.len());
    for (copy, place) in copies.iter().zip(FIRST..) {
        // SAFETY: dup3 takes numbers. What was at `place` is closed without its owner knowing: the
        // caller ends without running a destructor.
        let result = unsafe { libc::dup3(copy.as_raw_fd(), place, libc::O_CLOEXEC) };
        check(libc::c_long::from(result))?;
        // SAFETY: dup3 has just made this descriptor, for this value alone.
        kept.push(unsafe { OwnedFd::from_raw_fd(place) });
    }
    // Closed below with all others.
    copies.into_iter().for_each(std::mem::forget);
    close_inherited((FIRST + count).unsigned_abs())?;
    Ok(kept)
}

/// Takes over the descriptor `number` that [`hand_over`] put in place before the exec. For the
/// first lines of `main`, before anything else was opened; a second call for the same number says
/// `EBADF`.
pub fn take_over(number: u32) -> Result<OwnedFd, Errno> {
    let number = libc::c_int::try_from(number).map_err(|_overflow| Errno::BADF)?;
    // SAFETY: F_DUPFD_CLOEXEC takes numbers; an invalid one gives EBADF.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, ASIDE) };
    let copy = check(libc::c_long::from(copy))?;
    // SAFETY: the original was inherited, and no value of this process owns it: see above.
    unsafe { libc::close(number) };
    let copy = libc::c_int::try_from(copy).map_err(|_overflow| Errno::BADF)?;
    // SAFETY: fcntl has just made this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Whether a slot could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The slot is this open file's until it is closed.
    Taken,
    /// Somebody else holds it.
    Busy,
}

/// Takes the lock on byte `slot` of `file` without waiting. The lock belongs to the open file
/// description: it ends when the last descriptor of it is closed, also by a crash.
pub fn take_slot(file: BorrowedFd<'_>, slot: u32) -> Result<Slot, Errno> {
    match lock_slot(file, slot, libc::F_WRLCK) {
        Ok(()) => Ok(Slot::Taken),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(Slot::Busy),
        Err(errno) => Err(errno),
    }
}

/// Gives back the lock on byte `slot` of `file`.
pub fn give_slot(file: BorrowedFd<'_>, slot: u32) -> Result<(), Errno> {
    lock_slot(file, slot, libc::F_UNLCK)
}

fn lock_slot(file: BorrowedFd<'_>, slot: u32, kind: libc::c_int) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: libc::off_t::from(slot),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: F_OFD_SETLK reads one `flock`, which lives until the call returns.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Asks the kernel for its Landlock ABI; `None` when Landlock is not there or switched off.
pub fn landlock_abi() -> Option<u32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the kernel takes a null attribute of size zero.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(result).ok().filter(|abi| *abi > 0)
}

/// Calls `add_key` with arguments that are wrong in every way; the errno tells whether the call
/// reached the kernel (`EFAULT`, `EINVAL`) or a filter stood before it (`EPERM`).
pub fn probe_add_key() -> Errno {
    // SAFETY: all pointers are null; the kernel refuses them before it uses any.
    let result = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_void>(),
            0usize,
            0,
        )
    };
    refused(result)
}

/// Calls `execve` without a path; the errno tells whether the call reached the kernel (`EFAULT`) or a
/// filter stood before it.
pub fn probe_exec() -> Errno {
    let none = std::ptr::null::<*const libc::c_char>();
    // SAFETY: the path is null; the kernel refuses it before it uses anything else.
    let result = unsafe { libc::syscall(libc::SYS_execve, std::ptr::null::<u8>(), none, none) };
    refused(result)
}

/// Calls `clone` for a process, with flags that exclude each other; the errno tells whether the call
/// reached the kernel (`EINVAL`) or a filter stood before it.
pub fn probe_fork() -> Errno {
    // SAFETY: signal handlers cannot be shared without the memory (clone(2)): the kernel refuses the
    // call before it makes anything.
    let result = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_SIGHAND, 0, 0, 0, 0) };
    refused(result)
}

/// Why a call that can only fail did.
fn refused(result: libc::c_long) -> Errno {
    match check(result) {
        Ok(_) => Errno::from_raw_os_error(libc::EIO),
        Err(errno) => errno,
    }
}

/// Lets this thread make files as another user and group, with what it may do otherwise unchanged
/// but for the capabilities about files, which the kernel takes out of its effective set.
pub fn make_files_as(uid: u32, gid: u32) -> Result<(), Errno> {
    for (call, id) in [(libc::SYS_setfsgid, gid), (libc::SYS_setfsuid, uid)] {
        // SAFETY: both calls take a number and change this thread's credentials only.
        unsafe { libc::syscall(call, id) };
        // They return what it was before; an id that does not exist changes nothing and tells it.
        // SAFETY: as above.
        let now = unsafe { libc::syscall(call, u32::MAX) };
        if now != libc::c_long::from(id) {
            return Err(Errno::PERM);
        }
    }
    Ok(())
}

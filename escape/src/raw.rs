//! Raw system calls, for attacks: numbers and registers, with nothing between them and the kernel.
//!
//! The functions are safe to write down, not safe in general: a process makes one attack and ends,
//! and whatever the kernel does to its memory is part of that attack.

use crate::scene::Lost;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes a system call with up to six registers.
pub(crate) fn call(number: libc::c_long, registers: &[usize]) -> Result<usize, io::Error> {
    let mut all = [0; 6];
    for (place, register) in all.iter_mut().zip(registers) {
        *place = *register;
    }
    let [first, second, third, fourth, fifth, sixth] = all;
    // SAFETY: pointers among the registers come from live references of the caller; calls that
    // write elsewhere are refused by the kernel with `EFAULT`.
    let result = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// The number of a call that not every architecture has; a number that no kernel has elsewhere.
pub(crate) fn number(name: &str) -> libc::c_long {
    use cowork_policy::seccomp::Arch;
    let number = Arch::native().and_then(|arch| arch.number_of(name));
    number.map_or(0x0fff_ffff, libc::c_long::from)
}

/// Makes a child, which continues here with 0.
pub(crate) fn fork() -> Result<usize, io::Error> {
    call(libc::SYS_clone, &[flags(libc::SIGCHLD), 0, 0, 0, 0])
}

/// A call that returns a new descriptor.
pub(crate) fn open_by(number: libc::c_long, registers: &[usize]) -> Result<OwnedFd, io::Error> {
    let number = call(number, registers)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// The address of a value.
pub(crate) fn at<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// The address of a value that the kernel fills.
pub(crate) fn into<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance()
}

/// A path or name as the kernel takes it.
pub(crate) fn text(text: &str) -> Result<CString, Lost> {
    CString::new(text).map_err(|_nul| Lost::new("a NUL in a name"))
}

/// The address of a text.
pub(crate) fn of(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// A negative number as a register, e.g. `AT_FDCWD`.
pub(crate) fn signed(value: i32) -> usize {
    value as isize as usize
}

/// Flags as a register.
pub(crate) fn flags(value: i32) -> usize {
    value as u32 as usize
}

/// Runs `child` in a fork and returns what it sent: at most one page of bytes.
pub(crate) fn in_fork(child: impl FnOnce() -> Result<String, Lost>) -> Result<String, Lost> {
    use std::io::{Read, Write};
    let (mut read, mut write) = io::pipe()?;
    match fork()? {
        0 => {
            let line = match child() {
                Ok(won) => format!("+{won}"),
                Err(lost) => format!("-{lost}"),
            };
            drop(write.write_all(line.as_bytes()));
            leave(0)
        }
        child => {
            drop(write);
            let mut line = String::new();
            read.read_to_string(&mut line)?;
            let mut status = 0i32;
            call(libc::SYS_wait4, &[child, into(&mut status), 0, 0])?;
            match line.split_at_checked(1) {
                Some(("+", won)) => Ok(won.to_owned()),
                Some(("-", lost)) => Err(Lost::new(lost)),
                _ => Err(Lost::new(format!("the child ended with status {status:#x}"))),
            }
        }
    }
}

/// Ends the process without running anything else of it.
pub(crate) fn leave(status: i32) -> ! {
    loop {
        cowork_sys::ignore(call(libc::SYS_exit_group, &[signed(status)]));
    }
}

/// The name of an error number.
pub(crate) fn errno_name(number: i32) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EBADF, "EBADF"),
        (libc::ECHILD, "ECHILD"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::ENOTBLK, "ENOTBLK"),
        (libc::EBUSY, "EBUSY"),
        (libc::EADDRINUSE, "EADDRINUSE"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::EMLINK, "EMLINK"),
        (libc::EPIPE, "EPIPE"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EHOSTUNREACH, "EHOSTUNREACH"),
        (libc::EUSERS, "EUSERS"),
        (libc::ENOKEY, "ENOKEY"),
    ];
    let name = known.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    name.map_or_else(|| format!("errno {number}"), str::to_owned)
}

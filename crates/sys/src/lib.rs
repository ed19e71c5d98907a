//! Typed kernel operations that `rustix` does not have: the only `unsafe` code of the tree.
//!
//! Every function is one system call, or one fixed sequence of them that must not be interrupted
//! by other code (starting a command). Handles go in, handles come out, the errno is returned as
//! it is. Whatever has a meaning beyond the call lives in the crates above.
//!
//! Deliberately absent: decisions, strings that are parsed, retries, and everything that `rustix`
//! already offers safely.

#![expect(unsafe_code, reason = "this crate is where the system calls are")]

pub mod files;
pub mod identity;
pub mod keyring;
pub mod memory;
pub mod mount;
pub mod net;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod spawn;

pub use rustix::io::Errno;

/// Turns a system call's result into the value or the thread's errno.
fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The errno that the last failed call of this thread left.
fn last_errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Errno::from_raw_os_error(raw)
}

/// Says that an outcome does not matter. Every use stands below a comment that says why.
pub fn ignore<T, E>(_outcome: Result<T, E>) {}

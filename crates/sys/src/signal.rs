//! Signals as a descriptor, and the exit of children with what they used.

use crate::{Errno, check, last_errno};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Signals that arrive as readable data instead of interrupting the program.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signals {
    /// Blocks the given signal numbers for this thread and collects them. Call it before any
    /// other thread exists, or they keep their old handling there.
    pub fn collect(numbers: &[i32]) -> Result<Self, Errno> {
        // SAFETY: a `sigset_t` of zeroes is valid storage; sigemptyset makes it a valid set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a local that outlives the call.
        unsafe { libc::sigemptyset(&raw mut set) };
        for number in numbers {
            // SAFETY: `set` was initialised by sigemptyset above.
            unsafe { libc::sigaddset(&raw mut set, *number) };
        }
        // SAFETY: `set` is initialised; the old mask is not asked for.
        let masked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if masked != 0 {
            return Err(Errno::from_raw_os_error(masked));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let raw =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if raw < 0 {
            return Err(last_errno());
        }
        // SAFETY: `raw` is a descriptor that signalfd has just made; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// The next signal that arrived, by number.
    pub fn next(&self) -> Result<Option<i32>, Errno> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut record) {
            // `ssi_signo` is the first field of the record.
            Ok(_) => Ok(record.first_chunk::<4>().map(|bytes| i32::from_ne_bytes(*bytes))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Heeds every signal that whoever started this process told it to ignore, as a shell does for what
/// it puts into the background: what this process starts must not inherit that. `SIGPIPE` stays as
/// the Rust runtime has it.
pub fn heed_all() {
    for number in 1..=64 {
        if number != libc::SIGPIPE {
            // SAFETY: the default action is valid for every number; for those that cannot be
            // changed, or do not exist, the call fails and changes nothing.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
}

/// From now on this process, and those that it makes without exec, hear of children that end and not
/// of those that stop or go on.
pub fn hear_of_ends_alone() -> Result<(), Errno> {
    // SAFETY: a `sigaction` of zeroes is valid: the default action, no flags, nothing blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = libc::SA_NOCLDSTOP;
    // SAFETY: `action` is a local that outlives the call; the old one is not asked for.
    let result = unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Sends a signal to every process that this one may signal but itself and PID 1. From PID 1 of a
/// namespace these are all others in it.
pub fn signal_everybody(signal: rustix::process::Signal) -> Result<(), Errno> {
    // SAFETY: kill takes two numbers.
    let result = unsafe { libc::kill(-1, signal.as_raw()) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// What a finished process used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident size of any process of the tree, in KiB.
    pub peak_kib: u64,
    /// Bytes read from storage, in whole blocks.
    pub read: u64,
    /// Bytes written to storage, in whole blocks.
    pub written: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It returned this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Its process id, as this process sees it.
    pub pid: i32,
    /// How it ended.
    pub ending: Ending,
    /// What it used.
    pub usage: Usage,
}

/// Collects one child that has ended, if there is one.
pub fn reap() -> Result<Option<Reaped>, Errno> {
    let mut status = 0;
    // SAFETY: `rusage` is plain old data of integers; all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both out pointers are locals that outlive the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match check(libc::c_long::from(pid)) {
        Ok(0) | Err(Errno::CHILD) => Ok(None),
        Ok(_) => {
            let ending = if libc::WIFSIGNALED(status) {
                Ending::Signal(u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX))
            } else {
                Ending::Status(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
            };
            let usage = Usage {
                user: duration(usage.ru_utime),
                system: duration(usage.ru_stime),
                peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
                read: blocks(usage.ru_inblock),
                written: blocks(usage.ru_oublock),
            };
            Ok(Some(Reaped { pid, ending, usage }))
        }
        Err(errno) => Err(errno),
    }
}

/// The kernel counts storage in blocks of this many bytes here, whatever the disk's are.
const BLOCK: u64 = 512;

fn blocks(count: libc::c_long) -> u64 {
    u64::try_from(count).unwrap_or(0).saturating_mul(BLOCK)
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))
}

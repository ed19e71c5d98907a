//! Making a process in new namespaces, and replacing it by a program that is held as a handle.

use crate::{Errno, check};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::process::Pid;
use std::convert::Infallible;
use std::ffi::CString;

/// Proof that the process had one thread when it was made.
///
/// A forked child owns a copy of the memory but only the forking thread: with a second thread, a
/// lock could be held in the copy by nobody. The programs that fork make this proof first thing
/// in `main` and start no thread afterwards.
#[derive(Debug)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Counts the threads of this process.
    pub fn observe() -> Result<Self, std::io::Error> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            Ok(Self(()))
        } else {
            Err(std::io::Error::other(format!("{threads} threads where one was expected")))
        }
    }
}

/// Which namespaces a new process gets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// None: a plain child.
    Inherited,
    /// A user namespace alone, to carry an id map.
    User,
    /// A pid namespace alone.
    Processes,
    /// User, mount, pid, ipc and host name, and the caller's own parent for a parent. The network is
    /// the one that the caller is in: it is made before. The cgroup namespace is made by the child,
    /// once it is in its own cgroup.
    Session,
}

/// `CLONE_INTO_CGROUP`, which does not fit the type that the `libc` crate gives it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// The two sides of a fork.
#[derive(Debug)]
pub enum Forked {
    /// The caller, with the new process's id and a handle on it.
    Parent {
        /// Its process id.
        pid: Pid,
        /// A descriptor that names it whatever happens to its id.
        handle: OwnedFd,
    },
    /// The child.
    Child,
}

/// Makes a process with a copy of this one, in new namespaces and, if given, in `cgroup` (a
/// cgroup v2 directory).
pub fn fork(
    _proof: &SingleThreaded,
    namespaces: Namespaces,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Forked, Errno> {
    let flags = match namespaces {
        Namespaces::Inherited => 0,
        Namespaces::User => libc::CLONE_NEWUSER,
        Namespaces::Processes => libc::CLONE_NEWPID,
        Namespaces::Session => {
            libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
                | libc::CLONE_PARENT
        }
    };
    let mut handle: libc::c_int = -1;
    // SAFETY: `clone_args` is plain old data of integers; all zeroes means "nothing asked".
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned() | libc::CLONE_PIDFD.cast_unsigned());
    arguments.pidfd = (&raw mut handle).addr() as u64;
    if namespaces != Namespaces::Session {
        // A child of the caller's parent has the caller's own signal, and may not name one.
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    }
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, as after fork(2). The proof
    // says that no other thread can have left a lock taken in that copy.
    let result = unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>())
    };
    let pid = check(result)?;
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(Forked::Child);
    };
    // SAFETY: in the parent, CLONE_PIDFD has stored a new descriptor here that nothing else owns.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    Ok(Forked::Parent { pid, handle })
}

/// Which namespaces this process leaves for new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// A copy of the mounts.
    Mounts,
    /// A user namespace, and a copy of the mounts that it owns.
    UserAndMounts,
    /// The view of cgroups: its own cgroup becomes the root.
    Cgroups,
    /// A network with nothing in it.
    Network,
}

/// Moves this process into new namespaces.
pub fn unshare(_proof: &SingleThreaded, leave: Leave) -> Result<(), Errno> {
    let flags = match leave {
        Leave::Mounts => libc::CLONE_NEWNS,
        Leave::UserAndMounts => libc::CLONE_NEWUSER | libc::CLONE_NEWNS,
        Leave::Cgroups => libc::CLONE_NEWCGROUP,
        Leave::Network => libc::CLONE_NEWNET,
    };
    // SAFETY: no flag here is CLONE_FILES, which would separate descriptor tables of threads.
    let result = unsafe { libc::unshare(flags) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Gives this thread a working directory and a file mode mask of its own: from now on changing them
/// does not change those of other threads.
pub fn own_mask_and_folder() -> Result<(), Errno> {
    // SAFETY: CLONE_FS separates the working directory, root and mask of this thread from those of
    // others; nothing else is shared through them.
    let result = unsafe { libc::unshare(libc::CLONE_FS) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Replaces this process by the program behind `file`.
pub fn execute(
    file: BorrowedFd<'_>,
    arguments: &[CString],
    environment: &[CString],
) -> Result<Infallible, Errno> {
    let arguments = crate::spawn::pointers(arguments);
    let environment = crate::spawn::pointers(environment);
    // SAFETY: both arrays end with a null pointer and point to NUL-terminated strings that are
    // borrowed until the call returns, which it does only when it fails.
    let result = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    match check(result) {
        Ok(_) => Err(Errno::IO),
        Err(errno) => Err(errno),
    }
}

/// Ends this process at once, running no destructor and no exit handler: for a forked child that
/// must not repeat its parent's clean-up.
pub fn leave(status: u8) -> ! {
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(libc::c_int::from(status)) }
}

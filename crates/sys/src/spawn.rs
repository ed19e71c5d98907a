//! Starting a command from PID 1 of a session, by a child that borrows this process's memory.
//!
//! `CLONE_VM | CLONE_VFORK` avoids copying page tables: starting a command then costs about what
//! the exec itself costs. In exchange the child may only make system calls on prepared memory:
//! no allocation, no lock, no destructor. Everything it needs is laid out in `Order` before.

use crate::{Errno, check, last_errno};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::CString;

/// Whether the command's standard input becomes its controlling terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// No controlling terminal.
    Absent,
    /// Standard input is a terminal, and the command's session is led by the command.
    Controlling,
}

/// A command, completely prepared.
#[derive(Debug)]
pub struct Command<'a> {
    /// Programs to try, in this order, until one can be executed.
    pub programs: &'a [CString],
    /// Its arguments, the name first.
    pub arguments: &'a [CString],
    /// Its environment.
    pub environment: &'a [CString],
    /// Standard input, output and error. Each must be above 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The folder it starts in.
    pub folder: BorrowedFd<'a>,
    /// Its terminal.
    pub terminal: Terminal,
    /// Permission bits that its new files do not get.
    pub umask: u32,
}

/// The mask that whoever starts commands has itself: a command that wants this one inherits it, and
/// the call is spared.
pub const USUAL_MASK: u32 = 0o022;

/// What the child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Making the child.
    Clone,
    /// Starting a process session or taking the terminal.
    Terminal,
    /// Putting standard input, output and error in place.
    Stdio,
    /// Entering the folder.
    Folder,
    /// Executing the program.
    Execute,
}

/// Why a command did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("starting the command failed at {stage:?}")]
pub struct SpawnError {
    /// What was being done.
    pub stage: Stage,
    /// What the kernel said.
    #[source]
    pub errno: Errno,
}

/// The memory a starting child runs on. One is enough for any number of commands, because the
/// caller sleeps until the child has executed or failed.
#[derive(Debug)]
pub struct Stack(Vec<u128>);

impl Default for Stack {
    fn default() -> Self {
        /// 64 KiB: the child's deepest call chain is a few system call wrappers.
        const WORDS: usize = 64 * 1024 / size_of::<u128>();
        Self(vec![0; WORDS])
    }
}

/// Everything the child touches; made by the parent, read and answered by the child.
struct Order {
    programs: *const *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    stdio: [libc::c_int; 3],
    folder: libc::c_int,
    terminal: Terminal,
    umask: libc::mode_t,
    failure: Option<(Stage, libc::c_int)>,
}

/// Starts the command and says its process id once the program has been executed.
pub fn spawn(command: &Command<'_>, stack: &mut Stack) -> Result<i32, SpawnError> {
    let programs = pointers(command.programs);
    let arguments = pointers(command.arguments);
    let environment = pointers(command.environment);
    let mut order = Order {
        programs: programs.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        stdio: command.stdio.map(|fd| fd.as_raw_fd()),
        folder: command.folder.as_raw_fd(),
        terminal: command.terminal,
        umask: command.umask & 0o777,
        failure: None,
    };
    let top = stack.0.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the 16-byte aligned end of the stack's storage, which nobody else uses:
    // it is borrowed mutably and CLONE_VFORK suspends this thread until the child is done with it.
    // `order` and what it points to outlive the child's use for the same reason.
    let pid =
        unsafe { libc::clone(child, top.cast(), flags, (&raw mut order).cast::<libc::c_void>()) };
    let pid = check(libc::c_long::from(pid))
        .map_err(|errno| SpawnError { stage: Stage::Clone, errno })?;
    match order.failure {
        Some((stage, errno)) => Err(SpawnError { stage, errno: Errno::from_raw_os_error(errno) }),
        None => Ok(i32::try_from(pid).unwrap_or(-1)),
    }
}

/// Pointers to C strings, ended by a null pointer.
pub(crate) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// Runs in the child, on the borrowed memory.
extern "C" fn child(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a pointer to its `Order`, and sleeps until this process has left its
    // memory: there is no other reference to it meanwhile.
    let order = unsafe { &mut *order.cast::<Order>() };
    let Err((stage, errno)) = prepare(order) else { return 127 };
    order.failure = Some((stage, errno.raw_os_error()));
    127
}

/// The child's steps. Returns only when one of them failed.
fn prepare(order: &Order) -> Result<(), (Stage, Errno)> {
    reset_signals();
    // SAFETY: setsid takes nothing.
    step(Stage::Terminal, unsafe { libc::setsid() })?;
    for (source, target) in order.stdio.into_iter().zip(0..) {
        // SAFETY: dup2 takes two numbers; the descriptor table is this child's own copy.
        step(Stage::Stdio, unsafe { libc::dup2(source, target) })?;
    }
    if order.terminal == Terminal::Controlling {
        // SAFETY: TIOCSCTTY takes a number.
        step(Stage::Terminal, unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
    }
    if order.umask != USUAL_MASK {
        // SAFETY: umask takes a number; without CLONE_FS the mask is this child's own copy.
        unsafe { libc::umask(order.umask) };
    }
    // SAFETY: fchdir takes a number; the working directory is this child's own copy.
    step(Stage::Folder, unsafe { libc::fchdir(order.folder) })?;
    crate::identity::close_from_at_exec(3).map_err(|errno| (Stage::Stdio, errno))?;
    Err((Stage::Execute, execute_first(order)))
}

/// Tries the programs in order, as `execvp` does along `PATH`: a file that exists but may not be
/// executed is remembered, and is the answer if no later one works.
fn execute_first(order: &Order) -> Errno {
    let mut answer = Errno::NOENT;
    let mut next = order.programs;
    loop {
        // SAFETY: `next` walks an array that ends with a null pointer, and stops there.
        let program = unsafe { *next };
        if program.is_null() {
            return answer;
        }
        // SAFETY: the program is a NUL-terminated string, both arrays end with a null pointer, and
        // all of them live in the parent, which sleeps.
        unsafe { libc::execve(program, order.arguments, order.environment) };
        match last_errno() {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => answer = Errno::ACCESS,
            errno => return errno,
        }
        // SAFETY: the element just read was not the null pointer, so there is a next one.
        next = unsafe { next.add(1) };
    }
}

/// Gives the command the signal handling a program expects to start with: nothing blocked, and
/// `SIGPIPE` ends it (the Rust runtime of this process ignores it, and exec keeps that).
fn reset_signals() {
    // SAFETY: a zeroed `sigset_t` is valid storage for sigemptyset.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` is a local that outlives the call.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: without CLONE_SIGHAND the table of handlers is this child's own copy.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: `none` is initialised; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

fn step(stage: Stage, result: libc::c_int) -> Result<(), (Stage, Errno)> {
    if result < 0 { Err((stage, last_errno())) } else { Ok(()) }
}

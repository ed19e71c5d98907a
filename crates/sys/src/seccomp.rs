//! Installing filters, and talking to the listener of one.

use crate::memory::Numbers;
use crate::{Errno, check};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One classic BPF instruction, laid out as the kernel's `sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump when true.
    pub jt: u8,
    /// Jump when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// How the kernel treats signals while a call waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Only fatal signals interrupt a call that the listener has received (Linux 5.19).
    Killable,
    /// Any signal interrupts it, and the kernel may restart a call that was already carried out.
    Interruptible,
}

/// Adds a filter to this thread for good. Needs `no_new_privs`.
pub fn install(program: &[Instruction]) -> Result<(), Errno> {
    set_filter(program, 0).map(|_| ())
}

/// Adds a filter whose `USER_NOTIF` verdicts go to the returned listener.
pub fn install_with_listener(program: &[Instruction]) -> Result<(OwnedFd, Waiting), Errno> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let killable = listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let (raw, waiting) = match set_filter(program, killable) {
        Ok(raw) => (raw, Waiting::Killable),
        Err(Errno::INVAL) => (set_filter(program, listener)?, Waiting::Interruptible),
        Err(errno) => return Err(errno),
    };
    let raw = i32::try_from(raw).map_err(|_overflow| Errno::BADF)?;
    // SAFETY: with NEW_LISTENER the call returns a new descriptor that nothing else owns.
    Ok((unsafe { OwnedFd::from_raw_fd(raw) }, waiting))
}

fn set_filter(program: &[Instruction], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let length = libc::c_ushort::try_from(program.len()).map_err(|_overflow| Errno::INVAL)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `Instruction` has the layout of `sock_filter`; `filter` says how many there are, and
    // the kernel copies them before it returns.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    };
    check(result)
}

/// Whether a call that the listener has received can be made to wait through signals
/// ([`Waiting::Killable`]).
pub fn knows_killable_waiting() -> bool {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let none = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: the kernel looks at the flags first, and then finds that there is no filter.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, none) };
    check(result) == Err(Errno::FAULT)
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// Names the call to the kernel.
    pub id: u64,
    /// The thread that made it, as this process sees it; 0 when it cannot see it.
    pub thread: u32,
    /// Number of the system call.
    pub number: i32,
    /// Its arguments, by value.
    pub arguments: [u64; 6],
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this errno.
    Error(Errno),
    /// The kernel carries the call out as it was made. Whoever made it can change what its pointers
    /// lead to meanwhile: only for calls that something else refuses where it matters.
    Continue,
}

/// How many numbers of a table one call takes.
pub const NUMBERS_PER_CALL: usize = size_of::<libc::seccomp_notif>() / size_of::<u64>();

/// Waits for the next call, which the kernel itself writes into the table, from `place` on; the
/// first number is its id. So no call is ever received and not in the table, whenever this process
/// is killed. `EINTR` and `ENOENT` (the caller died) mean: try again.
pub fn receive(
    listener: BorrowedFd<'_>,
    table: &Numbers,
    place: usize,
) -> Result<Notification, Errno> {
    // The kernel demands it zeroed.
    table.clear(place, NUMBERS_PER_CALL);
    let call = table.address(place, NUMBERS_PER_CALL).ok_or(Errno::INVAL)?;
    // SAFETY: the request is defined for one `seccomp_notif`, which has the size of as many numbers
    // as there are at this address, in a table that outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, call.as_ptr()) };
    check(libc::c_long::from(result))?;
    received(table, place).ok_or(Errno::NOENT)
}

/// The call that the table holds from `place` on; nothing if there is none.
pub fn received(table: &Numbers, place: usize) -> Option<Notification> {
    let number = |offset| table.get(place + offset);
    // Two halves lie in one number: the thread and flags, then the call and its architecture.
    let half = |offset| {
        let [a, b, c, d, ..] = number(offset).to_ne_bytes();
        [a, b, c, d]
    };
    let call = Notification {
        id: number(0),
        thread: u32::from_ne_bytes(half(1)),
        number: i32::from_ne_bytes(half(2)),
        arguments: [4, 5, 6, 7, 8, 9].map(number),
    };
    (call.id != 0).then_some(call)
}

/// Whether the call still waits: its caller lives, and its thread id still names it.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request reads one u64, which lives until the call returns.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID, &raw const id) };
    result == 0
}

/// Answers a call. `ENOENT` means that its caller is gone.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> Result<(), Errno> {
    let mut raw = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
    match answer {
        Answer::Value(value) => raw.val = value,
        Answer::Error(errno) => raw.error = -errno.raw_os_error(),
        Answer::Continue => raw.flags = CONTINUE,
    }
    // SAFETY: the request reads one `seccomp_notif_resp`, which lives until the call returns.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, &raw const raw) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Whether a descriptor is closed when its process executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtExec {
    /// It is.
    Closed,
    /// It is not.
    Kept,
}

/// Gives the caller a descriptor of `file`, and says its number. The call still waits: its answer is
/// to be that number. Whoever answers can let go of the file before the caller goes on.
pub fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    at_exec: AtExec,
) -> Result<i64, Errno> {
    let newfd_flags = match at_exec {
        AtExec::Closed => libc::O_CLOEXEC.cast_unsigned(),
        AtExec::Kept => 0,
    };
    let raw = libc::seccomp_notif_addfd {
        id,
        flags: 0,
        srcfd: file.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags,
    };
    // SAFETY: the request reads one `seccomp_notif_addfd`, which lives until the call returns.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ADDFD, &raw const raw) };
    check(libc::c_long::from(result))
}

/// Asks the kernel to wake the listener and its caller on the same CPU (Linux 6.6).
pub fn wake_synchronously(listener: BorrowedFd<'_>) -> Result<(), Errno> {
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the request takes its argument by value.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    check(libc::c_long::from(result)).map(|_| ())
}

/// Whether the kernel knows the `USER_NOTIF` verdict.
pub fn knows_notifications() -> bool {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the operation reads one u32, which lives until the call returns.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    result == 0
}

/// Number of an ioctl of the seccomp listener, as `_IOC` of the kernel headers builds it.
const fn request(direction: libc::c_ulong, number: libc::c_ulong, size: usize) -> libc::Ioctl {
    (direction << 30 | (size as libc::c_ulong) << 16 | (b'!' as libc::c_ulong) << 8 | number)
        as libc::Ioctl
}

const NOTIF_RECV: libc::Ioctl = request(3, 0, size_of::<libc::seccomp_notif>());
const NOTIF_SEND: libc::Ioctl = request(3, 1, size_of::<libc::seccomp_notif_resp>());
const NOTIF_ID_VALID: libc::Ioctl = request(1, 2, size_of::<u64>());
const NOTIF_ADDFD: libc::Ioctl = request(1, 3, size_of::<libc::seccomp_notif_addfd>());
const NOTIF_SET_FLAGS: libc::Ioctl = request(1, 4, size_of::<u64>());
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

//! Connections: a UNIX socket in the file system is reachable only if the session bound it.
//!
//! The address is copied once and the socket is taken as a handle; the broker connects that handle
//! itself. For UNIX sockets the path is resolved as the caller sees it, to a handle as well, and
//! the connection is made through that handle: nothing is looked up twice.

use crate::broker::{Broker, MAX_CONNECTING, low_half, thread_handle_of};
use cowork_sys::Errno;
use cowork_sys::memory::read_process;
use cowork_sys::net::connect_raw;
use cowork_sys::seccomp::{Answer, Notification, still_waits};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::net::AddressFamily;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest address of any family (`sizeof(struct sockaddr_storage)`).
const MAX_ADDRESS: usize = 128;
/// Bytes of the family at the start of an address.
const FAMILY: usize = 2;

/// Carries out `connect(socket, address, length)` in place of the caller.
pub(crate) fn decide(broker: &Broker, call: &Notification) -> Answer {
    match connect(broker, call) {
        Ok(()) => Answer::Value(0),
        Err(errno) => Answer::Error(errno),
    }
}

fn connect(broker: &Broker, call: &Notification) -> Result<(), Errno> {
    let [socket, address, length, ..] = call.arguments;
    let length = low_half(length);
    let length = usize::try_from(length).map_err(|_overflow| Errno::INVAL)?;
    if length > MAX_ADDRESS {
        return Err(Errno::INVAL);
    }
    let caller = Caller::of(call.thread)?;
    let mut buffer = [0; MAX_ADDRESS];
    let wanted = buffer.get_mut(..length).unwrap_or_default();
    let read = if length == 0 { 0 } else { read_process(call.thread, address, wanted)? };
    if read != length {
        return Err(Errno::FAULT);
    }
    let address = buffer.get(..length).unwrap_or_default();
    let socket = caller.socket(low_half(socket))?;
    // Everything read so far came from the caller's thread id; the caller still waits, so the id
    // was its own all the time.
    if !still_waits(broker.listener.as_fd(), call.id) {
        return Err(Errno::SRCH);
    }
    match unix_path(&socket, address)? {
        None => patiently(broker, call.id, &socket, address),
        Some(path) => {
            let target = caller.resolve(Path::new(OsStr::from_bytes(path)))?;
            authorise(broker, &target)?;
            patiently(broker, call.id, &socket, &through(&target))
        }
    }
}

/// Connects, waiting as long as the socket would wait itself, but no longer than its caller does:
/// a caller that dies leaves nothing behind that waits.
fn patiently(broker: &Broker, id: u64, socket: &OwnedFd, address: &[u8]) -> Result<(), Errno> {
    /// How often a caller is looked after.
    const SLICE: Duration = Duration::from_millis(50);
    let flags = rustix::fs::fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return connect_raw(socket.as_fd(), address);
    }
    let mut pause = Duration::from_micros(200);
    let mut waiting = None;
    loop {
        rustix::fs::fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
        let connected = match connect_raw(socket.as_fd(), address) {
            // Within the session's network the other end has answered by now.
            Err(Errno::INPROGRESS) => connect_raw(socket.as_fd(), address),
            result => result,
        };
        rustix::fs::fcntl_setfl(socket, flags)?;
        let wait = match connected {
            // The queue of a UNIX socket is full: there is nothing to wait on but time.
            Err(Errno::AGAIN) => Wait::Time,
            Err(Errno::INPROGRESS | Errno::ALREADY) => Wait::Socket,
            result => return result,
        };
        if waiting.is_none() {
            waiting = Some(broker.wait(&broker.connecting, MAX_CONNECTING).ok_or(Errno::AGAIN)?);
        }
        match wait {
            Wait::Time => std::thread::sleep(pause),
            Wait::Socket => return finish(broker, id, socket, SLICE),
        }
        pause = (pause * 2).min(SLICE);
        if !still_waits(broker.listener.as_fd(), id) {
            return Err(Errno::SRCH);
        }
    }
}

/// What a connection waits for.
enum Wait {
    Time,
    Socket,
}

/// Waits for a connection that is under way.
fn finish(broker: &Broker, id: u64, socket: &OwnedFd, slice: Duration) -> Result<(), Errno> {
    let slice = rustix::event::Timespec::try_from(slice).ok();
    loop {
        let mut watched = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut watched, slice.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return rustix::net::sockopt::socket_error(socket)?,
            Err(errno) => return Err(errno),
        }
        if !still_waits(broker.listener.as_fd(), id) {
            return Err(Errno::SRCH);
        }
    }
}

/// The path in an address of a UNIX socket; `None` for other families, for abstract names, which
/// belong to the session's network, and for addresses that the kernel will refuse. A UNIX socket
/// takes no address that states another family, so the socket itself is looked at only for one that
/// states this one.
fn unix_path<'a>(socket: &OwnedFd, address: &'a [u8]) -> Result<Option<&'a [u8]>, Errno> {
    let Some((stated, name)) = address.split_first_chunk::<FAMILY>() else { return Ok(None) };
    let stated = u16::from_ne_bytes(*stated);
    if stated != AddressFamily::UNIX.as_raw()
        || rustix::net::sockopt::socket_domain(socket)? != AddressFamily::UNIX
    {
        return Ok(None);
    }
    // The kernel takes a name up to the first NUL, and one that starts with it as abstract.
    let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok((!path.is_empty()).then_some(path))
}

/// Refuses a socket that the session did not bind.
fn authorise(broker: &Broker, target: &OwnedFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(target)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(Errno::CONNREFUSED);
    }
    // Nobody but the session can have made a file in its scratch.
    if stat.st_dev == broker.scratch || broker.sockets.include(stat.st_dev, stat.st_ino)? {
        return Ok(());
    }
    Err(Errno::ACCESS)
}

/// An address that leads to exactly what `target` holds.
fn through(target: &OwnedFd) -> Vec<u8> {
    let mut address = AddressFamily::UNIX.as_raw().to_ne_bytes().to_vec();
    address.extend(format!("/proc/self/fd/{}\0", target.as_raw_fd()).into_bytes());
    address
}

/// The process behind a call.
struct Caller {
    thread: u32,
    handle: OwnedFd,
}

impl Caller {
    fn of(thread: u32) -> Result<Self, Errno> {
        let handle = thread_handle_of(thread)?;
        Ok(Self { thread, handle })
    }

    fn socket(&self, number: u32) -> Result<OwnedFd, Errno> {
        let number = i32::try_from(number).map_err(|_overflow| Errno::BADF)?;
        pidfd_getfd(&self.handle, number, PidfdGetfdFlags::empty())
    }

    /// Finds what the caller means by `path`, as a handle. Links inside the caller's world are
    /// followed there; nothing leads out of it, and magic links are not followed.
    fn resolve(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let lookup = |base: &OwnedFd, path: &Path, how: ResolveFlags| {
            let how = how | ResolveFlags::NO_MAGICLINKS;
            crate::kernel::retry(|| rustix::fs::openat2(base, path, flags, Mode::empty(), how))
        };
        if path.is_relative() {
            let here = self.place("cwd")?;
            match lookup(&here, path, ResolveFlags::BENEATH) {
                Err(Errno::XDEV) => {}
                result => return result,
            }
        }
        let absolute = if path.is_relative() { self.folder()?.join(path) } else { path.into() };
        lookup(&self.place("root")?, &absolute, ResolveFlags::IN_ROOT)
    }

    fn place(&self, link: &str) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/{}/{link}", self.thread);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    }

    /// The path of the caller's working directory. If it changes meanwhile, the lookup finds
    /// another file of the caller's world, which is judged like any.
    fn folder(&self) -> Result<PathBuf, Errno> {
        let link = rustix::fs::readlink(format!("/proc/{}/cwd", self.thread), Vec::new())?;
        Ok(PathBuf::from(OsStr::from_bytes(link.to_bytes())))
    }
}

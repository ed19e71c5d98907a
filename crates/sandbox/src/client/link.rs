//! A conversation with a resident keeper, for a client of several threads.
//!
//! A link has two halves: any number of threads send calls, one reads what comes back and tells
//! answers apart by their numbers. Nothing here waits for an answer, and nothing is kept: which
//! call waits for which number is the client's own matter.

use super::{ClientError, keeper_socket};
use crate::channel::Channel;
use cowork_api::keeper::{Call, Message, Request};
use cowork_sys::Errno;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Connections that wait until the keeper has time for them.
const BACKLOG: i32 = 16;

/// A connection to a resident keeper.
#[derive(Debug)]
pub struct Link {
    channel: Channel,
}

/// The half of a link that asks. Its copies are the same conversation.
#[derive(Clone, Debug)]
pub struct LinkSender {
    channel: Arc<Channel>,
}

/// The half of a link that hears.
#[derive(Debug)]
pub struct LinkReceiver {
    channel: Arc<Channel>,
}

impl Link {
    /// Connects to the keeper that listens at `path`.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let place = Place::of(path).map_err(keeper_socket)?;
        let socket = new_socket().map_err(keeper_socket)?;
        let address = place.address(&place.name).map_err(keeper_socket)?;
        rustix::net::connect(&socket, &address).map_err(keeper_socket)?;
        Ok(Self { channel: socket.into() })
    }

    /// Starts a keeper from the file `program` that listens at `socket`, in place of whatever
    /// listened there before, and outlives this process. `log` gets what it has to say.
    ///
    /// The socket accepts connections when this returns. Whoever keeps the child waits for it, so
    /// that it leaves nothing when it ends.
    pub fn launch(
        program: &Path,
        socket: &Path,
        log: Option<OwnedFd>,
    ) -> Result<Child, ClientError> {
        let failed = |source| ClientError::Start { program: program.to_path_buf(), source };
        let listener = listen(socket).map_err(|errno| failed(errno.into()))?;
        let (output, errors) = match log {
            Some(log) => (Stdio::from(log.try_clone().map_err(failed)?), Stdio::from(log)),
            None => (Stdio::null(), Stdio::null()),
        };
        Command::new(program)
            .arg(crate::keeper::RESIDENT)
            .env_clear()
            // No folder is named, which would make a fork of this, of a program with threads: the
            // keeper leaves the folder by itself. So it does the group of processes, for a session of
            // its own, which the leader of a group cannot begin.
            .stdin(Stdio::from(listener))
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(failed)
    }

    /// The two halves, for as many threads as are needed.
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        let channel = Arc::new(self.channel);
        (LinkSender { channel: Arc::clone(&channel) }, LinkReceiver { channel })
    }
}

impl LinkSender {
    /// Sends a call with the descriptors that belong to it. Its answer bears the same number.
    /// Waits for room if the keeper is busy.
    pub fn send(
        &self,
        number: u32,
        request: &Request,
        handles: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let call = Call { number, request: request.clone() };
        self.channel.send(&cowork_api::encode(&call), handles).map_err(keeper_socket)
    }

    /// Ends the conversation for both halves: whoever waits to hear hears that it is over.
    pub fn close(&self) {
        // One that is over already needs no end.
        cowork_sys::ignore(rustix::net::shutdown(&*self.channel, Shutdown::Both));
    }
}

impl LinkReceiver {
    /// Waits for the next answer or event, with the descriptors beside it.
    pub fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), ClientError> {
        super::hear_keeper(&self.channel)
    }
}

impl AsFd for LinkReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The folder and name of a socket. An address holds about a hundred bytes; through the folder's
/// handle a path of any length fits.
struct Place {
    folder: OwnedFd,
    name: OsString,
}

impl Place {
    fn of(path: &Path) -> Result<Self, Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = crate::kernel::open_folder(folder.unwrap_or(Path::new(".")))?;
        Ok(Self { folder, name })
    }

    fn address(&self, name: &OsString) -> Result<SocketAddrUnix, Errno> {
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        SocketAddrUnix::new(Path::new(&folder).join(name))
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// A socket that listens at `path`, for its owner alone. It appears there complete, in place of
/// one that is left from before.
fn listen(path: &Path) -> Result<OwnedFd, Errno> {
    let place = Place::of(path)?;
    let mut new = place.name.clone();
    new.push(format!(".{}", std::process::id()));
    match rustix::fs::unlinkat(&place.folder, &new, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let socket = new_socket()?;
    rustix::net::bind(&socket, &place.address(&new)?)?;
    let ready = rustix::fs::chmodat(&place.folder, &new, Mode::RUSR | Mode::WUSR, AtFlags::empty())
        // Before this nobody can connect, whatever the mask of the process let through.
        .and_then(|()| rustix::net::listen(&socket, BACKLOG))
        .and_then(|()| rustix::fs::renameat(&place.folder, &new, &place.folder, &place.name));
    if let Err(errno) = ready {
        cowork_sys::ignore(rustix::fs::unlinkat(&place.folder, &new, AtFlags::empty()));
        return Err(errno);
    }
    Ok(socket)
}

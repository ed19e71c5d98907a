//! A client's side: starting a keeper, asking it for sessions, and starting commands in them.
//!
//! A [`Keeper`] is one client's own and ends with it. A [`Link`] leads to a resident one, which
//! other clients have as well.

mod link;

pub use link::{Link, LinkReceiver, LinkSender};

use crate::channel::{Channel, Packet, Peer};
use cowork_api::guest::{FromInit, ToInit};
use cowork_api::keeper::{Call, Failure, Message, Reply, Request, Status};
use cowork_api::plan::SessionPlan;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The keeper's program did not start.
    #[error("cannot start `{}`", .program.display())]
    Start {
        /// Which program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The keeper said no, with its reason.
    #[error("{}", .0.sentence)]
    Refused(Failure),
    /// The conversation ended.
    #[error("the {0} ended without an answer")]
    Gone(&'static str),
    /// The other side sent something that is no message.
    #[error("the {who} sent something that cannot be understood")]
    Garbled {
        /// Who.
        who: &'static str,
        /// What was wrong with it.
        source: cowork_api::DecodeError,
    },
    /// The socket failed.
    #[error("the conversation with the {who} failed")]
    Socket {
        /// With whom.
        who: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

/// A keeper of this client's own. Dropping it ends every session it has, and waits until nothing
/// of them is left.
#[derive(Debug)]
pub struct Keeper {
    channel: Option<Channel>,
    child: Child,
    calls: u32,
    events: VecDeque<Message>,
}

impl Keeper {
    /// Starts the keeper that lies beside this program.
    pub fn start() -> Result<Self, ClientError> {
        let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_path_buf()));
        let program = beside.unwrap_or_else(|| PathBuf::from(".")).join("cowork-keeper");
        Self::start_program(&program)
    }

    /// Starts a keeper from the given file.
    pub fn start_program(program: &Path) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Start { program: program.to_path_buf(), source };
        let (here, there) = Channel::pair().map_err(|errno| failed(errno.into()))?;
        let child = Command::new(program)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        Ok(Self { channel: Some(here), child, calls: 0, events: VecDeque::new() })
    }

    /// The process id of the keeper.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes a session.
    pub fn create(&mut self, plan: SessionPlan) -> Result<(Status, Session), ClientError> {
        match self.call(Request::Create(Box::new(plan)))? {
            (Reply::Session(status), sockets) => {
                let commands = sockets.into_iter().next().ok_or(ClientError::Gone("keeper"))?;
                Ok((status, commands.into()))
            }
            _ => Err(ClientError::Gone("keeper")),
        }
    }

    /// Asks for something and waits for the answer, with the descriptors beside it. Events that
    /// come first are kept.
    pub fn call(&mut self, request: Request) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        self.calls += 1;
        let number = self.calls;
        let message = cowork_api::encode(&Call { number, request });
        let channel = self.channel.as_ref().ok_or(ClientError::Gone("keeper"))?;
        channel.send(&message, &[]).map_err(keeper_socket)?;
        loop {
            let (message, handles) = self.receive()?;
            match message {
                Message::Answer { number: answered, result } if answered == number => {
                    let reply = result.map_err(ClientError::Refused)?;
                    return Ok((reply, handles));
                }
                Message::Answer { .. } => {}
                event => self.events.push_back(event),
            }
        }
    }

    /// Sends something that is not answered.
    pub fn post(&mut self, request: Request) -> Result<(), ClientError> {
        self.calls += 1;
        let message = cowork_api::encode(&Call { number: self.calls, request });
        let channel = self.channel.as_ref().ok_or(ClientError::Gone("keeper"))?;
        channel.send(&message, &[]).map_err(keeper_socket)
    }

    /// The next event; waits for one if none is kept.
    pub fn event(&mut self) -> Result<Message, ClientError> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => self.receive().map(|(message, _)| message),
        }
    }

    /// Whether an event is already here.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), ClientError> {
        hear_keeper(self.channel.as_ref().ok_or(ClientError::Gone("keeper"))?)
    }
}

/// Waits for the next message of a keeper.
fn hear_keeper(channel: &Channel) -> Result<(Message, Vec<OwnedFd>), ClientError> {
    let packet = channel.receive(Peer::Trusted).map_err(keeper_socket)?;
    let packet = packet.ok_or(ClientError::Gone("keeper"))?;
    let message = cowork_api::decode(&packet.bytes)
        .map_err(|source| ClientError::Garbled { who: "keeper", source })?;
    Ok((message, packet.handles))
}

fn keeper_socket(source: Errno) -> ClientError {
    match source {
        Errno::PIPE | Errno::CONNRESET => ClientError::Gone("keeper"),
        source => ClientError::Socket { who: "keeper", source },
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Only `drop` takes the channel away.
        self.channel.as_ref().map_or(rustix::stdio::stdin(), |channel| channel.as_fd())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.channel.take());
        let left = self.child.wait();
        if !left.is_ok_and(|status| status.success()) {
            // It was killed: its sessions died with it, and what it could not remove is removed.
            crate::keeper::sweep();
        }
    }
}

/// The command socket of a session. Its other copies, wherever they are, are the same socket: what
/// one reads the others do not see, and none may be made to never wait.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
}

impl From<OwnedFd> for Session {
    fn from(socket: OwnedFd) -> Self {
        Self { channel: socket.into() }
    }
}

impl Session {
    /// Sends a message to the session's init, waiting for room.
    pub fn send(&self, message: &ToInit, handles: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.channel.send(&cowork_api::encode(message), handles).map_err(session_socket)
    }

    /// Sends a message to the session's init. Says `EAGAIN` when there is no room for it now.
    pub fn try_send(
        &self,
        message: &ToInit,
        handles: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        self.channel.try_send(&cowork_api::encode(message), handles).map_err(session_socket)
    }

    /// Waits for the next message of the session's init; it comes from inside, and is believed
    /// nothing but what it says about commands. At most one descriptor comes with it.
    pub fn receive(&self) -> Result<(FromInit, Option<OwnedFd>), ClientError> {
        understood(self.channel.receive(Peer::Hostile))
    }

    /// The next message of the session's init. Says `EAGAIN` when none is there.
    pub fn try_receive(&self) -> Result<(FromInit, Option<OwnedFd>), ClientError> {
        understood(self.channel.try_receive(Peer::Hostile))
    }
}

fn understood(
    received: Result<Option<Packet>, Errno>,
) -> Result<(FromInit, Option<OwnedFd>), ClientError> {
    let packet = received.map_err(session_socket)?.ok_or(ClientError::Gone("session"))?;
    let message = cowork_api::decode(&packet.bytes)
        .map_err(|source| ClientError::Garbled { who: "session", source })?;
    Ok((message, packet.handles.into_iter().next()))
}

fn session_socket(source: Errno) -> ClientError {
    match source {
        Errno::PIPE | Errno::CONNRESET => ClientError::Gone("session"),
        source => ClientError::Socket { who: "session", source },
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

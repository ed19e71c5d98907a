//! Those whom a keeper serves, and what it tells them.
//!
//! The keeper never waits for a client. What one does not read waits for it, up to a bound; beyond
//! that the client is let go, and learns everything again when it comes back. What a client that
//! died had said is heard out before the next one is let in: what it left here is there then.

use crate::channel::{Channel, Packet, Peer};
use crate::keeper::watch::{Interest, Subject, Watch};
use crate::kernel::{Failed, Step};
use cowork_api::keeper::Message;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::Uid;
use std::collections::{HashMap, VecDeque};

/// Most messages that wait for one client beyond what its socket holds.
const MAX_UNREAD: usize = 512;
/// Most clients at a time; a further one is turned away.
const MAX_CLIENTS: usize = 64;

/// How a keeper comes to its clients.
#[derive(Debug)]
pub enum Service {
    /// One client, whose socket this is. The keeper ends with it.
    One(OwnedFd),
    /// Whoever connects to this socket. The keeper outlives them.
    Any(OwnedFd),
}

/// What came from a client.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message.
    Packet(Packet),
    /// Something that is no message.
    Garbage(Errno),
    /// Nothing: there was none.
    Nothing,
    /// It is gone.
    Gone,
}

/// The clients of a keeper.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Where they come in.
    door: Option<OwnedFd>,
    present: HashMap<u32, Client>,
    /// How many there have been.
    count: u32,
}

#[derive(Debug)]
struct Client {
    channel: Channel,
    /// What it is told once it has read what it was told before.
    unread: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    interest: Interest,
}

impl Clients {
    pub(crate) fn new(service: Service, watch: &Watch) -> Result<Self, Failed> {
        let named = || "wait for clients".to_owned();
        let mut clients = Self { door: None, present: HashMap::new(), count: 0 };
        match service {
            Service::One(socket) => clients.admit(socket, watch).step(named)?,
            Service::Any(door) => {
                rustix::fs::fcntl_setfl(&door, OFlags::NONBLOCK).step(named)?;
                watch.add(&door, Subject::Door, Interest::Reading).step(named)?;
                clients.door = Some(door);
            }
        }
        Ok(clients)
    }

    /// Whether nobody is there, and nobody can come.
    pub(crate) fn are_over(&self) -> bool {
        self.present.is_empty() && self.door.is_none()
    }

    /// Whether others may come.
    pub(crate) fn may_come(&self) -> bool {
        self.door.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Lets in whoever waits at the door and is the keeper's own user, or root.
    pub(crate) fn let_in(&mut self, watch: &Watch) {
        // One that went away meanwhile is not there to be let in.
        let Some(Ok(socket)) =
            self.door.as_ref().map(|door| accept_with(door, SocketFlags::CLOEXEC))
        else {
            return;
        };
        if is_trusted(&socket) && self.present.len() < MAX_CLIENTS {
            cowork_sys::ignore(self.admit(socket, watch));
        }
    }

    fn admit(&mut self, socket: OwnedFd, watch: &Watch) -> Result<(), Errno> {
        let number = self.count;
        watch.add(&socket, Subject::Client(number), Interest::Reading)?;
        self.count += 1;
        let interest = Interest::Reading;
        let client = Client { channel: socket.into(), unread: VecDeque::new(), interest };
        self.present.insert(number, client);
        Ok(())
    }

    /// Reads one message of a client.
    pub(crate) fn hear(&mut self, number: u32) -> Heard {
        let Some(client) = self.present.get(&number) else { return Heard::Nothing };
        match client.channel.try_receive(Peer::Trusted) {
            Ok(Some(packet)) => Heard::Packet(packet),
            Ok(None) => Heard::Gone,
            // One that ended without reading everything is reported once, before what it said.
            Err(Errno::AGAIN | Errno::CONNRESET) => Heard::Nothing,
            Err(errno @ (Errno::BADMSG | Errno::MSGSIZE)) => Heard::Garbage(errno),
            Err(_) => Heard::Gone,
        }
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.present.contains_key(&number)
    }

    /// Those whose other end is closed.
    pub(crate) fn gone(&self) -> Vec<u32> {
        let gone = self.present.iter().filter(|(_, client)| client.channel.is_closed());
        gone.map(|(number, _)| *number).collect()
    }

    /// Whether the other end of this one is closed.
    pub(crate) fn is_gone(&self, number: u32) -> bool {
        self.present.get(&number).is_none_or(|client| client.channel.is_closed())
    }

    /// Lets go of a client.
    pub(crate) fn dismiss(&mut self, number: u32, watch: &Watch) {
        if let Some(client) = self.present.remove(&number) {
            watch.remove(&client.channel);
        }
    }

    /// Tells one client something, with descriptors of its own.
    pub(crate) fn tell(
        &mut self,
        watch: &Watch,
        number: u32,
        message: &Message,
        handles: Vec<OwnedFd>,
    ) {
        let Some(client) = self.present.get_mut(&number) else { return };
        let subject = Subject::Client(number);
        if client.tell(watch, subject, cowork_api::encode(message), handles) == Standing::Lost {
            self.dismiss(number, watch);
        }
    }

    /// Tells everybody something.
    pub(crate) fn tell_all(&mut self, watch: &Watch, message: &Message) {
        let message = cowork_api::encode(message);
        let mut lost = Vec::new();
        for (number, client) in &mut self.present {
            let subject = Subject::Client(*number);
            if client.tell(watch, subject, message.clone(), Vec::new()) == Standing::Lost {
                lost.push(*number);
            }
        }
        for number in lost {
            self.dismiss(number, watch);
        }
    }

    /// Goes on telling a client what waits for it, now that there is room.
    pub(crate) fn go_on(&mut self, watch: &Watch, number: u32) {
        let Some(client) = self.present.get_mut(&number) else { return };
        if client.flush(watch, Subject::Client(number)) == Standing::Lost {
            self.dismiss(number, watch);
        }
    }
}

/// Whether a client is still one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Present,
    Lost,
}

impl Client {
    fn tell(
        &mut self,
        watch: &Watch,
        subject: Subject,
        message: Vec<u8>,
        handles: Vec<OwnedFd>,
    ) -> Standing {
        if self.unread.len() >= MAX_UNREAD {
            return Standing::Lost;
        }
        let waited = !self.unread.is_empty();
        self.unread.push_back((message, handles));
        if waited { Standing::Present } else { self.flush(watch, subject) }
    }

    fn flush(&mut self, watch: &Watch, subject: Subject) -> Standing {
        while let Some((message, handles)) = self.unread.front() {
            let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
            match self.channel.try_send(message, &borrowed) {
                Ok(()) => drop(self.unread.pop_front()),
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                // It is gone; what it said before is still to be heard.
                Err(Errno::PIPE | Errno::CONNRESET) => self.unread.clear(),
                Err(_) => return Standing::Lost,
            }
        }
        let interest =
            if self.unread.is_empty() { Interest::Reading } else { Interest::ReadingAndWriting };
        if interest != self.interest && watch.change(&self.channel, subject, interest).is_err() {
            return Standing::Lost;
        }
        self.interest = interest;
        Standing::Present
    }
}

/// Whether the other end is of the keeper's own user, or root. In a user namespace of the keeper's
/// own every stranger looks the same, root included: there only the user counts.
fn is_trusted(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid == rustix::process::getuid() || peer.uid == Uid::ROOT)
}

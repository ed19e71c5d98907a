//! The connection of an attached command: frames out, frames in, and nobody waits for either.

use crate::failure::Failure;
use cowork_client::http::Attached;
use cowork_client::stream::{self, ChannelId, FromDaemon, ToDaemon};
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Most bytes that wait to be sent; beyond it nothing more is read from the caller.
const MAX_WAITING: usize = 64 * 1024;

/// Bytes in a queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    used: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.used
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.used == self.bytes.len() || self.used > MAX_WAITING {
            drop(self.bytes.drain(..self.used));
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// At most so many bytes from its start.
    pub(super) fn front(&self, most: usize) -> &[u8] {
        let end = self.bytes.len().min(self.used.saturating_add(most));
        self.bytes.get(self.used..end).unwrap_or_default()
    }

    pub(super) fn advance(&mut self, length: usize) {
        self.used = self.bytes.len().min(self.used + length);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.used = 0;
    }
}

/// Something that came from the daemon.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Output of the command.
    Output(ChannelId, &'a [u8]),
    /// A message about it.
    Message(FromDaemon),
}

/// The connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    incoming: Queue,
    outgoing: Queue,
    /// The frame that is being read, and how much of it is to come.
    frame: Option<(ChannelId, usize)>,
    message: Vec<u8>,
    state: State,
    /// Room for what is read at once.
    piece: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more can be sent.
    Deaf,
    /// Nothing more comes.
    Closed,
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Wire {
    pub(super) fn new(attached: Attached) -> Result<Self, Failure> {
        attached.stream.set_nonblocking(true).map_err(|error| broken(&error.to_string()))?;
        let mut incoming = Queue::default();
        incoming.add(&attached.read);
        Ok(Self {
            stream: attached.stream,
            incoming,
            outgoing: Queue::default(),
            frame: None,
            message: Vec::new(),
            state: State::Open,
            piece: vec![0; MAX_WAITING],
        })
    }

    /// Sends bytes, or their end if there are none.
    pub(super) fn send(&mut self, channel: ChannelId, bytes: &[u8]) {
        if self.state == State::Open {
            self.outgoing.add(&stream::header(channel, bytes.len()));
            self.outgoing.add(bytes);
        }
    }

    pub(super) fn tell(&mut self, message: &ToDaemon) {
        // The messages are types of ours, which are all JSON.
        let message = serde_json::to_vec(message).unwrap_or_default();
        self.send(ChannelId::Control, &message);
    }

    /// Whether more of the caller's bytes can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.state == State::Open && self.outgoing.len() < MAX_WAITING
    }

    pub(super) fn wants_write(&self) -> bool {
        self.state == State::Open && !self.outgoing.is_empty()
    }

    /// Whether the daemon has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) fn write(&mut self) {
        match rustix::io::write(&self.stream, self.outgoing.front(MAX_WAITING)) {
            Ok(length) => self.outgoing.advance(length),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                // What the daemon still has to say is read all the same.
                self.state = State::Deaf;
                self.outgoing.clear();
            }
        }
    }

    pub(super) fn read(&mut self) {
        match rustix::io::read(&self.stream, &mut self.piece) {
            Ok(0) => self.state = State::Closed,
            Ok(length) => self.incoming.add(self.piece.get(..length).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.state = State::Closed,
        }
    }

    /// Hands over the next piece of what was read. Output is handed over as it comes, a message
    /// when it is whole.
    pub(super) fn next(
        &mut self,
        mut take: impl FnMut(Piece<'_>) -> Result<(), Failure>,
    ) -> Result<Next, Failure> {
        let Some((channel, left)) = self.frame else {
            let Some(header) = self.incoming.front(stream::HEADER).first_chunk() else {
                return Ok(Next::Nothing);
            };
            let frame = stream::parse(*header).ok_or_else(|| garbled("a frame has no header"))?;
            self.incoming.advance(stream::HEADER);
            self.frame = Some(frame);
            return Ok(Next::More);
        };
        let piece = self.incoming.front(left);
        let length = piece.len();
        if length == 0 && left > 0 {
            return Ok(Next::Nothing);
        }
        match channel {
            ChannelId::Control => self.message.extend(piece),
            channel => take(Piece::Output(channel, piece))?,
        }
        self.incoming.advance(length);
        self.frame = (length < left).then_some((channel, left - length));
        if channel == ChannelId::Control && self.frame.is_none() {
            let message = serde_json::from_slice(&std::mem::take(&mut self.message))
                .map_err(|_error| garbled("a message is not what it should be"))?;
            take(Piece::Message(message))?;
        }
        Ok(Next::More)
    }
}

/// Whether there may be more to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    More,
    Nothing,
}

fn garbled(what: &str) -> Failure {
    Failure::host("the daemon cannot be understood", Some(what.to_owned())).with_hint(
        "it may be of another version than this program: stop it with `cowork daemon --stop`",
    )
}

fn broken(cause: &str) -> Failure {
    Failure::host("cannot use the connection to the daemon", Some(cause.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Next, Piece, Queue, Wire};
    use cowork_client::http::Attached;
    use cowork_client::stream::{ChannelId, FromDaemon, header};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn wire(read: &[u8]) -> (Wire, UnixStream) {
        let (near, far) = UnixStream::pair().expect("the host has sockets");
        let wire = Wire::new(Attached { stream: near, read: read.to_vec() });
        (wire.expect("it is open"), far)
    }

    fn drain(wire: &mut Wire, heard: &mut Vec<(Option<ChannelId>, Vec<u8>)>) {
        loop {
            let next = wire.next(|piece| {
                match piece {
                    Piece::Output(channel, bytes) => heard.push((Some(channel), bytes.to_vec())),
                    Piece::Message(FromDaemon::Started(command) | FromDaemon::Ended(command)) => {
                        heard.push((None, command.session.into_bytes()));
                    }
                }
                Ok(())
            });
            if next.expect("it is understood") == Next::Nothing {
                return;
            }
        }
    }

    const STARTED: &[u8] = br#"{"started":{"number":1,"session":"s","argv":[],"cwd":"/",
        "state":"running","reason":null,"pid":1,"streams":{},"started":"","ended":null,"code":null,
        "signal":null,"usage":null,"output":0,"dropped":0}}"#;

    #[test]
    fn output_comes_in_order_however_it_is_cut() {
        let mut bytes = header(ChannelId::Control, STARTED.len()).to_vec();
        bytes.extend(STARTED);
        bytes.extend(header(ChannelId::Stdout, 5));
        bytes.extend(b"hello");
        bytes.extend(header(ChannelId::Stderr, 0));
        for size in [1, 3, 7, 1000] {
            let (mut wire, mut far) = wire(b"");
            let mut heard = Vec::new();
            for piece in bytes.chunks(size) {
                far.write_all(piece).expect("it is open");
                wire.read();
                drain(&mut wire, &mut heard);
            }
            let whole: Vec<u8> = heard
                .iter()
                .filter(|(channel, _)| *channel == Some(ChannelId::Stdout))
                .flat_map(|(_, bytes)| bytes.clone())
                .collect();
            assert_eq!(whole, b"hello");
            assert_eq!(heard.first(), Some(&(None, b"s".to_vec())));
            assert_eq!(heard.last(), Some(&(Some(ChannelId::Stderr), Vec::new())));
        }
    }

    #[test]
    fn what_is_no_frame_is_said_to_be_none() {
        let (mut wire, _far) = wire(&[9, 0, 0, 0, 0]);
        assert!(wire.next(|_piece| Ok(())).is_err());
    }

    #[test]
    fn what_is_sent_arrives_and_a_full_queue_takes_no_more() {
        let (mut wire, mut far) = wire(b"");
        wire.send(ChannelId::Stdin, b"typed");
        wire.send(ChannelId::Stdin, b"");
        assert!(wire.wants_write() && wire.has_room());
        wire.write();
        let mut heard = [0; 15];
        far.read_exact(&mut heard).expect("it is open");
        assert_eq!(&heard, b"\0\0\0\0\x05typed\0\0\0\0\0");
        wire.send(ChannelId::Stdin, &vec![0; 70_000]);
        assert!(!wire.has_room());
        drop(far);
        wire.write();
        wire.read();
        assert!(wire.is_closed() && !wire.wants_write());
    }

    #[test]
    fn a_queue_keeps_order() {
        let mut queue = Queue::default();
        let mut out = Vec::new();
        for round in 0..200u32 {
            queue.add(&round.to_be_bytes().repeat(300));
            let front = queue.front(1000).to_vec();
            queue.advance(front.len());
            out.extend(front);
        }
        out.extend(queue.front(usize::MAX));
        let expected: Vec<u8> =
            (0..200u32).flat_map(|round| round.to_be_bytes().repeat(300)).collect();
        assert_eq!((out.len(), out == expected), (expected.len(), true));
    }
}

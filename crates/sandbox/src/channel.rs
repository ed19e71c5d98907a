//! Packets with descriptors beside them, over a `SOCK_SEQPACKET` socket.
//!
//! A message that is too large for a packet travels in a sealed memory file whose descriptor is
//! the last one beside a marker packet. Only a receiver that trusts its peer accepts those.

use cowork_api::MAX_MESSAGE;
use cowork_sys::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Longest message that travels inside a packet.
const INLINE: usize = 64 * 1024;
/// Most descriptors beside one message. The kernel takes 253.
pub const MAX_HANDLES: usize = 128;
/// The packet that says that the message is in the last descriptor. Its first byte is no
/// generation of the protocol.
const SPILLED: &[u8] = &[0xff];

/// One end of a conversation.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A message as it arrived.
#[derive(Debug)]
pub struct Packet {
    /// The message, still encoded.
    pub bytes: Vec<u8>,
    /// The descriptors beside it. All of them, or none: there may be no room for as many.
    pub handles: Vec<OwnedFd>,
}

/// How much a receiver trusts its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Large messages are accepted.
    Trusted,
    /// A message is a packet; what claims to be elsewhere is refused.
    Hostile,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket
    }
}

impl Channel {
    /// Two connected ends.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((one.into(), other.into()))
    }

    /// Sends one message, waiting for room.
    pub fn send(&self, message: &[u8], handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.send_with(message, handles, SendFlags::NOSIGNAL)
    }

    /// Sends one message, or says `EAGAIN` when the peer does not read.
    pub fn try_send(&self, message: &[u8], handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.send_with(message, handles, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        message: &[u8],
        handles: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), Errno> {
        if message.len() <= INLINE {
            return send_packet(&self.socket, message, handles, flags);
        }
        if message.len() > MAX_MESSAGE || handles.len() >= MAX_HANDLES {
            return Err(Errno::MSGSIZE);
        }
        let spill = spill(message)?;
        let mut all = handles.to_vec();
        all.push(spill.as_fd());
        send_packet(&self.socket, SPILLED, &all, flags)
    }

    /// Waits for one message; `None` when the other end is closed.
    pub fn receive(&self, peer: Peer) -> Result<Option<Packet>, Errno> {
        self.receive_with(peer, RecvFlags::empty())
    }

    /// The next message, or `EAGAIN` when none is there; `None` when the other end is closed.
    pub fn try_receive(&self, peer: Peer) -> Result<Option<Packet>, Errno> {
        self.receive_with(peer, RecvFlags::DONTWAIT)
    }

    fn receive_with(&self, peer: Peer, flags: RecvFlags) -> Result<Option<Packet>, Errno> {
        // The buffer is as large as the message: an idle session holds none.
        let length = self.next_length(flags)?;
        if length > INLINE {
            self.discard(flags)?;
            return Err(Errno::MSGSIZE);
        }
        let mut buffer = vec![0; length];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = loop {
            let flags = flags | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut parts, &mut beside, flags) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        let mut handles = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                handles.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            // Somebody else who reads from this end took the one that was measured.
            return Err(Errno::MSGSIZE);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            handles.clear();
        }
        if received.bytes == 0 {
            // The other end is closed, or it sent a packet of nothing.
            return if self.is_closed() { Ok(None) } else { Err(Errno::BADMSG) };
        }
        buffer.truncate(received.bytes);
        if buffer != SPILLED {
            return Ok(Some(Packet { bytes: buffer, handles }));
        }
        let file = handles.pop().ok_or(Errno::BADMSG)?;
        if peer == Peer::Hostile {
            return Err(Errno::BADMSG);
        }
        let bytes = unspill(&file).map_err(|_whatever_it_is| Errno::BADMSG)?;
        Ok(Some(Packet { bytes, handles }))
    }

    /// How long the next message is. Nothing, for an end that is closed.
    fn next_length(&self, flags: RecvFlags) -> Result<usize, Errno> {
        loop {
            let flags = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
            match recv(&self.socket, &mut [0u8; 0], flags) {
                Err(Errno::INTR) => {}
                result => return result.map(|(_, length)| length),
            }
        }
    }

    /// Takes the next message and forgets it, with what is beside it.
    fn discard(&self, flags: RecvFlags) -> Result<(), Errno> {
        recv(&self.socket, &mut [0u8; 1], flags).map(|_| ())
    }

    /// Whether the other end is closed. There may still be something to read.
    pub fn is_closed(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        cowork_sys::ignore(poll(&mut watched, Some(&now)));
        watched.iter().any(|socket| socket.revents().contains(PollFlags::HUP))
    }
}

fn send_packet(
    socket: &OwnedFd,
    message: &[u8],
    handles: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDLES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(Errno::MSGSIZE);
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(message)], &mut beside, flags) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}

fn spill(message: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(
        c"cowork-message",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut rest = message;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Reads a message out of a memory file, and out of nothing else: a pipe in its place could make
/// the reader wait for ever, and an unsealed file could change while it is read.
fn unspill(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let stat = rustix::fs::fstat(file)?;
    let size = usize::try_from(stat.st_size).map_err(|_negative| Errno::BADMSG)?;
    let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::WRITE | SealFlags::SHRINK);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !sealed {
        return Err(Errno::BADMSG);
    }
    if size > MAX_MESSAGE {
        return Err(Errno::MSGSIZE);
    }
    let mut message = vec![0; size];
    let mut filled = 0;
    while let Some(rest) = message.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let read = rustix::io::pread(file, rest, filled as u64)?;
        if read == 0 {
            return Err(Errno::BADMSG);
        }
        filled += read;
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::{Channel, INLINE, Peer};
    use cowork_sys::Errno;
    use rustix::fd::AsFd;

    #[test]
    fn messages_of_any_size_arrive_whole_with_their_handles() {
        for size in [1, 2, INLINE, INLINE + 1, 1024 * 1024] {
            let (here, there) = Channel::pair().unwrap();
            let message: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let (read, _write) = rustix::pipe::pipe().unwrap();
            here.send(&message, &[read.as_fd()]).unwrap();
            let packet = there.receive(Peer::Trusted).unwrap().unwrap();
            assert_eq!((packet.bytes == message, packet.handles.len()), (true, 1), "{size}");
        }
    }

    #[test]
    fn a_hostile_peer_cannot_point_elsewhere() {
        let (here, there) = Channel::pair().unwrap();
        here.send(&vec![1; INLINE + 1], &[]).unwrap();
        assert_eq!(there.receive(Peer::Hostile).unwrap_err(), Errno::BADMSG);
    }

    #[test]
    fn a_pipe_in_place_of_a_message_is_refused_at_once() {
        let (here, there) = Channel::pair().unwrap();
        let (read, _write) = rustix::pipe::pipe().unwrap();
        here.send(super::SPILLED, &[read.as_fd()]).unwrap();
        assert!(there.receive(Peer::Trusted).is_err());
    }

    #[test]
    fn more_handles_than_there_is_room_for_are_none() {
        let (here, there) = Channel::pair().unwrap();
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit();
            rustix::cmsg_space!(ScmRights(super::MAX_HANDLES + 4))];
        let mut beside = rustix::net::SendAncillaryBuffer::new(&mut space);
        let handles = [read.as_fd(); super::MAX_HANDLES + 4];
        assert!(beside.push(rustix::net::SendAncillaryMessage::ScmRights(&handles)));
        let parts = [std::io::IoSlice::new(b"hello")];
        rustix::net::sendmsg(&here, &parts, &mut beside, rustix::net::SendFlags::empty()).unwrap();
        let packet = there.receive(Peer::Trusted).unwrap().unwrap();
        assert_eq!((packet.bytes.as_slice(), packet.handles.len()), (&b"hello"[..], 0));
    }

    #[test]
    fn a_closed_end_is_the_end() {
        let (here, there) = Channel::pair().unwrap();
        drop(here);
        assert!(there.receive(Peer::Trusted).unwrap().is_none());
    }
}

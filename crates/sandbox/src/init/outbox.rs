//! Messages to a client that wait until its socket has room, in order and bounded.

use crate::channel::Channel;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;

/// Most bytes that wait. What comes then is dropped: the end of a command is told again when
/// somebody asks, and who asked for anything else can ask again.
const MAX_BYTES: usize = 1024 * 1024;
/// Most descriptors that wait.
const MAX_HANDLES: usize = 64;
/// What a waiting message costs beside its bytes.
const OVERHEAD: usize = 64;

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    bytes: usize,
    handles: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends the message after all that wait, or lets it wait too.
    pub(crate) fn send(&mut self, channel: &Channel, message: Vec<u8>, handle: Option<OwnedFd>) {
        self.flush(channel);
        if self.waiting.is_empty() {
            match try_send(channel, &message, handle.as_ref()) {
                Err(Errno::AGAIN | Errno::NOBUFS) => {}
                // Nobody is there to hear it, which is seen by whoever reads from the socket.
                Ok(()) | Err(_) => return,
            }
        }
        let handles = usize::from(handle.is_some());
        let bytes = message.len() + OVERHEAD;
        if self.bytes + bytes <= MAX_BYTES && self.handles + handles <= MAX_HANDLES {
            self.bytes += bytes;
            self.handles += handles;
            self.waiting.push_back((message, handle));
        }
    }

    /// Sends what waits, until there is no room.
    pub(crate) fn flush(&mut self, channel: &Channel) {
        while let Some((message, handle)) = self.waiting.pop_front() {
            if let Err(Errno::AGAIN | Errno::NOBUFS) = try_send(channel, &message, handle.as_ref())
            {
                self.waiting.push_front((message, handle));
                return;
            }
            self.bytes = self.bytes.saturating_sub(message.len() + OVERHEAD);
            self.handles = self.handles.saturating_sub(usize::from(handle.is_some()));
        }
    }
}

fn try_send(channel: &Channel, message: &[u8], handle: Option<&OwnedFd>) -> Result<(), Errno> {
    let handle = handle.map(AsFd::as_fd);
    channel.try_send(message, handle.as_slice())
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, Outbox};
    use crate::channel::{Channel, Peer};
    use cowork_sys::Errno;

    #[test]
    fn what_waits_arrives_in_order_and_is_bounded() {
        let (here, there) = Channel::pair().unwrap();
        let mut outbox = Outbox::default();
        for number in 0..40_000_u32 {
            outbox.send(&here, number.to_ne_bytes().to_vec(), None);
        }
        assert!(!outbox.is_empty() && outbox.bytes <= MAX_BYTES);
        let mut heard = Vec::new();
        loop {
            match there.try_receive(Peer::Hostile) {
                Ok(packet) => heard.push(packet.unwrap().bytes),
                Err(Errno::AGAIN) if outbox.is_empty() => break,
                Err(Errno::AGAIN) => outbox.flush(&here),
                Err(errno) => panic!("{errno}"),
            }
        }
        let numbers: Vec<_> = (0..u32::try_from(heard.len()).unwrap())
            .map(|number| number.to_ne_bytes().to_vec())
            .collect();
        assert!(heard.len() > 10_000 && heard.len() < 40_000, "{}", heard.len());
        assert_eq!(heard, numbers);
        assert_eq!((outbox.bytes, outbox.handles), (0, 0));
    }
}

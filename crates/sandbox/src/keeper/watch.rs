//! What the keeper waits for: one set of descriptors that the kernel keeps, so that waiting costs
//! the same however many sessions there are.
//!
//! A descriptor must be taken out of the set before it is closed: a copy of it in another process
//! would keep it in.

use crate::kernel::{Failed, Step};
use cowork_sys::Errno;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Whom something is about that became ready. The numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// Somebody wants to become a client.
    Door,
    /// A client said something or went away.
    Client(u32),
    /// The first process of a session ended.
    Session(u32),
    /// The broker of a session ended.
    Broker(u32),
    /// A call in a session needs a broker.
    Calls(u32),
    /// A process that did something for the keeper ended.
    Errand(u32),
    /// The broker of a session says something.
    Line(u32),
    /// The starter of egress processes says something, or ended.
    Starter,
}

impl Subject {
    fn encode(self) -> EventData {
        let (kind, number) = match self {
            Self::Door => (0, 0),
            Self::Client(number) => (1, number),
            Self::Session(number) => (2, number),
            Self::Broker(number) => (3, number),
            Self::Calls(number) => (4, number),
            Self::Errand(number) => (5, number),
            Self::Line(number) => (6, number),
            Self::Starter => (7, 0),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn decode(data: EventData) -> Option<Self> {
        let number = u32::try_from(data.u64() & u64::from(u32::MAX)).ok()?;
        match data.u64() >> 32 {
            0 => Some(Self::Door),
            1 => Some(Self::Client(number)),
            2 => Some(Self::Session(number)),
            3 => Some(Self::Broker(number)),
            4 => Some(Self::Calls(number)),
            5 => Some(Self::Errand(number)),
            6 => Some(Self::Line(number)),
            7 => Some(Self::Starter),
            _ => None,
        }
    }
}

/// What about a descriptor is waited for; that its other side is gone is always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something can be read.
    Reading,
    /// Something can be read, or there is room to write.
    ReadingAndWriting,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Reading => EventFlags::IN,
            Self::ReadingAndWriting => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// Something that became ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) subject: Subject,
    flags: EventFlags,
}

impl Ready {
    pub(crate) fn is_writable(self) -> bool {
        self.flags.contains(EventFlags::OUT)
    }

    /// Whether there is more to it than room to write.
    pub(crate) fn is_readable(self) -> bool {
        self.flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether there is something to read, and not only an end.
    pub(crate) fn has_something(self) -> bool {
        self.flags.contains(EventFlags::IN)
    }
}

/// The set of descriptors.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    pub(crate) fn new() -> Result<Self, Failed> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).step(|| "make an epoll instance".into())?;
        Ok(Self { epoll })
    }

    pub(crate) fn add(
        &self,
        what: impl AsFd,
        subject: Subject,
        interest: Interest,
    ) -> Result<(), Errno> {
        epoll::add(&self.epoll, what, subject.encode(), interest.flags())
    }

    pub(crate) fn change(
        &self,
        what: impl AsFd,
        subject: Subject,
        interest: Interest,
    ) -> Result<(), Errno> {
        epoll::modify(&self.epoll, what, subject.encode(), interest.flags())
    }

    pub(crate) fn remove(&self, what: impl AsFd) {
        // What is not in the set needs not be taken out.
        cowork_sys::ignore(epoll::delete(&self.epoll, what));
    }

    /// Waits until something is ready, at most this long.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Result<Vec<Ready>, Failed> {
        /// Most that is looked at before the set is asked again.
        const BATCH: usize = 64;
        let timeout = longest.and_then(|longest| rustix::event::Timespec::try_from(longest).ok());
        let mut events: Vec<Event> = Vec::with_capacity(BATCH);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failed::new("wait for events", errno)),
        }
        let ready = events.iter().filter_map(|event| {
            Some(Ready { subject: Subject::decode(event.data)?, flags: event.flags })
        });
        Ok(ready.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Subject;

    #[test]
    fn subjects_survive_the_kernel() {
        let subjects = [
            Subject::Door,
            Subject::Client(0),
            Subject::Session(u32::MAX),
            Subject::Broker(7),
            Subject::Calls(8),
            Subject::Errand(9),
            Subject::Line(10),
            Subject::Starter,
        ];
        for subject in subjects {
            assert_eq!(Subject::decode(subject.encode()), Some(subject));
        }
    }
}

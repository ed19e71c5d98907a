//! Carries bytes between the caller's streams and a running command, with its signals and the
//! size of its window, until the command has ended.

use crate::replies::Asked;
use crate::streams::Streams;
use cowork_sandbox::client::{ClientError, Keeper, Session};
use cowork_sys::Errno;
use cowork_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bytes that wait for their reader; beyond it the writer waits.
const BUFFER: usize = 64 * 1024;

/// An end of a pump: one of the caller's streams, or something of our own.
pub(crate) enum End {
    Caller(BorrowedFd<'static>),
    Own(OwnedFd),
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Caller(stream) => *stream,
            Self::Own(handle) => handle.as_fd(),
        }
    }
}

/// Copies bytes from one end to the other.
pub(crate) struct Pump {
    from: Option<End>,
    to: Option<End>,
    waiting: Vec<u8>,
    /// What it asks the terminal that it is shown on, if it is.
    asked: Option<Asked>,
    /// Why bytes could not be delivered.
    failed: Option<Errno>,
}

impl Pump {
    pub(crate) fn new(from: End, to: End) -> Self {
        Self { from: Some(from), to: Some(to), waiting: Vec::new(), asked: None, failed: None }
    }

    /// To the caller's terminal.
    pub(crate) fn shown(from: End, to: End) -> Self {
        Self { asked: Some(Asked::default()), ..Self::new(from, to) }
    }

    fn wants_read(&self) -> Option<&End> {
        self.from.as_ref().filter(|_| self.to.is_some() && self.waiting.len() < BUFFER)
    }

    fn wants_write(&self) -> Option<&End> {
        self.to.as_ref().filter(|_| !self.waiting.is_empty())
    }

    /// Whether nothing more can come through.
    fn done(&self) -> bool {
        self.to.is_none() || (self.from.is_none() && self.waiting.is_empty())
    }

    fn read(&mut self) {
        let Some(from) = &self.from else { return };
        let mut chunk = [0; 16 * 1024];
        match rustix::io::read(from, &mut chunk) {
            Ok(0) => self.from = None,
            Ok(length) => {
                let chunk = chunk.get(..length).unwrap_or_default();
                if let Some(asked) = &mut self.asked {
                    asked.look(chunk);
                }
                self.waiting.extend(chunk);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal whose other side is closed says EIO.
            Err(_) => self.from = None,
        }
    }

    fn write(&mut self) {
        /// A pipe that is writable takes this much at once without waiting (`PIPE_BUF`).
        const CHUNK: usize = 4096;
        let Some(to) = &self.to else { return };
        let most = match to {
            End::Caller(_) => CHUNK,
            // Ours does not wait in any case.
            End::Own(_) => BUFFER,
        };
        let chunk = self.waiting.get(..self.waiting.len().min(most)).unwrap_or_default();
        match rustix::io::write(to, chunk) {
            Ok(length) => drop(self.waiting.drain(..length)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // A reader that has seen enough is no failure.
                self.failed = (errno != Errno::PIPE).then_some(errno);
                self.to = None;
                self.from = None;
                self.waiting.clear();
            }
        }
    }

    /// Passes on that the source has ended, once everything before it has been written.
    fn settle(&mut self) {
        if self.from.is_none() && self.waiting.is_empty() {
            self.to = None;
        }
    }
}

/// Something that happened.
pub(crate) enum Happened {
    /// A signal for this process.
    Signal(i32),
    /// A message of the session's init is there, or its end.
    Session,
    /// A message of the keeper is there, or its end.
    Keeper,
}

/// All pumps of a command.
#[derive(Default)]
pub(crate) struct Pumps {
    /// Into the session.
    pub(crate) inwards: Vec<Pump>,
    /// Out of it.
    pub(crate) outwards: Vec<Pump>,
}

impl Pumps {
    /// Carries bytes until something happens that the caller must act on.
    pub(crate) fn run_until(
        &mut self,
        signals: &Signals,
        session: &Session,
        keeper: &Keeper,
    ) -> Result<Happened, ClientError> {
        loop {
            let others = [signals.as_fd(), session.as_fd(), keeper.as_fd()];
            let [signalled, spoke, kept] = self.step(others)?;
            // Messages first: an end that has been told is acted on before anything else.
            if spoke {
                return Ok(Happened::Session);
            }
            if kept {
                return Ok(Happened::Keeper);
            }
            if signalled && let Ok(Some(signal)) = signals.next() {
                return Ok(Happened::Signal(signal));
            }
        }
    }

    /// Carries out what is still on its way out of a session that has ended, unless a signal says
    /// that nobody waits for it.
    pub(crate) fn drain(&mut self, signals: &Signals, stop: impl Fn(i32) -> bool) {
        self.inwards.clear();
        while self.outwards.iter().any(|pump| !pump.done()) {
            match self.step([signals.as_fd()]) {
                Ok([false]) => {}
                Ok([true]) if !signals.next().is_ok_and(|signal| signal.is_some_and(&stop)) => {}
                Ok([true]) | Err(_) => return,
            }
        }
    }

    /// Throws away what the caller's terminal answers to what was shown on it.
    pub(crate) fn swallow(&mut self, streams: &Streams) {
        for asked in self.outwards.iter_mut().filter_map(|pump| pump.asked.as_mut()) {
            asked.swallow(streams);
        }
    }

    /// Why output of the command could not be delivered, if it could not.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.outwards.iter().find_map(|pump| pump.failed)
    }

    /// Waits for anything to be ready, moves bytes, and says which of `others` are ready.
    fn step<const N: usize>(
        &mut self,
        others: [BorrowedFd<'_>; N],
    ) -> Result<[bool; N], ClientError> {
        let mut jobs = Vec::new();
        let mut watched: Vec<PollFd<'_>> = Vec::new();
        for other in &others {
            watched.push(PollFd::new(other, PollFlags::IN));
        }
        for (index, pump) in self.inwards.iter().chain(&self.outwards).enumerate() {
            if let Some(end) = pump.wants_read() {
                jobs.push((index, Job::Read));
                watched.push(PollFd::new(end, PollFlags::IN));
            }
            if let Some(end) = pump.wants_write() {
                jobs.push((index, Job::Write));
                watched.push(PollFd::new(end, PollFlags::OUT));
            }
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(source) => return Err(ClientError::Socket { who: "caller's streams", source }),
        }
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut answers = [false; N];
        for (answer, ready) in answers.iter_mut().zip(&ready) {
            *answer = *ready;
        }
        let inwards = self.inwards.len();
        for ((index, job), ready) in jobs.into_iter().zip(ready.into_iter().skip(N)) {
            let pump = if index < inwards {
                self.inwards.get_mut(index)
            } else {
                self.outwards.get_mut(index - inwards)
            };
            match (pump, job) {
                (Some(pump), Job::Read) if ready => pump.read(),
                (Some(pump), Job::Write) if ready => pump.write(),
                _ => {}
            }
        }
        for pump in self.inwards.iter_mut().chain(&mut self.outwards) {
            pump.settle();
        }
        Ok(answers)
    }
}

#[derive(Clone, Copy)]
enum Job {
    Read,
    Write,
}

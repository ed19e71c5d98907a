//! Stays with a command that the daemon runs: carries bytes between it and the caller's streams,
//! with its signals and the size of its window, until the command has ended or the user leaves.

mod frames;
mod keys;
mod questions;
mod sinks;

use crate::failure::Failure;
use crate::replies::Asked;
use crate::signals::{self, Insistence};
use crate::streams::{Kind, Streams};
use crate::terminal::{self, RawTerminal};
use cowork_client::http::Attached;
use cowork_client::stream::{ChannelId, FromDaemon, ToDaemon};
use cowork_client::types::{Command, SignalCommand, StreamKind, Whom};
use cowork_sys::Errno;
use cowork_sys::signal::Signals;
use frames::{Next, Piece, Wire};
use keys::Keys;
use questions::{Questions, Surface};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::process::Signal;
use sinks::Sinks;
use std::time::Instant;

pub(crate) use sinks::Form;

/// The caller's side of a conversation with a command.
pub(crate) struct Side<'a> {
    pub(crate) streams: &'a Streams,
    pub(crate) signals: &'a Signals,
    pub(crate) form: Form,
    pub(crate) bond: Bond,
}

/// What the caller is to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// It started the command, which ends with it.
    Only,
    /// It started the command, and can leave it running.
    Starter,
    /// It came later.
    Visitor,
}

/// How a conversation ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The command has ended.
    Ended(Box<Command>),
    /// The user left it running.
    Left(Box<Command>),
    /// The daemon is gone; so many bytes of output were received.
    Lost { command: Option<Box<Command>>, received: u64 },
}

/// Stays with a command. `insist` ends it by force, when the user asks for its end again and
/// again.
pub(crate) fn stay(
    attached: Attached,
    side: &Side<'_>,
    insist: &mut dyn FnMut(),
) -> Result<Outcome, Failure> {
    let mut relay = Relay {
        wire: Wire::new(attached)?,
        sinks: Sinks::new(side.streams, side.form),
        side,
        input: Input::None,
        raw: None,
        keys: None,
        questions: None,
        asked: Asked::default(),
        insistence: Insistence::default(),
        insisted: None,
        started: None,
        ended: None,
        received: 0,
        over: false,
    };
    let outcome = relay.run(insist);
    relay.asked.swallow(side.streams);
    // The caller's terminal is as it was again, after the last output, before anything is said.
    drop(relay.raw.take());
    let outcome = outcome?;
    if let Some(signal) = relay.insisted {
        return Err(signals::insisted(signal));
    }
    match relay.sinks.failure() {
        Some(failure) => Err(failure),
        None => Ok(outcome),
    }
}

/// What the command is sent of the caller's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Nothing.
    None,
    /// Bytes, and their end.
    Bytes,
    /// Keys; a terminal has no end.
    Keys,
}

struct Relay<'a> {
    side: &'a Side<'a>,
    wire: Wire,
    sinks: Sinks,
    input: Input,
    raw: Option<RawTerminal>,
    keys: Option<Keys>,
    questions: Option<Questions>,
    asked: Asked,
    insistence: Insistence,
    insisted: Option<i32>,
    started: Option<Box<Command>>,
    ended: Option<Box<Command>>,
    received: u64,
    /// Whether the user has left.
    over: bool,
}

/// What can be ready.
#[derive(Clone, Copy)]
enum Job {
    Signal,
    Hear,
    Tell,
    Type,
    Show(usize),
}

impl Relay<'_> {
    fn run(&mut self, insist: &mut dyn FnMut()) -> Result<Outcome, Failure> {
        loop {
            let all = self.take_in()?;
            if let Some(command) = self.ended.take() {
                self.drain();
                return Ok(Outcome::Ended(command));
            }
            if self.wire.is_closed() && all == Next::Nothing {
                self.drain();
                let command = self.started.take();
                return Ok(Outcome::Lost { command, received: self.received });
            }
            if self.over {
                return Ok(self.leave());
            }
            self.step(insist)?;
        }
    }

    /// Passes on what was read from the daemon, as far as there is room for it.
    fn take_in(&mut self) -> Result<Next, Failure> {
        let mut next = Next::More;
        while next == Next::More && self.ended.is_none() && self.sinks.has_room() {
            let Self { wire, sinks, received, questions, asked, .. } = self;
            let as_it_is = self.side.form == Form::Bytes;
            let mut message = None;
            next = wire.next(|piece| match piece {
                Piece::Output(channel, bytes) => {
                    *received += u64::try_from(bytes.len()).unwrap_or(0);
                    match channel {
                        _ if !as_it_is => {}
                        ChannelId::Terminal => asked.look(bytes),
                        _ => asked.look_among_others(bytes),
                    }
                    if channel == ChannelId::Terminal
                        && let Some(questions) = questions
                    {
                        questions.drawn(bytes);
                    }
                    sinks.add(channel, bytes)
                }
                Piece::Message(came) => {
                    message = Some(came);
                    Ok(())
                }
            })?;
            match message {
                None => {}
                Some(FromDaemon::Started(command)) => self.begin(command)?,
                Some(FromDaemon::Ended(command)) => {
                    self.sinks.ended(&command)?;
                    self.ended = Some(command);
                }
            }
        }
        Ok(next)
    }

    /// The command runs: what it reads from the caller depends on what both are.
    fn begin(&mut self, command: Box<Command>) -> Result<(), Failure> {
        self.sinks.started(&command)?;
        let [own, ..] = self.side.streams.kinds;
        let typed = own == Kind::Terminal;
        // A job in the background must leave the terminal alone.
        let readable = own != Kind::Null && (!typed || Streams::in_foreground());
        self.input = match command.streams.stdin {
            StreamKind::Terminal if readable => Input::Keys,
            StreamKind::Pipe if readable => Input::Bytes,
            _ => Input::None,
        };
        if self.input == Input::Keys && typed {
            let raw = RawTerminal::enter(self.side.streams);
            self.raw = Some(raw.map_err(|errno| {
                Failure::host("cannot use the terminal", Some(errno.to_string()))
            })?);
            if self.side.bond != Bond::Only {
                self.keys = Some(Keys::default());
            }
        }
        if self.side.form == Form::Bytes {
            self.questions = Some(Questions::new(&command.session));
        }
        self.started = Some(command);
        if self.side.bond == Bond::Visitor {
            self.resize();
        }
        Ok(())
    }

    /// Waits for anything to be ready, and does it.
    fn step(&mut self, insist: &mut dyn FnMut()) -> Result<(), Failure> {
        for job in self.ready()? {
            match job {
                Job::Signal => {
                    if let Ok(Some(signal)) = self.side.signals.next() {
                        self.signal(signal, insist);
                    }
                }
                Job::Hear => self.wire.read(),
                Job::Tell => self.wire.write(),
                Job::Type => self.typed(),
                Job::Show(at) => self.sinks.write(at),
            }
        }
        if let Some(key) = self.keys.as_mut().and_then(|keys| keys.expire(Instant::now())) {
            self.wire.send(ChannelId::Stdin, &[key]);
        }
        if let Some(questions) = &mut self.questions {
            let surface = if self.raw.is_some() { Surface::Raw } else { Surface::Lines };
            questions.look(Instant::now(), surface);
        }
        for channel in self.sinks.gone() {
            match self.side.bond {
                // As the kernel would tell it.
                Bond::Only | Bond::Starter if channel != ChannelId::Terminal => {
                    let signal = Signal::PIPE.as_raw();
                    let whom = Whom::Group;
                    self.wire.tell(&ToDaemon::Signal(SignalCommand { signal, whom }));
                }
                Bond::Only | Bond::Starter => {}
                // Whoever only watches may stop watching.
                Bond::Visitor => self.over = true,
            }
        }
        Ok(())
    }

    fn ready(&self) -> Result<Vec<Job>, Failure> {
        let mut jobs = vec![Job::Signal];
        let mut watched = vec![PollFd::new(self.side.signals, PollFlags::IN)];
        if self.sinks.has_room() && !self.wire.is_closed() {
            jobs.push(Job::Hear);
            watched.push(PollFd::new(&self.wire, PollFlags::IN));
        }
        if self.wire.wants_write() {
            jobs.push(Job::Tell);
            watched.push(PollFd::new(&self.wire, PollFlags::OUT));
        }
        let stdin = rustix::stdio::stdin();
        if self.input != Input::None && self.wire.has_room() {
            jobs.push(Job::Type);
            watched.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        for (at, sink) in self.sinks.waiting() {
            jobs.push(Job::Show(at));
            watched.push(PollFd::from_borrowed_fd(sink, PollFlags::OUT));
        }
        let now = Instant::now();
        let wait = self.keys.as_ref().and_then(|keys| keys.wait(now));
        let look = self.questions.as_ref().and_then(|questions| questions.wait(now));
        let wait = wait.into_iter().chain(look).min();
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut watched, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Failure::host("cannot wait for streams", Some(errno.to_string())));
            }
        }
        let ready = watched.iter().map(|fd| !fd.revents().is_empty());
        Ok(jobs.into_iter().zip(ready).filter_map(|(job, ready)| ready.then_some(job)).collect())
    }

    /// Sends what the caller has typed or piped.
    fn typed(&mut self) {
        let mut chunk = [0; 16 * 1024];
        let length = match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            // A terminal whose other side is closed says EIO.
            Ok(0) | Err(_) => {
                if self.input == Input::Bytes {
                    self.wire.send(ChannelId::Stdin, b"");
                }
                self.input = Input::None;
                return;
            }
            Ok(length) => length,
        };
        let chunk = chunk.get(..length).unwrap_or_default();
        match &mut self.keys {
            None => self.wire.send(ChannelId::Stdin, chunk),
            Some(keys) => match keys.pass(chunk, Instant::now()) {
                // No bytes at all would be the end.
                Some(passed) if passed.is_empty() => {}
                Some(passed) => self.wire.send(ChannelId::Stdin, &passed),
                None => self.over = true,
            },
        }
    }

    fn signal(&mut self, signal: i32, insist: &mut dyn FnMut()) {
        if signals::is_resize(signal) {
            self.resize();
            return;
        }
        if self.insisted.is_some() {
            // Not even that helped.
            self.over |= signals::is_final(signal);
            return;
        }
        if self.insistence.hears(signal) {
            self.insisted = Some(signal);
            let whom = Whom::Tree;
            self.wire
                .tell(&ToDaemon::Signal(SignalCommand { signal: Signal::KILL.as_raw(), whom }));
            insist();
            return;
        }
        self.wire.tell(&ToDaemon::Signal(SignalCommand { signal, whom: Whom::Group }));
    }

    fn resize(&mut self) {
        let streams = self.started.as_ref().map(|command| command.streams);
        let drawn = streams.is_some_and(|streams| {
            [streams.stdin, streams.stdout, streams.stderr].contains(&StreamKind::Terminal)
        });
        if let Some(size) = terminal::size().filter(|_| drawn) {
            self.wire.tell(&ToDaemon::Resize(size));
        }
    }

    /// Says goodbye, and waits until that has been sent.
    fn leave(&mut self) -> Outcome {
        self.wire.tell(&ToDaemon::Detach);
        while self.wire.wants_write() {
            let mut watched = [PollFd::new(&self.wire, PollFlags::OUT)];
            match poll(&mut watched, None) {
                Ok(_) | Err(Errno::INTR) => self.wire.write(),
                Err(_) => break,
            }
        }
        match self.started.take() {
            Some(command) => Outcome::Left(command),
            None => Outcome::Lost { command: None, received: self.received },
        }
    }

    /// Writes what is left, unless a signal says that nobody waits for it.
    fn drain(&mut self) {
        while !self.sinks.is_empty() {
            let mut watched =
                vec![PollFd::from_borrowed_fd(self.side.signals.as_fd(), PollFlags::IN)];
            let places: Vec<usize> = self.sinks.waiting().map(|(at, _)| at).collect();
            watched.extend(
                self.sinks.waiting().map(|(_, fd)| PollFd::from_borrowed_fd(fd, PollFlags::OUT)),
            );
            if poll(&mut watched, None).is_err_and(|errno| errno != Errno::INTR) {
                return;
            }
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            let mut ready = ready.into_iter();
            if ready.next() == Some(true)
                && let Ok(Some(signal)) = self.side.signals.next()
                && signals::is_final(signal)
            {
                return;
            }
            for (at, ready) in places.into_iter().zip(ready) {
                if ready {
                    self.sinks.write(at);
                }
            }
        }
    }
}

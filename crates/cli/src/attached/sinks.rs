//! Where a command's output goes: the caller's streams, or lines of JSON.

use super::frames::Queue;
use crate::arguments::Output;
use crate::failure::Failure;
use crate::show;
use crate::streams::{Kind, Streams, own};
use cowork_client::stream::ChannelId;
use cowork_client::types::{Command, Raw};
use cowork_sys::Errno;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use serde::Serialize;

/// Most bytes that wait for their reader; beyond it the daemon waits.
const BUFFER: usize = 64 * 1024;

/// How output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is, each stream to its own.
    Bytes,
    /// One object of JSON per piece, all to standard output.
    Lines,
}

impl Form {
    /// What the user asked for.
    pub(crate) fn of(output: &Output) -> Self {
        if output.json { Self::Lines } else { Self::Bytes }
    }
}

/// What a line of JSON says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Started(&'a Command),
    Stdout(Raw),
    Stderr(Raw),
    Terminal(Raw),
    Ended(&'a Command),
}

/// One of the caller's streams.
#[derive(Debug)]
struct Sink {
    to: Option<BorrowedFd<'static>>,
    waiting: Queue,
    /// Bytes that can be written at once without waiting.
    chunk: usize,
}

impl Sink {
    fn new(to: BorrowedFd<'static>) -> Self {
        /// A pipe or a terminal that is writable takes this much (`PIPE_BUF`).
        const CHUNK: usize = 4096;
        let file = rustix::fs::fstat(to)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Self { to: Some(to), waiting: Queue::default(), chunk: if file { BUFFER } else { CHUNK } }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sinks {
    /// Standard output, standard error, the screen.
    streams: [Sink; 3],
    form: Form,
    /// Starts of characters whose rest is in the next piece, for lines of JSON.
    held: [Vec<u8>; 3],
    failed: Option<Errno>,
    /// Streams whose reader has gone, to be told.
    gone: Vec<ChannelId>,
}

const CHANNELS: [ChannelId; 3] = [ChannelId::Stdout, ChannelId::Stderr, ChannelId::Terminal];

fn index(channel: ChannelId) -> Option<usize> {
    CHANNELS.iter().position(|known| *known == channel)
}

impl Sinks {
    pub(super) fn new(streams: &Streams, form: Form) -> Self {
        let [input, output, error] = own();
        let terminals = streams.kinds.into_iter().zip(own()).skip(1);
        let screen = terminals.into_iter().find(|(kind, _)| *kind == Kind::Terminal);
        // Where no output is shown the echo of what is typed still is, at the terminal it comes
        // from; it never goes where the command's output goes.
        let screen = match screen {
            Some((_, stream)) => stream,
            None if streams.interactive() => input,
            None => output,
        };
        Self {
            streams: [output, error, screen].map(Sink::new),
            form,
            held: [const { Vec::new() }; 3],
            failed: None,
            gone: Vec::new(),
        }
    }

    /// Whether more can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.streams.iter().all(|sink| sink.waiting.len() < BUFFER)
    }

    /// Whether everything was written that can be.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.iter().all(|sink| sink.waiting.is_empty())
    }

    /// Takes output of the command.
    pub(super) fn add(&mut self, channel: ChannelId, piece: &[u8]) -> Result<(), Failure> {
        let Some(index) = index(channel) else { return Ok(()) };
        if self.form == Form::Lines {
            let Some(held) = self.held.get_mut(index) else { return Ok(()) };
            held.extend(piece);
            let whole = match std::str::from_utf8(held) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                _ => held.len(),
            };
            let rest = held.split_off(whole);
            let data = std::mem::replace(held, rest);
            return self.line(channel, data);
        }
        if let Some(sink) = self.streams.get_mut(index).filter(|sink| sink.to.is_some()) {
            sink.waiting.add(piece);
        }
        Ok(())
    }

    fn line(&mut self, channel: ChannelId, data: Vec<u8>) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        let data = Raw::new(data);
        self.object(&match channel {
            ChannelId::Stdout => Line::Stdout(data),
            ChannelId::Stderr => Line::Stderr(data),
            _ => Line::Terminal(data),
        })
    }

    fn object(&mut self, object: &Line<'_>) -> Result<(), Failure> {
        let line = show::json_line(object)?;
        let [output, ..] = &mut self.streams;
        if output.to.is_some() {
            output.waiting.add(line.as_bytes());
        }
        Ok(())
    }

    /// Says that the command has started, where every piece is told.
    pub(super) fn started(&mut self, command: &Command) -> Result<(), Failure> {
        match self.form {
            Form::Bytes => Ok(()),
            Form::Lines => self.object(&Line::Started(command)),
        }
    }

    /// Says that it has ended, after what was held back.
    pub(super) fn ended(&mut self, command: &Command) -> Result<(), Failure> {
        for (index, channel) in CHANNELS.into_iter().enumerate() {
            let held = self.held.get_mut(index).map(std::mem::take).unwrap_or_default();
            self.line(channel, held)?;
        }
        match self.form {
            Form::Bytes => Ok(()),
            Form::Lines => self.object(&Line::Ended(command)),
        }
    }

    /// The streams that have something to write, by their place.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, BorrowedFd<'static>)> {
        let sinks = self.streams.iter().enumerate();
        sinks
            .filter(|(_, sink)| !sink.waiting.is_empty())
            .filter_map(|(at, sink)| Some((at, sink.to?)))
    }

    /// Writes to one of them.
    pub(super) fn write(&mut self, at: usize) {
        let Some(sink) = self.streams.get_mut(at) else { return };
        let Some(to) = sink.to else { return };
        match rustix::io::write(to, sink.waiting.front(sink.chunk)) {
            Ok(length) => sink.waiting.advance(length),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // A reader that has seen enough is no failure.
                self.failed = self.failed.or((errno != Errno::PIPE).then_some(errno));
                sink.to = None;
                sink.waiting.clear();
                self.gone.extend(CHANNELS.get(at));
            }
        }
    }

    /// Streams whose reader has gone since the last time.
    pub(super) fn gone(&mut self) -> Vec<ChannelId> {
        std::mem::take(&mut self.gone)
    }

    /// Why output could not be delivered, if it could not.
    pub(super) fn failure(&self) -> Option<Failure> {
        let cause = std::io::Error::from(self.failed?).to_string();
        Some(Failure::host("the command's output could not be written", Some(cause)))
    }
}

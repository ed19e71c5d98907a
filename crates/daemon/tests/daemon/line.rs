//! A connection that is attached to a command: frames of output come in, input and signals go out.

use crate::look::PATIENCE;
use crate::room::Room;
use cowork_client::http::{Attached, Client, HttpError, Method, Request};
use cowork_client::stream::{ChannelId, FromDaemon, HEADER, ToDaemon, header, parse};
use cowork_client::types::Command;
use serde_json::Value;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;

/// An attachment.
pub(crate) struct Line {
    stream: UnixStream,
    read: Vec<u8>,
}

/// Everything that came until the end.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) started: Option<Command>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) terminal: Vec<u8>,
    /// The command at its end, unless the connection ended first.
    pub(crate) ended: Option<Command>,
}

impl Line {
    fn new(attached: Attached) -> Self {
        attached.stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        Self { stream: attached.stream, read: attached.read }
    }

    /// Starts a command and is attached to it.
    #[track_caller]
    pub(crate) fn start(room: Room<'_>, command: &Value) -> Self {
        let request = Request::new(Method::Post, room.at("/commands")).with_json(command);
        Self::new(room.site.client().upgrade(request).expect("it starts"))
    }

    /// Attaches to a command that runs.
    #[track_caller]
    pub(crate) fn attach(room: Room<'_>, number: u32, from: &str) -> Self {
        Self::try_attach(room, number, from).expect("it runs")
    }

    /// Attaches to a command, if it runs and the daemon does.
    pub(crate) fn try_attach(
        room: Room<'_>,
        number: u32,
        from: &str,
    ) -> std::result::Result<Self, HttpError> {
        let target = room.at(&format!("/commands/{number}/attach?from={from}"));
        let mut client = Client::connect(&room.site.socket())?;
        client.upgrade(Request::get(target)).map(Self::new)
    }

    /// Sends input; nothing for its end.
    #[track_caller]
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        self.send(ChannelId::Stdin, bytes);
    }

    /// Sends something other than input.
    #[track_caller]
    pub(crate) fn tell(&mut self, message: &ToDaemon) {
        let text = serde_json::to_vec(message).expect("it is JSON");
        self.send(ChannelId::Control, &text);
    }

    #[track_caller]
    fn send(&mut self, channel: ChannelId, bytes: &[u8]) {
        let mut frame = header(channel, bytes.len()).to_vec();
        frame.extend(bytes);
        self.stream.write_all(&frame).expect("the daemon listens");
    }

    /// A second handle of the connection, to send from another thread.
    pub(crate) fn sender(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("it is open"), read: Vec::new() }
    }

    fn exact(&mut self, length: usize) -> Result<Option<Vec<u8>>> {
        while self.read.len() < length {
            let mut piece = vec![0; 64 * 1024];
            let read = self.stream.read(&mut piece)?;
            if read == 0 && !self.read.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if read == 0 {
                return Ok(None);
            }
            self.read.extend(&piece[..read]);
        }
        let rest = self.read.split_off(length);
        Ok(Some(std::mem::replace(&mut self.read, rest)))
    }

    /// The next frame; nothing at the end.
    pub(crate) fn frame(&mut self) -> Result<Option<(ChannelId, Vec<u8>)>> {
        let Some(head) = self.exact(HEADER)? else { return Ok(None) };
        let head: [u8; HEADER] = head.try_into().expect("it is as long");
        let (channel, length) = parse(head).expect("it is a frame");
        match self.exact(length)? {
            Some(contents) => Ok(Some((channel, contents))),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Hears until the end.
    #[track_caller]
    pub(crate) fn hear_all(&mut self) -> Heard {
        let mut heard = Heard::default();
        loop {
            match self.frame() {
                Ok(Some((channel, bytes))) => {
                    assert!(heard.ended.is_none(), "something comes after the end");
                    heard.take(channel, bytes);
                }
                Ok(None) => return heard,
                Err(error) => panic!("{error}, after {heard:.1000?}"),
            }
        }
    }

    /// Hears until the command has written something.
    #[track_caller]
    pub(crate) fn hear_until(&mut self, text: &str) -> Heard {
        let mut heard = Heard::default();
        loop {
            let all = [&heard.out[..], &heard.err, &heard.terminal].concat();
            let all = String::from_utf8_lossy(&all);
            if all.contains(text) {
                return heard;
            }
            match self.frame() {
                Ok(Some((channel, bytes))) => heard.take(channel, bytes),
                Ok(None) => panic!("it ended before it said {text:?}: {all:?}"),
                Err(error) => panic!("{error}: it has not said {text:?}: {all:?}"),
            }
        }
    }
}

impl Heard {
    fn take(&mut self, channel: ChannelId, bytes: Vec<u8>) {
        match channel {
            ChannelId::Stdin => panic!("input does not come back"),
            ChannelId::Stdout => self.out.extend(bytes),
            ChannelId::Stderr => self.err.extend(bytes),
            ChannelId::Terminal => self.terminal.extend(bytes),
            ChannelId::Control => match serde_json::from_slice(&bytes).expect("it is known") {
                FromDaemon::Started(command) => {
                    assert!(self.started.is_none() && self.out.is_empty(), "it comes first");
                    self.started = Some(*command);
                }
                FromDaemon::Ended(command) => self.ended = Some(*command),
            },
        }
    }

    /// The exit status.
    #[track_caller]
    pub(crate) fn code(&self) -> u8 {
        let ended = self.ended.as_ref().unwrap_or_else(|| panic!("it did not end: {self:?}"));
        ended.code.expect("it ran")
    }
}

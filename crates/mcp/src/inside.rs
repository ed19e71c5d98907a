//! Commands in a session, followed to their end: what they write is kept up to a limit, and they
//! are ended when nobody waits for them any more.

use crate::call::{Call, target};
use crate::refusal::Refusal;
use cowork_client::http::{Attached, Client, Method, Request};
use cowork_client::stream::{self, ChannelId, FromDaemon, HEADER, MAX_FRAME};
use cowork_client::types::{Cancel, Command, NewCommand, Session, State, StreamKind};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often it is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(100);
/// How often the user's part in it is looked at.
const QUESTIONS: Duration = Duration::from_secs(2);
/// Time that a command has to end by itself when nobody waits any more.
const GRACE: &str = "1s";
/// Longest wait for the end of a command that was cancelled.
const LAST: Duration = Duration::from_secs(10);
/// How much of a stream is read at once.
const PIECE: usize = 64 * 1024;

/// The beginning and the end of what a stream carried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    most: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// All bytes that came.
    pub(crate) total: u64,
}

impl Kept {
    /// Keeps at most so many bytes: half of them from the beginning, half from the end.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let room = (self.most / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // What is cut is cut in large pieces: cutting moves what stays.
        if self.tail.len() > self.most * 2 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.tail.len().saturating_sub(self.most / 2);
        drop(self.tail.drain(..over));
    }

    /// The beginning, how many bytes are missing behind it, and the end.
    pub(crate) fn parts(mut self) -> (Vec<u8>, u64, Vec<u8>) {
        self.cut();
        let kept = u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX);
        (self.head, self.total.saturating_sub(kept), self.tail)
    }

    /// Everything, or `None` if something is missing.
    pub(crate) fn whole(self) -> Option<Vec<u8>> {
        let (mut head, missing, tail) = self.parts();
        head.extend(tail);
        (missing == 0).then_some(head)
    }
}

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) command: Command,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
}

/// A command to run.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) command: NewCommand,
    /// What it reads; without any its input is empty.
    pub(crate) stdin: Option<Vec<u8>>,
    /// Most bytes that are kept of each stream.
    pub(crate) keep: usize,
}

/// Runs a command of the session to its end. A session that is stopped is started first.
pub(crate) fn run(
    call: &Call,
    client: &mut Client,
    session: &Session,
    mut work: Work,
) -> Result<Ran, Refusal> {
    if session.state == State::Stopped {
        let _started: Session =
            client.json(&Request::new(Method::Post, target(&session.id, "/start")))?;
    }
    if work.stdin.is_some() {
        work.command.streams.stdin = StreamKind::Pipe;
    }
    let start =
        Request::new(Method::Post, target(&session.id, "/commands")).with_json(&work.command);
    let attached = client.upgrade(start)?;
    let lost = |error: std::io::Error| {
        Refusal::new("no-daemon", format!("the connection to the daemon broke: {error}"))
    };
    let stream = attached.stream.try_clone().map_err(lost)?;
    stream.set_read_timeout(Some(LOOK)).map_err(lost)?;
    let input = match work.stdin.take() {
        Some(input) => {
            let to = stream.try_clone().map_err(lost)?;
            Some(std::thread::spawn(move || feed(to, &input)))
        }
        None => None,
    };
    let mut following = Following {
        call,
        session: &session.id,
        started: None,
        stdout: Kept::new(work.keep),
        stderr: Kept::new(work.keep),
        cancelled: None,
        looked: Instant::now(),
    };
    let ended = following.follow(attached);
    // Whoever still writes to it is done with.
    cowork_sys::ignore(stream.shutdown(Shutdown::Both));
    if let Some(input) = input {
        cowork_sys::ignore(input.join());
    }
    let command = ended?;
    if following.cancelled.is_some() {
        return Err(Refusal::new("cancelled", "the call was cancelled, and the command with it"));
    }
    Ok(Ran { command, stdout: following.stdout, stderr: following.stderr })
}

/// Sends a command its input and the end of it. One that reads none ends it too.
fn feed(mut to: UnixStream, input: &[u8]) {
    for piece in input.chunks(MAX_FRAME) {
        let header = stream::header(ChannelId::Stdin, piece.len());
        if to.write_all(&header).is_err() || to.write_all(piece).is_err() {
            return;
        }
    }
    cowork_sys::ignore(to.write_all(&stream::header(ChannelId::Stdin, 0)));
}

/// A command that is being followed.
struct Following<'a> {
    call: &'a Call,
    session: &'a str,
    started: Option<u32>,
    stdout: Kept,
    stderr: Kept,
    /// Since when nobody waits any more.
    cancelled: Option<Instant>,
    looked: Instant,
}

impl Following<'_> {
    fn follow(&mut self, attached: Attached) -> Result<Command, Refusal> {
        let Attached { mut stream, read: mut buffer } = attached;
        let mut piece = vec![0; PIECE];
        let gone = || Refusal::new("no-daemon", "the daemon ended while the command was running");
        loop {
            while let Some((channel, contents)) = next_frame(&mut buffer)? {
                if let Some(command) = self.take(channel, &contents)? {
                    return Ok(command);
                }
            }
            match stream.read(&mut piece) {
                Ok(0) => return Err(gone()),
                Ok(length) => buffer.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => return Err(gone()),
                },
            }
            self.look()?;
        }
    }

    /// What a frame says; the command, if it has ended.
    fn take(&mut self, channel: ChannelId, contents: &[u8]) -> Result<Option<Command>, Refusal> {
        match channel {
            ChannelId::Stdout | ChannelId::Terminal => self.stdout.add(contents),
            ChannelId::Stderr => self.stderr.add(contents),
            ChannelId::Stdin => {}
            ChannelId::Control => {
                let garbled = |_error| Refusal::new("no-daemon", "the daemon cannot be understood");
                match serde_json::from_slice(contents).map_err(garbled)? {
                    FromDaemon::Started(command) => self.started = Some(command.number),
                    FromDaemon::Ended(command) => return Ok(Some(*command)),
                }
            }
        }
        let text = String::from_utf8_lossy(contents);
        if let Some(last) = text.lines().rev().find(|line| !line.trim().is_empty())
            && channel != ChannelId::Control
        {
            self.call.tell(last);
        }
        Ok(None)
    }

    /// Ends the command if nobody waits any more, and says what it waits for itself.
    fn look(&mut self) -> Result<(), Refusal> {
        if let Some(since) = self.cancelled {
            let over = since.elapsed() > LAST;
            return if over {
                Err(Refusal::new(
                    "cancelled",
                    "the call was cancelled; the command has not ended yet",
                ))
            } else {
                Ok(())
            };
        }
        if self.call.is_cancelled() {
            // Before it is told which command that is, nothing can be cancelled: that comes at once.
            let Some(number) = self.started else { return Ok(()) };
            self.cancelled = Some(Instant::now());
            let target = target(self.session, &format!("/commands/{number}/cancel"));
            let cancel = Cancel { grace: Some(GRACE.to_owned()) };
            let mut client = self.call.client()?;
            // If it has ended meanwhile, its end is about to be told.
            let cancelled = client.call(&Request::new(Method::Post, target).with_json(&cancel));
            cowork_sys::ignore(cancelled);
        } else if self.looked.elapsed() > QUESTIONS {
            self.looked = Instant::now();
            let session: Session = self.call.client()?.get(target(self.session, ""))?;
            self.call.tell(match session.pending {
                0 => "the command runs",
                _ => "the command waits for the user's answer (`cowork requests`)",
            });
        }
        Ok(())
    }
}

/// Takes the next whole frame from what was read.
fn next_frame(buffer: &mut Vec<u8>) -> Result<Option<(ChannelId, Vec<u8>)>, Refusal> {
    let Some(header) = buffer.first_chunk::<HEADER>() else { return Ok(None) };
    let (channel, length) = stream::parse(*header)
        .ok_or_else(|| Refusal::new("no-daemon", "the daemon cannot be understood"))?;
    let Some(contents) = buffer.get(HEADER..HEADER + length) else { return Ok(None) };
    let contents = contents.to_vec();
    drop(buffer.drain(..HEADER + length));
    Ok(Some((channel, contents)))
}

#[cfg(test)]
mod tests {
    use super::{Kept, next_frame};
    use cowork_client::stream::{ChannelId, header};

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut kept = Kept::new(8);
        for byte in 0..100_u8 {
            kept.add(&[byte]);
        }
        assert_eq!(kept.clone().parts(), (vec![0, 1, 2, 3], 92, vec![96, 97, 98, 99]));
        assert_eq!(kept.whole(), None);
        let mut short = Kept::new(8);
        short.add(b"12345678");
        assert_eq!(short.whole(), Some(b"12345678".to_vec()));
    }

    #[test]
    fn frames_are_taken_whole() {
        let mut bytes = header(ChannelId::Stdout, 3).to_vec();
        bytes.extend_from_slice(b"ab");
        assert_eq!(next_frame(&mut bytes).expect("half a frame is none"), None);
        bytes.extend_from_slice(b"c\x02");
        let frame = next_frame(&mut bytes).expect("it is one");
        assert_eq!(frame, Some((ChannelId::Stdout, b"abc".to_vec())));
        assert_eq!(bytes, [2]);
        assert!(next_frame(&mut vec![9, 0, 0, 0, 0]).is_err());
    }
}

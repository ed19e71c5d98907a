//! Carries bytes between two connections, both ways, until both ends have said all.
//!
//! An end of one direction is passed on while the other goes on. What breaks breaks both ends, so
//! that whoever is left sees a reset and not an end. A connection that is silent holds no buffer:
//! bytes are read into one that all connections share, and only what the other side does not take at
//! once is kept. A direction that has carried much is handed to the kernel, which moves the pages
//! from one socket to the other through a pipe.

use crate::descriptors::{PIPE, Pipe};
use crate::flow::Flow;
use crate::hello::{self, Opening};
use crate::office::Refusal;
use crate::quota::Quotas;
use bytes::Bytes;
use cowork_api::egress::{Ended, Rule};
use cowork_sys::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::{SpliceFlags, splice};
use std::cell::RefCell;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// After so many bytes of a direction the kernel moves the rest.
const MUCH: u64 = 128 * 1024;
/// The size of the buffer that all connections share.
const SCRATCH: usize = 64 * 1024;
/// Most of the first bytes that are looked at for a name.
const MAX_OPENING: usize = 20 * 1024;
/// Longest that a first message of TLS may take once it has begun.
const TIME_TO_OPEN: Duration = Duration::from_secs(10);
/// A fatal alert of TLS, `unrecognized_name`.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// What a relay goes by.
#[derive(Debug)]
pub(crate) struct Passage<'a> {
    /// Counts the bytes.
    pub(crate) flow: &'a Flow,
    /// Counts what the rule limits.
    pub(crate) quotas: &'a Quotas,
    /// The rule that let it through.
    pub(crate) rule: Option<&'a Rule>,
    /// The name that was decided about: TLS must not name another one.
    pub(crate) name: Option<&'a str>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both ends have said all.
    Eof,
    /// One of them broke the connection.
    Reset,
    /// It failed.
    Failed(io::Error),
    /// Something in it does not pass.
    Refused(Refusal),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected => Self::Reset,
            _ => Self::Failed(error),
        }
    }
}

impl End {
    /// As it is recorded.
    pub(crate) fn how(&self) -> String {
        match self {
            Self::Eof => "eof".into(),
            Self::Reset => "reset".into(),
            Self::Failed(error) => format!("error: {error}"),
            Self::Refused(refusal) => format!("refused: {}", refusal.code),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the session.
    Up,
    /// To the session.
    Down,
}

/// How one direction ended.
enum Finish {
    /// The source has said all, and the other end was told.
    Whole,
    /// The other end takes no more. What it said before still comes the other way.
    Untaken(io::Error),
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// Carries bytes between the session's end and the far one. `first` was read from the session.
pub(crate) async fn relay(
    near: &TcpStream,
    far: &TcpStream,
    first: Bytes,
    passage: &Passage<'_>,
) -> End {
    let up = async {
        if let Some(end) = passage.open(near, far, first).await? {
            return Ok(end);
        }
        passage.carry(near, far, Way::Up).await
    };
    let down = passage.carry(far, near, Way::Down);
    let end = match tokio::try_join!(up, down) {
        Ok((Finish::Whole, Finish::Whole)) => return End::Eof,
        Ok((Finish::Untaken(error), _) | (_, Finish::Untaken(error))) => error.into(),
        Err(end) => end,
    };
    // The ends may be gone already.
    cowork_sys::ignore(far.set_zero_linger());
    if let End::Refused(refusal) = &end
        && refusal.code.starts_with("sni-")
    {
        cowork_sys::ignore(near.try_write(&UNRECOGNIZED_NAME));
    } else {
        cowork_sys::ignore(near.set_zero_linger());
    }
    end
}

impl Passage<'_> {
    /// Looks at the first bytes from the session before they are sent. Says how the direction ended
    /// if it did.
    async fn open(
        &self,
        near: &TcpStream,
        far: &TcpStream,
        first: Bytes,
    ) -> Result<Option<Finish>, End> {
        let mut bytes = Vec::from(first);
        let whole = loop {
            let opening = if self.name.is_some() { hello::look(&bytes) } else { Opening::Other };
            match opening {
                Opening::Named(named) => {
                    self.flow.greeted(Ended::There, Some(&named));
                    self.check_name(&named)?;
                    break true;
                }
                Opening::Other if !bytes.is_empty() || self.name.is_none() => break true,
                Opening::Nameless => {
                    self.flow.greeted(Ended::There, None);
                    break true;
                }
                Opening::Unreadable => return Err(End::Refused(unreadable())),
                Opening::Partial if bytes.len() >= MAX_OPENING => {
                    return Err(End::Refused(unreadable()));
                }
                Opening::Partial | Opening::Other => {}
            }
            if bytes.is_empty() {
                near.readable().await?;
            } else {
                let more = tokio::time::timeout(TIME_TO_OPEN, near.readable()).await;
                more.map_err(|_elapsed| End::Refused(unreadable()))??;
            }
            let read = BUFFER.with_borrow_mut(|buffer| {
                let read = read(near, buffer)?;
                bytes.extend_from_slice(buffer.get(..read.unwrap_or(0)).unwrap_or_default());
                io::Result::Ok(read)
            });
            if read? == Some(0) {
                break false;
            }
        };
        self.count(Way::Up, bytes.len())?;
        if let Err(error) = send(far, &bytes).await {
            return Ok(Some(Finish::Untaken(error)));
        }
        if whole {
            return Ok(None);
        }
        shut(far);
        Ok(Some(Finish::Whole))
    }

    fn check_name(&self, named: &str) -> Result<(), End> {
        let named = named.strip_suffix('.').unwrap_or(named);
        match self.name {
            Some(name) if name != named => Err(End::Refused(Refusal::new(
                "sni-mismatch",
                format!("the connection is for {name}, but TLS in it names {named}"),
                "a connection to one host cannot be used for another",
            ))),
            _ => Ok(()),
        }
    }

    /// Counts bytes on their way, if they may be on it.
    fn count(&self, way: Way, bytes: usize) -> Result<(), End> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        match way {
            Way::Up => {
                self.quotas.upload(self.rule, bytes).map_err(End::Refused)?;
                self.flow.sent(bytes);
            }
            Way::Down => {
                self.flow.received(bytes);
            }
        }
        Ok(())
    }

    /// Carries one direction to its end.
    async fn carry(&self, from: &TcpStream, to: &TcpStream, way: Way) -> Result<Finish, End> {
        let mut carried = 0;
        let mut limit = MUCH;
        loop {
            if carried >= limit {
                match Pipe::wide() {
                    Some(pipe) => return self.splice(from, to, way, &pipe).await,
                    // Too many are in use: for this one the kernel is not asked again.
                    None => limit = u64::MAX,
                }
            }
            from.readable().await?;
            tokio::task::consume_budget().await;
            match self.step(from, to, way)? {
                Step::Nothing => {}
                Step::End => {
                    shut(to);
                    return Ok(Finish::Whole);
                }
                Step::Carried(bytes) => carried += bytes,
                Step::Left(rest, bytes) => {
                    carried += bytes;
                    if let Err(error) = send(to, &rest).await {
                        return Ok(Finish::Untaken(error));
                    }
                }
                Step::Untaken(error) => return Ok(Finish::Untaken(error)),
            }
        }
    }

    /// Reads once, and sends as much as the other end takes.
    fn step(&self, from: &TcpStream, to: &TcpStream, way: Way) -> Result<Step, End> {
        BUFFER.with_borrow_mut(|buffer| {
            let read = match read(from, buffer)? {
                None => return Ok(Step::Nothing),
                Some(0) => return Ok(Step::End),
                Some(read) => read,
            };
            self.count(way, read)?;
            let bytes = u64::try_from(read).unwrap_or(u64::MAX);
            let got = buffer.get(..read).unwrap_or_default();
            let sent = match write(to, got) {
                Ok(sent) => sent,
                Err(error) => return Ok(Step::Untaken(error)),
            };
            match got.get(sent..) {
                Some(rest) if !rest.is_empty() => Ok(Step::Left(rest.to_vec(), bytes)),
                _ => Ok(Step::Carried(bytes)),
            }
        })
    }

    /// Lets the kernel move the rest of one direction.
    async fn splice(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        way: Way,
        pipe: &Pipe,
    ) -> Result<Finish, End> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            let fill = || Ok(splice(from, None, &pipe.into, None, PIPE, flags)?);
            let mut inside = from.async_io(Interest::READABLE, fill).await?;
            if inside == 0 {
                shut(to);
                return Ok(Finish::Whole);
            }
            self.count(way, inside)?;
            while inside > 0 {
                let drain = || Ok(splice(&pipe.out, None, to, None, inside, flags)?);
                match to.async_io(Interest::WRITABLE, drain).await {
                    Ok(moved) => inside = inside.saturating_sub(moved),
                    Err(error) => return Ok(Finish::Untaken(error)),
                }
            }
        }
    }
}

/// Reads what is there; nothing if nothing is. When less comes than there is room for, there was no
/// more: the next read waits for it and does not ask.
fn read(from: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut got = None;
    let tried = from.try_io(Interest::READABLE, || {
        let (read, _) = rustix::net::recv(from, &mut *buffer, RecvFlags::empty())?;
        got = Some(read);
        let is_all = read > 0 && read < buffer.len();
        if is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match tried {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(got),
    }
}

/// What came of reading once.
enum Step {
    /// There was nothing.
    Nothing,
    /// The source has said all.
    End,
    /// So many bytes were read and sent.
    Carried(u64),
    /// So many bytes were read; these are still to be sent.
    Left(Vec<u8>, u64),
    /// The other end takes no more.
    Untaken(io::Error),
}

fn unreadable() -> Refusal {
    let sentence = "the first message of TLS cannot be read";
    Refusal::new("sni-unreadable", sentence, "the host that it names could not be checked")
}

/// Sends all of something.
async fn send(to: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = write(to, bytes)?;
    let mut rest = bytes.get(sent..).unwrap_or_default();
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends as much as the other end takes now. It is tried and not waited for: a connection that was just
/// made takes something before anybody is told that it does.
fn write(to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match rustix::net::send(to, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => Ok(sent?),
    }
}

/// Says that nothing more will be sent. An end that is gone does not need to be told.
fn shut(stream: &TcpStream) {
    cowork_sys::ignore(rustix::net::shutdown(stream, Shutdown::Write));
}

//! One connection: a request goes out, the head of an answer comes back, then its body as it was
//! framed.

use super::{Attached, HttpError, Request, Upload};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// Most headers of an answer.
const MAX_HEADERS: usize = 64;
/// Longest line that says how long a chunk is, and longest line behind the last chunk.
const MAX_CHUNK_LINE: usize = 1024;
/// How much is read at once.
const PIECE: usize = 64 * 1024;

/// A connection to the daemon, with what was read and not yet used.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    read: Vec<u8>,
    /// How much of `read` has been used.
    used: usize,
}

/// How much of a body there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// This many bytes more.
    Length(u64),
    /// Chunks; this many bytes more of the present one, `None` before its length has been read.
    Chunked(Option<u64>),
    /// Until the daemon closes the connection.
    UntilClosed,
}

/// An answer whose body is read as it comes.
#[derive(Debug)]
pub struct Response {
    connection: Connection,
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    framing: Framing,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> Result<Self, HttpError> {
        let stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                HttpError::NotRunning { socket: socket.into(), source }
            }
            _ => HttpError::Broken { attempt: "connect to the daemon", source },
        })?;
        Ok(Self { stream, read: Vec::new(), used: 0 })
    }

    /// Sends a request and reads the head of its answer.
    pub(super) fn exchange(
        mut self,
        request: &Request,
        mut upload: Option<Upload<'_>>,
    ) -> Result<Response, Exchange> {
        let framing = match upload.as_ref().map(|upload| upload.length) {
            Some(Some(length)) => format!("Content-Length: {length}\r\n"),
            Some(None) => "Transfer-Encoding: chunked\r\n".to_owned(),
            None => String::new(),
        };
        let mut sent = self.stream.write_all(head(request, &framing).as_bytes());
        if let (Ok(()), Some(upload)) = (&sent, &mut upload) {
            sent = self.upload(upload)?;
        }
        self.answered(sent)
    }

    /// Sends a request with a body that is there already, in one piece: the daemon wakes once.
    pub(super) fn exchange_whole(
        mut self,
        request: &Request,
        body: &[u8],
    ) -> Result<Response, Exchange> {
        let head = head(request, &format!("Content-Length: {}\r\n", body.len()));
        let sent = self.stream.write_all(&[head.as_bytes(), body].concat());
        self.answered(sent)
    }

    fn answered(self, sent: io::Result<()>) -> Result<Response, Exchange> {
        // A daemon that refuses an upload answers before it has read all of it.
        match (self.response(), sent) {
            (Ok(response), _) => Ok(response),
            (Err(_), Err(source)) => Err(Exchange::Unsent(source)),
            (Err(error), Ok(())) => Err(error),
        }
    }

    /// Sends a body. A source that fails is an error; a daemon that does not want it is not yet.
    fn upload(&mut self, upload: &mut Upload<'_>) -> Result<io::Result<()>, Exchange> {
        let mut piece = vec![0; PIECE];
        let mut left = upload.length;
        loop {
            let wanted = left.map_or(PIECE, |left| usize::try_from(left).unwrap_or(PIECE));
            let room = piece.get_mut(..wanted.min(PIECE)).unwrap_or_default();
            let length = match upload.from.read(room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    let attempt = "read what is to be sent";
                    return Err(Exchange::Failed(HttpError::Broken { attempt, source }));
                }
            };
            if let Some(left) = &mut left {
                *left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
            }
            if length == 0 && left.is_some_and(|left| left > 0) {
                let source = io::ErrorKind::UnexpectedEof.into();
                let attempt = "send a file that became shorter meanwhile";
                return Err(Exchange::Failed(HttpError::Broken { attempt, source }));
            }
            let data = piece.get(..length).unwrap_or_default();
            let sent = if upload.length.is_some() {
                self.stream.write_all(data)
            } else {
                let frame = format!("{length:x}\r\n");
                let parts = [frame.as_bytes(), data, b"\r\n"].concat();
                self.stream.write_all(&parts)
            };
            if sent.is_err() || length == 0 || left == Some(0) {
                return Ok(sent);
            }
        }
    }

    /// Reads the head of an answer.
    fn response(mut self) -> Result<Response, Exchange> {
        loop {
            let (status, headers) = loop {
                if let Some(head) = self.parse_head()? {
                    break head;
                }
                if self.unused().len() >= MAX_HEAD {
                    return Err(Exchange::Failed(HttpError::Garbled(
                        "an answer's head is too long",
                    )));
                }
                let before = self.unused().len();
                match self.fill() {
                    Ok(0) if before == 0 => return Err(Exchange::Unanswered),
                    Ok(0) => return Err(Exchange::Failed(ended("read the daemon's answer"))),
                    Ok(_) => {}
                    Err(_) if before == 0 => return Err(Exchange::Unanswered),
                    Err(source) => {
                        let attempt = "read the daemon's answer";
                        return Err(Exchange::Failed(HttpError::Broken { attempt, source }));
                    }
                }
            };
            // Interim answers say nothing that is waited for here.
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let framing = framing(status, &headers).map_err(Exchange::Failed)?;
            return Ok(Response { connection: self, status, headers, framing });
        }
    }

    /// The head of an answer, if all of it was read.
    fn parse_head(&mut self) -> Result<Option<Head>, Exchange> {
        let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut space);
        let garbled = || Exchange::Failed(HttpError::Garbled("an answer is not HTTP"));
        let status = parsed.parse(self.unused()).map_err(|_error| garbled())?;
        let httparse::Status::Complete(length) = status else { return Ok(None) };
        let code = parsed.code.ok_or_else(garbled)?;
        let headers = parsed.headers.iter();
        let headers =
            headers.map(|header| (header.name.to_ascii_lowercase(), header.value.to_vec()));
        let headers = headers.collect();
        self.used += length;
        Ok(Some((code, headers)))
    }

    fn unused(&self) -> &[u8] {
        self.read.get(self.used..).unwrap_or_default()
    }

    /// Reads once more.
    fn fill(&mut self) -> io::Result<usize> {
        drop(self.read.drain(..self.used));
        self.used = 0;
        let before = self.read.len();
        self.read.resize(before + PIECE, 0);
        let read = loop {
            match self.stream.read(self.read.get_mut(before..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.read.truncate(before + read.as_ref().map_or(0, |length| *length));
        read
    }

    /// Bytes that were read already, else from the socket.
    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.unused().is_empty() {
            return self.stream.read(room);
        }
        let length = self.unused().len().min(room.len());
        let (room, _) = room.split_at_mut(length);
        room.copy_from_slice(self.unused().get(..length).unwrap_or_default());
        self.used += length;
        Ok(length)
    }
}

/// A status and headers, their names in lower case.
type Head = (u16, Vec<(String, Vec<u8>)>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Exchange {
    /// The daemon closed the connection, and has seen nothing of the request or not answered it.
    Unanswered,
    /// The request could not be sent.
    Unsent(io::Error),
    /// Anything else.
    Failed(HttpError),
}

impl From<Exchange> for HttpError {
    fn from(error: Exchange) -> Self {
        match error {
            Exchange::Unanswered => ended("read the daemon's answer"),
            Exchange::Unsent(source) => Self::Broken { attempt: "send a request", source },
            Exchange::Failed(error) => error,
        }
    }
}

fn ended(attempt: &'static str) -> HttpError {
    HttpError::Broken { attempt, source: io::ErrorKind::UnexpectedEof.into() }
}

/// The text of a request up to its body; `framing` are the headers that say how long that is.
fn head(request: &Request, framing: &str) -> String {
    let lines = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let lines: String = lines.collect();
    let Request { method, target, .. } = request;
    format!("{method} {target} HTTP/1.1\r\nHost: cowork\r\n{lines}{framing}\r\n")
}

fn framing(status: u16, headers: &[(String, Vec<u8>)]) -> Result<Framing, HttpError> {
    if matches!(status, 101 | 204 | 304) {
        return Ok(Framing::Length(0));
    }
    let value = |wanted: &str| {
        let found = headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| String::from_utf8_lossy(value).trim().to_ascii_lowercase())
    };
    if let Some(coding) = value("transfer-encoding") {
        if coding != "chunked" {
            return Err(HttpError::Garbled("an answer has an unknown transfer coding"));
        }
        return Ok(Framing::Chunked(None));
    }
    match value("content-length") {
        Some(length) => {
            let length = length.parse();
            let length =
                length.map_err(|_error| HttpError::Garbled("an answer has no valid length"))?;
            Ok(Framing::Length(length))
        }
        None => Ok(Framing::UntilClosed),
    }
}

impl Response {
    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// The connection for another request, if the body was read to its end and the daemon does not
    /// close it.
    pub(super) fn recover(self) -> Option<Connection> {
        let closes =
            self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        (self.framing == Framing::Length(0) && !closes).then_some(self.connection)
    }

    /// The connection itself, for an answer that changes the protocol.
    pub(super) fn attach(mut self) -> Attached {
        let read = self.connection.read.split_off(self.connection.used);
        Attached { stream: self.connection.stream, read }
    }

    /// Reads the length of the next chunk; after the last one, whatever stands behind it.
    fn next_chunk(&mut self) -> io::Result<()> {
        let garbled = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        loop {
            let parsed = httparse::parse_chunk_size(self.connection.unused());
            match parsed.map_err(|_invalid| garbled("a chunk has no valid length"))? {
                httparse::Status::Complete((length, 0)) => {
                    self.connection.used += length;
                    while !self.line()?.is_empty() {}
                    self.framing = Framing::Length(0);
                    return Ok(());
                }
                httparse::Status::Complete((length, size)) => {
                    self.connection.used += length;
                    self.framing = Framing::Chunked(Some(size));
                    return Ok(());
                }
                httparse::Status::Partial if self.connection.unused().len() > MAX_CHUNK_LINE => {
                    return Err(garbled("a chunk has no valid length"));
                }
                httparse::Status::Partial if self.connection.fill()? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                httparse::Status::Partial => {}
            }
        }
    }

    /// The next line of the framing, without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let unused = self.connection.unused();
            if let Some(end) = unused.iter().position(|byte| *byte == b'\n') {
                let line = unused.get(..end).unwrap_or_default().trim_ascii_end().to_vec();
                self.connection.used += end + 1;
                return Ok(line);
            }
            if unused.len() > MAX_CHUNK_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a trailer is too long"));
            }
            if self.connection.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads at most `left` bytes of the body; an end before that is too early.
    fn bounded(&mut self, room: &mut [u8], left: u64) -> io::Result<u64> {
        let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match self.connection.take(room.get_mut(..most).unwrap_or_default())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(u64::try_from(length).unwrap_or(left)),
        }
    }
}

impl Read for Response {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if room.is_empty() {
            return Ok(0);
        }
        if self.framing == Framing::Chunked(None) {
            self.next_chunk()?;
        }
        let read = match self.framing {
            Framing::Length(0) => 0,
            Framing::Length(left) => {
                let read = self.bounded(room, left)?;
                self.framing = Framing::Length(left - read);
                read
            }
            Framing::Chunked(left) => {
                let left = left.unwrap_or(0);
                let read = self.bounded(room, left)?;
                self.framing = Framing::Chunked((read < left).then(|| left - read));
                if read == left && !self.line()?.is_empty() {
                    let what = "a chunk is longer than it says";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                read
            }
            Framing::UntilClosed => return self.connection.take(room),
        };
        Ok(usize::try_from(read).unwrap_or(usize::MAX))
    }
}

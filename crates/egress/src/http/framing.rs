//! Requests of HTTP/1.1 whose length can be read in two ways.
//!
//! The server that reads requests takes one with `Transfer-Encoding` and `Content-Length` by the
//! first, and forgets the second. Whoever sends both means them for somebody who reads otherwise: so
//! what is read is watched on its way, head by head, and such a request is known by its number.
//!
//! Invariant: what cannot be followed any more makes every later request one that is not clear. A head
//! of any length takes no memory.

use bytes::Buf as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most of a line that is looked at: the names that matter, and their values, are shorter.
const MAX_LINE: usize = 64;
/// Longest size of a chunk, in digits.
const MAX_DIGITS: u32 = 16;

/// Which request of a connection is the first whose length is not clear, counted from 1.
#[derive(Clone, Debug)]
pub(super) struct Clarity(Arc<AtomicU32>);

impl Clarity {
    /// Whether the length of this request can be read in one way only.
    pub(super) fn is_clear(&self, number: u32) -> bool {
        number < self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose heads are watched.
#[derive(Debug)]
pub(super) struct Watched<S> {
    inner: S,
    reader: Reader,
    unclear: Arc<AtomicU32>,
}

impl<S> Watched<S> {
    /// Watches what is read from `inner`.
    pub(super) fn new(inner: S) -> (Self, Clarity) {
        let unclear = Arc::new(AtomicU32::new(u32::MAX));
        let clarity = Clarity(Arc::clone(&unclear));
        (Self { inner, reader: Reader::default(), unclear }, clarity)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        if let Some(number) = this.reader.read(new) {
            this.unclear.fetch_min(number, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// Where in a request what comes next belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The head, or empty lines before it.
    #[default]
    Head,
    /// A body, of which this much is to come.
    Body(u64),
    /// The line with the size of a chunk.
    Size(Size),
    /// A chunk, of which this much is to come, with the end of line after it.
    Chunk(u64),
    /// The lines after the last chunk.
    Trailers,
    /// It cannot be told.
    Lost,
}

/// The line with the size of a chunk, as far as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    bytes: u64,
    digits: u32,
    /// Whether the number is over, and extensions follow.
    over: bool,
}

/// What a head says of the length of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    encoded: bool,
    sized: Option<u64>,
}

/// Follows the requests of a connection.
#[derive(Debug, Default)]
struct Reader {
    at: At,
    /// The requests whose heads were seen to their end.
    heads: u32,
    /// The line that is being read, as far as it is looked at, and how long it is.
    line: Vec<u8>,
    length: usize,
    /// What the head that was begun says.
    head: Option<Lengths>,
}

impl Reader {
    /// Takes what came; the number of a request that is not clear, if one was found.
    fn read(&mut self, mut bytes: &[u8]) -> Option<u32> {
        let mut found = None;
        while !bytes.is_empty() {
            match self.at {
                At::Lost => return found.or(Some(self.heads + 1)),
                At::Body(left) | At::Chunk(left) => {
                    let some = left.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(some).unwrap_or(bytes.len()));
                    self.at = match (self.at, left - some) {
                        (At::Body(_), 0) => At::Head,
                        (At::Chunk(_), 0) => At::Size(Size::default()),
                        (At::Body(_), left) => At::Body(left),
                        (_, left) => At::Chunk(left),
                    };
                }
                At::Head | At::Trailers | At::Size(_) => {
                    let byte = bytes.get_u8();
                    found = found.or(self.take(byte));
                }
            }
        }
        if self.at == At::Lost { found.or(Some(self.heads + 1)) } else { found }
    }

    /// One byte of a line.
    fn take(&mut self, byte: u8) -> Option<u32> {
        if let At::Size(size) = self.at {
            self.at = size.after(byte);
            return None;
        }
        if byte != b'\n' {
            self.length += 1;
            if self.line.len() < MAX_LINE {
                self.line.push(byte);
            }
            return None;
        }
        let mut line = std::mem::take(&mut self.line);
        if self.length == line.len() && line.last() == Some(&b'\r') {
            line.pop();
        }
        self.length = 0;
        let found = match self.at {
            At::Trailers if line.is_empty() => {
                self.at = At::Head;
                None
            }
            At::Head if line.is_empty() => self.end_of_head(),
            At::Head => {
                self.header(&line);
                None
            }
            _ => None,
        };
        line.clear();
        self.line = line;
        found
    }

    /// A line of a head; the first one is none of its headers.
    fn header(&mut self, line: &[u8]) {
        let Some(lengths) = &mut self.head else {
            self.head = Some(Lengths::default());
            return;
        };
        let colon = line.iter().position(|byte| *byte == b':');
        let Some((name, value)) = colon.and_then(|colon| line.split_at_checked(colon)) else {
            return;
        };
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            lengths.encoded = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = value.get(1..).unwrap_or_default().trim_ascii();
            // What is no number is refused by the server.
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            lengths.sized = Some(number.unwrap_or(u64::MAX));
        }
    }

    /// What follows a head, if one was begun; the number of its request, if that is not clear.
    fn end_of_head(&mut self) -> Option<u32> {
        let Lengths { encoded, sized } = self.head.take()?;
        self.heads += 1;
        self.at = match (encoded, sized) {
            (true, _) => At::Size(Size::default()),
            (false, None | Some(0)) => At::Head,
            (false, Some(size)) => At::Body(size),
        };
        (encoded && sized.is_some()).then_some(self.heads)
    }
}

impl Size {
    /// What follows one more byte of the line.
    fn after(self, byte: u8) -> At {
        let Self { bytes, digits, over } = self;
        match (byte, char::from(byte).to_digit(16)) {
            // The last one has no contents, but headers may follow.
            (b'\n', _) if digits > 0 && bytes == 0 => At::Trailers,
            // The end of the line after it is part of what is skipped.
            (b'\n', _) if digits > 0 => bytes.checked_add(2).map_or(At::Lost, At::Chunk),
            (b'\n', _) => At::Lost,
            (_, Some(digit)) if !over && digits < MAX_DIGITS => {
                At::Size(Self { bytes: (bytes << 4) | u64::from(digit), digits: digits + 1, over })
            }
            // Extensions, and the end of the line.
            (b'\t' | b' ' | b';' | b'\r', _) if digits > 0 => At::Size(Self { over: true, ..self }),
            _ if over => At::Size(self),
            _ => At::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;

    const BOTH: &str = "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    const NONE: &str = "GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n";
    const SIZED: &str = "\r\nPOST / HTTP/1.1\r\ncontent-length:  5 \r\n\r\na\n\n\nb";
    const CHUNKED: &str = "PUT / HTTP/1.1\nTRANSFER-ENCODING: gzip, chunked\n\n\
                           A;x=\"y\"\r\n0123456789\r\n03 \r\n\r\n\r\r\n0\r\nX: y\r\n\r\n";

    /// The first request that is not clear, however it comes.
    fn first(requests: &[&str]) -> Option<u32> {
        let all = requests.concat();
        let at_once = Reader::default().read(all.as_bytes());
        for size in [1, 2, 3, 7] {
            let mut reader = Reader::default();
            let mut pieces = all.as_bytes().chunks(size);
            let found = pieces.find_map(|piece| reader.read(piece));
            assert_eq!(found, at_once, "in pieces of {size}");
        }
        at_once
    }

    #[test]
    fn a_request_with_two_lengths_is_found_wherever_it_is() {
        assert_eq!(first(&[BOTH]), Some(1));
        let other = "POST / HTTP/1.1\r\nTransfer-Encoding: x\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(first(&[other]), Some(1));
        assert_eq!(first(&[NONE, SIZED, CHUNKED, BOTH]), Some(4));
        assert_eq!(first(&[CHUNKED, NONE, CHUNKED, SIZED, other]), Some(5));
    }

    #[test]
    fn what_is_clear_is_left_alone() {
        assert_eq!(first(&[NONE, SIZED, CHUNKED, NONE, CHUNKED, SIZED, SIZED]), None);
        // What is inside a body is no head.
        let body = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{BOTH}", BOTH.len());
        assert_eq!(first(&[&body, NONE]), None);
        let size =
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", BOTH.len());
        assert_eq!(first(&[&size, BOTH, "\r\n0\r\n\r\n", NONE]), None);
        // A long head takes no memory.
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "transfer-encoding: ".repeat(9999));
        assert_eq!(first(&[&long, NONE]), None);
    }

    #[test]
    fn what_cannot_be_followed_is_not_clear() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for size in ["\r\n", "g\r\n", "-1\r\n", "00000000000000001\r\n", "ffffffffffffffff\r\n"] {
            assert_eq!(first(&[chunked, size]), Some(2), "{size:?}");
        }
    }
}

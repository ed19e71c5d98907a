//! A connection of HTTP/2 whose padding is looked at, which servers leave out unread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long what a client begins with is, and the head of a frame.
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// That a frame is padded.
const PADDED: u8 = 8;

/// The connection. `found` gets the padding of each frame that has some.
pub(super) struct Frames<S, F> {
    stream: S,
    found: F,
    waiting: Vec<u8>,
    greeted: bool,
}

impl<S, F: Fn(&[u8])> Frames<S, F> {
    pub(super) fn new(stream: S, found: F) -> Self {
        Self { stream, found, waiting: Vec::new(), greeted: false }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        if !self.greeted && self.waiting.len() >= PREFACE {
            self.waiting.drain(..PREFACE);
            self.greeted = true;
        }
        while let (true, Some(&[a, b, c, kind, flags, ..])) =
            (self.greeted, self.waiting.first_chunk::<HEAD>())
        {
            let end = HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
            if self.waiting.len() < end {
                return;
            }
            let frame: Vec<u8> = self.waiting.drain(..end).skip(HEAD).collect();
            let Some((length, rest)) = frame.split_first() else { continue };
            // DATA and HEADERS.
            if kind <= 1 && flags & PADDED != 0 {
                let from = rest.len().saturating_sub((*length).into());
                (self.found)(rest.get(from..).unwrap_or_default());
            }
        }
    }
}

impl<S: AsyncRead + Unpin, F: Fn(&[u8]) + Unpin> AsyncRead for Frames<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.take(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Frames<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

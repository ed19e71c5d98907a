//! A stream with bytes that were read already put back in front of it.

use bytes::{Buf as _, Bytes};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first bytes were read already.
#[derive(Debug)]
pub struct Prefixed<S> {
    first: Bytes,
    stream: S,
}

impl<S> Prefixed<S> {
    /// Puts `first` back in front of `stream`.
    pub fn new(first: impl Into<Bytes>, stream: S) -> Self {
        Self { first: first.into(), stream }
    }

    /// The bytes in front that were not read again yet.
    pub fn first(&self) -> &Bytes {
        &self.first
    }

    /// The stream behind them.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Both.
    pub fn into_parts(self) -> (Bytes, S) {
        (self.first, self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, into);
        }
        let length = this.first.len().min(into.remaining());
        if let Some(part) = this.first.get(..length) {
            into.put_slice(part);
        }
        this.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

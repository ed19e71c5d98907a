//! The connection of a client to the daemon's socket.
//!
//! It is watched for what the client says, and for room only while there is none: the client that
//! reads an answer wakes nobody by that (see [`crate::watched`]).

use crate::watched::watched_for;
use rustix::net::{SocketFlags, accept_with};
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// The daemon's socket.
pub(super) struct Door(AsyncFd<UnixListener>);

impl Door {
    /// A socket that listens, and waits for nobody.
    pub(super) fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        watched_for(listener, Interest::READABLE).map(Self)
    }

    /// The next client.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |door: &UnixListener| Ok(UnixStream::from(accept_with(door, flags)?));
        self.0.async_io(Interest::READABLE, accept).await
    }
}

/// A connection.
pub(super) struct Wire {
    stream: AsyncFd<UnixStream>,
    /// Watched for room, while there was none.
    room: Option<AsyncFd<UnixStream>>,
}

impl Wire {
    /// A connection that does not block.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { stream: watched_for(stream, Interest::READABLE)?, room: None })
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: impl Fn(&mut &UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.room.is_none() {
            match send(&mut self.stream.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
        let room = match self.room.take() {
            Some(room) => room,
            None => watched_for(self.stream.get_ref().try_clone()?, Interest::WRITABLE)?,
        };
        loop {
            let Poll::Ready(ready) = room.poll_write_ready(cx) else {
                self.room = Some(room);
                return Poll::Pending;
            };
            // Once there is room it is not watched for any more.
            if let Ok(sent) = ready?.try_io(|room| send(&mut room.get_ref())) {
                return Poll::Ready(sent);
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.stream.poll_read_ready(cx))?;
            let free = buffer.initialize_unfilled();
            let wanted = free.len();
            match ready.try_io(|stream| stream.get_ref().read(free)) {
                Ok(Ok(length)) => {
                    if length > 0 && length < wanted {
                        // That was all; whatever comes next is announced.
                        ready.clear_ready();
                    }
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_nothing) => {}
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, |stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, |stream| stream.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.stream.get_ref().shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        })
    }
}

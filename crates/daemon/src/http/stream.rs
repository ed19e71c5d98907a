//! Bodies that grow.

use hyper::body::{Body, Bytes, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// A body whose pieces come from a channel.
pub(crate) struct Streamed(mpsc::Receiver<Bytes>);

impl Streamed {
    /// The body, and where its pieces are given.
    pub(crate) fn channel() -> (mpsc::Sender<Bytes>, axum::body::Body) {
        let (sender, receiver) = mpsc::channel(4);
        (sender, axum::body::Body::new(Self(receiver)))
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

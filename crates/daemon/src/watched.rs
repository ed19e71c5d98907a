//! Descriptors that are waited for without a thread.
//!
//! A socket of the UNIX domain is announced as writable whenever its peer has read something, and
//! whoever watches for that is woken, on another CPU, for room that nobody waits for. So sockets are
//! watched for what they have to read, and for room only by somebody who found none.

use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor that its holder neither closes nor replaces before it is dropped; every
/// holder in this program is an owner.
pub(crate) fn watched<T: AsRawFd>(holder: T) -> std::io::Result<AsyncFd<T>> {
    watched_for(holder, Interest::READABLE | Interest::WRITABLE)
}

/// The same, for one direction.
#[expect(deprecated, reason = "its successor differs only by being unsafe to call")]
pub(crate) fn watched_for<T: AsRawFd>(
    holder: T,
    interest: Interest,
) -> std::io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(holder, interest)
}

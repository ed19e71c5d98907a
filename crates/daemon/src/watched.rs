//! Descriptors that are waited for without a thread.

use std::os::fd::AsRawFd;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor that its holder neither closes nor replaces before it is dropped; every
/// holder in this program is an owner.
#[expect(deprecated, reason = "its successor differs only by being unsafe to call")]
pub(crate) fn watched<T: AsRawFd>(holder: T) -> std::io::Result<AsyncFd<T>> {
    AsyncFd::new(holder)
}

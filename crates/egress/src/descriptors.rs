//! What an egress process may have open: two sockets for every connection first, and pipes for what
//! is left.

use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most connections at a time; fewer if the system gives fewer descriptors.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Descriptors that stay free of connections, as a share of all: half of it is for pipes, half for
/// whatever else there is.
const SHARE: usize = 20;
/// The size of a pipe between two sockets; a smaller one is not worth its calls.
pub(crate) const PIPE: usize = 512 * 1024;

/// Pipes there are.
static PIPES: AtomicUsize = AtomicUsize::new(0);

/// How many connections there is room for.
pub(crate) fn room() -> usize {
    most_connections(files())
}

fn files() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

fn most_connections(files: usize) -> usize {
    (files.saturating_sub(files / SHARE) / 2).min(MAX_CONNECTIONS)
}

fn most_pipes(files: usize) -> usize {
    files.saturating_sub(most_connections(files) * 2) / 4
}

/// A pipe that bytes move through from one socket to another.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) out: OwnedFd,
    pub(crate) into: OwnedFd,
    _counted: Counted,
}

#[derive(Debug)]
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipe {
    /// One that is worth its calls, if there is room for it and the kernel still gives it.
    pub(crate) fn wide() -> Option<Self> {
        let before = PIPES.fetch_add(1, Ordering::Relaxed);
        let counted = Counted;
        if before >= most_pipes(files()) {
            return None;
        }
        let (out, into) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        fcntl_setpipe_size(&into, PIPE).ok()?;
        Some(Self { out, into, _counted: counted })
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CONNECTIONS, most_connections, most_pipes};

    #[test]
    fn pipes_take_nothing_from_connections() {
        for files in [0, 1, 64, 1024, 4096, 20_000, 65_536, 128 * 1024, usize::MAX] {
            let (connections, pipes) = (most_connections(files), most_pipes(files));
            assert!(connections <= MAX_CONNECTIONS, "{files}");
            assert!(connections * 2 + pipes * 2 <= files, "{files}");
        }
        assert_eq!((most_connections(20_000), most_pipes(20_000)), (9_500, 250));
        assert!(most_pipes(128 * 1024) > MAX_CONNECTIONS);
    }
}

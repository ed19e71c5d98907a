//! Where a command's output comes from, and how it is taken from there.
//!
//! Invariant: a [`Feed`] that is `Idle` has been found empty after its last event, so that the
//! kernel announces whatever comes next; one that may have more is `Queued`. A descriptor is taken
//! out of its epoll set before it is closed: a set watches the open file, which others hold too.
//!
//! Deliberately absent: whose turn it is (`worker` decides).

use super::Stream;
use super::store::{Store, Taken};
use cowork_sys::{Errno, ignore};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::OFlags;
use rustix::pipe::SpliceFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that one feed moves before another one has its turn. The kernel holds the writer up
/// for as long as its bytes are moved, so that a turn is shorter than a large pipe is long.
pub(super) const TURN: usize = 256 * 1024;

/// A turn that moves so much shows that a pipe was full: its writer is held up by us.
pub(super) const BUSY: usize = 48 * 1024;

/// The size that the pipe of a busy writer gets.
const LARGE_PIPE: usize = 1024 * 1024;

/// How many pipes are large at once. The kernel counts their pages against the user, and gives the
/// user's new pipes less than a page each beyond its limit of 64 MiB (`pipe(7)`,
/// `pipe-user-pages-soft`); writers beyond this number keep the size they have.
const LARGE_PIPES: usize = 16;

/// Bytes taken from a terminal at once; its line discipline holds no more (`N_TTY_BUF_SIZE`).
const TERMINAL_READ: usize = 4096;

/// Bytes taken from a terminal in one turn. A pipe of the usual size holds them.
const TERMINAL_TURN: usize = 60 * 1024;

/// More than a terminal holds between its two sides: 8 KiB in flight (`pty_common_install`) and one
/// page for the reader.
const TERMINAL_HOLDS: usize = 128 * 1024;

/// Where a command's output comes from. Duplicates of every descriptor are held by another process
/// for as long as the output must survive this one.
#[derive(Debug)]
pub enum Source {
    /// The end to read of a pipe that the command writes to.
    Pipe {
        /// The stream that it carries.
        stream: Stream,
        /// The end to read.
        from: OwnedFd,
    },
    /// A pseudo-terminal.
    Terminal {
        /// Its controlling side. It becomes non-blocking, for every holder.
        controller: OwnedFd,
        /// The ends to read and to write of a pipe between the terminal and the file. It holds what
        /// has left the terminal and is not in the file yet.
        pipe: (OwnedFd, OwnedFd),
    },
}

impl Source {
    /// The stream that its bytes are of.
    pub fn stream(&self) -> Stream {
        match self {
            Self::Pipe { stream, .. } => *stream,
            Self::Terminal { .. } => Stream::Terminal,
        }
    }
}

/// What is to happen with a feed after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It was found empty.
    Idle,
    /// It may have more.
    More,
    /// It has ended, and everything of it was taken.
    Ended,
    /// It may have more, which nobody takes before a reader has caught up.
    Held,
}

/// Whether a feed waits for the kernel or for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The kernel announces the next byte.
    Idle,
    /// It is in the queue for another turn.
    Queued,
    /// There is nothing more to come.
    Ended,
}

/// A source that is watched.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) stream: Stream,
    pub(super) state: State,
    /// The writers may be gone already: no event tells it once more.
    hung_up: bool,
    watched: Watched,
    between: Option<Between>,
    large: Option<Large>,
}

impl Feed {
    /// Watches a source in an epoll set. The first turn is due without an event.
    pub(super) fn new(source: Source, epoll: &Arc<OwnedFd>, token: u64) -> io::Result<Self> {
        let stream = source.stream();
        let (watched, between) = match source {
            Source::Pipe { from, .. } => (from, None),
            Source::Terminal { controller, pipe: (read, write) } => {
                // A program can empty its terminal (`tcflush`) after it was announced as readable.
                let flags = rustix::fs::fcntl_getfl(&controller)?;
                rustix::fs::fcntl_setfl(&controller, flags | OFlags::NONBLOCK)?;
                (controller, Some(Between { read, write, way: Way::Splice }))
            }
        };
        let watched = Watched::new(watched, epoll, token)?;
        Ok(Self { stream, state: State::Idle, hung_up: true, watched, between, large: None })
    }

    /// Lets another epoll set watch the source as well.
    pub(super) fn join(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        watch(epoll, &self.watched.fd, token)
    }

    /// Lets only `epoll` watch the source, where it is already. The next turn is due without an
    /// event.
    pub(super) fn stay(&mut self, epoll: &Arc<OwnedFd>) {
        let former = std::mem::replace(&mut self.watched.epoll, Arc::clone(epoll));
        self.leave(&former);
        self.hung_up = true;
    }

    /// Takes the source out of an epoll set.
    pub(super) fn leave(&self, epoll: &OwnedFd) {
        self.watched.leave(epoll);
    }

    /// Takes note of an event.
    pub(super) fn announce(&mut self, flags: EventFlags) {
        self.hung_up |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
    }

    /// Moves what there is into the store, at most [`TURN`] bytes. Returns how many bytes it was.
    pub(super) fn turn(
        &mut self,
        store: &mut Store,
        floor: Option<u64>,
    ) -> io::Result<(usize, Next)> {
        let Some(between) = &mut self.between else {
            let taken = store.take(self.stream, self.watched.fd.as_fd(), TURN, floor)?;
            return Ok(match taken {
                Taken::Bytes(moved) => (moved, self.after(moved)),
                Taken::Nothing => {
                    // Only a pipe that has a writer is empty without having ended.
                    self.hung_up = false;
                    (0, Next::Idle)
                }
                Taken::End => (0, Next::Ended),
                Taken::Held => (0, Next::Held),
            });
        };
        let filled = between.fill(self.watched.fd.as_fd())?;
        Ok(match store.take(self.stream, between.read.as_fd(), TURN, floor)? {
            Taken::Held => (0, Next::Held),
            // It may have been the pipe that had no room, and not the terminal that had no more.
            Taken::Bytes(moved) => (moved, Next::More),
            Taken::Nothing | Taken::End if filled == Filled::ToTheEnd => (0, Next::Ended),
            Taken::Nothing | Taken::End => (0, Next::Idle),
        })
    }

    /// How many bytes can be on their way in the kernel, at most.
    pub(super) fn holds(&self) -> usize {
        let size = |pipe| rustix::pipe::fcntl_getpipe_size(pipe).unwrap_or(LARGE_PIPE);
        match &self.between {
            None => size(self.watched.fd.as_fd()),
            Some(between) => size(between.read.as_fd()).saturating_add(TERMINAL_HOLDS),
        }
    }

    /// Makes the pipe of a busy writer larger, if it is not and fewer than [`LARGE_PIPES`] are.
    pub(super) fn enlarge(&mut self, count: &Arc<AtomicUsize>) {
        if self.large.is_none() && self.between.is_none() {
            self.large = Large::new(self.watched.fd.as_fd(), count);
        }
    }

    fn after(&self, moved: usize) -> Next {
        let is_empty = || rustix::io::ioctl_fionread(&self.watched.fd) == Ok(0);
        if self.hung_up || moved >= BUSY || !is_empty() { Next::More } else { Next::Idle }
    }
}

/// What a terminal has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// What it had, or what there was room for.
    SoFar,
    /// The last of it: nobody has the other side open any more.
    ToTheEnd,
}

/// How bytes get out of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Splice,
    /// The kernel does not splice from terminals.
    Copy,
}

/// The pipe between a terminal and its file.
#[derive(Debug)]
struct Between {
    read: OwnedFd,
    write: OwnedFd,
    way: Way,
}

impl Between {
    /// Takes from the terminal what it has and what there is room for.
    fn fill(&mut self, terminal: BorrowedFd<'_>) -> io::Result<Filled> {
        let mut filled = 0;
        while filled <= TERMINAL_TURN {
            match self.step(terminal) {
                Ok(0) | Err(Errno::IO) => return Ok(Filled::ToTheEnd),
                Ok(length) => filled += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INVAL) if self.way == Way::Splice => self.way = Way::Copy,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Filled::SoFar)
    }

    fn step(&self, terminal: BorrowedFd<'_>) -> Result<usize, Errno> {
        match self.way {
            Way::Splice => {
                let flags = SpliceFlags::NONBLOCK;
                rustix::pipe::splice(terminal, None, &self.write, None, TERMINAL_READ, flags)
            }
            Way::Copy => self.copy(terminal),
        }
    }

    /// Reads and writes at most one page. An empty pipe takes a page whole and at once, so that
    /// nothing is left over.
    fn copy(&self, terminal: BorrowedFd<'_>) -> Result<usize, Errno> {
        if rustix::io::ioctl_fionread(&self.read)? > 0 {
            return Err(Errno::AGAIN);
        }
        let mut bytes = [0; TERMINAL_READ];
        let length = rustix::io::read(terminal, &mut bytes)?;
        let Some(read @ [_, ..]) = bytes.get(..length) else { return Ok(0) };
        rustix::io::write(&self.write, read)
    }
}

/// A descriptor in an epoll set.
#[derive(Debug)]
struct Watched {
    fd: OwnedFd,
    epoll: Arc<OwnedFd>,
}

impl Watched {
    fn new(fd: OwnedFd, epoll: &Arc<OwnedFd>, token: u64) -> io::Result<Self> {
        watch(epoll, &fd, token)?;
        Ok(Self { fd, epoll: Arc::clone(epoll) })
    }

    fn leave(&self, epoll: &OwnedFd) {
        // It fails only for a descriptor that is not in the set.
        ignore(epoll::delete(epoll, &self.fd));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.leave(&self.epoll);
    }
}

fn watch(epoll: &OwnedFd, fd: &OwnedFd, token: u64) -> io::Result<()> {
    // Events come in the order in which descriptors became readable only if they come once each;
    // a level-triggered descriptor keeps its place in the list while others pass.
    let flags = EventFlags::IN | EventFlags::ET;
    Ok(epoll::add(epoll, fd, EventData::new_u64(token), flags)?)
}

/// One of the [`LARGE_PIPES`].
#[derive(Debug)]
struct Large(Arc<AtomicUsize>);

impl Large {
    fn new(pipe: BorrowedFd<'_>, count: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |large| (large < LARGE_PIPES).then_some(large + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let large = Self(Arc::clone(count));
        // A refusal (`EPERM` beyond the user's limit) costs speed only.
        ignore(rustix::pipe::fcntl_setpipe_size(pipe, LARGE_PIPE));
        Some(large)
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

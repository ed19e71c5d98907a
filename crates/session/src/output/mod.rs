//! The store of commands' output: complete and in order although the daemon can be killed at any
//! instant.
//!
//! Bytes go from a command's pipes into files by `splice(2)` and are never in this process's
//! memory on the way. One system call takes them out of the pipe and puts them into the page
//! cache, and a fatal signal is acted on only between system calls, so that a byte is either still
//! in the pipe or already in the file. As long as somebody else holds the pipes as well, the next
//! daemon goes on where the file ends.
//!
//! A command's folder has one file per stream (`stdout`, `stderr`, `terminal`) and an `index` that
//! says in which order the streams' pieces arrived; together they are one output with one space of
//! offsets. Invariant: at every instant at most one stream has bytes that the index does not cover
//! yet, and they come after everything that it covers. A record is therefore owed only when the
//! other stream is about to go on, nothing has to be written twice, and the order is known even if
//! the last record is missing.
//!
//! A terminal's controlling side is spliced into a pipe that the other holder keeps as well, and
//! from there into the file. Where the kernel refuses to splice from a terminal (`EINVAL`), its
//! bytes are read and written, and a kill between the two loses up to 4096 of them.
//!
//! Deliberately absent: what a reader is told while it waits (the caller's `wake` decides), the
//! meaning of terminal sequences, and `fsync`: what ends the kernel ends the commands too.

mod feed;
mod index;
mod log;
mod pump;
mod reader;
mod store;
mod worker;

pub use feed::Source;
pub use log::{Consumer, Log};
pub use pump::Pump;
pub use reader::{Piece, Reader};
pub use store::repair;

/// Which of a command's streams a byte came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
    /// What the command's terminal shows: both of them, and the echo of what is typed.
    Terminal,
}

impl Stream {
    /// Every stream, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Terminal];

    /// The number that stands for the stream on disk.
    pub fn code(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Terminal => 3,
        }
    }

    /// The stream that a number stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stream| stream.code() == code)
    }

    /// The name of the stream's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Terminal => "terminal",
        }
    }
}

/// How far a command's output has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of all streams that came, and so the end of the merged output.
    pub total: u64,
    /// Bytes that were let go of because newer ones came, and so the beginning of what is kept.
    pub dropped: u64,
    /// Nothing more will come: every source has ended or was let go of.
    pub finished: bool,
}

/// One value per stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PerStream<T> {
    stdout: T,
    stderr: T,
    terminal: T,
}

impl<T> PerStream<T> {
    fn get(&self, stream: Stream) -> &T {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
            Stream::Terminal => &self.terminal,
        }
    }

    fn get_mut(&mut self, stream: Stream) -> &mut T {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
            Stream::Terminal => &mut self.terminal,
        }
    }
}

/// Where each stream ends.
type Ends = PerStream<u64>;

impl Ends {
    /// The end of the merged output.
    fn total(&self) -> u64 {
        self.stdout.saturating_add(self.stderr).saturating_add(self.terminal)
    }

    /// Whether no stream ends later than in `other`.
    fn within(&self, other: &Self) -> bool {
        Stream::ALL.into_iter().all(|stream| self.get(stream) <= other.get(stream))
    }
}

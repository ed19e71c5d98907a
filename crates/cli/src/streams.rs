//! What the caller's standard streams are, and what of them a session may hold.
//!
//! A descriptor is more than the bytes behind it: through `/proc/self/fd` a file can be opened
//! again with other rights, a pipe can be read backwards, a folder is a way out, a socket can carry
//! descriptors, a terminal can be typed into, and flags are shared by everybody who has it. So none
//! crosses the boundary. Terminals are replaced by one of the session's own, and everything else is
//! copied through a pipe made for it.

use crate::failure::Failure;
use cowork_sys::files::Far;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

/// What one of the caller's standard streams is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A terminal.
    Terminal,
    /// The null device, or closed.
    Null,
    /// A pipe, a file, a socket or another device: copied.
    Other,
}

/// The three streams of the caller.
pub(crate) struct Streams {
    pub(crate) kinds: [Kind; 3],
}

/// Names of the streams, for sentences.
const NAMES: [&str; 3] = ["standard input", "standard output", "standard error"];

impl Streams {
    /// Looks at the streams of this process.
    pub(crate) fn look() -> Result<Self, Failure> {
        let mut kinds = [Kind::Null; 3];
        for ((kind, stream), name) in kinds.iter_mut().zip(own()).zip(NAMES) {
            *kind = kind_of(stream).ok_or_else(|| {
                let hint = "give the command a file or a pipe there, and grant the folder instead";
                Failure::input(format!("{name} is a folder, which would be a way out"), hint)
            })?;
        }
        Ok(Self { kinds })
    }

    /// Whether standard error goes where standard output goes: one pipe then keeps their order.
    pub(crate) fn shared_output(&self) -> bool {
        let [_, output, error] = own().map(|stream| rustix::fs::fstat(stream).ok());
        let same = output.zip(error).is_some_and(|(output, error)| {
            (output.st_dev, output.st_ino) == (error.st_dev, error.st_ino)
        });
        same && self.kinds[1] == Kind::Other && self.kinds[2] == Kind::Other
    }

    /// Whether the command can draw on the terminal.
    pub(crate) fn shows(&self) -> bool {
        self.kinds[1] == Kind::Terminal
    }

    /// Whether the command can be typed to.
    pub(crate) fn interactive(&self) -> bool {
        self.kinds[0] == Kind::Terminal
    }

    /// Whether no person is there to be told something, or to say something.
    pub(crate) fn is_alone(&self) -> bool {
        self.kinds[0] != Kind::Terminal && self.kinds[2] != Kind::Terminal
    }

    /// Whether this process may use its terminal: a job in the background must leave it alone.
    pub(crate) fn in_foreground() -> bool {
        let foreground = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
        foreground.is_ok_and(|group| group == rustix::process::getpgrp())
    }

    /// Treats standard input as if nothing were there.
    pub(crate) fn ignore_input(&mut self) {
        let [input, ..] = &mut self.kinds;
        *input = Kind::Null;
    }

    /// Whether any stream is a terminal.
    pub(crate) fn any_terminal(&self) -> bool {
        self.kinds.contains(&Kind::Terminal)
    }
}

/// This process's standard streams.
pub(crate) fn own() -> [BorrowedFd<'static>; 3] {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
}

/// `None` for a folder.
fn kind_of(stream: BorrowedFd<'_>) -> Option<Kind> {
    let Ok(stat) = rustix::fs::fstat(stream) else { return Some(Kind::Null) };
    Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => return None,
        FileType::CharacterDevice if rustix::termios::isatty(stream) => Kind::Terminal,
        FileType::CharacterDevice if is_null(stat.st_rdev) => Kind::Null,
        _ => Kind::Other,
    })
}

fn is_null(device: u64) -> bool {
    (rustix::fs::major(device), rustix::fs::minor(device)) == (1, 3)
}

/// A pipe whose near end does not wait.
pub(crate) fn copied(direction: Direction) -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (near, far, session) = match direction {
        Direction::Inwards => (write, read, Far::Reads),
        Direction::Outwards => (read, write, Far::Writes),
    };
    session.may_open_again(far.as_fd())?;
    set_nonblocking(near.as_fd())?;
    Ok((near, far))
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into the session.
    Inwards,
    /// Out of it.
    Outwards,
}

/// Only for descriptors of this process's own: the flag belongs to the open file.
pub(crate) fn set_nonblocking(handle: BorrowedFd<'_>) -> Result<(), rustix::io::Errno> {
    let flags = rustix::fs::fcntl_getfl(handle)?;
    rustix::fs::fcntl_setfl(handle, flags | OFlags::NONBLOCK)
}

//! What the caller's terminal says by itself: answers to questions that a command's output put to it.
//!
//! A terminal types its answers as a person types. One that arrives when the command has ended would
//! be read by the next program, most often a shell, as if somebody had typed it. So a terminal that
//! may have been asked something is asked once more at the end, and all that comes up to its answer
//! is thrown away: a terminal answers in order.
//!
//! Deliberately absent: an understanding of what was asked. Colours and the like are known to be no
//! questions; everything else may be one.

use crate::streams::{Kind, Streams, own};
use cowork_sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};
use std::time::{Duration, Instant};

/// How long a terminal is waited for that says nothing. A slower one is not understood as one that
/// answers, and what it says later is read by the next program.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long nothing more must come after the answer: the command may have put our question, too.
const QUIET: Duration = Duration::from_millis(40);
/// How long it goes on at most where something comes all the time.
const LONGEST: Duration = Duration::from_secs(5);
/// Ends whatever the command has begun and not ended, and asks what kind of terminal it is (DA1),
/// which every one knows.
const QUESTION: &[u8] = b"\x1b\\\x1b[c";

const ESC: u8 = 0x1b;
/// No answer to it is longer.
const KEPT: usize = 64;

/// Whether bytes can have been a question to a terminal.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    place: Place,
    asked: bool,
}

/// Where in a sequence of control characters the output is.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// In none.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// Among the numbers of a control sequence.
    Numbers,
    /// Before the name of a set of characters.
    Set,
}

impl Asked {
    /// Looks at output on its way to the terminal.
    pub(crate) fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.asked {
                return;
            }
            self.place = match (self.place, byte) {
                (Place::Text, &ESC) => Place::Escape,
                (Place::Escape, b'[') => Place::Numbers,
                (Place::Escape, b'(' | b')') => Place::Set,
                (Place::Numbers, b'0'..=b'9' | b';' | b':') => Place::Numbers,
                // Colours, and what is erased of a line.
                (Place::Numbers, b'm' | b'K') => Place::Text,
                (Place::Set, b'0' | b'A' | b'B') => Place::Text,
                (Place::Text, byte) if !is_question(*byte) => Place::Text,
                _ => {
                    self.asked = true;
                    Place::Text
                }
            };
        }
    }

    /// Looks at output that is mixed with other output: from both a sequence can be put together.
    pub(crate) fn look_among_others(&mut self, bytes: &[u8]) {
        self.asked |= bytes.iter().any(|byte| *byte == ESC || is_question(*byte));
    }

    /// Throws away what the terminal answers, if it can have been asked anything.
    pub(crate) fn swallow(&mut self, streams: &Streams) {
        let screen =
            [1, 2, 0].into_iter().find(|at| streams.kinds.get(*at) == Some(&Kind::Terminal));
        let screen = screen.and_then(|at| own().get(at).copied());
        if let Some(screen) = screen.filter(|_| std::mem::take(&mut self.asked)) {
            // A terminal that is gone says nothing.
            cowork_sys::ignore(swallow(screen));
        }
    }
}

/// ENQ, and the control characters with the highest bit that are questions or begin some, as they
/// are in whatever encoding.
fn is_question(byte: u8) -> bool {
    [0x05, 0x90, 0x9a, 0x9b, 0x9d, 0x9f].contains(&byte)
}

fn swallow(screen: BorrowedFd<'_>) -> Result<(), Errno> {
    // What is read in the background, and at terminals of others, is not ours to take.
    if tcgetpgrp(screen)? != getpgrp() {
        return Ok(());
    }
    let before = tcgetattr(screen)?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(screen, OptionalActions::Now, &raw)?;
    let heard = both_ways(screen).and_then(|terminal| hear(terminal.as_fd()));
    // Also what came this very moment.
    tcsetattr(screen, OptionalActions::Flush, &before)?;
    heard
}

/// The terminal for reading and writing. As shells hand it over it is that already, and cannot
/// always be opened again: it may be another user's.
fn both_ways(screen: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    if rustix::fs::fcntl_getfl(screen)?.contains(OFlags::RDWR) {
        return rustix::io::fcntl_dupfd_cloexec(screen, 0);
    }
    let path = format!("/proc/self/fd/{}", screen.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

fn hear(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::io::write(terminal, QUESTION)?;
    let begin = Instant::now();
    let mut tail = Vec::new();
    let mut patience = PATIENCE;
    while let Some(left) = LONGEST.checked_sub(begin.elapsed()) {
        let wait = Timespec::try_from(patience.min(left)).map_err(|_large| Errno::RANGE)?;
        let mut watched = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
        match poll(&mut watched, Some(&wait)) {
            Ok(0) => return Ok(()),
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut bytes = [0; 4096];
        let length = rustix::io::read(terminal, &mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        tail.extend_from_slice(bytes.get(..length).unwrap_or_default());
        if has_answer(&tail) {
            patience = QUIET;
        }
        tail.drain(..tail.len().saturating_sub(KEPT));
    }
    Ok(())
}

/// Whether an answer to our question is among these bytes: `ESC [ ? numbers c`.
fn has_answer(bytes: &[u8]) -> bool {
    let starts = bytes.windows(3).enumerate().filter(|(_, start)| start == b"\x1b[?");
    starts.map(|(at, _)| bytes.get(at + 3..).unwrap_or_default()).any(|rest| {
        let numbers = rest.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b';')).count();
        rest.get(numbers) == Some(&b'c')
    })
}

#[cfg(test)]
mod tests {
    use super::{Asked, has_answer};

    fn asked(pieces: &[&[u8]]) -> bool {
        let mut asked = Asked::default();
        for piece in pieces {
            asked.look(piece);
        }
        asked.asked
    }

    #[test]
    fn text_and_colours_ask_nothing() {
        assert!(!asked(&[b"plain \t\r\n\x07 text"]));
        assert!(!asked(&[b"\x1b[1;38:5:3mred\x1b[0m\x1b[K\x1b(B\x1b[m"]));
        assert!(!asked(&["naïve ─│".as_bytes()]));
    }

    #[test]
    fn whatever_else_has_an_escape_may_be_a_question() {
        for question in [
            &b"\x1b[6n"[..],
            b"\x1b[c",
            b"\x1b[>c",
            b"\x1bZ",
            b"\x05",
            b"\x9b6n",
            b"\xc2\x9b6n",
            b"\x1b[?4m",
            b"\x1b]11;?\x07",
            b"\x1bP+q544e\x1b\\",
            b"\x1b[3\x1b[6nm",
            b"\x1b\x1b[6n",
        ] {
            assert!(asked(&[question]), "{question:?}");
            let apart: Vec<&[u8]> = question.chunks(1).collect();
            assert!(asked(&apart), "{question:?} in pieces");
        }
    }

    #[test]
    fn of_mixed_output_every_sequence_may_be_one() {
        let mut asked = Asked::default();
        asked.look_among_others(b"text");
        assert!(!asked.asked);
        asked.look_among_others(b"\x1b[0m");
        assert!(asked.asked);
    }

    #[test]
    fn the_answer_is_known_among_others() {
        assert!(has_answer(b"\x1b[12;40R\x1b[?62;22c"));
        assert!(has_answer(b"\x1b[?6c\x1b[1;1R"));
        assert!(!has_answer(b"\x1b[>0;276;0c"));
        assert!(!has_answer(b"\x1b[?62;2"));
    }
}

//! The caller's terminal: its size, and every key to the session while a command has it.

use crate::streams::{Streams, own};
use cowork_client::types::Size;
use cowork_sys::Errno;
use rustix::fd::BorrowedFd;
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr};

/// The size of the caller's terminal, if one of its streams is one.
pub(crate) fn window() -> Option<Winsize> {
    own().into_iter().find_map(|stream| tcgetwinsize(stream).ok())
}

/// The same, for the daemon; a terminal that does not know its size has none.
pub(crate) fn size() -> Option<Size> {
    let window = window().filter(|window| window.ws_col > 0 && window.ws_row > 0)?;
    Some(Size { columns: window.ws_col, rows: window.ws_row })
}

/// The caller's terminal in raw mode; as it was when this is dropped.
pub(crate) struct RawTerminal {
    terminal: BorrowedFd<'static>,
    before: Termios,
}

impl RawTerminal {
    /// If the command does not draw there, other programs may, and their output keeps its form.
    pub(crate) fn enter(streams: &Streams) -> Result<Self, Errno> {
        let terminal = rustix::stdio::stdin();
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        if !streams.shows() {
            raw.output_modes = before.output_modes;
        }
        tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        cowork_sys::ignore(tcsetattr(self.terminal, OptionalActions::Now, &self.before));
    }
}

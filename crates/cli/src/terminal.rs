//! The caller's terminal: its size, every key to the session while a command has it, and answers
//! that are not shown.

use crate::streams::{Streams, own};
use cowork_client::types::Size;
use cowork_sys::Errno;
use rustix::fd::BorrowedFd;
use rustix::termios::{
    LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::io::Write;

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
        // What was typed meanwhile was for the command. A terminal that is gone needs no settings.
        cowork_sys::ignore(tcsetattr(self.terminal, OptionalActions::Flush, &self.before));
    }
}

/// Asks for a line that is not shown while it is typed. Nothing comes of it if whoever types it
/// changes their mind (Ctrl-C, or Ctrl-D at its beginning).
///
/// The terminal hands over every key, because it would cut a line at 4095 bytes and would stay
/// without echo if Ctrl-C ended this program.
pub(crate) fn hidden(question: &str, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let quiet = Quiet::enter()?;
    tell(question);
    let mut line = Vec::new();
    let mut keys = [0; 256];
    let answer = 'line: loop {
        let length = rustix::io::retry_on_intr(|| rustix::io::read(quiet.terminal, &mut keys))?;
        let typed = keys.get(..length).unwrap_or_default();
        if typed.is_empty() {
            break None;
        }
        for key in typed.iter().copied() {
            match key {
                b'\n' | b'\r' => break 'line Some(line),
                CTRL_C => break 'line None,
                CTRL_D if line.is_empty() => break 'line None,
                CTRL_D => break 'line Some(line),
                BACKSPACE | DELETE => drop(line.pop()),
                CTRL_U => line.clear(),
                // A line that is too long is kept long enough for it to be noticed.
                key if u64::try_from(line.len()).is_ok_and(|length| length <= most) => {
                    line.push(key);
                }
                _ => {}
            }
        }
    };
    drop(quiet);
    tell("\n");
    Ok(answer)
}

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const CTRL_U: u8 = 21;
const DELETE: u8 = 127;

fn tell(text: &str) {
    let mut stderr = std::io::stderr();
    // A question that cannot be shown is still asked.
    cowork_sys::ignore(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// The caller's terminal without echo, key by key; as it was when this is dropped.
struct Quiet {
    terminal: BorrowedFd<'static>,
    before: Termios,
}

impl Quiet {
    fn enter() -> Result<Self, Errno> {
        let terminal = rustix::stdio::stdin();
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        cowork_sys::ignore(tcsetattr(self.terminal, OptionalActions::Flush, &self.before));
    }
}

//! Frames of an attached command: after the daemon has agreed to upgrade the connection to
//! [`PROTOCOL`], both sides send frames and nothing else.
//!
//! A frame is one byte that names its channel, four bytes with the length of what follows
//! (big-endian), and that.

use crate::types::{Command, SignalCommand, Size};
use serde::{Deserialize, Serialize};

/// What the connection is upgraded to.
pub const PROTOCOL: &str = "cowork-stream/1";

/// Bytes before the contents of a frame.
pub const HEADER: usize = 5;

/// Longest contents of a frame.
pub const MAX_FRAME: usize = 1024 * 1024;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelId {
    /// To the command; an empty frame is its end.
    Stdin,
    /// From the command.
    Stdout,
    /// From the command.
    Stderr,
    /// From the command's terminal.
    Terminal,
    /// [`ToDaemon`] or [`FromDaemon`], as JSON.
    Control,
}

impl ChannelId {
    /// The byte that says so.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Terminal => 3,
            Self::Control => 4,
        }
    }

    /// What a byte says.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Stdin),
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Terminal),
            4 => Some(Self::Control),
            _ => None,
        }
    }
}

/// The bytes before the contents of a frame.
pub fn header(channel: ChannelId, length: usize) -> [u8; HEADER] {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let [a, b, c, d] = length;
    [channel.byte(), a, b, c, d]
}

/// What a header says: the channel, and how much follows.
pub fn parse(header: [u8; HEADER]) -> Option<(ChannelId, usize)> {
    let [channel, a, b, c, d] = header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    let channel = ChannelId::from_byte(channel)?;
    (length <= MAX_FRAME).then_some((channel, length))
}

/// From whoever is attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToDaemon {
    /// Pass a signal on.
    Signal(SignalCommand),
    /// The terminal has another size.
    Resize(Size),
    /// Leave the command running, and this connection.
    Detach,
}

/// To whoever is attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FromDaemon {
    /// First of all: the command, as it was started.
    Started(Box<Command>),
    /// Last of all: the command, when it has ended and its output was sent.
    Ended(Box<Command>),
}

#[cfg(test)]
mod tests {
    use super::{ChannelId, MAX_FRAME, header, parse};

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for byte in 0..=5 {
            let Some(channel) = ChannelId::from_byte(byte) else { continue };
            for length in [0, 1, 70_000, MAX_FRAME] {
                assert_eq!(parse(header(channel, length)), Some((channel, length)));
            }
        }
        assert_eq!(parse(header(ChannelId::Stdin, MAX_FRAME + 1)), None);
        assert_eq!(parse([9, 0, 0, 0, 0]), None);
    }
}

//! What commands do: they write streams that are known to the byte.

use cowork_client::types::{Command, CommandState};
use std::fmt::Write as _;

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A few lines.
    Small,
    /// 100 kB on each stream.
    Large,
    /// A few lines over a second.
    Slow,
    /// A few lines, with a connection before each that goes by way of the broker.
    Connecting,
}

impl Work {
    /// One of them, for a number below 10.
    pub(crate) fn choose(number: u64) -> Self {
        match number {
            0..=4 => Self::Small,
            5..=6 => Self::Large,
            7..=8 => Self::Slow,
            _ => Self::Connecting,
        }
    }

    /// The line of the shell. Each is one process: a shell says on standard error that a child of
    /// its was ended.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Self::Small => "printf '%s\\n' {1..40}; printf '%s\\n' {101..140} >&2",
            Self::Large => {
                "printf '%s\\n' {1000000..1012499}; printf '%s\\n' {2000000..2012499} >&2"
            }
            Self::Slow => {
                "exec /usr/bin/python3 -uc 'import os, time\n\
                 for i in range(1, 41):\n \
                 os.write(1, b\"%d\\n\" % i); os.write(2, b\"%d\\n\" % (100 + i)); time.sleep(0.025)'"
            }
            // A call that its broker had in work when it died fails, and is made again.
            Self::Connecting => {
                "exec /usr/bin/python3 -uc 'import os, socket, time\n\
                 server = socket.socket(socket.AF_UNIX)\n\
                 def bind(i):\n \
                  global name; name = \"/tmp/%d.%d.sock\" % (os.getpid(), i)\n \
                  try: server.bind(name); return True\n \
                  except InterruptedError: return server.getsockname() == name\n\
                 any(map(bind, range(100))) or exit(8); server.listen(100)\n\
                 def connect():\n \
                  try: socket.socket(socket.AF_UNIX).connect(name); return True\n \
                  except OSError: time.sleep(0.01); return False\n\
                 for i in range(1, 41):\n \
                  any(connect() for _ in range(500)) or exit(9); server.accept()\n \
                  os.write(1, b\"%d\\n\" % i); os.write(2, b\"%d\\n\" % (100 + i)); time.sleep(0.025)'"
            }
        }
    }

    /// All that it writes to standard output and to standard error.
    pub(crate) fn streams(self) -> [String; 2] {
        match self {
            Self::Small | Self::Slow | Self::Connecting => [count(1, 40), count(101, 140)],
            Self::Large => [count(1_000_000, 1_012_499), count(2_000_000, 2_012_499)],
        }
    }

    /// Compares what a command that has ended wrote with what it must have written: all of it if it
    /// ended by itself, else a part from the start.
    pub(crate) fn judge(self, command: &Command, found: &[Vec<u8>; 2]) -> Result<(), String> {
        let by_itself = command.state == CommandState::Exited
            && command.signal.is_none()
            && command.reason.is_none();
        if by_itself && command.code != Some(0) {
            return Err(format!("it failed: {}", String::from_utf8_lossy(&found[1])));
        }
        let total: usize = found.iter().map(Vec::len).sum();
        let told = usize::try_from(command.output).unwrap_or(usize::MAX);
        // What was in the pipes of one that was interrupted may come after its end.
        let accounted = if by_itself { told == total } else { told <= total };
        if command.dropped != 0 || !accounted {
            return Err(format!("{total} bytes are found"));
        }
        for (found, wanted) in found.iter().zip(self.streams()) {
            let whole = !by_itself || found.len() == wanted.len();
            if !whole || !wanted.as_bytes().starts_with(found) {
                let end = found.len().saturating_sub(120);
                let end = String::from_utf8_lossy(&found[end..]).into_owned();
                let (found, wanted) = (found.len(), wanted.len());
                return Err(format!("{found} of {wanted} bytes, or others, at the end {end:?}"));
            }
        }
        Ok(())
    }
}

/// Numbers, each in a line.
fn count(first: u32, last: u32) -> String {
    (first..=last).fold(String::new(), |mut text, number| {
        writeln!(text, "{number}").expect("memory suffices");
        text
    })
}

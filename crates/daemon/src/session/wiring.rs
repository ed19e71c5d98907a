//! The streams of a command: pipes and a terminal, which end is whose, and in which order the
//! keeper keeps ours for the next daemon.

use crate::trouble::Trouble;
use cowork_api::guest::{Execute, Stdio};
use cowork_client::types::{Size, StreamKind, Streams};
use cowork_session::output::{Source, Stream};
use cowork_sys::Errno;
use cowork_sys::files::Far;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{OptionalActions, Winsize};

/// Our ends of a command's streams.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
    /// Through which the terminal's output passes.
    pub(crate) passage: Option<(OwnedFd, OwnedFd)>,
}

/// Whether any stream is a terminal.
pub(crate) fn has_terminal(streams: Streams) -> bool {
    [streams.stdin, streams.stdout, streams.stderr].contains(&StreamKind::Terminal)
}

/// Refuses streams that cannot be.
pub(crate) fn check(streams: Streams) -> Result<(), Trouble> {
    if streams.stdin == StreamKind::Stdout || streams.stdout == StreamKind::Stdout {
        return Err(Trouble::refused(
            "bad-streams",
            "only standard error can go where standard output goes",
        ));
    }
    Ok(())
}

/// The size of a terminal nobody has looked at.
const SIZE: Size = Size { columns: 80, rows: 24 };

impl Ends {
    /// Connects a command's streams: what it gets is added to `execute` and returned.
    pub(crate) fn connect(
        streams: Streams,
        terminal: Option<OwnedFd>,
        size: Option<Size>,
        execute: &mut Execute,
    ) -> Result<(Self, Vec<OwnedFd>), Trouble> {
        let failed = |errno: Errno| {
            Trouble::host("cannot connect the command's streams", std::io::Error::from(errno))
        };
        let mut ends = Self::default();
        let mut handles = Vec::new();
        let slave = match &terminal {
            Some(terminal) => {
                resize(terminal.as_fd(), size.unwrap_or(SIZE)).map_err(failed)?;
                Some(slave_of(terminal.as_fd()).map_err(failed)?)
            }
            None => None,
        };
        let kinds = [streams.stdin, streams.stdout, streams.stderr];
        for (index, kind) in kinds.into_iter().enumerate() {
            let handle = match (kind, &slave) {
                (StreamKind::Null, _) => continue,
                (StreamKind::Stdout, _) => {
                    let [_, output, error] = &mut execute.stdio;
                    *error = *output;
                    continue;
                }
                (StreamKind::Terminal, Some(slave)) => {
                    slave.try_clone().map_err(|_full| failed(Errno::MFILE))?
                }
                (StreamKind::Pipe | StreamKind::Terminal, _) => {
                    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
                    let far = if index == 0 { Far::Reads } else { Far::Writes };
                    far.may_open_again(read.as_fd()).map_err(failed)?;
                    match index {
                        0 => {
                            set_nonblocking(write.as_fd()).map_err(failed)?;
                            ends.stdin = Some(write);
                            read
                        }
                        1 => {
                            ends.stdout = Some(read);
                            write
                        }
                        _ => {
                            ends.stderr = Some(read);
                            write
                        }
                    }
                }
            };
            let position = u8::try_from(handles.len()).unwrap_or(0);
            if let Some(place) = execute.stdio.get_mut(index) {
                *place = Stdio::Passed(position);
            }
            handles.push(handle);
        }
        if let (Some(terminal), Some(slave)) = (terminal, slave) {
            if streams.stdin == StreamKind::Terminal {
                execute.terminal = true;
            } else {
                // Whoever shows the output turns line ends into carriage returns itself.
                let mut settings = rustix::termios::tcgetattr(&slave).map_err(failed)?;
                settings.output_modes -= rustix::termios::OutputModes::OPOST;
                rustix::termios::tcsetattr(&slave, OptionalActions::Now, &settings)
                    .map_err(failed)?;
            }
            set_nonblocking(terminal.as_fd()).map_err(failed)?;
            ends.terminal = Some(terminal);
            ends.passage = Some(pipe_with(PipeFlags::CLOEXEC).map_err(failed)?);
        }
        Ok((ends, handles))
    }

    /// Our ends but for the input, in the order in which the keeper keeps them.
    pub(crate) fn deposit(&self) -> Vec<BorrowedFd<'_>> {
        let passage = self.passage.as_ref();
        let all = [
            self.stdout.as_ref(),
            self.stderr.as_ref(),
            self.terminal.as_ref(),
            passage.map(|(read, _)| read),
            passage.map(|(_, write)| write),
        ];
        all.into_iter().flatten().map(AsFd::as_fd).collect()
    }

    /// Our ends again but for the input, from what the keeper kept.
    pub(crate) fn withdrawn(streams: Streams, handles: Vec<OwnedFd>) -> Self {
        let mut handles = handles.into_iter();
        let mut take = |wanted: bool| if wanted { handles.next() } else { None };
        let stdout = take(streams.stdout == StreamKind::Pipe);
        let stderr = take(streams.stderr == StreamKind::Pipe);
        let terminal = take(has_terminal(streams));
        let read = take(has_terminal(streams));
        let write = take(has_terminal(streams));
        Self { stdin: None, stdout, stderr, terminal, passage: read.zip(write) }
    }

    /// Where output comes from.
    pub(crate) fn sources(&mut self) -> std::io::Result<Vec<Source>> {
        let mut sources = Vec::new();
        let pipes = [(Stream::Stdout, self.stdout.take()), (Stream::Stderr, self.stderr.take())];
        for (stream, from) in pipes {
            if let Some(from) = from {
                sources.push(Source::Pipe { stream, from });
            }
        }
        if let (Some(terminal), Some(pipe)) = (&self.terminal, self.passage.take()) {
            sources.push(Source::Terminal { controller: terminal.try_clone()?, pipe });
        }
        Ok(sources)
    }
}

/// The number under which the keeper keeps our end of a command's input. It is let go of before the
/// others: the command's input ends when nobody holds that end.
pub(crate) fn input_of(command: u32) -> u32 {
    command | 1 << 31
}

/// Gives a terminal another size.
pub(crate) fn resize(terminal: BorrowedFd<'_>, size: Size) -> Result<(), Errno> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size)
}

/// The side of a terminal that a command gets.
fn slave_of(terminal: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    use rustix::pty::OpenptFlags;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    rustix::pty::unlockpt(terminal)?;
    rustix::pty::ioctl_tiocgptpeer(terminal, flags)
}

fn set_nonblocking(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(handle)?;
    rustix::fs::fcntl_setfl(handle, flags | rustix::fs::OFlags::NONBLOCK)
}

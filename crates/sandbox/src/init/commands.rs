//! Starting commands, signalling them, and telling their clients how they ended.

use crate::channel::{Channel, Packet, Peer};
use cowork_api::guest::{Ending, Execute, FromInit, Refusal, Stdio, ToInit, Usage, Whom};
use cowork_sys::Errno;
use cowork_sys::signal::{Reaped, reap};
use cowork_sys::spawn::{Command, SpawnError, Stack, Stage, Terminal, spawn};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::CString;

/// Most commands that one session runs at a time; a further one is refused.
const MAX_COMMANDS: usize = 4096;

/// The commands of a session that have not ended.
pub(crate) struct Commands {
    channel: Channel,
    running: Vec<Running>,
    stack: Stack,
    /// The session's null device, for streams that are not given.
    null: OwnedFd,
}

struct Running {
    command: u32,
    pid: i32,
    /// The terminal it was given, to find its foreground group.
    terminal: Option<OwnedFd>,
}

impl Commands {
    pub(crate) fn new(channel: Channel) -> Result<Self, Errno> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { channel, running: Vec::new(), stack: Stack::default(), null })
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Reads one message and acts on it. `false` when nobody can send one any more.
    pub(crate) fn hear(&mut self) -> Result<bool, Errno> {
        let packet = match self.channel.receive(Peer::Trusted) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(false),
            // A message that cannot be read is dropped, and the next one is heard.
            Err(Errno::BADMSG | Errno::MSGSIZE) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        let Packet { bytes, handles } = packet;
        match cowork_api::decode::<ToInit>(&bytes) {
            Ok(ToInit::Ping { nonce }) => self.tell(&FromInit::Pong { nonce }, &[]),
            Ok(ToInit::Execute(execute)) => self.execute(&execute, &handles),
            Ok(ToInit::Signal { command, signal, whom }) => self.signal(command, signal, whom),
            Ok(ToInit::OpenTerminal { nonce }) => self.open_terminal(nonce),
            Ok(ToInit::Count { nonce, folder }) => {
                let entries = count(&folder);
                self.tell(&FromInit::Counted { nonce, entries }, &[]);
            }
            Err(_malformed) => {}
        }
        Ok(true)
    }

    /// Collects every child that has ended. Orphans that were adopted are buried in silence.
    pub(crate) fn bury(&mut self) -> Result<(), Errno> {
        while let Some(Reaped { pid, ending, usage }) = reap()? {
            let Some(index) = self.running.iter().position(|running| running.pid == pid) else {
                continue;
            };
            let ended = self.running.swap_remove(index);
            let ending = match ending {
                cowork_sys::signal::Ending::Status(status) => Ending::Status(status),
                cowork_sys::signal::Ending::Signal(signal) => Ending::Signal(signal),
            };
            let usage = Usage {
                user_us: u64::try_from(usage.user.as_micros()).unwrap_or(u64::MAX),
                system_us: u64::try_from(usage.system.as_micros()).unwrap_or(u64::MAX),
                peak_kib: usage.peak_kib,
            };
            self.tell(&FromInit::Ended { command: ended.command, ending, usage }, &[]);
        }
        Ok(())
    }

    /// A client that does not read must not stop the session: PID 1 never waits for one. Whoever
    /// keeps a socket full loses messages, and sees the end of its command by other means.
    fn tell(&self, message: &FromInit, handles: &[BorrowedFd<'_>]) {
        cowork_sys::ignore(self.channel.try_send(&cowork_api::encode(message), handles));
    }

    fn execute(&mut self, execute: &Execute, handles: &[OwnedFd]) {
        let command = execute.command;
        let answer = match self.start(execute, handles) {
            Ok(pid) => FromInit::Started { command, pid },
            Err(why) => FromInit::Refused { command, why },
        };
        self.tell(&answer, &[]);
    }

    fn start(&mut self, execute: &Execute, handles: &[OwnedFd]) -> Result<i32, Refusal> {
        if self.running.iter().any(|running| running.command == execute.command) {
            return Err(Refusal::Malformed("the command's number is in use".into()));
        }
        if self.running.len() >= MAX_COMMANDS {
            let step = format!("start more than {MAX_COMMANDS} commands at a time");
            return Err(Refusal::Failed { step, errno: Errno::AGAIN.raw_os_error() });
        }
        let arguments = c_strings(&execute.arguments)?;
        let environment = c_strings(&execute.environment)?;
        let programs = programs(execute)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = crate::kernel::path_of(&execute.folder);
        let folder = rustix::fs::openat(CWD, folder, flags, Mode::empty())
            .map_err(|errno| Refusal::Folder { errno: errno.raw_os_error() })?;
        let mut stdio = [self.null.as_fd(); 3];
        for (place, wanted) in stdio.iter_mut().zip(execute.stdio) {
            if let Stdio::Passed(index) = wanted {
                let handle = handles.get(usize::from(index)).ok_or_else(|| {
                    Refusal::Malformed("a standard stream names no descriptor".into())
                })?;
                *place = handle.as_fd();
            }
        }
        let terminal = if execute.terminal { Terminal::Controlling } else { Terminal::Absent };
        let keep = match terminal {
            Terminal::Absent => None,
            Terminal::Controlling => stdio[0].try_clone_to_owned().ok(),
        };
        let wanted = Command {
            programs: &programs,
            arguments: &arguments,
            environment: &environment,
            stdio,
            folder: folder.as_fd(),
            terminal,
            umask: execute.umask.0,
        };
        let pid = match spawn(&wanted, &mut self.stack) {
            Err(SpawnError { stage: Stage::Execute, errno: Errno::NOEXEC }) => {
                spawn_script(&wanted, &mut self.stack)
            }
            result => result,
        };
        let pid = pid.map_err(refusal)?;
        self.running.push(Running { command: execute.command, pid, terminal: keep });
        Ok(pid)
    }

    fn signal(&self, command: u32, signal: i32, whom: Whom) {
        let Some(running) = self.running.iter().find(|running| running.command == command) else {
            return;
        };
        let (Some(pid), Some(signal)) =
            (Pid::from_raw(running.pid), Signal::from_named_raw(signal))
        else {
            return;
        };
        // A command that has ended in between needs no signal.
        match whom {
            Whom::Leader => drop(kill_process(pid, signal)),
            Whom::Group => drop(kill_process_group(pid, signal)),
            Whom::Foreground => {
                let foreground = running.terminal.as_ref();
                let group = foreground.and_then(|tty| rustix::termios::tcgetpgrp(tty).ok());
                cowork_sys::ignore(kill_process_group(group.unwrap_or(pid), signal));
            }
        }
    }

    fn open_terminal(&self, nonce: u64) {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open("/dev/ptmx", flags, Mode::empty()) {
            Ok(terminal) => {
                self.tell(&FromInit::Terminal { nonce, errno: 0 }, &[terminal.as_fd()]);
            }
            Err(errno) => {
                let errno = errno.raw_os_error();
                self.tell(&FromInit::Terminal { nonce, errno }, &[]);
            }
        }
    }
}

/// A text file without an interpreter line is run by the shell, as `execvp` does.
fn spawn_script(wanted: &Command<'_>, stack: &mut Stack) -> Result<i32, SpawnError> {
    let script = wanted.programs.iter().find(|program| {
        rustix::fs::accessat(
            wanted.folder,
            program.as_c_str(),
            rustix::fs::Access::EXEC_OK,
            rustix::fs::AtFlags::empty(),
        )
        .is_ok()
    });
    let mut arguments: Vec<CString> = vec![c"sh".into()];
    arguments.extend(script.cloned());
    arguments.extend(wanted.arguments.iter().skip(1).cloned());
    let shell = Command {
        programs: &[c"/bin/sh".into()],
        arguments: &arguments,
        environment: wanted.environment,
        stdio: wanted.stdio,
        folder: wanted.folder,
        terminal: wanted.terminal,
        umask: wanted.umask,
    };
    spawn(&shell, stack)
}

fn count(folder: &[u8]) -> Option<u64> {
    let entries = std::fs::read_dir(crate::kernel::path_of(folder)).ok()?;
    u64::try_from(entries.count()).ok()
}

fn c_strings(texts: &[Vec<u8>]) -> Result<Vec<CString>, Refusal> {
    texts
        .iter()
        .map(|text| CString::new(text.as_slice()))
        .collect::<Result<_, _>>()
        .map_err(|_nul| Refusal::Malformed("an argument contains a NUL".into()))
}

/// Where the program may be: its path, or its name in each folder of `PATH`.
fn programs(execute: &Execute) -> Result<Vec<CString>, Refusal> {
    let name = execute.arguments.first().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::Malformed("there is no program to start".into()))?;
    if name.contains(&b'/') {
        return c_strings(std::slice::from_ref(name));
    }
    let path = execute.environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
    let path = path.unwrap_or(b"/usr/bin:/bin");
    let candidates: Vec<Vec<u8>> = path
        .split(|byte| *byte == b':')
        .map(|folder| if folder.is_empty() { b"." } else { folder })
        .map(|folder| [folder, b"/", name.as_slice()].concat())
        .collect();
    c_strings(&candidates)
}

fn refusal(error: SpawnError) -> Refusal {
    let errno = error.errno.raw_os_error();
    match (error.stage, error.errno) {
        (Stage::Execute, Errno::NOENT | Errno::NOTDIR) => Refusal::NotFound,
        (Stage::Execute, _) => Refusal::NotExecutable { errno },
        (Stage::Folder, _) => Refusal::Folder { errno },
        (Stage::Clone, _) => Refusal::Failed { step: "make a process".into(), errno },
        (Stage::Terminal, _) => Refusal::Failed { step: "take the terminal".into(), errno },
        (Stage::Stdio, _) => Refusal::Failed { step: "place the standard streams".into(), errno },
    }
}

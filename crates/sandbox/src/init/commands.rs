//! Starting commands, signalling them, and telling their clients how they ended.
//!
//! How a command ended is kept until a client has acknowledged it: a client may die between hearing
//! it and writing it down, and the next one asks. PID 1 never waits for a client that does not read.

use crate::channel::{Channel, Packet, Peer};
use crate::init::outbox::Outbox;
use crate::init::tree;
use cowork_api::guest::{Ending, Execute, FromInit, Refusal, Stdio, ToInit, Usage, Whom};
use cowork_sys::Errno;
use cowork_sys::signal::{Reaped, reap, signal_everybody};
use cowork_sys::spawn::{Command, SpawnError, Stack, Stage, Terminal, spawn};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::VecDeque;
use std::ffi::CString;

/// Most commands of one session that run, or have ended without that being acknowledged. A further
/// one is refused.
const MAX_COMMANDS: usize = 1024;

/// The commands of a session.
pub(crate) struct Commands {
    channel: Channel,
    outbox: Outbox,
    running: Vec<Running>,
    /// Those that have ended, the longest ago first.
    ended: VecDeque<Ended>,
    client: Client,
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

struct Ended {
    command: u32,
    /// What its process id was; processes that it left behind may still bear it as their session.
    pid: i32,
    ending: Ending,
    usage: Usage,
}

/// What kind of client there has been so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// One that takes what it hears and dies with its session: old endings can be forgotten.
    Passing,
    /// One that acknowledges: no ending is forgotten before that.
    Recording,
}

impl Commands {
    pub(crate) fn new(channel: Channel) -> Result<Self, Errno> {
        // Standard input is the null device; opening it anew would be a call for the broker.
        let null = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
        Ok(Self {
            channel,
            outbox: Outbox::default(),
            running: Vec::new(),
            ended: VecDeque::new(),
            client: Client::Passing,
            stack: Stack::default(),
            null,
        })
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether messages wait until the socket has room.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what waited, as far as there is room.
    pub(crate) fn send_waiting(&mut self) {
        self.outbox.flush(&self.channel);
    }

    /// Reads one message and acts on it. `false` when nobody can send one any more.
    pub(crate) fn hear(&mut self) -> Result<bool, Errno> {
        let packet = match self.channel.try_receive(Peer::Trusted) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(false),
            // A message that cannot be read is dropped, and the next one is heard.
            Err(Errno::BADMSG | Errno::MSGSIZE | Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        let Packet { bytes, handles } = packet;
        match cowork_api::decode::<ToInit>(&bytes) {
            Ok(ToInit::Ping { nonce }) => self.tell(&FromInit::Pong { nonce }, None),
            Ok(ToInit::Execute(execute)) => self.execute(&execute, &handles),
            Ok(ToInit::Signal { command, signal, whom }) => self.signal(command, signal, whom),
            Ok(ToInit::OpenTerminal { nonce }) => self.open_terminal(nonce),
            Ok(ToInit::Count { nonce, folder }) => {
                let entries = count(&folder);
                self.tell(&FromInit::Counted { nonce, entries }, None);
            }
            Ok(ToInit::Report { nonce }) => self.report(nonce),
            Ok(ToInit::Acknowledge { command }) => {
                self.client = Client::Recording;
                self.ended.retain(|ended| ended.command != command);
            }
            Ok(ToInit::SignalAll { signal }) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // In a session without processes there is nobody to hear it.
                    cowork_sys::ignore(signal_everybody(signal));
                }
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
            let command = self.running.swap_remove(index).command;
            let ending = match ending {
                cowork_sys::signal::Ending::Status(status) => Ending::Status(status),
                cowork_sys::signal::Ending::Signal(signal) => Ending::Signal(signal),
            };
            let usage = Usage {
                user_us: u64::try_from(usage.user.as_micros()).unwrap_or(u64::MAX),
                system_us: u64::try_from(usage.system.as_micros()).unwrap_or(u64::MAX),
                peak_kib: usage.peak_kib,
                read: usage.read,
                written: usage.written,
            };
            self.ended.push_back(Ended { command, pid, ending, usage });
            self.tell(&FromInit::Ended { command, ending, usage }, None);
        }
        Ok(())
    }

    fn report(&mut self, nonce: u64) {
        self.client = Client::Recording;
        let running = self.running.iter().map(|running| (running.command, running.pid)).collect();
        let ended =
            self.ended.iter().map(|ended| (ended.command, ended.ending, ended.usage)).collect();
        self.tell(&FromInit::Report { nonce, running, ended }, None);
    }

    /// Tells the client something, now or when it has read what it was told before.
    fn tell(&mut self, message: &FromInit, handle: Option<OwnedFd>) {
        self.outbox.send(&self.channel, cowork_api::encode(message), handle);
    }

    fn execute(&mut self, execute: &Execute, handles: &[OwnedFd]) {
        let command = execute.command;
        let answer = match self.start(execute, handles) {
            Ok(pid) => FromInit::Started { command, pid },
            Err(why) => FromInit::Refused { command, why },
        };
        self.tell(&answer, None);
    }

    fn start(&mut self, execute: &Execute, handles: &[OwnedFd]) -> Result<i32, Refusal> {
        self.make_room(execute.command)?;
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
        let pid = pid.map_err(|error| refusal(error, &wanted))?;
        self.running.push(Running { command: execute.command, pid, terminal: keep });
        Ok(pid)
    }

    /// Makes sure that one more command can be kept in mind, under this number.
    fn make_room(&mut self, command: u32) -> Result<(), Refusal> {
        if self.client == Client::Passing {
            self.ended.retain(|ended| ended.command != command);
            while self.ended.len() + self.running.len() >= MAX_COMMANDS
                && self.ended.pop_front().is_some()
            {}
        }
        if self.running.iter().any(|running| running.command == command)
            || self.ended.iter().any(|ended| ended.command == command)
        {
            return Err(Refusal::Malformed("the command's number is in use".into()));
        }
        if self.running.len() + self.ended.len() >= MAX_COMMANDS {
            let step = format!("start more than {MAX_COMMANDS} commands at a time");
            return Err(Refusal::Failed { step, errno: Errno::AGAIN.raw_os_error() });
        }
        Ok(())
    }

    fn signal(&self, command: u32, signal: i32, whom: Whom) {
        let Some(number) = Signal::from_named_raw(signal) else { return };
        if whom == Whom::Tree {
            return self.signal_tree(command, number);
        }
        let Some(running) = self.running.iter().find(|running| running.command == command) else {
            return;
        };
        let Some(pid) = Pid::from_raw(running.pid) else { return };
        // A command that has ended in between needs no signal.
        match whom {
            Whom::Leader => drop(kill_process(pid, number)),
            Whom::Group => drop(kill_process_group(pid, number)),
            Whom::Foreground => {
                let foreground = running.terminal.as_ref();
                let group = foreground.and_then(|tty| rustix::termios::tcgetpgrp(tty).ok());
                cowork_sys::ignore(kill_process_group(group.unwrap_or(pid), number));
            }
            Whom::Tree => {}
        }
    }

    /// Signals everybody whom a command started, also after its first process has ended.
    fn signal_tree(&self, command: u32, signal: Signal) {
        let running = self.running.iter().find(|running| running.command == command);
        let ended = self.ended.iter().find(|ended| ended.command == command);
        let root = match (running, ended) {
            (Some(running), _) => tree::Root::Living(running.pid),
            (None, Some(ended)) => tree::Root::Buried(ended.pid),
            (None, None) => return,
        };
        tree::signal(root, signal);
    }

    fn open_terminal(&mut self, nonce: u64) {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open("/dev/ptmx", flags, Mode::empty()) {
            Ok(terminal) => {
                self.tell(&FromInit::Terminal { nonce, errno: 0 }, Some(terminal));
            }
            Err(errno) => {
                let errno = errno.raw_os_error();
                self.tell(&FromInit::Terminal { nonce, errno }, None);
            }
        }
    }
}

/// A text file without an interpreter line is run by the shell, as `execvp` does.
fn spawn_script(wanted: &Command<'_>, stack: &mut Stack) -> Result<i32, SpawnError> {
    let script = executable(wanted);
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

/// The first of the places where the program may be that has one.
fn executable<'a>(wanted: &Command<'a>) -> Option<&'a CString> {
    wanted.programs.iter().find(|program| {
        rustix::fs::accessat(
            wanted.folder,
            program.as_c_str(),
            rustix::fs::Access::EXEC_OK,
            rustix::fs::AtFlags::empty(),
        )
        .is_ok()
    })
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

fn refusal(error: SpawnError, wanted: &Command<'_>) -> Refusal {
    let errno = error.errno.raw_os_error();
    match (error.stage, error.errno) {
        (Stage::Execute, Errno::NOENT | Errno::NOTDIR) => match executable(wanted) {
            // The kernel says the same of a file and of the program that it is to be run by.
            Some(program) => super::interpreter::of(wanted.folder, program)
                .map_or(Refusal::NotFound, |interpreter| Refusal::NoInterpreter { interpreter }),
            None => Refusal::NotFound,
        },
        (Stage::Execute, _) => Refusal::NotExecutable { errno },
        (Stage::Folder, _) => Refusal::Folder { errno },
        (Stage::Clone, _) => Refusal::Failed { step: "make a process".into(), errno },
        (Stage::Terminal, _) => Refusal::Failed { step: "take the terminal".into(), errno },
        (Stage::Stdio, _) => Refusal::Failed { step: "place the standard streams".into(), errno },
    }
}

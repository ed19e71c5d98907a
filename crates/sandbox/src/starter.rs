//! The starter: starts egress processes for the keeper that it was forked from.
//!
//! They need the network and the mounts of the host, which a keeper leaves when it begins, and which
//! an ordinary user's keeper can never go back to. So the keeper forks this process before that. It
//! stays where the keeper was started, has one thread, hears the keeper and nobody else, and starts
//! one program, which lies beside the keeper's: no order names another.
//!
//! What it starts are its children: it buries them, and can end them whoever they have become. When the
//! keeper is gone it lets them tell what they still have to, ends those that stay, and leaves.

use crate::channel::{Channel, Packet, Peer};
use cowork_api::starter::{FromStarter, ToStarter};
use cowork_sys::Errno;
use cowork_sys::identity::keep_only;
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, fork, leave};
use cowork_sys::signal::Signals;
use cowork_sys::spawn::{Command, Stack, Terminal, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, wait};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Its name, where processes are listed.
const NAME: &std::ffi::CStr = c"cowork-starter";
/// How long what it started may stay when the keeper is gone: longer than it takes to end well.
const FAREWELL: Duration = Duration::from_secs(5);

/// Forks a starter of this program: the line to it, and a handle on it.
pub(crate) fn begin(proof: &SingleThreaded, program: &Path) -> Result<(Channel, OwnedFd), Errno> {
    let (ours, theirs) = Channel::pair()?;
    match fork(proof, Namespaces::Inherited, None)? {
        Forked::Parent { handle, .. } => Ok((ours, handle)),
        Forked::Child => {
            let served = Starter::new(&theirs, program).and_then(|mut starter| starter.serve());
            leave(u8::from(served.is_err()))
        }
    }
}

struct Starter {
    line: Channel,
    program: [CString; 1],
    /// Where programs are started.
    root: OwnedFd,
    null: OwnedFd,
    /// Tells that children have ended.
    deaths: Signals,
    stack: Stack,
    children: BTreeSet<i32>,
}

/// What is left to wait for.
#[derive(Clone, Copy)]
enum Stay {
    /// Orders of the keeper.
    On,
    /// The keeper is gone: children may end by themselves until then.
    Until(Instant),
    /// They were told to end at once.
    ToTheLast,
}

impl Starter {
    /// Takes over a process that was just forked: of what the keeper had open it keeps the line and
    /// the place of messages, which a panic goes to.
    fn new(line: &Channel, program: &Path) -> Result<Self, Errno> {
        const SIGCHLD: i32 = Signal::CHILD.as_raw();
        let line = keep_only(&[line.as_fd()])?.pop().ok_or(Errno::BADF)?;
        let open =
            |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let null = open("/dev/null", OFlags::RDWR)?;
        // Standard input is where clients of the keeper come in.
        rustix::stdio::dup2_stdin(&null)?;
        rustix::thread::set_name(NAME)?;
        Ok(Self {
            line: line.into(),
            program: [CString::new(program.as_os_str().as_bytes()).map_err(|_nul| Errno::INVAL)?],
            root: open("/", OFlags::PATH | OFlags::DIRECTORY)?,
            null,
            deaths: Signals::collect(&[SIGCHLD])?,
            stack: Stack::default(),
            children: BTreeSet::new(),
        })
    }

    fn serve(&mut self) -> Result<(), Errno> {
        let mut stay = Stay::On;
        loop {
            self.bury()?;
            if let (Stay::Until(_) | Stay::ToTheLast, true) = (stay, self.children.is_empty()) {
                return Ok(());
            }
            let longest = match stay {
                Stay::Until(end) => Some(end.saturating_duration_since(Instant::now())),
                Stay::On | Stay::ToTheLast => None,
            };
            if longest == Some(Duration::ZERO) {
                self.children.iter().for_each(|pid| end(*pid));
                stay = Stay::ToTheLast;
                continue;
            }
            if self.hears(stay, longest)? {
                match self.line.receive(Peer::Trusted) {
                    Ok(Some(packet)) => self.obey(&packet)?,
                    Ok(None) | Err(Errno::CONNRESET) => {
                        stay = Stay::Until(Instant::now() + FAREWELL);
                    }
                    Err(errno) => return Err(errno),
                }
            }
        }
    }

    /// Waits for a death or for an order; whether there is one of these.
    fn hears(&self, stay: Stay, longest: Option<Duration>) -> Result<bool, Errno> {
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        let mut watched = vec![PollFd::new(&self.deaths, PollFlags::IN)];
        if matches!(stay, Stay::On) {
            watched.push(PollFd::new(&self.line, PollFlags::IN));
        }
        match poll(&mut watched, longest.as_ref()) {
            Ok(_) => Ok(watched.get(1).is_some_and(|line| !line.revents().is_empty())),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Waits for children that have ended, and those that never began.
    fn bury(&mut self) -> Result<(), Errno> {
        while self.deaths.next()?.is_some() {}
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => {
                    self.children.remove(&pid.as_raw_pid());
                }
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn obey(&mut self, packet: &Packet) -> Result<(), Errno> {
        let order = cowork_api::decode(&packet.bytes).map_err(|_not_one| Errno::BADMSG)?;
        match order {
            ToStarter::Start => {
                let (answer, handles) = match self.start(packet.handles.first()) {
                    Ok((pid, handles)) => (FromStarter::Started { pid }, Vec::from(handles)),
                    Err(errno) => (FromStarter::Failed { errno: errno.raw_os_error() }, Vec::new()),
                };
                let handles: Vec<_> = handles.iter().map(AsFd::as_fd).collect();
                match self.line.send(&cowork_api::encode(&answer), &handles) {
                    // The keeper is gone, which is heard next.
                    Err(Errno::PIPE) => Ok(()),
                    sent => sent,
                }
            }
            // One that has ended, and was buried, is in the list no more: nobody else has its id.
            ToStarter::End { pid } => {
                if self.children.contains(&pid) {
                    end(pid);
                }
                Ok(())
            }
        }
    }

    /// Starts an egress process.
    fn start(&mut self, log: Option<&OwnedFd>) -> Result<(i32, [OwnedFd; 2]), Errno> {
        let (ours, theirs) = Channel::pair()?;
        let command = Command {
            programs: &self.program,
            arguments: &[c"cowork-egress".into()],
            environment: &[],
            stdio: [theirs.as_fd(), self.null.as_fd(), log.unwrap_or(&self.null).as_fd()],
            folder: self.root.as_fd(),
            terminal: Terminal::Absent,
            umask: 0o077,
        };
        let pid = spawn(&command, &mut self.stack).map_err(|failed| failed.errno)?;
        self.children.insert(pid);
        let named = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        // Without a handle nobody gets the line either: it ends by itself.
        let handle = pidfd_open(named, PidfdFlags::empty())?;
        Ok((pid, [ours.into(), handle]))
    }
}

/// Ends a child that was not buried yet.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // One that has ended needs no end.
        cowork_sys::ignore(kill_process(pid, Signal::KILL));
    }
}

//! Starting a program without any sandbox: the unit of start times.

use crate::site::{Site, TRUE};
use crate::stopped::Stopped;
use cowork_sys::spawn::{Stack, Terminal, spawn};
use rustix::fd::AsFd;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Which program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that does nothing.
    Noop,
    /// `/usr/bin/true`.
    True,
}

/// Starts programs plainly, and says how long each took from before vfork until after wait.
#[derive(Debug)]
pub(crate) enum Plain {
    /// By a small program of its own: nothing is cheaper.
    Small(Small),
    /// By this process, as a session's PID 1 does it.
    Own { stack: Stack, noop: PathBuf },
}

impl Plain {
    pub(crate) fn start(site: &Site) -> Result<Self, Stopped> {
        if site.built.is_err() {
            return Ok(Self::Own { stack: Stack::default(), noop: site.noop() });
        }
        let programs = [site.noop(), TRUE.into()];
        Small::start(&site.project().join("plain"), &programs).map(Self::Small)
    }

    /// Starts the program and waits for its end.
    pub(crate) fn time(&mut self, which: Which) -> Result<Duration, Stopped> {
        match self {
            Self::Small(small) => small.time(if which == Which::Noop { b'1' } else { b'2' }),
            Self::Own { stack, noop } => {
                own(if which == Which::Noop { noop } else { Path::new(TRUE) }, stack)
            }
        }
    }
}

/// A small program that does something for every byte that it reads, and answers with the time.
#[derive(Debug)]
pub(crate) struct Small {
    child: Child,
    ask: ChildStdin,
    answer: ChildStdout,
}

impl Small {
    pub(crate) fn start(program: &Path, words: &[PathBuf]) -> Result<Self, Stopped> {
        let failed = |error: &dyn std::fmt::Display| Stopped::at(program.display(), error);
        let mut command = Command::new(program);
        command.args(words).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(ask), Some(answer)) => Ok(Self { child, ask, answer }),
            _ => Err(failed(&"it has no streams")),
        }
    }

    pub(crate) fn time(&mut self, what: u8) -> Result<Duration, Stopped> {
        let failed = |error| Stopped::at("a small program that measures", error);
        self.ask.write_all(&[what]).map_err(failed)?;
        let mut bytes = [0; 8];
        self.answer.read_exact(&mut bytes).map_err(failed)?;
        let nanoseconds = u64::try_from(i64::from_ne_bytes(bytes));
        nanoseconds
            .map(Duration::from_nanos)
            .map_err(|_negative| Stopped::new("what a small program measures has failed"))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // It would end by itself with its input; nothing of it is needed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn own(program: &Path, stack: &mut Stack) -> Result<Duration, Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::at(program.display(), error);
    let name = CString::new(program.as_os_str().as_bytes()).map_err(|error| failed(&error))?;
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| failed(&error))?;
    let folder = File::open("/").map_err(|error| failed(&error))?;
    let command = cowork_sys::spawn::Command {
        programs: std::slice::from_ref(&name),
        arguments: std::slice::from_ref(&name),
        environment: &[],
        stdio: [null.as_fd(); 3],
        folder: folder.as_fd(),
        terminal: Terminal::Absent,
        umask: 0o022,
    };
    let begin = Instant::now();
    let pid = spawn(&command, stack).map_err(|error| failed(&error))?;
    let pid = Pid::from_raw(pid).ok_or_else(|| failed(&"it has no process id"))?;
    let ended = waitpid(Some(pid), WaitOptions::empty()).map_err(|errno| failed(&errno))?;
    let took = begin.elapsed();
    match ended {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(took),
        _ => Err(failed(&"it failed")),
    }
}

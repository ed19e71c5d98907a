//! A person at a terminal: what they type, what they see, and the size of their window.

use crate::support::{self, DEADLINE};
use cowork_testbed::{Person, programs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A terminal with `cowork` in it, as its controlling terminal.
#[derive(Debug)]
pub(crate) struct Tty {
    /// The side of the person; none when they have left.
    screen: Option<OwnedFd>,
    /// Held open so that the settings can be looked at after the program's end.
    line: Option<OwnedFd>,
    child: Child,
    seen: String,
    /// How much of `seen` earlier questions have used up.
    used: usize,
}

impl Tty {
    /// Opens a terminal and starts `cowork` in it with these arguments.
    pub(crate) fn start(person: Person, here: &Path, arguments: &[&str]) -> Self {
        let program = programs().join("cowork");
        let words = arguments.iter().map(OsStr::new);
        Self::start_program(
            person,
            here,
            &std::iter::once(program.as_os_str()).chain(words).collect::<Vec<_>>(),
        )
    }

    /// Opens a terminal of 31 rows and 97 columns and starts a program in it.
    pub(crate) fn start_program(person: Person, here: &Path, words: &[&OsStr]) -> Self {
        support::need("setsid", "util-linux");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = rustix::pty::openpt(flags).expect("the host has terminals");
        rustix::pty::unlockpt(&screen).expect("the terminal is ours");
        let line = rustix::pty::ioctl_tiocgptpeer(&screen, flags).expect("the terminal is ours");
        resize(&screen, 31, 97);
        // `setsid --ctty` makes the terminal what it is for a person's shell: the one that
        // signals come from.
        let mut command = person.command("/usr/bin/setsid");
        command.arg("--ctty").args(words);
        let stream = || Stdio::from(line.try_clone().expect("descriptors are left"));
        command.current_dir(here).stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().expect("setsid is there");
        Self { screen: Some(screen), line: Some(line), child, seen: String::new(), used: 0 }
    }

    fn screen(&self) -> &OwnedFd {
        self.screen.as_ref().expect("somebody is there")
    }

    /// Closes the window.
    pub(crate) fn hang_up(&mut self) {
        self.line = None;
        self.screen = None;
        support::wait(&mut self.child);
    }

    /// The settings of the terminal.
    pub(crate) fn settings(&self) -> String {
        describe(
            &tcgetattr(self.line.as_ref().expect("somebody is there"))
                .expect("the terminal is ours"),
        )
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        let mut keys = keys.as_bytes();
        while !keys.is_empty() {
            // A terminal that is full takes nothing, and blocks whoever does not wait to be asked.
            let mut ready = [PollFd::new(self.screen(), PollFlags::OUT)];
            poll(&mut ready, None).expect("the terminal is ours");
            let some = keys.get(..keys.len().min(64)).unwrap_or_default();
            let length = rustix::io::write(self.screen(), some).expect("the terminal is ours");
            keys = keys.get(length..).unwrap_or_default();
            self.look(Duration::ZERO);
        }
    }

    /// Waits until the screen has shown `text` since the last time, and returns what came with it.
    #[track_caller]
    pub(crate) fn see(&mut self, text: &str) -> String {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let fresh = self.seen.get(self.used..).unwrap_or_default();
            if let Some(at) = fresh.find(text) {
                let came = fresh.get(..at + text.len()).unwrap_or_default().to_owned();
                self.used += came.len();
                return came;
            }
            assert!(Instant::now() < end, "`{text}` never came: {:?}", self.seen);
            self.look(Duration::from_millis(100));
        }
    }

    /// Everything that was shown so far.
    pub(crate) fn seen(&self) -> &str {
        &self.seen
    }

    fn look(&mut self, patience: Duration) {
        let patience = Timespec::try_from(patience).expect("it is short");
        let mut ready = [PollFd::new(self.screen(), PollFlags::IN)];
        if poll(&mut ready, Some(&patience)).expect("the terminal is ours") > 0 {
            let mut bytes = [0; 4096];
            let length = rustix::io::read(self.screen(), &mut bytes).unwrap_or(0);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }

    /// What the next program would read that is on this terminal.
    pub(crate) fn left_over(&self) -> String {
        let line = self.line.as_ref().expect("somebody is there");
        let mut settings = tcgetattr(line).expect("the terminal is ours");
        settings.make_raw();
        tcsetattr(line, OptionalActions::Now, &settings).expect("the terminal is ours");
        let mut left = String::new();
        let now = Timespec::default();
        while poll(&mut [PollFd::new(line, PollFlags::IN)], Some(&now)).expect("it is ours") > 0 {
            let mut bytes = [0; 4096];
            let length = rustix::io::read(line, &mut bytes).expect("the terminal is ours");
            left.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        left
    }

    /// Makes the window another size; the kernel tells whoever runs in it.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        resize(self.screen(), rows, columns);
    }

    /// Sends a signal to `cowork` itself.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        support::send(&self.child, signal);
    }

    /// Waits for the end of `cowork`, with the screen being read all along.
    #[track_caller]
    pub(crate) fn end(&mut self) -> i32 {
        let end = Instant::now() + DEADLINE;
        while self.child.try_wait().expect("it is our child").is_none() {
            assert!(Instant::now() < end, "it did not end: {:?}", self.seen);
            self.look(Duration::from_millis(20));
        }
        // What is left in the terminal may be more than is read at once.
        let mut before = usize::MAX;
        while before != self.seen.len() {
            before = self.seen.len();
            self.look(Duration::from_millis(20));
        }
        support::wait(&mut self.child)
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        // A test that failed leaves nobody at the terminal.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn resize(screen: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(screen, size).expect("the terminal is ours");
}

fn describe(settings: &Termios) -> String {
    format!("{settings:?}")
}

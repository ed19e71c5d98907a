//! A line on standard error for whoever waits longer than a second, and sees it.

use super::units;
use rustix::termios::isatty;
use std::io::{Read, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long something may take in silence.
const PATIENCE: Duration = Duration::from_secs(1);

/// Does something that may take a while; `what` says what, as in "making the session".
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let waiting = Waiting::start(what);
    let outcome = work();
    drop(waiting);
    outcome
}

/// A line that counts seconds; it is gone when this is dropped.
struct Waiting {
    done: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    fn start(what: &str) -> Self {
        if !isatty(rustix::stdio::stderr()) {
            return Self { done: None, teller: None };
        }
        let what = what.to_owned();
        let (done, over) = channel::<()>();
        let teller = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut told = false;
            while over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                told = true;
                tell(&format!("\r{what}: {}s", begun.elapsed().as_secs()));
            }
            if told {
                tell(ERASE);
            }
        });
        Self { done: Some(done), teller: Some(teller) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(teller) = self.teller.take() {
            // A teller that failed has nothing more to say.
            drop(teller.join());
        }
    }
}

/// Back to the start of the line, and blank to its end.
const ERASE: &str = "\r\u{1b}[K";

fn tell(text: &str) {
    let mut stderr = std::io::stderr();
    // A line that cannot be shown is not missed.
    cowork_sys::ignore(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// A source of bytes that says how much has come through.
#[derive(Debug)]
pub(crate) struct Counted<R> {
    from: R,
    name: String,
    total: Option<u64>,
    passed: u64,
    next: Instant,
    seen: Seen,
}

/// Who sees the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nobody,
    Later,
    Shown,
}

impl<R: Read> Counted<R> {
    pub(crate) fn new(from: R, name: &str, total: Option<u64>) -> Self {
        let seen = if isatty(rustix::stdio::stderr()) { Seen::Later } else { Seen::Nobody };
        let name = super::neutral::line(name);
        Self { from, name, total, passed: 0, next: Instant::now() + PATIENCE, seen }
    }

    /// How many bytes have come through.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let length = self.from.read(room)?;
        self.passed = self.passed.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        if self.seen != Seen::Nobody && Instant::now() >= self.next {
            let total = self.total.map(|total| format!(" of {}", units::bytes(total)));
            let passed = units::bytes(self.passed);
            tell(&format!("{ERASE}{}: {passed}{}", self.name, total.unwrap_or_default()));
            self.next = Instant::now() + Duration::from_millis(200);
            self.seen = Seen::Shown;
        }
        Ok(length)
    }
}

impl<R> Drop for Counted<R> {
    fn drop(&mut self) {
        if self.seen == Seen::Shown {
            tell(ERASE);
        }
    }
}

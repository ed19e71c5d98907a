//! Other programs that serve for as long as they are needed: the server, clients, bridges, proxies.

use crate::stopped::Stopped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest that a program may take until it serves.
const START: Duration = Duration::from_secs(15);

/// A program that was started, and is ended.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Self, Stopped> {
        let child = command.spawn().map(Self);
        child.map_err(|error| Stopped::at(command.get_program().to_string_lossy(), error))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until something listens on a port of the loopback.
    pub(super) fn await_port(&mut self, port: u16) -> Result<(), Stopped> {
        self.until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
    }

    /// Waits until something is so, while the program runs.
    pub(super) fn until(&mut self, mut is_so: impl FnMut() -> bool) -> Result<(), Stopped> {
        let end = Instant::now() + START;
        while !is_so() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(Stopped::at("it does not serve here", status));
            }
            if Instant::now() > end {
                return Err(Stopped::new("it does not serve here"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A port of the loopback that nobody listens on.
pub(super) fn free_port() -> Result<u16, Stopped> {
    let failed = |error: std::io::Error| Stopped::at("a free port", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// A program that answers lines with lines. It ends when it is told nothing more.
#[derive(Debug)]
pub(crate) struct Line {
    // Closed first, so that the program ends by itself if it can.
    tell: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    running: Running,
}

impl Line {
    pub(crate) fn start(command: &mut Command) -> Result<Self, Stopped> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(command)?;
        match (running.0.stdin.take(), running.0.stdout.take()) {
            (tell @ Some(_), Some(answers)) => {
                Ok(Self { tell, answers: BufReader::new(answers), running })
            }
            _ => Err(Stopped::new("a child has no streams")),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Tells it something, and waits for the answer.
    pub(crate) fn ask(&mut self, words: &str) -> Result<Value, Stopped> {
        let failed = |error: std::io::Error| Stopped::at("the client", error);
        if let Some(tell) = &mut self.tell {
            tell.write_all(format!("{words}\n").as_bytes()).map_err(failed)?;
        }
        let line = self.hear()?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|error| Stopped::at(line.trim(), error))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(Stopped::at(format!("`{words}`"), error)),
            None => Ok(answer),
        }
    }

    /// Waits for a line.
    pub(crate) fn hear(&mut self) -> Result<String, Stopped> {
        let failed = |error: std::io::Error| Stopped::at("the client", error);
        let patience = Timespec::try_from(PATIENCE).unwrap_or_default();
        let mut ready = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        if self.answers.buffer().is_empty() && poll(&mut ready, Some(&patience)) == Ok(0) {
            return Err(Stopped::new("no answer"));
        }
        let mut line = String::new();
        if self.answers.read_line(&mut line).map_err(failed)? == 0 {
            return Err(Stopped::new("it ended without an answer"));
        }
        Ok(line)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.tell.take());
        // It has a moment, because what it started may have to end with it.
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end && matches!(self.running.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

//! The daemon's conversation with the init of one session. Init is inside, and believed nothing
//! but what it says about its own commands.

use crate::engine::Packets;
use crate::trouble::Trouble;
use cowork_api::guest::{Ending, Execute, FromInit, Refusal, ToInit, Usage};
use cowork_sandbox::channel::Peer;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) command: u32,
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
}

/// Which commands init knows of.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) running: Vec<(u32, i32)>,
    pub(crate) ended: Vec<End>,
}

/// Answers that are waited for.
#[derive(Default)]
struct Waiting {
    starts: HashMap<u32, oneshot::Sender<Result<i32, Refusal>>>,
    terminals: HashMap<u64, oneshot::Sender<Result<OwnedFd, i32>>>,
    counts: HashMap<u64, oneshot::Sender<Option<u64>>>,
    reports: HashMap<u64, oneshot::Sender<Report>>,
    closed: bool,
}

/// The init of a session.
pub(crate) struct Guest {
    packets: Packets,
    waiting: Mutex<Waiting>,
    nonces: AtomicU64,
    /// The nonce of the last ping that was answered.
    pong: AtomicU64,
}

/// Longest wait for an answer of init.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

impl Guest {
    /// Speaks to the init at the other end of `socket`. Ends of commands go to `ends`.
    pub(crate) fn new(
        socket: OwnedFd,
        ends: mpsc::UnboundedSender<End>,
    ) -> std::io::Result<Arc<Self>> {
        let guest = Arc::new(Self {
            packets: Packets::new(socket)?,
            waiting: Mutex::default(),
            // Answers to an earlier daemon may still be on their way.
            nonces: AtomicU64::new(fresh_nonce()),
            pong: AtomicU64::new(0),
        });
        tokio::spawn(hear(Arc::clone(&guest), ends));
        Ok(guest)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a ping that is answered some time; the nonce of the last answer is [`Self::pong`].
    pub(crate) fn ping(&self) -> u64 {
        let nonce = self.nonce();
        // A socket that is full is as good as no answer.
        let ping = cowork_api::encode(&ToInit::Ping { nonce });
        cowork_sys::ignore(self.packets.try_send(&ping));
        nonce
    }

    pub(crate) fn pong(&self) -> u64 {
        self.pong.load(Ordering::Relaxed)
    }

    /// Sends something that is not answered.
    pub(crate) async fn tell(&self, message: &ToInit) -> Result<(), Trouble> {
        let message = cowork_api::encode(message);
        let sent = tokio::time::timeout(PATIENCE, self.packets.send(&message, &[])).await;
        sent.map_err(|_late| silent())?.map_err(gone)
    }

    /// Starts a command; its process id in the session.
    pub(crate) async fn execute(
        &self,
        execute: Execute,
        handles: &[BorrowedFd<'_>],
    ) -> Result<Result<i32, Refusal>, Trouble> {
        let (sender, answer) = oneshot::channel();
        let number = execute.command;
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(silent());
            }
            waiting.starts.insert(number, sender);
        }
        let message = cowork_api::encode(&ToInit::Execute(execute));
        self.packets.send(&message, handles).await.map_err(gone)?;
        answer.await.map_err(|_gone| silent())
    }

    /// Opens a terminal in the session; its controlling side.
    pub(crate) async fn open_terminal(&self) -> Result<OwnedFd, Trouble> {
        let nonce = self.nonce();
        let (sender, answer) = oneshot::channel();
        self.waiting().terminals.insert(nonce, sender);
        self.tell(&ToInit::OpenTerminal { nonce }).await?;
        wait(answer).await?.map_err(|errno| {
            let cause = std::io::Error::from_raw_os_error(errno);
            Trouble::host("cannot open a terminal in the session", cause)
        })
    }

    /// How many entries a folder of the session has.
    pub(crate) async fn count(&self, folder: String) -> Result<Option<u64>, Trouble> {
        let nonce = self.nonce();
        let (sender, answer) = oneshot::channel();
        self.waiting().counts.insert(nonce, sender);
        self.tell(&ToInit::Count { nonce, folder: folder.into() }).await?;
        wait(answer).await
    }

    /// Which commands init knows of.
    pub(crate) async fn report(&self) -> Result<Report, Trouble> {
        self.report_within(PATIENCE).await
    }

    /// The same, if it says so in time.
    pub(crate) async fn report_within(&self, patience: Duration) -> Result<Report, Trouble> {
        let nonce = self.nonce();
        let (sender, answer) = oneshot::channel();
        self.waiting().reports.insert(nonce, sender);
        let asked = async {
            self.tell(&ToInit::Report { nonce }).await?;
            wait(answer).await
        };
        let report = tokio::time::timeout(patience, asked).await;
        self.waiting().reports.remove(&nonce);
        report.map_err(|_late| silent())?
    }

    fn take(&self, message: FromInit, handle: Option<OwnedFd>, ends: &mpsc::UnboundedSender<End>) {
        match message {
            FromInit::Pong { nonce } => self.pong.store(nonce, Ordering::Relaxed),
            FromInit::Started { command, pid } => {
                let waiting = self.waiting().starts.remove(&command);
                if let Some(waiting) = waiting {
                    cowork_sys::ignore(waiting.send(Ok(pid)));
                }
            }
            FromInit::Refused { command, why } => {
                let waiting = self.waiting().starts.remove(&command);
                if let Some(waiting) = waiting {
                    cowork_sys::ignore(waiting.send(Err(why)));
                }
            }
            FromInit::Ended { command, ending, usage } => {
                cowork_sys::ignore(ends.send(End { command, ending, usage }));
            }
            FromInit::Terminal { nonce, errno } => {
                let waiting = self.waiting().terminals.remove(&nonce);
                let result = match (errno, handle) {
                    (0, Some(handle)) => Ok(handle),
                    (errno, _) => Err(errno),
                };
                if let Some(waiting) = waiting {
                    cowork_sys::ignore(waiting.send(result));
                }
            }
            FromInit::Counted { nonce, entries } => {
                let waiting = self.waiting().counts.remove(&nonce);
                if let Some(waiting) = waiting {
                    cowork_sys::ignore(waiting.send(entries));
                }
            }
            FromInit::Report { nonce, running, ended } => {
                let ended = ended.into_iter();
                let ended = ended.map(|(command, ending, usage)| End { command, ending, usage });
                let report = Report { running, ended: ended.collect() };
                let waiting = self.waiting().reports.remove(&nonce);
                if let Some(waiting) = waiting {
                    cowork_sys::ignore(waiting.send(report));
                }
            }
        }
    }
}

/// No two daemons use the same nonces.
fn fresh_nonce() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(1))
}

async fn wait<T>(answer: oneshot::Receiver<T>) -> Result<T, Trouble> {
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    answer.map_err(|_late| silent())?.map_err(|_gone| silent())
}

fn silent() -> Trouble {
    Trouble::conflict("no-answer", "the session's PID 1 does not answer")
        .with_hint("it is made again when three heartbeats are missed; try later")
}

fn gone(error: std::io::Error) -> Trouble {
    silent().with_cause(error)
}

async fn hear(guest: Arc<Guest>, ends: mpsc::UnboundedSender<End>) {
    loop {
        let packet = match guest.packets.receive(Peer::Hostile).await {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => match cowork_sys::Errno::from_io_error(&error) {
                // Not a message; the next one may be.
                Some(cowork_sys::Errno::BADMSG | cowork_sys::Errno::MSGSIZE) => continue,
                _ => break,
            },
        };
        let handle = packet.handles.into_iter().next();
        if let Ok(message) = cowork_api::decode::<FromInit>(&packet.bytes) {
            guest.take(message, handle, &ends);
        }
    }
    // Whoever waits is told by the end of its channel.
    *guest.waiting() = Waiting { closed: true, ..Waiting::default() };
}

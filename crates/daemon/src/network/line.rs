//! The daemon's conversation with the egress process of one session.
//!
//! The process reads what a hostile session sends; it is believed what it says about flows, and
//! nothing else follows from it. Its line is kept by the keeper too: it ends when both have let go,
//! or when the daemon shuts the line down.

use super::whose::Owners;
use crate::engine::{Answer, Engine, Packets};
use crate::trouble::Trouble;
use crate::watched::watched_for;
use cowork_api::egress::{Flow, FromEgress, Socket, ToEgress};
use cowork_api::keeper::{Reply, Request};
use cowork_sandbox::channel::{MAX_HANDLES, Peer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::oneshot;

/// Longest wait for the keeper to start a process.
const STARTED: Duration = Duration::from_secs(20);
/// Longest wait for the process to be at work.
const READY: Duration = Duration::from_secs(5);
/// Longest wait for an answer of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most sockets beside one message: one place is for a message that is long.
pub(crate) const MAX_BESIDE: usize = MAX_HANDLES - 1;

/// What a process says when it is at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) authority: Vec<u8>,
    pub(crate) confinement: Vec<String>,
}

/// Answers that are waited for.
#[derive(Default)]
struct Waiting {
    ready: Option<oneshot::Sender<Result<Ready, String>>>,
    flows: HashMap<u32, oneshot::Sender<(Vec<Flow>, u32)>>,
    ports: HashMap<u32, oneshot::Sender<Result<u16, String>>>,
}

/// An egress process.
pub(crate) struct Line {
    pub(crate) pid: i32,
    packets: Packets,
    waiting: Mutex<Waiting>,
    numbers: AtomicU32,
    /// Whether it was told to end, and whether it has.
    closed: AtomicBool,
    gone: AtomicBool,
    /// Requests of the user's that stand for its asks.
    asks: Mutex<BTreeMap<u64, u64>>,
    /// Whose its connections are.
    owners: Mutex<Owners>,
    /// How often sockets that lead inwards are on their way.
    fetching: AtomicUsize,
    /// How many secrets it waits for.
    renewing: AtomicUsize,
    /// Ports that it listens on.
    ports: Mutex<BTreeSet<u16>>,
    /// The process, where it is known for sure.
    process: Mutex<Option<OwnedFd>>,
}

/// A process that was started: our end of its line, and a handle on it.
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) end: OwnedFd,
    pub(crate) process: OwnedFd,
}

/// A process that the keeper was asked to start.
pub(crate) struct Starting(oneshot::Receiver<Answer>);

/// Has the keeper start a process. What it has to say goes to `log`.
pub(crate) async fn launch(engine: &Arc<Engine>, log: Option<&Path>) -> Result<Starting, Trouble> {
    let open = |log: &Path| std::fs::File::options().create(true).append(true).open(log);
    let log = log.map(open).transpose().map_err(unstarted)?;
    let log: Vec<BorrowedFd<'_>> = log.iter().map(AsFd::as_fd).collect();
    engine.ask(Request::StartEgress, &log).await.map(Starting)
}

fn unstarted(error: impl std::fmt::Display) -> Trouble {
    Trouble::host("cannot start the session's egress process", error)
        .with_hint("run `cowork doctor`")
}

impl Starting {
    /// Waits until it is started.
    pub(crate) async fn started(self) -> Result<Started, Trouble> {
        let answer = tokio::time::timeout(STARTED, self.0).await;
        let answer = answer.map_err(|_late| {
            unstarted("the keeper does not answer")
                .with_hint("one of another version may run: `cowork daemon --stop` ends it")
        })?;
        let (reply, handles) = answer.map_err(|_gone| unstarted("the keeper is gone"))??;
        let (Reply::Egress { pid }, Ok([end, process])) =
            (reply, <[OwnedFd; 2]>::try_from(handles))
        else {
            return Err(unstarted("the keeper gave an answer that does not fit"));
        };
        Ok(Started { pid, end, process })
    }

    /// Ends a process that is not needed after all.
    pub(crate) fn give_up(self, engine: &Arc<Engine>) {
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            if let Ok(started) = self.started().await
                && let Ok(line) = Line::new(started.end, started.pid, Some(started.process))
            {
                Arc::new(line).bury(engine).await;
            }
        });
    }
}

impl Line {
    /// Speaks to a process at the other end of `socket`.
    pub(crate) fn new(
        socket: OwnedFd,
        pid: i32,
        process: Option<OwnedFd>,
    ) -> Result<Self, Trouble> {
        cowork_sys::ignore(cowork_sys::net::refuse_descriptors(socket.as_fd()));
        let packets = Packets::new(socket)
            .map_err(|error| Trouble::host("cannot speak to the egress process", error))?;
        Ok(Self {
            pid,
            packets,
            waiting: Mutex::default(),
            numbers: AtomicU32::new(1),
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            asks: Mutex::default(),
            owners: Mutex::default(),
            fetching: AtomicUsize::new(0),
            renewing: AtomicUsize::new(0),
            ports: Mutex::default(),
            process: Mutex::new(process),
        })
    }

    /// Whose its connections are.
    pub(crate) fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which request stands for which ask.
    pub(crate) fn asks(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends something that is not answered.
    pub(crate) async fn tell(&self, message: &ToEgress) -> Result<(), Trouble> {
        self.send(message, &[]).await
    }

    async fn send(&self, message: &ToEgress, beside: &[BorrowedFd<'_>]) -> Result<(), Trouble> {
        let message = cowork_api::encode(message);
        let sent = tokio::time::timeout(PATIENCE, self.packets.send(&message, beside)).await;
        sent.map_err(|_late| silent())?.map_err(|error| silent().with_cause(error))
    }

    /// Hands over sockets of the session's network.
    pub(crate) async fn hand_over(&self, sockets: &[(Socket, OwnedFd)]) -> Result<(), Trouble> {
        for some in sockets.chunks(MAX_BESIDE) {
            let beside: Vec<BorrowedFd<'_>> =
                some.iter().map(|(_, handle)| handle.as_fd()).collect();
            let sockets = some.iter().map(|(socket, _)| *socket).collect();
            self.send(&ToEgress::Sockets { sockets }, &beside).await?;
        }
        self.listens_on(sockets.iter().map(|(socket, _)| *socket));
        Ok(())
    }

    /// Hands over the file in which names outlive the process.
    pub(crate) async fn hand_names(&self, names: &OwnedFd) -> Result<(), Trouble> {
        self.send(&ToEgress::Names, &[names.as_fd()]).await
    }

    /// Notes which ports it listens on.
    pub(crate) fn listens_on(&self, sockets: impl IntoIterator<Item = Socket>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.extend(sockets.into_iter().filter_map(|socket| match socket {
            Socket::Port(port) => Some(port),
            _ => None,
        }));
    }

    /// Which of these sockets it does not have yet.
    pub(crate) fn lacks(&self, mut sockets: Vec<Socket>) -> Vec<Socket> {
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| !matches!(socket, Socket::Port(port) if ports.contains(port)));
        sockets
    }

    /// Lets whoever begins wait for [`Self::ready`].
    pub(crate) fn expect_ready(&self) -> oneshot::Receiver<Result<Ready, String>> {
        let (sender, ready) = oneshot::channel();
        self.waiting().ready = Some(sender);
        ready
    }

    /// Waits until the process is at work.
    pub(crate) async fn ready(
        ready: oneshot::Receiver<Result<Ready, String>>,
    ) -> Result<Ready, Trouble> {
        match tokio::time::timeout(READY, ready).await {
            Ok(Ok(Ok(ready))) => Ok(ready),
            Ok(Ok(Err(sentence))) => Err(Trouble::refused("network-unenforceable", sentence)),
            Ok(Err(_)) => {
                Err(Trouble::host("the session's egress process ended at once", "see its log"))
            }
            Err(_) => Err(silent()),
        }
    }

    /// What flows now, and how much that is.
    pub(crate) async fn flows(&self) -> Result<(Vec<Flow>, u32), Trouble> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().flows.insert(number, sender);
        self.tell(&ToEgress::Flows { number }).await?;
        let answer = wait(answer).await;
        self.waiting().flows.remove(&number);
        answer
    }

    /// Makes a port of the session reachable; the port at the host's loopback.
    pub(crate) async fn publish(&self, inside: u16, outside: u16) -> Result<u16, Trouble> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().ports.insert(number, sender);
        self.tell(&ToEgress::Publish { number, inside, outside }).await?;
        wait(answer).await?.map_err(|sentence| Trouble::conflict("port-taken", sentence))
    }

    /// The next thing it says of its own accord; `None` when it is gone.
    pub(crate) async fn hear(&self) -> Option<FromEgress> {
        loop {
            let packet = match self.packets.receive(Peer::Trusted).await {
                Ok(Some(packet)) => packet,
                Ok(None) => return None,
                Err(error) => match cowork_sys::Errno::from_io_error(&error) {
                    // Not a message; the next one may be.
                    Some(cowork_sys::Errno::BADMSG | cowork_sys::Errno::MSGSIZE) => continue,
                    _ => return None,
                },
            };
            let Ok(message) = cowork_api::decode::<FromEgress>(&packet.bytes) else { continue };
            if let Some(message) = self.take(message) {
                return Some(message);
            }
        }
    }

    /// Hears nothing for a moment, in which what it says gathers in its socket.
    pub(crate) async fn rest(&self) {
        /// How long that is: several connections fit into it, and what comes in it at most fits into
        /// the socket. What does not has the process wait for room, and in the end refuse.
        const MOMENT: Duration = Duration::from_millis(1);
        self.packets.look_away().await;
        tokio::time::sleep(MOMENT).await;
    }

    /// Gives an answer to whoever waits for it.
    fn take(&self, message: FromEgress) -> Option<FromEgress> {
        let mut waiting = self.waiting();
        match message {
            FromEgress::Ready { authority, confinement } => {
                if let Some(ready) = waiting.ready.take() {
                    cowork_sys::ignore(ready.send(Ok(Ready { authority, confinement })));
                }
            }
            FromEgress::Failed { sentence } => {
                if let Some(ready) = waiting.ready.take() {
                    cowork_sys::ignore(ready.send(Err(sentence)));
                }
            }
            FromEgress::Flows { number, flows, total } => {
                if let Some(asked) = waiting.flows.remove(&number) {
                    cowork_sys::ignore(asked.send((flows, total)));
                }
            }
            FromEgress::Published { number, outside } => {
                if let Some(asked) = waiting.ports.remove(&number) {
                    cowork_sys::ignore(asked.send(outside));
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Ends the process: the line is shut down for everybody who holds it.
    ///
    /// It has a moment to tell what it has recorded.
    pub(crate) fn close(self: &Arc<Self>) {
        /// How long that is.
        const FAREWELL: Duration = Duration::from_secs(3);
        self.closed.store(true, Ordering::Relaxed);
        self.packets.fall_silent();
        let line = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(FAREWELL).await;
            line.packets.shut_down();
        });
    }

    /// Whether sockets that lead inwards are to be fetched for it: not if it was too impatient.
    pub(crate) fn begin_fetching(&self) -> bool {
        /// It asks again only when it has got what it asked for.
        const MOST: usize = 4;
        let may = self.fetching.load(Ordering::Relaxed) < MOST;
        if may {
            self.fetching.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// They are there.
    pub(crate) fn end_fetching(&self) {
        self.fetching.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it may ask for another value of a secret: not for many at a time.
    pub(crate) fn begin_renewing(&self) -> bool {
        /// It asks once for each.
        const MOST: usize = 64;
        let may = self.renewing.load(Ordering::Relaxed) < MOST;
        if may {
            self.renewing.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// It was answered.
    pub(crate) fn end_renewing(&self) {
        self.renewing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it was told to end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether it has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Lets nobody wait for the process any more, which is gone or leaves. One that does not is ended.
    pub(crate) async fn bury(self: Arc<Self>, engine: Arc<Engine>) {
        /// How long it may take to leave.
        const LEAVING: Duration = Duration::from_secs(5);
        self.gone.store(true, Ordering::Relaxed);
        *self.waiting() = Waiting::default();
        self.packets.shut_down();
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Ok(process)) = process.map(|process| watched_for(process, Interest::READABLE))
        else {
            return;
        };
        let left = tokio::time::timeout(LEAVING, process.readable()).await;
        // As root it has another user id, and the daemon no capability: the keeper has.
        if left.is_err() && engine.has_keeper() {
            drop(engine.post(Request::EndEgress { pid: self.pid }, &[]).await);
        }
    }
}

async fn wait<T>(answer: oneshot::Receiver<T>) -> Result<T, Trouble> {
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    answer.map_err(|_late| silent())?.map_err(|_gone| silent())
}

/// Nothing passes while it is so.
fn silent() -> Trouble {
    Trouble::conflict("no-egress", "the session's egress process does not answer")
        .with_hint("it is started again by itself; try later")
}

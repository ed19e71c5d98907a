//! The daemon's conversation with the keeper.
//!
//! Calls are numbered and answered in any order; nothing here waits with a thread. The keeper is
//! started when there is none, and found again by its socket after this daemon was replaced.

use crate::folders::Folders;
use crate::trouble::{Trouble, chain};
use crate::watched::watched_for;
use cowork_api::keeper::{Call, Message, Reply, Request};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_sys::Errno;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

/// What comes back from a call.
pub(crate) type Answer = Result<(Reply, Vec<OwnedFd>), Trouble>;

/// Something the keeper tells of its own accord.
#[derive(Debug)]
pub(crate) enum Told {
    /// As the keeper says it.
    Keeper(Message),
    /// The keeper is gone, with every session.
    Lost,
}

/// A socket of packets that is waited for without a thread.
pub(crate) struct Packets {
    channel: Arc<Held>,
    /// Watches for what there is to read, while somebody waits for it.
    watch: tokio::sync::Mutex<Option<AsyncFd<Arc<Held>>>>,
    /// One packet at a time, in the order of the calls.
    turn: tokio::sync::Mutex<()>,
}

/// A channel as `AsyncFd` wants it.
struct Held(Channel);

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Packets {
    pub(crate) fn new(socket: OwnedFd) -> std::io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)?;
        let channel = Arc::new(Held(socket.into()));
        Ok(Self {
            channel,
            watch: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Sends a packet, waiting for room.
    pub(crate) async fn send(
        &self,
        message: &[u8],
        handles: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        let _turn = self.turn.lock().await;
        match self.channel.0.try_send(message, handles) {
            Err(Errno::AGAIN) => {}
            sent => return Ok(sent?),
        }
        let copy = self.channel.0.as_fd().try_clone_to_owned()?;
        let room = watched_for(Held(copy.into()), Interest::WRITABLE)?;
        let send = |held: &Held| held.0.try_send(message, handles).map_err(Into::into);
        room.async_io(Interest::WRITABLE, send).await
    }

    /// Sends a packet if there is room for it now.
    pub(crate) fn try_send(&self, message: &[u8]) -> Result<(), Errno> {
        self.channel.0.try_send(message, &[])
    }

    /// Ends the conversation, for everybody who holds this end of it.
    pub(crate) fn shut_down(&self) {
        let socket = self.channel.0.as_fd();
        cowork_sys::ignore(rustix::net::shutdown(socket, rustix::net::Shutdown::Both));
    }

    /// Says nothing more, and goes on listening.
    pub(crate) fn fall_silent(&self) {
        let socket = self.channel.0.as_fd();
        cowork_sys::ignore(rustix::net::shutdown(socket, rustix::net::Shutdown::Write));
    }

    /// Waits for a packet; `None` at the end.
    pub(crate) async fn receive(
        &self,
        peer: Peer,
    ) -> std::io::Result<Option<cowork_sandbox::channel::Packet>> {
        let mut watch = self.watch.lock().await;
        let watch = match &mut *watch {
            Some(watch) => watch,
            none => {
                tokio::task::consume_budget().await;
                match self.channel.0.receive(peer) {
                    Err(Errno::AGAIN) => {}
                    received => return Ok(received?),
                }
                none.insert(watched_for(Arc::clone(&self.channel), Interest::READABLE)?)
            }
        };
        let receive = |held: &Arc<Held>| held.0.receive(peer).map_err(Into::into);
        watch.async_io(Interest::READABLE, receive).await
    }

    /// Stops watching until the next [`Self::receive`]: what comes meanwhile stays in the socket, and
    /// wakes nobody.
    pub(crate) async fn look_away(&self) {
        drop(self.watch.lock().await.take());
    }
}

struct Link {
    packets: Packets,
    pending: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
    pid: Option<i32>,
}

/// The keeper, as the daemon sees it.
pub(crate) struct Engine {
    socket: PathBuf,
    log: PathBuf,
    /// Tells who the keeper is: its socket was made by a daemon.
    pid: PathBuf,
    link: Mutex<Option<Arc<Link>>>,
    starting: tokio::sync::Mutex<()>,
    numbers: AtomicU32,
    told: mpsc::UnboundedSender<Told>,
}

impl Engine {
    /// An engine whose keeper is not looked for yet, and what it tells.
    pub(crate) fn new(folders: &Folders) -> (Arc<Self>, mpsc::UnboundedReceiver<Told>) {
        let (told, hears) = mpsc::unbounded_channel();
        let engine = Self {
            socket: folders.keeper(),
            log: folders.runtime.join("keeper.log"),
            pid: folders.runtime.join("keeper.pid"),
            link: Mutex::new(None),
            starting: tokio::sync::Mutex::new(()),
            numbers: AtomicU32::new(1),
            told,
        };
        (Arc::new(engine), hears)
    }

    /// The process id of the keeper, if one runs.
    pub(crate) fn keeper(&self) -> Option<i32> {
        self.current().and_then(|link| link.pid)
    }

    /// Whether a keeper is spoken to.
    pub(crate) fn has_keeper(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects to a keeper that runs already. `false` if there is none.
    pub(crate) async fn find(self: &Arc<Self>) -> Result<bool, Trouble> {
        let _turn = self.starting.lock().await;
        self.connect()
    }

    fn connect(self: &Arc<Self>) -> Result<bool, Trouble> {
        if self.current().is_some() {
            return Ok(true);
        }
        let Ok(socket) = connect(&self.socket) else { return Ok(false) };
        let pid = std::fs::read_to_string(&self.pid).ok().and_then(|pid| pid.trim().parse().ok());
        let packets = Packets::new(socket)
            .map_err(|error| Trouble::host("cannot speak to the keeper", error))?;
        let link = Arc::new(Link { packets, pending: Mutex::default(), pid });
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&link));
        tokio::spawn(hear(Arc::clone(self), link));
        Ok(true)
    }

    /// The keeper's link; starts a keeper if none runs.
    async fn link(self: &Arc<Self>) -> Result<Arc<Link>, Trouble> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let _turn = self.starting.lock().await;
        if !self.connect()? {
            self.launch()?;
            for _ in 0..1000 {
                if self.connect()? {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        self.current().ok_or_else(|| {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it does not answer").to_owned();
            Trouble::host("the keeper does not run", last).with_hint("run `cowork doctor`")
        })
    }

    fn launch(&self) -> Result<(), Trouble> {
        let failed = |error: &dyn std::error::Error| {
            Trouble::host("cannot start the keeper", chain(error)).with_hint("run `cowork doctor`")
        };
        let beside = std::env::current_exe().map_err(|error| failed(&error))?;
        let program = beside.with_file_name("cowork-keeper");
        let log = std::fs::File::create(&self.log).ok().map(OwnedFd::from);
        // Better none than that of another keeper.
        cowork_sys::ignore(rustix::fs::unlink(&self.pid));
        let child = cowork_sandbox::client::Link::launch(&program, &self.socket, log)
            .map_err(|error| failed(&error))?;
        std::fs::write(&self.pid, format!("{}\n", child.id())).map_err(|error| failed(&error))?;
        // Buried when it ends; it outlives this process otherwise.
        let bury = move || {
            let mut child = child;
            drop(child.wait());
        };
        let thread = std::thread::Builder::new().name("keeper".into()).stack_size(64 * 1024);
        thread.spawn(bury).map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Asks for something and waits for the answer.
    pub(crate) async fn call(self: &Arc<Self>, request: Request) -> Answer {
        let answer = self.ask(request, &[]).await?;
        answer.await.unwrap_or_else(|_gone| Err(lost()))
    }

    /// Asks for something, with descriptors beside it. The answer is waited for by whoever wants to;
    /// there is none if the keeper is lost.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: Request,
        handles: &[BorrowedFd<'_>],
    ) -> Result<oneshot::Receiver<Answer>, Trouble> {
        let link = self.link().await?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        link.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let message = cowork_api::encode(&Call { number, request });
        if let Err(error) = link.packets.send(&message, handles).await {
            link.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            return Err(lost().with_cause(error));
        }
        Ok(answer)
    }

    /// Sends something that is not answered, with descriptors beside it.
    pub(crate) async fn post(
        self: &Arc<Self>,
        request: Request,
        handles: &[BorrowedFd<'_>],
    ) -> Result<(), Trouble> {
        let link = self.link().await?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let message = cowork_api::encode(&Call { number, request });
        let sent = link.packets.send(&message, handles).await;
        sent.map_err(|error| lost().with_cause(error))
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut current = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
        }
        drop(current);
        let pending =
            std::mem::take(&mut *link.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, waiting) in pending {
            drop(waiting.send(Err(lost())));
        }
    }
}

fn lost() -> Trouble {
    Trouble::host("the keeper is gone", "the conversation ended without an answer")
        .with_hint("try again: a new one is started")
}

async fn hear(engine: Arc<Engine>, link: Arc<Link>) {
    loop {
        let packet = match link.packets.receive(Peer::Trusted).await {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => match Errno::from_io_error(&error) {
                // Not a message; the next one may be.
                Some(Errno::BADMSG | Errno::MSGSIZE) => continue,
                _ => break,
            },
        };
        let Ok(message) = cowork_api::decode::<Message>(&packet.bytes) else { continue };
        match message {
            Message::Answer { number, result } => {
                let waiting =
                    link.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                let answer = result.map(|reply| (reply, packet.handles)).map_err(Trouble::from);
                if let Some(waiting) = waiting {
                    drop(waiting.send(answer));
                }
            }
            event => drop(engine.told.send(Told::Keeper(event))),
        }
    }
    engine.forget(&link);
    drop(engine.told.send(Told::Lost));
}

fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

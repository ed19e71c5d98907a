//! The pump: two threads that move the output of every command.
//!
//! A log starts with the first thread. When its writer proves busy it is handed to the second one,
//! and comes back when it has been modest for a while. A thread that writes much is held up by the
//! kernel when the disk is slow (`balance_dirty_pages`), and has other floods to attend to; with
//! two of them a command that says a word is heard at once all the same. A request goes to the
//! first thread; one that does not have the log passes it on, behind the log itself.

use super::feed::{Feed, Source};
use super::log::{Log, Shared};
use super::store::Store;
use super::worker::{Role, Task, Worker};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Stands for the mailbox's bell in an epoll set.
pub(super) const BELL: u64 = 0;

/// How many sources a log has at most: one per stream.
const SOURCES: u64 = 4;

/// Moves the output of every command into files, until it is dropped.
#[derive(Debug)]
pub struct Pump {
    next_id: AtomicU64,
    mailbox: Arc<Mailbox>,
    threads: Vec<(Arc<Mailbox>, JoinHandle<()>)>,
}

impl Pump {
    /// Starts the threads. Nothing is moved yet.
    pub fn start() -> io::Result<Self> {
        let (first, second) = (Arc::new(Mailbox::new()?), Arc::new(Mailbox::new()?));
        let large = Arc::default();
        let quiet = Worker::new(Role::Quiet, [&first, &second], &large);
        let busy = Worker::new(Role::Busy, [&second, &first], &large);
        let mut pump =
            Self { next_id: AtomicU64::new(1), mailbox: Arc::clone(&first), threads: Vec::new() };
        for (name, mailbox, worker) in [("output", first, quiet), ("output-busy", second, busy)] {
            let thread = std::thread::Builder::new().name(name.into());
            pump.threads.push((mailbox, thread.spawn(|| worker.run())?));
        }
        Ok(pump)
    }

    /// Moves everything from `sources` into `folder` from now on, after what is there already.
    ///
    /// About `cap` bytes are kept: the oldest are let go of, unless a [`Consumer`](super::Consumer)
    /// has not read them, which holds the command up instead. `wake` is called
    /// from a thread of the pump whenever [`Log::progress`] or [`Log::error`] has changed, the last
    /// time when the output has finished. It must not wait for anything.
    pub fn add(
        &self,
        folder: &Path,
        sources: Vec<Source>,
        cap: u64,
        wake: Box<dyn Fn() + Send>,
    ) -> io::Result<Arc<Log>> {
        let streams: Vec<_> = sources.iter().map(Source::stream).collect();
        if streams.iter().collect::<BTreeSet<_>>().len() < streams.len() {
            let sentence = "two sources are of the same stream";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        }
        let store = Store::open(folder, &streams, cap)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let feed = |(source, number)| Feed::new(source, &self.mailbox.epoll, token(id, number));
        let feeds = sources.into_iter().zip(0..).map(feed).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared::new(store.progress()));
        let log = Log::new(id, folder, Arc::clone(&shared), Arc::clone(&self.mailbox));
        let task = Box::new(Task::new(feeds, store, shared, wake));
        match self.mailbox.post(Request::Enter { id, task }) {
            Ok(()) => Ok(Arc::new(log)),
            Err(_) => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        for (mailbox, _) in &self.threads {
            // A thread that is gone needs not be told.
            cowork_sys::ignore(mailbox.post(Request::Stop));
        }
        for (_, thread) in self.threads.drain(..) {
            // The last owner may be a `wake`.
            if thread.thread().id() != std::thread::current().id() {
                cowork_sys::ignore(thread.join());
            }
        }
    }
}

/// What the epoll set says for a feed.
pub(super) fn token(id: u64, number: u64) -> u64 {
    id * SOURCES + number
}

/// The log and the feed that an event is about.
pub(super) fn about(token: u64) -> (u64, usize) {
    (token / SOURCES, usize::try_from(token % SOURCES).unwrap_or_default())
}

/// What is asked of a thread of the pump.
pub(super) enum Request {
    /// To attend to a log.
    Enter { id: u64, task: Box<Task> },
    /// To move what there is.
    Settle { id: u64, log: Arc<Shared>, then: Box<dyn FnOnce() + Send> },
    /// To let go of a log.
    Close { id: u64, log: Arc<Shared> },
    /// To end.
    Stop,
}

impl Request {
    /// Gives up a request that nobody carries out any more.
    pub(super) fn refuse(self) {
        match self {
            Self::Settle { then, .. } => then(),
            Self::Enter { .. } | Self::Close { .. } | Self::Stop => {}
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, id) = match self {
            Self::Enter { id, .. } => ("Enter", *id),
            Self::Settle { id, .. } => ("Settle", *id),
            Self::Close { id, .. } => ("Close", *id),
            Self::Stop => ("Stop", 0),
        };
        f.debug_tuple(name).field(&id).finish()
    }
}

/// How a thread of the pump is reached.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) epoll: Arc<OwnedFd>,
    bell: OwnedFd,
    /// Nothing, once the thread has ended.
    requests: Mutex<Option<Vec<Request>>>,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered: nobody reads it, and every ring is an event of its own.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), flags)?;
        Ok(Self { epoll: Arc::new(epoll), bell, requests: Mutex::new(Some(Vec::new())) })
    }

    /// Asks for something, or returns the request if there is nobody left to ask.
    pub(super) fn post(&self, request: Request) -> Result<(), Request> {
        match &mut *self.lock() {
            Some(requests) => requests.push(request),
            None => return Err(request),
        }
        // It can only fail when 2^64 - 1 rings were heard.
        cowork_sys::ignore(rustix::io::write(&self.bell, &1_u64.to_ne_bytes()));
        Ok(())
    }

    /// Takes what was asked for.
    pub(super) fn take(&self) -> Vec<Request> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes what was asked for, the last time.
    pub(super) fn shut(&self) -> Vec<Request> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Request>>> {
        // Nothing that can panic runs under the lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

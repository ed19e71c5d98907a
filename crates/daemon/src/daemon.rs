//! The daemon as a whole: what it has, how it starts, how it ends.

use crate::book::{Book, now};
use crate::engine::Engine;
use crate::folders::Folders;
use crate::http;
use crate::network::Secrets;
use crate::session::{Claims, Pool, Session};
use crate::settings::Settings;
use crate::trouble::Trouble;
use cowork_sandbox::places::Places;
use cowork_session::output::Pump;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Everything the daemon has.
pub(crate) struct Daemon {
    pub(crate) settings: Settings,
    pub(crate) folders: Folders,
    pub(crate) book: Book,
    pub(crate) engine: Arc<Engine>,
    pub(crate) output: Pump,
    pub(crate) places: Places,
    pub(crate) pool: Pool,
    pub(crate) claims: Claims,
    pub(crate) secrets: Secrets,
    /// Whoever looks after tasks.
    pub(crate) desks: crate::tasks::Desks,
    /// Told when a grant may end earlier than all that were known.
    pub(crate) expiring: Notify,
    pub(crate) started: String,
    /// Connections that are open.
    pub(crate) clients: AtomicUsize,
    /// How many clients have ever come.
    pub(crate) arrivals: AtomicUsize,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    leaving: AtomicBool,
    /// Whether it takes no clients any more.
    departing: AtomicBool,
    leave: Notify,
}

/// Runs until the daemon is idle or asked to leave.
pub(crate) fn run(settings: Settings) -> Result<(), Trouble> {
    let folders = Folders::prepare()?;
    raise_open_files();
    drop_capabilities()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Trouble::host("cannot start", error))?;
    runtime.block_on(serve(settings, folders))
}

/// A running command holds several descriptors; the daemon uses all that it may have.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    cowork_sys::ignore(setrlimit(Resource::Nofile, most));
}

/// The daemon needs no capability; the keeper, which it starts, gets its own.
fn drop_capabilities() -> Result<(), Trouble> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none)
        .map_err(|errno| Trouble::host("cannot give up capabilities", errno))
}

async fn serve(settings: Settings, folders: Folders) -> Result<(), Trouble> {
    let book = Book::open(&folders.state, settings.events)?;
    let (engine, told) = Engine::new(&folders);
    let output =
        Pump::start().map_err(|error| Trouble::host("cannot start the pump of output", error))?;
    let listeners = http::Listeners::bind(&settings, &folders)?;
    let daemon = Arc::new(Daemon {
        places: Places::find(Some(&folders.state), &cowork_client::places::runtime_folders()),
        secrets: Secrets::new(&folders.state),
        settings,
        folders,
        book,
        engine,
        output,
        pool: Pool::default(),
        claims: Claims::default(),
        desks: crate::tasks::Desks::default(),
        expiring: Notify::new(),
        started: now(),
        clients: AtomicUsize::new(0),
        arrivals: AtomicUsize::new(0),
        sessions: Mutex::default(),
        leaving: AtomicBool::new(false),
        departing: AtomicBool::new(false),
        leave: Notify::new(),
    });
    let data = json!({ "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id() });
    daemon.book.record("daemon.started", None, &data)?;
    daemon.adopt().await?;
    daemon.adopt_tasks();
    tokio::spawn(crate::session::hear(Arc::clone(&daemon), told));
    tokio::spawn(crate::session::beat(Arc::clone(&daemon)));
    tokio::spawn(crate::session::expire(Arc::clone(&daemon)));
    tokio::spawn(crate::session::sample(Arc::clone(&daemon)));
    tokio::spawn(crate::session::summarise(Arc::clone(&daemon)));
    tokio::spawn(crate::changes::tidy(Arc::clone(&daemon)));
    http::serve(&daemon, listeners);
    daemon.wait().await?;
    daemon.depart().await;
    Ok(())
}

impl Daemon {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every session that is not removed.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.sessions().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.sessions().len()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    /// The session, or that there is none.
    pub(crate) fn session(&self, id: &str) -> Result<Arc<Session>, Trouble> {
        self.find(id).ok_or_else(|| {
            let sentence = format!("there is no session `{}`", id.escape_debug());
            Trouble::missing("no-session", sentence).with_hint("see `cowork ls`")
        })
    }

    pub(crate) fn insert(&self, session: &Arc<Session>) {
        self.sessions().insert(session.id.clone(), Arc::clone(session));
    }

    pub(crate) fn forget(&self, id: &str) {
        self.sessions().remove(id);
    }

    /// Whether an id is in use, or was by something that is still on disk.
    pub(crate) fn is_taken(&self, id: &str) -> bool {
        self.sessions().contains_key(id)
            || self.pool.has(id)
            || std::fs::symlink_metadata(self.folders.session(id)).is_ok()
    }

    /// How many sessions have, or should have, a sandbox.
    pub(crate) fn live(&self) -> usize {
        self.sessions().values().filter(|session| session.state().is_live()).count()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Whether it takes no clients any more.
    pub(crate) fn is_departing(&self) -> bool {
        self.departing.load(Ordering::Relaxed)
    }

    /// Asks the daemon to stop every session and leave.
    pub(crate) fn ask_to_leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Waits until the daemon is idle, or asked to leave.
    async fn wait(&self) -> Result<(), Trouble> {
        let failed = |error| Trouble::host("cannot wait for signals", error);
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut idle_since = Instant::now();
        let mut seen = 0;
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                () = self.leave.notified() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
            let came = self.arrivals.load(Ordering::Relaxed);
            if self.live() > 0 || self.clients.load(Ordering::Relaxed) > 0 || came != seen {
                idle_since = Instant::now();
                seen = came;
            }
            if self.settings.idle.is_some_and(|idle| idle_since.elapsed() >= idle) {
                return Ok(());
            }
        }
    }

    /// Leaves. Asked to, it stops every session first; otherwise those that live go on without it.
    async fn depart(self: &Arc<Self>) {
        let asked = self.is_leaving();
        self.leaving.store(true, Ordering::Relaxed);
        // Nothing has happened since it was decided to leave, and nothing new begins from here on.
        self.departing.store(true, Ordering::Relaxed);
        cowork_sys::ignore(rustix::fs::unlink(self.folders.api()));
        // One that is being made would be left behind.
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.pool.is_filling() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for id in self.pool.empty() {
            self.discard(&id).await;
        }
        if asked {
            for session in self.all() {
                drop(self.stop(&session, "stopped", Some("the daemon was stopped")).await);
            }
        }
        if self.live() == 0 && self.engine.has_keeper() {
            self.empty_trash().await;
            drop(self.engine.call(cowork_api::keeper::Request::Leave).await);
            for left in [self.folders.keeper(), self.folders.runtime.join("keeper.pid")] {
                cowork_sys::ignore(rustix::fs::unlink(left));
            }
            // A keeper that was killed had processes that outlived the start of the next one.
            cowork_sandbox::keeper::sweep();
        }
        let data = json!({ "live": self.live() });
        drop(self.book.record("daemon.stopped", None, &data));
        drop(self.book.sync());
    }
}

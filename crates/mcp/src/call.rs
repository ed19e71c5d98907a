//! One call of a tool: the way to the daemon, a word on how it goes, and whether anybody still
//! waits for it. Tools wait; each runs on a thread of its own.

use crate::link::Link;
use crate::refusal::Refusal;
use crate::text::line;
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{NewSession, Session};
use cowork_client::uri;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The label of sessions that can be reached here.
pub(crate) const LABEL: &str = "mcp";
/// The label's value, of those that were made here.
pub(crate) const MADE: &str = "made";
/// Shortest time between two words on how it goes.
const PACE: Duration = Duration::from_millis(250);
/// Longest word on how it goes, in bytes.
const MAX_WORD: usize = 200;
/// Longest wait for calls under way when the connection has ended.
const CLOSE: Duration = Duration::from_secs(10);

/// What the calls of one connection share.
#[derive(Debug)]
pub(crate) struct Office {
    pub(crate) link: Link,
    /// What sessions are made from.
    pub(crate) template: NewSession,
    /// Sessions of the user's that can be reached here as well.
    pub(crate) shared: Vec<String>,
    /// Sessions that this connection has made.
    made: Mutex<BTreeSet<String>>,
    closing: AtomicBool,
    under_way: AtomicUsize,
}

impl Office {
    pub(crate) fn new(link: Link, template: NewSession, shared: Vec<String>) -> Self {
        let (closing, under_way) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { link, template, shared, made: Mutex::default(), closing, under_way }
    }

    pub(crate) fn made(&self) -> BTreeSet<String> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add(&self, session: &str) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(session.to_owned());
    }

    pub(crate) fn forget(&self, session: &str) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    /// Nobody waits any more: calls end, and sessions that were made here are stopped. Their files
    /// stay.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let end = Instant::now() + CLOSE;
        while self.under_way.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let made = self.made();
        if made.is_empty() {
            return;
        }
        let Some(mut client) = self.link.connect_running() else { return };
        for session in made {
            let stop = Request::new(Method::Post, target(&session, "/stop"));
            cowork_sys::ignore(client.call(&stop));
        }
    }
}

/// The target of something below a session; `below` is escaped already.
pub(crate) fn target(id: &str, below: &str) -> String {
    format!("/v1/sessions/{}{below}", uri::segment(id))
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    office: Arc<Office>,
    word: watch::Sender<String>,
    told: Mutex<Option<Instant>>,
    cancelled: Arc<AtomicBool>,
}

impl Call {
    pub(crate) fn new(office: &Arc<Office>) -> (Self, watch::Receiver<String>, Arc<AtomicBool>) {
        let (word, heard) = watch::channel(String::new());
        let cancelled = Arc::new(AtomicBool::new(false));
        office.under_way.fetch_add(1, Ordering::AcqRel);
        let (office, flag) = (Arc::clone(office), Arc::clone(&cancelled));
        (Self { office, word, told: Mutex::new(None), cancelled }, heard, flag)
    }

    pub(crate) fn office(&self) -> &Office {
        &self.office
    }

    /// A connection to the daemon.
    pub(crate) fn client(&self) -> Result<Client, Refusal> {
        self.office.link.connect()
    }

    /// Says how it goes, unless something was said a moment ago.
    pub(crate) fn tell(&self, word: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= PACE) {
            *told = Some(Instant::now());
            self.word.send_replace(line(word, MAX_WORD));
        }
    }

    /// Whether nobody waits any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.office.closing.load(Ordering::Relaxed)
    }

    /// The session that is meant, if it can be reached here. One that cannot is not there.
    pub(crate) fn session(
        &self,
        client: &mut Client,
        wanted: Option<&str>,
    ) -> Result<Session, Refusal> {
        let id = match wanted {
            Some(id) => id.to_owned(),
            None => self.only()?,
        };
        let missing = || {
            Refusal::new("no-session", format!("there is no session `{}`", id.escape_debug()))
                .with_hint("list them with list_sessions, or make one with create_session")
        };
        let session: Session = client.get(target(&id, "")).map_err(|error| {
            let missed = error.problem().is_some_and(|problem| problem.status == 404);
            if missed { missing() } else { error.into() }
        })?;
        if self.reaches(&session) { Ok(session) } else { Err(missing()) }
    }

    /// Whether a session can be reached here: the user has said so, or it was made for that.
    pub(crate) fn reaches(&self, session: &Session) -> bool {
        session.labels.contains_key(LABEL) || self.office.shared.contains(&session.id)
    }

    /// The session that is meant when none is named.
    fn only(&self) -> Result<String, Refusal> {
        let made = self.office.made();
        let mut all = made.into_iter().chain(self.office.shared.iter().cloned());
        match (all.next(), all.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Refusal::new("which-session", "no session was made over this connection")
                .with_hint("make one with create_session, or give the id of one from list_sessions as `session`")),
            (Some(_), Some(_)) => {
                Err(Refusal::new("which-session", "there are several sessions: which one is meant?")
                    .with_hint("give its id as `session`"))
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.office.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

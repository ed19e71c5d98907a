//! One session: what is kept of it, what runs of it, and everything that can be done with it.

mod about;
mod adopt;
mod asker;
mod attach;
pub(crate) mod catch_up;
mod claims;
mod commands;
mod control;
pub(crate) mod doc;
mod ends;
mod expiry;
pub(crate) mod files;
mod grants;
mod heartbeat;
mod inside;
mod make;
mod pool;
mod remove;
mod requests;
mod usage;
mod used;
mod view;
pub(crate) mod watch;
mod wiring;

pub(crate) use about::refresh as tell;
pub(crate) use attach::{Attachment, Role};
pub(crate) use claims::Claims;
pub(crate) use commands::{Run, takes_input};
pub(crate) use control::grace;
pub(crate) use doc::Doc;
pub(crate) use expiry::expire;
pub(crate) use grants::{find as granted, has_sandbox};
pub(crate) use heartbeat::{beat, hear};
pub(crate) use pool::Pool;
pub(crate) use remove::Leave;
pub(crate) use requests::{document as document_of_request, plain, shown as shown_request};
pub(crate) use usage::sample;

use crate::book::{Book, now};
use crate::guest::Guest;
use crate::network::{Line, Starting, Tally};
use crate::trouble::Trouble;
use cowork_client::types::{Command, CommandBrief, Sandbox, Session as Shown, Usage};
use cowork_session::catalogue::{CatalogueError, Together};
use cowork_session::life::{Backoff, Event, State};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// What is told of a session whose state is another one.
const STATE: &str = "session.state";

/// A session of this daemon.
pub(crate) struct Session {
    pub(crate) id: String,
    /// Held by whoever changes its life or its grants: one at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Held by all who start commands in it, and by whoever is about to pause it: a start that init
    /// has not answered when it stands still is answered when somebody resumes the session.
    pub(crate) starts: tokio::sync::RwLock<()>,
    /// Held by whoever records its changes: one at a time.
    pub(crate) auditing: tokio::sync::Mutex<()>,
    doc: Mutex<Doc>,
    live: Mutex<Live>,
}

/// What there is only while this daemon runs.
#[derive(Default)]
struct Live {
    guest: Option<Arc<Guest>>,
    /// Whoever hears what the session asks for.
    asks: Option<AbortHandle>,
    runs: BTreeMap<u32, Arc<Run>>,
    /// Commands that are written down and about to be started.
    starting: BTreeMap<u32, Command>,
    /// The last command that an earlier daemon left, if init was not asked about those yet.
    unasked: Option<u32>,
    /// The ping that should be answered by the next beat.
    ping: Option<u64>,
    missed: u32,
    backoff: Backoff,
    well_since: Option<Instant>,
    /// How often somebody began to make its sandbox again.
    makings: u32,
    usage: VecDeque<Usage>,
    /// The most processes that each command was seen to have at a time.
    most_processes: BTreeMap<u32, u32>,
    /// How many commands had been started when it was last sampled.
    sampled: Option<u32>,
    /// Whether its disk was found to be over its limit.
    over_disk: bool,
    /// How often it has asked for something.
    asked: u32,
    /// Its way out, and since when it is that one.
    line: Option<Arc<Line>>,
    line_since: Option<Instant>,
    /// How long the next one is waited with, if this one dies.
    line_wait: Duration,
    /// A process that is to be its way out.
    early: Option<Starting>,
    /// What it reached, and what it was refused.
    tally: Tally,
    /// The number of the last command that was to be, whether or not it came to be.
    numbered: u32,
}

/// Something that happened to a session.
struct Happened<'a> {
    event: Event,
    /// Why, where that is not obvious.
    reason: Option<&'a str>,
    /// What is told of it beside the state that follows.
    told: Option<(&'a str, Value)>,
}

impl Session {
    pub(crate) fn new(doc: Doc) -> Arc<Self> {
        Arc::new(Self {
            id: doc.id.clone(),
            turn: tokio::sync::Mutex::new(()),
            starts: tokio::sync::RwLock::new(()),
            auditing: tokio::sync::Mutex::new(()),
            doc: Mutex::new(doc),
            live: Mutex::default(),
        })
    }

    /// What is kept of it now.
    pub(crate) fn doc(&self) -> Doc {
        self.lock_doc().clone()
    }

    fn lock_doc(&self) -> MutexGuard<'_, Doc> {
        self.doc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it lives for one command only.
    pub(crate) fn is_once(&self) -> bool {
        self.lock_doc().spec.life == cowork_client::types::Life::Once
    }

    /// Where it is in its life.
    pub(crate) fn state(&self) -> State {
        self.lock_doc().state
    }

    /// Changes what is kept of it, and keeps that. A change that cannot be kept is not made.
    pub(crate) fn change<T>(
        &self,
        book: &Book,
        change: impl FnOnce(&mut Doc) -> T,
    ) -> Result<T, Trouble> {
        let mut doc = self.lock_doc();
        let mut changed = doc.clone();
        let result = change(&mut changed);
        let text = text_of(&changed)?;
        book.catalogue.put_session(&self.id, &text)?;
        *doc = changed;
        Ok(result)
    }

    /// Notes something that is kept with the next change.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Doc)) {
        change(&mut self.lock_doc());
    }

    /// Notes what is so already and what the next daemon would find out: if it cannot be kept now,
    /// it is kept with the next change.
    pub(crate) fn settle<T>(&self, book: &Book, change: impl FnOnce(&mut Doc) -> T) -> T {
        let mut doc = self.lock_doc();
        let result = change(&mut doc);
        if let Ok(text) = serde_json::to_string(&*doc) {
            drop(book.catalogue.put_session(&self.id, &text));
        }
        result
    }

    /// Records something and changes what is kept of it, in one step: what cannot be recorded or
    /// kept is not changed. The change says what is recorded.
    pub(crate) fn record(
        &self,
        book: &Book,
        kind: &str,
        change: impl FnOnce(&mut Doc) -> Result<Value, Trouble>,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        self.record_after(book, (None, kind), change, belongs)
    }

    /// The same, with another record before it.
    fn record_after(
        &self,
        book: &Book,
        (before, kind): (Option<(&str, &Value)>, &str),
        change: impl FnOnce(&mut Doc) -> Result<Value, Trouble>,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        let mut doc = self.lock_doc();
        let mut changed = doc.clone();
        let data = change(&mut changed)?;
        let text = text_of(&changed)?;
        let entries: Vec<_> = before.into_iter().chain([(kind, &data)]).collect();
        book.record_all(Some(&self.id), &entries, |catalogue| {
            catalogue.put_session(&self.id, &text)?;
            belongs(catalogue)
        })?;
        *doc = changed;
        Ok(())
    }

    /// Records why a folder is no longer granted to it, and forgets the grant, in one step.
    pub(crate) fn drop_grant(
        &self,
        book: &Book,
        kind: &str,
        name: &str,
        data: impl FnOnce() -> Value,
    ) -> Result<(), Trouble> {
        let forget = |doc: &mut Doc| {
            doc.grants.retain(|kept| kept.grant.name != name);
            Ok(data())
        };
        self.record(book, kind, forget, |_| Ok(()))
    }

    /// Something happened to it: the state that follows is kept and told.
    pub(crate) fn happen(
        &self,
        book: &Book,
        event: Event,
        reason: Option<&str>,
    ) -> Result<State, Trouble> {
        self.happen_with(book, Happened { event, reason, told: None }, |_| Ok(()))
    }

    /// Something happened to it: the state that follows is kept and told, together with whatever
    /// belongs to it.
    fn happen_with(
        &self,
        book: &Book,
        happened: Happened<'_>,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<State, Trouble> {
        let Happened { event, reason, told } = happened;
        let mut doc = self.lock_doc();
        let next = doc.next(event, reason)?;
        if next.is_none() && told.is_none() {
            return Ok(doc.state);
        }
        let (next, state) = next.unzip();
        let text = next.as_ref().map(text_of).transpose()?;
        let events: Vec<_> = state.map(|state| (STATE, state)).into_iter().chain(told).collect();
        book.write(&self.id, &events, |catalogue| {
            if let Some(text) = &text {
                catalogue.put_session(&self.id, text)?;
            }
            belongs(catalogue)
        })?;
        if let Some(next) = next {
            *doc = next;
        }
        Ok(doc.state)
    }

    /// Something is recorded, and happens to it: the state that follows is kept and told in the same
    /// step, together with whatever belongs to it. What does not fit its state leaves that as it is.
    fn record_and_happen(
        &self,
        book: &Book,
        (kind, data): (&str, &Value),
        event: Event,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        let mut doc = self.lock_doc();
        let (next, state) = doc.next(event, None).ok().flatten().unzip();
        let text = next.as_ref().map(text_of).transpose()?;
        let told = state.as_ref().map(|state| (STATE, state));
        book.record_told(&self.id, (kind, data), told, |catalogue| {
            if let Some(text) = &text {
                catalogue.put_session(&self.id, text)?;
            }
            belongs(catalogue)
        })?;
        if let Some(next) = next {
            *doc = next;
        }
        Ok(())
    }

    /// Something is recorded and happens to it, in one step: it is recorded once, whenever the
    /// daemon dies.
    pub(crate) fn record_happening(
        &self,
        book: &Book,
        kind: &str,
        event: Event,
        reason: &str,
    ) -> Result<State, Trouble> {
        let before = self.state();
        let after = before.after(event)?;
        let happen = |doc: &mut Doc| {
            doc.state = after;
            doc.reason = Some(reason.to_owned());
            doc.changed = now();
            if !after.is_live() {
                doc.sandbox = None;
            }
            Ok(json!({ "reason": reason }))
        };
        let told = json!({ "from": before.name(), "to": after.name(), "reason": reason });
        self.record(book, kind, happen, |catalogue| {
            let told = told.to_string();
            catalogue.add_event(&now(), STATE, Some(&self.id), &told).map(drop)
        })?;
        Ok(after)
    }

    /// Its way out, if it has one.
    pub(crate) fn line(&self) -> Option<Arc<Line>> {
        self.live().line.clone()
    }

    /// Gives it another way out; the one it had.
    pub(crate) fn set_line(&self, line: Option<Arc<Line>>) -> Option<Arc<Line>> {
        let mut live = self.live();
        live.line_since = line.is_some().then(Instant::now);
        std::mem::replace(&mut live.line, line)
    }

    /// A process that is to be its way out, in place of another one.
    pub(crate) fn set_early(&self, early: Option<Starting>) -> Option<Starting> {
        std::mem::replace(&mut self.live().early, early)
    }

    /// Its way out died: how long to wait before there is another one. Longer, up to `longest`, the
    /// sooner after the last one.
    pub(crate) fn line_died(&self, shortest: Duration, longest: Duration) -> Duration {
        let mut live = self.live();
        let age = live.line_since.take().map(|since| since.elapsed()).unwrap_or_default();
        let next = if age > 2 * longest { shortest } else { live.line_wait * 2 };
        live.line_wait = next.clamp(shortest, longest);
        live.line_wait
    }

    /// Whether it may reach anything.
    pub(crate) fn has_network(&self) -> bool {
        self.lock_doc().spec.network.is_some()
    }

    /// Looks at, or adds to, what it reached.
    pub(crate) fn with_tally<T>(&self, work: impl FnOnce(&mut Tally) -> T) -> T {
        work(&mut self.live().tally)
    }

    /// Somebody begins to make its sandbox again: which time it is.
    fn begin_making(&self) -> u32 {
        let mut live = self.live();
        live.makings = live.makings.wrapping_add(1);
        live.makings
    }

    /// Whether its sandbox is still to be made by whoever began that this time.
    fn is_making(&self, making: u32) -> bool {
        let doc = self.lock_doc();
        doc.state == State::Creating && doc.removing.is_none() && self.live().makings == making
    }

    /// The init, or why there is none.
    fn guest(&self) -> Result<Arc<Guest>, Trouble> {
        let guest = self.live().guest.clone();
        guest.ok_or_else(no_sandbox)
    }

    /// It asks for something: how often it has.
    pub(crate) fn count_ask(&self) -> u32 {
        let mut live = self.live();
        live.asked = live.asked.saturating_add(1);
        live.asked
    }

    /// The number of a new command: none has it, not even one that could not be written down.
    fn number_command(&self) -> u32 {
        let doc = self.lock_doc();
        let mut live = self.live();
        live.numbered = live.numbered.max(doc.commands).saturating_add(1);
        live.numbered
    }

    /// How many commands run.
    pub(crate) fn running(&self) -> usize {
        self.live().runs.values().filter(|run| run.is_running()).count()
    }

    /// A command of this daemon's time.
    pub(crate) fn run(&self, number: u32) -> Option<Arc<Run>> {
        self.live().runs.get(&number).cloned()
    }

    fn runs(&self) -> Vec<Arc<Run>> {
        self.live().runs.values().cloned().collect()
    }

    /// The session as the API shows it.
    pub(crate) fn show(&self, book: &Book, folder: &std::path::Path) -> Result<Shown, Trouble> {
        let doc = self.doc();
        let live = self.live();
        let missed = live.missed;
        let connected = live.guest.is_some() && missed == 0;
        let running = live.runs.values().filter(|run| run.is_running());
        let running = running.map(|run| run.command());
        let running: Vec<CommandBrief> = running
            .map(|command| CommandBrief { number: command.number, argv: command.argv })
            .collect();
        drop(live);
        let sandbox = doc.sandbox.as_ref().map(|sandbox| Sandbox {
            pid: sandbox.pid,
            connected,
            missed,
            restarts: doc.restarts,
            since: sandbox.since.clone(),
        });
        let kept = doc.spec.life == cowork_client::types::Life::Kept;
        let own = |name: &str| kept.then(|| doc::raw(&folder.join(name)));
        Ok(Shown {
            id: doc.id.clone(),
            state: doc::state(doc.state),
            reason: doc.reason.clone(),
            tier: "native".into(),
            profile: doc.spec.profile,
            life: doc.spec.life,
            created: doc.created.clone(),
            changed: doc.changed.clone(),
            labels: doc.spec.labels.clone(),
            folder: doc.folder(),
            outputs: doc.spec.outputs.clone().or_else(|| own("outputs")),
            uploads: own("uploads"),
            grants: doc.grants.into_iter().map(|kept| kept.grant).collect(),
            limits: doc.limits,
            enforcement: doc.enforcement,
            sandbox,
            running,
            commands: doc.commands,
            pending: book.catalogue.count_pending(&self.id)?,
            network: None,
            skills: doc.spec.skills.map(|skills| skills.path),
        })
    }
}

fn no_sandbox() -> Trouble {
    Trouble::conflict("no-sandbox", "the session has no sandbox at the moment")
        .with_hint("see `cowork status`")
}

/// A session as the catalogue keeps it.
fn text_of(doc: &Doc) -> Result<String, Trouble> {
    serde_json::to_string(doc).map_err(|error| Trouble::host("cannot write down a session", error))
}

/// Writes `session.json` of sessions that changed, until the daemon ends.
pub(crate) async fn summarise(daemon: Arc<crate::daemon::Daemon>) {
    let mut written: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut seen = BTreeMap::new();
        for session in daemon.all() {
            let doc = session.doc();
            if doc.spec.life == cowork_client::types::Life::Once || doc.removing.is_some() {
                continue;
            }
            let text = about::summary(&doc);
            // Texts of many sessions need not be kept to see that they are others.
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            let hash = hasher.finish();
            let is_there = written.get(&doc.id) == Some(&hash)
                || about::write_summary(&daemon, &doc.id, &text).is_ok();
            if is_there {
                seen.insert(doc.id, hash);
            }
        }
        written = seen;
    }
}

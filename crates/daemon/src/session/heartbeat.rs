//! Whether sessions are alive, and what happens to one that is not.
//!
//! Every two seconds each PID 1 is asked; three answers missed in a row, a dead PID 1, or a dead
//! keeper mean that the sandbox is lost. It is made again with its grants and its home; what ran in
//! it is marked as interrupted. A paused session is not asked.

use super::Session;
use super::doc::Phase;
use crate::changes::Occasion;
use crate::daemon::Daemon;
use crate::engine::Told;
use crate::guest::PATIENCE;
use crate::trouble::Trouble;
use cowork_api::keeper::{EndReason, Message, Reply, Request, Status};
use cowork_session::life::{Event, State};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Time between two heartbeats.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
/// Answers missed in a row after which a sandbox is lost.
const MISSES: u32 = 3;
/// Time without trouble after which earlier failures no longer count.
const WELL: Duration = Duration::from_mins(1);

/// Beats until the daemon ends.
pub(crate) async fn beat(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for session in daemon.all() {
            ask_again(&daemon, &session);
            if daemon.has_new_changes(&session) {
                let (daemon, session) = (Arc::clone(&daemon), Arc::clone(&session));
                tokio::spawn(async move { daemon.audit_changes(&session, Occasion::Beat).await });
            }
            if let Some(missed) = check(&session) {
                let data = json!({ "missed": missed });
                daemon.book.note("session.heartbeat", Some(&session.id), &data);
                if missed == 1 {
                    // What is done about it later is recorded by itself.
                    let data = json!({ "sandbox": session.doc().sandbox.map(|of| of.pid) });
                    drop(daemon.book.record("session.unresponsive", Some(&session.id), &data));
                }
                if missed >= MISSES {
                    let daemon = Arc::clone(&daemon);
                    tokio::spawn(async move {
                        daemon.lose(&session, "its PID 1 did not answer three heartbeats").await;
                    });
                }
            }
        }
    }
}

/// Asks about the commands of an earlier daemon, if its PID 1 could not be asked so far.
fn ask_again(daemon: &Arc<Daemon>, session: &Arc<Session>) {
    let awake = matches!(session.state(), State::Ready | State::Running);
    if awake && session.live().unasked.is_some() {
        let (daemon, session) = (Arc::clone(daemon), Arc::clone(session));
        tokio::spawn(async move { daemon.reconcile_commands(&session, PATIENCE).await });
    }
}

/// Asks once; how many answers are missing, if any is.
fn check(session: &Session) -> Option<u32> {
    let state = session.state();
    let mut live = session.live();
    if !matches!(state, State::Ready | State::Running) {
        live.ping = None;
        return None;
    }
    let guest = live.guest.clone()?;
    let answered = live.ping.is_none_or(|ping| guest.pong() >= ping);
    if answered {
        live.missed = 0;
        if live.well_since.is_some_and(|since| since.elapsed() > WELL) {
            live.backoff.recover();
        }
    } else {
        live.missed += 1;
        live.well_since = Some(Instant::now());
    }
    let ping = guest.ping();
    if answered {
        live.ping = Some(ping);
    }
    let missed = live.missed;
    (missed > 0).then_some(missed)
}

/// Hears what the keeper tells until the daemon ends.
pub(crate) async fn hear(daemon: Arc<Daemon>, mut told: mpsc::UnboundedReceiver<Told>) {
    while let Some(told) = told.recv().await {
        match told {
            Told::Keeper(Message::SessionEnded { session, reason }) => {
                if daemon.pool.lose(&session) {
                    daemon.discard(&session).await;
                } else if let Some(session) = daemon.find(&session) {
                    let daemon = Arc::clone(&daemon);
                    tokio::spawn(async move { daemon.ended_itself(&session, reason).await });
                }
            }
            Told::Keeper(Message::BrokerRestarted { session }) => {
                let data = json!({ "program": "broker" });
                drop(daemon.book.record("session.repaired", Some(&session), &data));
                if let Some(session) = daemon.find(&session) {
                    daemon.expire_files(&session);
                }
            }
            Told::Keeper(Message::FileAsked { session, ask }) => {
                daemon.file_asked(&session, &ask).await;
            }
            Told::Keeper(Message::FileRefused { session, refusal }) => {
                let data = crate::changes::refusal(&refusal);
                // What it was about was not done, whether that can be recorded or not.
                drop(daemon.book.record("files.refused", Some(&session), &data));
            }
            Told::Keeper(Message::MoreRefused { session, count }) => {
                let data = json!({ "count": count });
                drop(daemon.book.record("files.refused-more", Some(&session), &data));
            }
            Told::Keeper(Message::FileWithdrawn { session, ask }) => {
                daemon.file_withdrawn(&session, ask);
            }
            Told::Keeper(Message::Answer { .. }) => {}
            Told::Lost => {
                let data = json!({ "program": "keeper" });
                drop(daemon.book.record("keeper.lost", None, &data));
                for id in daemon.pool.empty() {
                    daemon.discard(&id).await;
                }
                for session in daemon.all() {
                    let daemon = Arc::clone(&daemon);
                    tokio::spawn(async move { daemon.lose(&session, "the keeper died").await });
                }
            }
        }
    }
}

impl Daemon {
    async fn ended_itself(self: &Arc<Self>, session: &Arc<Session>, reason: EndReason) {
        match reason {
            EndReason::InitDied => self.lose(session, "its PID 1 died").await,
            EndReason::TimeOver => {
                let data = json!({ "limit": "wall" });
                drop(self.book.record("limit.hit", Some(&session.id), &data));
                let why = "its time was over";
                if session.is_once() {
                    self.interrupt(session, "time-over", why);
                    self.end_now(session, why).await;
                } else {
                    drop(self.stop(session, "time-over", Some(why)).await);
                }
            }
            // Whoever revoked goes on from there.
            EndReason::Revocation => {}
        }
    }

    /// The sandbox of a session is lost: it is made again.
    pub(crate) async fn lose(self: &Arc<Self>, session: &Arc<Session>, why: &str) {
        let turn = session.turn.lock().await;
        if !matches!(session.state(), State::Ready | State::Running | State::Paused) {
            return;
        }
        // Another that waited for the turn may have made it again, or only the link to the keeper
        // broke: then what was on its way is finished.
        if let Some(status) = self.well(session).await {
            drop(self.reconcile_grants(session, &status).await);
            return;
        }
        let lost = session.record_happening(&self.book, "session.lost", Event::Lost, why);
        self.interrupt(session, "sandbox-lost", why);
        if session.is_once() {
            drop(turn);
            self.end_now(session, why).await;
            return;
        }
        if lost.is_ok() {
            drop(self.make_again(session).await);
        }
    }

    /// What the keeper says of the sandbox, if it has it and its PID 1 answers.
    async fn well(self: &Arc<Self>, session: &Arc<Session>) -> Option<Status> {
        let status = Request::Status { session: session.id.clone() };
        let Ok((Reply::Session(status), _)) = self.engine.call(status).await else { return None };
        let kept = session.doc().sandbox.map(|sandbox| sandbox.pid);
        let well = kept == Some(status.init) && session.live().missed < MISSES;
        well.then_some(status)
    }

    /// Makes a lost sandbox again. The turn is held by the caller, for a try that is made at once; if
    /// there is time between the tries, others have their turn in it.
    pub(crate) async fn make_again(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<(), Trouble> {
        self.dismantle(session).await;
        let making = session.begin_making();
        let mut wait = self.wait_or_give_up(session)?;
        if wait == Some(0) {
            if self.try_again(session).await? {
                return Ok(());
            }
            wait = self.wait_or_give_up(session)?;
        }
        if let Some(wait) = wait {
            tokio::spawn(Arc::clone(self).keep_trying(Arc::clone(session), making, wait));
        }
        Ok(())
    }

    /// Goes on trying, unless somebody has stopped or removed the session in the meantime.
    async fn keep_trying(self: Arc<Self>, session: Arc<Session>, making: u32, mut wait: u64) {
        loop {
            tokio::time::sleep(Duration::from_secs(wait)).await;
            let _turn = session.turn.lock().await;
            let gone = self.find(&session.id).is_none();
            if gone
                || !session.is_making(making)
                || !matches!(self.try_again(&session).await, Ok(false))
            {
                return;
            }
            match self.wait_or_give_up(&session) {
                Ok(Some(next)) => wait = next,
                _ => return,
            }
        }
    }

    /// How many seconds to wait before the next try; `None` if there is none any more.
    fn wait_or_give_up(&self, session: &Session) -> Result<Option<u64>, Trouble> {
        let wait = session.live().backoff.fail();
        if wait.is_none() {
            let why = "its sandbox failed again and again";
            session.record_happening(&self.book, "session.failed", Event::GaveUp, why)?;
        }
        Ok(wait)
    }

    /// Tries once to make a lost sandbox again; whether it is there.
    async fn try_again(self: &Arc<Self>, session: &Arc<Session>) -> Result<bool, Trouble> {
        self.drop_lost_grants(session)?;
        let made = match self.make_sandbox(session).await {
            Ok(made) => self.open_network(session).await.map(|()| made),
            Err(trouble) => Err(trouble),
        };
        match made {
            Ok(made) => {
                session.change(&self.book, |doc| doc.restarts += 1)?;
                self.settle_in(session, made, None)?;
                let data = json!({ "restarts": session.doc().restarts });
                self.book.record("session.restarted", Some(&session.id), &data)?;
                Ok(true)
            }
            Err(trouble) => {
                let data = json!({ "reason": trouble.line() });
                self.book.note("session.retry", Some(&session.id), &data);
                self.dismantle(session).await;
                Ok(false)
            }
        }
    }

    /// Folders that were granted and are no longer there are left out, and that is told.
    pub(crate) fn drop_lost_grants(&self, session: &Session) -> Result<(), Trouble> {
        let doc = session.doc();
        let lost = doc.grants.iter().filter(|kept| {
            let path = super::doc::path(&kept.grant.path).unwrap_or_default();
            let same = cowork_sandbox::folder::Folder::open(&path)
                .is_ok_and(|folder| folder.identity() == kept.identity());
            !same || kept.phase == Phase::Removing
        });
        let lost: Vec<(String, Phase)> =
            lost.map(|kept| (kept.grant.name.clone(), kept.phase)).collect();
        for (name, phase) in lost {
            if phase == Phase::Removing {
                session.drop_grant(
                    &self.book,
                    "grant.revoked",
                    &name,
                    || json!({ "name": name, "killed": [], "certainty": "not running" }),
                )?;
            } else {
                let reason = "the folder is no longer the one granted";
                session.drop_grant(
                    &self.book,
                    "grant.lost",
                    &name,
                    || json!({ "name": name, "reason": reason }),
                )?;
            }
        }
        Ok(())
    }
}

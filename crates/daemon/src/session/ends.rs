//! How commands end: by themselves, by a limit, or with their sandbox.

use super::commands::{Run, document, is_running, timeout};
use super::{Session, wiring};
use crate::book::{millis_since, now};
use crate::changes::Occasion;
use crate::daemon::Daemon;
use crate::guest::End;
use crate::trouble::Trouble;
use cowork_api::guest::{Ending, ToInit};
use cowork_api::keeper::Request;
use cowork_client::types::{Command, CommandState, CommandUsage, Life, Reason};
use cowork_session::life::Event;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl Daemon {
    /// Init says that a command has ended.
    pub(crate) fn command_ended(self: &Arc<Self>, session: &Arc<Session>, end: End) {
        let Some(run) = session.run(end.command) else { return };
        // It ends once, whatever a hostile init says.
        if run.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        // What it wrote before it ended is in its log before its end is told.
        let (daemon, session, again) = (Arc::clone(self), Arc::clone(session), Arc::clone(&run));
        let handle = tokio::runtime::Handle::current();
        run.log.settle(Box::new(move || {
            handle.spawn(async move { daemon.bury(&session, &again, end).await });
        }));
    }

    async fn bury(self: Arc<Self>, session: &Arc<Session>, run: &Arc<Run>, end: End) {
        if self.has_new_changes(session) {
            // Whoever hears of the end may change the same files: its own changes are closed before.
            let settle = Request::Settle { session: session.id.clone() };
            drop(self.engine.call(settle).await);
        }
        // Whoever hears that it failed finds in the record whether a limit was in its way.
        let failed = end.ending != Ending::Status(0);
        let mut ended_by = run.ended_by.lock().unwrap_or_else(PoisonError::into_inner).take();
        if ended_by.is_none() && was_killed(end.ending) {
            let short = self.note_end_by_memory(session, &run.command()).await;
            ended_by = short.then(|| Reason {
                code: "memory".into(),
                sentence: "it was killed: the session's memory was used up".into(),
            });
        } else if failed {
            self.note_hits(session, None).await;
        }
        let discarded = self.count_discarded(session).await;
        let processes = session.live().most_processes.remove(&run.number);
        run.change(|command| {
            if !is_running(command.state) {
                return;
            }
            let (code, signal) = match end.ending {
                Ending::Status(status) => (status, None),
                Ending::Signal(signal) => (128u8.saturating_add(signal), Some(signal)),
            };
            command.code = Some(code);
            command.signal = signal;
            command.discarded = discarded;
            command.usage = Some(CommandUsage {
                user_us: end.usage.user_us,
                system_us: end.usage.system_us,
                peak_kib: end.usage.peak_kib,
                read: end.usage.read,
                written: end.usage.written,
                wall_ms: millis_since(&command.started),
                // Its first one was there, however short.
                processes: processes.unwrap_or_default().max(1),
            });
        });
        // An end that cannot be written down is told when it can.
        while self.conclude(session, run, CommandState::Exited, ended_by.clone()).is_err() {
            if self.find(&session.id).is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // Whoever is attached hears of it before init and the keeper do.
        tokio::task::yield_now().await;
        if let Ok(guest) = session.guest() {
            drop(guest.tell(&ToInit::Acknowledge { command: run.number }).await);
        }
        if !failed {
            self.note_hits(session, None).await;
        }
        tokio::spawn(release(Arc::clone(&self), Arc::clone(session), Arc::clone(run)));
        if self.has_new_changes(session) {
            let (daemon, session) = (Arc::clone(&self), Arc::clone(session));
            tokio::spawn(async move { daemon.audit_changes(&session, Occasion::End).await });
        }
        if session.doc().spec.life == Life::Once && run.number == 1 {
            // Whoever is attached gets the end first.
            self.end_once(session, run).await;
        }
    }

    /// In a session that lives once: what is in its outputs, which go with it.
    async fn count_discarded(&self, session: &Session) -> Option<u64> {
        let doc = session.doc();
        if doc.spec.life != Life::Once || doc.spec.outputs.is_some() {
            return None;
        }
        let guest = session.guest().ok()?;
        guest.count(format!("{}/mnt/outputs", doc.folder())).await.ok().flatten()
    }

    /// Writes down how a command ended, and tells.
    pub(crate) fn conclude(
        &self,
        session: &Session,
        run: &Run,
        state: CommandState,
        reason: Option<Reason>,
    ) -> Result<(), Trouble> {
        if !run.is_running() {
            return Ok(());
        }
        let mut command = run.command();
        command.state = state;
        command.reason = reason;
        command.ended = Some(now());
        let data = json!({
            "command": command.number,
            "state": command.state,
            "code": command.code,
            "signal": command.signal,
            "reason": command.reason,
            "usage": command.usage,
            "output": command.output,
        });
        let others = session.runs().into_iter().filter(|other| other.is_running());
        let running = others.filter(|other| other.number != run.number).count();
        let event = Event::Commands { running };
        let recorded = document(&command).and_then(|text| {
            session.record_and_happen(&self.book, ("command.ended", &data), event, |catalogue| {
                catalogue.put_command(&session.id, command.number, &text)
            })
        });
        if recorded.is_err() && state == CommandState::Exited {
            return recorded;
        }
        run.change(|known| *known = command);
        run.wake();
        if recorded.is_err() {
            // It is over, whether or not there is room to say so.
            drop(session.happen(&self.book, event, None));
        }
        Self::trim_runs(session);
        recorded
    }

    /// Commands that ended long ago are looked up in the catalogue.
    fn trim_runs(session: &Session) {
        /// How many that have ended are held.
        const HELD: usize = 64;
        let mut live = session.live();
        let over: Vec<u32> = {
            let ended = live.runs.iter().filter(|(_, run)| !run.is_running());
            let ended: Vec<u32> = ended
                .filter(|(_, run)| run.log.progress().finished)
                .map(|(number, _)| *number)
                .collect();
            let many = ended.len().saturating_sub(HELD);
            ended.into_iter().take(many).collect()
        };
        for number in over {
            live.runs.remove(&number);
        }
    }

    /// Every running command of a session is over, because its sandbox is.
    pub(crate) fn interrupt(&self, session: &Session, code: &str, sentence: &str) {
        let starting = std::mem::take(&mut session.live().starting);
        for command in starting.into_values() {
            let reason = Reason { code: code.into(), sentence: sentence.into() };
            drop(self.end_unfollowed(command, reason));
        }
        for run in session.runs() {
            let reason = Reason { code: code.into(), sentence: sentence.into() };
            drop(self.conclude(session, &run, CommandState::Interrupted, Some(reason)));
        }
    }

    /// Records the end of a command that nobody follows.
    pub(super) fn end_unfollowed(
        &self,
        mut command: Command,
        reason: Reason,
    ) -> Result<(), Trouble> {
        command.state = CommandState::Interrupted;
        command.reason = Some(reason);
        command.ended = Some(now());
        let data = json!({
            "command": command.number, "state": command.state, "reason": command.reason,
        });
        let text = document(&command)?;
        let id = command.session.as_str();
        self.book.record_with("command.ended", Some(id), &data, |catalogue| {
            // Its session may be gone.
            match catalogue.session(id)? {
                Some(_) => catalogue.put_command(id, command.number, &text),
                None => Ok(()),
            }
        })
    }

    /// Cancels a command when its time is over, if it has a limit.
    pub(crate) fn limit_time(
        self: &Arc<Self>,
        session: &Arc<Session>,
        run: &Arc<Run>,
    ) -> Result<(), Trouble> {
        let command = run.command();
        let Some(timeout) = timeout(command.timeout.as_deref())? else { return Ok(()) };
        let passed = Duration::from_millis(millis_since(&command.started));
        let rest = timeout.saturating_sub(passed);
        tokio::spawn(time_out(Arc::clone(self), Arc::clone(session), Arc::clone(run), rest));
        Ok(())
    }
}

/// Whether a command was killed, or a process of it was and its shell says so.
fn was_killed(ending: Ending) -> bool {
    const KILL: u8 = 9;
    match ending {
        Ending::Status(status) => status == 128 + KILL,
        Ending::Signal(signal) => signal == KILL,
    }
}

/// The keeper need not keep the streams of a command that has ended, once every one of them has: a
/// process that it left behind may still write.
pub(crate) async fn release(daemon: Arc<Daemon>, session: Arc<Session>, run: Arc<Run>) {
    let mut progress = run.progress.subscribe();
    while !run.log.progress().finished {
        if progress.changed().await.is_err() {
            return;
        }
    }
    for command in [run.number, wiring::input_of(run.number)] {
        let release = Request::Release { session: session.id.clone(), command };
        drop(daemon.engine.post(release, &[]).await);
    }
}

async fn time_out(daemon: Arc<Daemon>, session: Arc<Session>, run: Arc<Run>, timeout: Duration) {
    let mut progress = run.progress.subscribe();
    let over = tokio::time::sleep(timeout);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => break,
            changed = progress.changed() => if changed.is_err() || !run.is_running() { return },
        }
    }
    while run.is_running() {
        run.end_because("timeout", "its time was over");
        let cancelled = daemon.cancel_command(&session, &run, super::control::GRACE).await;
        // A session that stands still, or is being taken over, hears it later.
        if cancelled.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

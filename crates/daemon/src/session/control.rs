//! Pausing, resuming, cancelling, stopping and starting: sessions and commands.

use super::{Doc, Run, Session, doc};
use crate::changes::Occasion;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::guest::{ToInit, Whom as WireWhom};
use cowork_api::keeper::{Reply, Request};
use cowork_client::types::{Cancel, Command, CommandState, SessionChange, SignalCommand, Whom};
use cowork_policy::Span;
use cowork_session::life::{Event, Misfit, State};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Time between asking a command to end and killing it.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Longest grace that can be asked for.
const MAX_GRACE: Duration = Duration::from_mins(10);

/// Longest time that a pause waits for commands that are being started.
const STARTS: Duration = Duration::from_secs(2);

const TERM: i32 = 15;
const KILL: i32 = 9;
const STOP: i32 = 19;
const CONTINUE: i32 = 18;
/// The largest number of a signal.
const MAX_SIGNAL: i32 = 64;

/// The grace that was asked for.
pub(crate) fn grace(cancel: &Cancel) -> Result<Duration, Trouble> {
    let Some(grace) = &cancel.grace else { return Ok(GRACE) };
    let span: Span = grace.parse().map_err(|error: cowork_policy::SpanError| {
        Trouble::refused("bad-grace", error.to_string()).with_hint("e.g. `5s`")
    })?;
    Ok(span.duration().min(MAX_GRACE))
}

impl Daemon {
    /// Stops every process of a session where it is.
    pub(crate) async fn pause(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        self.freeze(session, None).await
    }

    /// The turn is held by the caller.
    pub(crate) async fn freeze(
        self: &Arc<Self>,
        session: &Arc<Session>,
        reason: Option<&str>,
    ) -> Result<(), Trouble> {
        session.state().after(Event::Pause)?;
        if session.state() == State::Paused {
            return Ok(());
        }
        // An init that does not answer cannot keep its session from being paused.
        let _no_starts = tokio::time::timeout(STARTS, session.starts.write()).await;
        self.book.record("session.paused", Some(&session.id), &json!({ "reason": reason }))?;
        self.engine.call(Request::Freeze { session: session.id.clone() }).await?;
        session.happen(&self.book, Event::Pause, reason)?;
        Ok(())
    }

    /// Lets the processes of a paused session go on.
    pub(crate) async fn resume(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        session.state().after(Event::Resume { running: session.running() })?;
        self.book.record("session.resumed", Some(&session.id), &json!({}))?;
        self.engine.call(Request::Thaw { session: session.id.clone() }).await?;
        session.live().ping = None;
        session.live().over_disk = false;
        self.go_on(session)
    }

    /// A session goes on that was paused.
    fn go_on(&self, session: &Session) -> Result<(), Trouble> {
        let running = session.running();
        session.happen(&self.book, Event::Resume { running }, None)?;
        // The last command may have ended just now: that was told of a session that was paused.
        let left = session.running();
        if left != running {
            session.happen(&self.book, Event::Commands { running: left }, None)?;
        }
        Ok(())
    }

    /// Ends every process in a session; the session itself stays.
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        session: &Arc<Session>,
        grace: Duration,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let state = session.state();
        match state {
            State::Ready | State::Running | State::Paused => {}
            other => return Err(Misfit::NotLive(other).into()),
        }
        self.book.record("session.cancelled", Some(&session.id), &json!({}))?;
        for run in session.runs().iter().filter(|run| run.is_running()) {
            run.end_because("cancelled", "its session was cancelled");
        }
        if state == State::Paused {
            self.engine.call(Request::Thaw { session: session.id.clone() }).await?;
            self.go_on(session)?;
        }
        let guest = session.guest()?;
        // What stands still does not hear.
        guest.tell(&ToInit::SignalAll { signal: TERM }).await?;
        drop(guest.tell(&ToInit::SignalAll { signal: CONTINUE }).await);
        let deadline = tokio::time::Instant::now() + grace;
        loop {
            let over = tokio::time::Instant::now() >= deadline;
            let measured = self.engine.call(Request::Measure { session: session.id.clone() }).await;
            if !matches!(session.state(), State::Ready | State::Running) {
                // It ended with its last command.
                break;
            }
            let measured = match measured {
                Ok((Reply::Measured(measured), _)) => measured,
                Ok(_) => break,
                // It is on its way out with its last command: nothing is left in it.
                Err(trouble) if trouble.code == "no-sandbox" => break,
                Err(trouble) => return Err(trouble),
            };
            if measured.processes == 0 && session.running() == 0 {
                break;
            }
            if over {
                drop(guest.tell(&ToInit::SignalAll { signal: KILL }).await);
                if tokio::time::Instant::now() >= deadline + GRACE {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Takes the sandbox of a session away; its home stays.
    pub(crate) async fn stop(
        self: &Arc<Self>,
        session: &Arc<Session>,
        code: &str,
        reason: Option<&str>,
    ) -> Result<(), Trouble> {
        let turn = session.turn.lock().await;
        if session.state() == State::Stopped {
            return Ok(());
        }
        session.state().after(Event::Stop)?;
        self.book.record("session.stopped", Some(&session.id), &json!({ "reason": reason }))?;
        self.dismantle(session).await;
        let why = reason.unwrap_or("the session was stopped");
        self.interrupt(session, code, why);
        if session.is_once() {
            drop(turn);
            self.end_now(session, why).await;
            return Ok(());
        }
        session.happen(&self.book, Event::Stop, reason)?;
        Ok(())
    }

    /// Ends the sandbox, if there is one.
    pub(crate) async fn dismantle(self: &Arc<Self>, session: &Arc<Session>) {
        self.take_stock(session).await;
        let request = Request::Destroy { session: session.id.clone() };
        // Gone is what was wanted.
        drop(self.engine.call(request).await);
        self.close_network(session).await;
        self.expire_files(session);
        self.audit_changes(session, Occasion::End).await;
        let mut live = session.live();
        live.guest = None;
        live.ping = None;
        if let Some(asks) = live.asks.take() {
            asks.abort();
        }
    }

    /// Makes the sandbox of a stopped or failed session again.
    pub(crate) async fn start(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        session.state().after(Event::Start)?;
        self.book.record("session.started", Some(&session.id), &json!({}))?;
        self.drop_lost_grants(session)?;
        session.happen(&self.book, Event::Start, None)?;
        session.live().backoff.recover();
        let made = match self.make_sandbox(session).await {
            Ok(made) => match self.open_network(session).await {
                Ok(()) => self.settle_in(session, made, None),
                Err(trouble) => Err(trouble),
            },
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = &made {
            let reason = trouble.line();
            self.dismantle(session).await;
            session.record_happening(&self.book, "session.failed", Event::GaveUp, &reason)?;
        }
        made
    }

    /// Changes labels and limits.
    pub(crate) async fn adjust(
        self: &Arc<Self>,
        session: &Arc<Session>,
        change: SessionChange,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        if doc.state == State::Ended {
            return Err(Misfit::Ended.into());
        }
        if let Some(labels) = &change.labels {
            super::make::check_labels(labels)?;
        }
        if let Some(wanted) = &change.limits {
            let merged = doc::merged(&doc.spec.limits, wanted);
            doc::limits(&merged)?;
            self.book.record("limits.changed", Some(&session.id), &json!({ "limits": wanted }))?;
            let mut status = None;
            if matches!(doc.state, State::Ready | State::Running | State::Paused) {
                let mut next = doc.clone();
                next.spec.limits = merged.clone();
                let limits = self.plan(&next)?.limits;
                let request = Request::SetLimits { session: session.id.clone(), limits };
                if let Err(trouble) = self.engine.call(request).await {
                    let data = json!({ "limits": wanted, "reason": trouble.line() });
                    self.book.record("limits.failed", Some(&session.id), &data)?;
                    return Err(trouble);
                }
                let request = Request::Status { session: session.id.clone() };
                if let (Reply::Session(now), _) = self.engine.call(request).await? {
                    status = Some(now);
                }
            }
            session.change(&self.book, |doc| {
                doc.spec.limits = merged;
                if let Some(status) = &status {
                    doc.observe(status);
                }
            })?;
        }
        if let Some(labels) = change.labels {
            let relabel = |doc: &mut Doc| {
                let data = json!({ "labels": &labels });
                doc.spec.labels = labels;
                Ok(data)
            };
            session.record(&self.book, "session.labels", relabel, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Sends a signal to a command.
    pub(crate) async fn signal(
        self: &Arc<Self>,
        session: &Arc<Session>,
        run: &Arc<Run>,
        wanted: &SignalCommand,
    ) -> Result<(), Trouble> {
        if !(1..=MAX_SIGNAL).contains(&wanted.signal) {
            let sentence = format!("there is no signal {}", wanted.signal);
            return Err(Trouble::refused("bad-signal", sentence).with_hint("1 to 64"));
        }
        refuse_ended(run)?;
        let whom = match wanted.whom {
            Whom::Leader => WireWhom::Leader,
            Whom::Group => WireWhom::Group,
            Whom::Foreground => WireWhom::Foreground,
            Whom::Tree => WireWhom::Tree,
        };
        let guest = session.guest()?;
        let data = json!({
            "command": run.number, "signal": wanted.signal, "whom": wanted.whom,
        });
        self.book.record("command.signalled", Some(&session.id), &data)?;
        let message = ToInit::Signal { command: run.number, signal: wanted.signal, whom };
        guest.tell(&message).await
    }

    /// Stops or continues every process of a command.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        session: &Arc<Session>,
        run: &Arc<Run>,
        wanted: CommandState,
    ) -> Result<Command, Trouble> {
        refuse_ended(run)?;
        session.state().accepts_commands()?;
        match (run.command().state, wanted) {
            (CommandState::Paused, CommandState::Paused) => return Ok(run.command()),
            (CommandState::Starting | CommandState::Running, CommandState::Running) => {
                return Err(Trouble::conflict("not-paused", "the command is not paused"));
            }
            _ => {}
        }
        let (signal, kind) = match wanted {
            CommandState::Paused => (STOP, "command.paused"),
            _ => (CONTINUE, "command.resumed"),
        };
        self.book.record(kind, Some(&session.id), &json!({ "command": run.number }))?;
        let message = ToInit::Signal { command: run.number, signal, whom: WireWhom::Tree };
        let guest = session.guest()?;
        guest.tell(&message).await?;
        // Init does one thing after the other: when it answers this, it has sent the signal.
        guest.report().await?;
        let command = run.set_state(wanted);
        self.keep(&command)?;
        Ok(command)
    }

    /// Asks a command to end, with everything it started, and kills what does not.
    pub(crate) async fn cancel_command(
        self: &Arc<Self>,
        session: &Arc<Session>,
        run: &Arc<Run>,
        grace: Duration,
    ) -> Result<Command, Trouble> {
        refuse_ended(run)?;
        if session.state() == State::Paused {
            return Err(Misfit::Paused.into());
        }
        run.end_because("cancelled", "it was cancelled");
        self.book.record(
            "command.cancelled",
            Some(&session.id),
            &json!({ "command": run.number }),
        )?;
        let guest = session.guest()?;
        let send = |signal| ToInit::Signal { command: run.number, signal, whom: WireWhom::Tree };
        guest.tell(&send(TERM)).await?;
        guest.tell(&send(CONTINUE)).await?;
        let mut progress = run.progress.subscribe();
        let deadline = tokio::time::Instant::now() + grace;
        while run.is_running() {
            let changed = tokio::time::timeout_at(deadline, progress.changed()).await;
            if changed.is_err() {
                break;
            }
        }
        // Children that outlive their parent's politeness end too.
        guest.tell(&send(KILL)).await?;
        let deadline = tokio::time::Instant::now() + GRACE;
        while run.is_running() {
            let changed = tokio::time::timeout_at(deadline, progress.changed()).await;
            if changed.is_err() {
                break;
            }
        }
        Ok(run.command())
    }
}

fn refuse_ended(run: &Run) -> Result<(), Trouble> {
    if run.is_running() {
        return Ok(());
    }
    Err(Trouble::conflict("command-ended", format!("command {} has ended", run.number)))
}

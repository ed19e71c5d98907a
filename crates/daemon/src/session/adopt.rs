//! What a new daemon does with what the last one left: sessions that run are taken over with their
//! commands and output; what was on its way is finished or taken back; what was lost is told.

use super::doc::{Doc, KeptGrant, Phase};
use super::remove::Leave;
use super::wiring::Ends;
use super::{Session, pool};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::keeper::{Reply, Request, Status};
use cowork_client::types::{Access, Command, CommandState, Life, Reason, StreamKind};
use cowork_session::life::{Event, State};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Longest wait for the PID 1 of a session that is taken over: the heartbeat asks one again that does
/// not answer, and nobody else waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

impl Daemon {
    /// Takes over everything, every session beside the others. What goes wrong with one session does
    /// not stop the others, and one that hangs does not hold them up.
    pub(crate) async fn adopt(self: &Arc<Self>) -> Result<(), Trouble> {
        let mut alive = BTreeMap::new();
        if self.engine.find().await?
            && let (Reply::Sessions(found), _) = self.engine.call(Request::Sessions).await?
        {
            alive.extend(found.into_iter().map(|status| (status.session.clone(), status)));
        }
        let mut adopted = JoinSet::new();
        for (id, text) in self.book.catalogue.sessions()? {
            let status = alive.remove(&id);
            match serde_json::from_str::<Doc>(&text) {
                Ok(doc) => {
                    let session = Session::new(doc);
                    self.insert(&session);
                    adopted.spawn(Arc::clone(self).adopt_or_give_up(session, status));
                }
                Err(error) => {
                    let data = json!({ "session": id, "reason": error.to_string() });
                    self.book.record("state.unreadable", None, &data)?;
                }
            }
        }
        while let Some(done) = adopted.join_next().await {
            done.map_err(|error| Trouble::host("a session cannot be taken over", error))??;
        }
        self.forget_orphans();
        // What nobody wrote down was in the pool, or on its way there.
        for id in alive.into_keys() {
            drop(self.engine.call(Request::Destroy { session: id }).await);
        }
        self.sweep_pool().await;
        self.empty_trash().await;
        Ok(())
    }

    async fn adopt_or_give_up(
        self: Arc<Self>,
        session: Arc<Session>,
        status: Option<Status>,
    ) -> Result<(), Trouble> {
        match self.adopt_one(&session, status).await {
            Ok(()) => Ok(()),
            Err(trouble) => self.give_up_on(&session, &trouble).await,
        }
    }

    /// A session that cannot be taken over has failed; the others go on.
    async fn give_up_on(
        self: &Arc<Self>,
        session: &Arc<Session>,
        trouble: &Trouble,
    ) -> Result<(), Trouble> {
        let why = trouble.line();
        self.dismantle(session).await;
        self.interrupt_all(session, "sandbox-lost", &why)?;
        if session.state().is_live() {
            session.record_happening(&self.book, "session.lost", Event::Stop, &why)?;
            return Ok(());
        }
        self.book.record("session.lost", Some(&session.id), &json!({ "reason": why }))
    }

    async fn adopt_one(
        self: &Arc<Self>,
        session: &Arc<Session>,
        status: Option<Status>,
    ) -> Result<(), Trouble> {
        self.recall_usage(session)?;
        let doc = session.doc();
        if let Some(leave) = doc.removing {
            self.dismantle(session).await;
            self.interrupt_all(session, "stopped", "the session was removed")?;
            return self.remove(session, leave).await;
        }
        if doc.spec.life == Life::Once && !self.has_running(session)? {
            return self.remove(session, Leave::Nothing).await;
        }
        match (doc.state.is_live(), status) {
            (true, Some(status)) => self.take_over(session, status).await?,
            (true, None) => self.report_lost(session).await?,
            (false, Some(_)) => self.dismantle(session).await,
            (false, None) => {}
        }
        self.close_granted(session)
    }

    fn has_running(&self, session: &Session) -> Result<bool, Trouble> {
        Ok(!self.unfinished(session)?.is_empty())
    }

    /// Commands of the catalogue that have not ended.
    fn unfinished(&self, session: &Session) -> Result<Vec<Command>, Trouble> {
        let mut unfinished = Vec::new();
        let mut after = 0;
        loop {
            let page = self.book.catalogue.commands(&session.id, after, 1000)?;
            let Some((last, _)) = page.last() else { return Ok(unfinished) };
            after = *last;
            let commands = page.iter().filter_map(|(_, text)| serde_json::from_str(text).ok());
            unfinished.extend(
                commands.filter(|command: &Command| super::commands::is_running(command.state)),
            );
        }
    }

    /// Every command that the catalogue has as running is over, because its sandbox is; of an
    /// earlier daemon's, nobody may hold it.
    fn interrupt_all(&self, session: &Session, code: &str, why: &str) -> Result<(), Trouble> {
        for command in self.unfinished(session)? {
            if session.run(command.number).is_some() {
                continue;
            }
            match self.follow(session, command.clone(), Ends::default()) {
                Ok(run) => drop(session.live().runs.insert(run.number, run)),
                Err(_unreadable) => {
                    let reason = Reason { code: code.into(), sentence: why.into() };
                    self.end_unfollowed(command, reason)?;
                }
            }
        }
        self.interrupt(session, code, why);
        Ok(())
    }

    /// Goes on with a sandbox that runs.
    async fn take_over(
        self: &Arc<Self>,
        session: &Arc<Session>,
        status: Status,
    ) -> Result<(), Trouble> {
        let attach = Request::Attach { session: session.id.clone() };
        let (_, sockets) = self.engine.call(attach).await?;
        let unfinished = self.unfinished(session)?;
        for command in unfinished {
            self.adopt_command(session, command).await?;
        }
        self.adopt_leftovers(session).await?;
        self.listen(session, sockets)?;
        if let Err(trouble) = self.adopt_network(session).await {
            // Nothing passes until there is a way out again; what runs goes on.
            self.open_network_later(session, &trouble);
        }
        let doc = session.doc();
        if doc.state == State::Creating {
            // It was made, and nobody was left to say so.
            self.note_made(session, &status)?;
        }
        self.reconcile_grants(session, &status).await?;
        session.live().unasked = Some(doc.commands);
        if status.frozen {
            // Its PID 1 is asked when it goes on.
            if session.state() != State::Paused {
                session.happen(&self.book, Event::Pause, session.doc().reason.as_deref())?;
            }
        } else {
            if session.state() == State::Paused {
                let running = session.running();
                session.happen(&self.book, Event::Resume { running }, None)?;
            }
            self.reconcile_commands(session, PATIENCE).await?;
        }
        let data = json!({ "running": session.running() });
        self.book.record("session.adopted", Some(&session.id), &data)
    }

    fn note_made(self: &Arc<Self>, session: &Arc<Session>, status: &Status) -> Result<(), Trouble> {
        session.change(&self.book, |doc| {
            doc.observe(status);
            doc.sandbox = Some(super::doc::KeptSandbox::new(status.init, crate::book::now()));
            doc.made.get_or_insert_with(crate::book::now);
        })?;
        session.happen(&self.book, Event::Made { running: 0 }, None)?;
        Ok(())
    }

    /// Commands that have ended may have left processes that still write: their output is kept too.
    async fn adopt_leftovers(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        /// How many of the last commands are looked at.
        const LAST: u32 = 256;
        let after = session.doc().commands.saturating_sub(LAST);
        for (number, text) in self.book.catalogue.commands(&session.id, after, LAST)? {
            let Ok(command) = serde_json::from_str::<Command>(&text) else { continue };
            if super::commands::is_running(command.state) {
                continue;
            }
            let withdraw = Request::Withdraw { session: session.id.clone(), command: number };
            let Ok((_, handles)) = self.engine.call(withdraw).await else { continue };
            let ends = Ends::withdrawn(command.streams, handles);
            let run = self.follow(session, command, ends)?;
            session.live().runs.insert(number, Arc::clone(&run));
            tokio::spawn(super::ends::release(Arc::clone(self), Arc::clone(session), run));
        }
        Ok(())
    }

    /// Follows the output of a command from where it was.
    async fn adopt_command(
        self: &Arc<Self>,
        session: &Arc<Session>,
        command: Command,
    ) -> Result<(), Trouble> {
        let number = command.number;
        let withdraw = Request::Withdraw { session: session.id.clone(), command: number };
        let handles = self.engine.call(withdraw).await.map(|(_, handles)| handles);
        let mut ends = Ends::withdrawn(command.streams, handles.unwrap_or_default());
        if command.streams.stdin == StreamKind::Pipe {
            let command = super::wiring::input_of(number);
            let withdraw = Request::Withdraw { session: session.id.clone(), command };
            // One that was ended is not kept.
            let handles = self.engine.call(withdraw).await.map(|(_, handles)| handles);
            ends.stdin = handles.unwrap_or_default().into_iter().next();
        }
        let run = self.follow(session, command, ends)?;
        session.live().runs.insert(number, Arc::clone(&run));
        self.limit_time(session, &run)
    }

    /// Asks init which commands run and which have ended, and settles the rest. Without an answer in
    /// time nothing is settled: it is asked again later.
    pub(super) async fn reconcile_commands(
        self: &Arc<Self>,
        session: &Arc<Session>,
        patience: Duration,
    ) -> Result<(), Trouble> {
        let Some(last) = session.live().unasked.take() else { return Ok(()) };
        let report = session.guest()?.report_within(patience).await;
        let Ok(report) = report else {
            // The heartbeat asks again, and notices a PID 1 that never answers.
            session.live().unasked = Some(last);
            return Ok(());
        };
        for run in session.runs().into_iter().filter(|run| run.number <= last) {
            let known = |number: &u32| *number == run.number;
            let running = report.running.iter().find(|(number, _)| known(number));
            let ended = report.ended.iter().find(|end| known(&end.command));
            match (running, ended) {
                (Some((_, pid)), _) => {
                    run.note_pid(*pid);
                    self.keep(&run.command())?;
                }
                (None, Some(end)) => self.command_ended(session, *end),
                (None, None) => {
                    let reason = Reason {
                        code: "not-started".into(),
                        sentence: "the daemon ended before it was started".into(),
                    };
                    self.conclude(session, &run, CommandState::Interrupted, Some(reason))?;
                }
            }
        }
        let running = session.running();
        session.happen(&self.book, Event::Commands { running }, None)?;
        if running == 0 && session.is_once() {
            let (daemon, session) = (Arc::clone(self), Arc::clone(session));
            tokio::spawn(async move { daemon.end_now(&session, "its command never ran").await });
        }
        Ok(())
    }

    /// Finishes what was on its way with grants.
    pub(super) async fn reconcile_grants(
        self: &Arc<Self>,
        session: &Arc<Session>,
        status: &Status,
    ) -> Result<(), Trouble> {
        let doc = session.doc();
        for kept in &doc.grants {
            let name = kept.grant.name.as_str();
            let there = status.grants.iter().any(|granted| granted == name);
            match (kept.phase, there) {
                (Phase::Removing, _) => drop(self.take(session, name).await?),
                (Phase::Adding | Phase::Granted | Phase::Changing, true) => {
                    if kept.phase == Phase::Changing {
                        self.finish_change(session, &doc, kept).await?;
                    }
                    if kept.phase != Phase::Granted {
                        session.change(&self.book, |doc| {
                            for kept in doc.grants.iter_mut().filter(|k| k.grant.name == name) {
                                kept.phase = Phase::Granted;
                            }
                        })?;
                    }
                }
                (Phase::Adding | Phase::Granted | Phase::Changing, false) => {
                    let reason = "the daemon ended before it was attached";
                    session.drop_grant(
                        &self.book,
                        "grant.failed",
                        name,
                        || json!({ "name": name, "reason": reason }),
                    )?;
                }
            }
        }
        // A folder that is attached and not written down must not stay.
        let known = |name: &String| {
            doc.grants.iter().any(|kept| kept.grant.name == *name)
                || ["outputs", "uploads", "skills", cowork_policy::plan::ABOUT]
                    .contains(&name.as_str())
        };
        for name in status.grants.iter().filter(|name| !known(name)) {
            let request = Request::Revoke { session: session.id.clone(), name: name.clone() };
            drop(self.engine.call(request).await?);
            let data = json!({ "name": name, "reason": "it was attached and not recorded" });
            self.book.record("grant.revoked", Some(&session.id), &data)?;
        }
        super::about::write(self, &session.doc())
    }

    /// Gives a folder the access that is written down, which it may have already.
    async fn finish_change(
        self: &Arc<Self>,
        session: &Session,
        doc: &Doc,
        kept: &KeptGrant,
    ) -> Result<(), Trouble> {
        let grant = cowork_policy::plan::grant(&self.grant_request(doc, kept)?);
        if kept.grant.access == Access::Staged {
            // One that is staged already would lose what is staged.
            let access = cowork_api::plan::Access::Read;
            let grant = cowork_api::plan::Grant { access, writing: None, ..grant.clone() };
            let request = Request::Regrant { session: session.id.clone(), grant };
            self.engine.call(request).await?;
        }
        let request = Request::Regrant { session: session.id.clone(), grant };
        self.engine.call(request).await.map(drop)
    }

    /// A session should run and does not: the host was restarted, or the keeper killed.
    async fn report_lost(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        if session.doc().made.is_none() {
            // Nobody was told that it is there.
            self.note_never_made(session, "the daemon ended before it was made")?;
            self.forget(&session.id);
            self.discard(&session.id).await;
            return Ok(());
        }
        let why = "its sandbox was gone when the daemon started";
        self.interrupt_all(session, "sandbox-lost", why)?;
        // One that was being made again is recorded as lost already. That it is lost is recorded
        // together with what becomes of it, so that nobody finds it lost once more.
        let (kind, event) = match (session.state(), session.is_once()) {
            (State::Creating, _) => ("session.failed", Event::GaveUp),
            (_, true) => ("session.lost", Event::End),
            (_, false) => ("session.lost", Event::Stop),
        };
        session.record_happening(&self.book, kind, event, why)?;
        if session.is_once() {
            return self.remove(session, Leave::Nothing).await;
        }
        Ok(())
    }

    /// A session whose sandbox never was is over: nobody was told of it.
    pub(super) fn note_never_made(&self, session: &Session, why: &str) -> Result<(), Trouble> {
        let over = |doc: &mut Doc| {
            doc.removing = Some(Leave::Nothing);
            Ok(json!({ "reason": why }))
        };
        session.record(&self.book, "session.failed", over, |_| Ok(()))
    }

    /// Removes folders of sessions from the pool of an earlier daemon.
    async fn sweep_pool(self: &Arc<Self>) {
        let folder = self.folders.state.join("sessions");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(id) = entry.file_name().into_string() else { continue };
            let mark = entry.path().join(pool::MARK);
            if self.find(&id).is_some() {
                // Somebody claimed it, and had no time to say so here.
                cowork_sys::ignore(rustix::fs::unlink(mark));
            } else if std::fs::symlink_metadata(mark).is_ok() {
                self.discard(&id).await;
            } else {
                // One that was just begun is empty. What somebody keeps is not.
                cowork_sys::ignore(rustix::fs::rmdir(entry.path()));
            }
        }
    }
}

//! The egress process of a session: started before the session's first command, started again when
//! it dies, taken over from an earlier daemon, ended with the session.
//!
//! While there is none nothing passes: the listeners are still there, held by the keeper, and
//! nobody accepts.

use super::bodies::Keeper;
use super::line::{self, Line, Started};
use super::{KeptEgress, Tally, parent, trust};
use crate::book::now;
use crate::daemon::Daemon;
use crate::folders;
use crate::session::Session;
use crate::settings::Capture;
use crate::trouble::Trouble;
use cowork_api::egress::{Begin, FromEgress, KEPT_NAMES, Rules, Socket, ToEgress};
use cowork_api::keeper::{EGRESS_LINE, EGRESS_NAMES, Reply, Request};
use cowork_policy::egress::Matcher;
use cowork_session::life::State;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a process says what it has to say, in the folder of its session.
const LOG: &str = "egress.log";
/// Shortest and longest time until a process that died is started again.
const SOON: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_secs(5);
/// Longest wait for flows to end with their session.
const FAREWELL: Duration = Duration::from_millis(300);
/// Records are acknowledged after this time, or this many of them.
const ACKNOWLEDGE: Duration = Duration::from_millis(50);
const MANY: u64 = 256;
/// What was used of what rules limit is written down after this time: until then both the process and
/// this one know it.
const KEEP_SPENT: Duration = Duration::from_secs(1);
/// Most records that are written down in one step.
const TOGETHER: usize = 64;

impl Daemon {
    /// Starts the process that is to be the way out of a session, if it has a network, before the
    /// session is there. What goes wrong is told when it is needed.
    pub(crate) async fn prepare_network(&self, session: &Session) {
        let folder = self.folders.session(&session.id);
        if session.has_network() && folders::make(&folder).is_ok() {
            session.set_early(line::launch(&self.engine, Some(&folder.join(LOG))).await.ok());
        }
    }

    /// Gives a session its way out, if it has a network. Its sandbox is there, and no command has
    /// been started in it. If any rule cannot be enforced, there is no way out and no session.
    pub(crate) async fn open_network(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<(), Trouble> {
        if !session.has_network() {
            return Ok(());
        }
        let line = self.begin(session).await?;
        let kept = session.doc().network;
        let egress = kept.egress.clone().unwrap_or_default();
        let data = json!({
            "pid": line.pid, "confinement": egress.confinement, "all_ports": egress.all_ports,
            "generation": kept.generation,
        });
        self.book.record("network.started", Some(&session.id), &data)?;
        self.publish_again(session, &line).await;
        crate::session::tell(self, &session.doc());
        Ok(())
    }

    /// Starts a process and waits until it is at work.
    async fn begin(self: &Arc<Self>, session: &Arc<Session>) -> Result<Arc<Line>, Trouble> {
        self.choose_placeholders(session)?;
        let doc = session.doc();
        let rules = self.rules_of(&doc)?;
        let secrets = self.secrets_of(&doc)?;
        let parent = parent::of(&doc)?.or_else(|| self.settings.parent.clone());
        parent::check(&rules.rules, parent.as_ref())?;
        let starting = if let Some(early) = session.set_early(None) {
            early
        } else {
            let log = self.folders.session(&session.id).join(LOG);
            line::launch(&self.engine, Some(&log)).await?
        };
        let (started, names) = tokio::join!(starting.started(), self.kept_names(session));
        let (Started { pid, end, process }, names) = (started?, names?);
        let deposit = Request::Deposit { session: session.id.clone(), command: EGRESS_LINE };
        let deposited = self.engine.post(deposit, &[end.as_fd(), process.as_fd()]).await;
        let line = Arc::new(Line::new(end, pid, Some(process))?);
        let since = format!("{} {pid}", now());
        let kept = KeptEgress { pid, since: since.clone(), ..KeptEgress::default() };
        let noted = deposited
            .and_then(|()| session.change(&self.book, |doc| doc.network.egress = Some(kept)));
        if let Err(trouble) = noted {
            tokio::spawn(Arc::clone(&line).bury(Arc::clone(&self.engine)));
            self.let_go(session).await;
            return Err(trouble);
        }
        let ready = line.expect_ready();
        tokio::spawn(attend(Arc::clone(self), Arc::clone(session), Arc::clone(&line), since));
        let begun = async {
            let begin = Begin {
                session: session.id.clone(),
                rules: rules.clone(),
                secrets,
                roots: self.settings.roots.clone(),
                parent,
            };
            line.tell(&ToEgress::Begin(Box::new(begin))).await?;
            let spent = session.settle(&self.book, |doc| doc.network.spent_by(&rules));
            line.tell(&ToEgress::Spent(spent)).await?;
            line.hand_names(&names).await?;
            self.tell_captures(session, &line).await?;
            let (sockets, all_ports) = self.sockets(session, &rules).await?;
            line.hand_over(&sockets).await?;
            let ready = Line::ready(ready).await?;
            session.change(&self.book, |doc| {
                if let Some(egress) = &mut doc.network.egress {
                    egress.set_authority(&ready.authority);
                    egress.confinement = ready.confinement;
                    egress.all_ports = all_ports;
                }
            })?;
            self.write_files(&doc)?;
            self.trust_as_needed(&session.doc(), &rules)
        };
        if let Err(trouble) = begun.await {
            line.close();
            self.let_go(session).await;
            return Err(trouble);
        }
        let old = session.set_line(Some(Arc::clone(&line)));
        if let Some(old) = old {
            old.close();
        }
        self.watch_tokens();
        Ok(line)
    }

    /// The file in which the names of a session outlive its egress processes, and this daemon: the
    /// keeper has it for as long as the session runs.
    async fn kept_names(self: &Arc<Self>, session: &Session) -> Result<OwnedFd, Trouble> {
        let (id, command) = (session.id.clone(), EGRESS_NAMES);
        let withdraw = Request::Withdraw { session: id.clone(), command };
        if let Ok((_, handles)) = self.engine.call(withdraw).await
            && let Some(names) = handles.into_iter().next()
        {
            return Ok(names);
        }
        let names = empty_names().map_err(|errno| {
            Trouble::host("cannot make the file for the names of a session", errno)
        })?;
        let deposit = Request::Deposit { session: id, command };
        self.engine.post(deposit, &[names.as_fd()]).await?;
        Ok(names)
    }

    /// Lets the keeper forget our end of the line.
    async fn let_go(self: &Arc<Self>, session: &Session) {
        let release = Request::Release { session: session.id.clone(), command: EGRESS_LINE };
        drop(self.engine.post(release, &[]).await);
        session.settle(&self.book, |doc| doc.network.egress = None);
    }

    /// The sockets that a session's way out listens on, and whether every port arrives there. What
    /// is there already is not made again.
    async fn sockets(
        self: &Arc<Self>,
        session: &Session,
        rules: &Rules,
    ) -> Result<(Vec<(Socket, OwnedFd)>, bool), Trouble> {
        let base = [Socket::HttpProxy, Socket::Socks, Socket::DnsUdp, Socket::DnsTcp];
        let mut all = self.make_sockets(session, &base).await?;
        // Who connects is told where the kernel says so; nothing depends on it.
        all.extend(self.make_sockets(session, &[Socket::Diagnostics]).await.unwrap_or_default());
        if self.settings.capture == Capture::EveryPort {
            match self.make_sockets(session, &[Socket::AllPorts]).await {
                Ok(every) => {
                    all.extend(every);
                    return Ok((all, true));
                }
                Err(trouble) if trouble.code == "socket-refused" => {}
                Err(trouble) => return Err(trouble),
            }
        }
        let ports = Self::port_sockets(&Matcher::new(rules.clone()))?;
        all.extend(self.make_sockets(session, &ports).await?);
        Ok((all, false))
    }

    /// Makes sockets in the network of a session.
    pub(crate) async fn make_sockets(
        self: &Arc<Self>,
        session: &Session,
        wanted: &[Socket],
    ) -> Result<Vec<(Socket, OwnedFd)>, Trouble> {
        let mut made = Vec::new();
        for some in wanted.chunks(line::MAX_BESIDE) {
            let request = Request::Listen { session: session.id.clone(), sockets: some.to_vec() };
            let (reply, handles) = self.engine.call(request).await?;
            let Reply::Listening(sockets) = reply else {
                return Err(Trouble::host("the keeper gave an answer that does not fit", "a bug"));
            };
            if handles.len() != sockets.len() {
                let sentence = "the keeper gave fewer sockets than it says";
                return Err(Trouble::host(sentence, "too many open files?"));
            }
            made.extend(sockets.into_iter().zip(handles));
        }
        Ok(made)
    }

    /// Takes over the way out that an earlier daemon left, or makes one if it is gone.
    pub(crate) async fn adopt_network(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<(), Trouble> {
        if !session.has_network() {
            return Ok(());
        }
        let doc = session.doc();
        session.with_tally(Tally::fall_behind);
        let withdraw = Request::Withdraw { session: session.id.clone(), command: EGRESS_LINE };
        let withdrawn = self.engine.call(withdraw).await.map(|(_, handles)| handles);
        let mut withdrawn = withdrawn.unwrap_or_default().into_iter();
        let (end, process) = (withdrawn.next(), withdrawn.next());
        // One that nobody heard to be at work may not have begun.
        let kept = doc.network.egress.clone().filter(|kept| kept.authority().is_some());
        let (Some(kept), Some(end)) = (kept, end) else {
            self.let_go(session).await;
            return self.open_network(session).await;
        };
        let line = Arc::new(Line::new(end, kept.pid, process)?);
        let known = if kept.all_ports {
            Vec::new()
        } else {
            Self::port_sockets(&Matcher::new(self.rules_of(&doc)?)).unwrap_or_default()
        };
        line.listens_on(known);
        session.set_line(Some(Arc::clone(&line)));
        tokio::spawn(attend(Arc::clone(self), Arc::clone(session), Arc::clone(&line), kept.since));
        let greeted = async {
            line.tell(&ToEgress::Greet).await?;
            // A change may have been written down and not told.
            line.tell(&ToEgress::Secrets(self.secrets_of(&doc)?)).await?;
            self.tell_captures(session, &line).await?;
            line.tell(&ToEgress::Rules(Box::new(self.rules_of(&doc)?))).await?;
            line.flows().await
        };
        // One that died meanwhile is started again by whoever attends to it.
        if greeted.await.is_ok() {
            // Asks that wait came before this answer; what else is pending waits for nothing.
            self.expire_hosts(session, Some(&line))?;
        }
        self.watch_tokens();
        Ok(())
    }

    /// Opens the way out of a session that runs, as soon as that works.
    pub(crate) fn open_network_later(self: &Arc<Self>, session: &Arc<Session>, why: &Trouble) {
        let data = json!({ "reason": why.line() });
        drop(self.book.record("network.lost", Some(&session.id), &data));
        let (daemon, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(session.line_died(SOON, LATE)).await;
                let _turn = session.turn.lock().await;
                let live = matches!(session.state(), State::Ready | State::Running | State::Paused);
                let done = !live || session.line().is_some() || daemon.is_leaving();
                if done || daemon.open_network(&session).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Ends the way out of a session whose sandbox is gone.
    pub(crate) async fn close_network(self: &Arc<Self>, session: &Session) {
        if let Some(early) = session.set_early(None) {
            early.give_up(&self.engine);
        }
        let Some(line) = session.set_line(None) else { return };
        // What flowed ends with the sandbox, and that is recorded.
        let deadline = tokio::time::Instant::now() + FAREWELL;
        while let Ok(Ok((_, total))) = tokio::time::timeout_at(deadline, line.flows()).await {
            if total == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        line.close();
        drop(self.expire_hosts(session, None));
        session.settle(&self.book, |doc| doc.network.egress = None);
        trust::remove(&self.folders.session(&session.id).join("about"));
        cowork_sys::ignore(self.book.catalogue.unset(&super::records::place(&session.id)));
    }

    /// A process died without being told to: it is started again.
    async fn replace_line(self: &Arc<Self>, session: &Arc<Session>, dead: &Arc<Line>) {
        let data = json!({ "pid": dead.pid });
        drop(self.book.record("network.lost", Some(&session.id), &data));
        drop(self.expire_hosts(session, None));
        loop {
            tokio::time::sleep(session.line_died(SOON, LATE)).await;
            let _turn = session.turn.lock().await;
            let current = session.line().is_some_and(|line| Arc::ptr_eq(&line, dead));
            let live = matches!(session.state(), State::Ready | State::Running | State::Paused);
            if !current || !live || self.find(&session.id).is_none() {
                return;
            }
            match self.begin(session).await {
                Ok(line) => {
                    session.settle(&self.book, |doc| doc.network.restarts += 1);
                    let data =
                        json!({ "pid": line.pid, "restarts": session.doc().network.restarts });
                    drop(self.book.record("network.restored", Some(&session.id), &data));
                    self.publish_again(session, &line).await;
                    return;
                }
                Err(trouble) => {
                    let data = json!({ "reason": trouble.line() });
                    self.book.note("network.retry", Some(&session.id), &data);
                }
            }
        }
    }
}

/// A file for names, which takes memory as they come and cannot be made longer.
fn empty_names() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"cowork-names", flags)?;
    rustix::fs::ftruncate(&file, KEPT_NAMES)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Hears a process until it is gone, and starts another one if nobody wanted that.
fn attend(
    daemon: Arc<Daemon>,
    session: Arc<Session>,
    line: Arc<Line>,
    since: String,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        hear(&daemon, &session, &line, &since).await;
        let current = session.line().is_some_and(|known| Arc::ptr_eq(&known, &line));
        let died = !line.is_closed() && current;
        tokio::spawn(Arc::clone(&line).bury(Arc::clone(&daemon.engine)));
        if line.is_closed() && session.line().is_none() {
            let place = super::records::place(&session.id);
            cowork_sys::ignore(daemon.book.catalogue.unset(&place));
        }
        if died && !daemon.is_leaving() {
            daemon.replace_line(&session, &line).await;
        }
    })
}

/// Hears a process until it is gone.
async fn hear(daemon: &Arc<Daemon>, session: &Arc<Session>, line: &Arc<Line>, since: &str) {
    let mut taken = daemon.last_taken(&session.id, since);
    let mut acknowledged = taken;
    let mut gap = None;
    let mut waiting = Vec::new();
    let mut spending: Option<Instant> = None;
    let mut bodies = Keeper::new(&daemon.folders.session(&session.id), since);
    loop {
        // A session that ends keeps what it is about to forget in memory alone.
        if spending.is_some_and(|since| since.elapsed() >= KEEP_SPENT) && !line.is_closed() {
            session.settle(&daemon.book, |_| spending = None);
        }
        let heard = tokio::select! {
            biased;
            heard = line.hear(), if waiting.len() < TOGETHER => heard,
            // Nothing more is there to be heard: what was is written down in one step.
            () = std::future::ready(()), if !waiting.is_empty() => {
                daemon.take_records(session, since, &waiting).await;
                let all = waiting.len() < TOGETHER;
                waiting.clear();
                if taken - acknowledged >= MANY {
                    acknowledged = taken;
                    drop(line.tell(&ToEgress::Acknowledge { upto: taken }).await);
                }
                if all {
                    // What was decided is kept by the kernel from here on, whoever dies. To be woken for
                    // each record would cost more than to write it down.
                    line.rest().await;
                }
                continue;
            }
            () = tokio::time::sleep(ACKNOWLEDGE), if taken > acknowledged => {
                acknowledged = taken;
                drop(line.tell(&ToEgress::Acknowledge { upto: taken }).await);
                continue;
            }
            () = tokio::time::sleep(KEEP_SPENT), if spending.is_some() && !line.is_closed() => {
                continue;
            }
        };
        let Some(message) = heard else {
            if spending.is_some() && !line.is_closed() {
                session.settle(&daemon.book, |_| ());
            }
            daemon.take_records(session, since, &waiting).await;
            return;
        };
        match message {
            FromEgress::Record(mut record) => {
                // One that an earlier daemon had in its hands when it died comes again: until then
                // those after it are not taken, and come again too.
                if record.number > taken + 1 && gap != Some(record.number) {
                    if gap.is_none() {
                        gap = Some(record.number);
                        drop(line.tell(&ToEgress::Greet).await);
                    }
                    continue;
                }
                // What an earlier daemon took comes again if it could not say so.
                if record.number > taken {
                    gap = None;
                    bodies.settle(&mut record);
                    daemon.attribute(session, line, &mut record).await;
                    taken = record.number;
                    waiting.push(record);
                }
            }
            FromEgress::Ask(mut ask) => {
                daemon.name_process(session, line, 0, &mut ask.target).await;
                daemon.host_asked(session, line, &ask);
            }
            FromEgress::Body(piece) => bodies.keep(&piece),
            FromEgress::Spent(spent) => {
                session.note(|doc| doc.network.note_spent(spent));
                spending.get_or_insert_with(Instant::now);
            }
            FromEgress::Withdraw { ask } => daemon.host_withdrawn(line, ask),
            FromEgress::Renew { secret, version } if line.begin_renewing() => {
                daemon.renewal_wanted(session, line, (secret, version));
            }
            FromEgress::WantInward if line.begin_fetching() => fetch(daemon, session, line),
            _ => {}
        }
    }
}

/// Fetches sockets that lead inwards for a process.
fn fetch(daemon: &Arc<Daemon>, session: &Arc<Session>, line: &Arc<Line>) {
    let (daemon, session, line) = (Arc::clone(daemon), Arc::clone(session), Arc::clone(line));
    tokio::spawn(async move {
        drop(daemon.lead_inward(&session, &line).await);
        // Whoever wants more at once waits a little.
        tokio::time::sleep(Duration::from_millis(5)).await;
        line.end_fetching();
    });
}

//! Commands: started, followed to their end, and remembered.
//!
//! Before a command is started the catalogue knows its number, and the keeper holds our ends of its
//! streams. Init repeats its end until that is acknowledged. So the next daemon finds every
//! command, every byte and every exit status.

use super::doc::Doc;
use super::wiring::{self, Ends};
use super::{Happened, Session, about, doc};
use crate::book::{millis_since, now};
use crate::changes::Occasion;
use crate::daemon::Daemon;
use crate::guest::End;
use crate::trouble::Trouble;
use cowork_api::guest::{Ending, Execute, Refusal, ToInit, Umask};
use cowork_api::keeper::Request;
use cowork_client::types::{
    Command, CommandState, CommandUsage, Life, NewCommand, Raw, Reason, StreamKind, Streams,
};
use cowork_policy::Span;
use cowork_session::life::Event;
use cowork_session::output::{Log, Reader};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde_json::json;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Most bytes of output that are kept of one command; the oldest go first.
pub(crate) const MAX_OUTPUT: u64 = 256 * 1024 * 1024;
/// Most words and bytes of one command.
const MAX_WORDS: usize = 65_536;

/// A command of this daemon's time.
pub(crate) struct Run {
    pub(crate) number: u32,
    command: Mutex<Command>,
    pub(crate) log: Arc<Log>,
    pub(crate) folder: PathBuf,
    /// Grows with every progress.
    pub(crate) progress: watch::Sender<u64>,
    pub(crate) stdin: tokio::sync::Mutex<Option<AsyncFd<OwnedFd>>>,
    pub(crate) terminal: Option<OwnedFd>,
    /// Why we ended it, if we did.
    ended_by: Mutex<Option<Reason>>,
    /// How many clients are attached to it.
    attached: AtomicUsize,
    /// Whether its end was told.
    ending: AtomicBool,
}

impl Run {
    /// The command as it is now.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.command.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let progress = self.log.progress();
        command.output = progress.total.saturating_sub(progress.dropped);
        command.dropped = progress.dropped;
        command
    }

    pub(crate) fn is_running(&self) -> bool {
        let command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        is_running(command.state)
    }

    fn change(&self, change: impl FnOnce(&mut Command)) -> Command {
        change(&mut self.command.lock().unwrap_or_else(PoisonError::into_inner));
        self.command()
    }

    /// Notes that it runs as this process of the session.
    pub(crate) fn note_pid(&self, pid: i32) {
        self.change(|command| {
            command.pid = Some(pid);
            if command.state == CommandState::Starting {
                command.state = CommandState::Running;
            }
        });
    }

    /// Notes that it stands still, or goes on.
    pub(crate) fn set_state(&self, state: CommandState) -> Command {
        self.change(|command| {
            if is_running(command.state) {
                command.state = state;
            }
        })
    }

    /// Says why it is about to be ended, unless something else was said already.
    pub(crate) fn end_because(&self, code: &str, sentence: &str) {
        let mut reason = self.ended_by.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert(Reason { code: code.into(), sentence: sentence.into() });
    }

    /// Waits until everything that was written is in the log, or is held back by a reader.
    pub(crate) async fn settled(&self) {
        let (sender, settled) = tokio::sync::oneshot::channel();
        self.log.settle(Box::new(move || cowork_sys::ignore(sender.send(()))));
        cowork_sys::ignore(settled.await);
    }

    /// A client attaches itself.
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    /// A client is gone.
    pub(crate) fn detach(&self) {
        self.attached.fetch_sub(1, Ordering::Relaxed);
        self.wake();
    }

    /// Whether a client is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed) > 0
    }

    /// Lets whoever follows it look again.
    pub(crate) fn wake(&self) {
        self.progress.send_modify(|progress| *progress += 1);
    }
}

/// Whether a command in this state has a process.
pub(crate) fn is_running(state: CommandState) -> bool {
    match state {
        CommandState::Starting | CommandState::Running | CommandState::Paused => true,
        CommandState::Exited | CommandState::Refused | CommandState::Interrupted => false,
    }
}

/// Where a command is not written down that was to be.
enum Unrecorded {
    /// Nowhere: it never was.
    Nowhere(Trouble),
    /// In the catalogue; the record has it.
    InCatalogue(Trouble),
}

impl Daemon {
    /// Starts a command.
    pub(crate) async fn start_command(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: NewCommand,
    ) -> Result<Arc<Run>, Trouble> {
        session.state().accepts_commands()?;
        wiring::check(new.streams)?;
        timeout(new.timeout.as_deref())?;
        let variables = self.network_variables(session)?;
        let mut execute = execute(session, &new, variables)?;
        let guest = session.guest()?;
        let terminal = if wiring::has_terminal(new.streams) {
            Some(guest.open_terminal().await?)
        } else {
            None
        };
        let (ends, handles) = Ends::connect(new.streams, terminal, new.size, &mut execute)?;
        // Its sandbox may have gone while a terminal was opened in it.
        session.state().accepts_commands()?;
        let (command, recorded) = self.register(session, &new, &mut execute);
        let number = command.number;
        let followed = match recorded {
            Ok(()) => {
                session.live().starting.insert(number, command.clone());
                let followed = self.prepare(session, command.clone(), ends).await;
                // Whoever took its sandbox away meanwhile has recorded its end.
                if session.live().starting.remove(&number).is_none() {
                    return Err(super::no_sandbox());
                }
                followed
            }
            Err(Unrecorded::Nowhere(trouble)) => return Err(trouble),
            Err(Unrecorded::InCatalogue(trouble)) => Err(trouble),
        };
        let run = match followed {
            Ok(run) => run,
            Err(trouble) => {
                self.never_ran(command, &trouble);
                return Err(trouble);
            }
        };
        session.live().runs.insert(number, Arc::clone(&run));
        let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(|handle| handle.as_fd()).collect();
        let started = guest.execute(execute, &borrowed).await;
        drop(borrowed);
        // The session has its own copies now; with ours open no stream would ever end.
        drop(handles);
        self.started(session, &run, started)?;
        self.limit_time(session, &run)?;
        Ok(run)
    }

    /// Gives a command its number, and writes it down before it runs.
    fn register(
        &self,
        session: &Session,
        new: &NewCommand,
        execute: &mut Execute,
    ) -> (Command, Result<(), Unrecorded>) {
        let names: Vec<&String> = new.env.keys().collect();
        let mut command = fresh(session, 0, execute, new.streams);
        command.timeout.clone_from(&new.timeout);
        let before = self.book.last_record();
        let number = session.number_command();
        command.number = number;
        execute.command = number;
        let recorded = document(&command).and_then(|text| {
            let change = |doc: &mut Doc| {
                doc.commands = doc.commands.max(number);
                Ok(json!({
                    "command": number, "argv": command.argv, "cwd": command.cwd,
                    "variables": names,
                }))
            };
            session.record(&self.book, "command.started", change, |catalogue| {
                catalogue.put_command(&session.id, number, &text)
            })
        });
        let recorded = recorded.map_err(|trouble| {
            if self.book.last_record() == before {
                Unrecorded::Nowhere(trouble)
            } else {
                Unrecorded::InCatalogue(trouble)
            }
        });
        (command, recorded)
    }

    /// Leaves our ends of a command's streams with the keeper, and follows its output.
    async fn prepare(
        self: &Arc<Self>,
        session: &Arc<Session>,
        command: Command,
        ends: Ends,
    ) -> Result<Arc<Run>, Trouble> {
        let number = command.number;
        let deposit = Request::Deposit { session: session.id.clone(), command: number };
        self.engine.post(deposit, &ends.deposit()).await?;
        if let Some(stdin) = &ends.stdin {
            let command = wiring::input_of(number);
            let deposit = Request::Deposit { session: session.id.clone(), command };
            self.engine.post(deposit, &[stdin.as_fd()]).await?;
        }
        self.follow(session, command, ends)
    }

    /// Records the end of a command that was recorded and could not be started.
    fn never_ran(&self, command: Command, trouble: &Trouble) {
        let reason = Reason { code: "not-started".into(), sentence: trouble.line() };
        drop(self.end_unfollowed(command, reason));
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

    /// What came of the start.
    fn started(
        self: &Arc<Self>,
        session: &Arc<Session>,
        run: &Arc<Run>,
        started: Result<Result<i32, Refusal>, Trouble>,
    ) -> Result<(), Trouble> {
        match started {
            Ok(Ok(pid)) => {
                run.change(|command| {
                    command.pid = Some(pid);
                    if command.state == CommandState::Starting {
                        command.state = CommandState::Running;
                    }
                });
                let running = session.running();
                let command = run.command();
                let text = document(&command)?;
                let told = ("command.running", json!({ "command": run.number, "pid": pid }));
                let event = Event::Commands { running };
                let happened = Happened { event, reason: None, told: Some(told) };
                // It runs, whether or not there is room to say so: the next daemon asks init.
                drop(session.happen_with(&self.book, happened, |catalogue| {
                    catalogue.put_command(&session.id, run.number, &text)
                }));
                Ok(())
            }
            Ok(Err(why)) => {
                let name = run.command().argv.first().map(Raw::lossy).unwrap_or_default();
                let trouble = refused(&why, &name, &run.command().cwd.lossy());
                let reason = Reason { code: trouble.code.to_owned(), sentence: trouble.line() };
                self.conclude(session, run, CommandState::Refused, Some(reason))?;
                Err(trouble)
            }
            Err(trouble) => {
                let reason = Reason { code: "sandbox-lost".into(), sentence: trouble.line() };
                self.conclude(session, run, CommandState::Interrupted, Some(reason))?;
                Err(trouble)
            }
        }
    }

    /// Keeps a command in the catalogue.
    pub(crate) fn keep(&self, command: &Command) -> Result<(), Trouble> {
        let text = document(command)?;
        Ok(self.book.catalogue.put_command(&command.session, command.number, &text)?)
    }

    /// Moves the output of a command to its log from now on.
    pub(crate) fn follow(
        &self,
        session: &Session,
        command: Command,
        mut ends: Ends,
    ) -> Result<Arc<Run>, Trouble> {
        let failed =
            |error: std::io::Error| Trouble::host("cannot keep the command's output", error);
        let folder = self.output_folder(&session.id, command.number);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let sources = ends.sources().map_err(failed)?;
        let (progress, _) = watch::channel(0);
        let waker = progress.clone();
        let wake = Box::new(move || waker.send_modify(|progress: &mut u64| *progress += 1));
        let log = self.output.add(&folder, sources, MAX_OUTPUT, wake).map_err(failed)?;
        let stdin = ends.stdin.take().map(crate::watched::watched).transpose().map_err(failed)?;
        Ok(Arc::new(Run {
            number: command.number,
            command: Mutex::new(command),
            log,
            folder,
            progress,
            stdin: tokio::sync::Mutex::new(stdin),
            terminal: ends.terminal,
            ended_by: Mutex::default(),
            attached: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
        }))
    }

    /// Where the output of a command is kept.
    pub(crate) fn output_folder(&self, session: &str, number: u32) -> PathBuf {
        self.folders.session(session).join("commands").join(number.to_string())
    }

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
        let discarded = self.count_discarded(session).await;
        let ended_by = run.ended_by.lock().unwrap_or_else(PoisonError::into_inner).take();
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
                wall_ms: millis_since(&command.started),
            });
        });
        // An end that cannot be written down is told when it can.
        while self.conclude(session, run, CommandState::Exited, ended_by.clone()).is_err() {
            if self.find(&session.id).is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if let Ok(guest) = session.guest() {
            drop(guest.tell(&ToInit::Acknowledge { command: run.number }).await);
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
        let recorded = document(&command).and_then(|text| {
            self.book.record_with("command.ended", Some(&session.id), &data, |catalogue| {
                catalogue.put_command(&session.id, command.number, &text)
            })
        });
        if recorded.is_err() && state == CommandState::Exited {
            return recorded;
        }
        run.change(|known| *known = command);
        run.wake();
        let running = session.running();
        let happened = session.happen(&self.book, Event::Commands { running }, None);
        Self::trim_runs(session);
        recorded.and(happened.map(drop))
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

    /// A command, of this daemon's time or of an earlier one's.
    pub(crate) fn command(&self, session: &Session, number: u32) -> Result<Command, Trouble> {
        if let Some(run) = session.run(number) {
            return Ok(run.command());
        }
        let text = self.book.catalogue.command(&session.id, number)?;
        let text = text.ok_or_else(|| {
            let sentence = format!("session `{}` has no command {number}", session.id);
            Trouble::missing("no-command", sentence).with_hint("see `cowork status`")
        })?;
        let mut command: Command = serde_json::from_str(&text)
            .map_err(|error| Trouble::host("a command in the catalogue cannot be read", error))?;
        // What it left in its pipes was kept after its end was written down.
        let folder = self.output_folder(&session.id, number);
        if let Ok(total) = Reader::open(&folder).and_then(|mut reader| reader.total()) {
            command.output = total.saturating_sub(command.dropped);
        }
        Ok(command)
    }
}

/// A command as the catalogue keeps it.
fn document(command: &Command) -> Result<String, Trouble> {
    serde_json::to_string(command)
        .map_err(|error| Trouble::host("cannot write down a command", error))
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

fn timeout(wanted: Option<&str>) -> Result<Option<Duration>, Trouble> {
    let Some(timeout) = wanted else { return Ok(None) };
    let span: Span = timeout.parse().map_err(|error: cowork_policy::SpanError| {
        Trouble::refused("bad-timeout", error.to_string()).with_hint("e.g. `90s`")
    })?;
    Ok(Some(span.duration()))
}

fn fresh(session: &Session, number: u32, execute: &Execute, streams: Streams) -> Command {
    let words = execute.arguments.iter();
    Command {
        number,
        session: session.id.clone(),
        argv: words.map(|word| Raw::new(word.clone())).collect(),
        cwd: Raw::new(execute.folder.clone()),
        state: CommandState::Starting,
        reason: None,
        pid: None,
        streams,
        started: now(),
        ended: None,
        code: None,
        signal: None,
        usage: None,
        output: 0,
        dropped: 0,
        timeout: None,
        discarded: None,
    }
}

/// What init is told to start.
fn execute(
    session: &Session,
    new: &NewCommand,
    network: crate::network::Variables,
) -> Result<Execute, Trouble> {
    let bytes = |raw: &Raw| {
        let bytes = raw.bytes();
        bytes.ok_or_else(|| Trouble::malformed("a word is not valid base64"))
    };
    let arguments = match (&new.shell, new.argv.as_slice()) {
        (Some(_), [_, ..]) => {
            let sentence = "a command has either words or a line for the shell";
            return Err(Trouble::refused("bad-command", sentence));
        }
        (Some(line), []) => {
            vec![b"/bin/bash".to_vec(), b"-c".to_vec(), line.clone().into_bytes()]
        }
        (None, []) => {
            return Err(Trouble::refused("bad-command", "a command needs at least one word")
                .with_hint("give `argv` or `shell`"));
        }
        (None, words) => words.iter().map(bytes).collect::<Result<Vec<_>, _>>()?,
    };
    if arguments.iter().any(|word| word.contains(&0)) {
        return Err(Trouble::refused("bad-command", "a word contains a NUL"));
    }
    if arguments.len() > MAX_WORDS {
        let sentence = format!("a command has at most {MAX_WORDS} words");
        return Err(Trouble::refused("too-long", sentence));
    }
    let doc = session.doc();
    let id = doc.session_id()?;
    let mut named = Vec::new();
    if let Some(workspace) = about::workspace(&doc) {
        named.push((b"COWORK_WORKSPACE".to_vec(), workspace.into_bytes()));
    }
    let requests = cowork_policy::plan::REQUESTS;
    named.push((b"COWORK_REQUESTS".to_vec(), requests.as_bytes().to_vec()));
    named.extend(network);
    for (name, value) in &new.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            let sentence = format!("`{}` cannot be the name of a variable", name.escape_debug());
            return Err(Trouble::refused("bad-variable", sentence));
        }
        let value = bytes(value)?;
        if value.contains(&0) {
            let sentence = format!("the value of `{}` contains a NUL", name.escape_debug());
            return Err(Trouble::refused("bad-variable", sentence));
        }
        named.push((name.clone().into_bytes(), value));
    }
    let home = Path::new("/sessions").join(&doc.id);
    let folder = match &new.cwd {
        Some(cwd) => home.join(doc::path(cwd)?),
        None => home,
    };
    Ok(Execute {
        command: 0,
        arguments,
        environment: cowork_policy::plan::environment(&id, [], named),
        folder: folder.into_os_string().into_vec(),
        umask: umask(new.umask)?,
        ..Execute::default()
    })
}

fn umask(asked: Option<u32>) -> Result<Umask, Trouble> {
    match asked {
        None => Ok(Umask::default()),
        Some(bits) if bits <= 0o777 => Ok(Umask(bits)),
        Some(bits) => Err(Trouble::refused("bad-umask", format!("{bits:#o} is not a mask"))),
    }
}

fn refused(why: &Refusal, name: &str, folder: &str) -> Trouble {
    let said = |errno: &i32| std::io::Error::from_raw_os_error(*errno);
    match why {
        Refusal::NotFound => Trouble::refused(
            "not-found",
            format!("there is no command `{name}` in the session"),
        )
        .with_hint(
            "commands come from the host's /usr; grant the folder it is in and name it by its path",
        ),
        Refusal::NotExecutable { errno } => {
            Trouble::refused("not-executable", format!("the command `{name}` cannot be executed"))
                .with_cause(said(errno))
        }
        Refusal::Folder { errno } => {
            Trouble::refused("bad-cwd", format!("the command cannot start in `{folder}`"))
                .with_cause(said(errno))
                .with_hint("name a folder of the session, e.g. `mnt/NAME`")
        }
        Refusal::Malformed(text) => {
            Trouble::refused("bad-command", format!("the command was refused: {text}"))
        }
        Refusal::Failed { step, errno } => {
            Trouble::refused("failed", format!("cannot {step}")).with_cause(said(errno))
        }
    }
}

/// Whether somebody may send input to a command.
pub(crate) fn takes_input(streams: Streams) -> bool {
    matches!(streams.stdin, StreamKind::Pipe | StreamKind::Terminal)
}

//! Commands: started, followed to their end, and remembered.
//!
//! Before a command is started the catalogue knows its number, and the keeper holds our ends of its
//! streams. Init repeats its end until that is acknowledged. So the next daemon finds every
//! command, every byte and every exit status.

use super::doc::Doc;
use super::wiring::{self, Ends};
use super::{Happened, Session, about, doc};
use crate::book::now;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::guest::{Execute, Refusal, Umask};
use cowork_api::keeper::Request;
use cowork_client::types::{Command, CommandState, NewCommand, Raw, Reason, StreamKind, Streams};
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
    pub(super) ended_by: Mutex<Option<Reason>>,
    /// How many clients are attached to it.
    attached: AtomicUsize,
    /// Whether its end was told.
    pub(super) ending: AtomicBool,
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

    pub(super) fn change(&self, change: impl FnOnce(&mut Command)) -> Command {
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
        let _starting = session.starts.read().await;
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
pub(super) fn document(command: &Command) -> Result<String, Trouble> {
    serde_json::to_string(command)
        .map_err(|error| Trouble::host("cannot write down a command", error))
}

pub(super) fn timeout(wanted: Option<&str>) -> Result<Option<Duration>, Trouble> {
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
                .with_hint(cowork_policy::plan::not_executable(*errno))
        }
        Refusal::NoInterpreter { interpreter } => {
            let interpreter = String::from_utf8_lossy(interpreter);
            Trouble::refused(
                "not-executable",
                format!("`{name}` is run by `{interpreter}`, which is not in the session"),
            )
            .with_hint(cowork_policy::plan::OTHER_INTERPRETER)
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

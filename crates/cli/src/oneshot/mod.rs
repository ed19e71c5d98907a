//! `cowork run --no-daemon`: a keeper and a session of its own for one command. Nothing of it is
//! recorded or listed.

mod relay;

use crate::arguments::{Run, Start};
use crate::explain;
use crate::failure::{self, Failure, note};
use crate::request::{self, Unnamed};
use crate::signals::{self, Insistence, insisted, is_final, is_resize};
use crate::streams::{Direction, Kind, Streams, copied, own, set_nonblocking};
use crate::terminal::{RawTerminal, window};
use crate::verbs::agents;
use cowork_api::Text;
use cowork_api::files::Ask;
use cowork_api::guest::{Ending, Execute, FromInit, Refusal, Stdio, ToInit, Umask, Whom};
use cowork_api::keeper::{EndReason, Message, Request};
use cowork_policy::files::Settings;
use cowork_policy::plan::{self, SessionRequest};
use cowork_sandbox::client::{ClientError, Keeper, Session};
use cowork_sys::Errno;
use cowork_sys::signal::Signals;
use relay::{End, Happened, Pump, Pumps};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr, tcsetwinsize};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The number of the only command of a session.
const COMMAND: u32 = 1;

/// Runs the command and returns its exit status.
pub(crate) fn run(options: &Run, said: &Settings) -> Result<ExitCode, Failure> {
    let streams = Streams::look()?;
    let environment = crate::environment::named(&options.environment)?;
    let request = request::build(&options.session, Unnamed::Here, said)?;
    let signals = signals::collect()?;
    let mut keeper = Keeper::start()?;
    let plan = plan::compile(&request, &cowork_sandbox::host::system());
    let (status, session) = keeper.create(plan)?;
    if options.verbose {
        explain::print_status(&status);
    }
    explain::note_absent_of_status(&status);
    for submount in &status.submounts {
        let submount = String::from_utf8_lossy(submount);
        note(&format!("`{submount}` is mounted inside a granted folder and comes along"));
    }
    let mut execute = Execute {
        command: COMMAND,
        arguments: options.command.iter().map(|word| word.as_bytes().into()).collect(),
        environment: environment_of(&request, environment),
        folder: folder_of(options, &request)?,
        umask: Umask(crate::environment::umask()),
        ..Execute::default()
    };
    let mut runner = Runner {
        keeper,
        session,
        signals,
        id: status.session,
        outputs: 0,
        insistence: Insistence::default(),
    };
    let wiring = runner.wire(&streams, &mut execute)?;
    let outcome = runner.execute(&execute, &streams, wiring);
    let unkept = options.session.outputs.is_none() && runner.outputs > 0;
    drop(runner);
    if unkept {
        note("what the command left in mnt/outputs was discarded: keep it with `--outputs FOLDER`");
    }
    outcome
}

fn environment_of(request: &SessionRequest, named: Vec<(Text, Text)>) -> Vec<Text> {
    let caller = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
    plan::environment(&request.id, caller, named)
}

/// Where the command starts: where the user said, taken from the session's folder.
fn folder_of(options: &Run, request: &SessionRequest) -> Result<Vec<u8>, Failure> {
    let home = plan::home_of(&request.id);
    let named = match &options.start {
        Start { here: true, .. } => Some(here(request)?),
        Start { folder, .. } => folder.clone(),
    };
    let folder = named.map(|folder| Path::new(&home).join(folder));
    Ok(folder.map_or_else(|| home.clone().into(), |folder| folder.into_os_string().into_vec()))
}

/// The current folder as the session sees it.
fn here(request: &SessionRequest) -> Result<PathBuf, Failure> {
    let current = agents::current()?;
    let seen = request.grants.iter().find_map(|grant| {
        let below = current.strip_prefix(grant.path.as_path()).ok()?;
        Some(Path::new("mnt").join(grant.name.as_str()).join(below))
    });
    seen.ok_or_else(agents::not_here)
}

/// How the command's streams are connected.
struct Wiring {
    pumps: Pumps,
    handles: Vec<OwnedFd>,
    terminal: Option<OwnedFd>,
    /// The caller's terminal as it was, restored when this is dropped.
    raw: Option<RawTerminal>,
}

struct Runner {
    keeper: Keeper,
    session: Session,
    signals: Signals,
    id: String,
    /// How many things the command left in its folder for deliverables.
    outputs: u64,
    insistence: Insistence,
}

impl Runner {
    /// Connects the caller's streams to those of the command.
    fn wire(&mut self, streams: &Streams, execute: &mut Execute) -> Result<Wiring, Failure> {
        let failed = |errno: Errno| {
            Failure::host("cannot connect the command's streams", Some(errno.to_string()))
        };
        let terminal = if streams.any_terminal() { Some(self.open_terminal()?) } else { None };
        let slave = terminal.as_ref().map(|terminal| slave_of(terminal.as_fd()));
        let slave = slave.transpose().map_err(failed)?;
        let mut wiring =
            Wiring { pumps: Pumps::default(), handles: Vec::new(), terminal, raw: None };
        for (index, (kind, stream)) in streams.kinds.into_iter().zip(own()).enumerate() {
            let inwards = index == 0;
            if index == 2 && streams.shared_output() {
                let [_, output, error] = &mut execute.stdio;
                *error = *output;
                continue;
            }
            let handle = match (kind, &slave) {
                (Kind::Null, _) => continue,
                (Kind::Terminal, Some(slave)) => {
                    slave.try_clone().map_err(|_full| failed(Errno::MFILE))?
                }
                (Kind::Other | Kind::Terminal, _) if inwards => {
                    let (near, far) = copied(Direction::Inwards).map_err(failed)?;
                    let pump = Pump::new(End::Caller(stream), End::Own(near));
                    wiring.pumps.inwards.push(pump);
                    far
                }
                (Kind::Other | Kind::Terminal, _) => {
                    let (near, far) = copied(Direction::Outwards).map_err(failed)?;
                    let pump = Pump::new(End::Own(near), End::Caller(stream));
                    wiring.pumps.outwards.push(pump);
                    far
                }
            };
            let position = u8::try_from(wiring.handles.len()).unwrap_or(0);
            if let Some(place) = execute.stdio.get_mut(index) {
                *place = Stdio::Passed(position);
            }
            wiring.handles.push(handle);
        }
        if wiring.terminal.is_some() {
            connect_terminal(&mut wiring, streams, execute).map_err(failed)?;
        }
        Ok(wiring)
    }

    fn open_terminal(&mut self) -> Result<OwnedFd, Failure> {
        self.session.send(&ToInit::OpenTerminal { nonce: 0 }, &[])?;
        match self.session.receive()? {
            (FromInit::Terminal { errno: 0, .. }, Some(terminal)) => Ok(terminal),
            (FromInit::Terminal { errno, .. }, _) => {
                let cause = std::io::Error::from_raw_os_error(errno).to_string();
                Err(Failure::host("cannot open a terminal in the session", Some(cause)))
            }
            _ => Err(ClientError::Gone("session").into()),
        }
    }

    /// Starts the command and stays with it to its end.
    fn execute(
        &mut self,
        execute: &Execute,
        streams: &Streams,
        wiring: Wiring,
    ) -> Result<ExitCode, Failure> {
        // The caller's terminal is as it was again when `raw` goes, after the last output.
        let Wiring { mut pumps, handles, terminal, raw: _raw } = wiring;
        let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(|handle| handle.as_fd()).collect();
        self.session.send(&ToInit::Execute(execute.clone()), &borrowed)?;
        drop(borrowed);
        // The session has its own copies now; with ours open no stream would ever end.
        drop(handles);
        let ended = self.follow(&mut pumps, terminal.as_ref(), execute);
        if ended.is_ok() {
            // Deliverables are looked at while the session still exists.
            self.count_outputs();
        }
        self.finish(&mut pumps);
        pumps.swallow(streams);
        let ended = ended?;
        if let Some(errno) = pumps.failure() {
            let cause = std::io::Error::from(errno).to_string();
            return Err(Failure::host("the command's output could not be written", Some(cause)));
        }
        Ok(match ended {
            Ending::Status(status) => ExitCode::from(status),
            Ending::Signal(signal) => ExitCode::from(128u8.saturating_add(signal)),
        })
    }

    /// Carries bytes, signals and sizes until the command has ended.
    fn follow(
        &mut self,
        pumps: &mut Pumps,
        terminal: Option<&OwnedFd>,
        execute: &Execute,
    ) -> Result<Ending, Failure> {
        loop {
            match pumps.run_until(&self.signals, &self.session, &self.keeper)? {
                Happened::Signal(signal) if self.insistence.hears(signal) => {
                    return Err(insisted(signal));
                }
                Happened::Signal(signal) => self.pass_on(signal, terminal)?,
                Happened::Session => match self.session.receive() {
                    Ok((FromInit::Ended { ending, .. }, _)) => return Ok(ending),
                    Ok((FromInit::Refused { why, .. }, _)) => return Err(refused(&why, execute)),
                    Ok(_) => {}
                    Err(error) => return Err(self.explain_loss(error)),
                },
                Happened::Keeper => match self.keeper.event() {
                    Ok(Message::SessionEnded { reason, .. }) => return Err(ended_early(reason)),
                    Ok(Message::FileAsked { session, ask }) => self.refuse(session, &ask)?,
                    Ok(_) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    /// There is nobody to ask: the answer is no.
    fn refuse(&mut self, session: String, ask: &Ask) -> Result<(), ClientError> {
        let path = String::from_utf8_lossy(&ask.path);
        note(&format!(
            "{} was refused to {} {}/{path}: {}; without the daemon nobody can be asked",
            ask.process, ask.operation, ask.grant, ask.reason
        ));
        self.keeper.post(Request::AnswerAsk { session, ask: ask.ask, allowed: false })
    }

    /// Whatever the command left running is ended, so that every stream ends; then what is still on
    /// its way is read.
    fn finish(&mut self, pumps: &mut Pumps) {
        let session = self.id.clone();
        // It may be gone already, which is as good.
        cowork_sys::ignore(self.keeper.call(Request::Destroy { session }));
        pumps.drain(&self.signals, is_final);
    }

    fn count_outputs(&mut self) {
        let folder = format!("{}/{}/mnt/outputs", plan::SESSIONS, self.id).into_bytes();
        if self.session.send(&ToInit::Count { nonce: 0, folder }, &[]).is_err() {
            return;
        }
        while let Ok((message, _)) = self.session.receive() {
            if let FromInit::Counted { entries, .. } = message {
                self.outputs = entries.unwrap_or(0);
                return;
            }
        }
    }

    fn pass_on(&self, signal: i32, terminal: Option<&OwnedFd>) -> Result<(), ClientError> {
        if is_resize(signal) {
            if let Some(terminal) = terminal {
                copy_size(terminal.as_fd());
            }
            return Ok(());
        }
        let message = ToInit::Signal { command: COMMAND, signal, whom: Whom::Group };
        self.session.send(&message, &[])
    }

    /// The session is gone: the keeper knows why.
    fn explain_loss(&mut self, error: ClientError) -> Failure {
        match self.keeper.event() {
            Ok(Message::SessionEnded { reason, .. }) => ended_early(reason),
            _ => error.into(),
        }
    }
}

fn ended_early(reason: EndReason) -> Failure {
    match reason {
        EndReason::TimeOver => {
            let hint = "give it more with `--timeout`";
            Failure::input("the session's time was over", hint).with_code(failure::TIME_OVER)
        }
        EndReason::InitDied => Failure::input(
            "the session ended: its PID 1 was killed",
            "it may have run out of memory: see `--memory`",
        ),
        EndReason::Revocation => {
            Failure::input("the session ended: a revoked folder was still in use", "")
        }
    }
}

fn refused(why: &Refusal, execute: &Execute) -> Failure {
    let name = execute.arguments.first().map(|name| String::from_utf8_lossy(name).into_owned());
    let name = name.unwrap_or_default();
    let said = |errno: &i32| std::io::Error::from_raw_os_error(*errno).to_string();
    match why {
        Refusal::NotFound => Failure::input(
            format!("there is no command `{name}` in the session"),
            "commands come from the host's /usr; grant the folder it is in and name it by its path",
        )
        .with_code(failure::NOT_FOUND),
        Refusal::NotExecutable { errno } => Failure::input(
            format!("the command `{name}` cannot be executed"),
            plan::not_executable(*errno),
        )
        .with_cause(said(errno))
        .with_code(failure::NOT_EXECUTABLE),
        Refusal::NoInterpreter { interpreter } => {
            let interpreter = String::from_utf8_lossy(interpreter);
            Failure::input(
                format!("`{name}` is run by `{interpreter}`, which is not in the session"),
                plan::OTHER_INTERPRETER,
            )
            .with_code(failure::NOT_EXECUTABLE)
        }
        Refusal::Folder { errno } => {
            let folder = String::from_utf8_lossy(&execute.folder).into_owned();
            Failure::input(
                format!("the command cannot start in `{folder}`"),
                "name a folder of the session, e.g. `--cd mnt/NAME`",
            )
            .with_cause(said(errno))
        }
        Refusal::Malformed(text) => Failure::host(format!("the command was refused: {text}"), None),
        Refusal::Failed { step, errno } => {
            Failure::host(format!("cannot {step}"), Some(said(errno)))
        }
    }
}

/// Gives the command the session's terminal, and takes the caller's out of its usual mode.
fn connect_terminal(
    wiring: &mut Wiring,
    streams: &Streams,
    execute: &mut Execute,
) -> Result<(), Errno> {
    let Some(terminal) = &wiring.terminal else { return Ok(()) };
    copy_size(terminal.as_fd());
    let duplicate = || terminal.try_clone().map_err(|_full| Errno::MFILE);
    set_nonblocking(terminal.as_fd())?;
    let screen =
        streams.kinds.into_iter().zip(own()).skip(1).find(|(kind, _)| *kind == Kind::Terminal);
    // Where no output is shown the echo of what is typed still is, at the terminal it comes from;
    // it never goes where the command's output goes.
    let screen = screen.map_or(rustix::stdio::stdin(), |(_, stream)| stream);
    wiring.pumps.outwards.push(Pump::shown(End::Own(duplicate()?), End::Caller(screen)));
    if streams.interactive() {
        execute.terminal = true;
        if Streams::in_foreground() {
            wiring.raw = Some(RawTerminal::enter(streams)?);
            let pump = Pump::new(End::Caller(rustix::stdio::stdin()), End::Own(duplicate()?));
            wiring.pumps.inwards.push(pump);
        }
    } else {
        // The caller's terminal turns line ends into carriage returns itself.
        let slave = slave_of(terminal.as_fd())?;
        let mut settings = tcgetattr(&slave)?;
        settings.output_modes -= rustix::termios::OutputModes::OPOST;
        tcsetattr(&slave, OptionalActions::Now, &settings)?;
    }
    Ok(())
}

/// The side of a terminal that a command gets.
fn slave_of(terminal: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    use rustix::pty::OpenptFlags;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    rustix::pty::unlockpt(terminal)?;
    rustix::pty::ioctl_tiocgptpeer(terminal, flags)
}

/// Gives the session's terminal the size of the caller's.
fn copy_size(terminal: BorrowedFd<'_>) {
    if let Some(size) = window() {
        // A terminal that cannot be resized keeps its size.
        cowork_sys::ignore(tcsetwinsize(terminal, size));
    }
}

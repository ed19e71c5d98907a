//! `cowork exec` and `cowork shell`: commands in sessions that stay; `cowork attach` comes back
//! to one.

use super::{agents, changes, named, on, target};
use crate::arguments::{Attach, DEFAULT, Exec, Shell, Start};
use crate::attached::{self, Bond, Form, Outcome, Side};
use crate::environment;
use crate::failure::{self, Failure, note};
use crate::streams::{Kind, Streams as Own};
use crate::{daemon, request, show, signals, terminal};
use cowork_client::http::{Attached, Client, HttpError, Method, Request};
use cowork_client::types::{Command, CommandState, NewCommand, Raw, Session, StreamKind, Streams};
use cowork_client::uri::Query;
use cowork_sys::signal::Signals;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// The words of a command.
pub(crate) fn words(command: &[OsString]) -> Vec<Raw> {
    command.iter().map(|word| Raw::new(word.as_bytes())).collect()
}

/// What the command's streams are, after the caller's. What is written as lines is no screen.
pub(crate) fn streams(own: &Own, form: Form) -> Streams {
    let [stdin, stdout, stderr] = own.kinds.map(|kind| match (kind, form) {
        (Kind::Terminal, Form::Bytes) => StreamKind::Terminal,
        (Kind::Null, _) => StreamKind::Null,
        (Kind::Other, _) | (Kind::Terminal, Form::Lines) => StreamKind::Pipe,
    });
    let stderr = if own.shared_output() { StreamKind::Stdout } else { stderr };
    Streams { stdin, stdout, stderr }
}

/// The exit status of a command that has ended, or why it has none of its own.
pub(crate) fn status(command: &Command) -> Result<ExitCode, Failure> {
    let reason = command.reason.as_ref();
    let sentence = reason.map(|reason| reason.sentence.clone()).unwrap_or_default();
    match (command.state, reason.map(|reason| reason.code.as_str())) {
        (_, Some("time-over")) => {
            let hint = "give it more with `--timeout`";
            Err(Failure::input("the session's time was over", hint).with_code(failure::TIME_OVER))
        }
        (_, Some("timeout")) => {
            let hint = "give it more with `--timeout`";
            Err(Failure::input("the command's time was over", hint).with_code(failure::TIME_OVER))
        }
        (CommandState::Exited, Some("memory")) => {
            let hint = "give it more with `--memory`, or `cowork set --memory` while it runs";
            let code = command.code.unwrap_or(failure::OWN);
            let sentence = "the command was killed: the session's memory was used up";
            Err(Failure::input(sentence, hint).with_code(code))
        }
        (CommandState::Exited, _) => Ok(ExitCode::from(command.code.unwrap_or(failure::OWN))),
        (CommandState::Refused, Some("not-found")) => {
            Err(Failure::input(sentence, "").with_code(failure::NOT_FOUND))
        }
        (CommandState::Refused, Some("not-executable")) => {
            Err(Failure::input(sentence, "").with_code(failure::NOT_EXECUTABLE))
        }
        (CommandState::Refused, _) => Err(Failure::input(sentence, "")),
        (CommandState::Interrupted, _) => {
            Err(Failure::host("the command was interrupted", Some(sentence)))
        }
        (CommandState::Starting | CommandState::Running | CommandState::Paused, _) => {
            Err(Failure::host("the command is said to have ended and to run", None))
        }
    }
}

/// Why a command could not be started.
pub(crate) fn refused(error: HttpError) -> Failure {
    let code = error.problem().map(|problem| problem.code.clone());
    let failure = Failure::from(error);
    match code.as_deref() {
        Some("not-found") => failure.with_code(failure::NOT_FOUND),
        Some("not-executable") => failure.with_code(failure::NOT_EXECUTABLE),
        Some("bad-cwd") => failure.with_hint("name a folder of the session, e.g. `--cd mnt/NAME`"),
        _ => failure,
    }
}

/// `cowork exec`.
pub(crate) fn exec(options: &Exec) -> Result<ExitCode, Failure> {
    let own = Own::look()?;
    let (session, mut command) = parse(options)?;
    command.cwd = cwd(&session, &options.start)?;
    command.env = environment::for_daemon(&options.environment)?;
    command.streams = wanted_streams(options, &own);
    command.size = terminal::size();
    command.umask = Some(environment::umask());
    command.timeout = options.timeout.map(|span| span.to_string());
    let form = Form::of(&options.output);
    if options.detach {
        return detach(&session, &command, form);
    }
    start(&session, &command, &own, form)
}

/// Where a command starts in a session that the user names.
fn cwd(session: &str, start: &Start) -> Result<Option<Raw>, Failure> {
    if !start.here {
        return Ok(start.folder.as_deref().map(request::raw));
    }
    let mut client = daemon::connect()?;
    let id = super::id(&mut client, session)?;
    agents::start_of(&mut client, &id, start)
}

/// What the words of the command line mean: a session and a command, or a line for the shell.
fn parse(options: &Exec) -> Result<(String, NewCommand), Failure> {
    let text = |word: &OsString| {
        let text = word.to_str().map(ToOwned::to_owned);
        text.ok_or_else(|| Failure::input("a session's id and a shell line are UTF-8", ""))
    };
    match (options.words.as_slice(), options.command.as_slice()) {
        ([], []) => Err(Failure::input(
            "there is no command",
            "write `cowork exec [SESSION] -- COMMAND`, or `cowork exec \"SHELL LINE\"`",
        )),
        ([line], []) => {
            let shell = Some(text(line)?);
            Ok((DEFAULT.to_owned(), NewCommand { shell, ..NewCommand::default() }))
        }
        ([], command) => {
            Ok((DEFAULT.to_owned(), NewCommand { argv: words(command), ..NewCommand::default() }))
        }
        ([session], command) => {
            Ok((text(session)?, NewCommand { argv: words(command), ..NewCommand::default() }))
        }
        ([_, _, ..], _) => Err(Failure::input(
            "it is not clear where the command starts",
            "write `--` before it: `cowork exec SESSION -- COMMAND`",
        )),
    }
}

fn wanted_streams(options: &Exec, own: &Own) -> Streams {
    let mut wanted = match (options.terminal, options.detach) {
        (true, _) => {
            let terminal = StreamKind::Terminal;
            Streams { stdin: terminal, stdout: terminal, stderr: terminal }
        }
        (false, true) => Streams::default(),
        (false, false) => streams(own, Form::of(&options.output)),
    };
    if options.no_stdin {
        wanted.stdin = StreamKind::Null;
    }
    wanted
}

/// Starts a command and leaves it running.
fn detach(session: &str, command: &NewCommand, form: Form) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (_, command) = on(&mut client, session, |client, id| {
        client.send::<Command>(Method::Post, target(id, "/commands"), command)
    })?;
    match form {
        Form::Lines => show::json(&command),
        Form::Bytes => show::print(format!("{}\n", command.number)),
    }
}

/// Starts a command and stays with it.
pub(crate) fn start(
    session: &str,
    command: &NewCommand,
    own: &Own,
    form: Form,
) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let signals = signals::collect()?;
    let started = on(&mut client, session, |client, id| {
        let start = Request::new(Method::Post, target(id, "/commands")).with_json(command);
        client.upgrade(start).map(Ok).or_else(|error| match error.problem() {
            Some(problem) if problem.status == 404 => Err(error),
            _ => Ok(Err(error)),
        })
    })?;
    let (id, attached) = started;
    let attached = attached.map_err(refused)?;
    let stay = Stay { id, own, signals, form, bond: Bond::Starter };
    stay.to_the_end(attached, 0)
}

/// A conversation with a command of a session that stays.
struct Stay<'a> {
    id: String,
    own: &'a Own,
    signals: Signals,
    form: Form,
    bond: Bond,
}

impl Stay<'_> {
    /// Stays until the command has ended or the user leaves. A daemon that goes away meanwhile is
    /// started again, and goes on where it was; `from` is where the output starts.
    fn to_the_end(&self, mut attached: Attached, mut from: u64) -> Result<ExitCode, Failure> {
        let (mut bond, mut known) = (self.bond, None);
        loop {
            let side = Side { streams: self.own, signals: &self.signals, form: self.form, bond };
            // The command is killed by the conversation itself.
            match attached::stay(attached, &side, &mut || {})? {
                Outcome::Ended(command) => {
                    if self.form == Form::Bytes {
                        changes::tell_loss(&command);
                    }
                    return status(&command);
                }
                Outcome::Left(command) => {
                    note(&format!(
                        "left; the command goes on: `cowork attach {} {}`",
                        self.id, command.number
                    ));
                    return Ok(ExitCode::SUCCESS);
                }
                Outcome::Lost { command, received } => {
                    from += received;
                    known = command.map(|command| *command).or(known);
                    let command = known.as_ref().ok_or_else(lost)?;
                    // Nobody knows how much of its input a command has read.
                    if command.streams.stdin == StreamKind::Pipe {
                        return Err(lost());
                    }
                    attached = attach_at(&mut daemon::connect()?, command, &from.to_string())?;
                    bond = Bond::Visitor;
                }
            }
        }
    }
}

fn lost() -> Failure {
    Failure::host("the daemon ended while the command was running", None)
        .with_hint("see `cowork status`, and come back to it with `cowork attach`")
}

fn attach_at(client: &mut Client, command: &Command, from: &str) -> Result<Attached, HttpError> {
    let path = target(&command.session, &format!("/commands/{}/attach", command.number));
    client.upgrade(Request::get(Query::new(path).with("from", from)))
}

/// `cowork shell`: the session's own shell, on a terminal if there is one.
pub(crate) fn shell(options: &Shell) -> Result<ExitCode, Failure> {
    /// A shell that the session has, as a login shell.
    const LINE: &str = "[ -x \"$SHELL\" ] && exec \"$SHELL\" -l; exec /bin/sh -l";
    let own = Own::look()?;
    let session = options.session.as_deref().unwrap_or(DEFAULT);
    let command = NewCommand {
        argv: ["/bin/sh", "-c", LINE].map(|word| Raw::Text(word.to_owned())).to_vec(),
        cwd: cwd(session, &options.start)?,
        env: environment::for_daemon(&options.environment)?,
        streams: streams(&own, Form::Bytes),
        size: terminal::size(),
        umask: Some(environment::umask()),
        ..NewCommand::default()
    };
    start(session, &command, &own, Form::Bytes)
}

/// `cowork attach`.
pub(crate) fn attach(options: &Attach) -> Result<ExitCode, Failure> {
    let mut own = Own::look()?;
    if options.no_stdin {
        own.ignore_input();
    }
    let (session, number) = named(options.session.as_deref(), options.number);
    let mut client = daemon::connect()?;
    let command = command(&mut client, &session, number)?;
    let signals = signals::collect()?;
    let (text, from) = match options.from {
        Some(from) => (from.to_string(), from),
        None => ("end".to_owned(), command.output.saturating_add(command.dropped)),
    };
    let attached = attach_at(&mut client, &command, &text)?;
    let form = Form::of(&options.output);
    let id = command.session;
    let stay = Stay { id, own: &own, signals, form, bond: Bond::Visitor };
    stay.to_the_end(attached, from)
}

/// A command of a session: the one with the number, or the last that was started.
pub(crate) fn command(
    client: &mut Client,
    session: &str,
    number: Option<u32>,
) -> Result<Command, Failure> {
    let (id, session) = super::session(client, session)?;
    let Session { commands: last, .. } = session;
    let number = number.unwrap_or(last);
    if number == 0 {
        let hint = format!("start one with `cowork exec {id} -- COMMAND`");
        return Err(Failure::input(format!("no command was started in session `{id}`"), hint));
    }
    Ok(client.get(target(&id, &format!("/commands/{number}")))?)
}

//! `cowork srt`: takes the place of `srt`, with its command line and its settings.
//!
//! The settings become a session that lives for one command: a view of this host's files at their
//! own paths, rules for names and for hosts, secrets of its own. Nothing runs unless all of the
//! settings are in force.

mod control;
mod file;
mod ground;
mod masks;
mod reach;
mod variables;
mod view;

use crate::arguments::Srt;
use crate::attached::{self, Bond, Form, Outcome, Side};
use crate::failure::{Failure, note};
use crate::show::{self, neutral, progress};
use crate::streams::Streams;
use crate::verbs::{exec, target};
use crate::{daemon, environment, request, signals, terminal};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{Life, NewCommand, NewSession, Raw, Session};
use cowork_srt::Settings;
use ground::Ground;
use reach::Reach;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

pub(crate) use file::{Found, default_file, read as read_settings};

/// The version of srt whose settings and options are understood.
const VERSION: &str = "0.0.83";
/// The shell that runs commands, as with srt.
const SHELL: &str = "bash";

/// `cowork srt`.
pub(crate) fn srt(options: &Srt) -> Result<ExitCode, Failure> {
    if options.version {
        return show::print(format!("{VERSION} (cowork {})\n", env!("CARGO_PKG_VERSION")));
    }
    refuse_words(options)?;
    prepare(options)?.run()
}

/// Whether it is asked what can be done: `help` is a word of srt's own, and no command.
pub(crate) fn is_help(options: &Srt) -> bool {
    word(options) == Some("help")
}

/// The first word, where no line of the shell is named.
fn word(options: &Srt) -> Option<&str> {
    options.command.first().filter(|_| options.line.is_none())?.to_str()
}

/// Refuses words of srt's own that are for other purposes than running a command.
fn refuse_words(options: &Srt) -> Result<(), Failure> {
    let (word, why) = match word(options) {
        Some(word @ "proxy") => (
            word,
            "it is srt's proxy without a sandbox, for which another program decides: a session has \
             its own, which is reached from inside alone",
        ),
        Some(word @ ("windows-install" | "windows-uninstall")) => (word, "it is for Windows"),
        _ => return Ok(()),
    };
    let sentence = format!("`srt {word}` is not supported: {why}");
    Err(Failure::input(
        sentence,
        format!("a command of that name is run by `cowork srt -c {word}`"),
    ))
}

/// A command that can be run.
struct Prepared<'a> {
    options: &'a Srt,
    streams: Streams,
    client: Client,
    session: NewSession,
    command: NewCommand,
    reach: Reach,
    control: Option<control::Control>,
}

fn prepare(options: &Srt) -> Result<Prepared<'_>, Failure> {
    let control = options.control_fd.map(control::Control::open).transpose()?;
    let ground = Ground::look()?;
    let debug = Debug::new(options);
    let settings = file::settings(options, &ground, debug)?;
    let line = line(options)?;
    let streams = Streams::look()?;
    let masks = masks::masks(&settings, &ground)?;
    let temporary = Ground::temporary();
    let view = view::view(&settings, &ground, &masks, temporary.as_deref())?;
    let reach = Reach::new(&settings, &masks)?;
    let network = (control.is_some() || !reach.is_nothing()).then(|| reach.network());
    debug.say(|| format!("View: {}", show::document(&view).unwrap_or_default()));
    debug.say(|| format!("Network: {}", show::document(&network).unwrap_or_default()));
    let given = variables::Given { settings: &settings, ground: &ground, masks: &masks };
    let command = NewCommand {
        argv: vec![Raw::Text(SHELL.to_owned()), Raw::Text("-c".to_owned()), Raw::new(line)],
        cwd: Some(request::raw(&ground.here)),
        env: given.variables(temporary.as_deref(), network.as_ref()),
        streams: exec::streams(&streams, Form::Bytes),
        size: terminal::size(),
        umask: Some(environment::umask()),
        ..NewCommand::default()
    };
    let session = NewSession {
        life: Life::Once,
        view: Some(view),
        secrets: masks.secrets(),
        network,
        ..NewSession::default()
    };
    let client = daemon::connect()?;
    Ok(Prepared { options, streams, client, session, command, reach, control })
}

/// The line that the shell runs.
fn line(options: &Srt) -> Result<Vec<u8>, Failure> {
    match &options.line {
        Some(line) if !line.is_empty() => return Ok(line.as_bytes().to_vec()),
        Some(_) | None => {}
    }
    if options.command.is_empty() {
        let hint = "write `cowork srt -- COMMAND`, or `cowork srt -c LINE`";
        return Err(Failure::input("there is no command", hint));
    }
    Ok(cowork_srt::shell::line(options.command.iter().map(|word| word.as_bytes())))
}

impl Prepared<'_> {
    fn run(self) -> Result<ExitCode, Failure> {
        let Self { options, streams, mut client, session, command, reach, control } = self;
        let signals = signals::collect()?;
        let (session, reach) = create(&mut client, session, reach)?;
        let id = session.id;
        Debug::new(options).say(|| format!("Session: {id}"));
        let control = control.map(|control| control.follow(reach, &id)).transpose();
        let outcome = control.and_then(|_control| {
            let start = Request::new(Method::Post, target(&id, "/commands")).with_json(&command);
            let attached = client.upgrade(start).map_err(exec::refused)?;
            let (streams, signals) = (&streams, &signals);
            let side = Side { streams, signals, form: Form::Bytes, bond: Bond::Only };
            attached::stay(attached, &side, &mut || remove(&mut client, &id))
        });
        match outcome {
            Ok(Outcome::Ended(command)) => exec::status(&command),
            Ok(Outcome::Left(_) | Outcome::Lost { .. }) => {
                let sentence = "the daemon ended, and the session with it";
                Err(Failure::host(sentence, None))
            }
            Err(failure) => {
                // The daemon ends the session itself when its command has ended.
                remove(&mut client, &id);
                Err(failure)
            }
        }
    }
}

/// Makes the session. Where the kernel cannot hand over every port, it gets the usual ones.
fn create(
    client: &mut Client,
    mut session: NewSession,
    reach: Reach,
) -> Result<(Session, Reach), Failure> {
    let mut make = |session: &NewSession| {
        progress::during("making the session", || {
            client.send::<Session>(Method::Post, "/v1/sessions", session)
        })
    };
    match make(&session) {
        Ok(made) => Ok((made, reach)),
        Err(error) => {
            let code = error.problem().map(|problem| problem.code.as_str());
            let narrow = match code {
                Some("network-unenforceable") => reach.with_usual_ports(),
                _ => None,
            };
            let Some(narrow) = narrow else { return Err(error.into()) };
            session.network = Some(narrow.network());
            let made = make(&session)?;
            note(&format!(
                "this host's kernel cannot hand over every port: hosts are reached on ports {}",
                reach::USUAL
            ));
            Ok((made, narrow))
        }
    }
}

/// Removes a session; one that is gone is as good.
fn remove(client: &mut Client, id: &str) {
    drop(client.call(&Request::new(Method::Delete, target(id, ""))));
}

/// Whether to say what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debug {
    /// Nothing is said.
    Silent,
    /// Everything is.
    Said,
}

impl Debug {
    fn new(options: &Srt) -> Self {
        let asked = options.debug || std::env::var_os("SRT_DEBUG").is_some();
        if asked { Self::Said } else { Self::Silent }
    }

    /// Says it as srt does.
    #[expect(clippy::print_stderr, reason = "this is what `--debug` is for")]
    pub(crate) fn say(self, text: impl FnOnce() -> String) {
        if self == Self::Said {
            eprintln!("[SandboxDebug] {}", neutral::text(&text()));
        }
    }
}

/// What is wrong with settings, by their keys.
fn wrong(wrong: &cowork_srt::Wrong) -> Failure {
    Failure::input("the settings cannot be in force", "see docs/srt.md")
        .with_cause(wrong.to_string())
}

/// What settings say that is no error.
fn tell_unknown(file: &std::path::Path, read: cowork_srt::Read) -> Settings {
    for key in &read.unknown {
        note(&format!("`{key}` in `{}` is not known, and has no effect", file.display()));
    }
    read.settings
}

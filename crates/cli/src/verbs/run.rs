//! `cowork run`: one session for one command, kept by the daemon as long as the command runs.

use super::{agents, changes, exec, target};
use crate::arguments::{Headless, Run};
use crate::attached::{self, Bond, Form, Outcome, Side};
use crate::environment;
use crate::explain;
use crate::failure::{Failure, note};
use crate::request::{self, Unnamed};
use crate::show::progress;
use crate::signals;
use crate::streams::Streams;
use crate::{daemon, network, oneshot};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{Access, Changes, Life, NewCommand, Page, Record, Session};
use cowork_client::uri::Query;
use cowork_sys::signal::Signals;
use serde_json::Value;
use std::process::ExitCode;

/// Runs the command and returns its exit status.
pub(crate) fn run(options: &Run) -> Result<ExitCode, Failure> {
    if options.no_daemon {
        let policy = network::policy(&options.session.network)?;
        if let Some(option) = network::asked(&options.session.network, &policy) {
            let sentence =
                format!("a session without the daemon has no network, so `{option}` needs it");
            return Err(Failure::input(sentence, "leave `--no-daemon` out"));
        }
        return oneshot::run(options, &policy.files);
    }
    let streams = Streams::look()?;
    let command = NewCommand {
        argv: exec::words(&options.command),
        env: environment::for_daemon(&options.environment)?,
        streams: exec::streams(&streams, Form::of(&options.output)),
        size: crate::terminal::size(),
        umask: Some(environment::umask()),
        ..NewCommand::default()
    };
    let mut wanted = request::for_daemon(&options.session, Unnamed::Here)?;
    wanted.life = Life::Once;
    if options.session.network.headless == Headless::Auto {
        // A program that reads JSON may answer through the API.
        let alone = streams.is_alone() && Form::of(&options.output) == Form::Bytes;
        wanted.headless = alone;
        if let Some(network) = &mut wanted.network {
            network.headless = alone;
        }
    }
    let mut client = daemon::connect()?;
    let signals = signals::collect()?;
    let session: Session = progress::during("making the session", || {
        client.send(Method::Post, "/v1/sessions", &wanted)
    })?;
    if options.verbose {
        explain::print_session(&session);
    }
    explain::note_absent(&session.enforcement);
    for submount in session.grants.iter().flat_map(|grant| &grant.submounts) {
        let submount = submount.lossy();
        note(&format!("`{submount}` is mounted inside a granted folder and comes along"));
    }
    let records =
        session.grants.iter().any(|it| matches!(it.access, Access::Write | Access::Staged));
    let writes = match (records, wanted.headless) {
        (false, _) => Writes::Unrecorded,
        (true, false) => Writes::Recorded,
        (true, true) => Writes::Unasked,
    };
    let runner = Runner { options, streams, signals, id: session.id, writes };
    let outcome = runner.execute(&mut client, command);
    if outcome.is_err() {
        // The daemon ends the session itself when its command has ended.
        remove(&mut client, &runner.id);
    }
    outcome
}

struct Runner<'a> {
    options: &'a Run,
    streams: Streams,
    signals: Signals,
    id: String,
    writes: Writes,
}

/// What becomes of changes in its folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    /// None is recorded.
    Unrecorded,
    /// They are recorded.
    Recorded,
    /// They are recorded, and those refused about which a person would be asked.
    Unasked,
}

impl Runner<'_> {
    fn execute(&self, client: &mut Client, command: NewCommand) -> Result<ExitCode, Failure> {
        let cwd = agents::start_of(client, &self.id, &self.options.start)?;
        let command = NewCommand { cwd, ..command };
        let start = Request::new(Method::Post, target(&self.id, "/commands")).with_json(&command);
        let attached = client.upgrade(start).map_err(exec::refused)?;
        let form = Form::of(&self.options.output);
        let (streams, signals) = (&self.streams, &self.signals);
        let side = Side { streams, signals, form, bond: Bond::Only };
        match attached::stay(attached, &side, &mut || remove(client, &self.id))? {
            Outcome::Ended(command) => {
                let discarded = command.discarded.is_some_and(|discarded| discarded > 0);
                if discarded && self.options.session.outputs.is_none() {
                    note(
                        "what the command left in mnt/outputs was discarded: keep it with \
                         `--outputs FOLDER`",
                    );
                }
                if self.writes == Writes::Unasked && command.code != Some(0) {
                    self.tell_refusals(client);
                }
                self.tell_changes(client);
                exec::status(&command)
            }
            Outcome::Left(_) | Outcome::Lost { .. } => {
                Err(Failure::host("the daemon ended, and the session with it", None))
            }
        }
    }

    /// Says what was refused because nobody is there to be asked.
    fn tell_refusals(&self, client: &mut Client) {
        /// So many are spelled out.
        const MOST: &str = "5";
        let query = Query::new("/v1/audit").with("session", &self.id).with("limit", MOST);
        let records = client.get::<Page<Record>>(query.with("type", "files.refused"));
        for record in records.map(|page| page.items).unwrap_or_default() {
            let said = |field: &str| record.data.get(field).and_then(Value::as_str);
            if let (Some(process), Some(operation), Some(grant), Some(path), Some(reason)) =
                (said("process"), said("operation"), said("grant"), said("path"), said("reason"))
            {
                note(&format!("{process} was refused to {operation} {grant}/{path}: {reason}"));
            }
        }
    }

    /// Says that files were changed, and how that is taken back, if a person looks.
    fn tell_changes(&self, client: &mut Client) {
        let form = Form::of(&self.options.output);
        let person = rustix::termios::isatty(rustix::stdio::stderr());
        if self.writes == Writes::Unrecorded || form != Form::Bytes || !person {
            return;
        }
        // A session that changed nothing has nothing to tell.
        let changes = client.get::<Changes>(target(&self.id, "/changes"));
        if let Some(line) = changes.ok().as_ref().and_then(changes::summary) {
            note(&line);
        }
    }
}

/// Removes a session; one that is gone is as good.
fn remove(client: &mut Client, id: &str) {
    drop(client.call(&Request::new(Method::Delete, target(id, ""))));
}

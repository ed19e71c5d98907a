//! Making, listing, changing, stopping and removing sessions.

use super::{id, on, target};
use crate::arguments::{DEFAULT, List, New, Remove, Set, Target};
use crate::daemon;
use crate::explain;
use crate::failure::{Failure, note};
use crate::request::{self, Unnamed};
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, progress, units};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{
    Access, Labels, Network, NetworkChange, Otherwise, Raw, Session, SessionChange, State,
    WantedLimits,
};
use cowork_client::uri::Query;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `cowork new`.
pub(crate) fn new(options: &New) -> Result<ExitCode, Failure> {
    let mut wanted = request::for_daemon(&options.session, Unnamed::Nothing)?;
    wanted.limits.disk = options.disk.map(|bytes| bytes.to_string());
    wanted.labels = options.labels.iter().cloned().collect();
    wanted.workspace.clone_from(&options.workspace);
    let mut client = daemon::connect()?;
    let session: Session = progress::during("making the session", || {
        client.send(Method::Post, "/v1/sessions", &wanted)
    })?;
    explain::note_absent(&session.enforcement);
    for submount in session.grants.iter().flat_map(|grant| &grant.submounts) {
        let submount = submount.lossy();
        note(&format!("`{submount}` is mounted inside a granted folder and comes along"));
    }
    if options.output.json {
        show::json(&session)
    } else {
        show::print(format!("{}\n", session.id))
    }
}

/// `cowork ls`.
pub(crate) fn list(options: &List) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let label = options.labels.first().map(|(name, value)| format!("{name}={value}"));
    let query = Query::new("/v1/sessions").with_some("state", options.state.as_ref());
    let mut sessions: Vec<Session> = client.list(&query.with_some("label", label))?;
    let wanted = |session: &Session| {
        options.labels.iter().all(|(name, value)| session.labels.get(name) == Some(value))
    };
    sessions.retain(wanted);
    if options.output.json {
        return show::json(&sessions);
    }
    if options.quiet {
        let ids = sessions.into_iter().map(|session| session.id + "\n");
        return show::print(ids.collect::<String>());
    }
    let mut table = Table::new(["ID", "STATE", "AGE", "GRANTS", "COMMANDS", "LABELS"]);
    for session in &sessions {
        table.row([
            (&session.id).into(),
            state_cell(session.state),
            units::age(&session.created).into(),
            grants(session).into(),
            commands(session).into(),
            labels(&session.labels).into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

/// The name of a state.
pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Ready => "ready",
        State::Running => "running",
        State::Paused => "paused",
        State::Stopped => "stopped",
        State::Failed => "failed",
        State::Ended => "ended",
    }
}

/// A state in its colour.
pub(crate) fn tone(state: State) -> Tone {
    match state {
        State::Ready | State::Running => Tone::Good,
        State::Creating | State::Paused => Tone::Warning,
        State::Failed => Tone::Bad,
        State::Stopped | State::Ended => Tone::Plain,
    }
}

fn state_cell(state: State) -> Cell {
    Cell::new(self::state(state), tone(state))
}

fn grants(session: &Session) -> String {
    let grants = session.grants.iter().map(|grant| match grant.access {
        Access::Write => grant.name.clone(),
        access => format!("{}:{}", grant.name, access.as_str()),
    });
    grants.collect::<Vec<_>>().join(",")
}

fn commands(session: &Session) -> String {
    match session.running.len() {
        0 => session.commands.to_string(),
        running => format!("{} ({running} running)", session.commands),
    }
}

/// Labels on one line.
pub(crate) fn labels(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// `cowork stop` and `cowork start`.
pub(crate) fn turn(options: &Target, verb: &str) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let name = options.session.as_deref().unwrap_or(DEFAULT);
    let what = if verb == "stop" { "stopping the session" } else { "starting the session" };
    let below = format!("/{verb}");
    let (_, session) = progress::during(what, || {
        on(&mut client, name, |client, id| {
            client.json::<Session>(&Request::new(Method::Post, target(id, &below)))
        })
    })?;
    if options.output.json { show::json(&session) } else { Ok(ExitCode::SUCCESS) }
}

/// `cowork rm`.
pub(crate) fn remove(options: &Remove) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let names = options.sessions.iter();
    // All of them are found before the first one goes.
    let ids = names.map(|name| id(&mut client, name)).collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        remove_one(&mut client, id, Keep::from(options.keep_outputs))?;
    }
    if options.output.json {
        return show::json(&json!({ "removed": ids }));
    }
    Ok(ExitCode::SUCCESS)
}

/// What stays of a session that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    Outputs,
}

impl From<bool> for Keep {
    /// From the flag that asks for outputs to be kept.
    fn from(outputs: bool) -> Self {
        if outputs { Self::Outputs } else { Self::Nothing }
    }
}

/// Removes one session, and says what becomes of what it left in `mnt/outputs`.
pub(crate) fn remove_one(client: &mut Client, id: &str, keep: Keep) -> Result<(), Failure> {
    let session: Session = client.get(target(id, ""))?;
    let left = Left::in_outputs(&session);
    let mut query = Query::new(target(id, ""));
    if keep == Keep::Outputs {
        query = query.with("outputs", "keep");
    }
    let request = Request::new(Method::Delete, query);
    progress::during("removing the session", || client.call(&request))?;
    if let Some(left) = left {
        note(&left.fate(keep));
    }
    Ok(())
}

/// What a session leaves in `mnt/outputs`, in a folder of cowork's.
struct Left {
    folder: PathBuf,
    files: usize,
}

impl Left {
    /// Nothing if there is none, or if the folder is the user's own, which is not removed.
    fn in_outputs(session: &Session) -> Option<Self> {
        let place = |raw: &Option<Raw>| {
            raw.as_ref().and_then(Raw::bytes).map(OsString::from_vec).map(PathBuf::from)
        };
        let (folder, beside) = (place(&session.outputs)?, place(&session.uploads)?);
        let files = (folder.parent() == beside.parent()).then(|| count_files(&folder))?;
        (files > 0).then_some(Self { folder, files })
    }

    fn fate(&self, keep: Keep) -> String {
        let more = if self.files == MOST_COUNTED { "at least " } else { "" };
        let files = units::count(self.files, "file", "files");
        match keep {
            Keep::Outputs => {
                format!("{more}{files} of mnt/outputs kept in `{}`", self.folder.display())
            }
            Keep::Nothing => format!(
                "{more}{files} of mnt/outputs removed with the session: `--keep-outputs` keeps them"
            ),
        }
    }
}

/// How many files are counted at most: a session can make more than anybody waits for.
const MOST_COUNTED: usize = 10_000;

/// How many files are in a folder and those below it; links are files.
fn count_files(folder: &Path) -> usize {
    let mut folders = vec![folder.to_path_buf()];
    let mut seen = 0;
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        // What cannot be read is removed or kept all the same.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => files += 1,
            }
            if files == MOST_COUNTED || seen == 4 * MOST_COUNTED {
                return files;
            }
        }
    }
    files
}

/// `cowork set`.
pub(crate) fn set(options: &Set) -> Result<ExitCode, Failure> {
    let mut limits = request::wanted_limits(&options.limits);
    limits.disk = options.disk.map(|bytes| bytes.to_string());
    let relabels = !options.labels.is_empty() || !options.unlabels.is_empty();
    let relimits = limits != WantedLimits::default();
    if !relimits && !relabels && options.net.is_none() {
        let hint = "see `cowork set --help` for what can be changed";
        return Err(Failure::input("there is nothing to change", hint));
    }
    let mut client = daemon::connect()?;
    let (id, session) = super::session(&mut client, &options.session)?;
    if let Some(word) = &options.net {
        let otherwise = if word == "ask" { Otherwise::Ask } else { Otherwise::Deny };
        let change = NetworkChange { otherwise: Some(otherwise), ..NetworkChange::default() };
        client.send::<Network>(Method::Patch, target(&id, "/network"), &change)?;
    }
    let labels = relabels.then(|| {
        let mut labels = session.labels;
        labels.retain(|name, _| !options.unlabels.contains(name));
        labels.extend(options.labels.iter().cloned());
        labels
    });
    let change = SessionChange { labels, limits: relimits.then_some(limits) };
    let session: Session = client.send(Method::Patch, target(&id, ""), &change)?;
    if options.output.json { show::json(&session) } else { Ok(ExitCode::SUCCESS) }
}

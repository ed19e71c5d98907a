//! What the last daemon recorded, and was killed before it could write it into the catalogue.
//!
//! The catalogue is changed as the daemon would have changed it, so that whoever takes over goes on
//! from what is recorded and does not record it again. What was recorded as begun, and left nothing
//! in the catalogue to go on from, is over.
//!
//! Invariant: a record that the catalogue knows of already changes nothing, so it does no harm to
//! come back to records from an earlier point than necessary.
//!
//! Deliberately absent: records that nothing is kept of, and those of things that are done again
//! when a client asks again.

use super::doc::{Doc, KeptGrant, Phase};
use super::remove::Leave;
use cowork_audit::Record;
use cowork_client::types::{Command, CommandState, Reason, Request, RequestState, Streams};
use cowork_session::catalogue::{CatalogueError, Standing, Together};
use cowork_session::life::{Event, State};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A record that is missing: what became of something that was begun.
#[derive(Debug, PartialEq)]
pub(crate) struct Missing {
    pub(crate) kind: &'static str,
    pub(crate) session: String,
    pub(crate) data: Value,
}

/// Brings the catalogue up to date with records that it may not know of, and says which records are
/// missing.
pub(crate) fn catch_up(
    catalogue: &Together<'_>,
    ahead: &[Record],
) -> Result<Vec<Missing>, CatalogueError> {
    let mut missing = Vec::new();
    for (index, record) in ahead.iter().enumerate() {
        let Some(session) = record.session.as_deref() else { continue };
        let rest = ahead.get(index + 1..).unwrap_or_default();
        let mut later = rest.iter().filter(|later| later.session.as_deref() == Some(session));
        // Of an earlier session of this name nothing is kept.
        let is_old = later.clone().any(|later| later.kind == "session.created");
        let changed = !is_old
            && (apply(catalogue, session, record)?
                || (rest.is_empty() && apply_last(catalogue, session, record)?));
        if changed {
            let data = record.data.to_string();
            catalogue.add_event(&record.time, &record.kind, Some(session), &data)?;
        }
        if let Some(end) = end_of(catalogue, session, record)?
            && !later.any(|later| ends(record, later))
        {
            missing.push(end);
        }
    }
    Ok(missing)
}

/// Changes the catalogue as a record of something says that is so for good; whether there was
/// anything to change.
fn apply(catalogue: &Together<'_>, session: &str, record: &Record) -> Result<bool, CatalogueError> {
    match record.kind.as_str() {
        "command.started" => start(catalogue, session, record),
        "command.ended" => end(catalogue, session, record),
        "request.decided" => decide(catalogue, record),
        "session.removed" => {
            let Some(mut doc) = doc_of(catalogue, session)? else { return Ok(false) };
            if doc.removing.is_some() {
                return Ok(false);
            }
            let left = record.data.get("left").and_then(Value::as_array);
            let leave =
                if left.is_none_or(Vec::is_empty) { Leave::Nothing } else { Leave::Outputs };
            doc.removing = Some(leave);
            keep(catalogue, &doc)
        }
        _ => Ok(false),
    }
}

/// Changes the catalogue as the very last record says, if nothing has come after it that could have
/// changed it again.
fn apply_last(
    catalogue: &Together<'_>,
    session: &str,
    record: &Record,
) -> Result<bool, CatalogueError> {
    let Some(mut doc) = doc_of(catalogue, session)? else { return Ok(false) };
    let (before, name) = (doc.state, text(&record.data, "name"));
    let is_it = |kept: &KeptGrant| Some(&kept.grant.name) == name.as_ref();
    let changed = match record.kind.as_str() {
        "session.lost" if matches!(before, State::Ready | State::Running | State::Paused) => {
            doc.state = before.after(Event::Lost).unwrap_or(before);
            doc.reason = text(&record.data, "reason");
            true
        }
        "session.failed" if before == State::Creating => {
            doc.state = before.after(Event::GaveUp).unwrap_or(before);
            doc.reason = text(&record.data, "reason");
            if doc.made.is_none() {
                doc.removing.get_or_insert(Leave::Nothing);
            }
            true
        }
        "grant.revoking" => {
            let of_it = doc.grants.iter_mut().find(|kept| is_it(kept));
            let phase = of_it.map(|kept| std::mem::replace(&mut kept.phase, Phase::Removing));
            phase.is_some_and(|phase| phase != Phase::Removing)
        }
        "grant.revoked" | "grant.lost" | "grant.failed" => {
            let count = doc.grants.len();
            doc.grants.retain(|kept| !is_it(kept));
            doc.grants.len() < count
        }
        _ => false,
    };
    if changed { keep(catalogue, &doc) } else { Ok(false) }
}

fn doc_of(catalogue: &Together<'_>, session: &str) -> Result<Option<Doc>, CatalogueError> {
    Ok(catalogue.session(session)?.and_then(|text| parsed(&text)))
}

/// Keeps a session that was changed.
fn keep(catalogue: &Together<'_>, doc: &Doc) -> Result<bool, CatalogueError> {
    let Ok(text) = serde_json::to_string(doc) else { return Ok(false) };
    catalogue.put_session(&doc.id, &text).map(|()| true)
}

/// A command that was recorded and not written down was never started: whoever takes the session
/// over finds that out.
fn start(catalogue: &Together<'_>, session: &str, record: &Record) -> Result<bool, CatalogueError> {
    let (Some(number), Some(mut doc)) = (command_of(record), doc_of(catalogue, session)?) else {
        return Ok(false);
    };
    if catalogue.command(session, number)?.is_some() {
        return Ok(false);
    }
    let command = Command {
        number,
        session: doc.id.clone(),
        argv: field(&record.data, "argv").unwrap_or_default(),
        cwd: field(&record.data, "cwd").unwrap_or_else(|| cowork_client::types::Raw::new("/")),
        state: CommandState::Starting,
        reason: None,
        pid: None,
        streams: Streams::default(),
        started: record.time.clone(),
        ended: None,
        code: None,
        signal: None,
        usage: None,
        output: 0,
        dropped: 0,
        timeout: None,
        discarded: None,
    };
    doc.commands = doc.commands.max(number);
    keep(catalogue, &doc)?;
    put(catalogue, &command)
}

fn end(catalogue: &Together<'_>, session: &str, record: &Record) -> Result<bool, CatalogueError> {
    let Some(number) = command_of(record) else { return Ok(false) };
    let kept = catalogue.command(session, number)?.and_then(|text| parsed::<Command>(&text));
    let Some(mut command) = kept.filter(|command| super::commands::is_running(command.state))
    else {
        return Ok(false);
    };
    let data = &record.data;
    command.state = field(data, "state").unwrap_or(CommandState::Interrupted);
    command.reason = field(data, "reason");
    command.code = field(data, "code");
    command.signal = field(data, "signal");
    command.usage = field(data, "usage");
    command.output = field(data, "output").unwrap_or_default();
    command.ended = Some(record.time.clone());
    put(catalogue, &command)
}

fn put(catalogue: &Together<'_>, command: &Command) -> Result<bool, CatalogueError> {
    let Ok(text) = serde_json::to_string(command) else { return Ok(false) };
    catalogue.put_command(&command.session, command.number, &text).map(|()| true)
}

fn decide(catalogue: &Together<'_>, record: &Record) -> Result<bool, CatalogueError> {
    let Some(id) = field(&record.data, "request") else { return Ok(false) };
    let Some(mut request) = catalogue.request(id)?.and_then(|text| parsed::<Request>(&text)) else {
        return Ok(false);
    };
    if request.decided.is_some() {
        return Ok(false);
    }
    request.state = field(&record.data, "state").unwrap_or(request.state);
    request.decision = field(&record.data, "decision");
    request.grant = field(&record.data, "grant");
    request.decided = Some(record.time.clone());
    let Ok(text) = serde_json::to_string(&request) else { return Ok(false) };
    catalogue.put_request(id, Standing::Decided, &text).map(|()| true)
}

/// How something that was recorded as begun ended, if the catalogue has nothing of it.
fn end_of(
    catalogue: &Together<'_>,
    session: &str,
    record: &Record,
) -> Result<Option<Missing>, CatalogueError> {
    let kept = catalogue.session(session)?;
    let (kind, data) = match record.kind.as_str() {
        "session.created" if kept.is_none() => {
            ("session.failed", json!({ "reason": "the daemon ended before it was made" }))
        }
        "command.started" if kept.is_none() => {
            let reason = Reason {
                code: "not-started".into(),
                sentence: "the daemon ended before it was started".into(),
            };
            let state = CommandState::Interrupted;
            let command = record.data.get("command");
            ("command.ended", json!({ "command": command, "state": state, "reason": reason }))
        }
        "request.created" => {
            let number = field::<u64>(&record.data, "request");
            let Some(number) = number.filter(|number| *number > 0) else { return Ok(None) };
            if catalogue.request(number)?.is_some() {
                return Ok(None);
            }
            let reason = "the daemon ended before it was asked";
            let state = RequestState::Expired;
            let data = json!({
                "request": number, "state": state, "decision": null, "grant": null,
                "reason": reason,
            });
            ("request.decided", data)
        }
        "grant.added" => {
            let doc = kept.and_then(|text| parsed::<Doc>(&text));
            let name = text(&record.data, "name");
            let is_known = |doc: Doc| {
                doc.removing.is_some()
                    || doc.grants.iter().any(|kept| Some(&kept.grant.name) == name.as_ref())
            };
            if doc.is_none_or(is_known) {
                return Ok(None);
            }
            let reason = "the daemon ended before it was attached";
            ("grant.failed", json!({ "name": name, "reason": reason }))
        }
        _ => return Ok(None),
    };
    Ok(Some(Missing { kind, session: session.to_owned(), data }))
}

/// Whether a record tells the end of what another one began, or of the whole session.
fn ends(begun: &Record, later: &Record) -> bool {
    let same = |name| begun.data.get(name) == later.data.get(name);
    match (begun.kind.as_str(), later.kind.as_str()) {
        (_, "session.removed" | "session.failed") => {
            !["command.started", "request.created"].contains(&begun.kind.as_str())
        }
        ("request.created", "request.decided") => same("request"),
        ("command.started", "command.ended") => same("command"),
        ("grant.added", "grant.failed" | "grant.revoked" | "grant.lost") => same("name"),
        _ => false,
    }
}

fn command_of(record: &Record) -> Option<u32> {
    field(&record.data, "command")
}

fn parsed<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn field<T: DeserializeOwned>(data: &Value, name: &str) -> Option<T> {
    data.get(name).and_then(|value| T::deserialize(value).ok())
}

fn text(data: &Value, name: &str) -> Option<String> {
    field(data, name)
}

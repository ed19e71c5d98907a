//! Calls with a key are carried out once: the same key with the same request gets the same answer.
//!
//! A call is written down before anything is done for it, and what it makes together with the record
//! of that. So a daemon that finds a call without an answer, because the last one was killed, knows
//! whether anything was done: nothing is done that was not recorded first.

use crate::book::{at, now};
use crate::daemon::Daemon;
use crate::keyed::{Keyed, detached};
use crate::trouble::Trouble;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cowork_session::catalogue::{Call, Remembered};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long an answer is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
/// Longest key.
pub(super) const MAX_KEY: usize = 200;
/// Says that an answer was given before.
const REPLAYED: &str = "idempotent-replayed";
/// Longest request and answer that are remembered.
const MAX_BODY: usize = 256 * 1024;

/// Keys whose first call is not answered yet.
static AT_WORK: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Answers from memory, or carries out and remembers.
pub(super) async fn once(
    State(daemon): State<Arc<Daemon>>,
    request: Request,
    next: Next,
) -> Response {
    let key = request.headers().get("idempotency-key").cloned();
    let upgrade = request.headers().contains_key(header::UPGRADE);
    match key {
        Some(key) if request.method() == Method::POST && !upgrade => {
            // Carried out and remembered to the end, whether or not the client waits for it.
            let work = detached(remembered(daemon, key, request, next));
            work.await.unwrap_or_else(Trouble::into_response)
        }
        _ => next.run(request).await,
    }
}

async fn remembered(
    daemon: Arc<Daemon>,
    key: HeaderValue,
    request: Request,
    next: Next,
) -> Result<Response, Trouble> {
    let plain = |key: &&str| {
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    let key = key.to_str().ok().filter(plain);
    let key = key.ok_or_else(|| {
        Trouble::malformed(format!("an idempotency key is a text of at most {MAX_KEY} bytes"))
    })?;
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY).await.map_err(|_long| {
        Trouble::refused("too-large", format!("with a key a body has at most {MAX_BODY} bytes"))
            .with_status(StatusCode::PAYLOAD_TOO_LARGE)
    })?;
    let fingerprint = format!("{}\n{}", parts.uri, String::from_utf8_lossy(&body));
    let catalogue = &daemon.book.catalogue;
    let same = |known: &str| {
        if known == fingerprint {
            return Ok(());
        }
        Err(Trouble::refused("key-reused", "this key was used for something else")
            .with_hint("use a new key for a new request"))
    };
    if let Some(known) = catalogue.recall(key)? {
        same(&known.fingerprint)?;
        return Ok(replay(known.status, known.body));
    }
    let _work = Work::begin(key)?;
    let makes = made_at(parts.uri.path());
    if let Some(call) = catalogue.attempt(key)? {
        same(&call.fingerprint)?;
        if let Some(made) = outcome(&daemon, parts.uri.path(), &call, makes)? {
            return Ok(made);
        }
    }
    catalogue.put_attempt(key, &fingerprint, &now())?;
    let keyed = Keyed { key: key.to_owned(), makes };
    let answer = keyed.carry_out(next.run(Request::from_parts(parts, Body::from(body)))).await;
    let (head, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY)
        .await
        .map_err(|error| Trouble::host("the answer is too long to be remembered", error))?;
    if head.status.is_server_error() {
        catalogue.drop_attempt(key)?;
    } else {
        let text = String::from_utf8_lossy(&body);
        let status = head.status.as_u16();
        let answer = Remembered { fingerprint, status, body: text.into_owned(), at: now() };
        catalogue.remember(key, &answer)?;
        if let Some(before) = SystemTime::now().checked_sub(REMEMBERED) {
            catalogue.forget_before(&at(before))?;
        }
    }
    Ok(Response::from_parts(head, Body::from(body)))
}

/// The record of what a call makes that can be shown to whoever asks again.
fn made_at(path: &str) -> Option<&'static str> {
    let words: Vec<&str> = path.split('/').skip(1).collect();
    match words.as_slice() {
        ["v1", "sessions"] => Some("session.created"),
        ["v1", "sessions", _, "commands"] => Some("command.started"),
        ["v1", "sessions", _, "tasks"] => Some("task.created"),
        _ => None,
    }
}

/// What became of a call that nobody answered; none if nothing was done for it.
fn outcome(
    daemon: &Arc<Daemon>,
    path: &str,
    call: &Call,
    makes: Option<&str>,
) -> Result<Option<Response>, Trouble> {
    let unknown = || {
        let sentence = "the daemon ended during a call with this key, and may have carried it out";
        Err(Trouble::conflict("outcome-unknown", sentence)
            .with_hint("look at what is, and use a new key if it was not"))
    };
    let Some(kind) = &call.kind else {
        // Input is the one thing that is passed on without a record.
        return if path.ends_with("/stdin") { unknown() } else { Ok(None) };
    };
    let session = call.session.as_ref().and_then(|id| daemon.find(id));
    let (Some(session), true) = (session, Some(kind.as_str()) == makes) else { return unknown() };
    let number = call.number.and_then(|number| u32::try_from(number).ok());
    let made = match number {
        None => super::sessions::shown(daemon, &session)?.into_response(),
        Some(number) if kind == "command.started" => {
            Json(daemon.command(&session, number)?).into_response()
        }
        Some(number) => Json(daemon.task(&session, number)?).into_response(),
    };
    let mut answer = (StatusCode::CREATED, made).into_response();
    answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(Some(answer))
}

fn replay(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    let headers = [("content-type", kind), (REPLAYED, "true")];
    (status, headers, body).into_response()
}

/// A key that is at work.
struct Work(String);

impl Work {
    fn begin(key: &str) -> Result<Self, Trouble> {
        let mut work = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
        if !work.insert(key.to_owned()) {
            return Err(Trouble::conflict("in-progress", "a call with this key is at work")
                .with_hint("ask again in a moment"));
        }
        Ok(Self(key.to_owned()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        AT_WORK.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

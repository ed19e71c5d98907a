//! Calls with a key are carried out once: the same key with the same request gets the same answer.

use crate::book::{at, now};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cowork_session::catalogue::Remembered;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long an answer is remembered.
const REMEMBERED: Duration = Duration::from_hours(24);
/// Longest key.
pub(super) const MAX_KEY: usize = 200;
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
            let work = super::sessions::detached(remembered(daemon, key, request, next));
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
    if let Some(known) = daemon.book.catalogue.recall(key)? {
        if known.fingerprint != fingerprint {
            return Err(Trouble::refused("key-reused", "this key was used for something else")
                .with_hint("use a new key for a new request"));
        }
        return Ok(replay(known.status, known.body));
    }
    let _work = Work::begin(key)?;
    let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
    let (head, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY)
        .await
        .map_err(|error| Trouble::host("the answer is too long to be remembered", error))?;
    if !head.status.is_server_error() {
        let text = String::from_utf8_lossy(&body);
        let catalogue = &daemon.book.catalogue;
        let status = head.status.as_u16();
        let answer = Remembered { fingerprint, status, body: text.into_owned(), at: now() };
        catalogue.remember(key, &answer)?;
        if let Some(before) = SystemTime::now().checked_sub(REMEMBERED) {
            catalogue.forget_before(&at(before))?;
        }
    }
    Ok(Response::from_parts(head, Body::from(body)))
}

fn replay(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    let headers = [("content-type", kind), ("idempotent-replayed", "true")];
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

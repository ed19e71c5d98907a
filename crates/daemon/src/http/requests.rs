//! What sessions ask for.

use super::extract::{Body, Named, Part, Queried};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::session::shown_request;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_client::types::{Asked, Decide, NewRequest, Page, Request, RequestState};
use cowork_session::catalogue::Requests;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<Daemon>>;

/// Longest wait for an answer in one call, in seconds.
const MAX_WAIT: u64 = 600;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    state: Option<RequestState>,
    session: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(
    State(daemon): Shared,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<Page<Request>>, Trouble> {
    let part = Part { cursor: wanted.cursor, limit: wanted.limit };
    let which = match wanted.state {
        Some(RequestState::Pending) => Requests::Pending,
        _ => Requests::All,
    };
    let (after, limit) = (part.after()?, part.limit()?);
    let session = wanted.session.as_deref();
    let found = daemon.book.catalogue.requests(which, session, after, limit)?;
    let full = u32::try_from(found.len()).is_ok_and(|found| found >= limit);
    let next = found.last().filter(|_| full).map(|(id, _)| id.to_string());
    let items = found.iter().filter_map(|(_, text)| serde_json::from_str(text).ok());
    let items =
        items.filter(|request: &Request| wanted.state.is_none_or(|state| request.state == state));
    Ok(Json(Page { items: items.collect(), next }))
}

/// The number in a path.
fn number(text: &str) -> Result<u64, Trouble> {
    text.parse().ok().filter(|number| i64::try_from(*number).is_ok()).ok_or_else(|| {
        let sentence = format!("there is no request `{}`", text.escape_debug());
        Trouble::missing("no-request", sentence)
    })
}

pub(super) async fn show(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Request>, Trouble> {
    daemon.request(number(&id)?).map(Json)
}

pub(super) async fn decide(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(decide): Body<Decide>,
) -> Result<Json<Request>, Trouble> {
    let id = number(&id)?;
    detached(async move { daemon.decide(id, &decide).await }).await.map(Json)
}

/// Refuses a wait that is too long.
fn span(seconds: u64) -> Result<Duration, Trouble> {
    if seconds > MAX_WAIT {
        let sentence = format!("`wait` has at most {MAX_WAIT} seconds");
        return Err(Trouble::malformed(sentence));
    }
    Ok(Duration::from_secs(seconds))
}

pub(super) async fn ask(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(new): Body<NewRequest>,
) -> Result<(StatusCode, Json<Asked>), Trouble> {
    let wait = span(new.wait)?;
    let session = daemon.session(&id)?;
    let (work, within) = (Arc::clone(&daemon), Arc::clone(&session));
    let request = detached(async move { work.ask_for(&within, new).await }).await?;
    let request = daemon.await_answer(request, wait).await?;
    Ok((StatusCode::CREATED, Json(shown_request(&session, &request))))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patience {
    wait: Option<u64>,
}

/// A request for a folder of one session, as whoever asked is shown it.
pub(super) async fn asked(
    State(daemon): Shared,
    Named((id, text)): Named<(String, String)>,
    Queried(patience): Queried<Patience>,
) -> Result<Json<Asked>, Trouble> {
    let wait = span(patience.wait.unwrap_or(0))?;
    let session = daemon.session(&id)?;
    let number = number(&text)?;
    let request = daemon.request(number)?;
    if request.session != session.id || request.kind != "folder" {
        let sentence = format!("session `{}` has no request {number} for a folder", session.id);
        return Err(Trouble::missing("no-request", sentence));
    }
    let request = daemon.await_answer(request, wait).await?;
    Ok(Json(shown_request(&session, &request)))
}

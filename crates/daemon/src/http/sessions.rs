//! Sessions, and the daemon itself.

use super::extract::{Body, Named, Part, Queried};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::session::{Leave, Session, grace};
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_api::keeper::{Grade, Reply, Request};
use cowork_client::types::{
    Cancel, Fact, Info, NewSession, Page, Processes, Raw, Session as Shown, SessionChange,
    State as Life, Usage,
};
use serde::Deserialize;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) fn shown(daemon: &Daemon, session: &Session) -> Result<Json<Shown>, Trouble> {
    let folder = daemon.folders.session(&session.id);
    let mut shown = session.show(&daemon.book, &folder)?;
    shown.network = daemon.network_brief(session, &session.doc());
    Ok(Json(shown))
}

pub(super) async fn info(State(daemon): Shared) -> Json<Info> {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Json(Info {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        started: daemon.started.clone(),
        user: rustix::process::getuid().as_raw(),
        tier: "native".into(),
        state: Raw::new(daemon.folders.state.as_os_str().as_bytes()),
        live: count(daemon.live()),
        pooled: count(daemon.pool.len()),
        idle_exit: daemon.settings.idle.map_or(0, |idle| idle.as_secs()),
        keeper: daemon.engine.keeper(),
        changes: daemon.settings.changes,
    })
}

pub(super) async fn doctor(State(daemon): Shared) -> Result<Json<Vec<Fact>>, Trouble> {
    let (reply, _) = daemon.engine.call(Request::Survey).await?;
    let Reply::Surveyed(facts) = reply else { return Ok(Json(Vec::new())) };
    let facts = facts.into_iter().map(|fact| Fact {
        name: fact.name,
        value: fact.value,
        grade: match fact.grade {
            Grade::Good => "good",
            Grade::Reduced => "reduced",
            Grade::Blocking => "blocking",
        }
        .into(),
        consequence: fact.consequence,
        fix: fact.fix,
    });
    Ok(Json(facts.collect()))
}

pub(super) async fn shutdown(State(daemon): Shared) -> StatusCode {
    daemon.ask_to_leave();
    StatusCode::ACCEPTED
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    state: Option<Life>,
    label: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(
    State(daemon): Shared,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<Page<Shown>>, Trouble> {
    let limit = Part { cursor: None, limit: wanted.limit }.limit()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut next = None;
    for session in daemon.all() {
        if wanted.cursor.as_ref().is_some_and(|cursor| session.id <= *cursor) {
            continue;
        }
        let Ok(Json(shown)) = shown(&daemon, &session) else { continue };
        let labelled = wanted.label.as_ref().is_none_or(|label| match label.split_once('=') {
            Some((name, value)) => shown.labels.get(name).is_some_and(|known| known == value),
            None => shown.labels.contains_key(label),
        });
        if !labelled || wanted.state.is_some_and(|state| state != shown.state) {
            continue;
        }
        if items.len() >= limit {
            next = items.last().map(|last: &Shown| last.id.clone());
            break;
        }
        items.push(shown);
    }
    Ok(Json(Page { items, next }))
}

pub(super) async fn create(
    State(daemon): Shared,
    Body(new): Body<NewSession>,
) -> Result<(StatusCode, Json<Shown>), Trouble> {
    let session = detached(async move {
        let session = daemon.create(new).await?;
        shown(&daemon, &session)
    });
    Ok((StatusCode::CREATED, session.await?))
}

pub(super) async fn show(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Shown>, Trouble> {
    shown(&daemon, &*daemon.session(&id)?)
}

pub(super) async fn change(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(change): Body<SessionChange>,
) -> Result<Json<Shown>, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.adjust(&session, change).await?;
        shown(&daemon, &session)
    })
    .await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removal {
    outputs: Option<Kept>,
}

/// What of a session stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kept {
    Keep,
}

pub(super) async fn remove(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(removal): Queried<Removal>,
) -> Result<StatusCode, Trouble> {
    let leave = match removal.outputs {
        Some(Kept::Keep) => Leave::Outputs,
        None => Leave::Nothing,
    };
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.remove(&session, leave).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn start(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Shown>, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.start(&session).await?;
        shown(&daemon, &session)
    })
    .await
}

pub(super) async fn stop(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Shown>, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.stop(&session, "stopped", None).await?;
        shown(&daemon, &session)
    })
    .await
}

pub(super) async fn pause(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Shown>, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.pause(&session).await?;
        shown(&daemon, &session)
    })
    .await
}

pub(super) async fn resume(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Shown>, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.resume(&session).await?;
        shown(&daemon, &session)
    })
    .await
}

pub(super) async fn cancel(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(cancel): Body<Cancel>,
) -> Result<Json<Shown>, Trouble> {
    let grace = grace(&cancel)?;
    detached(async move {
        let session = daemon.session(&id)?;
        let before = shown(&daemon, &session)?;
        daemon.cancel(&session, grace).await?;
        // One that lives once may be gone with its last command.
        shown(&daemon, &session).or(Ok(before))
    })
    .await
}

pub(super) async fn usage(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Usage>, Trouble> {
    let session = daemon.session(&id)?;
    daemon.usage(&session).await.map(Json)
}

/// Which processes are meant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Meant {
    name: Option<String>,
    pid: Option<i32>,
}

pub(super) async fn processes(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(meant): Queried<Meant>,
) -> Result<Json<Processes>, Trouble> {
    if meant.pid.is_some_and(|pid| pid < 1) {
        return Err(Trouble::malformed("`pid` is a number from 1 on"));
    }
    let session = daemon.session(&id)?;
    let processes = daemon.processes(&session, meant.name, meant.pid).await?;
    Ok(Json(Processes { running: !processes.is_empty(), processes }))
}

pub(super) async fn usage_history(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(part): Queried<Part>,
) -> Result<Json<Page<Usage>>, Trouble> {
    let session = daemon.session(&id)?;
    part.of(Daemon::usage_history(&session), |usage| usage.time.clone()).map(Json)
}

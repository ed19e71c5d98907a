//! Changes to granted folders: looked at, undone, applied, and what is allowed.

use super::extract::{Body, Named, count};
use super::files::parameter;
use crate::changes::Wanted;
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use cowork_client::types::{
    Apply, Changes, Difference, Discard, Discarded, History, NewProtectedName, ProtectedName, Redo,
    Restored, Undo,
};
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

/// What of the changes is wanted.
fn wanted(uri: &Uri) -> Result<Wanted, Trouble> {
    let set = text(uri, "set")?.map(|set| {
        let number = count(&set).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|&number| number > 0);
        number.ok_or_else(|| Trouble::malformed("`set` is not the number of a set"))
    });
    let command = text(uri, "command")?.map(|command| {
        let number = count(&command).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|&number| number > 0);
        number.ok_or_else(|| Trouble::malformed("`command` is not the number of a command"))
    });
    let command = command.transpose()?;
    Ok(Wanted { set: set.transpose()?, path: parameter(uri, "path")?, command })
}

/// The value of a query's parameter.
fn text(uri: &Uri, name: &str) -> Result<Option<String>, Trouble> {
    let value = parameter(uri, name)?.map(|value| value.into_os_string().into_string());
    value.transpose().map_err(|_bytes| Trouble::malformed(format!("`{name}` is not UTF-8")))
}

pub(super) async fn list(
    State(daemon): Shared,
    Named(id): Named<String>,
    uri: Uri,
) -> Result<Json<Changes>, Trouble> {
    daemon.changes(&id, &wanted(&uri)?).await.map(Json)
}

pub(super) async fn differences(
    State(daemon): Shared,
    Named(id): Named<String>,
    uri: Uri,
) -> Result<Json<Vec<Difference>>, Trouble> {
    daemon.differences(&id, &wanted(&uri)?).await.map(Json)
}

pub(super) async fn history(State(daemon): Shared, uri: Uri) -> Result<Json<History>, Trouble> {
    let path = parameter(&uri, "path")?;
    daemon.history(path.as_deref()).await.map(Json)
}

pub(super) async fn undo(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(undo): Body<Undo>,
) -> Result<Json<Restored>, Trouble> {
    detached(async move { daemon.undo(&id, undo).await }).await.map(Json)
}

pub(super) async fn redo(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(redo): Body<Redo>,
) -> Result<Json<Restored>, Trouble> {
    detached(async move { daemon.redo(&id, &redo).await }).await.map(Json)
}

pub(super) async fn apply(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(apply): Body<Apply>,
) -> Result<Json<Restored>, Trouble> {
    detached(async move { daemon.apply(&id, apply).await }).await.map(Json)
}

pub(super) async fn discard(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(discard): Body<Discard>,
) -> Result<Json<Discarded>, Trouble> {
    detached(async move { daemon.discard_staged(&id, &discard).await }).await.map(Json)
}

pub(super) async fn boundary(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<StatusCode, Trouble> {
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.boundary(&session).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn protected(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Vec<ProtectedName>>, Trouble> {
    daemon.protected(&*daemon.session(&id)?).map(Json)
}

pub(super) async fn protect(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(new): Body<NewProtectedName>,
) -> Result<(StatusCode, Json<ProtectedName>), Trouble> {
    let made = detached(async move {
        let session = daemon.session(&id)?;
        daemon.protect(&session, &new).await
    });
    Ok((StatusCode::CREATED, Json(made.await?)))
}

pub(super) async fn unprotect(
    State(daemon): Shared,
    Named(id): Named<String>,
    uri: Uri,
) -> Result<StatusCode, Trouble> {
    let pattern = text(&uri, "pattern")?;
    let pattern = pattern.ok_or_else(|| Trouble::malformed("`pattern` is missing"))?;
    let grant = text(&uri, "grant")?;
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.unprotect(&session, &pattern, grant.as_deref()).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

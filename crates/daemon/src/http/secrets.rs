//! Secrets of the user's. Values come in, and never go out.

use super::extract::{Body, Named, Part, Queried};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_client::types::{NewSecret, Page, Secret};
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) async fn list(
    State(daemon): Shared,
    Queried(part): Queried<Part>,
) -> Result<Json<Page<Secret>>, Trouble> {
    part.of(daemon.list_secrets()?, |secret| secret.name.clone()).map(Json)
}

pub(super) async fn set(
    State(daemon): Shared,
    Named(name): Named<String>,
    Body(new): Body<NewSecret>,
) -> Result<Json<Secret>, Trouble> {
    detached(async move { daemon.set_secret(&name, new).await }).await.map(Json)
}

pub(super) async fn remove(
    State(daemon): Shared,
    Named(name): Named<String>,
) -> Result<StatusCode, Trouble> {
    detached(async move { daemon.remove_secret(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

//! Secrets of the user's. Values come in, and never go out.

use super::extract::{Body, Named};
use super::sessions::detached;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_client::types::{NewSecret, Secret};
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) async fn list(State(daemon): Shared) -> Result<Json<Vec<Secret>>, Trouble> {
    daemon.list_secrets().map(Json)
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

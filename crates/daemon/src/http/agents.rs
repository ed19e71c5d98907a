//! Agents, and sessions that are made ready for one.

use super::extract::{Body, Named};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use cowork_client::types::{Agent, AgentOptions, PreparedAgent};
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) async fn list(State(daemon): Shared) -> Result<Json<Vec<Agent>>, Trouble> {
    daemon.agents().map(Json)
}

pub(super) async fn prepare(
    State(daemon): Shared,
    Named((id, name)): Named<(String, String)>,
    Body(options): Body<AgentOptions>,
) -> Result<Json<PreparedAgent>, Trouble> {
    let prepared = detached(async move {
        let session = daemon.session(&id)?;
        daemon.prepare_agent(&session, &name, &options).await
    });
    prepared.await.map(Json)
}

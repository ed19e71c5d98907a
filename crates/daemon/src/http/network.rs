//! The network of a session, rules for all of them, and lists of hosts.

use super::extract::{Body, Named, Part, Queried};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::network::presets;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_client::types::{
    NamedRule, Network, NetworkChange, NetworkExplanation, Page, Preset, Publish, PublishedPort,
    Traffic,
};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) async fn show(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Network>, Trouble> {
    daemon.network(&*daemon.session(&id)?).map(Json)
}

pub(super) async fn change(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(change): Body<NetworkChange>,
) -> Result<Json<Network>, Trouble> {
    let changed = detached(async move {
        let session = daemon.session(&id)?;
        daemon.change_network(&session, change).await?;
        daemon.network(&session)
    });
    changed.await.map(Json)
}

pub(super) async fn traffic(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Traffic>, Trouble> {
    let session = daemon.session(&id)?;
    Ok(Json(daemon.traffic(&session).await))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    url: String,
    method: Option<String>,
}

pub(super) async fn explain(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<NetworkExplanation>, Trouble> {
    let session = daemon.session(&id)?;
    daemon.explain_network(&session, &wanted.url, wanted.method.as_deref()).map(Json)
}

pub(super) async fn publish(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(wanted): Body<Publish>,
) -> Result<(StatusCode, Json<PublishedPort>), Trouble> {
    let published = detached(async move {
        let session = daemon.session(&id)?;
        daemon.publish(&session, &wanted).await
    });
    Ok((StatusCode::CREATED, Json(published.await?)))
}

pub(super) async fn unpublish(
    State(daemon): Shared,
    Named((id, outside)): Named<(String, String)>,
) -> Result<StatusCode, Trouble> {
    let port = outside.parse().map_err(|_no_port| {
        let sentence = format!("the session has no port published as `{}`", outside.escape_debug());
        Trouble::missing("no-port", sentence)
    })?;
    detached(async move {
        let session = daemon.session(&id)?;
        daemon.unpublish(&session, port).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn har(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Value>, Trouble> {
    let session = daemon.session(&id)?;
    let folder = daemon.book.audit_folder().to_path_buf();
    let created = session.doc().created;
    let id = session.id.clone();
    let bodies = crate::network::bodies_of(&daemon.folders.session(&id));
    let read = move || crate::network::har(&folder, (&id, &created), &bodies);
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| Trouble::host("the audit could not be read", error))?.map(Json)
}

pub(super) async fn list_presets() -> Json<Vec<Preset>> {
    Json(presets())
}

pub(super) async fn list_rules(
    State(daemon): Shared,
    Queried(part): Queried<Part>,
) -> Result<Json<Page<NamedRule>>, Trouble> {
    let rules = daemon.standing()?.into_iter();
    let named = |rule| NamedRule { name: crate::network::name_of(&rule), rule };
    part.of(rules.map(named).collect(), |rule| rule.name.clone()).map(Json)
}

pub(super) async fn remove_rule(
    State(daemon): Shared,
    Named(name): Named<String>,
) -> Result<StatusCode, Trouble> {
    detached(async move { daemon.remove_standing(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

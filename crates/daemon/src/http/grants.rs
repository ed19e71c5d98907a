//! Grants of a session.

use super::extract::{Body, Named};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cowork_client::types::{Grant, GrantChange, NewGrant, Regranted, Revoked};
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

pub(super) async fn list(
    State(daemon): Shared,
    Named(id): Named<String>,
) -> Result<Json<Vec<Grant>>, Trouble> {
    let doc = daemon.session(&id)?.doc();
    Ok(Json(doc.grants.into_iter().map(|kept| kept.grant).collect()))
}

pub(super) async fn show(
    State(daemon): Shared,
    Named((id, name)): Named<(String, String)>,
) -> Result<Json<Grant>, Trouble> {
    let doc = daemon.session(&id)?.doc();
    crate::session::granted(&doc.grants, &name).map(|kept| Json(kept.grant.clone()))
}

pub(super) async fn grant(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(new): Body<NewGrant>,
) -> Result<(StatusCode, Json<Grant>), Trouble> {
    let grant = detached(async move {
        let session = daemon.session(&id)?;
        daemon.grant(&session, &new, None).await
    });
    Ok((StatusCode::CREATED, Json(grant.await?)))
}

pub(super) async fn change(
    State(daemon): Shared,
    Named((id, name)): Named<(String, String)>,
    Body(change): Body<GrantChange>,
) -> Result<Json<Regranted>, Trouble> {
    let changed = detached(async move {
        let session = daemon.session(&id)?;
        daemon.regrant(&session, &name, &change).await
    });
    changed.await.map(Json)
}

pub(super) async fn revoke(
    State(daemon): Shared,
    Named((id, name)): Named<(String, String)>,
) -> Result<Json<Revoked>, Trouble> {
    let revoked = detached(async move {
        let session = daemon.session(&id)?;
        daemon.revoke(&session, &name).await
    });
    revoked.await.map(Json)
}

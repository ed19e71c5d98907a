//! What a session can ask for itself, over the socket it finds inside: HTTP, bounded in every way.
//!
//! Whoever asks is hostile. It learns the state of its own requests and the names of its own
//! folders, and nothing of the host.

use super::Session;
use super::requests::shown;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use cowork_client::types::{Ask, Asked};
use rustix::fd::{AsFd, OwnedFd};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Most connections of one session at a time.
const MAX_CONNECTIONS: usize = 16;
/// Largest request.
const MAX_BODY: usize = 64 * 1024;
/// Longest that a connection lives.
const MAX_LIFE: Duration = Duration::from_mins(11);
/// Longest wait for an answer in one call.
const MAX_WAIT: Duration = Duration::from_mins(10);

type Inside = (Arc<Daemon>, Arc<Session>);

/// The connection that something is asked on, by the number of our socket.
#[derive(Clone, Copy, Debug)]
struct Line(u64);

impl Daemon {
    /// Hears what is asked inside a session, until its sandbox ends.
    pub(crate) fn hear_asks(
        self: &Arc<Self>,
        session: &Arc<Session>,
        socket: OwnedFd,
    ) -> Option<AbortHandle> {
        // Older kernels do not know it: the threat model says what follows.
        cowork_sys::ignore(cowork_sys::net::refuse_descriptors(socket.as_fd()));
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true).ok()?;
        let listener = UnixListener::from_std(listener).ok()?;
        let router = Router::new()
            .route("/v1/ask", post(ask))
            .route("/v1/ask/{id}", get(asked))
            .route("/v1/folders", get(folders))
            .fallback(nothing)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state((Arc::clone(self), Arc::clone(session)));
        Some(tokio::spawn(serve(listener, router)).abort_handle())
    }
}

async fn serve(listener: UnixListener, router: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(&stream) else { continue };
        let router = router.clone().layer(Extension(Line(stat.st_ino)));
        tokio::spawn(async move {
            let served = crate::http::serve_one(stream, router);
            drop(tokio::time::timeout(MAX_LIFE, served).await);
            drop(place);
        });
    }
}

async fn nothing() -> Trouble {
    Trouble::missing("no-route", "there is nothing here").with_hint("see COWORK.md")
}

async fn ask(
    State((daemon, session)): State<Inside>,
    Extension(line): Extension<Line>,
    crate::http::Body(ask): crate::http::Body<Ask>,
) -> Result<Json<Asked>, Trouble> {
    let wait = Duration::from_secs(ask.wait).min(MAX_WAIT);
    let request = daemon.ask(&session, &ask, Some(line.0)).await?;
    let request = daemon.await_answer(request, wait).await?;
    Ok(Json(shown(&session, &request)))
}

async fn asked(
    State((daemon, session)): State<Inside>,
    crate::http::Named(id): crate::http::Named<u64>,
) -> Result<Json<Asked>, Trouble> {
    let request = daemon.request(id).ok().filter(|request| request.session == session.id);
    let request = request
        .ok_or_else(|| Trouble::missing("no-request", format!("you have no request {id}")))?;
    Ok(Json(shown(&session, &request)))
}

async fn folders(State((_, session)): State<Inside>) -> Json<Value> {
    let doc = session.doc();
    let folders: Vec<Value> = doc
        .grants
        .iter()
        .map(|kept| {
            json!({ "name": kept.grant.name, "at": kept.grant.at,
                    "access": kept.grant.access })
        })
        .collect();
    Json(json!({ "session": doc.id, "home": doc.folder(), "folders": folders }))
}

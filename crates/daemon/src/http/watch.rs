//! Changes in a session's folders, as a stream.

use super::extract::{Named, Queried};
use super::files::parameter;
use super::stream::Streamed;
use crate::daemon::Daemon;
use crate::session::watch::{News, Tree};
use crate::trouble::Trouble;
use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use cowork_session::life::State as Life;
use hyper::body::Bytes;
use rustix::fd::OwnedFd;
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// Most streams at a time: the kernel has few of what they need for each user.
const MAX_STREAMS: usize = 32;
/// Longest time that a stream can be asked to last.
const MAX_WAIT: u64 = 600;
/// Time after which a silent stream says that it is still there.
const ALIVE: Duration = Duration::from_secs(15);
/// Time between something that happened in the daemon and a look whether the folder is still the
/// session's.
const LOOK: Duration = Duration::from_millis(100);

static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// One of [`MAX_STREAMS`].
struct Ticket;

impl Ticket {
    fn take() -> Result<Self, Trouble> {
        let ticket = Self;
        if STREAMS.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            let sentence = format!("at most {MAX_STREAMS} streams of changes are open at a time");
            return Err(Trouble::conflict("too-many", sentence));
        }
        Ok(ticket)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Read as bytes.
    #[serde(rename = "path")]
    _path: Option<String>,
    wait: Option<u64>,
}

/// What is watched, and how it is found again.
struct Watched {
    daemon: Arc<Daemon>,
    id: String,
    root: String,
    path: PathBuf,
    /// Which folder it is.
    is: (u64, u64),
}

impl Watched {
    /// Why the folder is no longer to be watched, if it is not.
    fn over(&self) -> Option<&'static str> {
        let Ok(session) = self.daemon.session(&self.id) else { return Some("ended") };
        if session.state() == Life::Ended {
            return Some("ended");
        }
        match self.daemon.place(&session, &self.root, self.path.as_os_str().as_bytes()) {
            Ok(place) => (place.identity().ok() != Some(self.is)).then_some("gone"),
            Err(trouble) if trouble.code == "no-root" => Some("revoked"),
            Err(_) => Some("gone"),
        }
    }
}

pub(super) async fn watch(
    State(daemon): State<Arc<Daemon>>,
    Named((id, root)): Named<(String, String)>,
    Queried(wanted): Queried<Wanted>,
    uri: Uri,
) -> Result<Response, Trouble> {
    if wanted.wait.is_some_and(|wait| wait > MAX_WAIT) {
        return Err(Trouble::malformed(format!("`wait` must be from 0 to {MAX_WAIT}")));
    }
    let path = parameter(&uri, "path")?.unwrap_or_default();
    let session = daemon.session(&id)?;
    let place = daemon.place(&session, &root, path.as_os_str().as_bytes())?;
    let (ticket, is) = (Ticket::take()?, place.identity()?);
    let (tree, news) = tokio::task::spawn_blocking(move || Tree::new(&place))
        .await
        .map_err(|error| Trouble::host("the work broke off", error))??;
    let handle = tree.handle().and_then(crate::watched::watched);
    let handle = handle.map_err(|error| Trouble::host("cannot watch", error))?;
    let watched = Watched { daemon, id, root, path, is };
    let (sender, body) = Streamed::channel();
    let wait = wanted.wait.map(Duration::from_secs);
    tokio::spawn(async move {
        let feed = feed(&watched, handle, (tree, news), &sender);
        let over = match wait {
            None => feed.await,
            Some(wait) => tokio::time::timeout(wait, feed).await.unwrap_or(Some("time")),
        };
        if let Some(reason) = over {
            drop(sender.send(event("end", &json!({ "reason": reason }))).await);
        }
        drop(ticket);
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, body).into_response())
}

/// Tells what happens until the folder is not the session's any more; why, if anybody still hears it.
async fn feed(
    watched: &Watched,
    handle: AsyncFd<OwnedFd>,
    (mut tree, mut news): (Tree, Vec<News>),
    sender: &mpsc::Sender<Bytes>,
) -> Option<&'static str> {
    let mut latest = watched.daemon.book.latest();
    let ready = event("ready", &json!({ "folders": tree.len() }));
    sender.send(ready).await.ok()?;
    loop {
        let gone = news.iter().any(|one| matches!(one, News::Gone));
        let text: Vec<u8> = news.drain(..).filter_map(told).flatten().collect();
        if !text.is_empty() {
            sender.send(text.into()).await.ok()?;
        }
        if let Some(reason) = watched.over() {
            return Some(reason);
        }
        if gone {
            return Some("gone");
        }
        latest.mark_unchanged();
        tokio::select! {
            ready = handle.readable() => {
                let mut ready = ready.ok()?;
                let taken = tokio::task::spawn_blocking(move || {
                    let news = tree.take();
                    (tree, news)
                });
                let (back, taken) = taken.await.ok()?;
                let taken = taken.ok()?;
                if taken.is_none() {
                    ready.clear_ready();
                }
                (tree, news) = (back, taken.unwrap_or_default());
            }
            changed = async {
                let changed = latest.changed().await;
                tokio::time::sleep(LOOK).await;
                changed
            } => changed.ok()?,
            () = tokio::time::sleep(ALIVE) => sender.send(Bytes::from_static(b":\n\n")).await.ok()?,
            () = sender.closed() => return None,
        }
    }
}

fn told(news: News) -> Option<Bytes> {
    match news {
        News::Change(change) => Some(event("change", &serde_json::to_value(change).ok()?)),
        News::Unwatched(path, reason) => {
            let path = cowork_client::types::Raw::new(path.as_os_str().as_bytes());
            Some(event("unwatched", &json!({ "path": path, "reason": reason })))
        }
        News::Overflow => Some(event("overflow", &json!({}))),
        News::Gone => None,
    }
}

fn event(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

//! Events: as a stream that can be taken up again, or in parts.

use super::extract::{self, Queried};
use super::stream::Streamed;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use cowork_client::types::{CloudEvent, Event, Gap, Part};
use cowork_session::catalogue::{EventFilter, EventRow};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time after which a silent stream says that it is still there.
const ALIVE: Duration = Duration::from_secs(15);
/// Events that are read at a time.
const BATCH: u32 = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    session: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
    format: Option<Format>,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// As this API has it.
    #[default]
    Plain,
    /// As `CloudEvents` 1.0 has it.
    Cloudevents,
}

impl Format {
    fn write(self, event: Event) -> Value {
        let written = match self {
            Self::Plain => serde_json::to_value(event),
            Self::Cloudevents => serde_json::to_value(CloudEvent::from(event)),
        };
        written.unwrap_or_default()
    }
}

pub(super) async fn events(
    State(daemon): State<Arc<Daemon>>,
    headers: HeaderMap,
    Queried(wanted): Queried<Wanted>,
) -> Result<Response, Trouble> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let stream = text("accept").is_some_and(|accept| accept.contains("text/event-stream"));
    let resumed = text("last-event-id").map(ToOwned::to_owned);
    let limit = extract::Part { cursor: None, limit: wanted.limit }.limit()?;
    let (first, last) = daemon.book.catalogue.event_range()?;
    let place = |cursor: Option<String>| match cursor.as_deref() {
        Some("end") => Ok(last),
        _ => extract::Part { cursor, limit: None }.after(),
    };
    let asked = place(wanted.after)?;
    let after = match resumed {
        Some(resumed) => place(Some(resumed))?,
        None => asked,
    };
    let format = wanted.format.unwrap_or_default();
    let filter = EventFilter { session: wanted.session, kind: wanted.kind };
    if stream {
        let (sender, body) = Streamed::channel();
        tokio::spawn(feed(daemon, (filter, format), after, sender));
        let kind =
            [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        return Ok((kind, body).into_response());
    }
    let found = daemon.book.catalogue.events(after, &filter, limit)?;
    // The next part starts after the last event that was looked at, whether or not it was wanted.
    let full = u32::try_from(found.len()).is_ok_and(|found| found >= limit);
    let next = match found.last() {
        Some(event) if full => event.id,
        _ => last.max(after),
    };
    let items = found.into_iter().map(|row| format.write(shown(row))).collect();
    let gap = gap(after, first);
    Ok(Json(Part::<Value> { items, next: Some(next.to_string()), gap }).into_response())
}

/// What comes after an event that somebody has seen and is no longer kept, if the first that is kept
/// is this one. Whoever has seen none takes what there is.
fn gap(after: u64, first: u64) -> Option<Gap> {
    (after > 0 && after + 1 < first).then(|| Gap { from: after + 1, to: first - 1 })
}

fn shown(row: EventRow) -> Event {
    Event {
        id: row.id,
        time: row.time,
        kind: row.kind,
        session: row.session,
        data: serde_json::from_str(&row.data).unwrap_or_default(),
    }
}

/// Sends every event after `after`, each once and in order, as long as the client listens.
async fn feed(
    daemon: Arc<Daemon>,
    (filter, format): (EventFilter, Format),
    mut after: u64,
    sender: mpsc::Sender<Bytes>,
) {
    let mut latest = daemon.book.latest();
    loop {
        latest.mark_unchanged();
        // Also in the middle: whoever reads more slowly than things happen is told what it missed.
        let Ok((first, _)) = daemon.book.catalogue.event_range() else { return };
        if let Some(gap) = gap(after, first) {
            let data = serde_json::to_string(&gap).unwrap_or_default();
            if sender.send(format!("event: gap\ndata: {data}\n\n").into()).await.is_err() {
                return;
            }
            after = gap.to;
            continue;
        }
        let newest = *latest.borrow();
        let Ok(found) = daemon.book.catalogue.events(after, &filter, BATCH) else { return };
        let Some(last) = found.last() else {
            after = after.max(newest);
            let waited = tokio::select! {
                changed = latest.changed() => changed.is_ok(),
                () = tokio::time::sleep(ALIVE) => sender.send(":\n\n".into()).await.is_ok(),
                () = sender.closed() => false,
            };
            if !waited {
                return;
            }
            continue;
        };
        after = last.id;
        let mut text = String::new();
        for row in found {
            let (id, kind) = (row.id, row.kind.clone());
            let data = format.write(shown(row));
            cowork_sys::ignore(write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n"));
        }
        if sender.send(text.into()).await.is_err() {
            return;
        }
    }
}

//! Tasks of a session.

use super::extract::{Body, Named, Part, Queried, count};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::tasks::What;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use cowork_client::types::{NewTask, Page, Steer, Task, TaskMessage};
use serde::Deserialize;
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

/// The number of a task in the path.
pub(super) struct Numbers {
    session: String,
    number: u32,
}

impl<S: Send + Sync> FromRequestParts<S> for Numbers {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Trouble> {
        let Named((session, number)): Named<(String, String)> =
            Named::from_request_parts(parts, state).await?;
        let number = number.parse().map_err(|_no_number| {
            let sentence = format!("there is no task `{}`", number.escape_debug());
            Trouble::missing("no-task", sentence)
        })?;
        Ok(Self { session, number })
    }
}

pub(super) async fn list(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(part): Queried<Part>,
) -> Result<Json<Page<Task>>, Trouble> {
    let session = daemon.session(&id)?;
    let after = u32::try_from(part.after()?).unwrap_or(u32::MAX);
    let limit = part.limit()?;
    let items = daemon.tasks(&session, after, limit)?;
    let full = u32::try_from(items.len()).is_ok_and(|found| found >= limit);
    let next = items.last().filter(|_| full).map(|task| task.number.to_string());
    Ok(Json(Page { items, next }))
}

pub(super) async fn create(
    State(daemon): Shared,
    Named(id): Named<String>,
    Body(new): Body<NewTask>,
) -> Result<(StatusCode, Json<Task>), Trouble> {
    let session = daemon.session(&id)?;
    let task = daemon.create_task(&session, new)?;
    Ok((StatusCode::CREATED, Json(task)))
}

/// What is wanted of a task.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Depth {
    #[serde(default)]
    so_far: bool,
}

pub(super) async fn show(
    State(daemon): Shared,
    numbers: Numbers,
    Queried(depth): Queried<Depth>,
) -> Result<Json<Task>, Trouble> {
    let session = daemon.session(&numbers.session)?;
    if depth.so_far {
        return daemon.task_so_far(&session, numbers.number).await.map(Json);
    }
    daemon.task(&session, numbers.number).map(Json)
}

/// Which messages are wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    after: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn messages(
    State(daemon): Shared,
    numbers: Numbers,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<Page<TaskMessage>>, Trouble> {
    let session = daemon.session(&numbers.session)?;
    let part = Part { cursor: wanted.cursor, limit: wanted.limit };
    let asked = match &wanted.after {
        None => 0,
        Some(after) => {
            count(after).ok_or_else(|| Trouble::malformed("`after` must be a number"))?
        }
    };
    let (after, limit) = (part.after()?.max(asked), part.limit()?);
    let items = daemon.task_messages(&session, numbers.number, after, limit)?;
    let full = u32::try_from(items.len()).is_ok_and(|found| found >= limit);
    let next = items.last().filter(|_| full).map(|message| message.number.to_string());
    Ok(Json(Page { items, next }))
}

async fn order(daemon: Arc<Daemon>, numbers: Numbers, what: What) -> Result<Json<Task>, Trouble> {
    let done = detached(async move {
        let session = daemon.session(&numbers.session)?;
        daemon.order_task(&session, numbers.number, what).await
    });
    done.await.map(Json)
}

pub(super) async fn steer(
    State(daemon): Shared,
    numbers: Numbers,
    Body(steer): Body<Steer>,
) -> Result<Json<Task>, Trouble> {
    order(daemon, numbers, What::Steer(steer.prompt)).await
}

pub(super) async fn pause(State(daemon): Shared, numbers: Numbers) -> Result<Json<Task>, Trouble> {
    order(daemon, numbers, What::Pause).await
}

pub(super) async fn resume(State(daemon): Shared, numbers: Numbers) -> Result<Json<Task>, Trouble> {
    order(daemon, numbers, What::Resume).await
}

pub(super) async fn cancel(State(daemon): Shared, numbers: Numbers) -> Result<Json<Task>, Trouble> {
    order(daemon, numbers, What::Cancel).await
}

//! Asking the user for a folder.

use super::{About, Answer, Effect, Entry, World};
use crate::call::{Call, target};
use crate::refusal::Refusal;
use crate::text::harmless;
use cowork_client::http::Method;
use cowork_client::types::{Access, Asked, NewRequest, Raw, RequestState};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Longest wait for the user, in seconds.
const MAX_WAIT: u64 = 3600;
/// Wait without a number of one's own.
const DEFAULT_WAIT: u64 = 300;
/// How long the daemon waits in one go, in seconds.
const TURN: u64 = 2;

pub(super) fn tools() -> Vec<Entry> {
    let ask = About {
        name: "request_cowork_directory",
        title: "Ask the user for a folder",
        description: "Asks the user to give the session a folder of theirs, and waits for the \
            answer. Say what is wanted and why, so that the user can decide; a `path` is only a \
            suggestion. If the user agrees, the folder is there at once, at the `path` of the \
            answer, with the `access` that the user chose. If `state` is `pending` the user has \
            not answered yet: call again with `request` to go on waiting. If it is `rejected`, do \
            without and do not ask for the same again.",
        effect: Effect::Adds,
        world: World::Open,
    };
    vec![Entry::new(&ask, request)]
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AccessWish {
    #[default]
    Ro,
    Rw,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wish {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// What is wanted, in words, e.g. "the folder with last year's invoices".
    #[serde(default)]
    #[schemars(length(min = 1, max = 2000))]
    wanted: Option<String>,
    /// Why.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2000))]
    reason: Option<String>,
    /// What to do with it: `ro` to read, `rw` to write as well.
    #[serde(default)]
    access: AccessWish,
    /// Where the folder probably is on the user's machine, if that is known; absolute.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// In place of all of these: the number of a request that waits for its answer.
    #[serde(default)]
    request: Option<u64>,
    /// How long to wait for the answer.
    #[serde(default)]
    #[schemars(range(max = MAX_WAIT))]
    wait_seconds: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answered {
    /// The number of the request.
    request: u64,
    /// `pending`, `allowed`, `rejected` or `expired`.
    state: RequestState,
    /// Where the session sees the folder now, if the user agreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// What may be done with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Access>,
    /// A word of the user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Answer for Answered {}

fn request(call: &Call, wanted: &Wish) -> Result<Answered, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let wait = Duration::from_secs(wanted.wait_seconds.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT));
    let end = Instant::now() + wait;
    let mut asked: Asked = match (wanted.request, wanted.wanted.clone(), wanted.reason.clone()) {
        (Some(number), _, _) => client.get(target(&session.id, &format!("/requests/{number}")))?,
        (None, Some(what), Some(reason)) => {
            let access = match wanted.access {
                AccessWish::Ro => Access::Read,
                AccessWish::Rw => Access::Write,
            };
            let path = wanted.path.clone().map(Raw::Text);
            let new = NewRequest { wanted: what, reason, access, path, wait: 0 };
            client.send(Method::Post, target(&session.id, "/requests"), &new)?
        }
        (None, _, _) => {
            return Err(Refusal::new("bad-arguments", "`wanted` and `reason` are needed"));
        }
    };
    while asked.state == RequestState::Pending && Instant::now() < end {
        if call.is_cancelled() {
            return Err(Refusal::new(
                "cancelled",
                "the call was cancelled; the user may still answer",
            ));
        }
        let id = asked.id;
        call.tell(&format!(
            "waiting for the user's answer: `cowork decide {id} allow` or `reject`"
        ));
        let left = end.saturating_duration_since(Instant::now()).as_secs().clamp(1, TURN);
        let query = Query::new(target(&session.id, &format!("/requests/{id}")));
        asked = client.get(query.with("wait", left.to_string()))?;
    }
    Ok(Answered {
        request: asked.id,
        state: asked.state,
        path: asked.at.as_deref().map(harmless),
        access: asked.access,
        note: asked.note.as_deref().map(harmless),
    })
}

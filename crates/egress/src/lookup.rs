//! Looking names up, by the host's own means.
//!
//! A look-up has a thread of its own, and nothing ends it before the name server has answered or the
//! system has given up. So there is room for many, and what comes when all of it is taken is refused
//! soon: names whose server is silent do not keep others waiting for long.

use crate::confine::unreadable;
use crate::dial::no_such_name;
use crate::office::Refusal;
use cowork_policy::egress::Place;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// Most names that are looked up at a time, each in a thread.
pub(crate) const LOOKUPS: usize = 64;
/// Longest that a name waits for room.
const TIME_FOR_ROOM: Duration = Duration::from_secs(2);

/// A file cannot be read any more that looking up names needs.
static BLIND: Notify = Notify::const_new();

/// Waits until names cannot be looked up here any more. Another process can.
pub(crate) async fn blind() {
    BLIND.notified().await;
}

static ROOM: Semaphore = Semaphore::const_new(LOOKUPS);

/// The addresses of a name.
///
/// Where it cannot be looked up here this tells so, and waits for the process to leave: the connection
/// ends with it.
pub(crate) async fn look_up(
    place: &Place,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Refusal> {
    if unreadable().is_some() {
        BLIND.notify_one();
        std::future::pending::<()>().await;
    }
    let Ok(Ok(permit)) = timeout(TIME_FOR_ROOM, ROOM.acquire()).await else {
        let sentence = format!(
            "{place} was not looked up: {LOOKUPS} other names are, and no name server answers"
        );
        return Err(Refusal::new("too-many-lookups", sentence, "try again in a few seconds"));
    };
    let name = name.to_owned();
    // The room is free when the thread is, and not when nobody waits for it any more.
    let looking = tokio::spawn(async move {
        let found = tokio::net::lookup_host((name.as_str(), port)).await;
        let found = found.map(Iterator::collect::<Vec<SocketAddr>>);
        drop(permit);
        found
    });
    match looking.await {
        Ok(found) => found.map_err(|error| no_such_name(place, &error)),
        Err(error) => Err(no_such_name(place, &error.into())),
    }
}

//! For which call with a key the work at hand is done: whoever records something for it writes down
//! with the record that the call has begun, and what it made.

use crate::trouble::Trouble;
use cowork_session::catalogue::{CatalogueError, Together};
use serde_json::Value;

/// A call with a key.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) key: String,
    /// The record of what such a call makes, if it makes something that can be shown later.
    pub(crate) makes: Option<&'static str>,
}

tokio::task_local! {
    static CALL: Keyed;
}

impl Keyed {
    /// Does something for this call.
    pub(crate) async fn carry_out<T>(self, work: impl Future<Output = T>) -> T {
        CALL.scope(self, work).await
    }
}

/// Carries something out to its end, whether or not the client waits for it: what is begun is
/// finished.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
) -> Result<T, Trouble> {
    let done = match CALL.try_with(Clone::clone) {
        Ok(call) => tokio::spawn(call.carry_out(work)),
        Err(_) => tokio::spawn(work),
    };
    done.await.unwrap_or_else(|error| Err(Trouble::host("the work broke off", error)))
}

/// Writes down, in one step with records, that the call at hand has begun. What it makes is more to
/// the point than what it does first.
pub(crate) fn note_begun(
    catalogue: &Together<'_>,
    session: Option<&str>,
    entries: &[(&str, &Value)],
) -> Result<(), CatalogueError> {
    let Ok(call) = CALL.try_with(Clone::clone) else { return Ok(()) };
    let made = entries.iter().find(|(kind, _)| Some(*kind) == call.makes);
    match (made, entries.first()) {
        (Some((kind, data)), _) => {
            let number = ["command", "task"].into_iter().find_map(|name| data.get(name)?.as_u64());
            catalogue.bind_attempt(&call.key, kind, session, number)
        }
        (None, Some((kind, _))) => catalogue.begin_attempt(&call.key, kind),
        (None, None) => Ok(()),
    }
}

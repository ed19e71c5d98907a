//! The audit without a daemon: `coworkd --audit CALL` answers one call of the API by reading the
//! files, for when no daemon runs, above all because it refuses to with such a record.
//!
//! Deliberately absent: locks, and anything that is written. What was tampered with stays as it was
//! found.

use super::audit::{Exported, Wanted, page, unread, verified};
use crate::book::remembered_head;
use crate::trouble::{Trouble, chain};
use axum::extract::Query;
use axum::http::Uri;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::Path;

/// Writes the answer to a call, e.g. `/v1/audit/verify`, to standard output.
pub(crate) fn answer(call: &str) -> Result<(), Trouble> {
    let uri: Uri = call.parse().map_err(|error: axum::http::uri::InvalidUri| {
        Trouble::malformed("the call cannot be understood").with_cause(error)
    })?;
    let state = cowork_client::places::state_folder()
        .map_err(|error| Trouble::host(error.to_string(), chain(&error)))?;
    let folder = state.join("audit");
    match uri.path() {
        "/v1/audit" => print(&page(&folder, &query::<Wanted>(&uri)?, usize::MAX)?),
        "/v1/audit/verify" => verify(&state, &folder),
        "/v1/audit/export" => {
            let wanted: Exported = query(&uri)?;
            let filter = wanted.filter()?;
            let stdout = std::io::stdout().lock();
            let mut out = std::io::BufWriter::with_capacity(64 * 1024, stdout);
            let written = wanted.write(&folder, &filter, &mut out);
            let flushed = out.flush();
            written.map_err(unread)?;
            flushed.map_err(unread)
        }
        _ => Err(Trouble::malformed("this is not answered without a daemon")),
    }
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Trouble> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|error| Trouble::malformed("the query cannot be understood").with_cause(error))?;
    Ok(query)
}

/// Without the head that the catalogue remembers, what is missing at the end cannot be noticed: that
/// is said, and everything else is checked.
fn verify(state: &Path, folder: &Path) -> Result<(), Trouble> {
    let known = match remembered_head(state) {
        Ok(Some(known)) => Some(known),
        Ok(None) => {
            remark("there is no catalogue that remembers the last record");
            None
        }
        Err(trouble) => {
            remark(trouble.cause.as_deref().unwrap_or(&trouble.sentence));
            None
        }
    };
    print(&verified(folder, known.as_ref())?)
}

fn print(answer: &impl Serialize) -> Result<(), Trouble> {
    let mut text = serde_json::to_vec(answer).map_err(unread)?;
    text.push(b'\n');
    std::io::stdout().write_all(&text).map_err(unread)
}

#[expect(clippy::print_stderr, reason = "whoever asked is told what is not proven")]
fn remark(why: &str) {
    eprintln!("coworkd: records that are missing at the end cannot be noticed: {why}");
}

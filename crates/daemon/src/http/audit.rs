//! The audit: read, proven, exported.

use super::extract::{Part, Queried};
use super::stream::Streamed;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cowork_audit::{Filter, Head, LedgerError};
use cowork_client::types::{AuditProblem, Page, Record, Verified};
use hyper::body::Bytes;
use serde::Deserialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc;

type Shared = State<Arc<Daemon>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    session: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    since: Option<String>,
    until: Option<String>,
    cursor: Option<String>,
    limit: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exported {
    session: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    since: Option<String>,
    until: Option<String>,
    format: Option<Format>,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Jsonl,
    Csv,
}

/// The last second of the year 9999: later than any record can be is as good as no bound.
const LAST: u64 = 253_402_300_799;

pub(super) fn unread(error: impl std::error::Error) -> Trouble {
    Trouble::host("the audit could not be read", crate::trouble::chain(&error))
}

/// A moment as the audit writes it.
fn moment(text: Option<&String>) -> Result<Option<String>, Trouble> {
    let Some(text) = text else { return Ok(None) };
    let time: SystemTime = humantime::parse_rfc3339_weak(text).map_err(|error| {
        Trouble::refused("bad-time", format!("`{}` is not a time", text.escape_debug()))
            .with_cause(error)
            .with_hint("e.g. `2026-01-31T08:00:00Z`")
    })?;
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if seconds > LAST {
        return Ok(None);
    }
    Ok(Some(crate::book::at(time)))
}

impl Wanted {
    fn filter(&self, after: u64, limit: usize) -> Result<Filter, Trouble> {
        Ok(Filter {
            session: self.session.clone(),
            kind: self.kind.clone(),
            since: moment(self.since.as_ref())?,
            until: moment(self.until.as_ref())?,
            after,
            limit,
        })
    }
}

pub(super) async fn list(
    State(daemon): Shared,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<Page<Record>>, Trouble> {
    let part = Part { cursor: wanted.cursor.clone(), limit: wanted.limit };
    let limit = usize::try_from(part.limit()?).unwrap_or(usize::MAX);
    let folder = daemon.book.audit_folder().to_path_buf();
    Ok(Json(waited(move || page(&folder, &wanted, limit)).await?))
}

/// Does what may take long beside everything else.
async fn waited<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.map_err(unread)?
}

/// A page of the records that are wanted.
pub(super) fn page(folder: &Path, wanted: &Wanted, limit: usize) -> Result<Page<Record>, Trouble> {
    let part = Part { cursor: wanted.cursor.clone(), limit: None };
    let filter = wanted.filter(part.after()?, limit)?;
    let found = cowork_audit::read(folder, &filter).map_err(unread)?;
    let next = found.last().filter(|_| found.len() >= limit).map(|last| last.seq.to_string());
    let items = found.into_iter().map(|record| Record {
        seq: record.seq,
        time: record.time,
        kind: record.kind,
        session: record.session,
        data: record.data,
        previous: record.previous,
        hash: record.hash,
    });
    Ok(Page { items: items.collect(), next })
}

pub(super) async fn verify(State(daemon): Shared) -> Result<Json<Verified>, Trouble> {
    let known = daemon.book.known_head()?;
    let folder = daemon.book.audit_folder().to_path_buf();
    Ok(Json(waited(move || verified(&folder, known.as_ref())).await?))
}

/// What is wrong with the records in a folder.
pub(super) fn verified(folder: &Path, known: Option<&Head>) -> Result<Verified, Trouble> {
    let found = cowork_audit::verify(folder, known).map_err(unread)?;
    let problems = found.problems.into_iter().map(|problem| AuditProblem {
        file: problem.file,
        line: problem.line,
        sentence: problem.sentence,
        record: problem.record,
    });
    let problems: Vec<AuditProblem> = problems.collect();
    Ok(Verified {
        whole: problems.is_empty(),
        records: found.records,
        files: found.files,
        head: found.head.hash,
        problems,
    })
}

pub(super) async fn export(
    State(daemon): Shared,
    Queried(wanted): Queried<Exported>,
) -> Result<Response, Trouble> {
    let kind = match wanted.format() {
        Format::Jsonl => "application/jsonl",
        Format::Csv => "text/csv; charset=utf-8",
    };
    let filter = wanted.filter()?;
    let folder = daemon.book.audit_folder().to_path_buf();
    let (sender, body) = Streamed::channel();
    tokio::task::spawn_blocking(move || {
        let mut pieces = std::io::BufWriter::with_capacity(64 * 1024, Pieces(sender));
        // A client that stops reading ends it.
        if wanted.write(&folder, &filter, &mut pieces).is_ok() {
            drop(pieces.flush());
        }
    });
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

impl Exported {
    fn format(&self) -> Format {
        self.format.unwrap_or(Format::Jsonl)
    }

    pub(super) fn filter(&self) -> Result<Filter, Trouble> {
        Ok(Filter {
            session: self.session.clone(),
            kind: self.kind.clone(),
            since: moment(self.since.as_ref())?,
            until: moment(self.until.as_ref())?,
            ..Filter::default()
        })
    }

    /// Writes the records of a folder.
    pub(super) fn write(
        &self,
        folder: &Path,
        filter: &Filter,
        out: &mut dyn Write,
    ) -> Result<u64, LedgerError> {
        match self.format() {
            Format::Jsonl => cowork_audit::export_jsonl(folder, filter, out),
            Format::Csv => cowork_audit::export_csv(folder, filter, out),
        }
    }
}

/// Writes to a body from a thread that may wait.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let gone = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Bytes::copy_from_slice(bytes)).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

//! What came of a task, or has come of it so far: what changed, what was reached and refused, what was
//! asked.

use super::kept::Kept;
use crate::book::{millis_since, now};
use crate::daemon::Daemon;
use crate::network::Tally;
use crate::session::Session;
use cowork_audit::{Filter, Record};
use cowork_client::types::{
    Raw, Request, TaskChange, TaskHost, TaskRefusal, TaskRefusedChange, TaskRequest, TaskSummary,
};
use cowork_session::catalogue::Requests;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Most names that changed, hosts, refusals and requests that are listed.
const MAX_LISTED: usize = 200;
/// Most records that are looked through.
const MAX_RECORDS: usize = 100_000;

impl Daemon {
    /// Says what came of a task that has begun.
    pub(super) async fn summarise_task(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kept: &Kept,
    ) -> TaskSummary {
        let since = kept.task.started.clone().unwrap_or_else(now);
        let mut summary = TaskSummary {
            wall_ms: millis_since(&since),
            usage: kept.task.usage,
            tools: kept.tools,
            failed_tools: kept.failed_tools,
            ..TaskSummary::default()
        };
        self.add_changes(session, &since, &mut summary).await;
        self.add_refused_changes(session, kept, &mut summary);
        self.add_network(session, kept, &mut summary);
        match self.book.catalogue.requests(Requests::All, Some(&session.id), 0, u32::MAX) {
            Ok(found) => {
                let requests = found
                    .iter()
                    .filter_map(|(_, text)| serde_json::from_str::<Request>(text).ok())
                    .filter(|request| request.created >= since);
                summary.requests = requests.take(MAX_LISTED).map(asked).collect();
            }
            Err(error) => summary.unknown.push(format!("what was asked: {error}")),
        }
        summary
    }

    async fn add_changes(
        self: &Arc<Self>,
        session: &Arc<Session>,
        since: &str,
        summary: &mut TaskSummary,
    ) {
        match self.changes_since(&session.id, since).await {
            Ok(changes) => {
                summary.sets = changes.sets.iter().map(|set| set.set).collect();
                let all = changes.changes.len();
                let listed = changes.changes.into_iter().take(MAX_LISTED);
                summary.changes = listed
                    .map(|change| TaskChange {
                        grant: change.grant,
                        path: change.path,
                        host: change.host,
                        kind: change.kind,
                    })
                    .collect();
                let more = all.saturating_sub(summary.changes.len());
                summary.more_changes = u64::try_from(more).unwrap_or(u64::MAX);
            }
            // It has no folder whose changes are recorded.
            Err(trouble) if trouble.code == "no-store" => {}
            Err(trouble) => summary.unknown.push(format!("what changed: {}", trouble.line())),
        }
    }

    /// What was recorded since the task began.
    fn records_of(
        &self,
        session: &Session,
        kept: &Kept,
        kind: &str,
    ) -> Result<Vec<Record>, cowork_audit::LedgerError> {
        let filter = Filter {
            session: Some(session.id.clone()),
            kind: Some(kind.into()),
            after: kept.record,
            limit: MAX_RECORDS,
            ..Filter::default()
        };
        cowork_audit::read(self.book.audit_folder(), &filter)
    }

    fn add_refused_changes(&self, session: &Session, kept: &Kept, summary: &mut TaskSummary) {
        let found = match self.records_of(session, kept, "files.refused") {
            Ok(found) => found,
            Err(error) => {
                summary.unknown.push(format!("which changes were refused: {error}"));
                return;
            }
        };
        for record in found {
            let Ok(refused) = Refused::deserialize(&record.data) else { continue };
            let all = &mut summary.refused_changes;
            let same = all.iter().position(|one| {
                (&one.grant, &one.path, &one.operation, &one.reason)
                    == (&refused.grant, &refused.path, &refused.operation, &refused.reason)
            });
            if let Some(same) = same.and_then(|at| all.get_mut(at)) {
                same.times += 1;
            } else if all.len() < MAX_LISTED {
                all.push(TaskRefusedChange {
                    grant: refused.grant,
                    path: refused.path,
                    operation: refused.operation,
                    reason: refused.reason,
                    times: 1,
                });
            }
        }
    }

    fn add_network(&self, session: &Session, kept: &Kept, summary: &mut TaskSummary) {
        if !session.has_network() {
            return;
        }
        let found = match self.records_of(session, kept, "network") {
            Ok(found) => found,
            Err(error) => {
                summary.unknown.push(format!("what was reached: {error}"));
                return;
            }
        };
        let mut tally = Tally::default();
        for record in found {
            let at = record.data.get("at").and_then(Value::as_str).unwrap_or(&record.time);
            tally.take(&record.kind, at, &record.data);
        }
        let hosts = tally.hosts().into_iter().take(MAX_LISTED);
        summary.reached = hosts
            .map(|host| TaskHost {
                host: host.host,
                up: host.up,
                down: host.down,
                requests: host.requests,
            })
            .collect();
        let refused = tally.refused().into_iter().take(MAX_LISTED);
        summary.refused = refused
            .map(|one| TaskRefusal { target: one.target, code: one.code, times: one.times })
            .collect();
    }
}

/// What the audit has of a change that was refused.
#[derive(Deserialize)]
struct Refused {
    grant: String,
    path: Raw,
    operation: String,
    reason: String,
}

fn asked(request: Request) -> TaskRequest {
    TaskRequest { id: request.id, kind: request.kind, wanted: request.wanted, state: request.state }
}

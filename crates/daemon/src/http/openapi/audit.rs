//! Operations on the audit and on events.

use super::operation::Operation;
use super::schemas::Schemas;
use cowork_client::types::{CloudEvent, Event, Page, Part, Record, Verified};
use serde_json::{Value, json};

/// Records are read.
const READ: &[&str] = &["host", "tampered", "unrecorded"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let mut all: Vec<Operation> =
        audit(s).into_iter().map(|operation| operation.tag("audit")).collect();
    all.push(events(s).tag("events"));
    all
}

/// Which records are wanted.
fn chosen(operation: Operation) -> Operation {
    let moment = || json!({ "type": "string", "format": "date-time", "pattern": "Z$" });
    operation
        .query("session", "Only those of this session", &json!({ "type": "string" }))
        .query(
            "type",
            "Only those of this type: `grant.added`, or `grant` for every type that starts so",
            &json!({ "type": "string" }),
        )
        .query("since", "Only those from this moment on", &moment())
        .query("until", "Only those up to this moment", &moment())
        .refuses(&[READ, &["bad-time"]])
}

fn audit(s: &mut Schemas) -> Vec<Operation> {
    let format = json!({ "type": "string", "enum": ["jsonl", "csv"], "default": "jsonl" });
    let text = |about: &str| json!({ "schema": { "type": "string", "description": about } });
    let exported = json!({
        "description": "Every record that is wanted",
        "content": {
            "application/jsonl": text("A record in each line, as it lies in the file"),
            "text/csv; charset=utf-8": text("A record in each line, after a line with names"),
        },
    });
    vec![
        chosen(Operation::new("GET /v1/audit", "listRecords", "Records of the audit"))
            .part()
            .gives::<Page<Record>>(200, "A part of the list, by number", s),
        Operation::new("GET /v1/audit/verify", "verifyAudit", "Whether the audit is whole")
            .gives::<Verified>(200, "What was found", s)
            .refuses(&[READ]),
        chosen(Operation::new("GET /v1/audit/export", "exportAudit", "Records as a file"))
            .query("format", "JSON lines, or a table", &format)
            .answers(200, exported),
    ]
}

fn events(s: &mut Schemas) -> Operation {
    let after = || json!({ "type": "string", "pattern": "^(end|[0-9]{1,18})$" });
    let limit: Value = json!({
        "type": "integer", "minimum": 1, "maximum": super::super::extract::MAX_PART,
        "default": super::super::extract::PART,
    });
    let page = json!({ "anyOf": [s.got::<Part<Event>>(), s.got::<Part<CloudEvent>>()] });
    let format = json!({ "type": "string", "enum": ["plain", "cloudevents"], "default": "plain" });
    let stream = json!({ "type": "string", "description":
        "Server-sent events: `id` is the number, `event` the type, `data` the event as JSON. A \
         stream goes on until the client leaves, with a comment every 15 seconds if nothing \
         happens. `event: gap` with `from` and `to` says which numbers are no longer kept." });
    let given = json!({
        "description": "A part of the list, or with `Accept: text/event-stream` a stream",
        "content": {
            "application/json": { "schema": page },
            "text/event-stream": { "schema": stream },
        },
    });
    Operation::new("GET /v1/events", "events", "What happened, and what happens")
        .about(
            "Events are numbered without gaps. The list's `next` is always there: asked for again \
             after it, every event comes once. The last 100,000 are kept, unless the daemon is told \
             otherwise (`COWORK_EVENTS`); `gap` says which numbers are no longer kept of those that \
             were asked for.",
        )
        .query("session", "Only those of this session", &json!({ "type": "string" }))
        .query(
            "type",
            "Only those of this type: `session.state`, or `session` for all",
            &json!({ "type": "string" }),
        )
        .query("after", "The number after which it starts, or `end` for what comes", &after())
        .query("limit", "Most events in the part", &limit)
        .query(
            "format",
            "How each event is written, in a list and in a stream: `Event`, or `CloudEvent` \
             (CloudEvents 1.0, JSON format)",
            &format,
        )
        .header("Last-Event-ID", "In place of `after`, as clients of streams send it", &after())
        .answers(200, given)
        .refuses(&[&["unrecorded"]])
}

//! Operations on the daemon, on sessions, and on their grants.

use super::network::{EGRESS, RULES as NETWORK};
use super::operation::Operation;
use super::schemas::Schemas;
use cowork_client::types::{
    Cancel, Fact, Grant, GrantChange, Info, NewGrant, NewSession, Page, Processes, Regranted,
    Revoked, Session, SessionChange, State, Usage,
};
use serde_json::{Value, json};

/// The keeper is asked.
pub(super) const KEEPER: &[&str] =
    &["host", "host-unable", "step-failed", "layer-missing", "no-sandbox", "unrecorded"];
/// A sandbox is made.
const MAKING: &[&str] = &[
    "limit-unenforceable",
    "folder-changed",
    "folder-refused",
    "session-exists",
    "no-space",
    "no-door",
    "bad-rule",
];
/// A folder of the host is opened and granted.
pub(super) const GRANTING: &[&str] = &[
    "no-folder",
    "not-folder",
    "bad-path",
    "bad-name",
    "sensitive",
    "folder-refused",
    "folder-changed",
    "grant-exists",
    "too-many",
    "no-door",
    "bad-limit",
    "bad-rule",
    "bad-time",
];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let mut all = daemon(s);
    all.extend(sessions(s).into_iter().map(|operation| operation.tag("sessions")));
    all.extend(life(s).into_iter().map(|operation| operation.tag("sessions")));
    all.extend(grants(s).into_iter().map(|operation| operation.tag("grants")));
    all
}

fn daemon(s: &mut Schemas) -> Vec<Operation> {
    let document = json!({ "description": "This document", "content": {
        "application/json": { "schema": { "type": "object", "required": ["openapi", "paths"] } },
    } });
    let all = vec![
        Operation::new("GET /v1/info", "info", "Who answers").gives::<Info>(200, "The daemon", s),
        Operation::new("GET /v1/doctor", "doctor", "What the host offers to sessions")
            .gives::<Vec<Fact>>(200, "What was looked at, and what was found", s)
            .refuses(&[KEEPER]),
        Operation::new("GET /v1/openapi.json", "openapi", "This document").answers(200, document),
        Operation::new("POST /v1/shutdown", "shutdown", "Stop every session, and leave")
            .about("The answer comes before the end. Homes and outputs stay.")
            .gives_nothing(202, "It leaves"),
    ];
    all.into_iter().map(|operation| operation.tag("daemon")).collect()
}

fn sessions(s: &mut Schemas) -> Vec<Operation> {
    let cursor = json!({ "type": "string" });
    let keep = json!({ "type": "string", "enum": ["keep"] });
    vec![
        Operation::new("GET /v1/sessions", "listSessions", "Sessions that are not removed")
            .query("state", "Only those in this state", &s.sent::<State>())
            .query(
                "label",
                "Only those with this label: `name` or `name=value`",
                &json!({ "type": "string" }),
            )
            .part_from(&cursor)
            .gives::<Page<Session>>(200, "A part of the list, by id", s),
        made(Operation::new("POST /v1/sessions", "createSession", "Make a session"))
            .about(
                "It is ready when the answer comes. Folders in sensitive places need `force`. If \
                 it cannot be made, nothing of it is left but the record.",
            )
            .may_take::<NewSession>(s)
            .gives::<Session>(201, "The session", s)
            .refuses(&[
                KEEPER,
                MAKING,
                GRANTING,
                NETWORK,
                EGRESS,
                &["bad-label", "bad-limit", "bad-secret", "bad-workspace", "no-workspace"],
            ]),
        Operation::new("GET /v1/sessions/{id}", "showSession", "A session")
            .gives::<Session>(200, "The session", s)
            .refuses(&[&["unrecorded"]]),
        Operation::new("PATCH /v1/sessions/{id}", "changeSession", "Change labels and limits")
            .about("Limits are changed while it runs; those that are not named stay.")
            .may_take::<SessionChange>(s)
            .gives::<Session>(200, "The session as it is now", s)
            .refuses(&[KEEPER, &["ended", "bad-label", "bad-limit", "limit-unenforceable"]]),
        Operation::new("DELETE /v1/sessions/{id}", "removeSession", "End and remove a session")
            .about("Nothing of it stays but the record, and its outputs if they are kept.")
            .query("outputs", "`keep`: leave its folder of deliverables", &keep)
            .gives_nothing(204, "It is gone")
            .refuses(&[KEEPER]),
        Operation::new(
            "GET /v1/sessions/{id}/processes",
            "findProcesses",
            "Whether a process runs in a session, by its name or id",
        )
        .about("Without a name and an id all processes are meant. A session that does not run has none.")
        .query("name", "Only those with this name, of which the kernel keeps 15 bytes", &json!({ "type": "string" }))
        .query(
            "pid",
            "Only the one with this id, in the session or on the host",
            &json!({ "type": "integer", "minimum": 1, "maximum": i32::MAX }),
        )
        .gives::<Processes>(200, "Those that were meant", s)
        .refuses(&[KEEPER]),
        Operation::new("GET /v1/sessions/{id}/usage", "usage", "What a session uses now")
            .gives::<Usage>(200, "Measured at this moment", s)
            .refuses(&[KEEPER]),
        Operation::new(
            "GET /v1/sessions/{id}/usage/history",
            "usageHistory",
            "What a session used in the last hour",
        )
        .part_from(&json!({ "type": "string" }))
        .gives::<Page<Usage>>(200, "A part of the samples, the oldest first", s),
    ]
}

/// What can be done with a session that was made.
fn made(operation: Operation) -> Operation {
    let id = json!({ "id": "$response.body#/id" });
    let next = [
        "showSession",
        "changeSession",
        "removeSession",
        "startSession",
        "stopSession",
        "pauseSession",
        "resumeSession",
        "cancelSession",
        "findProcesses",
        "usage",
        "usageHistory",
        "listGrants",
        "addGrant",
        "listChanges",
        "listProtected",
        "listCommands",
        "startCommand",
        "showNetwork",
        "changeNetwork",
        "traffic",
        "networkHar",
    ];
    next.iter().fold(operation, |operation, next| operation.leads_to(next, &id))
}

fn life(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new("POST /v1/sessions/{id}/start", "startSession", "Start a stopped session")
            .gives::<Session>(200, "The session, ready", s)
            .refuses(&[
                KEEPER,
                MAKING,
                NETWORK,
                EGRESS,
                &["live", "ended", "bad-limit", "grant-exists"],
            ]),
        Operation::new("POST /v1/sessions/{id}/stop", "stopSession", "End its processes")
            .about("Its home, grants and outputs stay. A stopped session stays stopped.")
            .gives::<Session>(200, "The session, stopped", s)
            .refuses(&[KEEPER, &["ended"]]),
        Operation::new("POST /v1/sessions/{id}/pause", "pauseSession", "Let it stand still")
            .about("Nothing in it runs until it is resumed. A paused session stays paused.")
            .gives::<Session>(200, "The session, paused", s)
            .refuses(&[KEEPER, &["not-live", "creating", "ended"]]),
        Operation::new("POST /v1/sessions/{id}/resume", "resumeSession", "Let it go on")
            .gives::<Session>(200, "The session, going on", s)
            .refuses(&[KEEPER, &["not-live", "not-paused", "creating", "ended"]]),
        Operation::new(
            "POST /v1/sessions/{id}/cancel",
            "cancelSession",
            "End everything that runs in it",
        )
        .about(
            "Every process is asked to end, and killed after the grace. The session stays. The \
             answer comes when nothing runs. A grace has at most ten minutes.",
        )
        .may_take::<Cancel>(s)
        .gives::<Session>(200, "The session, with nothing running", s)
        .refuses(&[KEEPER, &["not-live", "ended", "bad-grace", "no-answer"]]),
    ]
}

fn grants(s: &mut Schemas) -> Vec<Operation> {
    let named: Value = json!({ "id": "$request.path.id", "name": "$response.body#/name" });
    vec![
        Operation::new("GET /v1/sessions/{id}/grants", "listGrants", "Folders it sees")
            .gives::<Vec<Grant>>(200, "Every granted folder", s),
        Operation::new("POST /v1/sessions/{id}/grants", "addGrant", "Grant a folder")
            .about("In a session that runs it appears at once.")
            .takes::<NewGrant>(s)
            .gives::<Grant>(201, "The granted folder", s)
            .leads_to("changeGrant", &named)
            .leads_to("revokeGrant", &named)
            .refuses(&[KEEPER, GRANTING, &["creating", "ended"]]),
        Operation::new("GET /v1/sessions/{id}/grants/{name}", "showGrant", "A granted folder")
            .gives::<Grant>(200, "The grant", s)
            .refuses(&[&["no-grant"]]),
        Operation::new(
            "PATCH /v1/sessions/{id}/grants/{name}",
            "changeGrant",
            "Give a granted folder another access",
        )
        .about(
            "Processes that hold on to the folder are killed, as they are by a revocation. With the \
             same access nothing is taken away.",
        )
        .takes::<GrantChange>(s)
        .gives::<Regranted>(200, "The grant as it is now, and what the change did", s)
        .refuses(&[KEEPER, MAKING, &["no-grant", "creating", "ended", "bad-limit", "bad-time"]]),
        Operation::new(
            "DELETE /v1/sessions/{id}/grants/{name}",
            "revokeGrant",
            "Take a folder away",
        )
        .about(
            "Processes that hold on to it are killed and named. If something hidden still holds \
             on, the sandbox is ended and made again without the folder.",
        )
        .gives::<Revoked>(200, "What it took", s)
        .refuses(&[KEEPER, MAKING, &["no-grant"]]),
    ]
}

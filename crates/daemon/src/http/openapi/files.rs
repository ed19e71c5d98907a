//! Operations on files, and on what sessions ask for.

use super::operation::Operation;
use super::schemas::Schemas;
use super::sessions::{GRANTING, KEEPER};
use cowork_client::types::{
    Asked, Decide, FileChange, FileEntry, NewRequest, Page, Raw, Request, RequestState, Translated,
};
use serde_json::{Value, json};

/// A path is followed below a folder of the session.
const FOUND: &[&str] =
    &["no-root", "no-file", "bad-path", "not-folder", "link", "refused", "host", "no-space"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let files = files(s).into_iter().chain([watch(s)]).map(|operation| operation.tag("files"));
    files.chain(requests(s).into_iter().map(|operation| operation.tag("requests"))).collect()
}

fn bytes(description: &str, headers: &Value) -> Value {
    json!({
        "description": description,
        "headers": headers,
        "content": { "application/octet-stream": {} },
    })
}

/// Whether a folder is listed.
fn listing() -> Value {
    json!({ "type": "boolean", "default": false })
}

fn files(s: &mut Schemas) -> Vec<Operation> {
    let ranges = json!({ "required": true, "schema": { "const": "bytes" } });
    let range = json!({
        "required": true,
        "schema": { "type": "string", "pattern": "^bytes [0-9]+-[0-9]+/[0-9]+$" },
    });
    let page = json!({ "schema": s.got::<Page<FileEntry>>() });
    let mut whole = bytes("The file, or what is in the folder", &json!({}));
    if let Some(content) = whole.get_mut("content").and_then(Value::as_object_mut) {
        content.insert("application/json".into(), page);
    }
    let part =
        bytes("A part of the file", &json!({ "Accept-Ranges": ranges, "Content-Range": range }));
    let path = || json!({ "type": "string", "minLength": 1, "maxLength": 4095 });
    vec![
        Operation::new("GET /v1/sessions/{id}/path", "translatePath", "A path in both views")
            .about("Either `host` or `session` is given.")
            .query("host", "A path of the host", &path())
            .query("session", "A path in the session", &path())
            .gives::<Translated>(200, "The path on both sides", s)
            .refuses(&[&["bad-path", "not-visible"]]),
        Operation::new("GET /v1/sessions/{id}/files/{root}", "listRoot", "What is in a folder")
            .query("list", "May be given as for any folder: this one is always listed", &listing())
            .part()
            .gives::<Page<FileEntry>>(200, "A part of the list, by name", s)
            .refuses(&[FOUND, &["too-many-entries"]]),
        Operation::new("GET /v1/sessions/{id}/files/{root}/{path}", "readFile", "Read a file")
            .about(
                "Links are not followed. With `list=true` the entries of a folder, by name, in \
                 parts.",
            )
            .query("list", "Whether the entries of a folder are wanted", &listing())
            .part()
            .header(
                "Range",
                "One part of the file: `bytes=FROM-TO` or `bytes=FROM-`. Other units are ignored",
                &json!({ "type": "string" }),
            )
            .answers(200, whole)
            .answers(206, part)
            .refuses(&[FOUND, &["is-folder", "special-file", "bad-range", "too-many-entries"]]),
        Operation::new("PUT /v1/sessions/{id}/files/{root}/{path}", "writeFile", "Write a file")
            .about(
                "Folders on the way are made. The file appears whole, or not at all. With \
                 `folder=true` a folder is made, unless it is there; the body is ignored.",
            )
            .query("folder", "Whether a folder is wanted", &listing())
            .takes_bytes("What is in the file; at most 64 GiB")
            .gives_nothing(204, "It is written")
            .refuses(&[FOUND, &["read-only", "is-folder", "too-large", "unrecorded"]]),
        Operation::new(
            "DELETE /v1/sessions/{id}/files/{root}/{path}",
            "removeFile",
            "Remove a file or an empty folder",
        )
        .gives_nothing(204, "It is gone")
        .refuses(&[FOUND, &["read-only", "is-folder", "not-empty", "unrecorded"]]),
    ]
}

fn watch(s: &mut Schemas) -> Operation {
    let about = "Server-sent events. `ready` first: from here on nothing is missed. `change` with a \
                 `FileChange`; `unwatched` with `path` and `reason` (`limit` or `refused`), told once \
                 for each reason: what happens below is not seen; `overflow`: changes were lost, list \
                 again; `end` last, with `reason` (`revoked`, `ended`, `gone`, `time`). A comment every \
                 15 seconds if nothing happens.";
    let change = s.got::<FileChange>();
    let one = |required: &[&str], properties: Value| json!({ "type": "object", "required": required, "properties": properties });
    let reason = || json!({ "type": "string" });
    let contents = json!({ "anyOf": [
        change,
        one(&["folders"], json!({ "folders": { "type": "integer", "minimum": 1 } })),
        one(&["path", "reason"], json!({ "path": s.got::<Raw>(), "reason": reason() })),
        one(&["reason"], json!({ "reason": reason() })),
        { "type": "object", "maxProperties": 0 },
    ] });
    let data = json!({
        "type": "string", "contentMediaType": "application/json", "contentSchema": contents,
    });
    let names = ["ready", "change", "unwatched", "overflow", "end"];
    let stream = json!({
        "type": "object", "description": about, "required": ["event", "data"],
        "properties": { "event": { "enum": names }, "data": data },
    });
    let path = json!({ "type": "string", "minLength": 1, "maxLength": 4095 });
    let wait = json!({ "type": "integer", "minimum": 0, "maximum": 600 });
    Operation::new("GET /v1/sessions/{id}/watch/{root}", "watchFiles", "Changes in a folder")
        .about(
            "As they happen, in the folder and in those below it, up to 4096. Links are told of and \
             not followed. A stream ends with the session or the grant; one that was broken off is \
             not resumed: open another, and list when it is ready.",
        )
        .query("path", "A folder below it, in place of all of it", &path)
        .query("wait", "Seconds after which the stream ends; without it, it does not", &wait)
        .answers(200, json!({
            "description": "The changes",
            "content": { "text/event-stream": { "schema": stream } },
        }))
        .refuses(&[FOUND, &["too-many", "folder-changed"]])
}

fn requests(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new("POST /v1/sessions/{id}/requests", "ask", "Ask the user for a folder")
            .about(
                "On behalf of a session. The request waits until the user has answered it; what \
                 comes back says no more of the host than the session is given.",
            )
            .takes::<NewRequest>(s)
            .gives::<Asked>(201, "The request, answered if that was waited for", s)
            .refuses(&[&["bad-request", "bad-path", "no-request", "too-many"]]),
        Operation::new(
            "GET /v1/sessions/{id}/requests/{number}",
            "showAsked",
            "A request for a folder, as whoever asked is shown it",
        )
        .query(
            "wait",
            "Seconds to wait for the answer",
            &json!({ "type": "integer", "minimum": 0, "maximum": 600 }),
        )
        .gives::<Asked>(200, "The request", s)
        .refuses(&[&["no-request", "host", "unrecorded"]]),
        Operation::new("GET /v1/requests", "listRequests", "What sessions ask for")
            .query("state", "Only those in this state", &s.sent::<RequestState>())
            .query("session", "Only those of this session", &json!({ "type": "string" }))
            .part()
            .gives::<Page<Request>>(200, "A part of the list, by number", s)
            .refuses(&[&["unrecorded"]]),
        Operation::new("GET /v1/requests/{number}", "showRequest", "A request")
            .gives::<Request>(200, "The request", s)
            .refuses(&[&["no-request", "host", "unrecorded"]]),
        Operation::new("POST /v1/requests/{number}/decide", "decide", "Answer a request")
            .about(
                "Saying yes to a wish for a folder names it, and it is granted. What is said for the \
                 session or for always answers the same wish in the same words again; about a \
                 host or a name it becomes a rule.",
            )
            .takes::<Decide>(s)
            .gives::<Request>(200, "The request, answered", s)
            .refuses(&[
                KEEPER,
                GRANTING,
                super::network::RULES,
                super::network::EGRESS,
                &[
                    "no-request",
                    "no-session",
                    "answered",
                    "no-path",
                    "bad-request",
                    "creating",
                    "ended",
                ],
            ]),
    ]
}

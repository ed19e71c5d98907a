//! Every code of a problem that the API answers with: its status, and what it means.
//!
//! A code has one status. 400 says that a request does not fit the document; 422 that it does, and
//! cannot be carried out.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Codes, their status, and their meaning.
pub(super) const PROBLEMS: [(&str, u16, &str); 110] = [
    ("malformed", 400, "the request does not fit this document"),
    ("no-token", 401, "the listener on TCP was not shown its token"),
    ("foreign-host", 403, "the listener on TCP was asked by a name that is not its own"),
    ("foreign-origin", 403, "a page of a browser asks, of a place that is not allowed"),
    ("link", 403, "the path leads through a symbolic link, which is not followed"),
    ("read-only", 403, "the folder is granted read only"),
    ("refused", 403, "the host's kernel refuses it to this user"),
    ("sensitive", 403, "the folder is in a sensitive place, and `force` is not set"),
    ("no-agent", 404, "there is no such agent"),
    ("no-changes", 404, "nothing is recorded there"),
    ("no-command", 404, "the session has no such command"),
    ("no-file", 404, "there is no such file"),
    ("no-grant", 404, "the session has no such granted folder"),
    ("no-port", 404, "the session has no such published port"),
    ("no-preset", 404, "there is no such preset"),
    ("no-request", 404, "there is no such request"),
    ("no-root", 404, "the session has no such folder"),
    ("no-route", 404, "there is nothing at this path"),
    ("no-rule", 404, "there is no rule of this name"),
    ("no-secret", 404, "there is no such secret"),
    ("no-session", 404, "there is no such session"),
    ("no-store", 404, "nothing that the session does is recorded"),
    ("no-task", 404, "the session has no such task"),
    ("not-visible", 404, "the other side does not see this path"),
    ("no-method", 405, "this path has no such method"),
    ("answered", 409, "the request was answered already"),
    ("command-ended", 409, "the command has ended"),
    ("conflict", 409, "the user has changed something since, and nothing was done"),
    ("creating", 409, "the session is being made"),
    ("ended", 409, "the session has ended"),
    ("folder-changed", 409, "another folder lies at this path now"),
    ("grant-exists", 409, "the session has a folder of this name already"),
    ("in-progress", 409, "a call with this idempotency key is at work"),
    ("is-folder", 409, "it is a folder"),
    ("live", 409, "the session has a sandbox already"),
    ("lives-once", 409, "the session lives for one command"),
    ("no-answer", 409, "the session's PID 1 does not answer"),
    ("no-egress", 409, "the session's egress process does not answer"),
    ("no-sandbox", 409, "the session has no sandbox at the moment"),
    ("no-stdin", 409, "the command has no input, or it is closed"),
    ("no-terminal", 409, "the command has no terminal"),
    ("not-empty", 409, "the folder is not empty"),
    ("not-live", 409, "the session is stopped or failed"),
    ("not-paused", 409, "it is not paused"),
    ("not-staged", 409, "the session has no staged folder"),
    ("not-steerable", 409, "the agent does not listen while it works"),
    ("nothing-to-apply", 409, "nothing is staged there"),
    ("nothing-to-redo", 409, "there is no undo that is not redone"),
    ("nothing-to-undo", 409, "there is nothing to undo there"),
    ("outcome-unknown", 409, "the daemon ended during a call with this idempotency key"),
    ("paused", 409, "the session is paused"),
    ("port-taken", 409, "the port at the host's loopback cannot be had"),
    ("session-exists", 409, "there is a session with this id, or its folder is still there"),
    ("task-over", 409, "the task is over"),
    ("task-waiting", 409, "the task has not begun"),
    ("too-many", 409, "there are as many as there can be"),
    ("too-large", 413, "the body is too large"),
    ("not-json", 415, "the body is not JSON"),
    ("bad-range", 416, "the file has no such part"),
    ("bad-agent", 422, "the definition of the agent cannot be understood"),
    ("bad-command", 422, "a command has either words or a line for the shell, without NUL"),
    ("bad-cwd", 422, "the command cannot start in this folder"),
    ("bad-grace", 422, "the grace is no span of time"),
    ("bad-label", 422, "a label has no name, is too long, or has control characters"),
    ("bad-limit", 422, "a limit cannot be read, or makes no sense on this host"),
    ("bad-name", 422, "this cannot be the name of a granted folder"),
    ("bad-path", 422, "the path cannot be used here"),
    ("bad-model", 422, "the agent cannot be told which model to use"),
    ("bad-prompt", 422, "the prompt is empty or too long"),
    ("bad-request", 422, "a text is empty or too long"),
    ("bad-rule", 422, "a rule cannot be understood"),
    ("bad-secret", 422, "this cannot be a secret, or the name of one"),
    ("bad-sets", 422, "either all sets are meant, or some"),
    ("bad-signal", 422, "there is no such signal"),
    ("bad-streams", 422, "the streams cannot be connected like this"),
    ("bad-time", 422, "this is no moment in UTC"),
    ("bad-timeout", 422, "the timeout is no span of time"),
    ("bad-umask", 422, "the mask has more than nine bits"),
    ("bad-url", 422, "this is neither a URL nor a host with a port"),
    ("bad-variable", 422, "this cannot be the name or the value of a variable"),
    ("bad-workspace", 422, "this cannot be a name at the top of the session's file system"),
    ("failed", 422, "the command could not be started"),
    ("too-many-entries", 422, "the folder has too many entries to be listed"),
    ("folder-refused", 422, "the folder is no folder of files, or this session cannot have it"),
    ("key-reused", 422, "this idempotency key was used for something else"),
    ("limit-unenforceable", 422, "the host cannot enforce a limit that was asked for"),
    ("network-unenforceable", 422, "a rule cannot be enforced on this host"),
    ("no-attachment", 422, "the session has no such upload"),
    ("no-credential", 422, "no secret of the agent is stored"),
    ("no-door", 422, "changes cannot be recorded in this session, or on this host"),
    ("no-folder", 422, "there is no such folder on the host"),
    ("no-path", 422, "saying yes needs a folder"),
    ("no-program", 422, "the agent's program is not found, or cannot run in sessions"),
    ("no-tasks", 422, "the agent takes no tasks"),
    ("no-workspace", 422, "a workspace needs a granted folder"),
    ("not-done", 422, "a clerk could not do it; the sentence says why"),
    ("not-executable", 422, "the program cannot be executed"),
    ("not-folder", 422, "a part of the path is not a folder"),
    ("not-found", 422, "there is no such program in the session"),
    ("special-file", 422, "it is neither a regular file nor a folder"),
    ("too-long", 422, "the command has too many words"),
    ("no-upgrade", 426, "the connection must be upgraded"),
    ("host", 503, "something on this host stands in the way"),
    ("host-unable", 503, "the host lacks what a session needs"),
    ("layer-missing", 503, "a layer of protection could not be put in force"),
    ("socket-refused", 503, "a socket cannot be made in the session's network"),
    ("step-failed", 503, "a step of making or changing the sandbox failed"),
    ("tampered", 503, "the record of what happened is damaged, or was tampered with"),
    ("no-space", 507, "the disk is full"),
    ("unrecorded", 507, "it could not be recorded, and was not done"),
];

/// The responses for these codes: one for each status.
pub(super) fn responses(codes: &[&'static str]) -> Map<String, Value> {
    let wanted: BTreeSet<&str> = codes.iter().copied().collect();
    let mut by_status: BTreeMap<u16, Vec<(&str, &str)>> = BTreeMap::new();
    for (code, status, meaning) in PROBLEMS {
        if wanted.contains(code) {
            by_status.entry(status).or_default().push((code, meaning));
        }
    }
    by_status
        .into_iter()
        .map(|(status, codes)| (status.to_string(), response(status, &codes)))
        .collect()
}

/// What a response with a problem is called where several operations share it: its status and its
/// codes.
pub(super) fn name(response: &Value) -> Option<String> {
    let schema = response.pointer("/content/application~1problem+json/schema/properties")?;
    let codes = schema.pointer("/code/enum")?.as_array()?;
    let codes: Vec<&str> = codes.iter().filter_map(Value::as_str).collect();
    Some(format!("{}.{}", schema.pointer("/status/const")?, codes.join(".")))
}

fn response(status: u16, codes: &[(&str, &str)]) -> Value {
    let lines: Vec<String> =
        codes.iter().map(|(code, meaning)| format!("- `{code}`: {meaning}")).collect();
    let names: Vec<&str> = codes.iter().map(|(code, _)| *code).collect();
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "properties": { "code": { "enum": names }, "status": { "const": status } },
    });
    let mut response = json!({
        "description": lines.join("\n"),
        "content": { "application/problem+json": { "schema": schema } },
    });
    if let (401, Some(response)) = (status, response.as_object_mut()) {
        let header = json!({
            "description": "`Bearer`", "required": true, "schema": { "const": "Bearer" },
        });
        response.insert("headers".into(), json!({ "WWW-Authenticate": header }));
    }
    response
}

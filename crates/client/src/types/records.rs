//! What happened, and files: the audit, events, and what lies in a session's folders.

use super::{HASH, Raw};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One record of the audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Its number, from 1.
    #[schemars(range(min = 1))]
    pub seq: u64,
    /// When it was written.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What it tells of, e.g. `grant.added`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The session.
    pub session: Option<String>,
    /// What happened.
    pub data: serde_json::Value,
    /// The hash of the record before it.
    #[schemars(regex(pattern = HASH))]
    pub previous: String,
    /// The hash of this one.
    #[schemars(regex(pattern = HASH))]
    pub hash: String,
}

/// What the verification of the audit found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Whether everything is as it was written.
    pub whole: bool,
    /// How many records there are.
    pub records: u64,
    /// How many files.
    pub files: u64,
    /// The hash of the last record: noted elsewhere, it proves all before it.
    #[schemars(regex(pattern = HASH))]
    pub head: String,
    /// What is wrong.
    pub problems: Vec<AuditProblem>,
}

/// Something wrong with the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditProblem {
    /// The file it is in.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong.
    pub sentence: String,
    /// The number of the record it is about, if it is about one.
    #[serde(default)]
    pub record: Option<u64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number, from 1, without gaps.
    #[schemars(range(min = 1))]
    pub id: u64,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What, e.g. `session.state`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The session.
    pub session: Option<String>,
    /// The details.
    pub data: serde_json::Value,
}

/// An event as `CloudEvents` 1.0 has it, in its JSON format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CloudEvent {
    /// `1.0`.
    #[schemars(extend("const" = "1.0"))]
    pub specversion: String,
    /// The event's number, as text.
    #[schemars(regex(pattern = "^[1-9][0-9]*$"))]
    pub id: String,
    /// `/sessions/ID`, or `/daemon`.
    pub source: String,
    /// What happened, e.g. `session.state`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it happened to, e.g. `commands/3`, where it is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// `application/json`.
    #[schemars(extend("const" = "application/json"))]
    pub datacontenttype: String,
    /// The event's number: an extension, to put events in order.
    #[schemars(range(min = 1))]
    pub seq: u64,
    /// The details.
    pub data: serde_json::Value,
}

impl From<Event> for CloudEvent {
    fn from(event: Event) -> Self {
        let named = |field: &str, kind: &str| match event.data.get(field)? {
            serde_json::Value::Number(number) => Some(format!("{kind}/{number}")),
            serde_json::Value::String(name) => Some(format!("{kind}/{name}")),
            _ => None,
        };
        let subject = named("command", "commands")
            .or_else(|| named("task", "tasks"))
            .or_else(|| named("request", "requests"))
            .or_else(|| named("name", "grants").filter(|_| event.kind.starts_with("grant.")));
        let session = event.session.as_ref();
        Self {
            specversion: "1.0".into(),
            id: event.id.to_string(),
            source: session.map_or_else(|| "/daemon".into(), |id| format!("/sessions/{id}")),
            subject,
            seq: event.id,
            kind: event.kind,
            time: event.time,
            datacontenttype: "application/json".into(),
            data: event.data,
        }
    }
}

/// A file or folder of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Its name.
    pub name: Raw,
    /// `file`, `folder`, `link` or `other`.
    #[schemars(extend("enum" = ["file", "folder", "link", "other"]))]
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// When it was changed.
    #[schemars(extend("format" = "date-time"))]
    pub modified: String,
}

/// What happened to a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileChangeKind {
    /// It is there now.
    Created,
    /// Its contents are others.
    Changed,
    /// Whoever could write to it has closed it.
    Written,
    /// It is there no more.
    Removed,
    /// It came from another place that is watched.
    Moved,
}

/// Something that changed in a folder of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// What happened.
    pub kind: FileChangeKind,
    /// Where, below the folder that is watched.
    pub path: Raw,
    /// Where it was before, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Raw>,
    /// Whether it is a folder.
    pub folder: bool,
}

/// A path in both views.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Translated {
    /// On the host.
    pub host: Raw,
    /// In the session.
    pub session: Raw,
}

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

/// A path in both views.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Translated {
    /// On the host.
    pub host: Raw,
    /// In the session.
    pub session: Raw,
}

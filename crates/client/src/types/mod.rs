//! What is sent to the daemon and what it answers.

mod agents;
mod changes;
mod commands;
mod grants;
mod network;
mod records;
mod requests;
mod secrets;
mod sessions;
mod tasks;

pub use agents::{
    Agent, AgentCredential, AgentOptions, AgentSecret, AgentSource, AgentStep, AgentTask,
    PreparedAgent, TaskProtocol,
};
pub use changes::{
    Apply, Change, ChangeConflict, ChangeKind, ChangeMark, ChangeSet, ChangedBy, ChangedFile,
    ChangedFolder, Changes, Difference, Discard, Discarded, History, MarkKind, NamePolicy,
    NewProtectedName, OnConflict, ProtectedName, Redo, Restored, RestoredName, Retention,
    RuleOrigin, SessionHistory, SetKind, Undo, WantedCaps, WantedGuards, WantedQuota, WantedWrites,
};
pub use commands::{
    Cancel, Command, CommandState, CommandUsage, NewCommand, Reason, SignalCommand, Size,
    StreamKind, Streams, UsageOfCommand, Whom,
};
pub use grants::{Access, Grant, GrantChange, NewGrant, Regranted, Revoked};
pub use network::{
    Egress, HostTraffic, NamedRule, Network, NetworkBrief, NetworkChange, NetworkExplanation,
    NetworkFlow, NetworkNotice, NetworkRefusal, NetworkRule, NetworkTarget, Otherwise, ParentProxy,
    Preset, Publish, PublishedPort, RuleAction, TlsTreatment, Traffic, WantedNetwork,
};
pub use records::{
    AuditProblem, CloudEvent, Event, FileChange, FileChangeKind, FileEntry, Record, Translated,
    Verified,
};
pub use requests::{Ask, Asked, Asker, Decide, Decision, NewRequest, Request, RequestState};
pub use secrets::{
    NewSecret, Renewal, RenewalEncoding, RenewalState, Secret, SecretFile, SecretMode,
    SessionSecret,
};
pub use sessions::{
    CommandBrief, Enforced, Life, Limit, NewSession, PlaceName, Process, Processes, Profile,
    ReplacedFile, Sandbox, Session, SessionChange, State, Usage, WantedLimits, WantedSkills,
    WantedView, WritableAs, WritablePlace,
};
pub use tasks::{
    Approvals, NewTask, PlanState, PlanStep, Steer, Task, TaskChange, TaskHost, TaskMessage,
    TaskMessageKind, TaskRefusal, TaskRefusedChange, TaskRequest, TaskState, TaskSummary,
    TaskUsage,
};

use base64::Engine as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The id of a session.
const ID: &str = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$";
/// The name of a folder in a session. Control characters, characters that reorder what surrounds
/// them, and blanks at either end are refused as well.
const NAME: &str = "^[^./:-][^/:]*$";
/// A number of bytes.
const BYTES: &str = "^[0-9]+([kKmMgGtT]([iI]?[bB])?|[bB])?$";
/// A span of time.
const SPAN: &str = "^[0-9]+(ms|s|m|h|d)?$";
/// SHA-256.
const HASH: &str = "^[0-9a-f]{64}$";
/// The one base64 of some bytes.
const BASE64: &str = concat!(
    "^([A-Za-z0-9+/]{4})*",
    "([A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$"
);

/// Names and values that a user attaches to a session.
pub type Labels = BTreeMap<String, String>;

/// Bytes that a person wrote: a path, an argument, a value. A string, or `{"base64": "…"}` where
/// they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Raw {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Coded {
        /// The bytes in base64.
        #[schemars(regex(pattern = BASE64), extend("contentEncoding" = "base64"))]
        base64: String,
    },
}

impl Raw {
    /// The text that says these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        match String::from_utf8(bytes.into()) {
            Ok(text) => Self::Text(text),
            Err(error) => {
                let base64 = base64::engine::general_purpose::STANDARD.encode(error.as_bytes());
                Self::Coded { base64 }
            }
        }
    }

    /// The bytes, or `None` if the base64 is none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.as_bytes().to_vec()),
            Self::Coded { base64 } => base64::engine::general_purpose::STANDARD.decode(base64).ok(),
        }
    }

    /// For people; what is not UTF-8 is shown as such.
    pub fn lossy(&self) -> String {
        self.bytes().map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Who answers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Info {
    /// The daemon's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it started.
    #[schemars(extend("format" = "date-time"))]
    pub started: String,
    /// The user whose sessions it keeps.
    pub user: u32,
    /// How sessions are isolated: `native`.
    #[schemars(extend("enum" = ["native"]))]
    pub tier: String,
    /// The folder with everything it keeps.
    pub state: Raw,
    /// How many sessions live.
    pub live: u32,
    /// Sessions that are made in advance.
    pub pooled: u32,
    /// Seconds without a live session and without a client after which it leaves.
    pub idle_exit: u64,
    /// The process id of the keeper.
    pub keeper: Option<i32>,
    /// How long changes of sessions that are gone can be undone.
    pub changes: Retention,
}

/// One fact about the host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub value: String,
    /// `good`, `reduced` or `blocking`.
    #[schemars(extend("enum" = ["good", "reduced", "blocking"]))]
    pub grade: String,
    /// What follows.
    pub consequence: String,
    /// What to do about it.
    pub fix: String,
}

/// A part of a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next part starts, if there is one: give it as `cursor`.
    pub next: Option<String>,
}

/// A part of the list of events.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Part<T> {
    /// The events.
    pub items: Vec<T>,
    /// Where the next part starts: give it as `after`.
    pub next: Option<String>,
    /// What would have come before them and is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

/// Events that are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The number of the first.
    pub from: u64,
    /// The number of the last.
    pub to: u64,
}

/// Why something was refused or failed (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The kind of problem, stable between versions: `urn:cowork:problem:` and the code.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = r"^urn:cowork:problem:[a-z-]+$"))]
    pub kind: String,
    /// The code alone.
    #[schemars(regex(pattern = r"^[a-z-]+$"))]
    pub code: String,
    /// What went wrong, in a sentence.
    pub title: String,
    /// The HTTP status.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

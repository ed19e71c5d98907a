//! Folders of the user in a session.

use super::{NAME, Process, Raw, WantedWrites};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a session may do with a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Access {
    /// Read and list.
    #[serde(rename = "ro")]
    Read,
    /// Also create, change and delete; every change is recorded and can be undone.
    #[serde(rename = "rw")]
    Write,
    /// Also create, change and delete, without a record.
    #[serde(rename = "direct")]
    Direct,
    /// Changes stay beside the folder until they are applied.
    #[serde(rename = "staged")]
    Staged,
}

impl Access {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "ro",
            Self::Write => "rw",
            Self::Direct => "direct",
            Self::Staged => "staged",
        }
    }
}

/// A folder to grant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    /// Where it lies on the host; absolute.
    pub path: Raw,
    /// What the session may do with it.
    #[serde(default = "write")]
    pub access: Access,
    /// Its name in the session; that of the folder without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub name: Option<String>,
    /// Whether it is meant although the place is sensitive.
    #[serde(default)]
    pub force: bool,
    /// With `rw`: folders below it that are writable without a record, e.g. `node_modules`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub direct: Vec<Raw>,
    /// With `rw` and `staged`: what is allowed; what is not named is as for the session.
    #[serde(default, skip_serializing_if = "WantedWrites::is_empty")]
    pub writes: WantedWrites,
    /// When it is revoked by itself, e.g. `2026-01-31T08:00:00Z`; with the session without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time", "pattern" = "Z$"))]
    pub expires: Option<String>,
}

fn write() -> Access {
    Access::Write
}

/// Another access for a granted folder.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantChange {
    /// What the session may do with it from now on.
    pub access: Access,
    /// What is allowed where changes are recorded, in place of what was; as it is without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<WantedWrites>,
    /// When it is revoked by itself, or `never`; as it is without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// A granted folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Its name in the session.
    pub name: String,
    /// Where it lies on the host.
    pub path: Raw,
    /// Where it appears in the session.
    pub at: String,
    /// What the session may do with it.
    pub access: Access,
    /// When it was granted.
    #[schemars(extend("format" = "date-time"))]
    pub granted: String,
    /// Mounts inside it that came along, by their path on the host.
    pub submounts: Vec<Raw>,
    /// The request that it answers.
    pub request: Option<u64>,
    /// Why the place is sensitive, where it is.
    pub sensitive: Option<String>,
    /// Folders below it that are writable without a record.
    #[serde(default)]
    pub direct: Vec<Raw>,
    /// What is allowed, where that differs from what the session as a whole has.
    #[serde(default)]
    pub writes: WantedWrites,
    /// When it is revoked by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expires: Option<String>,
}

/// What a revocation did.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// The grant's name.
    pub name: String,
    /// Processes that held on to the folder and were killed.
    pub killed: Vec<Process>,
    /// How sure it is that nothing holds on: `kernel`, `scan`, `session ended`, `not running`, or
    /// `unchanged` where nothing had to be taken away.
    #[schemars(extend("enum" = ["kernel", "scan", "session ended", "not running", "unchanged"]))]
    pub certainty: String,
}

/// A changed grant, and what the change did.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Regranted {
    /// The grant as it is now.
    pub grant: Grant,
    /// What taking the old one away did.
    pub revoked: Revoked,
}

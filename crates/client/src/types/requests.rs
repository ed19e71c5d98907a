//! What sessions ask for, and what the user answers.

use super::{Access, ID, NAME, Raw};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that waits for the user's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Its number.
    #[schemars(range(min = 1))]
    pub id: u64,
    /// The session that asks.
    #[schemars(regex(pattern = ID))]
    pub session: String,
    /// Which program in the session asks for a folder, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Asker>,
    /// What it asks for: a `folder`, to reach a `host`, to change a `file`, or to use a `tool`.
    #[schemars(extend("enum" = ["folder", "host", "file", "tool"]))]
    pub kind: String,
    /// What it wants, in its own words; the host and port it wants to reach; the path of the file;
    /// the tool and what it would be given.
    pub wanted: String,
    /// Why, in its own words; what is sent to the host first, and by which program; what is about
    /// to be done to the file, by which program, and why that is asked; the task that needs the tool.
    pub reason: String,
    /// What it wants to do with it; of a host or a file it says nothing.
    pub access: Access,
    /// Where it is in its life.
    pub state: RequestState,
    /// When it was asked.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// When it was answered.
    #[schemars(extend("format" = "date-time"))]
    pub decided: Option<String>,
    /// The answer.
    pub decision: Option<Decision>,
    /// A word of the user's to the one who asked.
    pub note: Option<String>,
    /// The name of the grant that came of it.
    pub grant: Option<String>,
}

/// A program in a session that asks for something: a process that had the connection open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Asker {
    /// Its process id on the host, at that moment.
    pub pid: i32,
    /// Its process id in the session.
    pub inside: Option<i32>,
    /// Its name, as it calls itself: a program can give itself any name.
    pub program: String,
    /// The command that it belongs to.
    pub command: Option<u32>,
}

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// Nobody has answered.
    Pending,
    /// The user said yes.
    Allowed,
    /// The user said no.
    Rejected,
    /// The session ended first, or nothing waits for the answer any more.
    Expired,
}

/// The user's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, this once.
    AllowOnce,
    /// Yes, and the same again in this session.
    AllowSession,
    /// Yes, and the same again in any session.
    AllowAlways,
    /// No, this once.
    RejectOnce,
    /// No, and no again to the same.
    RejectAlways,
}

/// An answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Yes or no.
    pub decision: Decision,
    /// The folder that is meant; needed to say yes to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Raw>,
    /// Its name in the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub name: Option<String>,
    /// What the session may do with it; what it asked for without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Whether it is meant although the place is sensitive.
    #[serde(default)]
    pub force: bool,
    /// A word to the one who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2000))]
    pub note: Option<String>,
}

/// From inside a session: a wish for a folder. It is described, never named by path.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What is wanted, e.g. "the folder with last year's invoices".
    #[schemars(length(min = 1, max = 2000))]
    pub wanted: String,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// What to do with it.
    #[serde(default = "read")]
    pub access: Access,
    /// Seconds to wait for the answer before returning the request as it is; at most 600.
    #[serde(default)]
    pub wait: u64,
}

fn read() -> Access {
    Access::Read
}

/// On behalf of a session: a wish for a folder.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRequest {
    /// What is wanted, e.g. "the folder with last year's invoices".
    #[schemars(length(min = 1, max = 2000))]
    pub wanted: String,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// What to do with it.
    #[serde(default = "read")]
    pub access: Access,
    /// Where it probably lies on the host; absolute. The user sees it, and may choose another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Raw>,
    /// Seconds to wait for the answer before returning the request as it is; at most 600.
    #[serde(default)]
    #[schemars(range(max = 600))]
    pub wait: u64,
}

/// To the one who asked, inside or on behalf of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// The request's number.
    pub id: u64,
    /// Where it is in its life.
    pub state: RequestState,
    /// Where the folder is now, if the answer was yes.
    pub at: Option<String>,
    /// What may be done with it.
    pub access: Option<Access>,
    /// A word of the user's.
    pub note: Option<String>,
}

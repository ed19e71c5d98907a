//! What is kept about changes: beside the session while it is there, and by itself afterwards.

use cowork_client::types::{ChangedFolder, NamePolicy, Raw};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The changes of a session, as they are kept with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptChanges {
    /// The name of its store, if it has one.
    pub(crate) store: Option<String>,
    /// Rules about names that the user made.
    pub(crate) rules: Vec<KeptRule>,
    /// Questions of its broker that wait for the user, and the requests that stand for them.
    pub(crate) asks: BTreeMap<u64, u64>,
    /// How far the audit has come.
    pub(crate) audited: Audited,
}

/// A rule about names that the user made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptRule {
    pub(crate) pattern: String,
    pub(crate) policy: NamePolicy,
    pub(crate) reason: String,
    /// The grant it is about; all if there is none.
    pub(crate) grant: Option<String>,
}

/// A rule about names that stands for a folder of the host, in every session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StandingRule {
    /// The granted folder.
    pub(crate) folder: Raw,
    pub(crate) pattern: String,
    pub(crate) policy: NamePolicy,
    pub(crate) reason: String,
}

/// How far the audit of a session's changes has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Audited {
    /// The last record that was looked at.
    pub(crate) seq: u64,
    /// How long the log was then.
    pub(crate) length: u64,
    /// How many changes were spelled out.
    pub(crate) spelled: u64,
    /// Those beyond, by operation, that no record tells of yet.
    pub(crate) counted: BTreeMap<String, u64>,
}

/// A store, as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Entry {
    pub(crate) session: String,
    /// When the session was made: another one of the same id is another one.
    pub(crate) created: String,
    /// Which folder it is.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Every folder of the host that may have been changed.
    pub(crate) grants: Vec<ChangedFolder>,
    /// Whether changes of one of them were ever kept beside it.
    pub(crate) staged: bool,
    /// When the session was removed.
    pub(crate) ended: Option<String>,
    /// Whether it is being removed: whoever finds it goes on with that.
    #[serde(default)]
    pub(crate) removing: bool,
    /// Which command each set is of; filled in at the end.
    pub(crate) commands: BTreeMap<u32, u32>,
}

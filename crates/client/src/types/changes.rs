//! Changes to granted folders: what was done, and how it is taken back.

use super::{BYTES, ID, NAME, Raw};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is allowed where changes are recorded. What is not named gets a default, or what the
/// session as a whole has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedWrites {
    /// When to ask before going on.
    #[serde(skip_serializing_if = "WantedGuards::is_empty")]
    pub guards: WantedGuards,
    /// How much is saved of what is about to be lost.
    #[serde(skip_serializing_if = "WantedCaps::is_empty")]
    pub caps: WantedCaps,
    /// How much may be added to a folder.
    #[serde(skip_serializing_if = "WantedQuota::is_empty")]
    pub quota: WantedQuota,
    /// Endings of names that are refused, without the dot, in place of the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub blocked: Option<Vec<String>>,
    /// Endings that are refused too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub block: Vec<String>,
    /// Endings that are not refused after all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub unblock: Vec<String>,
    /// Whether such files are known by how they begin as well, whatever they are called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<bool>,
}

impl WantedWrites {
    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When to ask before a command goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedGuards {
    /// After so many files that were there before were removed or overwritten in one set; 0 for
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removals: Option<u32>,
    /// After this part of the folder's files, in percent; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub share: Option<u8>,
}

impl WantedGuards {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How much is saved of what is about to be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedCaps {
    /// Largest file that is copied, e.g. `64M`. What can be kept without copying has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub file: Option<String>,
    /// Most bytes that are copied for the session, e.g. `1G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub session: Option<String>,
    /// Whether the user is asked before something is done that cannot be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<bool>,
}

impl WantedCaps {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How much a session may add to a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedQuota {
    /// Bytes, e.g. `2G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub bytes: Option<String>,
    /// Files, folders and links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

impl WantedQuota {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What changed in a session's granted folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// The session.
    #[schemars(regex(pattern = ID))]
    pub session: String,
    /// The sets that were looked at, the oldest first.
    pub sets: Vec<ChangeSet>,
    /// Every name that is not as it was, by grant and path.
    pub changes: Vec<Change>,
}

/// A set of changes: those of one command, one undo, or one application of staged changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeSet {
    /// Its number in the session.
    #[schemars(range(min = 1))]
    pub set: u32,
    /// What it comes from.
    pub kind: SetKind,
    /// The sets that it undid.
    pub undoes: Vec<u32>,
    /// The number of the command, where it is known.
    pub command: Option<u32>,
    /// Its first process, by its id in the session; none of an undo and of what was applied.
    #[serde(default)]
    pub process: Option<u32>,
    /// The task that the command worked on as its agent, if it did.
    #[serde(default)]
    pub task: Option<u32>,
    /// Its words, as far as they are kept.
    pub argv: Vec<Raw>,
    /// When the first change was made.
    #[schemars(extend("format" = "date-time"))]
    pub began: String,
    /// When the last one was.
    #[schemars(extend("format" = "date-time"))]
    pub last: String,
    /// How many records it has.
    pub records: u64,
    /// The set that undid it, if one did and was not undone itself.
    pub undone_by: Option<u32>,
    /// The folders that it touched.
    pub folders: Vec<ChangedFolder>,
}

/// What a set comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SetKind {
    /// A command of the session and what it started.
    Command,
    /// An undo, or a redo.
    Undo,
    /// Staged changes that were applied.
    Apply,
}

/// A folder of the host in which something was changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFolder {
    /// The grant's name.
    pub grant: String,
    /// Where it lies on the host.
    pub path: Raw,
}

/// One name that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The grant's name.
    pub grant: String,
    /// The path below the granted folder.
    pub path: Raw,
    /// The path on the host.
    pub host: Raw,
    /// What became of it.
    pub kind: ChangeKind,
    /// The path it had, below the same folder, if it was renamed.
    pub from: Option<Raw>,
    /// Whether its contents are others; of what was renamed, too.
    pub modified: bool,
    /// What it is.
    pub file: ChangedFile,
    /// Its size before, of files.
    pub before: Option<u64>,
    /// Its size now.
    pub after: Option<u64>,
    /// In which sets it changed.
    pub sets: Vec<u32>,
    /// Which programs changed it, in the order in which they did; of many the last sixteen.
    #[serde(default)]
    pub by: Vec<ChangedBy>,
    /// What a person should know.
    pub marks: Vec<ChangeMark>,
}

/// A program that changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedBy {
    /// The set that the change belongs to.
    pub set: u32,
    /// The process, by its id in the session.
    pub process: u32,
    /// Its words when it was seen, as far as they are kept.
    pub argv: Vec<Raw>,
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its contents are others.
    Modified,
    /// It is gone.
    Deleted,
    /// It had another name.
    Renamed,
    /// Only its mode, owner, times or attributes are others.
    Attributes,
}

/// What a changed name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangedFile {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// What a person should know about a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeMark {
    /// What it is about.
    pub mark: MarkKind,
    /// Why, where that is not obvious.
    pub reason: Option<String>,
}

/// What a mark is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// It cannot be undone.
    NotUndoable,
    /// The host may execute it.
    RunsHere,
    /// Its name is protected.
    Protected,
    /// The user has changed it since.
    Conflict,
    /// It is of a type that is refused, which was not seen before it was written.
    RefusedType,
}

/// The difference of one name's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The change.
    pub change: Change,
    /// In unified form, of text.
    pub text: Option<String>,
    /// What is said instead of it.
    pub note: Option<String>,
}

/// What to do where the user has changed something since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Do nothing at all, and say where.
    #[default]
    Refuse,
    /// Leave what the user has now.
    Ours,
    /// Bring back what was; what the user has now can be had again by a redo.
    Theirs,
    /// Bring back what was, and keep what the user has now beside it under another name.
    Both,
}

/// What is to be undone. Without sets: of the last set that is not undone; with paths, of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
pub struct Undo {
    /// Only these names and everything below them: paths of the host, or of the session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub paths: Vec<Raw>,
    /// Of these sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub sets: Vec<u32>,
    /// Of all sets.
    pub all: bool,
    /// What to do where the user has changed something since.
    pub on_conflict: OnConflict,
    /// Whether it is only tried.
    pub dry_run: bool,
}

/// How the last undo is to be undone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redo {
    /// What to do where the user has changed something since.
    pub on_conflict: OnConflict,
    /// Whether it is only tried.
    pub dry_run: bool,
}

/// Which staged changes are to be carried over into their folders.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Apply {
    /// Only these names and everything below them: paths of the host, or of the session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub paths: Vec<Raw>,
    /// What to do where the user has changed something since.
    pub on_conflict: OnConflict,
    /// Whether it is only tried.
    pub dry_run: bool,
}

/// Which staged changes are to be thrown away.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Discard {
    /// Only those of these granted folders: paths of the host, or of the session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub paths: Vec<Raw>,
}

/// The staged changes of which folders were thrown away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Discarded {
    /// The folders.
    pub folders: Vec<ChangedFolder>,
}

/// What an undo, redo or apply did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    /// The set that it made, by which it can be undone itself; none if it was only tried.
    pub set: Option<u32>,
    /// How many names it brought back.
    pub names: u64,
    /// What it brought back, and in which way: the first thousand.
    pub done: Vec<RestoredName>,
    /// Where the user has changed something since, and what was done about it.
    pub conflicts: Vec<ChangeConflict>,
    /// What could not be brought back, and why.
    pub lost: Vec<RestoredName>,
}

/// A name, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoredName {
    /// The path on the host.
    pub host: Raw,
    /// In which way, or why not.
    pub how: String,
}

/// Something that the user has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeConflict {
    /// The path on the host.
    pub host: Raw,
    /// What is there now.
    pub now: String,
    /// What would be brought back.
    pub before: String,
    /// What was done.
    pub outcome: String,
}

/// Sessions that changed something, and how long that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// How long and how much.
    pub kept: Retention,
    /// How many bytes of disk are taken, of all sessions.
    pub bytes: u64,
    /// Sessions, the newest first.
    pub sessions: Vec<SessionHistory>,
}

/// How long changes of sessions that are gone can be undone. The oldest are forgotten first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Retention {
    /// Days after the end of the session.
    pub days: u32,
    /// Most bytes, of all sessions together.
    pub bytes: u64,
}

/// The change sets of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionHistory {
    /// The session.
    #[schemars(regex(pattern = ID))]
    pub session: String,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// When it was removed, if it was.
    #[schemars(extend("format" = "date-time"))]
    pub ended: Option<String>,
    /// Its sets, the oldest first.
    pub sets: Vec<ChangeSet>,
}

/// What happens to a change of a protected name. Later ones are stricter.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NamePolicy {
    /// Nothing.
    Allow,
    /// It is marked among the changes.
    Flag,
    /// The user is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// A rule about names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectedName {
    /// Which names: components with `*`, `?` and `**`, at any depth unless it starts with `/`.
    pub pattern: String,
    /// What happens to changes.
    pub policy: NamePolicy,
    /// Why.
    pub reason: String,
    /// The granted folder it is about; all if there is none.
    pub grant: Option<String>,
    /// Where it comes from.
    pub origin: RuleOrigin,
}

/// Where a rule about names comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleOrigin {
    /// Every session has it.
    Default,
    /// The user made it for this session.
    Session,
    /// The user said so for always, about the folder.
    Always,
}

/// A rule about names to add.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProtectedName {
    /// Which names: components with `*`, `?` and `**`, at any depth unless it starts with `/`.
    #[schemars(length(min = 1, max = 1024))]
    pub pattern: String,
    /// What happens to changes.
    pub policy: NamePolicy,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
    /// The granted folder it is about; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub grant: Option<String>,
}

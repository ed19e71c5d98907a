//! Sessions: what they are made of, and what they use.

use super::{
    BYTES, Grant, ID, Labels, NAME, NamePolicy, NetworkBrief, NewGrant, Raw, SPAN, SessionSecret,
    WantedNetwork, WantedWrites,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A set of walls around a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// No namespaces and no mounts inside; Landlock rules for files.
    #[default]
    Strict,
    /// For programs that bring a sandbox of their own.
    Nested,
}

/// How long a session lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    /// Until it is removed.
    #[default]
    Kept,
    /// Until its first command has ended or whoever is attached to that leaves; its home is in
    /// memory, and nothing of it stays but the record.
    Once,
}

/// A session to make.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
pub struct NewSession {
    /// Its id; made up without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 63), regex(pattern = ID))]
    pub id: Option<String>,
    /// Its walls.
    pub profile: Profile,
    /// Whether debuggers work in it.
    pub debugger: bool,
    /// Folders to grant.
    #[schemars(length(max = 256))]
    pub grants: Vec<NewGrant>,
    /// What it may use; what is not named gets a default that fits the host.
    pub limits: WantedLimits,
    /// Whether limits are good enough that the host can only approximate.
    pub best_effort: bool,
    /// Names and values of the user's.
    #[schemars(extend("maxProperties" = 64))]
    pub labels: Labels,
    /// How long it lives.
    pub life: Life,
    /// A folder of the host to keep its home in, instead of the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Raw>,
    /// A folder of the host to show as `mnt/outputs`, instead of the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Raw>,
    /// A name at the top of its file system that leads to the first granted folder, e.g.
    /// `workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub workspace: Option<String>,
    /// What it may reach; without it, it has no network at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<WantedNetwork>,
    /// Secrets of its own: their hosts are reached with them, as with those that its network names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub secrets: Vec<SessionSecret>,
    /// What is allowed in folders whose changes are recorded.
    #[serde(skip_serializing_if = "WantedWrites::is_empty")]
    pub writes: WantedWrites,
    /// Rules about names in all of those folders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub protect: Vec<PlaceName>,
    /// Nobody is there to be asked about files: what would wait for an answer is refused at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,
    /// Shows it the host's files at their own paths; without it, it sees only what it is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<WantedView>,
    /// A folder of the host to show read-only as `mnt/skills`; without it nothing is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<WantedSkills>,
}

/// What an agent is to know how to do, for it to read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedSkills {
    /// The folder on the host.
    pub path: Raw,
    /// Show it even if it is in a sensitive place.
    #[serde(default)]
    pub force: bool,
}

/// The host's files as a session sees them: all of them, read-only, at their own paths, but for what
/// is named here. A path counts with everything below it, and of two the deeper one counts. Paths are
/// absolute and free of symbolic links; each is named once. The daemon's own folders and `/run`,
/// `/proc`, `/sys` and `/dev` of the host are never seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedView {
    /// Files and folders of which nothing is seen: they are empty. One that does not exist is left
    /// out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub hidden: Vec<Raw>,
    /// Files and folders that are seen read-only all the same, in hidden or writable ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub shown: Vec<Raw>,
    /// Files and folders that can be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub writable: Vec<WritablePlace>,
    /// Folders that are private, writable, in memory, and empty to begin with. One is there on the
    /// host, or lies in another of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub scratch: Vec<Raw>,
    /// Files that have other contents in the session, read-only. One that does not exist is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub replaced: Vec<ReplacedFile>,
}

/// A file or folder of the host that a session may change, at its own path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WritablePlace {
    /// Where it is, on the host and in the session.
    pub path: Raw,
    /// How it is changed.
    #[serde(default)]
    pub access: WritableAs,
    /// Whether it is meant although the place is sensitive.
    #[serde(default)]
    pub force: bool,
    /// With `rw`: rules about names in place of the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub names: Option<Vec<PlaceName>>,
    /// With `rw`: what is allowed; what is not named is as for the session.
    #[serde(default, skip_serializing_if = "WantedWrites::is_empty")]
    pub writes: WantedWrites,
}

/// How a place of the host's is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WritableAs {
    /// By the rules, and every change is recorded; a folder.
    #[default]
    #[serde(rename = "rw")]
    Write,
    /// Without rules and without a record; a file or a folder.
    #[serde(rename = "direct")]
    Direct,
}

/// A rule about names in granted folders, or in a place of the host's tree that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceName {
    /// Which names: components with `*`, `?` and `**`, at any depth unless it starts with `/`, which
    /// stands for the folder or place itself.
    #[schemars(length(min = 1, max = 1024))]
    pub pattern: String,
    /// What happens to a change.
    pub policy: NamePolicy,
    /// Why, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub reason: Option<String>,
}

/// A file with other contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacedFile {
    /// Where it is, on the host and in the session.
    pub path: Raw,
    /// What the session reads there.
    pub contents: Raw,
}

/// What a session may use. Absent fields are left as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedLimits {
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub processes: Option<u32>,
    /// Memory, e.g. `4G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub memory: Option<String>,
    /// Processors, e.g. `1.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?$"))]
    pub cpus: Option<String>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub open_files: Option<u32>,
    /// Scratch in memory: `/tmp` and the like, together, e.g. `2G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub scratch: Option<String>,
    /// Disk: home and outputs together, e.g. `10G`. The session is paused beyond it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = BYTES))]
    pub disk: Option<String>,
    /// Time until the session is stopped, e.g. `8h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub wall: Option<String>,
}

/// Changes of a session; absent fields are left as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionChange {
    /// Replaces all labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: Option<Labels>,
    /// Limits to change while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<WantedLimits>,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being made, or made again.
    Creating,
    /// It waits for commands.
    Ready,
    /// Commands run in it.
    Running,
    /// Its processes stand still.
    Paused,
    /// It has no processes; its home is kept and it can be started.
    Stopped,
    /// It could not be made or kept; the reason says why.
    Failed,
    /// It is over. What it left can be looked at until it is removed.
    Ended,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Its id.
    #[schemars(regex(pattern = ID))]
    pub id: String,
    /// Where it is in its life.
    pub state: State,
    /// Why it is there, where that is not obvious.
    pub reason: Option<String>,
    /// How it is isolated: `native`.
    #[schemars(extend("enum" = ["native"]))]
    pub tier: String,
    /// Its walls.
    pub profile: Profile,
    /// How long it lives.
    pub life: Life,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// When it last changed its state.
    #[schemars(extend("format" = "date-time"))]
    pub changed: String,
    /// Names and values of the user's.
    pub labels: Labels,
    /// Its own folder, in its own view; granted folders are in `mnt` below.
    pub folder: String,
    /// Where deliverables appear on the host.
    pub outputs: Option<Raw>,
    /// Where uploads lie on the host.
    pub uploads: Option<Raw>,
    /// Folders it sees.
    pub grants: Vec<Grant>,
    /// How each limit is kept.
    pub limits: Vec<Limit>,
    /// Which protection is in force, as observed.
    pub enforcement: Vec<Enforced>,
    /// Its sandbox, while there is one.
    pub sandbox: Option<Sandbox>,
    /// Commands that run.
    pub running: Vec<CommandBrief>,
    /// How many commands were ever started.
    pub commands: u32,
    /// How many requests wait for an answer.
    pub pending: u32,
    /// Its network, if it has one.
    #[serde(default)]
    pub network: Option<NetworkBrief>,
    /// The folder of the host that it sees as `mnt/skills`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Raw>,
}

/// The sandbox of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// The process id of its PID 1, on the host.
    pub pid: i32,
    /// Whether PID 1 answered the last heartbeat.
    pub connected: bool,
    /// Heartbeats missed in a row.
    pub missed: u32,
    /// How often it was made again after a failure.
    pub restarts: u32,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// A command in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CommandBrief {
    /// Its number in the session.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// Its words.
    pub argv: Vec<Raw>,
}

/// One layer of protection.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Enforced {
    /// Which.
    pub layer: String,
    /// `in force`, `absent` or `left out`.
    #[schemars(extend("enum" = ["in force", "absent", "left out"]))]
    pub state: String,
    /// What was seen that says so.
    pub observed: String,
}

/// How a limit is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Which.
    pub limit: String,
    /// How much, for people.
    pub value: String,
    /// `enforced`, `best-effort` or `none`.
    #[serde(deserialize_with = "strength")]
    #[schemars(extend("enum" = ["enforced", "best-effort", "none"]))]
    pub strength: String,
    /// By what means.
    pub means: String,
}

/// How strongly a limit is kept, also as earlier versions spelled it.
fn strength<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    Ok(if text == "best effort" { "best-effort".to_owned() } else { text })
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its id on the host.
    pub pid: i32,
    /// Its id in the session, where it is known.
    pub inside: Option<i32>,
    /// Its name.
    pub name: String,
}

/// Whether a process runs in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Processes {
    /// Whether one does that was meant.
    pub running: bool,
    /// Those that were meant, at most 256.
    pub processes: Vec<Process>,
}

/// What a session uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// When this was measured.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// CPU microseconds of everything that runs or ran in it, also before its sandbox was made again.
    pub cpu_us: u64,
    /// Bytes of memory now.
    pub memory: u64,
    /// Most bytes of memory at any moment that is known.
    pub memory_peak: u64,
    /// Bytes read from storage, of all that runs or ran in it.
    pub read: u64,
    /// Bytes written to storage, of all that runs or ran in it.
    pub written: u64,
    /// Bytes of scratch in memory.
    pub scratch: u64,
    /// Bytes on disk: home and outputs.
    pub disk: u64,
    /// How many processes there are.
    pub processes: u32,
    /// The first of them.
    pub listed: Vec<Process>,
    /// Milliseconds in which it had a sandbox, also before its sandbox was made again.
    pub wall_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn a_strength_is_known_as_it_was_spelled_before() {
        for (spelled, known) in
            [("best effort", "best-effort"), ("best-effort", "best-effort"), ("none", "none")]
        {
            let text = format!(
                r#"{{ "limit": "memory", "value": "1G", "strength": "{spelled}", "means": "" }}"#
            );
            let limit: Limit = serde_json::from_str(&text).expect("it is one");
            assert_eq!(limit.strength, known);
        }
    }
}

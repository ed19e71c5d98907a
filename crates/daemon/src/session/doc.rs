//! What the catalogue keeps of a session, and how it is shown.

use super::remove::Leave;
use super::used::Used;
use super::view::KeptView;
use crate::book::now;
use crate::changes::KeptChanges;
use crate::network::KeptNetwork;
use crate::trouble::Trouble;
use cowork_api::keeper::Hits;
use cowork_api::keeper::{LayerState, Status, Strength};
use cowork_api::plan::{Identity, Writing};
use cowork_client::types::{
    Access, Enforced, Grant, Labels, Life, Limit, Profile, Raw, State, WantedLimits, WantedNetwork,
    WantedWrites,
};
use cowork_policy::plan::{GrantRequest, Home, SessionRequest, Strictness};
use cowork_policy::seccomp::{self, Debugging};
use cowork_policy::{Bytes, Cpus, GrantName, HostPath, HostSize, Limits, SessionId, Span};
use cowork_session::life;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A session, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Doc {
    pub(crate) id: String,
    pub(crate) state: life::State,
    pub(crate) reason: Option<String>,
    pub(crate) created: String,
    pub(crate) changed: String,
    pub(crate) spec: Spec,
    pub(crate) grants: Vec<KeptGrant>,
    pub(crate) sandbox: Option<KeptSandbox>,
    pub(crate) restarts: u32,
    pub(crate) enforcement: Vec<Enforced>,
    pub(crate) limits: Vec<Limit>,
    /// How many commands were ever started.
    pub(crate) commands: u32,
    /// When its sandbox was first there; one that never was is nobody's.
    #[serde(default)]
    pub(crate) made: Option<String>,
    /// It is being removed, but for this: whoever finds it goes on with that.
    #[serde(default)]
    pub(crate) removing: Option<Leave>,
    /// What came of its network, if it has one.
    #[serde(default)]
    pub(crate) network: KeptNetwork,
    /// What came of its changes.
    #[serde(default)]
    pub(crate) changes: KeptChanges,
    /// What it has used.
    #[serde(default)]
    pub(crate) used: Used,
}

/// What the user asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API")]
pub(crate) struct Spec {
    pub(crate) profile: Profile,
    pub(crate) debugger: bool,
    pub(crate) limits: WantedLimits,
    pub(crate) best_effort: bool,
    pub(crate) labels: Labels,
    pub(crate) life: Life,
    pub(crate) home: Option<Raw>,
    pub(crate) outputs: Option<Raw>,
    /// Which folders those were when the user named them: device and inode.
    #[serde(default)]
    pub(crate) home_is: Option<(u64, u64)>,
    #[serde(default)]
    pub(crate) outputs_is: Option<(u64, u64)>,
    pub(crate) workspace: Option<String>,
    /// What it may reach; none is no network.
    #[serde(default)]
    pub(crate) network: Option<WantedNetwork>,
    /// What is allowed where changes are recorded.
    #[serde(default)]
    pub(crate) writes: WantedWrites,
    /// Whether nobody is there to be asked about files.
    #[serde(default)]
    pub(crate) headless: bool,
    /// The host's files, if it shows them.
    #[serde(default)]
    pub(crate) view: Option<KeptView>,
    /// What it sees as its skills.
    #[serde(default)]
    pub(crate) skills: Option<KeptSkills>,
}

/// A folder that a session sees as its skills.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSkills {
    pub(crate) path: Raw,
    /// Which folder that was when the user named it: device and inode.
    pub(crate) is: (u64, u64),
    /// Why it is sensitive, if it is: the user meant it.
    pub(crate) sensitive: Option<String>,
}

/// The sandbox of a session, as it was last seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSandbox {
    pub(crate) pid: i32,
    pub(crate) since: String,
    /// How often it met its limits, as far as that is recorded.
    #[serde(default)]
    pub(crate) hits: Hits,
    /// When it was last found to have met its limit on memory, if it is not known yet which command
    /// that ended.
    #[serde(default)]
    pub(crate) short_of_memory: Option<String>,
}

impl KeptSandbox {
    /// One that was just made, and is as its first process says.
    pub(crate) fn new(pid: i32, since: String) -> Self {
        Self { pid, since, hits: Hits::default(), short_of_memory: None }
    }

    /// Whether it is the same one.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.since == other.since
    }
}

/// A grant, and how far it has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptGrant {
    pub(crate) grant: Grant,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) phase: Phase,
}

/// How far a grant has come. What is on its way is finished by the next daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Adding,
    Granted,
    /// It gets the access that is written down, and may have another one yet.
    Changing,
    Removing,
}

impl KeptGrant {
    pub(crate) fn identity(&self) -> Identity {
        Identity { device: self.device, inode: self.inode }
    }

    /// As policy wants it.
    pub(crate) fn request(&self, writing: Writing) -> Result<GrantRequest, Trouble> {
        let name: GrantName =
            self.grant.name.parse().map_err(|error: cowork_policy::GrantNameError| {
                Trouble::malformed(error.to_string())
            })?;
        Ok(GrantRequest {
            path: host_path(&self.grant.path)?,
            folder: self.identity(),
            access: access(self.grant.access),
            name,
            writing,
        })
    }
}

impl Doc {
    /// What becomes of it when something happens, and what is told of that; nothing if it stays as it
    /// is.
    pub(super) fn next(
        &self,
        event: life::Event,
        reason: Option<&str>,
    ) -> Result<Option<(Self, Value)>, life::Misfit> {
        let after = self.state.after(event)?;
        if after == self.state && self.reason.as_deref() == reason {
            return Ok(None);
        }
        let told = json!({ "from": self.state.name(), "to": after.name(), "reason": reason });
        let mut next = self.clone();
        next.state = after;
        next.reason = reason.map(ToOwned::to_owned);
        next.changed = now();
        if let life::Event::Made { .. } = event {
            next.made.get_or_insert_with(now);
        }
        if !after.is_live() {
            next.sandbox = None;
        }
        Ok(Some((next, told)))
    }

    /// The folder of the session, in its own view.
    pub(crate) fn folder(&self) -> String {
        format!("/sessions/{}", self.id)
    }

    /// Its id as policy knows it.
    pub(crate) fn session_id(&self) -> Result<SessionId, Trouble> {
        session_id(&self.id)
    }

    /// The request that policy compiles to a plan.
    pub(crate) fn request(
        &self,
        grants: Vec<GrantRequest>,
        home: Home,
    ) -> Result<SessionRequest, Trouble> {
        Ok(SessionRequest {
            id: self.session_id()?,
            profile: match self.spec.profile {
                Profile::Strict => seccomp::Profile::Strict,
                Profile::Nested => seccomp::Profile::Nested,
            },
            debugging: if self.spec.debugger { Debugging::Allowed } else { Debugging::Forbidden },
            grants,
            limits: limits(&self.spec.limits)?,
            strictness: if self.spec.best_effort {
                Strictness::BestEffort
            } else {
                Strictness::Enforce
            },
            home,
        })
    }

    /// Takes over what the keeper says of the sandbox.
    pub(crate) fn observe(&mut self, status: &Status) {
        self.enforcement = status.enforcement.iter().map(enforced).collect();
        self.limits = status.limits.iter().map(limit).collect();
        if let Some(disk) = &self.spec.limits.disk {
            self.limits.push(Limit {
                limit: "disk".into(),
                value: disk.clone(),
                strength: "best-effort".into(),
                means: "measured while it runs; the session is paused beyond it".into(),
            });
        }
    }
}

/// The state as the API says it.
pub(crate) fn state(state: life::State) -> State {
    match state {
        life::State::Creating => State::Creating,
        life::State::Ready => State::Ready,
        life::State::Running => State::Running,
        life::State::Paused => State::Paused,
        life::State::Stopped => State::Stopped,
        life::State::Failed => State::Failed,
        life::State::Ended => State::Ended,
    }
}

pub(crate) fn session_id(id: &str) -> Result<SessionId, Trouble> {
    id.parse().map_err(|error: cowork_policy::SessionIdError| {
        Trouble::malformed(error.to_string()).with_hint("e.g. `zealous-ramanujan`")
    })
}

pub(crate) fn access(access: Access) -> cowork_policy::Access {
    match access {
        Access::Read => cowork_policy::Access::Read,
        Access::Write => cowork_policy::Access::Write,
        Access::Direct => cowork_policy::Access::Direct,
        Access::Staged => cowork_policy::Access::Staged,
    }
}

/// A path from the API.
pub(crate) fn path(raw: &Raw) -> Result<PathBuf, Trouble> {
    let bytes = raw.bytes().ok_or_else(|| Trouble::malformed("a path is not valid base64"))?;
    if bytes.contains(&0) {
        return Err(Trouble::refused("bad-path", "a path contains a NUL"));
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

pub(crate) fn host_path(raw: &Raw) -> Result<HostPath, Trouble> {
    let path = path(raw)?;
    HostPath::new(&path).map_err(|error| {
        let sentence = format!("`{}` is no path of this host: {error}", path.display());
        Trouble::refused("bad-path", sentence).with_hint("write an absolute path")
    })
}

/// A path for the API.
pub(crate) fn raw(path: &Path) -> Raw {
    Raw::new(path.as_os_str().as_bytes())
}

/// How large the host is: looked at once.
static SIZE: OnceLock<HostSize> = OnceLock::new();

/// The limits that a session gets, checked against this host.
pub(crate) fn limits(wanted: &WantedLimits) -> Result<Limits, Trouble> {
    let size = *SIZE.get_or_init(cowork_sandbox::host::size);
    let mut limits = Limits::scaled_to(&size);
    let refused = |error: &dyn std::fmt::Display| Trouble::refused("bad-limit", error.to_string());
    if let Some(value) = wanted.processes {
        limits.processes = cowork_policy::Limit::asked(value);
    }
    if let Some(value) = &wanted.memory {
        let value: Bytes = value.parse().map_err(|error| refused(&error))?;
        limits.memory = cowork_policy::Limit::asked(value);
    }
    if let Some(value) = &wanted.cpus {
        let value: Cpus = value.parse().map_err(|error| refused(&error))?;
        limits.cpus = cowork_policy::Limit::asked(value);
    }
    if let Some(value) = wanted.open_files {
        limits.open_files = cowork_policy::Limit::asked(value);
    }
    if let Some(value) = &wanted.scratch {
        let value: Bytes = value.parse().map_err(|error| refused(&error))?;
        limits.scratch = cowork_policy::Limit::asked(value);
    }
    if let Some(value) = &wanted.wall {
        let value: Span = value.parse().map_err(|error| refused(&error))?;
        limits.wall = Some(value);
    }
    disk_limit(wanted)?;
    limits.check(&size).map_err(|error| refused(&error))?;
    Ok(limits)
}

/// The limit on disk, in bytes.
pub(crate) fn disk_limit(wanted: &WantedLimits) -> Result<Option<u64>, Trouble> {
    let Some(disk) = &wanted.disk else { return Ok(None) };
    let bytes: Bytes = disk.parse().map_err(|error: cowork_policy::BytesError| {
        Trouble::refused("bad-limit", error.to_string())
    })?;
    Ok(Some(bytes.get()))
}

/// What changed limits are, all together.
pub(crate) fn merged(old: &WantedLimits, new: &WantedLimits) -> WantedLimits {
    WantedLimits {
        processes: new.processes.or(old.processes),
        memory: new.memory.clone().or_else(|| old.memory.clone()),
        cpus: new.cpus.clone().or_else(|| old.cpus.clone()),
        open_files: new.open_files.or(old.open_files),
        scratch: new.scratch.clone().or_else(|| old.scratch.clone()),
        disk: new.disk.clone().or_else(|| old.disk.clone()),
        wall: new.wall.clone().or_else(|| old.wall.clone()),
    }
}

/// A layer, as it is shown.
fn enforced(layer: &cowork_api::keeper::Enforced) -> Enforced {
    Enforced {
        layer: cowork_policy::plan::layer_name(layer.layer).to_owned(),
        state: match layer.state {
            LayerState::InForce => "in force",
            LayerState::Absent => "absent",
            LayerState::LeftOut => "left out",
        }
        .into(),
        observed: layer.observed.clone(),
    }
}

fn limit(limit: &cowork_api::keeper::LimitState) -> Limit {
    Limit {
        limit: words(&format!("{:?}", limit.limit)),
        value: limit.value.clone(),
        strength: match limit.strength {
            Strength::Enforced => "enforced",
            Strength::BestEffort => "best-effort",
            Strength::None => "none",
        }
        .into(),
        means: limit.means.clone(),
    }
}

/// `OpenFiles` as `open files`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

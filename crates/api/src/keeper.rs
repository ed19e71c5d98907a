//! Messages between a client and its keeper.
//!
//! A call carries a number that comes back in its answer. Answers come in order; events about
//! sessions come in between.

use crate::{Text, plan};
use serde::{Deserialize, Serialize};

/// From a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Comes back in the answer.
    pub number: u32,
    /// What is asked.
    pub request: Request,
}

/// What a client can ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Make a session. Its command socket comes back beside the answer.
    Create(Box<plan::SessionPlan>),
    /// Get the command socket of a session again.
    Attach {
        /// Which.
        session: String,
    },
    /// Make a folder visible in a session.
    Grant {
        /// Which.
        session: String,
        /// What.
        grant: plan::Grant,
    },
    /// Take a folder away from a session, with whoever holds on to it.
    Revoke {
        /// Which.
        session: String,
        /// The grant's name.
        name: String,
    },
    /// Stop every process of a session where it is.
    Freeze {
        /// Which.
        session: String,
    },
    /// Let them go on.
    Thaw {
        /// Which.
        session: String,
    },
    /// End a session and everything in it.
    Destroy {
        /// Which.
        session: String,
    },
    /// What is in force in a session.
    Status {
        /// Which.
        session: String,
    },
    /// What this host can do.
    Survey,
}

/// To a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The answer to the call with this number.
    Answer {
        /// As sent.
        number: u32,
        /// What came of it.
        result: Result<Reply, Failure>,
    },
    /// A session ended without being asked to.
    SessionEnded {
        /// Which.
        session: String,
        /// Why.
        reason: EndReason,
    },
    /// The broker of a session died and was started again.
    BrokerRestarted {
        /// Which.
        session: String,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done, and nothing more to say.
    Done,
    /// A session is there.
    Session(Status),
    /// A folder is visible.
    Granted {
        /// Mounts inside the folder that came along, by their path on the host.
        submounts: Vec<Text>,
    },
    /// A folder is gone.
    Revoked(Revoked),
    /// What the host can do.
    Surveyed(Vec<Fact>),
}

/// What a session is made of, as observed from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub session: String,
    /// The process id of its init, on the host.
    pub init: i32,
    /// What is in force.
    pub enforcement: Vec<Enforced>,
    /// How each limit is kept.
    pub limits: Vec<LimitState>,
    /// The names of its grants.
    pub grants: Vec<String>,
    /// Mounts inside granted folders that came along, by their path on the host.
    pub submounts: Vec<Text>,
}

/// One layer, as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// Which.
    pub layer: plan::Layer,
    /// Whether it is in force.
    pub state: LayerState,
    /// What was seen that says so.
    pub observed: String,
}

/// Whether a layer is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerState {
    /// It is.
    InForce,
    /// It is not.
    Absent,
    /// The profile leaves it out on purpose.
    LeftOut,
}

/// How a limit is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitState {
    /// Which limit.
    pub limit: LimitKind,
    /// How well.
    pub strength: Strength,
    /// The value, for people.
    pub value: String,
    /// By what means.
    pub means: String,
}

/// A limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitKind {
    /// Processes and threads.
    Processes,
    /// Memory.
    Memory,
    /// CPU.
    Cpus,
    /// Open files.
    OpenFiles,
    /// Scratch space.
    Scratch,
    /// Time until the session is ended.
    Wall,
}

/// How well a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strength {
    /// The kernel keeps it for the session as a whole.
    Enforced,
    /// It is approximated; the means says how.
    BestEffort,
    /// Nothing keeps it.
    None,
}

/// What a revocation did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Processes that held on to the folder and were killed: id on the host, and name.
    pub killed: Vec<(i32, String)>,
    /// How sure it is that nothing holds on to the folder.
    pub certainty: Certainty,
}

/// How sure a revocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certainty {
    /// The kernel unmounted it: nothing can open, read or change anything in it any more.
    Kernel,
    /// The folder contains mounts that an ordinary user cannot take apart: it was detached after
    /// every process that could be seen to hold it was killed.
    Scan,
    /// A reference was hidden; the session was ended.
    SessionEnded,
}

/// Why a session ended without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// Its PID 1 died.
    InitDied,
    /// Its time was over.
    TimeOver,
    /// A revoked folder could not be taken away otherwise.
    Revocation,
}

/// One thing this host can or cannot do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub value: String,
    /// Whether sessions work with that.
    pub grade: Grade,
    /// What follows for the user.
    pub consequence: String,
    /// What to do about it; empty when nothing is needed.
    pub fix: String,
}

/// How good a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grade {
    /// As wanted.
    Good,
    /// Sessions work, with less than could be.
    Reduced,
    /// Sessions cannot start.
    Blocking,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure, stable between versions.
    pub code: FailureCode,
    /// The sentence for a person.
    pub sentence: String,
    /// What the kernel said, or 0.
    pub errno: i32,
    /// What to do about it; empty when there is nothing.
    pub hint: String,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCode {
    /// The message could not be understood.
    Malformed,
    /// No such session.
    NoSession,
    /// The session's id is in use.
    SessionExists,
    /// No such grant.
    NoGrant,
    /// The grant's name is in use.
    GrantExists,
    /// The path no longer leads to the folder that was granted.
    FolderChanged,
    /// The folder cannot be granted.
    FolderRefused,
    /// A layer of the floor is missing.
    LayerMissing,
    /// A limit that was asked for cannot be enforced here.
    LimitUnenforceable,
    /// The host lacks something that every session needs.
    HostUnable,
    /// A step of the plan failed.
    StepFailed,
}

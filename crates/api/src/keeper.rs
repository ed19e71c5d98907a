//! Messages between a client and its keeper.
//!
//! A call carries a number that comes back in its answer. Answers come in order, but for calls that
//! are answered when something is done that takes long; events about sessions come in between, to
//! every client. A resident keeper listens and outlives its clients; one that was started for a
//! single client ends with it.

use crate::{Text, egress, files, plan};
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
    /// Make a session. Beside the answer come the same sockets as of `Attach`.
    Create(Box<plan::SessionPlan>),
    /// Get the sockets of a session again: beside the answer come the command socket, then the
    /// socket on which the session's requests arrive.
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
    /// Every session of this keeper, for a client that comes after another one.
    Sessions,
    /// Keep the descriptors beside this message as those of a command, in case this client dies.
    /// Not answered: what was sent is kept from then on.
    Deposit {
        /// Which session.
        session: String,
        /// Which command.
        command: u32,
    },
    /// Get the descriptors of a command back; they are kept all the same.
    Withdraw {
        /// Which session.
        session: String,
        /// Which command.
        command: u32,
    },
    /// Let go of the descriptors of a command. Not answered.
    Release {
        /// Which session.
        session: String,
        /// Which command.
        command: u32,
    },
    /// Show a folder that is granted with another access: taken away as by `Revoke`, then granted
    /// again. If the folder is no longer the one named, nothing happens.
    Regrant {
        /// Which session.
        session: String,
        /// The grant as it shall be.
        grant: plan::Grant,
    },
    /// Change what a running session may use. All of it is changed, or nothing is.
    SetLimits {
        /// Which session.
        session: String,
        /// What it may use from now on.
        limits: plan::Limits,
    },
    /// What a session uses now, and has used.
    Measure {
        /// Which session.
        session: String,
    },
    /// Remove the folder of a home that no session has, with everything in it. Answered when it is
    /// gone.
    RemoveHome {
        /// Where, free of symbolic links.
        path: Text,
        /// Which folder that is.
        folder: plan::Identity,
    },
    /// End every session, and the keeper with them.
    Leave,
    /// How many bytes of disk some folders take, together. Answered when they are weighed.
    Weigh {
        /// Where, free of symbolic links; what is not there weighs nothing.
        folders: Vec<Text>,
        /// Most files to look at.
        most: u64,
    },
    /// Make sockets in the network of a session. They come beside the answer, in this order; all but
    /// those that lead inwards are kept, and come again with `Sockets`. What is there already is not
    /// made twice. The first of them make the routes of the synthetic addresses.
    Listen {
        /// Which session.
        session: String,
        /// What is wanted.
        sockets: Vec<egress::Socket>,
    },
    /// Get the sockets that were made in a session's network again.
    Sockets {
        /// Which session.
        session: String,
    },
    /// Which process of a session has a socket open.
    Owner {
        /// Which session.
        session: String,
        /// The kernel's number of the socket.
        socket: u64,
    },
    /// Give a folder whose changes are recorded other rules.
    SetRules {
        /// Which session.
        session: String,
        /// The grant's name.
        grant: String,
        /// From now on.
        rules: files::Rules,
    },
    /// The user's answer to a broker's question. Not answered.
    AnswerAsk {
        /// Which session.
        session: String,
        /// Which question.
        ask: u64,
        /// Whether it may go on.
        allowed: bool,
    },
    /// From now on changes in a session belong to new sets.
    Boundary {
        /// Which session.
        session: String,
    },
    /// Answered when what ended processes of a session have changed is written down as complete: what
    /// somebody else changes afterwards is told apart from it.
    Settle {
        /// Which session.
        session: String,
    },
    /// Look at recorded changes, or undo them. Answered when that is done; the report comes beside
    /// the answer, as a file of [`files::Report`]. A session that is named stands still meanwhile.
    Clerk {
        /// The session that the changes are of, if it runs.
        session: Option<String>,
        /// What is to be done.
        order: Box<files::Order>,
    },
    /// How often a session met its limits since it was made.
    Hits {
        /// Which session.
        session: String,
    },
    /// Which processes of a session have a name, or an id.
    Find {
        /// Which session.
        session: String,
        /// The name, as the kernel keeps it; any without it.
        name: Option<String>,
        /// The id, in the session or on the host; any without it.
        pid: Option<i32>,
    },
    /// Start an egress process, from the program beside the keeper's, on the host's network. What it
    /// has to say goes to the descriptor beside this message, if there is one. Beside the answer come
    /// our end of its line, then a handle on it. It ends when nobody holds that end any more.
    StartEgress,
    /// End an egress process that does not leave by itself. Not answered.
    EndEgress {
        /// Which.
        pid: i32,
    },
    /// What the processes of one command use, and how much memory each has had at most. Nothing, if
    /// the command is over.
    MeasureCommand {
        /// Which session.
        session: String,
        /// The command's first process, in the session.
        pid: i32,
    },
    /// What this host can do for somebody whose sessions are kept in a folder of it.
    SurveyFor {
        /// That folder, which need not be there yet.
        state: Text,
    },
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
    /// Somebody in a session waits for the user.
    FileAsked {
        /// Which.
        session: String,
        /// For what.
        ask: files::Ask,
    },
    /// A change of a file was refused by a rule.
    FileRefused {
        /// In which session.
        session: String,
        /// What.
        refusal: files::Refusal,
    },
    /// Nobody waits for this answer any more.
    FileWithdrawn {
        /// Which session.
        session: String,
        /// Which question.
        ask: u64,
    },
    /// More changes were refused by rules than are told one by one.
    MoreRefused {
        /// In which session.
        session: String,
        /// How many, since it was last told.
        count: u64,
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
    /// All sessions.
    Sessions(Vec<Status>),
    /// A command's descriptors, beside this; their number.
    Withdrawn(u32),
    /// A granted folder has another access.
    Regranted {
        /// What taking it away did.
        revoked: Revoked,
        /// Mounts inside the folder that came along, by their path on the host.
        submounts: Vec<Text>,
    },
    /// What a session uses.
    Measured(Measured),
    /// Bytes of disk.
    Weighed(u64),
    /// Sockets of a session's network, beside this in the same order.
    Listening(Vec<egress::Socket>),
    /// The process that has a socket open, if one has.
    Owner(Option<Process>),
    /// What a clerk found or did, beside this.
    Reported,
    /// How often limits were met, where the kernel counts it.
    Hits(Hits),
    /// Processes, at most [`MAX_LISTED`].
    Found(Vec<Process>),
    /// An egress process waits for its first message.
    Egress {
        /// Its id on the host.
        pid: i32,
    },
}

/// How often a session met its limits since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    /// Processes that were killed because there was no memory left.
    pub memory: u64,
    /// Processes and threads that were not made because there were too many.
    pub processes: u64,
}

/// What a session uses now, and has used since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// CPU microseconds, of everything that runs or ran in it.
    pub cpu_us: u64,
    /// Bytes of memory now.
    pub memory: u64,
    /// Most bytes of memory at any moment, where the kernel remembers; else what was measured.
    pub memory_peak: u64,
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
    /// Bytes of scratch in memory that are taken.
    pub scratch: u64,
    /// How many processes there are, PID 1 not counted.
    pub processes: u32,
    /// The first of them, at most [`MAX_LISTED`].
    pub listed: Vec<Process>,
}

/// Under this number the daemon's end of the line to a session's egress process is kept, like the
/// descriptors of a command: the egress process ends when nobody holds it any more.
pub const EGRESS_LINE: u32 = u32::MAX;

/// Under this number the file is kept in which the names of a session outlive an egress process.
pub const EGRESS_NAMES: u32 = u32::MAX - 1;

/// Most processes that are listed by name.
pub const MAX_LISTED: usize = 256;

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id on the host.
    pub pid: i32,
    /// Its id in the session; 0 if it is not known.
    pub inside: i32,
    /// Its name, as it calls itself.
    pub name: String,
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
    /// Whether its processes stand still.
    pub frozen: bool,
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
    /// A command has no descriptors kept.
    NoDeposit,
    /// A socket cannot be made in the session's network.
    SocketRefused,
    /// The session has no door for what was asked.
    NoDoor,
}

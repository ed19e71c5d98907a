//! Tasks of agents: what is asked of one, what it says and does meanwhile, and what came of it.

use super::{AgentOptions, ChangeKind, ID, NetworkTarget, Raw, Reason, RequestState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of an agent.
const AGENT: &str = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$";

/// A task to be done by an agent in a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// What the agent is asked to do.
    #[schemars(length(min = 1, max = 131_072))]
    pub prompt: String,
    /// The agent; `claude` without it. See `/v1/agents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = AGENT))]
    pub agent: Option<String>,
    /// The model, in the agent's own words; the agent's choice without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub model: Option<String>,
    /// What happens when the agent asks whether it may use a tool.
    #[serde(default)]
    pub approvals: Approvals,
    /// Files that belong to the task: paths below the session's uploads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub attachments: Vec<String>,
    /// How the agent's program is found, and what it proves itself with.
    #[serde(default)]
    pub launch: AgentOptions,
}

/// What happens when an agent asks whether it may use a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approvals {
    /// The user is asked: the question is a request of kind `tool`.
    #[default]
    Ask,
    /// It may. The session's own limits hold as ever.
    Auto,
    /// It may not.
    Deny,
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Tasks before it are not over, or the session is not ready.
    Waiting,
    /// The agent works.
    Running,
    /// The user has stopped it for a while.
    Paused,
    /// The agent waits for the user's answer to a request.
    Asking,
    /// The agent has answered.
    Done,
    /// It could not be done; the reason says why.
    Failed,
    /// The user has called it off.
    Cancelled,
    /// Its agent was lost in the middle: the sandbox ended, or its output could not be taken up.
    Interrupted,
}

impl TaskState {
    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Running | Self::Paused | Self::Asking => false,
            Self::Done | Self::Failed | Self::Cancelled | Self::Interrupted => true,
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Its number in the session.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// The session.
    #[schemars(regex(pattern = ID))]
    pub session: String,
    /// The agent.
    pub agent: String,
    /// The model: the wanted one, or the one the agent says it uses.
    pub model: Option<String>,
    /// What happens when the agent asks whether it may use a tool.
    pub approvals: Approvals,
    /// What the agent is asked to do.
    pub prompt: String,
    /// Files that belong to it: paths below the session's uploads.
    pub attachments: Vec<String>,
    /// Where it is in its life.
    pub state: TaskState,
    /// Why it failed, was cancelled or interrupted.
    pub reason: Option<Reason>,
    /// When it was asked.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// When the agent began.
    #[schemars(extend("format" = "date-time"))]
    pub started: Option<String>,
    /// When it was over.
    #[schemars(extend("format" = "date-time"))]
    pub ended: Option<String>,
    /// The number of the command in the session that is, or was, the agent.
    pub command: Option<u32>,
    /// The conversation, in the agent's own words: the next task goes on with it.
    pub conversation: Option<String>,
    /// Requests of the agent that wait for the user.
    pub requests: Vec<u64>,
    /// What the agent plans to do, as it last said.
    pub plan: Vec<PlanStep>,
    /// The number of its last message.
    pub messages: u64,
    /// What the agent answered in the end.
    pub answer: Option<String>,
    /// What it used, as the agent says.
    pub usage: TaskUsage,
    /// What came of it, once it is over; before that what has come of it so far, for whoever asks.
    pub summary: Option<TaskSummary>,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: PlanState,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// It is still to be done.
    Pending,
    /// It is being done.
    Active,
    /// It is done.
    Done,
}

/// What a task used, as its agent says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskUsage {
    /// Tokens that the model was given, without those from its cache.
    pub input_tokens: u64,
    /// Tokens that the model made.
    pub output_tokens: u64,
    /// Tokens that were read from the model's cache.
    pub cache_read_tokens: u64,
    /// Tokens that were written to it.
    pub cache_written_tokens: u64,
    /// How often the model was called, if that is told.
    pub turns: Option<u64>,
    /// US dollars, if that is told.
    pub cost_usd: Option<f64>,
}

/// One message of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
pub struct TaskMessage {
    /// Its number in the task, from 1, without gaps.
    #[schemars(range(min = 1))]
    pub number: u64,
    /// The task.
    #[schemars(range(min = 1))]
    pub task: u32,
    /// When it came.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What it is.
    pub kind: TaskMessageKind,
    /// What is said: words, the gist of a tool's input, or the beginning of its result. It comes from
    /// the agent, and may hold anything but control characters other than line breaks and tabs.
    pub text: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The agent's name for one use of a tool: a result belongs to the use of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Whether the use of a tool failed.
    #[serde(default)]
    pub failed: bool,
    /// Whether more was said than is kept.
    #[serde(default)]
    pub cut: bool,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskMessageKind {
    /// The user to the agent: the task, and what was said to steer it.
    User,
    /// The agent to the user.
    Text,
    /// The agent to itself.
    Thought,
    /// The agent uses a tool.
    Tool,
    /// What came of it.
    Result,
    /// Something about the task that the agent did not say.
    Note,
}

/// What came of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSummary {
    /// Milliseconds from start to end, or to now.
    pub wall_ms: u64,
    /// Names that changed in granted folders, as far as they are recorded.
    pub changes: Vec<TaskChange>,
    /// How many more there are.
    pub more_changes: u64,
    /// The sets of changes, for `undo`.
    pub sets: Vec<u32>,
    /// Hosts that were reached.
    pub reached: Vec<TaskHost>,
    /// Hosts that were refused.
    pub refused: Vec<TaskRefusal>,
    /// Changes of files that were refused.
    #[serde(default)]
    pub refused_changes: Vec<TaskRefusedChange>,
    /// What was asked of the user meanwhile.
    pub requests: Vec<TaskRequest>,
    /// What the agent used.
    pub usage: TaskUsage,
    /// Uses of tools.
    pub tools: u64,
    /// Those that failed or were refused.
    pub failed_tools: u64,
    /// What could not be found out, in sentences.
    pub unknown: Vec<String>,
}

/// A name that changed during a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskChange {
    /// The grant's name.
    pub grant: String,
    /// The path below the granted folder.
    pub path: Raw,
    /// The path on the host.
    pub host: Raw,
    /// What became of it.
    pub kind: ChangeKind,
}

/// A host that was reached during a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskHost {
    /// The host.
    pub host: String,
    /// Bytes from the session.
    pub up: u64,
    /// Bytes to the session.
    pub down: u64,
    /// Connections and requests.
    pub requests: u64,
}

/// Something that was refused during a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRefusal {
    /// What was wanted.
    pub target: NetworkTarget,
    /// A stable word for the reason.
    pub code: String,
    /// How often.
    pub times: u64,
}

/// A change of a file that a rule refused during a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRefusedChange {
    /// The grant's name.
    pub grant: String,
    /// The path below the granted folder.
    pub path: Raw,
    /// What was to be done.
    pub operation: String,
    /// Why it was refused.
    pub reason: String,
    /// How often.
    pub times: u64,
}

/// Something that was asked of the user during a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRequest {
    /// The request's number.
    pub id: u64,
    /// What it asked for: `folder`, `host`, `file` or `tool`.
    pub kind: String,
    /// What it wanted.
    pub wanted: String,
    /// What became of it.
    pub state: RequestState,
}

/// Something said to an agent that works.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steer {
    /// What is said.
    #[schemars(length(min = 1, max = 131_072))]
    pub prompt: String,
}

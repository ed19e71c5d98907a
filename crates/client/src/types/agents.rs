//! Agents: which there are, and what a session was given to run one.

use super::{Profile, Raw};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of an agent.
const AGENT: &str = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$";

/// An agent that can run in sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// The file of the user's that defines it; one without is built in.
    pub file: Option<Raw>,
    /// What is wrong with that file. The agent cannot be used then.
    pub problem: Option<String>,
    /// Its program on this host, if it is found.
    pub program: Option<Raw>,
    /// What npm installs in a session, where that is possible.
    pub install: Option<String>,
    /// The walls it runs behind unless asked otherwise.
    pub profile: Profile,
    /// Lists of hosts it reaches.
    pub presets: Vec<String>,
    /// Hosts it reaches.
    pub hosts: Vec<String>,
    /// What it proves itself with; one secret of each is used.
    pub credentials: Vec<AgentCredential>,
    /// How a task is given to it, if it can be.
    pub task: Option<TaskProtocol>,
}

/// What an agent proves itself with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCredential {
    /// Whether the agent runs without.
    pub optional: bool,
    /// Secrets that do; the first one that is stored is used.
    pub secrets: Vec<AgentSecret>,
}

/// A secret that an agent can prove itself with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentSecret {
    /// The name it is stored under.
    pub name: String,
    /// What it is.
    pub about: String,
    /// The variable that holds its placeholder in a session.
    pub variable: String,
    /// The hosts that it is for.
    pub hosts: Vec<String>,
    /// Whether there is one.
    pub stored: bool,
}

/// What is spoken with an agent about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskProtocol {
    /// Lines of JSON in both directions, as Claude Code speaks them.
    ClaudeStreamJson,
    /// The prompt as the last argument, lines of JSON as the answer, as Codex speaks them.
    CodexExecJson,
    /// The prompt as the last argument, text as the answer.
    Plain,
}

/// What a session is to be given for an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentOptions {
    /// What is to be prepared.
    pub step: AgentStep,
    /// The program on this host, in place of the one that is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Raw>,
    /// Where programs are looked for, as in `PATH`; where the daemon looks without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Raw>,
    /// Where the program is taken from.
    pub from: AgentSource,
    /// The secret that it proves itself with, in place of the first one that is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9._-]+$"))]
    pub secret: Option<String>,
    /// The folder that it works in, as the session sees it: one that was granted, or one in it. The
    /// first of those that were granted without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Raw>,
}

/// What is prepared for an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentStep {
    /// That it runs.
    #[default]
    Run,
    /// That it is installed in the session: the answer is the command that does it.
    Install,
}

/// Where the program of an agent is taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentSource {
    /// From this host; what was installed in the session where the host has none.
    #[default]
    Any,
    /// What was installed in the session, and nothing else.
    Session,
}

/// A session is ready for an agent: this is the command to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreparedAgent {
    /// The agent.
    #[schemars(regex(pattern = AGENT))]
    pub agent: String,
    /// Its program and arguments; those of the user follow.
    pub argv: Vec<Raw>,
    /// Variables of its own. What stands for secrets is among them, and no secret.
    pub env: BTreeMap<String, Raw>,
    /// The folder to start in, as the session sees it: that of the user's work.
    pub cwd: Raw,
    /// The program on this host; one that was installed in the session is not.
    pub program: Option<Raw>,
    /// Secrets that it proves itself with, by name.
    pub secrets: Vec<String>,
    /// How a task is given to it, if it can be.
    pub task: Option<AgentTask>,
}

/// How a task is given to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentTask {
    /// What is spoken.
    pub protocol: TaskProtocol,
    /// Arguments after those of `argv`.
    pub arguments: Vec<String>,
}

//! Agents that run in sessions, as data: where their program is found, what they need, and how they
//! are spoken to.
//!
//! A definition is a small TOML file. [`parse`] is the only way to an [`Agent`], so whatever holds one
//! has names, paths and variables that were checked. Pure: no file is opened and no variable read.
//!
//! Deliberately absent: looking for a program, and carrying anything out. The daemon does both. Hosts
//! and presets are checked there too, by the rules that they become.

#![forbid(unsafe_code)]

mod built_in;
mod check;
mod parse;
mod words;

pub use built_in::built_in;
pub use parse::{AgentError, MAX_DEFINITION, parse};
pub use words::Words;

use std::collections::BTreeMap;

/// An agent: what its definition says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agent {
    /// Its name: lowercase words joined by single hyphens, at most 32 bytes.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// How its program is found on the host.
    pub program: Program,
    /// How it is installed in a session, if it can be.
    pub install: Option<Install>,
    /// The walls it runs behind unless asked otherwise.
    pub profile: Profile,
    /// Its arguments, before those of the user.
    pub arguments: Vec<String>,
    /// Variables of its own, with [`Words`] to be put in.
    pub environment: BTreeMap<String, String>,
    /// More of both where the walls are `strict`.
    pub strict: Additions,
    /// More of both where they are `nested`.
    pub nested: Additions,
    /// What it must reach.
    pub network: Network,
    /// What it proves itself with; one choice of each is used.
    pub credentials: Vec<Credential>,
    /// Files that the session gets.
    pub files: Vec<SettingsFile>,
    /// How a task is given to it.
    pub task: Option<Task>,
}

impl Agent {
    /// What it is called in a sentence: what is said of it, up to the first comma.
    pub fn title(&self) -> &str {
        self.about.split(',').next().unwrap_or(&self.about)
    }

    /// What is added behind some walls.
    pub fn additions(&self, profile: Profile) -> &Additions {
        match profile {
            Profile::Strict => &self.strict,
            Profile::Nested => &self.nested,
        }
    }
}

/// How a program is found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its names, looked for in the folders of `PATH` and then in [`places`](Self::places).
    pub names: Vec<String>,
    /// Folders that are not on everybody's `PATH`, from `/` or `~/`.
    pub places: Vec<String>,
}

/// How an agent is installed in a session: by npm, into a folder of the session's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// The package of the registry.
    pub npm: String,
    /// Its version, as npm writes it, e.g. `^2`.
    pub version: String,
    /// The package with the program for one kind of machine, as it is called in `node_modules`.
    /// With it nothing else is needed, and no node.
    pub platform: Option<String>,
    /// What npm is asked for to get that package, if it is not its name and the version.
    pub source: Option<String>,
    /// The program, below the package that has it.
    pub program: String,
}

impl Install {
    /// The package that has the program.
    pub fn package(&self, words: &Words) -> String {
        words.put_into(self.platform.as_deref().unwrap_or(&self.npm))
    }

    /// What npm is asked for.
    pub fn wanted(&self, words: &Words) -> String {
        match &self.source {
            Some(source) => format!("{}@{}", self.package(words), words.put_into(source)),
            None => format!("{}@{}", self.package(words), self.version),
        }
    }
}

/// A set of walls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// No namespaces and no mounts inside.
    #[default]
    Strict,
    /// For programs that bring a sandbox of their own.
    Nested,
}

/// Arguments and variables for one set of walls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Arguments, after the others.
    pub arguments: Vec<String>,
    /// Variables.
    pub environment: BTreeMap<String, String>,
}

/// What an agent must reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Lists of hosts by their names.
    pub presets: Vec<String>,
    /// Hosts, as in a rule.
    pub hosts: Vec<String>,
}

/// What an agent proves itself with: the first of some secrets that the user has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Whether the agent is of use without.
    pub need: Need,
    /// Secrets that do, the best one first. There is at least one.
    pub choices: Vec<Choice>,
}

/// Whether something must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// Without it the agent is not started.
    #[default]
    Required,
    /// The agent is started without it.
    Optional,
}

/// A secret that an agent can prove itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name it is stored under.
    pub secret: String,
    /// What it is, for people.
    pub about: String,
    /// The variable that holds what stands for it.
    pub variable: String,
    /// The hosts that may get it.
    pub hosts: Vec<String>,
}

/// A file that a session gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// Where it is.
    pub place: Place,
    /// Its path below that.
    pub path: String,
    /// What is in it, with [`Words`] to be put in.
    pub text: String,
    /// The walls that it is for; both without it.
    pub profile: Option<Profile>,
}

/// Where a file of an agent's is in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a folder of its own, `{settings}`, where the session cannot change it.
    #[default]
    Settings,
    /// In the session's home, before the agent runs there first: from then on it is the agent's.
    Home,
}

/// How a task is given to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is spoken.
    pub protocol: Protocol,
    /// Arguments for it, after all others.
    pub arguments: Vec<String>,
}

/// What is spoken with an agent about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Lines of JSON in both directions, as Claude Code speaks them.
    ClaudeStreamJson,
    /// The prompt as an argument, lines of JSON as the answer, as Codex speaks them.
    CodexExecJson,
    /// The prompt as an argument, text as the answer.
    Plain,
}

impl Protocol {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeStreamJson => "claude-stream-json",
            Self::CodexExecJson => "codex-exec-json",
            Self::Plain => "plain",
        }
    }
}

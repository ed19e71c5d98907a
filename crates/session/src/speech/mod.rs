//! What agents say, and how they are spoken to.
//!
//! Whatever an agent writes is hostile: it is split into lines of bounded length, each is decoded on
//! its own, and what comes out holds no control characters and is no longer than the limits here.
//! What is of no known kind is skipped, so that a later version of an agent is understood as far as
//! it can be; what is no sentence of the language at all is an error.
//!
//! Every function here is pure. Deliberately absent: pipes, and what is done about what was said.

pub mod claude;
pub mod codex;
mod gist;
mod lines;
mod words;

pub use gist::{gist, whole};
pub use lines::{Line, Lines, MAX_LINE};
pub use words::{Words, clean};

use serde_json::Value;

/// Longest text of one message, in bytes.
pub const MAX_TEXT: usize = 16 * 1024;
/// Longest answer, in bytes.
pub const MAX_ANSWER: usize = 256 * 1024;
/// Longest name of anything: a tool, a use of one, a question, a conversation, a model.
pub const MAX_NAME: usize = 200;
/// Most steps of a plan.
pub const MAX_STEPS: usize = 100;
/// Longest step of a plan, in bytes.
pub const MAX_STEP: usize = 500;

/// A language of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Claude Code's stream of JSON lines, in both directions.
    Claude,
    /// The JSON lines of `codex exec --json`.
    Codex,
    /// Text: all of it is the answer.
    Plain,
}

/// One thing that an agent said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// It began, and told the names of the conversation and of the model.
    Began {
        /// The conversation.
        conversation: Option<String>,
        /// The model.
        model: Option<String>,
    },
    /// It took up a message of ours.
    Heard {
        /// The name that we gave it.
        message: String,
    },
    /// To the user.
    Text(Words),
    /// To itself, or one agent of it to another.
    Thought(Words),
    /// It uses a tool.
    Tool {
        /// Its name for this use.
        call: String,
        /// The tool.
        tool: String,
        /// What it is about.
        gist: Words,
    },
    /// What came of the use of a tool.
    Result {
        /// Which use.
        call: String,
        /// The beginning of it.
        gist: Words,
        /// Whether it failed.
        failed: bool,
    },
    /// Its whole plan.
    Plan(Vec<Step>),
    /// One more step of its plan, which has no name until the use of the tool has a result.
    NewStep {
        /// The use of a tool that makes it.
        call: String,
        /// The step.
        step: Step,
    },
    /// A step of its plan has changed.
    StepChanged {
        /// The step's name.
        name: String,
        /// What it is called now, if that changed.
        text: Option<String>,
        /// How far it is; none if it is no longer part of the plan.
        progress: Option<Progress>,
    },
    /// It asks whether it may use a tool, and waits.
    Asks(Question),
    /// It no longer wants to know.
    Withdraws {
        /// The question.
        question: String,
    },
    /// It asks something that nobody here knows, and waits.
    AsksOther {
        /// The question.
        question: String,
        /// What kind of question.
        kind: String,
    },
    /// Something about the conversation that is not part of it.
    Note(Words),
    /// It has come to an end.
    Answered(Answer),
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub progress: Progress,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is done yet.
    Pending,
    /// It is being done.
    Active,
    /// It is done.
    Done,
}

/// Whether a tool may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The agent's name for the question.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// Everything that it would be given, as far as there is room.
    pub about: Words,
    /// What it would be given. An answer of yes sends it back as it is.
    pub input: Value,
}

/// How something came to an end.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What is said in the end; none if that is what was last said to the user.
    pub text: Option<Words>,
    /// Whether it is an answer, or says why there is none.
    pub outcome: Outcome,
    /// What was used.
    pub used: Used,
}

/// Whether there is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is.
    Good,
    /// There is not.
    Bad,
}

/// What was used, as the agent says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Tokens in.
    pub input: u64,
    /// Tokens out.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to a cache.
    pub cache_written: u64,
    /// Calls of the model.
    pub turns: Option<u64>,
    /// US dollars since the agent's program was started.
    pub cost: Option<f64>,
}

/// What an agent wrote is no sentence of its language.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// It is not JSON.
    #[error("the agent wrote a line that is not JSON: `{0}`")]
    NoJson(String),
    /// It is JSON, and no object with a type.
    #[error("the agent wrote a line that is no message: `{0}`")]
    NoMessage(String),
    /// It is too long.
    #[error("the agent wrote a line of {bytes} bytes; {MAX_LINE} are allowed: `{start}`")]
    TooLong {
        /// How long.
        bytes: u64,
        /// Its beginning.
        start: String,
    },
}

/// Decodes one line.
pub fn decode(language: Language, line: &Line) -> Result<Vec<Said>, Garbled> {
    match language {
        Language::Claude => claude::decode(line),
        Language::Codex => codex::decode(line),
        Language::Plain => Ok(plain(line)),
    }
}

fn plain(line: &Line) -> Vec<Said> {
    let (Line::Whole(bytes) | Line::Long { start: bytes, .. }) = line;
    let mut words = clean(&String::from_utf8_lossy(bytes), MAX_TEXT);
    words.cut |= matches!(line, Line::Long { .. });
    vec![Said::Text(words)]
}

/// The JSON object of a line, if there is one: blank lines say nothing.
fn object(line: &Line) -> Result<Option<Value>, Garbled> {
    /// How much of a line is shown.
    const SHOWN: usize = 80;
    let shown = |bytes: &[u8]| clean(&String::from_utf8_lossy(bytes), SHOWN).text;
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::Long { start, bytes } => {
            return Err(Garbled::TooLong { bytes: *bytes, start: shown(start) });
        }
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let parsed: Value =
        serde_json::from_slice(bytes).map_err(|_garbage| Garbled::NoJson(shown(bytes)))?;
    if parsed.get("type").is_some_and(Value::is_string) {
        Ok(Some(parsed))
    } else {
        Err(Garbled::NoMessage(shown(bytes)))
    }
}

/// The text of a field.
fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

/// The text of a field that names something.
fn name(value: &Value, field: &str) -> Option<String> {
    text(value, field).map(|text| clean(text, MAX_NAME).line())
}

/// The number of a field, 0 if there is none.
fn number(value: Option<&Value>, field: &str) -> u64 {
    value.and_then(|value| value.get(field)).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;

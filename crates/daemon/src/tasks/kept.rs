//! What the catalogue keeps of a task, and how it is written there.

use crate::book::now;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_client::types::{
    AgentOptions, Raw, Reason, Task, TaskMessage, TaskMessageKind, TaskProtocol, TaskState,
};
use cowork_session::speech::Words;
use cowork_session::task::{Event, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most messages of a task that are kept; the oldest go first.
const MAX_MESSAGES: u64 = 4000;
/// Longest text of a message in an event, in bytes: all of it is among the messages.
const MAX_TOLD: usize = 4096;

/// A task, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is kept under its own name")]
pub(super) struct Kept {
    pub(super) task: Task,
    /// How the agent's program is found.
    #[serde(default)]
    pub(super) options: AgentOptions,
    /// Whether the agent was given the task.
    #[serde(default)]
    pub(super) given: bool,
    /// Whether the user has called it off, and the agent was told.
    #[serde(default)]
    pub(super) cancelling: bool,
    /// What is spoken with the agent.
    #[serde(default)]
    pub(super) protocol: Option<TaskProtocol>,
    /// Stands for the agent's command line and variables.
    #[serde(default)]
    pub(super) launch: String,
    /// Where in the agent's output the next line begins that was not followed.
    #[serde(default)]
    pub(super) offset: u64,
    /// What the agent's program had cost when it last answered, in US dollars.
    #[serde(default)]
    pub(super) cost: f64,
    /// Whether the agent says which messages it has taken up.
    #[serde(default)]
    pub(super) hears: bool,
    /// Messages that it has not taken up.
    #[serde(default)]
    pub(super) unheard: Vec<String>,
    /// Questions that wait for an answer.
    #[serde(default)]
    pub(super) questions: Vec<KeptQuestion>,
    /// How often it has asked.
    #[serde(default)]
    pub(super) asked: u32,
    /// Tools by the uses that have no result yet.
    #[serde(default)]
    pub(super) calls: BTreeMap<String, String>,
    /// The names of the plan's steps, where it is made step by step.
    #[serde(default)]
    pub(super) steps: Vec<KeptStep>,
    #[serde(default)]
    pub(super) tools: u64,
    #[serde(default)]
    pub(super) failed_tools: u64,
    /// The number of the last record before it began.
    #[serde(default)]
    pub(super) record: u64,
    /// How many commands the session had before it began, and the program that was to be the next.
    #[serde(default)]
    pub(super) commands: u32,
    #[serde(default)]
    pub(super) program: Option<Raw>,
    /// The number of the message that gives the task to the agent, among those of its command.
    #[serde(default)]
    pub(super) first: u64,
    /// What is to be sent to the agent, and may not have been.
    #[serde(default)]
    pub(super) replies: Vec<String>,
}

/// A question of an agent, and the request that it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptQuestion {
    /// The agent's name for it.
    pub(super) name: String,
    pub(super) request: u64,
    pub(super) tool: String,
    pub(super) input: Value,
}

/// A step of a plan that is made step by step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptStep {
    /// The use of a tool that made it.
    pub(super) call: String,
    /// The agent's name for it, once it has one.
    pub(super) name: Option<String>,
}

/// What happened in a task and is not written down yet.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pub(super) messages: Vec<TaskMessage>,
    pub(super) events: Vec<(&'static str, Value)>,
}

/// A message that has no number yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) words: Words,
    pub(super) tool: Option<String>,
    pub(super) call: Option<String>,
    pub(super) failed: bool,
}

impl From<Words> for Draft {
    fn from(words: Words) -> Self {
        Self { words, ..Self::default() }
    }
}

impl Kept {
    pub(super) fn new(task: Task) -> Self {
        Self {
            task,
            options: AgentOptions::default(),
            given: false,
            cancelling: false,
            protocol: None,
            launch: String::new(),
            offset: 0,
            cost: 0.0,
            hears: false,
            unheard: Vec::new(),
            questions: Vec::new(),
            asked: 0,
            calls: BTreeMap::new(),
            steps: Vec::new(),
            tools: 0,
            failed_tools: 0,
            record: 0,
            commands: 0,
            program: None,
            first: 0,
            replies: Vec::new(),
        }
    }

    /// As it is kept.
    pub(super) fn text(&self) -> Result<String, Trouble> {
        serde_json::to_string(self)
            .map_err(|error| Trouble::host("cannot write down a task", error))
    }

    pub(super) fn state(&self) -> State {
        match self.task.state {
            TaskState::Waiting => State::Waiting,
            TaskState::Running => State::Running,
            TaskState::Paused => State::Paused,
            TaskState::Asking => State::Asking,
            TaskState::Done => State::Done,
            TaskState::Failed => State::Failed,
            TaskState::Cancelled => State::Cancelled,
            TaskState::Interrupted => State::Interrupted,
        }
    }

    /// Something happens to it: the state that follows, and that it is told.
    pub(super) fn happen(
        &mut self,
        news: &mut News,
        event: Event,
        reason: Option<Reason>,
    ) -> Result<(), Trouble> {
        let before = self.state();
        let after = before.after(event).map_err(misfit)?;
        if before == after {
            return Ok(());
        }
        self.task.state = shown(after);
        self.task.reason = reason;
        match after {
            State::Running if before == State::Waiting => self.task.started = Some(now()),
            _ if after.is_over() => self.task.ended = Some(now()),
            _ => {}
        }
        let data = json!({
            "task": self.task.number, "from": before.name(), "to": after.name(),
            "reason": self.task.reason,
        });
        news.events.push(("task.state", data));
        Ok(())
    }

    /// The number of questions that wait has changed.
    pub(super) fn count_questions(&mut self, news: &mut News) {
        self.task.requests = self.questions.iter().map(|question| question.request).collect();
        let event = Event::Questions { waiting: self.questions.len() };
        // What is over does not wait.
        drop(self.happen(news, event, None));
    }

    /// Adds a message.
    pub(super) fn say(&mut self, news: &mut News, kind: TaskMessageKind, draft: impl Into<Draft>) {
        let draft = draft.into();
        self.task.messages += 1;
        let message = TaskMessage {
            number: self.task.messages,
            task: self.task.number,
            time: now(),
            kind,
            text: draft.words.text,
            tool: draft.tool,
            call: draft.call,
            failed: draft.failed,
            cut: draft.words.cut,
        };
        let mut told = message.clone();
        if told.text.len() > MAX_TOLD {
            told.text = cowork_session::speech::clean(&told.text, MAX_TOLD).text;
            told.cut = true;
        }
        let kind = match kind {
            TaskMessageKind::Tool | TaskMessageKind::Result => "task.tool",
            TaskMessageKind::User
            | TaskMessageKind::Text
            | TaskMessageKind::Thought
            | TaskMessageKind::Note => "task.message",
        };
        news.events.push((kind, json!({ "task": self.task.number, "message": told })));
        news.messages.push(message);
    }

    /// Its plan has changed.
    pub(super) fn tell_plan(&self, news: &mut News) {
        let data = json!({ "task": self.task.number, "plan": self.task.plan });
        news.events.push(("task.plan", data));
    }

    /// What it used has changed.
    pub(super) fn tell_usage(&self, news: &mut News) {
        let data = json!({ "task": self.task.number, "usage": self.task.usage });
        news.events.push(("task.usage", data));
    }
}

impl Daemon {
    /// Writes a task down with what happened in it, in one step.
    pub(super) fn write_task(&self, kept: &Kept, news: &News) -> Result<(), Trouble> {
        let written = Written::of(kept, news)?;
        self.book.write(&kept.task.session, &news.events, |catalogue| written.put(catalogue, kept))
    }

    /// Records something about a task, and writes it down with what happened in it, in one step.
    pub(super) fn record_task(
        &self,
        kind: &str,
        data: &Value,
        kept: &Kept,
        news: &News,
    ) -> Result<(), Trouble> {
        let written = Written::of(kept, news)?;
        let session = kept.task.session.as_str();
        self.book.record_with(kind, Some(session), data, |catalogue| {
            written.put(catalogue, kept)?;
            news.add_to(catalogue, session)
        })
    }
}

impl News {
    /// Adds the events to the catalogue.
    pub(super) fn add_to(
        &self,
        catalogue: &cowork_session::catalogue::Together<'_>,
        session: &str,
    ) -> Result<(), cowork_session::catalogue::CatalogueError> {
        for (kind, data) in &self.events {
            catalogue.add_event(&now(), kind, Some(session), &data.to_string())?;
        }
        Ok(())
    }
}

/// A task and its messages as the catalogue keeps them.
pub(super) struct Written {
    task: String,
    messages: Vec<(u64, String)>,
}

impl Written {
    pub(super) fn of(kept: &Kept, news: &News) -> Result<Self, Trouble> {
        let text = |message: &TaskMessage| {
            let text = serde_json::to_string(message)
                .map_err(|error| Trouble::host("cannot write down a message", error))?;
            Ok((message.number, text))
        };
        let messages = news.messages.iter().map(text).collect::<Result<_, Trouble>>()?;
        Ok(Self { task: kept.text()?, messages })
    }

    pub(super) fn put(
        &self,
        catalogue: &cowork_session::catalogue::Together<'_>,
        kept: &Kept,
    ) -> Result<(), cowork_session::catalogue::CatalogueError> {
        let (session, number) = (kept.task.session.as_str(), kept.task.number);
        catalogue.put_task(session, number, &self.task)?;
        for (message, text) in &self.messages {
            catalogue.put_message(session, number, *message, text)?;
        }
        match kept.task.messages.checked_sub(MAX_MESSAGES) {
            Some(old) if old > 0 && !self.messages.is_empty() => {
                catalogue.trim_messages(session, number, old)
            }
            _ => Ok(()),
        }
    }
}

/// A state, as the API shows it.
fn shown(state: State) -> TaskState {
    match state {
        State::Waiting => TaskState::Waiting,
        State::Running => TaskState::Running,
        State::Paused => TaskState::Paused,
        State::Asking => TaskState::Asking,
        State::Done => TaskState::Done,
        State::Failed => TaskState::Failed,
        State::Cancelled => TaskState::Cancelled,
        State::Interrupted => TaskState::Interrupted,
    }
}

/// What cannot happen to a task now.
pub(super) fn misfit(misfit: cowork_session::task::Misfit) -> Trouble {
    use cowork_session::task::Misfit;
    let code = match misfit {
        Misfit::NotBegun => "task-waiting",
        Misfit::Begun => "task-begun",
        Misfit::NotPaused => "not-paused",
        Misfit::Over(_) => "task-over",
    };
    Trouble::conflict(code, misfit.to_string())
}

//! Tasks of agents: given one after the other, followed line by line, and told what became of each.
//!
//! A task is kept in the catalogue together with the place in the agent's output up to which it was
//! followed; both change in one step. So the next daemon goes on where this one was killed, and no
//! message is lost or told twice. What cannot be gone on with is said to be interrupted.
//!
//! Everything that comes out of an agent is hostile. Deliberately absent: its language
//! (`cowork_session::speech`), and what a session is given to run it (`crate::agents`).

mod agent;
mod apply;
mod asks;
mod desk;
mod hints;
mod kept;
mod orders;
mod summary;
mod turn;

pub(crate) use asks::KIND as ASK;
pub(crate) use desk::Desks;
pub(crate) use orders::What;

use crate::book::now;
use crate::daemon::Daemon;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_client::types::{
    AgentStep, Life, NewTask, Task, TaskMessage, TaskProtocol, TaskState, TaskUsage,
};
use cowork_session::speech::clean;
use kept::Kept;
use serde_json::json;
use std::path::{Component, Path};
use std::sync::Arc;

/// Most tasks of a session that wait.
const MAX_WAITING: usize = 32;
/// Most tasks of a session that are kept; the oldest that are over go first.
const MAX_TASKS: usize = 500;
/// Longest prompt, in bytes.
const MAX_PROMPT: usize = 128 * 1024;
/// How much of a prompt is recorded.
const RECORDED: usize = 2000;
/// The agent that is meant if none is named.
const AGENT: &str = "claude";

impl Daemon {
    /// Gives a task to a session: it begins when those before it are over.
    pub(crate) fn create_task(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: NewTask,
    ) -> Result<Task, Trouble> {
        check_prompt(&new.prompt)?;
        self.check_attachments(session, &new.attachments)?;
        if session.doc().spec.life == Life::Once {
            let sentence = "a session that lives for one command takes no tasks";
            return Err(Trouble::conflict("lives-once", sentence).with_hint("make one that stays"));
        }
        if !session.state().is_live() {
            session.state().accepts_commands()?;
        }
        let known = self.kept_tasks(session)?;
        let waiting = known.iter().filter(|kept| kept.task.state == TaskState::Waiting).count();
        if waiting >= MAX_WAITING {
            let sentence = format!("{MAX_WAITING} tasks of the session wait already");
            return Err(Trouble::conflict("too-many", sentence)
                .with_hint("wait until one of them is over, or cancel one"));
        }
        if new.launch.step != AgentStep::Run {
            return Err(Trouble::refused("no-tasks", "a task installs nothing"));
        }
        let agent = new.agent.unwrap_or_else(|| AGENT.to_owned());
        self.check_agent(&agent, new.model.as_deref())?;
        let task = Task {
            number: self.book.catalogue.last_task(&session.id)?.saturating_add(1),
            session: session.id.clone(),
            agent,
            model: new.model,
            approvals: new.approvals,
            prompt: new.prompt,
            attachments: new.attachments,
            state: TaskState::Waiting,
            reason: None,
            created: now(),
            started: None,
            ended: None,
            command: None,
            conversation: None,
            requests: Vec::new(),
            plan: Vec::new(),
            messages: 0,
            answer: None,
            usage: TaskUsage::default(),
            summary: None,
        };
        let data = json!({
            "task": task.number, "agent": task.agent, "model": task.model,
            "approvals": task.approvals, "prompt": clean(&task.prompt, RECORDED).text,
        });
        let kept = Kept { options: new.launch, ..Kept::new(task) };
        let over = known.iter().filter(|kept| kept.task.state.is_over());
        let many = (known.len() + 1).saturating_sub(MAX_TASKS);
        let old: Vec<u32> = over.map(|kept| kept.task.number).take(many).collect();
        let text = kept.text()?;
        self.book.record_with("task.created", Some(&session.id), &data, |catalogue| {
            for number in old {
                catalogue.remove_task(&session.id, number)?;
            }
            catalogue.put_task(&session.id, kept.task.number, &text)
        })?;
        self.attend(session);
        Ok(kept.task)
    }

    /// Refuses an agent that cannot be given a task.
    fn check_agent(&self, name: &str, model: Option<&str>) -> Result<(), Trouble> {
        let agents = self.agents()?;
        let agent = agents.iter().find(|known| known.name == name).ok_or_else(|| {
            let sentence = format!("there is no agent `{}`", name.escape_debug());
            Trouble::missing("no-agent", sentence).with_hint("see `cowork agents`")
        })?;
        let bad = agent.problem.is_some();
        match (agent.task, model) {
            _ if bad => Ok(()),
            (None, _) => Err(agent::no_tasks(name)),
            (Some(TaskProtocol::Plain), Some(_)) => Err(agent::no_model(name)),
            (Some(_), _) => Ok(()),
        }
    }

    fn check_attachments(&self, session: &Session, attachments: &[String]) -> Result<(), Trouble> {
        let uploads = self.folders.session(&session.id).join("uploads");
        for attachment in attachments {
            let path = Path::new(attachment);
            let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let there = || std::fs::symlink_metadata(uploads.join(path)).is_ok();
            if attachment.is_empty() || !plain || !there() {
                let sentence = format!("the session has no upload `{}`", attachment.escape_debug());
                return Err(Trouble::refused("no-attachment", sentence)
                    .with_hint("copy it there first: `cowork cp FILE SESSION:uploads/`"));
            }
        }
        Ok(())
    }

    /// Every task of a session, the oldest first.
    fn kept_tasks(&self, session: &Session) -> Result<Vec<Kept>, Trouble> {
        let found = self.book.catalogue.tasks(&session.id, 0, u32::MAX)?;
        Ok(found.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect())
    }

    fn kept_task(&self, session: &Session, number: u32) -> Result<Kept, Trouble> {
        let text = self.book.catalogue.task(&session.id, number)?;
        let text = text.ok_or_else(|| {
            let sentence = format!("session `{}` has no task {number}", session.id);
            Trouble::missing("no-task", sentence).with_hint("see `cowork tasks`")
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Trouble::host("a task in the catalogue cannot be read", error))
    }

    /// A task.
    pub(crate) fn task(&self, session: &Session, number: u32) -> Result<Task, Trouble> {
        self.kept_task(session, number).map(|kept| kept.task)
    }

    /// A task, and what has come of it so far if it is not over.
    pub(crate) async fn task_so_far(
        self: &Arc<Self>,
        session: &Arc<Session>,
        number: u32,
    ) -> Result<Task, Trouble> {
        let kept = self.kept_task(session, number)?;
        let summary = match kept.task.summary.clone() {
            None if kept.task.started.is_some() => Some(self.summarise_task(session, &kept).await),
            known => known,
        };
        Ok(Task { summary, ..kept.task })
    }

    /// Tasks of a session after one, the oldest first.
    pub(crate) fn tasks(
        &self,
        session: &Session,
        after: u32,
        limit: u32,
    ) -> Result<Vec<Task>, Trouble> {
        let found = self.book.catalogue.tasks(&session.id, after, limit)?;
        let kept = found.iter().filter_map(|(_, text)| serde_json::from_str::<Kept>(text).ok());
        Ok(kept.map(|kept| kept.task).collect())
    }

    /// Messages of a task after one, the oldest first.
    pub(crate) fn task_messages(
        &self,
        session: &Session,
        number: u32,
        after: u64,
        limit: u32,
    ) -> Result<Vec<TaskMessage>, Trouble> {
        self.kept_task(session, number)?;
        let found = self.book.catalogue.messages(&session.id, number, after, limit)?;
        Ok(found.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect())
    }

    /// Goes on with the tasks that the last daemon left.
    pub(crate) fn adopt_tasks(self: &Arc<Self>) {
        for session in self.all() {
            let known = self.kept_tasks(&session).unwrap_or_default();
            let open = known.iter().any(|kept| !kept.task.state.is_over());
            let last = known.iter().rev().find_map(|kept| kept.task.command);
            let lives =
                last.is_some_and(|number| session.run(number).is_some_and(|run| run.is_running()));
            if open || lives {
                self.attend(&session);
            }
        }
    }
}

/// Refuses what cannot be said to an agent.
fn check_prompt(prompt: &str) -> Result<(), Trouble> {
    if prompt.trim().is_empty() {
        return Err(Trouble::refused("bad-prompt", "the prompt is empty"));
    }
    if prompt.len() > MAX_PROMPT || prompt.contains('\0') {
        let sentence = format!("a prompt has at most {MAX_PROMPT} bytes, and no NUL");
        return Err(Trouble::refused("bad-prompt", sentence)
            .with_hint("put what is long into a file, and name that"));
    }
    Ok(())
}

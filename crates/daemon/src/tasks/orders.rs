//! What is wanted of a task: sent to the desk of its session, which does it in its order.

use crate::daemon::Daemon;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_client::types::Task;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Something that is wanted.
#[derive(Debug)]
pub(super) struct Order {
    /// The task; none if all are to be looked at.
    pub(super) task: Option<u32>,
    pub(super) what: What,
    reply: Option<oneshot::Sender<Result<Task, Trouble>>>,
}

/// What is wanted.
#[derive(Debug)]
pub(crate) enum What {
    /// That somebody looks: there is a new task, or an answer.
    Look,
    /// That something is said to the agent.
    Steer(String),
    /// That it stands still.
    Pause,
    /// That it goes on.
    Resume,
    /// That it ends.
    Cancel,
}

impl Order {
    /// That somebody looks.
    pub(super) fn look() -> Self {
        Self { task: None, what: What::Look, reply: None }
    }

    /// Says what came of it.
    pub(super) fn answer(self, done: Result<Task, Trouble>) {
        if let Some(reply) = self.reply {
            // Whoever asked may be gone.
            cowork_sys::ignore(reply.send(done));
        }
    }

    /// Whoever waits for what comes of it.
    pub(super) fn waiter(self) -> Option<oneshot::Sender<Result<Task, Trouble>>> {
        self.reply
    }
}

impl Daemon {
    /// Has something done about a task.
    pub(crate) async fn order_task(
        self: &Arc<Self>,
        session: &Arc<Session>,
        number: u32,
        what: What,
    ) -> Result<Task, Trouble> {
        let task = self.task(session, number)?;
        if task.state.is_over() {
            let sentence = format!("task {number} is over");
            return Err(Trouble::conflict("task-over", sentence));
        }
        if let What::Steer(prompt) = &what {
            super::check_prompt(prompt)?;
        }
        self.attend(session);
        let (reply, done) = oneshot::channel();
        let order = Order { task: Some(number), what, reply: Some(reply) };
        let busy = || Trouble::host("nobody looks after the tasks of the session", "try again");
        self.desks.send(session, order).map_err(|_unsent| busy())?;
        done.await.unwrap_or_else(|_| Err(busy()))
    }
}

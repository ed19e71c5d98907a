//! The command that is an agent: started, spoken to, kept for the next task, and dismissed.

use super::kept::Kept;
use crate::daemon::Daemon;
use crate::session::{Run, Session};
use crate::trouble::Trouble;
use cowork_client::types::{
    NewCommand, PreparedAgent, Raw, StreamKind, Streams, TaskProtocol, TaskState,
};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Time that an agent has to end by itself, once nothing more is said to it.
const FAREWELL: Duration = Duration::from_secs(5);
/// Time between asking it to end and killing it.
const GRACE: Duration = Duration::from_secs(2);

/// An agent that runs.
pub(super) struct Companion {
    pub(super) run: Arc<Run>,
    /// Stands for its command line and variables.
    pub(super) launch: String,
    /// Where in its output the next line begins that was not followed.
    pub(super) offset: u64,
    /// What it had cost when it last answered.
    pub(super) cost: f64,
    /// Whether it says what it hears.
    pub(super) hears: bool,
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    /// How many messages it was sent, and how many of them it has got.
    sent: u64,
    pub(super) got: watch::Receiver<u64>,
    writer: AbortHandle,
}

impl Companion {
    pub(super) fn new(run: Arc<Run>, launch: String) -> Self {
        let (outbox, mail) = mpsc::unbounded_channel();
        let (done, got) = watch::channel(0);
        let writer = tokio::spawn(write(Arc::clone(&run), mail, done)).abort_handle();
        Self { run, launch, offset: 0, cost: 0.0, hears: false, outbox, sent: 0, got, writer }
    }

    /// The agent of a task that an earlier daemon, or an earlier task, left.
    pub(super) fn of(run: Arc<Run>, kept: &Kept) -> Self {
        let mut companion = Self::new(run, kept.launch.clone());
        companion.offset = kept.offset;
        companion.cost = kept.cost;
        companion.hears = kept.hears;
        companion
    }

    /// Sends it something, without waiting until it reads; the number of the message.
    pub(super) fn send(&mut self, message: Vec<u8>) -> u64 {
        // One that is gone is noticed by its end.
        cowork_sys::ignore(self.outbox.send(message));
        self.sent += 1;
        self.sent
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Writes messages to an agent's input, one after the other.
async fn write(
    run: Arc<Run>,
    mut mail: mpsc::UnboundedReceiver<Vec<u8>>,
    done: watch::Sender<u64>,
) {
    while let Some(message) = mail.recv().await {
        if run.write_stdin(&message).await.is_err() {
            return;
        }
        done.send_modify(|done| *done += 1);
    }
}

/// An agent's command, put together.
pub(super) struct Launch {
    pub(super) protocol: TaskProtocol,
    pub(super) command: NewCommand,
    /// Stands for all of it but the conversation and the prompt.
    pub(super) print: String,
}

/// The command line of an agent for a task, without a conversation to go on with.
pub(super) fn launch(prepared: &PreparedAgent, model: Option<&str>) -> Result<Launch, Trouble> {
    let task = prepared.task.as_ref().ok_or_else(|| no_tasks(&prepared.agent))?;
    let mut argv = prepared.argv.clone();
    argv.extend(task.arguments.iter().cloned().map(Raw::Text));
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| Raw::Text((*word).into())));
    if task.protocol == TaskProtocol::ClaudeStreamJson {
        add(&["--replay-user-messages"]);
    }
    match (model, task.protocol) {
        (None, _) => {}
        (Some(_), TaskProtocol::Plain) => return Err(no_model(&prepared.agent)),
        (Some(model), _) => add(&["--model", model]),
    }
    let stdin = match task.protocol {
        TaskProtocol::ClaudeStreamJson | TaskProtocol::CodexExecJson => StreamKind::Pipe,
        TaskProtocol::Plain => StreamKind::Null,
    };
    let streams = Streams { stdin, stdout: StreamKind::Pipe, stderr: StreamKind::Pipe };
    let command = NewCommand {
        argv,
        cwd: Some(prepared.cwd.clone()),
        env: prepared.env.clone(),
        streams,
        ..NewCommand::default()
    };
    let all = serde_json::to_vec(&command).unwrap_or_default();
    let mut print = String::new();
    for byte in digest(&SHA256, &all).as_ref() {
        cowork_sys::ignore(write!(print, "{byte:02x}"));
    }
    Ok(Launch { protocol: task.protocol, command, print })
}

/// An agent that cannot be given a task.
pub(super) fn no_tasks(agent: &str) -> Trouble {
    Trouble::refused("no-tasks", format!("the agent `{agent}` takes no tasks"))
        .with_hint("its definition does not say how one is given to it: see `cowork agents`")
}

/// An agent that cannot be told which model to use.
pub(super) fn no_model(agent: &str) -> Trouble {
    Trouble::refused("bad-model", format!("the agent `{agent}` cannot be told which model to use"))
}

impl Launch {
    /// Goes on with a conversation.
    pub(super) fn resume(&mut self, conversation: &str) {
        let word = |word: &str| Raw::Text(word.to_owned());
        match self.protocol {
            TaskProtocol::ClaudeStreamJson => {
                self.command.argv.extend([word("--resume"), word(conversation)]);
            }
            TaskProtocol::CodexExecJson => {
                self.command.argv.extend([word("resume"), word(conversation)]);
            }
            TaskProtocol::Plain => {}
        }
    }

    /// Says the prompt with the command line, where that is the way.
    pub(super) fn prompt(&mut self, prompt: String) {
        match self.protocol {
            TaskProtocol::ClaudeStreamJson => {}
            TaskProtocol::CodexExecJson => self.command.argv.push(Raw::Text("-".into())),
            TaskProtocol::Plain => self.command.argv.push(Raw::Text(prompt)),
        }
    }
}

impl Daemon {
    /// The conversation that a new command of an agent goes on with: the last one in the same folder.
    pub(super) fn conversation(
        &self,
        session: &Session,
        task: &Kept,
        cwd: Option<&Raw>,
    ) -> Option<String> {
        let known = self.kept_tasks(session).ok()?;
        let mut earlier = known.iter().rev().filter(|kept| {
            kept.task.number < task.task.number
                && kept.task.agent == task.task.agent
                && kept.task.state != TaskState::Waiting
        });
        let (conversation, command) =
            earlier.find_map(|kept| Some((kept.task.conversation.clone()?, kept.task.command?)))?;
        let command = self.command(session, command).ok()?;
        (Some(&command.cwd) == cwd).then_some(conversation)
    }

    /// Lets an agent end: by itself if it is given the time, or else at once.
    pub(super) async fn dismiss(
        self: &Arc<Self>,
        session: &Arc<Session>,
        companion: Companion,
        how: Dismissal,
    ) {
        let run = Arc::clone(&companion.run);
        // Whoever writes to it would hold its input.
        companion.writer.abort();
        drop(companion);
        if how == Dismissal::Politely && run.is_running() {
            self.end_input(session, &run).await;
            let mut progress = run.progress.subscribe();
            let deadline = tokio::time::Instant::now() + FAREWELL;
            while run.is_running() {
                if tokio::time::timeout_at(deadline, progress.changed()).await.is_err() {
                    break;
                }
            }
        }
        if run.is_running() {
            drop(self.cancel_command(session, &run, GRACE).await);
        }
    }
}

/// How an agent is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dismissal {
    /// Its input ends first.
    Politely,
    /// It is told to end, and killed if it does not.
    AtOnce,
}

//! One task while its agent works: every line of output is applied, every order carried out.

use super::agent::Companion;
use super::apply::{Matter, apply, language};
use super::desk::{Desk, message_name, reason};
use super::kept::{Kept, News};
use super::orders::{Order, What};
use crate::trouble::Trouble;
use cowork_client::types::{CommandState, Reason, Task, TaskMessageKind, TaskProtocol};
use cowork_session::output::{Reader, Stream};
use cowork_session::speech::{Line, Lines, MAX_TEXT, Outcome, claude, clean, decode};
use cowork_session::task::Event;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Bytes of output that are read at a time.
const CHUNK: usize = 256 * 1024;
/// Time that an agent has to stop what it does, before its command is ended.
const STOP: Duration = Duration::from_secs(5);
/// Time after an early answer in which an agent takes up what else was said to it.
const UNHEARD: Duration = Duration::from_secs(10);
/// Time that an agent has to end after its answer, where it is to.
const LEAVE: Duration = Duration::from_secs(30);
/// How much of what an agent wrote to standard error is shown.
const MAX_STDERR: usize = 1000;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is an answer.
    Done,
    /// There is none.
    Failed(Reason),
    /// What the agent wrote cannot be understood.
    Garbled(Reason),
    /// The user did not want it any more.
    Cancelled,
    /// The agent is gone.
    Lost(Reason),
}

/// Whoever waits until a task is over.
type Waiter = oneshot::Sender<Result<Task, Trouble>>;

/// A task while its agent works.
pub(super) struct Turn<'d> {
    desk: &'d mut Desk,
    pub(super) kept: Kept,
    pub(super) companion: Companion,
    reader: Reader,
    lines: Lines,
    /// Up to where the output was read.
    at: u64,
    /// How it would end if the agent ended now, where it says that before.
    outcome: Option<Outcome>,
    /// When it is over whatever the agent does.
    deadline: Option<Instant>,
    waiters: Vec<Waiter>,
}

/// What a turn leaves: the task, its agent, how it ended, and who waits to hear of it.
pub(super) type Left = (Kept, Option<Companion>, Ending, Vec<Waiter>);

impl<'d> Turn<'d> {
    pub(super) fn new(
        desk: &'d mut Desk,
        kept: Kept,
        companion: Companion,
    ) -> Result<Self, Box<(Kept, Trouble)>> {
        let reader = match Reader::open(&companion.run.folder) {
            Ok(reader) => reader,
            Err(error) => {
                let trouble = Trouble::host("cannot read what the agent says", error);
                return Err(Box::new((kept, trouble)));
            }
        };
        let at = kept.offset;
        Ok(Self {
            desk,
            kept,
            companion,
            reader,
            lines: Lines::default(),
            at,
            outcome: None,
            deadline: None,
            waiters: Vec::new(),
        })
    }

    /// Follows the agent until the task is over.
    pub(super) async fn follow(mut self) -> Left {
        let ending = self.until_over().await;
        (self.kept, Some(self.companion), ending, self.waiters)
    }

    async fn until_over(&mut self) -> Ending {
        let run = Arc::clone(&self.companion.run);
        let mut progress = run.progress.subscribe();
        let mut got = self.companion.got.clone();
        // What an earlier daemon had decided, and could not say.
        self.flush();
        if self.kept.cancelling {
            self.stop().await;
        }
        self.answer_questions().await;
        loop {
            progress.mark_unchanged();
            // Looked at before the output is: what is written between the two is read next time.
            let over = !run.is_running();
            match self.read().await {
                Ok(Some(ending)) => return ending,
                Ok(None) => {}
                Err(ending) => return ending,
            }
            if over {
                return self.ended().await;
            }
            tokio::select! {
                changed = progress.changed() => if changed.is_err() { return self.ended().await },
                Ok(()) = got.changed() => {
                    let count = *got.borrow_and_update();
                    self.note_given(count).await;
                }
                order = self.desk.orders.recv() => if let Some(order) = order {
                    self.order(order).await;
                },
                () = passed(self.deadline) => {
                    if let Some(ending) = self.time_over() {
                        return ending;
                    }
                }
            }
        }
    }

    /// Reads what there is.
    async fn read(&mut self) -> Result<Option<Ending>, Ending> {
        let lost = |sentence: String| Ending::Lost(reason("output-lost", sentence));
        loop {
            let read = self.reader.read_stream(Stream::Stdout, self.at, CHUNK);
            let (from, bytes) = read.map_err(|error| lost(error.to_string()))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if from != self.at {
                return Err(lost("more was written than is kept".into()));
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (line, taken) = self.lines.take(rest);
                self.at += taken as u64;
                rest = rest.get(taken..).unwrap_or_default();
                if let Some(line) = line
                    && let Some(ending) = self.hear(&line).await
                {
                    return Ok(Some(ending));
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// The agent says something: how the task ended, if it did.
    async fn hear(&mut self, line: &Line) -> Option<Ending> {
        let protocol = self.kept.protocol.unwrap_or(TaskProtocol::Plain);
        let said = match decode(language(protocol), line) {
            Ok(said) => said,
            Err(garbled) => return Some(Ending::Garbled(reason("garbled", garbled.to_string()))),
        };
        if said.is_empty() {
            return None;
        }
        self.kept.offset = self.at;
        let mut news = News::default();
        let mut ending = None;
        for one in said {
            match apply(&mut self.kept, &mut news, one) {
                Matter::Nothing => {}
                Matter::Asks(question) => self.ask(&question, &mut news),
                Matter::Withdraws(question) => self.withdraw(&question, &mut news),
                Matter::AsksOther { question, kind } => {
                    let why = format!("`{kind}` is not known here");
                    self.reply(claude::cannot(&question, &why));
                }
                Matter::Answered(outcome) => ending = self.answered(outcome),
                Matter::AnsweredEarly => self.deadline = Some(Instant::now() + UNHEARD),
            }
        }
        if self.kept.unheard.is_empty() && self.outcome.is_none() && !self.kept.cancelling {
            // It is at work again.
            self.deadline = None;
        }
        self.write(news).await;
        self.flush();
        ending
    }

    fn answered(&mut self, outcome: Outcome) -> Option<Ending> {
        if self.kept.protocol != Some(TaskProtocol::ClaudeStreamJson) {
            // It ends by itself now.
            self.outcome = Some(outcome);
            self.deadline = Some(Instant::now() + LEAVE);
            return None;
        }
        Some(self.ending_of(outcome))
    }

    fn ending_of(&self, outcome: Outcome) -> Ending {
        match outcome {
            _ if self.kept.cancelling => Ending::Cancelled,
            Outcome::Good => Ending::Done,
            Outcome::Bad => {
                let why = self.kept.task.answer.clone();
                let why = why.unwrap_or_else(|| "the agent gave up".into());
                Ending::Failed(reason("agent-failed", clean(&why, MAX_STDERR).text))
            }
        }
    }

    /// Something to be sent to the agent, which is not forgotten if the daemon ends before.
    pub(super) fn reply(&mut self, message: Vec<u8>) {
        if let Ok(message) = String::from_utf8(message) {
            self.kept.replies.push(message);
        }
    }

    /// Sends what is to be sent.
    fn flush(&mut self) {
        for reply in std::mem::take(&mut self.kept.replies) {
            self.companion.send(reply.into_bytes());
        }
    }

    /// Writes the task down; what cannot be written is written when it can.
    pub(super) async fn write(&mut self, news: News) {
        while self.desk.daemon.write_task(&self.kept, &news).is_err() {
            if self.desk.daemon.find(&self.kept.task.session).is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The agent has got so many messages.
    async fn note_given(&mut self, count: u64) {
        if !self.kept.given && count >= self.kept.first {
            self.kept.given = true;
            self.write(News::default()).await;
        }
    }

    /// The agent's command has ended, and all that it wrote was read.
    async fn ended(&mut self) -> Ending {
        self.companion.run.settled().await;
        match self.read().await {
            Ok(Some(ending)) | Err(ending) => return ending,
            Ok(None) => {}
        }
        if let Some(line) = self.lines.rest()
            && let Some(ending) = self.hear(&line).await
        {
            return ending;
        }
        let command = self.companion.run.command();
        if self.kept.cancelling {
            return Ending::Cancelled;
        }
        if let Some(outcome) = self.outcome {
            return self.ending_of(outcome);
        }
        if command.state == CommandState::Interrupted {
            let lost = reason("sandbox-lost", "the session's sandbox ended");
            return Ending::Lost(command.reason.unwrap_or(lost));
        }
        if self.kept.protocol == Some(TaskProtocol::Plain) && command.code == Some(0) {
            return Ending::Done;
        }
        let how = match (command.signal, command.code) {
            (Some(signal), _) => format!("the agent was ended by signal {signal}"),
            (None, Some(code)) => format!("the agent ended without an answer, with status {code}"),
            (None, None) => "the agent ended without an answer".to_owned(),
        };
        let said = self.last_words();
        let sentence = if said.is_empty() { how } else { format!("{how}: {said}") };
        Ending::Failed(reason("agent-ended", sentence))
    }

    /// The end of what the agent wrote to standard error.
    fn last_words(&mut self) -> String {
        let mut at = 0;
        let mut tail = Vec::new();
        while let Ok((from, bytes)) = self.reader.read_stream(Stream::Stderr, at, CHUNK) {
            if bytes.is_empty() {
                break;
            }
            at = from + bytes.len() as u64;
            tail.extend(bytes);
            let over = tail.len().saturating_sub(MAX_STDERR);
            tail.drain(..over);
        }
        clean(&String::from_utf8_lossy(&tail), MAX_STDERR).line().trim().to_owned()
    }

    /// Something is wanted.
    async fn order(&mut self, order: Order) {
        self.answer_questions().await;
        let mine = order.task == Some(self.kept.task.number);
        if !mine {
            return self.desk.order_waiting(order);
        }
        match order.what {
            What::Look => {}
            What::Cancel => {
                self.waiters.extend(order.waiter());
                if !self.kept.cancelling {
                    self.cancel().await;
                }
            }
            What::Steer(ref prompt) => {
                let prompt = prompt.clone();
                let done = self.steer(&prompt);
                order.answer(done.map(|()| self.kept.task.clone()));
                self.flush();
            }
            What::Pause => {
                let done = self.hold(CommandState::Paused).await;
                order.answer(done.map(|()| self.kept.task.clone()));
            }
            What::Resume => {
                let done = self.hold(CommandState::Running).await;
                order.answer(done.map(|()| self.kept.task.clone()));
            }
        }
    }

    fn steer(&mut self, prompt: &str) -> Result<(), Trouble> {
        if self.kept.protocol != Some(TaskProtocol::ClaudeStreamJson) {
            let sentence =
                format!("the agent `{}` does not listen while it works", self.kept.task.agent);
            return Err(Trouble::conflict("not-steerable", sentence)
                .with_hint("cancel the task, or give another one"));
        }
        if self.kept.cancelling {
            return Err(Trouble::conflict("task-over", "the task is being cancelled"));
        }
        let mut news = News::default();
        let mut kept = self.kept.clone();
        kept.say(&mut news, TaskMessageKind::User, clean(prompt, MAX_TEXT));
        let name = message_name();
        let message = claude::say(&name, &[prompt]);
        kept.unheard.push(name);
        let data = json!({
            "task": kept.task.number, "prompt": clean(prompt, super::RECORDED).text,
        });
        self.desk.daemon.record_task("task.steered", &data, &kept, &news)?;
        self.kept = kept;
        self.companion.send(message);
        Ok(())
    }

    async fn hold(&mut self, wanted: CommandState) -> Result<(), Trouble> {
        let (event, kind) = match wanted {
            CommandState::Paused => (Event::Pause, "task.paused"),
            _ => (Event::Resume { waiting: self.kept.questions.len() }, "task.resumed"),
        };
        let mut news = News::default();
        let mut kept = self.kept.clone();
        kept.happen(&mut news, event, None)?;
        let (daemon, session) = (Arc::clone(&self.desk.daemon), Arc::clone(&self.desk.session));
        let held = daemon.hold(&session, &self.companion.run, wanted).await;
        match held {
            // Somebody let the command itself go on.
            Err(trouble) if trouble.code == "not-paused" => {}
            held => drop(held?),
        }
        let data = json!({ "task": kept.task.number });
        daemon.record_task(kind, &data, &kept, &news)?;
        self.kept = kept;
        Ok(())
    }

    /// The user does not want it any more.
    async fn cancel(&mut self) {
        self.kept.cancelling = true;
        let data = json!({ "task": self.kept.task.number });
        let news = News::default();
        // Whether or not there is room to say so, it is stopped.
        drop(self.desk.daemon.record_task("task.cancelled", &data, &self.kept, &news));
        self.stop().await;
    }

    /// Tells the agent to stop what it does.
    async fn stop(&mut self) {
        let (daemon, session) = (Arc::clone(&self.desk.daemon), Arc::clone(&self.desk.session));
        let run = Arc::clone(&self.companion.run);
        if self.kept.protocol == Some(TaskProtocol::ClaudeStreamJson) {
            if run.command().state == CommandState::Paused {
                drop(daemon.hold(&session, &run, CommandState::Running).await);
            }
            self.companion.send(claude::interrupt(&message_name()));
            self.deadline = Some(Instant::now() + STOP);
        } else {
            self.end_agent();
        }
    }

    /// Ends the agent's command, while its output is still followed.
    fn end_agent(&mut self) {
        self.deadline = None;
        let (daemon, session) = (Arc::clone(&self.desk.daemon), Arc::clone(&self.desk.session));
        let run = Arc::clone(&self.companion.run);
        tokio::spawn(async move {
            drop(daemon.cancel_command(&session, &run, Duration::from_secs(2)).await);
        });
    }

    fn time_over(&mut self) -> Option<Ending> {
        self.deadline = None;
        if self.kept.cancelling || self.outcome.is_some() {
            self.end_agent();
            return None;
        }
        // It has answered, and takes nothing more up.
        Some(Ending::Done)
    }

    /// Answers the questions that the user has decided.
    pub(super) async fn answer_questions(&mut self) {
        let mut news = News::default();
        if self.take_answers(&mut news) {
            self.write(news).await;
            self.flush();
        }
    }

    pub(super) fn desk(&self) -> &Desk {
        self.desk
    }
}

/// Waits until a moment that may not come.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

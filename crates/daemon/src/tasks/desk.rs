//! The desk of a session: whoever gives its tasks to agents, one after the other.
//!
//! Everything that happens to a task that is not over happens here, in one place and in order. A desk
//! is there while there is something to do, or an agent waits for more.

use super::agent::{Companion, Dismissal, launch};
use super::hints;
use super::kept::{Kept, News};
use super::orders::{Order, What};
use super::turn::{Ending, Turn};
use crate::daemon::Daemon;
use crate::session::{Run, Session};
use crate::trouble::Trouble;
use cowork_client::types::{Reason, Task, TaskMessageKind, TaskProtocol, TaskState};
use cowork_session::output::{Reader, Stream};
use cowork_session::speech::{MAX_TEXT, claude, clean};
use cowork_session::task::Event;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long an agent is kept that has nothing to do.
const IDLE: Duration = Duration::from_mins(10);
/// How often a session that takes no command is looked at again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of output that are looked at at a time.
const CHUNK: usize = 256 * 1024;

/// The desks of all sessions that have one.
#[derive(Default)]
pub(crate) struct Desks(Mutex<BTreeMap<String, Place>>);

/// Where a desk is reached.
struct Place {
    session: Arc<Session>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Desks {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an order to the desk of a session, if it has one.
    pub(super) fn send(&self, session: &Arc<Session>, order: Order) -> Result<(), Order> {
        let desks = self.lock();
        let place = desks.get(&session.id).filter(|place| Arc::ptr_eq(&place.session, session));
        match place {
            Some(place) => place.orders.send(order).map_err(|unsent| unsent.0),
            None => Err(order),
        }
    }
}

impl Daemon {
    /// Makes sure that somebody looks after the tasks of a session.
    pub(super) fn attend(self: &Arc<Self>, session: &Arc<Session>) {
        if self.desks.send(session, Order::look()).is_ok() {
            return;
        }
        let (sender, orders) = mpsc::unbounded_channel();
        let place = Place { session: Arc::clone(session), orders: sender };
        self.desks.lock().insert(session.id.clone(), place);
        let desk = Desk {
            daemon: Arc::clone(self),
            session: Arc::clone(session),
            orders,
            companion: None,
        };
        tokio::spawn(desk.work());
    }
}

/// Whoever looks after the tasks of a session.
pub(super) struct Desk {
    pub(super) daemon: Arc<Daemon>,
    pub(super) session: Arc<Session>,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// The agent of the last task, if it still runs.
    pub(super) companion: Option<Companion>,
}

impl Desk {
    async fn work(mut self) {
        self.take_up().await;
        while self.is_wanted() {
            let Ok(next) = self.next() else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            match next {
                Some(kept) if kept.state().is_begun() => self.go_on(kept).await,
                Some(kept) if self.session.state().accepts_commands().is_ok() => {
                    self.begin(kept).await;
                }
                Some(_) => self.wait().await,
                None if self.companion.is_some() => self.rest().await,
                None if self.leave() => return,
                None => {}
            }
        }
        self.daemon.desks.lock().retain(|_, place| !Arc::ptr_eq(&place.session, &self.session));
        // Nobody waits for an answer that does not come.
        while let Ok(order) = self.orders.try_recv() {
            order.answer(Err(gone(&self.session)));
        }
    }

    /// Whether the session is still there.
    fn is_wanted(&self) -> bool {
        let known = self.daemon.find(&self.session.id);
        known.is_some_and(|known| Arc::ptr_eq(&known, &self.session)) && !self.daemon.is_departing()
    }

    /// The first task that is not over.
    fn next(&self) -> Result<Option<Kept>, Trouble> {
        let known = self.daemon.kept_tasks(&self.session)?;
        Ok(known.into_iter().find(|kept| !kept.task.state.is_over()))
    }

    /// The session takes no command now.
    async fn wait(&mut self) {
        self.companion = self.companion.take().filter(|known| known.run.is_running());
        tokio::select! {
            order = self.orders.recv() => if let Some(order) = order { self.order_waiting(order) },
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }

    /// Nothing is to be done, and an agent waits for more.
    async fn rest(&mut self) {
        let Some(companion) = &self.companion else { return };
        let run = Arc::clone(&companion.run);
        let mut progress = run.progress.subscribe();
        let deadline = tokio::time::Instant::now() + IDLE;
        loop {
            if !run.is_running() {
                self.companion = None;
                return;
            }
            tokio::select! {
                order = self.orders.recv() => {
                    if let Some(order) = order {
                        self.order_waiting(order);
                    }
                    return;
                }
                changed = progress.changed() => {
                    if changed.is_err() {
                        self.companion = None;
                        return;
                    }
                }
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        if let Some(companion) = self.companion.take() {
            self.daemon.dismiss(&self.session, companion, Dismissal::Politely).await;
        }
    }

    /// Nothing is to be done: whether nobody has said anything else in the meantime.
    fn leave(&mut self) -> bool {
        let mut desks = self.daemon.desks.lock();
        let Ok(order) = self.orders.try_recv() else {
            desks.retain(|_, place| !Arc::ptr_eq(&place.session, &self.session));
            return true;
        };
        drop(desks);
        self.order_waiting(order);
        false
    }

    /// Something is wanted of a task that has not begun.
    pub(super) fn order_waiting(&self, order: Order) {
        let Some(number) = order.task else { return };
        let done = self.daemon.kept_task(&self.session, number).and_then(|mut kept| {
            let mut news = News::default();
            match order.what {
                What::Look => Ok(kept.task),
                What::Steer(_) => Err(misfit(&kept)),
                What::Pause => kept.happen(&mut news, Event::Pause, None).map(|()| kept.task),
                What::Resume => {
                    let event = Event::Resume { waiting: 0 };
                    kept.happen(&mut news, event, None).map(|()| kept.task)
                }
                What::Cancel => {
                    kept.happen(&mut news, Event::Cancel, Some(by_user()))?;
                    let data = json!({ "task": number, "state": kept.task.state });
                    self.daemon.record_task("task.ended", &data, &kept, &news)?;
                    Ok(kept.task)
                }
            }
        });
        order.answer(done);
    }

    /// Finds the agent that an earlier daemon left, if it still runs.
    async fn take_up(&mut self) {
        let Ok(known) = self.daemon.kept_tasks(&self.session) else { return };
        let last = known.iter().rev().find(|kept| kept.task.command.is_some());
        let Some(last) = last.filter(|last| last.task.state.is_over()) else { return };
        let run = last.task.command.and_then(|number| self.session.run(number));
        let Some(run) = run.filter(|run| run.is_running()) else { return };
        let companion = Companion::of(run, last);
        if last.protocol == Some(TaskProtocol::ClaudeStreamJson) {
            self.companion = Some(companion);
        } else {
            self.daemon.dismiss(&self.session, companion, Dismissal::AtOnce).await;
        }
    }

    /// Goes on with a task that an earlier daemon began.
    async fn go_on(&mut self, kept: Kept) {
        let run = kept.task.command.and_then(|number| self.session.run(number));
        match run {
            Some(run) if kept.given && kept.protocol.is_some() => {
                let companion = Companion::of(run, &kept);
                self.follow(kept, companion).await;
            }
            run => {
                if let Some(run) = run.or_else(|| self.orphan(&kept)) {
                    let companion = Companion::new(run, String::new());
                    self.daemon.dismiss(&self.session, companion, Dismissal::AtOnce).await;
                }
                let sentence = if kept.given {
                    "the agent is gone, and what it wrote cannot be followed"
                } else {
                    "the daemon ended before the agent was given the task"
                };
                self.finish(kept, Ending::Lost(reason("daemon-ended", sentence)), Vec::new()).await;
            }
        }
    }

    /// The command of a task that was started and not written down.
    fn orphan(&self, kept: &Kept) -> Option<Arc<Run>> {
        let program = kept.program.as_ref()?;
        let last = self.session.doc().commands;
        let mut later = (kept.commands.saturating_add(1)..=last).rev();
        later.find_map(|number| {
            let run = self.session.run(number).filter(|run| run.is_running())?;
            (run.command().argv.first() == Some(program)).then_some(run)
        })
    }

    /// Begins a task.
    async fn begin(&mut self, mut kept: Kept) {
        let started = self.start(&mut kept).await;
        match started {
            Ok(companion) => self.follow(kept, companion).await,
            // A session that is being paused or stopped is waited for.
            Err(_)
                if self.session.state().accepts_commands().is_err() && !kept.state().is_begun() =>
            {
                self.wait().await;
            }
            Err(trouble) => {
                let why = reason(trouble.code, trouble.line());
                self.finish(kept, Ending::Failed(why), Vec::new()).await;
            }
        }
    }

    /// Gives a task to an agent that runs already, or to one that is started for it.
    async fn start(&mut self, kept: &mut Kept) -> Result<Companion, Trouble> {
        let (daemon, session) = (Arc::clone(&self.daemon), Arc::clone(&self.session));
        let prepared = daemon.prepare_agent(&session, &kept.task.agent, &kept.options).await?;
        let mut launch = launch(&prepared, kept.task.model.as_deref())?;
        kept.protocol = Some(launch.protocol);
        kept.launch.clone_from(&launch.print);
        let known = self.companion.take();
        let fits = |known: &Companion| known.launch == launch.print && known.run.is_running();
        let known = match known {
            Some(known) if fits(&known) => Some(known),
            Some(other) => {
                daemon.dismiss(&session, other, Dismissal::Politely).await;
                None
            }
            None => None,
        };
        // What is changed from here on is this task's.
        self.divide(kept.task.number).await;
        let places = hints::hints(&session.doc(), &prepared.cwd.lossy(), &kept.task.attachments);
        kept.commands = session.doc().commands;
        kept.program = launch.command.argv.first().cloned();
        kept.record = daemon.book.last_record();
        self.note_begun(kept)?;
        let mut companion = if let Some(known) = known {
            skip_to_now(known).await
        } else {
            let conversation = daemon.conversation(&session, kept, launch.command.cwd.as_ref());
            if let Some(conversation) = conversation {
                launch.resume(&conversation);
            }
            launch.prompt(format!("{places}\n\n{}", kept.task.prompt));
            let run = daemon.start_command(&session, launch.command).await?;
            Companion::new(run, launch.print)
        };
        kept.task.command = Some(companion.run.number);
        kept.offset = companion.offset;
        kept.cost = companion.cost;
        kept.hears = companion.hears;
        self.give(kept, &mut companion, &places);
        daemon.write_task(kept, &News::default())?;
        Ok(companion)
    }

    /// Begins new sets of changes at the beginning or end of a task. Where that fails, what its agent
    /// changes may be in one set with what it changed for another task, and the record says so. In a
    /// session that ends nobody changes anything more.
    async fn divide(&self, task: u32) {
        if let Err(trouble) = self.daemon.boundary(&self.session).await
            && self.session.state().accepts_commands().is_ok()
        {
            let data = json!({ "task": task, "reason": trouble.line() });
            // The task goes on, whether that can be recorded or not.
            drop(self.daemon.book.record("changes.undivided", Some(&self.session.id), &data));
        }
    }

    fn note_begun(&self, kept: &mut Kept) -> Result<(), Trouble> {
        let mut news = News::default();
        kept.happen(&mut news, Event::Begin, None)?;
        let words = clean(&kept.task.prompt, MAX_TEXT);
        kept.say(&mut news, TaskMessageKind::User, words);
        let data = json!({ "task": kept.task.number, "agent": kept.task.agent });
        self.daemon.record_task("task.started", &data, kept, &news)
    }

    /// Tells the agent what is to be done, where the command line has not.
    fn give(&self, kept: &mut Kept, companion: &mut Companion, places: &str) {
        match kept.protocol {
            Some(TaskProtocol::ClaudeStreamJson) => {
                let name = message_name();
                let message = claude::say(&name, &[places, &kept.task.prompt]);
                kept.unheard = vec![name];
                kept.first = companion.send(message);
            }
            Some(TaskProtocol::CodexExecJson) => {
                let text = format!("{places}\n\n{}", kept.task.prompt);
                let run = Arc::clone(&companion.run);
                let (daemon, session) = (Arc::clone(&self.daemon), Arc::clone(&self.session));
                kept.given = true;
                tokio::spawn(async move {
                    drop(run.write_stdin(text.as_bytes()).await);
                    daemon.end_input(&session, &run).await;
                });
            }
            Some(TaskProtocol::Plain) | None => kept.given = true,
        }
    }

    /// Follows the agent until the task is over.
    async fn follow(&mut self, kept: Kept, companion: Companion) {
        let turn = Turn::new(self, kept, companion);
        let done = match turn {
            Ok(turn) => turn.follow().await,
            Err(unread) => {
                let (kept, trouble) = *unread;
                let why = reason(trouble.code, trouble.line());
                (kept, None, Ending::Lost(why), Vec::new())
            }
        };
        let (kept, companion, ending, waiters) = done;
        if let Some(mut companion) = companion {
            companion.offset = kept.offset;
            companion.cost = kept.cost;
            companion.hears = kept.hears;
            let stays = kept.protocol == Some(TaskProtocol::ClaudeStreamJson)
                && !matches!(ending, Ending::Garbled(_) | Ending::Lost(_))
                && companion.run.is_running();
            if stays {
                self.companion = Some(companion);
            } else {
                self.daemon.dismiss(&self.session, companion, Dismissal::AtOnce).await;
            }
        }
        self.finish(kept, ending, waiters).await;
    }

    /// Writes down how a task ended, and tells.
    pub(super) async fn finish(
        &self,
        mut kept: Kept,
        ending: Ending,
        waiters: Vec<tokio::sync::oneshot::Sender<Result<Task, Trouble>>>,
    ) {
        let (event, why) = match ending {
            Ending::Done => (Event::Finish, None),
            Ending::Failed(why) | Ending::Garbled(why) => (Event::Fail, Some(why)),
            Ending::Cancelled => (Event::Cancel, Some(by_user())),
            Ending::Lost(why) => (Event::Lose, Some(why)),
        };
        self.expire_questions(&mut kept);
        let mut news = News::default();
        if kept.task.started.is_some() {
            self.divide(kept.task.number).await;
            kept.task.summary = Some(self.daemon.summarise_task(&self.session, &kept).await);
        }
        kept.replies.clear();
        // What is over cannot end again: an earlier daemon has told it.
        drop(kept.happen(&mut news, event, why));
        let data = json!({
            "task": kept.task.number, "state": kept.task.state, "reason": kept.task.reason,
            "command": kept.task.command, "usage": kept.task.usage,
        });
        loop {
            let done = if self.daemon.is_recorded(&kept) {
                self.daemon.write_task(&kept, &news)
            } else {
                self.daemon.record_task("task.ended", &data, &kept, &news)
            };
            if done.is_ok() || !self.is_wanted() {
                break;
            }
            tokio::time::sleep(PATIENCE).await;
        }
        for waiter in waiters {
            cowork_sys::ignore(waiter.send(Ok(kept.task.clone())));
        }
    }
}

impl Daemon {
    /// Whether an earlier daemon has recorded the end of a task, and could not write it down.
    fn is_recorded(&self, kept: &Kept) -> bool {
        self.book.ahead.iter().any(|record| {
            record.kind == "task.ended"
                && record.session.as_deref() == Some(&kept.task.session)
                && record.data.get("task") == Some(&kept.task.number.into())
                && Some(&record.time) >= kept.task.started.as_ref()
        })
    }
}

/// An agent that has nothing to do may have said something: that belongs to no task.
async fn skip_to_now(mut companion: Companion) -> Companion {
    companion.run.settled().await;
    let Ok(mut reader) = Reader::open(&companion.run.folder) else { return companion };
    let mut at = companion.offset;
    while let Ok((from, bytes)) = reader.read_stream(Stream::Stdout, at, CHUNK) {
        if bytes.is_empty() {
            break;
        }
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            companion.offset = from + end as u64 + 1;
        }
        at = from + bytes.len() as u64;
    }
    companion
}

/// A new name for a message.
pub(super) fn message_name() -> String {
    let mut bytes = [0; 16];
    // Without the kernel's randomness names may be the same, and an agent may say what it heard twice.
    cowork_sys::ignore(rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()));
    let text = format!("{:032x}", u128::from_ne_bytes(bytes));
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let parts = parts.map(|(from, to)| text.get(from..to).unwrap_or_default().to_owned());
    parts.join("-")
}

pub(super) fn reason(code: &str, sentence: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), sentence: sentence.into() }
}

fn by_user() -> Reason {
    reason("cancelled", "it was cancelled")
}

fn misfit(kept: &Kept) -> Trouble {
    match kept.task.state {
        TaskState::Waiting => Trouble::conflict("task-waiting", "the task has not begun"),
        _ => Trouble::conflict("task-over", "the task is over"),
    }
}

fn gone(session: &Session) -> Trouble {
    Trouble::missing("no-session", format!("session `{}` is gone", session.id))
}

//! One thread of the pump: waits for bytes, and gives every log its turn.
//!
//! Invariant: between two turns nothing is owed to anybody. What was moved is in the files, the
//! log's status says so, and its `wake` was called, with no lock held. A log is with one thread at a
//! time, with all its feeds.
//!
//! Memory does not depend on the output: a log costs a few hundred bytes, and the bytes themselves
//! never come by.

use super::Progress;
use super::feed::{BUSY, Feed, Next, State};
use super::log::{Shared, Status};
use super::pump::{BELL, Mailbox, Request, about, token};
use super::store::Store;
use cowork_sys::{Errno, ignore};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How long a log that cannot be written rests before it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long a log stays with the busy thread after its last large turn.
const CALM: Duration = Duration::from_secs(1);

/// Events that are fetched at once; more of them wait in the kernel, in order.
const EVENTS: usize = 256;

/// Which logs a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Those that say little.
    Quiet,
    /// Those whose writers are held up by their pipes.
    Busy,
}

/// One log, on the pump's side.
pub(super) struct Task {
    feeds: Vec<Feed>,
    store: Store,
    shared: Arc<Shared>,
    wake: Box<dyn Fn() + Send>,
    /// Why nothing can be written; it rests until it is tried again.
    trouble: Option<String>,
    busy_until: Option<Instant>,
}

impl Task {
    pub(super) fn new(
        feeds: Vec<Feed>,
        store: Store,
        shared: Arc<Shared>,
        wake: Box<dyn Fn() + Send>,
    ) -> Self {
        Self { feeds, store, shared, wake, trouble: None, busy_until: None }
    }

    /// Gives one feed a turn. Returns how many bytes it moved, and nothing if it has no turn.
    fn turn(&mut self, number: usize, tools: &Tools) -> Option<(usize, Next)> {
        let feed = self.feeds.get_mut(number).filter(|feed| feed.state != State::Ended)?;
        if self.trouble.is_some() {
            return None;
        }
        let floor = self.shared.floor();
        let mut turned = feed.turn(&mut self.store, floor);
        if matches!(turned, Ok((_, Next::Held))) {
            self.shared.hold();
            // A reader that has moved on before this was known says so no more.
            if self.shared.floor() != floor {
                turned = feed.turn(&mut self.store, self.shared.floor());
            }
        }
        match turned {
            Ok((moved, next)) => {
                if next == Next::Ended {
                    feed.state = State::Ended;
                }
                if moved >= BUSY {
                    feed.enlarge(&tools.large);
                    self.busy_until = Some(Instant::now() + CALM);
                }
                Some((moved, next))
            }
            Err(error) => {
                let stream = feed.stream.name();
                self.trouble = Some(format!("cannot keep what comes from {stream}: {error}"));
                None
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.feeds.iter().all(|feed| feed.state == State::Ended)
    }

    fn is_busy(&self) -> bool {
        self.busy_until.is_some_and(|until| Instant::now() < until)
    }

    /// Says how far it has come.
    fn publish(&self) {
        let status = Status { progress: self.store.progress(), error: self.trouble.clone() };
        if self.shared.set(status) {
            (self.wake)();
        }
    }

    /// Says that nothing more comes, after everything was let go of.
    fn finish(self) {
        let Self { feeds, mut store, shared, wake, .. } = self;
        // A record that cannot be written is owed to nobody: the bytes it would cover are the last.
        ignore(store.flush());
        let progress = Progress { finished: true, ..store.progress() };
        drop((feeds, store));
        shared.set(Status { progress, error: None });
        wake();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("feeds", &self.feeds).finish_non_exhaustive()
    }
}

/// What every turn needs.
#[derive(Debug)]
struct Tools {
    large: Arc<AtomicUsize>,
}

/// One thread of the pump.
#[derive(Debug)]
pub(super) struct Worker {
    role: Role,
    mailbox: Arc<Mailbox>,
    other: Arc<Mailbox>,
    tools: Tools,
    tasks: HashMap<u64, Box<Task>>,
    /// Feeds that are `Queued`, by log, once each.
    queue: VecDeque<(u64, usize)>,
    /// Logs that rest, and until when; the pause is the same for all, so that they are in order.
    resting: VecDeque<(Instant, u64)>,
}

impl Worker {
    pub(super) fn new(
        role: Role,
        [own, other]: [&Arc<Mailbox>; 2],
        large: &Arc<AtomicUsize>,
    ) -> Self {
        Self {
            role,
            mailbox: Arc::clone(own),
            other: Arc::clone(other),
            tools: Tools { large: Arc::clone(large) },
            tasks: HashMap::new(),
            queue: VecDeque::new(),
            resting: VecDeque::new(),
        }
    }

    /// Works until it is stopped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while self.round(&mut events).is_continue() {}
        for request in self.mailbox.shut() {
            request.refuse();
        }
    }

    /// Waits, and attends to everything that has happened and to one feed of the queue: whoever is
    /// announced anew does not wait for all that have been busy before.
    fn round(&mut self, events: &mut Vec<Event>) -> ControlFlow<()> {
        events.clear();
        let pause = self.pause();
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        match epoll::wait(&*self.mailbox.epoll, spare_capacity(events), pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Only a set or a buffer that does not exist is refused.
            Err(_) => return ControlFlow::Break(()),
        }
        for request in self.mailbox.take() {
            self.carry_out(request)?;
        }
        for event in events.iter() {
            let Event { flags, data } = *event;
            if data.u64() != BELL {
                let (id, number) = about(data.u64());
                self.announce(id, number, flags);
            }
        }
        while let Some((until, id)) = self.resting.front().copied()
            && until <= Instant::now()
        {
            self.resting.pop_front();
            self.resume(id);
        }
        self.serve_first();
        ControlFlow::Continue(())
    }

    /// How long nothing is to be done unless something happens.
    fn pause(&self) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let (until, _) = self.resting.front()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn carry_out(&mut self, request: Request) -> ControlFlow<()> {
        match request {
            Request::Stop => return ControlFlow::Break(()),
            Request::Enter { id, task } => self.enter(id, task),
            Request::Close { id, log } => match self.tasks.remove(&id) {
                Some(task) => task.finish(),
                None => self.pass_on(Request::Close { id, log: Arc::clone(&log) }, &log),
            },
            Request::Settle { id, log, then } if self.tasks.contains_key(&id) => {
                drop(log);
                self.settle(id);
                then();
            }
            Request::Settle { id, log, then } => {
                self.pass_on(Request::Settle { id, log: Arc::clone(&log), then }, &log);
            }
        }
        ControlFlow::Continue(())
    }

    /// Asks the other thread, which has the log, or had it and passes the request on after it.
    fn pass_on(&self, request: Request, log: &Shared) {
        if log.is_finished() {
            request.refuse();
        } else if let Err(request) = self.other.post(request) {
            request.refuse();
        }
    }

    fn enter(&mut self, id: u64, mut task: Box<Task>) {
        if task.has_ended() {
            return task.finish();
        }
        for (number, feed) in task.feeds.iter_mut().enumerate() {
            if feed.state != State::Ended {
                feed.state = State::Queued;
                self.queue.push_back((id, number));
            }
        }
        self.tasks.insert(id, task);
    }

    /// Gives a feed its turn because the kernel says so.
    fn announce(&mut self, id: u64, number: usize, flags: epoll::EventFlags) {
        let task = self.tasks.get_mut(&id);
        let Some(feed) = task.and_then(|task| task.feeds.get_mut(number)) else { return };
        feed.announce(flags);
        if feed.state == State::Idle {
            self.serve(id, number);
        }
    }

    /// Gives the first feed of the queue its turn.
    fn serve_first(&mut self) {
        let Some((id, number)) = self.queue.pop_front() else { return };
        let task = self.tasks.get_mut(&id);
        let Some(feed) = task.and_then(|task| task.feeds.get_mut(number)) else { return };
        if feed.state == State::Queued {
            feed.state = State::Idle;
            self.serve(id, number);
        }
    }

    /// Gives a feed its turn.
    fn serve(&mut self, id: u64, number: usize) {
        let Some((moved, next)) = self.turn(id, number) else { return self.say(id) };
        if next == Next::More {
            self.enqueue(id, number);
        }
        self.say(id);
        self.place(id, moved);
    }

    fn turn(&mut self, id: u64, number: usize) -> Option<(usize, Next)> {
        let task = self.tasks.get_mut(&id)?;
        let rested = task.trouble.is_some();
        let turned = task.turn(number, &self.tools);
        if task.trouble.is_some() && !rested {
            self.resting.push_back((Instant::now() + RETRY, id));
        }
        turned
    }

    fn enqueue(&mut self, id: u64, number: usize) {
        let task = self.tasks.get_mut(&id);
        let Some(feed) = task.and_then(|task| task.feeds.get_mut(number)) else { return };
        if feed.state == State::Idle {
            feed.state = State::Queued;
            self.queue.push_back((id, number));
        }
    }

    /// Moves what every feed has at this instant.
    fn settle(&mut self, id: u64) {
        let holds = self.tasks.get(&id).map(|task| task.feeds.iter().map(Feed::holds).collect());
        let holds: Vec<usize> = holds.unwrap_or_default();
        for (number, mut rest) in holds.into_iter().enumerate() {
            while let Some((moved, next)) = self.turn(id, number) {
                rest = rest.saturating_sub(moved);
                if next == Next::More && rest == 0 {
                    self.enqueue(id, number);
                }
                if next != Next::More || rest == 0 {
                    break;
                }
            }
        }
        self.say(id);
    }

    /// Tries a log again that could not be written.
    fn resume(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.trouble = None;
        for number in 0..task.feeds.len() {
            if let Some((_, Next::More)) = self.turn(id, number) {
                self.enqueue(id, number);
            }
        }
        self.say(id);
    }

    /// Says how far a log has come, and lets go of one that has ended.
    fn say(&mut self, id: u64) {
        let Some(task) = self.tasks.get(&id) else { return };
        if !task.has_ended() {
            task.publish();
        } else if let Some(task) = self.tasks.remove(&id) {
            task.finish();
        }
    }

    /// Hands a log over to the thread that it belongs to, after a turn that moved so much.
    fn place(&mut self, id: u64, moved: usize) {
        let Some(task) = self.tasks.get(&id) else { return };
        let leaves = match self.role {
            Role::Quiet => moved >= BUSY,
            Role::Busy => moved < BUSY && !task.is_busy(),
        };
        if !leaves || task.trouble.is_some() {
            return;
        }
        let feeds = || task.feeds.iter().zip(0..);
        let mut joining =
            feeds().map(|(feed, number)| feed.join(&self.other.epoll, token(id, number)));
        if joining.any(|joined| joined.is_err()) {
            // The kernel watches no more descriptors for this user. The log is well where it is.
            return feeds().for_each(|(feed, _)| feed.leave(&self.other.epoll));
        }
        let Some(mut task) = self.tasks.remove(&id) else { return };
        for feed in &mut task.feeds {
            feed.stay(&self.other.epoll);
        }
        if let Err(request) = self.other.post(Request::Enter { id, task }) {
            request.refuse();
        }
    }
}

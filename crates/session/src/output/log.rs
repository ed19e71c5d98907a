//! One command's output as everybody but the pump sees it.
//!
//! Deliberately absent: bytes. A [`Reader`] has them.

use super::pump::{Mailbox, Request};
use super::{Progress, Reader};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The output of one command, while a [`Pump`](super::Pump) moves it.
#[derive(Debug)]
pub struct Log {
    id: u64,
    folder: PathBuf,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
}

impl Log {
    pub(super) fn new(id: u64, folder: &Path, shared: Arc<Shared>, mailbox: Arc<Mailbox>) -> Self {
        Self { id, folder: folder.into(), shared, mailbox }
    }

    /// How far the output has come. What is counted can be read.
    pub fn progress(&self) -> Progress {
        self.shared.lock().progress
    }

    /// Why the output does not get any further, e.g. because the disk is full. Nothing is lost
    /// meanwhile: the command waits when its pipe is full, and the pump tries again every second.
    pub fn error(&self) -> Option<String> {
        self.shared.lock().error.clone()
    }

    /// Moves everything that was written before this call, then calls `then`, and does not wait for
    /// either. Used when a command has ended although something that it left behind keeps its pipes.
    ///
    /// `then` is called exactly once, from a thread of the pump, or from this one if there is no
    /// pump any more; also if nothing can be moved, and [`error`](Self::error) then says why.
    pub fn settle(&self, then: Box<dyn FnOnce() + Send>) {
        let request = Request::Settle { id: self.id, log: Arc::clone(&self.shared), then };
        if let Err(request) = self.mailbox.post(request) {
            request.refuse();
        }
    }

    /// Lets go of the sources, soon. What was kept stays.
    pub fn close(&self) {
        // Without a pump the sources are let go of already.
        cowork_sys::ignore(
            self.mailbox.post(Request::Close { id: self.id, log: Arc::clone(&self.shared) }),
        );
    }

    /// Somebody reads the output from `offset` on: from now on nothing after it is let go of, and
    /// the command waits for a reader that is further behind than is kept.
    pub fn consume(self: &Arc<Self>, offset: u64) -> Consumer {
        let mut consumers = self.shared.consumers();
        consumers.last += 1;
        let number = consumers.last;
        consumers.offsets.insert(number, offset);
        drop(consumers);
        Consumer { log: Arc::clone(self), number }
    }

    /// Whether the command's output waits for a reader.
    pub fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Goes on if it was held.
    fn go_on(&self) {
        if self.shared.held.swap(false, Ordering::SeqCst) {
            self.settle(Box::new(|| {}));
        }
    }

    /// Opens the output for reading, independently of the pump.
    pub fn reader(&self) -> io::Result<Reader> {
        Reader::open(&self.folder)
    }
}

/// A reader that must not miss anything.
#[derive(Debug)]
pub struct Consumer {
    log: Arc<Log>,
    number: u64,
}

impl Consumer {
    /// It has read everything before `offset`.
    pub fn at(&self, offset: u64) {
        self.log.shared.consumers().offsets.insert(self.number, offset);
        self.log.go_on();
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.log.shared.consumers().offsets.remove(&self.number);
        self.log.go_on();
    }
}

/// What the pump says about a log, and what it is told.
#[derive(Debug, Default)]
pub(super) struct Shared {
    status: Mutex<Status>,
    consumers: Mutex<Consumers>,
    /// Whether something waits for a consumer.
    held: AtomicBool,
}

/// How far each consumer has read.
#[derive(Debug, Default)]
struct Consumers {
    last: u64,
    offsets: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) progress: Progress,
    pub(super) error: Option<String>,
}

impl Shared {
    pub(super) fn new(progress: Progress) -> Self {
        let status = Mutex::new(Status { progress, error: None });
        Self { status, ..Self::default() }
    }

    /// Replaces the status. Returns whether it is another one.
    pub(super) fn set(&self, status: Status) -> bool {
        let mut current = self.lock();
        let changed = *current != status;
        *current = status;
        changed
    }

    /// How far the consumer has read that is the furthest behind.
    pub(super) fn floor(&self) -> Option<u64> {
        self.consumers().offsets.values().min().copied()
    }

    /// Something waits for a consumer.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    fn consumers(&self) -> MutexGuard<'_, Consumers> {
        // Nothing that can panic runs under the lock.
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.lock().progress.finished
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // Nothing that can panic runs under the lock.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

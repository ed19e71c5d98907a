//! Connections of the session, from their arrival to their end.

use cowork_api::egress::{Ended, Http, Spoken, Target};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A connection of the session, from its arrival to its end.
#[derive(Debug)]
pub struct Flow {
    /// Its number; told in every record about it.
    pub number: u64,
    /// When it arrived.
    pub since: Instant,
    /// Bytes from the session.
    pub up: AtomicU64,
    /// Bytes to the session.
    pub down: AtomicU64,
    /// The kernel's number of the socket that it came from; 0 if it is not known.
    pub(crate) socket: AtomicU64,
    /// The port that it arrived at.
    pub(crate) listener: AtomicU16,
    /// How TLS was begun in it, if it was.
    greeting: OnceLock<Greeting>,
    /// When something moved in it last, in milliseconds from its arrival; and when the first came
    /// back, with one added.
    moved: AtomicU64,
    answered: AtomicU64,
    requests: AtomicU32,
    state: Mutex<State>,
    /// Where it is listed.
    list: Weak<Flows>,
}

/// How TLS was begun.
#[derive(Clone, Debug)]
struct Greeting {
    ended: Ended,
    sni: Option<String>,
}

/// What is known about a flow at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) target: Target,
    pub(crate) rule: Option<String>,
    pub(crate) waits: Waits,
    /// How it ends, if that is known already.
    pub(crate) how: Option<String>,
}

/// Whether a flow waits for the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It goes on.
    #[default]
    No,
    /// It does.
    ForTheUser,
}

impl Flow {
    /// The number of the next request in it: never 0, which is the connection itself. Behind the
    /// last number, requests share it.
    pub fn next_request(&self) -> u32 {
        let next = |last: u32| last.checked_add(1);
        let last = self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(u32::MAX, |last| last.saturating_add(1))
    }

    /// What it wants is not known yet.
    pub(crate) fn unsaid(&self) -> Target {
        Target {
            socket: self.socket.load(Ordering::Relaxed),
            listener: self.listener.load(Ordering::Relaxed),
            ..Target::default()
        }
    }

    /// TLS was begun in it, for the host that it names. The first time counts.
    pub(crate) fn greeted(&self, ended: Ended, sni: Option<&str>) {
        self.greeting.get_or_init(|| Greeting { ended, sni: sni.map(str::to_owned) });
    }

    /// What is spoken in it, or in a request in it.
    pub(crate) fn spoken(&self, http: Option<Http>) -> Spoken {
        let greeting = self.greeting.get();
        Spoken {
            tls: greeting.map(|greeting| greeting.ended),
            sni: greeting.and_then(|greeting| greeting.sni.clone()),
            http,
            ..Spoken::default()
        }
    }

    /// Counts bytes from the session.
    pub(crate) fn sent(&self, bytes: u64) {
        self.up.fetch_add(bytes, Ordering::Relaxed);
        self.moved.store(self.age(), Ordering::Relaxed);
    }

    /// Counts bytes to the session.
    pub(crate) fn received(&self, bytes: u64) {
        let age = self.age();
        if self.down.fetch_add(bytes, Ordering::Relaxed) == 0 && bytes > 0 {
            self.answered.store(age + 1, Ordering::Relaxed);
        }
        self.moved.store(age, Ordering::Relaxed);
    }

    /// For how long nothing has moved in it.
    pub(crate) fn still(&self) -> Duration {
        Duration::from_millis(self.age().saturating_sub(self.moved.load(Ordering::Relaxed)))
    }

    /// When the first came back, in milliseconds from its arrival.
    pub(crate) fn answered(&self) -> Option<u32> {
        let at = self.answered.load(Ordering::Relaxed).checked_sub(1)?;
        Some(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// How it ends. The first thing said counts.
    pub(crate) fn ends(&self, how: &str) {
        self.state().how.get_or_insert_with(|| how.to_owned());
    }

    /// Milliseconds from its arrival.
    pub fn age(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(list) = self.list.upgrade() {
            list.open().remove(&self.number);
        }
    }
}

/// All flows of the session.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Weak<Flow>>>,
}

impl Flows {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Flow>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has arrived.
    pub(crate) fn arrive(self: &Arc<Self>) -> Arc<Flow> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let flow = Arc::new(Flow {
            number,
            since: Instant::now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            socket: AtomicU64::new(0),
            listener: AtomicU16::new(0),
            greeting: OnceLock::new(),
            moved: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            state: Mutex::default(),
            list: Arc::downgrade(self),
        });
        self.open().insert(number, Arc::downgrade(&flow));
        flow
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.open().len()
    }

    /// The newest ones, newest first, and how many there are.
    pub(crate) fn newest(&self, most: usize) -> (Vec<Arc<Flow>>, usize) {
        let open = self.open();
        let flows = open.values().rev().filter_map(Weak::upgrade).take(most).collect();
        (flows, open.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Flows;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn no_request_has_the_number_of_its_connection() {
        let flow = Arc::<Flows>::default().arrive();
        assert_eq!([flow.next_request(), flow.next_request()], [1, 2]);
        flow.requests.store(u32::MAX - 1, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(flow.next_request(), u32::MAX);
        }
    }
}

//! The sessions of a keeper, found by their id, by the number they are watched under, or by when
//! their time is over.

use crate::keeper::Session;
use cowork_api::keeper::{Failure, FailureCode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Register {
    sessions: BTreeMap<u32, Session>,
    numbers: HashMap<String, u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    /// How many there have been.
    count: u32,
}

impl Register {
    /// Adds a session, and says its number.
    pub(crate) fn add(&mut self, session: Session) -> u32 {
        let number = self.count;
        self.count += 1;
        self.numbers.insert(session.id.clone(), number);
        self.deadlines.extend(session.deadline.map(|at| (at, number)));
        self.sessions.insert(number, session);
        number
    }

    /// Takes a session out.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Session> {
        let session = self.sessions.remove(&number)?;
        self.numbers.remove(&session.id);
        if let Some(at) = session.deadline {
            self.deadlines.remove(&(at, number));
        }
        Some(session)
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.numbers.contains_key(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// How many sessions there have been.
    pub(crate) fn ever(&self) -> u32 {
        self.count
    }

    /// The number of the session with this id.
    pub(crate) fn number(&self, id: &str) -> Result<u32, Failure> {
        self.numbers.get(id).copied().ok_or_else(|| Failure {
            code: FailureCode::NoSession,
            sentence: format!("there is no session `{id}`"),
            errno: 0,
            hint: String::new(),
        })
    }

    /// The session with this id.
    pub(crate) fn find(&mut self, id: &str) -> Result<&mut Session, Failure> {
        let number = self.number(id)?;
        let missing = || super::serve::malformed("no session");
        self.sessions.get_mut(&number).ok_or_else(missing)
    }

    /// The session with this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Session> {
        self.sessions.get_mut(&number)
    }

    /// All, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The numbers of all.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.sessions.keys().copied().collect()
    }

    /// Sets when a session's time is over.
    pub(crate) fn set_deadline(&mut self, number: u32, deadline: Option<Instant>) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut session.deadline, deadline) {
            self.deadlines.remove(&(before, number));
        }
        self.deadlines.extend(deadline.map(|at| (at, number)));
    }

    /// When the next session's time is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A session whose time is over.
    pub(crate) fn overdue(&self) -> Option<u32> {
        let (at, number) = self.deadlines.first()?;
        (*at <= Instant::now()).then_some(*number)
    }
}

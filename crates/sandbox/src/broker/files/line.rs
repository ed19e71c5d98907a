//! The line to the keeper: folders and rules come in, questions go out and answers come back.
//!
//! A question holds up its caller and nobody else. It is asked once for a set and a rule; whoever
//! runs into the same rule meanwhile waits for the same answer.

use super::Files;
use super::call::Call;
use crate::broker::MAX_ASKING;
use crate::channel::{Channel, Peer};
use cowork_api::files::{Ask, FromBroker, ToBroker};
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most answers that are remembered; beyond, all are asked for again.
const MAX_ANSWERS: usize = 4096;
/// How often a caller is looked after that waits for an answer.
const SLICE: Duration = Duration::from_millis(50);

/// What an answer is remembered for: a set, a folder and a rule.
pub(super) type Rule = (u32, u32, String);

pub(super) struct Line {
    channel: Channel,
    /// How much the keeper had told when messages were last taken.
    heard: AtomicU64,
    /// Held while messages are taken and carried out, so that they are in order.
    order: Mutex<()>,
    questions: Mutex<Questions>,
    answered: Condvar,
}

struct Questions {
    next: u64,
    asked: HashMap<Rule, State>,
}

#[derive(Clone, Copy)]
enum State {
    Waiting { ask: u64, callers: u32 },
    Answered(bool),
}

impl Line {
    pub(super) fn new(channel: OwnedFd) -> Self {
        // A broker that follows another one uses other numbers.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(now.as_micros()).unwrap_or_default();
        Self {
            channel: channel.into(),
            heard: AtomicU64::new(0),
            order: Mutex::new(()),
            questions: Mutex::new(Questions { next, asked: HashMap::new() }),
            answered: Condvar::new(),
        }
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the keeper something that it waits for.
    pub(super) fn tell(&self, message: &FromBroker) {
        // If it does not listen, it will not miss it.
        cowork_sys::ignore(self.channel.try_send(&cowork_api::encode(message), &[]));
    }

    /// Carries out what the keeper has said so far, if it has said something since: it counts that
    /// after it has sent it.
    pub(super) fn heed_news(&self, files: &Files, told: u64) {
        if self.heard.load(Ordering::SeqCst) != told {
            self.heed(files);
            self.heard.store(told, Ordering::SeqCst);
        }
    }

    /// Carries out what the keeper has said so far.
    pub(super) fn heed(&self, files: &Files) {
        let _in_order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.channel.try_receive(Peer::Trusted) {
                Ok(Some(packet)) => match cowork_api::decode(&packet.bytes) {
                    Ok(ToBroker::Answer { ask, allowed }) => {
                        self.settle(ask, &State::Answered(allowed));
                    }
                    Ok(message) => files.heed(message, packet.handles),
                    // The keeper is the same program: it says nothing that cannot be read.
                    Err(_) => {}
                },
                Err(Errno::BADMSG | Errno::MSGSIZE) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn settle(&self, ask: u64, answer: &State) {
        let mut questions = self.questions();
        for state in questions.asked.values_mut() {
            if matches!(state, State::Waiting { ask: known, .. } if *known == ask) {
                *state = *answer;
            }
        }
        self.answered.notify_all();
    }

    /// Forgets what was answered about the rules of a folder: they are others now.
    pub(super) fn forget(&self, folder: u32) {
        self.questions()
            .asked
            .retain(|(_, of, _), state| *of != folder || matches!(state, State::Waiting { .. }));
    }

    /// What was answered about this rule before.
    pub(super) fn known_answer(&self, rule: &Rule) -> Option<bool> {
        match self.questions().asked.get(rule) {
            Some(State::Answered(allowed)) => Some(*allowed),
            _ => None,
        }
    }

    /// Asks the user and waits. `question` gets its number here.
    pub(super) fn ask(&self, call: &Call<'_>, rule: &Rule, question: Ask) -> Result<bool, Errno> {
        let Some(_waiting) = call.broker.wait(&call.broker.asking, MAX_ASKING) else {
            return Ok(false);
        };
        let mut questions = self.questions();
        match questions.asked.get_mut(rule) {
            Some(State::Answered(allowed)) => return Ok(*allowed),
            Some(State::Waiting { callers, .. }) => *callers += 1,
            None => {
                if questions.asked.len() >= MAX_ANSWERS {
                    questions.asked.retain(|_, state| matches!(state, State::Waiting { .. }));
                }
                let ask = questions.next;
                questions.next += 1;
                let message = cowork_api::encode(&FromBroker::Ask(Ask { ask, ..question }));
                if self.channel.try_send(&message, &[]).is_err() {
                    return Ok(false);
                }
                questions.asked.insert(rule.clone(), State::Waiting { ask, callers: 1 });
            }
        }
        loop {
            if let Some(State::Answered(allowed)) = questions.asked.get(rule) {
                return Ok(*allowed);
            }
            let waited = self.answered.wait_timeout(questions, SLICE);
            questions = waited.unwrap_or_else(PoisonError::into_inner).0;
            if call.still_waits().is_err() {
                self.leave(&mut questions, rule);
                return Err(Errno::SRCH);
            }
        }
    }

    /// Takes a question back if nobody waits for its answer any more.
    fn leave(&self, questions: &mut Questions, rule: &Rule) {
        let Some(State::Waiting { ask, callers }) = questions.asked.get_mut(rule) else { return };
        *callers -= 1;
        if *callers > 0 {
            return;
        }
        let withdrawn = FromBroker::Withdrawn { ask: *ask };
        questions.asked.remove(rule);
        // If the keeper does not listen it will not miss it.
        cowork_sys::ignore(self.channel.try_send(&cowork_api::encode(&withdrawn), &[]));
    }
}

//! What is told to the daemon: records, until it has taken them, and everything else once.
//!
//! Nothing here grows without bound. Records of what was refused are kept up to half of the limit, and
//! counted beyond it; what passes is recorded or does not pass ([`Ledger::has_room`]), and its end is
//! always recorded, once for each that passed. Asks have a limit of their own; the rest answers
//! something that the daemon sent.

use crate::captures::Waiting;
use cowork_api::egress::{Ask, FromEgress, Record, Target, What};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most records that are kept until the daemon has taken them, but for the ends of what passed.
const MAX_RECORDS: usize = 16 * 1024;
/// Longest name of a host that is told; no host has a longer one.
const MAX_HOST: usize = 255;
/// Longest path that is told.
pub(crate) const MAX_PATH: usize = 1024;
/// Longest sentence that is told.
const MAX_SENTENCE: usize = 1024;

/// What is told to the daemon.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    last: u64,
    kept: VecDeque<Record>,
    /// The number of the last record that was sent to this daemon.
    sent: u64,
    /// The number of the record that counts what was left out, while it is not sent.
    counts: Option<u64>,
    /// What goes first.
    said: VecDeque<FromEgress>,
    /// Parts of bodies, which go before records.
    bodies: VecDeque<Waiting>,
}

impl Ledger {
    /// Writes something down.
    pub(crate) fn record(&mut self, flow: u64, request: u32, what: What) {
        if self.kept.len() >= MAX_RECORDS / 2 && is_spared(&what) {
            self.leave_out();
        } else {
            self.write(flow, request, what);
        }
    }

    /// Whether something that passes can be recorded.
    pub(crate) fn has_room(&self) -> bool {
        self.kept.len() < MAX_RECORDS
    }

    /// Counts a record that is left out.
    fn leave_out(&mut self) {
        let unsent = self.counts.filter(|number| *number > self.sent);
        let counting = unsent
            .and_then(|number| self.kept.iter_mut().rev().find(|record| record.number == number));
        if let Some(Record { what: What::Lost { records }, .. }) = counting {
            *records += 1;
        } else {
            self.write(0, 0, What::Lost { records: 1 });
            self.counts = Some(self.last);
        }
    }

    fn write(&mut self, flow: u64, request: u32, mut what: What) {
        match &mut what {
            What::Decided { target, .. } => shorten_target(target),
            What::Ended { target, how, spoken, .. } => {
                shorten_target(target);
                shorten(how, MAX_SENTENCE);
                if let Some(sni) = &mut spoken.sni {
                    shorten(sni, MAX_HOST);
                }
            }
            What::Noticed { target, sentence, .. } => {
                shorten_target(target);
                shorten(sentence, MAX_SENTENCE);
            }
            What::Captured { target, .. } => shorten_target(target),
            What::Lost { .. } => {}
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.last += 1;
        self.kept.push_back(Record { number: self.last, at, flow, request, what });
    }

    /// The daemon keeps every record up to this one.
    pub(crate) fn acknowledge(&mut self, upto: u64) {
        while self.kept.front().is_some_and(|record| record.number <= upto) {
            self.kept.pop_front();
        }
    }

    /// Says something that is no record.
    pub(crate) fn say(&mut self, message: FromEgress) {
        self.said.push_back(message);
    }

    /// A part of a body is to be told.
    pub(crate) fn bring(&mut self, waiting: Waiting) {
        self.bodies.push_back(waiting);
    }

    /// Nothing waits for an ask any more: unsaid, if it was not said yet.
    pub(crate) fn withdraw(&mut self, ask: u64) {
        let is_it = |said: &FromEgress| matches!(said, FromEgress::Ask(said) if said.ask == ask);
        if let Some(index) = self.said.iter().position(is_it) {
            self.said.remove(index);
        } else {
            self.said.push_back(FromEgress::Withdraw { ask });
        }
    }

    /// A daemon has come, perhaps after another one: what it may have missed is sent again.
    pub(crate) fn begin_again(&mut self, asks: impl Iterator<Item = Ask>) {
        self.sent = 0;
        self.said.retain(|said| !matches!(said, FromEgress::Ask(_) | FromEgress::Withdraw { .. }));
        self.said.extend(asks.map(FromEgress::Ask));
    }

    /// What is to be sent next.
    pub(crate) fn next(&mut self) -> Option<FromEgress> {
        if let Some(message) = self.said.pop_front() {
            return Some(message);
        }
        if let Some(waiting) = self.bodies.pop_front() {
            return Some(waiting.told());
        }
        let next = self.kept.partition_point(|record| record.number <= self.sent);
        let record = self.kept.get(next)?;
        self.sent = record.number;
        Some(FromEgress::Record(record.clone()))
    }
}

/// Whether a record may be left out where there are many: nothing passed.
fn is_spared(what: &What) -> bool {
    match what {
        What::Decided { decision, .. } => !decision.allowed,
        What::Noticed { .. } | What::Captured { .. } => true,
        What::Ended { .. } | What::Lost { .. } => false,
    }
}

/// Cuts what a program may have made as long as it likes.
pub(crate) fn shorten_target(target: &mut Target) {
    shorten(&mut target.host, MAX_HOST);
    if let Some(method) = &mut target.method {
        shorten(method, MAX_HOST);
    }
    if let Some(path) = &mut target.path {
        shorten(path, MAX_PATH);
    }
}

fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, MAX_RECORDS};
    use cowork_api::egress::{Ask, Decision, FromEgress, Record, Source, Target, What};

    fn numbers(ledger: &mut Ledger) -> Vec<u64> {
        let next = || ledger.next();
        std::iter::from_fn(next)
            .filter_map(|said| match said {
                FromEgress::Record(record) => Some(record.number),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn what_is_not_acknowledged_is_said_again() {
        let mut ledger = Ledger::default();
        for _ in 0..4 {
            ledger.record(1, 0, What::Lost { records: 0 });
        }
        assert_eq!(numbers(&mut ledger), [1, 2, 3, 4]);
        assert_eq!(numbers(&mut ledger), Vec::<u64>::new());
        ledger.acknowledge(2);
        ledger.begin_again(std::iter::empty());
        assert_eq!(numbers(&mut ledger), [3, 4]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let mut ledger = Ledger::default();
        let decided = |allowed| What::Decided {
            target: Target::default(),
            decision: Decision {
                allowed,
                code: "x".into(),
                rule: None,
                generation: 0,
                source: Source::Policy,
                held: 0,
            },
            credentials: Vec::new(),
        };
        for _ in 0..MAX_RECORDS / 2 + 7 {
            ledger.record(1, 0, decided(false));
        }
        let last = |ledger: &Ledger| ledger.kept.back().map(|record| record.what.clone());
        assert_eq!(last(&ledger), Some(What::Lost { records: 7 }));
        // However much is refused, what passes is recorded, until there is no room for it either.
        while ledger.has_room() {
            ledger.record(1, 0, decided(true));
            ledger.record(1, 0, decided(false));
        }
        let passed = |record: &&Record| matches!(&record.what, What::Decided { decision, .. } if decision.allowed);
        assert_eq!(ledger.kept.iter().filter(passed).count(), MAX_RECORDS / 2 - 1);
        assert_eq!(numbers(&mut ledger).len(), MAX_RECORDS);
        // What was sent is not changed any more.
        ledger.record(1, 0, decided(false));
        assert_eq!(last(&ledger), Some(What::Lost { records: 1 }));
        ledger.acknowledge(u64::MAX);
        assert!(ledger.has_room());
    }

    #[test]
    fn no_record_is_longer_than_a_packet() {
        let mut ledger = Ledger::default();
        let long = "é".repeat(40_000);
        let target = Target { host: long.clone(), path: Some(long.clone()), ..Target::default() };
        ledger.record(1, 0, What::Noticed { target, code: "x".into(), sentence: long });
        let said = cowork_api::encode(&ledger.next().unwrap());
        assert!(said.len() < 4096, "{}", said.len());
    }

    #[test]
    fn an_ask_that_was_not_said_is_not_withdrawn_aloud() {
        let mut ledger = Ledger::default();
        ledger.say(FromEgress::Ask(Ask { ask: 1, target: Target::default() }));
        ledger.withdraw(1);
        assert_eq!(ledger.next(), None);
        ledger.withdraw(2);
        assert_eq!(ledger.next(), Some(FromEgress::Withdraw { ask: 2 }));
    }
}

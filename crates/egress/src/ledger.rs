//! What is told to the daemon: records, until it has taken them, and everything else once.
//!
//! Nothing here grows without bound: records have a limit, after which the oldest are left out and
//! counted; asks have one of their own; the rest answers something that the daemon sent.

use cowork_api::egress::{Ask, FromEgress, Record, Target, What};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most records that are kept until the daemon has taken them.
const MAX_RECORDS: usize = 16 * 1024;
/// Longest name of a host that is told; no host has a longer one.
const MAX_HOST: usize = 255;
/// Longest path that is told.
const MAX_PATH: usize = 1024;
/// Longest sentence that is told.
const MAX_SENTENCE: usize = 1024;

/// What is told to the daemon.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    last: u64,
    kept: VecDeque<Record>,
    /// The number of the last record that was sent to this daemon.
    sent: u64,
    /// How many were left out since that was last recorded.
    lost: u64,
    /// What goes first.
    said: VecDeque<FromEgress>,
}

impl Ledger {
    /// Writes something down.
    pub(crate) fn record(&mut self, flow: u64, request: u32, what: What) {
        if self.lost > 0 && self.kept.len() + 1 < MAX_RECORDS {
            let records = std::mem::take(&mut self.lost);
            self.write(0, 0, What::Lost { records });
        }
        self.write(flow, request, what);
    }

    fn write(&mut self, flow: u64, request: u32, mut what: What) {
        match &mut what {
            What::Decided { target, .. } => shorten_target(target),
            What::Ended { target, how, .. } => {
                shorten_target(target);
                shorten(how, MAX_SENTENCE);
            }
            What::Noticed { target, sentence, .. } => {
                shorten_target(target);
                shorten(sentence, MAX_SENTENCE);
            }
            What::Lost { .. } => {}
        }
        if self.kept.len() >= MAX_RECORDS {
            self.kept.pop_front();
            self.lost += 1;
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
        let next = self.kept.partition_point(|record| record.number <= self.sent);
        let record = self.kept.get(next)?;
        self.sent = record.number;
        Some(FromEgress::Record(record.clone()))
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
    use cowork_api::egress::{Ask, FromEgress, Target, What};

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
        for _ in 0..MAX_RECORDS + 7 {
            ledger.record(1, 0, What::Lost { records: 0 });
        }
        assert_eq!(ledger.kept.len(), MAX_RECORDS);
        ledger.acknowledge(1000);
        ledger.record(1, 0, What::Lost { records: 0 });
        let told = ledger.kept.iter().rev().nth(1).map(|record| record.what.clone());
        assert_eq!(told, Some(What::Lost { records: 7 }));
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

//! Bodies that are kept, where a rule says so: as the session sent or got them, with placeholders in the
//! place of secrets.
//!
//! A body is counted and hashed as a whole, and kept up to what its rule says. What is on its way to the
//! daemon is bounded for all bodies together: beyond that nothing more is kept of a body, and its record
//! says how much is.
//!
//! Deliberately absent: headers, and what follows a change of the protocol.

use crate::ledger::Ledger;
use arc_swap::ArcSwap;
use cowork_api::egress::{Bodied, Capture, FromEgress, Hidden, Piece, Side, Target, What};
use ring::digest;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of bodies that are held until the daemon has them.
const MAX_HELD: usize = 8 * 1024 * 1024;
/// Most bytes of a body in one message, which is no larger than a packet.
const MAX_PIECE: usize = 32 * 1024;

/// Of which rules bodies are kept, and how much is held at the moment.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    rules: ArcSwap<HashMap<String, u64>>,
    held: Arc<AtomicUsize>,
}

/// The bodies of one request.
#[derive(Debug)]
pub(crate) struct Bodies {
    sent: Mutex<Taken>,
    received: Mutex<Taken>,
}

/// What was taken of a body.
struct Taken {
    most: usize,
    size: u64,
    hash: digest::Context,
    kept: Held,
}

/// Bytes that are counted as held until this is dropped.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    count: usize,
    all: Arc<AtomicUsize>,
}

/// A part of a body that waits for the daemon.
#[derive(Debug)]
pub(crate) struct Waiting {
    flow: u64,
    request: u32,
    side: Side,
    held: Held,
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.kept.count, self.size)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Held {
    fn none(all: &Arc<AtomicUsize>) -> Self {
        Self { bytes: Vec::new(), count: 0, all: Arc::clone(all) }
    }

    /// Holds some more, if there is room for it.
    fn hold(&mut self, bytes: &[u8]) -> bool {
        let more = |held: usize| held.checked_add(bytes.len()).filter(|held| *held <= MAX_HELD);
        let room = self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if room {
            self.count += bytes.len();
            self.bytes.extend_from_slice(bytes);
        }
        room
    }
}

impl Captures {
    /// These rules from now on.
    pub(crate) fn set(&self, captures: Vec<Capture>) {
        let each = captures.into_iter().map(|capture| (capture.rule, capture.bytes));
        self.rules.store(Arc::new(each.collect()));
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.rules.load().is_empty()
    }

    /// What keeps the bodies of a request that these rules are about, if one of them has them kept.
    pub(crate) fn of<'a>(&self, rules: impl IntoIterator<Item = &'a str>) -> Option<Bodies> {
        let known = self.rules.load();
        let most = *rules.into_iter().filter_map(|rule| known.get(rule)).max()?;
        let taken = || {
            Mutex::new(Taken {
                most: usize::try_from(most).unwrap_or(usize::MAX),
                size: 0,
                hash: digest::Context::new(&digest::SHA256),
                kept: Held::none(&self.held),
            })
        };
        Some(Bodies { sent: taken(), received: taken() })
    }
}

impl Taken {
    fn take(&mut self, bytes: &[u8]) {
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.hash.update(bytes);
        let part = bytes.get(..bytes.len().min(self.most - self.kept.count)).unwrap_or_default();
        if !part.is_empty() && !self.kept.hold(part) {
            // What is kept is the beginning, without gaps.
            self.most = self.kept.count;
        }
    }

    fn bodied(&self) -> Bodied {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(self.hash.clone().finish().as_ref());
        Bodied { size: self.size, kept: u64::try_from(self.kept.count).unwrap_or(0), sha256 }
    }
}

impl Bodies {
    /// Some more of one of them.
    pub(crate) fn take(&self, side: Side, bytes: &[u8]) {
        let taken = match side {
            Side::Session => &self.sent,
            Side::Host => &self.received,
        };
        taken.lock().unwrap_or_else(PoisonError::into_inner).take(bytes);
    }

    /// They are over: what is kept is told, and then what they were. Nothing is told of none.
    pub(crate) fn end(self, ledger: &mut Ledger, (flow, request): (u64, u32), target: &Target) {
        let [sent, received] = [self.sent, self.received]
            .map(|taken| taken.into_inner().unwrap_or_else(PoisonError::into_inner));
        if sent.size == 0 && received.size == 0 {
            return;
        }
        let (sent_as, received_as) = (sent.bodied(), received.bodied());
        for (side, mut taken) in [(Side::Session, sent), (Side::Host, received)] {
            let all = Arc::clone(&taken.kept.all);
            let whole = std::mem::take(&mut taken.kept.bytes);
            taken.kept.count = 0;
            for bytes in whole.chunks(MAX_PIECE) {
                let held =
                    Held { bytes: bytes.to_vec(), count: bytes.len(), all: Arc::clone(&all) };
                ledger.bring(Waiting { flow, request, side, held });
            }
        }
        let what = What::Captured { target: target.clone(), sent: sent_as, received: received_as };
        ledger.record(flow, request, what);
    }
}

impl Waiting {
    /// As it is told.
    pub(crate) fn told(mut self) -> FromEgress {
        let bytes = Hidden(std::mem::take(&mut self.held.bytes));
        FromEgress::Body(Piece { flow: self.flow, request: self.request, side: self.side, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{Captures, MAX_HELD, MAX_PIECE};
    use crate::ledger::Ledger;
    use cowork_api::egress::{Bodied, Capture, FromEgress, Side, Target, What};
    use ring::digest;
    use std::sync::atomic::Ordering;

    fn captures(bytes: u64) -> Captures {
        let captures = Captures::default();
        captures.set(vec![Capture { rule: "allow a".into(), bytes }]);
        captures
    }

    fn told(ledger: &mut Ledger) -> (Vec<u8>, Vec<u8>, Option<(Bodied, Bodied)>) {
        let (mut sent, mut received, mut record) = (Vec::new(), Vec::new(), None);
        while let Some(message) = ledger.next() {
            assert!(cowork_api::encode(&message).len() < 64 * 1024);
            match message {
                FromEgress::Body(piece) => {
                    assert!(record.is_none(), "what is kept comes first");
                    match piece.side {
                        Side::Session => sent.extend(piece.bytes.0),
                        Side::Host => received.extend(piece.bytes.0),
                    }
                }
                FromEgress::Record(known) => match known.what {
                    What::Captured { sent, received, .. } => record = Some((sent, received)),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
        (sent, received, record)
    }

    #[test]
    fn a_body_is_kept_to_a_limit_and_counted_beyond() {
        let captures = captures(100_000);
        assert!(captures.of(["allow b"]).is_none() && !captures.are_none());
        let bodies = captures.of(["allow a"]).unwrap();
        bodies.take(Side::Session, b"hello ");
        bodies.take(Side::Session, b"world");
        let long = vec![7; 3 * MAX_PIECE];
        bodies.take(Side::Host, &long);
        bodies.take(Side::Host, &long);
        let mut ledger = Ledger::default();
        bodies.end(&mut ledger, (1, 1), &Target::default());
        let (sent, received, record) = told(&mut ledger);
        assert_eq!(sent, b"hello world");
        assert_eq!(received, vec![7; 100_000]);
        let (sent, received) = record.unwrap();
        assert_eq!((sent.size, sent.kept), (11, 11));
        assert_eq!((received.size, received.kept), (6 * MAX_PIECE as u64, 100_000));
        let hash = digest::digest(&digest::SHA256, &vec![7; 6 * MAX_PIECE]);
        assert_eq!(received.sha256, hash.as_ref());
        assert_eq!(captures.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_held_is_bounded_for_all_together() {
        let captures = captures(MAX_HELD as u64);
        let mut ledger = Ledger::default();
        let part = vec![1; MAX_HELD / 2];
        for _ in 0..4 {
            let bodies = captures.of(["allow a"]).unwrap();
            bodies.take(Side::Session, &part);
            // A small one after a large one that found no room would leave a gap.
            bodies.take(Side::Session, b"x");
            bodies.end(&mut ledger, (1, 1), &Target::default());
        }
        assert!(captures.held.load(Ordering::Relaxed) <= MAX_HELD);
        let mut kept = Vec::new();
        while let Some(message) = ledger.next() {
            if let FromEgress::Record(record) = message
                && let What::Captured { sent, .. } = record.what
            {
                assert_eq!(sent.size, MAX_HELD as u64 / 2 + 1);
                kept.push(sent.kept);
            }
        }
        assert_eq!(kept, [MAX_HELD as u64 / 2 + 1, 0, 0, 0]);
        assert_eq!(captures.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_request_without_bodies_is_not_told() {
        let mut ledger = Ledger::default();
        captures(10).of(["allow a"]).unwrap().end(&mut ledger, (1, 1), &Target::default());
        assert_eq!(ledger.next(), None);
    }
}

//! What rules refused: the first are told one by one, the others are counted, and the count is told
//! from time to time. A session that runs against a rule again and again fills no audit, and nothing
//! that was refused is passed over.

use super::line::Line;
use cowork_api::files::FromBroker;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most refusals that one broker tells of one by one.
const MOST: u64 = 50;
/// How often the number of others is told, at most.
const EVERY: Duration = Duration::from_secs(1);

/// How often rules refused something.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: AtomicU64,
    /// How many beyond the first were told, and when.
    told: Mutex<(u64, Option<Instant>)>,
}

impl Refusals {
    /// Counts one. Whether it is told by itself.
    pub(super) fn count(&self) -> bool {
        self.all.fetch_add(1, Ordering::SeqCst) < MOST
    }

    /// Tells how many more there were, unless it was just told. Whether all of them are told.
    pub(super) fn tell_more(&self, line: &Line) -> bool {
        self.due(Instant::now()).is_none_or(|count| {
            line.tell(&FromBroker::RefusedMore { count });
            true
        }) && self.left() == 0
    }

    /// How many are to be told now.
    fn due(&self, now: Instant) -> Option<u64> {
        let left = self.left();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = told.1.is_some_and(|last| now.duration_since(last) < EVERY);
        if left == 0 || waits {
            return None;
        }
        *told = (told.0 + left, Some(now));
        Some(left)
    }

    /// How many are told neither by themselves nor as a number.
    fn left(&self) -> u64 {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).0;
        self.all.load(Ordering::SeqCst).saturating_sub(MOST).saturating_sub(told)
    }
}

#[cfg(test)]
mod tests {
    use super::{EVERY, MOST, Refusals};
    use std::time::Instant;

    #[test]
    fn the_first_are_told_and_the_others_counted() {
        let refusals = Refusals::default();
        let now = Instant::now();
        assert!((0..MOST).all(|_| refusals.count()));
        assert_eq!((refusals.due(now), refusals.left()), (None, 0));
        for _ in 0..7 {
            assert!(!refusals.count());
        }
        assert_eq!((refusals.due(now), refusals.left()), (Some(7), 0));
        refusals.count();
        assert_eq!((refusals.due(now), refusals.left()), (None, 1), "it was just told");
        assert_eq!((refusals.due(now + EVERY), refusals.left()), (Some(1), 0));
    }
}

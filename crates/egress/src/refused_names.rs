//! Which refused names are worth a record.
//!
//! Programs ask for the same name again and again, and a program that means harm asks for many: each
//! name is recorded once in a while, a limited number of them in a minute, and the rest is counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a name that was recorded is not recorded again.
const AGAIN: Duration = Duration::from_mins(1);
/// Most names that are recorded within that time.
const MAX_NAMES: usize = 256;

/// Names that were recorded a moment ago.
#[derive(Debug, Default)]
pub(crate) struct RefusedNames {
    recorded: HashMap<String, Instant>,
    missed: u64,
    since: Option<Instant>,
}

impl RefusedNames {
    /// Whether a name that was refused is recorded.
    pub(crate) fn is_worth_a_record(&mut self, name: &str, now: Instant) -> bool {
        let old = |at: &Instant| now.saturating_duration_since(*at) >= AGAIN;
        if self.recorded.get(name).is_some_and(|at| !old(at)) {
            return false;
        }
        if self.recorded.len() >= MAX_NAMES {
            self.recorded.retain(|_, at| !old(at));
        }
        if self.recorded.len() >= MAX_NAMES {
            self.missed += 1;
            self.since.get_or_insert(now);
            return false;
        }
        self.recorded.insert(name.to_owned(), now);
        true
    }

    /// How many were not recorded, once that is worth a record itself.
    pub(crate) fn missed(&mut self, now: Instant) -> u64 {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) >= AGAIN) {
            self.since = None;
            return std::mem::take(&mut self.missed);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, MAX_NAMES, RefusedNames};
    use std::time::Instant;

    #[test]
    fn a_name_is_recorded_once_in_a_while_and_a_flood_is_counted() {
        let now = Instant::now();
        let mut names = RefusedNames::default();
        assert!(names.is_worth_a_record("a", now));
        assert!(!names.is_worth_a_record("a", now));
        let more = (0..MAX_NAMES + 9).filter(|n| names.is_worth_a_record(&n.to_string(), now));
        assert_eq!(more.count(), MAX_NAMES - 1);
        assert_eq!(names.missed(now), 0);
        let later = now + AGAIN;
        assert_eq!(names.missed(later), 10);
        assert!(names.is_worth_a_record("a", later));
    }
}

//! What a session has used in all its sandboxes: the kernel counts each by itself, from nothing.
//!
//! Invariant: a total never falls. What a sandbox used since it was last looked at is lost with it
//! only if it ends by itself, or with its keeper.

use super::doc::KeptSandbox;
use crate::book::millis_since;
use cowork_api::keeper::Measured;
use serde::{Deserialize, Serialize};

/// Kept with the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// In sandboxes that are gone.
    before: Totals,
    /// In the last one, as far as it was looked at.
    last: Totals,
    /// Which one that is: its PID 1, and since when.
    of: Option<(i32, String)>,
}

/// What only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) cpu_us: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) memory_peak: u64,
    /// How long there was a sandbox, in milliseconds.
    #[serde(default)]
    pub(crate) wall_ms: u64,
}

impl Used {
    /// Takes over what was measured of a sandbox.
    pub(crate) fn see(&mut self, sandbox: &KeptSandbox, measured: &Measured) {
        let of = Some((sandbox.pid, sandbox.since.clone()));
        if self.of != of {
            *self = Self { before: self.total(), last: Totals::default(), of };
        }
        let last = &mut self.last;
        last.cpu_us = last.cpu_us.max(measured.cpu_us);
        last.read = last.read.max(measured.read);
        last.written = last.written.max(measured.written);
        last.memory_peak = last.memory_peak.max(measured.memory_peak).max(measured.memory);
        last.wall_ms = last.wall_ms.max(millis_since(&sandbox.since));
    }

    /// Whether it is more than nothing but the time that has passed.
    pub(crate) fn is_more_than(&self, before: &Self) -> bool {
        let of = |used: &Self| (used.of.clone(), Totals { wall_ms: 0, ..used.total() });
        of(self) != of(before)
    }

    /// All of it.
    pub(crate) fn total(&self) -> Totals {
        let (before, last) = (self.before, self.last);
        Totals {
            cpu_us: before.cpu_us.saturating_add(last.cpu_us),
            read: before.read.saturating_add(last.read),
            written: before.written.saturating_add(last.written),
            memory_peak: before.memory_peak.max(last.memory_peak),
            wall_ms: before.wall_ms.saturating_add(last.wall_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Totals, Used};
    use crate::session::doc::KeptSandbox;
    use cowork_api::keeper::Measured;
    use std::time::{Duration, SystemTime};

    #[test]
    fn totals_go_on_in_the_next_sandbox_and_never_fall() {
        let sandbox = |pid| KeptSandbox::new(pid, "then".into());
        let measured =
            |cpu_us, memory_peak| Measured { cpu_us, memory_peak, ..Measured::default() };
        let mut used = Used::default();
        let mut sees = |pid, cpu_us, peak| {
            used.see(&sandbox(pid), &measured(cpu_us, peak));
            let Totals { cpu_us, memory_peak, .. } = used.total();
            (cpu_us, memory_peak)
        };
        assert_eq!(sees(1, 10, 7), (10, 7));
        assert_eq!(sees(1, 30, 5), (30, 7));
        assert_eq!(sees(1, 20, 0), (30, 7));
        assert_eq!(sees(2, 5, 9), (35, 9));
        assert_eq!(sees(2, 6, 1), (36, 9));
        assert_eq!(sees(3, 0, 0), (36, 9));
        assert_eq!(sees(3, 1, 0), (37, 9));
    }

    #[test]
    fn time_alone_is_no_use_and_is_counted_in_every_sandbox() {
        let sandbox = |pid, seconds| {
            let since = SystemTime::now() - Duration::from_secs(seconds);
            KeptSandbox::new(pid, crate::book::at(since))
        };
        let mut used = Used::default();
        used.see(&sandbox(1, 100), &Measured::default());
        let first = used.clone();
        let (old, new) = (sandbox(2, 10), sandbox(2, 20));
        used.see(&old, &Measured::default());
        assert!(used.is_more_than(&first), "another sandbox is more");
        let second = used.clone();
        // The same one, later: the clock of the host may be set meanwhile.
        used.see(&KeptSandbox { since: old.since.clone(), ..new }, &Measured::default());
        assert!(!used.is_more_than(&second));
        let wall = used.total().wall_ms;
        assert!((110_000..115_000).contains(&wall), "{wall}");
    }
}

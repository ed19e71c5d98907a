//! Has it recorded what files are like as soon as nobody in the session can write to them, so that
//! what the user changes afterwards is not taken for the command's.
//!
//! Who has which file open is looked up in `/proc` while the session goes on. A descriptor that a
//! process inherits while it is looked is found, because whoever has appeared meanwhile is looked at
//! too; one that is on its way from here to its caller counts as open.
//!
//! Deliberately absent: descriptors that are on their way in a socket. What is written through one
//! after it arrives looks like somebody else's change.

use super::Files;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many names are recorded before others get the hand.
const AT_ONCE: usize = 64;
/// How often it is looked who has appeared meanwhile.
const ROUNDS: u32 = 8;
/// How much longer than a look the pause after it is.
const PAUSES: u32 = 20;
/// How long nobody looks when the last look had no effect and nothing was changed since.
const IDLE: Duration = Duration::from_secs(2);

/// Calls that are being carried out: how often names had been touched when each began its change.
#[derive(Default)]
pub(super) struct Under(Arc<Mutex<Vec<u64>>>);

/// One of them, until it is answered.
pub(in crate::broker) struct Begun {
    all: Arc<Mutex<Vec<u64>>>,
    touched: u64,
}

impl Under {
    pub(super) fn begin(&self, touched: u64) -> Begun {
        lock(&self.0).push(touched);
        Begun { all: Arc::clone(&self.0), touched }
    }

    /// The first of them.
    fn first(&self) -> Option<u64> {
        lock(&self.0).iter().min().copied()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(place) = all.iter().position(|touched| *touched == self.touched) {
            all.swap_remove(place);
        }
    }
}

fn lock(all: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When it is looked next.
#[derive(Default)]
pub(super) struct Pace {
    not_before: Option<Instant>,
    /// How often names had been touched at the last look, if that had no effect.
    idle: Option<(u64, Instant)>,
}

impl Files {
    /// Records what names are like of which it is time.
    pub(super) fn settle_files(&self, pace: &mut Pace) {
        let begun = Instant::now();
        let Ok((waiting, mut until)) = self.hand().map(|hand| (hand.waiting(), hand.touched()))
        else {
            return;
        };
        let is_idle = |(touched, since): (u64, Instant)| touched == until && begun < since + IDLE;
        if waiting.is_empty()
            || pace.not_before.is_some_and(|then| begun < then)
            || pace.idle.is_some_and(is_idle)
        {
            return;
        }
        let touched = until;
        // Whoever began later may have touched what was counted later only.
        until = self.under.first().map_or(until, |first| first.min(until));
        let mut recorded = 0;
        if let Some(open) = self.open_for_writing() {
            for (set, mut left) in waiting {
                while left > 0 {
                    let count = left.min(AT_ONCE);
                    let settled =
                        self.hand().and_then(|mut hand| hand.settle(set, (until, &open), count));
                    // What cannot be recorded now is recorded at the end of the set, or never.
                    let Ok(settled) = settled else { break };
                    recorded += settled;
                    left -= count;
                    std::thread::yield_now();
                }
            }
        }
        let now = Instant::now();
        pace.not_before = Some(now + (now - begun) * PAUSES);
        pace.idle = (recorded == 0).then_some((touched, now));
    }

    /// The files of granted folders that somebody in the session can write to; nothing if it cannot
    /// be said, since new processes appear faster than they are looked at.
    fn open_for_writing(&self) -> Option<HashSet<(u64, u64)>> {
        let folders = self.writable_folders();
        let mut looked_at = HashSet::new();
        let mut open = HashSet::new();
        for _ in 0..ROUNDS {
            let mut new = self.ledger.processes();
            new.retain(|process| looked_at.insert(*process));
            if new.is_empty() {
                return Some(open);
            }
            for process in new {
                open.extend(folders.held_by(process).into_iter().map(|(_, _, file)| file));
            }
        }
        None
    }
}

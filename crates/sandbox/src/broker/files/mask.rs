//! The mask of permission bits with which the caller makes files.
//!
//! Commands start with `022`. As long as nobody in the session has set another one, nobody is
//! asked; then each thread is, once until the next call of `umask` by anybody.

use super::call::Call;
use super::who::Status;
use cowork_sys::Errno;
use rustix::fs::Mode;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The mask with which every command starts.
const USUAL: u32 = 0o022;
/// Most threads whose mask is remembered; beyond, all are asked again.
const MAX_KNOWN: usize = 1024;
/// How long after a call of `umask` it is certainly carried out. What another thread of the same
/// process is told meanwhile is not remembered for longer than this.
const SETTLED: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Masks(Mutex<State>);

#[derive(Default)]
struct State {
    /// When a mask was last set; nobody asks before one is that is not the usual one.
    set: Option<Instant>,
    known: HashMap<u64, (u32, Instant)>,
}

impl Masks {
    /// Notes that the caller is about to set its mask.
    pub(super) fn note(&self, mask: u32) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.set.is_some() || mask & 0o777 != USUAL {
            state.set = Some(Instant::now());
            state.known.clear();
        }
    }

    /// The caller's mask.
    pub(super) fn of(&self, call: &Call<'_>) -> Result<Mode, Errno> {
        let asked = {
            let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(set) = state.set else { return Ok(Mode::from_raw_mode(USUAL)) };
            let known = state.known.get(&call.key()?);
            if let Some((mask, read)) = known
                && (*read > set + SETTLED || read.elapsed() < SETTLED)
            {
                return Ok(Mode::from_raw_mode(*mask));
            }
            Instant::now()
        };
        let mask = Status::of(call.note.thread)?.mask;
        call.still_waits()?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.known.len() >= MAX_KNOWN {
            state.known.clear();
        }
        if state.set.is_some_and(|set| set <= asked) {
            state.known.insert(call.key()?, (mask, asked));
        }
        Ok(Mode::from_raw_mode(mask))
    }
}

thread_local! {
    /// The mask that this thread has, once it has set one.
    static OWN: Cell<Option<Mode>> = const { Cell::new(None) };
}

/// Does something with the caller's mask. The mask is this thread's own, and stays until the next
/// caller has another one: nothing else here is made with it.
pub(super) fn with_mask<T>(
    call: &Call<'_>,
    work: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mask = call.files.masks.of(call)?;
    if OWN.get() != Some(mask) {
        rustix::process::umask(mask);
        OWN.set(Some(mask));
    }
    work()
}

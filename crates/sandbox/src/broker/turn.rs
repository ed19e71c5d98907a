//! Who waits for the next call.
//!
//! The kernel wakes everybody who waits for a call, and all but one go back to sleep: with four that
//! wait, a call takes three times as long as with one. So two wait and the others stand by. They are
//! called when nobody waits any more, which is when calls come faster than they are answered.
//!
//! Invariant: while somebody stands by, somebody waits. A call that takes long therefore holds up
//! nobody else's for as long as there are threads.
//!
//! Deliberately absent: one alone who waits. It would have to call somebody for each call, or to hold
//! up everybody else's calls with its own.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many wait for a call at most.
const MOST: usize = 2;

/// Whose turn it is to wait for calls.
#[derive(Debug, Default)]
pub(super) struct Turn {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that wait for a call, or are about to.
    waiting: usize,
    /// Threads that stand by.
    standing_by: usize,
    /// Whether no call can come any more.
    over: bool,
}

impl Turn {
    /// Stands by until it is this thread's turn to wait. `false` when no call can come any more.
    pub(super) fn take(&self) -> bool {
        let mut state = self.lock();
        state.standing_by += 1;
        while state.waiting >= MOST && !state.over {
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.standing_by -= 1;
        state.waiting += 1;
        !state.over
    }

    /// A thread that waited has received a call: it waits no longer.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.waiting = state.waiting.saturating_sub(1);
        if state.waiting == 0 && state.standing_by > 0 {
            self.called.notify_one();
        }
    }

    /// No call can come any more: nobody stands by for one.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.called.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Turn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn two_wait_and_who_stands_by_is_called_when_nobody_does() {
        let turn = Arc::new(Turn::default());
        for _ in 0..MOST {
            assert!(turn.take());
        }
        let (tell, told) = channel();
        let further = Arc::clone(&turn);
        let third = std::thread::spawn(move || {
            let taken = further.take();
            tell.send(()).unwrap();
            taken
        });
        while turn.lock().standing_by == 0 {
            std::thread::yield_now();
        }
        turn.leave();
        assert!(told.try_recv().is_err(), "one still waits");
        turn.leave();
        told.recv().unwrap();
        assert!(third.join().unwrap());
    }

    #[test]
    fn nobody_stands_by_when_it_is_over() {
        let turn = Arc::new(Turn::default());
        for _ in 0..MOST {
            assert!(turn.take());
        }
        let others: Vec<_> = (0..4)
            .map(|_| {
                let turn = Arc::clone(&turn);
                std::thread::spawn(move || turn.take())
            })
            .collect();
        turn.end();
        assert!(others.into_iter().all(|other| !other.join().unwrap()));
        assert!(!turn.take());
    }

    /// However threads come and go, calls are taken until there are no more.
    #[test]
    fn somebody_always_comes() {
        const CALLS: usize = 20_000;
        let turn = Arc::new(Turn::default());
        let left = Arc::new(AtomicUsize::new(CALLS));
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let (turn, left) = (Arc::clone(&turn), Arc::clone(&left));
                std::thread::spawn(move || {
                    let mut taken = 0;
                    while turn.take() {
                        let more = |left: usize| left.checked_sub(1);
                        let (now, then) = (Ordering::SeqCst, Ordering::SeqCst);
                        if left.fetch_update(now, then, more).is_err() {
                            turn.end();
                            break;
                        }
                        taken += 1;
                        turn.leave();
                        if taken % 7 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    taken
                })
            })
            .collect();
        let taken: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(taken, CALLS);
    }
}

//! Requests that are being answered: one answer to a request at a time.
//!
//! Invariant: a claim is in memory alone. With the daemon every claim ends, and a request that was
//! not answered can be answered.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Which requests are being answered.
#[derive(Default)]
pub(crate) struct Claims {
    held: watch::Sender<BTreeSet<u64>>,
    closing: Mutex<()>,
}

/// The right to answer a request.
pub(crate) struct Claim<'c> {
    claims: &'c Claims,
    id: u64,
}

impl Claims {
    /// Waits until nobody else answers a request.
    pub(crate) async fn claim(&self, id: u64) -> Claim<'_> {
        let mut seen = self.held.subscribe();
        while !self.held.send_if_modified(|held| held.insert(id)) {
            // It cannot fail: the sender is here.
            cowork_sys::ignore(seen.wait_for(|held| !held.contains(&id)).await);
        }
        Claim { claims: self, id }
    }

    /// Held from a look at whether a request waits until it is written down that it does not.
    pub(crate) fn closing(&self) -> MutexGuard<'_, ()> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.held.send_if_modified(|held| held.remove(&self.id));
    }
}

//! Places for connections that are looked into.
//!
//! There are so many, and whoever has one keeps it while it is of use: an event stream may be silent
//! for as long as it likes. Only where all are taken, the one in which nothing has moved for longest
//! gives way to the next, if that is long enough. So nobody who stalls keeps others out for ever.

use crate::flow::Flow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most connections of the session at a time, and how long one more waits for another to end.
pub(super) const MAX_CONNECTIONS: usize = 512;
const TIME_FOR_ROOM: Duration = Duration::from_secs(3);
/// How long nothing has moved in a connection that gives way.
pub(super) const STILL: Duration = Duration::from_mins(5);

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) room: Arc<Semaphore>,
    taken: Arc<Taken>,
    /// How long nothing has moved in a connection that gives way.
    pub(super) still: Duration,
}

#[derive(Debug, Default)]
struct Taken(Mutex<BTreeMap<u64, Weak<Place>>>);

impl Taken {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    flow: Arc<Flow>,
    leave: Notify,
    /// Whether it was told to leave.
    told: AtomicBool,
    taken: Arc<Taken>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Waits until it is needed for another connection.
    pub(super) async fn is_needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.all().remove(&self.flow.number);
    }
}

impl Default for Places {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Self { room, taken: Arc::default(), still: STILL }
    }
}

impl Places {
    /// A place, if one is free or becomes so soon.
    pub(super) async fn take(&self, flow: &Arc<Flow>) -> Option<Arc<Place>> {
        if self.room.available_permits() == 0 {
            self.want_one();
        }
        let waiting = Arc::clone(&self.room).acquire_owned();
        let permit = timeout(TIME_FOR_ROOM, waiting).await.ok()?.ok()?;
        let (flow, taken) = (Arc::clone(flow), Arc::clone(&self.taken));
        let place = Arc::new(Place {
            flow,
            leave: Notify::new(),
            told: AtomicBool::new(false),
            taken,
            _permit: permit,
        });
        self.taken.all().insert(place.flow.number, Arc::downgrade(&place));
        Some(place)
    }

    /// Tells the one in which nothing has moved for longest that it is to leave.
    fn want_one(&self) {
        let taken = self.taken.all();
        let places: Vec<Arc<Place>> = taken.values().filter_map(Weak::upgrade).collect();
        drop(taken);
        // Several may come at once: each wants another one.
        let stays = |place: &&Arc<Place>| !place.told.load(Ordering::Relaxed);
        let stillest = places.iter().filter(stays).max_by_key(|place| place.flow.still());
        if let Some(place) = stillest.filter(|place| place.flow.still() >= self.still) {
            place.told.store(true, Ordering::Relaxed);
            place.flow.ends(GAVE_WAY);
            place.leave.notify_one();
        }
    }
}

/// How a connection ended that gave way.
pub(super) const GAVE_WAY: &str = "gave way";

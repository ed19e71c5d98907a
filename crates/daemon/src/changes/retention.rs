//! How long the changes of sessions that are gone are kept.

use super::store::Store;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time between two looks.
const EVERY: Duration = Duration::from_hours(24);
/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Forgets what is too old or too much, now and every day, until the daemon ends.
pub(crate) async fn tidy(daemon: Arc<Daemon>) {
    drop(daemon.end_lost_stores());
    loop {
        // What cannot be removed now is removed another day.
        drop(daemon.tidy_stores().await);
        daemon.clear_left_away().await;
        tokio::time::sleep(EVERY).await;
    }
}

impl Daemon {
    /// Removes the stores of ended sessions that are too old, then the oldest while there is too
    /// much.
    async fn tidy_stores(self: &Arc<Self>) -> Result<(), Trouble> {
        for store in self.stores_on_disk()?.iter().filter(|store| store.entry.removing) {
            self.remove_store(store).await?;
        }
        let mut ended: Vec<Store> = self.stores()?;
        ended.retain(|store| store.session.is_none() && store.entry.ended.is_some());
        ended.sort_by(|one, other| one.entry.ended.cmp(&other.entry.ended));
        let mut left = Vec::new();
        for store in ended {
            if is_over(store.entry.ended.as_deref(), self.settings.changes.days) {
                self.forget_store(&store, "too old").await?;
            } else {
                left.push(store);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let mut bytes = self.weigh_stores(&self.stores()?).await;
        for store in left {
            if bytes <= self.settings.changes.bytes {
                break;
            }
            let weight = self.weigh_stores(std::slice::from_ref(&store)).await;
            self.forget_store(&store, "too much").await?;
            bytes = bytes.saturating_sub(weight);
        }
        Ok(())
    }

    async fn forget_store(self: &Arc<Self>, store: &Store, why: &str) -> Result<(), Trouble> {
        let _rest = self.stores_at_rest().await;
        let data = json!({ "store": store.name, "reason": why, "ended": store.entry.ended });
        self.book.record("changes.forgotten", Some(&store.entry.session), &data)?;
        self.remove_store(store).await
    }
}

/// Whether something that ended then has been kept for so many days.
fn is_over(ended: Option<&str>, days: u32) -> bool {
    let ended = ended.and_then(|ended| humantime::parse_rfc3339(ended).ok());
    let age = ended.and_then(|ended| SystemTime::now().duration_since(ended).ok());
    age.is_some_and(|age| age >= Duration::from_secs(u64::from(days) * DAY))
}

#[cfg(test)]
mod tests {
    use super::is_over;
    use crate::book::at;
    use std::time::{Duration, SystemTime};

    #[test]
    fn days_are_counted_from_the_end() {
        let ago = |hours| at(SystemTime::now() - Duration::from_hours(hours));
        assert!(is_over(Some(&ago(25)), 1));
        assert!(!is_over(Some(&ago(23)), 1));
        assert!(is_over(Some(&ago(0)), 0));
        assert!(!is_over(Some("soon"), 0));
        assert!(!is_over(None, 0));
    }
}

//! Secrets that get another value: asked for once, however many requests wait for it.

use crate::office::Office;
use cowork_api::egress::{FromEgress, NotRenewed, Renewal, Secret};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Longest that a request waits for another value.
const PATIENCE: Duration = Duration::from_secs(40);

type Answer = Result<(), NotRenewed>;

/// Who waits for another value of which secret.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    waiting: Mutex<BTreeMap<String, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    /// The number of the value that is of no use.
    version: u64,
    askers: Vec<oneshot::Sender<Answer>>,
}

impl Renewals {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those who wait for a secret. Says whether nobody has asked for it yet.
    fn join(&self, secret: &str, version: u64, asker: oneshot::Sender<Answer>) -> bool {
        let mut waiting = self.waiting();
        let known = waiting.get_mut(secret).filter(|known| known.version == version);
        if let Some(known) = known {
            known.askers.retain(|asker| !asker.is_closed());
            known.askers.push(asker);
            known.askers.len() == 1
        } else {
            let new = Waiting { version, askers: vec![asker] };
            waiting.insert(secret.to_owned(), new);
            true
        }
    }

    /// Tells those who wait for secrets that have another value now.
    pub(crate) fn came(&self, secrets: &[Secret]) {
        let is_new = |name: &str, old: u64| match secrets.iter().find(|one| one.name == name) {
            Some(Secret { renewal: Renewal::OnDemand { version, .. }, .. }) => *version > old,
            // It is gone, or another one: whoever waits looks again.
            _ => true,
        };
        let mut waiting = self.waiting();
        let done: Vec<String> = waiting
            .iter()
            .filter(|(name, one)| is_new(name, one.version))
            .map(|(name, _)| name.clone())
            .collect();
        for asker in done.iter().filter_map(|name| waiting.remove(name)).flat_map(|one| one.askers)
        {
            cowork_sys::ignore(asker.send(Ok(())));
        }
    }

    /// Tells those who wait for a secret that it stays as it is.
    pub(crate) fn failed(&self, secret: &str, version: u64, why: &NotRenewed) {
        let mut waiting = self.waiting();
        if waiting.get(secret).is_some_and(|one| one.version == version)
            && let Some(one) = waiting.remove(secret)
        {
            for asker in one.askers {
                cowork_sys::ignore(asker.send(Err(why.clone())));
            }
        }
    }

    /// What is asked for and not answered yet.
    pub(crate) fn open(&self) -> Vec<(String, u64)> {
        self.waiting().iter().map(|(name, one)| (name.clone(), one.version)).collect()
    }
}

impl Office {
    /// Waits for another value of a secret in place of the one with this number.
    pub(crate) async fn renew(&self, secret: &str, version: u64) -> Answer {
        let (asker, answer) = oneshot::channel();
        if self.renewals.join(secret, version, asker) {
            self.say(FromEgress::Renew { secret: secret.to_owned(), version });
        }
        // It may have come in between.
        self.renewals.came(&self.secrets());
        let late = || {
            let sentence = "it takes too long".to_owned();
            Err(NotRenewed::Failed { sentence })
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => late(),
        }
    }
}

/// The number of a value that has expired by now.
pub(crate) fn expired(secret: &Secret) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    match secret.renewal {
        Renewal::OnDemand { version, expires: Some(at) } if u128::from(at) <= now => Some(version),
        Renewal::OnDemand { .. } | Renewal::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowork_api::egress::{Hidden, Rules};

    fn secret(version: u64, expires: Option<u64>) -> Secret {
        Secret {
            name: "token".into(),
            placeholder: "stand-in".into(),
            value: Hidden(b"value".to_vec()),
            renewal: Renewal::OnDemand { version, expires },
        }
    }

    #[tokio::test]
    async fn it_is_asked_for_once() {
        let office = Office::new("test", Rules::default(), vec![secret(1, None)]);
        let asks: Vec<_> = (0..5)
            .map(|_| {
                let office = std::sync::Arc::clone(&office);
                tokio::spawn(async move { office.renew("token", 1).await })
            })
            .collect();
        let asked = FromEgress::Renew { secret: "token".into(), version: 1 };
        assert_eq!(office.news().await, asked);
        tokio::task::yield_now().await;
        office.set_secrets(vec![secret(2, None)]);
        for ask in asks {
            assert_eq!(ask.await.unwrap(), Ok(()));
        }
        assert_eq!(office.unsaid(), None, "nothing was asked twice");
        // Whoever comes late finds the new value.
        assert_eq!(office.renew("token", 1).await, Ok(()));
    }

    #[tokio::test]
    async fn whoever_waits_hears_why_not_and_may_ask_again() {
        let office = Office::new("test", Rules::default(), vec![secret(1, None)]);
        for round in 0..2 {
            let asking = std::sync::Arc::clone(&office);
            let ask = tokio::spawn(async move { asking.renew("token", 1).await });
            assert!(matches!(office.news().await, FromEgress::Renew { .. }), "round {round}");
            let why = NotRenewed::Failed { sentence: "refused".into() };
            office.not_renewed("token", 1, &why);
            assert_eq!(ask.await.unwrap(), Err(why));
        }
    }

    #[test]
    fn what_is_known_to_have_expired_is() {
        assert_eq!(expired(&secret(3, Some(1))), Some(3));
        assert_eq!(expired(&secret(3, Some(u64::MAX))), None);
        assert_eq!(expired(&secret(3, None)), None);
    }
}

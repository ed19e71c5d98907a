//! How much of what rules limit was used: bytes sent, requests, connections at a time.
//!
//! A rule is known by its name, so that a rule that stays when others change keeps its count. Time
//! is counted in windows: what a window has left over is not carried into the next one. What was used
//! is told to the daemon, for the process that comes after this one: each request, and bytes by the
//! hundredth of what is allowed.

use crate::office::Refusal;
use cowork_api::egress::{Rule, Spent, Window};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Longest list in one message, in bytes of the names of rules: no message is larger than a packet.
const LIST_BYTES: usize = 16 * 1024;
/// Most rules in it.
const LIST_RULES: usize = 64;

/// Counts for all rules.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    meters: Arc<Mutex<Meters>>,
    /// There is something to tell the daemon.
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Meters {
    all: HashMap<String, Meter>,
    /// Rules whose counts the daemon is to be told.
    untold: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Meter {
    upload: Option<Window>,
    /// How much of that the daemon was told.
    told: u64,
    requests: Option<Window>,
    connections: u32,
}

/// A connection that counts for its rule until this is dropped.
#[derive(Debug)]
pub struct Ticket {
    quotas: Quotas,
    rule: Option<String>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(rule) = &self.rule
            && let Some(meter) = self.quotas.lock().all.get_mut(rule)
        {
            meter.connections = meter.connections.saturating_sub(1);
        }
    }
}

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection under a rule, if it may be.
    pub fn connection(&self, rule: Option<&Rule>) -> Result<Ticket, Refusal> {
        let limited = rule.and_then(|rule| Some((rule, rule.limits.connections?)));
        let Some((rule, most)) = limited else {
            return Ok(Ticket { quotas: self.clone(), rule: None });
        };
        let mut meters = self.lock();
        let meter = meters.all.entry(rule.name.clone()).or_default();
        if meter.connections >= most {
            let sentence = format!("the rule allows {most} connections at a time");
            return Err(exceeded("quota-connections", rule, sentence, "close one first"));
        }
        meter.connections += 1;
        Ok(Ticket { quotas: self.clone(), rule: Some(rule.name.clone()) })
    }

    /// One more request under a rule, if it may be.
    pub fn request(&self, rule: Option<&Rule>) -> Result<(), Refusal> {
        let limited = rule.and_then(|rule| Some((rule, rule.limits.requests?)));
        let Some((rule, (most, seconds))) = limited else { return Ok(()) };
        let mut meters = self.lock();
        let window = &mut meters.all.entry(rule.name.clone()).or_default().requests;
        take(window, 1, most, seconds).map_err(|left| {
            let sentence = format!("the rule allows {most} requests in {seconds} s");
            exceeded("quota-requests", rule, sentence, &again(left))
        })?;
        meters.untold.insert(rule.name.clone());
        self.news.notify_one();
        Ok(())
    }

    /// So many more bytes sent under a rule, if they may be.
    pub fn upload(&self, rule: Option<&Rule>, bytes: u64) -> Result<(), Refusal> {
        let limited = rule.and_then(|rule| Some((rule, rule.limits.upload?)));
        let Some((rule, (most, seconds))) = limited else { return Ok(()) };
        let mut meters = self.lock();
        let meter = meters.all.entry(rule.name.clone()).or_default();
        take(&mut meter.upload, bytes, most, seconds).map_err(|left| {
            let sentence = format!("the rule allows {most} bytes to be sent in {seconds} s");
            exceeded("quota-upload", rule, sentence, &again(left))
        })?;
        let used = meter.upload.map_or(0, |window| window.used);
        // A window that began meanwhile has less than the one before.
        if used < meter.told || used - meter.told >= most / 100 {
            meter.told = used;
            meters.untold.insert(rule.name.clone());
            self.news.notify_one();
        }
        Ok(())
    }

    /// Goes on counting where an earlier process was.
    pub fn restore(&self, spent: Vec<Spent>) {
        let mut meters = self.lock();
        for Spent { rule, upload, requests } in spent {
            let told = upload.map_or(0, |window| window.used);
            let meter = meters.all.entry(rule).or_default();
            *meter = Meter { upload, told, requests, connections: meter.connections };
        }
    }

    /// A daemon has come, perhaps after another one: it is told all counts.
    pub fn tell_all(&self) {
        let mut meters = self.lock();
        let Meters { all, untold } = &mut *meters;
        let counted = |meter: &Meter| meter.upload.is_some() || meter.requests.is_some();
        untold.extend(all.iter().filter(|(_, meter)| counted(meter)).map(|(rule, _)| rule.clone()));
        self.news.notify_one();
    }

    /// What the daemon is to be told next, if there is something.
    pub fn unsaid(&self) -> Option<Vec<Spent>> {
        let mut meters = self.lock();
        let Meters { all, untold } = &mut *meters;
        let (mut list, mut bytes) = (Vec::new(), 0);
        while let Some(rule) = untold.pop_first() {
            let Some(meter) = all.get(&rule) else { continue };
            bytes += rule.len();
            list.push(Spent { rule, upload: meter.upload, requests: meter.requests });
            if bytes > LIST_BYTES || list.len() == LIST_RULES {
                break;
            }
        }
        (!list.is_empty()).then_some(list)
    }

    /// Waits for what the daemon is to be told next.
    pub async fn news(&self) -> Vec<Spent> {
        loop {
            match self.unsaid() {
                Some(list) => return list,
                None => self.news.notified().await,
            }
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Takes from a window, or says how long until the next one begins. A window that begins in the future,
/// because the clock was set back, begins now.
fn take(window: &mut Option<Window>, amount: u64, most: u64, seconds: u32) -> Result<(), Duration> {
    let length = u64::from(seconds) * 1000;
    let now = now();
    let current = window.get_or_insert(Window { since: now, used: 0 });
    current.since = current.since.min(now);
    let age = now - current.since;
    if age >= length {
        *current = Window { since: now, used: 0 };
    }
    let used = current.used.saturating_add(amount);
    if used > most {
        return Err(Duration::from_millis(length.saturating_sub(age)));
    }
    current.used = used;
    Ok(())
}

fn again(left: Duration) -> String {
    format!("try again in {} s", left.as_secs() + 1)
}

fn exceeded(code: &'static str, rule: &Rule, sentence: String, hint: &str) -> Refusal {
    Refusal { code, sentence, hint: hint.to_owned(), rule: Some(rule.name.clone()) }
}

#[cfg(test)]
mod tests {
    use super::Quotas;
    use cowork_api::egress::{Action, Host, Ports, Quota, Rule, Spent, Tls, Window};

    fn rule(limits: Quota) -> Rule {
        Rule {
            name: "allow a".into(),
            action: Action::Allow,
            host: Host::Any,
            ports: Ports::All,
            http: Vec::new(),
            tls: Tls::AsNeeded,
            resolves_to: Vec::new(),
            credential: None,
            limits,
        }
    }

    #[test]
    fn connections_come_back_when_they_end() {
        let quotas = Quotas::default();
        let rule = rule(Quota { connections: Some(2), ..Quota::default() });
        let one = quotas.connection(Some(&rule)).unwrap();
        let _two = quotas.connection(Some(&rule)).unwrap();
        assert_eq!(quotas.connection(Some(&rule)).unwrap_err().code, "quota-connections");
        drop(one);
        quotas.connection(Some(&rule)).unwrap();
    }

    #[test]
    fn a_window_ends() {
        let quotas = Quotas::default();
        let rule = rule(Quota { upload: Some((10, 1)), requests: Some((1, 1)), connections: None });
        quotas.upload(Some(&rule), 10).unwrap();
        quotas.request(Some(&rule)).unwrap();
        assert_eq!(quotas.upload(Some(&rule), 1).unwrap_err().code, "quota-upload");
        assert_eq!(quotas.request(Some(&rule)).unwrap_err().code, "quota-requests");
        std::thread::sleep(std::time::Duration::from_millis(1050));
        quotas.upload(Some(&rule), 10).unwrap();
        quotas.request(Some(&rule)).unwrap();
    }

    #[test]
    fn what_has_no_limit_is_not_counted() {
        let quotas = Quotas::default();
        quotas.upload(None, u64::MAX).unwrap();
        quotas.upload(Some(&rule(Quota::default())), u64::MAX).unwrap();
        assert!(quotas.lock().all.is_empty());
        assert_eq!(quotas.unsaid(), None);
    }

    #[test]
    fn what_was_used_counts_for_the_process_that_comes_after() {
        let limits = Quota { upload: Some((1000, 60)), requests: Some((2, 60)), connections: None };
        let (before, rule) = (Quotas::default(), rule(limits));
        let told = |quotas: &Quotas| quotas.unsaid().unwrap_or_default();
        before.request(Some(&rule)).unwrap();
        assert_eq!(told(&before)[0].requests.unwrap().used, 1);
        assert!(told(&before).is_empty());
        // A hundredth of what is allowed, and not each byte.
        before.upload(Some(&rule), 9).unwrap();
        assert!(told(&before).is_empty());
        before.upload(Some(&rule), 1).unwrap();
        assert_eq!(told(&before)[0].upload.unwrap().used, 10);
        before.upload(Some(&rule), 990).unwrap();
        before.tell_all();
        let after = Quotas::default();
        after.restore(told(&before));
        assert!(told(&after).is_empty());
        after.request(Some(&rule)).unwrap();
        assert_eq!(after.request(Some(&rule)).unwrap_err().code, "quota-requests");
        assert_eq!(after.upload(Some(&rule), 1).unwrap_err().code, "quota-upload");
        // What is over is over, and a clock that was set back does not make it longer.
        let (old, ahead) = (Window { since: 1000, used: 2 }, Window { since: u64::MAX, used: 2 });
        let spent =
            |window| Spent { rule: rule.name.clone(), upload: None, requests: Some(window) };
        after.restore(vec![spent(old)]);
        after.request(Some(&rule)).unwrap();
        after.restore(vec![spent(ahead)]);
        let refused = after.request(Some(&rule)).unwrap_err();
        assert_eq!(refused.hint, "try again in 61 s");
    }
}

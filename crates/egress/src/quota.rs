//! How much of what rules limit was used: bytes sent, requests, connections at a time.
//!
//! A rule is known by its name, so that a rule that stays when others change keeps its count. Time
//! is counted in windows: what a window has left over is not carried into the next one.

use crate::office::Refusal;
use cowork_api::egress::Rule;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts for all rules.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    meters: Arc<Mutex<HashMap<String, Meter>>>,
}

#[derive(Debug, Default)]
struct Meter {
    upload: Option<Window>,
    requests: Option<Window>,
    connections: u32,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    used: u64,
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
            && let Some(meter) = self.quotas.lock().get_mut(rule)
        {
            meter.connections = meter.connections.saturating_sub(1);
        }
    }
}

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Meter>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection under a rule, if it may be.
    pub fn connection(&self, rule: Option<&Rule>) -> Result<Ticket, Refusal> {
        let limited = rule.and_then(|rule| Some((rule, rule.limits.connections?)));
        let Some((rule, most)) = limited else {
            return Ok(Ticket { quotas: self.clone(), rule: None });
        };
        let mut meters = self.lock();
        let meter = meters.entry(rule.name.clone()).or_default();
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
        let window = &mut meters.entry(rule.name.clone()).or_default().requests;
        take(window, 1, most, seconds).map_err(|left| {
            let sentence = format!("the rule allows {most} requests in {seconds} s");
            exceeded("quota-requests", rule, sentence, &again(left))
        })
    }

    /// So many more bytes sent under a rule, if they may be.
    pub fn upload(&self, rule: Option<&Rule>, bytes: u64) -> Result<(), Refusal> {
        let limited = rule.and_then(|rule| Some((rule, rule.limits.upload?)));
        let Some((rule, (most, seconds))) = limited else { return Ok(()) };
        let mut meters = self.lock();
        let window = &mut meters.entry(rule.name.clone()).or_default().upload;
        take(window, bytes, most, seconds).map_err(|left| {
            let sentence = format!("the rule allows {most} bytes to be sent in {seconds} s");
            exceeded("quota-upload", rule, sentence, &again(left))
        })
    }
}

/// Takes from a window, or says how long until the next one begins.
fn take(window: &mut Option<Window>, amount: u64, most: u64, seconds: u32) -> Result<(), Duration> {
    let length = Duration::from_secs(seconds.into());
    let now = Instant::now();
    let current = window.get_or_insert(Window { since: now, used: 0 });
    let age = now.saturating_duration_since(current.since);
    if age >= length {
        *current = Window { since: now, used: 0 };
    }
    let used = current.used.saturating_add(amount);
    if used > most {
        return Err(length.saturating_sub(age));
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
    use cowork_api::egress::{Action, Host, Ports, Quota, Rule, Tls};

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
        assert!(quotas.lock().is_empty());
    }
}

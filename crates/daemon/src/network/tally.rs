//! What a session was refused, what a person should know of it, and what went where: counted as records come, for people who look.

use cowork_client::types::{HostTraffic, NetworkNotice, NetworkRefusal, NetworkTarget};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Most refusals that are shown, each with how often it happened.
const MAX_REFUSED: usize = 200;
/// Most notices that are shown, each with how often it came.
const MAX_NOTICED: usize = 100;
/// Most hosts that are counted by name; what goes to others is counted together.
const MAX_HOSTS: usize = 1000;
/// What hosts beyond those are called.
const OTHERS: &str = "(others)";

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The newest first.
    refused: VecDeque<NetworkRefusal>,
    /// The newest first.
    noticed: VecDeque<NetworkNotice>,
    hosts: BTreeMap<String, HostTraffic>,
    /// Whether an earlier daemon counted: the record tells then.
    behind: bool,
}

impl Tally {
    /// Counts nothing until somebody looks: then the record is read.
    pub(crate) fn fall_behind(&mut self) {
        *self = Self { behind: true, ..Self::default() };
    }

    /// Whether the record must be read first.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Counts a record of the audit.
    pub(crate) fn take(&mut self, kind: &str, time: &str, data: &Value) {
        let target = data.get("target").cloned().map(serde_json::from_value::<NetworkTarget>);
        let Some(Ok(target)) = target else { return };
        let text = |name: &str| data.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or(0);
        match kind {
            "network.decided" if data.get("allowed").and_then(Value::as_bool) == Some(false) => {
                self.refuse(NetworkRefusal {
                    time: time.to_owned(),
                    target,
                    code: text("code").unwrap_or_default(),
                    rule: text("rule"),
                    times: 1,
                });
            }
            "network.ended" if went_out(&target, data) => {
                let full = self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(&target.host);
                let name = if full { OTHERS.to_owned() } else { target.host };
                let host = self.hosts.entry(name.clone()).or_default();
                host.host = name;
                host.up = host.up.saturating_add(number("up"));
                host.down = host.down.saturating_add(number("down"));
                host.requests += 1;
            }
            "network.noticed" => self.notice(NetworkNotice {
                time: time.to_owned(),
                target,
                code: text("code").unwrap_or_default(),
                sentence: text("sentence").unwrap_or_default(),
                times: 1,
            }),
            _ => {}
        }
    }

    fn notice(&mut self, mut new: NetworkNotice) {
        let same = |old: &NetworkNotice| {
            old.code == new.code
                && old.sentence == new.sentence
                && old.target.host == new.target.host
                && old.target.port == new.target.port
        };
        if let Some(index) = self.noticed.iter().position(same)
            && let Some(old) = self.noticed.remove(index)
        {
            new.times += old.times;
        }
        self.noticed.push_front(new);
        self.noticed.truncate(MAX_NOTICED);
    }

    fn refuse(&mut self, mut new: NetworkRefusal) {
        let same = |old: &NetworkRefusal| {
            old.code == new.code
                && old.target.host == new.target.host
                && old.target.port == new.target.port
                && old.target.path == new.target.path
        };
        if let Some(index) = self.refused.iter().position(same)
            && let Some(old) = self.refused.remove(index)
        {
            new.times += old.times;
        }
        self.refused.push_front(new);
        self.refused.truncate(MAX_REFUSED);
    }

    /// What was refused, the newest first.
    pub(crate) fn refused(&self) -> Vec<NetworkRefusal> {
        self.refused.iter().cloned().collect()
    }

    /// What a person should know, the newest first.
    pub(crate) fn noticed(&self) -> Vec<NetworkNotice> {
        self.noticed.iter().cloned().collect()
    }

    /// What went where, the most first.
    pub(crate) fn hosts(&self) -> Vec<HostTraffic> {
        let mut hosts: Vec<HostTraffic> = self.hosts.values().cloned().collect();
        hosts.sort_by_key(|host| std::cmp::Reverse(host.up.saturating_add(host.down)));
        hosts
    }
}

/// Whether something that has ended went from the session to a host. What reached nobody has no address,
/// and neither has a connection whose requests were looked into: they are told themselves.
fn went_out(target: &NetworkTarget, data: &Value) -> bool {
    target.via != "published" && data.get("address").is_some_and(Value::is_string)
}

#[cfg(test)]
mod tests {
    use super::{MAX_HOSTS, MAX_NOTICED, MAX_REFUSED, OTHERS, Tally};
    use serde_json::json;

    fn target(host: &str) -> serde_json::Value {
        json!({ "host": host, "port": 443, "via": "capture" })
    }

    #[test]
    fn what_is_refused_again_is_counted_and_comes_first() {
        let mut tally = Tally::default();
        for host in ["a.example", "b.example", "a.example"] {
            let data = json!({ "target": target(host), "allowed": false, "code": "no-rule" });
            tally.take("network.decided", "2026-01-01T00:00:00.000Z", &data);
        }
        let refused = tally.refused();
        assert_eq!(refused.len(), 2);
        assert_eq!((refused[0].target.host.as_str(), refused[0].times), ("a.example", 2));
    }

    #[test]
    fn what_went_to_a_host_is_counted_once() {
        let mut tally = Tally::default();
        let mut ended =
            |target: serde_json::Value, request: u64, address: Option<&str>, up: u64| {
                let data = json!({
                    "target": target, "flow": 1, "request": request, "address": address, "up": up,
                    "down": 1,
                });
                tally.take("network.ended", "", &data);
            };
        // Two requests in one connection that is looked into, and its own end.
        ended(target("a.example"), 1, Some("192.0.2.1"), 10);
        ended(target("a.example"), 2, Some("192.0.2.1"), 20);
        ended(target("a.example"), 0, None, 0);
        // A tunnel, one that reached nobody, and what came in by a port.
        ended(target("b.example"), 0, Some("192.0.2.2"), 5);
        ended(target("c.example"), 0, None, 0);
        let published = json!({ "host": "127.0.0.1", "port": 3000, "via": "published" });
        ended(published, 0, None, 50);
        let hosts = tally.hosts().into_iter().map(|host| (host.host, host.up, host.requests));
        let expected = [("a.example", 30, 2), ("b.example", 5, 1)];
        assert_eq!(
            hosts.collect::<Vec<_>>(),
            expected.map(|(host, up, n)| (host.to_owned(), up, n))
        );
    }

    #[test]
    fn a_session_cannot_grow_it_without_bound() {
        let mut tally = Tally::default();
        for index in 0..2 * MAX_HOSTS {
            let target = target(&format!("{index}.example"));
            let data = json!({ "target": target, "allowed": false, "code": "no-rule" });
            tally.take("network.decided", "", &data);
            let data = json!({ "target": target, "address": "192.0.2.1", "up": 2, "down": 1 });
            tally.take("network.ended", "", &data);
            let data = json!({ "target": target, "code": "x", "sentence": "y" });
            tally.take("network.noticed", "", &data);
        }
        assert_eq!(tally.refused().len(), MAX_REFUSED);
        assert_eq!(tally.noticed().len(), MAX_NOTICED);
        assert_eq!(tally.hosts().len(), MAX_HOSTS + 1);
        assert_eq!(tally.hosts()[0].host, OTHERS);
        assert_eq!(tally.hosts()[0].up, 2 * MAX_HOSTS as u64);
    }
}

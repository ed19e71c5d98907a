//! What rules limit stays used, whatever becomes of the process that counts it.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::{Duration, Instant};

for_everyone!(
    requests_stay_used_when_the_egress_is_killed_and_when_the_session_is_stopped,
    bytes_stay_used_when_the_egress_is_killed,
);

/// The process that is the way out of a session, if there is one.
fn egress(site: &Site, id: &str) -> Option<i64> {
    let shown = site.say(&["net", "rules", id, "--json"]).good();
    let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
    shown["egress"]["pid"].as_i64()
}

/// Kills the way out of a session, and waits for the next one.
fn kill(site: &Site, id: &str) {
    let before = egress(site, id);
    let pid = before.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("there is one"), Signal::KILL).expect("it is ours");
    let begin = Instant::now();
    while egress(site, id).is_none_or(|pid| Some(pid) == before) {
        assert!(begin.elapsed() < Duration::from_secs(20), "it was not replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn requests_stay_used_when_the_egress_is_killed_and_when_the_session_is_stopped(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new"]).good();
    let id = id.trim();
    site.say(&["allow", id, "web.example", "--requests", "3/1h"]).good();
    let get = || {
        let curl = "curl -sS -m 20 -o /dev/null -w '%{http_code}' http://web.example/limited";
        site.say(&["exec", id, "--", "sh", "-c", curl]).out
    };
    assert_eq!([get(), get()], ["200", "200"]);
    kill(site, id);
    assert_eq!([get(), get()], ["200", "429"], "two were used before");
    kill(site, id);
    assert_eq!(get(), "429");
    site.say(&["stop", id]).good();
    site.say(&["start", id]).good();
    assert_eq!(get(), "429", "all were used before it was stopped");
    site.say(&["rm", id]).good();
}

fn bytes_stay_used_when_the_egress_is_killed(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new"]).good();
    let id = id.trim();
    site.say(&["allow", id, "web.example", "--upload", "100KB/1h"]).good();
    let send = || {
        let curl = "head -c 60000 /dev/zero | curl -sS -m 20 -o /dev/null -w '%{http_code}' \
                    --data-binary @- http://web.example/limited-bytes";
        site.say(&["exec", id, "--", "sh", "-c", curl]).out
    };
    assert_eq!(send(), "200");
    kill(site, id);
    assert_eq!(send(), "429", "more than the half was used before");
    let lengths = site.arrived("limited-bytes");
    assert_eq!(lengths.len(), 1, "{lengths:?}");
    site.say(&["rm", id]).good();
}

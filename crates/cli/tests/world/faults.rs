//! Ways out that break in the middle, and one behind a proxy.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    an_egress_that_is_killed_in_the_middle_of_a_transfer_leaves_a_clean_end,
    everything_goes_through_the_parent_proxy,
);

/// The process that is the way out of a session.
fn egress(site: &Site, id: &str) -> Option<Pid> {
    let shown = site.say(&["net", "rules", id, "--json"]).good();
    let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
    shown["egress"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
}

fn an_egress_that_is_killed_in_the_middle_of_a_transfer_leaves_a_clean_end(person: Person) {
    let site = Site::of(person);
    // Looked into, and as it is; towards the session, and from it.
    for (rule, url) in [
        ("GET,PUT https://web.example/**", "https://web.example"),
        ("web.example", "http://web.example"),
    ] {
        let id = site.say(&["new", "--grant", ".", "--allow", rule]).good();
        let id = id.trim();
        for (name, way) in [
            ("down", format!("-o mnt/desk/down {url}/big/400000000")),
            ("up", format!("-T mnt/desk/large {url}/sent")),
        ] {
            site.place("down", "");
            let large = std::fs::File::create(site.place("large", "")).expect("it is ours");
            large.set_len(400_000_000).expect("there is room");
            let script =
                format!("curl -sS --limit-rate 2M -w '%{{size_download}} %{{size_upload}}' {way}");
            let mut command = site.cowork(&["exec", id, "--", "sh", "-c", &script]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let transfer = command.spawn().expect("it starts");
            let flows = |least: u64| {
                let traffic = site.say(&["net", id, "--json"]).good();
                let traffic: Value = serde_json::from_str(&traffic).expect("it is JSON");
                let flows = traffic["flows"].as_array().expect("it is a list").clone();
                flows.iter().any(|flow| flow[name].as_u64().is_some_and(|bytes| bytes > least))
            };
            let begin = Instant::now();
            while !flows(1_000_000) {
                assert!(begin.elapsed() < Duration::from_secs(20), "{name} of {url} does not flow");
                std::thread::sleep(Duration::from_millis(20));
            }
            let before = egress(site, id).expect("there is one");
            kill_process(before, Signal::KILL).expect("it is ours");
            let killed = Instant::now();
            let said = transfer.wait_with_output().expect("it ends");
            let waited = killed.elapsed();
            assert!(waited < Duration::from_secs(10), "{name} of {url} hangs: {waited:?}");
            let error = String::from_utf8_lossy(&said.stderr);
            // Cut short, reset, or a write that failed: never taken for a whole.
            let code = said.status.code().unwrap_or_default();
            assert!([18, 35, 52, 55, 56, 92].contains(&code), "{name} of {url}: {code} {error}");
            // The next one gets there, by another process.
            let get = format!("{url}/after-the-kill");
            let begin = Instant::now();
            loop {
                let said = site.say(&["exec", id, "--", "curl", "-sS", "-m", "10", &get]);
                if said.code == 0 && said.out == "hello from web.example\n" {
                    break;
                }
                assert!(begin.elapsed() < Duration::from_secs(20), "{said:?}");
            }
            assert_ne!(egress(site, id), Some(before));
        }
        site.say(&["rm", id]).good();
    }
    site.say(&["audit", "verify"]).good();
}

fn everything_goes_through_the_parent_proxy(person: Person) {
    let site = Site::behind_proxy(person);
    let asked = |word: &str| {
        let all = site.arrived(word).into_iter();
        all.filter(|one| one["scheme"] == "proxy").collect::<Vec<Value>>()
    };
    // The proxy ends TLS; only its authority is trusted here, not that of the servers.
    let rules = ["--allow", "GET https://web.example/**", "--allow", "api.example"];
    let script = "set -e; curl -sS https://web.example/by-proxy; curl -sS http://api.example/direct; \
                  curl -sS -o /dev/null -w '%{http_connect}' https://denied.example/ || true";
    let said = site.script(&rules, script).good();
    assert_eq!(said, "hello from web.example\nhello from api.example\n403");
    let connect = asked("web.example:443");
    assert_eq!(connect.len(), 1, "{connect:?}");
    assert_eq!(connect[0]["headers"]["proxy-authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(site.arrived("/by-proxy").len(), 1);
    // Excepted by its port; and what is refused is not told to the proxy.
    assert_eq!(site.arrived("/direct").len(), 1);
    assert!(asked("api.example:80").is_empty() && asked("denied.example").is_empty());
    // The exception is about one port: the other one goes through the proxy, as a tunnel too.
    let said =
        site.script(&["--allow", "api.example"], "curl -sSk https://api.example/tunnel").good();
    assert_eq!(said, "hello from api.example\n");
    assert_eq!(asked("api.example:443").len(), 1);
    // The name is the proxy's to look up.
    assert!(
        site.arrived("").iter().all(|one| one["scheme"] != "dns" || one["url"] != "web.example")
    );
    // What it knows of the proxy, a session is not told: neither who comes, nor where it is.
    let said =
        site.script(&["--allow", "web.example"], "env; cat mnt/.cowork* 2>/dev/null; true").good();
    assert!(!said.contains("secret@") && !said.contains("proxy.example"), "{said}");
}

//! Ways out that break in the middle.

use crate::for_everyone;
use crate::site::{Site, Way};
use cowork_testbed::Person;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    an_egress_that_is_killed_in_the_middle_of_a_transfer_leaves_a_clean_end,
    an_address_that_a_program_keeps_outlives_the_egress,
    files_of_the_name_lookup_may_be_replaced,
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

/// Kills the way out of a session, and waits for the next one.
fn kill_egress(site: &Site, id: &str) {
    let before = egress(site, id).expect("there is one");
    kill_process(before, Signal::KILL).expect("it is ours");
    let begin = Instant::now();
    while egress(site, id).is_none_or(|now| now == before) {
        assert!(begin.elapsed() < Duration::from_secs(20), "there is no other one");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn an_address_that_a_program_keeps_outlives_the_egress(person: Person) {
    let site = Site::alone(person);
    let id = site.say(&["new", "--allow", "web.example", "--allow", "denied.example"]).good();
    let id = id.trim();
    // The only question for these names that there is.
    let address = |name: &str, kind: &str| {
        let said = site.say(&["exec", id, "--", "getent", kind, name]).good();
        said.split_whitespace().next().expect("an address").to_owned()
    };
    let (four, six) = (address("web.example", "ahostsv4"), address("web.example", "ahostsv6"));
    let denied = address("denied.example", "ahostsv4");
    // No name is asked for: what is connected to is an address.
    let get = |address: &str, name: &str| {
        let (host, url) = (format!("Host: {name}"), format!("http://{address}/kept"));
        let words =
            ["exec", id, "--", "curl", "-sS", "--noproxy", "*", "-m", "10", "-H", &host, &url];
        site.say(&words)
    };
    let all = || {
        assert_eq!(get(&four, "web.example").good(), "hello from web.example\n");
        assert_eq!(get(&format!("[{six}]"), "web.example").good(), "hello from web.example\n");
    };
    kill_egress(&site, id);
    all();
    assert_eq!(get(&denied, "denied.example").good(), "hello from denied.example\n");
    // What is known of a name is not what it may.
    site.say(&["deny", id, "denied.example"]).good();
    kill_egress(&site, id);
    all();
    let refused = get(&denied, "denied.example");
    assert!(!refused.out.contains("hello"), "{refused:?}");
    let told = site.say(&["audit", id, "--json"]).good();
    assert!(told.contains("denied-by-rule") && !told.contains("unknown-address"), "{told}");
    // Both at once: the keeper has the names.
    let before = egress(&site, id).expect("there is one");
    site.kill_daemon();
    kill_process(before, Signal::KILL).expect("it is ours");
    let begin = Instant::now();
    while egress(&site, id).is_none_or(|now| now == before) {
        assert!(begin.elapsed() < Duration::from_secs(20), "there is no other one");
        std::thread::sleep(Duration::from_millis(20));
    }
    all();
    site.say(&["rm", id]).good();
}

/// How much memory a process has that is its own, in bytes.
fn memory(process: Pid) -> u64 {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("it has memory") * 1024
}

/// Inside TLS that is looked into, and in a tunnel; towards the session, and from it.
#[test]
fn a_gibibyte_in_tls_passes_with_little_memory() {
    let site = Site::of(Person::User);
    let down = "https://web.example/big/1073741824 | wc -c";
    let up = "-T - https://web.example/sink";
    // What comes through a tunnel is tested with other clients.
    for (rule, roots, ways) in
        [("GET,PUT https://web.example/**", "", &[down, up][..]), ("web.example", "-k", &[up])]
    {
        let id = site.say(&["new", "--allow", rule]).good();
        let id = id.trim();
        let get = format!("curl -sS {roots} https://web.example/after");
        site.say(&["exec", id, "--", "sh", "-c", &get]).good();
        let process = egress(site, id).expect("there is one");
        let before = memory(process);
        for way in ways {
            let way = format!("head -c 1073741824 /dev/zero | curl -sS {roots} {way}");
            let mut command = site.cowork(&["exec", id, "--", "sh", "-c", &way]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let mut transfer = command.spawn().expect("it starts");
            let mut most = 0;
            while transfer.try_wait().expect("it can be waited for").is_none() {
                most = most.max(memory(process));
                std::thread::sleep(Duration::from_millis(20));
            }
            let said = transfer.wait_with_output().expect("it ends");
            assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "1073741824", "{rule}: {way}");
            let grown = most.saturating_sub(before);
            assert!(grown < 16 * 1024 * 1024, "{rule}: {way}: {grown} bytes more");
        }
        site.say(&["rm", id]).good();
    }
}

fn files_of_the_name_lookup_may_be_replaced(person: Person) {
    let site = Site::alone_by(Way::OwnFiles, person);
    let id = site.say(&["new", "--allow", "web.example", "--allow", "late.example"]).good();
    let id = id.trim();
    let get = |name: &str| {
        let url = format!("http://{name}/replaced");
        site.say(&["exec", id, "--", "curl", "-sS", "-m", "10", &url])
    };
    assert_eq!(get("web.example").good(), "hello from web.example\n");
    let kept = site.say(&["exec", id, "--", "getent", "ahostsv4", "web.example"]).good();
    let kept = kept.split_whitespace().next().expect("an address");
    let before = egress(&site, id).expect("there is one");
    // As programs do that manage a network: another file takes the place of the first.
    let hosts = site.folder.path().join("etc/hosts");
    let names = std::fs::read_to_string(&hosts).expect("it is there");
    let new = site.folder.write("etc/hosts.new", names + "11.22.33.7 late.example\n");
    std::fs::rename(new, hosts).expect("it is ours");
    let begin = Instant::now();
    while get("late.example").out != "hello from late.example\n" {
        assert!(begin.elapsed() < Duration::from_secs(30), "new names are not found");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_ne!(egress(&site, id), Some(before));
    let url = format!("http://{kept}/kept");
    let get = ["exec", id, "--", "curl", "-sS", "--noproxy", "*", "-H", "Host: web.example", &url];
    assert_eq!(site.say(&get).good(), "hello from web.example\n");
    let told = site.say(&["audit", id, "--json"]).good();
    assert!(told.contains("resolver-replaced"), "{told}");
    site.say(&["rm", id]).good();
}

//! What a person should know is told by name, with what to do about it; what was reached is told as
//! it was.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use serde_json::Value;
use std::time::{Duration, Instant};

for_everyone!(
    a_client_that_refuses_the_authority_is_named_with_the_fix,
    an_archive_says_what_was_spoken,
);

/// Trusts the authority of the world's servers alone, as programs with a bundle of their own do. It
/// waits a little before it greets.
const PINNED: &str = "import socket, ssl, sys, time\n\
    trusting = ssl.create_default_context(cafile=\"mnt/desk/ca.pem\")\n\
    line = socket.create_connection((\"web.example\", 443)); time.sleep(0.5)\n\
    try: line = trusting.wrap_socket(line, server_hostname=\"web.example\")\n\
    except ssl.SSLError: sys.exit(\"it does not trust\")\n\
    line.sendall(b\"GET /bundled HTTP/1.0\\r\\nHost: web.example\\r\\n\\r\\n\")\n\
    print(line.makefile().read().splitlines()[-1])\n";

/// What is noticed in a session about its authority, as soon as something is.
#[track_caller]
fn noticed(site: &Site, id: &str) -> Value {
    let begin = Instant::now();
    loop {
        let traffic = site.say(&["net", id, "--json"]).good();
        let traffic: Value = serde_json::from_str(&traffic).expect("it is JSON");
        let all = traffic["noticed"].as_array().expect("it is a list");
        if let Some(notice) = all.iter().find(|one| one["code"] == "untrusted-authority") {
            return notice.clone();
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "nothing was noticed: {traffic}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn a_client_that_refuses_the_authority_is_named_with_the_fix(person: Person) {
    let site = Site::of(person);
    let roots = std::fs::read_to_string(site.folder.path().join("ca.pem")).expect("it is there");
    site.place("ca.pem", &roots);
    let rule = "GET https://web.example/**";
    let id = site.say(&["new", "--grant", ".", "--allow", rule]).good();
    let id = id.trim();
    let run = || site.say(&["exec", id, "--", "python3", "-c", PINNED]);
    let refused = run();
    assert_eq!((refused.code, refused.err.as_str()), (1, "it does not trust\n"), "{refused:?}");
    let notice = noticed(site, id);
    let fix = format!("cowork allow {id} web.example --tls tunnel");
    let sentence = notice["sentence"].as_str().expect("it is text");
    assert!(sentence.starts_with("python3 does not trust the session's authority "), "{notice}");
    assert!(sentence.ends_with(&format!(": `{fix}`")), "{notice}");
    let process = notice["target"]["process"].as_str();
    assert!(process.is_some_and(|process| process.starts_with("python3 (")), "{notice}");
    assert_eq!((&notice["target"]["host"], &notice["times"]), (&"web.example".into(), &1.into()));
    let view = site.say(&["net", id]).good();
    assert!(view.contains("\nNOTICED ") && view.contains(sentence), "{view}");
    // The fix is one.
    let words: Vec<&str> = fix.split(' ').skip(1).collect();
    site.say(&words).good();
    assert_eq!(run().good(), "hello from web.example\n");
    assert_eq!(noticed(site, id)["times"], 1);
    site.say(&["rm", id]).good();
}

fn an_archive_says_what_was_spoken(person: Person) {
    let site = Site::of(person);
    let rules =
        ["GET https://web.example/**", "api.example", "web.example:8443", "db.example:7000"];
    let mut arguments = vec!["new"];
    arguments.extend(rules.iter().flat_map(|rule| ["--allow", rule]));
    let id = site.say(&arguments).good();
    let id = id.trim();
    let script = "set -e; curl -sS --http2 'https://web.example/har?secret=query'; \
                  curl -sS --http1.1 https://web.example/har-one; curl -sS http://api.example/har; \
                  curl -sS -k https://web.example:8443/har-hidden; \
                  exec 3<>/dev/tcp/db.example/7000; head -1 <&3";
    site.say(&["exec", id, "--", "bash", "-c", script]).good();
    let expected = [
        ("https://web.example:443/har", "GET", "HTTP/2", 200),
        ("https://web.example:443/har-one", "GET", "HTTP/1.1", 200),
        ("http://api.example:80/har", "GET", "HTTP/1.1", 200),
        ("https://web.example:8443", "CONNECT", "", 0),
        ("tcp://db.example:7000", "CONNECT", "", 0),
    ];
    let begin = Instant::now();
    let entries = loop {
        let archive = site.say(&["net", "har", id]).good();
        let archive: Value = serde_json::from_str(&archive).expect("it is JSON");
        let entries = archive["log"]["entries"].as_array().expect("it is a list").clone();
        if entries.len() >= expected.len() || begin.elapsed() > Duration::from_secs(10) {
            break entries;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    for (url, method, version, status) in expected {
        let mut found = entries.iter().filter(|entry| entry["request"]["url"] == url);
        let entry = found.next().unwrap_or_else(|| panic!("{url}: {entries:#?}"));
        assert!(found.next().is_none(), "{url} is told once: {entries:#?}");
        let (request, response) = (&entry["request"], &entry["response"]);
        assert_eq!(
            (&request["method"], &request["httpVersion"]),
            (&method.into(), &version.into())
        );
        assert_eq!(
            (&response["status"], &response["httpVersion"]),
            (&status.into(), &version.into()),
            "{url}"
        );
        assert_eq!(entry["serverIPAddress"], "11.22.33.7", "{entry}");
        assert!(response["bodySize"].as_u64().is_some_and(|bytes| bytes > 0), "{entry}");
    }
    assert_eq!(entries.len(), expected.len(), "{entries:#?}");
    site.say(&["rm", id]).good();
}

//! What is recorded of every decision and every end: enough to know what went where, by whom, by
//! which rule and with which secret, and nothing that was said.

use crate::for_everyone;
use crate::site::Site;
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

for_everyone!(
    a_request_is_recorded_with_all_that_is_known,
    a_tunnel_is_recorded_with_the_name_in_it,
    who_decided_is_recorded,
    the_archive_says_what_took_how_long,
);

const VALUE: &str = "sk-test-4f6b2a9c7d1e8f3059ab";

/// The records of a session about a path, or a host, when there are enough of them.
fn records(site: &Site, id: &str, word: &str, least: usize) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let said = site.say(&["audit", id, "--json"]).good();
        let all: Vec<Value> = serde_json::from_str(&said).expect("a list");
        let found: Vec<Value> = all
            .into_iter()
            .filter(|record| {
                let target = &record["data"]["target"];
                target["path"] == word || (target["host"] == word && target["path"].is_null())
            })
            .collect();
        if found.len() >= least {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{word}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn of<'r>(records: &'r [Value], kind: &str) -> &'r Value {
    let found = records.iter().find(|record| record["type"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}: {records:#?}"))["data"]
}

fn a_request_is_recorded_with_all_that_is_known(person: Person) {
    let site = Site::of(person);
    let secret = format!("recorded-{person:?}").to_lowercase();
    let words = ["secret", "set", &secret, "--host", "api.example", "--mode", "inject"];
    site.tell(&words, VALUE).good();
    let id = site.say(&["new", "--secret", &secret]).good().trim().to_owned();
    let script = "unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; cd /tmp; echo text | gzip > z; \
                  for i in 1 2; do curl -sS --http1.1 -H 'Authorization: Bearer own-value' \
                  -H 'X-Header: header-value' -H 'Content-Encoding: gzip' --data-binary @z \
                  'https://api.example/recorded?beta=query-value&%00&x=1&x=2'; sleep 0.5; done";
    site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    let found = records(site, &id, "/recorded", 4);
    let decided = of(&found, "network.decided");
    assert_eq!(decided["target"]["via"], "capture", "{decided:#}");
    assert_eq!(decided["listener"], 443);
    assert_eq!(decided["query_keys"], json!(["beta", "…", "x"]));
    assert!(decided["flow"].as_u64() >= Some(1) && decided["request"] == 1, "{decided:#}");
    let rule = decided["rule"].as_str().unwrap_or_default();
    assert!(rule.contains(&secret), "{decided:#}");
    assert!(decided["generation"].is_u64() && decided["held_ms"] == 0);
    assert_eq!((&decided["source"], &decided["code"]), (&json!("policy"), &json!("allowed")));
    let used = json!([{
        "secret": secret, "mode": "inject", "where": "header authorization",
        "foreign_removed": true,
    }]);
    assert_eq!(decided["credentials"], used);
    let clients: Vec<&Value> = found.iter().map(|record| &record["data"]["client"]).collect();
    let known = clients.iter().find(|client| !client.is_null());
    let known = known.unwrap_or_else(|| panic!("somebody is behind it: {found:#?}"));
    assert_eq!((&known["exe"], &known["confidence"]), (&json!("curl"), &json!("sockdiag")));
    assert!(known["pid"].as_u64() > Some(1));
    let ended = of(&found, "network.ended");
    assert_eq!(ended["address"], "11.22.33.7", "{ended:#}");
    assert_eq!((&ended["sni"], &ended["tls"]), (&json!("api.example"), &json!("inspect")));
    assert_eq!((&ended["alpn"], &ended["http"]), (&json!("http/1.1"), &json!("HTTP/1.1")));
    let pem = std::fs::read_to_string(site.folder.path().join("server.pem")).expect("it is there");
    assert_eq!(ended["cert_sha256"], fingerprint(&pem));
    assert_eq!((&ended["status"], &ended["how"]), (&json!(200), &json!("eof")));
    assert_eq!((&ended["encoding"], &ended["upgrade"]), (&json!("gzip"), &Value::Null));
    assert!(ended["up"].as_u64() > Some(50) && ended["down"].as_u64() > Some(10), "{ended:#}");
    let timings = &ended["timings"];
    for part in ["dns", "connect", "tls", "ttfb"] {
        assert!(timings[part].is_u64(), "{part}: {ended:#}");
    }
    // The second one used the connection of the first.
    let ends: Vec<&Value> = found.iter().filter(|one| one["type"] == "network.ended").collect();
    let connections: Vec<&Value> = ends.iter().map(|end| &end["data"]["connection"]).collect();
    assert!(*connections[0] == "new" || *connections[0] == "early", "{connections:?}");
    assert_eq!(
        (connections[1], &ends[1]["data"]["timings"]["dns"]),
        (&json!("kept"), &Value::Null)
    );
    let said = format!("{found:?}");
    for word in [VALUE, "own-value", "query-value", "header-value"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    site.say(&["rm", &id]).good();
    site.say(&["secret", "rm", &secret]).good();
}

/// The SHA-256 of a certificate, by another program.
fn fingerprint(pem: &str) -> String {
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256"]);
    let pipes = openssl.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = pipes.spawn().expect("it is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut stdin, pem.as_bytes()).expect("it reads");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends").stdout;
    let said = String::from_utf8(said).expect("it is text");
    let (_, hash) = said.trim().split_once('=').expect("a hash");
    hash.replace(':', "").to_lowercase()
}

fn a_tunnel_is_recorded_with_the_name_in_it(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "sub.web.example", "--allow", "web.example:80"]).good();
    let id = id.trim();
    let script = "curl -sSk https://sub.web.example/tunnelled && \
                  curl -sSk --proxy socks5h://127.0.0.1:1080 https://sub.web.example/tunnelled";
    site.say(&["exec", id, "--", "bash", "-c", script]).good();
    let found = records(site, id, "sub.web.example", 4);
    let ends = found.iter().filter(|record| record["type"] == "network.ended");
    for (end, (via, port)) in ends.zip([("connect", 3128), ("socks", 1080)]) {
        let data = &end["data"];
        assert_eq!((&data["target"]["via"], &data["listener"]), (&json!(via), &json!(port)));
        assert_eq!((&data["tls"], &data["sni"]), (&json!("tunnel"), &json!("sub.web.example")));
        assert_eq!((&data["alpn"], &data["cert_sha256"]), (&Value::Null, &Value::Null));
        assert_eq!((&data["connection"], &data["how"]), (&json!("new"), &json!("eof")));
        let timings = &data["timings"];
        assert!(timings["dns"].is_u64() && timings["connect"].is_u64(), "{data:#}");
        assert!(timings["ttfb"].is_u64() && timings["tls"].is_null(), "{data:#}");
    }
    site.say(&["rm", id]).good();
}

fn who_decided_is_recorded(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--ask", "web.example", "--allow", "GET https://api.example/**"]);
    let id = id.good().trim().to_owned();
    let command = ["exec", "--detach", &id, "--", "curl", "-sS", "http://web.example/asked"];
    site.say(&command).good();
    let begin = Instant::now();
    let asked = loop {
        let said = site.say(&["requests", "--json"]).good();
        let all: Value = serde_json::from_str(&said).expect("a document");
        let mine = |one: &&Value| one["session"] == id.as_str();
        let found = all.as_array().into_iter().flatten().find(mine).map(|one| one["id"].clone());
        match found {
            Some(found) => break found.as_str().map_or(found.to_string(), str::to_owned),
            None => assert!(begin.elapsed() < Duration::from_secs(10), "{said}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    site.say(&["decide", &asked, "allow"]).good();
    let found = records(site, &id, "/asked", 2);
    let decided = of(&found, "network.decided");
    assert_eq!(decided["source"], "user", "{decided:#}");
    assert!(decided["held_ms"].as_u64() > Some(0), "{decided:#}");
    // What is refused beside the rules.
    let script = "curl -sS -H 'Host: denied.example' https://api.example/guarded; \
                  curl -sS -X POST https://api.example/posted";
    site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    let guarded = records(site, &id, "/guarded", 1);
    assert_eq!(of(&guarded, "network.decided")["source"], "guard", "{guarded:#?}");
    let posted = records(site, &id, "/posted", 1);
    let posted = of(&posted, "network.decided");
    assert_eq!((&posted["source"], &posted["allowed"]), (&json!("policy"), &json!(false)));
    site.say(&["rm", &id]).good();
}

fn the_archive_says_what_took_how_long(person: Person) {
    let site = Site::of(person);
    let id = site.say(&["new", "--allow", "GET https://web.example/**"]).good().trim().to_owned();
    let script = "curl -sS 'https://web.example/events?key=hidden'";
    site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    records(site, &id, "/events", 2);
    let said = site.say(&["net", "har", &id]).good();
    let archive: Value = serde_json::from_str(&said).expect("a document");
    let entry = &archive["log"]["entries"][0];
    assert_eq!(entry["request"]["queryString"], json!([{ "name": "key", "value": "" }]));
    // The second event comes 700 ms after the first.
    let part = |name: &str| entry["timings"][name].as_i64().expect("a number");
    assert!(part("receive") >= 500, "{entry:#}");
    let sum =
        ["dns", "connect", "wait", "receive"].map(|name| part(name).max(0)).iter().sum::<i64>();
    assert_eq!(entry["time"].as_i64(), Some(sum), "{entry:#}");
    assert!(!said.contains("hidden"), "{said}");
    site.say(&["rm", &id]).good();
}

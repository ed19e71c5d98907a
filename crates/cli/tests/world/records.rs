//! What is recorded of every decision and every end: enough to know what went where, by whom, by
//! which rule and with which secret, and nothing that was said.

use crate::for_everyone;
use crate::site::{Site, whole};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

for_everyone!(
    a_request_is_recorded_with_all_that_is_known,
    a_tunnel_is_recorded_with_the_name_in_it,
    who_decided_is_recorded,
    the_archive_says_what_took_how_long,
    bodies_are_kept_where_a_rule_says_so,
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

/// The SHA-256 of 5000 times `a`.
const HASH: &str = "c526c6222044dab5674de9c4ac7f4566ebb5e4d8bf9d8ea34c9cc8a7cc3c869c";

/// The entries of a session's archive for a URL with a word, when there are enough of them.
fn entries(site: &Site, id: &str, word: &str, least: usize) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let said = site.say(&["net", "har", id]).good();
        assert!(!said.contains(VALUE), "{said}");
        let archive: Value = serde_json::from_str(&said).expect("a document");
        let all = archive["log"]["entries"].as_array().expect("a list").iter();
        let about =
            |entry: &&Value| entry["request"]["url"].as_str().is_some_and(|url| url.contains(word));
        let found: Vec<Value> = all.filter(about).cloned().collect();
        if found.len() >= least {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{word}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn bodies_are_kept_where_a_rule_says_so(person: Person) {
    let site = Site::of(person);
    let secret = format!("captured-{}", if person == Person::Root { "root" } else { "user" });
    let words = ["secret", "set", &secret, "--host", "api.example", "--env", "API_KEY"];
    site.tell(&words, VALUE).good();
    let rules = "[[egress.allow]]\nhost = \"api.example\"\ncapture = \"1KB\"\n\
                 [[egress.allow]]\nhost = \"web.example\"\nmethods = [\"GET\", \"POST\"]\n";
    site.place("capture.toml", rules);
    let id = site.say(&["new", "--policy", "capture.toml", "--secret", &secret]).good();
    let id = id.trim();
    let script = "echo -n $API_KEY; curl -sS -o /dev/null -d \"key=$API_KEY\" https://api.example/echo; \
                  printf '\\377\\000' | curl -sS -o /dev/null --data-binary @- https://api.example/binary; \
                  head -c 5000 /dev/zero | tr '\\0' a | \
                  curl -sS -o /dev/null --data-binary @- https://api.example/long; \
                  curl -sS -o /dev/null -d not-kept=1 https://web.example/unkept";
    let placeholder = site.say(&["exec", id, "--", "bash", "-c", script]).good();
    let echoed = &entries(site, id, "/echo", 1)[0];
    assert_eq!(echoed["request"]["postData"]["text"], json!(format!("key={placeholder}")));
    let answer = echoed["response"]["content"]["text"].as_str().expect("it is text");
    let answer: Value = serde_json::from_str(answer).expect("it is whole");
    assert_eq!(answer["body"], json!(format!("key={placeholder}")));
    let binary = &entries(site, id, "/binary", 1)[0]["request"]["postData"];
    assert_eq!(*binary, json!({ "mimeType": "", "encoding": "base64", "text": "/wA=" }));
    let long = &entries(site, id, "/long", 1)[0]["request"]["postData"];
    assert_eq!(long["text"], json!("a".repeat(1024)));
    assert_eq!(long["comment"], json!("the first 1024 of 5000 bytes"));
    let unkept = &entries(site, id, "/unkept", 1)[0];
    assert!(unkept["request"]["postData"].is_null(), "{unkept:#}");
    assert!(unkept["response"]["content"]["text"].is_null(), "{unkept:#}");
    // The record has their sizes and hashes, and nothing of what they say.
    let found = records(site, id, "/long", 3);
    let captured = of(&found, "network.captured");
    assert_eq!(
        (&captured["sent"]["size"], &captured["sent"]["kept"]),
        (&json!(5000), &json!(1024))
    );
    assert_eq!(captured["sent"]["sha256"], json!(HASH));
    let audit = site.say(&["audit", id, "--json"]).good();
    assert!(!audit.contains(&placeholder) && !audit.contains("aaaaaaaa"), "{audit}");
    // They lie in the folder of the session, and go with it.
    let folder = site.folder.path().join("state/sessions").join(id).join("bodies");
    let files: Vec<_> = std::fs::read_dir(&folder).expect("it is there").flatten().collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let bytes = whole(&file.path());
        assert!(!bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()), "{file:?}");
    }
    site.say(&["rm", id]).good();
    assert!(std::fs::read_dir(&folder).is_err(), "they are gone");
    // What is not looked into has no bodies to keep.
    let rules = "[[egress.allow]]\nhost = \"web.example\"\ntls = \"tunnel\"\ncapture = \"1KB\"\n";
    site.place("capture.toml", rules);
    let refused = site.script(&["--policy", "capture.toml"], "true");
    let sentence = "bodies are kept of what is looked into: leave out `tunnel`, or `capture`";
    assert!(refused.code != 0 && refused.err.contains(sentence), "{refused:?}");
    let id = site.say(&["new", "--net", "deny"]).good();
    let id = id.trim();
    let refused = site.say(&["allow", id, "web.example", "--capture", "2MB"]);
    assert!(refused.code != 0 && refused.err.contains("how much of a body is kept"), "{refused:?}");
    // It begins and ends while a session runs.
    let allow = ["allow", id, "web.example", "--method", "GET", "--capture", "10"];
    assert!(site.say(&allow).good().contains("bodies kept up to 10"));
    let get = |path: &str| {
        let url = format!("https://web.example/{path}");
        site.say(&["exec", id, "--", "curl", "-sS", &url]).good();
        entries(site, id, path, 1)[0]["response"]["content"]["text"].clone()
    };
    assert_eq!(get("while-kept"), json!("hello from"));
    site.say(&["allow", id, "web.example", "--method", "GET"]).good();
    assert_eq!(get("no-longer"), Value::Null);
    site.say(&["rm", id]).good();
}

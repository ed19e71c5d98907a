//! Secrets are used and never seen: not by the session, not in what is recorded.

use crate::for_everyone;
use crate::site::{Site, whole};
use base64::Engine as _;
use cowork_testbed::Person;
use serde_json::Value;

for_everyone!(
    a_placeholder_is_swapped_on_its_way,
    a_secret_that_comes_back_is_hidden_again,
    a_pinned_host_takes_no_other_credential,
    a_placeholder_is_worth_nothing_elsewhere,
    the_value_is_nowhere,
    what_is_compressed_is_looked_into_or_does_not_pass,
    pieces_of_a_body_are_signed_anew,
);

const VALUE: &str = "sk-test-4f6b2a9c7d1e8f3059ab";

fn name(person: Person, name: &str) -> String {
    format!("{name}-{}", if person == Person::Root { "root" } else { "user" })
}

fn keep(site: &Site, name: &str, more: &[&str]) {
    let mut words = vec!["secret", "set", name, "--host", "api.example"];
    words.extend(more);
    site.tell(&words, VALUE).good();
}

fn a_placeholder_is_swapped_on_its_way(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "swapped");
    keep(site, &secret, &["--mode", "swap", "--env", "API_KEY"]);
    let script = "echo \"$API_KEY\"; curl -sS -H \"Authorization: Bearer $API_KEY\" \
                  'https://api.example/swapped' >/dev/null; \
                  curl -sS -u \"me:$API_KEY\" https://api.example/swapped-basic >/dev/null";
    let said = site.script(&["--secret", &secret], script).good();
    let placeholder = said.trim();
    assert!(placeholder.len() == VALUE.len() && placeholder != VALUE, "{said}");
    assert!(placeholder.starts_with("sk-"), "it looks like the real one: {said}");
    let arrived = site.arrived("/swapped");
    let sent = |record: &Value| record["headers"]["authorization"].as_str().map(ToOwned::to_owned);
    assert!(arrived.iter().any(|one| sent(one) == Some(format!("Bearer {VALUE}"))), "{arrived:?}");
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("me:{VALUE}"));
    assert!(arrived.iter().any(|one| sent(one) == Some(format!("Basic {basic}"))), "{arrived:?}");
}

fn a_secret_that_comes_back_is_hidden_again(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "echoed");
    keep(site, &secret, &["--mode", "inject", "--as", "bearer"]);
    let said = site.script(&["--secret", &secret], "curl -sS -i https://api.example/echo").good();
    assert!(said.contains("authorization"), "the server echoes what it got: {said}");
    assert!(!said.contains(VALUE), "{said}");
}

fn a_pinned_host_takes_no_other_credential(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "pinned");
    keep(site, &secret, &["--mode", "pin", "--as", "header:x-api-key"]);
    let script = "curl -sS -o /dev/null -w '%{http_code} ' https://api.example/pinned; \
                  curl -sS -o /dev/null -w '%{http_code} ' -H 'x-api-key: mine' https://api.example/pinned-mine; \
                  curl -sS -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer mine' https://api.example/pinned-mine";
    let said = site.script(&["--secret", &secret], script).good();
    assert_eq!(said, "200 403 403");
    let arrived = site.arrived("/pinned");
    assert!(arrived.iter().all(|one| one["headers"]["x-api-key"] == VALUE), "{arrived:?}");
    assert!(site.arrived("pinned-mine").is_empty());
}

fn a_placeholder_is_worth_nothing_elsewhere(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "elsewhere");
    keep(site, &secret, &["--mode", "swap", "--env", "API_KEY"]);
    // Over plain HTTP, and to another host.
    let script = "curl -sS -o /dev/null -w '%{http_code} ' -H \"Authorization: Bearer $API_KEY\" http://api.example/plain-secret; \
                  curl -sS -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $API_KEY\" https://web.example/other-secret";
    let options = ["--secret", &secret, "--allow", "GET https://web.example/**"];
    let said = site.script(&options, script).good();
    assert_eq!(said, "403 403");
    for record in [site.arrived("plain-secret"), site.arrived("other-secret")].concat() {
        assert!(!record.to_string().contains(VALUE), "{record}");
    }
}

fn the_value_is_nowhere(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "nowhere");
    keep(site, &secret, &["--mode", "inject"]);
    site.script(&["--secret", &secret], "curl -sS https://api.example/nowhere").good();
    let shown = site.say(&["secret", "ls", "--json"]).good();
    assert!(shown.contains(&secret) && !shown.contains(VALUE), "{shown}");
    let as_argument = site.say(&["secret", "set", "x", VALUE, "--host", "api.example"]);
    assert_ne!(as_argument.code, 0, "a value is not an argument");
    let mut folders = vec![site.folder.path().join("state"), site.folder.path().join("run")];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                looked += 1;
                let bytes = whole(&path);
                let found = bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
                assert!(!found, "{} holds the value", path.display());
            }
        }
    }
    assert!(looked > 3, "the daemon's files were looked at");
    site.say(&["secret", "rm", &secret]).good();
}

/// The server compresses whatever it was asked for.
fn what_is_compressed_is_looked_into_or_does_not_pass(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "coded");
    keep(site, &secret, &["--mode", "inject"]);
    let script = |host: &str, coding: &str| {
        format!("curl -sS -w '%{{http_code}}' --compressed https://{host}.example/coded/{coding}")
    };
    let options = ["--secret", &secret, "--allow", "GET https://web.example/**"];
    for coding in ["gzip", "deflate"] {
        let said = site.script(&options, &script("api", coding)).good();
        assert!(said.starts_with("you sent Bearer sk-") && said.ends_with("\n200"), "{said}");
        assert!(!said.contains(VALUE), "{coding}: {said}");
        let said = site.script(&options, &script("web", coding)).good();
        assert_eq!(said, "you sent nothing\n200", "{coding}");
    }
    for coding in ["br", "zstd"] {
        for host in ["api", "web"] {
            let said = site.script(&options, &script(host, coding)).good();
            assert!(said.contains("\"opaque-answer\"") && said.ends_with("502"), "{said}");
        }
    }
    let asked = site.arrived("/coded/br");
    let wanted = |host: &str| {
        let one = asked.iter().find(|one| one["host"] == host).expect("it was asked");
        one["headers"]["accept-encoding"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(wanted("api.example"), "identity");
    let narrowed = wanted("web.example");
    assert!(narrowed.contains("gzip") && !narrowed.contains("br"), "{narrowed}");
    // Without secrets nothing is looked for.
    let said = site.script(&["--allow", "GET https://web.example/**"], &script("web", "br"));
    assert!(said.good().ends_with("200"));
}

/// A client that signs with the placeholder, and a server that knows only the real key.
fn pieces_of_a_body_are_signed_anew(person: Person) {
    let site = Site::of(person);
    let secret = name(person, "pieces");
    let words = ["secret", "set", &secret, "--host", "api.example", "--mode", "pin", "--as", "aws"];
    let words = [&words[..], &["--env", "AWS_PAIR"]].concat();
    site.tell(&words, "AKIDREALREALREAL:real/secret+of+the+tests/0123456789abcdef").good();
    site.place("put.py", include_str!("put.py"));
    let script = "for kind in STREAMING-AWS4-HMAC-SHA256-PAYLOAD \
        STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER STREAMING-UNSIGNED-PAYLOAD-TRAILER \
        UNSIGNED-PAYLOAD; do python3 mnt/desk/put.py $kind 300000 65536; \
        python3 mnt/desk/put.py $kind 0 65536; done; \
        python3 mnt/desk/put.py STREAMING-AWS4-HMAC-SHA256-PAYLOAD 3000000 2000000";
    let said = site.script(&["--secret", &secret], script).good();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..lines.len() - 1], ["200 signed well"; 8], "{said}");
    let last = lines.last().copied().unwrap_or_default();
    assert!(last.starts_with("403 ") && last.contains("longer than 1 MiB"), "{said}");
    assert!(!said.contains("real/secret"), "{said}");
    site.say(&["secret", "rm", &secret]).good();
}

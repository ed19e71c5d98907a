//! Secrets of one session alone: given with it, and forgotten with it.

use crate::for_everyone;
use crate::site::{Site, whole};
use cowork_testbed::Person;
use serde_json::{Value, json};

for_everyone!(a_session_has_secrets_of_its_own, what_cannot_be_a_secret_makes_no_session);

const VALUE: &str = "sk-test-4f6b2a9c7d1e8f3059ab";

fn secret(name: &str, placeholder: Option<&str>) -> Value {
    json!({
        "name": name, "placeholder": placeholder,
        "secret": { "value": VALUE, "hosts": ["api.example"], "variable": "OWN" },
    })
}

fn a_session_has_secrets_of_its_own(person: Person) {
    let site = Site::of(person);
    let placeholder = "fake_value_0b9c6a3e-5d42-4e5e-9d55-0d2b7f9c1a77";
    let (status, made) =
        site.post("/v1/sessions", &json!({ "secrets": [secret("own", Some(placeholder))] }));
    assert_eq!(status, "201", "{made}");
    let id = made["id"].as_str().expect("an id").to_owned();
    let script =
        "echo $OWN; curl -sS -H \"Authorization: Bearer $OWN\" https://api.example/private/own";
    let said = site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    assert_eq!(said, format!("{placeholder}\nwelcome\n"));
    // It is nobody else's, and in nothing that is shown.
    let listed = site.say(&["secret", "ls", "--json"]).good();
    assert!(!listed.contains("\"own\""), "{listed}");
    let refused = site.script(&["--secret", "own"], "true");
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(!made.to_string().contains(VALUE));
    // It outlives a stop of the session, and ends with it.
    site.say(&["stop", &id]).good();
    site.say(&["start", &id]).good();
    let said = site.say(&["exec", &id, "--", "bash", "-c", script]).good();
    assert_eq!(said, format!("{placeholder}\nwelcome\n"));
    site.say(&["rm", &id]).good();
    let audit = site.say(&["audit", "--json"]).out;
    assert!(audit.contains("secret.set") && !audit.contains(VALUE));
    let sealed = whole(&site.folder.path().join("state/secrets"));
    assert!(
        !sealed.is_empty() && !sealed.windows(VALUE.len()).any(|part| part == VALUE.as_bytes())
    );
}

fn what_cannot_be_a_secret_makes_no_session(person: Person) {
    let site = Site::of(person);
    let wrong = [
        secret("a/b", None),
        secret("own", Some("short")),
        secret("own", Some(&format!("xxxxxxxx{VALUE}"))),
        json!({ "name": "own", "secret": { "value": "" } }),
        json!({ "name": "own", "secret": { "value": VALUE, "files": [{ "name": "a/b", "contents": "x" }] } }),
        json!({ "name": "own", "secret": { "value": VALUE, "renewal": {
            "refresh_token": "x", "token_url": "http://api.example/" } } }),
    ];
    for one in wrong {
        let (status, said) = site.post("/v1/sessions", &json!({ "secrets": [one] }));
        assert!(status.starts_with('4'), "{one}: {status} {said}");
        assert!(!said.to_string().contains(VALUE), "{said}");
    }
    let twice = json!({ "secrets": [secret("own", None), secret("own", None)] });
    assert_eq!(site.post("/v1/sessions", &twice).0, "422");
}

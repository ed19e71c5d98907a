//! Policy files, whole and broken.

use super::{FileError, parse};
use crate::egress::{Matcher, Outcome, Place, Treatment};
use cowork_api::egress::{Action, CredentialMode, Otherwise, Ports, Rules, Tls};

const WHOLE: &str = r#"
# What the agent of this project may reach.
[egress]
default = "ask"
private = "deny"
presets = ["claude", "npm:read", "github:read"]

[[egress.allow]]
host = "api.example.com"
ports = [443]
http = [{ methods = ["POST"], paths = ["/v1/messages", "/v1/messages/count_tokens"] },
        { methods = ["GET"],  paths = ["/api/code/**"] }]
auth = { secret = "key", mode = "pin", carrier = "header:x-api-key" }
limits = { upload = "200MB/h", requests = "120/min" }

[[egress.allow]]
host = "db.internal.example"
ports = [5432, "6000-6010"]
tls = "tunnel"
resolves_to = ["10.20.0.0/16"]

[[egress.allow]]
host = "GET https://docs.example.com/**"

[[egress.ask]]
host = "*.example.org"
ports = "*"

[[egress.deny]]
host = "**.pastebin.example"
reason = "use outputs/ instead"
"#;

#[test]
fn a_whole_file_is_understood() {
    let file = parse(WHOLE).unwrap();
    assert_eq!(file.otherwise, Some(Otherwise::Ask));
    assert_eq!(file.presets, ["claude", "npm:read", "github:read"]);
    let names: Vec<&str> = file.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "allow api.example.com:443 POST /v1/messages /v1/messages/count_tokens; GET /api/code/**",
            "allow db.internal.example:5432,6000-6010",
            "allow GET https://docs.example.com/**",
            "ask *.example.org:*",
            "deny **.pastebin.example",
        ]
    );
    assert_eq!(file.parts.len(), file.rules.len());
    let [api, db, _, ask, deny] = file.rules.as_slice() else { panic!("{names:?}") };
    assert_eq!(api.credential.as_ref().unwrap().mode, CredentialMode::Pin);
    assert_eq!(api.limits.requests, Some((120, 60)));
    assert_eq!((db.tls, db.resolves_to.len()), (Tls::Tunnel, 1));
    assert_eq!(ask.ports, Ports::All);
    assert_eq!(deny.action, Action::Deny { reason: "use outputs/ instead".into() });
    let matcher = Matcher::new(Rules { rules: file.rules, ..Rules::default() });
    let place: Place = "api.example.com".parse().unwrap();
    assert_eq!(matcher.request(&place, 443, "POST", "/v1/messages").outcome, Outcome::Allow);
    assert_eq!(matcher.request(&place, 443, "POST", "/v1/files").outcome, Outcome::OtherRequest);
    assert_eq!(matcher.treatment(&place, 443), Treatment::Inspect);
}

#[test]
fn an_empty_file_says_nothing() {
    for text in ["", "[egress]\n", "# nothing\n"] {
        assert_eq!(parse(text), Ok(super::PolicyFile::default()), "{text}");
    }
}

#[test]
fn what_is_wrong_is_found_by_line_and_key() {
    let table = [
        ("[egress]\ndefualt = \"ask\"\n", 2, "defualt", "unknown field `defualt`"),
        ("[egress]\ndefault = \"allow\"\n", 2, "default", "unknown variant `allow`"),
        ("[egress]\nprivate = \"allow\"\n", 2, "private", "unknown variant `allow`"),
        ("[egres]\n", 1, "[egres]", "unknown field `egres`"),
        ("[egress]\ndefault = \n", 2, "default", ""),
        (
            "[egress]\npresets = [\n  \"claude\",\n  \"cloude\",\n]\n",
            4,
            "presets",
            "no preset `cloude`",
        ),
        ("[egress]\npresets = [\"npm:all\"]\n", 2, "presets", "`npm:read`"),
        ("[[egress.allow]]\nport = 1\nhost = \"a.example\"\n", 2, "port", "unknown field `port`"),
        ("[[egress.allow]]\nports = [1]\n", 1, "[[egress.allow]]", "missing field `host`"),
        ("[[egress.allow]]\nhost = 1\n", 2, "host", "invalid type"),
        ("[[egress.allow]]\nhost = \"a.example\"\nports = [0]\n", 3, "ports", "is not a port"),
        ("[[egress.allow]]\nhost = \"a.example\"\nports = [70000]\n", 3, "ports", "is not a port"),
        ("[[egress.allow]]\nhost = \"a.example\"\nports = {}\n", 3, "ports", "ports are numbers"),
        ("[[egress.allow]]\nhost = \"*.com\"\n", 2, "host", "`.com`"),
        (
            "[[egress.allow]]\nhost = \"a.example\"\n\n[[egress.allow]]\n\n# a note\nhost = \"*\"\n",
            7,
            "host",
            "would allow everything",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nlimits = { upload = \"much\" }\n",
            3,
            "upload",
            "is not an amount per time",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nhttp = [{ paths = [\"x\"] }]\n",
            3,
            "paths",
            "begins with `/`",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nhttp = [{ path = [\"/x\"] }]\n",
            3,
            "http",
            "unknown field `path`",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nauth = { secret = \"k\", carrier = \"x\" }\n",
            3,
            "auth",
            "is no place for a secret",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nmethods = [\"GET\"]\ntls = \"tunnel\"\n",
            4,
            "tls",
            "leave out `tunnel`",
        ),
        (
            "[[egress.deny]]\nhost = \"a.example\"\n\n[[egress.allow]]\nhost = \"b.example\"\nreason = \"x\"\n",
            6,
            "reason",
            "only a rule that denies has a reason",
        ),
        (
            "[[egress.allow]]\nhost = \"a.example\"\nresolves_to = [\"127.0.0.0/8\"]\n",
            3,
            "resolves_to",
            "no name leads to `127.0.0.0/8`",
        ),
    ];
    for (text, line, key, sentence) in table {
        let FileError { line: found, key: found_key, sentence: said } =
            parse(text).expect_err(text);
        assert!(said.contains(sentence), "{text}: {said}");
        assert_eq!((found, found_key.as_str()), (line, key), "{text}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn an_error_reads_as_a_sentence() {
    let error = parse("[[egress.allow]]\nhost = \"localhost:1\"\n").unwrap_err();
    assert!(
        error.to_string().starts_with("line 2, `host`: `localhost` in a session is"),
        "{error}"
    );
}

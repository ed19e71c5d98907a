//! What people write, and what becomes of it.

use super::{RuleError, RuleParts, SecretParts, Verb, build, carrier, fits_listeners};
use crate::egress::{Matcher, Outcome};
use cowork_api::egress::{
    Action, Carrier, CredentialMode, Host, Network, Ports, Quota, Request, Rules, Tls,
};
use proptest::prelude::*;

fn network(address: &str, bits: u8) -> Host {
    Host::Network(Network { address: address.parse().unwrap(), bits })
}

fn ports(port: u16) -> Ports {
    Ports::Some(vec![(port, port)])
}

fn requests(methods: &[&str], paths: &[&str]) -> Vec<Request> {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    vec![Request { methods: owned(methods), paths: owned(paths) }]
}

fn allow(text: &str) -> Result<cowork_api::egress::Rule, RuleError> {
    build(&RuleParts::new(Verb::Allow, text))
}

#[test]
fn what_is_written_after_allow_is_a_rule() {
    let name = |text: &str| Host::Name(text.into());
    let below = |text: &str| Host::Below(text.into());
    let domain = |text: &str| Host::Domain(text.into());
    let none = Vec::new;
    let table = [
        ("pypi.org", name("pypi.org"), Ports::Web, none(), "pypi.org"),
        ("PyPI.org.", name("pypi.org"), Ports::Web, none(), "pypi.org"),
        (" pypi.org ", name("pypi.org"), Ports::Web, none(), "pypi.org"),
        ("pypi.org:80,443", name("pypi.org"), Ports::Web, none(), "pypi.org"),
        ("*.example.com", below("example.com"), Ports::Web, none(), "*.example.com"),
        ("**.example.com", domain("example.com"), Ports::Web, none(), "**.example.com"),
        ("*.internal", below("internal"), Ports::Web, none(), "*.internal"),
        ("db.internal:5432", name("db.internal"), ports(5432), none(), "db.internal:5432"),
        (
            "a.example:8000-8100,22",
            name("a.example"),
            Ports::Some(vec![(8000, 8100), (22, 22)]),
            none(),
            "a.example:8000-8100,22",
        ),
        ("a.example:*", name("a.example"), Ports::All, none(), "a.example:*"),
        ("10.0.0.0/8:22", network("10.0.0.0", 8), ports(22), none(), "10.0.0.0/8:22"),
        ("10.1.2.3", network("10.1.2.3", 32), Ports::Web, none(), "10.1.2.3"),
        ("127.0.0.1:5432", network("127.0.0.1", 32), ports(5432), none(), "127.0.0.1:5432"),
        ("[2001:DB8::1]:443", network("2001:db8::1", 128), ports(443), none(), "[2001:db8::1]:443"),
        ("2001:db8::/32", network("2001:db8::", 32), Ports::Web, none(), "[2001:db8::/32]"),
        ("[2001:db8::]/32:9", network("2001:db8::", 32), ports(9), none(), "[2001:db8::/32]:9"),
        ("[2001:db8::/32]:9", network("2001:db8::", 32), ports(9), none(), "[2001:db8::/32]:9"),
        ("host:5432", Host::Loopback, ports(5432), none(), "host:5432"),
        ("host.cowork.internal:80,443", Host::Loopback, Ports::Web, none(), "host:80,443"),
        ("https://a.example", name("a.example"), ports(443), none(), "a.example:443"),
        ("https://a.example/", name("a.example"), ports(443), none(), "a.example:443"),
        ("HTTP://a.example:8080", name("a.example"), ports(8080), none(), "a.example:8080"),
        (
            "https://api.example.com/v1/**",
            name("api.example.com"),
            ports(443),
            requests(&[], &["/v1/**"]),
            "https://api.example.com/v1/**",
        ),
        (
            "http://a.example/x",
            name("a.example"),
            ports(80),
            requests(&[], &["/x"]),
            "http://a.example/x",
        ),
        (
            "get,HEAD https://*.a.example:8443/x",
            below("a.example"),
            ports(8443),
            requests(&["GET", "HEAD"], &["/x"]),
            "*.a.example:8443 GET,HEAD /x",
        ),
        ("GET a.example", name("a.example"), Ports::Web, requests(&["GET"], &[]), "GET a.example"),
    ];
    for (text, host, ports, http, shown) in table {
        let rule = allow(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((&rule.host, &rule.ports, &rule.http), (&host, &ports, &http), "{text}");
        assert_eq!(rule.name, format!("allow {shown}"), "{text}");
        assert_eq!(rule.action, Action::Allow);
    }
}

#[test]
fn what_is_no_rule_is_refused_with_what_to_write() {
    let table = [
        ("", "a rule names a host, e.g. `example.com`"),
        (":443", "a rule names a host"),
        ("https://", "a rule names a host"),
        ("GET a.example b.example", "is not a rule"),
        ("*", "`*` would allow everything: name the hosts, or let the user be asked"),
        ("**", "would allow everything"),
        ("0.0.0.0/0", "would allow everything"),
        ("*.com", "would allow every name that ends in `.com`: name a domain in it"),
        ("**.org:443", "would allow every name that ends in `.org`"),
        ("https://*.com/x", "would allow every name that ends in `.com`"),
        ("a*.example.com", "write `*.example.com` for every name below"),
        ("a.*.com", "has a `*` in a wrong place"),
        ("*.*.com", "has a `*` in a wrong place"),
        ("***.example.com", "has a `*` in a wrong place"),
        ("localhost:5432", "write `host:PORT`"),
        ("x.localhost", "write `host:PORT`"),
        ("host", "name the port as well, e.g. `host:5432`"),
        ("a.example:", "is not a port"),
        ("a.example:0", "is not a port"),
        ("a.example:65536", "is not a port"),
        ("a.example:0443", "is not a port"),
        ("a.example:+443", "is not a port"),
        ("a.example:9-8", "is not a port"),
        ("a.example:http", "is not a port: write a number from 1 to 65535"),
        ("a.example:1:2", "is not a port"),
        ("10.0.0.1/8", "`10.0.0.1/8` is written as `10.0.0.0/8`"),
        ("10.0.0.0/33", "is not a range of addresses"),
        ("10.0.0.0/08", "is not a range of addresses"),
        ("2001:db8::1", "is written as `[2001:db8::1]`"),
        ("[::ffff:10.0.0.1]:22", "is written as `10.0.0.1`"),
        ("[10.0.0.1]:22", "is not a range of addresses"),
        ("[2001:db8::1", "is not a range of addresses"),
        ("[fe80::1%eth0]", "is not a range of addresses"),
        ("127.1", "write an address in full"),
        ("0x7f000001", "write an address in full"),
        ("2130706433", "write an address in full"),
        ("0177.0.0.1", "write an address in full"),
        ("a.example/v1", "`a.example/v1` has a path: write `https://a.example/v1`"),
        ("ftp://a.example", "rules are about `https://…` and `http://…`"),
        ("https://ada:secret@a.example", "leave out what is before `@`"),
        ("https://a.example/x?y", "leave out `?` or `#`"),
        ("https://a.example/x#y", "leave out `?` or `#`"),
        ("https://a.example/x/../y", "is not a path"),
        ("https://a.example/%2e", "is not a path"),
        ("bücher.example", "others are written as xn--"),
        ("a..example", "no two dots in a row"),
        ("G\u{1b}T a.example", "is not a method: write e.g. `GET`"),
        (", a.example", "is not a method"),
        ("exa mple", "`exa` is not a method"),
    ];
    for (text, sentence) in table {
        let error = allow(text).expect_err(text).to_string();
        assert!(error.contains(sentence), "{text}: {error}");
        assert!(!error.contains(['\n', '\u{1b}']), "{text}: {error}");
    }
    for text in
        ["x/\u{1b}[2J", "\u{7}.com", "*.\u{1b}", "\u{1b}://a", "a:\u{1b}", "https://a/\u{1b}"]
    {
        let error = allow(text).expect_err(text).to_string();
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
    let long = "a".repeat(5000);
    assert!(matches!(allow(&long), Err(RuleError::TooMany { key: "host", .. })));
}

#[test]
fn a_denial_is_about_every_port_and_may_be_about_everything() {
    let deny = |text: &str| build(&RuleParts::new(Verb::Deny, text)).unwrap();
    assert_eq!(deny("**.pastebin.example").ports, Ports::All);
    assert_eq!(deny("**.pastebin.example").name, "deny **.pastebin.example");
    assert_eq!(deny("*").host, Host::Any);
    assert_eq!(deny("*:22").name, "deny *:22");
    assert_eq!(deny("*.zip").host, Host::Below("zip".into()));
    assert_eq!(deny("host").host, Host::Loopback);
    let ask = build(&RuleParts::new(Verb::Ask, "*")).unwrap();
    assert_eq!((ask.ports, ask.name.as_str()), (Ports::Web, "ask *"));
}

#[test]
fn every_part_finds_its_place() {
    let parts = RuleParts {
        host: "db.internal.example".into(),
        ports: Some("5432".into()),
        tls: Tls::Tunnel,
        resolves_to: vec!["10.20.0.0/16".into(), "fd12::/16".into(), "[fd13::1]".into()],
        upload: Some("200M/1h".into()),
        connections: Some(4),
        ..RuleParts::default()
    };
    let rule = build(&parts).unwrap();
    assert_eq!(rule.ports, ports(5432));
    assert_eq!(rule.resolves_to.len(), 3);
    assert_eq!(
        rule.limits,
        Quota { upload: Some((200 << 20, 3600)), requests: None, connections: Some(4) }
    );
    let parts = RuleParts {
        host: "api.example.com".into(),
        http: [requests(&["post"], &["/v1/a"]), requests(&["GET"], &[])].concat(),
        secret: Some(SecretParts {
            name: "key".into(),
            mode: Some(CredentialMode::Pin),
            carrier: Some(carrier("header:X-Api-Key").unwrap()),
        }),
        requests: Some("120/min".into()),
        ..RuleParts::default()
    };
    let rule = build(&parts).unwrap();
    assert_eq!(rule.name, "allow api.example.com POST /v1/a; GET");
    assert_eq!(rule.limits.requests, Some((120, 60)));
    let credential = rule.credential.unwrap();
    assert_eq!(credential.carrier, Carrier::Header("x-api-key".into()));
    assert_eq!(credential.mode, CredentialMode::Pin);
    let preset =
        RuleParts { preset: Some("github".into()), ..RuleParts::new(Verb::Allow, "a.example") };
    assert_eq!(build(&preset).unwrap().name, "preset github: a.example");
}

#[test]
fn amounts_per_time_are_read() {
    let upload = |text: &str| {
        let parts =
            RuleParts { upload: Some(text.into()), ..RuleParts::new(Verb::Allow, "a.example") };
        build(&parts).map(|rule| rule.limits.upload.unwrap())
    };
    let requests = |text: &str| {
        let parts =
            RuleParts { requests: Some(text.into()), ..RuleParts::new(Verb::Allow, "a.example") };
        build(&parts).map(|rule| rule.limits.requests.unwrap())
    };
    assert_eq!(upload("200M/1h"), Ok((200 << 20, 3600)));
    assert_eq!(upload("200MB/h"), Ok((200 << 20, 3600)));
    assert_eq!(upload("1G / d"), Ok((1 << 30, 86400)));
    assert_eq!(upload("512/30s"), Ok((512, 30)));
    assert_eq!(requests("120/1m"), Ok((120, 60)));
    assert_eq!(requests("5/second"), Ok((5, 1)));
    assert_eq!(requests("5/60"), Ok((5, 60)));
    for text in ["", "200M", "/1h", "200M/", "200M/0s", "200M/500ms", "1.5G/h", "-1/h", "1M/1h/1h"]
    {
        let error = upload(text).unwrap_err();
        assert!(matches!(error, RuleError::Quota { key: "upload", .. }), "{text}: {error}");
        assert!(error.to_string().ends_with("write e.g. `200M/1h`"), "{error}");
    }
    assert!(matches!(requests("10M/1h"), Err(RuleError::Quota { key: "requests", .. })));
    assert_eq!(requests("0/1m"), Err(RuleError::Zero { key: "requests" }));
    assert_eq!(upload("0/1m"), Err(RuleError::Zero { key: "upload" }));
}

#[test]
fn parts_that_do_not_go_together_are_refused() {
    let secret = || Some(SecretParts { name: "key".into(), ..SecretParts::default() });
    let base = || RuleParts::new(Verb::Allow, "a.example");
    let deny = || RuleParts::new(Verb::Deny, "a.example");
    let table = [
        (RuleParts { ports: Some("22".into()), ..RuleParts::new(Verb::Allow, "a:1") }, "ports"),
        (
            RuleParts { methods: vec!["GET".into()], ..RuleParts::new(Verb::Allow, "GET a.b") },
            "methods",
        ),
        (
            RuleParts { paths: vec!["/a".into()], ..RuleParts::new(Verb::Allow, "https://a.b/c") },
            "paths",
        ),
        (RuleParts { paths: vec!["/a".into()], http: requests(&["GET"], &[]), ..base() }, "http"),
        (RuleParts { http: requests(&[], &[]), ..base() }, "http"),
        (RuleParts { paths: vec!["a".into()], ..base() }, "paths"),
        (RuleParts { reason: Some("because".into()), ..base() }, "reason"),
        (RuleParts { reason: Some("two\nlines".into()), ..deny() }, "reason"),
        (RuleParts { reason: Some("x".repeat(501)), ..deny() }, "reason"),
        (RuleParts { secret: secret(), ..deny() }, "auth"),
        (RuleParts { connections: Some(1), ..deny() }, "limits"),
        (RuleParts { connections: Some(0), ..base() }, "connections"),
        (RuleParts { resolves_to: vec!["10.0.0.0/8".into()], ..deny() }, "resolves_to"),
        (RuleParts { tls: Tls::Tunnel, secret: secret(), ..base() }, "tls"),
        (RuleParts { tls: Tls::Tunnel, methods: vec!["GET".into()], ..base() }, "tls"),
        (RuleParts { tls: Tls::Tunnel, requests: Some("1/1s".into()), ..base() }, "tls"),
        (
            RuleParts {
                resolves_to: vec!["10.0.0.0/8".into()],
                ..RuleParts::new(Verb::Allow, "host:1")
            },
            "resolves_to",
        ),
        (RuleParts { secret: secret(), ..RuleParts::new(Verb::Ask, "*") }, "auth"),
        (RuleParts { secret: Some(SecretParts::default()), ..base() }, "auth"),
        (RuleParts { methods: vec!["GET".into(); 33], ..base() }, "methods"),
        (RuleParts { paths: vec!["/a".into(); 257], ..base() }, "paths"),
    ];
    for (parts, key) in table {
        let error = build(&parts).expect_err(key);
        assert_eq!(error.key(), key, "{error}");
    }
}

#[test]
fn a_name_may_not_be_said_to_lead_to_what_is_never_reached() {
    let leads = |text: &str| {
        let parts = RuleParts {
            resolves_to: vec![text.into()],
            ..RuleParts::new(Verb::Allow, "a.example")
        };
        build(&parts).map(|_| ())
    };
    for text in ["10.0.0.0/8", "fd00::/8", "100.64.0.0/10", "64:ff9b::/96", "0.0.0.0/0", "::/0"] {
        assert_eq!(leads(text), Ok(()), "{text}");
    }
    for text in [
        "127.0.0.1",
        "127.0.0.0/8",
        "::1",
        "169.254.0.0/16",
        "169.254.169.254",
        "224.0.0.0/4",
        "fd00:ec2::/32",
        "fe80::/10",
        "64:ff9b::7f00:1",
        "0.0.0.0",
    ] {
        assert!(matches!(leads(text), Err(RuleError::NeverReached { .. })), "{text}");
    }
}

#[test]
fn a_secret_has_a_place() {
    assert_eq!(carrier("bearer"), Ok(Carrier::Bearer));
    assert_eq!(carrier("aws"), Ok(Carrier::AwsSignature));
    assert_eq!(
        carrier("basic:x-access-token"),
        Ok(Carrier::Basic { user: "x-access-token".into() })
    );
    assert_eq!(carrier("basic:"), Ok(Carrier::Basic { user: String::new() }));
    assert_eq!(carrier("query:key"), Ok(Carrier::Query("key".into())));
    for text in ["", "cookie", "header:", "header:a b", "header:a\r\n", "query:a&b", "basic:a:b"] {
        assert!(matches!(carrier(text), Err(RuleError::Carrier { .. })), "{text}");
    }
}

#[test]
fn many_ports_need_more_than_listeners() {
    let fits = |text| fits_listeners(&allow(text).unwrap());
    assert_eq!(fits("a.example"), Ok(()));
    assert_eq!(fits("a.example:1-256"), Ok(()));
    let error = fits("a.example:1-257").unwrap_err();
    assert!(error.to_string().starts_with("`allow a.example:1-257` names more than 256 ports"));
    assert!(fits("a.example:*").is_err());
    assert_eq!(fits_listeners(&build(&RuleParts::new(Verb::Deny, "a.example")).unwrap()), Ok(()));
}

#[test]
fn long_names_stay_different() {
    let named = |last: &str| {
        let mut paths: Vec<String> = (0..40).map(|number| format!("/path/{number}")).collect();
        paths.push(last.to_owned());
        build(&RuleParts { paths, ..RuleParts::new(Verb::Allow, "a.example") }).unwrap().name
    };
    assert!(named("/a").chars().count() <= 165);
    assert_ne!(named("/a"), named("/b"));
}

proptest! {
    /// What a rule is shown by is what could have been written, and means the same.
    #[test]
    fn a_name_is_read_back(
        verb in prop_oneof![Just(Verb::Allow), Just(Verb::Ask), Just(Verb::Deny)],
        methods in prop_oneof!["", "GET ", "get,POST "],
        scheme in prop_oneof!["", "https://", "http://"],
        host in prop_oneof![
            "[a-z]{1,3}(\\.[a-z]{1,3}){1,2}\\.?", "\\*{1,2}\\.[a-z]{2}\\.[a-z]{2}", "10\\.0\\.0\\.0/8",
            "192\\.168\\.1\\.[1-9]", "\\[2001:db8::[1-9]\\]", "\\[fd00::/8\\]", "host", "\\*"
        ],
        ports in prop_oneof!["", ":443", ":80", ":80,443", ":1-9,22", ":\\*"],
        path in prop_oneof!["", "/", "/a", "/v1/\\*\\*", "/a/\\*/b"],
    ) {
        let path = if scheme.is_empty() { String::new() } else { path };
        let text = format!("{methods}{scheme}{host}{ports}{path}");
        let Ok(rule) = build(&RuleParts::new(verb, text.as_str())) else { return Ok(()) };
        let shown = rule.name.strip_prefix(verb.word()).unwrap().trim();
        // A path on a port without a scheme of its own is shown behind the port.
        if rule.http.iter().any(|request| !request.paths.is_empty()) && !shown.contains("://") {
            return Ok(());
        }
        prop_assert_eq!(build(&RuleParts::new(verb, shown)), Ok(rule.clone()), "{} {}", text, shown);
    }

    /// A host that is written is the host that is decided about.
    #[test]
    fn what_was_allowed_is_allowed(host in "[a-zA-Z0-9]{1,4}(\\.[a-zA-Z]{2,4}){1,3}\\.?", port in 1_u16..) {
        let rule = allow(&format!("{host}:{port}")).unwrap();
        let matcher = Matcher::new(Rules { rules: vec![rule], ..Rules::default() });
        let place = host.parse().unwrap();
        prop_assert_eq!(matcher.connection(&place, port).outcome, Outcome::Allow);
        prop_assert_eq!(matcher.connection(&place, port ^ 1).outcome, Outcome::OtherPort);
    }

    #[test]
    fn nothing_that_is_written_is_too_much(text in "\\PC{0,40}", verb in 0_usize..3) {
        let verb = [Verb::Allow, Verb::Ask, Verb::Deny][verb];
        if let Err(error) = build(&RuleParts::new(verb, text)) {
            let sentence = error.to_string();
            prop_assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control));
        }
    }
}

#[test]
fn bodies_are_kept_of_what_is_looked_into() {
    let rule = |capture: &str, tls| RuleParts {
        capture: Some(capture.into()),
        tls,
        ..RuleParts::new(Verb::Allow, "a.example")
    };
    for (text, bytes) in [("64KB", 64 * 1024), ("1MB", 1024 * 1024), ("1", 1)] {
        let parts = rule(text, Tls::AsNeeded);
        assert_eq!(super::capture(&parts), Ok(Some(bytes)), "{text}");
        assert_eq!(build(&parts).unwrap().tls, Tls::Inspect);
    }
    for text in ["", "0", "2MB", "-1", "x", "64KB/h"] {
        let error = build(&rule(text, Tls::AsNeeded)).unwrap_err();
        assert_eq!((error.key(), error), ("capture", RuleError::Capture { text: text.into() }));
    }
    let error = build(&rule("1KB", Tls::Tunnel)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bodies are kept of what is looked into: leave out `tunnel`, or `capture`"
    );
    let denial = RuleParts { verb: Verb::Deny, ..rule("1KB", Tls::AsNeeded) };
    assert_eq!(build(&denial).unwrap_err().key(), "capture");
}

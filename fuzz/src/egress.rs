//! What decides about the network: rules as people write them, policy files, and the targets of
//! requests, which a session chooses.

use crate::Reached;
use cowork_api::egress::{Otherwise, Rule, Rules};
use cowork_policy::egress::rule::{RuleParts, Verb, build};
use cowork_policy::egress::{Matcher, Outcome, Place, Treatment, file, target};

/// The first byte says what the rest is.
pub fn egress(input: &[u8]) -> Reached {
    let [kind, rest @ ..] = input else { return Reached::NOTHING };
    let Ok(text) = str::from_utf8(rest) else { return Reached::NOTHING };
    match kind % 4 {
        0 => written(text),
        1 => policy(text),
        2 => request(text),
        _ => place(text),
    }
}

/// A rule: what it is shown by, if it is one text, means the same.
fn written(text: &str) -> Reached {
    let mut reached = Reached::NOTHING;
    for verb in [Verb::Allow, Verb::Ask, Verb::Deny] {
        let rule = build(&RuleParts::new(verb, text));
        match &rule {
            Ok(rule) => {
                check_rule(rule);
                let paths = rule.http.iter().any(|request| !request.paths.is_empty());
                let shown = rule.name.strip_prefix(verb.word()).expect("a name has a verb").trim();
                let cut = shown.contains('…');
                if !cut && (!paths || shown.contains("://")) {
                    let again = build(&RuleParts::new(verb, shown));
                    assert_eq!(again.as_ref(), Ok(rule), "{text:?} is shown as {shown:?}");
                }
            }
            Err(error) => check_sentence(&error.to_string()),
        }
        reached = reached.and(Reached::by(&rule));
    }
    reached
}

fn check_rule(rule: &Rule) {
    assert!(rule.name.chars().count() <= 200 && !rule.name.chars().any(char::is_control));
    let rules = Rules { generation: 1, otherwise: Otherwise::Deny, rules: vec![rule.clone()] };
    let matcher = Matcher::new(rules);
    for port in matcher.ports() {
        assert_ne!(port, 0, "{}", rule.name);
    }
    // Nothing is allowed that only a rule for everything could allow.
    let elsewhere: Place = "not.mentioned.invalid".parse().expect("it is a name");
    let outcome = matcher.connection(&elsewhere, 443).outcome;
    assert!(
        outcome != Outcome::Allow
            || rule.name.contains("mentioned")
            || rule.name.contains("invalid"),
        "{}",
        rule.name
    );
}

/// A policy file: every rule in it is one, and every error has its line.
fn policy(text: &str) -> Reached {
    let file = file::parse(text);
    match &file {
        Ok(file) => {
            assert_eq!(file.rules.len(), file.parts.len());
            file.rules.iter().for_each(check_rule);
        }
        Err(error) => {
            assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
            check_sentence(&error.to_string());
        }
    }
    Reached::by(&file)
}

fn check_sentence(sentence: &str) {
    assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
}

/// A target: what is accepted has one meaning, and what is not is never allowed by its path.
fn request(text: &str) -> Reached {
    let checked = target::check(text);
    let allow = |host: &str| build(&RuleParts::new(Verb::Allow, host)).expect("it is a rule");
    let deny = build(&RuleParts::new(Verb::Deny, "https://a.example/private/**"));
    let rules = vec![allow("https://a.example/**"), deny.expect("it is a rule")];
    let matcher = Matcher::new(Rules { generation: 1, otherwise: Otherwise::Deny, rules });
    let place: Place = "a.example".parse().expect("it is a name");
    assert_eq!(matcher.treatment(&place, 443), Treatment::Inspect);
    let outcome = matcher.request(&place, 443, "GET", text).outcome;
    match &checked {
        Ok((path, query)) => {
            let joined = query.map_or((*path).to_owned(), |query| format!("{path}?{query}"));
            assert_eq!(joined, text);
            let parts: Vec<&str> = path.split('/').skip(1).collect();
            let (last, front) = parts.split_last().expect("a path has a part");
            assert!(front.iter().all(|part| !matches!(*part, "" | "." | "..")), "{path}");
            assert!(!matches!(*last, "." | "..") && !path.contains(['\\', ';', '#']), "{path}");
            let private = plain(path).starts_with("/private/");
            let expected = if private { Outcome::Deny } else { Outcome::Allow };
            assert_eq!(outcome, expected, "{path}");
        }
        Err(error) => {
            check_sentence(&error.to_string());
            assert_eq!(outcome, Outcome::Deny, "{text:?}");
        }
    }
    Reached::by(&checked).and(Reached::by(&outcome))
}

/// A path with its escapes of letters decoded.
fn plain(path: &str) -> String {
    let mut text = String::new();
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let byte = u8::from_str_radix(&rest[at + 1..at + 3], 16).expect("it was checked");
        text.push(char::from(byte));
        rest = &rest[at + 3..];
    }
    text + rest
}

/// A host as a program names it: it is one place, however it is written.
fn place(text: &str) -> Reached {
    let place = text.parse::<Place>();
    match &place {
        Ok(place) => {
            let again = place.to_string().parse::<Place>();
            assert_eq!(again.as_ref(), Ok(place), "{text:?}");
            let upper = text.to_ascii_uppercase().parse::<Place>();
            assert_eq!(upper.as_ref(), Ok(place), "{text:?}");
        }
        Err(error) => check_sentence(&error.to_string()),
    }
    Reached::by(&place)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let rules = [
        "pypi.org",
        "*.githubusercontent.com",
        "**.example.com:8000-8100,22",
        "db.internal:*",
        "10.0.0.0/8:22",
        "[2001:db8::1]:443",
        "2001:db8::/32",
        "host:5432",
        "GET,HEAD https://api.example.com/v1/**",
        "http://a.example:8080/x*",
        "*",
        "*.com",
        "127.1",
        "localhost:1",
    ];
    let files = [
        "[egress]\ndefault = \"ask\"\npresets = [\"claude\", \"npm:read\"]\n",
        "[[egress.allow]]\nhost = \"a.example\"\nports = [443, \"8000-8100\"]\n\
         http = [{ methods = [\"POST\"], paths = [\"/v1/**\"] }]\n\
         auth = { secret = \"k\", mode = \"pin\", carrier = \"header:x-api-key\" }\n\
         limits = { upload = \"200MB/h\", requests = \"120/min\", connections = 4 }\n",
        "[[egress.deny]]\nhost = \"**.b.example\"\nreason = \"no\"\n[[egress.ask]]\nhost = \"*\"\n\
         tls = \"inspect\"\nresolves_to = [\"10.0.0.0/8\"]\n",
        "[files]\nask = [\"a/**\", { pattern = \"*.b\", reason = \"c\" }]\nblock = [\"zip\"]\n\
         guards = { removals = 5, share = \"off\" }\nquota = { bytes = \"2G\", files = 1 }\n",
        "[egress]\nwhat = 1\n",
    ];
    let targets = [
        "/private/x?y=z",
        "/%70rivate/x",
        "/a/../private/x",
        "//private",
        "/a%2fb%5c%00",
        "/a;b/./c",
        "/%c0%ae",
        "/%25%32%65",
        "*",
        "/caf%C3%A9#",
    ];
    let places =
        ["Example.COM.", "10.0.0.1", "::ffff:10.0.0.1", "[::1]", "host.cowork.internal", "0x7f"];
    let with = |kind: u8, texts: &[&str]| -> Vec<Vec<u8>> {
        texts.iter().map(|text| [&[kind], text.as_bytes()].concat()).collect()
    };
    [with(0, &rules), with(1, &files), with(2, &targets), with(3, &places)].concat()
}

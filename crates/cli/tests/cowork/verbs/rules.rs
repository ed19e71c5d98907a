//! Rules: what is understood, what is not, and what would pass by them.

use super::network::{Server, by_proxy};
use super::{Desk, id, text};
use crate::support::{for_everyone, need};
use cowork_testbed::Person;
use serde_json::Value;

for_everyone!(
    what_would_pass_is_explained,
    rules_that_cannot_be_understood,
    options_that_contradict_each_other,
    a_plan_tells_its_network,
    a_policy_is_a_file,
);

fn what_would_pass_is_explained(person: Person) {
    let desk = Desk::new(person);
    let id = &id("explained", person);
    desk.make(
        id,
        &["--allow", "api.example.com", "--deny", "bad.example.com", "--ask", "*.example.org"],
    );
    for (url, code, outcome, rule) in [
        ("https://api.example.com/v1", 0, "allow", "allow api.example.com"),
        ("https://bad.example.com/", 1, "deny", "deny bad.example.com"),
        ("https://www.example.org/", 0, "ask", "ask *.example.org"),
    ] {
        let ran = desk.say(&["net", "explain", id, url]);
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{url}: {}", ran.text());
        assert!(ran.text().starts_with(&format!("{outcome}  ")), "{}", ran.text());
        assert!(ran.text().contains(&format!("\n  rule   {rule}\n")), "{}", ran.text());
    }
    let ran = desk.say(&["net", "explain", "--json", id, "https://other.example/x"]);
    let said: Value = serde_json::from_str(ran.text()).expect("it is JSON");
    assert_eq!((ran.code, &said["code"], &said["rule"]), (1, &"no-rule".into(), &Value::Null));
    let ran = desk.say(&["net", "explain", id, "api.example.com:8443"]);
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.text().contains("\n  code   port\n"), "{}", ran.text());
    let presets = desk.good(&["net", "presets"]);
    for name in ["github", "pypi", "npm", "crates", "claude", "openai", "debian"] {
        assert!(presets.lines().any(|line| line.starts_with(&format!("{name} "))), "{presets}");
    }
    let force = desk.good(&["allow", id, "--preset", "github"]);
    assert!(force.contains("\npreset github "), "{force}");
    let ran = desk.say(&["net", "explain", id, "https://api.github.com/"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    desk.good(&["allow", "--remove", id, "--preset", "github"]);
    assert_eq!(desk.say(&["net", "explain", id, "https://api.github.com/"]).code, 1);
}

/// Texts that are no rule, and what is said of them.
const BAD: [(&str, &str); 25] = [
    ("", "a rule names a host"),
    (" ", "a rule names a host"),
    ("b c a.example", "is not a rule"),
    ("ftp://example.com", "rules are about `https://…` and `http://…`"),
    ("example.com/path", "write `https://example.com/path`"),
    ("https://user@example.com", "a rule has no user name or password"),
    ("https://example.com/x?y", "leave out `?` or `#`"),
    ("user@example.com", "is not a host"),
    ("example..com", "no two dots in a row"),
    (".example.com", "no two dots in a row"),
    ("example.com:", "is not a port"),
    ("example.com:0", "is not a port"),
    ("example.com:65536", "is not a port"),
    ("example.com:http", "is not a port"),
    ("example.com:90-80", "is not a port"),
    ("a*.example.com", "has a `*` in a wrong place"),
    ("*.*.example.com", "has a `*` in a wrong place"),
    ("10.0.0.0/33", "is not a range of addresses"),
    ("10.1.2.3/8", "is written as `10.0.0.0/8`"),
    ("300.1.1.1", "write an address in full"),
    ("127.1", "write an address in full"),
    ("fe80::/129", "is not a range of addresses"),
    ("localhost:80", "write `host:PORT`"),
    ("b\u{fc}cher.example", "letters, digits, hyphens and dots only"),
    ("\u{1b}[31mred.example", "is not a host"),
];

/// Hosts that can be denied, but are too many to be allowed, and what is said of them.
const TOO_WIDE: [(&str, &str); 4] = [
    ("*", "would allow everything"),
    ("0.0.0.0/0", "would allow everything"),
    ("*.com", "would allow every name that ends in `.com`"),
    ("host", "name the port as well"),
];

/// Details that no rule can have, and what is said of them.
const BAD_DETAILS: [(&str, &str, &str); 12] = [
    ("--method", "G ET", "is not a method"),
    ("--method", "", "is not a method"),
    ("--path", "no-slash", "is not a path"),
    ("--resolves-to", "internal", "is not a range of addresses"),
    ("--resolves-to", "127.0.0.0/8", "no name leads to"),
    ("--secret", "no-such-secret", "no-such-secret"),
    ("--secret", "a/b", "is not the name of a secret"),
    ("--upload", "much", "is not an amount per time"),
    ("--upload", "200M", "is not an amount per time"),
    ("--requests", "0/1m", "lets nothing through"),
    ("--requests", "many/1m", "is not an amount per time"),
    ("--preset", "no-such-preset", "there is no preset `no-such-preset`"),
];

/// Checks that a person is told what is wrong with something, and that their terminal is not.
#[track_caller]
fn told(err: &str, what: &str, wrong: &str) {
    assert!(err.starts_with("cowork: ") && err.contains(wrong), "{what:?}: {err}");
    assert!(!err.contains('\u{1b}'), "{what:?}: {err:?}");
}

/// Every rule that means nothing is told so in a sentence, and changes nothing.
fn rules_that_cannot_be_understood(person: Person) {
    let desk = Desk::new(person);
    let id = &id("misread", person);
    desk.make(id, &["--allow", "good.example"]);
    let before = desk.json(&["net", "rules", "--json", id]);
    for (rule, wrong) in BAD {
        for verb in ["allow", "deny"] {
            let ran = desk.say(&[verb, id, rule]);
            assert_eq!((ran.code, ran.text()), (1, ""), "{rule:?}: {}", ran.err);
            told(&ran.err, rule, wrong);
        }
        let ran = desk.say(&["run", "--allow", rule, "--", "true"]);
        assert_eq!((ran.code, ran.text()), (125, ""), "{rule:?}: {}", ran.err);
        told(&ran.err, rule, wrong);
    }
    for (rule, wrong) in TOO_WIDE {
        let ran = desk.say(&["allow", id, rule]);
        assert_eq!((ran.code, ran.text()), (1, ""), "{rule:?}: {}", ran.err);
        told(&ran.err, rule, wrong);
    }
    for (option, value, wrong) in BAD_DETAILS {
        let ran = desk.say(&["allow", id, "other.example", option, value]);
        assert_eq!((ran.code, ran.text()), (1, ""), "{option} {value:?}: {}", ran.err);
        told(&ran.err, option, wrong);
    }
    let after = desk.json(&["net", "rules", "--json", id]);
    assert_eq!((&after["rules"], &after["generation"]), (&before["rules"], &before["generation"]));
    for (arguments, wrong) in [
        (&["publish", id, "0"][..], "a port is a number from 1 to 65535"),
        (&["publish", id, "80:http"], "a port is a number from 1 to 65535"),
        (&["unpublish", id, "65536"], "a port is a number from 1 to 65535"),
        (&["allow", id], "required arguments were not provided"),
        (&["allow", id, "--remove", "x.example", "--method", "GET"], "cannot be used with"),
        (&["allow", id, "x.example", "--tls", "maybe"], "[possible values: inspect, tunnel]"),
    ] {
        let ran = desk.say(arguments);
        assert_eq!((ran.code, ran.text()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(wrong), "{arguments:?}: {}", ran.err);
    }
}

fn options_that_contradict_each_other(person: Person) {
    let desk = Desk::new(person);
    let sentence = "cowork: with `--net off` there is no network for `--allow`\n  \
                    hint: leave one of them out\n";
    let off = ["--net", "off", "--allow", "a.example"];
    desk.refused(&[&["new"], &off[..]].concat(), 1, sentence);
    desk.refused(&[&["run"], &off[..], &["--", "true"]].concat(), 125, sentence);
    for (options, shown) in [
        (&["--allow", "a.example"][..], "--allow"),
        (&["--deny", "a.example"], "--deny"),
        (&["--ask", "a.example"], "--ask"),
        (&["--preset", "github"], "--preset"),
        (&["--secret", "x"], "--secret"),
        (&["--net", "ask"], "--net ask"),
    ] {
        let sentence = format!(
            "cowork: a session without the daemon has no network, so `{shown}` needs it\n  \
             hint: leave `--no-daemon` out\n"
        );
        let arguments = [&["run", "--no-daemon"], options, &["--", "true"]].concat();
        desk.refused(&arguments, 125, &sentence);
    }
    desk.good(&["run", "--no-daemon", "--net", "off", "--", "true"]);
}

fn a_plan_tells_its_network(person: Person) {
    let desk = Desk::new(person);
    let plan = desk.good(&["explain", "--no-grants"]);
    assert!(plan.contains(". give it no network: no route, no names"), "{plan}");
    let options = ["--allow", "a.example:8443", "--ask", "b.example", "--deny", "c.example"];
    let plan = desk.good(&[&["explain", "--no-grants"], &options[..]].concat());
    for line in [
        ". let it reach a.example:8443\n",
        ". ask you before it reaches b.example\n",
        ". refuse c.example\n",
        ". refuse every other host\n",
    ] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    let plan = desk.json(&[&["explain", "--json", "--no-grants"], &options[..]].concat());
    assert_eq!(plan["network"]["rules"].as_array().map(Vec::len), Some(3), "{plan}");
}

fn a_policy_is_a_file(person: Person) {
    need("curl", "curl");
    let desk = Desk::new(person);
    let id = &id("filed", person);
    let server = Server::start();
    let policy = format!(
        "[egress]\npresets = [\"github:read\"]\n\n[[egress.allow]]\nhost = \"host\"\n\
         ports = [{}]\npaths = [\"/open/**\"]\n\n\
         [[egress.deny]]\nhost = \"paste.example\"\nreason = \"use outputs\"\n",
        server.port
    );
    desk.work.write("policy.toml", policy);
    desk.make(id, &["--policy", "policy.toml", "--allow", "more.example"]);
    let network = desk.json(&["net", "rules", "--json", id]);
    let hosts = network["rules"].as_array().expect("it is a list").iter();
    let hosts: Vec<String> = hosts.map(|rule| text(&rule["rule"]["host"])).collect();
    assert_eq!(hosts, [server.rule().as_str(), "paste.example", "more.example"]);
    assert_eq!(network["presets"], serde_json::json!(["github:read"]));
    assert!(by_proxy(&desk, id, &server.url("/open/x")).ends_with(" 200"));
    assert!(by_proxy(&desk, id, &server.url("/shut")).ends_with(" 403"));
    assert!(by_proxy(&desk, id, "http://paste.example/").contains("use outputs"));
    desk.work.write("bad.toml", "[egress]\ndefault = \"deny\"\n[[egress.allow]]\nhots = \"x\"\n");
    let ran = desk.say(&["new", "--policy", "bad.toml"]);
    assert_eq!((ran.code, ran.text()), (1, ""), "{}", ran.err);
    let said = "cowork: the policy `bad.toml` cannot be used\n  because: line 4, `hots`: ";
    assert!(ran.err.starts_with(said), "{}", ran.err);
    let none = "cowork: cannot read the policy `none.toml`\n  \
                because: No such file or directory (os error 2)\n";
    desk.refused(&["run", "--policy", "none.toml", "--", "true"], 125, none);
}

//! Decisions one by one, and all of them beside a plain reading of the rules.

use super::{Matcher, Outcome, Treatment};
use crate::egress::rule::{RuleParts, SecretParts, Verb, build};
use crate::egress::{Place, target};
use cowork_api::egress::{
    Action, Credential, CredentialMode, Host, Otherwise, Ports, Quota, Request, Rule, Rules, Tls,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn rule(text: &str) -> Rule {
    let (verb, host) = text.split_once(' ').unwrap();
    let verb = match verb {
        "allow" => Verb::Allow,
        "ask" => Verb::Ask,
        "deny" => Verb::Deny,
        _ => panic!("{text}"),
    };
    build(&RuleParts::new(verb, host)).unwrap()
}

fn matcher(otherwise: Otherwise, rules: &[&str]) -> Matcher {
    let rules = rules.iter().map(|text| rule(text)).collect();
    Matcher::new(Rules { generation: 7, otherwise, rules })
}

fn strict(rules: &[&str]) -> Matcher {
    matcher(Otherwise::Deny, rules)
}

fn place(text: &str) -> Place {
    text.parse().unwrap()
}

fn connection(matcher: &Matcher, host: &str, port: u16) -> (Outcome, Option<String>) {
    let place = place(host);
    let verdict = matcher.connection(&place, port);
    (verdict.outcome, verdict.rule.map(|rule| rule.name.clone()))
}

fn request(matcher: &Matcher, host: &str, method: &str, path: &str) -> Outcome {
    matcher.request(&place(host), 443, method, path).outcome
}

#[test]
fn stars_stand_for_names_below_and_two_for_the_name_as_well() {
    let matcher = strict(&["allow a.example", "allow *.b.example", "allow **.c.example"]);
    let table = [
        ("a.example", true),
        ("A.Example.", true),
        ("x.a.example", false),
        ("xa.example", false),
        ("example", false),
        ("b.example", false),
        ("x.b.example", true),
        ("y.x.B.EXAMPLE", true),
        ("xb.example", false),
        ("c.example", true),
        ("x.c.example.", true),
        ("xc.example", false),
        ("c.example.evil.test", false),
    ];
    for (host, expected) in table {
        let allowed = connection(&matcher, host, 443).0 == Outcome::Allow;
        assert_eq!(allowed, expected, "{host}");
        assert_eq!(matcher.knows(&place(host)), expected, "{host}");
    }
}

#[test]
fn a_denial_wins_over_an_allowance_and_that_over_an_ask() {
    let rules =
        ["ask **.a.example", "allow *.a.example", "deny x.a.example", "deny **.y.a.example:22"];
    let matcher = matcher(Otherwise::Ask, &rules);
    let table = [
        ("a.example", 443, Outcome::Ask, Some("ask **.a.example")),
        ("b.a.example", 443, Outcome::Allow, Some("allow *.a.example")),
        ("x.a.example", 443, Outcome::Deny, Some("deny x.a.example")),
        ("x.a.example", 5432, Outcome::Deny, Some("deny x.a.example")),
        ("y.a.example", 22, Outcome::Deny, Some("deny **.y.a.example:22")),
        ("y.a.example", 80, Outcome::Allow, Some("allow *.a.example")),
        ("elsewhere.example", 9, Outcome::Ask, None),
    ];
    for (host, port, outcome, rule) in table {
        assert_eq!(connection(&matcher, host, port), (outcome, rule.map(Into::into)), "{host}");
    }
    assert!(!matcher.knows(&place("x.a.example")));
    assert!(matcher.knows(&place("y.a.example")));
    assert_eq!(matcher.generation(), 7);
}

#[test]
fn what_is_missing_is_said() {
    let matcher = strict(&["allow a.example", "allow GET https://b.example/v1/**"]);
    let port = Some("allow a.example".to_owned());
    assert_eq!(connection(&matcher, "a.example", 22), (Outcome::OtherPort, port));
    assert_eq!(connection(&matcher, "c.example", 443), (Outcome::NoRule, None));
    assert_eq!(connection(&matcher, "b.example", 443).0, Outcome::Allow);
    assert_eq!(connection(&matcher, "b.example", 80).0, Outcome::OtherPort);
    assert_eq!(request(&matcher, "b.example", "GET", "/v1/a/b"), Outcome::Allow);
    assert_eq!(request(&matcher, "b.example", "GET", "/v1/a?x=/../.."), Outcome::Allow);
    assert_eq!(request(&matcher, "b.example", "GET", "/v2"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "b.example", "POST", "/v1/a"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "b.example", "get", "/v1/a"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "b.example", "GET", "/v1/../v2"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "b.example", "GET", "/v1/%2e%2e/v2"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "b.example", "GET", "/%76%31/a"), Outcome::Allow);
}

#[test]
fn a_denial_of_requests_leaves_the_connection() {
    let matcher = strict(&["allow a.example", "deny POST https://a.example/admin/**"]);
    assert_eq!(connection(&matcher, "a.example", 443).0, Outcome::Allow);
    assert_eq!(matcher.treatment(&place("a.example"), 443), Treatment::Inspect);
    assert_eq!(matcher.treatment(&place("a.example"), 80), Treatment::Tunnel);
    assert_eq!(request(&matcher, "a.example", "GET", "/admin/x"), Outcome::Allow);
    assert_eq!(request(&matcher, "a.example", "POST", "/other"), Outcome::Allow);
    for path in ["/admin/x", "/%61dmin/x", "/x/../admin/x", "/admin%2fx", "//admin/x", "/;/admin"] {
        assert_eq!(request(&matcher, "a.example", "POST", path), Outcome::Deny, "{path}");
        assert_eq!(request(&matcher, "a.example", "post", path), Outcome::Deny, "{path}");
    }
    let alone = strict(&["deny POST https://a.example/**"]);
    assert_eq!(connection(&alone, "a.example", 443), (Outcome::NoRule, None));
}

#[test]
fn a_denial_is_about_what_a_server_serves_that_decodes_twice() {
    let matcher = strict(&["allow a.example", "deny https://a.example/token"]);
    for path in ["/%2574oken", "/%25%37%34oken", "/t%256fken?x", "/%2574%256F%25%36%62en"] {
        assert_eq!(request(&matcher, "a.example", "GET", path), Outcome::Deny, "{path}");
    }
    // Once more than that nobody decodes, and what is no escape stays as it is.
    for path in ["/%252574oken", "/100%25", "/100%25zz", "/100%25token", "/%25token", "/tok%2565"] {
        assert_eq!(request(&matcher, "a.example", "GET", path), Outcome::Allow, "{path}");
    }
    // An allowance is about nothing else for it.
    let matcher = strict(&["allow https://a.example/token"]);
    assert_eq!(request(&matcher, "a.example", "GET", "/%2574oken"), Outcome::OtherRequest);
}

#[test]
fn an_ambiguous_path_matters_only_where_paths_do() {
    let matcher = strict(&["allow GET a.example"]);
    for path in ["/@types%2fnode", "/a//b", "/a;b", "/../x", "*"] {
        assert_eq!(request(&matcher, "a.example", "GET", path), Outcome::Allow, "{path}");
    }
}

#[test]
fn what_no_rule_matches_is_asked_where_the_user_is() {
    let matcher = matcher(Otherwise::Ask, &["allow GET https://a.example/v1/**"]);
    assert_eq!(request(&matcher, "a.example", "POST", "/v1/a"), Outcome::Ask);
    assert_eq!(connection(&matcher, "a.example", 22).0, Outcome::Ask);
    assert_eq!(connection(&matcher, "93.184.216.34", 443).0, Outcome::Ask);
    for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "host.cowork.internal"] {
        assert_eq!(connection(&matcher, host, 443), (Outcome::NoRule, None), "{host}");
    }
}

#[test]
fn addresses_are_not_names() {
    let matcher = strict(&["allow 10.0.0.0/8:22", "deny 10.1.0.0/16", "allow [2001:db8::/32]:*"]);
    let table = [
        ("10.0.0.1", 22, Outcome::Allow),
        ("::ffff:10.0.0.1", 22, Outcome::Allow),
        ("10.0.0.1", 23, Outcome::OtherPort),
        ("10.1.0.1", 22, Outcome::Deny),
        ("11.0.0.1", 22, Outcome::NoRule),
        ("[2001:db8:1::1]", 9, Outcome::Allow),
        ("2001:db9::1", 9, Outcome::NoRule),
        ("name.example", 22, Outcome::NoRule),
    ];
    for (host, port, outcome) in table {
        assert_eq!(connection(&matcher, host, port).0, outcome, "{host}:{port}");
    }
    assert_eq!(connection(&strict(&["deny *"]), "10.0.0.1", 22).0, Outcome::Deny);
    assert_eq!(connection(&strict(&["deny *"]), "host.cowork.internal", 22).0, Outcome::Deny);
    assert_eq!(connection(&strict(&["ask *"]), "10.0.0.1", 80).0, Outcome::NoRule);
    assert_eq!(connection(&strict(&["ask *"]), "a.example", 80).0, Outcome::Ask);
}

#[test]
fn the_host_is_reached_by_its_rule() {
    let matcher = strict(&["allow host:5432"]);
    assert_eq!(connection(&matcher, "host.cowork.internal", 5432).0, Outcome::Allow);
    assert_eq!(connection(&matcher, "HOST.cowork.internal.", 5432).0, Outcome::Allow);
    assert_eq!(connection(&matcher, "host.cowork.internal", 22).0, Outcome::OtherPort);
    assert_eq!(connection(&matcher, "127.0.0.1", 5432).0, Outcome::NoRule);
    assert_eq!(connection(&matcher, "host", 5432).0, Outcome::NoRule);
    let named = strict(&["allow **.cowork.internal"]);
    assert_eq!(connection(&named, "host.cowork.internal", 80).0, Outcome::NoRule);
}

#[test]
fn a_rule_with_a_credential_speaks_first() {
    let pin = RuleParts {
        secret: Some(SecretParts {
            name: "key".into(),
            mode: Some(CredentialMode::Pin),
            carrier: None,
        }),
        ..RuleParts::new(Verb::Allow, "**.a.example")
    };
    let rules = vec![rule("allow x.a.example"), build(&pin).unwrap()];
    let matcher = Matcher::new(Rules { rules, ..Rules::default() });
    let verdict = matcher.request(&place("x.a.example"), 443, "GET", "/").rule.cloned().unwrap();
    assert_eq!(verdict.credential.unwrap().mode, CredentialMode::Pin);
    assert_eq!(matcher.treatment(&place("x.a.example"), 443), Treatment::Inspect);
    assert_eq!(matcher.secrets().into_iter().collect::<Vec<_>>(), ["key"]);
}

/// A rule that pins a credential for some requests, and a broad one for the same host.
fn pinned_beside_broad(host: &str, broad: &str, otherwise: Otherwise) -> Matcher {
    let pin = RuleParts {
        secret: Some(SecretParts {
            name: "key".into(),
            mode: Some(CredentialMode::Pin),
            carrier: None,
        }),
        ..RuleParts::new(Verb::Allow, host)
    };
    let rules = vec![rule(broad), build(&pin).unwrap()];
    Matcher::new(Rules { generation: 1, otherwise, rules })
}

#[test]
fn no_spelling_of_a_request_gets_round_a_pinned_credential() {
    for broad in ["allow a.example", "allow **.example", "ask a.example", "allow other.example"] {
        let host = "POST https://a.example/v1/m";
        let matcher = pinned_beside_broad(host, broad, Otherwise::Ask);
        let target = place("a.example");
        let verdict = |method: &str, path: &str| {
            let verdict = matcher.request(&target, 443, method, path);
            (verdict.outcome, verdict.rule.is_some_and(|rule| rule.credential.is_some()))
        };
        assert_eq!(verdict("POST", "/v1/m"), (Outcome::Allow, true), "{broad}");
        let long = format!("/v1/{}", "m".repeat(9000));
        for path in ["/v1//m", "/x/../v1/m", "/v1%2fm", "/v1/%25%32%65/m", &long] {
            assert_eq!(verdict("POST", path), (Outcome::OtherRequest, true), "{broad} {path}");
            assert_eq!(verdict("pOST", path), (Outcome::OtherRequest, true), "{broad} {path}");
            assert_ne!(verdict("GET", path).0, Outcome::OtherRequest, "{broad} {path}");
        }
        assert_eq!(verdict("pOST", "/v1/m"), (Outcome::OtherRequest, true), "{broad}");
        assert_ne!(verdict("POST", "/v2").0, Outcome::OtherRequest, "{broad}");
    }
    let elsewhere = pinned_beside_broad("https://b.example/v1", "allow a.example", Otherwise::Deny);
    assert_eq!(request(&elsewhere, "a.example", "POST", "/v1//m"), Outcome::Allow);
}

#[test]
fn a_method_in_another_case_passes_nowhere() {
    let matcher = strict(&["allow a.example", "allow GET https://a.example/v1/**"]);
    assert_eq!(request(&matcher, "a.example", "GET", "/v1/a"), Outcome::Allow);
    assert_eq!(request(&matcher, "a.example", "PUT", "/v1//a"), Outcome::Allow);
    assert_eq!(request(&matcher, "a.example", "get", "/v1/a"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "a.example", "Get", "/"), Outcome::OtherRequest);
    assert_eq!(request(&matcher, "a.example", "put", "/v1/a"), Outcome::Allow);
}

#[test]
fn a_long_path_fits_no_allowance_of_paths() {
    let matcher = strict(&["allow https://a.example/v1/**", "allow b.example"]);
    let path = |length: usize| format!("/v1/{}", "a".repeat(length - 4));
    assert_eq!(request(&matcher, "a.example", "GET", &path(8192)), Outcome::Allow);
    assert_eq!(request(&matcher, "a.example", "GET", &path(8193)), Outcome::OtherRequest);
    let query = format!("/v1/a?{}", "a".repeat(9000));
    assert_eq!(request(&matcher, "a.example", "GET", &query), Outcome::Allow);
    assert_eq!(request(&matcher, "b.example", "GET", &path(8193)), Outcome::Allow);
    let denial = strict(&["allow a.example", "deny https://a.example/admin/**"]);
    assert_eq!(request(&denial, "a.example", "GET", &path(8193)), Outcome::Deny);
}

#[test]
fn a_tunnel_for_everything_needs_no_look_inside() {
    let tunnel = RuleParts { tls: Tls::Tunnel, ..RuleParts::new(Verb::Allow, "a.example") };
    let some = rule("allow GET a.example");
    let rules = |rules| Matcher::new(Rules { rules, ..Rules::default() });
    let place = place("a.example");
    let matcher = rules(vec![some.clone()]);
    assert_eq!(matcher.treatment(&place, 443), Treatment::Inspect);
    let matcher = rules(vec![some.clone(), build(&tunnel).unwrap()]);
    assert_eq!(matcher.treatment(&place, 443), Treatment::Tunnel);
    let denial = rule("deny POST https://a.example/x");
    let matcher = rules(vec![some, build(&tunnel).unwrap(), denial]);
    assert_eq!(matcher.treatment(&place, 443), Treatment::Inspect);
}

#[test]
fn listeners_are_for_ports_that_rules_name() {
    assert_eq!(strict(&[]).ports(), [] as [u16; 0]);
    assert_eq!(matcher(Otherwise::Ask, &[]).ports(), [80, 443]);
    assert_eq!(
        strict(&["allow a.example:22,8000-8002", "deny b.example"]).ports(),
        [22, 8000, 8001, 8002]
    );
    assert_eq!(strict(&["allow a.example:*"]).ports(), [80, 443]);
    assert_eq!(strict(&["ask b.example", "allow host:5432"]).ports(), [80, 443, 5432]);
    assert_eq!(strict(&["allow a.example:1000-1255"]).ports().len(), 256);
    assert_eq!(strict(&["allow a.example:1000-1256"]).ports(), [] as [u16; 0]);
}

#[test]
fn a_decision_is_said_in_words() {
    let mut denial = rule("deny **.paste.example");
    denial.action = Action::Deny { reason: "use outputs/ instead".into() };
    let rules = vec![
        rule("allow a.example"),
        rule("allow GET https://b.example/v1/**"),
        denial,
        rule("allow 127.0.0.0/8:80"),
    ];
    let matcher = Matcher::new(Rules { rules, ..Rules::default() });
    let said = |host: &str, port, request| {
        let explanation = matcher.explain(&place(host), port, request);
        (explanation.code, explanation.sentence, explanation.hint)
    };
    let allow = |what: &str| format!("the user can allow it: `cowork allow SESSION {what}`");
    let table = [
        (
            said("a.example", 443, Some(("GET", "/"))),
            ("allowed", "a.example may be reached on port 443 (`allow a.example`)", String::new()),
        ),
        (
            said("a.example", 22, None),
            (
                "port",
                "a.example may be reached, but not on port 22 (`allow a.example`)",
                allow("a.example:22"),
            ),
        ),
        (
            said("b.example", 443, Some(("POST", "/v1/x"))),
            (
                "request",
                "b.example may be reached, but not with this method and path \
                 (`allow GET https://b.example/v1/**`)",
                "the rules name the methods and paths that pass".to_owned(),
            ),
        ),
        (
            said("x.paste.example", 443, None),
            (
                "denied-by-rule",
                "a rule refuses x.paste.example (`deny **.paste.example`): use outputs/ instead",
                "do not try again".to_owned(),
            ),
        ),
        (
            said("c.example", 5432, None),
            ("no-rule", "no rule allows c.example", allow("c.example:5432")),
        ),
        (
            said("2001:db8::1", 443, None),
            ("no-rule", "no rule allows [2001:db8::1]", allow("[2001:db8::1]")),
        ),
        (
            said("127.0.0.1", 80, None),
            (
                "local-address",
                "127.0.0.1 is reached only by a rule for exactly this address",
                allow("127.0.0.1:80"),
            ),
        ),
    ];
    for ((code, sentence, hint), expected) in table {
        assert_eq!((code, sentence.as_str(), hint), expected);
    }
    let allowed = matcher.explain(&place("b.example"), 443, None);
    assert_eq!(allowed.treatment, Some(Treatment::Inspect));
    assert_eq!(allowed.rule.as_deref(), Some("allow GET https://b.example/v1/**"));
}

/// The rules read one after the other, by their definition.
mod naive {
    use super::*;

    pub(super) fn is_about(rule: &Rule, place: &Place) -> bool {
        let text = |text: &str| text.trim_end_matches('.').to_lowercase();
        let denies = matches!(rule.action, Action::Deny { .. });
        match (&rule.host, place) {
            (Host::Any, Place::Name(_)) => true,
            (Host::Any, _) => denies,
            (Host::Loopback, Place::HostLoopback) => true,
            (Host::Name(wanted), Place::Name(name)) => text(wanted) == name.as_str(),
            (Host::Below(domain), Place::Name(name)) => {
                name.as_str().ends_with(&format!(".{}", text(domain)))
            }
            (Host::Domain(domain), Place::Name(name)) => {
                format!(".{name}").ends_with(&format!(".{}", text(domain)))
            }
            (Host::Network(network), Place::Address(address)) => {
                let bits = |address: IpAddr| match address {
                    IpAddr::V4(address) => format!("4{:032b}", u32::from(address)),
                    IpAddr::V6(address) => format!("6{:0128b}", u128::from(address)),
                };
                let (first, address) = (bits(network.address), bits(*address));
                let bits = usize::from(network.bits) + 1;
                first.chars().take(bits).eq(address.chars().take(bits))
            }
            _ => false,
        }
    }

    pub(super) fn has_port(rule: &Rule, port: u16) -> bool {
        match &rule.ports {
            Ports::Web => port == 80 || port == 443,
            Ports::Some(ranges) => ranges.iter().any(|(from, to)| port >= *from && port <= *to),
            Ports::All => true,
        }
    }

    fn glob(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => path.is_empty(),
            [b'*', b'*', rest @ ..] => (0..=path.len()).any(|at| glob(rest, &path[at..])),
            [b'*', rest @ ..] => {
                let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
                (0..=end).any(|at| glob(rest, &path[at..]))
            }
            [byte, rest @ ..] => path.first() == Some(byte) && glob(rest, &path[1..]),
        }
    }

    fn fits(rule: &Rule, request: Option<(&str, &str)>) -> bool {
        let denies = matches!(rule.action, Action::Deny { .. });
        let Some((method, path)) = request else { return !denies || rule.http.is_empty() };
        let wanted = |wanted: &Request| {
            let same = |other: &String| {
                if denies { other.eq_ignore_ascii_case(method) } else { other == method }
            };
            let methods = wanted.methods.is_empty() || wanted.methods.iter().any(same);
            let plain = path.split('?').next().unwrap().replace("%61", "a");
            let paths = match target::check(path) {
                _ if wanted.paths.is_empty() => true,
                Ok(_) => wanted.paths.iter().any(|one| glob(one.as_bytes(), plain.as_bytes())),
                Err(_) => denies,
            };
            methods && paths
        };
        rule.http.is_empty() || rule.http.iter().any(wanted)
    }

    /// Sorts before another rule that decides alike.
    fn weight(rule: &Rule) -> (Option<u8>, usize, bool, bool) {
        let mode = rule.credential.as_ref().map(|credential| credential.mode as u8);
        let narrow = match &rule.host {
            Host::Name(_) | Host::Loopback => 1000,
            Host::Network(network) => usize::from(network.bits),
            Host::Below(name) => 2 * name.trim_end_matches('.').split('.').count() + 1,
            Host::Domain(name) => 2 * name.trim_end_matches('.').split('.').count(),
            Host::Any => 0,
        };
        (mode, narrow, rule.limits != Quota::default(), !rule.resolves_to.is_empty())
    }

    fn pins(rule: &Rule) -> bool {
        rule.credential.as_ref().is_some_and(|credential| credential.mode == CredentialMode::Pin)
    }

    /// A request that some rule could mean, if a server reads it loosely.
    fn evades(rule: &Rule, winner: Option<&Rule>, (method, path): (&str, &str)) -> bool {
        let named = |wanted: &Request| wanted.methods.iter().any(|one| one == method);
        let alike =
            |wanted: &Request| wanted.methods.iter().any(|one| one.eq_ignore_ascii_case(method));
        if rule.http.iter().any(|wanted| alike(wanted) && !named(wanted)) {
            return true;
        }
        let loosely = |wanted: &Request| {
            (wanted.methods.is_empty() || named(wanted)) && target::check(path).is_err()
        };
        pins(rule)
            && !winner.is_some_and(pins)
            && !fits(rule, Some((method, path)))
            && rule.http.iter().any(loosely)
    }

    pub(super) fn decide<'a>(
        rules: &'a Rules,
        place: &Place,
        port: u16,
        request: Option<(&str, &str)>,
    ) -> (Outcome, Option<&'a Rule>) {
        let (outcome, winner) = plainly(rules, place, port, request);
        let (Outcome::Allow | Outcome::Ask, Some(request)) = (outcome, request) else {
            return (outcome, winner);
        };
        let mut best: Option<&Rule> = None;
        for rule in &rules.rules {
            let passes = !matches!(rule.action, Action::Deny { .. });
            if passes
                && is_about(rule, place)
                && has_port(rule, port)
                && evades(rule, winner, request)
                && best.is_none_or(|best| weight(rule) > weight(best))
            {
                best = Some(rule);
            }
        }
        best.map_or((outcome, winner), |rule| (Outcome::OtherRequest, Some(rule)))
    }

    fn plainly<'a>(
        rules: &'a Rules,
        place: &Place,
        port: u16,
        request: Option<(&str, &str)>,
    ) -> (Outcome, Option<&'a Rule>) {
        let best = |wanted: &dyn Fn(&Rule) -> bool| {
            let mut best: Option<&Rule> = None;
            for rule in rules.rules.iter().filter(|rule| is_about(rule, place) && wanted(rule)) {
                if best.is_none_or(|best| weight(rule) > weight(best)) {
                    best = Some(rule);
                }
            }
            best
        };
        let side = |rule: &Rule, side: Outcome| match rule.action {
            Action::Allow => side == Outcome::Allow,
            Action::Ask => side == Outcome::Ask,
            Action::Deny { .. } => side == Outcome::Deny,
        };
        for outcome in [Outcome::Deny, Outcome::Allow, Outcome::Ask] {
            let wanted =
                |rule: &Rule| side(rule, outcome) && has_port(rule, port) && fits(rule, request);
            if let Some(rule) = best(&wanted) {
                return (outcome, Some(rule));
            }
        }
        if rules.otherwise == Otherwise::Ask && matches!(place, Place::Name(_)) {
            return (Outcome::Ask, None);
        }
        let passes = |rule: &Rule| !side(rule, Outcome::Deny);
        if let Some(rule) = best(&|rule| passes(rule) && has_port(rule, port)) {
            return (Outcome::OtherRequest, Some(rule));
        }
        match best(&passes) {
            Some(rule) => (Outcome::OtherPort, Some(rule)),
            None => (Outcome::NoRule, None),
        }
    }
}

fn a_name() -> impl Strategy<Value = String> {
    let label = prop_oneof!["a", "b", "xa", "c-1"];
    prop::collection::vec(label, 1..4).prop_map(|labels| labels.join("."))
}

/// A name as a careless person writes it.
fn a_spelling() -> impl Strategy<Value = String> {
    (a_name(), any::<bool>(), any::<bool>()).prop_map(|(name, upper, dot)| {
        let name = if upper { name.to_uppercase() } else { name };
        if dot { format!("{name}.") } else { name }
    })
}

/// Private addresses only: whether public ones are asked about is said elsewhere.
fn an_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0_u8..3, 0_u8..3).prop_map(|(x, y)| Ipv4Addr::new(10, x, 0, y).into()),
        (0_u16..3, 0_u16..3).prop_map(|(x, y)| Ipv6Addr::new(0xfd12, x, 0, 0, 0, 0, 0, y).into()),
    ]
}

fn a_network() -> impl Strategy<Value = cowork_api::egress::Network> {
    (an_address(), 0_u8..=128).prop_map(|(address, bits)| {
        let bits = if address.is_ipv4() { bits.min(32) } else { bits };
        cowork_api::egress::Network { address, bits }
    })
}

fn a_host() -> impl Strategy<Value = Host> {
    prop_oneof![
        3 => a_spelling().prop_map(Host::Name),
        2 => a_spelling().prop_map(Host::Below),
        2 => a_spelling().prop_map(Host::Domain),
        2 => a_network().prop_map(Host::Network),
        1 => Just(Host::Loopback),
        1 => Just(Host::Any),
    ]
}

fn some_ports() -> impl Strategy<Value = Ports> {
    let range = (1_u16..6, 0_u16..3).prop_map(|(from, more)| (from, from + more));
    prop_oneof![
        Just(Ports::Web),
        Just(Ports::All),
        prop::collection::vec(range, 1..3).prop_map(Ports::Some),
    ]
}

fn some_requests() -> impl Strategy<Value = Vec<Request>> {
    let methods =
        prop::collection::vec(prop_oneof![Just("GET".to_owned()), Just("POST".to_owned())], 0..2);
    let path = prop_oneof!["/a", "/a/\\*", "/\\*\\*", "/a/\\*\\*/b", "/\\*/b"];
    let paths = prop::collection::vec(path, 0..2);
    let request = (methods, paths).prop_map(|(methods, paths)| Request { methods, paths });
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(request, 1..3)]
}

fn a_rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![
        3 => Just(Action::Allow),
        1 => Just(Action::Ask),
        1 => Just(Action::Deny { reason: String::new() }),
    ];
    let mode = prop_oneof![
        Just(CredentialMode::Swap),
        Just(CredentialMode::Inject),
        Just(CredentialMode::Pin)
    ];
    let credential = prop::option::weighted(0.2, mode);
    let tls =
        prop_oneof![3 => Just(Tls::AsNeeded), 1 => Just(Tls::Inspect), 1 => Just(Tls::Tunnel)];
    let extras = (credential, tls, prop::option::weighted(0.2, 1_u32..9), any::<bool>());
    (action, a_host(), some_ports(), some_requests(), extras).prop_map(
        |(action, host, ports, http, (mode, tls, connections, private))| Rule {
            name: String::new(),
            action,
            host,
            ports,
            http,
            tls,
            resolves_to: private
                .then(|| cowork_api::egress::Network {
                    address: Ipv4Addr::new(10, 0, 0, 0).into(),
                    bits: 8,
                })
                .into_iter()
                .collect(),
            credential: mode.map(|mode| Credential {
                secret: "key".into(),
                mode,
                carrier: cowork_api::egress::Carrier::Bearer,
            }),
            limits: Quota { connections, ..Quota::default() },
        },
    )
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let otherwise = prop_oneof![Just(Otherwise::Deny), Just(Otherwise::Ask)];
    (otherwise, prop::collection::vec(a_rule(), 0..8)).prop_map(|(otherwise, mut rules)| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("rule {number}");
        }
        Rules { generation: 1, otherwise, rules }
    })
}

fn a_crowd() -> impl Strategy<Value = Rules> {
    let paths = prop::collection::vec("/[ab/]{0,4}(\\*\\*?)?(/?[ab]{1,2})?", 0..3);
    let methods = prop_oneof![Just(Vec::new()), Just(vec!["GET".to_owned()])];
    let request = (methods, paths).prop_map(|(methods, paths)| Request { methods, paths });
    let http = prop::collection::vec(request, 1..3);
    let host = prop_oneof![
        8 => Just(Host::Name("api.example".into())),
        1 => Just(Host::Domain("example".into())),
        1 => Just(Host::Any),
    ];
    let ports = prop_oneof![4 => Just(Ports::Web), 1 => Just(Ports::Some(vec![(80, 80)]))];
    let rule = (a_rule(), host, ports, http).prop_map(|(rule, host, ports, http)| Rule {
        host,
        ports,
        http,
        ..rule
    });
    let otherwise = prop_oneof![Just(Otherwise::Deny), Just(Otherwise::Ask)];
    (otherwise, prop::collection::vec(rule, 0..24)).prop_map(|(otherwise, mut rules)| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("rule {number}");
        }
        Rules { generation: 1, otherwise, rules }
    })
}

fn a_place() -> impl Strategy<Value = Place> {
    prop_oneof![
        6 => a_spelling().prop_map(|name| name.parse().unwrap()),
        2 => an_address().prop_map(Place::Address),
        1 => Just(Place::HostLoopback),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_index_decides_as_the_rules_say(
        rules in some_rules(),
        place in a_place(),
        port in prop_oneof![1_u16..9, Just(80), Just(443)],
        method in prop_oneof!["GET", "POST", "post", "PUT"],
        path in prop_oneof!["/a", "/a/b", "/a/x/b", "/", "/%61/b\\?q", "/a/\\.\\./b", "/a//b", "\\*"],
    ) {
        let matcher = Matcher::new(rules.clone());
        for request in [None, Some((method.as_str(), path.as_str()))] {
            let expected = naive::decide(&rules, &place, port, request);
            let verdict = match request {
                None => matcher.connection(&place, port),
                Some((method, path)) => matcher.request(&place, port, method, path),
            };
            let name = |rule: Option<&Rule>| rule.map(|rule| rule.name.clone());
            prop_assert_eq!(
                (verdict.outcome, name(verdict.rule)),
                (expected.0, name(expected.1)),
                "{} {} {:?}", place, port, request
            );
            let explained = matcher.explain(&place, port, request);
            prop_assert!(!explained.sentence.is_empty() && !explained.code.is_empty());
        }
    }

    /// Many rules about paths of one host, which are found by what the paths begin with.
    #[test]
    fn many_rules_about_one_host_decide_as_they_say(
        rules in a_crowd(),
        method in prop_oneof![4 => Just("GET"), 1 => Just("get"), 1 => Just("PUT")],
        path in prop_oneof![6 => "/[ab]{0,2}(/[ab]{1,2}){0,3}", 1 => "/[ab/]{0,6}"],
        port in prop_oneof![3 => Just(443_u16), 1 => Just(80)],
    ) {
        let matcher = Matcher::new(rules.clone());
        let place: Place = "api.example".parse().unwrap();
        let expected = naive::decide(&rules, &place, port, Some((method, &path)));
        let verdict = matcher.request(&place, port, method, &path);
        let name = |rule: Option<&Rule>| rule.map(|rule| rule.name.clone());
        prop_assert_eq!(
            (verdict.outcome, name(verdict.rule)),
            (expected.0, name(expected.1)),
            "{} {} {}", method, path, port
        );
    }

    /// What passes is never carried past a rule that has something to say about its requests.
    #[test]
    fn what_is_carried_blindly_passes_as_a_whole(
        rules in some_rules(),
        place in a_place(),
        port in prop_oneof![1_u16..9, Just(80), Just(443)],
    ) {
        let matcher = Matcher::new(rules.clone());
        let about = |rule: &&Rule| naive::is_about(rule, &place) && naive::has_port(rule, port);
        if matcher.treatment(&place, port) == Treatment::Inspect {
            let asks = |rule: &Rule| {
                rule.tls == Tls::Inspect || rule.credential.is_some() || !rule.http.is_empty()
            };
            prop_assert!(rules.rules.iter().filter(about).any(asks));
            return Ok(());
        }
        prop_assert!(rules.rules.iter().filter(about).all(|rule| rule.credential.is_none()));
        let connection = matcher.connection(&place, port).outcome;
        for (method, path) in [("GET", "/a"), ("POST", "/a/b"), ("PUT", "/x/../y"), ("x", "*")] {
            let request = matcher.request(&place, port, method, path).outcome;
            prop_assert_eq!(request, connection, "{} {}", method, path);
        }
    }

    #[test]
    fn a_name_is_known_if_some_port_of_it_passes(rules in some_rules(), place in a_place()) {
        let matcher = Matcher::new(rules.clone());
        let passes = |port: u16| {
            matches!(naive::decide(&rules, &place, port, None).0, Outcome::Allow | Outcome::Ask)
        };
        let mut ports = (1..=12).chain([79, 80, 81, 442, 443, 444, 9999, u16::MAX]);
        prop_assert_eq!(matcher.knows(&place), ports.any(passes), "{}", place);
    }

    /// Listeners are there for every port of a rule that can be reached.
    #[test]
    fn every_reachable_port_has_a_listener(rules in some_rules(), place in a_place(), port in 1_u16..9) {
        let matcher = Matcher::new(rules.clone());
        let verdict = matcher.connection(&place, port);
        let everywhere = verdict.rule.is_none_or(|rule| rule.ports == Ports::All);
        if matches!(verdict.outcome, Outcome::Allow | Outcome::Ask) && !everywhere {
            prop_assert!(matcher.ports().contains(&port));
        }
    }
}

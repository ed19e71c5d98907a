//! Tests of hosts: what is allowed, what is refused, and in which order.

use super::rules;
use crate::settings::Settings;
use cowork_api::egress::{Otherwise, Rules, Tls};
use cowork_policy::egress::{Matcher, Outcome, Place, rule};

fn parts(network: &str) -> Vec<super::RuleParts> {
    let text = format!(
        "{{\"network\": {network}, \"filesystem\": {{\"denyRead\": [], \"allowWrite\": [], \
         \"denyWrite\": []}}}}"
    );
    rules(&Settings::parse(&text).unwrap().settings.network).unwrap()
}

fn matcher(network: &str) -> Matcher {
    let rules = parts(network).iter().map(|parts| rule::build(parts).unwrap()).collect();
    Matcher::new(Rules { generation: 1, otherwise: Otherwise::Deny, rules })
}

#[test]
fn denials_come_first_and_the_rest_is_refused() {
    let matcher = matcher(
        r#"{"allowedDomains": ["example.com", "*.example.org", "git.example.net:22", "10.1.2.3:80",
            "[2001:db8::1]"],
            "deniedDomains": ["bad.example.org", "*:25", "10.9.9.9"],
            "deniedDomainReasons": {"bad.example.org": "ask ada first", "*:26": "never"}}"#,
    );
    for (place, port, outcome) in [
        ("example.com", 443, Outcome::Allow),
        ("EXAMPLE.com.", 8443, Outcome::Allow),
        ("example.com", 22, Outcome::Allow),
        ("example.com", 25, Outcome::Deny),
        ("www.example.com", 443, Outcome::NoRule),
        ("a.example.org", 443, Outcome::Allow),
        ("example.org", 443, Outcome::NoRule),
        ("bad.example.org", 443, Outcome::Deny),
        ("git.example.net", 22, Outcome::Allow),
        ("git.example.net", 443, Outcome::OtherPort),
        ("10.1.2.3", 80, Outcome::Allow),
        ("10.1.2.3", 81, Outcome::OtherPort),
        ("10.9.9.9", 80, Outcome::Deny),
        ("2001:db8::1", 443, Outcome::Allow),
        ("other.example", 443, Outcome::NoRule),
        ("xexample.com", 443, Outcome::NoRule),
        ("example.com.evil.net", 443, Outcome::NoRule),
    ] {
        let place: Place = place.parse().unwrap();
        assert_eq!(matcher.connection(&place, port).outcome, outcome, "{place}:{port}");
    }
    let refused: Place = "bad.example.org".parse().unwrap();
    let rule = matcher.connection(&refused, 443).rule.unwrap();
    assert_eq!(format!("{:?}", rule.action), "Deny { reason: \"ask ada first\" }");
}

#[test]
fn names_lead_to_private_addresses_but_not_to_denied_ones() {
    let matcher = matcher(
        r#"{"allowedDomains": ["db.example.com", "10.0.0.7:5432"], "deniedDomains": [],
            "deniedResolvedAddresses": ["10.0.0.0/24", "fc00::/7"]}"#,
    );
    let name: Place = "db.example.com".parse().unwrap();
    let rule = matcher.connection(&name, 5432).rule.unwrap();
    let judged = |text: &str| {
        cowork_policy::egress::address::judge(rule, text.parse().unwrap(), &[]).is_ok()
    };
    assert!(judged("10.20.0.1") && judged("192.168.0.1") && judged("93.184.216.34"));
    assert!(!judged("127.0.0.1") && !judged("169.254.169.254") && !judged("::1"));
    for (place, port, outcome) in [
        ("10.0.0.6", 5432, Outcome::Deny),
        ("10.0.0.8", 1, Outcome::Deny),
        ("10.0.0.7", 5432, Outcome::Allow),
        ("10.0.0.7", 5431, Outcome::Deny),
        ("10.0.0.7", 5433, Outcome::Deny),
        ("10.0.1.1", 80, Outcome::NoRule),
        ("fd00::1", 80, Outcome::Deny),
    ] {
        let place: Place = place.parse().unwrap();
        assert_eq!(matcher.connection(&place, port).outcome, outcome, "{place}:{port}");
    }
}

#[test]
fn tls_is_looked_into_except_for_what_is_excluded() {
    let tls: Vec<(String, Tls)> = parts(
        r#"{"allowedDomains": ["a.example.com", "*.example.org", "b.example.com", "10.0.0.1"],
            "deniedDomains": [],
            "tlsTerminate": {"excludeDomains": ["b.example.com", "x.example.org"]}}"#,
    )
    .into_iter()
    .map(|parts| (parts.host, parts.tls))
    .collect();
    let expected = [
        ("a.example.com:*", Tls::Inspect),
        ("*.example.org:*", Tls::AsNeeded),
        ("b.example.com:*", Tls::AsNeeded),
        ("10.0.0.1:*", Tls::AsNeeded),
    ];
    assert_eq!(tls, expected.map(|(host, tls)| (host.to_owned(), tls)));
}

#[test]
fn the_host_itself_has_another_name_in_a_session() {
    let hosts: Vec<String> =
        parts(r#"{"allowedDomains": ["localhost:3000", "localhost"], "deniedDomains": []}"#)
            .into_iter()
            .map(|parts| parts.host)
            .collect();
    assert_eq!(hosts, ["host:3000", "host:*"]);
}

#[test]
fn a_secret_goes_to_the_hosts_that_are_named() {
    let settings = |exclude: &str| {
        let text = format!(
            "{{\"network\": {{\"allowedDomains\": [\"a.example.com\", \"*.example.org:443\", \
             \"10.0.0.1\"], \"deniedDomains\": [], \"tlsTerminate\": {{\"excludeDomains\": \
             [{exclude}]}}}}, \"filesystem\": {{\"denyRead\": [], \"allowWrite\": [], \
             \"denyWrite\": []}}}}"
        );
        Settings::parse(&text).unwrap().settings.network
    };
    let hosts = |exclude: &str, hosts: Option<&[&str]>| {
        let purpose = crate::domain::Purpose::Hosts;
        let domain = |text: &&str| super::Domain::parse(text, purpose).unwrap();
        let hosts: Option<Vec<_>> = hosts.map(|hosts| hosts.iter().map(domain).collect());
        let rules = super::with_secret(&settings(exclude), hosts.as_deref(), "s");
        rules.map(|rules| rules.into_iter().map(|parts| parts.host).collect::<Vec<_>>())
    };
    assert_eq!(hosts("", None).unwrap(), ["a.example.com:*", "*.example.org:443"]);
    assert_eq!(hosts("", Some(&["x.example.org"])).unwrap(), ["x.example.org:443"]);
    assert_eq!(hosts("\"a.example.com\"", None).unwrap(), ["*.example.org:443"]);
    let error = hosts("\"x.example.org\"", None).unwrap_err();
    assert!(error.contains("cowork cannot honour it for `*.example.org:443`"), "{error}");
}

//! Measures how long a decision takes with 1,000 rules; prints the median in nanoseconds.
//!
//! `cargo run --release -p cowork-policy --example matcher`

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a measurement prints its results")]

use cowork_api::egress::{Otherwise, Rules};
use cowork_policy::egress::rule::{RuleError, RuleParts, Verb, build};
use cowork_policy::egress::{HostNameError, Matcher, Place};
use std::hint::black_box;
use std::time::Instant;

/// Rounds that the median is taken of, and decisions in each.
const ROUNDS: usize = 201;
const DECISIONS: u32 = 1000;

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Stopped {
    Rule(#[from] RuleError),
    Name(#[from] HostNameError),
}

/// Rules of every kind: most about names, some about domains, ranges, methods and paths.
fn rules(count: usize) -> Result<Rules, RuleError> {
    let text = |number: usize| match number % 10 {
        0 => (Verb::Allow, format!("*.domain{number}.example")),
        1 => (Verb::Allow, format!("**.deep.domain{number}.example")),
        2 => (Verb::Allow, format!("10.{}.{}.0/24:22", number / 256, number % 256)),
        3 => (Verb::Deny, format!("host{number}.example")),
        4 => (Verb::Allow, format!("GET,HEAD https://api{number}.example/v1/*/items/**")),
        5 => (Verb::Ask, format!("ask{number}.example:8443")),
        _ => (Verb::Allow, format!("host{number}.example")),
    };
    let rule = |number| {
        let (verb, host) = text(number);
        build(&RuleParts::new(verb, host))
    };
    let rules = (0..count).map(rule).collect::<Result<_, _>>()?;
    Ok(Rules { generation: 1, otherwise: Otherwise::Deny, rules })
}

/// The median time of one decision.
fn median(mut decide: impl FnMut()) -> u128 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..DECISIONS {
            decide();
        }
        start.elapsed().as_nanos() / u128::from(DECISIONS)
    };
    let mut times: Vec<u128> = (0..ROUNDS).map(round).collect();
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}

/// As many rules as there can be, all about paths of one host.
fn crowd() -> Result<(), Stopped> {
    let rule = |number| {
        build(&RuleParts::new(Verb::Allow, format!("GET https://api.example/v1/{number}/**")))
    };
    let rules = (0..1000).map(rule).collect::<Result<_, _>>()?;
    let matcher = Matcher::new(Rules { generation: 1, otherwise: Otherwise::Deny, rules });
    let place: Place = "api.example".parse()?;
    let connection = median(|| {
        black_box(matcher.connection(black_box(&place), 443));
    });
    println!("1000 rules about one host");
    println!("  {:<24} {connection:>6} ns", "a name");
    for path in ["/v1/999/x", "/v1/1000/x", "/v2/other"] {
        let request = median(|| {
            black_box(matcher.request(black_box(&place), 443, "GET", black_box(path)));
        });
        println!("  {:<24} {request:>6} ns", format!("GET {path}"));
    }
    Ok(())
}

fn main() -> Result<(), Stopped> {
    for count in [10, 100, 1000] {
        let matcher = Matcher::new(rules(count)?);
        let last = count - 10;
        let places = [
            ("a name", format!("host{}.example", last + 6)),
            ("a denied name", format!("host{}.example", last + 3)),
            ("a name below a domain", format!("a.b.c.d.domain{last}.example")),
            ("an address", format!("10.{}.{}.9", (last + 2) / 256, (last + 2) % 256)),
            ("an unknown name", "a.b.c.d.e.f.unknown.example".to_owned()),
        ];
        println!("{count} rules");
        for (what, text) in places {
            let place: Place = text.parse()?;
            let connection = median(|| {
                black_box(matcher.connection(black_box(&place), 443));
            });
            println!("  {what:<24} {connection:>6} ns");
        }
        let api: Place = format!("api{}.example", last + 4).parse()?;
        for path in ["/v1/things/items/1/2/3", "/v1/th%69ngs/items/1/2/3", "/v2/other"] {
            let request = median(|| {
                black_box(matcher.request(black_box(&api), 443, "GET", black_box(path)));
            });
            println!("  {:<24} {request:>6} ns", format!("GET {path}"));
        }
        let treatment = median(|| {
            black_box(matcher.treatment(black_box(&api), 443));
        });
        println!("  {:<24} {treatment:>6} ns", "how it is carried");
    }
    crowd()
}

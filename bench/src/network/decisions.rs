//! How long a decision takes, where a session has as many rules as it can have.

use crate::book::Book;
use crate::options::Effort;
use crate::stopped::Stopped;
use cowork_api::egress::{Otherwise, Rules};
use cowork_policy::egress::rule::{RuleParts, Verb, build};
use cowork_policy::egress::{Matcher, Place};
use std::hint::black_box;
use std::time::Instant;

/// A request to one of many hosts.
pub(crate) const OF_HOSTS: &str = "decision: 1,000 rules about hosts";
/// A request to one of many paths.
pub(crate) const OF_PATHS: &str = "decision: 1,000 rules about paths of one host";
/// The same to a path that no rule is about.
pub(crate) const OF_OTHERS: &str = "decision: 1,000 rules about other paths of the host";

/// How many rules there are, and how many decisions are timed together.
const RULES: u32 = 1000;
const TOGETHER: u32 = 1000;

pub(super) fn measure(effort: Effort, book: &mut Book) -> Result<(), Stopped> {
    let last = RULES - 1;
    let hosts = matcher(|number| format!("GET https://api{number}.example/v1/*/items/**"))?;
    let paths = matcher(|number| format!("GET https://api.example/v1/{number}/**"))?;
    let of_last = format!("api{last}.example");
    for (row, matcher, host, path) in [
        (OF_HOSTS, &hosts, of_last.as_str(), "/v1/things/items/1".to_owned()),
        (OF_PATHS, &paths, "api.example", format!("/v1/{last}/x")),
        (OF_OTHERS, &paths, "api.example", "/v2/x".to_owned()),
    ] {
        let place: Place = host.parse().map_err(|error| Stopped::at(host, error))?;
        for _ in 0..effort.pick(21, 201) {
            let begin = Instant::now();
            for _ in 0..TOGETHER {
                black_box(matcher.request(black_box(&place), 443, "GET", black_box(&path)));
            }
            book.took(row, begin.elapsed() / TOGETHER);
        }
    }
    Ok(())
}

fn matcher(text: impl Fn(u32) -> String) -> Result<Matcher, Stopped> {
    let rule = |number| build(&RuleParts::new(Verb::Allow, text(number)));
    let rules = (0..RULES).map(rule).collect::<Result<_, _>>();
    let rules = rules.map_err(|error| Stopped::at("a rule", error))?;
    Ok(Matcher::new(Rules { generation: 1, otherwise: Otherwise::Deny, rules }))
}

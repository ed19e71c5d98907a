//! The names that rules are shown by.

use super::{Verb, host};
use cowork_api::egress::{Host, Ports, Request, Rule};

/// Most characters of a name.
const MOST: usize = 160;

/// What people know a rule by: `allow example.com`, `preset github: api.github.com`.
///
/// What a rule without several paths is shown by can be written after its verb again, and is the
/// same rule then.
pub(super) fn name(preset: Option<&str>, verb: Verb, rule: &Rule) -> String {
    let front = match preset {
        Some(preset) => format!("preset {preset}: "),
        None => format!("{} ", verb.word()),
    };
    let host = host::shown_host(&rule.host);
    let name = match rule.http.as_slice() {
        [] => format!("{front}{host}{}", ports(verb, rule)),
        [one] => match (url(&host, rule, one), one.paths.is_empty()) {
            (Some(url), _) => format!("{front}{}{url}", methods(one)),
            (None, true) => format!("{front}{}{host}{}", methods(one), ports(verb, rule)),
            (None, false) => format!("{front}{host}{} {}", ports(verb, rule), request(one)),
        },
        several => {
            let requests: Vec<String> = several.iter().map(request).collect();
            format!("{front}{host}{} {}", ports(verb, rule), requests.join("; "))
        }
    };
    shortened(name)
}

/// The rule as an address, if it is about one path on the one port of its scheme.
fn url(host: &str, rule: &Rule, request: &Request) -> Option<String> {
    let [path] = request.paths.as_slice() else { return None };
    let Ports::Some(ranges) = &rule.ports else { return None };
    let scheme = match ranges.as_slice() {
        [(443, 443)] => "https",
        [(80, 80)] => "http",
        _ => return None,
    };
    let written = path != "/" && !matches!(rule.host, Host::Loopback);
    written.then(|| format!("{scheme}://{host}{path}"))
}

fn ports(verb: Verb, rule: &Rule) -> String {
    let default = match verb {
        Verb::Deny => Ports::All,
        Verb::Allow | Verb::Ask => Ports::Web,
    };
    if rule.ports == default && !matches!(rule.host, Host::Loopback) {
        return String::new();
    }
    format!(":{}", host::shown_ports(&rule.ports))
}

fn methods(request: &Request) -> String {
    if request.methods.is_empty() {
        return String::new();
    }
    format!("{} ", request.methods.join(","))
}

fn request(request: &Request) -> String {
    let words = [methods(request), request.paths.join(" ")];
    words.concat().trim_end().to_owned()
}

fn shortened(name: String) -> String {
    if name.chars().count() <= MOST {
        return name;
    }
    // Two long names that begin alike still differ by what they end with.
    let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let front: String = name.chars().take(MOST - 20).collect();
    format!("{front}… ({number:016x})")
}

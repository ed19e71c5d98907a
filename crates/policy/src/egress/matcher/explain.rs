//! A decision in words: for `cowork net explain`, and for whoever is refused.

use super::super::address;
use super::super::name::Place;
use super::{Matcher, Outcome, Treatment};
use cowork_api::egress::{Action, Rule};

/// A decision, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What becomes of it.
    pub outcome: Outcome,
    /// A stable word: `allowed`, `ask`, `denied-by-rule`, `no-rule`, `port`, `request`,
    /// `local-address`, `private-address`.
    pub code: &'static str,
    /// The name of the rule that decides.
    pub rule: Option<String>,
    /// How it is carried, where it passes or the user may let it pass.
    pub treatment: Option<Treatment>,
    /// The sentence.
    pub sentence: String,
    /// What can be done about it; empty if nothing need or can be.
    pub hint: String,
}

impl Matcher {
    /// What would be decided about a connection or, with a method and a path, about a request.
    ///
    /// Where a name leads is not known here; where an address is named, it is judged as if it were
    /// none of this host's.
    pub fn explain(&self, place: &Place, port: u16, request: Option<(&str, &str)>) -> Explanation {
        let verdict = match request {
            Some((method, path)) => self.request(place, port, method, path),
            None => self.connection(place, port),
        };
        let passes = matches!(verdict.outcome, Outcome::Allow | Outcome::Ask);
        let mut explanation = explain(verdict.outcome, place, port, verdict.rule);
        explanation.treatment = passes.then(|| self.treatment(place, port));
        if let (Place::Address(address), Some(rule), true) = (place, verdict.rule, passes)
            && let Err(forbidden) = address::judge(rule, *address, &[])
        {
            explanation.outcome = Outcome::Deny;
            explanation.code = forbidden.code();
            explanation.treatment = None;
            explanation.sentence =
                format!("{place} is reached only by a rule for exactly this address");
            explanation.hint = allow(&format!("{}:{port}", place.bracketed()));
        }
        explanation
    }
}

/// A decision in words, without how it is carried.
pub(super) fn explain(
    outcome: Outcome,
    place: &Place,
    port: u16,
    rule: Option<&Rule>,
) -> Explanation {
    let name = rule.map(|rule| rule.name.clone());
    let by = name.as_deref().map_or(String::new(), |name| format!(" (`{name}`)"));
    let shown = place.bracketed();
    let (code, sentence, hint) = match outcome {
        Outcome::Allow => {
            ("allowed", format!("{shown} may be reached on port {port}{by}"), String::new())
        }
        Outcome::Ask => (
            "ask",
            format!("the user is asked whether {shown} may be reached on port {port}{by}"),
            String::new(),
        ),
        Outcome::Deny => {
            let reason = match rule.map(|rule| &rule.action) {
                Some(Action::Deny { reason }) => reason.clone(),
                _ => String::new(),
            };
            let colon = if reason.is_empty() { "" } else { ": " };
            let sentence = format!("a rule refuses {shown}{by}{colon}{reason}");
            ("denied-by-rule", sentence, "do not try again".to_owned())
        }
        Outcome::NoRule => {
            ("no-rule", format!("no rule allows {shown}"), allow(&place.in_rule(port)))
        }
        Outcome::OtherPort => (
            "port",
            format!("{shown} may be reached, but not on port {port}{by}"),
            allow(&place.with_port(port)),
        ),
        Outcome::OtherRequest => (
            "request",
            format!("{shown} may be reached, but not with this method and path{by}"),
            "the rules name the methods and paths that pass".to_owned(),
        ),
    };
    Explanation { outcome, code, rule: name, treatment: None, sentence, hint }
}

fn allow(what: &str) -> String {
    format!("the user can allow it: `cowork allow SESSION {what}`")
}

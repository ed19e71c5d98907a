//! Why something does not pass, in words and in the codes of each protocol.

use crate::desk::MAX_ASKS;
use cowork_api::egress::{Action, Rule, Target};
use cowork_policy::egress::{Outcome, Place};

/// Longest phrase behind a status, in characters.
const MAX_PHRASE: usize = 200;

/// Why something does not pass, as whoever wants it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A stable word: `no-rule`, `denied-by-rule`, `port`, `request`, `rejected`, `unanswered`,
    /// `nobody-to-ask`, `private-address`, `unreachable`, ….
    pub code: &'static str,
    /// The sentence.
    pub sentence: String,
    /// What to do about it.
    pub hint: String,
    /// The rule that refused it, by name.
    pub rule: Option<String>,
}

impl Refusal {
    /// A refusal that no rule names.
    pub fn new(code: &'static str, sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), hint: hint.into(), rule: None }
    }

    /// What rules refuse.
    pub fn by_rules(outcome: Outcome, place: &Place, port: u16, rule: Option<&Rule>) -> Self {
        let (code, sentence, hint) = match outcome {
            Outcome::Deny => {
                let reason = rule.map(|rule| match &rule.action {
                    Action::Deny { reason } => reason.clone(),
                    Action::Allow | Action::Ask => String::new(),
                });
                ("denied-by-rule", format!("a rule refuses {place}"), reason.unwrap_or_default())
            }
            Outcome::OtherPort => (
                "port",
                format!("{place} may be reached, but not on port {port}"),
                format!("the user can allow it: `cowork allow SESSION {}`", place.with_port(port)),
            ),
            Outcome::OtherRequest => (
                "request",
                format!("{place} may be reached, but not with this request"),
                "the rules name the methods and paths that pass".to_owned(),
            ),
            Outcome::Allow | Outcome::Ask | Outcome::NoRule => (
                "no-rule",
                format!("no rule allows {place}"),
                format!("the user can allow it: `cowork allow SESSION {}`", place.in_rule(port)),
            ),
        };
        Self { code, sentence, hint, rule: rule.map(|rule| rule.name.clone()) }
    }

    /// Why, as the phrase behind the status: many programs show nothing else of what a proxy refuses.
    /// It is one line, whatever a reason says.
    pub(crate) fn phrase(&self) -> String {
        let said = if self.code == "denied-by-rule" && !self.hint.is_empty() {
            &self.hint
        } else {
            &self.sentence
        };
        let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
        said.chars().take(MAX_PHRASE).map(plain).collect()
    }

    /// The same, for people who know the session by this id.
    pub(crate) fn in_session(mut self, id: &str) -> Self {
        self.hint = self.hint.replace(" SESSION ", &format!(" {id} "));
        self
    }

    /// What the user refused.
    pub(crate) fn rejected(place: &Place, reason: &str) -> Self {
        Self::new("rejected", format!("the user does not allow {place}"), reason)
    }

    /// What the user has not answered in time.
    pub(crate) fn unanswered(host: &str) -> Self {
        let sentence = format!("the user has not said whether {host} may be reached");
        Self::new("unanswered", sentence, "try again later; the question is kept")
    }

    /// What nobody can be asked about.
    pub(crate) fn nobody(place: &Place, port: u16) -> Self {
        let sentence = format!("no rule allows {place}, and nobody is there to be asked");
        let rule = place.in_rule(port);
        let hint = format!("trying again changes nothing; `cowork allow SESSION {rule}` does");
        Self::new("nobody-to-ask", sentence, hint)
    }

    /// What the user is not asked, because of other questions.
    pub(crate) fn too_many_asks() -> Self {
        let sentence = format!("{MAX_ASKS} questions wait for the user already");
        Self::new("too-many-asks", sentence, "try again when the user has answered")
    }

    /// What cannot be recorded.
    pub(crate) fn unrecordable() -> Self {
        let sentence = "nothing passes before the daemon has taken what was recorded";
        Self::new("unrecordable", sentence, "try again in a moment")
    }

    /// What rules no longer let pass.
    pub(crate) fn revoked(place: &Place) -> Self {
        Self::new("revoked", format!("rules no longer allow {place}"), "")
    }

    /// What is no host.
    pub(crate) fn no_host(text: &str, why: &impl std::fmt::Display) -> Self {
        Self::new("bad-host", format!("{text:?} is no host"), why.to_string())
    }

    /// The status of an HTTP answer that says so.
    pub fn status(&self) -> u16 {
        match self.code {
            "bad-host" | "bad-request" => 400,
            "no-such-name" | "too-many-lookups" | "unreachable" | "refused-by-host" | "parent"
            | "parent-connect" => 502,
            "too-many-connections" => 503,
            "timed-out" => 504,
            "quota-requests" | "quota-connections" | "quota-upload" => 429,
            _ => 403,
        }
    }

    /// Seconds after which trying again makes sense.
    pub(crate) fn again(&self) -> Option<u64> {
        match self.code {
            "unanswered" | "too-many-asks" | "too-many-connections" => Some(15),
            "quota-requests" | "quota-upload" | "quota-connections" => {
                let mut words = self.hint.split(' ');
                Some(words.find_map(|word| word.parse().ok()).unwrap_or(1))
            }
            _ => None,
        }
    }

    /// The code of a SOCKS answer that says so (RFC 1928 §6).
    pub(crate) fn socks(&self) -> u8 {
        match self.code {
            "bad-host" | "parent" | "parent-connect" => 1,
            "no-such-name" | "too-many-lookups" | "timed-out" => 4,
            "unreachable" => 3,
            "refused-by-host" => 5,
            _ => 2,
        }
    }

    /// The body of an HTTP answer that says so, in JSON.
    pub fn body(&self, target: &Target) -> String {
        let error = serde_json::json!({
            "code": self.code,
            "host": target.host,
            "port": target.port,
            "method": target.method,
            "path": target.path,
            "rule": self.rule,
            "sentence": self.sentence,
            "hint": self.hint,
        });
        format!("{}\n", serde_json::json!({ "error": error }))
    }
}

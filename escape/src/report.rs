//! What came of an attack, and the table of all of them.

use cowork_testbed::Person;
use std::fmt;

/// A profile of sessions, by its name on the command line.
pub(crate) const PROFILES: [&str; 2] = ["strict", "nested"];

/// What came of an attack in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It won on the bare host and lost in the session; the text names the layer that stopped it.
    Contained(String),
    /// It won in the session. The text says what was observed.
    Escaped(String),
    /// It did not win on the bare host, so nothing is proven.
    Vacuous(String),
    /// It is allowed there on purpose; the text says why.
    ByDesign(String),
    /// It could not be tried here; the text says why. Counted, and shown.
    NotRun(String),
}

/// One attack in one kind of session.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The class of attack.
    pub class: &'static str,
    /// What is attempted.
    pub attack: String,
    /// Who made the session.
    pub person: Person,
    /// Its profile.
    pub profile: &'static str,
    /// What came of it.
    pub verdict: Verdict,
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Contained(_) => "contained",
            Self::Escaped(_) => "ESCAPED",
            Self::Vacuous(_) => "VACUOUS",
            Self::ByDesign(_) => "by design",
            Self::NotRun(_) => "not run",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Contained(text)
            | Self::Escaped(text)
            | Self::Vacuous(text)
            | Self::ByDesign(text)
            | Self::NotRun(text) => text,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, attack, person, profile, verdict } = self;
        let person = match person {
            Person::Root => "root",
            Person::User => "user",
        };
        let (word, text) = (verdict.word(), verdict.text());
        write!(f, "{class:<12} {attack:<44} {person:<4} {profile:<6} {word:<9} {text}")
    }
}

/// How many rows came out which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Contained, or allowed on purpose.
    pub passed: usize,
    /// Escaped, or proving nothing.
    pub failed: usize,
    /// Not run.
    pub skipped: usize,
}

impl Totals {
    /// Counts rows.
    pub(crate) fn of(rows: &[Row]) -> Self {
        rows.iter().fold(Self::default(), |totals, row| match row.verdict {
            Verdict::Contained(_) | Verdict::ByDesign(_) => {
                Self { passed: totals.passed + 1, ..totals }
            }
            Verdict::Escaped(_) | Verdict::Vacuous(_) => {
                Self { failed: totals.failed + 1, ..totals }
            }
            Verdict::NotRun(_) => Self { skipped: totals.skipped + 1, ..totals },
        })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict) -> Row {
        let person = Person::User;
        Row { class: "class", attack: "attack".into(), person, profile: "strict", verdict }
    }

    #[test]
    fn an_attack_that_proves_nothing_is_a_failure() {
        let text = || "text".to_owned();
        let rows = [
            row(Verdict::Contained(text())),
            row(Verdict::ByDesign(text())),
            row(Verdict::Escaped(text())),
            row(Verdict::Vacuous(text())),
            row(Verdict::NotRun(text())),
        ];
        assert_eq!(Totals::of(&rows).to_string(), "2 passed, 2 failed, 1 skipped");
    }
}

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
    /// It lost in the session, but not to a layer that is known to stop it: what was in its way may
    /// not always be there.
    Unexpected(String),
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
    /// How it came to be.
    pub way: &'static str,
    /// What came of it.
    pub verdict: Verdict,
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Contained(_) => "contained",
            Self::Escaped(_) => "ESCAPED",
            Self::Vacuous(_) => "VACUOUS",
            Self::Unexpected(_) => "UNEXPECTED",
            Self::ByDesign(_) => "by design",
            Self::NotRun(_) => "not run",
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Contained(text)
            | Self::Escaped(text)
            | Self::Vacuous(text)
            | Self::Unexpected(text)
            | Self::ByDesign(text)
            | Self::NotRun(text) => text,
        }
    }
}

/// As the table names a person.
pub(crate) fn name_of(person: Person) -> &'static str {
    match person {
        Person::Root => "root",
        Person::User => "user",
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, attack, person, profile, way, verdict } = self;
        let person = name_of(*person);
        let (word, text) = (verdict.word(), verdict.text());
        write!(f, "{class:<12} {attack:<44} {person:<4} {profile:<6} {way:<9} {word:<10} {text}")
    }
}

/// How many rows came out which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Contained, or allowed on purpose.
    pub passed: usize,
    pub escaped: usize,
    pub vacuous: usize,
    pub unexpected: usize,
    pub skipped: usize,
}

impl Totals {
    /// Counts rows.
    pub(crate) fn of(rows: &[Row]) -> Self {
        let mut totals = Self::default();
        for row in rows {
            *match row.verdict {
                Verdict::Contained(_) | Verdict::ByDesign(_) => &mut totals.passed,
                Verdict::Escaped(_) => &mut totals.escaped,
                Verdict::Vacuous(_) => &mut totals.vacuous,
                Verdict::Unexpected(_) => &mut totals.unexpected,
                Verdict::NotRun(_) => &mut totals.skipped,
            } += 1;
        }
        totals
    }

    /// Whether something was proven, and nothing refuted.
    pub(crate) fn is_proof(&self) -> bool {
        self.passed > 0 && self.escaped + self.vacuous + self.unexpected == 0
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, escaped, vacuous, unexpected, skipped } = self;
        write!(
            f,
            "{passed} passed, {escaped} escaped, {vacuous} vacuous, {unexpected} unexpected, \
             {skipped} not run"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict) -> Row {
        let (person, attack) = (Person::User, "attack".to_owned());
        Row { class: "class", attack, person, profile: "strict", way: "daemon", verdict }
    }

    #[test]
    fn an_attack_that_proves_nothing_is_a_failure() {
        let text = || "text".to_owned();
        let rows = [
            row(Verdict::Contained(text())),
            row(Verdict::ByDesign(text())),
            row(Verdict::Escaped(text())),
            row(Verdict::Vacuous(text())),
            row(Verdict::Unexpected(text())),
            row(Verdict::NotRun(text())),
        ];
        let totals = Totals::of(&rows);
        let said = "2 passed, 1 escaped, 1 vacuous, 1 unexpected, 1 not run";
        assert_eq!((totals.to_string().as_str(), totals.is_proof()), (said, false));
        for failed in 2..5 {
            let rows = [rows[0].clone(), rows[failed].clone()];
            assert!(!Totals::of(&rows).is_proof(), "{}", rows[1]);
        }
        assert!(Totals::of(&[rows[0].clone(), rows[5].clone()]).is_proof());
        assert!(!Totals::of(&rows[5..]).is_proof(), "nothing was tried");
    }
}

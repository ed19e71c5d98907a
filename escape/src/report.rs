//! What came of an attack, and the table of all of them.

use cowork_testbed::Person;

/// A profile of sessions, by its name on the command line.
pub const PROFILES: [&str; 2] = ["strict", "nested"];

/// What came of an attack in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
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
pub struct Row {
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

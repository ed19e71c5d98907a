//! `cowork doctor`: what this host can do, what follows, and what to do about it.

use crate::arguments::Doctor;
use crate::failure::{Failure, OWN, plain};
use cowork_api::keeper::{Fact, Grade, Reply, Request};
use cowork_sandbox::client::{ClientError, Keeper};
use std::fmt::Write as _;
use std::process::ExitCode;

/// Asks the keeper to look at the host, and prints what it found. Fails if sessions cannot start.
pub(crate) fn doctor(options: &Doctor) -> Result<ExitCode, Failure> {
    let mut keeper = Keeper::start()?;
    let (Reply::Surveyed(facts), _) = keeper.call(Request::Survey)? else {
        return Err(ClientError::Gone("keeper").into());
    };
    drop(keeper);
    let text = if options.json { json(&facts) } else { table(&facts) };
    crate::print(text.as_bytes())?;
    let blocked = facts.iter().any(|fact| fact.grade == Grade::Blocking);
    Ok(if blocked { ExitCode::from(OWN) } else { ExitCode::SUCCESS })
}

fn table(facts: &[Fact]) -> String {
    let mut out = String::new();
    for fact in facts {
        let grade = grade(fact.grade);
        // Writing to a string cannot fail.
        cowork_sys::ignore(writeln!(out, "{grade:<8} {:<20} {}", fact.name, plain(&fact.value)));
        cowork_sys::ignore(writeln!(out, "{:29} {}", "", plain(&fact.consequence)));
        if !fact.fix.is_empty() {
            cowork_sys::ignore(writeln!(out, "{:29} fix: {}", "", plain(&fact.fix)));
        }
    }
    out
}

fn grade(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Reduced => "reduced",
        Grade::Blocking => "BLOCKING",
    }
}

fn json(facts: &[Fact]) -> String {
    let mut out = String::from("[\n");
    for (index, fact) in facts.iter().enumerate() {
        let fields = [
            ("name", fact.name.as_str()),
            ("value", &fact.value),
            ("grade", grade(fact.grade)),
            ("consequence", &fact.consequence),
            ("fix", &fact.fix),
        ];
        let fields = fields.map(|(name, value)| format!("{}: {}", quote(name), quote(value)));
        let comma = if index + 1 < facts.len() { "," } else { "" };
        cowork_sys::ignore(writeln!(out, "  {{{}}}{comma}", fields.join(", ")));
    }
    out.push_str("]\n");
    out
}

/// A JSON string. Five strings per fact do not need a library.
fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => cowork_sys::ignore(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

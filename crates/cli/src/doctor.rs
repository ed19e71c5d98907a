//! `cowork doctor`: what this host can do, what follows, and what to do about it.
//!
//! It asks a keeper of its own, so that it has an answer where no daemon starts.

use crate::arguments::Doctor;
use crate::daemon;
use crate::failure::{Failure, OWN};
use crate::show::{self, neutral, progress};
use cowork_api::keeper::{Grade, Reply, Request};
use cowork_client::places;
use cowork_client::types::{Fact, Info};
use cowork_sandbox::client::{ClientError, Keeper};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

const GOOD: &str = "good";
const REDUCED: &str = "reduced";
const BLOCKING: &str = "blocking";

/// Looks at the host and prints what was found. Fails if sessions cannot start.
pub(crate) fn doctor(options: &Doctor) -> Result<ExitCode, Failure> {
    let facts = progress::during("looking at the host", || -> Result<_, Failure> {
        let mut keeper = Keeper::start()?;
        // Without a folder for the state, what is to be known of that is told elsewhere.
        let request = places::state_folder().map_or(Request::Survey, |state| Request::SurveyFor {
            state: state.into_os_string().into_vec(),
        });
        let (Reply::Surveyed(facts), _) = keeper.call(request)? else {
            return Err(ClientError::Gone("keeper").into());
        };
        drop(keeper);
        let mut facts: Vec<Fact> = facts.into_iter().map(fact).collect();
        facts.push(about_daemon());
        Ok(facts)
    })?;
    if options.output.json {
        show::json(&facts)?;
    } else {
        show::print(table(&facts))?;
    }
    let blocked = facts.iter().any(|fact| fact.grade == BLOCKING);
    Ok(if blocked { ExitCode::from(OWN) } else { ExitCode::SUCCESS })
}

fn fact(fact: cowork_api::keeper::Fact) -> Fact {
    let grade = match fact.grade {
        Grade::Good => GOOD,
        Grade::Reduced => REDUCED,
        Grade::Blocking => BLOCKING,
    };
    Fact {
        name: fact.name,
        value: fact.value,
        grade: grade.to_owned(),
        consequence: fact.consequence,
        fix: fact.fix,
    }
}

/// Whether a daemon runs, or could.
fn about_daemon() -> Fact {
    let found = |value: String, grade: &str, consequence: &str, fix: String| Fact {
        name: "daemon".to_owned(),
        value,
        grade: grade.to_owned(),
        consequence: consequence.to_owned(),
        fix,
    };
    let runtime = match places::runtime_folder() {
        Ok(runtime) => runtime,
        Err(error) => {
            let fix = "set COWORK_RUNTIME_DIR to a folder of your own with permissions 0700";
            let consequence = "no session can stay; `cowork run --no-daemon` works";
            return found(error.to_string(), REDUCED, consequence, fix.to_owned());
        }
    };
    let info = daemon::connect_running().ok().flatten();
    let info = info.and_then(|mut client| client.get::<Info>("/v1/info").ok());
    let value = match info {
        Some(info) => format!("version {} runs as process {}", info.version, info.pid),
        None => format!("none runs; one will listen in {}", runtime.display()),
    };
    found(value, GOOD, "sessions can stay, and are recorded", String::new())
}

fn table(facts: &[Fact]) -> String {
    let mut out = String::new();
    for fact in facts {
        let grade = if fact.grade == BLOCKING { "BLOCKING" } else { &fact.grade };
        let value = neutral::line(&fact.value);
        // Writing to a string cannot fail.
        cowork_sys::ignore(writeln!(out, "{grade:<8} {:<20} {value}", fact.name));
        cowork_sys::ignore(writeln!(out, "{:29} {}", "", neutral::line(&fact.consequence)));
        if !fact.fix.is_empty() {
            cowork_sys::ignore(writeln!(out, "{:29} fix: {}", "", neutral::line(&fact.fix)));
        }
    }
    out
}

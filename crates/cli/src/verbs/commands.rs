//! Pausing, resuming and cancelling sessions and their commands.

use super::{named, on, target};
use crate::arguments::{Cancel, CommandOptions, Output};
use crate::daemon;
use crate::failure::Failure;
use crate::show::{self, progress};
use cowork_client::http::{Method, Request};
use cowork_client::types::{self, Command, Session};
use std::process::ExitCode;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Pause,
    Resume,
}

/// `cowork pause` and `cowork resume`.
pub(crate) fn turn(options: &CommandOptions, turn: Turn) -> Result<ExitCode, Failure> {
    let (verb, what) = match turn {
        Turn::Pause => ("pause", "pausing"),
        Turn::Resume => ("resume", "resuming"),
    };
    ask(options, what, |target| Request::new(Method::Post, format!("{target}/{verb}")))
}

/// `cowork cancel`.
pub(crate) fn cancel(options: &Cancel) -> Result<ExitCode, Failure> {
    let how = types::Cancel { grace: options.grace.map(|span| span.to_string()) };
    ask(&options.whom, "ending processes", |target| {
        Request::new(Method::Post, format!("{target}/cancel")).with_json(&how)
    })
}

fn ask(
    options: &CommandOptions,
    what: &str,
    request: impl Fn(&str) -> Request,
) -> Result<ExitCode, Failure> {
    let (name, number) = named(options.session.as_deref(), options.number);
    let mut client = daemon::connect()?;
    progress::during(what, || match number {
        None => {
            let (_, session) = on(&mut client, &name, |client, id| {
                client.json::<Session>(&request(&target(id, "")))
            })?;
            answer(&options.output, &session)
        }
        Some(number) => {
            let below = format!("/commands/{number}");
            let (_, command) = on(&mut client, &name, |client, id| {
                client.json::<Command>(&request(&target(id, &below)))
            })?;
            answer(&options.output, &command)
        }
    })
}

fn answer(output: &Output, document: &impl serde::Serialize) -> Result<ExitCode, Failure> {
    if output.json { show::json(document) } else { Ok(ExitCode::SUCCESS) }
}

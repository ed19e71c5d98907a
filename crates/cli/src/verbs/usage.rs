//! `cowork usage`: what sessions use.

use super::{on, target};
use crate::arguments::{self, Output};
use crate::daemon;
use crate::failure::Failure;
use crate::show::table::{Colour, Table};
use crate::show::{self, progress, units};
use cowork_client::http::{Client, HttpError};
use cowork_client::types::{Session, State, Usage, UsageOfCommand};
use cowork_client::uri::Query;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// What is done while somebody waits.
const MEASURING: &str = "measuring";

/// Shows one session, its history, or all that live.
pub(crate) fn usage(options: &arguments::Usage) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let json = options.output.json;
    let Some(name) = &options.session else {
        let all = progress::during(MEASURING, || all(&mut client))?;
        if json {
            let all = all.iter().map(|(id, usage)| json!({ "session": id, "usage": usage }));
            return show::json(&all.collect::<Vec<_>>());
        }
        return table("SESSION", &all);
    };
    if let Some(number) = options.command {
        return of_command(&mut client, name, number, &options.output);
    }
    if options.history {
        let (_, history) = on(&mut client, name, |client, id| {
            client.list::<Usage>(&Query::new(target(id, "/usage/history")).with("limit", "1000"))
        })?;
        if json {
            return show::json(&history);
        }
        let rows = history.into_iter().map(|usage| (units::moment(&usage.time), usage));
        return table("TIME", &rows.collect::<Vec<_>>());
    }
    let (id, usage) = progress::during(MEASURING, || {
        on(&mut client, name, |client, id| client.get::<Usage>(target(id, "/usage")))
    })?;
    if json { show::json(&usage) } else { table("SESSION", &[(id, usage)]) }
}

/// Shows one command.
fn of_command(
    client: &mut Client,
    name: &str,
    number: u32,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let (_, usage) = progress::during(MEASURING, || {
        on(client, name, |client, id| {
            client.get::<UsageOfCommand>(target(id, &format!("/commands/{number}/usage")))
        })
    })?;
    if output.json {
        return show::json(&usage);
    }
    let mut table =
        Table::new(["COMMAND", "WALL", "CPU", "MEMORY", "MOST", "READ", "WRITTEN", "PROCESSES"]);
    table.row([
        number.to_string().into(),
        units::span(Duration::from_millis(usage.wall_ms)).into(),
        units::span(Duration::from_micros(usage.cpu_us)).into(),
        units::bytes(usage.memory).into(),
        units::bytes(usage.memory_peak).into(),
        units::bytes(usage.read).into(),
        units::bytes(usage.written).into(),
        usage.processes.to_string().into(),
    ]);
    show::print(table.render(Colour::of_stdout()))
}

fn all(client: &mut Client) -> Result<Vec<(String, Usage)>, HttpError> {
    let sessions: Vec<Session> = client.list(&Query::new("/v1/sessions"))?;
    let live = sessions
        .into_iter()
        .filter(|session| matches!(session.state, State::Ready | State::Running | State::Paused));
    let mut all = Vec::new();
    for session in live {
        match client.get(target(&session.id, "/usage")) {
            Ok(usage) => all.push((session.id, usage)),
            // It has ended meanwhile.
            Err(HttpError::Problem(problem)) if problem.status < 500 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn table(first: &str, rows: &[(String, Usage)]) -> Result<ExitCode, Failure> {
    let mut table = Table::new([
        first,
        "WALL",
        "CPU",
        "MEMORY",
        "MOST",
        "SCRATCH",
        "DISK",
        "READ",
        "WRITTEN",
        "PROCESSES",
    ]);
    for (title, usage) in rows {
        table.row([
            title.into(),
            units::span(Duration::from_millis(usage.wall_ms)).into(),
            units::span(Duration::from_micros(usage.cpu_us)).into(),
            units::bytes(usage.memory).into(),
            units::bytes(usage.memory_peak).into(),
            units::bytes(usage.scratch).into(),
            units::bytes(usage.disk).into(),
            units::bytes(usage.read).into(),
            units::bytes(usage.written).into(),
            usage.processes.to_string().into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

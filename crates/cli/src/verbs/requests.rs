//! What sessions ask for, and the user's answers.

use crate::arguments::{Answer, Decide, Requests};
use crate::daemon;
use crate::failure::Failure;
use crate::request::{self, Consent};
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, progress, units};
use cowork_client::http::Method;
use cowork_client::types::{self, Access, Decision, Request, RequestState};
use cowork_client::uri::Query;
use std::process::ExitCode;

/// `cowork requests`.
pub(crate) fn list(options: &Requests) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let session = options.session.as_ref().map(|name| super::id(&mut client, name)).transpose()?;
    let state = (!options.all).then_some("pending");
    let query = Query::new("/v1/requests").with_some("state", state).with_some("session", session);
    let requests: Vec<Request> = client.list(&query)?;
    if options.output.json {
        return show::json(&requests);
    }
    let titles = ["REQUEST", "SESSION", "BY", "AGE", "STATE", "ACCESS", "WANTS", "BECAUSE"];
    let mut table = Table::new(titles);
    for request in &requests {
        let (state, tone) = match request.state {
            RequestState::Pending => ("pending", Tone::Warning),
            RequestState::Allowed => ("allowed", Tone::Good),
            RequestState::Rejected => ("rejected", Tone::Plain),
            RequestState::Expired => ("expired", Tone::Plain),
        };
        table.row([
            request.id.to_string().into(),
            (&request.session).into(),
            asker(request).into(),
            units::age(&request.created).into(),
            Cell::new(state, tone),
            access(request).into(),
            (&request.wanted).into(),
            (&request.reason).into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

/// Who asks for a folder: its command, and the program with the name that it has given itself.
fn asker(request: &Request) -> String {
    let Some(asker) = &request.asker else { return "-".into() };
    let inside = asker.inside.unwrap_or(asker.pid);
    match asker.command {
        Some(command) => format!("command {command}: \"{}\" ({inside})", asker.program),
        None => format!("\"{}\" ({inside})", asker.program),
    }
}

/// The kind of a request whose session wants to reach a host.
const HOST: &str = "host";
/// The kind of a request whose session wants to change a file.
const FILE: &str = "file";
/// The kind of a request whose agent wants to use a tool.
const TOOL: &str = "tool";

fn access(request: &Request) -> &'static str {
    match (request.kind.as_str(), request.access) {
        (HOST, _) => "reach",
        (FILE, _) => "change",
        (TOOL, _) => "use",
        (_, access) => access.as_str(),
    }
}

/// `cowork decide`.
pub(crate) fn decide(options: &Decide) -> Result<ExitCode, Failure> {
    let decide = types::Decide {
        decision: decision(options)?,
        path: match &options.path {
            Some(path) => {
                let access = if options.rw { Access::Write } else { Access::Read };
                let consent = if options.force { Consent::Forced } else { Consent::None };
                Some(request::raw(&request::folder(path, access, consent)?))
            }
            None => None,
        },
        name: options.name.clone(),
        access: match (options.ro, options.rw) {
            (true, _) => Some(Access::Read),
            (false, true) => Some(Access::Write),
            (false, false) => None,
        },
        force: options.force,
        note: options.note.clone(),
    };
    let mut client = daemon::connect()?;
    let target = format!("/v1/requests/{}/decide", options.request);
    let request: Request =
        progress::during("answering", || client.send(Method::Post, target, &decide))?;
    if options.output.json {
        return show::json(&request);
    }
    let line = match &request.grant {
        Some(_) if request.kind == FILE => match request.state {
            RequestState::Allowed => {
                format!("session {} may change {}", request.session, request.wanted)
            }
            _ => return Ok(ExitCode::SUCCESS),
        },
        Some(grant) => format!("session {} has it as mnt/{grant}", request.session),
        None if request.kind == HOST && request.state == RequestState::Allowed => {
            format!("session {} may reach {}", request.session, request.wanted)
        }
        None => return Ok(ExitCode::SUCCESS),
    };
    show::print(neutral::line(&line) + "\n")
}

fn decision(options: &Decide) -> Result<Decision, Failure> {
    Ok(match (options.answer, options.session, options.always) {
        (Answer::Allow, _, true) => Decision::AllowAlways,
        (Answer::Allow, true, false) => Decision::AllowSession,
        (Answer::Allow, false, false) => Decision::AllowOnce,
        (Answer::Reject, _, true) => Decision::RejectAlways,
        (Answer::Reject, false, false) => Decision::RejectOnce,
        (Answer::Reject, true, false) => {
            let hint = "say `--always`, or nothing";
            return Err(Failure::input("a no is for once or for always", hint));
        }
    })
}

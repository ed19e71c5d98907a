//! `cowork events`: what happens, as it happens.

use super::audit::details;
use crate::arguments;
use crate::daemon;
use crate::failure::Failure;
use crate::show::{self, neutral, units};
use cowork_client::http::{Client, HttpError};
use cowork_client::types::{Event, Page, Part};
use cowork_client::uri::Query;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Writes events until it is interrupted, or those there are.
pub(crate) fn events(options: &arguments::Events) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let session = options.session.as_ref().map(|name| super::id(&mut client, name)).transpose()?;
    let query = Query::new("/v1/events")
        .with_some("session", session)
        .with_some("type", options.kind.as_ref());
    if options.no_follow {
        let events = past(&mut client, &query, options.after.unwrap_or(0))?;
        if options.output.json {
            return show::json(&events);
        }
        return show::print(events.iter().map(line).collect::<String>());
    }
    let after = match options.after {
        Some(after) => after,
        None => newest(&mut client)?,
    };
    for event in client.events(query, Some(after)) {
        let event = event?;
        let text = if options.output.json { show::json_line(&event)? } else { line(&event) };
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => {
                let cause = Some(error.to_string());
                return Err(Failure::host("cannot write to standard output", cause));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The events after one that are kept.
fn past(client: &mut Client, query: &Query, mut after: u64) -> Result<Vec<Event>, HttpError> {
    let mut events = Vec::new();
    loop {
        let page: Part<Event> = client.get(query.clone().with("after", after.to_string()))?;
        if let Some(gap) = page.gap {
            // As a stream has it.
            let data = json!({ "from": gap.from, "to": gap.to });
            let (time, kind) = (String::new(), "gap".to_owned());
            events.push(Event { id: gap.to, time, kind, session: None, data });
        }
        let Some(last) = page.items.last() else { return Ok(events) };
        after = last.id;
        events.extend(page.items);
    }
}

/// The number of the newest event.
fn newest(client: &mut Client) -> Result<u64, HttpError> {
    let page: Page<Event> = client.get(Query::new("/v1/events").with("after", "end"))?;
    Ok(page.next.and_then(|next| next.parse().ok()).unwrap_or(0))
}

fn line(event: &Event) -> String {
    let Event { id, time, kind, session, data } = event;
    let session = session.as_deref().unwrap_or("-");
    let text = format!("{id} {} {kind} {session} {}", units::moment(time), details(data));
    neutral::line(text.trim_end()) + "\n"
}

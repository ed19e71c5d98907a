//! `cowork audit`: the record of every decision and act.

use crate::arguments::{Audit, AuditFilter, AuditVerb, Export, Output};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::show::table::{Colour, Table};
use crate::show::{self, neutral, progress, units};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use cowork_client::http::{Client, Request};
use cowork_client::types::{Page, Record, Verified};
use cowork_client::uri::Query;
use cowork_policy::Span;
use serde::de::DeserializeOwned;
use std::process::{ExitCode, Stdio};
use std::time::SystemTime;

/// Shows, verifies or exports records.
pub(crate) fn audit(options: &Audit) -> Result<ExitCode, Failure> {
    match &options.verb {
        Some(AuditVerb::Verify(output)) => verify(output),
        Some(AuditVerb::Export(export)) => self::export(export),
        None => list(options),
    }
}

fn list(options: &Audit) -> Result<ExitCode, Failure> {
    let mut client = connect();
    let query = filtered(client.as_mut(), "/v1/audit", &options.filter)?;
    let records: Vec<Record> = progress::during("reading the audit", || match &mut client {
        Some(client) => Ok(client.list(&query)?),
        None => from_files::<Page<Record>>(&query).map(|page| page.items),
    })?;
    if options.output.json {
        return show::json(&records);
    }
    let mut table = Table::new(["RECORD", "TIME", "TYPE", "SESSION", "WHAT"]);
    for record in &records {
        table.row([
            record.seq.to_string().into(),
            units::moment(&record.time).into(),
            (&record.kind).into(),
            record.session.as_deref().unwrap_or_default().into(),
            details(&record.data).into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

/// Connects to the daemon; there is none if it does not start, which it refuses with a record that
/// was tampered with. Then the files are read without it.
fn connect() -> Option<Client> {
    match daemon::connect() {
        Ok(client) => Some(client),
        Err(failure) => {
            note(&format!("reading the files of the audit themselves, because {}", failure.line()));
            None
        }
    }
}

/// What the files themselves say.
fn from_files<T: DeserializeOwned>(query: &Query) -> Result<T, Failure> {
    let answered = daemon::from_files(query, Stdio::piped())?;
    serde_json::from_slice(&answered.stdout)
        .map_err(|error| Failure::host("cannot understand the audit", Some(error.to_string())))
}

/// Fields of an object on one line, each cut to a length that can be read.
pub(crate) fn details(data: &serde_json::Value) -> String {
    /// Most characters of one field.
    const MOST: usize = 60;
    let word = |value: &serde_json::Value| {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        }
    };
    match data {
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| format!("{name}={}", word(value)));
            fields.collect::<Vec<_>>().join(" ")
        }
        serde_json::Value::Null => String::new(),
        other => word(other),
    }
}

/// The target with what the user wants to see of it. Records outlive their sessions: a session
/// that is gone is named by its whole id, and so is any without a daemon.
fn filtered(
    client: Option<&mut Client>,
    path: &str,
    filter: &AuditFilter,
) -> Result<Query, Failure> {
    let since = filter.since.as_deref().map(moment).transpose()?;
    let until = filter.until.as_deref().map(moment).transpose()?;
    let session = match (&filter.session, client) {
        (Some(name), Some(client)) => Some(super::known_or(client, name)?),
        (name, _) => name.clone(),
    };
    Ok(Query::new(path)
        .with_some("session", session)
        .with_some("type", filter.kind.as_ref())
        .with_some("since", since)
        .with_some("until", until))
}

/// A moment, or a span of time before now.
fn moment(text: &str) -> Result<String, Failure> {
    let then = match text.parse::<Span>() {
        Ok(span) => SystemTime::now().checked_sub(span.duration()),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    let then = then.ok_or_else(|| {
        let hint = "write a span of time before now, e.g. `2h`, or a moment, e.g. \
                    `2026-01-31T12:00:00Z`";
        Failure::input(format!("`{text}` is no time"), hint)
    })?;
    Ok(humantime::format_rfc3339_millis(then).to_string())
}

/// Verifies the record; without a daemon that runs, its files are read as they are, and none is
/// started: it would go on with the record, or refuse to.
fn verify(output: &Output) -> Result<ExitCode, Failure> {
    let query = Query::new("/v1/audit/verify");
    let client = daemon::connect_running().ok().flatten();
    let verified: Verified = progress::during("verifying the audit", || match client {
        Some(mut client) => Ok(client.get(query.target())?),
        None => from_files(&query),
    })?;
    let code = if verified.whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if output.json {
        return show::json(&verified).map(|_printed| code);
    }
    let count = |number: u64, one, many| {
        units::count(usize::try_from(number).unwrap_or(usize::MAX), one, many)
    };
    let records = count(verified.records, "record", "records");
    let files = count(verified.files, "file", "files");
    let mut text = if verified.whole {
        format!("whole: {records} in {files}\nhead: {}\n", verified.head)
    } else {
        format!("NOT whole: {records} in {files}\n")
    };
    for problem in &verified.problems {
        let place = match problem.line {
            0 => problem.file.clone(),
            line => format!("{}:{line}", problem.file),
        };
        let record = problem.record.map(|record| record.to_string());
        let record = record.filter(|record| !problem.sentence.contains(record));
        let record = record.map(|record| format!(" (record {record})")).unwrap_or_default();
        text.push_str(&neutral::line(&format!("{place}: {}{record}", problem.sentence)));
        text.push('\n');
    }
    show::print(text).map(|_printed| code)
}

fn export(options: &Export) -> Result<ExitCode, Failure> {
    let format = options.format.to_possible_value();
    let format = format.as_ref().map(PossibleValue::get_name);
    let mut client = connect();
    let query = filtered(client.as_mut(), "/v1/audit/export", &options.filter)?;
    let query = query.with_some("format", format);
    let Some(client) = client else {
        return daemon::from_files(&query, Stdio::inherit()).map(|_written| ExitCode::SUCCESS);
    };
    let mut response = client.open(&Request::get(query), None)?;
    let mut stdout = std::io::stdout().lock();
    match std::io::copy(&mut response, &mut stdout) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::host("cannot export the audit", Some(error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::{details, moment};
    use serde_json::json;

    #[test]
    fn spans_and_moments_are_times() {
        assert_eq!(moment("2026-01-31 12:00:00").ok().as_deref(), Some("2026-01-31T12:00:00.000Z"));
        assert!(moment("2h").is_ok_and(|time| time.ends_with('Z')));
        assert!(moment("soon").is_err());
    }

    #[test]
    fn details_are_one_line() {
        assert_eq!(details(&json!({ "a": 1, "b": null, "c": "x y" })), "a=1 c=x y");
        assert_eq!(details(&json!(null)), "");
        assert_eq!(details(&json!({ "a": "é".repeat(70) })), format!("a={}…", "é".repeat(60)));
    }
}

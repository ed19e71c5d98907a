//! `cowork history`: which sessions changed something, also those that are gone.

use super::changes::{meant, sets};
use crate::arguments::HistoryOf;
use crate::daemon;
use crate::failure::Failure;
use crate::show::table::{Colour, Tone};
use crate::show::{self, progress, units};
use cowork_client::types::{History, SessionHistory};
use cowork_client::uri::Query;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// `cowork history`.
pub(crate) fn history(options: &HistoryOf) -> Result<ExitCode, Failure> {
    let path = options.path.as_deref().map(meant).transpose()?;
    let mut client = daemon::connect()?;
    let path = path.as_ref().map(|path| path.as_os_str().as_bytes());
    let query = Query::new("/v1/history").with_some("path", path);
    let history: History = progress::during("reading the history", || client.get(query))?;
    if options.output.json {
        return show::json(&history);
    }
    show::print(text(&history, Colour::of_stdout()))
}

fn text(history: &History, colour: Colour) -> String {
    let mut out = String::new();
    for session in &history.sessions {
        out.push_str(&colour.paint(&title(session), Tone::Strong));
        out.push('\n');
        out.push_str(&sets(&session.sets, colour));
        out.push('\n');
    }
    if history.sessions.is_empty() {
        out.push_str("no session changed anything there\n");
    }
    let kept = history.kept;
    // Writing to a string cannot fail.
    cowork_sys::ignore(writeln!(
        out,
        "kept {} after a session is gone, up to {} of all; {} are taken",
        units::count(usize::try_from(kept.days).unwrap_or(usize::MAX), "day", "days"),
        units::bytes(kept.bytes),
        units::bytes(history.bytes),
    ));
    out
}

fn title(session: &SessionHistory) -> String {
    let end = match &session.ended {
        Some(ended) => format!("gone since {}", units::moment(ended)),
        None => "still there".to_owned(),
    };
    format!("session {} of {}, {end}", session.session, units::moment(&session.created))
}

#[cfg(test)]
mod tests {
    use super::{Colour, History, SessionHistory, text};
    use cowork_client::types::Retention;

    #[test]
    fn it_says_how_long_changes_are_kept() {
        let kept = Retention { days: 14, bytes: 5 << 30 };
        let session = SessionHistory {
            session: "able-bohr".into(),
            created: "2026-01-02T03:04:05.678Z".into(),
            ended: None,
            sets: Vec::new(),
        };
        let history = History { kept, bytes: 2048, sessions: vec![session] };
        assert_eq!(
            text(&history, Colour::Off),
            "session able-bohr of 2026-01-02T03:04:05Z, still there\n\
             SET  WHEN  BY  COMMAND  STATE\n\n\
             kept 14 days after a session is gone, up to 5G of all; 2K are taken\n"
        );
    }
}

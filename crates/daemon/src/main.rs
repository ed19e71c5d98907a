//! `coworkd`: keeps the sessions of one user, and serves them over HTTP on a UNIX socket.
//!
//! It holds no capability: whatever needs the kernel's help is asked of the keeper, which outlives
//! it. The keeper is all that it starts, and it never forks. Everything that must not be forgotten is
//! in the catalogue, in the audit or in a file before it is acted on, so that the daemon can be killed
//! at any moment and the next one goes on.

#![forbid(unsafe_code)]

mod agents;
mod book;
mod changes;
mod daemon;
mod engine;
mod folders;
mod guest;
mod http;
mod keyed;
mod network;
mod proxy;
mod session;
mod settings;
mod tasks;
mod trouble;
mod watched;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mut word = || arguments.next().and_then(|word| word.into_string().ok());
    match word().as_deref() {
        Some("--openapi") => return document(),
        Some("--audit") => return records(word().as_deref()),
        _ => {}
    }
    let settings = match settings::Settings::from_arguments() {
        Ok(settings) => settings,
        Err(sentence) => return fail(&sentence),
    };
    match daemon::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => fail(&trouble.line()),
    }
}

/// Prints the document of the API.
fn document() -> ExitCode {
    match std::io::stdout().write_all(http::openapi().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot print: {error}")),
    }
}

/// Answers a question about the audit from its files, without being a daemon.
fn records(call: Option<&str>) -> ExitCode {
    let answered = call.map(http::answer_from_records);
    match answered {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(trouble)) => fail(&trouble.line()),
        None => fail("`--audit` needs a call of the API, e.g. `/v1/audit/verify`"),
    }
}

#[expect(clippy::print_stderr, reason = "this is how the daemon says why it does not run")]
fn fail(sentence: &str) -> ExitCode {
    eprintln!("coworkd: {sentence}");
    ExitCode::from(125)
}

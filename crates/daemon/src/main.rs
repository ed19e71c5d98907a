//! `coworkd`: keeps the sessions of one user, and serves them over HTTP on a UNIX socket.
//!
//! It holds no capability: whatever needs the kernel's help is asked of the keeper, which outlives
//! it. The keeper and the egress processes of sessions are all that it starts. Everything that must not be forgotten is in the catalogue, in the audit or in
//! a file before it is acted on, so that the daemon can be killed at any moment and the next one
//! goes on.

#![forbid(unsafe_code)]

mod agents;
mod book;
mod changes;
mod daemon;
mod engine;
mod folders;
mod guest;
mod http;
mod network;
mod session;
mod settings;
mod tasks;
mod trouble;
mod watched;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "--openapi") {
        return document();
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

#[expect(clippy::print_stderr, reason = "this is how the daemon says why it does not run")]
fn fail(sentence: &str) -> ExitCode {
    eprintln!("coworkd: {sentence}");
    ExitCode::from(125)
}

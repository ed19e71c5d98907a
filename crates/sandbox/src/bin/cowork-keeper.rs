//! The keeper, and the broker of a session when it is called by that name.
//!
//! Not started by hand: a client starts it with one end of a socket as standard input, or with one
//! that listens and the argument `--resident`.

#![forbid(unsafe_code)]

use cowork_sandbox::keeper::{RESIDENT, Service};
use rustix::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.next().is_some_and(|name| name == "cowork-broker") {
        return cowork_sandbox::broker::main(arguments);
    }
    // Nothing of the caller's is kept but the standard streams.
    if let Err(errno) = cowork_sys::identity::close_inherited(3) {
        return fail(&errno);
    }
    cowork_sys::signal::heed_all();
    let resident = arguments.next().is_some_and(|argument| argument == RESIDENT);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_path_buf()));
    let init = beside.unwrap_or_else(|| PathBuf::from(".")).join("cowork-init");
    let socket = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => socket,
        Err(error) => return fail(&error),
    };
    let service = if resident { Service::Any(socket) } else { Service::One(socket) };
    match cowork_sandbox::keeper::main(service, &init) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the keeper has no other way to say why it ends")]
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprint!("cowork-keeper: {error}");
    let mut cause = error.source();
    while let Some(source) = cause {
        eprint!(": {source}");
        cause = source.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

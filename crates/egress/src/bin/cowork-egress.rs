//! The program `cowork-egress`: the way out of one session.
//!
//! Not started by hand: the keeper's starter starts it with one end of a socket as standard input.

#![forbid(unsafe_code)]

use rustix::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Nothing of the caller's is kept but the standard streams.
    if let Err(errno) = cowork_sys::identity::close_inherited(3) {
        return fail(&errno);
    }
    let line = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(line) => line,
        Err(error) => return fail(&error),
    };
    match cowork_egress::line::run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => fail(&sentence),
    }
}

#[expect(clippy::print_stderr, reason = "there is no other way to say why it ends")]
fn fail(why: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("cowork-egress: {why}");
    ExitCode::FAILURE
}

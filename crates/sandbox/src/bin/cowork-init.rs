//! PID 1 of a session. Not started by hand: the keeper executes it inside the session.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cowork_sandbox::init::main()
}

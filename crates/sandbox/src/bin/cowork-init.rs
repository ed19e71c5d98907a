//! PID 1 of a session. Not started by hand: the keeper executes it once, and the first process of each
//! session is a copy of that.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cowork_sandbox::seed::main()
}

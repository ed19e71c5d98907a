//! `cowork mcp`: turns into the program that serves the tools. What sessions are made from is
//! parsed here, once, as for `cowork new`.

use crate::arguments::Mcp;
use crate::failure::Failure;
use crate::request::{self, Unnamed};
use crate::verbs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// `cowork mcp`.
pub(crate) fn mcp(options: &Mcp) -> Result<ExitCode, Failure> {
    if options.session.id.is_some() {
        return Err(Failure::input(
            "sessions get their names from the client",
            "leave `--id` out, or name a session that is there with `--session`",
        ));
    }
    let template = request::for_daemon(&options.session, Unnamed::Nothing)?;
    let failed = |cause: String| Failure::host("cannot serve MCP", Some(cause));
    let template = serde_json::to_string(&template).map_err(|error| failed(error.to_string()))?;
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut program = Command::new(own.with_file_name("cowork-mcp"));
    program.args(["--new", &template]);
    if !options.sessions.is_empty() {
        let mut client = crate::daemon::connect()?;
        for name in &options.sessions {
            program.args(["--session", &verbs::id(&mut client, name)?]);
        }
    }
    let error = program.exec();
    Err(failed(error.to_string()).with_hint("install `cowork-mcp` beside `cowork`"))
}

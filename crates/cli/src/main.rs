//! `cowork`: gives an AI agent a computer of its own inside yours.

#![forbid(unsafe_code)]

mod arguments;
mod doctor;
mod explain;
mod failure;
mod relay;
mod request;
mod run;
mod streams;

use arguments::{Arguments, Verb};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    let outcome = match arguments.verb {
        Verb::Run(run) => run::run(&run),
        Verb::Explain(explain) => explain::explain(&explain).map(|()| ExitCode::SUCCESS),
        Verb::Doctor(doctor) => doctor::doctor(&doctor),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cowork", &mut text);
            print(&text)
        }
        Verb::Man => manual(),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The manual pages of the program and of each of its verbs, one after the other.
fn manual() -> Result<ExitCode, Failure> {
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    let mut pages = vec![command.clone()];
    pages.extend(command.get_subcommands().cloned());
    for page in pages {
        clap_mangen::Man::new(page)
            .render(&mut text)
            .map_err(|source| Failure::host("cannot write the manual", Some(source.to_string())))?;
    }
    print(&text)
}

/// Writes to standard output. A reader that has seen enough is no failure.
fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    match std::io::stdout().write_all(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            Err(Failure::host("cannot write to standard output", Some(error.to_string())))
        }
    }
}

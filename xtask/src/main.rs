//! `cargo xtask`: what people do with this workspace beside building it.
//!
//! Every verb is one module. A verb finds the workspace by the place it was built from and the
//! programs by the place it was built to, so it works from any folder and with any target folder.
//!
//! Deliberately absent: anything that a shipped program needs. This one is never shipped.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people in a terminal"
)]

mod ahead;
mod api;
mod fuzz;
mod generate;
mod install;
mod kernel;
mod mcp;
mod npm;
mod packages;
mod run;
mod sdk;
mod suite;
mod tidy;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;
use workspace::Failure;

const USAGE: &str = "\
usage: cargo xtask VERB

  run -- ARGUMENTS…       build the programs, then run `cowork ARGUMENTS…`
  test                    install what the tests need, then run every check and every test
  prepare                 install what the tests need, and nothing else
  tidy                    check the rules that the compiler does not know
  generate                write the manual page, the completions and the document of the API
  fuzz [SECONDS]          feed random bytes to every decoder and parser (60 seconds)
  fuzz --libfuzzer [SECONDS]
                          the same, guided by coverage, for so long each; needs a nightly
                          toolchain and cargo-fuzz
  install --prefix FOLDER build the programs and install them with their manual
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    let outcome = match (verb.to_str(), rest.as_slice()) {
        (Some("run"), rest) => run::run(rest),
        (Some("test"), []) => suite::test(),
        (Some("prepare"), []) => ahead::prepare(),
        (Some("tidy"), []) => tidy::tidy(),
        (Some("generate"), []) => generate::generate(),
        (Some("fuzz"), rest) => fuzz::fuzz(rest),
        (Some("install"), [option, prefix]) if option == "--prefix" => {
            install::install(prefix.as_ref())
        }
        (Some("help" | "--help" | "-h"), []) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => Err(Failure::usage()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage) => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Sentence(sentence) | Failure::Missing(sentence)) => {
            eprintln!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

//! `cargo xtask fuzz`: random bytes for everything that reads bytes of others.
//!
//! The targets are functions of the crate in `fuzz/`. They run in two ways: with a simple loop of
//! random changes, which needs nothing but a Rust compiler, and under libFuzzer, which is guided
//! by coverage and needs a nightly toolchain and `cargo-fuzz`.

use crate::workspace::{Failure, Profile, built, cargo, line, succeed, text};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long without an argument.
const DEFAULT_TIME: Duration = Duration::from_mins(1);

/// Reads the arguments and runs every target in the way they ask for.
pub(crate) fn fuzz(arguments: &[OsString]) -> Result<(), Failure> {
    match arguments {
        [] => random(DEFAULT_TIME),
        [option] if option == "--libfuzzer" => guided(DEFAULT_TIME),
        [time] => random(seconds(time)?),
        [option, time] if option == "--libfuzzer" => guided(seconds(time)?),
        _ => Err(Failure::usage()),
    }
}

fn seconds(text: &OsString) -> Result<Duration, Failure> {
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    seconds.map(Duration::from_secs).ok_or(Failure::Usage)
}

/// Runs every target with random changes, for so long together.
pub(crate) fn random(time: Duration) -> Result<(), Failure> {
    // In the folder of the workspace, most of what it depends on is already built.
    let programs = built(Profile::Dev)?;
    let target = programs.parent().and_then(Path::parent).unwrap_or(&programs);
    let mut run = cargo(["run", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    shown(run.arg(target).arg("--").arg(time.as_secs().to_string()))
}

/// Runs every target under libFuzzer, for so long each.
fn guided(time: Duration) -> Result<(), Failure> {
    let targets = text(&mut cargo_fuzz(&["list"]))?;
    for target in targets.lines() {
        let mut run = cargo_fuzz(&["run", "--features", "libfuzzer", target, "--"]);
        run.arg(format!("-max_total_time={}", time.as_secs()));
        // A message of 4 MiB that takes longer or more to read is a way to stop the keeper.
        run.args(["-timeout=5", "-rss_limit_mb=2048", "-max_len=65536"]);
        shown(&mut run)?;
    }
    Ok(())
}

/// `cargo fuzz`, by the nightly toolchain: it instruments with flags that stable does not have.
fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz"]).args(arguments);
    command.current_dir(crate::workspace::root());
    // Set by the toolchain that runs this program; they would choose it again.
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command
}

fn shown(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", line(command));
    succeed(command)
}

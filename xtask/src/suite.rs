//! `cargo xtask test`: everything that must hold before a change is taken.
//!
//! The steps run in order and the first failure ends the run. At the end, whatever it is, every
//! step is listed with its time, and those that did not run are listed as such: nothing is
//! skipped silently.

use crate::ahead::Ahead;
use crate::workspace::{Failure, Profile, build, built, cargo, demanding, line, succeed};
use crate::{api, fuzz, kernel, mcp, npm, run, sdk, tidy};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long random bytes are fed to the parsers: three seconds for each of the decoders that somebody
/// hostile speaks to. `cargo xtask fuzz` does it for longer.
const FUZZ_TIME: Duration = Duration::from_secs(20);

/// How many tests run at once: most of them wait for something most of the time.
const AT_ONCE: &str = "6";

/// One thing that must hold.
struct Step {
    name: &'static str,
    check: fn(&mut Ahead) -> Result<(), Failure>,
}

/// From cheap to expensive, so that most mistakes are found early.
const STEPS: [Step; 15] = [
    Step { name: "format", check: |_| format() },
    Step { name: "lints", check: |_| lints() },
    Step { name: "documentation", check: |_| documentation() },
    Step { name: "tidy", check: |_| tidy::tidy() },
    Step { name: "programs", check: |_| programs() },
    Step { name: "packages of the system", check: Ahead::finish },
    Step { name: "tests", check: |_| tests() },
    Step { name: "another kernel", check: |_| another_kernel() },
    Step { name: "requests made up", check: |_| made_up() },
    Step { name: "MCP", check: |_| tools() },
    Step { name: "Python SDK", check: |_| sdk::check() },
    Step { name: "agents", check: |_| real_agents() },
    Step { name: "escape", check: |_| escape() },
    Step { name: "bench", check: |_| bench() },
    Step { name: "fuzz", check: |_| fuzz() },
];

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed(Duration),
    /// What ran has passed, and some of it did not run, which is said.
    Partly(Duration, Vec<String>),
    Failed(Duration),
    /// An earlier step failed.
    NotReached,
    /// This host lacks something, which is said.
    NotRun(Duration, String),
}

/// Runs every step.
pub(crate) fn test() -> Result<(), Failure> {
    if !is_root()? {
        return Err(Failure::new(
            "the tests need root: they start programs as root and as an ordinary user",
        ));
    }
    let mut outcomes = [const { Outcome::NotReached }; STEPS.len()];
    let mut failure = None;
    // Of an earlier run.
    left_out()?;
    let mut ahead = Ahead::begin()?;
    for (number, (step, outcome)) in STEPS.iter().zip(&mut outcomes).enumerate() {
        heading(&format!("{}/{} {}", number + 1, STEPS.len(), step.name));
        let start = Instant::now();
        let result = (step.check)(&mut ahead);
        let time = start.elapsed();
        match result {
            Ok(()) => {
                *outcome = match left_out()? {
                    gaps if gaps.is_empty() => Outcome::Passed(time),
                    gaps => Outcome::Partly(time, gaps),
                }
            }
            Err(Failure::Missing(why)) => {
                println!("NOT RUN: {why}");
                *outcome = Outcome::NotRun(time, why);
            }
            Err(error) => {
                *outcome = Outcome::Failed(time);
                failure = Some((step.name, error));
                break;
            }
        }
    }
    heading("summary");
    print!("{}", summary(&outcomes));
    match failure {
        None => Ok(()),
        Some((name, Failure::Sentence(sentence))) => {
            Err(Failure::new(format!("{name}: {sentence}")))
        }
        Some((_, failure)) => Err(failure),
    }
}

fn summary(outcomes: &[Outcome]) -> String {
    let total: Duration = outcomes.iter().map(Outcome::time).sum();
    let lines = STEPS.iter().zip(outcomes).map(|(step, outcome)| {
        let result = match outcome {
            Outcome::Passed(_) | Outcome::Partly(..) => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::NotReached => return format!("{:<24} not run\n", step.name),
            Outcome::NotRun(_, why) => return format!("{:<24} NOT RUN: {why}\n", step.name),
        };
        let line = format!("{:<24} {result} {:8.1} s\n", step.name, outcome.time().as_secs_f64());
        let gaps = outcome.gaps().iter().map(|gap| format!("{:<24} {gap}\n", ""));
        [line].into_iter().chain(gaps).collect()
    });
    let lines: String = lines.collect();
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    format!(
        "{lines}{:<31} {:8.1} s\n{} passed, {} failed, {} not run\n",
        "together",
        total.as_secs_f64(),
        count(|outcome| matches!(outcome, Outcome::Passed(_) | Outcome::Partly(..))),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::NotReached | Outcome::NotRun(..)))
            + outcomes.iter().map(|outcome| outcome.gaps().len()).sum::<usize>(),
    )
}

impl Outcome {
    fn time(&self) -> Duration {
        match self {
            Self::Passed(time)
            | Self::Partly(time, _)
            | Self::Failed(time)
            | Self::NotRun(time, _) => *time,
            Self::NotReached => Duration::ZERO,
        }
    }

    /// What of it did not run.
    fn gaps(&self) -> &[String] {
        match self {
            Self::Partly(_, gaps) => gaps,
            Self::Passed(_) | Self::Failed(_) | Self::NotReached | Self::NotRun(..) => &[],
        }
    }
}

/// Where tests write down what of them did not run.
fn not_run_file() -> Result<PathBuf, Failure> {
    Ok(built(Profile::Dev)?.join("not-run"))
}

/// What was written there, each once, in order. It is forgotten then.
fn left_out() -> Result<Vec<String>, Failure> {
    let path = not_run_file()?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::at("read", &path, error)),
    };
    std::fs::remove_file(&path).map_err(|error| Failure::at("remove", &path, error))?;
    let lines: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    Ok(lines.into_iter().collect())
}

fn is_root() -> Result<bool, Failure> {
    let path = std::path::Path::new("/proc/self/status");
    let status = std::fs::read_to_string(path).map_err(|error| Failure::at("read", path, error))?;
    Ok(status.lines().any(|line| line.starts_with("Uid:\t0\t0\t")))
}

/// Colours are for people: not for a file, and not for a log of a machine's.
fn heading(text: &str) {
    let plain = std::env::var_os("CI").is_some() || !std::io::stdout().is_terminal();
    let (bold, normal) = if plain { ("", "") } else { ("\x1b[1m", "\x1b[0m") };
    println!("\n{bold}== {text}{normal}");
}

/// Shows a command, then runs it.
fn shown(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", line(command));
    succeed(command)
}

fn format() -> Result<(), Failure> {
    shown(&mut cargo(["fmt", "--all", "--check"]))?;
    shown(&mut cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

fn lints() -> Result<(), Failure> {
    shown(&mut cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> Result<(), Failure> {
    let mut doc = cargo(["doc", "--workspace", "--no-deps"]);
    shown(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn programs() -> Result<(), Failure> {
    run::build()
}

/// The programs under test are the ones that are shipped; the tests around them are built faster.
fn tests() -> Result<(), Failure> {
    let mut test = cargo(["test", "--workspace", "--no-fail-fast"]);
    test.env("RUST_TEST_THREADS", AT_ONCE).env("COWORK_NOT_RUN", not_run_file()?);
    shown(test.env("COWORK_PROGRAMS", built(Profile::Release)?))
}

/// The shipped programs on a kernel of Debian's, in an emulated machine.
fn another_kernel() -> Result<(), Failure> {
    let kernel = match kernel::kernel() {
        Ok(kernel) => kernel,
        Err(Failure::Sentence(why)) => {
            return Err(Failure::Missing(format!("there is no kernel to be had: {why}")));
        }
        Err(failure) => return Err(failure),
    };
    // Some attacks are made there.
    build(&["--quiet"])?;
    let mut test = demanding("kernel");
    test.arg("--nocapture").env("COWORK_KERNEL", kernel);
    test.env("COWORK_ESCAPE", built(Profile::Dev)?.join("cowork-escape"));
    shown(test.env("COWORK_PROGRAMS", built(Profile::Release)?))
}

/// Requests that are made up from the document of the API, at the shipped daemon.
fn made_up() -> Result<(), Failure> {
    let schemathesis = api::schemathesis()?;
    let mut test = demanding("openapi");
    test.env("COWORK_SCHEMATHESIS", schemathesis);
    shown(test.env("COWORK_PROGRAMS", built(Profile::Release)?))
}

/// Real agents in sessions of the shipped programs, with a model of ours.
fn real_agents() -> Result<(), Failure> {
    let folder = npm::agents()?;
    let mut test = demanding("agents");
    // One after the other: they speak to one model, which remembers who said what.
    test.env("COWORK_AGENTS", folder).env("RUST_TEST_THREADS", "1");
    shown(test.env("COWORK_PROGRAMS", built(Profile::Release)?))
}

/// The tools of MCP, called by the official client for Python and by the inspector.
fn tools() -> Result<(), Failure> {
    let (packages, inspector) = (mcp::packages()?, npm::inspector()?);
    let mut test = demanding("mcp");
    test.env("COWORK_MCP_CLIENT", packages).env("COWORK_MCP_INSPECTOR", inspector);
    test.env("RUST_TEST_THREADS", AT_ONCE);
    shown(test.env("COWORK_PROGRAMS", built(Profile::Release)?))
}

fn escape() -> Result<(), Failure> {
    program("cowork-escape", &[])
}

fn bench() -> Result<(), Failure> {
    program("cowork-bench", &["--quick"])
}

/// Runs a program of the workspace that tries the shipped ones. It is started without cargo,
/// whose environment no attack and no measurement should meet.
fn program(name: &str, arguments: &[&str]) -> Result<(), Failure> {
    build(&["--quiet"])?;
    let mut command = Command::new(built(Profile::Dev)?.join(name));
    command.args(arguments).env("COWORK_PROGRAMS", built(Profile::Release)?);
    for (variable, _) in std::env::vars_os() {
        let cargos = variable.to_str().is_some_and(|variable| variable.starts_with("CARGO"));
        if cargos || variable == "LD_LIBRARY_PATH" {
            command.env_remove(variable);
        }
    }
    shown(&mut command)
}

fn fuzz() -> Result<(), Failure> {
    fuzz::random(FUZZ_TIME)
}

#[cfg(test)]
mod tests {
    use super::{Duration, Outcome, STEPS, summary};

    #[test]
    fn a_summary_lists_what_ran_and_what_did_not() {
        let mut outcomes = [const { Outcome::NotReached }; STEPS.len()];
        outcomes[0] = Outcome::Passed(Duration::from_millis(1250));
        outcomes[1] = Outcome::Failed(Duration::from_secs(61));
        outcomes[3] = Outcome::NotRun(Duration::from_secs(1), "nothing is there".into());
        let gaps = ["NOT RUN: pip: no index", "NOT RUN: npm: no registry"].map(String::from);
        outcomes[4] = Outcome::Partly(Duration::from_secs(2), gaps.into());
        let text = summary(&outcomes);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "format                   passed      1.2 s");
        assert_eq!(lines[1], "lints                    FAILED     61.0 s");
        assert_eq!(lines[2], "documentation            not run");
        assert_eq!(lines[3], "tidy                     NOT RUN: nothing is there");
        assert!(lines[4].ends_with(" passed      2.0 s"), "{}", lines[4]);
        assert_eq!(lines[5].trim(), "NOT RUN: pip: no index");
        assert_eq!(lines[STEPS.len() + 2], "together                            65.2 s");
        // Steps, and what was left out of one that has passed.
        let not_run = STEPS.len() - 3 + 2;
        assert_eq!(lines[STEPS.len() + 3], format!("2 passed, 1 failed, {not_run} not run"));
    }
}

//! The same measurements as an ordinary user.

use crate::options::Options;
use crate::stopped::Stopped;
use cowork_testbed::{Folder, Person};
use std::os::unix::fs::PermissionsExt;

/// Runs this program again as an ordinary user, from a copy that everybody can execute.
pub(crate) fn again(options: &Options) -> Result<(), Stopped> {
    let failed = |error: std::io::Error| Stopped::at("cannot start again as a user", error);
    let copies = Folder::new(Person::Root, "bench");
    let results = Folder::new(Person::User, "results");
    let program = copies.path().join("cowork-bench");
    std::fs::copy(std::env::current_exe().map_err(failed)?, &program).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).map_err(failed)?;
    let json = results.path().join("results.json");

    let mut command = Person::User.command(&program);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--json" {
            arguments.next();
        } else if argument != "--as-user" {
            command.arg(argument);
        }
    }
    if options.programs.is_none() {
        command.arg("--programs").arg(cowork_testbed::programs());
    }
    command.arg("--json").arg(&json).current_dir("/");
    if let Some(peers) = std::env::var_os("COWORK_BENCH_PEERS") {
        command.env("COWORK_BENCH_PEERS", peers);
    }
    let status = command.status().map_err(failed)?;
    if !status.success() {
        return Err(Stopped::new(format!("the run as a user ended with {status}")));
    }
    if let Some(wanted) = &options.json {
        std::fs::copy(&json, wanted).map_err(|error| Stopped::at(wanted.display(), error))?;
    }
    Ok(())
}

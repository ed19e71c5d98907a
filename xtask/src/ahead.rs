//! `cargo xtask prepare`: everything that the tests need beside a compiler, from the registries.
//!
//! Installing waits for the network and the disk, compiling for processors. So the tests have a
//! process of this verb go ahead while they compile, and wait for it before they need what it
//! installs. It is a process of its own, since what it says would stand among the compiler's words.
//!
//! Deliberately absent: judging what is missing. Whoever needs something installs it again, which
//! does nothing where it is there, and fails or is not run where it is not to be had.

use crate::workspace::{Failure, Profile, built};
use crate::{api, kernel, mcp, npm, packages};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Installs everything. What a single step needs may be missing afterwards, which is said.
pub(crate) fn prepare() -> Result<(), Failure> {
    packages::install()?;
    let others: [fn() -> Result<PathBuf, Failure>; 5] =
        [npm::agents, kernel::kernel, api::schemathesis, mcp::packages, npm::inspector];
    for install in others {
        match install() {
            Ok(_) => {}
            Err(Failure::Sentence(why) | Failure::Missing(why)) => println!("{why}"),
            Err(failure @ Failure::Usage) => return Err(failure),
        }
    }
    Ok(())
}

/// A process that installs. It is waited for when this value goes, since one that is ended in the
/// middle leaves packages half installed.
#[derive(Debug)]
pub(crate) struct Ahead {
    process: Option<Child>,
    /// What it says.
    log: PathBuf,
}

impl Ahead {
    /// Starts it.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let programs = built(Profile::Dev)?;
        let log = programs.join("prepare.log");
        std::fs::create_dir_all(&programs)
            .map_err(|error| Failure::at("make", &programs, error))?;
        let file = File::create(&log).map_err(|error| Failure::at("make", &log, error))?;
        let again = file.try_clone().map_err(|error| Failure::at("share", &log, error))?;
        let own = std::env::current_exe();
        let own =
            own.map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(own);
        command.arg("prepare").stdin(Stdio::null()).stdout(file).stderr(again);
        let process = command
            .spawn()
            .map_err(|error| Failure::new(format!("cannot start `prepare`: {error}")))?;
        Ok(Self { process: Some(process), log })
    }

    /// Waits until it is over, shows what it said, and makes sure of the system's packages.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(mut process) = self.process.take() {
            process
                .wait()
                .map_err(|error| Failure::new(format!("cannot wait for `prepare`: {error}")))?;
            let said = std::fs::read(&self.log);
            let said = said.map_err(|error| Failure::at("read", &self.log, error))?;
            print!("{}", String::from_utf8_lossy(&said));
        }
        packages::install()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            println!("waiting for what is being installed");
            if let Err(error) = process.wait() {
                println!("it cannot be waited for: {error}");
            }
        }
    }
}

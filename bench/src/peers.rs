//! What others offer for the same job: run a program with the system read-only, one folder for
//! writing, and private `/proc`, `/dev` and `/tmp`.

use crate::bundle;
use crate::site::Site;
use crate::stopped::Stopped;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A sandbox that is started for each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Cowork,
    Bubblewrap,
    Crun,
    Runc,
    Firejail,
    Srt,
    Codex,
    Nono,
}

impl Peer {
    pub(crate) const ALL: [Self; 8] = [
        Self::Cowork,
        Self::Bubblewrap,
        Self::Crun,
        Self::Runc,
        Self::Firejail,
        Self::Srt,
        Self::Codex,
        Self::Nono,
    ];

    /// The name of its program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Cowork => "cowork",
            Self::Bubblewrap => "bwrap",
            Self::Crun => "crun",
            Self::Runc => "runc",
            Self::Firejail => "firejail",
            Self::Srt => "srt",
            Self::Codex => "codex",
            Self::Nono => "nono",
        }
    }

    /// What is measured, for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cowork => "cowork run --no-daemon",
            Self::Bubblewrap => "bwrap",
            Self::Crun => "crun run",
            Self::Runc => "runc run",
            Self::Firejail => "firejail --noprofile",
            Self::Srt => "srt",
            Self::Codex => "codex sandbox",
            Self::Nono => "nono run",
        }
    }

    /// Where it is installed.
    pub(crate) fn find(self, site: &Site) -> Option<PathBuf> {
        match self {
            Self::Cowork => Some(site.programs.join("cowork")),
            Self::Srt => site.srt.clone().or_else(|| site.find("srt")),
            _ => site.find(self.program()),
        }
    }

    /// The command that runs `job` in the sandbox, in the project folder.
    pub(crate) fn command(
        self,
        site: &Site,
        program: &Path,
        job: &[&str],
    ) -> Result<Command, Stopped> {
        let mut command = site.command(program);
        match self {
            Self::Cowork => command.args(["run", "--no-daemon", "--cd", "mnt/project", "--"]),
            Self::Bubblewrap => {
                command.args(["--unshare-all", "--unshare-user", "--die-with-parent"]);
                command.args(["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]);
                for link in ["bin", "sbin", "lib", "lib32", "lib64"] {
                    if let Ok(to) = std::fs::read_link(format!("/{link}")) {
                        command.arg("--symlink").arg(to).arg(format!("/{link}"));
                    }
                }
                command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind"]);
                command.arg(site.project()).args(["/project", "--chdir", "/project"])
            }
            Self::Crun | Self::Runc => {
                let name = job.join("-").replace(['/', ' ', '.', '>'], "");
                let bundle = bundle::write(site, &name, job)?;
                let mut command = self.runtime(site, program);
                command.arg("run").arg("--bundle").arg(bundle).arg("bench-once");
                return Ok(command);
            }
            Self::Firejail => {
                command.args(["--noprofile", "--net=none", "--quiet"]);
                // The project folder lies below /var/tmp, which it hides and protects otherwise.
                command.args(["--writable-var", "--keep-var-tmp", "--"])
            }
            Self::Srt => command.arg("-s").arg(srt_settings(site)?).arg("--"),
            Self::Codex => command.args(["sandbox", "-P", ":workspace", "--"]),
            Self::Nono => command.args(["run", "-s", "--allow", ".", "--"]),
        };
        command.args(job);
        Ok(command)
    }

    /// The start of every command line of an OCI runtime.
    fn runtime(self, site: &Site, program: &Path) -> Command {
        let mut command = site.command(program);
        command.arg("--root").arg(site.at(&format!("{}-state", self.program())));
        if self == Self::Crun {
            command.arg("--cgroup-manager=disabled");
        }
        command
    }
}

/// Settings for srt, and for what takes its place: the project folder is writable, and nothing is
/// reached.
pub(crate) fn srt_settings(site: &Site) -> Result<PathBuf, Stopped> {
    let settings = site.at("srt.json");
    let text = r#"{"network":{"allowedDomains":[],"deniedDomains":[]},
        "filesystem":{"denyRead":["~/.ssh"],"allowWrite":["."],"denyWrite":[]}}"#;
    std::fs::write(&settings, text).map_err(|error| Stopped::at(settings.display(), error))?;
    Ok(settings)
}

/// Runs a command to its end, which must be a good one; says how long that took.
pub(crate) fn time(command: &mut Command) -> Result<Duration, Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::at("it cannot be run here", error);
    let begin = Instant::now();
    let status = command.status().map_err(|error| failed(&error))?;
    let took = begin.elapsed();
    if status.success() { Ok(took) } else { Err(failed(&status)) }
}

/// Sees that the sandbox does its job: a command inside writes a file in the project folder.
/// Says how long that took.
pub(crate) fn prove(site: &Site, peer: Peer, program: &Path) -> Result<Duration, Stopped> {
    let mark = site.project().join("mark");
    let job = ["/bin/sh", "-c", "echo ran > mark"];
    let mut command = peer.command(site, program, &job)?;
    let took = first_run(site, &mut command)?;
    let seen = std::fs::read(&mark).is_ok_and(|text| text == b"ran\n");
    drop(std::fs::remove_file(&mark));
    if seen { Ok(took) } else { Err(Stopped::new("its command did not write in the folder")) }
}

/// Runs a command that has never been run before: it may fail with an explanation, or hang.
fn first_run(site: &Site, command: &mut Command) -> Result<Duration, Stopped> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let failed = |error: &dyn std::fmt::Display| Stopped::at("it does not work here", error);
    // A file and not a pipe: what a command leaves running keeps a pipe open.
    let errors = site.at("errors");
    let file = File::create(&errors).map_err(|error| failed(&error))?;
    let begin = Instant::now();
    let mut child = command.stderr(file).spawn().map_err(|error| failed(&error))?;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            let took = begin.elapsed();
            let said = std::fs::read(&errors).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason");
            return if status.success() { Ok(took) } else { Err(failed(&line.trim())) };
        }
        if begin.elapsed() > PATIENCE {
            drop(child.kill());
            drop(child.wait());
            return Err(failed(&"it did not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A container that runs, to start further commands in.
#[derive(Debug)]
pub(crate) struct Container<'a> {
    site: &'a Site,
    peer: Peer,
    program: PathBuf,
}

/// Its name, among the containers of one runtime.
const CONTAINER: &str = "bench-idle";

impl<'a> Container<'a> {
    pub(crate) fn start(site: &'a Site, peer: Peer, program: &Path) -> Result<Self, Stopped> {
        let bundle = bundle::write(site, "idle", &["/bin/sleep", "100000"])?;
        let mut command = peer.runtime(site, program);
        command.args(["run", "--detach", "--bundle"]).arg(bundle).arg(CONTAINER);
        let container = Self { site, peer, program: program.to_path_buf() };
        first_run(site, &mut command)?;
        Ok(container)
    }

    /// The command that runs `job` in the container.
    pub(crate) fn command(&self, job: &[&str]) -> Command {
        let mut command = self.peer.runtime(self.site, &self.program);
        command.args(["exec", CONTAINER]).args(job);
        command
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut command = self.peer.runtime(self.site, &self.program);
        drop(command.args(["delete", "--force", CONTAINER]).status());
    }
}

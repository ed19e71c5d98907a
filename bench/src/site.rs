//! The place where measurements happen: folders to grant, small programs, and where peers are.

use crate::options::Options;
use crate::stopped::Stopped;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Everything that measurements share.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where the programs are that are shipped.
    pub(crate) programs: PathBuf,
    /// Whether the small programs could be built, else why not.
    pub(crate) built: Result<(), String>,
    /// The `srt` that the caller named.
    pub(crate) srt: Option<PathBuf>,
    /// Where peers are looked for.
    path: OsString,
    work: Work,
}

/// The folder that everything is in, removed at the end.
#[derive(Debug)]
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        // What a measurement could not unmount stays, and is seen.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The small programs, each with the options that its compiler needs.
const SOURCES: [(&str, &str, &[&str]); 7] = [
    ("noop", include_str!("../programs/noop.c"), &["-nostdlib", "-s"]),
    ("plain", include_str!("../programs/plain.c"), &[]),
    ("holder", include_str!("../programs/holder.c"), &[]),
    ("steady", include_str!("../programs/steady.c"), &[]),
    ("crowd", include_str!("../programs/crowd.c"), &[]),
    ("relay", include_str!("../programs/relay.c"), &[]),
    ("files", include_str!("../programs/files.c"), &["-pthread"]),
];

impl Site {
    pub(crate) fn prepare(options: &Options) -> Result<Self, Stopped> {
        let work = Work(PathBuf::from(format!("/var/tmp/cowork-bench-{}", std::process::id())));
        for folder in ["", "project", "other", "home"] {
            let folder = work.0.join(folder);
            std::fs::create_dir(&folder).map_err(|error| Stopped::at(folder.display(), error))?;
        }
        let file = work.0.join("other/file");
        std::fs::write(&file, "held").map_err(|error| Stopped::at(file.display(), error))?;
        let built = build(&work.0).map_err(|stopped| stopped.to_string());
        Ok(Self {
            programs: programs(options),
            built,
            srt: options.srt.clone(),
            path: search_path(),
            work,
        })
    }

    /// A place in the folder of this run.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.work.0.join(name)
    }

    /// The folder that is granted for writing; the small programs are in it.
    pub(crate) fn project(&self) -> PathBuf {
        self.at("project")
    }

    /// The folder that is granted and revoked.
    pub(crate) fn other(&self) -> PathBuf {
        self.at("other")
    }

    /// The program that does nothing, by its path on the host.
    pub(crate) fn noop(&self) -> PathBuf {
        match self.built {
            Ok(()) => self.project().join("noop"),
            Err(_) => PathBuf::from(TRUE),
        }
    }

    /// How a command that starts in the project folder names the program that does nothing.
    pub(crate) fn noop_inside(&self) -> &'static str {
        if self.built.is_ok() { "./noop" } else { TRUE }
    }

    /// Refuses where the small programs are needed and could not be built.
    pub(crate) fn need_built(&self) -> Result<(), Stopped> {
        self.built.clone().map_err(Stopped::new)
    }

    /// The program of this name on the search path.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path).map(|folder| folder.join(name)).find(|program| {
            std::fs::metadata(program)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
    }

    /// A command that starts in the project folder, without input, with as little environment as
    /// peers work with.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.project()).env_clear();
        command.env("PATH", &self.path).env("HOME", self.at("home"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A program that every host has, dynamically linked.
pub(crate) const TRUE: &str = "/usr/bin/true";

fn search_path() -> OsString {
    let more = std::env::var_os("COWORK_BENCH_PEERS").unwrap_or_default();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&more).chain(std::env::split_paths(&usual));
    let folders = folders.filter(|folder| folder.is_absolute());
    std::env::join_paths(folders).unwrap_or_default()
}

fn programs(options: &Options) -> PathBuf {
    if let Some(programs) = &options.programs {
        return programs.clone();
    }
    if rustix::process::geteuid().is_root() {
        return cowork_testbed::programs().to_path_buf();
    }
    let beside = || {
        let exe = std::env::current_exe().ok()?;
        exe.parent().map(Path::to_path_buf)
    };
    let named = std::env::var_os("COWORK_PROGRAMS").map(PathBuf::from);
    named.or_else(beside).unwrap_or_default()
}

/// Builds the small programs in the project folder.
fn build(work: &Path) -> Result<(), Stopped> {
    for (name, source, options) in SOURCES {
        let file = work.join(format!("{name}.c"));
        std::fs::write(&file, source).map_err(|error| Stopped::at(file.display(), error))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-static"]).args(options).arg("-o");
        compiler.arg(work.join("project").join(name)).arg(&file);
        let done = compiler.stdin(Stdio::null()).output();
        let done = done.map_err(|error| Stopped::at("there is no C compiler `cc`", error))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(Stopped::at(format!("cannot build `{name}`"), said.trim()));
        }
    }
    Ok(())
}

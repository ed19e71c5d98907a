//! A folder to work in, and how a program gets at it.

use super::material::Material;
use crate::daemon::server::{Server, create, session};
use crate::network::line::Line;
use crate::site::Site;
use crate::stopped::Stopped;
use cowork_client::http::{Client, Method};
use cowork_client::types::{
    Access, Changes, NewGrant, NewSession, Raw, Restored, Undo, WantedGuards, WantedLimits,
    WantedWrites,
};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the small program is, for who works beside the tools.
const PROGRAM: &str = "../tools/files";

/// How changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Without any session.
    Outside,
    /// In a session, on a plain mount.
    Direct,
    /// In a session, on a copy-on-write overlay.
    Staged,
    /// In a session, by the broker, which keeps nothing.
    Unrecorded,
    /// In a session, by the broker, which records everything.
    Recorded,
}

impl Way {
    pub(super) const ALL: [Self; 5] =
        [Self::Outside, Self::Direct, Self::Staged, Self::Unrecorded, Self::Recorded];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Outside => "no session",
            Self::Direct => "direct",
            Self::Staged => "staged",
            Self::Unrecorded => "rw, not recorded",
            Self::Recorded => "rw",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Direct => "direct",
            Self::Staged => "staged",
            Self::Unrecorded => "unrecorded",
            Self::Recorded => "recorded",
        }
    }
}

/// What all folders have in common.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) site: &'a Site,
    pub(super) server: &'a Server,
    pub(super) material: &'a Material,
}

/// A folder that is worked in.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) way: Way,
    pub(super) folder: PathBuf,
    /// The session that it is granted to, if one stays.
    pub(super) id: Option<String>,
}

impl Ground {
    /// One for a way, with everything that jobs need.
    pub(super) fn of(place: &Place<'_>, way: Way) -> Result<Self, Stopped> {
        Self::at(place, way, place.material.copy(way.name())?)
    }

    /// One for a way, empty, in a folder.
    pub(super) fn below(place: &Place<'_>, way: Way, folder: &Path) -> Result<Self, Stopped> {
        let folder = folder.join(way.name());
        std::fs::create_dir(&folder).map_err(|error| Stopped::at(folder.display(), error))?;
        Self::at(place, way, folder)
    }

    /// One for a way, in this folder.
    pub(super) fn at(place: &Place<'_>, way: Way, folder: PathBuf) -> Result<Self, Stopped> {
        let access = match way {
            Way::Direct => Some(Access::Direct),
            Way::Staged => Some(Access::Staged),
            Way::Recorded => Some(Access::Write),
            Way::Outside | Way::Unrecorded => None,
        };
        let id = match access {
            Some(access) => Some(make(place, &folder, access)?),
            None => None,
        };
        Ok(Self { way, folder, id })
    }

    /// The small program, in the folder.
    pub(super) fn command(&self, place: &Place<'_>, words: &[&str]) -> Command {
        let mut command = match (&self.id, self.way) {
            (Some(id), _) => {
                place.server.cowork(place.site, &["exec", "--cd", "mnt/work", id, "--", PROGRAM])
            }
            (None, Way::Unrecorded) => self.once(place),
            (None, _) => {
                let mut command = place.site.command(place.material.tools().join("files"));
                command.env("SCRATCH", place.site.at("home"));
                command
            }
        };
        command.args(words).current_dir(&self.folder);
        command
    }

    /// A session for one command, without the daemon.
    fn once(&self, place: &Place<'_>) -> Command {
        let mut command = place.site.command(place.site.programs.join("cowork"));
        command.args(["run", "--no-daemon", "--best-effort", "--force", "--guard", "off"]);
        let mut grants = vec![(self.folder.as_path(), "rw=work")];
        let tools = place.material.tools();
        grants.push((&tools, "ro=tools"));
        if let Ok(rust) = &place.material.rust {
            grants.push((rust, "ro=rust"));
        }
        for (folder, how) in grants {
            command.arg("--grant").arg(format!("{}/:{how}", folder.display()));
        }
        command.args(["--cd", "mnt/work", "--", PROGRAM]);
        command
    }

    /// What the small program printed; it must end well.
    pub(super) fn ask(&self, place: &Place<'_>, words: &[&str]) -> Result<String, Stopped> {
        let mut command = self.command(place, words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = command.output().map_err(|error| Stopped::at(self.way.title(), error))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.lines().rev().take(3).collect::<Vec<_>>().join("; ");
        Err(Stopped::at(self.way.title(), format!("{}: {said}", done.status)))
    }

    /// Runs a script and then another one; says how long the first one took.
    pub(super) fn time(
        &self,
        place: &Place<'_>,
        script: &str,
        after: &str,
    ) -> Result<Duration, Stopped> {
        nanoseconds(&self.ask(place, &["time", script, after])?)
    }

    /// The small program, spoken with.
    pub(super) fn line(&self, place: &Place<'_>, words: &[&str]) -> Result<Line, Stopped> {
        Line::start(&mut self.command(place, words))
    }

    fn session(&self) -> Result<&str, Stopped> {
        self.id.as_deref().ok_or_else(|| Stopped::new("there is no session"))
    }

    /// Undoes the last set of changes; says how long that took, from the request to the answer,
    /// and of how many names.
    pub(super) fn undo(&self, client: &mut Client) -> Result<(Duration, u64), Stopped> {
        let target = session(self.session()?, "/undo");
        let begin = Instant::now();
        let done: Restored = client.send(Method::Post, target, &Undo::default())?;
        let took = begin.elapsed();
        match (done.conflicts.len(), done.lost.len()) {
            (0, 0) => Ok((took, done.names)),
            (conflicts, lost) => Err(Stopped::new(format!(
                "an undo had {conflicts} conflicts and lost {lost} names"
            ))),
        }
    }

    /// How many records there are of its session.
    pub(super) fn records(&self, client: &mut Client) -> Result<(u64, Duration), Stopped> {
        let begin = Instant::now();
        let changes: Changes = client.get(session(self.session()?, "/changes"))?;
        let took = begin.elapsed();
        Ok((changes.sets.iter().map(|set| set.records).sum(), took))
    }

    /// The process that decides about changes of its session, below a keeper.
    pub(super) fn broker(&self, server: &Server) -> Result<u32, Stopped> {
        let id = self.session()?;
        let [_, keeper] = server.processes()?;
        let is_meant = |pid: &u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            words.next() == Some(b"cowork-broker") && words.any(|word| word == id.as_bytes())
        };
        let found = children(keeper).into_iter().find(is_meant);
        found.ok_or_else(|| Stopped::new("the session has no broker"))
    }
}

/// Children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// Makes a session that stays, without guards: what is done in mass here is meant.
fn make(place: &Place<'_>, folder: &Path, access: Access) -> Result<String, Stopped> {
    let tools = place.material.tools();
    let mut folders = vec![(folder, access, "work"), (&tools, Access::Read, "tools")];
    if let Ok(rust) = &place.material.rust {
        folders.push((rust, Access::Read, "rust"));
    }
    let grants = folders.into_iter().map(|(path, access, name)| NewGrant {
        path: Raw::new(path.as_os_str().as_bytes()),
        access,
        name: Some(name.to_owned()),
        force: true,
        direct: Vec::new(),
        writes: WantedWrites::default(),
        expires: None,
    });
    let guards = WantedGuards { removals: Some(0), share: Some(0) };
    let limits = WantedLimits { processes: Some(20_000), ..WantedLimits::default() };
    let wanted = NewSession {
        grants: grants.collect(),
        limits,
        best_effort: true,
        writes: WantedWrites { guards, ..WantedWrites::default() },
        ..NewSession::default()
    };
    Ok(create(&mut place.server.client()?, &wanted)?.0.id)
}

/// A number of nanoseconds that a program printed.
pub(super) fn nanoseconds(printed: &str) -> Result<Duration, Stopped> {
    let number = printed.trim().parse().map(Duration::from_nanos);
    number.map_err(|error| Stopped::at(format!("it printed `{}`", printed.trim()), error))
}

//! How the session of an attack comes to be.
//!
//! Most attacks are made in a session that the daemon makes for them. What a caller hands down is
//! another matter without a daemon, where the keeper is the caller's child; and a session that stays
//! must be as tight for a later command as for its first.

use crate::attack::{Attack, Company, Reach};
use crate::runner::{folders, grants};
use crate::scene::Lost;
use crate::stage::{KIT, Stage};
use cowork_testbed::{Folder, Person};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// How the session of an attack comes to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way<'a> {
    /// The daemon makes it for this command.
    Daemon,
    /// The caller makes it for this command.
    Alone,
    /// It was there before, and this came last.
    Staying(&'a Staying, Past),
}

/// What came last in the life of a session that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Another command.
    Command,
    /// The grant of a folder, and its revocation.
    Revocation,
    /// The daemon's death; another one found the session.
    Restart,
}

/// Classes of what a caller might hand down, or what a session might reach of it.
const ALONE: [&str; 8] = [
    "descriptors",
    "keys",
    "crashes",
    "terminal",
    "secrets",
    "PID 1",
    "host sockets",
    "own sockets",
];
/// Classes of walls that a session has for its whole life.
const STAYING: [&str; 7] =
    ["descriptors", "PID 1", "mounts", "namespaces", "host sockets", "own sockets", "calls"];

impl Way<'_> {
    /// As the table names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Alone => "alone",
            Self::Staying(_, Past::Command) => "warm",
            Self::Staying(_, Past::Revocation) => "revoked",
            Self::Staying(_, Past::Restart) => "restarted",
        }
    }
}

/// Whether an attack is made in sessions without the daemon too.
pub(crate) fn is_made_alone(attack: &Attack) -> bool {
    ALONE.contains(&attack.class) && is_plain(attack)
}

/// Whether an attack is made in a session that stays too.
pub(crate) fn stays(attack: &Attack) -> bool {
    STAYING.contains(&attack.class) && is_plain(attack)
}

/// Whether an attack wants nothing else of its session than to be in it.
fn is_plain(attack: &Attack) -> bool {
    attack.reach == Reach::Nothing
        && attack.company == Company::Alone
        && attack.options.is_empty()
        && attack.folders.is_empty()
        && attack.refused.is_empty()
        && attack.installed.is_none()
}

impl Past {
    /// In the order in which they come.
    pub(crate) const ALL: [Self; 3] = [Self::Command, Self::Revocation, Self::Restart];
}

/// A session that stays, with a daemon of its own. Both end with this.
#[derive(Debug)]
pub(crate) struct Staying {
    person: Person,
    folder: Folder,
    id: String,
}

impl Staying {
    pub(crate) fn new(stage: &Stage, profile: &str) -> Result<Self, Lost> {
        let folder = Folder::new(stage.person, "staying");
        let mut staying = Self { person: stage.person, folder, id: String::new() };
        staying.folder.write("further/canary", "of a folder that comes and goes");
        let mut command = staying.cowork();
        command.args(["new", "--profile", profile, "--guard", "off"]);
        if stage.person == Person::User {
            command.arg("--best-effort");
        }
        command.args(grants(stage, profile)).current_dir(stage.path(""));
        said_by(&mut command)?.trim().clone_into(&mut staying.id);
        Ok(staying)
    }

    /// A command in it, up to the attack's own arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.cowork();
        command.args(["exec", &self.id, "--", KIT]);
        command
    }

    /// Has this happen to it.
    pub(crate) fn undergo(&self, past: Past) -> Result<(), Lost> {
        match past {
            Past::Command => self.run(&["true"]).map(drop),
            Past::Revocation => {
                let folder = self.folder.path().join("further").display().to_string();
                said_by(self.cowork().args(["grant", &self.id, &format!("{folder}:ro")]))?;
                self.run(&["cat", "mnt/further/canary"])?;
                said_by(self.cowork().args(["revoke", &self.id, "further"]))?;
                match self.run(&["ls", "mnt/further/canary"]) {
                    Ok(_) => Err(Lost::new("the folder is still there")),
                    Err(_) => Ok(()),
                }
            }
            Past::Restart => {
                let number = self.daemon()?;
                let process = rustix::process::Pid::from_raw(number)
                    .ok_or_else(|| Lost::new("the daemon has no number"))?;
                rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
                while std::fs::read_link(format!("/proc/{number}/exe")).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                self.run(&["true"])?;
                if self.daemon()? == number {
                    return Err(Lost::new("the daemon is the one that was killed"));
                }
                Ok(())
            }
        }
    }

    fn run(&self, words: &[&str]) -> Result<String, Lost> {
        said_by(self.cowork().args(["exec", "--no-stdin", &self.id, "--"]).args(words))
    }

    /// `cowork`, with a daemon of this session's own.
    fn cowork(&self) -> Command {
        let mut command = self.person.cowork();
        command.env("COWORK_RUNTIME_DIR", self.runtime());
        command.env("COWORK_STATE_DIR", self.folder.path().join("state"));
        command.current_dir(self.folder.path());
        command
    }

    fn runtime(&self) -> std::path::PathBuf {
        self.folder.path().join("run")
    }

    /// The number of its daemon.
    fn daemon(&self) -> Result<i32, Lost> {
        let runtime = self.runtime();
        let wanted = [b"COWORK_RUNTIME_DIR=", runtime.as_os_str().as_bytes()].concat();
        let is_ours = |number: &i32| {
            let read = |name: &str| std::fs::read(format!("/proc/{number}/{name}"));
            let named = read("comm").is_ok_and(|name| name == b"coworkd\n");
            let environment = read("environ").unwrap_or_default();
            named && environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        };
        let entries = std::fs::read_dir("/proc")?.flatten();
        let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(is_ours).ok_or_else(|| Lost::new("the daemon of the session is not found"))
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        cowork_sys::ignore(said_by(self.cowork().args(["rm", &self.id])));
        cowork_sys::ignore(said_by(self.cowork().args(["daemon", "--stop"])));
    }
}

/// A session with rules about names, removed at the end.
#[derive(Debug)]
pub(crate) struct Made {
    person: Person,
    pub(crate) id: String,
}

impl Made {
    pub(crate) fn new(stage: &Stage, attack: &Attack, profile: &str) -> Result<Self, Lost> {
        let mut command = stage.person.cowork();
        command.args(["new", "--profile", profile, "--guard", "off"]).args(attack.options);
        command.args(folders(stage, attack));
        if stage.person == Person::User {
            command.arg("--best-effort");
        }
        command.args(grants(stage, profile)).current_dir(stage.path(""));
        let id = said_by(&mut command)?;
        let made = Self { person: stage.person, id: id.trim().to_owned() };
        for pattern in attack.refused {
            let mut protect = stage.person.cowork();
            protect.args(["protect", "add", &made.id, pattern, "--deny", "--grant", "yard"]);
            said_by(&mut protect)?;
        }
        Ok(made)
    }

    pub(crate) fn command(&self, stage: &Stage) -> Command {
        let mut command = self.person.cowork();
        command.args(["exec", "--no-stdin", &self.id, "--", KIT]).current_dir(stage.path(""));
        command
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        cowork_sys::ignore(said_by(self.person.cowork().args(["rm", &self.id])));
    }
}

/// What a command says that must succeed.
pub(crate) fn said_by(command: &mut Command) -> Result<String, Lost> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(Lost::new(format!("{command:?}: {}", text(&output.stderr))))
}

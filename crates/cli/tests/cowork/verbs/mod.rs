//! Every verb that asks the daemon, by what it prints, what it returns and what it does.
//!
//! Tests of one person share a daemon and run beside each other: each has sessions and folders of
//! its own. What concerns the daemon itself, or everything it has recorded, is tested with a daemon
//! apart.

mod changes;
mod commands;
mod control;
mod daemon;
mod default;
mod folders;
mod json;
mod logs;
mod looks;
mod modes;
mod network;
mod oneshot;
mod record;
mod rules;
mod secrets;
mod sessions;
mod terminals;
mod transfer;

use crate::support::{Process, Ran, cowork, finish, inside, until};
use cowork_testbed::{Folder, Person};
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A person's folder to work in, the daemon that is asked, and the sessions that were made here.
/// They are removed at the end.
struct Desk {
    person: Person,
    work: Folder,
    apart: Option<Folder>,
    sessions: RefCell<Vec<String>>,
}

impl Desk {
    /// With the daemon that the person's tests share.
    fn new(person: Person) -> Self {
        let sessions = RefCell::default();
        Self { person, work: Folder::new(person, "desk"), apart: None, sessions }
    }

    /// With a daemon of its own.
    fn apart(person: Person) -> Self {
        let mut desk = Self::new(person);
        desk.apart = Some(Folder::new(person, "apart"));
        desk
    }

    /// The folder of a daemon of its own.
    #[track_caller]
    fn daemon(&self) -> &Path {
        self.apart.as_ref().expect("it has a daemon of its own").path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cowork(self.person, self.work.path(), arguments);
        if let Some(folder) = &self.apart {
            command.env("COWORK_RUNTIME_DIR", folder.path().join("run"));
            command.env("COWORK_STATE_DIR", folder.path().join("state"));
        }
        command
    }

    /// What `cowork` says.
    #[track_caller]
    fn say(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments), Vec::new())
    }

    /// What it says if it succeeds in silence.
    #[track_caller]
    fn good(&self, arguments: &[&str]) -> String {
        let ran = self.say(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}: {}", ran.text());
        ran.text().to_owned()
    }

    /// Checks that it refuses with a code and a message, and prints nothing else.
    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, err: &str) {
        let ran = self.say(arguments);
        assert_eq!((ran.code, ran.text(), ran.err.as_str()), (code, "", err), "{arguments:?}");
    }

    /// The document that it prints.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.good(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Makes a session with the folder as `mnt/work`.
    #[track_caller]
    fn make(&self, id: &str, options: &[&str]) {
        let grant = format!("{}=work", self.path());
        let arguments = [&["new", "--id", id, "--grant", &grant], options].concat();
        self.sessions.borrow_mut().push(id.to_owned());
        assert_eq!(self.good(&arguments), format!("{id}\n"));
    }

    /// What a line of the shell says in a session.
    #[track_caller]
    fn sh(&self, id: &str, line: &str) -> Ran {
        self.say(&["exec", id, "--", "sh", "-c", line])
    }

    /// Starts a line of the shell in a session, and leaves it running.
    #[track_caller]
    fn start(&self, id: &str, line: &str) -> String {
        let number = self.good(&["exec", "--detach", id, "--", "sh", "-c", line]);
        number.trim_end().to_owned()
    }

    /// Starts `cowork` and does not wait for its end.
    fn spawn(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Started(command.spawn().expect("the program is there"))
    }

    /// The state of a session.
    #[track_caller]
    fn state(&self, id: &str) -> String {
        text(&self.json(&["status", "--json", id])["state"])
    }

    /// The ids of all sessions.
    #[track_caller]
    fn ids(&self) -> Vec<String> {
        self.good(&["ls", "--quiet"]).lines().map(str::to_owned).collect()
    }

    fn path(&self) -> &str {
        self.work.path().to_str().expect("test folders are text")
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // What a test has removed itself is not there any more.
        for id in self.sessions.borrow().iter() {
            drop(self.command(&["rm", id]).output());
        }
        if self.apart.is_some() {
            drop(self.command(&["daemon", "--stop"]).output());
        }
    }
}

/// A `cowork` that runs; it is killed if the test does not see its end.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The processes in the session of a desk's folder, once one of them sleeps for a number of seconds.
#[track_caller]
fn asleep(desk: &Desk, seconds: &str) -> Vec<Process> {
    let line = format!("sleep\0{seconds}\0");
    let mut found = Vec::new();
    until("it sleeps", || {
        found = inside(desk.work.path());
        found.iter().any(|process| process.file("cmdline") == line)
    });
    found
}

/// Whether something has a name on the host, be it a link that leads nowhere.
fn is_there(path: impl AsRef<Path>) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// A text in a document.
#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("it is a text: {value}")).to_owned()
}

/// An id for a session of a test.
fn id(start: &str, person: Person) -> String {
    match person {
        Person::Root => format!("{start}-root"),
        Person::User => format!("{start}-user"),
    }
}

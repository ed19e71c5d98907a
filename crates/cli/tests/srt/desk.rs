//! A folder to work in, settings beside it, and `cowork srt` in it.

use cowork_testbed::{Folder, Person, Said};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// A person's folder, with settings that lie elsewhere.
pub(crate) struct Desk {
    pub(crate) person: Person,
    pub(crate) folder: Folder,
    beside: Folder,
}

impl Desk {
    pub(crate) fn new(person: Person, name: &str) -> Self {
        Self { person, folder: Folder::new(person, name), beside: Folder::new(person, "beside") }
    }

    pub(crate) fn here(&self) -> &Path {
        self.folder.path()
    }

    /// The path of settings, for the command line.
    pub(crate) fn settings(&self, settings: &Value) -> String {
        self.text(&settings.to_string())
    }

    /// The same of any text.
    pub(crate) fn text(&self, text: &str) -> String {
        self.beside.write("settings.json", text).display().to_string()
    }

    /// A file that lies neither in the folder nor in the home.
    pub(crate) fn elsewhere(&self, name: &str, contents: &str) -> String {
        self.beside.write(name, contents).display().to_string()
    }

    /// `cowork srt` with arguments, in the folder.
    pub(crate) fn srt(&self, arguments: &[&str]) -> Command {
        let mut command = self.person.cowork();
        command.arg("srt").args(arguments).current_dir(self.here()).stdin(Stdio::null());
        command
    }

    /// What came of `cowork srt` with arguments.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::of(&self.srt(arguments).output().expect("the program is there"))
    }

    /// What came of a script with settings.
    pub(crate) fn script(&self, settings: &Value, script: &str) -> Said {
        self.run(&["-s", &self.settings(settings), "-c", script])
    }

    /// Everything in the folder, by relative path.
    pub(crate) fn listing(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut todo = vec![self.here().to_path_buf()];
        while let Some(next) = todo.pop() {
            for entry in std::fs::read_dir(&next).expect("it is a folder").flatten() {
                let path = entry.path();
                let below = path.strip_prefix(self.here()).expect("it lies below");
                found.insert(below.display().to_string());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    todo.push(path);
                }
            }
        }
        found
    }
}

/// Settings without a network.
pub(crate) fn files(deny_read: &[&str], allow_write: &[&str], deny_write: &[&str]) -> Value {
    json!({
        "network": { "allowedDomains": [], "deniedDomains": [] },
        "filesystem": {
            "denyRead": deny_read, "allowWrite": allow_write, "denyWrite": deny_write
        },
    })
}

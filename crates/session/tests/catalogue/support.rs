//! Catalogues, their files, and second processes for the tests of this program.

use cowork_session::catalogue::Catalogue;
use cowork_testbed::{Folder, Person};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Tells a process that it is the second one of a test, and where the test's folder is.
const INNER: &str = "COWORK_CATALOGUE_TEST_FOLDER";

/// What the second process of a test says at its end.
pub(crate) const END: &str = "came to its end";

/// The folder of the test, in the second process of it.
pub(crate) fn inner() -> Option<PathBuf> {
    std::env::var_os(INNER).map(PathBuf::from)
}

/// The arguments with which this program runs one test only.
fn only(test: &str) -> [&str; 4] {
    ["--exact", test, "--nocapture", "--test-threads=1"]
}

/// The second process of a test.
pub(crate) fn again(test: &str, person: Person, folder: &Path) -> Command {
    let mut command = person.command(own_program());
    command.args(only(test)).env(INNER, folder);
    command
}

/// The second process of a test, with a small file system of its own mounted on the folder.
pub(crate) fn again_on_tmpfs(test: &str, folder: &Path, options: &str) -> Command {
    let mut command = Person::Root.command("unshare");
    let script = "mount -t tmpfs -o \"$1\" none \"$2\" && shift 2 && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", options]);
    command.arg(folder).arg(own_program()).args(only(test)).env(INNER, folder);
    command
}

/// Runs the second process of a test, which must say that it came to its end.
#[track_caller]
pub(crate) fn must_succeed(mut command: Command) {
    let output = command.output().expect("it starts");
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(END), "{said}\n{errors}");
}

/// This program, where everybody can execute it.
fn own_program() -> &'static Path {
    static COPY: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let folder = Folder::new(Person::Root, "catalogue-tests");
        let path = folder.path().join("catalogue-tests");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    });
    path
}

/// A folder with the place for a catalogue in it.
pub(crate) struct Place {
    pub(crate) folder: Folder,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: Folder::new(Person::Root, "state") }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    #[track_caller]
    pub(crate) fn open(&self) -> Catalogue {
        Catalogue::open(&self.file()).unwrap()
    }

    /// What all files of the folder have in them, but for the lock.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(self.folder.path())
    }
}

pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().extension().is_none_or(|end| end != "lock"));
    files
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Fills a catalogue with something of everything.
pub(crate) fn fill(catalogue: &Catalogue) {
    for session in ["zealous-otter", "calm-heron", "busy-ramanujan"] {
        catalogue.put_session(session, &format!("{{\"id\":\"{session}\"}}")).unwrap();
        for number in 1..=40 {
            let doc = format!("{{\"number\":{number},\"argv\":[\"make\",\"-j\"]}}");
            catalogue.put_command(session, number, &doc).unwrap();
            catalogue
                .add_event("2026-01-01T00:00:00Z", "command.ended", Some(session), &doc)
                .unwrap();
        }
        let id = catalogue.number_request().unwrap();
        catalogue.add_request(id, session, &format!("{{\"id\":{id}}}")).unwrap();
    }
    catalogue.set("head", "42").unwrap();
}

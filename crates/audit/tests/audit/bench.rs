//! Records, files and processes for the tests of this program.

use cowork_audit::{Head, Ledger, Verification, verify};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Tells a process that it is the second one of a test, and where the test's folder is.
const INNER: &str = "COWORK_AUDIT_TEST_FOLDER";

/// The folder of the test, in the second process of it.
pub(crate) fn inner() -> Option<PathBuf> {
    std::env::var_os(INNER).map(PathBuf::from)
}

/// The arguments with which this program runs one test only.
pub(crate) fn only(test: &str) -> [&str; 4] {
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

/// What the second process of a test says at its end.
pub(crate) const END: &str = "came to its end";

/// This program, where everybody can execute it.
fn own_program() -> &'static Path {
    static COPY: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let folder = Folder::new(Person::Root, "audit-tests");
        let path = folder.path().join("audit-tests");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    });
    path
}

/// Opens a record whose files hold a few records each.
pub(crate) fn open(folder: &Path) -> Ledger {
    let opened = Ledger::open_with(folder, None, 1500).unwrap();
    assert_eq!(opened.cut, None);
    opened.ledger
}

/// A time that grows with a number.
pub(crate) fn time(number: u64) -> String {
    format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60)
}

/// Appends records of several types and sessions.
pub(crate) fn fill(ledger: &mut Ledger, records: u64) -> Head {
    for _ in 0..records {
        let number = ledger.head().seq + 1;
        let kind =
            ["session.made", "grant.added", "command.ended"][usize::try_from(number % 3).unwrap()];
        let session = [None, Some("busy-otter"), Some("calm-heron")];
        let session = session[usize::try_from(number / 3 % 3).unwrap()];
        let data = json!({"number": number, "text": "a \"quoted\" line\n", "part": 0.1});
        ledger.append(&time(number), kind, session, &data).unwrap();
    }
    ledger.head().clone()
}

/// The files of a record, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Reads all files of a folder.
pub(crate) fn files(folder: &Path) -> Files {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Makes a folder have these files and no other.
pub(crate) fn lay(folder: &Path, files: &Files) {
    for name in self::files(folder).keys().filter(|name| !files.contains_key(*name)) {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Verifies a record that must be whole.
#[track_caller]
pub(crate) fn whole(folder: &Path, known: Option<&Head>) -> Verification {
    let verification = verify(folder, known).unwrap();
    assert_eq!(verification.problems, []);
    verification
}

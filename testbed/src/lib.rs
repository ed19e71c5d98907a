//! People, folders and programs for tests of the real thing. Never shipped.
//!
//! Tests run as root and start the built programs both as root and as an ordinary user, who exists
//! as a number and a folder of its own: nothing on the host is changed for it. What cannot be set
//! up fails the test; there is no silent skip.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test bed that is not there fails loudly"
)]

mod kill;

pub use kill::kill_before;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Says aloud, past the capture of the test harness, that something did not run; whoever runs all tests
/// counts it (`COWORK_NOT_RUN` names the file).
pub fn not_run(what: &str, why: &str) {
    let line = format!("NOT RUN: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    if let Some(path) = std::env::var_os("COWORK_NOT_RUN") {
        let file = std::fs::File::options().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("what did not run can be counted");
    }
}

/// Who starts a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Person {
    /// The super-user.
    Root,
    /// A user without any privilege.
    User,
}

/// The ordinary user's id: far above people, below every range that something assigns.
const USER: u32 = 54_321;

impl Person {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Root, Self::User];

    /// The user id.
    pub fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::User => USER,
        }
    }

    /// A command that this person starts: with their id, their own home, and no variable of the
    /// tests but `PATH`.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        assert_root();
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        let home = self.home();
        command.env("LANG", "C.UTF-8").env("TERM", "xterm");
        // A daemon of these tests' own, which leaves soon after the last of them.
        command.env("COWORK_RUNTIME_DIR", home.join(".run")).env("COWORK_IDLE", "3");
        command.env("COWORK_STATE_DIR", self.state());
        command.env("HOME", home);
        if self == Self::User {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// `cowork`, started by this person.
    pub fn cowork(self) -> Command {
        self.command(programs().join("cowork"))
    }

    /// The folder that the person's daemon keeps its state in.
    pub fn state(self) -> PathBuf {
        self.home().join(".state")
    }

    /// The person's home. It holds a canary that no session may ever read.
    pub fn home(self) -> PathBuf {
        static HOMES: [OnceLock<Folder>; 2] = [OnceLock::new(), OnceLock::new()];
        let slot = usize::from(self == Self::User);
        let home = HOMES.get(slot).expect("one home per person").get_or_init(|| {
            let home = Folder::new(self, "home");
            home.write(".ssh/id_secret", SECRET);
            home
        });
        home.path().to_path_buf()
    }
}

/// What lies in `.ssh/id_secret` of a person's home.
pub const SECRET: &str = "the canary that no session may read";

fn assert_root() {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    assert!(root, "these tests start programs as root and as another user: run them as root");
}

/// Everything that is shipped: each finds the next beside itself.
const PROGRAMS_UNDER_TEST: [&str; 6] =
    ["cowork", "coworkd", "cowork-keeper", "cowork-init", "cowork-egress", "cowork-mcp"];

/// The folder with the programs under test: `COWORK_PROGRAMS`, or beside the test. They are copied
/// to where everybody can execute them.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<Folder> = OnceLock::new();
    PROGRAMS
        .get_or_init(|| {
            let built = std::env::var_os("COWORK_PROGRAMS").map_or_else(beside, PathBuf::from);
            let folder = Folder::new(Person::Root, "programs");
            for name in PROGRAMS_UNDER_TEST {
                let from = built.join(name);
                let to = folder.path().join(name);
                if let Err(error) = std::fs::copy(&from, &to) {
                    panic!("build the programs first: {} is not there: {error}", from.display());
                }
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&to, mode).expect("the copy is ours");
            }
            folder
        })
        .path()
}

fn beside() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().expect("a program lies in a folder");
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.to_path_buf()
}

/// What a program said.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Said {
    /// What it said until it ended.
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// What it said, of a program that must have succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }
}

/// A folder of a person, removed at the end.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    owner: Person,
}

impl Folder {
    /// Makes an empty folder that belongs to `owner`, on the file system of `/var/tmp`.
    pub fn new(owner: Person, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            sweep();
            tell_failures();
        }
        let unique = format!("cowork-test-{}-{number}-{name}", std::process::id());
        let path = Path::new("/var/tmp").join(unique);
        std::fs::create_dir(&path).expect("/var/tmp is writable");
        let folder = Self { path, owner };
        folder.give(folder.path());
        folder
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn owner(&self) -> Person {
        self.owner
    }

    /// Writes a file below it, with the folders on the way, all belonging to the owner.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        std::fs::create_dir_all(parent).expect("the folder is ours");
        std::fs::write(&path, contents).expect("the folder is ours");
        let mut part = path.clone();
        while part != self.path {
            self.give(&part);
            part.pop();
        }
        path
    }

    /// Reads a file below it.
    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path.join(name)).ok()
    }

    fn give(&self, path: &Path) {
        chown(path, Some(self.owner.uid()), Some(self.owner.uid())).expect("tests run as root");
    }
}

/// Removes what tests left behind that no longer run: homes and programs live as long as the
/// process, which has no last moment to remove them in.
fn sweep() {
    for entry in std::fs::read_dir("/var/tmp").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| {
            name.strip_prefix("cowork-test-")?.split('-').next()?.parse::<u32>().ok()
        });
        let gone = pid.is_some_and(|pid| std::fs::metadata(format!("/proc/{pid}")).is_err());
        if gone {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

/// Tells of failures when they happen, beside the line that names the test: in a report that is cut
/// short, what stands at the end is not there.
fn tell_failures() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |failure| {
        let thread = std::thread::current();
        let line = format!("{}: {failure}\n", thread.name().unwrap_or("a thread"));
        // This is not kept for the end, as what macros print is.
        drop(std::io::stderr().write_all(line.as_bytes()));
        usual(failure);
    }));
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that a test mounted something in stays, and is seen.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

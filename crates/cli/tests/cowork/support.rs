//! What the tests share: starting `cowork` with a deadline, looking at what it left, and the
//! programs that the host must have.

use cowork_testbed::Person;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that any command of these tests takes, on a slow and busy machine; beyond it the
/// test fails.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// The Debian packages that these tests need, and what for.
pub(crate) const PACKAGES: [(&str, &str); 20] = [
    ("bash", "shells and job control"),
    ("bubblewrap", "a sandbox inside a session of profile nested"),
    ("chromium", "a program that brings its own sandbox, in profile nested"),
    ("coreutils", "the commands of scripts"),
    ("curl", "requests with and without a proxy"),
    ("gcc", "compilers"),
    ("git", "repositories in granted folders"),
    ("groff-base", "reading the manual pages"),
    ("hostname", "asking a session for its name"),
    ("less", "a program that needs a terminal"),
    ("make", "parallel builds"),
    ("nodejs", "threads, sockets, children and file watching of Node"),
    ("npm", "packages of Node"),
    ("openjdk-17-jdk-headless", "the Java compiler and its machine"),
    ("procps", "asking a session for its processes"),
    ("python3", "processes, threads and databases of Python"),
    ("python3-venv", "virtual environments and pip"),
    ("tar", "many files"),
    ("util-linux", "setsid for terminals, unshare for namespaces"),
    ("vim", "a program that takes the whole terminal"),
];

/// Fails with what to install if the host lacks a program.
#[track_caller]
pub(crate) fn need(program: &str, package: &str) {
    let known = PACKAGES.iter().find(|(name, _)| *name == package);
    let (_, reason) = known.expect("every needed package is on the list");
    let found = std::fs::metadata(Path::new("/usr/bin").join(program)).is_ok();
    assert!(found, "/usr/bin/{program} is missing: `apt-get install {package}` ({reason})");
}

pub(crate) use cowork_testbed::not_run;

/// How a command ended and what it said.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ran {
    /// The exit status, or 128+n for signal n, as shells say it.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    /// What it wrote to standard output, as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("the output is text")
    }

    /// Checks that it succeeded in silence, and returns what it wrote.
    #[track_caller]
    pub(crate) fn good(&self) -> &str {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.text());
        self.text()
    }

    /// Checks that it succeeded, whatever it said on standard error.
    #[track_caller]
    pub(crate) fn done(&self) -> &str {
        assert_eq!(self.code, 0, "{}\n{}", self.text(), self.err);
        self.text()
    }
}

/// `cowork` of a person, in a folder, with arguments.
pub(crate) fn cowork(person: Person, here: &Path, arguments: &[&str]) -> Command {
    let mut command = person.cowork();
    command.current_dir(here).args(arguments);
    command
}

/// Runs `cowork` with an empty standard input.
#[track_caller]
pub(crate) fn run(person: Person, here: &Path, arguments: &[&str]) -> Ran {
    finish(cowork(person, here, arguments), Vec::new())
}

/// Runs a script of bash in a session, in the granted folder, as `run` with `options` would.
#[track_caller]
pub(crate) fn script(person: Person, here: &Path, options: &[&str], script: &str) -> Ran {
    let name = here.file_name().and_then(|name| name.to_str()).expect("test folders are text");
    let folder = format!("mnt/{name}");
    let mut arguments = vec!["run", "--cd", &folder];
    arguments.extend(options);
    arguments.extend(["--", "bash", "-euo", "pipefail", "-c", script]);
    run(person, here, &arguments)
}

/// Runs a command to its end with pipes for its streams.
#[track_caller]
pub(crate) fn finish(mut command: Command, input: Vec<u8>) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is there");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // A command that does not read its input is none of the writer's business.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = collect(child.stdout.take().expect("it is a pipe"));
    let err = collect(child.stderr.take().expect("it is a pipe"));
    let code = wait(&mut child);
    writer.join().expect("the writer ends with its pipe");
    let out = out.join().expect("the reader ends with its pipe");
    let err = err.join().expect("the reader ends with its pipe");
    Ran { code, out, err: String::from_utf8(err).expect("messages are text") }
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read to its end");
        bytes
    })
}

/// Waits for a child's end and returns its code; one that takes too long is killed.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> i32 {
    let end = Instant::now() + DEADLINE;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            let signal = status.signal().map(|signal| 128 + signal);
            return status.code().or(signal).expect("it has ended");
        }
        if Instant::now() > end {
            child.kill().expect("it is our child");
            panic!("`cowork` did not end within {DEADLINE:?}");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process that the test started.
pub(crate) fn send(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a child has an id"), signal)
        .expect("it has not been waited for");
}

/// A process of the host, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pid: u32,
    name: String,
    started: u64,
}

impl Process {
    pub(crate) fn look(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, rest) = stat.rsplit_once(") ")?;
        let name = start.split_once('(')?.1.to_owned();
        // The 22nd field of the whole is the 20th after the name (proc_pid_stat(5)).
        let started = rest.split(' ').nth(19)?.parse().ok()?;
        Some(Self { pid, name, started })
    }

    /// Its name in the kernel, the first fifteen bytes of its program's.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel has to say about it: a file of its folder in `/proc`, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        let bytes = std::fs::read(format!("/proc/{}/{name}", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Which namespace of a kind it is in.
    pub(crate) fn namespace(&self, kind: &str) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok()
    }

    /// Ends it at once.
    #[track_caller]
    pub(crate) fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Sees to it that it does not run any longer, if it still does.
    pub(crate) fn end(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let ended = pid
            .filter(|_| self.exists())
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        assert!(matches!(ended, None | Some(Ok(()) | Err(rustix::io::Errno::SRCH))), "{ended:?}");
    }

    /// Sends it a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process has an id");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Whether it still exists, if only as a zombie.
    pub(crate) fn exists(&self) -> bool {
        Self::look(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// Everything that descends from a process, itself excluded.
pub(crate) fn descendants(pid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            for child in children.unwrap_or_default().split_whitespace() {
                let child = child.parse().expect("the kernel writes numbers");
                found.extend(Process::look(child));
                open.push(child);
            }
        }
    }
    found
}

/// Every process in the sessions that a folder is granted to, PID 1 of each included.
pub(crate) fn inside(granted: &Path) -> Vec<Process> {
    let granted = granted.to_str().expect("test folders are text");
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sees = |process: &Process| process.file("mountinfo").contains(granted);
    // The keeper sees it too, and is outside.
    let first = pids.filter_map(Process::look).filter(|process| process.name() == "cowork-init");
    let first: Vec<Process> = first.filter(sees).collect();
    // A process may have made a view of its own, in which it sees nothing.
    let others: Vec<Process> = first.iter().flat_map(|first| descendants(first.pid)).collect();
    first.into_iter().chain(others).collect()
}

/// Every process of the host that executes a file.
pub(crate) fn processes_of(program: &Path) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let same = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("exe")).is_ok_and(|link| link == program)
    };
    let pids = entries.filter(same).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::look).collect()
}

/// Everything below a folder, by relative path.
#[must_use]
pub(crate) fn listing(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("test folders can be read") {
            let entry = entry.expect("test folders can be read");
            let path = entry.path();
            let below = path.strip_prefix(folder).expect("it lies below");
            found.insert(below.display().to_string());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            }
        }
    }
    found
}

/// What of a session with a known id the host can still see: control groups, mounts, files in the
/// folders for temporary ones, processes that carry its name.
#[must_use]
pub(crate) fn traces(id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for place in ["/sys/fs/cgroup", "/tmp", "/var/tmp", "/run", "/dev/shm"] {
        find(Path::new(place), id, 4, &mut found);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    found.extend(mounts.lines().filter(|line| line.contains(id)).map(str::to_owned));
    for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        for file in ["cmdline", "environ", "cgroup"] {
            let path = entry.path().join(file);
            let text = std::fs::read(&path).unwrap_or_default();
            // The tests themselves are not part of a session.
            let own = entry.file_name().to_str() == Some(&std::process::id().to_string());
            if !own && String::from_utf8_lossy(&text).contains(id) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn find(folder: &Path, name: &str, depth: u32, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().contains(name) {
            found.push(entry.path().display().to_string());
        }
        let own = entry.file_name().to_string_lossy().starts_with("cowork-test-");
        if depth > 0 && !own && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&entry.path(), name, depth - 1, found);
        }
    }
}

/// Numbers, each followed by `end`.
#[must_use]
pub(crate) fn lines(numbers: RangeInclusive<u32>, end: &str) -> String {
    numbers.fold(String::new(), |text, number| text + &number.to_string() + end)
}

/// The user and group that own a file.
#[must_use]
pub(crate) fn owner(path: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::symlink_metadata(path).expect("the file is there");
    (metadata.uid(), metadata.gid())
}

/// Makes a test of each function for each person.
macro_rules! for_everyone {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        #[cfg(test)]
        mod as_root {
            $($(#[$attribute])* #[test] fn $name() { super::$name(cowork_testbed::Person::Root) })+
        }
        #[cfg(test)]
        mod as_user {
            $($(#[$attribute])* #[test] fn $name() { super::$name(cowork_testbed::Person::User) })+
        }
    };
}
pub(crate) use for_everyone;

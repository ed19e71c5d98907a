//! One scenario: prepared, run in a plain folder, run in a recorded one, compared, undone, redone and
//! undone again.

use crate::tree::{Judge, Tree};
use cowork_testbed::{Folder, Person};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Something that real tools do in a folder.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scenario<'a> {
    /// What is there before: a script that runs on the host, in the folder, as its owner.
    pub(crate) before: &'a str,
    /// What is done: a script that runs in the session, in the folder.
    pub(crate) script: &'a str,
    /// Beginnings of names whose contents differ between any two runs, with or without cowork.
    pub(crate) any_contents: &'a [&'a str],
    /// What is in names whose times differ.
    pub(crate) any_times: &'a [&'a str],
    /// Further options of `cowork run`.
    pub(crate) options: &'a [&'a str],
    /// How the commands begin that are meant to fail, in their order. Every other one has to
    /// succeed: a tool that works in neither folder works in both alike.
    pub(crate) fails: &'a [&'a str],
}

/// What is said before a command that failed, on the error stream.
const FAILED: &str = "@failed: ";

/// Longest time that a scenario takes on a slow and busy machine.
const DEADLINE: Duration = Duration::from_mins(4);

/// Later than any time of a file.
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

impl Scenario<'_> {
    /// Runs it, and fails at the first difference.
    #[track_caller]
    pub(crate) fn check(&self, person: Person) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = format!("tools-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let recorded = Folder::new(person, "recorded");
        let prepared = shell(person, &recorded, self.before);
        assert!(prepared.status.success(), "{}", said(&prepared));
        // Times that the scenario gives to files are told apart from those that pass by.
        age(&recorded);
        let plain = Folder::new(person, "plain");
        copy(&recorded, &plain);
        let before = Tree::of(recorded.path());
        assert_eq!(Tree::of(plain.path()).differences(&before, &ALL), [""; 0], "the copy is exact");

        let began = SystemTime::now();
        let expected = self.run(person, &id, &plain, "direct");
        let found = self.run(person, &id, &recorded, "rw");
        let told = |output: &Output| {
            let status = format!("{:?}", output.status.code());
            text(&output.stdout).lines().map(str::to_owned).chain([status]).collect::<Vec<_>>()
        };
        let (plainly, recordedly) = (told(&expected), told(&found));
        let other = plainly.iter().zip(&recordedly).filter(|(one, other)| one != other);
        let other: Vec<_> = other.collect();
        assert!(
            other.is_empty() && plainly.len() == recordedly.len(),
            "plain and recorded: {other:#?}\nwith a plain folder: {}\nwith a recorded one: {}",
            said(&expected),
            said(&found)
        );
        for output in [&expected, &found] {
            let failed: Vec<_> = failed(output);
            let meant = failed.len() == self.fails.len()
                && failed.iter().zip(self.fails).all(|(one, start)| one.starts_with(start));
            assert!(meant, "failed: {failed:#?}\nmeant to: {:#?}\n{}", self.fails, said(output));
        }
        let Self { any_contents, any_times, .. } = *self;
        let judge = Judge { until: Some(began), any_contents, any_times };
        let after = Tree::of(recorded.path());
        let differences = Tree::of(plain.path()).differences(&after, &judge);
        assert_eq!(differences, [""; 0], "{}", said(&found));

        // Where nothing was changed there is nothing to undo.
        if after == before {
            return;
        }
        // All but the number of names, which counts those that are kept.
        let all_times = Judge { until: Some(began + CENTURY), ..ALL };
        let again = |what: &str, arguments: &[&str], (expected, judge): (&Tree, &Judge<'_>)| {
            let output = finish(person.cowork().args(arguments));
            assert!(output.status.success(), "{what}: {}", said(&output));
            let differences = expected.differences(&Tree::of(recorded.path()), judge);
            assert_eq!(differences, [""; 0], "{what}: {}", said(&output));
        };
        again("undone", &["undo", &id, "--all"], (&before, &ALL));
        again("redone", &["redo", &id], (&after, &all_times));
        again("undone again", &["undo", &id, "--all"], (&before, &ALL));
    }

    fn run(&self, person: Person, id: &str, folder: &Folder, access: &str) -> Output {
        let grant = format!("{}/:{access}=project", folder.path().display());
        let script = format!("cd \"$COWORK_MNT/project\" || exit 99\n{TOLD}\n{}", self.script);
        let mut command = person.cowork();
        command.args(["run", "--id", id, "--grant", &grant, "--guard", "off"]);
        command.args(self.options).args(["--", "bash", "-c", &script]);
        finish(&mut command)
    }
}

/// Has the shell tell of each command that fails, also in what it starts to run a part of a script;
/// not of those whose failure is asked about.
const TOLD: &str = "exec {tells}>&2; \
    trap 'echo \"@failed: ${BASH_COMMAND%%$'\\''\\n'\\''*}\" >&$tells' ERR";

/// The commands that failed, as far as the shell told.
fn failed(output: &Output) -> Vec<String> {
    let said = text(&output.stderr);
    said.lines().filter_map(|line| line.strip_prefix(FAILED)).map(str::to_owned).collect()
}

/// Everything must be equal.
pub(crate) const ALL: Judge<'_> = Judge { until: None, any_contents: &[], any_times: &[] };

/// Runs a script on the host, in a folder, as its owner.
pub(crate) fn shell(person: Person, folder: &Folder, script: &str) -> Output {
    let mut command = person.command("bash");
    command.args(["-c", script]).current_dir(folder.path());
    finish(&mut command)
}

/// Waits for a command to end; one that does not fails the test.
pub(crate) fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program is there");
    let pid = child.id();
    let deadline = Instant::now() + DEADLINE;
    let waiting = std::thread::spawn(move || child.wait_with_output());
    while !waiting.is_finished() {
        if Instant::now() > deadline {
            let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            let pid = pid.expect("it has a number");
            let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            assert_eq!(killed, Ok(()), "it is ours");
            panic!("{command:?} did not end in time");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    waiting.join().expect("waiting does not panic").expect("it can be waited for")
}

/// Makes everything in a folder a day old.
fn age(folder: &Folder) {
    let mut find = Command::new("find");
    find.arg(folder.path()).args([
        "-depth",
        "-exec",
        "touch",
        "-h",
        "-d",
        "2026-01-02 03:04:05.678",
    ]);
    let aged = finish(find.args(["{}", "+"]));
    assert!(aged.status.success(), "{}", said(&aged));
}

fn copy(from: &Folder, to: &Folder) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.path().join(".")).arg(to.path());
    let copied = finish(&mut command);
    assert!(copied.status.success(), "{}", said(&copied));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

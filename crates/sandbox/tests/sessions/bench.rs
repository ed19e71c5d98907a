//! Scenarios, keepers, sessions and commands for the tests of this program.

use cowork_api::guest::{Ending, Execute, FromInit, Stdio, ToInit, Usage};
use cowork_api::keeper::{Failure, Message, Reply, Request, Revoked, Status};
use cowork_api::plan::{Access, Grant, SessionPlan};
use cowork_policy::plan::{Home, SessionRequest, Strictness, compile, environment, home_of};
use cowork_policy::seccomp::{Debugging, Profile};
use cowork_policy::{Limits, SessionId};
use cowork_sandbox::client::{ClientError, Keeper, Session};
use cowork_testbed::{Folder, Person};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::any::type_name;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Stream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Tells the process of a scenario that it is one, and where the programs are.
const INNER: &str = "COWORK_SCENARIO_PROGRAMS";
/// Tells a scenario with mounts of its own which folder has another one mounted inside.
const SUBMOUNTED: &str = "COWORK_SCENARIO_SUBMOUNTED";
/// Tells it which folder is the tree of an image, with what an image has mounted inside.
const IMAGE: &str = "COWORK_SCENARIO_IMAGE";
/// What a scenario says when it came to its end.
const END: &str = "the scenario came to its end";
/// Longest that one scenario may take on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(400);
/// Longest that one answer may take there.
pub(crate) const A_WHILE: Duration = Duration::from_mins(1);

/// Runs the scenario as root and as an ordinary user.
#[track_caller]
pub(crate) fn as_everybody<F: Fn(&Bench)>(scenario: F) {
    drive(&Person::ALL, Mounts::OfTheHost, &scenario);
}

/// Runs the scenario as root alone: it is about something that no user has.
#[track_caller]
pub(crate) fn as_root<F: Fn(&Bench)>(scenario: F) {
    drive(&[Person::Root], Mounts::OfTheHost, &scenario);
}

/// Runs the scenario as both, with mounts of its own: what others mount is not seen there.
#[track_caller]
pub(crate) fn as_everybody_apart<F: Fn(&Bench)>(scenario: F) {
    drive(&Person::ALL, Mounts::Own, &scenario);
}

/// Runs the scenario as an ordinary user alone.
#[track_caller]
pub(crate) fn as_user<F: Fn(&Bench)>(scenario: F) {
    drive(&[Person::User], Mounts::OfTheHost, &scenario);
}

/// Which mounts a scenario sees and changes.
#[derive(Clone, Copy)]
enum Mounts {
    OfTheHost,
    Own,
}

#[track_caller]
fn drive<F: Fn(&Bench)>(people: &[Person], mounts: Mounts, scenario: &F) {
    if let Some(programs) = std::env::var_os(INNER) {
        let root = rustix::process::geteuid().is_root();
        let person = if root { Person::Root } else { Person::User };
        let folder = |name| std::env::var_os(name).map(PathBuf::from);
        let (submounted, image) = (folder(SUBMOUNTED), folder(IMAGE));
        scenario(&Bench { person, programs: programs.into(), submounted, image });
        println!("{END}");
        return;
    }
    // The test is found again by its name, which the type of its closure bears.
    let name = type_name::<F>().trim_end_matches("::{{closure}}");
    let name = name.split_once("::").expect("a test lies in a crate").1;
    let mut failed = Vec::new();
    for person in people {
        let outputs = Folder::new(Person::Root, "outputs");
        let (all, copy) = writer(&outputs.path().join("all"));
        let (outside, inside) = (Folder::new(*person, "outside"), Folder::new(*person, "inside"));
        let image = Folder::new(*person, "image");
        let mut command = match mounts {
            Mounts::OfTheHost => person.command(own_program()),
            Mounts::Own => with_own_mounts(*person, &outside, &inside, &image),
        };
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]).current_dir("/");
        command.env(INNER, cowork_testbed::programs());
        command.stdin(Stream::null()).stdout(all).stderr(copy);
        let ended = wait(command);
        let said = outputs.read("all").expect("the outputs are ours");
        if ended != Some(true) || !said.contains(END) {
            failed.push(format!("as {person:?}: ended well {ended:?}\n{said}"));
        }
    }
    assert!(failed.is_empty(), "{name} {}", failed.join("\n"));
}

/// This program in a namespace of mounts that shares nothing with the host's, but whose mounts are
/// shared as the host's are: what a keeper makes there must still not leak out of the keeper.
///
/// The folder `inside` is mounted inside the other one there, and interfaces of the kernel in `proc`
/// and `deep/sys` of the image.
fn with_own_mounts(person: Person, outside: &Folder, inside: &Folder, image: &Folder) -> Command {
    outside.write("inside/.keep", "");
    for name in ["proc/.keep", "deep/sys/.keep", "etc/hostname"] {
        image.write(name, "");
    }
    inside.write("secret", "mounted inside\n");
    let mut command = Person::Root.command("unshare");
    command.env("HOME", person.home()).env(SUBMOUNTED, outside.path()).env(IMAGE, image.path());
    let script = "mount --make-rshared / && mount --bind \"$1\" \"$2\"/inside && \
                  mount -t proc proc \"$3\"/proc && mount --bind /sys/kernel \"$3\"/deep/sys && \
                  shift 3 && exec setpriv \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.args([inside.path(), outside.path(), image.path()]);
    let id = person.uid();
    command.arg(format!("--reuid={id}")).arg(format!("--regid={id}")).arg("--clear-groups");
    command.arg(own_program());
    command
}

fn writer(path: &Path) -> (File, File) {
    let file = File::create(path).expect("the folder is ours");
    let copy = file.try_clone().expect("there are descriptors");
    (file, copy)
}

/// Whether the process ended with success; `None` if it had to be killed.
fn wait(mut command: Command) -> Option<bool> {
    let deadline = Instant::now() + PATIENCE;
    let mut process = loop {
        match command.spawn() {
            Ok(process) => break process,
            // Others may flood the host with processes for a moment.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) => panic!("the scenario does not start: {error}"),
        }
    };
    loop {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return Some(status.success());
        }
        if Instant::now() > deadline {
            process.kill().expect("it is ours");
            process.wait().expect("it is ours");
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// This program, where everybody can execute it.
fn own_program() -> &'static Path {
    static COPY: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let folder = Folder::new(Person::Root, "scenarios");
        let path = folder.path().join("scenarios");
        std::fs::copy(std::env::current_exe().expect("a test is a program"), &path)
            .expect("the folder is ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("the copy is ours");
        (folder, path)
    });
    path
}

/// What a scenario has.
pub(crate) struct Bench {
    pub(crate) person: Person,
    pub(crate) programs: PathBuf,
    submounted: Option<PathBuf>,
    image: Option<PathBuf>,
}

impl Bench {
    /// A keeper of its own.
    pub(crate) fn keeper(&self) -> Keeper {
        Keeper::start_program(&self.programs.join("cowork-keeper")).expect("the keeper starts")
    }

    /// A folder of the host that belongs to the person.
    pub(crate) fn folder(&self, name: &str) -> Folder {
        Folder::new(self.person, name)
    }

    /// A folder of the person with another one mounted at `inside`.
    pub(crate) fn submounted(&self) -> &Path {
        self.submounted.as_deref().expect("the scenario has mounts of its own")
    }

    /// A folder of the person with interfaces of the kernel mounted at `proc` and `deep/sys`.
    pub(crate) fn image(&self) -> &Path {
        self.image.as_deref().expect("the scenario has mounts of its own")
    }

    /// A keeper with one such session.
    pub(crate) fn room(&self) -> (Keeper, Room) {
        let mut keeper = self.keeper();
        let room = Room::make(&mut keeper, new_plan());
        (keeper, room)
    }

    /// A keeper with one session of the nested profile.
    pub(crate) fn nested_room(&self) -> (Keeper, Room) {
        let mut keeper = self.keeper();
        let request = SessionRequest { profile: Profile::Nested, ..new_request() };
        let room = Room::make(&mut keeper, plan_of(&request));
        (keeper, room)
    }
}

/// What a session without grants and with default limits is asked for.
pub(crate) fn new_request() -> SessionRequest {
    let mut entropy = [0; 8];
    rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
        .expect("there is randomness");
    SessionRequest {
        id: SessionId::from_entropy(u64::from_ne_bytes(entropy)),
        profile: Profile::Strict,
        debugging: Debugging::Forbidden,
        grants: Vec::new(),
        limits: Limits::scaled_to(&cowork_sandbox::host::size()),
        strictness: Strictness::Enforce,
        home: Home::Memory,
    }
}

/// The plan of such a session.
pub(crate) fn new_plan() -> SessionPlan {
    plan_of(&new_request())
}

pub(crate) fn plan_of(request: &SessionRequest) -> SessionPlan {
    compile(request, &cowork_sandbox::host::system())
}

/// The grant of a folder as it is now.
pub(crate) fn grant_of(path: &Path, name: &str, access: Access) -> Grant {
    let folder = cowork_sandbox::folder::Folder::open(path).expect("the folder is there");
    Grant {
        name: name.to_owned(),
        path: folder.path().as_os_str().as_bytes().to_vec(),
        folder: folder.identity(),
        access,
        writing: Some(cowork_api::plan::Writing::default()),
    }
}

/// A session and what was heard from it.
pub(crate) struct Room {
    pub(crate) session: Session,
    pub(crate) status: Status,
    endings: HashMap<u32, (Ending, Usage)>,
    commands: u32,
}

impl Room {
    pub(crate) fn make(keeper: &mut Keeper, plan: SessionPlan) -> Self {
        let made = keeper.create(plan);
        let (status, session) = made.unwrap_or_else(|error| panic!("no session: {error:?}"));
        Self::of(status, session)
    }

    /// A session that is there already.
    pub(crate) fn of(status: Status, session: Session) -> Self {
        Self { session, status, endings: HashMap::new(), commands: 0 }
    }

    pub(crate) fn id(&self) -> String {
        self.status.session.clone()
    }

    /// The session's home, in its own view.
    pub(crate) fn home(&self) -> String {
        home_of(&self.id().parse::<SessionId>().expect("the keeper knows ids"))
    }

    /// Where a granted folder is, in its own view.
    pub(crate) fn granted(&self, name: &str) -> String {
        format!("{}/mnt/{name}", self.home())
    }

    /// A message that starts a command.
    pub(crate) fn execute(&mut self, arguments: &[&str]) -> Execute {
        self.commands += 1;
        let id = self.id().parse().expect("the keeper knows ids");
        Execute {
            command: self.commands,
            arguments: arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
            environment: environment(&id, [], []),
            folder: self.home().into_bytes(),
            stdio: [Stdio::Passed(0), Stdio::Passed(1), Stdio::Passed(1)],
            ..Execute::default()
        }
    }

    /// Starts a command whose streams are pipes of the test.
    pub(crate) fn start(&mut self, arguments: &[&str]) -> Running {
        let execute = self.execute(arguments);
        let (input, to_input) = rustix::pipe::pipe().expect("there are descriptors");
        let (from_output, output) = rustix::pipe::pipe().expect("there are descriptors");
        let number = execute.command;
        self.send(&ToInit::Execute(execute), &[input.as_fd(), output.as_fd()]);
        let pid = match self.hear() {
            (FromInit::Started { command, pid }, _) if command == number => pid,
            (other, _) => panic!("{arguments:?} did not start: {other:?}"),
        };
        Running { number, pid, input: Some(to_input.into()), output: from_output.into() }
    }

    /// Starts a Python program.
    pub(crate) fn python(&mut self, program: &str, arguments: &[&str]) -> Running {
        let start = ["/usr/bin/python3", "-u", "-c", program];
        let all: Vec<&str> = start.iter().chain(arguments).copied().collect();
        self.start(&all)
    }

    /// Runs a command to its end and returns how it ended and what it said.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> (Ending, String) {
        let mut running = self.start(arguments);
        running.input = None;
        let said = running.rest();
        (self.ending(&running), said)
    }

    /// Runs a script of the shell and returns what it said.
    pub(crate) fn shell(&mut self, script: &str) -> String {
        self.run(&["/bin/sh", "-c", script]).1
    }

    /// Whether init answers.
    pub(crate) fn ping(&mut self) -> bool {
        let nonce = u64::from(self.commands) + 77;
        if self.session.send(&ToInit::Ping { nonce }, &[]).is_err() {
            return false;
        }
        matches!(self.hear(), (FromInit::Pong { nonce: same }, _) if same == nonce)
    }

    pub(crate) fn send(&self, message: &ToInit, handles: &[BorrowedFd<'_>]) {
        self.session.send(message, handles).expect("the session is there");
    }

    /// How a command ended; waits for its end.
    pub(crate) fn ending(&mut self, running: &Running) -> Ending {
        self.ending_of(running.number).0
    }

    /// How the command with this number ended, and what it used.
    pub(crate) fn ending_of(&mut self, number: u32) -> (Ending, Usage) {
        let deadline = Instant::now() + A_WHILE;
        while Instant::now() < deadline {
            if let Some(ending) = self.endings.remove(&number) {
                return ending;
            }
            let message = self.receive();
            self.keep(message.0);
        }
        panic!("command {number} did not end");
    }

    fn keep(&mut self, message: FromInit) {
        match message {
            FromInit::Ended { command, ending, usage } => {
                self.endings.insert(command, (ending, usage));
            }
            other => panic!("unasked: {other:?}"),
        }
    }

    /// The next message that is not about the end of a command.
    pub(crate) fn hear(&mut self) -> (FromInit, Option<OwnedFd>) {
        loop {
            match self.receive() {
                (ended @ FromInit::Ended { .. }, _) => self.keep(ended),
                other => return other,
            }
        }
    }

    pub(crate) fn receive(&mut self) -> (FromInit, Option<OwnedFd>) {
        assert!(is_ready(&self.session, A_WHILE), "init is silent");
        self.session.receive().expect("init speaks")
    }

    /// The process id of a command on the host.
    pub(crate) fn host_pid(&self, inside: i32) -> i32 {
        let found = descendants(self.status.init).into_iter().find(|pid| {
            let status = status_of(*pid);
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            ids.and_then(|ids| ids.split_whitespace().last()?.parse::<i32>().ok()) == Some(inside)
        });
        found.unwrap_or_else(|| panic!("process {inside} of the session is not on the host"))
    }
}

/// A command that was started.
pub(crate) struct Running {
    pub(crate) number: u32,
    /// Its id in the session.
    pub(crate) pid: i32,
    pub(crate) input: Option<File>,
    output: File,
}

impl Running {
    /// The next line that it says, without its end; `None` when it closed its output.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            assert!(is_ready(&self.output, A_WHILE), "the command is silent after {line:?}");
            let mut byte = [0];
            if self.output.read(&mut byte).expect("it is a pipe") == 0 {
                break;
            }
            if byte == [b'\n'] {
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            line.push(byte[0]);
        }
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
    }

    /// Expects this line.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        assert_eq!(self.line().as_deref(), Some(expected));
    }

    /// Says a line to it; a command that is gone hears nothing.
    pub(crate) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            drop(writeln!(input, "{line}"));
        }
    }

    /// Everything it still says until it closes its output.
    pub(crate) fn rest(&mut self) -> String {
        let mut all = String::new();
        while let Some(line) = self.line() {
            all.push_str(&line);
            all.push('\n');
        }
        all
    }

    /// What it says within a moment; a frozen process says nothing.
    pub(crate) fn says_within(&mut self, time: Duration) -> Option<String> {
        if is_ready(&self.output, time) { self.line() } else { None }
    }
}

pub(crate) fn is_ready(what: &impl AsFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).expect("it is short");
    let mut fds = [PollFd::new(what, PollFlags::IN)];
    poll(&mut fds, Some(&time)).expect("it can be polled") > 0
}

/// Makes the folder visible in the session.
pub(crate) fn grant(keeper: &mut Keeper, room: &Room, grant: Grant) -> Result<Reply, Failure> {
    ask(keeper, Request::Grant { session: room.id(), grant })
}

/// Takes it away.
pub(crate) fn revoke(keeper: &mut Keeper, room: &Room, name: &str) -> Revoked {
    let request = Request::Revoke { session: room.id(), name: name.to_owned() };
    match ask(keeper, request) {
        Ok(Reply::Revoked(revoked)) => revoked,
        other => panic!("not revoked: {other:?}"),
    }
}

/// Asks the keeper for something that it may refuse.
pub(crate) fn ask(keeper: &mut Keeper, request: Request) -> Result<Reply, Failure> {
    match keeper.call(request) {
        Ok((reply, _)) => Ok(reply),
        Err(ClientError::Refused(failure)) => Err(failure),
        Err(error) => panic!("the keeper did not answer: {error:?}"),
    }
}

/// The next event of the keeper; waits for it.
pub(crate) fn event(keeper: &mut Keeper) -> Message {
    assert!(keeper.has_event() || is_ready(keeper, A_WHILE), "the keeper has nothing to tell");
    keeper.event().expect("the keeper speaks")
}

/// Every process that a keeper has for its sessions, which its seed is none of.
pub(crate) fn processes_of(keeper: &Keeper) -> Vec<i32> {
    let keeper = i32::try_from(keeper.pid()).expect("it is small");
    let is_seed = |pid: i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim_end() == "cowork-seed")
    };
    descendants(keeper).into_iter().filter(|pid| !is_seed(*pid)).collect()
}

/// Every process that descends from `ancestor`, without it.
pub(crate) fn descendants(ancestor: i32) -> Vec<i32> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid {
            parents.insert(pid, parent_of(pid));
        }
    }
    let descends = |pid: i32| {
        let mut at = parents.get(&pid).copied().flatten();
        while let Some(parent) = at {
            if parent == ancestor {
                return true;
            }
            at = parents.get(&parent).copied().flatten();
        }
        false
    };
    parents.keys().copied().filter(|pid| descends(*pid)).collect()
}

fn stat_of(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

pub(crate) fn status_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.get(1)?.parse().ok()
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(pid: i32) -> bool {
    matches!(state_of(pid), Some('S' | 'R' | 'D'))
}

/// The letter of a process's state; `None` when there is no such process.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    stat_of(pid)?.first()?.chars().next()
}

/// What a process was started with.
pub(crate) fn arguments_of(pid: i32) -> String {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .unwrap_or_default()
}

/// Asks until the answer is yes, or a while has passed.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + A_WHILE;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    holds()
}

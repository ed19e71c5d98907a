//! A daemon of a test's own, with folders of its own: started, killed and started again, and at the
//! end asked to leave and checked for what it leaves.

use crate::look::{PATIENCE, Process, groups_of, holders_of_any, names, until};
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{Event, Info, Page, Problem, Record, Session, Verified};
use cowork_client::uri::Query;
use cowork_testbed::{Folder, Person, programs};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Longest time that a test has a daemon; beyond it the daemon is killed, and the test fails.
const LONGEST: Duration = Duration::from_mins(3);

/// A daemon and its folders.
pub(crate) struct Site {
    pub(crate) person: Person,
    runtime: Folder,
    state: PathBuf,
    /// Present unless the state lies somewhere of the test's choice.
    own: Option<Folder>,
    arguments: Vec<String>,
    variables: Vec<(String, PathBuf)>,
    daemon: Arc<Mutex<Option<Child>>>,
    keepers: Mutex<BTreeSet<Process>>,
    _watch: mpsc::Sender<()>,
}

impl Site {
    /// A daemon as it is started by default.
    pub(crate) fn new(person: Person) -> Self {
        Self::with(person, &[])
    }

    /// A daemon with arguments.
    pub(crate) fn with(person: Person, arguments: &[&str]) -> Self {
        let state = Folder::new(person, "state");
        let path = state.path().to_path_buf();
        let site = Self::unstarted(person, arguments, path, Some(state));
        site.start();
        site
    }

    /// A daemon with a variable that names a file.
    pub(crate) fn with_file(person: Person, variable: &str, file: PathBuf) -> Self {
        let state = Folder::new(person, "state");
        let path = state.path().to_path_buf();
        let mut site = Self::unstarted(person, &[], path, Some(state));
        site.variables.push((variable.to_owned(), file));
        site.start();
        site
    }

    /// Folders for a daemon that is not started yet.
    pub(crate) fn unstarted(
        person: Person,
        arguments: &[&str],
        state: PathBuf,
        folder: Option<Folder>,
    ) -> Self {
        let runtime = Folder::new(person, "run");
        for path in [runtime.path(), &state] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        }
        let daemon: Arc<Mutex<Option<Child>>> = Arc::default();
        let (watch, over) = mpsc::channel();
        let watched = Arc::clone(&daemon);
        std::thread::spawn(move || {
            if over.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test takes too long: its daemon is killed");
                if let Some(child) = lock(&watched).as_mut() {
                    drop(child.kill());
                }
            }
        });
        Self {
            person,
            runtime,
            state,
            own: folder,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            variables: Vec::new(),
            daemon,
            keepers: Mutex::default(),
            _watch: watch,
        }
    }

    /// The state folder.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// The runtime folder.
    pub(crate) fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// The daemon's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime().join("api.sock")
    }

    /// What the daemon has said on standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.runtime().join("said")).unwrap_or_default()
    }

    /// The daemon as a command, not started.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.person.command(programs().join("coworkd"));
        command.env("COWORK_RUNTIME_DIR", self.runtime()).env("COWORK_STATE_DIR", &self.state);
        command.envs(self.variables.iter().cloned());
        command.args(&self.arguments).stdin(Stdio::null()).current_dir("/");
        command
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start(&self) {
        self.spawn();
        until("the daemon answers", || {
            if let Some(child) = lock(&self.daemon).as_mut() {
                let ended = child.try_wait().expect("it is ours");
                assert!(ended.is_none(), "the daemon ended: {ended:?}: {}", self.said());
            }
            self.info().is_ok()
        });
    }

    /// Starts the daemon.
    pub(crate) fn spawn(&self) {
        let mut append = std::fs::File::options();
        let log = append.create(true).append(true).open(self.runtime().join("said"));
        let log = log.expect("the folder is ours");
        let mut command = self.command();
        command.stdout(log.try_clone().expect("it is open")).stderr(log);
        let child = command.spawn().expect("the program is there");
        let before = lock(&self.daemon).replace(child);
        assert!(before.is_none(), "there is a daemon already");
    }

    /// Who answers.
    pub(crate) fn info(&self) -> Result<Info, HttpError> {
        Client::connect(&self.socket())?.get("/v1/info")
    }

    /// Kills the daemon at once.
    pub(crate) fn kill(&self) {
        self.note_keeper();
        if let Some(mut child) = lock(&self.daemon).take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    /// Asks the daemon to end by a signal.
    pub(crate) fn terminate(&self) {
        self.note_keeper();
        let pid = lock(&self.daemon).as_ref().map(Child::id);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).expect("there is a daemon");
        Process::look(pid).expect("it runs").signal(Signal::TERM);
    }

    /// The exit status of the daemon, if it has ended by itself.
    pub(crate) fn try_end(&self) -> Option<i32> {
        let mut daemon = lock(&self.daemon);
        let code = daemon.as_mut()?.try_wait().expect("it is ours")?.code();
        *daemon = None;
        code
    }

    /// Waits until the daemon has ended by itself.
    #[track_caller]
    pub(crate) fn wait_end(&self) -> Option<i32> {
        let mut child = lock(&self.daemon).take().expect("there is a daemon");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return status.code();
            }
            if Instant::now() > end {
                drop(child.kill());
                drop(child.wait());
                panic!("the daemon did not end: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The keeper that runs now.
    pub(crate) fn keeper(&self) -> Option<Process> {
        let pid = std::fs::read_to_string(self.runtime().join("keeper.pid")).ok()?;
        let process = Process::look(pid.trim().parse().ok()?)?;
        (process.name == "cowork-keeper").then_some(process)
    }

    /// Remembers the keeper that runs now: it must leave nothing.
    pub(crate) fn note_keeper(&self) {
        lock(&self.keepers).extend(self.keeper());
    }

    /// A connection to the daemon.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("the daemon listens")
    }

    /// Asks, and reads the answer; `None` as body for none.
    pub(crate) fn ask(
        &self,
        method: Method,
        target: impl Into<String>,
        body: Option<&Value>,
    ) -> Result<Value, HttpError> {
        let mut request = Request::new(method, target);
        if let Some(body) = body {
            request = request.with_json(body);
        }
        let answer = Client::connect(&self.socket())?.call(&request)?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&answer).expect("answers are JSON"))
    }

    /// Looks at something.
    #[track_caller]
    pub(crate) fn get(&self, target: impl Into<String>) -> Value {
        good(self.ask(Method::Get, target, None))
    }

    /// Does something.
    #[track_caller]
    pub(crate) fn post(&self, target: impl Into<String>, body: &Value) -> Value {
        good(self.ask(Method::Post, target, Some(body)))
    }

    /// Asks for something that is refused.
    #[track_caller]
    pub(crate) fn refused(
        &self,
        method: Method,
        target: impl Into<String>,
        body: Option<&Value>,
    ) -> Problem {
        match self.ask(method, target, body) {
            Err(HttpError::Problem(problem)) => *problem,
            Ok(answer) => panic!("it was not refused: {answer:.300}"),
            Err(error) => panic!("no answer: {error:?}"),
        }
    }

    /// Posts everything in a table, and checks the status and the code of each refusal.
    #[track_caller]
    pub(crate) fn check_refusals(&self, target: &str, table: &[(Value, u16, &str)]) {
        let mut wrong = Vec::new();
        for (body, status, code) in table {
            let found = match self.ask(Method::Post, target, Some(body)) {
                Err(HttpError::Problem(problem)) => *problem,
                other => panic!("{body} was not refused: {other:?}"),
            };
            assert_eq!(found.kind, format!("urn:cowork:problem:{}", found.code));
            if (found.status, found.code.as_str()) != (*status, *code) {
                wrong
                    .push(format!("{body:.100}: {} {}: {}", found.status, found.code, found.title));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Every session.
    #[track_caller]
    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.client().list(&Query::new("/v1/sessions")).expect("they can be listed")
    }

    /// Every event so far, by polling.
    #[track_caller]
    pub(crate) fn events(&self, filter: &[(&str, &str)]) -> Vec<Event> {
        let mut client = self.client();
        let mut all: Vec<Event> = Vec::new();
        let mut after = "0".to_owned();
        loop {
            let query = Query::new("/v1/events").with("after", &after).with("limit", "100");
            let query = filter.iter().fold(query, |query, (name, value)| query.with(name, value));
            let page: Page<Event> = client.get(query).expect("events can be read");
            let next = page.next.expect("there is always a place to go on from");
            all.extend(page.items);
            if next == after {
                return all;
            }
            after = next;
        }
    }

    /// Every record of the audit, of one type or of one session.
    #[track_caller]
    pub(crate) fn records(&self, filter: &[(&str, &str)]) -> Vec<Record> {
        let query = Query::new("/v1/audit").with("limit", "1000");
        let query = filter.iter().fold(query, |query, (name, value)| query.with(name, value));
        self.client().list(&query).expect("the audit can be read")
    }

    /// Checks that the audit is whole.
    #[track_caller]
    pub(crate) fn verify(&self) {
        let verified: Verified = self.client().get("/v1/audit/verify").expect("it can be verified");
        assert!(verified.whole, "{verified:?}");
        assert!(verified.records > 0);
    }

    /// Asks the daemon to stop everything and waits until it has left.
    #[track_caller]
    pub(crate) fn leave(&self) {
        self.note_keeper();
        let leave = Request::new(Method::Post, "/v1/shutdown");
        self.client().call(&leave).expect("it is asked to leave");
        assert_eq!(self.wait_end(), Some(0), "{}", self.said());
    }

    /// Checks that the daemon, which has left, left nothing that runs or is mounted.
    #[track_caller]
    fn check_nothing_left(&self) {
        let said = self.said();
        assert!(!said.contains("panicked"), "{said}");
        let name = self.state.file_name().unwrap_or_default().to_string_lossy();
        let mut places = vec![format!("/{name}/sessions")];
        if self.own.is_none() {
            // On a file system of its own its place on the host cannot be told from a mount.
            let ids = names(&self.state.join("sessions"));
            places.extend(ids.into_iter().map(|id| format!("/sessions/{id}/")));
        }
        let left = holders_of_any(&places);
        assert!(left.is_empty(), "processes that see the state folder are left: {left:?}");
        for keeper in lock(&self.keepers).iter() {
            until("the keeper is gone", || !keeper.exists());
            let groups = groups_of(keeper);
            assert!(
                groups.is_empty(),
                "{} control groups of {keeper:?} are left, e.g. {:?}",
                groups.len(),
                groups.first()
            );
        }
        let sockets: Vec<String> =
            names(self.runtime()).into_iter().filter(|name| name.contains(".sock")).collect();
        assert!(sockets.is_empty(), "sockets are left: {sockets:?}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.note_keeper();
        if std::thread::panicking() {
            eprintln!("the daemon said: {}", self.said());
            if let Some(mut child) = lock(&self.daemon).take() {
                drop(child.kill());
                drop(child.wait());
            }
            for keeper in lock(&self.keepers).iter() {
                keeper.signal(Signal::KILL);
            }
            return;
        }
        if lock(&self.daemon).is_some() {
            let kept: BTreeSet<String> = self.sessions().into_iter().map(|one| one.id).collect();
            self.leave();
            let on_disk = names(&self.state.join("sessions"));
            let strange: Vec<&String> = on_disk
                .iter()
                .filter(|id| !kept.contains(*id))
                .filter(|id| names(&self.state.join("sessions").join(id)) != kept_outputs())
                .collect();
            assert!(strange.is_empty(), "folders of no session are left: {strange:?}");
        }
        self.check_nothing_left();
    }
}

/// What is in the folder of a session that was removed but for its outputs.
fn kept_outputs() -> BTreeSet<String> {
    ["outputs", "session.json"].map(str::to_owned).into()
}

#[track_caller]
fn good(answer: Result<Value, HttpError>) -> Value {
    match answer {
        Ok(answer) => answer,
        Err(HttpError::Problem(problem)) => panic!("refused: {problem:?}"),
        Err(error) => panic!("no answer: {error:?}"),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

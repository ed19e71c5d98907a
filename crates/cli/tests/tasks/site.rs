//! A daemon with folders of a test's own, the agents of the tests, and a folder to work in.

use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{Event, Info, Page, Record, Task, TaskMessage};
use cowork_client::uri::Query;
pub(crate) use cowork_testbed::Said;
use cowork_testbed::{Folder, Person, programs};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest time that anything is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// The agent that speaks as Claude Code does.
const SCRIPTED: &str = include_str!("agent.py");

/// A daemon, and a folder to work in.
pub(crate) struct Site {
    person: Person,
    folder: Folder,
    daemon: Mutex<Option<Child>>,
}

impl Site {
    pub(crate) fn new(person: Person) -> Self {
        let folder = Folder::new(person, "tasks");
        for name in ["run", "state"] {
            let kept = folder.write(&format!("{name}/.keep"), "");
            let path = kept.parent().expect("it lies in a folder");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        }
        folder.write("desk/here.txt", "here\n");
        let site = Self { person, folder, daemon: Mutex::default() };
        site.agent("scripted", SCRIPTED, "claude-stream-json", &["-p", "--verbose"]);
        site.start();
        site
    }

    /// Defines an agent that is a script.
    pub(crate) fn agent(&self, name: &str, text: &str, kind: &str, arguments: &[&str]) {
        let path = self.folder.write(&format!("programs/{name}/{name}"), text);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let arguments = json!(arguments);
        let definition = format!(
            "name = '{name}'\nabout = 'A script'\n[program]\nnames = ['{name}']\n\
             places = ['{}']\n[task]\nkind = '{kind}'\narguments = {arguments}\n",
            path.parent().expect("it lies in a folder").display()
        );
        self.folder.write(&format!("config/agents/{name}.toml"), definition);
    }

    /// Starts the daemon, and waits until it answers.
    pub(crate) fn start(&self) {
        let mut command = self.variables(self.person.command(programs().join("coworkd")));
        command.arg("--stay").stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
        let log = std::fs::File::create(self.folder.path().join("daemon.log")).expect("it is ours");
        let child = command.stderr(log).spawn().expect("the program is there");
        *self.daemon.lock().expect("no test fails while it holds this") = Some(child);
        let pid = self.until(|| self.get::<Info>("/v1/info").ok());
        assert!(pid.pid > 0);
    }

    /// Kills the daemon.
    pub(crate) fn kill(&self) {
        let child = self.daemon.lock().expect("no test fails while it holds this").take();
        let mut child = child.expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    fn variables(&self, mut command: Command) -> Command {
        let at = |name: &str| self.folder.path().join(name);
        command.env("COWORK_RUNTIME_DIR", at("run")).env("COWORK_STATE_DIR", at("state"));
        command.env("COWORK_CONFIG_DIR", at("config"));
        command
    }

    /// The folder that agents work in.
    pub(crate) fn desk(&self) -> PathBuf {
        self.folder.path().join("desk")
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        self.folder.read(&format!("desk/{name}"))
    }

    /// `cowork` with some words, in the folder to work in.
    pub(crate) fn cowork(&self, words: &[&str]) -> Command {
        let mut command = self.variables(self.person.cowork());
        command.args(words).current_dir(self.desk()).stdin(Stdio::null());
        command
    }

    /// What came of it.
    #[track_caller]
    pub(crate) fn say(&self, words: &[&str]) -> Said {
        Said::of(&self.cowork(words).output().expect("the program is there"))
    }

    /// `cowork ask` of the scripted agent.
    #[track_caller]
    pub(crate) fn ask(&self, prompt: &str, more: &[&str]) -> Said {
        self.say(&[&["ask", prompt, "--agent", "scripted"], more].concat())
    }

    /// The same, while the test goes on.
    pub(crate) fn ask_beside(&self, prompt: &str, more: &[&str]) -> Child {
        let mut command = self.cowork(&[&["ask", prompt, "--agent", "scripted"], more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program is there")
    }

    /// The same on a terminal, where lines are typed; what is seen there is its output.
    pub(crate) fn ask_on_terminal(&self, prompt: &str) -> Child {
        let mut command = self.variables(self.person.command("script"));
        let program = programs().join("cowork");
        let line = format!("{} ask '{prompt}' --agent scripted", program.display());
        command.args(["-qec", &line, "/dev/null"]).current_dir(self.desk());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("`script` is part of Debian")
    }

    fn client(&self) -> Result<Client, HttpError> {
        Client::connect(&self.folder.path().join("run/api.sock"))
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, HttpError> {
        self.client()?.get(path)
    }

    /// Sends something to the daemon.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, HttpError> {
        self.client()?.json(&Request::new(Method::Post, path).with_json(body))
    }

    /// A session on the folder to work in.
    pub(crate) fn session(&self) -> String {
        let path = self.desk();
        let body = json!({ "grants": [{ "path": path, "access": "rw", "name": "desk" }] });
        let session: Value = self.post("/v1/sessions", &body).expect("it can be made");
        session["id"].as_str().expect("it has an id").to_owned()
    }

    /// Gives a task to a session.
    pub(crate) fn give(&self, session: &str, prompt: &str) -> Task {
        let body = json!({ "prompt": prompt, "agent": "scripted" });
        self.post(&format!("/v1/sessions/{session}/tasks"), &body).expect("it is taken")
    }

    pub(crate) fn task(&self, session: &str, number: u32) -> Task {
        self.get(format!("/v1/sessions/{session}/tasks/{number}")).expect("it is there")
    }

    /// The one session there is.
    #[track_caller]
    pub(crate) fn only_session(&self) -> String {
        let sessions: Page<Value> = self.get("/v1/sessions").expect("it answers");
        assert_eq!(sessions.items.len(), 1, "{:?}", sessions.items);
        sessions.items[0]["id"].as_str().expect("it has an id").to_owned()
    }

    /// Everything that was said in a task.
    pub(crate) fn messages(&self, session: &str, number: u32) -> Vec<TaskMessage> {
        let path = format!("/v1/sessions/{session}/tasks/{number}/messages");
        let messages: Vec<TaskMessage> = self
            .client()
            .and_then(|mut client| client.list(&Query::new(path)))
            .expect("it answers");
        let numbers: Vec<u64> = messages.iter().map(|message| message.number).collect();
        let expected: Vec<u64> = (1..=messages.len() as u64).collect();
        assert_eq!(numbers, expected, "none is missing, none is there twice");
        messages
    }

    /// What was said, as text.
    pub(crate) fn texts(&self, session: &str, number: u32) -> Vec<String> {
        self.messages(session, number).into_iter().map(|message| message.text).collect()
    }

    /// Waits until a task is over.
    #[track_caller]
    pub(crate) fn over(&self, session: &str, number: u32) -> Task {
        self.until(|| Some(self.task(session, number)).filter(|task| task.state.is_over()))
    }

    /// Waits until something has been said in a task.
    #[track_caller]
    pub(crate) fn said(&self, session: &str, number: u32, text: &str) {
        self.until(|| self.texts(session, number).iter().any(|one| one == text).then_some(()));
    }

    /// The request that waits.
    #[track_caller]
    pub(crate) fn pending(&self) -> Value {
        self.until(|| {
            let page: Page<Value> = self.get("/v1/requests?state=pending").ok()?;
            page.items.into_iter().next()
        })
    }

    pub(crate) fn events(&self, kind: &str) -> Vec<Event> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let query =
                Query::new("/v1/events").with("type", kind).with("after", after.to_string());
            let page: Page<Event> = self.get(query).expect("it answers");
            let Some(last) = page.items.last() else { return all };
            after = last.id;
            all.extend(page.items);
        }
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Record> {
        let query = Query::new("/v1/audit").with("type", kind).with("limit", "1000");
        let page: Page<Record> = self.get(query).expect("it answers");
        page.items
    }

    /// Waits for something.
    #[track_caller]
    pub(crate) fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            let log = || self.folder.read("daemon.log").unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "it did not happen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let shutdown = self.client().and_then(|mut client| {
            client.call(&Request::new(Method::Post, "/v1/shutdown").with_json(&json!({})))
        });
        let child = self.daemon.lock().ok().and_then(|mut child| child.take());
        if let Some(mut child) = child {
            if shutdown.is_err() {
                drop(child.kill());
            }
            drop(child.wait());
        }
    }
}

/// What came of something that was started beside the test.
#[track_caller]
pub(crate) fn came_of(child: Child) -> Said {
    Said::of(&child.wait_with_output().expect("it ends"))
}

/// A path in a folder, as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

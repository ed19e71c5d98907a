//! A daemon of a test's own that listens on TCP as well.

use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::Info;
use cowork_testbed::{Folder, Person, programs};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time that anything of these takes, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const TOKEN: &str = "a token of twenty-nine letters";

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A daemon and its folders. Dropped, it is asked to leave.
pub(crate) struct Site {
    pub(crate) address: String,
    /// Its token and its log.
    folder: Folder,
    runtime: Folder,
    _state: Folder,
    daemon: Child,
}

impl Site {
    /// Starts a daemon and waits until it answers.
    pub(crate) fn new(person: Person) -> Self {
        // Somebody could take the port before the daemon does; then the test fails, and says so.
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a loopback device");
        let address = free.local_addr().expect("it is bound").to_string();
        drop(free);
        let folder = Folder::new(person, "site");
        let (runtime, state) = (Folder::new(person, "run"), Folder::new(person, "state"));
        let token = folder.write("token", TOKEN);
        for (path, mode) in [(runtime.path(), 0o700), (state.path(), 0o700), (&token, 0o600)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
        }
        let log = std::fs::File::create(folder.path().join("log")).expect("the folder is ours");
        let mut command = person.command(programs().join("coworkd"));
        command
            .env("COWORK_RUNTIME_DIR", runtime.path())
            .env("COWORK_STATE_DIR", state.path())
            .args(["--stay", "--listen", &address, "--token-file"])
            .arg(token)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("it is open"))
            .stderr(log)
            .current_dir("/");
        let daemon = command.spawn().expect("the program is there");
        let mut site = Self { address, folder, runtime, _state: state, daemon };
        until("the daemon answers", || {
            let ended = site.daemon.try_wait().expect("it is ours");
            assert!(ended.is_none(), "the daemon ended: {}", site.said());
            site.info().is_ok()
        });
        site
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.path().join("api.sock")
    }

    /// What the daemon said on its standard error.
    pub(crate) fn said(&self) -> String {
        self.folder.read("log").unwrap_or_default()
    }

    pub(crate) fn info(&self) -> Result<Info, HttpError> {
        Client::connect(&self.socket())?.get("/v1/info")
    }

    /// Asks over the socket; the body of the answer.
    #[track_caller]
    pub(crate) fn ask(&self, method: Method, target: &str, body: Option<&Value>) -> Vec<u8> {
        let request = Request::new(method, target);
        let request = match body {
            Some(body) => request.with_json(body),
            None => request,
        };
        let mut client = Client::connect(&self.socket()).expect("the daemon answers");
        match client.call(&request) {
            Ok(answer) => answer,
            Err(error) => panic!("{target}: {error:?}"),
        }
    }

    /// Asks over the socket; the answer as JSON.
    #[track_caller]
    pub(crate) fn json(&self, method: Method, target: &str, body: Option<&Value>) -> Value {
        serde_json::from_slice(&self.ask(method, target, body)).expect("the answer is JSON")
    }

    /// Waits for the daemon to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the daemon has left", || {
            ended = self.daemon.try_wait().expect("it is ours");
            ended.is_some()
        });
        ended.expect("it was waited for")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Ok(mut client) = Client::connect(&self.socket()) {
            drop(client.call(&Request::new(Method::Post, "/v1/shutdown")));
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.daemon.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

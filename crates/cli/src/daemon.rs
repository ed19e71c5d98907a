//! Finding the daemon of this user, and starting it if there is none. `cowork daemon` runs it in
//! the foreground.

use crate::arguments::Daemon;
use crate::failure::{Failure, note};
use crate::show::{self, progress};
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::places;
use cowork_client::types::Info;
use cowork_client::uri::Query;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a daemon may take to answer after its start.
const START: Duration = Duration::from_secs(10);
/// Longest wait for a daemon that somebody else started, after ours has left because of it.
const OTHER: Duration = Duration::from_secs(1);
/// Longest wait for a daemon that was asked to stop.
const STOP: Duration = Duration::from_mins(1);

/// Connects to the daemon; starts it first if there is none.
pub(crate) fn connect() -> Result<Client, Failure> {
    let runtime = places::runtime_folder()?;
    if let Some(client) = greet(&places::socket_in(&runtime))? {
        return Ok(client);
    }
    progress::during("starting the daemon", || start(&runtime))
}

/// Connects to the daemon if there is one.
pub(crate) fn connect_running() -> Result<Option<Client>, Failure> {
    Ok(greet(&places::socket_in(&places::runtime_folder()?))?)
}

/// Connects to the daemon behind a socket, if one answers. One that is about to leave may still
/// listen; with a client that it has answered it stays.
fn greet(socket: &Path) -> Result<Option<Client>, HttpError> {
    let greeted = Client::connect(socket).and_then(|mut client| {
        let info: Info = client.get("/v1/info")?;
        Ok((client, info))
    });
    match greeted {
        Ok((client, info)) => {
            if info.version != env!("CARGO_PKG_VERSION") {
                note(&format!(
                    "the daemon is of version {}, this program of {}: `cowork daemon --stop` \
                     stops its sessions and lets the next one start",
                    info.version,
                    env!("CARGO_PKG_VERSION")
                ));
            }
            Ok(Some(client))
        }
        Err(HttpError::NotRunning { .. }) => Ok(None),
        Err(HttpError::Broken { source, .. }) if has_hung_up(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

fn has_hung_up(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// The daemon's program, beside this one.
fn program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::host("cannot find this program", Some(error.to_string())))?;
    let program = own.with_file_name("coworkd");
    std::fs::metadata(&program).map_err(|error| {
        let sentence = format!("cannot find the daemon's program `{}`", program.display());
        Failure::host(sentence, Some(error.to_string()))
            .with_hint("install it beside `cowork`, or use `cowork run --no-daemon`")
    })?;
    Ok(program)
}

fn start(runtime: &Path) -> Result<Client, Failure> {
    let failed = |error: std::io::Error| {
        Failure::host("cannot start the daemon", Some(error.to_string()))
            .with_hint("`cowork run --no-daemon` works without it")
    };
    program()?;
    let mut log = Log::open(runtime)?;
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(["daemon", "--detached"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.file.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let socket = places::socket_in(runtime);
    let mut end = Instant::now() + START;
    let mut pause = Duration::from_millis(1);
    let mut state = Start::Awaited;
    loop {
        match greet(&socket)? {
            Some(client) => return Ok(client),
            None if Instant::now() < end => {}
            None => return Err(silent(&mut log, state)),
        }
        if state == Start::Awaited && has_left(&mut child) {
            state = Start::Left;
            end = end.min(Instant::now() + OTHER);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn has_left(child: &mut Child) -> bool {
    child.try_wait().is_ok_and(|status| status.is_some())
}

/// What has become of a daemon that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Awaited,
    Left,
}

fn silent(log: &mut Log, state: Start) -> Failure {
    let sentence = match state {
        Start::Left => "the daemon ended right after its start".to_owned(),
        Start::Awaited => {
            format!("the daemon did not answer within {} seconds of its start", START.as_secs())
        }
    };
    Failure::host(sentence, log.last_line())
        .with_hint(format!("its log is `{}`", log.path.display()))
}

/// What the daemon says when nobody listens.
struct Log {
    file: File,
    path: PathBuf,
    /// How long it was before this start.
    before: u64,
}

impl Log {
    fn open(runtime: &Path) -> Result<Self, Failure> {
        let path = places::log_in(runtime);
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let opened = options.open(&path).and_then(|mut file| {
            let before = file.seek(SeekFrom::End(0))?;
            Ok((file, before))
        });
        let (file, before) = opened.map_err(|error| {
            let sentence = format!("cannot write the daemon's log `{}`", path.display());
            Failure::host(sentence, Some(error.to_string()))
        })?;
        Ok(Self { file, path, before })
    }

    /// The last line since this start.
    fn last_line(&mut self) -> Option<String> {
        /// Longest end of the log that is looked at.
        const MOST: u64 = 64 * 1024;
        let end = self.file.seek(SeekFrom::End(0)).ok()?;
        self.file.seek(SeekFrom::Start(self.before.max(end.saturating_sub(MOST)))).ok()?;
        let mut text = Vec::new();
        (&self.file).take(MOST).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.strip_prefix("coworkd: ").unwrap_or(line).to_owned())
    }
}

/// Has a question about the audit answered from its files, with the daemon's program and without a
/// daemon.
pub(crate) fn from_files(query: &Query, stdout: Stdio) -> Result<Output, Failure> {
    let failed = |cause: Option<String>| Failure::host("cannot read the audit", cause);
    let asked = Command::new(program()?)
        .args(["--audit", query.target()])
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output);
    let answered = asked.map_err(|error| failed(Some(error.to_string())))?;
    let said = String::from_utf8_lossy(&answered.stderr);
    let mut said = said.lines().map(|line| line.strip_prefix("coworkd: ").unwrap_or(line));
    if answered.status.success() {
        said.for_each(note);
        return Ok(answered);
    }
    // Whoever closes the other end of a pipe has what was wanted.
    match answered.status.signal() {
        Some(signal) if signal == rustix::process::Signal::PIPE.as_raw() => Ok(answered),
        _ => Err(failed(said.next_back().map(ToOwned::to_owned))),
    }
}

/// `cowork daemon`.
pub(crate) fn daemon(options: &Daemon) -> Result<ExitCode, Failure> {
    if options.stop {
        return stop(options);
    }
    let failed = |cause: String| Failure::host("cannot start the daemon", Some(cause));
    if options.detached {
        // Whoever closes the terminal, or has descriptors open, is none of the daemon's business.
        rustix::process::setsid().map_err(|errno| failed(errno.to_string()))?;
        cowork_sys::identity::close_from_at_exec(3).map_err(|errno| failed(errno.to_string()))?;
    }
    let error = Command::new(program()?).args(&options.arguments).exec();
    Err(failed(error.to_string()))
}

/// Asks the daemon to end every session's sandbox and leave, and waits until it has.
fn stop(options: &Daemon) -> Result<ExitCode, Failure> {
    let Some(mut client) = connect_running()? else {
        if options.output.json {
            return show::json(&serde_json::json!({ "stopped": false }));
        }
        note("no daemon runs");
        return Ok(ExitCode::SUCCESS);
    };
    let info: Info = client.get("/v1/info")?;
    client.call(&Request::new(Method::Post, "/v1/shutdown"))?;
    drop(client);
    let end = Instant::now() + STOP;
    let gone = progress::during("stopping sessions", || {
        while Instant::now() < end {
            if !runs(info.pid) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    if !gone {
        let sentence = format!("the daemon (process {}) has not left yet", info.pid);
        return Err(Failure::host(sentence, None).with_hint("look again with `cowork status`"));
    }
    if options.output.json {
        return show::json(&serde_json::json!({ "stopped": true, "pid": info.pid }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a process runs, not counting one that has ended and was not waited for.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

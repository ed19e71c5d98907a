//! Reaching the daemon: over its socket, started first where that is wanted and there is none.

use crate::refusal::Refusal;
use cowork_client::http::{Client, HttpError};
use cowork_client::places;
use cowork_client::types::Info;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a daemon may take to answer after its start.
const START: Duration = Duration::from_secs(10);

/// How the daemon is reached.
#[derive(Clone, Debug)]
pub enum Link {
    /// It listens at this socket.
    Socket(PathBuf),
    /// It is this user's, and is started by the program `cowork` beside this one if need be.
    Own,
}

impl Link {
    /// Connects.
    pub(crate) fn connect(&self) -> Result<Client, Refusal> {
        match self {
            Self::Socket(socket) => Ok(Client::connect(socket)?),
            Self::Own => {
                let failed =
                    |error: places::PlaceError| Refusal::new("no-daemon", error.to_string());
                let runtime = places::runtime_folder().map_err(failed)?;
                let socket = places::socket_in(&runtime);
                match greet(&socket)? {
                    Some(client) => Ok(client),
                    None => start(&runtime, &socket),
                }
            }
        }
    }

    /// Connects to a daemon that is there already.
    pub(crate) fn connect_running(&self) -> Option<Client> {
        match self {
            Self::Socket(socket) => Client::connect(socket).ok(),
            Self::Own => greet(&places::socket_in(&places::runtime_folder().ok()?)).ok().flatten(),
        }
    }
}

/// Connects, if a daemon answers. One that is about to leave may still listen; with a client that
/// it has answered it stays.
fn greet(socket: &Path) -> Result<Option<Client>, HttpError> {
    let greeted = Client::connect(socket).and_then(|mut client| {
        client.get::<Info>("/v1/info")?;
        Ok(client)
    });
    match greeted {
        Ok(client) => Ok(Some(client)),
        Err(HttpError::NotRunning { .. }) => Ok(None),
        Err(HttpError::Broken { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Starts the daemon as the command line does, and waits until it answers.
fn start(runtime: &Path, socket: &Path) -> Result<Client, Refusal> {
    let log = places::log_in(runtime);
    let failed = |error: std::io::Error| {
        Refusal::new("no-daemon", format!("cannot start the daemon: {error}"))
    };
    let program = std::env::current_exe().map_err(failed)?.with_file_name("cowork");
    let errors =
        File::options().append(true).create(true).mode(0o600).open(&log).map_err(failed)?;
    let mut child = Command::new(program)
        .args(["daemon", "--detached"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    // It is a child of this process, which may outlive it.
    std::thread::spawn(move || drop(child.wait()));
    let end = Instant::now() + START;
    while Instant::now() < end {
        if let Some(client) = greet(socket)? {
            return Ok(client);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let sentence = format!("the daemon did not answer within {} seconds", START.as_secs());
    Err(Refusal::new("no-daemon", sentence).with_hint(format!("its log is `{}`", log.display())))
}

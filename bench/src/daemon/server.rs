//! A daemon of the benchmark's own, and what is asked of it.

use crate::site::Site;
use crate::stopped::Stopped;
use cowork_client::http::{Attached, Client, Method, Request};
use cowork_client::places;
use cowork_client::stream::{ChannelId, FromDaemon, HEADER, parse};
use cowork_client::types::{
    Access, Command as Ran, CommandState, Info, NewCommand, NewGrant, NewSession, Raw, Session,
};
use cowork_client::uri;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long the daemon may take to answer at first, and to fill its pool.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to leave: it ends every session first.
const LEAVING: Duration = Duration::from_mins(2);
/// How long nothing is asked of the daemon, so that it fills its pool.
const QUIET: Duration = Duration::from_millis(40);

/// A daemon, asked to leave at the end.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    runtime: PathBuf,
    state: PathBuf,
}

impl Server {
    /// Starts a daemon with new folders of this name.
    pub(crate) fn start(site: &Site, name: &str) -> Result<Self, Stopped> {
        Self::start_with(site, name, &[])
    }

    /// The same, with variables.
    pub(crate) fn start_with(
        site: &Site,
        name: &str,
        variables: &[(&str, &Path)],
    ) -> Result<Self, Stopped> {
        let (runtime, state) = (site.at(&format!("{name}-run")), site.at(&format!("{name}-state")));
        for folder in [&runtime, &state] {
            let failed = |error: std::io::Error| Stopped::at(folder.display(), error);
            std::fs::create_dir(folder).map_err(failed)?;
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(folder, private).map_err(failed)?;
        }
        let program = site.programs.join("coworkd");
        let failed = |error: std::io::Error| Stopped::at(program.display(), error);
        let said = std::fs::File::create(places::log_in(&runtime)).map_err(failed)?;
        let mut command = site.command(&program);
        command.arg("--stay").current_dir("/").stderr(said).envs(variables.iter().copied());
        let child = with_places(&mut command, &runtime, &state).spawn().map_err(failed)?;
        let mut server = Self { child, runtime, state };
        let end = Instant::now() + PATIENCE;
        while server.client().is_err() {
            let ended = server.child.try_wait().map_err(failed)?;
            if ended.is_some() || Instant::now() > end {
                let said = std::fs::read_to_string(places::log_in(&server.runtime));
                let said = said.unwrap_or_default();
                return Err(Stopped::at("the daemon does not answer", said.trim()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// A connection that is kept.
    pub(crate) fn client(&self) -> Result<Client, Stopped> {
        Ok(Client::connect(&places::socket_in(&self.runtime))?)
    }

    /// The command line client, which speaks to this daemon.
    pub(crate) fn cowork(&self, site: &Site, arguments: &[&str]) -> Command {
        let mut command = site.command(site.programs.join("cowork"));
        with_places(&mut command, &self.runtime, &self.state).args(arguments);
        command
    }

    /// The process ids of the daemon and its keeper.
    pub(crate) fn processes(&self) -> Result<[u32; 2], Stopped> {
        let info: Info = self.client()?.get("/v1/info")?;
        let keeper = info.keeper.ok_or_else(|| Stopped::new("the daemon has no keeper"))?;
        Ok([info.pid, keeper.unsigned_abs()])
    }

    /// Asks the daemon to leave, and waits until it has.
    pub(crate) fn leave(mut self) -> Result<(), Stopped> {
        match self.end() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Stopped::at("the daemon ended", status)),
            None => Err(Stopped::new("the daemon did not leave")),
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        if let Ok(mut client) = self.client() {
            drop(client.call(&Request::new(Method::Post, "/v1/shutdown")));
        }
        let end = Instant::now() + LEAVING;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) && self.end().is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn with_places<'a>(command: &'a mut Command, runtime: &Path, state: &Path) -> &'a mut Command {
    command.env(places::RUNTIME_VARIABLE, runtime).env(places::STATE_VARIABLE, state)
}

/// A session to ask for: with the grant that every measured session has.
pub(super) fn wanted(site: &Site, id: Option<String>) -> NewSession {
    let path = Raw::new(site.project().as_os_str().as_bytes());
    let (direct, writes) = (Vec::new(), cowork_client::types::WantedWrites::default());
    let grant = NewGrant {
        path,
        access: Access::Write,
        name: None,
        force: false,
        direct,
        writes,
        expires: None,
    };
    NewSession { id, grants: vec![grant], ..NewSession::default() }
}

/// Makes a session; says how long that took, from the request to the answer.
pub(crate) fn create(
    client: &mut Client,
    wanted: &NewSession,
) -> Result<(Session, Duration), Stopped> {
    let begin = Instant::now();
    let session = client.send(Method::Post, "/v1/sessions", wanted)?;
    Ok((session, begin.elapsed()))
}

/// Removes a session; says how long that took.
pub(crate) fn remove(client: &mut Client, id: &str) -> Result<Duration, Stopped> {
    let begin = Instant::now();
    client.call(&Request::new(Method::Delete, session(id, "")))?;
    Ok(begin.elapsed())
}

/// The target of a session or of something in it.
pub(crate) fn session(id: &str, rest: &str) -> String {
    format!("/v1/sessions/{}{rest}", uri::segment(id))
}

/// Waits until the daemon had nothing to do for a while, and has so many sessions in its pool.
pub(super) fn await_pool(client: &mut Client, full: u32) -> Result<(), Stopped> {
    let end = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(QUIET);
        let info: Info = client.get("/v1/info")?;
        if info.pooled >= full {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Stopped::new(format!("the pool has {} of {full} sessions", info.pooled)));
        }
    }
}

/// A command in the project folder.
pub(super) fn command(words: &[&str]) -> NewCommand {
    NewCommand {
        argv: words.iter().map(|word| Raw::new(*word)).collect(),
        cwd: Some(Raw::new("mnt/project")),
        ..NewCommand::default()
    }
}

/// The request to start a command.
pub(super) fn starting(id: &str, command: &NewCommand) -> Request {
    Request::new(Method::Post, session(id, "/commands")).with_json(command)
}

/// Reads an attached connection until the command has ended, which must be well; says how many
/// bytes it wrote.
pub(super) fn to_the_end(attached: Attached) -> Result<u64, Stopped> {
    let mut frames = Frames { early: attached.read, used: 0, stream: attached.stream };
    let (mut contents, mut total) = (Vec::new(), 0_u64);
    loop {
        let channel = frames.next(&mut contents)?;
        if channel != ChannelId::Control {
            total += u64::try_from(contents.len()).unwrap_or(0);
            continue;
        }
        let said = serde_json::from_slice(&contents);
        match said.map_err(|error| Stopped::at("a frame of the daemon", error))? {
            FromDaemon::Started(_) => {}
            FromDaemon::Ended(command) => return good(&command).map(|()| total),
        }
    }
}

fn good(command: &Ran) -> Result<(), Stopped> {
    match (command.state, command.code) {
        (CommandState::Exited, Some(0)) => Ok(()),
        (state, code) => Err(Stopped::new(format!("a command ended with {state:?}, {code:?}"))),
    }
}

/// Frames of an attached connection.
struct Frames {
    /// What was read before it became one.
    early: Vec<u8>,
    used: usize,
    stream: UnixStream,
}

impl Frames {
    /// The next frame; its contents replace what is in the buffer.
    fn next(&mut self, contents: &mut Vec<u8>) -> Result<ChannelId, Stopped> {
        let failed = |error: std::io::Error| Stopped::at("read from an attached command", error);
        let mut head = [0; HEADER];
        self.fill(&mut head).map_err(failed)?;
        let (channel, length) =
            parse(head).ok_or_else(|| Stopped::new("the daemon sent a frame of no kind"))?;
        contents.resize(length, 0);
        self.fill(contents).map_err(failed)?;
        Ok(channel)
    }

    fn fill(&mut self, room: &mut [u8]) -> std::io::Result<()> {
        let early = self.early.get(self.used..).unwrap_or_default();
        let length = early.len().min(room.len());
        let (first, rest) = room.split_at_mut(length);
        first.copy_from_slice(early.get(..length).unwrap_or_default());
        self.used += length;
        self.stream.read_exact(rest)
    }
}

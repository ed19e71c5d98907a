//! A session to attack, and commands in it that are talked to line by line.

use cowork_api::guest::{Execute, FromInit, Stdio, ToInit};
use cowork_api::keeper::{Failure, Reply, Request, Revoked};
use cowork_api::plan::{Access, Grant};
use cowork_policy::plan::{Home, SessionRequest, Strictness, compile, environment, home_of};
use cowork_policy::seccomp::{Debugging, Profile};
use cowork_policy::view::{ViewRequest, show_host};
use cowork_policy::{Limits, SessionId};
use cowork_sandbox::client::{ClientError, Keeper, Session};
use cowork_sandbox::folder::Folder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest that a command may be silent, on a machine that does other things too.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Which sessions are attacked.
pub(super) struct Attacked {
    pub(super) programs: PathBuf,
    pub(super) profile: String,
}

/// A session with its keeper. Dropping it ends both.
pub(super) struct Room {
    session: Session,
    keeper: Keeper,
    id: SessionId,
    /// What a session of its profile can be allowed.
    access: Access,
    commands: u32,
}

impl Attacked {
    /// A session of the profile that is attacked.
    pub(super) fn room(&self) -> Result<Room, String> {
        self.make(None)
    }

    /// A session that sees the host's files.
    pub(super) fn viewing(&self, view: &ViewRequest) -> Result<Room, String> {
        self.make(Some(view))
    }

    fn make(&self, view: Option<&ViewRequest>) -> Result<Room, String> {
        let mut entropy = [0; 8];
        rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| format!("no randomness: {errno}"))?;
        let profile = if self.profile == "nested" { Profile::Nested } else { Profile::Strict };
        let request = SessionRequest {
            id: SessionId::from_entropy(u64::from_ne_bytes(entropy)),
            profile,
            debugging: Debugging::Forbidden,
            grants: Vec::new(),
            limits: Limits::scaled_to(&cowork_sandbox::host::size()),
            strictness: Strictness::Enforce,
            home: Home::Memory,
        };
        let said = |error: ClientError| format!("no session: {error:?}");
        let mut keeper =
            Keeper::start_program(&self.programs.join("cowork-keeper")).map_err(said)?;
        let mut plan = compile(&request, &cowork_sandbox::host::system());
        if let Some(view) = view {
            show_host(&mut plan, view, &cowork_sandbox::host::top())
                .map_err(|error| error.to_string())?;
        }
        let (_, session) = keeper.create(plan).map_err(said)?;
        let access = if profile == Profile::Nested { Access::Direct } else { Access::Write };
        Ok(Room { session, keeper, id: request.id, access, commands: 0 })
    }
}

/// The grant of a folder as it is now.
pub(super) fn grant_of(path: &Path) -> Result<Grant, String> {
    let folder = Folder::open(path).map_err(|error| error.to_string())?;
    Ok(Grant {
        name: "project".to_owned(),
        path: folder.path().as_os_str().as_bytes().to_vec(),
        folder: folder.identity(),
        access: Access::Write,
        writing: Some(cowork_api::plan::Writing::default()),
    })
}

impl Room {
    /// Where granted folders are, in the session.
    pub(super) fn grants(&self) -> String {
        format!("{}/mnt", home_of(&self.id))
    }

    /// Asks for the grant; a refusal is an answer too.
    pub(super) fn grant(&mut self, grant: Grant) -> Result<Result<(), Failure>, String> {
        let writing = (self.access == Access::Write).then_some(grant.writing).flatten();
        let grant = Grant { access: self.access, writing, ..grant };
        let session = self.id.as_str().to_owned();
        match self.keeper.call(Request::Grant { session, grant }) {
            Ok(_) => Ok(Ok(())),
            Err(ClientError::Refused(failure)) => Ok(Err(failure)),
            Err(error) => Err(format!("the keeper did not answer: {error:?}")),
        }
    }

    pub(super) fn revoke(&mut self, name: &str) -> Result<Revoked, String> {
        let (session, name) = (self.id.as_str().to_owned(), name.to_owned());
        match self.keeper.call(Request::Revoke { session, name }) {
            Ok((Reply::Revoked(revoked), _)) => Ok(revoked),
            other => Err(format!("not revoked: {other:?}")),
        }
    }

    pub(super) fn start(&mut self, arguments: &[&str]) -> Result<Talk, String> {
        self.commands += 1;
        let (input, to_input) = pipe()?;
        let (from_output, output) = pipe()?;
        let execute = Execute {
            command: self.commands,
            arguments: arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
            environment: environment(&self.id, [], []),
            folder: home_of(&self.id).into_bytes(),
            stdio: [Stdio::Passed(0), Stdio::Passed(1), Stdio::Passed(1)],
            ..Execute::default()
        };
        let sent = self.session.send(&ToInit::Execute(execute), &[input.as_fd(), output.as_fd()]);
        sent.map_err(|error| format!("init does not hear: {error:?}"))?;
        loop {
            match self.session.receive().map_err(|error| format!("init is gone: {error:?}"))?.0 {
                FromInit::Started { command, .. } if command == self.commands => break,
                FromInit::Ended { command, .. } if command != self.commands => {}
                other => return Err(format!("{arguments:?} did not start: {other:?}")),
            }
        }
        Ok(Talk { input: Some(to_input.into()), output: from_output.into() })
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| format!("no pipe: {errno}"))
}

/// A process that is talked to line by line.
pub(super) struct Talk {
    input: Option<File>,
    output: File,
}

impl Talk {
    /// A process of the host.
    pub(super) fn with(process: &mut std::process::Child) -> Option<Self> {
        let input = OwnedFd::from(process.stdin.take()?);
        let output = OwnedFd::from(process.stdout.take()?);
        Some(Self { input: Some(input.into()), output: output.into() })
    }

    /// Says a line; whoever is gone hears nothing.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            drop(writeln!(input, "{line}"));
        }
    }

    /// The next line; `None` at the end, or when nothing is said for long.
    pub(super) fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
            let heard = poll(&mut ready, Some(&PATIENCE)).unwrap_or(0);
            let mut byte = [0];
            if heard == 0 || self.output.read(&mut byte).unwrap_or(0) == 0 {
                break;
            }
            if byte == [b'\n'] {
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            line.extend(byte);
        }
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
    }

    /// Whether there is something to hear.
    pub(super) fn has_said(&self) -> bool {
        let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Says the last line, and hears everything that follows.
    pub(super) fn finish(mut self, line: &str) -> String {
        self.say(line);
        self.input = None;
        let mut said = String::new();
        while let Some(line) = self.line() {
            said.push_str(&line);
            said.push('\n');
        }
        said
    }
}

//! A keeper of the benchmark's own, its sessions, and commands in them.

use crate::site::Site;
use crate::stopped::Stopped;
use cowork_api::guest::{Ending, Execute, FromInit, Stdio, ToInit};
use cowork_api::keeper::{Reply, Request, Revoked};
use cowork_api::plan::{SessionPlan, Writing};
use cowork_policy::plan::{self, GrantRequest, Home, HostSystem, SessionRequest, Strictness};
use cowork_policy::seccomp::{Debugging, Profile};
use cowork_policy::{Access, GrantName, HostPath, Limits, SessionId};
use cowork_sandbox::client::{ClientError, Keeper, Session};
use cowork_sandbox::folder::Folder;
use rustix::fd::{AsFd, OwnedFd};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// A keeper with what every plan needs.
#[derive(Debug)]
pub(crate) struct Engine {
    keeper: Keeper,
    host: HostSystem,
    limits: Limits,
    sessions: u32,
}

impl Engine {
    pub(crate) fn start(programs: &Path) -> Result<Self, Stopped> {
        Ok(Self {
            keeper: Keeper::start_program(&programs.join("cowork-keeper"))?,
            host: cowork_sandbox::host::system(),
            limits: Limits::scaled_to(&cowork_sandbox::host::size()),
            sessions: 0,
        })
    }

    /// The process id of the keeper.
    pub(crate) fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    /// The plan of one more session.
    pub(crate) fn plan(&mut self, grants: &[GrantRequest]) -> Result<SessionPlan, Stopped> {
        self.sessions += 1;
        let id: Result<SessionId, _> = format!("bench-{}", self.sessions).parse();
        let request = SessionRequest {
            id: id.map_err(|error| Stopped::new(error.to_string()))?,
            profile: Profile::Strict,
            debugging: Debugging::Forbidden,
            grants: grants.to_vec(),
            limits: self.limits,
            strictness: Strictness::BestEffort,
            home: Home::Memory,
        };
        Ok(plan::compile(&request, &self.host))
    }

    /// Makes a session; says how long that took, from the request to the answer.
    pub(crate) fn create(&mut self, grants: &[GrantRequest]) -> Result<(Room, Duration), Stopped> {
        let plan = self.plan(grants)?;
        let begin = Instant::now();
        let (status, session) = self.keeper.create(plan)?;
        let took = begin.elapsed();
        Ok((Room { id: status.session, init: status.init, session, commands: 0 }, took))
    }

    /// Ends a session; says how long that took.
    pub(crate) fn destroy(&mut self, room: Room) -> Result<Duration, Stopped> {
        let took = self.call(Request::Destroy { session: room.id.clone() })?.1;
        drop(room);
        Ok(took)
    }

    /// Makes a folder visible; says how long that took.
    pub(crate) fn grant(&mut self, room: &Room, what: &GrantRequest) -> Result<Duration, Stopped> {
        let request = Request::Grant { session: room.id.clone(), grant: plan::grant(what) };
        Ok(self.call(request)?.1)
    }

    /// Takes a folder away; says what came of it and how long that took.
    pub(crate) fn revoke(
        &mut self,
        room: &Room,
        name: &GrantName,
    ) -> Result<(Revoked, Duration), Stopped> {
        let name = name.as_str().to_owned();
        match self.call(Request::Revoke { session: room.id.clone(), name })? {
            (Reply::Revoked(revoked), took) => Ok((revoked, took)),
            _ => Err(Stopped::new("the keeper answered something else")),
        }
    }

    /// Asks for what there is not; says how long the way there and back took.
    pub(crate) fn ask_for_nothing(&mut self) -> Result<Duration, Stopped> {
        let begin = Instant::now();
        match self.keeper.call(Request::Status { session: String::new() }) {
            Err(ClientError::Refused(_)) => Ok(begin.elapsed()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Stopped::new("the keeper has a session without a name")),
        }
    }

    /// Stops every process; says how long that took.
    pub(crate) fn freeze(&mut self, room: &Room) -> Result<Duration, Stopped> {
        Ok(self.call(Request::Freeze { session: room.id.clone() })?.1)
    }

    /// Lets them go on; says how long that took.
    pub(crate) fn thaw(&mut self, room: &Room) -> Result<Duration, Stopped> {
        Ok(self.call(Request::Thaw { session: room.id.clone() })?.1)
    }

    fn call(&mut self, request: Request) -> Result<(Reply, Duration), Stopped> {
        let begin = Instant::now();
        let (reply, _) = self.keeper.call(request)?;
        Ok((reply, begin.elapsed()))
    }
}

/// The request to grant a folder.
pub(crate) fn grant_of(path: &Path, access: Access) -> Result<GrantRequest, Stopped> {
    let refused = |error: &dyn std::fmt::Display| Stopped::at(path.display(), error);
    let folder = Folder::open(path).map_err(|error| refused(&error))?;
    let path = HostPath::new(folder.path()).map_err(|error| refused(&error))?;
    let name = GrantName::from_path(&path).map_err(|error| refused(&error))?;
    Ok(GrantRequest { path, folder: folder.identity(), access, name, writing: Writing::default() })
}

/// The grant that every measured session has.
pub(crate) fn project(site: &Site) -> Result<GrantRequest, Stopped> {
    grant_of(&site.project(), Access::Write)
}

/// A session.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) id: String,
    /// The process id of its PID 1, on the host.
    pub(crate) init: i32,
    session: Session,
    commands: u32,
}

impl Room {
    /// Where a granted folder is, in the session.
    pub(crate) fn inside(&self, grant: &str) -> String {
        format!("{}/{}/mnt/{grant}", plan::SESSIONS, self.id)
    }

    /// Runs a command in the project folder to its end, which must be a good one; says how long
    /// that took, from the request to the answer.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> Result<Duration, Stopped> {
        let execute = self.execute(arguments, [Stdio::Null; 3]);
        let begin = Instant::now();
        self.session.send(&ToInit::Execute(execute), &[])?;
        self.await_end(arguments)?;
        Ok(begin.elapsed())
    }

    /// Runs a command in the project folder to its end, and returns what it printed.
    pub(crate) fn output(&mut self, arguments: &[&str]) -> Result<String, Stopped> {
        let mut output = self.stream(arguments)?;
        let mut text = String::new();
        let read = output.read_to_string(&mut text);
        read.map_err(|error| Stopped::at("read what a command prints", error))?;
        self.await_end(arguments)?;
        Ok(text)
    }

    /// Starts a command that stays, and waits until it has printed `word`.
    pub(crate) fn stay(&mut self, arguments: &[&str], word: &str) -> Result<(), Stopped> {
        let mut output = self.stream(arguments)?;
        let mut said = vec![0; word.len()];
        match output.read_exact(&mut said) {
            Ok(()) if said == word.as_bytes() => Ok(()),
            _ => Err(Stopped::new(format!("`{}` did not start", arguments.join(" ")))),
        }
    }

    fn stream(&mut self, arguments: &[&str]) -> Result<std::fs::File, Stopped> {
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (read, write) = pipe.map_err(|errno| Stopped::at("make a pipe", errno))?;
        let write: OwnedFd = write;
        let stdio = [Stdio::Null, Stdio::Passed(0), Stdio::Null];
        let execute = self.execute(arguments, stdio);
        self.session.send(&ToInit::Execute(execute), &[write.as_fd()])?;
        Ok(read.into())
    }

    fn execute(&mut self, arguments: &[&str], stdio: [Stdio; 3]) -> Execute {
        self.commands += 1;
        Execute {
            command: self.commands,
            arguments: arguments.iter().map(|word| (*word).into()).collect(),
            folder: self.inside("project").into(),
            stdio,
            ..Execute::default()
        }
    }

    /// Waits for the end of the command that was started last.
    fn await_end(&mut self, arguments: &[&str]) -> Result<(), Stopped> {
        let failed = |why: String| Stopped::at(format!("`{}`", arguments.join(" ")), why);
        loop {
            match self.session.receive()?.0 {
                FromInit::Ended { command, ending, .. } if command == self.commands => {
                    return match ending {
                        Ending::Status(0) => Ok(()),
                        ending => Err(failed(format!("it ended with {ending:?}"))),
                    };
                }
                FromInit::Refused { why, .. } => return Err(failed(format!("{why:?}"))),
                _ => {}
            }
        }
    }
}

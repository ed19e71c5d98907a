//! The keeper's loop.

use crate::channel::{Channel, Peer};
use crate::keeper::cgroup::{Cgroups, Frozen};
use crate::keeper::create::Maker;
use crate::keeper::filters::Filters;
use crate::keeper::grounds::{Ground, Grounds};
use crate::keeper::network::Networks;
use crate::keeper::template::Templates;
use crate::keeper::{Session, grant, survey};
use crate::kernel::{Extent, Failed, Step, copy_mount, restrict};
use cowork_api::keeper::{
    Call, Certainty, EndReason, Failure, FailureCode, Message, Reply, Request,
};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, getrlimit, pidfd_open, setrlimit, waitid,
};
use std::path::Path;
use std::time::Instant;

/// Why a keeper could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// More than one thread at the start.
    #[error("cannot prove that the keeper has one thread")]
    Threads(#[source] std::io::Error),
    /// The program for PID 1 of sessions is not there.
    #[error("cannot load `{}`, which belongs beside this program", .path.display())]
    Init {
        /// Where it should be.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A kernel operation failed.
    #[error(transparent)]
    Kernel(#[from] Failed),
}

/// Most times in a session's life that a broker is started again after it died.
const MAX_BROKER_STARTS: u32 = 100;

struct Keeper {
    proof: SingleThreaded,
    /// Why this host cannot keep sessions, if it cannot: every request is answered with it.
    grounds: Result<Grounds, Failure>,
    /// The program for PID 1 of sessions; not there when `grounds` is not.
    init: Option<OwnedFd>,
    templates: Templates,
    filters: Filters,
    networks: Networks,
    cgroups: Cgroups,
    own_program: OwnedFd,
    own_process: OwnedFd,
    client: Channel,
    sessions: Vec<Session>,
    /// How many sessions were made.
    served: u64,
}

/// Serves the client at `socket` until it closes the conversation. `init` is the program for PID 1
/// of sessions.
pub fn main(socket: OwnedFd, init: &Path) -> Result<(), KeeperError> {
    let proof = SingleThreaded::observe().map_err(KeeperError::Threads)?;
    // A signal from the user's terminal is for the client, which decides what it means.
    cowork_sys::ignore(rustix::process::setsid());
    // The caller's mask is for the caller's files; the command gets it back.
    rustix::process::umask(Mode::empty());
    raise_open_files();
    let own_program =
        rustix::fs::open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .step(|| "open the keeper's own program".into())?;
    let own_process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .step(|| "open a handle on the keeper".into())?;
    let cgroups = Cgroups::find();
    cgroups.sweep();
    let mut grounds = Grounds::make(&proof).map_err(|failed| survey::explain_grounds(&failed));
    let init = match &mut grounds {
        Ok(grounds) => {
            let held = grounds.within(Ground::HostView, || Ok(hold(init)))?;
            held.map(Some).map_err(|errno| KeeperError::Init {
                path: init.to_path_buf(),
                source: errno.into(),
            })?
        }
        Err(_) => None,
    };
    let networks = Networks::new()?;
    let mut keeper = Keeper {
        proof,
        grounds,
        templates: Templates::default(),
        filters: Filters::default(),
        networks,
        cgroups,
        init,
        own_program,
        own_process,
        client: socket.into(),
        sessions: Vec::new(),
        served: 0,
    };
    keeper.serve()?;
    Ok(())
}

/// A keeper holds a dozen descriptors per session; it uses all that it may have.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    cowork_sys::ignore(setrlimit(Resource::Nofile, most));
}

/// Holds a program on a read-only mount of its own: what sessions execute as PID 1 cannot be
/// written to through anything that leads to it from a session, not even by its owner.
fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    let mount = copy_mount(rustix::fs::CWD, path, Extent::One)?;
    let attributes = Attributes {
        set: RDONLY | NOSUID | NODEV,
        propagation: Some(Propagation::Private),
        idmap: None,
    };
    restrict(mount.as_fd(), &attributes)?;
    Ok(mount)
}

/// What the loop found ready.
enum Ready {
    Client,
    SessionDied(usize),
    BrokerDied(usize),
    BrokerNeeded(usize),
}

impl Keeper {
    fn serve(&mut self) -> Result<(), Failed> {
        loop {
            self.prepare();
            for ready in self.wait()? {
                match ready {
                    Ready::Client => {
                        if !self.hear()? {
                            return Ok(());
                        }
                    }
                    Ready::SessionDied(index) => self.end(index, EndReason::InitDied),
                    Ready::BrokerDied(index) => self.bury_broker(index),
                    Ready::BrokerNeeded(index) => self.start_broker(index),
                }
            }
            while let Some(index) = self.overdue() {
                self.end(index, EndReason::TimeOver);
            }
        }
    }

    /// Makes ready for the next session what does not depend on it, once there has been one: a
    /// keeper of one session has no use for more.
    fn prepare(&mut self) {
        if self.grounds.is_ok() && self.served > 1 {
            // Without it the next session makes its own, or says why it cannot.
            cowork_sys::ignore(self.networks.prepare(&self.proof));
        }
    }

    /// Waits for anything. Of several things at once about sessions only the first is returned,
    /// because handling one may change the numbering; the rest is still ready next time.
    fn wait(&self) -> Result<Vec<Ready>, Failed> {
        let mut what = vec![Ready::Client];
        let mut watched = vec![PollFd::new(&self.client, PollFlags::IN)];
        for (index, session) in self.sessions.iter().enumerate() {
            what.push(Ready::SessionDied(index));
            watched.push(PollFd::new(&session.handle, PollFlags::IN));
            match (&session.broker.process, &session.broker.listener) {
                (Some(process), _) => {
                    what.push(Ready::BrokerDied(index));
                    watched.push(PollFd::new(process, PollFlags::IN));
                }
                (None, Some(listener)) => {
                    what.push(Ready::BrokerNeeded(index));
                    watched.push(PollFd::new(listener, PollFlags::IN));
                }
                (None, _) => {}
            }
        }
        let timeout = self.next_deadline().and_then(|deadline| {
            rustix::event::Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
                .ok()
        });
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(Failed::new("wait for events", errno)),
        }
        // A listener whose processes are gone says HUP; the session's end is told by its handle.
        let ready = watched.iter().map(PollFd::revents).collect::<Vec<_>>();
        let ready = what.iter().zip(ready).map(|(what, revents)| match what {
            Ready::BrokerNeeded(_) => revents.contains(PollFlags::IN),
            Ready::Client | Ready::SessionDied(_) | Ready::BrokerDied(_) => !revents.is_empty(),
        });
        let ready = ready.collect::<Vec<_>>();
        let first = what.into_iter().zip(ready).find_map(|(what, ready)| ready.then_some(what));
        Ok(first.into_iter().collect())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.sessions.iter().filter_map(|session| session.deadline).min()
    }

    fn overdue(&self) -> Option<usize> {
        let now = Instant::now();
        self.sessions.iter().position(|session| session.deadline.is_some_and(|at| at <= now))
    }

    /// Reads one call and answers it. `false` when the client is gone.
    fn hear(&mut self) -> Result<bool, Failed> {
        let packet = match self.client.receive(Peer::Trusted) {
            Ok(Some(packet)) => Ok(cowork_api::decode::<Call>(&packet.bytes)),
            Ok(None) | Err(Errno::CONNRESET) => return Ok(false),
            Err(errno @ (Errno::BADMSG | Errno::MSGSIZE)) => Err(errno),
            Err(errno) => return Err(Failed::new("hear from the client", errno)),
        };
        let (number, outcome) = match packet {
            Ok(Ok(call)) => (call.number, self.carry_out(call.request)),
            Ok(Err(error)) => (0, Err(malformed(&error.to_string()))),
            Err(errno) => (0, Err(malformed(&errno.to_string()))),
        };
        let (result, handle) = match outcome {
            Ok((reply, handle)) => (Ok(reply), handle),
            Err(failure) => (Err(failure), None),
        };
        let answer = cowork_api::encode(&Message::Answer { number, result });
        let handles: Vec<_> = handle.iter().map(|handle| handle.as_fd()).collect();
        match self.client.send(&answer, &handles) {
            Ok(()) => Ok(true),
            Err(Errno::PIPE) => Ok(false),
            Err(errno) => Err(Failed::new("answer the client", errno)),
        }
    }

    fn carry_out(&mut self, request: Request) -> Result<(Reply, Option<OwnedFd>), Failure> {
        match request {
            Request::Create(plan) => {
                if self.sessions.iter().any(|session| session.id == plan.id) {
                    return Err(Failure {
                        code: FailureCode::SessionExists,
                        sentence: format!("there is a session `{}` already", plan.id),
                        errno: 0,
                        hint: String::new(),
                    });
                }
                if !is_session_id(&plan.id) {
                    return Err(malformed("the session's id is not one"));
                }
                let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
                let init = self.init.as_ref().ok_or_else(|| malformed("no program for PID 1"))?;
                let mut maker = Maker {
                    proof: &self.proof,
                    grounds,
                    templates: &mut self.templates,
                    filters: &mut self.filters,
                    networks: &mut self.networks,
                    cgroups: &self.cgroups,
                    init: init.as_fd(),
                    keeper: self.own_process.as_fd(),
                };
                let session = maker.make(&plan)?;
                self.served += 1;
                let reply = Reply::Session(session.status());
                let commands = session.commands.try_clone().ok();
                self.sessions.push(session);
                Ok((reply, commands))
            }
            Request::Attach { session } => {
                let session = self.find(&session)?;
                let reply = Reply::Session(session.status());
                Ok((reply, session.commands.try_clone().ok()))
            }
            Request::Grant { session, grant: wanted } => {
                let index = self.index(&session)?;
                let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
                let session =
                    self.sessions.get_mut(index).ok_or_else(|| malformed("no session"))?;
                let prepared = grant::prepare(&self.proof, grounds, session, &wanted)?;
                let submounts = grant::attach(session, prepared)?;
                Ok((Reply::Granted { submounts }, None))
            }
            Request::Revoke { session, name } => {
                let index = self.index(&session)?;
                let revoked = grant::revoke(self.find(&session)?, &name)?;
                if revoked.certainty == Certainty::SessionEnded {
                    self.end(index, EndReason::Revocation);
                }
                Ok((Reply::Revoked(revoked), None))
            }
            Request::Freeze { session } => self.set_frozen(&session, Frozen::Yes),
            Request::Thaw { session } => self.set_frozen(&session, Frozen::No),
            Request::Destroy { session } => {
                let index = self.index(&session)?;
                drop(self.sessions.swap_remove(index));
                Ok((Reply::Done, None))
            }
            Request::Status { session } => {
                Ok((Reply::Session(self.find(&session)?.status()), None))
            }
            Request::Survey => {
                let facts = survey::survey(&mut self.grounds, &self.cgroups, &self.proof);
                Ok((Reply::Surveyed(facts), None))
            }
        }
    }

    fn set_frozen(
        &mut self,
        session: &str,
        frozen: Frozen,
    ) -> Result<(Reply, Option<OwnedFd>), Failure> {
        let result = self.find(session)?.set_frozen(frozen);
        result.map_err(|failed| failed.into_failure(FailureCode::StepFailed))?;
        Ok((Reply::Done, None))
    }

    fn index(&self, id: &str) -> Result<usize, Failure> {
        self.sessions.iter().position(|session| session.id == id).ok_or_else(|| Failure {
            code: FailureCode::NoSession,
            sentence: format!("there is no session `{id}`"),
            errno: 0,
            hint: String::new(),
        })
    }

    fn find(&mut self, id: &str) -> Result<&mut Session, Failure> {
        let index = self.index(id)?;
        self.sessions.get_mut(index).ok_or_else(|| malformed("no session"))
    }

    /// Ends a session and tells the client.
    fn end(&mut self, index: usize, reason: EndReason) {
        let session = self.sessions.swap_remove(index);
        let message = Message::SessionEnded { session: session.id.clone(), reason };
        drop(session);
        self.tell(&message);
    }

    fn bury_broker(&mut self, index: usize) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(process) = session.broker.process.take() {
            cowork_sys::ignore(waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED));
            let message = Message::BrokerRestarted { session: session.id.clone() };
            self.start_broker(index);
            self.tell(&message);
        }
    }

    fn start_broker(&mut self, index: usize) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let user = session.ids.as_ref().map(|ids| ids.id);
        if session.broker.starts >= MAX_BROKER_STARTS {
            // With nobody listening the kernel refuses the calls instead of letting them wait.
            session.broker.listener = None;
            return;
        }
        let started = session.broker.start(&self.proof, self.own_program.as_fd(), user);
        if started.is_err() {
            // Counted as a start, so that a host that cannot start one is not asked for ever.
            session.broker.starts += 1;
        }
    }

    /// Tells the client something it did not ask for. A client that does not read is not waited
    /// for: it learns the same from its next question.
    fn tell(&self, message: &Message) {
        cowork_sys::ignore(self.client.try_send(&cowork_api::encode(message), &[]));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Sessions end in the hub, where their mounts are.
        if let Ok(grounds) = &mut self.grounds {
            drop(grounds.enter(Ground::Hub));
        }
        self.sessions.clear();
    }
}

fn is_session_id(id: &str) -> bool {
    id.parse::<cowork_policy::SessionId>().is_ok()
}

fn malformed(why: &str) -> Failure {
    Failure {
        code: FailureCode::Malformed,
        sentence: format!("the request could not be understood: {why}"),
        errno: 0,
        hint: String::new(),
    }
}

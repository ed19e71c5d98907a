//! The keeper's loop.

use crate::keeper::cgroup::Cgroups;
use crate::keeper::clients::{Clients, Heard, Service};
use crate::keeper::egress::Egresses;
use crate::keeper::errand::Errands;
use crate::keeper::filters::Filters;
use crate::keeper::grounds::{Ground, Grounds, Standing};
use crate::keeper::ids::Pool;
use crate::keeper::network::Networks;
use crate::keeper::nursery::Nursery;
use crate::keeper::observe::Own;
use crate::keeper::register::Register;
use crate::keeper::template::Templates;
use crate::keeper::watch::{Interest, Ready, Subject, Watch};
use crate::keeper::{Session, survey};
use crate::kernel::{Extent, Failed, Step, copy_mount, restrict};
use cowork_api::keeper::{Call, EndReason, Failure, FailureCode, Message, Reply};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use std::path::Path;
use std::time::{Duration, Instant};

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

/// How long a keeper that others may come to stays when there is nobody and nothing to keep.
const LINGER: Duration = Duration::from_secs(10);

pub(super) struct Keeper {
    pub(super) proof: SingleThreaded,
    /// Why this host cannot keep sessions, if it cannot: every request is answered with it.
    pub(super) grounds: Result<Grounds, Failure>,
    /// Where PID 1 of sessions comes from; not there when `grounds` is not.
    pub(super) nursery: Option<Nursery>,
    pub(super) templates: Templates,
    pub(super) filters: Filters,
    pub(super) networks: Networks,
    pub(super) cgroups: Cgroups,
    pub(super) pool: Pool,
    /// How many sessions there had been when things were last made ready for the next one.
    prepared_for: u32,
    /// The namespaces that the keeper is in while it waits.
    pub(super) own: Own,
    pub(super) own_program: OwnedFd,
    pub(super) own_process: OwnedFd,
    pub(super) watch: Watch,
    pub(super) clients: Clients,
    pub(super) sessions: Register,
    /// Sessions that are over; what is left of them goes before anything else is done.
    remains: Vec<Session>,
    pub(super) errands: Errands,
    pub(super) egresses: Egresses,
    /// When cgroups of a keeper that was killed are tried again, whose processes were still ending.
    sweep_at: Option<Instant>,
    /// Whether a client asked the keeper to leave.
    pub(super) stay: Stay,
}

/// Time between two tries to remove what a killed keeper left.
const SWEEP: Duration = Duration::from_millis(100);
/// Time without work after which the next session is prepared for.
const QUIET: Duration = Duration::from_millis(2);

/// Whether the keeper goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// It does.
    On,
    /// It leaves when it has answered.
    Leaving,
}

/// A reply and the descriptors beside it.
pub(super) type Answer = (Reply, Vec<OwnedFd>);

/// Serves clients until they are gone for good. `init` is the program for PID 1 of sessions.
pub fn main(service: Service, init: &Path) -> Result<(), KeeperError> {
    let proof = SingleThreaded::observe().map_err(KeeperError::Threads)?;
    // A signal from the user's terminal is for the client, which decides what it means. Nor does the
    // kernel hang up, when the client is gone, on a group in which a process stands still.
    cowork_sys::ignore(rustix::process::setsid());
    // The caller's mask is for the caller's files; the command gets it back.
    rustix::process::umask(Mode::empty());
    // It keeps no folder of the caller's busy.
    cowork_sys::ignore(rustix::process::chdir("/"));
    let program = init.with_file_name("cowork-egress");
    // Before anything is open, and while this is the host's network.
    let egresses = match &service {
        Service::Any(_) => Egresses::begin(&proof, program)?,
        Service::One(_) => Egresses::none(program),
    };
    raise_open_files();
    // What sessions have is inherited from here: root alone can go above a limit of nothing.
    let core = Rlimit { current: Some(1), maximum: Some(1) };
    cowork_sys::ignore(setrlimit(Resource::Core, core));
    let own_program =
        rustix::fs::open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .step(|| "open the keeper's own program".into())?;
    let own_process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .step(|| "open a handle on the keeper".into())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the null device".into())?;
    let cgroups = Cgroups::find();
    let swept = cgroups.sweep() == 0;
    let mut grounds = Grounds::make(&proof).map_err(|failed| survey::explain_grounds(&failed));
    let nursery = match &mut grounds {
        Ok(grounds) => {
            let held = grounds.within(Ground::HostView, || Ok(hold(init)))?;
            let held = held.map_err(|errno| KeeperError::Init {
                path: init.to_path_buf(),
                source: errno.into(),
            })?;
            let mut nursery = Nursery::new(held, null);
            // It starts while the keeper does what comes next.
            nursery.plant(&proof, grounds.mode())?;
            Some(nursery)
        }
        Err(_) => None,
    };
    let networks = Networks::new()?;
    let own = Own::read(networks.host());
    let watch = Watch::new()?;
    egresses.watch(&watch)?;
    let mut keeper = Keeper {
        proof,
        grounds,
        templates: Templates::default(),
        filters: Filters::default(),
        networks,
        cgroups,
        pool: Pool::default(),
        prepared_for: 0,
        own,
        nursery,
        own_program,
        own_process,
        clients: Clients::new(service, &watch)?,
        watch,
        sessions: Register::default(),
        remains: Vec::new(),
        errands: Errands::default(),
        egresses,
        sweep_at: (!swept).then(|| Instant::now() + SWEEP),
        stay: Stay::On,
    };
    keeper.serve()?;
    Ok(())
}

/// A keeper holds several descriptors per session; it uses all that it may have.
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

impl Keeper {
    fn serve(&mut self) -> Result<(), Failed> {
        let mut idle_since = Instant::now();
        loop {
            let is_idle = self.is_idle();
            if !is_idle {
                idle_since = Instant::now();
            }
            let leave_at = is_idle.then(|| idle_since + LINGER);
            if leave_at.is_some_and(|at| at <= Instant::now()) || self.is_of_no_use() {
                return Ok(());
            }
            if self.sweep_at.is_some_and(|at| at <= Instant::now()) {
                let swept = self.cgroups.sweep() == 0;
                self.sweep_at = (!swept).then(|| Instant::now() + SWEEP);
            }
            let next = [leave_at, self.sessions.next_deadline(), self.sweep_at];
            let next = next.into_iter().flatten().min();
            let longest = next.map(|at| at.saturating_duration_since(Instant::now()));
            let prepared = self.is_prepared();
            let longest =
                if prepared { longest } else { Some(QUIET.min(longest.unwrap_or(QUIET))) };
            let ready = self.watch.wait(longest)?;
            if ready.is_empty() && !prepared {
                self.prepare();
            }
            for ready in ready {
                self.attend(ready);
                self.remains.clear();
                if self.stay == Stay::Leaving || self.clients.are_over() {
                    return Ok(());
                }
            }
            while let Some(number) = self.sessions.overdue() {
                self.end(number, EndReason::TimeOver);
                self.remains.clear();
            }
        }
    }

    /// Whether there is nobody and nothing that a keeper which outlives its clients is there for.
    fn is_idle(&self) -> bool {
        self.clients.may_come()
            && self.clients.is_empty()
            && self.sessions.is_empty()
            && self.errands.is_empty()
    }

    /// Whether the next keeper can do more, and nothing is lost with this one.
    fn is_of_no_use(&self) -> bool {
        self.clients.may_come()
            && !self.egresses.have_starter()
            && self.sessions.is_empty()
            && self.errands.is_empty()
    }

    /// Whether what does not depend on the next session is ready for it. A keeper of one session
    /// has no use for more, and what could not be made is not tried again before the next.
    fn is_prepared(&self) -> bool {
        self.prepared_for >= self.sessions.ever() || self.sessions.ever() <= 1
    }

    /// Makes some of it ready. All of it takes longer than all the rest of a session; it is done
    /// when nobody waits, and piece by piece, so that nobody who comes waits for long.
    fn prepare(&mut self) {
        let Ok(grounds) = &mut self.grounds else {
            self.prepared_for = self.sessions.ever();
            return;
        };
        // Without it the next session makes its own, or says why it cannot.
        let networks = self.networks.prepare(&self.proof).unwrap_or(true);
        if networks && let Some(nursery) = &mut self.nursery {
            nursery.follow(&self.networks);
        }
        let ids = match grounds.mode() {
            Standing::Root if networks => self.pool.prepare(&self.proof, grounds).unwrap_or(true),
            Standing::Root => false,
            Standing::User { .. } => true,
        };
        if !(networks && ids) {
            return;
        }
        // It takes a network and an id, and others are made ready in their place.
        if !self.expects() {
            if let Ok(mut maker) = self.maker() {
                maker.expect();
            }
            if self.expects() {
                return;
            }
        }
        self.prepared_for = self.sessions.ever();
    }

    /// Whether a first process waits for the next session, or none can.
    fn expects(&self) -> bool {
        self.nursery.as_ref().is_none_or(Nursery::expects)
    }

    /// Does what something that became ready needs. It may be about what is gone meanwhile.
    fn attend(&mut self, ready: Ready) {
        match ready.subject {
            Subject::Door => {
                self.hear_out_the_gone();
                self.clients.let_in(&self.watch);
            }
            Subject::Client(client) => {
                if ready.is_writable() {
                    self.clients.go_on(&self.watch, client);
                }
                if ready.is_readable() {
                    self.hear(client);
                }
            }
            Subject::Session(session) => self.end(session, EndReason::InitDied),
            Subject::Broker(session) => self.bury_broker(session),
            Subject::Calls(session) if ready.has_something() => self.start_broker(session),
            Subject::Calls(session) => self.ignore_calls(session),
            Subject::Errand(errand) => self.finish_errand(errand),
            Subject::Line(session) => self.hear_broker(session),
            Subject::Starter => self.hear_starter(),
        }
    }

    /// Reads all that clients which are gone have said.
    fn hear_out_the_gone(&mut self) {
        for client in self.clients.gone() {
            while self.clients.has(client) {
                self.hear(client);
            }
        }
    }

    /// Reads one call and answers it.
    fn hear(&mut self, client: u32) {
        let (number, outcome) = match self.clients.hear(client) {
            Heard::Packet(packet) => match cowork_api::decode::<Call>(&packet.bytes) {
                Ok(call) if self.clients.is_gone(client) => {
                    self.carry_out_last(call, packet.handles);
                    return;
                }
                Ok(call) => (call.number, self.carry_out(client, call, packet.handles)),
                // What is not understood is answered too: somebody waits.
                Err(error) => {
                    let number = cowork_api::number_of(&packet.bytes).unwrap_or_default();
                    (number, Some(Err(malformed(&error.to_string()))))
                }
            },
            Heard::Garbage(errno) => (0, Some(Err(malformed(&errno.to_string())))),
            Heard::Nothing => return,
            Heard::Gone => return self.clients.dismiss(client, &self.watch),
        };
        if let Some(outcome) = outcome {
            self.answer(client, number, outcome);
        }
    }

    pub(super) fn answer(&mut self, client: u32, number: u32, outcome: Result<Answer, Failure>) {
        let (result, handles) = match outcome {
            Ok((reply, handles)) => (Ok(reply), handles),
            Err(failure) => (Err(failure), Vec::new()),
        };
        let message = Message::Answer { number, result };
        self.clients.tell(&self.watch, client, &message, handles);
    }

    /// Adds a session that was made, and watches over it.
    pub(super) fn adopt(&mut self, session: Session) -> Result<(), Failure> {
        let number = self.sessions.add(session);
        let Some(session) = self.sessions.get_mut(number) else { return Ok(()) };
        let watched = self
            .watch
            .add(&session.handle, Subject::Session(number), Interest::Reading)
            .and_then(|()| match &session.broker.listener {
                Some(listener) => {
                    self.watch.add(listener, Subject::Calls(number), Interest::Reading)
                }
                None => Ok(()),
            });
        watched.map_err(|errno| {
            drop(self.forget(number));
            Failed::new("watch over the session", errno).into_failure(FailureCode::HostUnable)
        })
    }

    /// Takes a session out; it ends when it is dropped.
    pub(super) fn forget(&mut self, number: u32) -> Option<Session> {
        let session = self.sessions.remove(number)?;
        self.watch.remove(&session.handle);
        for watched in [&session.broker.listener, &session.broker.process].into_iter().flatten() {
            self.watch.remove(watched);
        }
        if let Some(line) = &session.broker.line {
            self.watch.remove(line);
        }
        Some(session)
    }

    /// Ends a session. Who is told that does not wait for what is left of it.
    pub(super) fn finish(&mut self, number: u32) -> Option<String> {
        let mut session = self.forget(number)?;
        session.end();
        let id = session.id.clone();
        self.remains.push(session);
        Some(id)
    }

    /// Ends a session and tells everybody.
    pub(super) fn end(&mut self, number: u32, reason: EndReason) {
        let Some(session) = self.finish(number) else { return };
        self.clients.tell_all(&self.watch, &Message::SessionEnded { session, reason });
    }

    /// Ends every session.
    pub(super) fn end_all(&mut self) {
        // All are killed before the first is waited for: they end side by side.
        for session in self.sessions.iter() {
            cowork_sys::ignore(pidfd_send_signal(&session.handle, Signal::KILL));
        }
        for number in self.sessions.all() {
            drop(self.forget(number));
        }
        self.remains.clear();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Sessions end in the hub, where their mounts are.
        if let Ok(grounds) = &mut self.grounds {
            drop(grounds.enter(Ground::Hub));
        }
        self.end_all();
    }
}

pub(super) fn malformed(why: &str) -> Failure {
    Failure {
        code: FailureCode::Malformed,
        sentence: format!("the request could not be understood: {why}"),
        errno: 0,
        hint: String::new(),
    }
}

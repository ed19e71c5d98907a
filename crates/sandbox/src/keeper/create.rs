//! Making a session, from its plan to the moment a command can be started in it.

use crate::channel::{Channel, Packet, Peer};
use crate::keeper::cgroup::{Cgroups, Controller, Frozen};
use crate::keeper::deposits::Deposits;
use crate::keeper::door::{self, Door, Doors};
use crate::keeper::filters::Filters;
use crate::keeper::grounds::{Ground, Grounds, Standing};
use crate::keeper::ids::{Maps, PoolId};
use crate::keeper::interfaces::{self, Shown};
use crate::keeper::network::Networks;
use crate::keeper::newborn::{self, Kind, Newborn, Usual};
use crate::keeper::nursery::{Birth, Born, Nursery, Unborn};
use crate::keeper::observe::{self, Own, Report};
use crate::keeper::session::Life;
use crate::keeper::sockets::Sockets;
use crate::keeper::stage;
use crate::keeper::template::Templates;
use crate::keeper::view;
use crate::keeper::{BrokerState, Session, grant, ids, limits};
use crate::kernel::{Extent, Failed, Step, attach, copy_mount, open_folder, path_of, restrict};
use cowork_api::guest::{Began, Begin};
use cowork_api::keeper::{Enforced, Failure, FailureCode, LimitState};
use cowork_api::plan::{Access, Identity, Limits, OwnStep, SessionPlan};
use cowork_api::seed::{Furnishing, Groundwork, Groups, Ids, Outlook};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOEXEC, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fchown, mkdirat};
use rustix::process::{Gid, Uid};
use std::path::Path;
use std::time::{Duration, Instant};

/// What the making of any session needs.
pub(crate) struct Maker<'a> {
    pub(crate) proof: &'a SingleThreaded,
    pub(crate) grounds: &'a mut Grounds,
    pub(crate) templates: &'a mut Templates,
    pub(crate) filters: &'a mut Filters,
    pub(crate) networks: &'a mut Networks,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) pool: &'a ids::Pool,
    /// The namespaces of the keeper.
    pub(crate) own: &'a Own,
    pub(crate) nursery: &'a mut Nursery,
    /// A handle on the keeper itself.
    pub(crate) keeper: BorrowedFd<'a>,
}

/// Longest a new session may take to be ready; beyond it the host is in trouble and the session is
/// given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How often a first process is made: somebody may have killed the seed or what it made, and fights
/// the next as well.
const TRIES: u32 = 3;

/// What was made for a session that its first process was told of.
struct Told {
    hub: Hub,
    limits: Vec<LimitState>,
    /// Which folder its home is.
    home: Option<Identity>,
}

impl Maker<'_> {
    /// Makes the session. When this fails nothing of it is left.
    pub(crate) fn make(&mut self, plan: &SessionPlan) -> Result<Session, Failure> {
        let outlook = view::look(self.grounds, plan)?;
        let mut session = self.give_birth(plan, outlook.as_ref())?;
        let doors = self.show_host(&mut session, outlook.as_ref())?;
        begin(plan, &session, self.filters)?;
        // The keeper's part of the grants is done while the session's first process does its own.
        let mut prepared = Vec::new();
        for wanted in &plan.grants {
            prepared.push(grant::prepare(self.proof, self.grounds, &mut session, wanted)?);
        }
        let (report, namespaces) = await_init(&mut session, self.own)?;
        let init = session.init_pid();
        session.enforcement =
            observe::observe(init, namespaces, session.standing, plan.profile, report);
        observe::compare(plan, &session.enforcement)?;
        for wanted in plan.grants.iter().filter(|wanted| wanted.access == Access::Write) {
            door::refuse_without(&session, wanted)?;
        }
        if let Some(outlook) = &outlook {
            view::refuse_without(&session, outlook)?;
        }
        for door in doors {
            session.add_door(door);
        }
        for folder in prepared {
            let came_along = grant::attach(&mut session, folder)?;
            session.submounts.extend(came_along);
        }
        Ok(session)
    }

    /// Gives a session that sees the host's tree the mounts that its first process waits for.
    fn show_host(
        &mut self,
        session: &mut Session,
        outlook: Option<&Outlook>,
    ) -> Result<Vec<Door>, Failure> {
        let Some(outlook) = outlook else { return Ok(Vec::new()) };
        let (mounts, doors) = view::mounts(self.proof, self.grounds, session, outlook)?;
        view::send(session, &mounts);
        Ok(doors)
    }

    fn give_birth(
        &mut self,
        plan: &SessionPlan,
        outlook: Option<&Outlook>,
    ) -> Result<Session, Failure> {
        for _ in 0..TRIES {
            match self.try_birth(plan, outlook) {
                Ok(session) => return Ok(session),
                Err(Unborn::Gone) => {}
                Err(Unborn::Refused(failure)) => return Err(failure),
            }
        }
        Err(unable(Failed::new("keep the program of PID 1 running", Errno::CHILD)))
    }

    fn try_birth(
        &mut self,
        plan: &SessionPlan,
        outlook: Option<&Outlook>,
    ) -> Result<Session, Unborn> {
        let standing = self.grounds.mode();
        let template = self.templates.prepare(self.proof, self.grounds, &plan.root);
        let template = template.map_err(unable)?;
        let kind = Kind { template, inside: view::inside(standing, &plan.view) };
        let groundwork = newborn::groundwork(plan, outlook);
        let usual = Usual { kind, limits: plan.limits, groundwork };
        let mut newborn = match self.nursery.take(usual) {
            Some(newborn) => newborn,
            // It is told at once, and carries everything out then.
            None => self.conceive(kind, &plan.limits, Groundwork::default())?,
        };
        // It is told while it is born.
        let told = self.tell(plan, outlook, &mut newborn);
        if newborn.born.is_none() {
            newborn.born = Some(self.nursery.born()?);
        }
        let Told { hub, limits, home } = told?;
        let born = newborn.born.and_then(Born::adopt);
        let (pid, handle) = born.ok_or_else(|| lost("nobody holds it"))?;
        Ok(Session {
            id: plan.id.clone(),
            pid,
            handle,
            control: Some(newborn.lines.control),
            commands: newborn.lines.commands.into(),
            requests: None,
            scratch: None,
            storage: None,
            deposits: Deposits::default(),
            network: Sockets::default(),
            standing,
            profile: plan.profile,
            sees_host: outlook.is_some(),
            ids: newborn.pool,
            hub: hub.into_folder(),
            group: newborn.group,
            limits,
            wanted: plan.limits,
            peak: 0,
            home,
            grants: Vec::new(),
            doors: Doors::new(plan.door),
            submounts: Vec::new(),
            mappings: newborn.maps,
            enforcement: Vec::new(),
            frozen: Frozen::No,
            stopped: Vec::new(),
            broker: BrokerState::default(),
            deadline: plan.limits.wall.map(|ms| Instant::now() + Duration::from_millis(ms)),
            life: Life::On,
        })
    }

    /// Has a first process of that kind made, in a network and with an id of its own.
    fn conceive(
        &mut self,
        kind: Kind,
        limits: &Limits,
        groundwork: Groundwork,
    ) -> Result<Newborn, Unborn> {
        let standing = self.grounds.mode();
        let (pool, maps) = match standing {
            Standing::User { .. } => (None, Maps::new()),
            Standing::Root => {
                let taken = self.pool.take(self.grounds).map_err(unable)?;
                (Some(taken.id), taken.maps)
            }
        };
        let group = self.cgroups.begin(limits);
        let birthplace = group.birthplace().map_err(unable_errno)?;
        self.networks.take(self.proof).map_err(unable)?;
        let cradle = self.templates.cradle(kind.template);
        let birth = Birth {
            ids: ids_of(standing, pool.as_ref(), kind.inside),
            cradle: cradle.ok_or_else(|| unable_errno(Errno::INVAL))?,
            birthplace: birthplace.as_ref().map(AsFd::as_fd),
        };
        let lines = self.nursery.sow((self.proof, standing), self.networks, &birth)?;
        let limited = *limits;
        let mut newborn =
            Newborn { born: None, lines, kind, pool, maps, group, limits: limited, groundwork };
        self.cgroups.complete(&mut newborn.group, limits);
        let entrances = newborn.group.entrances().map_err(unable_errno)?;
        let handles: Vec<_> =
            [self.keeper].into_iter().chain(entrances.iter().map(AsFd::as_fd)).collect();
        // If it is gone already, whoever waits for it finds out.
        let groundwork = cowork_api::encode(&newborn.groundwork);
        cowork_sys::ignore(newborn.lines.control.send(&groundwork, &handles));
        Ok(newborn)
    }

    /// Has one made that waits for a session like the last one. It is left at that if it fails: a
    /// session that comes has its own made, or says why it cannot.
    pub(crate) fn expect(&mut self) {
        let Some(Usual { kind, limits, groundwork }) = self.nursery.usual() else { return };
        for _ in 0..TRIES {
            let conceived = self.conceive(kind, &limits, groundwork.clone());
            let born = conceived.and_then(|newborn| Ok((newborn, self.nursery.born()?)));
            match born {
                Ok((newborn, born)) => {
                    return self.nursery.keep(Newborn { born: Some(born), ..newborn });
                }
                Err(Unborn::Gone) => {}
                Err(Unborn::Refused(_)) => return,
            }
        }
    }

    /// Makes what a first process is handed, and tells it what it is to be.
    fn tell(
        &mut self,
        plan: &SessionPlan,
        outlook: Option<&Outlook>,
        newborn: &mut Newborn,
    ) -> Result<Told, Unborn> {
        let limits = limits::states(plan.profile, &plan.limits, &newborn.group);
        limits::check(&plan.limits, &limits)?;
        let kuid = newborn.pool.as_ref().map(|pool| pool.id);
        let (home, folder) = self.prepare_home(plan, kuid, &mut newborn.maps)?.unzip();
        let hub = Hub::make(plan).map_err(unable)?;
        let grants = hub.view().map_err(unable)?;
        let furnishing = Furnishing {
            id: plan.id.clone(),
            own: plan.own.clone(),
            scratch: plan.limits.scratch.value,
            profile: plan.profile,
            outlook: outlook.cloned(),
        };
        let handles = [Some(grants.as_fd()), home.as_ref().map(AsFd::as_fd)];
        let handles: Vec<_> = handles.into_iter().flatten().collect();
        let furnishing = cowork_api::encode(&furnishing);
        newborn.lines.control.send(&furnishing, &handles).map_err(|_closed| Unborn::Gone)?;
        Ok(Told { hub, limits, home: folder })
    }

    /// The mount of a home that is kept on disk, and which folder it is.
    fn prepare_home(
        &mut self,
        plan: &SessionPlan,
        kuid: Option<u32>,
        maps: &mut Maps,
    ) -> Result<Option<(OwnedFd, Identity)>, Failure> {
        let from = plan.own.iter().find_map(|step| match step {
            OwnStep::Home { from, .. } => Some(path_of(from)),
            _ => None,
        });
        let Some(from) = from else { return Ok(None) };
        let mapping = match kuid {
            None => None,
            Some(kuid) => {
                let nobody = (ids::NOBODY, ids::NOBODY);
                Some(ids::known(maps, self.proof, nobody, kuid).map_err(unable)?)
            }
        };
        let made = self.grounds.within(Ground::HostView, || Ok(home_mount(from, mapping)));
        let (folder, mount, identity) = made.map_err(unable)??;
        interfaces::refuse(&mut self.grounds.mounts, folder.as_fd(), from, Shown::Inside)?;
        Ok(Some((mount, identity)))
    }
}

/// Opens a home on disk and copies its mount. In root mode its files are stored as `nobody` and shown as
/// the session's: whoever has the id next cannot read them, and nothing needs to change owner when
/// a session ends.
fn home_mount(
    from: &Path,
    mapping: Option<BorrowedFd<'_>>,
) -> Result<(OwnedFd, OwnedFd, Identity), Failure> {
    let named = || format!("use `{}` as the session's home", from.display());
    let refused = |failed: Failed| failed.into_failure(FailureCode::FolderRefused);
    let folder = crate::folder::open_exactly(from).step(named).map_err(refused)?;
    let identity = crate::folder::identity(folder.as_fd()).step(named).map_err(refused)?;
    if mapping.is_some() {
        let stat = rustix::fs::fstat(&folder).step(named).map_err(refused)?;
        if stat.st_uid != ids::NOBODY {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&folder, ".", flags, Mode::empty());
            let opened = opened.step(named).map_err(refused)?;
            if !is_empty(&opened) {
                return Err(Failure {
                    code: FailureCode::FolderRefused,
                    sentence: format!(
                        "`{}` is not empty and belongs to user {}: as root, a session's home is \
                         stored as nobody",
                        from.display(),
                        stat.st_uid
                    ),
                    errno: 0,
                    hint: "name an empty folder, or one that a session had as its home".into(),
                });
            }
            let nobody = (Uid::from_raw(ids::NOBODY), Gid::from_raw(ids::NOBODY));
            fchown(&opened, Some(nobody.0), Some(nobody.1)).step(named).map_err(refused)?;
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o700)).step(named).map_err(refused)?;
        }
    }
    let mount = copy_mount(folder.as_fd(), Path::new(""), Extent::Tree);
    let mount = mount.step(named).map_err(refused)?;
    let attributes =
        Attributes { set: NOSUID | NODEV, propagation: Some(Propagation::Private), idmap: mapping };
    match restrict(mount.as_fd(), &attributes) {
        Err(Errno::INVAL | Errno::PERM) if mapping.is_some() => Err(Failure {
            code: FailureCode::FolderRefused,
            sentence: format!(
                "the file system of `{}` cannot show its files as the session's own, and so holds \
                 no home for a session of root (tmpfs can since Linux 6.3)",
                from.display()
            ),
            errno: 0,
            hint: "name a home on a disk, or run cowork as an ordinary user".into(),
        }),
        outcome => {
            outcome.step(named).map_err(refused)?;
            Ok((folder, mount, identity))
        }
    }
}

fn is_empty(folder: &OwnedFd) -> bool {
    let Ok(mut entries) = rustix::fs::Dir::read_from(folder) else { return false };
    entries
        .all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
}

/// The folder of a session in the hub: a mount of its own, shared, that the keeper attaches
/// granted folders in. It goes away with the value unless it becomes the session's.
struct Hub {
    path: String,
}

impl Hub {
    fn make(plan: &SessionPlan) -> Result<Self, Failed> {
        let path = format!("/sessions/{}", plan.id);
        let named = || format!("make the folder of grants of {}", plan.id);
        mkdirat(rustix::fs::CWD, &*path, Mode::from_raw_mode(0o755)).step(named)?;
        let hub = Self { path };
        let mount = copy_mount(rustix::fs::CWD, Path::new(&hub.path), Extent::One).step(named)?;
        let shared = Attributes { propagation: Some(Propagation::Shared), ..Attributes::default() };
        restrict(mount.as_fd(), &shared).step(named)?;
        let place = open_folder(Path::new(&hub.path)).step(named)?;
        attach(mount.as_fd(), place.as_fd()).step(named)?;
        let names = plan.own.iter().filter_map(|step| match step {
            OwnStep::Grants { folders, .. } => Some(folders),
            _ => None,
        });
        for name in names.flatten() {
            mkdirat(&mount, &**name, Mode::from_raw_mode(0o755)).step(named)?;
        }
        Ok(hub)
    }

    /// The session's copy: it receives what is attached in the hub, gives nothing back, and is
    /// read-only itself, so that mount points can be neither made nor renamed inside.
    fn view(&self) -> Result<OwnedFd, Failed> {
        let named = || "copy the folder of grants for the session".to_owned();
        let mount = copy_mount(rustix::fs::CWD, Path::new(&self.path), Extent::One).step(named)?;
        let attributes = Attributes {
            set: RDONLY | NOSUID | NODEV | NOEXEC,
            propagation: Some(Propagation::Slave),
            idmap: None,
        };
        restrict(mount.as_fd(), &attributes).step(named)?;
        Ok(mount)
    }

    fn into_folder(mut self) -> HubFolder {
        HubFolder { path: std::mem::take(&mut self.path), attached: Attached::Yes }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !self.path.is_empty() {
            drop(HubFolder { path: std::mem::take(&mut self.path), attached: Attached::Yes });
        }
    }
}

/// The hub's folder of a session that lives; taken away with it.
#[derive(Debug)]
pub(crate) struct HubFolder {
    path: String,
    attached: Attached,
}

/// Whether the mount that holds granted folders is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attached {
    Yes,
    No,
    /// It could not be taken away.
    ForGood,
}

impl HubFolder {
    /// Where it is, in the hub.
    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    /// Takes every granted folder away. What is attached below goes with the mount; in the session it
    /// goes as well.
    pub(crate) fn detach(&mut self) {
        if self.attached == Attached::Yes {
            let gone = rustix::mount::unmount(&*self.path, rustix::mount::UnmountFlags::DETACH);
            self.attached = if gone.is_ok() { Attached::No } else { Attached::ForGood };
        }
    }

    /// A handle on the mount that granted folders are attached in.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        open_folder(self.path())
    }
}

impl Drop for HubFolder {
    fn drop(&mut self) {
        self.detach();
        if self.attached == Attached::ForGood {
            // It stays: nothing below it is ours to touch.
            return;
        }
        // Mount points lie in the hub's own file system, beneath the mount just removed, and are
        // empty. Only empty folders are removed: this must never reach a file.
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            cowork_sys::ignore(rustix::fs::rmdir(entry.path()));
        }
        cowork_sys::ignore(rustix::fs::rmdir(&*self.path));
    }
}

impl Session {
    /// Tells the first process something. One that failed already has said why; that is read next.
    fn tell_init(&self, message: &[u8]) {
        if let Some(control) = &self.control {
            cowork_sys::ignore(control.send(message, &[]));
        }
    }
}

/// Who the processes of a session are; `own` is its id in root mode.
fn ids_of(standing: Standing, own: Option<&PoolId>, inside: (u32, u32)) -> Ids {
    match standing {
        Standing::User { uid, gid } => Ids { inside, outside: (uid, gid), groups: Groups::Kept },
        Standing::Root => {
            let id = own.map_or(ids::NOBODY, |own| own.id);
            Ids { inside, outside: (id, id), groups: Groups::Dropped }
        }
    }
}

/// Tells init the filters, and what only it can set.
fn begin(plan: &SessionPlan, session: &Session, filters: &mut Filters) -> Result<(), Failure> {
    let in_cgroup = |controller| session.group.limits(controller).is_some();
    let (guard, door) = filters.compiled(plan.profile, plan.debugging, plan.door)?;
    let begin = Begin {
        walls: plan.walls.clone(),
        guard,
        door,
        processes: (!in_cgroup(Controller::Pids)).then_some(plan.limits.processes.value),
        open_files: plan.limits.open_files.value,
        data_bytes: (!in_cgroup(Controller::Memory)).then_some(plan.limits.memory.value),
        canary: cowork_policy::plan::CANARY.into(),
    };
    session.tell_init(&cowork_api::encode(&begin));
    Ok(())
}

/// Waits until init is locked down, and takes over the listener of its filter. What comes on the
/// way comes from the session's first process, which runs nobody else's program yet.
fn await_init(session: &mut Session, own: &Own) -> Result<(Report, Vec<Enforced>), Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut namespaces = Vec::new();
    let control = session.control.take().ok_or_else(|| lost("it has no socket"))?;
    loop {
        let packet = next_packet(&control, deadline)?;
        if packet.bytes == stage::PLACED {
            let mut handles = packet.handles.into_iter();
            session.scratch = handles.next();
            session.requests = handles.next();
            let scratch = session.scratch.as_ref();
            let scratch = scratch.and_then(|scratch| rustix::fs::fstat(scratch).ok());
            session.broker.scratch = scratch.map(|stat| stat.st_dev);
            // While it locks itself down.
            namespaces = observe::namespaces(session.pid, own);
            continue;
        }
        let began = cowork_api::decode::<Began>(&packet.bytes);
        return match began {
            Ok(Began::Locked { landlock_abi, canary, forbidden_call, killable, scopes }) => {
                let mut handles = packet.handles.into_iter();
                let listener = handles.next();
                session.storage = match session.standing {
                    Standing::User { .. } => handles.next(),
                    Standing::Root => None,
                };
                let listens = listener.is_some();
                let report =
                    Report { landlock_abi, canary, scopes, forbidden_call, listener: listens };
                session.broker.listener = listener;
                session.doors.killable = Some(killable);
                Ok((report, namespaces))
            }
            Ok(Began::Failed { step, errno }) => {
                Err(unable(Failed::new(step, Errno::from_raw_os_error(errno))))
            }
            Ok(Began::Ready { .. }) => Err(lost("its init is of another version")),
            Err(_) => Err(lost("its init sent something that is not a message")),
        };
    }
}

pub(crate) fn next_packet(control: &Channel, deadline: Instant) -> Result<Packet, Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = rustix::event::Timespec::try_from(left).ok();
        let mut ready = [PollFd::new(control, PollFlags::IN)];
        match poll(&mut ready, left.as_ref()) {
            Ok(0) => return Err(lost("it was not ready in time")),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unable_errno(errno)),
        }
    }
    // A peer that ended without reading everything is reported once, before what it said.
    let received = match control.receive(Peer::Hostile) {
        Err(Errno::CONNRESET) => control.receive(Peer::Hostile),
        received => received,
    };
    match received {
        Ok(Some(packet)) => Ok(packet),
        Ok(None) => Err(lost("its first process ended")),
        Err(errno) => Err(unable_errno(errno)),
    }
}

fn lost(why: &str) -> Failure {
    Failure {
        code: FailureCode::StepFailed,
        sentence: format!("the new session was given up: {why}"),
        errno: 0,
        hint: "run `cowork doctor`".into(),
    }
}

pub(crate) fn unable(failed: Failed) -> Failure {
    let mut failure = failed.into_failure(FailureCode::HostUnable);
    failure.hint = "run `cowork doctor` to see what this host lacks".into();
    failure
}

fn unable_errno(errno: Errno) -> Failure {
    unable(Failed::new("make a session", errno))
}

pub(crate) fn explain_fork(errno: Errno) -> Failure {
    let hint = match errno {
        Errno::NOSPC | Errno::USERS => {
            "too many namespaces: raise user.max_user_namespaces and its neighbours"
        }
        Errno::AGAIN => "too many processes for this user",
        _ => "run `cowork doctor` to see what this host lacks",
    };
    Failure {
        code: FailureCode::HostUnable,
        sentence: "cannot make the namespaces of a session".into(),
        errno: errno.raw_os_error(),
        hint: hint.into(),
    }
}

//! What the first process of a session does between its birth and its life as init.
//!
//! It is a copy of the seed, inside the new namespaces, and knows nothing of other sessions: it is
//! told what is its own, carries that out, gives up every privilege, and becomes init. It never opens
//! a path below `/proc` of the session by name except the one sysctl of its own user namespace, and it
//! follows no symbolic link.

use crate::channel::{Channel, Packet, Peer};
use crate::init::{self, Walls};
use crate::keeper::view::{self, make_folders};
use crate::kernel::{
    Extent, Failed, Step, attach, below_root, copy_mount, locate, new_file_system, open_folder,
    restrict,
};
use crate::seed::OPEN;
use cowork_api::guest::Began;
use cowork_api::plan::{Access, OwnStep, Profile};
use cowork_api::seed::{Furnishing, Groundwork, Groups, Ids};
use cowork_sys::Errno;
use cowork_sys::identity::{empty_bounding_set, join_new_session_keyring};
use cowork_sys::mount::{Attributes, NODEV, NOSUID, RDONLY};
use cowork_sys::process::{Leave, SingleThreaded, leave, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::mount::MountAttrFlags;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::path::{Path, PathBuf};

/// Comes with what the keeper needs from inside the namespaces: the session's scratch, to know its
/// files by, and the socket on which requests arrive.
pub(crate) const PLACED: &[u8] = b"placed";

/// Where a session's programs reach whoever answers requests.
const REQUESTS: &str = "/run/cowork.sock";

/// Does everything and becomes init, or reports the step that failed and ends.
/// It has its ids when `gate` says so.
pub(crate) fn run(
    proof: &SingleThreaded,
    control: Channel,
    commands: OwnedFd,
    (ids, gate): (Ids, OwnedFd),
) -> ! {
    match furnish(proof, &control, ids, gate) {
        // Nothing of what it took is open any more but these two, and the walls.
        Ok(walls) => leave(u8::from(init::run(control, commands.into(), walls).is_err())),
        Err(failed) => {
            let report = Began::Failed { step: failed.step, errno: failed.errno.raw_os_error() };
            // If it cannot be sent the keeper sees the socket close, which is a failure as well.
            cowork_sys::ignore(control.send(&cowork_api::encode(&report), &[]));
            leave(1)
        }
    }
}

fn furnish(
    proof: &SingleThreaded,
    control: &Channel,
    ids: Ids,
    gate: OwnedFd,
) -> Result<Option<Walls>, Failed> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .step(|| "tie the session to the keeper".into())?;
    let packet = hear(control)?;
    let groundwork = cowork_api::decode::<Groundwork>(&packet.bytes)
        .map_err(|_malformed| Errno::BADMSG)
        .step(|| "read what every session has".into())?;
    settle(proof, packet.handles, ids, gate)?;
    let (laid, walls) = lay(&groundwork)?;
    let packet = hear(control)?;
    let wanted = cowork_api::decode::<Furnishing>(&packet.bytes)
        .map_err(|_malformed| Errno::BADMSG)
        .step(|| "read what the session is to be".into())?;
    let mut handles = packet.handles.into_iter();
    let mut next = || handles.next().ok_or(Errno::BADMSG).step(|| "take over a handle".into());
    let grants = next()?;
    let has_home = wanted.own.iter().any(|step| matches!(step, OwnStep::Home { .. }));
    let home = if has_home { Some(next()?) } else { None };
    let seen = match &wanted.outlook {
        Some(outlook) => Some((outlook, view::receive(control, outlook)?)),
        None => None,
    };
    rustix::system::sethostname(wanted.id.as_bytes()).step(|| "set the host name".into())?;

    let (mut builder, rest) = match laid {
        None => (Builder::begin(wanted.scratch)?, wanted.own.as_slice()),
        Some(builder) => {
            let rest = wanted.own.strip_prefix(groundwork.own.as_slice());
            let rest = rest.filter(|_| wanted.scratch == groundwork.scratch).ok_or(Errno::INVAL);
            (builder, rest.step(|| "go on from what every session has".into())?)
        }
    };
    for step in rest {
        builder.carry_out(step, Some(grants.as_fd()), home.as_ref())?;
    }
    if let Some((outlook, mounts)) = seen {
        builder.show_host(outlook, mounts)?;
    }
    let Builder { root, scratch, .. } = builder;
    refuse_bare(&root, &scratch)?;
    let requests = listen_for_requests().step(|| format!("listen at {REQUESTS}"))?;
    let handles = [scratch.as_fd(), requests.as_fd()];
    control.send(PLACED, &handles).step(|| "report the placed mounts".into())?;
    limit_namespaces(wanted.profile)?;
    give_up()?;
    Ok(walls)
}

/// Carries out what is the same for every session like this one.
fn lay(groundwork: &Groundwork) -> Result<(Option<Builder>, Option<Walls>), Failed> {
    if groundwork.own.is_empty() {
        return Ok((None, None));
    }
    let mut builder = Builder::begin(groundwork.scratch)?;
    for step in &groundwork.own {
        builder.carry_out(step, None, None)?;
    }
    let walls = if groundwork.walls.is_empty() { None } else { Walls::make(&groundwork.walls)? };
    Ok((Some(builder), walls))
}

/// Does what is the same for every session: enters its cgroups, takes its ids when `gate` says that
/// they are mapped, and leaves what remains of the keeper's.
fn settle(
    proof: &SingleThreaded,
    handles: Vec<OwnedFd>,
    ids: Ids,
    gate: OwnedFd,
) -> Result<(), Failed> {
    let mut handles = handles.into_iter();
    let keeper = handles.next().ok_or(Errno::BADMSG).step(|| "take over a handle".into())?;
    if has_ended(keeper.as_fd()) {
        // The keeper died before this process asked to die with it.
        leave(1);
    }
    for entrance in handles {
        rustix::io::write(&entrance, b"0").step(|| "enter the session's cgroup".into())?;
    }
    let opened = rustix::io::read(&gate, &mut [0; OPEN.len()]);
    if opened.step(|| "wait for the ids of the session".into())? == 0 {
        // Whoever maps them has said why not.
        leave(1);
    }
    drop(gate);
    become_inside(ids)?;
    unshare(proof, Leave::Cgroups).step(|| "make a cgroup namespace".into())?;
    join_new_session_keyring().step(|| "make a session keyring".into())?;
    empty_bounding_set().step(|| "empty the bounding set".into())
}

/// The next message of the keeper. Without one there is nobody to make a session for.
fn hear(control: &Channel) -> Result<Packet, Failed> {
    match control.receive(Peer::Trusted) {
        Ok(Some(packet)) => Ok(packet),
        Ok(None) => leave(1),
        Err(errno) => Err(Failed::new("hear from the keeper", errno)),
    }
}

/// A socket in the session's own files and network that somebody outside accepts on. The session can
/// remove its name, and then does without it.
fn listen_for_requests() -> Result<OwnedFd, Errno> {
    /// Connections that wait to be accepted; a further one waits in its caller.
    const BACKLOG: i32 = 16;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(REQUESTS)?)?;
    rustix::fs::chmod(REQUESTS, Mode::from_raw_mode(0o666))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(&process, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Takes the session's user and group id. In user mode the caller's own id is already mapped.
fn become_inside(ids: Ids) -> Result<(), Failed> {
    let named = || "take the session's user id".to_owned();
    if ids.groups == Groups::Dropped {
        rustix::thread::set_thread_groups(&[]).step(named)?;
    }
    let (uid, gid) = ids.inside;
    let gid = rustix::process::Gid::from_raw(gid);
    let uid = rustix::process::Uid::from_raw(uid);
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(named)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(named)?;
    // A change of ids clears the request to die with the keeper.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .step(named)
}

/// One file system in memory for everything of the session that is not kept: its size is the
/// limit on all of it together.
///
/// Before Linux 6.15 only what is attached somewhere can be copied: it is covered by a part of itself
/// later.
fn make_scratch(root: &OwnedFd, bytes: u64) -> Result<OwnedFd, Failed> {
    let inodes = inodes_for(bytes);
    let scratch = new_file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", &bytes.to_string()), ("nr_inodes", &inodes.to_string())],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?;
    let place = locate(root.as_fd(), Path::new(COVERED)).step(|| format!("open /{COVERED}"))?;
    attach(scratch.as_fd(), place.as_fd()).step(|| "mount the session's scratch".into())?;
    Ok(scratch)
}

/// Where the whole of a session's scratch is attached, below the part that belongs there.
const COVERED: &str = "run";

/// Refuses a plan that would leave the whole of the scratch in sight.
fn refuse_bare(root: &OwnedFd, scratch: &OwnedFd) -> Result<(), Failed> {
    let named = || format!("cover /{COVERED}");
    let seen = locate(root.as_fd(), Path::new(COVERED)).step(named)?;
    let seen = crate::folder::identity(seen.as_fd()).step(named)?;
    let whole = crate::folder::identity(scratch.as_fd()).step(named)?;
    if seen == whole { Err(Failed::new(named(), Errno::EXIST)) } else { Ok(()) }
}

/// How many files a file system in memory of this size may have.
pub(crate) fn inodes_for(bytes: u64) -> u64 {
    /// One inode per 16 KiB, as ext4 has: enough for small files, and a bound on kernel memory.
    const BYTES_PER_INODE: u64 = 16 * 1024;
    (bytes / BYTES_PER_INODE).max(1024)
}

/// Carries out the session's own steps.
pub(crate) struct Builder {
    pub(crate) root: OwnedFd,
    pub(crate) scratch: OwnedFd,
    /// Folders placed so far, by their path, with a writable handle where mount points can be made.
    pub(crate) folders: Vec<(PathBuf, Option<OwnedFd>)>,
    made: u32,
}

impl Builder {
    /// With a scratch of this many bytes.
    fn begin(scratch: u64) -> Result<Self, Failed> {
        let root = open_folder(Path::new("/")).step(|| "open the root".into())?;
        let scratch = make_scratch(&root, scratch)?;
        Ok(Self { root, scratch, folders: Vec::new(), made: 0 })
    }

    fn carry_out(
        &mut self,
        step: &OwnStep,
        grants: Option<BorrowedFd<'_>>,
        home: Option<&OwnedFd>,
    ) -> Result<(), Failed> {
        let common = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        match step {
            OwnStep::Processes { at } => {
                let flags = common | MountAttrFlags::MOUNT_ATTR_NODEV;
                let mount = new_file_system("proc", &[("hidepid", "2")], flags)?;
                self.place(mount.as_fd(), at)
            }
            OwnStep::Terminals { at } => {
                let options = [("ptmxmode", "0666"), ("mode", "0620")];
                let mount = new_file_system("devpts", &options, common)?;
                self.place(mount.as_fd(), at)
            }
            OwnStep::Scratch { at, mode, access } => self.place_scratch(at, *mode, *access),
            OwnStep::Notes { at, files } => self.place_notes(at, files),
            OwnStep::Home { at, .. } => {
                let named = || "place the session's home".to_owned();
                let home = home.ok_or(Errno::INVAL).step(named)?;
                self.make_place(at)?;
                self.place(home.as_fd(), at)?;
                self.folders.push((below_root(at), Some(home.try_clone().step(named)?)));
                Ok(())
            }
            OwnStep::Blank { at } => {
                let named = || format!("cover {}", String::from_utf8_lossy(at));
                let name = self.next_name();
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(0o444);
                openat(&self.scratch, &*name, flags, mode).map(drop).step(named)?;
                let blank = copy_mount(self.scratch.as_fd(), Path::new(&name), Extent::One);
                let blank = blank.step(named)?;
                let set = RDONLY | NOSUID | NODEV;
                let attributes = Attributes { set, ..Attributes::default() };
                restrict(blank.as_fd(), &attributes).step(named)?;
                self.place(blank.as_fd(), at)
            }
            OwnStep::Link { at, to } => self.place_link(at, to),
            OwnStep::Grants { at, .. } => {
                let named = || "place the folder of grants".to_owned();
                let grants = grants.ok_or(Errno::INVAL).step(named)?;
                self.make_place(at)?;
                self.folders.push((below_root(at), None));
                self.place(grants, at)
            }
        }
    }

    pub(crate) fn place_scratch(
        &mut self,
        at: &[u8],
        mode: u32,
        access: Access,
    ) -> Result<(), Failed> {
        let named = || format!("make the session's {}", String::from_utf8_lossy(at));
        self.make_place(at)?;
        let name = self.next_name();
        mkdirat(&self.scratch, &*name, Mode::from_raw_mode(0o755)).step(named)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.scratch, &*name, flags, Mode::empty()).step(named)?;
        // Set apart from mkdir, whose mode the umask would cut.
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).step(named)?;
        let mount = copy_mount(self.scratch.as_fd(), Path::new(&name), Extent::One).step(named)?;
        if access == Access::Read {
            let read_only = Attributes { set: RDONLY, ..Attributes::default() };
            restrict(mount.as_fd(), &read_only).step(named)?;
        }
        self.place(mount.as_fd(), at)?;
        self.folders.push((below_root(at), Some(folder)));
        Ok(())
    }

    fn place_notes(&mut self, at: &[u8], files: &[(String, Vec<u8>)]) -> Result<(), Failed> {
        let named = || format!("write the files of {}", String::from_utf8_lossy(at));
        let name = self.next_name();
        mkdirat(&self.scratch, &*name, Mode::from_raw_mode(0o755)).step(named)?;
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.scratch, &*name, folder, Mode::empty()).step(named)?;
        for (file, contents) in files {
            let path = format!("{name}/{file}");
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file =
                openat(&self.scratch, path, flags, Mode::from_raw_mode(0o644)).step(named)?;
            let mut rest = contents.as_slice();
            while !rest.is_empty() {
                let written = rustix::io::write(&file, rest).step(named)?;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        let mount = copy_mount(self.scratch.as_fd(), Path::new(&name), Extent::One).step(named)?;
        let set = RDONLY | NOSUID | NODEV;
        restrict(mount.as_fd(), &Attributes { set, ..Attributes::default() }).step(named)?;
        self.place(mount.as_fd(), at)?;
        self.folders.push((below_root(at), Some(folder)));
        Ok(())
    }

    fn place_link(&self, at: &[u8], to: &[u8]) -> Result<(), Failed> {
        let at = below_root(at);
        let nearest = self
            .folders
            .iter()
            .filter_map(|(path, folder)| Some((at.strip_prefix(path).ok()?, folder.as_ref()?)))
            .min_by_key(|(below, _)| below.as_os_str().len());
        let named = || format!("link /{}", at.display());
        let (below, folder) = nearest.ok_or(Errno::NOENT).step(named)?;
        match rustix::fs::symlinkat(to, folder, below) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(Failed::new(named(), errno)),
        }
    }

    pub(crate) fn next_name(&mut self) -> String {
        self.made += 1;
        self.made.to_string()
    }

    /// Makes the mount point `at` if it lies in a folder that this session made; elsewhere it is
    /// part of the template, of the grants or of the host.
    pub(crate) fn make_place(&self, at: &[u8]) -> Result<(), Failed> {
        let Some((folder, below)) = self.own_folder(at) else { return Ok(()) };
        let named = || format!("make {}", String::from_utf8_lossy(at));
        if below.as_os_str().is_empty() {
            // It would cover a folder that the session was just given.
            return Err(Failed::new(named(), Errno::EXIST));
        }
        make_folders(folder, &below).step(named)
    }

    /// The folder that this session made in which a path lies, and the path below it; `None` if what
    /// was placed deepest above the path is something else.
    pub(crate) fn own_folder(&self, at: &[u8]) -> Option<(&OwnedFd, PathBuf)> {
        let at = below_root(at);
        // Of two at the same path the later one covers the other.
        let (below, folder) = self
            .folders
            .iter()
            .rev()
            .filter_map(|(path, folder)| Some((at.strip_prefix(path).ok()?, folder)))
            .min_by_key(|(below, _)| below.as_os_str().len())?;
        Some((folder.as_ref()?, below.to_path_buf()))
    }

    pub(crate) fn place(&self, mount: BorrowedFd<'_>, at: &[u8]) -> Result<(), Failed> {
        let path = below_root(at);
        let named = || format!("mount /{}", path.display());
        let target = locate(self.root.as_fd(), &path).step(named)?;
        attach(mount, target.as_fd()).step(named)
    }
}

/// In the strict profile no user namespace can be made inside, whatever a filter may overlook. In
/// `nested` their number is bounded: they count against the user's own.
fn limit_namespaces(profile: Profile) -> Result<(), Failed> {
    let limit = |kind: &str, most: &str| {
        std::fs::write(format!("/proc/sys/user/max_{kind}_namespaces"), most)
            .step(|| format!("limit {kind} namespaces inside"))
    };
    match profile {
        Profile::Strict => limit("user", "0"),
        Profile::Nested => ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
            .iter()
            .try_for_each(|kind| limit(kind, "256")),
    }
}

/// Gives up every privilege, and the standard streams that the seed was started with.
fn give_up() -> Result<(), Failed> {
    let named = || "give up privileges".to_owned();
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the null device".into())?;
    let streams = [dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null)];
    streams.into_iter().collect::<Result<(), Errno>>().step(named)?;
    rustix::thread::clear_ambient_capability_set().step(named)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none).step(named)?;
    rustix::thread::set_no_new_privs(true).step(named)
}

//! The writable side of a granted folder, which never is in the session.
//!
//! The session sees a folder that it may change on a read-only mount. The keeper makes a second,
//! writable mount of the same files that is attached nowhere, and hands it to the session's broker,
//! which makes every change. To close the door the keeper makes that mount read-only: the kernel
//! refuses as long as anybody has a file of it open for writing, and nobody can open one afterwards.
//!
//! What is removed is kept in a trash. A file can be moved there only within one mount: where the
//! session's store lies on the same mount as the granted folder, the trash is in the store, and the
//! writable mount starts at the deepest folder above both. Else it is at the top of the granted
//! folder's mount, if the user may write there, and the writable mount starts at that top.

use crate::away;
use crate::folder::{identity, open_exactly};
use crate::keeper::Session;
use crate::keeper::commons::{Share, Shared};
use crate::keeper::grant::failure;
use crate::keeper::grounds::Standing;
use crate::keeper::ids;
use crate::keeper::revoke;
use crate::keeper::tree::Loan;
use crate::kernel::{Extent, Failed, copy_mount, locate, path_of};
use cowork_api::files::{BrokeredFolder, Kept, Rules, ToBroker};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{Door as Kind, Grant, Identity, Profile, Writing};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, Depth, NODEV, NOSUID, Propagation, RDONLY, set_attributes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, StatxFlags, Uid, mkdirat, openat, statx};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The writable side of one folder.
#[derive(Debug)]
pub(crate) struct Door {
    /// The mount, attached nowhere.
    mount: OwnedFd,
    /// How the kernel numbers it.
    mount_id: u64,
    /// Where on it the trash is.
    trash: Option<PathBuf>,
    folder: BrokeredFolder,
    /// What the broker has in common with others, in the order in which it is locked.
    pub(crate) shared: Vec<Rc<Shared>>,
}

impl Door {
    /// The grant's name.
    pub(crate) fn name(&self) -> &str {
        &self.folder.name
    }

    /// Where the folder lies on the host.
    pub(crate) fn path(&self) -> &Path {
        path_of(&self.folder.path)
    }

    /// The session has the folder elsewhere than among its grants, and sees something else at these
    /// paths of the host below it.
    pub(crate) fn show_at(&mut self, at: &Path, others: &[PathBuf]) {
        let below = others.iter().filter_map(|other| other.strip_prefix(self.path()).ok());
        let below = below.filter(|below| !below.as_os_str().is_empty());
        let below: Vec<_> = below.map(|below| below.as_os_str().as_bytes().to_vec()).collect();
        self.folder.submounts.extend(below);
        self.folder.at = at.as_os_str().as_bytes().to_vec();
    }

    /// Other rules from now on.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.folder.rules = rules;
    }

    /// What a broker is told of it, and the handles beside that.
    pub(crate) fn introduction(&self) -> Result<(ToBroker, Vec<OwnedFd>), Errno> {
        let mut handles = vec![locate(self.mount.as_fd(), path_of(&self.folder.below))?];
        if let Some(trash) = &self.trash {
            handles.push(locate(self.mount.as_fd(), trash)?);
        }
        for shared in &self.shared {
            handles.push(shared.open()?);
        }
        Ok((ToBroker::Folder(Box::new(self.folder.clone())), handles))
    }
}

/// The doors of a session.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Which calls its broker decides.
    pub(crate) kind: Kind,
    /// Whether only a fatal signal interrupts a call that the broker has in work; not known before
    /// init has begun.
    pub(crate) killable: Option<bool>,
    /// Where changes are recorded.
    pub(crate) store: Option<Store>,
    /// The writable sides of folders whose changes go through the broker.
    pub(crate) open: Vec<Door>,
    /// What the session has in common with others, or had: counted down after the broker is gone.
    pub(crate) shares: Vec<Share>,
}

impl Doors {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, killable: None, store: None, open: Vec::new(), shares: Vec::new() }
    }
}

/// A folder in the host view that is to get a door.
pub(crate) struct Wanted<'a> {
    /// Where it is in the session.
    pub(crate) at: PathBuf,
    pub(crate) grant: &'a Grant,
    pub(crate) writing: &'a Writing,
    /// The folder itself.
    pub(crate) folder: &'a OwnedFd,
    /// Its owner on disk.
    pub(crate) owner: (u32, u32),
    /// Mounts inside it, by their path on the host.
    pub(crate) submounts: &'a [PathBuf],
}

/// Where the writable mount of a folder starts, as found in the host view.
pub(crate) struct Ground {
    mount: OwnedFd,
    below: PathBuf,
    trash: Option<PathBuf>,
}

/// Refuses a folder that a session of this kind cannot have.
pub(crate) fn refuse_without(session: &Session, grant: &Grant) -> Result<(), Failure> {
    let Doors { kind, killable, .. } = session.doors;
    let Some((sentence, hint)) = obstacle(kind, killable, session.profile) else { return Ok(()) };
    let sentence = format!("cannot grant `{}` as `rw`: {sentence}", path_of(&grant.path).display());
    Err(failure(FailureCode::NoDoor, sentence, hint))
}

/// Why a session can have no folder whose changes are recorded, and what helps.
fn obstacle(
    kind: Kind,
    killable: Option<bool>,
    profile: Profile,
) -> Option<(&'static str, &'static str)> {
    match (kind, killable, profile) {
        (Kind::Writes, Some(true) | None, _) => None,
        (Kind::Writes, Some(false), _) => Some((
            "this kernel is older than Linux 5.19, and cannot let a broker make changes safely",
            "grant it as `direct` or `staged`",
        )),
        (Kind::Connections, _, Profile::Nested) => Some((
            "a session of profile `nested` can have no folder whose changes are recorded",
            "grant it as `direct` or `staged`, or use profile `strict`",
        )),
        (Kind::Connections, _, Profile::Strict) => Some((
            "this session was made without the door through which recorded changes go, because all \
             its folders were direct",
            "grant it as `direct` or `staged`, or make a session with an `rw` folder",
        )),
    }
}

/// Finds where the writable mount of a folder starts, and copies it. In the host view.
pub(crate) fn survey(standing: Standing, wanted: &Wanted<'_>) -> Result<Ground, Failure> {
    let path = path_of(&wanted.grant.path);
    let refused = |errno| {
        let step = format!("make `{}` writable", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    if let Some(store) = &wanted.writing.store {
        if let Some(trash) = make_trash(standing, store, wanted)?
            && let Some((start, below, trash_below)) = common(wanted.folder, path, &trash)
        {
            let mount = clone(&start).map_err(refused)?;
            return Ok(Ground { mount, below, trash: Some(trash_below) });
        }
        if let Some(away::Layout { top, folder, trash }) = make_away(standing, store, wanted)? {
            let mount = clone(&top).map_err(refused)?;
            return Ok(Ground { mount, below: folder, trash: Some(trash) });
        }
    }
    let mount = clone(wanted.folder).map_err(refused)?;
    Ok(Ground { mount, below: PathBuf::new(), trash: None })
}

/// A copy of one mount. An ordinary user cannot leave out what is mounted below it; nobody goes there.
fn clone(start: &OwnedFd) -> Result<OwnedFd, Errno> {
    match copy_mount(start.as_fd(), Path::new(""), Extent::One) {
        Err(Errno::INVAL) => copy_mount(start.as_fd(), Path::new(""), Extent::Tree),
        result => result,
    }
}

/// Finishes what [`survey`] began.
pub(crate) fn make(
    ground: Ground,
    wanted: &Wanted<'_>,
    mapping: Option<&OwnedFd>,
    shared: Vec<Rc<Shared>>,
) -> Result<Door, Failure> {
    let path = path_of(&wanted.grant.path);
    let refused = |errno| {
        let step = format!("limit the writable mount of `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    let attributes = Attributes {
        set: NOSUID | NODEV,
        propagation: Some(Propagation::Private),
        idmap: mapping.map(AsFd::as_fd),
    };
    set_attributes(ground.mount.as_fd(), Depth::One, &attributes).map_err(refused)?;
    let stat = statx(&ground.mount, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let mount_id = stat.map_err(refused)?.stx_mnt_id;
    let inside = wanted.submounts.iter().filter_map(|point| point.strip_prefix(path).ok());
    let inside = inside.map(|point| point.as_os_str().as_bytes().to_vec());
    let folder = BrokeredFolder {
        name: wanted.grant.name.clone(),
        path: wanted.grant.path.clone(),
        at: wanted.at.as_os_str().as_bytes().to_vec(),
        folder: wanted.grant.folder,
        below: ground.below.as_os_str().as_bytes().to_vec(),
        trash: ground.trash.is_some(),
        submounts: inside.chain(wanted.writing.direct.iter().cloned()).collect(),
        owner: mapping.map(|_| wanted.owner),
        rules: wanted.writing.rules.clone(),
    };
    Ok(Door { mount: ground.mount, mount_id, trash: ground.trash, folder, shared })
}

/// The folder above both that is on the same mount as both, and the two paths below it.
fn common(folder: &OwnedFd, path: &Path, trash: &Path) -> Option<(OwnedFd, PathBuf, PathBuf)> {
    let mount_of = |handle: &OwnedFd| {
        let stat = statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        stat.ok().map(|stat| stat.stx_mnt_id)
    };
    let above: PathBuf = path
        .components()
        .zip(trash.components())
        .take_while(|(one, other)| one == other)
        .map(|(component, _)| component)
        .collect();
    let start = open_exactly(&above).ok()?;
    let kept = open_exactly(trash).ok()?;
    let mount = mount_of(folder)?;
    if mount_of(&start) != Some(mount) || mount_of(&kept) != Some(mount) {
        return None;
    }
    let below = path.strip_prefix(&above).ok()?.to_path_buf();
    Some((start, below, trash.strip_prefix(&above).ok()?.to_path_buf()))
}

/// Makes the trash of a folder in the store. `None` if the store lies in the folder itself.
fn make_trash(
    standing: Standing,
    store: &Kept,
    wanted: &Wanted<'_>,
) -> Result<Option<PathBuf>, Failure> {
    let path = path_of(&store.path);
    if path.starts_with(path_of(&wanted.grant.path)) {
        return Ok(None);
    }
    let handle = open_store(standing, store)?;
    let failed = |errno| {
        let step = format!("make a place for what is removed in `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::StepFailed)
    };
    let mut at = handle;
    for (name, mode) in [("trash", 0o755), (wanted.grant.name.as_str(), 0o700)] {
        match mkdirat(&at, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = openat(&at, name, flags, Mode::empty()).map_err(failed)?;
    }
    if standing == Standing::Root {
        let (uid, gid) = wanted.owner;
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::fchown(&at, Some(uid), Some(gid)).map_err(failed)?;
    }
    Ok(Some(path.join("trash").join(&wanted.grant.name)))
}

/// Makes the trash of a folder at the top of its mount. `None` if there cannot be one.
fn make_away(
    standing: Standing,
    store: &Kept,
    wanted: &Wanted<'_>,
) -> Result<Option<away::Layout>, Failure> {
    let opened = open_store(standing, store)?;
    let owner = (standing == Standing::Root).then_some(wanted.owner);
    let (name, path) = (wanted.grant.name.as_str(), path_of(&wanted.grant.path));
    let wanted = away::Wanted { name, path, folder: wanted.folder, owner };
    Ok(away::make(store, opened.as_fd(), &wanted))
}

/// Opens a store, in the host view. In root mode it becomes nobody's, as a home does.
pub(crate) fn open_store(standing: Standing, store: &Kept) -> Result<OwnedFd, Failure> {
    let path = path_of(&store.path);
    let failed = |errno| {
        let step = format!("use `{}` to record changes", path.display());
        Failed::new(step, errno).into_failure(FailureCode::StepFailed)
    };
    let handle = open_exactly(path).map_err(failed)?;
    let found = identity(handle.as_fd()).map_err(failed)?;
    if found != store.folder {
        let sentence = format!("`{}` is no longer the folder for recorded changes", path.display());
        return Err(failure(FailureCode::FolderChanged, sentence, ""));
    }
    if standing == Standing::Root {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&handle, ".", flags, Mode::empty()).map_err(failed)?;
        let nobody = (Uid::from_raw(ids::NOBODY), Gid::from_raw(ids::NOBODY));
        rustix::fs::fchown(&opened, Some(nobody.0), Some(nobody.1)).map_err(failed)?;
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o755)).map_err(failed)?;
    }
    Ok(handle)
}

/// The store of a session as its broker uses it: a mount of its own, which shows nobody's files as
/// the session's in root mode.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folder: Identity,
    pub(crate) handle: OwnedFd,
}

/// Opens the store for a broker, in the host view.
pub(crate) fn mount_store(
    standing: Standing,
    store: &Kept,
    mapping: Option<&OwnedFd>,
) -> Result<Store, Failure> {
    let path = path_of(&store.path);
    let failed = |errno| {
        let step = format!("use `{}` to record changes", path.display());
        Failed::new(step, errno).into_failure(FailureCode::StepFailed)
    };
    let handle = open_store(standing, store)?;
    let mount = clone(&handle).map_err(failed)?;
    let attributes = Attributes {
        set: NOSUID | NODEV,
        propagation: Some(Propagation::Private),
        idmap: mapping.map(AsFd::as_fd),
    };
    set_attributes(mount.as_fd(), Depth::One, &attributes).map_err(failed)?;
    Ok(Store { folder: store.folder, handle: mount })
}

/// What came of closing a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Nobody can change anything in the folder any more.
    Yes,
    /// Somebody holds on to a file of it whom no process shows.
    No,
}

/// Closes a door: whoever has a file of the folder open for writing is killed and noted. The session
/// stands still.
pub(crate) fn close(
    session: &Session,
    door: &Door,
    killed: &mut Vec<(i32, String)>,
) -> Result<Closed, Failed> {
    /// After this many tries processes with a file open for writing are killed, and after that many
    /// those that may have one mapped.
    const OPEN_FROM: u32 = 2;
    const MAPPED_FROM: u32 = 20;
    const TRIES: u32 = 400;
    const PAUSE: Duration = Duration::from_micros(250);
    const PATIENCE: Duration = Duration::from_secs(5);
    let deadline = Instant::now() + PATIENCE;
    let attributes = Attributes { set: RDONLY, ..Attributes::default() };
    let loan = Loan::new(door.mount_id, door.folder.folder.device);
    for attempt in 0..TRIES {
        match set_attributes(door.mount.as_fd(), Depth::One, &attributes) {
            Ok(()) => {
                // Nobody can write any more. A handle that only names a file does not count as
                // writing: whoever has one goes too.
                let holds = |pid: &i32| loan.is_open_in(*pid);
                if revoke::kill(session, killed, holds) == 0 {
                    return Ok(Closed::Yes);
                }
            }
            Err(Errno::BUSY) if Instant::now() < deadline => {}
            Err(Errno::BUSY) => break,
            Err(errno) => {
                let step = format!("close the door to `{}`", door.name());
                return Err(Failed::new(step, errno));
            }
        }
        // The broker itself may be about to hand a file over: it is given a moment first.
        if attempt >= OPEN_FROM {
            let holds = |pid: &i32| {
                loan.is_open_in(*pid) || attempt >= MAPPED_FROM && loan.may_be_mapped_in(*pid)
            };
            revoke::kill(session, killed, holds);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Closed::No)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Profile, obstacle};

    /// Before Linux 5.19 a signal makes the kernel begin a call again that the broker has carried out.
    #[test]
    fn a_kernel_that_may_repeat_a_call_gets_no_recorded_folder() {
        assert_eq!(obstacle(Kind::Writes, Some(true), Profile::Strict), None);
        assert_eq!(obstacle(Kind::Writes, None, Profile::Strict), None, "init tells it later");
        let said = obstacle(Kind::Writes, Some(false), Profile::Strict);
        let (sentence, hint) = said.expect("it is refused");
        assert!(sentence.starts_with("this kernel is older than Linux 5.19"), "{sentence}");
        assert_eq!(hint, "grant it as `direct` or `staged`");
    }
}

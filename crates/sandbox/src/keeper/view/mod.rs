//! The host's tree of files, for a session that sees it at its own paths.
//!
//! The keeper copies the host's mounts, read-only, in the host view ([`mounts`]), and finds every
//! name under which something hidden could be reached (`aliases`); the session's first process puts
//! the copies into its root and covers what is hidden (`placing`). Nothing is made on the host: a
//! mount point is a file or folder that is there, or lies in a folder of the session's own.
//!
//! The copies are of single folders at the top, so that `/proc`, `/sys`, `/dev` and `/run` of the
//! host are never in the session's namespace; where the host has such file systems elsewhere they
//! are covered. The copies are private: what is mounted on the host later does not appear.
//!
//! A cover lasts as long as the name that it is on: a file that the host replaces by another one of
//! that name, as editors do, is no longer covered. The session itself cannot do that.
//!
//! Deliberately absent: any decision about what is hidden or writable.

mod aliases;
mod placing;

pub(crate) use placing::{make_folders, receive};

use crate::folder::identity;
use crate::keeper::door::{self, Door};
use crate::keeper::grant::{self, failure, mapping, within_host};
use crate::keeper::grounds::{Grounds, Standing};
use crate::keeper::staged::Staging;
use crate::keeper::{Session, ids};
use crate::kernel::{Extent, Failed, copy_mount, locate, path_of, restrict};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{
    Access, Grant, HostView, Identity, Place, SessionPlan, Shows, View, Writable, Writing,
};
use cowork_api::seed::Outlook;
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, Depth, NODEV, NOSUID, Propagation, RDONLY, set_attributes};
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::path::{Path, PathBuf};

/// Comes with mounts of the host's for a session.
const MOUNTS: &[u8] = b"mounts";
/// Most mounts beside one message.
const BATCH: usize = 64;

/// How many mounts of the host the session's first process gets.
fn mounts_of(outlook: &Outlook) -> usize {
    outlook.trees.len() + outlook.places.iter().filter(|place| is_of_host(&place.shows)).count()
}

/// Whether a place shows what the host has there.
fn is_of_host(shows: &Shows) -> bool {
    match shows {
        Shows::Nothing | Shows::Contents(_) | Shows::Scratch => false,
        Shows::Read(_) | Shows::Direct(_) | Shows::Write(_) => true,
    }
}

/// Looks at the host for a session that is to see its tree.
pub(crate) fn look(grounds: &mut Grounds, plan: &SessionPlan) -> Result<Option<Outlook>, Failure> {
    let View::Host(view) = &plan.view else { return Ok(None) };
    check(view)?;
    let mounts = grounds.mounts.list().to_vec();
    let places = within_host(grounds, || aliases::with_other_names(&mounts, view))?;
    Ok(Some(Outlook { trees: view.trees.clone(), places }))
}

/// Refuses paths that are not what policy makes.
fn check(view: &HostView) -> Result<(), Failure> {
    let plain = |path: &Path| {
        use std::path::Component;
        let mut components = path.components();
        components.next() == Some(Component::RootDir)
            && components.clone().next().is_some()
            && components.all(|component| matches!(component, Component::Normal(_)))
    };
    let paths = view.trees.iter().chain(view.places.iter().map(|place| &place.path));
    for path in paths.map(|path| path_of(path)) {
        if !plain(path) {
            let sentence = format!("`{}` is no path of the host's tree", path.display());
            return Err(failure(FailureCode::Malformed, sentence, ""));
        }
    }
    Ok(())
}

/// Copies of the host's mounts for a session, in the order of its outlook, and the doors of folders
/// that its broker changes.
pub(crate) fn mounts(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    outlook: &Outlook,
) -> Result<(Vec<OwnedFd>, Vec<Door>), Failure> {
    let own = mapping(proof, session, ROOT)?;
    let mut mounts = Vec::new();
    for tree in &outlook.trees {
        let found = read_only(grounds, (path_of(tree), None), own.as_ref());
        mounts.push(found?);
    }
    let covered: Vec<PathBuf> =
        outlook.places.iter().map(|place| path_of(&place.path).to_path_buf()).collect();
    let mut doors = Vec::new();
    for place in outlook.places.iter().filter(|place| is_of_host(&place.shows)) {
        let path = path_of(&place.path);
        let mount = match &place.shows {
            Shows::Write(writable) => {
                let (mount, door) = brokered(proof, grounds, session, (place, writable))?;
                doors.extend(door);
                mount
            }
            Shows::Direct(file) => direct(proof, grounds, session, (path, *file))?,
            Shows::Read(file) => read_only(grounds, (path, Some(*file)), own.as_ref())?,
            Shows::Nothing | Shows::Contents(_) | Shows::Scratch => continue,
        };
        mounts.push(mount);
    }
    for door in &mut doors {
        let at = door.path().to_path_buf();
        door.show_at(&at, &covered);
    }
    Ok((mounts, doors))
}

/// The owner whose files a session of root's sees as its own, as root does.
const ROOT: (u32, u32) = (0, 0);

/// Hands the mounts to the session's first process, which waits for them.
pub(crate) fn send(session: &Session, mounts: &[OwnedFd]) {
    let Some(control) = &session.control else { return };
    for batch in mounts.chunks(BATCH) {
        let handles: Vec<_> = batch.iter().map(AsFd::as_fd).collect();
        // A first process that failed already has said why; that is read next.
        cowork_sys::ignore(control.send(MOUNTS, &handles));
    }
}

/// Finds a file or folder again by its path, which must contain no symbolic link, and makes sure
/// that it is the one that was meant. In the host view.
fn find(path: &Path, meant: Option<Identity>) -> Result<OwnedFd, Failure> {
    let failed = |errno| {
        let step = format!("open `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    let found = open(path);
    let same = match (&found, meant) {
        (Ok(file), Some(meant)) => identity(file.as_fd()).map_err(failed)? == meant,
        (Ok(_), None) => true,
        (Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR), _) => false,
        (Err(errno), _) => return Err(failed(*errno)),
    };
    match found {
        Ok(file) if same => Ok(file),
        _ => Err(failure(
            FailureCode::FolderChanged,
            format!("`{}` is no longer what was named", path.display()),
            "look at what it is now, and try again",
        )),
    }
}

/// Opens whatever is at a path that has no link in it.
fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    crate::kernel::retry(|| rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve))
}

fn copy(path: &Path, file: &OwnedFd) -> Result<OwnedFd, Failure> {
    copy_mount(file.as_fd(), Path::new(""), Extent::Tree).map_err(|errno| refused(path, errno))
}

fn refused(path: &Path, errno: Errno) -> Failure {
    let step = format!("copy the mount of `{}`", path.display());
    Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
}

/// A read-only copy with everything that is mounted below. In root mode files of root's are the
/// session's own, wherever the file system can say so.
fn read_only(
    grounds: &mut Grounds,
    (path, meant): (&Path, Option<Identity>),
    mapping: Option<&OwnedFd>,
) -> Result<OwnedFd, Failure> {
    let inside = grounds.mounts.inside(path);
    let mount = within_host(grounds, || copy(path, &find(path, meant)?))?;
    let attributes = Attributes {
        set: RDONLY | NOSUID | NODEV,
        propagation: Some(Propagation::Private),
        idmap: mapping.map(AsFd::as_fd),
    };
    match restrict(mount.as_fd(), &attributes) {
        Ok(()) => return Ok(mount),
        Err(_) if mapping.is_some() => {}
        Err(errno) => return Err(refused(path, errno)),
    }
    let plain = Attributes { idmap: None, ..attributes };
    restrict(mount.as_fd(), &plain).map_err(|errno| refused(path, errno))?;
    let mapped = Attributes { set: 0, propagation: None, ..attributes };
    // What cannot be mapped shows its owners as they are, and is read as by anybody.
    cowork_sys::ignore(set_attributes(mount.as_fd(), Depth::One, &mapped));
    for below in inside.iter().filter_map(|point| point.strip_prefix(path).ok()) {
        if let Ok(point) = locate(mount.as_fd(), below) {
            cowork_sys::ignore(set_attributes(point.as_fd(), Depth::One, &mapped));
        }
    }
    Ok(mount)
}

/// A writable copy. In root mode files of its owner's are the session's own.
fn direct(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    (path, meant): (&Path, Identity),
) -> Result<OwnedFd, Failure> {
    let (mount, owner) = within_host(grounds, || {
        let file = find(path, Some(meant))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| refused(path, errno))?;
        Ok((copy(path, &file)?, (stat.st_uid, stat.st_gid)))
    })?;
    let mapping = mapping(proof, session, owner)?;
    let attributes = Attributes {
        set: NOSUID | NODEV,
        propagation: Some(Propagation::Private),
        idmap: mapping.as_ref().map(AsFd::as_fd),
    };
    restrict(mount.as_fd(), &attributes).map_err(|errno| refused(path, errno))?;
    Ok(mount)
}

/// The session's read-only side of a folder that its broker changes, and the broker's.
fn brokered(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    (place, writable): (&Place, &Writable),
) -> Result<(OwnedFd, Option<Door>), Failure> {
    let Writable { name, folder, store, rules } = writable;
    let writing = Writing { store: store.clone(), rules: rules.clone(), direct: Vec::new() };
    let grant = Grant {
        name: name.clone(),
        path: place.path.clone(),
        folder: *folder,
        access: Access::Write,
        writing: Some(writing),
    };
    let prepared = grant::make_mount(proof, grounds, session, &grant, Staging::Kept)?;
    Ok((prepared.mount, prepared.door))
}

/// Refuses a view whose folders the broker cannot change on this host.
pub(crate) fn refuse_without(session: &Session, outlook: &Outlook) -> Result<(), Failure> {
    let recorded = outlook.places.iter().find_map(|place| match &place.shows {
        Shows::Write(writable) => Some((place, writable)),
        _ => None,
    });
    let Some((place, writable)) = recorded else { return Ok(()) };
    let grant = Grant {
        name: writable.name.clone(),
        path: place.path.clone(),
        folder: writable.folder,
        access: Access::Write,
        writing: None,
    };
    door::refuse_without(session, &grant)
}

/// The user and group that a session with this view sees itself as: the caller's own, so that the
/// host's list of users is right about it. In root mode it is that of every session: inside, a user
/// who were root would own what must not be the session's, such as the entry of PID 1 in `/proc`.
pub(crate) fn inside(standing: Standing, view: &View) -> (u32, u32) {
    match (standing, view) {
        (Standing::User { uid, gid }, View::Host(_)) => (uid, gid),
        (Standing::User { .. } | Standing::Root, _) => (ids::INSIDE, ids::INSIDE),
    }
}

//! Making a folder of the host visible in a running session.
//!
//! A grant is a copy of the folder's mount, made in the host view and attached in the hub; the
//! kernel shows it in the session at once, where it is locked. What a session may change is shown on a
//! read-only mount as well, unless it is direct or staged: its broker has the writable side.

use crate::folder::{identity, open_exactly};
use crate::keeper::Session;
use crate::keeper::door::{self, Door};
use crate::keeper::grounds::{Ground, Grounds, Standing};
use crate::keeper::ids;
use crate::keeper::interfaces::{self, Shown};
use crate::keeper::staged::{self, Layers, Staging};
use crate::keeper::tree::Hold;
use crate::kernel::{Extent, Failed, Step, copy_mount, locate, path_of, restrict};
use cowork_api::Text;
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{Access, Grant, Writing};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, rmdir};
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A granted folder that is ready to be attached.
#[derive(Debug)]
pub(crate) struct Prepared {
    granted: Granted,
    pub(crate) mount: OwnedFd,
    pub(crate) submounts: Vec<Text>,
    /// Its writable side, if changes go through the broker.
    pub(crate) door: Option<Door>,
    /// Folders in it that are writable without that, by their path below it.
    pub(crate) direct: Vec<(PathBuf, OwnedFd)>,
}

/// A folder that a session has.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) name: String,
    pub(crate) access: Access,
    /// Mounts that were put into it.
    pub(crate) direct: Vec<PathBuf>,
}

/// Looks the folder up and makes the mount that the session will see. Nothing is visible yet.
pub(crate) fn prepare(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
) -> Result<Prepared, Failure> {
    if session.sees_host && session.broker.listener.is_some() {
        return Err(failure(
            FailureCode::FolderRefused,
            "a session that shows the host's files gets no further folder while it runs".into(),
            "name every folder when the session is made",
        ));
    }
    if session.grants.iter().any(|known| known.name == grant.name) {
        return Err(failure(
            FailureCode::GrantExists,
            format!("the session already has a folder named `{}`", grant.name),
            "give this one another name with `=name`",
        ));
    }
    make_mount(proof, grounds, session, grant, Staging::Kept)
}

pub(crate) fn make_mount(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
    staging: Staging,
) -> Result<Prepared, Failure> {
    if !is_plain_name(&grant.name) {
        let sentence = format!("`{}` cannot be the name of a folder", grant.name);
        return Err(failure(FailureCode::Malformed, sentence, ""));
    }
    let nothing = Writing::default();
    let writing = grant.writing.as_ref().unwrap_or(&nothing);
    if grant.access == Access::Write {
        door::refuse_without(session, grant)?;
        open_store(proof, grounds, session, writing)?;
    }
    let path = path_of(&grant.path);
    let points = grounds.mounts.inside(path);
    let standing = session.standing;
    let at = session.folder_of(&grant.name);
    let mut all_shared = std::mem::take(&mut grounds.shared);
    let found = within_host(grounds, || {
        let (folder, owner) = look_up(path, grant)?;
        if grant.access == Access::Write {
            all_shared.look_again();
        }
        let at = at.clone();
        let seen = See { standing, at, grant, writing, folder, owner, points: &points };
        seen.find(staging)
    });
    grounds.shared = all_shared;
    let found = found?;
    // A view of the host's tree has them covered.
    if !session.sees_host {
        let shown = match grant.access {
            // What is mounted inside is no part of a layer.
            Access::Staged => Shown::Itself,
            Access::Read | Access::Write | Access::Direct => Shown::Inside,
        };
        interfaces::refuse(&mut grounds.mounts, found.folder.as_fd(), path, shown)?;
    }
    let mapping = mapping(proof, session, found.owner)?;
    let mount = match found.mount {
        Base::Plain(mount) => {
            limit(grant, grant.access, mount.as_fd(), mapping.as_ref())?;
            mount
        }
        Base::Staged(layers) => {
            let user = session.ids.as_ref().map(|ids| ids.id);
            staged::overlay(&layers, grant, mapping.as_ref(), user)?
        }
    };
    let mut direct = Vec::new();
    for (below, mount) in found.direct {
        limit(grant, Access::Direct, mount.as_fd(), mapping.as_ref())?;
        direct.push((below, mount));
    }
    if !direct.is_empty() {
        // What is attached in it later appears in the session too.
        let shared = Attributes { propagation: Some(Propagation::Shared), ..Attributes::default() };
        restrict(mount.as_fd(), &shared).map_err(|errno| {
            let step = format!("share the mount of `{}`", path.display());
            Failed::new(step, errno).into_failure(FailureCode::StepFailed)
        })?;
    }
    let door = found.ground.map(|ground| {
        let shared = grounds.shared.of(session, &mut grounds.mounts, (grant, &found.folder))?;
        let wanted = door::Wanted {
            at,
            grant,
            writing,
            folder: &found.folder,
            owner: found.owner,
            submounts: &points,
        };
        door::make(ground, &wanted, mapping.as_ref(), shared)
    });
    let submounts = points.iter().map(|point| point.as_os_str().as_bytes().to_vec()).collect();
    let granted = Granted {
        name: grant.name.clone(),
        access: grant.access,
        direct: direct.iter().map(|(below, _)| below.clone()).collect(),
    };
    Ok(Prepared { granted, mount, submounts, door: door.transpose()?, direct })
}

/// Does something in the host view whose failure is one of its own.
pub(crate) fn within_host<T>(
    grounds: &mut Grounds,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let done = grounds.within(Ground::HostView, || Ok(work()));
    done.map_err(|failed| failed.into_failure(FailureCode::StepFailed))?
}

/// Opens the folder in which a session's changes are recorded, once.
fn open_store(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    writing: &Writing,
) -> Result<(), Failure> {
    let Some(store) = &writing.store else { return Ok(()) };
    if let Some(known) = &session.doors.store {
        if known.folder == store.folder {
            return Ok(());
        }
        let sentence = "a session's changes are recorded in one place only".to_owned();
        return Err(failure(FailureCode::Malformed, sentence, ""));
    }
    let mapping = mapping(proof, session, (ids::NOBODY, ids::NOBODY))?;
    let standing = session.standing;
    let opened = within_host(grounds, || door::mount_store(standing, store, mapping.as_ref()))?;
    session.doors.store = Some(opened);
    // A broker that runs without one makes way for one that has it.
    session.broker.dismiss();
    Ok(())
}

/// The id map of a session's mounts of files of `owner`, in root mode.
pub(crate) fn mapping(
    proof: &SingleThreaded,
    session: &mut Session,
    owner: (u32, u32),
) -> Result<Option<OwnedFd>, Failure> {
    match session.standing {
        Standing::User { .. } => Ok(None),
        Standing::Root => session
            .mapping(proof, owner)
            .map(Some)
            .map_err(|failed| failed.into_failure(FailureCode::StepFailed)),
    }
}

/// Makes a prepared folder visible. Returns the mounts inside it that came along.
pub(crate) fn attach(session: &mut Session, prepared: Prepared) -> Result<Vec<Text>, Failure> {
    let step = |failed: Failed| failed.into_failure(FailureCode::StepFailed);
    place(session, &prepared.granted.name, &prepared.mount).map_err(step)?;
    for (below, mount) in &prepared.direct {
        let point = Path::new(&prepared.granted.name).join(below);
        if let Err(failed) = place_inside(session, &point, mount) {
            // Nothing has seen it yet that would hold on to it.
            let point = session.hub.path().join(&prepared.granted.name);
            cowork_sys::ignore(unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
            cowork_sys::ignore(rmdir(&point));
            return Err(step(failed));
        }
    }
    session.grants.push(prepared.granted);
    if let Some(door) = prepared.door {
        session.add_door(door);
    }
    Ok(prepared.submounts)
}

/// What a granted folder's mount is made of.
enum Base {
    Plain(OwnedFd),
    Staged(Layers),
}

/// A folder as it was found in the host view.
struct Found {
    folder: OwnedFd,
    owner: (u32, u32),
    mount: Base,
    ground: Option<door::Ground>,
    direct: Vec<(PathBuf, OwnedFd)>,
}

/// A folder that is looked at in the host view.
struct See<'a> {
    standing: Standing,
    at: PathBuf,
    grant: &'a Grant,
    writing: &'a Writing,
    folder: OwnedFd,
    owner: (u32, u32),
    points: &'a [PathBuf],
}

impl See<'_> {
    fn find(self, staging: Staging) -> Result<Found, Failure> {
        let mount = match self.grant.access {
            Access::Read | Access::Write | Access::Direct => Base::Plain(self.copy(&self.folder)?),
            Access::Staged => {
                let store = self.writing.store.as_ref();
                let layers =
                    staged::layers(self.standing, store, self.grant, &self.folder, staging)?;
                Base::Staged(layers)
            }
        };
        let mut direct = Vec::new();
        let mut ground = None;
        if self.grant.access == Access::Write {
            for below in &self.writing.direct {
                direct.push((path_of(below).to_path_buf(), self.copy(&self.inside(below)?)?));
            }
            let wanted = door::Wanted {
                at: self.at.clone(),
                grant: self.grant,
                writing: self.writing,
                folder: &self.folder,
                owner: self.owner,
                submounts: self.points,
            };
            ground = Some(door::survey(self.standing, &wanted)?);
        }
        Ok(Found { folder: self.folder, owner: self.owner, mount, ground, direct })
    }

    /// A copy of the mount of a folder. An ordinary user cannot leave out mounts inside it: they are
    /// locked together.
    fn copy(&self, folder: &OwnedFd) -> Result<OwnedFd, Failure> {
        copy_mount(folder.as_fd(), Path::new(""), Extent::Tree).map_err(|errno| {
            let step = format!("copy the mount of `{}`", path_of(&self.grant.path).display());
            Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
        })
    }

    /// A folder below the granted one, through no link.
    fn inside(&self, below: &[u8]) -> Result<OwnedFd, Failure> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = crate::kernel::retry(|| {
            rustix::fs::openat2(&self.folder, path_of(below), flags, Mode::empty(), resolve)
        });
        found.map_err(|errno| {
            let sentence = format!(
                "`{}` in `{}` cannot be made direct",
                path_of(below).display(),
                path_of(&self.grant.path).display()
            );
            Failure {
                code: FailureCode::FolderRefused,
                sentence,
                errno: errno.raw_os_error(),
                hint: "name a folder that is there, by its path below the granted one".into(),
            }
        })
    }
}

/// Finds the folder again by its path, and makes sure that it is the one that was granted: from
/// here on it is a handle, and no rename or link can turn it into another. Says who owns it.
fn look_up(path: &Path, grant: &Grant) -> Result<(OwnedFd, (u32, u32)), Failure> {
    let changed = || {
        failure(
            FailureCode::FolderChanged,
            format!("`{}` is no longer the folder that was granted", path.display()),
            "look at what it is now, and grant it again",
        )
    };
    let failed = |errno| {
        let step = format!("open the folder `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    let folder = match open_exactly(path) {
        Ok(folder) => folder,
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => return Err(changed()),
        Err(errno) => return Err(failed(errno)),
    };
    if identity(folder.as_fd()).map_err(failed)? != grant.folder {
        return Err(changed());
    }
    let stat = rustix::fs::fstat(&folder).map_err(failed)?;
    Ok((folder, (stat.st_uid, stat.st_gid)))
}

/// What stands between a session and a folder that its broker changes, whatever a call that goes on says
/// meanwhile. Only the control of attacks does without it: see `escape`.
const WALL: u64 = if cfg!(feature = "no-wall-for-control") { 0 } else { RDONLY };

/// Sets what the session may do with the mount, and in root mode whose files it shows.
fn limit(
    grant: &Grant,
    access: Access,
    mount: rustix::fd::BorrowedFd<'_>,
    mapping: Option<&OwnedFd>,
) -> Result<(), Failure> {
    let set = NOSUID
        | NODEV
        | match access {
            Access::Write => WALL,
            Access::Read | Access::Staged => RDONLY,
            Access::Direct => 0,
        };
    let propagation = Some(Propagation::Private);
    let attributes = Attributes { set, propagation, idmap: mapping.map(AsFd::as_fd) };
    match restrict(mount, &attributes) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::PERM) if mapping.is_some() => Err(failure(
            FailureCode::FolderRefused,
            format!(
                "the file system of `{}`, or of a mount inside it, cannot show its files as the \
                 session's own",
                path_of(&grant.path).display()
            ),
            "run cowork as the owner of the folder instead of as root",
        )),
        Err(errno) => {
            let step = format!("limit the mount of `{}`", path_of(&grant.path).display());
            Err(Failed::new(step, errno).into_failure(FailureCode::FolderRefused))
        }
    }
}

/// Attaches the mount in the hub; it appears in the session.
fn place(session: &Session, name: &str, mount: &OwnedFd) -> Result<(), Failed> {
    let named = || format!("attach the folder `{name}`");
    let hub = session.hub.open().step(named)?;
    match mkdirat(&hub, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Failed::new(named(), errno)),
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", &hub, name, flags).step(named)
}

/// Attaches a mount in a folder that is attached in the hub.
fn place_inside(session: &Session, point: &Path, mount: &OwnedFd) -> Result<(), Failed> {
    let named = || format!("attach the direct folder `{}`", point.display());
    let hub = session.hub.open().step(named)?;
    let target = locate(hub.as_fd(), point).step(named)?;
    crate::kernel::attach(mount.as_fd(), target.as_fd()).step(named)
}

/// The id map for a session's mounts of files that belong to `owner`.
impl Session {
    fn mapping(&mut self, proof: &SingleThreaded, owner: (u32, u32)) -> Result<OwnedFd, Failed> {
        let kuid = self.ids.as_ref().map_or(0, |ids| ids.id);
        let mapping = ids::known(&mut self.mappings, proof, owner, kuid)?;
        mapping.try_clone_to_owned().step(|| "copy the id map of a mount".into())
    }

    /// Where a granted folder is in the session.
    fn folder_of(&self, name: impl AsRef<Path>) -> PathBuf {
        Path::new(cowork_policy::plan::SESSIONS).join(&self.id).join("mnt").join(name)
    }

    /// What to look for in processes that hold on to the folder at `point` of the hub.
    pub(crate) fn hold(&self, point: &Path) -> Hold {
        let inside = self.folder_of(point.file_name().unwrap_or_default());
        let device = rustix::fs::stat(point).map_or(0, |stat| stat.st_dev);
        Hold::new(inside, device)
    }
}

/// One component of a path, and not a special one.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

pub(crate) fn failure(code: FailureCode, sentence: String, hint: &str) -> Failure {
    Failure { code, sentence, errno: 0, hint: hint.to_owned() }
}

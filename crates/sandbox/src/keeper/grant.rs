//! Making a folder of the host visible in a running session, and taking it away.
//!
//! A grant is a copy of the folder's mount, made in the host view and attached in the hub; the
//! kernel shows it in the session at once, where it is locked. To revoke it the session stands
//! still while the mount is taken away by a plain unmount: success is the kernel's own statement
//! that nothing, in any namespace, holds on to the folder.

use crate::folder::{identity, open_exactly};
use crate::keeper::Session;
use crate::keeper::grounds::{Ground, Grounds, Standing};
use crate::keeper::ids;
use crate::keeper::tree::{self, Hold, Mount};
use crate::kernel::{Extent, Failed, Step, copy_mount, path_of, restrict};
use cowork_api::Text;
use cowork_api::keeper::{Certainty, Failure, FailureCode, Revoked};
use cowork_api::plan::{Access, Grant};
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, mkdirat, rmdir};
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A granted folder that is ready to be attached.
#[derive(Debug)]
pub(crate) struct Prepared {
    name: String,
    mount: OwnedFd,
    submounts: Vec<Text>,
}

/// Looks the folder up and makes the mount that the session will see. Nothing is visible yet.
pub(crate) fn prepare(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
) -> Result<Prepared, Failure> {
    if session.grants.contains(&grant.name) {
        return Err(failure(
            FailureCode::GrantExists,
            format!("the session already has a folder named `{}`", grant.name),
            "give this one another name with `=name`",
        ));
    }
    make_mount(proof, grounds, session, grant)
}

fn make_mount(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
) -> Result<Prepared, Failure> {
    if !is_plain_name(&grant.name) {
        let sentence = format!("`{}` cannot be the name of a folder", grant.name);
        return Err(failure(FailureCode::Malformed, sentence, ""));
    }
    let path = path_of(&grant.path);
    let looked_up = grounds.within(Ground::HostView, || Ok(look_up(path, grant)));
    let (mount, owner) =
        looked_up.map_err(|failed| failed.into_failure(FailureCode::StepFailed))??;
    let submounts = grounds.mounts.inside(path);
    let submounts = submounts.iter().map(|point| point.as_os_str().as_bytes().to_vec()).collect();
    limit(proof, session, grant, mount.as_fd(), owner)?;
    Ok(Prepared { name: grant.name.clone(), mount, submounts })
}

/// Makes a prepared folder visible. Returns the mounts inside it that came along.
pub(crate) fn attach(session: &mut Session, prepared: Prepared) -> Result<Vec<Text>, Failure> {
    place(session, &prepared.name, &prepared.mount)
        .map_err(|failed| failed.into_failure(FailureCode::StepFailed))?;
    session.grants.push(prepared.name);
    Ok(prepared.submounts)
}

/// The copied mount and the owner of the folder.
type LookedUp = (OwnedFd, (u32, u32));

/// Finds the folder again by its path, and makes sure that it is the one that was granted: from
/// here on it is a handle, and no rename or link can turn it into another.
fn look_up(path: &Path, grant: &Grant) -> Result<LookedUp, Failure> {
    let changed = || {
        failure(
            FailureCode::FolderChanged,
            format!("`{}` is no longer the folder that was granted", path.display()),
            "look at what it is now, and grant it again",
        )
    };
    let folder = match open_exactly(path) {
        Ok(folder) => folder,
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => return Err(changed()),
        Err(errno) => {
            let step = format!("open the folder `{}`", path.display());
            return Err(Failed::new(step, errno).into_failure(FailureCode::FolderRefused));
        }
    };
    let failed = |errno| {
        let step = format!("copy the mount of `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    if identity(folder.as_fd()).map_err(failed)? != grant.folder {
        return Err(changed());
    }
    let stat = rustix::fs::fstat(&folder).map_err(failed)?;
    // An ordinary user cannot leave out mounts inside the folder: they are locked together.
    let mount = copy_mount(folder.as_fd(), Path::new(""), Extent::Tree).map_err(failed)?;
    Ok((mount, (stat.st_uid, stat.st_gid)))
}

/// Sets what the session may do with the mount, and in root mode whose files it shows.
fn limit(
    proof: &SingleThreaded,
    session: &mut Session,
    grant: &Grant,
    mount: rustix::fd::BorrowedFd<'_>,
    owner: (u32, u32),
) -> Result<(), Failure> {
    let mapping = match session.standing {
        Standing::User { .. } => None,
        Standing::Root => Some(
            session
                .mapping(proof, owner)
                .map_err(|failed| failed.into_failure(FailureCode::StepFailed))?,
        ),
    };
    let set = NOSUID
        | NODEV
        | match grant.access {
            Access::Read => RDONLY,
            Access::Write => 0,
        };
    let propagation = Some(Propagation::Private);
    let attributes =
        Attributes { set, propagation, idmap: mapping.as_ref().map(|userns| userns.as_fd()) };
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

/// Takes the folder away. The keeper is in the hub.
pub(crate) fn revoke(session: &mut Session, name: &str) -> Result<Revoked, Failure> {
    check_granted(session, name)?;
    session.while_frozen(|session| withdraw(session, name))
}

/// Shows a granted folder with another access. The new mount is made first, so that a folder that
/// is no longer the one named is not taken away; both happen while the session stands still, so
/// that nobody inside sees it missing who does not hold on to it.
pub(crate) fn regrant(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
) -> Result<(Revoked, Vec<Text>), Failure> {
    check_granted(session, &grant.name)?;
    let prepared = make_mount(proof, grounds, session, grant)?;
    session.while_frozen(|session| {
        let revoked = withdraw(session, &grant.name)?;
        if revoked.certainty == Certainty::SessionEnded {
            return Ok((revoked, Vec::new()));
        }
        let submounts = attach(session, prepared)?;
        Ok((revoked, submounts))
    })
}

fn check_granted(session: &Session, name: &str) -> Result<(), Failure> {
    if session.grants.iter().any(|known| known == name) {
        return Ok(());
    }
    let sentence = format!("the session has no granted folder `{name}`");
    Err(failure(FailureCode::NoGrant, sentence, "see its grants in its status"))
}

fn withdraw(session: &mut Session, name: &str) -> Result<Revoked, Failure> {
    let point = session.hub.path().join(name);
    let revoked = take_away(session, &point)
        .map_err(|failed| failed.into_failure(FailureCode::StepFailed))?;
    cowork_sys::ignore(rmdir(&point));
    session.grants.retain(|known| known != name);
    Ok(revoked)
}

fn take_away(session: &Session, point: &Path) -> Result<Revoked, Failed> {
    /// Tries after the holders were killed: the kernel lets go of their files when it has buried
    /// them, which takes it a moment.
    const TRIES: u32 = 200;
    const PAUSE: Duration = Duration::from_micros(250);
    /// After this the session is ended: other sessions wait for the keeper meanwhile.
    const PATIENCE: Duration = Duration::from_secs(5);
    let deadline = Instant::now() + PATIENCE;
    let named = || format!("unmount {}", point.display());
    let hold = session.hold(point);
    let certainty = if has_locked_submounts(point) { Certainty::Scan } else { Certainty::Kernel };
    let mut killed = Vec::new();
    // A copy of the mount made in a namespace inside, or held as a descriptor of one, is neither
    // taken away with it nor busy: there only the end of the session is sure.
    let tries = if session.is_nested() { 0 } else { TRIES };
    for _ in 0..tries {
        if Instant::now() > deadline {
            break;
        }
        if certainty == Certainty::Kernel {
            match unmount(point, UnmountFlags::NOFOLLOW) {
                Ok(()) => {
                    // Watches end with the processes that have them.
                    let watches = |pid: &i32| hold.is_watched_by(*pid);
                    kill(session, &mut killed, watches);
                    return Ok(Revoked { killed, certainty });
                }
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(Failed::new(named(), errno)),
            }
        }
        let holds = |pid: &i32| hold.is_on(*pid) || hold.is_watched_by(*pid);
        if kill(session, &mut killed, holds) == 0 && certainty == Certainty::Scan {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            unmount(point, flags).step(named)?;
            return Ok(Revoked { killed, certainty });
        }
        std::thread::sleep(PAUSE);
    }
    // Something holds on that no process shows, such as a descriptor in flight inside a socket:
    // the caller ends the session, and with it every reference.
    unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).step(named)?;
    Ok(Revoked { killed, certainty: Certainty::SessionEnded })
}

/// Kills the session's processes that match, and notes each once. Returns how many there were.
fn kill(
    session: &Session,
    killed: &mut Vec<(i32, String)>,
    wanted: impl Fn(&i32) -> bool,
) -> usize {
    let holders = tree::descendants(session.init_pid());
    let holders: Vec<_> = holders.into_iter().filter(wanted).collect();
    for pid in &holders {
        let name = tree::name_of(*pid);
        if tree::kill(*pid, session.init_pid()).is_ok()
            && !killed.iter().any(|(known, _)| known == pid)
        {
            killed.push((*pid, name));
        }
    }
    holders.len()
}

/// Whether mounts came along with the folder. They are locked for an ordinary user, and while
/// they are there the kernel calls the folder busy.
fn has_locked_submounts(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter_map(Mount::parse)
        .any(|mount| mount.point != point && mount.point.starts_with(point))
}

/// The id map for a session's mounts of files that belong to `owner`.
impl Session {
    fn mapping(&mut self, proof: &SingleThreaded, owner: (u32, u32)) -> Result<OwnedFd, Failed> {
        let kuid = self.ids.as_ref().map_or(0, |ids| ids.id);
        let known = self.mappings.iter().find(|(known, _)| *known == owner);
        let mapping = if let Some((_, mapping)) = known {
            mapping.try_clone()
        } else {
            let made = ids::mapping(proof, owner, kuid)?;
            let copy = made.try_clone();
            self.mappings.push((owner, made));
            copy
        };
        mapping.step(|| "copy the id map of a mount".into())
    }

    /// What to look for in processes that hold on to the folder at `point` of the hub.
    fn hold(&self, point: &Path) -> Hold {
        let name = point.file_name().unwrap_or_default();
        let inside = Path::new(cowork_policy::plan::SESSIONS).join(&self.id).join("mnt").join(name);
        let device = rustix::fs::stat(point).map_or(0, |stat| stat.st_dev);
        Hold::new(inside, device)
    }
}

/// One component of a path, and not a special one.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn failure(code: FailureCode, sentence: String, hint: &str) -> Failure {
    Failure { code, sentence, errno: 0, hint: hint.to_owned() }
}

//! Taking a granted folder away from a running session, or showing it with another access.
//!
//! The session stands still while the mount is taken away by a plain unmount: success is the kernel's
//! own statement that nothing, in any namespace, holds on to the folder. Where changes go through the
//! broker its writable side is closed first, which the kernel refuses while somebody can still write.

use crate::keeper::Session;
use crate::keeper::bound;
use crate::keeper::door::{self, Closed};
use crate::keeper::grant::{Granted, attach, failure, make_mount};
use crate::keeper::grounds::Grounds;
use crate::keeper::staged::Staging;
use crate::keeper::tree::{self, Mount};
use crate::kernel::{Failed, Step};
use cowork_api::Text;
use cowork_api::files::ToBroker;
use cowork_api::keeper::{Certainty, Failure, FailureCode, Revoked};
use cowork_api::plan::{Access, Grant};
use cowork_sys::Errno;
use cowork_sys::process::SingleThreaded;
use rustix::fs::rmdir;
use rustix::mount::{UnmountFlags, unmount};
use std::path::Path;
use std::time::{Duration, Instant};

/// Takes the folder away. The keeper is in the hub.
pub(crate) fn revoke(
    proof: &SingleThreaded,
    grounds: &Grounds,
    session: &mut Session,
    name: &str,
) -> Result<Revoked, Failure> {
    check_granted(session, name)?;
    session.while_frozen(|session| withdraw(proof, grounds, session, name))
}

/// Shows a granted folder with another access. The new mount is made first, so that a folder that
/// is no longer the one named is not taken away; both happen while the session stands still, so
/// that nobody inside sees it missing who does not hold on to it. Between reading and changing by
/// way of the broker nothing is taken away at all: only the door is opened or closed.
pub(crate) fn regrant(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    session: &mut Session,
    grant: &Grant,
) -> Result<(Revoked, Vec<Text>), Failure> {
    let known = check_granted(session, &grant.name)?;
    let staging = match (known.access, grant.access) {
        (Access::Staged, Access::Staged) => Staging::Discarded,
        _ => Staging::Kept,
    };
    let prepared = make_mount(proof, grounds, session, grant, staging)?;
    let plain = known.direct.is_empty() && prepared.direct.is_empty();
    let door_alone = plain && is_read_only(known.access) && is_read_only(grant.access);
    session.while_frozen(|session| {
        if door_alone {
            let mut killed = Vec::new();
            let closed = close_door(session, &grant.name, &mut killed)?;
            if closed == Closed::Yes {
                for known in session.grants.iter_mut().filter(|known| known.name == grant.name) {
                    known.access = grant.access;
                }
                if let Some(door) = prepared.door {
                    session.add_door(door);
                }
                let certainty = Certainty::Kernel;
                return Ok((Revoked { killed, certainty }, prepared.submounts));
            }
        }
        let revoked = withdraw(proof, grounds, session, &grant.name)?;
        if revoked.certainty == Certainty::SessionEnded {
            return Ok((revoked, Vec::new()));
        }
        let submounts = attach(session, prepared)?;
        Ok((revoked, submounts))
    })
}

/// Whether the mount that the session sees refuses writes.
fn is_read_only(access: Access) -> bool {
    matches!(access, Access::Read | Access::Write)
}

fn check_granted(session: &Session, name: &str) -> Result<Granted, Failure> {
    if let Some(known) = session.grants.iter().find(|known| known.name == name) {
        return Ok(known.clone());
    }
    let sentence = format!("the session has no granted folder `{name}`");
    Err(failure(FailureCode::NoGrant, sentence, "see its grants in its status"))
}

/// Closes the door of a folder, if it has one.
fn close_door(
    session: &mut Session,
    name: &str,
    killed: &mut Vec<(i32, String)>,
) -> Result<Closed, Failure> {
    let Some(place) = session.doors.open.iter().position(|door| door.name() == name) else {
        return Ok(Closed::Yes);
    };
    let door = session.doors.open.swap_remove(place);
    let closed = door::close(session, &door, killed);
    session.tell_broker(&ToBroker::Remove { name: name.to_owned() }, &[]);
    closed.map_err(|failed| failed.into_failure(FailureCode::StepFailed))
}

fn withdraw(
    proof: &SingleThreaded,
    grounds: &Grounds,
    session: &mut Session,
    name: &str,
) -> Result<Revoked, Failure> {
    let mut killed = Vec::new();
    let closed = close_door(session, name, &mut killed)?;
    let point = session.hub.path().join(name);
    let known = check_granted(session, name)?;
    let step = |failed: Failed| failed.into_failure(FailureCode::StepFailed);
    let mut certainty = Certainty::Kernel;
    let inner = known.direct.iter().map(|below| point.join(below)).rev();
    for point in inner.chain([point.clone()]) {
        let revoked = take_away(session, &point).map_err(step)?;
        killed.extend(revoked.killed);
        certainty = weaker(certainty, revoked.certainty);
    }
    let silent = bound::silence(proof, grounds, session, name, &mut killed)?;
    if closed == Closed::No || silent == Closed::No {
        certainty = Certainty::SessionEnded;
    }
    cowork_sys::ignore(rmdir(&point));
    session.grants.retain(|known| known.name != name);
    Ok(Revoked { killed, certainty })
}

/// The less sure of two.
fn weaker(one: Certainty, other: Certainty) -> Certainty {
    let rank = |certainty| match certainty {
        Certainty::Kernel => 0,
        Certainty::Scan => 1,
        Certainty::SessionEnded => 2,
    };
    if rank(one) >= rank(other) { one } else { other }
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
pub(crate) fn kill(
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
    let mounts = crate::kernel::told_of("self", "mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter_map(Mount::parse)
        .any(|mount| mount.point != point && mount.point.starts_with(point))
}

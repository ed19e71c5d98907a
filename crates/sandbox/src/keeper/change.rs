//! Changing what a running session may use: all of it, or nothing.
//!
//! What a cgroup keeps is written there anew, and can be taken back if a later step fails. What a
//! limit of each process keeps is set from outside in every process of the session; only root can
//! raise those, so that is tried on PID 1 before anything else is touched.

use crate::keeper::cgroup::Controller;
use crate::keeper::measure::scratch_used;
use crate::keeper::{Session, limits, stage, tree};
use crate::kernel::{Failed, Step, read_at};
use cowork_api::keeper::{Failure, FailureCode, LimitKind};
use cowork_api::plan::Limits;
use cowork_policy::Bytes;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::CWD;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_string, fspick};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::time::{Duration, Instant};

/// Changes the limits of a session; says when its time is over from now on.
pub(crate) fn change(session: &mut Session, wanted: Limits) -> Result<Option<Instant>, Failure> {
    let states = limits::states(session.profile, &wanted, &session.group);
    limits::check(&wanted, &states)?;
    check_scratch(session, &wanted)?;
    let before = session.wanted;
    let (old, new) = (of_processes(session, &before), of_processes(session, &wanted));
    raise_first(session.pid, &old, &new)?;
    let undo = |session: &Session| {
        // What was just set can be set back.
        cowork_sys::ignore(session.group.set_limits(&before));
        lower_again(session.pid, &old, &new);
    };
    if let Err((controller, errno)) = session.group.set_limits(&wanted) {
        undo(session);
        return Err(refused_by_cgroup(controller, errno));
    }
    if let Err(failure) = resize_scratch(session, &wanted) {
        undo(session);
        return Err(failure);
    }
    if old.iter().zip(&new).any(|(old, new)| old.most != new.most) {
        session.while_frozen(|session| spread(session.pid, &old, &new));
    }
    session.limits = states;
    session.wanted = wanted;
    if before.wall == wanted.wall {
        // A change of something else gives it no more time.
        return Ok(session.deadline);
    }
    Ok(wanted.wall.map(|ms| Instant::now() + Duration::from_millis(ms)))
}

/// A limit that each process of the session has.
#[derive(Clone, Copy, Debug)]
struct OfProcess {
    resource: Resource,
    kind: LimitKind,
    /// How the kernel names it in the list of a process's limits.
    name: &'static str,
    most: u64,
}

/// Those limits that no cgroup keeps. Their order is always the same.
fn of_processes(session: &Session, limits: &Limits) -> Vec<OfProcess> {
    let mut all = vec![OfProcess {
        resource: Resource::Nofile,
        kind: LimitKind::OpenFiles,
        name: "Max open files",
        most: limits.open_files.value.into(),
    }];
    if session.group.limits(Controller::Pids).is_none() {
        all.push(OfProcess {
            resource: Resource::Nproc,
            kind: LimitKind::Processes,
            name: "Max processes",
            most: limits.processes.value.into(),
        });
    }
    if session.group.limits(Controller::Memory).is_none() {
        all.push(OfProcess {
            resource: Resource::Data,
            kind: LimitKind::Memory,
            name: "Max data size",
            most: limits.memory.value,
        });
    }
    all
}

/// Raises on PID 1 what is to be raised. If that is refused, nothing is changed.
fn raise_first(init: i32, old: &[OfProcess], new: &[OfProcess]) -> Result<(), Failure> {
    for (old_one, new_one) in old.iter().zip(new).filter(|(old, new)| new.most > old.most) {
        let raised = adjust(init, old_one, new_one);
        if let Err(errno) = raised {
            lower_again(init, old, new);
            return Err(Failure {
                code: FailureCode::LimitUnenforceable,
                sentence: format!(
                    "the limit on {} cannot be raised while the session runs",
                    limits::name(new_one.kind)
                ),
                errno: errno.raw_os_error(),
                hint: "stop the session, change the limit, and start it".into(),
            });
        }
    }
    Ok(())
}

fn lower_again(init: i32, old: &[OfProcess], new: &[OfProcess]) {
    for (old, new) in old.iter().zip(new).filter(|(old, new)| new.most > old.most) {
        // Lowering is always allowed; one that was not raised is not changed.
        cowork_sys::ignore(adjust(init, new, old));
    }
}

/// Sets the limits in every process, until there is none left with the old ones.
fn spread(init: i32, old: &[OfProcess], new: &[OfProcess]) {
    /// Rounds until a session that forks faster than this is given up on.
    const ROUNDS: u32 = 100;
    for _ in 0..ROUNDS {
        let mut changed = 0;
        for pid in std::iter::once(init).chain(tree::descendants(init)) {
            for (old, new) in old.iter().zip(new).filter(|(old, new)| old.most != new.most) {
                // One that has ended needs no limit.
                changed += usize::from(adjust(pid, old, new) == Ok(Adjusted::Yes));
            }
        }
        if changed == 0 {
            return;
        }
    }
}

/// Whether a process had another limit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adjusted {
    Yes,
    No,
}

/// Gives a process the new limit, unless it has lowered its own below it.
fn adjust(pid: i32, old: &OfProcess, new: &OfProcess) -> Result<Adjusted, Errno> {
    /// Most programs expect no more open files than this to begin with.
    const USUAL_FILES: u64 = 1024;
    let Some((soft, hard)) = limit_of(pid, new.name) else { return Err(Errno::SRCH) };
    if hard == new.most || (hard < new.most && hard != old.most) {
        return Ok(Adjusted::No);
    }
    let mut current = if soft == hard { new.most } else { soft.min(new.most) };
    if new.resource == Resource::Nofile && soft <= USUAL_FILES {
        current = current.min(USUAL_FILES);
    }
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let limit = Rlimit { current: Some(current), maximum: Some(new.most) };
    prlimit(Some(pid), new.resource, limit)?;
    Ok(Adjusted::Yes)
}

/// The soft and the hard limit of a process, as the kernel lists them.
fn limit_of(pid: i32, name: &str) -> Option<(u64, u64)> {
    let text = read_at(CWD, &format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

fn refused_by_cgroup(controller: Controller, errno: Errno) -> Failure {
    let kind = match controller {
        Controller::Memory => LimitKind::Memory,
        Controller::Pids => LimitKind::Processes,
        Controller::Cpu => LimitKind::Cpus,
    };
    let (sentence, hint) = if errno == Errno::BUSY {
        (format!("the session uses more {} than that already", limits::name(kind)), "name more")
    } else {
        (format!("cannot set the limit on {}", limits::name(kind)), "run `cowork doctor`")
    };
    Failure {
        code: FailureCode::LimitUnenforceable,
        sentence,
        errno: errno.raw_os_error(),
        hint: hint.into(),
    }
}

/// Refuses less scratch than is taken.
fn check_scratch(session: &Session, wanted: &Limits) -> Result<(), Failure> {
    let used = session.scratch.as_ref().and_then(scratch_used).unwrap_or(0);
    if wanted.scratch.value >= used {
        return Ok(());
    }
    Err(Failure {
        code: FailureCode::LimitUnenforceable,
        sentence: format!("{:#} of scratch space are in use already", Bytes::new(used)),
        errno: 0,
        hint: "name more, or remove something in the session first".into(),
    })
}

fn resize_scratch(session: &Session, wanted: &Limits) -> Result<(), Failure> {
    if wanted.scratch.value == session.wanted.scratch.value {
        return Ok(());
    }
    let scratch = session.scratch.as_ref().ok_or(Errno::BADF);
    scratch
        .and_then(|scratch| resize(scratch, wanted.scratch.value))
        .step(|| "change the size of the session's scratch space".into())
        .map_err(|failed: Failed| failed.into_failure(FailureCode::LimitUnenforceable))
}

fn resize(scratch: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    let stat = rustix::fs::fstatvfs(scratch)?;
    let used = stat.f_files.saturating_sub(stat.f_ffree);
    let inodes = stage::inodes_for(bytes).max(used);
    let context =
        fspick(scratch, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_string(context.as_fd(), "size", bytes.to_string())?;
    fsconfig_set_string(context.as_fd(), "nr_inodes", inodes.to_string())?;
    fsconfig_reconfigure(context.as_fd())
}

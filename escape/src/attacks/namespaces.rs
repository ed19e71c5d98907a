//! New namespaces, by every route, and old ones of somebody else.

use crate::attack::{Attack, Target, layer};
use crate::raw::{at, call, flags, in_fork, open_by, signed};
use crate::scene::{Lost, Outcome, Scene};
use rustix::fd::AsRawFd;

const CLASS: &str = "namespaces";
const BY_DESIGN: &str = "programs in `nested` bring sandboxes of their own";
const REFUSED: &[(&str, &str)] =
    &[("EPERM", "filter of system calls | no capabilities"), ("ENOSYS", layer::FILTER)];

const fn unshared(name: &'static str, kind: &'static str) -> Attack {
    Attack::new(CLASS, name, unshare, REFUSED).word(kind).as_root()
}

const fn cloned(name: &'static str, kind: &'static str) -> Attack {
    Attack::new(CLASS, name, clone, REFUSED).word(kind).as_root()
}

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "unshare.user", unshare, REFUSED).word("user").nested(BY_DESIGN),
    unshared("unshare.mnt", "mnt"),
    unshared("unshare.pid", "pid"),
    unshared("unshare.net", "net"),
    unshared("unshare.ipc", "ipc"),
    unshared("unshare.uts", "uts"),
    unshared("unshare.cgroup", "cgroup"),
    unshared("unshare.time", "time"),
    Attack::new(CLASS, "unshare.user-and-all", unshare_all, REFUSED).nested(BY_DESIGN),
    Attack::new(CLASS, "clone.user", clone, REFUSED).word("user").nested(BY_DESIGN),
    cloned("clone.mnt", "mnt"),
    cloned("clone.pid", "pid"),
    cloned("clone.net", "net"),
    cloned("clone.ipc", "ipc"),
    cloned("clone.uts", "uts"),
    cloned("clone.cgroup", "cgroup"),
    Attack::new(CLASS, "clone3.user", clone3, REFUSED).word("user").nested(BY_DESIGN),
    Attack::new(CLASS, "clone3.mnt", clone3, REFUSED).word("mnt").as_root(),
    Attack::new(CLASS, "setns.own", join_own, REFUSED).as_root(),
    Attack::new(
        CLASS,
        "setns.first",
        join_first,
        &[("ENOENT", layer::HIDDEN), ("EACCES", layer::HIDDEN), ("EPERM", layer::FILTER)],
    )
    .as_root()
    .at(Target::First),
    Attack::new(CLASS, "setns.pidfd", join_by_process, REFUSED).as_root().at(Target::First),
];

/// The flag of a kind, and the link that shows it.
fn kind(word: &str) -> (i32, &'static str) {
    match word {
        "user" => (libc::CLONE_NEWUSER, "user"),
        "mnt" => (libc::CLONE_NEWNS, "mnt"),
        "pid" => (libc::CLONE_NEWPID, "pid_for_children"),
        "net" => (libc::CLONE_NEWNET, "net"),
        "ipc" => (libc::CLONE_NEWIPC, "ipc"),
        "uts" => (libc::CLONE_NEWUTS, "uts"),
        "cgroup" => (libc::CLONE_NEWCGROUP, "cgroup"),
        _ => (libc::CLONE_NEWTIME, "time_for_children"),
    }
}

fn current(link: &str) -> Result<String, Lost> {
    Ok(std::fs::read_link(format!("/proc/self/ns/{link}"))?.display().to_string())
}

fn compare(before: &str, after: &str) -> Outcome {
    if before == after {
        Err(Lost::new(format!("still in {before}")))
    } else {
        Ok(format!("{before} became {after}"))
    }
}

fn unshare(scene: &Scene) -> Outcome {
    let (flag, link) = kind(scene.word);
    let before = current(link)?;
    call(libc::SYS_unshare, &[flags(flag)])?;
    // The namespace for children exists once there is a child.
    if link == "pid_for_children" {
        let child = crate::raw::fork()?;
        if child == 0 {
            crate::raw::leave(0);
        }
        call(libc::SYS_wait4, &[child, 0, 0, 0])?;
        return Ok("a child has a pid namespace of its own".into());
    }
    compare(&before, &current(link)?)
}

fn unshare_all(_: &Scene) -> Outcome {
    let before = current("mnt")?;
    let all = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWPID;
    call(libc::SYS_unshare, &[flags(all)])?;
    compare(&before, &current("mnt")?)
}

/// The link as a child sees itself.
fn own_link(link: &str) -> &str {
    link.strip_suffix("_for_children").unwrap_or(link)
}

fn clone(scene: &Scene) -> Outcome {
    let (flag, link) = kind(scene.word);
    let before = current(own_link(link))?;
    child_differs(&before, own_link(link), || {
        call(libc::SYS_clone, &[flags(flag | libc::SIGCHLD), 0, 0, 0, 0])
    })
}

fn clone3(scene: &Scene) -> Outcome {
    let (flag, link) = kind(scene.word);
    let before = current(own_link(link))?;
    // `struct clone_args` of `linux/sched.h`, up to `tls`.
    let arguments = [flags(flag) as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    child_differs(&before, own_link(link), || {
        call(libc::SYS_clone3, &[at(&arguments), size_of_val(&arguments)])
    })
}

/// Forks by `fork`, and compares the child's namespace with the parent's. In a new pid namespace
/// the parent's `/proc` shows the child under the parent's number of it.
fn child_differs(
    before: &str,
    link: &str,
    fork: impl FnOnce() -> Result<usize, std::io::Error>,
) -> Outcome {
    let child = fork()?;
    if child == 0 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        crate::raw::leave(0);
    }
    let after = std::fs::read_link(format!("/proc/{child}/ns/{link}"));
    call(libc::SYS_wait4, &[child, 0, 0, 0])?;
    compare(before, &after?.display().to_string())
}

fn join(path: &str, flag: i32) -> Outcome {
    let handle = std::fs::File::open(path)?;
    call(libc::SYS_setns, &[signed(handle.as_raw_fd()), flags(flag)])?;
    Ok(format!("joined {path}"))
}

fn join_own(_: &Scene) -> Outcome {
    join("/proc/self/ns/uts", libc::CLONE_NEWUTS)
}

fn join_first(scene: &Scene) -> Outcome {
    let path = format!("/proc/{}/ns/mnt", scene.number("pid")?);
    in_fork(|| join(&path, libc::CLONE_NEWNS))
}

fn join_by_process(scene: &Scene) -> Outcome {
    let process = open_by(libc::SYS_pidfd_open, &[scene.number("pid")?, 0])?;
    let kinds = flags(libc::CLONE_NEWUTS | libc::CLONE_NEWIPC);
    call(libc::SYS_setns, &[signed(process.as_raw_fd()), kinds])?;
    Ok("joined the namespaces of another process".into())
}

//! Mounts: what stands on top of what, and whether it can be changed from inside.
//!
//! Bare, the super-user attacks a copy of the situation in a mount namespace of its own. In a
//! session of profile `nested` the attack first makes itself root of a user namespace of its own;
//! in `strict` it is refused that, and tries anyway.

use crate::attack::{Attack, layer};
use crate::attacks::burrow::dig;
use crate::raw::{at, call, flags, in_fork, of, open_by, signed, text};
use crate::scene::{LOCKED, Lost, Outcome, Scene, YARD, read_canary};
use crate::stage::{Shot, Stage};
use rustix::fd::{AsRawFd, OwnedFd};
use std::ffi::CStr;
use std::os::unix::fs::PermissionsExt;

const CLASS: &str = "mounts";
const BY_DESIGN: &str = "mounts in an own namespace, of what the session sees already";
const KEPT: &[(&str, &str)] = &[
    ("EPERM", "filter of system calls | the kernel: locked, or not its own"),
    ("EINVAL", layer::LOCKED),
    ("EACCES", "the host owns it"),
    ("still", layer::LOCKED),
    ("ENOENT", layer::MOUNTS),
    ("EROFS", layer::READ_ONLY),
    ("EOVERFLOW", "foreign owners cannot be copied"),
    ("EBUSY", layer::LOCKED),
];
/// `linux/mount.h`.
const OPEN_TREE_CLONE: i32 = 1;
const AT_RECURSIVE: i32 = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, KEPT).as_root()
}

pub(crate) const TABLE: &[Attack] = &[
    attack("mount.tmpfs", |scene| in_burrow(scene, mount_tmpfs)).nested(BY_DESIGN),
    attack("mount.fsopen", |scene| in_burrow(scene, |_| new_mount("tmpfs"))).nested(BY_DESIGN),
    attack("mount.open_tree", |scene| in_burrow(scene, |_| clone_tree(YARD).map(said_cloned)))
        .nested(BY_DESIGN),
    attack("mount.bind", |scene| in_burrow(scene, bind_folder)).nested(BY_DESIGN),
    attack("mount.pivot_root", |scene| in_burrow(scene, pivot)).nested(BY_DESIGN),
    attack("mount.chroot", |scene| in_burrow(scene, enter_root)).nested(BY_DESIGN),
    attack("mount.chroot-escape", |scene| in_burrow(scene, leave_root)),
    attack("mount.real-file-system", |scene| in_burrow(scene, |_| new_mount("ext4"))),
    attack("mount.sysfs", |scene| in_burrow(scene, |_| old_mount(c"sysfs"))),
    attack("mount.proc-without-hiding", |scene| in_burrow(scene, |_| old_mount(c"proc"))),
    attack("mount.unmount-folder", |scene| in_burrow(scene, unmount_folder)),
    attack("mount.remount-folder-writable", |scene| in_burrow(scene, |scene| remount(scene, 0))),
    attack("mount.bind-and-remount-writable", |scene| in_burrow(scene, bind_and_remount)),
    attack("mount.setattr-writable", |scene| in_burrow(scene, setattr_writable)),
    attack("mount.setattr-nosuid", |scene| in_burrow(scene, setattr_suid)),
    attack("mount.setattr-of-a-copy", |scene| in_burrow(scene, setattr_copy)),
    attack("mount.open_tree_attr", |scene| in_burrow(scene, open_tree_attr)),
    attack("mount.remount-system-writable", |scene| in_burrow(scene, remount_system)),
    attack("mount.look-beneath", |scene| in_burrow(scene, look_beneath)),
    attack("mount.uncover-processes", |scene| in_burrow(scene, |scene| uncover(scene, "/proc"))),
    attack("mount.uncover-run", |scene| in_burrow(scene, |scene| uncover(scene, "/run"))),
    attack("mount.step-past-processes", |scene| in_burrow(scene, |scene| step_past(scene, "proc"))),
    attack("mount.step-past-run", |scene| in_burrow(scene, |scene| step_past(scene, "run"))),
    attack("mount.move-folder-away", |scene| in_burrow(scene, move_away)),
    attack("mount.device-node-in-tmpfs", |scene| in_burrow(scene, node_in_tmpfs)),
    attack("mount.overlay-set-uid", |scene| in_burrow(scene, overlay_set_uid))
        .judged(set_uid_in_yard),
    attack("mount.cgroup-control", |scene| in_burrow(scene, cgroup_control)),
];

/// Runs in a fork that has as much power over mounts as it can get without harm to the host.
fn in_burrow(scene: &Scene, act: fn(&Scene) -> Outcome) -> Outcome {
    in_fork(|| {
        burrow(scene)?;
        act(scene)
    })
}

fn burrow(scene: &Scene) -> Result<(), Lost> {
    dig(scene)?;
    if scene.inside() {
        return Ok(());
    }
    // The folders as a session has them: mounts of their own, one of them read-only.
    for (path, attributes) in [(YARD, 0), (LOCKED, libc::MS_RDONLY)] {
        mount(path, path, libc::MS_BIND)?;
        let all = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_NOSUID | libc::MS_NODEV | attributes;
        mount("none", path, all)?;
    }
    Ok(())
}

fn mount(from: &str, to: &str, how: libc::c_ulong) -> Result<(), Lost> {
    let (from, to) = (text(from)?, text(to)?);
    call(libc::SYS_mount, &[of(&from), of(&to), 0, how as usize, 0])?;
    Ok(())
}

fn place(scene: &Scene) -> Result<String, Lost> {
    let path = format!("/tmp/place-{}", scene.token()?);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

fn mount_tmpfs(scene: &Scene) -> Outcome {
    let path = place(scene)?;
    let target = text(&path)?;
    let outcome = call(libc::SYS_mount, &[of(c"none"), of(&target), of(c"tmpfs"), 0, 0]);
    if outcome.is_err() {
        cowork_sys::ignore(std::fs::remove_dir(&path));
    }
    outcome?;
    call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)])?;
    std::fs::remove_dir(&path)?;
    Ok("mounted".into())
}

/// Makes a file system that is attached nowhere. One on a disk is asked for with a device that is
/// none, so reaching the kernel's search for it is the effect.
fn new_mount(kind: &str) -> Outcome {
    let name = text(kind)?;
    let context = open_by(libc::SYS_fsopen, &[of(&name), 0])?;
    let context = signed(context.as_raw_fd());
    let config = |command: usize, key: usize, value: usize| {
        call(libc::SYS_fsconfig, &[context, command, key, value, 0])
    };
    if kind == "ext4" {
        config(1, of(c"source"), of(c"/dev/null"))?;
    }
    match config(6, 0, 0) {
        Err(error) if kind == "ext4" && error.raw_os_error() == Some(libc::ENOTBLK) => {
            Ok("the kernel looked for the disk".into())
        }
        result => result.map(|_| "a file system was made".into()).map_err(Lost::from),
    }
}

fn old_mount(kind: &CStr) -> Outcome {
    let target = text(YARD)?;
    call(libc::SYS_mount, &[of(kind), of(&target), of(kind), 0, 0])?;
    Ok(format!("{} names in it", std::fs::read_dir(YARD)?.count()))
}

fn clone_tree(path: &str) -> Result<OwnedFd, Lost> {
    let path = text(path)?;
    let how = flags(OPEN_TREE_CLONE | AT_RECURSIVE);
    Ok(open_by(libc::SYS_open_tree, &[signed(libc::AT_FDCWD), of(&path), how])?)
}

fn said_cloned(_: OwnedFd) -> String {
    "copied".into()
}

fn bind_folder(_: &Scene) -> Outcome {
    mount(LOCKED, YARD, libc::MS_BIND | libc::MS_REC)?;
    Ok("bound".into())
}

fn pivot(_: &Scene) -> Outcome {
    let yard = text(YARD)?;
    call(libc::SYS_chdir, &[of(&yard)])?;
    call(libc::SYS_pivot_root, &[of(c"."), of(c".")])?;
    Ok("the root changed".into())
}

fn enter_root(_: &Scene) -> Outcome {
    let yard = text(YARD)?;
    call(libc::SYS_chroot, &[of(&yard)])?;
    Ok("the root changed".into())
}

/// The oldest way out of a changed root: a handle above it, and another change.
fn leave_root(scene: &Scene) -> Outcome {
    let above = std::fs::File::open(".")?;
    enter_root(scene)?;
    call(libc::SYS_fchdir, &[signed(above.as_raw_fd())])?;
    for _ in 0..64 {
        call(libc::SYS_chdir, &[of(c"..")])?;
    }
    call(libc::SYS_chroot, &[of(c".")])?;
    read_canary(&scene.outside("canary")?)
}

fn unmount_folder(_: &Scene) -> Outcome {
    let path = text(LOCKED)?;
    call(libc::SYS_umount2, &[of(&path), flags(libc::MNT_DETACH)])?;
    Ok("what was mounted is gone".into())
}

/// The flags of the mount at `path` (`ST_*`).
fn mount_flags(path: &str) -> Result<u64, Lost> {
    Ok(rustix::fs::statvfs(path)?.f_flag.bits())
}

fn writable(path: &str) -> Outcome {
    if mount_flags(path)? & libc::ST_RDONLY == 0 {
        Ok(format!("{path} is writable"))
    } else {
        Err(Lost::new("still read-only"))
    }
}

fn remount(_: &Scene, keep: libc::c_ulong) -> Outcome {
    mount("none", LOCKED, libc::MS_REMOUNT | libc::MS_BIND | keep)?;
    writable(LOCKED)
}

fn bind_and_remount(_: &Scene) -> Outcome {
    mount(LOCKED, YARD, libc::MS_BIND | libc::MS_REC)?;
    let keep = libc::MS_NOSUID | libc::MS_NODEV;
    mount("none", YARD, libc::MS_REMOUNT | libc::MS_BIND | keep)?;
    writable(YARD)
}

/// Clears attributes of a mount.
fn clear(folder: i32, path: &str, attributes: u64) -> Result<(), Lost> {
    let path = text(path)?;
    let change = [0, attributes, 0, 0];
    let how = flags(libc::AT_EMPTY_PATH | AT_RECURSIVE);
    let registers = [signed(folder), of(&path), how, at(&change), size_of_val(&change)];
    call(libc::SYS_mount_setattr, &registers)?;
    Ok(())
}

fn setattr_writable(_: &Scene) -> Outcome {
    clear(libc::AT_FDCWD, LOCKED, MOUNT_ATTR_RDONLY)?;
    writable(LOCKED)
}

fn setattr_suid(_: &Scene) -> Outcome {
    clear(libc::AT_FDCWD, YARD, MOUNT_ATTR_NOSUID)?;
    if mount_flags(YARD)? & libc::ST_NOSUID == 0 {
        Ok("set-user-ID works".into())
    } else {
        Err(Lost::new("still nosuid"))
    }
}

fn setattr_copy(_: &Scene) -> Outcome {
    let copy = clone_tree(LOCKED)?;
    clear(copy.as_raw_fd(), "", MOUNT_ATTR_RDONLY)?;
    writable(&format!("/proc/self/fd/{}", copy.as_raw_fd()))
}

fn open_tree_attr(_: &Scene) -> Outcome {
    let path = text(LOCKED)?;
    let change = [0, MOUNT_ATTR_RDONLY, 0, 0];
    let how = flags(OPEN_TREE_CLONE | AT_RECURSIVE);
    let here = signed(libc::AT_FDCWD);
    let registers = [here, of(&path), how, at(&change), size_of_val(&change)];
    let copy = open_by(SYS_OPEN_TREE_ATTR, &registers)?;
    writable(&format!("/proc/self/fd/{}", copy.as_raw_fd()))
}

/// The system's own folder. Bare, the read-only folder stands in for it.
fn remount_system(scene: &Scene) -> Outcome {
    let path = if scene.inside() { "/usr" } else { LOCKED };
    let keep = libc::MS_NOSUID | libc::MS_NODEV;
    mount("none", path, libc::MS_REMOUNT | libc::MS_BIND | keep)?;
    writable(path)
}

/// Shows a folder without what is mounted in it.
fn look_beneath(_: &Scene) -> Outcome {
    mount("mnt", YARD, libc::MS_BIND)?;
    Ok(format!("{} names beneath the mounts", std::fs::read_dir(YARD)?.count()))
}

/// Takes away what is mounted at a place, or moves it elsewhere, and looks at what was beneath.
fn uncover(scene: &Scene, place: &str) -> Outcome {
    cover(scene, place)?;
    let before = rustix::fs::stat(place)?.st_dev;
    let target = text(place)?;
    let gone = call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)]);
    if gone.is_err() {
        mount(place, YARD, libc::MS_MOVE)?;
    }
    if rustix::fs::stat(place)?.st_dev == before {
        return Err(Lost::new("still covered"));
    }
    Ok(format!("{} names beneath", std::fs::read_dir(place)?.count()))
}

/// Looks at a place through a copy of the root that leaves out what is mounted on it.
fn step_past(scene: &Scene, name: &str) -> Outcome {
    cover(scene, &format!("/{name}"))?;
    let place = place(scene)?;
    mount("/", &place, libc::MS_BIND)?;
    Ok(format!("{} names beneath", std::fs::read_dir(format!("{place}/{name}"))?.count()))
}

/// Bare, the place gets what a session has there: something on top.
fn cover(scene: &Scene, place: &str) -> Result<(), Lost> {
    if !scene.inside() {
        let target = text(place)?;
        call(libc::SYS_mount, &[of(c"none"), of(&target), of(c"tmpfs"), 0, 0])?;
    }
    Ok(())
}

fn move_away(_: &Scene) -> Outcome {
    mount(LOCKED, YARD, libc::MS_MOVE)?;
    Ok("the mount was moved".into())
}

fn node_in_tmpfs(_: &Scene) -> Outcome {
    let target = text(YARD)?;
    call(libc::SYS_mount, &[of(c"none"), of(&target), of(c"tmpfs"), 0, 0])?;
    let node = text(&format!("{YARD}/node"))?;
    let device = libc::makedev(1, 5) as usize;
    call(crate::raw::number("mknod"), &[of(&node), flags((libc::S_IFCHR | 0o666) as i32), device])?;
    let mut byte = [1];
    std::io::Read::read_exact(&mut std::fs::File::open(format!("{YARD}/node"))?, &mut byte)?;
    Ok("a device was made and read".into())
}

/// Lets the kernel copy a set-user-ID program of the system into the writable folder.
fn overlay_set_uid(scene: &Scene) -> Outcome {
    let upper = scene.in_yard("upper")?;
    let work = scene.in_yard("work")?;
    std::fs::create_dir(&upper)?;
    std::fs::create_dir(&work)?;
    let place = place(scene)?;
    let options = text(&format!("lowerdir=/usr/bin,upperdir={upper},workdir={work}"))?;
    let target = text(&place)?;
    let registers = [of(c"overlay"), of(&target), of(c"overlay"), 0, of(&options)];
    let mounted = call(libc::SYS_mount, &registers);
    let touched = mounted.and_then(|_| {
        let file = std::fs::OpenOptions::new().append(true).open(format!("{place}/su"));
        let times = std::fs::File::open(format!("{place}/su"))
            .and_then(|file| file.set_modified(std::time::SystemTime::now()));
        let outcome = file.map(drop).or(times);
        call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)])?;
        outcome
    });
    cowork_sys::ignore(std::fs::remove_dir(&place));
    touched?;
    Ok("copied".into())
}

fn set_uid_in_yard(stage: &Stage, shot: &Shot) -> Option<String> {
    let upper = stage.path(YARD).join(format!("upper-{}", shot.token));
    let mode = std::fs::metadata(upper.join("su")).ok().map(|found| found.permissions().mode());
    for name in [format!("upper-{}", shot.token), format!("work-{}", shot.token)] {
        cowork_sys::ignore(std::fs::remove_dir_all(stage.path(YARD).join(name)));
    }
    let mode = mode?;
    (mode & 0o4000 != 0).then(|| format!("a program of mode {mode:o} lies in the granted folder"))
}

/// Makes a cgroup below the own one, or raises a limit of the own one.
fn cgroup_control(scene: &Scene) -> Outcome {
    call(libc::SYS_unshare, &[flags(libc::CLONE_NEWCGROUP)])?;
    let target = text(YARD)?;
    call(libc::SYS_mount, &[of(c"none"), of(&target), of(c"cgroup2"), 0, 0])?;
    let below = format!("{YARD}/{}", scene.token()?);
    std::fs::create_dir(&below)?;
    std::fs::remove_dir(&below)?;
    Ok("a cgroup was made".into())
}

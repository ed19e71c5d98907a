//! Making the read-only mount of the folder writable.
//!
//! Bare, the super-user has the folder on a read-only mount in a namespace of its own.

use super::{attack, on, put};
use crate::attack::Attack;
use crate::attacks::burrow::dig;
use crate::raw::{at, call, flags, in_fork, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene, YARD};
use rustix::fd::AsRawFd;

/// `linux/mount.h`.
const OPEN_TREE_CLONE: i32 = 1;
const MOUNT_ATTR_RDONLY: u64 = 1;
const CANARY: &str = "protected/canary";

pub(crate) const TABLE: &[Attack] = &[
    attack("wall.remount-writable", |scene| behind_wall(scene, remount)).as_root(),
    attack("wall.setattr-writable", |scene| behind_wall(scene, set_attributes)).as_root(),
    attack("wall.copy-of-the-mount", |scene| behind_wall(scene, copy)).as_root(),
    attack("wall.unmount", |scene| behind_wall(scene, unmount)).as_root(),
    attack("wall.bound-elsewhere", |scene| behind_wall(scene, bound_elsewhere)).as_root(),
];

fn behind_wall(scene: &Scene, act: fn(&Scene) -> Outcome) -> Outcome {
    in_fork(|| {
        dig(scene)?;
        if !scene.inside() {
            mount(YARD, YARD, libc::MS_BIND)?;
            mount("none", YARD, libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY)?;
        }
        act(scene)
    })
}

fn mount(from: &str, to: &str, how: libc::c_ulong) -> Result<(), Lost> {
    let (from, to) = (text(from)?, text(to)?);
    call(libc::SYS_mount, &[of(&from), of(&to), 0, how as usize, 0])?;
    Ok(())
}

fn remount(scene: &Scene) -> Outcome {
    let kept = libc::MS_NOSUID | libc::MS_NODEV;
    mount("none", YARD, libc::MS_REMOUNT | libc::MS_BIND | kept)?;
    put(scene, &on(scene, CANARY)?)
}

/// `struct mount_attr` that clears the flag.
const WRITABLE: [u64; 4] = [0, MOUNT_ATTR_RDONLY, 0, 0];

fn set_attributes(scene: &Scene) -> Outcome {
    let path = text(YARD)?;
    let here = signed(libc::AT_FDCWD);
    call(libc::SYS_mount_setattr, &[here, of(&path), 0, at(&WRITABLE), size_of_val(&WRITABLE)])?;
    put(scene, &on(scene, CANARY)?)
}

/// A copy that is attached nowhere is made writable, and the file opened from it.
fn copy(scene: &Scene) -> Outcome {
    let path = text(YARD)?;
    let here = signed(libc::AT_FDCWD);
    let tree = open_by(libc::SYS_open_tree, &[here, of(&path), flags(OPEN_TREE_CLONE)])?;
    let number = signed(tree.as_raw_fd());
    let empty = flags(libc::AT_EMPTY_PATH);
    let size = size_of_val(&WRITABLE);
    call(libc::SYS_mount_setattr, &[number, of(c""), empty, at(&WRITABLE), size])?;
    let name = text(&format!("ground-{}/{CANARY}", scene.token()?))?;
    let file = open_by(libc::SYS_openat, &[number, of(&name), flags(libc::O_WRONLY), 0])?;
    rustix::io::write(&file, scene.token()?.as_bytes())?;
    Ok("written".into())
}

/// What the mount lies upon may be writable.
fn unmount(scene: &Scene) -> Outcome {
    let path = text(YARD)?;
    call(libc::SYS_umount2, &[of(&path), flags(libc::MNT_DETACH)])?;
    put(scene, &on(scene, CANARY)?)
}

/// Another mount of the same folder, at a place that the broker does not know.
fn bound_elsewhere(scene: &Scene) -> Outcome {
    let place = format!("/tmp/bound-{}", scene.token()?);
    std::fs::create_dir_all(&place)?;
    let came = mount(YARD, &place, libc::MS_BIND).and_then(|()| {
        if !scene.inside() {
            mount("none", &place, libc::MS_REMOUNT | libc::MS_BIND)?;
        }
        put(scene, &format!("{place}/ground-{}/{CANARY}", scene.token()?))
    });
    let target = text(&place)?;
    cowork_sys::ignore(call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)]));
    cowork_sys::ignore(std::fs::remove_dir(&place));
    came
}

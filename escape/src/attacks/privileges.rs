//! Files that give rights to whoever runs them, and devices.

use crate::attack::{Attack, layer};
use crate::raw::{at, call, flags, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene, YARD};
use crate::stage::{Shot, Stage, file_capability};
use rustix::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::Command;

const CLASS: &str = "privileges";
const REFUSED: &[(&str, &str)] = &[("EPERM", layer::FILTER), ("ENOSYS", layer::FILTER)];

const fn makes(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, REFUSED).judged(set_id_left)
}

pub(crate) const TABLE: &[Attack] = &[
    makes("set-uid.chmod", |scene| after_creating(scene, chmod)),
    makes("set-uid.chmod-high-half", |scene| after_creating(scene, chmod_high)),
    makes("set-gid.chmod", |scene| after_creating(scene, chmod_group)),
    makes("set-uid.fchmod", |scene| after_creating(scene, fchmod)),
    makes("set-uid.fchmodat", |scene| after_creating(scene, fchmodat)),
    makes("set-uid.fchmodat2", |scene| after_creating(scene, fchmodat2)),
    makes("set-uid.open", open),
    makes("set-uid.openat", openat),
    makes("set-uid.openat2", openat2),
    makes("set-uid.creat", creat),
    makes("set-uid.mknod", mknod),
    makes("set-uid.mknodat", mknodat),
    makes("set-uid.tmpfile", tmpfile),
    Attack::new(CLASS, "set-uid.execute", run_set_uid, &[("no other", layer::MOUNT_FLAGS)]),
    Attack::new(CLASS, "file-capability.execute", run_capable, &[("no other", layer::MOUNT_FLAGS)])
        .as_root(),
    Attack::new(CLASS, "file-capability.set", set_capability, &[("EPERM", layer::NO_PRIVILEGE)])
        .as_root()
        .judged(capability_left),
    Attack::new(CLASS, "device.mknod", make_device, &[("EPERM", layer::NO_PRIVILEGE)])
        .as_root()
        .judged(device_left),
    Attack::new(CLASS, "device.mknod-block", make_block, &[("EPERM", layer::NO_PRIVILEGE)])
        .as_root()
        .judged(device_left),
    Attack::new(
        CLASS,
        "owner.chown",
        change_owner,
        &[
            ("EPERM", layer::NO_PRIVILEGE),
            ("EINVAL", "user namespace: there is no such user"),
            ("EOVERFLOW", "user namespace: there is no such user"),
        ],
    )
    .as_root()
    .judged(owner_changed),
    Attack::new(
        CLASS,
        "privilege.setuid-0",
        become_root,
        &[("EPERM", layer::NO_PRIVILEGE), ("EINVAL", "user namespace: there is no such user")],
    )
    .as_root(),
    Attack::new(
        CLASS,
        "privilege.clear-no-new-privs",
        any_privilege,
        &[("no capability", layer::NO_PRIVILEGE)],
    )
    .as_root(),
];

const SET_UID: usize = 0o4755;

fn target(scene: &Scene) -> Result<std::ffi::CString, Lost> {
    text(&scene.in_yard("set-id")?)
}

/// Creates the file as anybody may, then changes it.
fn after_creating(scene: &Scene, change: fn(&Scene) -> Outcome) -> Outcome {
    std::fs::write(scene.in_yard("set-id")?, "#!/bin/sh\n")?;
    change(scene)
}

fn done(_: usize) -> String {
    "done".into()
}

fn chmod(scene: &Scene) -> Outcome {
    Ok(done(call(crate::raw::number("chmod"), &[of(&target(scene)?), SET_UID])?))
}

fn chmod_high(scene: &Scene) -> Outcome {
    Ok(done(call(crate::raw::number("chmod"), &[of(&target(scene)?), 1 << 32 | SET_UID])?))
}

fn chmod_group(scene: &Scene) -> Outcome {
    Ok(done(call(crate::raw::number("chmod"), &[of(&target(scene)?), 0o2755])?))
}

fn fchmod(scene: &Scene) -> Outcome {
    let file = std::fs::File::open(scene.in_yard("set-id")?)?;
    Ok(done(call(libc::SYS_fchmod, &[signed(file.as_raw_fd()), SET_UID])?))
}

fn fchmodat(scene: &Scene) -> Outcome {
    let here = signed(libc::AT_FDCWD);
    Ok(done(call(libc::SYS_fchmodat, &[here, of(&target(scene)?), SET_UID])?))
}

fn fchmodat2(scene: &Scene) -> Outcome {
    const SYS_FCHMODAT2: libc::c_long = 452;
    let here = signed(libc::AT_FDCWD);
    Ok(done(call(SYS_FCHMODAT2, &[here, of(&target(scene)?), SET_UID, 0])?))
}

const CREATE: i32 = libc::O_CREAT | libc::O_WRONLY;

/// The mode is cut by the mask of the process, which leaves these bits alone.
fn open(scene: &Scene) -> Outcome {
    open_by(crate::raw::number("open"), &[of(&target(scene)?), flags(CREATE), SET_UID])?;
    Ok("made".into())
}

fn openat(scene: &Scene) -> Outcome {
    let here = signed(libc::AT_FDCWD);
    open_by(libc::SYS_openat, &[here, of(&target(scene)?), flags(CREATE), SET_UID])?;
    Ok("made".into())
}

fn openat2(scene: &Scene) -> Outcome {
    let how = [flags(CREATE) as u64, SET_UID as u64, 0];
    let here = signed(libc::AT_FDCWD);
    let path = target(scene)?;
    open_by(libc::SYS_openat2, &[here, of(&path), at(&how), size_of_val(&how)])?;
    Ok("made".into())
}

fn creat(scene: &Scene) -> Outcome {
    open_by(crate::raw::number("creat"), &[of(&target(scene)?), SET_UID])?;
    Ok("made".into())
}

fn mknod(scene: &Scene) -> Outcome {
    let mode = libc::S_IFREG as usize | SET_UID;
    Ok(done(call(crate::raw::number("mknod"), &[of(&target(scene)?), mode, 0])?))
}

fn mknodat(scene: &Scene) -> Outcome {
    let mode = libc::S_IFREG as usize | SET_UID;
    let here = signed(libc::AT_FDCWD);
    Ok(done(call(libc::SYS_mknodat, &[here, of(&target(scene)?), mode, 0])?))
}

fn tmpfile(scene: &Scene) -> Outcome {
    let yard = text(YARD)?;
    let here = signed(libc::AT_FDCWD);
    let how = flags(libc::O_TMPFILE | libc::O_WRONLY);
    let file = open_by(libc::SYS_openat, &[here, of(&yard), how, SET_UID])?;
    let from = text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let follow = flags(libc::AT_SYMLINK_FOLLOW);
    call(libc::SYS_linkat, &[here, of(&from), here, of(&target(scene)?), follow])?;
    Ok("made".into())
}

/// The mode that the host sees; the file is removed.
fn set_id_left(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path(YARD).join(format!("set-id-{}", shot.token));
    let mode = std::fs::metadata(&path).ok()?.permissions().mode();
    std::fs::remove_file(&path).ok()?;
    (mode & 0o6000 != 0).then(|| format!("a file of mode {mode:o} lies in the granted folder"))
}

/// Says who this process is, for the planted programs.
pub(crate) fn who() -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find(|line| line.starts_with("CapEff")).unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    Ok(format!("{uid} {}", effective.split_whitespace().nth(1).unwrap_or_default()))
}

/// Runs a planted program and compares who it is with who we are.
fn run_planted(name: &str) -> Outcome {
    let output = Command::new(format!("{YARD}/{name}")).args(["attack", "who"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let other = text.trim().strip_prefix("WON ").ok_or_else(|| Lost::new("it did not run"))?;
    let own = who()?;
    if own == other {
        Err(Lost::new(format!("no other rights: {own}")))
    } else {
        Ok(format!("{own} became {other}"))
    }
}

fn run_set_uid(_: &Scene) -> Outcome {
    run_planted("set-uid")
}

/// Bare, the super-user first becomes an ordinary one, who gains something by it.
fn run_capable(scene: &Scene) -> Outcome {
    if !scene.inside() {
        let ordinary = crate::stage::STRANGER as usize;
        call(libc::SYS_setresgid, &[ordinary; 3])?;
        call(libc::SYS_setresuid, &[ordinary; 3])?;
    }
    run_planted("file-capability")
}

fn set_capability(scene: &Scene) -> Outcome {
    std::fs::write(scene.in_yard("capable")?, "#!/bin/sh\n")?;
    let path = text(&scene.in_yard("capable")?)?;
    let value = file_capability();
    let registers = [of(&path), of(c"security.capability"), at(value.as_slice()), value.len(), 0];
    Ok(done(call(libc::SYS_setxattr, &registers)?))
}

fn capability_left(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path(YARD).join(format!("capable-{}", shot.token));
    let mut value = [0; 64];
    let found = rustix::fs::getxattr(&path, "security.capability", &mut value);
    std::fs::remove_file(&path).ok()?;
    found.ok().map(|length| format!("a file capability of {length} bytes was set"))
}

fn make_node(scene: &Scene, kind: u32) -> Outcome {
    let path = text(&scene.in_yard("device")?)?;
    let device = libc::makedev(1, 3) as usize;
    Ok(done(call(crate::raw::number("mknod"), &[of(&path), (kind | 0o666) as usize, device])?))
}

fn make_device(scene: &Scene) -> Outcome {
    make_node(scene, libc::S_IFCHR)
}

fn make_block(scene: &Scene) -> Outcome {
    make_node(scene, libc::S_IFBLK)
}

fn device_left(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path(YARD).join(format!("device-{}", shot.token));
    let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
    std::fs::remove_file(&path).ok()?;
    (kind.is_char_device() || kind.is_block_device()).then(|| "a device was made".into())
}

fn change_owner(scene: &Scene) -> Outcome {
    let path = scene.in_yard("owned")?;
    std::fs::write(&path, "")?;
    std::os::unix::fs::chown(&path, Some(0), Some(0))?;
    std::os::unix::fs::chown(&path, Some(crate::stage::STRANGER), None)?;
    Ok("changed".into())
}

fn owner_changed(stage: &Stage, shot: &Shot) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let path = stage.path(YARD).join(format!("owned-{}", shot.token));
    let owner = std::fs::metadata(&path).ok()?.uid();
    std::fs::remove_file(&path).ok()?;
    (owner == crate::stage::STRANGER).then(|| format!("a file belongs to {owner}"))
}

/// Bare, this is the super-user already, and stays it.
fn become_root(_: &Scene) -> Outcome {
    call(libc::SYS_setresuid, &[0, 0, 0])?;
    Ok("it is user 0".into())
}

/// Any capability that this process has, or could get by executing something.
fn any_privilege(_: &Scene) -> Outcome {
    cowork_sys::ignore(call(libc::SYS_prctl, &[flags(libc::PR_SET_NO_NEW_PRIVS), 0, 0, 0, 0]));
    let status = std::fs::read_to_string("/proc/self/status")?;
    let sets = status.lines().filter(|line| line.starts_with("Cap"));
    let held: Vec<&str> = sets.filter(|line| !line.ends_with("0000000000000000")).collect();
    if held.is_empty() { Err(Lost::new("no capability")) } else { Ok(held.join(", ")) }
}

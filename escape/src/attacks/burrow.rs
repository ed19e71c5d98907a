//! Namespaces that an attack makes for itself.

use crate::raw::{call, flags, of};
use crate::scene::{Lost, Scene};

/// Gets as much power over mounts as an attack can have without harm to the host. In a session of
/// profile `nested` that is root of a user namespace of its own; in `strict` it is nothing, and
/// the attack goes on without. Bare, it is a namespace whose mounts nobody else sees.
pub(crate) fn dig(scene: &Scene) -> Result<(), Lost> {
    if scene.inside() {
        return own_user_namespace();
    }
    call(libc::SYS_unshare, &[flags(libc::CLONE_NEWNS)])?;
    let private = (libc::MS_REC | libc::MS_PRIVATE) as usize;
    call(libc::SYS_mount, &[of(c"none"), of(c"/"), 0, private, 0])?;
    Ok(())
}

/// Becomes root of a user namespace of its own, where that is allowed.
pub(crate) fn own_user_namespace() -> Result<(), Lost> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if call(libc::SYS_unshare, &[flags(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)]).is_ok() {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    Ok(())
}

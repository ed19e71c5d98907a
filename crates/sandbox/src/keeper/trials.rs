//! What a host can do, found out by doing it: what is made is let go of at once.

use crate::keeper::grounds::{Ground, Grounds, map_self};
use crate::keeper::ids::{FIRST, NOBODY, mapping};
use crate::keeper::sockets::delegate;
use crate::kernel::{Extent, Failed, Step, copy_mount, new_file_system};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_sys::mount::{Attributes, Depth, set_attributes};
use cowork_sys::process::{Leave, SingleThreaded, unshare};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::MountAttrFlags;
use std::path::Path;

/// Shows an empty file system in memory with other owners, as root's sessions see folders.
pub(super) fn map_memory(proof: &SingleThreaded) -> Result<(), Failed> {
    let memory = new_file_system("tmpfs", &[("size", "64k")], MountAttrFlags::empty())?;
    map(proof, &memory, "a file system in memory")
}

/// The same with the file system of a folder of the host, or of the one that it is to be made in.
pub(super) fn map_folder(
    proof: &SingleThreaded,
    grounds: &mut Grounds,
    folder: &Path,
) -> Result<(), Failed> {
    let name = folder.display().to_string();
    let copy = grounds.within(Ground::HostView, || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::openat(CWD, path, flags, Mode::empty()).ok();
        let there = folder.ancestors().find_map(open).ok_or(rustix::io::Errno::NOENT);
        let there = there.step(|| format!("find `{name}`"))?;
        copy_mount(there.as_fd(), Path::new(""), Extent::One)
            .step(|| format!("copy the mount of `{name}`"))
    })?;
    map(proof, &copy, &name)
}

fn map(proof: &SingleThreaded, mount: &OwnedFd, name: &str) -> Result<(), Failed> {
    let map = mapping(proof, (NOBODY, NOBODY), FIRST)?;
    let attributes = Attributes { idmap: Some(map.as_fd()), ..Attributes::default() };
    set_attributes(mount.as_fd(), Depth::One, &attributes)
        .step(|| format!("show files of {name} with other owners"))
}

/// Has a process of its own make a user namespace, as for a session, and another one inside.
pub(super) fn nest(proof: &SingleThreaded) -> Result<(), Failure> {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let made = delegate(proof, |there| {
        let made = || -> Result<(), Failed> {
            let named = |which| move || format!("make {which} user namespace");
            unshare(proof, Leave::UserAndMounts).step(named("a"))?;
            map_self(own.0, own.1)?;
            unshare(proof, Leave::UserAndMounts).step(named("another"))?;
            map_self(own.0, own.1)
        };
        let told = made().map_err(|failed| failed.into_failure(FailureCode::HostUnable));
        there.send(&cowork_api::encode(&told), &[])
    });
    made.map(drop)
}

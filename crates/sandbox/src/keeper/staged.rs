//! A folder whose changes stay beside it until the user applies them.
//!
//! The session sees an overlay: the folder below, and above it a folder of the session's store that
//! takes every change. The layers are attached in the hub for the moment in which the overlay is made,
//! because the kernel takes layers only from the namespace of whoever makes it; it keeps copies of
//! them that are nowhere.

use crate::clerk;
use crate::keeper::door::open_store;
use crate::keeper::grant::failure;
use crate::keeper::grounds::Standing;
use crate::kernel::{
    Extent, Failed, Step, attach, copy_mount, new_file_system, open_folder, path_of,
};
use cowork_api::files::Kept;
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::Grant;
use cowork_sys::Errno;
use cowork_sys::identity::make_files_as;
use cowork_sys::mount::{Attributes, Depth, NODEV, NOSUID, Propagation, RDONLY, set_attributes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Gid, Mode, OFlags, Uid, mkdirat, openat, renameat};
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};
use std::path::Path;

/// Whether changes that are there already are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staging {
    /// They are.
    Kept,
    /// They are put aside, and never seen again.
    Discarded,
}

/// The layers of a staged folder, attached nowhere.
#[derive(Debug)]
pub(crate) struct Layers {
    lower: OwnedFd,
    upper: OwnedFd,
}

/// Where layers are attached for a moment, in the hub.
const LOWER: &str = "/lower";
const UPPER: &str = "/upper";

/// Finds the layers, in the host view.
pub(crate) fn layers(
    standing: Standing,
    store: Option<&Kept>,
    grant: &Grant,
    folder: &OwnedFd,
    staging: Staging,
) -> Result<Layers, Failure> {
    let path = path_of(&grant.path);
    let failed = |errno| {
        let step = format!("stage the changes of `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    let store = store.ok_or_else(|| {
        let sentence = format!("there is no place to stage the changes of `{}`", path.display());
        failure(FailureCode::FolderRefused, sentence, "grant it as `rw` or `direct`")
    })?;
    let owner = rustix::fs::fstat(folder).map_err(failed)?;
    let all = subfolder(&open_store(standing, store)?, "staged").map_err(failed)?;
    if staging == Staging::Discarded {
        put_aside(&all, &grant.name).map_err(failed)?;
    }
    let mut own = subfolder(&all, &grant.name).map_err(failed)?;
    if clerk::is_of_another(own.as_fd(), grant.folder) {
        // The name was another folder's before.
        put_aside(&all, &grant.name).map_err(failed)?;
        own = subfolder(&all, &grant.name).map_err(failed)?;
    }
    let below = Kept { path: grant.path.clone(), folder: grant.folder };
    clerk::note(own.as_fd(), &below).map_err(failed)?;
    for name in ["upper", "work"] {
        let layer = subfolder(&own, name).map_err(failed)?;
        if standing == Standing::Root {
            let ids = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
            rustix::fs::fchown(&layer, Some(ids.0), Some(ids.1)).map_err(failed)?;
        }
        if name == "upper" {
            let mode = Mode::from_raw_mode(owner.st_mode & 0o777);
            rustix::fs::fchmod(&layer, mode).map_err(failed)?;
        }
    }
    // What is mounted inside the folder is not part of a layer.
    let copy = |handle: &OwnedFd| match copy_mount(handle.as_fd(), Path::new(""), Extent::One) {
        Err(Errno::INVAL) => copy_mount(handle.as_fd(), Path::new(""), Extent::Tree),
        result => result,
    };
    Ok(Layers { lower: copy(folder).map_err(failed)?, upper: copy(&own).map_err(failed)? })
}

fn subfolder(base: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(base, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(base, name, flags, Mode::empty())
}

/// Gives staged changes a name that no grant has.
fn put_aside(all: &OwnedFd, name: &str) -> Result<(), Errno> {
    /// Most times that changes of one folder are discarded.
    const MOST: u32 = 10_000;
    for number in 0..MOST {
        let aside = format!(".discarded-{number}-{name}");
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(all, name, all, &*aside, flags) {
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::INVAL | Errno::NOSYS) => return renameat(all, name, all, &*aside),
            result => return result,
        }
    }
    Err(Errno::DQUOT)
}

/// Makes the overlay. The keeper is in the hub. In root mode both layers are shown with the ids of
/// `user`, the session's.
pub(crate) fn overlay(
    layers: &Layers,
    grant: &Grant,
    mapping: Option<&OwnedFd>,
    user: Option<u32>,
) -> Result<OwnedFd, Failure> {
    let made = assemble(layers, mapping, user);
    for place in [LOWER, UPPER] {
        // Whatever was attached is let go of; the overlay has its own.
        cowork_sys::ignore(unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
    }
    made.map_err(|failed| {
        let sentence = format!(
            "cannot stage the changes of `{}`: {}",
            path_of(&grant.path).display(),
            failed.step
        );
        Failure {
            code: FailureCode::FolderRefused,
            sentence,
            errno: failed.errno.raw_os_error(),
            hint: "grant it as `rw` or `direct`".into(),
        }
    })
}

fn assemble(
    layers: &Layers,
    mapping: Option<&OwnedFd>,
    user: Option<u32>,
) -> Result<OwnedFd, Failed> {
    for (mount, place, set) in
        [(&layers.lower, LOWER, RDONLY | NOSUID | NODEV), (&layers.upper, UPPER, NOSUID | NODEV)]
    {
        let named = || "prepare a layer".to_owned();
        let attributes = Attributes {
            set,
            propagation: Some(Propagation::Private),
            idmap: mapping.map(AsFd::as_fd),
        };
        set_attributes(mount.as_fd(), Depth::One, &attributes).step(named)?;
        match mkdirat(rustix::fs::CWD, place, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Failed::new(named(), errno)),
        }
        let target = open_folder(Path::new(place)).step(named)?;
        attach(mount.as_fd(), target.as_fd()).step(named)?;
    }
    let upper = format!("{UPPER}/upper");
    let work = format!("{UPPER}/work");
    let mut options = vec![("lowerdir", LOWER), ("upperdir", &upper), ("workdir", &work)];
    // An ordinary user marks removed files by attributes of the user's own, and cannot redirect.
    let own: &[(&str, &str)] = match mapping {
        None => &[("userxattr", "")],
        Some(_) => &[("redirect_dir", "nofollow"), ("metacopy", "off"), ("index", "off")],
    };
    options.extend(own);
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let make = || new_file_system("overlay", &options, flags);
    match user {
        None => make(),
        Some(user) => as_session(user, make),
    }
}

/// Does something as whoever makes the session's files: an overlay does what it does in its layers
/// with the ids of its maker, and the layers show no others.
fn as_session<T>(user: u32, work: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    let named = || "take the session's user id for a moment".to_owned();
    let all = rustix::thread::capabilities(None).step(named)?;
    make_files_as(user, user).step(named)?;
    // What the kernel took away with the id is needed to mark what is removed.
    let done = rustix::thread::set_capabilities(None, all).step(named).and_then(|()| work());
    make_files_as(0, 0).step(named)?;
    rustix::thread::set_capabilities(None, all).step(named)?;
    done
}

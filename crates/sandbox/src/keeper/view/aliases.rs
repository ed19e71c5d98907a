//! Other names of what is hidden: the host may have mounted the same files at several places.
//!
//! A mount shows a folder of its file system, its *root*, at its *point*. A path on one mount is a
//! path of the file system, and every other mount of that file system whose root lies above shows it
//! as well; one whose root lies below shows a part of it.
//!
//! Deliberately absent: other hard links of a file, and file systems that show files of another
//! one, such as overlays. Nothing lists those.

use super::{is_of_host, open};
use crate::folder::identity;
use crate::keeper::interfaces::INTERFACES;
use crate::keeper::tree::Mount;
use crate::kernel::{Failed, path_of};
use cowork_api::Text;
use cowork_api::keeper::{Failure, FailureCode};
use cowork_api::plan::{HostView, Place, Shows};
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The places, and a further one for every other name of what is hidden or replaced and for every
/// interface of the kernel, each after those it lies below. In the host view.
pub(super) fn with_other_names(mounts: &[Mount], view: &HostView) -> Result<Vec<Place>, Failure> {
    let HostView { trees, places } = view;
    let of_host = places.iter().filter(|place| is_of_host(&place.shows)).map(|place| &place.path);
    let seen: Vec<&Path> = trees.iter().chain(of_host).map(|path| path_of(path)).collect();
    let is_seen = |path: &Path| seen.iter().any(|above| path.starts_with(above));
    let mut all: BTreeMap<&[u8], Place> =
        places.iter().map(|place| (place.path.as_slice(), place.clone())).collect();
    let mut found = Vec::new();
    let interfaces = mounts.iter().filter(|mount| INTERFACES.contains(&&*mount.kind));
    let interfaces = interfaces.map(|mount| &mount.point).filter(|point| is_seen(point));
    let interfaces: Vec<_> = interfaces.map(|point| text(point)).collect();
    for place in places {
        if matches!(place.shows, Shows::Nothing | Shows::Contents(_)) {
            let names = other_names(mounts, path_of(&place.path))?.into_iter();
            found.extend(names.filter(|name| is_seen(name)).map(|name| (text(&name), place)));
        }
    }
    for name in &interfaces {
        all.entry(name).or_insert_with(|| Place { path: name.clone(), shows: Shows::Nothing });
    }
    for (name, place) in &found {
        all.entry(name).or_insert_with(|| Place { path: name.clone(), shows: place.shows.clone() });
    }
    Ok(all.into_values().collect())
}

fn text(path: &Path) -> Text {
    path.as_os_str().as_bytes().to_vec()
}

/// Every other path at which the host shows what is at `path`, or a part of it.
fn other_names(mounts: &[Mount], path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let file = match open(path) {
        Ok(file) => file,
        // What is not there has no name; what cannot be reached is hidden whole.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(Vec::new()),
        Err(errno) => {
            let step = format!("hide `{}`", path.display());
            let mut failure = Failed::new(step, errno).into_failure(FailureCode::FolderChanged);
            failure.hint = "name it by a path without links".into();
            return Err(failure);
        }
    };
    let Some(own) = mount_of(&file).and_then(|id| mounts.iter().find(|mount| mount.id == id))
    else {
        return Ok(Vec::new());
    };
    let Some(stored) = stored_at(own, path) else { return Ok(Vec::new()) };
    let others = mounts.iter().filter(|it| it.id != own.id && it.device == own.device);
    let names = others.filter_map(|other| name_on(other, &stored, &file));
    Ok(names.filter(|name| name != path).collect())
}

/// The path below the root of the file system of what a mount shows at `path`.
fn stored_at(mount: &Mount, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.point).ok()?;
    Some(join(&mount.root, below))
}

/// Where another mount shows what is stored at a path, or a part of it, if nothing covers it there.
fn name_on(mount: &Mount, stored: &Path, file: &OwnedFd) -> Option<PathBuf> {
    if let Ok(below) = stored.strip_prefix(&mount.root) {
        let name = join(&mount.point, below);
        let there = open(&name).ok()?;
        let same = identity(there.as_fd()).ok()? == identity(file.as_fd()).ok()?;
        return same.then_some(name);
    }
    if mount.root.starts_with(stored) {
        let there = open(&mount.point).ok()?;
        return (mount_of(&there) == Some(mount.id)).then(|| mount.point.clone());
    }
    None
}

fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_path_buf() } else { path.join(below) }
}

fn mount_of(file: &OwnedFd) -> Option<u64> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    stat.ok().map(|stat| stat.stx_mnt_id)
}

//! Finding out which name in which folder a path means, as the session sees it.
//!
//! Most paths need one lookup on the writable mount, which the kernel confines to the folder. What
//! leads out of it, or comes from outside, is walked in the session's own mounts ([`walk`]).
//! Whatever ends outside is left to the kernel: there the session's own mounts decide.
//!
//! [`walk`]: super::walk

use super::call::Call;
use super::folders::{Folder, Start, identity, kind_of, look, open_beneath};
use super::paths::{below, components, for_kernel, join, led_on, normal, split};
use crate::kernel::retry;
use cowork_journal::hand::Spot;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use std::cell::Cell;
use std::ffi::CString;
use std::sync::Arc;

/// What becomes of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It is followed.
    Follow,
    /// It is meant itself, unless a slash follows it.
    Keep,
    /// It is meant itself: the call makes, removes or moves a name.
    Name,
}

/// Where a path leads.
pub(super) enum Where {
    /// To no folder that this broker changes.
    Outside,
    /// To a name in one, which may not exist.
    At(Place),
    /// To a file on the writable mount that somebody of the session was given.
    Held(Arc<Folder>, OwnedFd),
}

/// What the last component of a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A name.
    Name,
    /// `.`, or the folder itself.
    Dot,
    /// `..`.
    DotDot,
}

/// A name in a folder.
pub(super) struct Place {
    pub(super) folder: Arc<Folder>,
    /// The folder it is in, on the writable mount.
    pub(super) parent: Arc<OwnedFd>,
    /// `.` for the granted folder itself.
    pub(super) name: CString,
    /// Its path below the granted folder, free of links.
    pub(super) path: Vec<u8>,
    pub(super) ending: Ending,
    /// Whether a slash follows it.
    pub(super) slash: bool,
    /// Which file was judged under this name, where that matters.
    pub(super) judged: Cell<Option<(u64, u64)>>,
    /// What was seen there on the way, or that nothing was (`ENOENT`), for whoever looks first.
    found: Cell<Option<Box<Result<Stat, Errno>>>>,
}

impl Place {
    pub(super) fn spot(&self) -> Spot<'_> {
        Spot {
            folder: self.folder.number,
            parent: self.parent.as_fd(),
            name: &self.name,
            path: &self.path,
        }
    }

    /// What is there, if something is.
    pub(super) fn seen(&self) -> Result<Option<Stat>, Errno> {
        let found = self.found.take();
        either(found.map_or_else(|| self.look(), |found| *found))
    }

    fn look(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&*self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What is there; `ENOENT` if nothing is.
    pub(super) fn existing(&self) -> Result<Stat, Errno> {
        self.seen()?.ok_or(Errno::NOENT)
    }

    /// Says `ESTALE` if another file than the one that was judged has the name now.
    pub(super) fn verify_file(&self) -> Result<(), Errno> {
        let Some(judged) = self.judged.get() else { return Ok(()) };
        let found = either(self.look())?.map(|stat| (stat.st_dev, stat.st_ino));
        if found.is_none_or(|found| found == judged) { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Says `ESTALE` if the name is no longer where it was found.
    pub(super) fn verify(&self) -> Result<(), Errno> {
        let folder = self.folder.whereabouts(self.parent.as_fd())?;
        let name = self.name.to_bytes();
        let path = if name == b"." { folder } else { join(&folder, name) };
        if path == self.path { Ok(()) } else { Err(Errno::STALE) }
    }
}

/// What a look says, if it has found something.
fn either(found: Result<Stat, Errno>) -> Result<Option<Stat>, Errno> {
    match found {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Finds what a path of the caller means.
pub(super) fn locate(
    call: &Call<'_>,
    descriptor: i32,
    path: &[u8],
    last: Last,
) -> Result<Where, Errno> {
    match path.first() {
        None => Err(Errno::NOENT),
        Some(b'/') => absolute(call, path, last),
        Some(_) => {
            // What a call names twice is the same both times.
            let known = call.starts.borrow().iter().find(|(of, _)| *of == descriptor).cloned();
            if let Some((_, start)) = known {
                return within(call, &start, path, last);
            }
            let base = call.base(descriptor)?;
            let seen = look(base.as_fd())?;
            match folder_of(call, seen.stx_mnt_id) {
                Some(_) if kind_of(&seen) != FileType::Directory => Err(Errno::NOTDIR),
                Some(folder) => {
                    let start = folder.writable(base.as_fd(), &seen)?;
                    call.starts.borrow_mut().push((descriptor, start.clone()));
                    within(call, &start, path, last)
                }
                None => outside(call, Base::Folder(base), path, last),
            }
        }
    }
}

/// The folder whose mount in the session this is.
pub(super) fn folder_of<'a>(call: &'a Call<'_>, mount: u64) -> Option<&'a Arc<Folder>> {
    call.folders.iter().find(|folder| folder.mount == mount)
}

/// What an open file of the caller is: for calls that name nothing else.
pub(super) fn of_file(call: &Call<'_>, file: OwnedFd) -> Result<Where, Errno> {
    let seen = look(file.as_fd())?;
    if let Some(folder) = call.folders.iter().find(|folder| folder.writable == seen.stx_mnt_id) {
        return Ok(Where::Held(Arc::clone(folder), file));
    }
    let Some(folder) = folder_of(call, seen.stx_mnt_id) else { return Ok(Where::Outside) };
    if kind_of(&seen) == FileType::Directory {
        return directory(folder.writable(file.as_fd(), &seen)?, Ending::Dot);
    }
    Ok(match folder.name_of(file.as_fd(), &seen)? {
        Some((start, name)) => at(&start, (&name, false))?,
        None => Where::Outside,
    })
}

/// An absolute path.
pub(super) fn absolute(call: &Call<'_>, path: &[u8], last: Last) -> Result<Where, Errno> {
    for folder in call.folders.iter() {
        // Nothing above the folder can be changed by the session, so the text says where it is.
        if let Some(rest) = below(path, &folder.inside) {
            let rest = without_slashes(rest);
            if rest.is_empty() && last == Last::Name {
                return Ok(Where::Outside);
            }
            return within(call, &folder.start(), rest, last);
        }
    }
    if is_plain_device(path) {
        return Ok(Where::Outside);
    }
    if path.starts_with(b"/proc/") || path.starts_with(b"/dev/") {
        return super::walk::walk(call, None, path, last);
    }
    outside(call, Base::Root, path, last)
}

/// Slashes at the start of a path below a folder mean nothing.
fn without_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    path.get(start..).unwrap_or_default()
}

/// Devices that programs open all the time. Links to elsewhere (`/dev/fd`, `/dev/stdout`) and
/// folders are not among them.
fn is_plain_device(path: &[u8]) -> bool {
    const DEVICES: [&[u8]; 7] = [
        b"/dev/null",
        b"/dev/tty",
        b"/dev/zero",
        b"/dev/full",
        b"/dev/random",
        b"/dev/urandom",
        b"/dev/ptmx",
    ];
    DEVICES.contains(&path)
}

/// A path from a folder that is on a writable mount.
pub(super) fn within(
    call: &Call<'_>,
    start: &Start,
    rest: &[u8],
    last: Last,
) -> Result<Where, Errno> {
    let parts = split(rest);
    let ending = match parts.name {
        b"" | b"." => Ending::Dot,
        b".." => Ending::DotDot,
        _ => Ending::Name,
    };
    let folder = if ending == Ending::Name { parts.folder } else { rest };
    let found = if components(folder).next().is_none() {
        start.clone()
    } else {
        let Some(found) = descend(call, start, folder)? else {
            let from = join(&start.folder.inside, &start.path);
            return super::walk::walk(call, None, &join(&from, rest), last);
        };
        found
    };
    if ending != Ending::Name {
        return directory(found, ending);
    }
    if found.folder.is_covered(&join(&found.path, parts.name)) {
        return Ok(Where::Outside);
    }
    finish(call, &found, (parts.name, parts.slash), last)
}

/// Goes down from a folder; `None` if that leads elsewhere, or may do so. What a call goes down to
/// twice is the same both times.
fn descend(call: &Call<'_>, start: &Start, path: &[u8]) -> Result<Option<Start>, Errno> {
    if let Some((from, way, found)) = &*call.descended.borrow()
        && Arc::ptr_eq(&from.handle, &start.handle)
        && way == path
    {
        return Ok(Some(found.clone()));
    }
    let found = go_down(start, path)?;
    if let Some(found) = &found {
        call.descended.replace(Some((start.clone(), path.to_vec(), found.clone())));
    }
    Ok(found)
}

fn go_down(start: &Start, path: &[u8]) -> Result<Option<Start>, Errno> {
    let open = |how| {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        open_beneath(start.handle.as_fd(), path, flags, how)
    };
    let folder = Arc::clone(&start.folder);
    let (handle, path) = match open(ResolveFlags::NO_SYMLINKS) {
        Ok(handle) => match normal(&start.path, path) {
            Some(path) => (handle, path),
            None => return Ok(None),
        },
        Err(Errno::XDEV) => return Ok(None),
        Err(Errno::LOOP) => match open(ResolveFlags::empty()) {
            Ok(handle) => {
                let path = folder.whereabouts(handle.as_fd())?;
                (handle, path)
            }
            Err(Errno::XDEV | Errno::LOOP) => return Ok(None),
            Err(_) if folder.has_submounts() => return Ok(None),
            Err(errno) => return Err(errno),
        },
        // The writable mount may lack what is mounted inside the session's one.
        Err(_) if folder.has_submounts() => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok(Some(Start { folder, handle: Arc::new(handle), path }))
}

/// The last component, in a folder on a writable mount.
pub(super) fn finish(
    call: &Call<'_>,
    parent: &Start,
    (name, slash): (&[u8], bool),
    last: Last,
) -> Result<Where, Errno> {
    let follow = match last {
        Last::Follow => true,
        Last::Keep => slash,
        Last::Name => false,
    };
    if !follow {
        return at(parent, (name, slash));
    }
    let text = for_kernel(name)?;
    let stat = rustix::fs::statat(&*parent.handle, &text, AtFlags::SYMLINK_NOFOLLOW);
    let seen = |found| {
        let found_there = at(parent, (name, slash))?;
        if let Where::At(place) = &found_there {
            place.found.set(Some(Box::new(found)));
        }
        Ok(found_there)
    };
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Symlink) => {
            call.count_link()?;
            let target = rustix::fs::readlinkat(&*parent.handle, &text, Vec::new())?;
            let target = led_on(target.into_bytes(), if slash { b"/" } else { b"" });
            match target.first() {
                None => Err(Errno::NOENT),
                Some(b'/') => absolute(call, &target, last),
                Some(_) => within(call, parent, &target, last),
            }
        }
        Ok(kind) if slash && kind != FileType::Directory => Err(Errno::NOTDIR),
        Ok(_) | Err(Errno::NOENT) => seen(stat),
        Err(errno) => Err(errno),
    }
}

/// A name in a folder on a writable mount.
pub(super) fn at(parent: &Start, (name, slash): (&[u8], bool)) -> Result<Where, Errno> {
    Ok(Where::At(Place {
        folder: Arc::clone(&parent.folder),
        parent: Arc::clone(&parent.handle),
        name: for_kernel(name)?,
        path: join(&parent.path, name),
        ending: Ending::Name,
        slash,
        judged: Cell::new(None),
        found: Cell::new(None),
    }))
}

/// A folder on a writable mount that was not reached by its name.
pub(super) fn directory(found: Start, ending: Ending) -> Result<Where, Errno> {
    let Start { folder, handle, path } = found;
    if folder.is_covered(&path) {
        return Ok(Where::Outside);
    }
    let (parent, name) = if path.is_empty() {
        (handle, c".".into())
    } else {
        let parts = split(&path);
        let parent = folder.open_exactly(parts.folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let name = for_kernel(parts.name)?;
        let stat = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (stat.st_dev, stat.st_ino) != identity(&look(handle.as_fd())?) {
            return Err(Errno::STALE);
        }
        (Arc::new(parent), name)
    };
    let (judged, found) = (Cell::new(None), Cell::new(None));
    Ok(Where::At(Place { folder, parent, name, path, ending, slash: true, judged, found }))
}

/// What a path outside starts from.
pub(super) enum Base {
    /// The session's root.
    Root,
    /// A folder of the session.
    Folder(OwnedFd),
}

/// A path that starts outside: one lookup tells most of them that also end there.
fn outside(call: &Call<'_>, base: Base, path: &[u8], last: Last) -> Result<Where, Errno> {
    let (from, how) = match &base {
        Base::Root => (call.files.root.as_fd(), ResolveFlags::IN_ROOT),
        Base::Folder(folder) => (folder.as_fd(), ResolveFlags::BENEATH),
    };
    let parts = split(path);
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if last != Last::Follow && !parts.slash {
        flags |= OFlags::NOFOLLOW;
    }
    let ends_outside = match open(from, path, flags, how) {
        Ok(found) => folder_of(call, look(found.as_fd())?.stx_mnt_id).is_none(),
        Err(Errno::NOENT) => is_missing_outside(call, from, path, (how, last))?,
        // Above the start, through a magic link, or around in circles.
        Err(Errno::XDEV | Errno::LOOP) => false,
        // The kernel says the same to the caller.
        Err(_) => true,
    };
    if ends_outside {
        return Ok(Where::Outside);
    }
    let from = match base {
        Base::Root => None,
        Base::Folder(folder) => Some(folder),
    };
    super::walk::walk(call, from, path, last)
}

/// Whether a name that does not exist would not exist in a folder outside.
fn is_missing_outside(
    call: &Call<'_>,
    from: BorrowedFd<'_>,
    path: &[u8],
    (how, last): (ResolveFlags, Last),
) -> Result<bool, Errno> {
    let parts = split(path);
    let folder = if parts.folder.is_empty() { b"." } else { parts.folder };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(from, folder, flags, how) {
        Ok(found) => {
            let is_link = || {
                let name = for_kernel(parts.name)?;
                Ok::<_, Errno>(rustix::fs::readlinkat(&found, &name, Vec::new()).is_ok())
            };
            let is_outside = folder_of(call, look(found.as_fd())?.stx_mnt_id).is_none();
            Ok(is_outside && (last == Last::Name || !is_link()?))
        }
        Err(Errno::XDEV | Errno::LOOP) => Ok(false),
        Err(_) => Ok(true),
    }
}

fn open(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = for_kernel(path)?;
    let how = how | ResolveFlags::NO_MAGICLINKS;
    retry(|| rustix::fs::openat2(base, &path, flags, Mode::empty(), how))
}

//! Opening for writing: the caller gets a descriptor of the file.
//!
//! What is handed out from the writable mount is a regular file that can be written to, and nothing
//! else: its descriptor is power over that one file. A folder, or a descriptor that only names or
//! reads a file, would lead to the writable mount; those come from the session's own.

use super::call::Call;
use super::folders::{Folder, identity, look, open_beneath};
use super::judge::{Loss, guard, permit, permit_aliases, permit_contents, permit_type, readable};
use super::locate::{Ending, Last, Place, Where, at, locate};
use super::mask::with_mask;
use super::{HERE, Outcome};
use cowork_journal::hand::Opened;
use cowork_sys::Errno;
use cowork_sys::seccomp::AtExec;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use std::sync::Arc;

/// How often a name is looked at again that becomes a link in between.
const TRIES: u32 = 8;
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`, the same on both architectures.
const NAMELESS: OFlags = OFlags::from_bits_retain(0x0040_0000);
/// What is passed on to the file that is opened.
const PASSED: OFlags = OFlags::RDWR
    .union(OFlags::WRONLY)
    .union(OFlags::APPEND)
    .union(OFlags::NONBLOCK)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::DIRECT)
    .union(OFlags::NOATIME);

/// `open(path, flags, mode)`.
pub(super) fn open(call: &Call<'_>) -> Result<Outcome, Errno> {
    let flags = OFlags::from_bits_retain(call.number(1));
    open_at(call, (HERE, call.path(0)?), flags, call.mode(2))
}

/// `openat(folder, path, flags, mode)`.
pub(super) fn openat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let flags = OFlags::from_bits_retain(call.number(2));
    open_at(call, (call.descriptor(0), call.path(1)?), flags, call.mode(3))
}

/// `creat(path, mode)`.
pub(super) fn creat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
    open_at(call, (HERE, call.path(0)?), flags, call.mode(1))
}

/// `truncate(path, length)`.
pub(super) fn truncate(call: &Call<'_>) -> Result<Outcome, Errno> {
    let length = call.long(1);
    let Where::At(place) = locate(call, HERE, &call.path(0)?, Last::Follow)? else {
        return Ok(Outcome::Continue);
    };
    if i64::try_from(length).is_err() {
        return Err(Errno::INVAL);
    }
    let stat = place.existing()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::Symlink => return Err(Errno::STALE),
        _ => return Err(Errno::INVAL),
    }
    may_write(call, &place, &stat)?;
    followed(call.act(&[&place], |hand, by| hand.truncate(by, place.spot(), length)))?;
    Ok(Outcome::DONE)
}

/// What has become a link since it was seen is looked at again: what that leads to is meant.
fn followed<T>(outcome: Result<T, Errno>) -> Result<T, Errno> {
    match outcome {
        Err(Errno::LOOP) => Err(Errno::STALE),
        outcome => outcome,
    }
}

fn open_at(
    call: &Call<'_>,
    (descriptor, path): (i32, Vec<u8>),
    flags: OFlags,
    mode: Mode,
) -> Result<Outcome, Errno> {
    let creates = flags.contains(OFlags::CREATE);
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::RWMODE {
        return Ok(Outcome::Continue);
    }
    if creates && flags.contains(OFlags::DIRECTORY) && !flags.contains(NAMELESS) {
        // Refused for any path (Linux 6.4), and by the session's mount before that.
        return Ok(Outcome::Continue);
    }
    if flags.contains(NAMELESS) {
        return nameless(call, (descriptor, path), flags, mode);
    }
    let exclusive = creates && flags.contains(OFlags::EXCL);
    let last =
        if flags.contains(OFlags::NOFOLLOW) || exclusive { Last::Keep } else { Last::Follow };
    // A new name with a slash behind it is not followed: it is refused.
    let last = if creates && path.ends_with(b"/") { Last::Name } else { last };
    for _ in 0..TRIES {
        let place = match locate(call, descriptor, &path, last)? {
            Where::At(place) => place,
            Where::Outside => return Ok(Outcome::Continue),
            Where::Held(folder, file) => {
                if let Some(place) = of_held(&folder, &file)? {
                    place
                } else {
                    call.still_waits()?;
                    return again(&file, flags).map(|file| Outcome::File(file, at_exec(flags)));
                }
            }
        };
        if creates && place.ending != Ending::Name {
            return Err(if exclusive { Errno::EXIST } else { Errno::ISDIR });
        }
        if creates && place.slash {
            return Err(Errno::ISDIR);
        }
        let found = match place.seen()? {
            Some(stat) => existing(call, &place, flags, &stat)?,
            None if !creates => return Err(Errno::NOENT),
            None => create(call, &place, flags, mode)?,
        };
        if let Some(outcome) = found {
            return Ok(outcome);
        }
        if last != Last::Follow {
            return Err(Errno::LOOP);
        }
    }
    Err(Errno::LOOP)
}

/// The name of a file that somebody of the session was given; none if it has none any more.
fn of_held(folder: &Arc<Folder>, file: &OwnedFd) -> Result<Option<Place>, Errno> {
    match folder.place_of(file.as_fd())? {
        Some((start, name)) => match at(&start, (&name, false))? {
            Where::At(place) => Ok(Some(place)),
            Where::Outside | Where::Held(..) => Ok(None),
        },
        None => Ok(None),
    }
}

/// A file without a name, opened once more: nobody can bring it back, and nobody misses it.
fn again(file: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    if flags & OFlags::RWMODE == OFlags::RDONLY || flags.contains(OFlags::DIRECTORY) {
        return Err(Errno::ACCESS);
    }
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let wanted = (flags & PASSED) | (flags & OFlags::TRUNC) | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), wanted, Mode::empty())
}

/// Opens something that is there; `None` if it has become a link.
fn existing(
    call: &Call<'_>,
    place: &Place,
    flags: OFlags,
    stat: &Stat,
) -> Result<Option<Outcome>, Errno> {
    if flags.contains(OFlags::CREATE | OFlags::EXCL) {
        return Err(Errno::EXIST);
    }
    let reads = flags & OFlags::RWMODE == OFlags::RDONLY;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => return Ok(None),
        FileType::Directory if reads && !flags.intersects(OFlags::CREATE | OFlags::TRUNC) => {
            return Ok(Some(Outcome::Continue));
        }
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::RegularFile => {}
        // A read-only mount does not stop these, and opening one may wait for somebody.
        _ => return Ok(Some(Outcome::Continue)),
    }
    if flags.contains(OFlags::DIRECTORY) || place.slash {
        return Err(Errno::NOTDIR);
    }
    if reads && !flags.contains(OFlags::TRUNC) {
        return Ok(Some(Outcome::Continue));
    }
    may_write(call, place, stat)?;
    if reads {
        let file = in_session(call, place, flags, (stat.st_dev, stat.st_ino))?;
        followed(call.act(&[place], |hand, by| hand.truncate(by, place.spot(), 0)))?;
        return Ok(Some(Outcome::File(file, at_exec(flags))));
    }
    let wanted = (flags & PASSED) | (flags & OFlags::TRUNC) | SAFELY;
    let opened =
        call.act(&[place], |hand, by| hand.open_file(by, place.spot(), wanted, Mode::empty()));
    match opened {
        // It was removed after it was seen: now it is to be made.
        Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Err(Errno::STALE),
        opened => hand_out(place, opened?, flags, stat.st_size),
    }
}

/// What every file is opened with.
const SAFELY: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);

/// Whether an existing file may be written to.
fn may_write(call: &Call<'_>, place: &Place, stat: &Stat) -> Result<(), Errno> {
    permit(call, place, "write")?;
    permit_type(call, place)?;
    permit_contents(call, place, || readable(place))?;
    permit_aliases(call, place, (stat, "write"))?;
    guard(call, place, "write", Loss::Written)?;
    place.folder.growth.allow_bytes(&place.folder.ruling().rules.quota)
}

/// Makes a file and opens it; `None` if there is a link now.
fn create(
    call: &Call<'_>,
    place: &Place,
    flags: OFlags,
    mode: Mode,
) -> Result<Option<Outcome>, Errno> {
    permit(call, place, "create")?;
    permit_type(call, place)?;
    place.folder.growth.allow_name(&place.folder.ruling().rules.quota)?;
    // What is there by now was not judged.
    let wanted = (flags & PASSED) | OFlags::CREATE | OFlags::EXCL | SAFELY;
    let opened = with_mask(call, || {
        call.act(&[place], |hand, by| {
            if call.files.names(&call.folders) == call.changes {
                // Nobody has changed anything since it was seen that nothing is there.
                return hand.create_file(by, place.spot(), wanted, mode).map(Opened::File);
            }
            hand.open_file(by, place.spot(), wanted, mode)
        })
    });
    if opened.is_ok() {
        place.folder.growth.count(1);
    }
    match opened {
        Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => Err(Errno::STALE),
        opened => given(call, place, opened?, flags),
    }
}

/// The descriptor of a file that was just made.
fn given(
    call: &Call<'_>,
    place: &Place,
    opened: Opened,
    flags: OFlags,
) -> Result<Option<Outcome>, Errno> {
    let reads = flags & OFlags::RWMODE == OFlags::RDONLY;
    match opened {
        Opened::File(file) if reads => {
            let stat = rustix::fs::fstat(&file)?;
            let file = in_session(call, place, flags, (stat.st_dev, stat.st_ino))?;
            Ok(Some(Outcome::File(file, at_exec(flags))))
        }
        Opened::File(file) => {
            // It was made just now, and opened for writing, as was asked: nothing else it can be.
            watch(place, &file, 0);
            Ok(Some(Outcome::File(file, at_exec(flags))))
        }
        opened => hand_out(place, opened, flags, 0),
    }
}

/// `O_TMPFILE`: a file without a name, in the folder that the path means.
fn nameless(
    call: &Call<'_>,
    (descriptor, path): (i32, Vec<u8>),
    flags: OFlags,
    mode: Mode,
) -> Result<Outcome, Errno> {
    let last = if flags.contains(OFlags::NOFOLLOW) { Last::Keep } else { Last::Follow };
    let Where::At(place) = locate(call, descriptor, &path, last)? else {
        return Ok(Outcome::Continue);
    };
    if flags & OFlags::RWMODE == OFlags::RDONLY {
        return Err(Errno::INVAL);
    }
    let stat = place.existing()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    place.folder.growth.allow_bytes(&place.folder.ruling().rules.quota)?;
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let name = place.name.to_bytes();
    let folder = open_beneath(place.parent.as_fd(), name, path, ResolveFlags::NO_SYMLINKS)?;
    let wanted = (flags & PASSED) | (flags & OFlags::EXCL) | SAFELY.difference(OFlags::NOFOLLOW);
    let file = with_mask(call, || {
        call.act(&[&place], |hand, by| {
            hand.open_tmpfile(by, place.folder.number, folder.as_fd(), wanted, mode)
        })
    })?;
    let given = hand_out(&place, Opened::File(file), flags, 0)?;
    given.ok_or(Errno::IO)
}

/// The descriptor that the caller gets, if it is one that may be given.
fn hand_out(
    place: &Place,
    opened: Opened,
    flags: OFlags,
    before: i64,
) -> Result<Option<Outcome>, Errno> {
    match opened {
        Opened::Link => Ok(None),
        Opened::Special => Ok(Some(Outcome::Continue)),
        Opened::File(file) => {
            let stat = rustix::fs::fstat(&file)?;
            let mode = rustix::fs::fcntl_getfl(&file)?;
            let writes = mode.intersects(OFlags::WRONLY | OFlags::RDWR);
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if !writes || mode.contains(OFlags::PATH) || !is_file {
                return Err(Errno::ACCESS);
            }
            watch(place, &file, before);
            Ok(Some(Outcome::File(file, at_exec(flags))))
        }
    }
}

/// Has the quota of the folder count what is written to a file.
fn watch(place: &Place, file: &OwnedFd, before: i64) {
    let quota = place.folder.ruling().rules.quota;
    place.folder.growth.watch(&quota, file, before);
}

fn at_exec(flags: OFlags) -> AtExec {
    if flags.contains(OFlags::CLOEXEC) { AtExec::Closed } else { AtExec::Kept }
}

/// The same file, opened for reading on the session's own mount.
fn in_session(
    call: &Call<'_>,
    place: &Place,
    flags: OFlags,
    expected: (u64, u64),
) -> Result<OwnedFd, Errno> {
    let path = [place.folder.inside.as_slice(), place.path.as_slice()].join(&b'/');
    let path = super::paths::for_kernel(&path)?;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let wanted = flags & PASSED;
    // Should it have become a pipe, nobody waits for its other end.
    let patient = wanted | OFlags::NONBLOCK | SAFELY;
    let file = crate::kernel::retry(|| {
        rustix::fs::openat2(&call.files.root, &path, patient, Mode::empty(), how)
    })?;
    let seen = look(file.as_fd())?;
    if identity(&seen) != expected || seen.stx_mnt_id != place.folder.mount {
        return Err(Errno::STALE);
    }
    if !wanted.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&file, wanted)?;
    }
    Ok(file)
}

//! Changing modes, owners, times and extended attributes by name.

use super::call::Call;
use super::judge::{permit, permit_aliases};
use super::locate::{Last, Place, Where, locate, of_file};
use super::{EMPTY_PATH, HERE, NOFOLLOW, Outcome};
use cowork_journal::acl;
use cowork_journal::hand::{By, Hand};
use cowork_sys::Errno;
use rustix::fs::{
    FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use std::ffi::CString;

/// The user and the group that a session's processes are, as they see themselves.
const INSIDE: u32 = 1000;

/// `chmod(path, mode)`.
pub(super) fn chmod(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_mode(call, (HERE, call.path(0)?), call.mode(1), 0)
}

/// `fchmod(file, mode)`: for a file that is open for reading only, which the session has on its own
/// mount. One that can be written to is changed by the kernel.
pub(super) fn fchmod(call: &Call<'_>) -> Result<Outcome, Errno> {
    let file = call.file(call.descriptor(0))?;
    if rustix::fs::fcntl_getfl(&file)?.contains(OFlags::PATH) {
        return Err(Errno::BADF);
    }
    set_mode(call, (call.descriptor(0), Vec::new()), call.mode(1), EMPTY_PATH)
}

/// `fchmodat(folder, path, mode)`.
pub(super) fn fchmodat(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_mode(call, (call.descriptor(0), call.path(1)?), call.mode(2), 0)
}

/// `fchmodat2(folder, path, mode, flags)`.
pub(super) fn fchmodat2(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_mode(call, (call.descriptor(0), call.path(1)?), call.mode(2), call.number(3))
}

fn set_mode(call: &Call<'_>, at: (i32, Vec<u8>), mode: Mode, flags: u32) -> Result<Outcome, Errno> {
    change(call, at, flags, &mut |hand, place, by| hand.set_mode(by, place.spot(), mode))
}

/// `chown(path, user, group)`.
pub(super) fn chown(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_owner(call, (HERE, call.path(0)?), (call.number(1), call.number(2)), 0)
}

/// `lchown(path, user, group)`.
pub(super) fn lchown(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_owner(call, (HERE, call.path(0)?), (call.number(1), call.number(2)), NOFOLLOW)
}

/// `fchownat(folder, path, user, group, flags)`.
pub(super) fn fchownat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let at = (call.descriptor(0), call.path(1)?);
    set_owner(call, at, (call.number(2), call.number(3)), call.number(4))
}

fn set_owner(
    call: &Call<'_>,
    at: (i32, Vec<u8>),
    (user, group): (u32, u32),
    flags: u32,
) -> Result<Outcome, Errno> {
    let own_user = rustix::process::geteuid().as_raw();
    let own_group = rustix::process::getegid().as_raw();
    let (user, group) = (outside(user, own_user), outside(group, own_group));
    change(call, at, flags, &mut |hand, place, by| hand.set_owner(by, place.spot(), user?, group?))
}

/// A number of the session's users, as this process knows it; `None` to leave it as it is.
fn outside(number: u32, own: u32) -> Result<Option<u32>, Errno> {
    match number {
        u32::MAX => Ok(None),
        INSIDE => Ok(Some(own)),
        // A session with the host's view has the user's own numbers.
        number if number == own => Ok(Some(own)),
        _ => Err(Errno::INVAL),
    }
}

/// An access control list of a session's, as this process knows whom it names. Nobody else than its own
/// user can be named there.
fn outside_list(value: &[u8]) -> Option<Vec<u8>> {
    let known = |own: u32| move |number| outside(number, own).ok().flatten();
    let own_user = rustix::process::geteuid().as_raw();
    let own_group = rustix::process::getegid().as_raw();
    // An empty one takes the list away.
    if value.len() <= 4 {
        return Some(value.to_vec());
    }
    acl::translate(value, known(own_user), known(own_group))
}

/// `utime(path, times)`: seconds.
pub(super) fn utime(call: &Call<'_>) -> Result<Outcome, Errno> {
    let times = match call.long(1) {
        0 => NOW,
        address => {
            let [access, modification] = words(call, address)?;
            timestamps((access, 0), (modification, 0))
        }
    };
    set_times(call, (HERE, call.path(0)?), &times, 0)
}

/// `utimes(path, times)`: seconds and microseconds.
pub(super) fn utimes(call: &Call<'_>) -> Result<Outcome, Errno> {
    let times = microseconds(call, call.long(1))?;
    set_times(call, (HERE, call.path(0)?), &times, 0)
}

/// `futimesat(folder, path, times)`.
pub(super) fn futimesat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let times = microseconds(call, call.long(2))?;
    set_times(call, (call.descriptor(0), call.path(1)?), &times, 0)
}

/// `utimensat(folder, path, times, flags)`: seconds and nanoseconds.
pub(super) fn utimensat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let times = match call.long(2) {
        0 => NOW,
        address => {
            let [access, access_ns, modification, modification_ns] = words(call, address)?;
            timestamps(
                (access, nanoseconds(access_ns)?),
                (modification, nanoseconds(modification_ns)?),
            )
        }
    };
    let is_omitted = |time: &Timespec| time.tv_nsec == UTIME_OMIT;
    if is_omitted(&times.last_access) && is_omitted(&times.last_modification) {
        return Ok(Outcome::DONE);
    }
    set_times(call, (call.descriptor(0), call.path(1)?), &times, call.number(3))
}

const NOW: Timestamps = timestamps((0, UTIME_NOW), (0, UTIME_NOW));

const fn timestamps(access: (i64, i64), modification: (i64, i64)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: access.0, tv_nsec: access.1 },
        last_modification: Timespec { tv_sec: modification.0, tv_nsec: modification.1 },
    }
}

fn nanoseconds(value: i64) -> Result<i64, Errno> {
    let valid = (0..1_000_000_000).contains(&value) || value == UTIME_NOW || value == UTIME_OMIT;
    if valid { Ok(value) } else { Err(Errno::INVAL) }
}

fn microseconds(call: &Call<'_>, address: u64) -> Result<Timestamps, Errno> {
    if address == 0 {
        return Ok(NOW);
    }
    let [access, access_us, modification, modification_us] = words(call, address)?;
    let valid = |value: &i64| (0..1_000_000).contains(value);
    if !valid(&access_us) || !valid(&modification_us) {
        return Err(Errno::INVAL);
    }
    Ok(timestamps((access, access_us * 1000), (modification, modification_us * 1000)))
}

/// Numbers of 64 bits in the caller's memory.
fn words<const N: usize>(call: &Call<'_>, address: u64) -> Result<[i64; N], Errno> {
    let mut bytes = vec![0; N * 8];
    call.bytes(address, &mut bytes)?;
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.first_chunk().map_or(0, |chunk| i64::from_ne_bytes(*chunk));
    }
    Ok(words)
}

fn set_times(
    call: &Call<'_>,
    at: (i32, Vec<u8>),
    times: &Timestamps,
    flags: u32,
) -> Result<Outcome, Errno> {
    change(call, at, flags, &mut |hand, place, by| hand.set_times(by, place.spot(), times))
}

/// `setxattr(path, name, value, size, flags)`.
pub(super) fn setxattr(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_attribute(call, 0)
}

/// `lsetxattr(path, name, value, size, flags)`.
pub(super) fn lsetxattr(call: &Call<'_>) -> Result<Outcome, Errno> {
    set_attribute(call, NOFOLLOW)
}

fn set_attribute(call: &Call<'_>, follow: u32) -> Result<Outcome, Errno> {
    /// `XATTR_SIZE_MAX`.
    const LONGEST: usize = 65_536;
    let flags = call.number(4);
    if XattrFlags::from_bits_retain(flags)
        .difference(XattrFlags::CREATE | XattrFlags::REPLACE)
        .bits()
        != 0
    {
        return Err(Errno::INVAL);
    }
    let name = attribute_name(call)?;
    let size = usize::try_from(call.long(3)).unwrap_or(usize::MAX);
    if size > LONGEST {
        return Err(Errno::TOOBIG);
    }
    let mut value = vec![0; size];
    call.bytes(call.long(2), &mut value)?;
    if acl::is_list(name.to_bytes()) {
        value = outside_list(&value).ok_or(Errno::INVAL)?;
    }
    let flags = XattrFlags::from_bits_retain(flags);
    change(call, (HERE, call.path(0)?), follow, &mut |hand, place, by| {
        hand.set_attribute(by, place.spot(), &name, &value, flags)
    })
}

/// `removexattr(path, name)`.
pub(super) fn removexattr(call: &Call<'_>) -> Result<Outcome, Errno> {
    remove_attribute(call, 0)
}

/// `lremovexattr(path, name)`.
pub(super) fn lremovexattr(call: &Call<'_>) -> Result<Outcome, Errno> {
    remove_attribute(call, NOFOLLOW)
}

fn remove_attribute(call: &Call<'_>, follow: u32) -> Result<Outcome, Errno> {
    let name = attribute_name(call)?;
    change(call, (HERE, call.path(0)?), follow, &mut |hand, place, by| {
        hand.remove_attribute(by, place.spot(), &name)
    })
}

fn attribute_name(call: &Call<'_>) -> Result<CString, Errno> {
    /// `XATTR_NAME_MAX`, with the NUL.
    const LONGEST: usize = 256;
    let name = call.string(call.long(1), LONGEST, Errno::RANGE)?;
    if name.is_empty() {
        return Err(Errno::RANGE);
    }
    CString::new(name).map_err(|_nul| Errno::INVAL)
}

/// Finds what a call is about, by path or by descriptor, and changes it.
fn change(
    call: &Call<'_>,
    (from, path): (i32, Vec<u8>),
    flags: u32,
    work: &mut dyn FnMut(&mut Hand, &Place, By) -> Result<(), Errno>,
) -> Result<Outcome, Errno> {
    if flags & !(NOFOLLOW | EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    let last = if flags & NOFOLLOW == 0 { Last::Follow } else { Last::Keep };
    let found = if path.is_empty() && flags & EMPTY_PATH != 0 {
        of_file(call, call.base(from)?)?
    } else {
        locate(call, from, &path, last)?
    };
    let Where::At(place) = found else { return Ok(Outcome::Continue) };
    let is_to_follow = |stat: &Stat| {
        last == Last::Follow && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
    };
    let stat = place.existing()?;
    if is_to_follow(&stat) {
        return Err(Errno::STALE);
    }
    permit(call, &place, "attributes")?;
    permit_aliases(call, &place, (&stat, "attributes"))?;
    call.act(&[&place], |hand, by| {
        // It may have become a link since it was seen: then what that leads to is meant.
        if call.files.names(&call.folders) != call.changes
            && place.seen()?.as_ref().is_some_and(is_to_follow)
        {
            return Err(Errno::STALE);
        }
        work(hand, &place, by)
    })?;
    Ok(Outcome::DONE)
}

#[cfg(test)]
mod tests {
    use super::{nanoseconds, outside};
    use cowork_sys::Errno;
    use rustix::fs::{UTIME_NOW, UTIME_OMIT};

    #[test]
    fn owners_are_the_session_s_own_or_unchanged() {
        assert_eq!(outside(u32::MAX, 7), Ok(None));
        assert_eq!(outside(1000, 7), Ok(Some(7)));
        // In a session with the host's view it is seen by its own number.
        assert_eq!(outside(7, 7), Ok(Some(7)));
        for other in [0, 999, 65534] {
            assert_eq!(outside(other, 7), Err(Errno::INVAL));
        }
    }

    #[test]
    fn nanoseconds_are_fewer_than_a_second() {
        for valid in [0, 999_999_999, UTIME_NOW, UTIME_OMIT] {
            assert_eq!(nanoseconds(valid), Ok(valid));
        }
        for invalid in [-1, 1_000_000_000, i64::MAX] {
            assert_eq!(nanoseconds(invalid), Err(Errno::INVAL));
        }
    }
}

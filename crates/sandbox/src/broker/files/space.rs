//! What a granted folder looks like to whoever asks whether it can be written to.

use super::call::Call;
use super::folders::{Folder, look};
use super::locate::{Last, Where, folder_of, locate, of_file};
use super::{EMPTY_PATH, HERE, NOFOLLOW, Outcome};
use cowork_api::files::NamePolicy;
use cowork_sys::Errno;
use cowork_sys::memory::write_process;
use rustix::fd::AsFd;
use rustix::fs::{Access, AtFlags, StatFs};

/// `AT_EACCESS`. A session's processes have one user id each.
const EFFECTIVE: u32 = 0x200;

/// `access(path, mode)`.
pub(super) fn access(call: &Call<'_>) -> Result<Outcome, Errno> {
    may_access(call, (HERE, call.path(0)?), call.number(1), 0)
}

/// `faccessat(folder, path, mode)`.
pub(super) fn faccessat(call: &Call<'_>) -> Result<Outcome, Errno> {
    may_access(call, (call.descriptor(0), call.path(1)?), call.number(2), 0)
}

/// `faccessat2(folder, path, mode, flags)`.
pub(super) fn faccessat2(call: &Call<'_>) -> Result<Outcome, Errno> {
    may_access(call, (call.descriptor(0), call.path(1)?), call.number(2), call.number(3))
}

fn may_access(
    call: &Call<'_>,
    (from, path): (i32, Vec<u8>),
    mode: u32,
    flags: u32,
) -> Result<Outcome, Errno> {
    if flags & !(NOFOLLOW | EMPTY_PATH | EFFECTIVE) != 0 {
        return Err(Errno::INVAL);
    }
    let wanted = Access::from_bits(mode).ok_or(Errno::INVAL)?;
    let last = if flags & NOFOLLOW == 0 { Last::Follow } else { Last::Keep };
    let found = if path.is_empty() && flags & EMPTY_PATH != 0 {
        of_file(call, call.base(from)?)?
    } else {
        locate(call, from, &path, last)?
    };
    let Where::At(place) = found else { return Ok(Outcome::Continue) };
    if place.folder.ruling().judge.name(&place.path).policy == NamePolicy::Deny {
        place.existing()?;
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(&*place.parent, &place.name, wanted, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Outcome::DONE)
}

/// `statfs(path, structure)`.
pub(super) fn statfs(call: &Call<'_>) -> Result<Outcome, Errno> {
    match locate(call, HERE, &call.path(0)?, Last::Follow)? {
        Where::At(place) => {
            place.existing()?;
            tell(call, &place.folder)
        }
        Where::Outside | Where::Held(..) => Ok(Outcome::Continue),
    }
}

/// `fstatfs(descriptor, structure)`.
pub(super) fn fstatfs(call: &Call<'_>) -> Result<Outcome, Errno> {
    let file = call.file(call.descriptor(0))?;
    let mount = look(file.as_fd())?.stx_mnt_id;
    match folder_of(call, mount) {
        Some(folder) => tell(call, folder),
        None => Ok(Outcome::Continue),
    }
}

/// Writes what the writable mount says into the caller's memory.
fn tell(call: &Call<'_>, folder: &Folder) -> Result<Outcome, Errno> {
    let stat = rustix::fs::fstatfs(&*folder.root)?;
    let id = rustix::fs::fstatvfs(&*folder.root)?.f_fsid;
    call.still_waits()?;
    write_process(call.note.thread, call.long(1), &layout(&stat, id))?;
    Ok(Outcome::DONE)
}

/// `struct statfs` of 64-bit architectures. Set-user-id bits and devices have no effect in the
/// session; the rest of the flags is that of the writable mount.
fn layout(stat: &StatFs, id: u64) -> Vec<u8> {
    /// `ST_NOSUID`, `ST_NODEV`.
    const WITHOUT: i64 = 2 | 4;
    let mut bytes = Vec::with_capacity(120);
    bytes.extend(stat.f_type.to_ne_bytes());
    bytes.extend(stat.f_bsize.to_ne_bytes());
    for count in [stat.f_blocks, stat.f_bfree, stat.f_bavail, stat.f_files, stat.f_ffree] {
        bytes.extend(count.to_ne_bytes());
    }
    bytes.extend(id.to_le_bytes());
    let flags = stat.f_flags | WITHOUT;
    for word in [stat.f_namelen, stat.f_frsize, flags, 0, 0, 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_structure_has_the_size_of_the_kernel_s() {
        let stat = rustix::fs::statfs("/").expect("it is there");
        assert_eq!(super::layout(&stat, 0).len(), size_of::<rustix::fs::StatFs>());
    }
}

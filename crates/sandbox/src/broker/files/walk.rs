//! The long way: a path is walked component by component in the session's own mounts.
//!
//! For what one confined lookup cannot tell: links and `..` that lead out of a folder or into one,
//! and `/proc`, whose links depend on who looks. Every step is a handle, so nothing that the
//! session changes meanwhile leads anywhere that it could not have reached itself.

use super::call::Call;
use super::folders::{kind_of, look};
use super::locate::{Ending, Last, Where, directory, finish, folder_of, of_file};
use super::paths::{components, for_kernel, join, led_on, split};
use super::who;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};

/// `PROC_SUPER_MAGIC`.
const PROC: i64 = 0x9fa0;
/// Most components that are walked for one path, links included.
const MAX_STEPS: u32 = 40 * 2048;

/// Walks `path` from `from`, or from the session's root.
pub(super) fn walk(
    call: &Call<'_>,
    from: Option<OwnedFd>,
    path: &[u8],
    last: Last,
) -> Result<Where, Errno> {
    let parts = split(path);
    let ending = match parts.name {
        b"" | b"." => Ending::Dot,
        b".." => Ending::DotDot,
        _ => Ending::Name,
    };
    let from = match from {
        Some(folder) if path.first() != Some(&b'/') => folder,
        _ => root(call)?,
    };
    let way = if ending == Ending::Name { parts.folder } else { path };
    let at = go(call, from, way)?;
    let seen = look(at.as_fd())?;
    call.still_waits()?;
    if kind_of(&seen) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if let Some(folder) = folder_of(call, seen.stx_mnt_id) {
        let start = folder.writable(at.as_fd(), &seen)?;
        if ending != Ending::Name {
            return directory(start, ending);
        }
        let covered = start.folder.is_covered(&join(&start.path, parts.name));
        return if covered {
            Ok(Where::Outside)
        } else {
            finish(call, &start, (parts.name, parts.slash), last)
        };
    }
    let follow = last == Last::Follow || (last == Last::Keep && parts.slash);
    if ending != Ending::Name || last == Last::Name {
        return Ok(Where::Outside);
    }
    last_outside(call, at, (parts.name, parts.slash), if follow { Last::Follow } else { last })
}

/// The last component, in a folder outside: a link may still lead inside, and the name may be that
/// of a granted folder.
fn last_outside(
    call: &Call<'_>,
    at: OwnedFd,
    (name, slash): (&[u8], bool),
    last: Last,
) -> Result<Where, Errno> {
    let in_processes = is_processes(&at);
    let name = if in_processes { own_name(call, name)? } else { name.to_vec() };
    let text = for_kernel(&name)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(found) = rustix::fs::openat(&at, &text, flags, Mode::empty()) else {
        return Ok(Where::Outside);
    };
    let seen = look(found.as_fd())?;
    if kind_of(&seen) != FileType::Symlink {
        return match folder_of(call, seen.stx_mnt_id) {
            Some(folder) if kind_of(&seen) == FileType::Directory => {
                directory(folder.writable(found.as_fd(), &seen)?, Ending::Dot)
            }
            _ => Ok(Where::Outside),
        };
    }
    if last != Last::Follow {
        return Ok(Where::Outside);
    }
    call.count_link()?;
    if in_processes {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(target) = rustix::fs::openat(&at, &text, flags, Mode::empty()) else {
            return Ok(Where::Outside);
        };
        call.still_waits()?;
        return of_file(call, target);
    }
    let target = rustix::fs::readlinkat(&found, c"", Vec::new())?;
    let target = led_on(target.into_bytes(), if slash { b"/" } else { b"" });
    if target.is_empty() {
        return Ok(Where::Outside);
    }
    walk(call, Some(at), &target, last)
}

/// Goes along every component of `way`.
fn go(call: &Call<'_>, from: OwnedFd, way: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let top = look(call.files.root.as_fd())?;
    let mut at = from;
    let mut left: Vec<Vec<u8>> = components(way).rev().map(<[u8]>::to_vec).collect();
    let mut steps = 0;
    while let Some(part) = left.pop() {
        steps += 1;
        if steps > MAX_STEPS {
            return Err(Errno::LOOP);
        }
        if part == b".." {
            let here = look(at.as_fd())?;
            if (here.stx_mnt_id, here.stx_ino) != (top.stx_mnt_id, top.stx_ino) {
                at = rustix::fs::openat(&at, c"..", flags, Mode::empty())?;
            }
            continue;
        }
        let in_processes = is_processes(&at);
        let part = if in_processes { own_name(call, &part)? } else { part };
        if part.contains(&b'/') {
            left.extend(components(&part).rev().map(<[u8]>::to_vec));
            continue;
        }
        let text = for_kernel(&part)?;
        let found = rustix::fs::openat(&at, &text, flags | OFlags::NOFOLLOW, Mode::empty())?;
        match kind_of(&look(found.as_fd())?) {
            FileType::Symlink => {
                call.count_link()?;
                if in_processes {
                    at = rustix::fs::openat(&at, &text, flags, Mode::empty())?;
                    continue;
                }
                let target = rustix::fs::readlinkat(&found, c"", Vec::new())?.into_bytes();
                match target.first() {
                    None => return Err(Errno::NOENT),
                    Some(b'/') => at = root(call)?,
                    Some(_) => {}
                }
                left.extend(components(&target).rev().map(<[u8]>::to_vec));
            }
            FileType::Directory => at = found,
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(at)
}

/// What `self` and `thread-self` mean to the caller.
fn own_name(call: &Call<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    if name != b"self" && name != b"thread-self" {
        return Ok(name.to_vec());
    }
    let status = who::Status::of(call.note.thread)?;
    call.still_waits()?;
    let process = who::Status::of(status.process)?.inside;
    call.still_waits()?;
    Ok(if name == b"self" {
        process.to_string().into_bytes()
    } else {
        format!("{process}/task/{}", status.inside).into_bytes()
    })
}

fn is_processes(at: &OwnedFd) -> bool {
    rustix::fs::fstatfs(at).is_ok_and(|stat| stat.f_type == PROC)
}

fn root(call: &Call<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(&call.files.root, 0)
}

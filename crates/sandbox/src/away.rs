//! Trashes at the top of other mounts.
//!
//! A file is moved only within one mount. What is removed from a granted folder on another mount than
//! the session's store is kept in `.Trash-UID/cowork/STORE` at the top of that mount, where file
//! managers keep theirs; UID is whoever runs cowork. The store remembers the place.
//!
//! Others may be able to write at the top of a mount. Everything is opened one name at a time below
//! a handle, through no link and on that mount only, and must belong to this user alone.
//!
//! Deliberately absent: the top of a mount that is granted itself. There the session would see the
//! trash, so there is none.

use crate::folder::{identity, open_exactly};
use crate::kernel::{path_of, retry};
use cowork_api::files::{Away, Kept};
use cowork_api::plan::Identity;
use cowork_sys::Errno;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, StatxFlags, Uid, mkdirat, openat,
    openat2, renameat, statx, unlinkat,
};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder in the user's trash.
const OWN: &str = "cowork";
/// The folder of a store that remembers trashes, each under the name of a granted folder.
const RECORDS: &str = "away";
/// How often a trash is begun anew.
const TRIES: u32 = 4;
/// Most bytes of what is remembered of one.
const MOST: usize = 16 << 10;

/// Where the trash of one granted folder is.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The top of the mount.
    pub(crate) top: OwnedFd,
    /// The granted folder, below it.
    pub(crate) folder: PathBuf,
    /// The trash, below it.
    pub(crate) trash: PathBuf,
}

/// A granted folder that is to have a trash.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) folder: &'a OwnedFd,
    /// Who gets the trash, if that is somebody else.
    pub(crate) owner: Option<(u32, u32)>,
}

/// Makes the trash of a granted folder at the top of its mount, and writes down where it is. `None`
/// if there cannot be one: who may not write there, or finds something else there, has none.
pub(crate) fn make(store: &Kept, opened: BorrowedFd<'_>, wanted: &Wanted<'_>) -> Option<Layout> {
    let (top, path) = top_of(wanted)?;
    let below = wanted.path.strip_prefix(&path).ok()?.to_path_buf();
    let name = path_of(&store.path).file_name()?.to_str()?;
    for _ in 0..TRIES {
        match lay_out((&top, &path), name, opened, wanted) {
            Ok(()) => {
                let trash = Path::new(&trash_name()).join(OWN).join(name).join(wanted.name);
                return Some(Layout { top, folder: below, trash });
            }
            // The last trash of another session went, with what was around it.
            Err(Errno::NOENT) => {}
            Err(_) => break,
        }
    }
    // What was made on the way goes if nothing is in it.
    remove_empty(top.as_fd(), name);
    None
}

/// Makes the folders of a trash below the top of a mount, and writes them down.
fn lay_out(
    (top, path): (&OwnedFd, &Path),
    name: &str,
    opened: BorrowedFd<'_>,
    wanted: &Wanted<'_>,
) -> Result<(), Errno> {
    let own = make_own(top.as_fd(), &trash_name())?;
    let all = make_own(own.as_fd(), OWN)?;
    let of_store = make_own(all.as_fd(), name)?;
    let away = Away {
        top: path.as_os_str().as_bytes().to_vec(),
        top_folder: identity(top.as_fd())?,
        store: name.to_owned(),
        folder: identity(of_store.as_fd())?,
    };
    note(opened, identity(wanted.folder.as_fd())?, &away)?;
    make_folder(of_store.as_fd(), wanted.name)?;
    let trash = enter(of_store.as_fd(), wanted.name)?;
    match wanted.owner {
        Some((uid, gid)) => {
            rustix::fs::fchown(&trash, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        }
        None => Ok(()),
    }
}

/// The top of the mount that a folder is on, unless it is the folder itself.
fn top_of(wanted: &Wanted<'_>) -> Option<(OwnedFd, PathBuf)> {
    let mount = mount_of(wanted.folder.as_fd()).ok()?;
    let mut top = None;
    for above in wanted.path.ancestors().skip(1) {
        let Ok(handle) = open_exactly(above) else { break };
        if mount_of(handle.as_fd()) != Ok(mount) {
            break;
        }
        top = Some((handle, above.to_path_buf()));
    }
    top
}

fn mount_of(handle: BorrowedFd<'_>) -> Result<u64, Errno> {
    statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map(|stat| stat.stx_mnt_id)
}

/// How the user's trash is called at the top of a mount.
fn trash_name() -> String {
    format!(".Trash-{}", rustix::process::geteuid().as_raw())
}

fn make_folder(base: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match mkdirat(base, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn make_own(base: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    make_folder(base, name)?;
    enter_own(base, name)
}

/// Opens a folder on the same mount, through no link.
fn enter(base: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| openat2(base, name, flags, Mode::empty(), resolve))
}

/// The same, of a folder in which only this user can write.
fn enter_own(base: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let folder = enter(base, name)?;
    let stat = rustix::fs::fstat(&folder)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(Errno::PERM);
    }
    Ok(folder)
}

/// Writes down where the trash of a granted folder is, on the disk when this returns.
fn note(store: BorrowedFd<'_>, folder: Identity, away: &Away) -> Result<(), Errno> {
    const NEW: &str = "new";
    match mkdirat(store, RECORDS, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let records = enter_own(store, RECORDS)?;
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&records, NEW, flags, Mode::from_raw_mode(0o644))?;
    let bytes = cowork_api::encode(away);
    if rustix::io::write(&file, &bytes)? != bytes.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::fsync(&file)?;
    renameat(&records, NEW, &records, record_name(folder))?;
    rustix::fs::fsync(&records)
}

fn record_name(folder: Identity) -> String {
    format!("{:x}-{:x}", folder.device, folder.inode)
}

/// What a store remembers. Its brokers may write in it, but not what belongs to this user.
fn read(records: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Option<Away> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(records, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut bytes = vec![0; MOST];
    let length = rustix::io::pread(&file, bytes.as_mut_slice(), 0).ok()?;
    let away: Away = cowork_api::decode(bytes.get(..length)?).ok()?;
    let is_plain = !matches!(away.store.as_str(), "" | "." | "..") && !away.store.contains('/');
    is_plain.then_some(away)
}

/// What a store remembers of the trash of a granted folder.
pub(crate) fn of_folder(store: BorrowedFd<'_>, folder: Identity) -> Option<Away> {
    let records = enter_own(store, RECORDS).ok()?;
    read(records.as_fd(), record_name(folder).as_str())
}

/// All trashes that a folder of this user remembers: of a store, or of stores that are gone.
pub fn all_in(folder: &Path) -> Vec<Away> {
    let Ok(folder) = open_exactly(folder) else { return Vec::new() };
    let Ok(records) = enter_own(folder.as_fd(), RECORDS) else { return Vec::new() };
    let entries = Dir::read_from(&records).into_iter().flatten().flatten();
    let mut all: Vec<Away> =
        entries.filter_map(|entry| read(records.as_fd(), entry.file_name())).collect();
    all.sort_by(|one, other| (&one.top, &one.store).cmp(&(&other.top, &other.store)));
    all.dedup();
    all
}

/// Remembers a trash that cannot be removed now.
pub fn remember(folder: &Path, away: &Away) -> Result<(), Errno> {
    note(open_exactly(folder)?.as_fd(), away.folder, away)
}

/// Forgets one that is gone.
pub fn forget(folder: &Path, away: &Away) -> Result<(), Errno> {
    let records = enter_own(open_exactly(folder)?.as_fd(), RECORDS)?;
    unlinkat(&records, record_name(away.folder), AtFlags::empty())
}

/// What there is of a trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there, and is this folder now.
    There(Identity),
    /// It is not, though its file system is.
    Gone,
    /// Its file system is not there.
    Absent,
}

/// Where a trash lies, if it is there.
pub fn path(away: &Away) -> PathBuf {
    path_of(&away.top).join(trash_name()).join(OWN).join(&away.store)
}

/// Looks whether a trash is there.
pub fn look(away: &Away) -> State {
    let Ok(top) = open_exactly(path_of(&away.top)) else { return State::Absent };
    if let Ok(trash) = open(top.as_fd(), away)
        && let Ok(found) = identity(trash.as_fd())
    {
        return State::There(found);
    }
    match identity(top.as_fd()) {
        Ok(found) if found == away.top_folder => State::Gone,
        _ => State::Absent,
    }
}

/// Removes the folders around a trash that is gone, if nothing else is in them.
pub fn remove_around(away: &Away) {
    if let Ok(top) = open_exactly(path_of(&away.top)) {
        remove_empty(top.as_fd(), &away.store);
    }
}

fn remove_empty(top: BorrowedFd<'_>, store: &str) {
    let name = trash_name();
    if let Ok(own) = enter_own(top, &name) {
        if let Ok(all) = enter_own(own.as_fd(), OWN) {
            cowork_sys::ignore(unlinkat(&all, store, AtFlags::REMOVEDIR));
        }
        cowork_sys::ignore(unlinkat(&own, OWN, AtFlags::REMOVEDIR));
        cowork_sys::ignore(unlinkat(top, name, AtFlags::REMOVEDIR));
    }
}

fn open(top: BorrowedFd<'_>, away: &Away) -> Result<OwnedFd, Errno> {
    let own = enter_own(top, &trash_name())?;
    let all = enter_own(own.as_fd(), OWN)?;
    let trash = enter_own(all.as_fd(), &away.store)?;
    // The number of a device is another one when its disk comes back; that of a file is not.
    if identity(trash.as_fd())?.inode == away.folder.inode { Ok(trash) } else { Err(Errno::NOENT) }
}

/// Opens the trash of a granted folder that is there. It must be on the same mount. Else it says why
/// not, for a person.
pub(crate) fn reopen(away: &Away, name: &str, folder: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let found = || {
        let top = open_exactly(path_of(&away.top))?;
        let trash = enter(open(top.as_fd(), away)?.as_fd(), name)?;
        if mount_of(trash.as_fd())? != mount_of(folder)? {
            return Err(Errno::XDEV);
        }
        Ok(trash)
    };
    found().map_err(|errno| {
        let path = path(away);
        format!("what was removed was kept in `{}`, which cannot be used: {errno}", path.display())
    })
}

/// Why a granted folder is not there: with its trash its file system is gone. `None` if it is not.
pub(crate) fn absence(away: &Away, path: &Path) -> Option<String> {
    let top = path_of(&away.top);
    (look(away) == State::Absent).then(|| {
        format!(
            "`{}` is not there: what was mounted at `{}` is not mounted",
            path.display(),
            top.display()
        )
    })
}

//! Making, removing and moving names.

use super::call::Call;
use super::judge::{
    Loss, guard, permit, permit_aliases, permit_contents, permit_link, permit_tree, permit_type,
    readable, still_permits_tree,
};
use super::locate::{Ending, Last, Place, Where, locate, of_file};
use super::mask::with_mask;
use super::{EMPTY_PATH, FOLLOW, HERE, Outcome};
use cowork_journal::hand::{Hand, LinkSource};
use cowork_sys::Errno;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, RenameFlags, Stat};
use std::ffi::CString;

/// `AT_REMOVEDIR`.
const REMOVE_FOLDER: u32 = 0x200;

/// `unlink(path)`.
pub(super) fn unlink(call: &Call<'_>) -> Result<Outcome, Errno> {
    remove(call, (HERE, call.path(0)?), What::Name)
}

/// `rmdir(path)`.
pub(super) fn rmdir(call: &Call<'_>) -> Result<Outcome, Errno> {
    remove(call, (HERE, call.path(0)?), What::Folder)
}

/// `unlinkat(folder, path, flags)`.
pub(super) fn unlinkat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let what = match call.number(2) {
        0 => What::Name,
        REMOVE_FOLDER => What::Folder,
        _ => return Err(Errno::INVAL),
    };
    remove(call, (call.descriptor(0), call.path(1)?), what)
}

/// What is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Name,
    Folder,
}

fn remove(call: &Call<'_>, (from, path): (i32, Vec<u8>), what: What) -> Result<Outcome, Errno> {
    let Where::At(place) = locate(call, from, &path, Last::Name)? else {
        return Ok(Outcome::Continue);
    };
    match (place.ending, what) {
        (Ending::Name, _) => {}
        (_, What::Name) => return Err(Errno::ISDIR),
        (Ending::Dot, What::Folder) => return Err(Errno::INVAL),
        (Ending::DotDot, What::Folder) => return Err(Errno::NOTEMPTY),
    }
    let stat = place.existing()?;
    let is_folder = kind(&stat) == FileType::Directory;
    match what {
        What::Name if is_folder => return Err(Errno::ISDIR),
        What::Name if place.slash => return Err(Errno::NOTDIR),
        What::Folder if !is_folder => return Err(Errno::NOTDIR),
        // The kernel would take the mount away with the folder.
        What::Folder if place.folder.covers(&place.path) => return Err(Errno::BUSY),
        What::Name | What::Folder => {}
    }
    permit(call, &place, "remove")?;
    if what == What::Name {
        guard(call, &place, "remove", Loss::Removed)?;
    }
    call.act(&[&place], |hand, by| match what {
        What::Name => hand.remove(by, place.spot()),
        What::Folder => hand.remove_folder_entry(by, place.spot()),
    })?;
    place.folder.growth.count(-1);
    Ok(Outcome::DONE)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// `mkdir(path, mode)`.
pub(super) fn mkdir(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_folder(call, (HERE, call.path(0)?), call.mode(1))
}

/// `mkdirat(folder, path, mode)`.
pub(super) fn mkdirat(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_folder(call, (call.descriptor(0), call.path(1)?), call.mode(2))
}

fn make_folder(call: &Call<'_>, at: (i32, Vec<u8>), mode: Mode) -> Result<Outcome, Errno> {
    // The kernel keeps the sticky bit of a new folder, and no other beside the permissions.
    let mode = mode & Mode::from_raw_mode(0o1777);
    make(call, at, &mut |hand, place, by| hand.make_folder(by, place.spot(), mode), Kind::Folder)
}

/// `mknod(path, mode, device)`.
pub(super) fn mknod(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_node(call, (HERE, call.path(0)?), call.number(1))
}

/// `mknodat(folder, path, mode, device)`.
pub(super) fn mknodat(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_node(call, (call.descriptor(0), call.path(1)?), call.number(2))
}

fn make_node(call: &Call<'_>, at: (i32, Vec<u8>), raw: u32) -> Result<Outcome, Errno> {
    /// The bits of the type.
    const TYPE: u32 = 0o170_000;
    let kind = match FileType::from_raw_mode(raw) {
        _ if raw & TYPE == 0 => Ok(FileType::RegularFile),
        kind @ (FileType::RegularFile | FileType::Fifo | FileType::Socket) => Ok(kind),
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Directory => Err(Errno::PERM),
        _ => Err(Errno::INVAL),
    };
    let mode = Mode::from_raw_mode(raw & 0o7777);
    let mut work =
        |hand: &mut Hand, place: &Place, by| hand.make_node(by, place.spot(), kind?, mode);
    make(call, at, &mut work, Kind::File)
}

/// `symlink(target, path)`.
pub(super) fn symlink(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_link(call, call.path(0)?, (HERE, call.path(1)?))
}

/// `symlinkat(target, folder, path)`.
pub(super) fn symlinkat(call: &Call<'_>) -> Result<Outcome, Errno> {
    make_link(call, call.path(0)?, (call.descriptor(1), call.path(2)?))
}

fn make_link(call: &Call<'_>, target: Vec<u8>, at: (i32, Vec<u8>)) -> Result<Outcome, Errno> {
    if target.is_empty() {
        return Err(Errno::NOENT);
    }
    let target = CString::new(target).map_err(|_nul| Errno::INVAL)?;
    let kind = Kind::Link(target.to_bytes());
    make(call, at, &mut |hand, place, by| hand.make_link(by, place.spot(), &target), kind)
}

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    File,
    Folder,
    /// A symbolic link that says this.
    Link(&'a [u8]),
}

type Work<'a> = &'a mut dyn FnMut(&mut Hand, &Place, cowork_journal::hand::By) -> Result<(), Errno>;

fn make(
    call: &Call<'_>,
    (from, path): (i32, Vec<u8>),
    work: Work<'_>,
    kind: Kind<'_>,
) -> Result<Outcome, Errno> {
    let Where::At(place) = locate(call, from, &path, Last::Name)? else {
        return Ok(Outcome::Continue);
    };
    if place.ending != Ending::Name || place.seen()?.is_some() {
        return Err(Errno::EXIST);
    }
    if place.slash && kind != Kind::Folder {
        return Err(Errno::NOENT);
    }
    match kind {
        Kind::Link(target) => permit_link(call, &place, "create", Some(target))?,
        Kind::File | Kind::Folder => permit(call, &place, "create")?,
    }
    permit_type(call, &place)?;
    place.folder.growth.allow_name(&place.folder.ruling().rules.quota)?;
    with_mask(call, || call.act(&[&place], |hand, by| work(hand, &place, by)))?;
    place.folder.growth.count(1);
    Ok(Outcome::DONE)
}

/// `link(old, new)`.
pub(super) fn link(call: &Call<'_>) -> Result<Outcome, Errno> {
    add_name(call, (HERE, call.path(0)?), (HERE, call.path(1)?), 0)
}

/// `linkat(old folder, old, new folder, new, flags)`.
pub(super) fn linkat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let old = (call.descriptor(0), call.path(1)?);
    add_name(call, old, (call.descriptor(2), call.path(3)?), call.number(4))
}

fn add_name(
    call: &Call<'_>,
    (old_from, old): (i32, Vec<u8>),
    (new_from, new): (i32, Vec<u8>),
    flags: u32,
) -> Result<Outcome, Errno> {
    if flags & !(FOLLOW | EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    let last = if flags & FOLLOW == 0 { Last::Keep } else { Last::Follow };
    let source = if old.is_empty() && flags & EMPTY_PATH != 0 {
        of_file(call, call.base(old_from)?)?
    } else {
        locate(call, old_from, &old, last)?
    };
    let place = match (&source, locate(call, new_from, &new, Last::Name)?) {
        (Where::Outside, Where::At(_)) => return Err(Errno::XDEV),
        (_, Where::At(place)) => place,
        (Where::Outside, _) => return Ok(Outcome::Continue),
        (Where::At(_) | Where::Held(..), _) => return Err(Errno::XDEV),
    };
    if let Where::At(from) = &source {
        let is_folder = kind(&from.existing()?) == FileType::Directory;
        if is_folder || from.ending != Ending::Name {
            return Err(Errno::PERM);
        }
    }
    if place.ending != Ending::Name || place.seen()?.is_some() {
        return Err(Errno::EXIST);
    }
    if place.slash {
        return Err(Errno::NOENT);
    }
    permit(call, &place, "link")?;
    permit_type(call, &place)?;
    place.folder.growth.allow_name(&place.folder.ruling().rules.quota)?;
    match &source {
        Where::Outside => return Err(Errno::XDEV),
        Where::At(from) => link_name(call, from, &place)?,
        Where::Held(folder, file) => {
            if folder.number != place.folder.number {
                return Err(Errno::XDEV);
            }
            permit_contents(call, &place, || rustix::io::fcntl_dupfd_cloexec(file, 0).ok())?;
            let source = LinkSource::File(file.as_fd());
            call.act(&[&place], |hand, by| hand.add_name(by, source, place.spot()))?;
        }
    }
    place.folder.growth.count(1);
    Ok(Outcome::DONE)
}

fn link_name(call: &Call<'_>, from: &Place, to: &Place) -> Result<(), Errno> {
    if from.folder.number != to.folder.number {
        return Err(Errno::XDEV);
    }
    let stat = from.existing()?;
    permit(call, from, "link")?;
    permit_aliases(call, from, (&stat, "link"))?;
    if kind(&stat) == FileType::Symlink {
        permit_link(call, to, "link", None)?;
    }
    if kind(&stat) == FileType::RegularFile {
        permit_contents(call, to, || readable(from))?;
    }
    let source = LinkSource::Name(from.spot());
    call.act(&[from, to], |hand, by| {
        if call.files.names(&call.folders) != call.changes {
            still_is(from, &stat)?;
        }
        hand.add_name(by, source, to.spot())
    })
}

/// Says `ESTALE` if a name stands for something of another kind than was judged.
fn still_is(place: &Place, judged: &Stat) -> Result<(), Errno> {
    if kind(&place.existing()?) == kind(judged) { Ok(()) } else { Err(Errno::STALE) }
}

/// `rename(old, new)`.
pub(super) fn rename(call: &Call<'_>) -> Result<Outcome, Errno> {
    change_name(call, (HERE, call.path(0)?), (HERE, call.path(1)?), 0)
}

/// `renameat(old folder, old, new folder, new)`.
pub(super) fn renameat(call: &Call<'_>) -> Result<Outcome, Errno> {
    let old = (call.descriptor(0), call.path(1)?);
    change_name(call, old, (call.descriptor(2), call.path(3)?), 0)
}

/// `renameat2(old folder, old, new folder, new, flags)`.
pub(super) fn renameat2(call: &Call<'_>) -> Result<Outcome, Errno> {
    let old = (call.descriptor(0), call.path(1)?);
    change_name(call, old, (call.descriptor(2), call.path(3)?), call.number(4))
}

fn change_name(
    call: &Call<'_>,
    (old_from, old): (i32, Vec<u8>),
    (new_from, new): (i32, Vec<u8>),
    flags: u32,
) -> Result<Outcome, Errno> {
    if [&old, &new].iter().any(|path| matches!(super::paths::split(path).name, b"." | b"..")) {
        // The kernel refuses it wherever it is, before it looks at the mount.
        return Ok(Outcome::Continue);
    }
    let from = locate(call, old_from, &old, Last::Name)?;
    let to = locate(call, new_from, &new, Last::Name)?;
    let (from, to) = match (from, to) {
        (Where::At(from), Where::At(to)) => (from, to),
        (Where::Outside, Where::Outside) => return Ok(Outcome::Continue),
        _ => return Err(Errno::XDEV),
    };
    let flags = RenameFlags::from_bits_retain(flags);
    if flags.contains(RenameFlags::WHITEOUT) {
        return Err(Errno::PERM);
    }
    let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    if known.complement().intersects(flags) || flags == known {
        return Err(Errno::INVAL);
    }
    if from.folder.number != to.folder.number {
        return Err(Errno::XDEV);
    }
    if from.ending != Ending::Name || to.ending != Ending::Name {
        return Err(Errno::BUSY);
    }
    let (source, target) = (from.existing()?, to.seen()?);
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
        return Err(Errno::EXIST);
    }
    if exchange && target.is_none() {
        return Err(Errno::NOENT);
    }
    let is_folder = kind(&source) == FileType::Directory;
    let other_is = |is: &dyn Fn(&Stat) -> bool| target.as_ref().is_some_and(is);
    let slashes = if exchange {
        (from.slash && !is_folder) || (to.slash && !other_is(&|it| kind(it) == FileType::Directory))
    } else {
        (from.slash || to.slash) && !is_folder
    };
    if slashes {
        return Err(Errno::NOTDIR);
    }
    if from.folder.covers(&from.path) || to.folder.covers(&to.path) {
        return Err(Errno::BUSY);
    }
    move_over(call, (&from, &source), (&to, target.as_ref()), flags)
}

/// Judges and makes a change of a name.
fn move_over(
    call: &Call<'_>,
    (from, source): (&Place, &Stat),
    (to, target): (&Place, Option<&Stat>),
    flags: RenameFlags,
) -> Result<Outcome, Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let names = call.files.names(&call.folders);
    permit_move(call, from, to, source)?;
    match target {
        Some(target) if exchange => permit_move(call, to, from, target)?,
        Some(target) if kind(target) != FileType::Directory => {
            guard(call, to, "rename", Loss::Removed)?;
        }
        _ => {}
    }
    let is_folder = |stat: &Stat| kind(stat) == FileType::Directory;
    let moves_folder = is_folder(source) || (exchange && target.is_some_and(is_folder));
    call.act(&[from, to], |hand, by| {
        let now = call.files.names(&call.folders);
        // What they stand for was looked at when the call began.
        if now != call.changes {
            still_is(from, source)?;
            if let Some(target) = target.filter(|_| exchange) {
                still_is(to, target)?;
            }
        }
        if moves_folder && now != names {
            still_permits_tree(call, from, to)?;
            if exchange {
                still_permits_tree(call, to, from)?;
            }
        }
        let moved = hand.rename(by, from.spot(), to.spot(), flags);
        if moved.is_ok() && moves_folder {
            call.files.note_move(&from.folder);
        }
        moved
    })?;
    if target.is_some() && !exchange {
        from.folder.growth.count(-1);
    }
    Ok(Outcome::DONE)
}

/// Whether what is at `from` may be at `to`.
fn permit_move(call: &Call<'_>, from: &Place, to: &Place, what: &Stat) -> Result<(), Errno> {
    permit(call, from, "rename")?;
    permit(call, to, "rename")?;
    permit_type(call, to)?;
    match kind(what) {
        FileType::Directory => permit_tree(call, from, to),
        FileType::Symlink => permit_link(call, to, "rename", None),
        FileType::RegularFile => permit_contents(call, to, || readable(from)),
        _ => Ok(()),
    }
}

//! Whether a change is allowed: protected and refused names, guards, limits of what is saved.
//!
//! Judged before anything is done, and outside the lock of the hand: the user may have to be asked.
//! What is refused, by a rule or by the user, fails with `EACCES`, as a file would that belongs to
//! somebody else.

use super::call::Call;
use super::folders::{Folder, Ruling};
use super::line::Rule;
use super::locate::Place;
use super::paths::{below, join};
use super::tree::{Extent, visit};
use cowork_api::files::{Ask, Beyond, NamePolicy, Refusal};
use cowork_journal::hand::{Hand, Saving};
use cowork_policy::files::{Contents, MAGIC_BYTES, Verdict};
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::ops::ControlFlow;

/// Most names below a folder that are looked at when it is renamed; beyond, it is judged as if
/// anything could be there.
const MAX_TREE: usize = 20_000;
/// Most names that are looked at to find the other names of a file; beyond, the user is asked.
const MAX_ALIASES: usize = 50_000;

/// Whether a rule of the folder lets this name be changed.
pub(super) fn permit(call: &Call<'_>, place: &Place, operation: &str) -> Result<(), Errno> {
    let ruling = place.folder.ruling();
    settle(call, place, operation, ruling.judge.name(&place.path))
}

/// The same for a symbolic link that is made there, through which other names could be reached.
pub(super) fn permit_link(
    call: &Call<'_>,
    place: &Place,
    operation: &str,
    target: Option<&[u8]>,
) -> Result<(), Errno> {
    if target.is_some_and(|target| stays_protected(place, target)) {
        return permit(call, place, operation);
    }
    let ruling = place.folder.ruling();
    settle(call, place, operation, ruling.judge.link(&place.path))
}

/// Refuses a new name that stands for a type of files that is refused.
pub(super) fn permit_type(call: &Call<'_>, place: &Place) -> Result<(), Errno> {
    let ruling = place.folder.ruling();
    match ruling.judge.is_blocked_name(&place.path) {
        Some(reason) => refuse(call, place, "create", reason),
        None => Ok(()),
    }
}

/// Refuses a file whose contents are those of a type that is refused, under this name.
pub(super) fn permit_contents(
    call: &Call<'_>,
    place: &Place,
    file: impl FnOnce() -> Option<OwnedFd>,
) -> Result<(), Errno> {
    match contents_reason(&place.folder.ruling(), &place.path, file) {
        Some(reason) => refuse(call, place, "write", reason),
        None => Ok(()),
    }
}

/// Why a file with its contents is refused at a path, if it is.
fn contents_reason(
    ruling: &Ruling,
    path: &[u8],
    file: impl FnOnce() -> Option<OwnedFd>,
) -> Option<&'static str> {
    if !ruling.judge.looks_at_contents() {
        return None;
    }
    let file = file()?;
    let mut start = [0; MAGIC_BYTES];
    let read = |at, buffer: &mut [u8]| rustix::io::pread(&file, buffer, at).unwrap_or(0);
    let length = read(0, &mut start);
    // The end of a file that was read whole is known.
    let size = if length < MAGIC_BYTES { length as u64 } else { size_of(&file) };
    let start = start.get(..length).unwrap_or_default();
    ruling.judge.blocked_contents(path, &Contents::new(start, size, &read))
}

fn size_of(file: &OwnedFd) -> u64 {
    rustix::fs::fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

/// Refuses a change, and has it recorded.
fn refuse(call: &Call<'_>, place: &Place, operation: &str, reason: &str) -> Result<(), Errno> {
    let process = process_of(call)?;
    call.files.refused(Refusal {
        grant: place.folder.name.clone(),
        path: place.path.clone(),
        operation: operation.to_owned(),
        reason: reason.to_owned(),
        process,
    });
    Err(Errno::ACCESS)
}

/// What the calling program calls itself.
fn process_of(call: &Call<'_>) -> Result<String, Errno> {
    let name = std::fs::read(format!("/proc/{}/comm", call.note.thread));
    call.still_waits()?;
    Ok(String::from_utf8_lossy(&name.unwrap_or_default()).trim().to_owned())
}

/// Whether a link in a protected place leads to a place that is protected in the same way: then it
/// opens no way around the rule. Links that lead through `..` or from the top are not trusted to.
fn stays_protected(place: &Place, target: &[u8]) -> bool {
    let plain = !target.starts_with(b"/")
        && super::paths::components(target).all(|part| part != b"." && part != b"..");
    if !plain {
        return false;
    }
    let ruling = place.folder.ruling();
    let here = ruling.judge.link(&place.path);
    let there = join(super::paths::split(&place.path).folder, target);
    let there = ruling.judge.link(&there);
    here.policy >= NamePolicy::Ask && there.policy >= here.policy && there.rule == here.rule
}

/// The file at a place, for reading its beginning.
pub(super) fn readable(place: &Place) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(&*place.parent, &place.name, flags, Mode::empty()).ok()
}

/// Whether a rule lets a file be changed under any other name that it has in the folder. Names that
/// the session makes itself are judged when they are made; others may have been there before.
pub(super) fn permit_aliases(
    call: &Call<'_>,
    place: &Place,
    (stat, operation): (&Stat, &str),
) -> Result<(), Errno> {
    let ruling = place.folder.ruling();
    let strict = ruling.rules.names.iter().any(|rule| rule.policy >= NamePolicy::Ask);
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !strict || !is_file {
        return Ok(());
    }
    place.judged.set(Some((stat.st_dev, stat.st_ino)));
    if stat.st_nlink < 2 {
        return Ok(());
    }
    let by = call.by()?;
    if call.files.is_cleared((by.set, stat.st_dev, stat.st_ino)) {
        return Ok(());
    }
    let mut worst = Verdict::FREE;
    let mut left = stat.st_nlink;
    let extent = visit(&place.folder, b"", MAX_ALIASES, |entry| {
        if entry.inode == stat.st_ino {
            worst = stricter(worst, ruling.judge.name(entry.path));
            left = left.saturating_sub(1);
        }
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if extent == Extent::Cut && worst.policy < NamePolicy::Ask {
        let reason = "it has other names, and one of them may be protected";
        if ruling.rules.names.iter().any(|rule| rule.policy == NamePolicy::Deny) {
            return refuse(call, place, operation, reason);
        }
        ask(call, place, operation, ("aliases", reason))?;
    }
    settle(call, place, operation, worst)?;
    call.files.clear((by.set, stat.st_dev, stat.st_ino));
    Ok(())
}

/// What the rules say about everything below a folder when it gets another name.
pub(super) fn tree_verdict<'a>(ruling: &'a Ruling, from: &Place, to: &Place) -> Verdict<'a> {
    let judge = &ruling.judge;
    if !judge.may_cover(&from.path) && !judge.may_cover(&to.path) {
        return Verdict::FREE;
    }
    let mut worst = Verdict::FREE;
    let extent = visit(&from.folder, &from.path, MAX_TREE, |entry| {
        let rest = below(entry.path, &from.path).unwrap_or_default();
        let there = join(&to.path, rest);
        worst = stricter(worst, judge.name(entry.path));
        worst = stricter(worst, judge.name(&there));
        if entry.kind == FileType::Symlink {
            worst = stricter(worst, judge.link(&there));
        }
        ControlFlow::Continue(())
    });
    if extent != Ok(Extent::Whole) {
        worst = stricter(worst, stricter(judge.link(&from.path), judge.link(&to.path)));
    }
    worst
}

/// Why something below a folder that is renamed is of a type that is refused there, if it is. What
/// was no less refused where it was is left alone: it was the user's.
fn refused_below(ruling: &Ruling, from: &Place, to: &Place) -> Option<String> {
    let judge = &ruling.judge;
    if !judge.may_let_out(&from.path, &to.path) {
        return None;
    }
    let mut refused = None;
    let extent = visit(&from.folder, &from.path, MAX_TREE, |entry| {
        let there = join(&to.path, below(entry.path, &from.path).unwrap_or_default());
        if !judge.is_excepted(entry.path) || judge.is_excepted(&there) {
            return ControlFlow::Continue(());
        }
        let open = || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            from.folder.open_exactly(entry.path, flags).ok()
        };
        let is_file = entry.kind == FileType::RegularFile;
        let reason = judge.is_blocked_name(&there).map(str::to_owned).or_else(|| {
            let contents = is_file.then(|| contents_reason(ruling, &there, open))?;
            contents.map(str::to_owned)
        });
        let Some(reason) = reason else { return ControlFlow::Continue(()) };
        refused = Some(format!("`{}` is in it: {reason}", String::from_utf8_lossy(entry.path)));
        ControlFlow::Break(())
    });
    if refused.is_none() && extent != Ok(Extent::Whole) {
        return Some(format!("it has more than {MAX_TREE} names in it, or cannot be read"));
    }
    refused
}

/// Whether a folder may be renamed, with all that is below it.
pub(super) fn permit_tree(call: &Call<'_>, from: &Place, to: &Place) -> Result<(), Errno> {
    let ruling = from.folder.ruling();
    settle(call, to, "rename", tree_verdict(&ruling, from, to))?;
    match refused_below(&ruling, from, to) {
        Some(reason) => refuse(call, to, "rename", &reason),
        None => Ok(()),
    }
}

/// The same when the user was asked already, or needs not be: for another look while nothing can
/// change. `ESTALE` means that there is something to ask.
pub(super) fn still_permits_tree(call: &Call<'_>, from: &Place, to: &Place) -> Result<(), Errno> {
    let ruling = from.folder.ruling();
    if refused_below(&ruling, from, to).is_some() {
        return Err(Errno::ACCESS);
    }
    let verdict = tree_verdict(&ruling, from, to);
    match verdict.policy {
        NamePolicy::Allow | NamePolicy::Flag => Ok(()),
        NamePolicy::Deny => Err(Errno::ACCESS),
        NamePolicy::Ask => {
            let rule = key(call, &from.folder, &name_of_rule(&verdict))?;
            match call.files.line.known_answer(&rule) {
                Some(true) => Ok(()),
                Some(false) => Err(Errno::ACCESS),
                None => Err(Errno::STALE),
            }
        }
    }
}

fn stricter<'a>(one: Verdict<'a>, other: Verdict<'a>) -> Verdict<'a> {
    if other.policy > one.policy { other } else { one }
}

/// What is about to happen to contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// A file is opened for writing, or cut: nobody sees how much of it is lost.
    Written,
    /// A file loses its name.
    Removed,
}

/// So many files are few, whatever part of the folder they are.
const FEW: u32 = 20;

/// Asks, where the rules want it, before something is lost that was there before the set.
pub(super) fn guard(
    call: &Call<'_>,
    place: &Place,
    operation: &str,
    loss: Loss,
) -> Result<(), Errno> {
    let ruling = place.folder.ruling();
    let guards = ruling.rules.guards;
    let guarded = guards.removals.is_some() || guards.share.is_some();
    let beyond = ruling.rules.caps.beyond == Beyond::Ask;
    if !beyond && !guarded {
        return Ok(());
    }
    let by = call.by()?;
    if !beyond && loss == Loss::Written && call.files.losses.is_none() {
        // It is counted when it is opened. Below all limits it need not be looked at here.
        let removed = call.files.hand()?.tally(by.set).removed;
        let few = guards.share.is_none() || removed < FEW;
        if few && guards.removals.is_none_or(|most| removed < most) {
            return Ok(());
        }
    }
    let (saving, removed) = if let Some(removed) = call.files.unrecorded_losses(by.set) {
        // Without a record nothing is known but what the set has made or written to itself.
        let is_touched = call.files.hand()?.is_touched(by, place.spot())?;
        (if is_touched { Saving::Needless } else { Saving::Fits }, removed)
    } else {
        let hand = call.files.hand()?;
        (saving(&hand, call, place, loss)?, hand.tally(by.set).removed)
    };
    if saving == Saving::Needless {
        return Ok(());
    }
    if beyond && matches!(saving, Saving::Beyond(_)) {
        ask(call, place, operation, ("beyond", "it cannot be saved, so it could not be undone"))?;
    }
    if guards.removals.is_some_and(|most| removed >= most) {
        let reason = format!("this command has already removed or overwritten {removed} files");
        ask(call, place, operation, ("removals", &reason))?;
    }
    if let Some(share) = guards.share.filter(|share| *share > 0 && removed >= FEW) {
        let lost = u64::from(removed) + 1;
        // So many files there must have been that this is not beyond the share.
        let needed = lost.saturating_mul(100) / u64::from(share);
        if !has_more(call, &place.folder, by.set, needed.saturating_sub(lost))? {
            let reason = format!(
                "this command removes or overwrites more than {share} % of the folder's files"
            );
            ask(call, place, operation, ("share", &reason))?;
        }
    }
    call.files.count_loss(by.set);
    Ok(())
}

fn saving(hand: &Hand, call: &Call<'_>, place: &Place, loss: Loss) -> Result<Saving, Errno> {
    let by = call.by()?;
    match loss {
        Loss::Written => hand.saving(by, place.spot()),
        Loss::Removed => hand.saving_removal(by, place.spot()),
    }
}

/// Whether more than so many files are in the folder. What was counted once for a set is a lower
/// bound; it is counted again, twice as far, only when that no longer tells.
fn has_more(call: &Call<'_>, folder: &Folder, set: u32, files: u64) -> Result<bool, Errno> {
    /// Most that are counted: a folder with more has enough.
    const MOST: u64 = 200_000;
    if files >= MOST {
        return Ok(true);
    }
    let known = (set, folder.number);
    if call.files.counted(known).is_some_and(|counted| counted > files.saturating_mul(2)) {
        return Ok(true);
    }
    let until = files.saturating_mul(4).clamp(64, MOST);
    let mut counted = 0;
    let most = usize::try_from(until.saturating_mul(2)).unwrap_or(usize::MAX);
    let extent = visit(folder, b"", most, |entry| {
        counted += u64::from(entry.kind != FileType::Directory);
        if counted > until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    call.files.count(known, counted);
    Ok(counted > files || extent == Extent::Cut)
}

/// Does what a verdict says.
fn settle(
    call: &Call<'_>,
    place: &Place,
    operation: &str,
    verdict: Verdict<'_>,
) -> Result<(), Errno> {
    match verdict.policy {
        NamePolicy::Allow | NamePolicy::Flag => Ok(()),
        NamePolicy::Deny => {
            refuse(call, place, operation, verdict.reason.unwrap_or("its name is protected"))
        }
        NamePolicy::Ask => {
            let reason = verdict.reason.unwrap_or("its name is protected");
            ask(call, place, operation, (&name_of_rule(&verdict), reason))
        }
    }
}

fn name_of_rule(verdict: &Verdict<'_>) -> String {
    verdict.rule.map_or_else(|| "name".to_owned(), |number| format!("name {number}"))
}

fn key(call: &Call<'_>, folder: &Folder, rule: &str) -> Result<Rule, Errno> {
    Ok((call.by()?.set, folder.number, rule.to_owned()))
}

/// Asks the user, once for a set and a rule. `EACCES` if the answer is no.
fn ask(
    call: &Call<'_>,
    place: &Place,
    operation: &str,
    (rule, reason): (&str, &str),
) -> Result<(), Errno> {
    let rule = key(call, &place.folder, rule)?;
    let allowed = if let Some(allowed) = call.files.line.known_answer(&rule) {
        allowed
    } else {
        let process = process_of(call)?;
        let question = Ask {
            ask: 0,
            grant: place.folder.name.clone(),
            path: place.path.clone(),
            operation: operation.to_owned(),
            reason: reason.to_owned(),
            process,
        };
        call.files.line.ask(call, &rule, question)?
    };
    if allowed { Ok(()) } else { Err(Errno::ACCESS) }
}

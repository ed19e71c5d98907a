//! Races against whoever judges: what a call names is changed while the call is looked at.

use super::trials::{Shifting, Try, race, race_of_processes};
use super::{attack, on};
use crate::attack::Attack;
use crate::raw::{call, flags, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use std::ffi::CString;
use std::fs::{create_dir, remove_file, rename};
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const TABLE: &[Attack] = &[
    attack("race.path-outside-or-protected", |scene| path(scene, Elsewhere::Outside)).compared(),
    attack("race.path-allowed-or-protected", |scene| path(scene, Elsewhere::Allowed)).compared(),
    attack("race.truncate-path", truncated).compared(),
    attack("race.rename-target", rename_target).compared(),
    attack("race.link-outside", |scene| link(scene, Elsewhere::Outside)).compared(),
    attack("race.link-inside", |scene| link(scene, Elsewhere::Allowed)).compared(),
    attack("race.folder-of-links", link_folder).compared(),
    attack("race.folders-exchanged", exchanged).compared(),
    attack("race.descriptor-outside-or-protected", |scene| {
        descriptor(scene, (Elsewhere::Outside, Swapper::Thread))
    })
    .compared(),
    attack("race.descriptor-allowed-or-protected", |scene| {
        descriptor(scene, (Elsewhere::Allowed, Swapper::Thread))
    })
    .compared(),
    attack("race.shared-descriptor-outside-or-protected", |scene| {
        descriptor(scene, (Elsewhere::Outside, Swapper::Process))
    })
    .compared(),
    attack("race.shared-descriptor-allowed-or-protected", |scene| {
        descriptor(scene, (Elsewhere::Allowed, Swapper::Process))
    })
    .compared(),
    attack("race.descriptor-through-another-process", |scene| {
        descriptor(scene, (Elsewhere::Allowed, Swapper::Path))
    })
    .compared(),
    attack("race.working-directory", |scene| working_directory(scene, Swapper::Thread)).compared(),
    attack("race.shared-working-directory", |scene| working_directory(scene, Swapper::Process))
        .compared(),
    attack("race.directory-through-another-process", |scene| {
        working_directory(scene, Swapper::Path)
    })
    .compared(),
    attack("race.created-while-renamed", |scene| becomes_git(scene, Put::File)).compared(),
    attack("race.moved-in-while-renamed", |scene| becomes_git(scene, Put::Moved)).compared(),
    attack("race.linked-while-renamed", |scene| becomes_git(scene, Put::Link)).compared(),
    attack("race.replaced-while-renamed", replaced).compared(),
    attack("race.created-while-another-session-renames", |scene| two_sessions(scene, Put::File))
        .with_partner()
        .compared(),
    attack("race.moved-in-while-another-session-renames", |scene| two_sessions(scene, Put::Moved))
        .with_partner()
        .compared(),
    attack("race.linked-while-another-session-renames", |scene| two_sessions(scene, Put::Link))
        .with_partner()
        .compared(),
    attack("race.replaced-while-another-session-renames", two_sessions_replace)
        .with_partner()
        .compared(),
];

/// What a call may name beside the protected file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    Outside,
    Allowed,
}

/// Who swaps what is shared with the process that calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swapper {
    /// A thread of it.
    Thread,
    /// Another process.
    Process,
    /// Another process, by whose number the path begins.
    Path,
}

const WRITES: i32 = libc::O_WRONLY | libc::O_CLOEXEC;

fn absolute(scene: &Scene, name: &str) -> Result<String, Lost> {
    Ok(std::env::current_dir()?.join(on(scene, name)?).display().to_string())
}

/// A folder outside every granted one, which the session may write to.
fn scratch(scene: &Scene) -> Result<String, Lost> {
    let path = format!("/tmp/race-{}", scene.token()?);
    std::fs::create_dir_all(&path)?;
    std::fs::write(format!("{path}/canary"), "")?;
    Ok(path)
}

/// The file whose number an attempt must have opened to have won, and what is written to it.
struct Prize {
    inode: u64,
    token: String,
}

impl Prize {
    fn of(scene: &Scene) -> Result<Self, Lost> {
        let inode = std::fs::metadata(on(scene, "protected/canary")?)?.ino();
        Ok(Self { inode, token: scene.token()?.to_owned() })
    }

    fn judge(&self, opened: Result<OwnedFd, std::io::Error>) -> Try {
        match opened {
            Err(error) => Try::refused(&error),
            Ok(file) => match rustix::fs::fstat(&file) {
                Ok(stat) if stat.st_ino == self.inode => {
                    cowork_sys::ignore(rustix::io::write(&file, self.token.as_bytes()));
                    Try::Won
                }
                _ => Try::Lost,
            },
        }
    }
}

fn open_at(folder: usize, path: usize) -> Result<OwnedFd, std::io::Error> {
    open_by(libc::SYS_openat, &[folder, path, flags(WRITES), 0])
}

fn ended(scratch: &str, came: Outcome) -> Outcome {
    cowork_sys::ignore(std::fs::remove_dir_all(scratch));
    came
}

fn path(scene: &Scene, elsewhere: Elsewhere) -> Outcome {
    let scratch = scratch(scene)?;
    let prize = Prize::of(scene)?;
    let other = match elsewhere {
        Elsewhere::Outside => format!("{scratch}/canary"),
        Elsewhere::Allowed => absolute(scene, "free/file")?,
    };
    let path = Shifting::new(&other, &absolute(scene, "protected/canary")?);
    let here = signed(libc::AT_FDCWD);
    let attempt = || prize.judge(open_at(here, path.address()));
    ended(&scratch, race(scene, path.shifter(), attempt))
}

fn truncated(scene: &Scene) -> Outcome {
    let scratch = scratch(scene)?;
    let protected = absolute(scene, "protected/canary")?;
    let path = Shifting::new(&format!("{scratch}/canary"), &protected);
    let attempt = || match call(libc::SYS_truncate, &[path.address(), 1]) {
        Err(error) => Try::refused(&error),
        Ok(_) if std::fs::metadata(&protected).is_ok_and(|about| about.len() == 1) => Try::Won,
        Ok(_) => Try::Lost,
    };
    ended(&scratch, race(scene, path.shifter(), attempt))
}

fn rename_target(scene: &Scene) -> Outcome {
    let (from, allowed) = (absolute(scene, "free/file")?, absolute(scene, "free/new")?);
    let protected = absolute(scene, "protected/new")?;
    let path = Shifting::new(&allowed, &protected);
    let source = text(&from)?;
    let mut first = true;
    race(scene, path.shifter(), || {
        if !first {
            cowork_sys::ignore(rename(&allowed, &from));
        }
        first = false;
        let result = call(libc::SYS_rename, &[of(&source), path.address()]);
        match result {
            Err(error) => Try::refused(&error),
            Ok(_) if std::fs::metadata(&protected).is_ok() => Try::WonForGood,
            Ok(_) => Try::Lost,
        }
    })
}

/// A link that says one thing and then another.
fn link(scene: &Scene, elsewhere: Elsewhere) -> Outcome {
    let scratch = scratch(scene)?;
    let prize = Prize::of(scene)?;
    let (folder, other) = match elsewhere {
        Elsewhere::Outside => (scratch.clone(), format!("{scratch}/canary")),
        Elsewhere::Allowed => (absolute(scene, "free")?, absolute(scene, "free/file")?),
    };
    let protected = absolute(scene, "protected/canary")?;
    let name = format!("{folder}/link");
    let path = text(&name)?;
    let swap = move || {
        for target in [&other, &protected] {
            let fresh = format!("{name}-fresh");
            cowork_sys::ignore(symlink(target, &fresh));
            cowork_sys::ignore(rename(&fresh, &name));
        }
    };
    let here = signed(libc::AT_FDCWD);
    ended(&scratch, race(scene, swap, || prize.judge(open_at(here, of(&path)))))
}

/// A link on the way, from a folder outside to the one with the canary.
fn link_folder(scene: &Scene) -> Outcome {
    let scratch = scratch(scene)?;
    let prize = Prize::of(scene)?;
    let protected = absolute(scene, "protected")?;
    let (one, other) = (format!("{scratch}/one"), format!("{scratch}/other"));
    symlink(&scratch, &one)?;
    symlink(&protected, &other)?;
    let path = text(&format!("{one}/canary"))?;
    let swap =
        move || cowork_sys::ignore(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE));
    let here = signed(libc::AT_FDCWD);
    ended(&scratch, race(scene, swap, || prize.judge(open_at(here, of(&path)))))
}

/// Two folders of the granted one change places while one of them is walked through.
fn exchanged(scene: &Scene) -> Outcome {
    let prize = Prize::of(scene)?;
    let (one, other) = (absolute(scene, "free/one")?, absolute(scene, "free/two")?);
    let protected = absolute(scene, "protected")?;
    for folder in [&one, &other] {
        create_dir(folder)?;
        std::fs::write(format!("{folder}/canary"), "")?;
    }
    let path = text(&format!("{one}/canary"))?;
    let swap = move || {
        for with in [&other, &protected] {
            let exchange = || renameat_with(CWD, &one, CWD, with, RenameFlags::EXCHANGE);
            cowork_sys::ignore(exchange().and_then(|()| exchange()));
        }
    };
    let here = signed(libc::AT_FDCWD);
    race(scene, swap, || prize.judge(open_at(here, of(&path))))
}

/// The descriptor that a path starts from is replaced by a thread or process that shares all of them.
fn descriptor(scene: &Scene, (elsewhere, swapper): (Elsewhere, Swapper)) -> Outcome {
    let scratch = scratch(scene)?;
    let prize = Prize::of(scene)?;
    let other = match elsewhere {
        Elsewhere::Outside => scratch.clone(),
        Elsewhere::Allowed => {
            let folder = absolute(scene, "free/one")?;
            create_dir(&folder)?;
            std::fs::write(format!("{folder}/canary"), "")?;
            folder
        }
    };
    let folder = |path: &str| rustix::fs::open(path, OFlags::DIRECTORY, Mode::empty());
    let (protected, other) = (folder(&absolute(scene, "protected")?)?, folder(&other)?);
    let base = rustix::io::dup(&other)?;
    let number = signed(base.as_raw_fd());
    let swap = move || {
        for with in [&protected, &other] {
            cowork_sys::ignore(call(libc::SYS_dup3, &[signed(with.as_raw_fd()), number, 0]));
        }
    };
    let came = swapped(scene, (swapper, swap), |process| match process {
        None => prize.judge(open_at(number, of(c"canary"))),
        Some(process) => prize.judge(open_through(process, &format!("fd/{}", base.as_raw_fd()))),
    });
    ended(&scratch, came)
}

/// Opens the canary in what a process has.
fn open_through(process: usize, what: &str) -> Result<OwnedFd, std::io::Error> {
    let path = CString::new(format!("/proc/{process}/{what}/canary"))?;
    open_at(signed(libc::AT_FDCWD), of(&path))
}

/// A race against whoever swaps; `attempt` is told by whose number the path begins.
fn swapped(
    scene: &Scene,
    (swapper, swap): (Swapper, impl FnMut() + Send),
    mut attempt: impl FnMut(Option<usize>) -> Try,
) -> Outcome {
    match swapper {
        Swapper::Thread => race(scene, swap, || attempt(None)),
        Swapper::Process => race_of_processes(scene, swap, |_| attempt(None)),
        Swapper::Path => race_of_processes(scene, swap, |process| attempt(Some(process))),
    }
}

/// The working directory is changed by a thread or process that shares it.
fn working_directory(scene: &Scene, swapper: Swapper) -> Outcome {
    let scratch = scratch(scene)?;
    let prize = Prize::of(scene)?;
    let (outside, protected) = (text(&scratch)?, text(&absolute(scene, "protected")?)?);
    let swap = move || {
        for folder in [&outside, &protected] {
            cowork_sys::ignore(call(libc::SYS_chdir, &[of(folder)]));
        }
    };
    let here = signed(libc::AT_FDCWD);
    let came = swapped(scene, (swapper, swap), |process| match process {
        None => prize.judge(open_at(here, of(c"canary"))),
        Some(process) => prize.judge(open_through(process, "cwd")),
    });
    ended(&scratch, came)
}

/// What is put into a folder while it gets a name that makes it a hook.
#[derive(Clone, Copy)]
enum Put {
    File,
    Moved,
    Link,
}

/// An empty folder may be called `.git`, and a file may be put into one that is not: both at once.
fn becomes_git(scene: &Scene, what: Put) -> Outcome {
    let (stage, git) = (absolute(scene, "nested/stage")?, absolute(scene, "nested/.git")?);
    let (spare, evil) = (absolute(scene, "free/spare")?, absolute(scene, "nested/evil")?);
    create_dir(&stage)?;
    create_dir(&evil)?;
    std::fs::write(format!("{evil}/pre-commit"), scene.token()?)?;
    if !matches!(what, Put::Link) {
        create_dir(format!("{stage}/hooks"))?;
    }
    let won = AtomicBool::new(false);
    let swap = || {
        cowork_sys::ignore(rename(&stage, &git));
        std::thread::yield_now();
        if !won.load(Ordering::SeqCst) {
            cowork_sys::ignore(rename(&git, &stage));
        }
    };
    let token = scene.token()?;
    let hook = format!("{git}/hooks/pre-commit");
    let came = race(scene, swap, || {
        let result = put_in(what, (&spare, &stage), token);
        // While it is looked for, the folder may get the name.
        let seen = || std::fs::read(&hook).is_ok_and(|bytes| bytes == token.as_bytes());
        if result.is_ok() && (0..20).any(|_| seen()) {
            won.store(true, Ordering::SeqCst);
            return Try::WonForGood;
        }
        for folder in [&stage, &git] {
            let name = if matches!(what, Put::Link) { "hooks" } else { "hooks/pre-commit" };
            cowork_sys::ignore(remove_file(format!("{folder}/{name}")));
        }
        match result {
            Err(error) => Try::refused(&error),
            Ok(()) => Try::Lost,
        }
    });
    // Whoever won leaves it so, if that is allowed.
    if came.is_ok() {
        cowork_sys::ignore(rename(&stage, &git));
    }
    came
}

/// Puts something into a folder, under the name that makes it a hook once the folder is `.git`.
fn put_in(what: Put, (spare, folder): (&str, &str), token: &str) -> std::io::Result<()> {
    match what {
        Put::File => std::fs::write(format!("{folder}/hooks/pre-commit"), token),
        Put::Moved => std::fs::write(spare, token)
            .and_then(|()| rename(spare, format!("{folder}/hooks/pre-commit"))),
        Put::Link => symlink("../evil", format!("{folder}/hooks")),
    }
}

/// The same by two sessions that have the same folder: one puts something into it, the other calls it
/// `.git`.
fn two_sessions(scene: &Scene, what: Put) -> Outcome {
    let (stage, git) = (absolute(scene, "nested/stage")?, absolute(scene, "nested/.git")?);
    let (spare, evil) = (absolute(scene, "free/spare")?, absolute(scene, "nested/evil")?);
    if is_partner(scene) {
        let hook = format!("{git}/hooks/pre-commit");
        return keep_on(scene, || {
            cowork_sys::ignore(rename(&stage, &git));
            // What has won stays.
            if std::fs::metadata(&hook).is_err() {
                cowork_sys::ignore(rename(&git, &stage));
            }
        });
    }
    let token = scene.token()?;
    create_dir(&evil)?;
    std::fs::write(format!("{evil}/pre-commit"), token)?;
    // It appears whole: the partner takes it at once.
    let whole = absolute(scene, "nested/whole")?;
    create_dir(&whole)?;
    if !matches!(what, Put::Link) {
        create_dir(format!("{whole}/hooks"))?;
    }
    rename(&whole, &stage)?;
    await_partner(&git)?;
    let hook = format!("{git}/hooks/pre-commit");
    let came = race(scene, std::thread::yield_now, || {
        let result = put_in(what, (&spare, &stage), token);
        let seen = || std::fs::read(&hook).is_ok_and(|bytes| bytes == token.as_bytes());
        if result.is_ok() && (0..20).any(|_| seen()) {
            return Try::WonForGood;
        }
        let name = if matches!(what, Put::Link) { "hooks" } else { "hooks/pre-commit" };
        for folder in [&stage, &git] {
            cowork_sys::ignore(remove_file(format!("{folder}/{name}")));
        }
        result.map_or_else(|error| Try::refused(&error), |()| Try::Lost)
    });
    over(scene, came, (&stage, &git))
}

/// What is a plain file when it is judged may be called `.git`; a folder with a hook in it may not. Both
/// change places meanwhile.
fn replaced(scene: &Scene) -> Outcome {
    let (plain, full) = files_and_folders(scene)?;
    let swap = || cowork_sys::ignore(renameat_with(CWD, &plain, CWD, &full, RenameFlags::EXCHANGE));
    let came = race(scene, swap, || call_git(scene, &plain));
    settled(scene, came, &plain)
}

/// The same by two sessions that have the same folder.
fn two_sessions_replace(scene: &Scene) -> Outcome {
    if is_partner(scene) {
        let (plain, full) = (absolute(scene, "nested/plain")?, absolute(scene, "nested/full")?);
        return keep_on(scene, || {
            cowork_sys::ignore(renameat_with(CWD, &plain, CWD, &full, RenameFlags::EXCHANGE));
        });
    }
    let (plain, _) = files_and_folders(scene)?;
    let begin = std::time::Instant::now();
    while !std::fs::metadata(&plain)?.is_dir() && begin.elapsed() < PARTNER {
        std::hint::spin_loop();
    }
    let came = race(scene, std::thread::yield_now, || call_git(scene, &plain));
    std::fs::write(absolute(scene, "free/over")?, "")?;
    settled(scene, came, &plain)
}

/// Two names that change places: a plain file, and a folder with a hook in it.
fn files_and_folders(scene: &Scene) -> Result<(String, String), Lost> {
    let (plain, full) = (absolute(scene, "nested/plain")?, absolute(scene, "nested/full")?);
    std::fs::create_dir_all(format!("{full}/hooks"))?;
    std::fs::write(format!("{full}/hooks/pre-commit"), scene.token()?)?;
    std::fs::write(&plain, "")?;
    Ok((plain, full))
}

/// Calls it `.git`, and gives the name back if it was the wrong one.
fn call_git(scene: &Scene, plain: &str) -> Try {
    let Ok(git) = absolute(scene, "nested/.git") else { return Try::Lost };
    match rename(plain, &git) {
        Err(error) => Try::refused(&error),
        Ok(()) if std::fs::metadata(format!("{git}/hooks/pre-commit")).is_ok() => Try::WonForGood,
        Ok(()) => {
            cowork_sys::ignore(rename(&git, plain));
            Try::Lost
        }
    }
}

/// Whoever won leaves it so, if that is allowed; whoever did not has what is judged under its name.
fn settled(scene: &Scene, came: Outcome, plain: &str) -> Outcome {
    if came.is_err() {
        cowork_sys::ignore(rename(absolute(scene, "nested/.git")?, plain));
    }
    came
}

/// How long is waited for the partner.
const PARTNER: std::time::Duration = std::time::Duration::from_secs(10);

fn is_partner(scene: &Scene) -> bool {
    scene.get("partner").is_ok()
}

/// The partner's part, at full speed until it is over.
fn keep_on(scene: &Scene, mut work: impl FnMut()) -> Outcome {
    let over = absolute(scene, "free/over")?;
    while std::fs::metadata(&over).is_err() {
        work();
    }
    Err(Lost::new("the partner is done"))
}

/// Waits until the partner has called it `.git` for the first time.
fn await_partner(git: &str) -> Result<(), Lost> {
    let begin = std::time::Instant::now();
    while std::fs::metadata(git).is_err() {
        if begin.elapsed() > PARTNER {
            return Err(Lost::new("the partner does not rename"));
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// Has the partner stop. Whoever won leaves it so, if that is allowed.
fn over(scene: &Scene, came: Outcome, (stage, git): (&str, &str)) -> Outcome {
    std::fs::write(absolute(scene, "free/over")?, "")?;
    if came.is_ok() {
        // The partner may have the last rename before it sees that it is over.
        for _ in 0..20 {
            cowork_sys::ignore(rename(stage, git));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    came
}

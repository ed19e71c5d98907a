//! A staged folder: nothing reaches the real one before it is applied, and then nothing that was not
//! listed, and nothing beside the folder.
//!
//! Every run has a ground of its own in the folder, and a canary beside it that a link of the ground
//! leads to. Bare, there is no layer, and every attack wins by what it changes. In a session the host
//! looks at the ground afterwards, has the changes listed and applied, and looks again.

use crate::attack::Attack;
use crate::raw::{call, flags, number, of, signed, text};
use crate::scene::{CANARY, Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use crate::ways::said_by;
use rustix::fd::AsRawFd;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
use std::fs::{File, create_dir, hard_link, remove_dir_all, remove_file, rename, write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The staged folder.
const PORCH: &str = "mnt/porch";
/// What an attack says that has done all that it can.
const DONE: &str = "done";

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(
        "staged",
        name,
        act,
        &[(DONE, "changes stay beside the folder until they are applied")],
    )
    .folders(&[("--grant", "mnt/porch:staged=porch")])
    .prepared(prepare)
    .afterwards(applied)
    .judged(changed)
}

pub(crate) const TABLE: &[Attack] = &[
    attack("staged.written", |scene| put(scene, "kept/canary")),
    attack("staged.mapped", mapped),
    attack("staged.opened-again", opened_again),
    attack("staged.hard-link", linked),
    attack("staged.length", cut),
    attack("staged.removed", |scene| done(remove_file(on(scene, "kept/canary")?))),
    attack("staged.renamed", renamed),
    attack("staged.whiteouts", whiteouts),
    attack("staged.opaque", opaque),
    attack("staged.redirect", redirect),
    attack("staged.metacopy", metacopy),
    attack("staged.link-over-folder", link_over_folder),
    attack("staged.folder-over-link", folder_over_link),
];

fn on(scene: &Scene, name: &str) -> Result<String, Lost> {
    Ok(format!("{PORCH}/ground-{}/{name}", scene.token()?))
}

fn done<E>(result: Result<(), E>) -> Outcome
where
    Lost: From<E>,
{
    result?;
    Ok(DONE.to_owned())
}

fn put(scene: &Scene, name: &str) -> Outcome {
    done(write(on(scene, name)?, scene.token()?))
}

fn mapped(scene: &Scene) -> Outcome {
    let file = File::options().read(true).write(true).open(on(scene, "kept/canary")?)?;
    let protection = flags(libc::PROT_READ | libc::PROT_WRITE);
    let registers = [0, 4096, protection, flags(libc::MAP_SHARED), signed(file.as_raw_fd()), 0];
    let address = call(libc::SYS_mmap, &registers)?;
    let own = File::options().read(true).write(true).open("/proc/self/mem")?;
    own.write_all_at(scene.token()?.as_bytes(), address as u64)?;
    call(libc::SYS_msync, &[address, 4096, flags(libc::MS_SYNC)])?;
    Ok(DONE.to_owned())
}

/// A descriptor that was opened for reading is of the real file.
fn opened_again(scene: &Scene) -> Outcome {
    let file = File::open(on(scene, "kept/canary")?)?;
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    cowork_sys::ignore(file.set_permissions(PermissionsExt::from_mode(0o666)));
    done(write(again, scene.token()?))
}

fn linked(scene: &Scene) -> Outcome {
    hard_link(on(scene, "kept/canary")?, on(scene, "second")?)?;
    put(scene, "second")
}

/// A folder, or where the layer cannot do that, what is in it.
fn renamed(scene: &Scene) -> Outcome {
    let (from, to) = (on(scene, "kept")?, on(scene, "elsewhere")?);
    if rename(&from, &to).is_err() {
        create_dir(&to)?;
        rename(format!("{from}/canary"), format!("{to}/canary"))?;
    }
    Ok(DONE.to_owned())
}

fn cut(scene: &Scene) -> Outcome {
    let path = text(&on(scene, "kept/canary")?)?;
    call(libc::SYS_truncate, &[of(&path), 1])?;
    Ok(DONE.to_owned())
}

/// Sets what an overlay remembers about a file, under every name that it may have. As far as that is
/// allowed: on the bare host it means nothing.
fn mark(path: &str, what: &str, value: &[u8]) {
    for space in ["user", "trusted", "user.overlay", "trusted.overlay"] {
        let name = format!("{space}.overlay.{what}");
        cowork_sys::ignore(setxattr(path, name, value, XattrFlags::empty()));
    }
}

/// Names that say that something is removed, as an overlay has them.
fn whiteouts(scene: &Scene) -> Outcome {
    let device = on(scene, "kept/canary")?;
    remove_file(&device)?;
    let kind = FileType::CharacterDevice;
    cowork_sys::ignore(mknodat(CWD, &*device, kind, Mode::empty(), makedev(0, 0)));
    let other = on(scene, "kept/other")?;
    remove_file(&other)?;
    File::create(&other)?;
    mark(&on(scene, "kept")?, "opaque", b"x");
    mark(&other, "whiteout", b"y");
    // The kernel makes one itself.
    let (from, to) = (text(&on(scene, "file")?)?, text(&on(scene, "moved")?)?);
    let here = signed(libc::AT_FDCWD);
    let whiteout = flags(libc::RENAME_WHITEOUT as i32);
    cowork_sys::ignore(call(number("renameat2"), &[here, of(&from), here, of(&to), whiteout]));
    Ok(DONE.to_owned())
}

fn opaque(scene: &Scene) -> Outcome {
    put(scene, "kept/new")?;
    mark(&on(scene, "kept")?, "opaque", b"y");
    Ok(DONE.to_owned())
}

/// A folder and a link to it that say that what is in them lies elsewhere below.
fn redirect(scene: &Scene) -> Outcome {
    let outside = scene.outside(&format!("beside-{}", scene.token()?))?;
    for (name, place) in [("up", "/../../../outside"), ("away", &*outside), ("near", "/kept")] {
        let folder = on(scene, name)?;
        create_dir(&folder)?;
        mark(&folder, "redirect", place.as_bytes());
        mark(&folder, "origin", b"");
        put(scene, &format!("{name}/canary"))?;
    }
    mark(&on(scene, "kept")?, "redirect", outside.as_bytes());
    put(scene, "kept/canary")
}

/// A file that says that its contents are another's.
fn metacopy(scene: &Scene) -> Outcome {
    put(scene, "kept/copy")?;
    let outside = scene.outside(&format!("beside-{}/canary", scene.token()?))?;
    for name in ["kept/copy", "kept/other"] {
        mark(&on(scene, name)?, "redirect", outside.as_bytes());
        mark(&on(scene, name)?, "metacopy", b"");
    }
    Ok(DONE.to_owned())
}

/// A link out of the folder takes the place of a folder, and is written through.
fn link_over_folder(scene: &Scene) -> Outcome {
    let folder = on(scene, "kept")?;
    remove_dir_all(&folder)?;
    symlink(scene.outside(&format!("beside-{}", scene.token()?))?, &folder)?;
    cowork_sys::ignore(put(scene, "kept/canary"));
    Ok(DONE.to_owned())
}

/// What is behind a link out of the folder is written; or a folder takes its place, in which there is
/// the same.
fn folder_over_link(scene: &Scene) -> Outcome {
    if put(scene, "link/canary").is_err() {
        remove_file(on(scene, "link")?)?;
        create_dir(on(scene, "link")?)?;
        put(scene, "link/canary")?;
    }
    Ok(DONE.to_owned())
}

fn ground(stage: &Stage, token: &str) -> PathBuf {
    stage.path(PORCH).join(format!("ground-{token}"))
}

fn beside(stage: &Stage, token: &str) -> PathBuf {
    stage.path("outside").join(format!("beside-{token}"))
}

fn prepare(stage: &Stage, token: &str) -> Result<(), Lost> {
    let (ground, beside) = (ground(stage, token), beside(stage, token));
    let inside = ["kept/canary", "kept/other", "file"].map(|name| ground.join(name));
    for path in inside.into_iter().chain([beside.join("canary")]) {
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        write(&path, CANARY)?;
        stage.own_parents(&path)?;
    }
    let link = ground.join("link");
    symlink(&beside, &link)?;
    stage.own_parents(&link)
}

/// What differs from what was prepared, each name with what is there.
fn differences(stage: &Stage, token: &str) -> Vec<(PathBuf, String)> {
    let top = ground(stage, token);
    let link = format!("link to {}", beside(stage, token).display());
    let prepared = [
        ("file", CANARY),
        ("kept", "folder"),
        ("kept/canary", CANARY),
        ("kept/other", CANARY),
        ("link", &*link),
    ];
    let prepared = prepared.map(|(name, what)| (top.join(name), what.to_owned()));
    let mut now = Vec::new();
    walk(&top, &mut now);
    let changed = now.iter().filter(|line| !prepared.contains(line)).cloned();
    let is_gone = |path: &Path| now.iter().all(|(name, _)| name != path);
    let gone = prepared.iter().filter(|(name, _)| is_gone(name));
    changed.chain(gone.map(|(name, _)| (name.clone(), "nothing".to_owned()))).collect()
}

fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let what = match entry.file_type() {
            Ok(kind) if kind.is_dir() => "folder".to_owned(),
            Ok(kind) if kind.is_symlink() => {
                let target = std::fs::read_link(&path).unwrap_or_default();
                format!("link to {}", target.display())
            }
            Ok(kind) if kind.is_file() => {
                String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned()
            }
            _ => "something else".to_owned(),
        };
        let is_folder = what == "folder";
        found.push((path.clone(), what));
        if is_folder {
            walk(&path, found);
        }
    }
}

/// What was changed beside the folder.
fn changed_beside(stage: &Stage, token: &str) -> Option<String> {
    let mut now = Vec::new();
    walk(&beside(stage, token), &mut now);
    let expected = (beside(stage, token).join("canary"), CANARY.to_owned());
    (now != [expected]).then(|| format!("beside the folder there is {now:?}"))
}

/// Has everything listed and applied. What came into the folder before, or without having been
/// listed, and what came elsewhere.
fn applied(stage: &Stage, token: &str, session: &str) -> Result<Vec<String>, Lost> {
    let early = differences(stage, token).into_iter();
    let mut wrong: Vec<String> = early
        .map(|(path, _)| format!("{} changed before it was applied", path.display()))
        .collect();
    let listed = said_by(stage.person.cowork().args(["changes", session]))?;
    // One name alone first, with whatever is above it.
    let alone = ground(stage, token).join("link/canary");
    let apply = |path: Option<&Path>| {
        let mut command = stage.person.cowork();
        command.args(["apply", "--theirs", session]).args(path);
        cowork_sys::ignore(said_by(&mut command));
    };
    apply(Some(&alone));
    wrong.extend(changed_beside(stage, token));
    apply(None);
    wrong.extend(changed_beside(stage, token));
    let now = differences(stage, token);
    for (path, what) in &now {
        let name = path.display().to_string();
        // A folder ends in a slash there.
        let is_it = |word: &str| word.trim_end_matches('/') == name;
        if !listed.split_whitespace().any(is_it) {
            wrong.push(format!("{name} was not listed and is {what:?} now; listed: {listed:?}"));
        }
    }
    if now.is_empty() && !listed.is_empty() {
        return Err(Lost::new(format!("nothing of this was applied: {listed}")));
    }
    Ok(wrong)
}

fn changed(stage: &Stage, shot: &Shot) -> Option<String> {
    if let Some(wrong) = &shot.afterwards {
        return wrong.first().cloned();
    }
    let first = differences(stage, &shot.token).into_iter().next();
    let inside = first.map(|(path, what)| format!("`{}` is {what:?}", path.display()));
    inside.or_else(|| changed_beside(stage, &shot.token))
}

//! Planted links, hard links, and the two kinds of granted folder.

use crate::attack::{Attack, Permitted, layer};
use crate::raw::{call, flags, of, signed, text};
use crate::scene::{LOCKED, Lost, Outcome, Scene, YARD, read_canary};
use crate::stage::{Shot, Stage};
use rustix::fd::AsRawFd;

const GONE: &[(&str, &str)] = &[("ENOENT", layer::MOUNTS), ("EACCES", layer::LANDLOCK)];
const APART: &[(&str, &str)] = &[
    ("EXDEV", layer::TWO_MOUNTS),
    ("EROFS", layer::READ_ONLY),
    ("EACCES", layer::LANDLOCK),
    ("ENOENT", layer::NO_PRIVILEGE),
];

const NOT_FOLLOWED: &[(&str, &str)] = &[
    ("exit 125: cowork: cannot mount", "set-up follows no link"),
    ("exit 125: cowork: cannot make a session", "set-up ends, and its reason is lost"),
];

pub(crate) const TABLE: &[Attack] = &[
    Attack::new("set-up", "link.absolute", read_planted, GONE).word("absolute"),
    Attack::new("set-up", "link.upwards", read_planted, GONE).word("upwards"),
    Attack::new("set-up", "link.far-upwards", read_planted, GONE).word("far-upwards"),
    Attack::new("set-up", "link.through-proc-root", read_planted, GONE).word("proc-root"),
    Attack::new("set-up", "link.through-proc-cwd", read_planted, GONE).word("proc-cwd"),
    Attack::new("set-up", "link.through-proc-1-root", read_planted, GONE)
        .word("first-root")
        .as_root()
        .on_some_hosts("the supervisor keeps PID 1 from being traced"),
    Attack::new("set-up", "link.named-mnt", write_planted, GONE).word("mnt").judged(made_outside),
    Attack::new("set-up", "link.named-outputs", write_planted, GONE)
        .word("outputs")
        .judged(made_outside),
    Attack::new("set-up", "link.named-sessions", write_planted, GONE)
        .word("sessions")
        .judged(made_outside),
    Attack::new("set-up", "link.named-proc", write_planted, GONE).word("proc").judged(made_outside),
    Attack::new("set-up", "home.mnt-is-a-link", write_in_home, NOT_FOLLOWED)
        .word("home-mnt/mnt/made")
        .folders(&[("--home", "home-mnt")])
        .judged(made_outside),
    Attack::new("set-up", "home.mnt-is-a-link-upwards", write_in_home, NOT_FOLLOWED)
        .word("home-up/mnt")
        .folders(&[("--home", "home-up")])
        .judged(made_outside),
    Attack::new("set-up", "leftover-roots", leftover_roots, GONE),
    Attack::new("set-up", "leftover-roots-by-link", leftover_roots_by_link, GONE),
    Attack::new(
        "folders",
        "write-read-only-folder",
        write_locked,
        &[("EROFS", layer::READ_ONLY), ("EACCES", layer::LANDLOCK)],
    )
    .judged(written_in_locked),
    Attack::new(
        "folders",
        "chmod-in-read-only-folder",
        chmod_locked,
        &[("EROFS", layer::READ_ONLY)],
    )
    .judged(mode_in_locked),
    Attack::new(
        "folders",
        "write-beside-the-folders",
        write_mnt,
        &[("EROFS", layer::READ_ONLY), ("EACCES", layer::LANDLOCK)],
    )
    .judged(written_in_mnt),
    Attack::new("hard links", "link-of-outside-file", link_outside, APART).judged(linked),
    Attack::new("hard links", "link-of-system-file", link_system, APART).as_root().judged(linked),
    Attack::new("hard links", "link-between-folders", link_between, APART).judged(linked),
    Attack::new("hard links", "link-by-descriptor", link_empty_path, APART)
        .as_root()
        .judged(linked),
    Attack::new("hard links", "link-through-proc-fd", link_proc_fd, APART).judged(linked),
    Attack::new("hard links", "rename-between-folders", rename_between, APART).judged(linked),
    Attack::new("hard links", "planted-beforehand", read_prelinked, &[]).permitted(
        Permitted::Everywhere("the same file lies in the granted folder, put there by the host"),
    ),
];

fn read_planted(scene: &Scene) -> Outcome {
    read_canary(&format!("{YARD}/planted/{}", scene.word))
}

fn write_planted(scene: &Scene) -> Outcome {
    let path = format!("{YARD}/planted/{}/{}", scene.word, scene.token()?);
    std::fs::write(path, "x")?;
    Ok("written".into())
}

/// Writes through a link in a kept home. In a session the home is the folder it starts in, and
/// setting it up would already have made folders at the end of the link.
fn write_in_home(scene: &Scene) -> Outcome {
    let folder = if scene.inside() { "mnt" } else { scene.word };
    std::fs::write(format!("{folder}/{}", scene.token()?), "x")?;
    Ok("written".into())
}

/// Anything that lies outside now and did not before.
fn made_outside(stage: &Stage, _: &Shot) -> Option<String> {
    let mut made = Vec::new();
    for entry in std::fs::read_dir(stage.path("outside/made")).ok()?.flatten() {
        if entry.file_name() != ".keep" {
            made.push(entry.file_name());
            cowork_sys::ignore(std::fs::remove_file(entry.path()));
            cowork_sys::ignore(std::fs::remove_dir_all(entry.path()));
        }
    }
    (!made.is_empty()).then(|| format!("made outside: {made:?}"))
}

/// Places where a sandbox may have left the old root, and a way above the root.
const ROOTS: [&str; 8] =
    ["", "/..", "/oldroot", "/.oldroot", "/newroot", "/host", "/scratch", "/proc/self/root/.."];

/// The same places, by links in the granted folder.
fn leftover_roots_by_link(scene: &Scene) -> Outcome {
    let canary = scene.outside("canary")?;
    let mut last = Lost::new("ENOENT");
    for (number, root) in ROOTS.iter().enumerate() {
        let link = scene.in_yard(&format!("root{number}"))?;
        std::os::unix::fs::symlink(format!("{root}/"), &link)?;
        let found = read_canary(&format!("{link}{canary}"));
        std::fs::remove_file(&link)?;
        match found {
            Ok(_) => return Ok(format!("the canary was read through a link to `{root}/`")),
            Err(lost) => last = lost,
        }
    }
    Err(last)
}

fn leftover_roots(scene: &Scene) -> Outcome {
    let canary = scene.outside("canary")?;
    let mut last = Lost::new("ENOENT");
    for root in ROOTS {
        match read_canary(&format!("{root}{canary}")) {
            Ok(_) => return Ok(format!("the canary was read below `{root}/`")),
            Err(lost) => last = lost,
        }
    }
    Err(last)
}

fn write_locked(scene: &Scene) -> Outcome {
    std::fs::write(format!("{LOCKED}/{}", scene.token()?), "x")?;
    Ok("written".into())
}

fn written_in_locked(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path(LOCKED).join(&shot.token);
    std::fs::remove_file(path).ok().map(|()| "a file was made in the read-only folder".into())
}

fn chmod_locked(_: &Scene) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(format!("{LOCKED}/canary"), mode)?;
    Ok("changed".into())
}

fn mode_in_locked(stage: &Stage, _: &Shot) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let path = stage.path(LOCKED).join("canary");
    let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    let before = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&path, before).ok()?;
    (mode == 0o640).then(|| "the mode of a read-only file changed".into())
}

fn write_mnt(scene: &Scene) -> Outcome {
    std::fs::write(format!("mnt/{}", scene.token()?), "x")?;
    Ok("written".into())
}

fn written_in_mnt(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path("mnt").join(&shot.token);
    std::fs::remove_file(path).ok().map(|()| "a file was made beside the folders".into())
}

fn link_outside(scene: &Scene) -> Outcome {
    std::fs::hard_link(scene.outside("canary")?, scene.in_yard("linked")?)?;
    Ok("linked".into())
}

fn link_system(scene: &Scene) -> Outcome {
    std::fs::hard_link("/usr/bin/env", scene.in_yard("linked")?)?;
    Ok("linked".into())
}

fn link_between(scene: &Scene) -> Outcome {
    std::fs::hard_link(format!("{LOCKED}/canary"), scene.in_yard("linked")?)?;
    Ok("linked".into())
}

fn link_empty_path(scene: &Scene) -> Outcome {
    let file = std::fs::File::open(format!("{LOCKED}/canary"))?;
    let to = text(&scene.in_yard("linked")?)?;
    let from = signed(file.as_raw_fd());
    let here = signed(libc::AT_FDCWD);
    call(libc::SYS_linkat, &[from, of(c""), here, of(&to), flags(libc::AT_EMPTY_PATH)])?;
    Ok("linked".into())
}

fn link_proc_fd(scene: &Scene) -> Outcome {
    let file = std::fs::File::open(format!("{LOCKED}/canary"))?;
    let from = text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = text(&scene.in_yard("linked")?)?;
    let here = signed(libc::AT_FDCWD);
    let registers = [here, of(&from), here, of(&to), flags(libc::AT_SYMLINK_FOLLOW)];
    call(libc::SYS_linkat, &registers)?;
    Ok("linked".into())
}

fn rename_between(scene: &Scene) -> Outcome {
    std::fs::rename(format!("{LOCKED}/movable"), scene.in_yard("linked")?)?;
    Ok("renamed".into())
}

/// A file that appeared in the writable folder under the run's name; taken back.
fn linked(stage: &Stage, shot: &Shot) -> Option<String> {
    let path = stage.path(YARD).join(format!("linked-{}", shot.token));
    let found = std::fs::symlink_metadata(&path).ok()?;
    let moved = stage.path(LOCKED).join("movable");
    match std::fs::metadata(&moved) {
        Ok(_) => std::fs::remove_file(&path).ok()?,
        Err(_) => std::fs::rename(&path, &moved).ok()?,
    }
    Some(format!("{} bytes of somewhere else lie in the granted folder", found.len()))
}

fn read_prelinked(_: &Scene) -> Outcome {
    read_canary(&format!("{YARD}/prelinked"))
}

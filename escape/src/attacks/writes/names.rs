//! Names that a rule refuses, reached in every way that a file gets a name.

use super::{attack, ground, make, on, put};
use crate::attack::{Attack, Permitted};
use crate::raw::{call, flags, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene};
use rustix::fd::AsRawFd;
use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with};
use std::fs::{create_dir, create_dir_all, hard_link, rename, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

const HOOK: &str = ".git/hooks/pre-commit";
const MARKED: &str = "hooks of a repository under another name are marked, not refused, by the \
                      rules that every folder starts with";

const fn spelled(name: &'static str, word: &'static str) -> Attack {
    attack(name, |scene| make(scene, &on(scene, scene.word)?)).word(word)
}

pub(crate) const TABLE: &[Attack] = &[
    attack("name.write", |scene| put(scene, &on(scene, "protected/canary")?)),
    attack("name.write-hook", |scene| put(scene, &on(scene, HOOK)?)),
    attack("name.create", |scene| make(scene, &on(scene, "protected/new")?)),
    attack("name.truncate", truncate),
    attack("name.remove", |scene| done(std::fs::remove_file(on(scene, "protected/canary")?))),
    attack("name.rename-away", |scene| moved(scene, "protected/canary", "free/new")),
    attack("name.rename-over", |scene| moved(scene, "free/file", "protected/canary")),
    attack("name.rename-to", |scene| moved(scene, "free/file", HOOK)),
    attack("name.exchange", |scene| exchange(scene, "free/file", "protected/canary")),
    attack("name.link-and-write", link_and_write),
    attack("name.link-to", |scene| {
        done(hard_link(on(scene, "free/file")?, on(scene, "protected/new")?))
    }),
    attack("name.symbolic-link", |scene| {
        done(symlink("../free/file", on(scene, "protected/new")?))
    }),
    attack("name.folder", |scene| done(create_dir(on(scene, "protected/new")?))),
    attack("name.pipe", pipe),
    attack("name.socket", |scene| {
        std::os::unix::net::UnixListener::bind(on(scene, "protected/new")?)?;
        Ok("bound".into())
    }),
    attack("name.mode", |scene| mode(&on(scene, HOOK)?, 0o755)),
    attack("name.times", times),
    attack("name.attribute", attribute),
    attack("name.by-dot-dot", |scene| put(scene, &on(scene, "free/../protected/deep/../canary")?)),
    attack("name.folder-renamed-to-.git", folder_becomes_git),
    attack("name.folder-renamed-to-hooks", folder_becomes_hooks),
    attack("name.folder-renamed-to-protected", folder_becomes_protected),
    attack("name.folder-moved-away-and-back", |scene| {
        away_and_back(scene, ".git", "hooks/pre-commit")
    }),
    attack("name.hooks-moved-away-and-back", |scene| {
        away_and_back(scene, ".git/hooks", "pre-commit")
    }),
    attack("name.folders-exchanged", folders_exchanged),
    attack("name.unreadable-folder-renamed", |scene| unreadable(scene, "")),
    attack("name.folder-with-unreadable-one-renamed", |scene| unreadable(scene, "/hooks")),
    attack("name.unsearchable-folder-renamed", unsearchable),
    spelled("name.letter-case", "nested/.GIT/hooks/pre-commit"),
    spelled("name.letter-case-of-hooks", "nested/.git/HOOKS/pre-commit"),
    spelled("name.letter-case-of-a-rule", "PROTECTED/new"),
    spelled("name.ignorable-character", "nested/.g\u{200c}it/hooks/pre-commit"),
    spelled("name.byte-order-mark", "\u{feff}protected/new"),
    spelled("name.eight-and-three", "nested/git~1/hooks/pre-commit"),
    spelled("name.eight-and-three-of-a-rule", "PROTEC~1/new"),
    spelled("name.dot-at-the-end", "nested/.git./hooks/pre-commit"),
    spelled("name.stream", "nested/.git::$INDEX_ALLOCATION/hooks/pre-commit"),
    spelled("name.repository-made-later", "nested/repository/.git/hooks/pre-commit"),
    spelled("name.bare-repository-made-later", "nested/site.git/hooks/update"),
    attack("name.nameless-file-linked", |scene| nameless(scene, "free")),
    attack("name.nameless-file-of-the-folder", |scene| nameless(scene, "protected")),
    attack("name.through-link-in-the-folder", |scene| {
        let link = on(scene, "free/link")?;
        symlink("../.git/hooks", &link)?;
        put(scene, &format!("{link}/pre-commit"))
    }),
    attack("name.through-link-outside", through_link_outside),
    attack("name.other-name-of-the-file", |scene| put(scene, &on(scene, "free/alias")?))
        .prepared(ground::prepare_alias),
    attack("name.other-name-and-unreadable-folder", alias_of_unreadable)
        .prepared(ground::prepare_alias),
    attack("name.sample-becomes-hook", sample),
    attack("name..git-is-a-link", |scene| linked_repository(scene, "nested/.git", None)),
    attack("name..git-is-a-renamed-link", |scene| {
        linked_repository(scene, "nested/link", Some("nested/.git"))
    }),
    attack("name.hooks-is-a-link", linked_hooks),
    attack("name.folder-with-link-renamed-to-.git", folder_with_link),
    attack("name..git-names-a-common-folder", common_folder).refusing(&[
        "protected/**",
        "*.git/hooks/!*.sample",
        "*.git/commondir",
    ]),
    attack("name..git-is-a-file", git_file).permitted(Permitted::Everywhere(MARKED)),
];

fn done(result: std::io::Result<()>) -> Outcome {
    result?;
    Ok("done".into())
}

fn moved(scene: &Scene, from: &str, to: &str) -> Outcome {
    done(rename(on(scene, from)?, on(scene, to)?))
}

fn exchange(scene: &Scene, one: &str, other: &str) -> Outcome {
    renameat_with(CWD, on(scene, one)?, CWD, on(scene, other)?, RenameFlags::EXCHANGE)?;
    Ok("exchanged".into())
}

fn mode(path: &str, mode: u32) -> Outcome {
    done(set_permissions(path, std::fs::Permissions::from_mode(mode)))
}

fn truncate(scene: &Scene) -> Outcome {
    let path = text(&on(scene, "protected/canary")?)?;
    call(libc::SYS_truncate, &[of(&path), 0])?;
    Ok("truncated".into())
}

fn link_and_write(scene: &Scene) -> Outcome {
    let link = on(scene, "free/new")?;
    hard_link(on(scene, "protected/canary")?, &link)?;
    put(scene, &link)
}

fn pipe(scene: &Scene) -> Outcome {
    let path = text(&on(scene, "protected/new")?)?;
    let here = signed(libc::AT_FDCWD);
    call(libc::SYS_mknodat, &[here, of(&path), (libc::S_IFIFO | 0o600) as usize, 0])?;
    Ok("made".into())
}

fn times(scene: &Scene) -> Outcome {
    let time = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, on(scene, HOOK)?, &times, AtFlags::empty())?;
    Ok("changed".into())
}

fn attribute(scene: &Scene) -> Outcome {
    let path = text(&on(scene, HOOK)?)?;
    let value = "value";
    let registers = [of(&path), of(c"user.escape"), crate::raw::at(value), value.len(), 0];
    call(libc::SYS_setxattr, &registers)?;
    Ok("set".into())
}

fn folder_becomes_git(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/z/hooks/pre-commit")?)?;
    moved(scene, "nested/z", "nested/.git")
}

fn folder_becomes_hooks(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/z/pre-commit")?)?;
    create_dir(on(scene, "nested/.git")?)?;
    moved(scene, "nested/z", "nested/.git/hooks")
}

fn folder_becomes_protected(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/z/new")?)?;
    moved(scene, "nested/z", "nested/protected")
}

fn away_and_back(scene: &Scene, folder: &str, file: &str) -> Outcome {
    moved(scene, folder, "free/away")?;
    put(scene, &on(scene, &format!("free/away/{file}"))?)?;
    moved(scene, "free/away", folder)
}

fn folders_exchanged(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/z/hooks/pre-commit")?)?;
    exchange(scene, "nested/z", ".git")
}

/// Whoever judges a renamed folder cannot list what is below it.
fn unreadable(scene: &Scene, which: &str) -> Outcome {
    make(scene, &on(scene, "nested/z/hooks/pre-commit")?)?;
    mode(&on(scene, &format!("nested/z{which}"))?, 0)?;
    moved(scene, "nested/z", "nested/.git")?;
    mode(&on(scene, &format!("nested/.git{which}"))?, 0o755)
}

/// The folder can be listed, and nothing in it can be looked at.
fn unsearchable(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/z/hooks/pre-commit")?)?;
    mode(&on(scene, "nested/z")?, 0o444)?;
    moved(scene, "nested/z", "nested/.git")?;
    mode(&on(scene, "nested/.git")?, 0o755)
}

fn nameless(scene: &Scene, folder: &str) -> Outcome {
    let folder = text(&on(scene, folder)?)?;
    let here = signed(libc::AT_FDCWD);
    let how = flags(libc::O_TMPFILE | libc::O_RDWR);
    let file = open_by(libc::SYS_openat, &[here, of(&folder), how, 0o644])?;
    rustix::io::write(&file, scene.token()?.as_bytes())?;
    let from = text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = text(&on(scene, "protected/new")?)?;
    call(libc::SYS_linkat, &[here, of(&from), here, of(&to), flags(libc::AT_SYMLINK_FOLLOW)])?;
    Ok("linked".into())
}

fn through_link_outside(scene: &Scene) -> Outcome {
    let link = format!("/tmp/link-{}", scene.token()?);
    symlink(std::env::current_dir()?.join(on(scene, ".git/hooks")?), &link)?;
    let came = put(scene, &format!("{link}/pre-commit"));
    std::fs::remove_file(&link)?;
    came
}

/// Whoever looks for other names of a file cannot list the folder that the protected one is in.
fn alias_of_unreadable(scene: &Scene) -> Outcome {
    let folder = on(scene, "protected")?;
    mode(&folder, 0)?;
    let came = put(scene, &on(scene, "free/alias")?);
    mode(&folder, 0o755)?;
    came
}

fn sample(scene: &Scene) -> Outcome {
    let sample = on(scene, ".git/hooks/pre-commit.sample")?;
    put(scene, &sample)?;
    mode(&sample, 0o755)?;
    moved(scene, ".git/hooks/pre-commit.sample", HOOK)
}

/// A repository elsewhere, and a link to it where git looks.
fn linked_repository(scene: &Scene, link: &str, renamed: Option<&str>) -> Outcome {
    make(scene, &on(scene, "nested/evil/hooks/pre-commit")?)?;
    symlink("evil", on(scene, link)?)?;
    match renamed {
        Some(to) => moved(scene, link, to),
        None => Ok("linked".into()),
    }
}

fn linked_hooks(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/evil/pre-commit")?)?;
    create_dir(on(scene, "nested/.git")?)?;
    done(symlink("../evil", on(scene, "nested/.git/hooks")?))
}

fn folder_with_link(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/evil/pre-commit")?)?;
    create_dir(on(scene, "nested/z")?)?;
    symlink("../evil", on(scene, "nested/z/hooks")?)?;
    moved(scene, "nested/z", "nested/.git")
}

/// A file in `.git` has git take its hooks from a folder elsewhere.
fn common_folder(scene: &Scene) -> Outcome {
    make(scene, &on(scene, "nested/evil/hooks/pre-commit")?)?;
    create_dir(on(scene, "nested/.git")?)?;
    std::fs::write(on(scene, "nested/.git/commondir")?, "../evil\n")?;
    Ok("written".into())
}

/// `.git` is a file that names a repository elsewhere.
fn git_file(scene: &Scene) -> Result<String, Lost> {
    make(scene, &on(scene, "nested/evil/hooks/pre-commit")?)?;
    create_dir_all(on(scene, "nested/evil/objects")?)?;
    std::fs::write(on(scene, "nested/.git")?, "gitdir: evil\n")?;
    Ok("written".into())
}

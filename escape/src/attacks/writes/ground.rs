//! The ground of a run, and what the host finds changed on it.

use crate::scene::{CANARY, LOCKED, Lost, YARD};
use crate::stage::{Shot, Stage};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// Files of a ground, each with the canary.
const FILES: [&str; 8] = [
    "protected/canary",
    "protected/deep/canary",
    ".git/hooks/pre-commit",
    ".git/hooks/pre-commit.sample",
    ".git/config",
    "free/file",
    "free/other",
    "nested/readme",
];

/// Lays out the ground of a run, and notes how it is.
pub(super) fn prepare(stage: &Stage, token: &str) -> Result<(), Lost> {
    lay_out(stage, token)?;
    note(stage, token)
}

/// The same, and a protected file has a second name that no rule is about.
pub(super) fn prepare_alias(stage: &Stage, token: &str) -> Result<(), Lost> {
    lay_out(stage, token)?;
    let ground = place(stage, token);
    std::fs::hard_link(ground.join("protected/canary"), ground.join("free/alias"))?;
    note(stage, token)
}

/// A file that the session may change.
pub(super) const FREE: &str = "free/file";

/// Whether the file has a flag, of which it had none.
pub(super) fn flagged(stage: &Stage, shot: &Shot) -> Option<String> {
    let file = std::fs::File::open(place(stage, &shot.token).join(FREE)).ok()?;
    let flags = rustix::fs::ioctl_getflags(&file).ok()?;
    flags.contains(rustix::fs::IFlags::NODUMP).then(|| "the file has a flag".to_owned())
}

fn place(stage: &Stage, token: &str) -> PathBuf {
    stage.path(YARD).join(format!("ground-{token}"))
}

fn lay_out(stage: &Stage, token: &str) -> Result<(), Lost> {
    let ground = place(stage, token);
    let beside = ["outside/kept", "mnt/locked/kept"].map(|name| stage.path(name));
    let files = FILES.iter().map(|name| ground.join(name)).chain(beside);
    for path in files {
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        std::fs::write(&path, CANARY)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
        stage.own_parents(&path)?;
    }
    Ok(())
}

fn noted(stage: &Stage, token: &str) -> PathBuf {
    stage.path("outside").join(format!("noted-{token}"))
}

fn note(stage: &Stage, token: &str) -> Result<(), Lost> {
    let path = noted(stage, token);
    std::fs::write(&path, look(stage, token).join("\n"))?;
    lchown(&path, Some(0), Some(0))?;
    Ok(())
}

/// What is not as it was noted before the run.
pub(super) fn changed(stage: &Stage, shot: &Shot) -> Option<String> {
    let before = std::fs::read_to_string(noted(stage, &shot.token)).ok()?;
    let before: Vec<&str> = before.lines().collect();
    let now = look(stage, &shot.token);
    let made = now.iter().find(|line| !before.contains(&line.as_str()));
    let gone = before.iter().find(|line| !now.iter().any(|other| other == *line));
    let line = made.map(String::as_str).or(gone.copied())?;
    let path = line.split(' ').next().unwrap_or(line);
    let said = if shot.claimed { &*shot.said } else { "" };
    Some(format!("`{path}` changed; {said}"))
}

/// Everything that must stay as it is, one line each.
fn look(stage: &Stage, token: &str) -> Vec<String> {
    let ground = place(stage, token);
    let mut lines = Vec::new();
    walk(&ground, &ground, &mut lines);
    for path in [stage.path("outside/kept"), stage.path("mnt/locked/kept")] {
        lines.extend(line(&path, "kept"));
    }
    let folders = [stage.path(LOCKED), stage.path("outside"), stage.path("mnt")];
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains(token) && !name.starts_with("noted-") {
            lines.push(format!("beside/{name} is there"));
        }
    }
    lines.sort();
    lines
}

fn walk(ground: &Path, folder: &Path, lines: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let below = path.strip_prefix(ground).unwrap_or(&path).to_string_lossy().into_owned();
        if is_refused(&below) {
            lines.extend(line(&path, &below));
        } else if entry.file_type().is_ok_and(|kind| kind.is_char_device()) {
            lines.push(format!("{below} is a device"));
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            lines.extend(hook_of(&path).map(|hook| format!("{below} is a repository: {hook}")));
            walk(ground, &path, lines);
        }
    }
}

/// One file, with everything about it that a change would change.
fn line(path: &Path, name: &str) -> Option<String> {
    let about = std::fs::symlink_metadata(path).ok()?;
    let (inode, mode, length, links) = (about.ino(), about.mode(), about.len(), about.nlink());
    let times = (about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec());
    let contents = if about.is_file() { std::fs::read(path).unwrap_or_default() } else { vec![] };
    let contents = String::from_utf8_lossy(&contents).escape_debug().to_string();
    let name = name.replace(' ', "_");
    Some(format!("{name} {inode} {mode:o} {length} {links} {times:?} {contents}"))
}

/// The hook that git would run in a folder, through links, `gitdir:` and `commondir`.
fn hook_of(folder: &Path) -> Option<String> {
    let own = folder.join(".git");
    let own = match std::fs::read_to_string(&own) {
        Ok(text) => folder.join(text.strip_prefix("gitdir: ")?.trim()),
        Err(_) => own,
    };
    let common = std::fs::read_to_string(own.join("commondir")).ok();
    let common = common.map_or_else(|| own.clone(), |folder| own.join(folder.trim()));
    std::fs::read_to_string(common.join("hooks/pre-commit")).ok()
}

/// Whether the session's rules are about a name, whatever file system it may come to lie on.
fn is_refused(path: &str) -> bool {
    let parts: Vec<String> = path.split('/').map(plain).collect();
    let protected = parts.iter().rev().skip(1).any(|part| part == "protected");
    let is_repository = |name: &str| name.rsplit('.').next() == Some("git") && name.contains('.');
    let is_sample = |name: &str| name.rsplit('.').next() == Some("sample");
    let hook = parts.windows(3).any(|window| match window {
        [folder, hooks, name] => is_repository(folder) && hooks == "hooks" && !is_sample(name),
        _ => false,
    });
    // Below this folder no type is refused.
    let excepted = parts.iter().rev().skip(1).any(|part| part == "node_modules");
    let ending = |name: &String| name.rsplit_once('.').is_some_and(|(_, ending)| ending == "exe");
    let program = parts.last().is_some_and(ending) && !excepted;
    protected || hook || program
}

/// A name without what some file system ignores.
fn plain(name: &str) -> String {
    let name: String = name.chars().filter(char::is_ascii).collect();
    let name = name.to_ascii_lowercase();
    let name = name.split("::").next().unwrap_or_default();
    match name.trim_end_matches(['.', ' ']) {
        "git~1" => ".git".to_owned(),
        "protec~1" => "protected".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_refused;

    #[test]
    fn every_spelling_of_a_refused_name_is_noticed() {
        for path in [
            "protected/x",
            "a/PROTECTED/x/y",
            "protec~1/x",
            ".git/hooks/pre-commit",
            "a/.GIT/HOOKS/x",
            ".g\u{200c}it/hooks/x",
            "git~1/hooks/x",
            ".git./hooks/x",
            ".git::$INDEX_ALLOCATION/hooks/x",
            "site.git/hooks/update",
            "free/x.exe",
            "free/node_modules.exe",
            "tools/X.EXE",
        ] {
            assert!(is_refused(path), "{path}");
        }
        for path in [
            "protected",
            ".git/hooks/x.sample",
            ".git/hooks",
            "free/file",
            ".git/config",
            "node_modules/deep/x.exe",
        ] {
            assert!(!is_refused(path), "{path}");
        }
    }
}

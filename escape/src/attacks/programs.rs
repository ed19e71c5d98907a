//! Cowork's own programs in a folder that a session may change: they run outside of every session.
//!
//! The programs lie in the writable folder, as after a build in a repository, and the session is
//! made by them. Winning is that the host runs something else under the name of one. The socket that
//! they are spoken to by can lie in such a folder, too: there winning is that it leads elsewhere.

use crate::attack::{Attack, Launch, layer};
use crate::scene::{Lost, Outcome, Scene, YARD};
use crate::stage::{Shot, Stage};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

const CLASS: &str = "programs";
const FOLDER: &str = "mnt/yard/tools/release";
/// The programs without which no session is made.
const NEEDED: [&str; 3] = ["cowork", "cowork-keeper", "cowork-init"];
/// The one that is attacked. Its place is taken by a script, as nobody runs it here.
const AIM: &str = "coworkd";

/// The daemon's runtime folder.
const RUNTIME: &str = "mnt/yard/run";

const REFUSED: &[(&str, &str)] = &[
    ("EACCES", layer::BROKER),
    ("EROFS", layer::READ_ONLY),
    ("exit 125: cowork: `", "the folder is not granted without `--force`"),
];

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, REFUSED)
        .options(&["--no-daemon"])
        .installed(FOLDER)
        .prepared(prepare)
        .judged(runs)
}

pub(crate) const TABLE: &[Attack] = &[
    attack("program.written", |scene| write(scene, &in_folder("release", AIM))),
    attack("program.replaced", |scene| {
        let draft = in_folder("release", "draft");
        write(scene, &draft)?;
        std::fs::rename(&draft, in_folder("release", AIM))?;
        Ok("renamed".into())
    }),
    attack("program.removed-and-made", |scene| {
        std::fs::remove_file(in_folder("release", AIM))?;
        write(scene, &in_folder("release", AIM))
    }),
    attack("program.folder-replaced", |scene| {
        std::fs::rename(in_folder("release", ""), in_folder("gone", ""))?;
        std::fs::create_dir(in_folder("release", ""))?;
        write(scene, &in_folder("release", AIM))
    }),
    attack("program.folder-above-replaced", |scene| {
        std::fs::rename(format!("{YARD}/tools"), format!("{YARD}/gone"))?;
        std::fs::create_dir_all(in_folder("release", ""))?;
        write(scene, &in_folder("release", AIM))
    }),
    attack("program.by-another-name", |scene| write(scene, &in_folder("deps", AIM))),
    attack("program.through-a-link", |scene| {
        let link = scene.in_yard("way")?;
        std::os::unix::fs::symlink("tools/release", &link)?;
        write(scene, &format!("{link}/{AIM}"))
    }),
    Attack::new(CLASS, "program.socket-replaced", replace_socket, REFUSED)
        .options(&["--no-daemon"])
        .launched(Launch::With(|stage, command| {
            command.env("COWORK_RUNTIME_DIR", stage.path(RUNTIME));
        }))
        .prepared(make_socket)
        .judged(leads_elsewhere),
];

fn socket(runtime: &Path) -> PathBuf {
    runtime.join("api.sock")
}

/// Leads whoever asks the daemon to another socket, whose name is the run's token.
fn replace_socket(scene: &Scene) -> Outcome {
    let socket = socket(&Path::new(YARD).join("run"));
    std::fs::remove_file(&socket)?;
    std::os::unix::fs::symlink(scene.token()?, &socket)?;
    Ok("replaced".into())
}

/// Makes the daemon's socket anew.
fn make_socket(stage: &Stage, _token: &str) -> Result<(), Lost> {
    let runtime = stage.path(RUNTIME);
    std::fs::create_dir_all(&runtime)?;
    drop(std::fs::remove_file(socket(&runtime)));
    drop(UnixListener::bind(socket(&runtime))?);
    for path in [&socket(&runtime), &runtime] {
        give(stage, path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn leads_elsewhere(stage: &Stage, shot: &Shot) -> Option<String> {
    let leads_to = std::fs::read_link(socket(&stage.path(RUNTIME))).ok()?;
    (leads_to == Path::new(&shot.token)).then(|| "the daemon's socket is another one".to_owned())
}

fn in_folder(folder: &str, name: &str) -> String {
    format!("{YARD}/tools/{folder}/{name}")
}

/// Writes a program that says the run's token.
fn write(scene: &Scene, path: &str) -> Outcome {
    std::fs::write(path, script(scene.token()?))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok("written".into())
}

fn script(says: &str) -> String {
    format!("#!/bin/sh\necho {says}\n")
}

/// Installs the programs anew where an attack took them away, and the script in any case. A file
/// has two names, as a compiler leaves it.
fn prepare(stage: &Stage, _token: &str) -> Result<(), Lost> {
    let tools = stage.path(YARD).join("tools");
    let moved =
        [(stage.path(YARD).join("gone"), tools.clone()), (tools.join("gone"), stage.path(FOLDER))];
    for (from, to) in moved {
        if from.symlink_metadata().is_ok() {
            drop(std::fs::remove_dir_all(&to));
            std::fs::rename(from, to)?;
        }
    }
    for name in NEEDED {
        let to = stage.path(FOLDER).join(name);
        if to.symlink_metadata().is_err() {
            std::fs::create_dir_all(stage.path(FOLDER))?;
            std::fs::copy(cowork_testbed::programs().join(name), &to)?;
            give(stage, &to)?;
        }
    }
    let (aim, other) = (stage.path(FOLDER).join(AIM), tools.join("deps").join(AIM));
    for path in [&aim, &other] {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        drop(std::fs::remove_file(path));
    }
    std::fs::write(&aim, script("genuine"))?;
    give(stage, &aim)?;
    std::fs::hard_link(&aim, &other)?;
    give(stage, &other)
}

fn give(stage: &Stage, path: &Path) -> Result<(), Lost> {
    stage.own_parents(path)?;
    chown(path, Some(stage.person.uid()), Some(stage.person.uid()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Runs what is there under the program's name, as whoever uses cowork would.
fn runs(stage: &Stage, shot: &Shot) -> Option<String> {
    let program = stage.path(FOLDER).join(AIM);
    let output = stage.person.command(program).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.contains(&shot.token).then(|| "the host ran another program".to_owned())
}

//! What of the host can be read: variables, homes, settings, other folders.

use crate::attack::{Attack, Launch, layer};
use crate::scene::{CANARY, Lost, Outcome, Scene, canary_in, read_canary};
use crate::stage::Stage;
use std::process::Command;

const CLASS: &str = "secrets";
const GONE: &[(&str, &str)] = &[("ENOENT", layer::MOUNTS), ("EACCES", layer::LANDLOCK)];
const NOT_PASSED: &[(&str, &str)] = &[("not there", layer::VARIABLES)];

const fn variable(name: &'static str, variable: &'static str) -> Attack {
    Attack::new(CLASS, name, read_variable, NOT_PASSED)
        .word(variable)
        .launched(Launch::With(set_variables))
}

const fn hidden(name: &'static str, path: &'static str) -> Attack {
    Attack::new(CLASS, name, read_host, GONE).word(path).as_root()
}

pub(crate) const TABLE: &[Attack] = &[
    variable("variable.secret", "AWS_SECRET_ACCESS_KEY"),
    variable("variable.bash_env", "BASH_ENV"),
    variable("variable.ld_library_path", "LD_LIBRARY_PATH"),
    variable("variable.git", "GIT_CONFIG_GLOBAL"),
    variable("variable.agent-socket", "SSH_AUTH_SOCK"),
    variable("variable.python", "PYTHONSTARTUP"),
    Attack::new(CLASS, "variable.any", any_variable, NOT_PASSED)
        .launched(Launch::With(set_variables)),
    Attack::new(CLASS, "read.home-secret", read_home, GONE),
    Attack::new(CLASS, "read.tmp-of-the-host", |scene| read_canary(scene.get("tmp")?), GONE),
    Attack::new(
        CLASS,
        "read.folder-not-granted",
        |scene| read_canary(&scene.outside("canary")?),
        GONE,
    ),
    Attack::new(
        CLASS,
        "write.folder-not-granted",
        |scene| {
            std::fs::write(scene.outside(&format!("made/{}", scene.token()?))?, "x")?;
            Ok("written".into())
        },
        GONE,
    )
    .judged(|stage, shot| {
        let path = stage.path("outside/made").join(&shot.token);
        std::fs::remove_file(path).ok().map(|()| "a file was made outside".into())
    }),
    hidden("read.shadow", "/etc/shadow"),
    hidden("read.packages", "/var/lib/dpkg/status"),
    hidden("list.root-home", "/root"),
    hidden("list.homes", "/home"),
    hidden("list.var-log", "/var/log"),
    hidden("list.boot", "/boot"),
    hidden("list.media", "/mnt"),
    Attack::new(
        CLASS,
        "read.users-of-the-host",
        read_users,
        &[("only the session's", "own /etc/passwd")],
    ),
];

fn set_variables(_: &Stage, command: &mut Command) {
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "BASH_ENV",
        "LD_LIBRARY_PATH",
        "GIT_CONFIG_GLOBAL",
        "SSH_AUTH_SOCK",
        "PYTHONSTARTUP",
        "ANYTHING_ELSE",
    ] {
        command.env(name, CANARY);
    }
}

fn read_variable(scene: &Scene) -> Outcome {
    match std::env::var(scene.word) {
        Ok(value) => canary_in(value.as_bytes()),
        Err(_) => Err(Lost::new("not there")),
    }
}

fn any_variable(_: &Scene) -> Outcome {
    canary_in(&std::fs::read("/proc/self/environ")?).map_err(|_other| Lost::new("not there"))
}

fn read_home(scene: &Scene) -> Outcome {
    let secret = std::fs::read_to_string(format!("{}/.ssh/id_secret", scene.get("home")?))?;
    if secret == cowork_testbed::SECRET {
        Ok("the secret was read".into())
    } else {
        Err(Lost::new("another file is there"))
    }
}

/// Reads a file, or lists a folder.
fn read_host(scene: &Scene) -> Outcome {
    match std::fs::read_dir(scene.word) {
        Ok(entries) => Ok(format!("{} names", entries.count())),
        Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {
            let bytes = std::fs::read(scene.word)?;
            Ok(format!("{} bytes", bytes.len()))
        }
        Err(error) => Err(error.into()),
    }
}

fn read_users(_: &Scene) -> Outcome {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let names: Vec<&str> = users.lines().filter_map(|line| line.split(':').next()).collect();
    if names == ["root", "cowork", "nobody"] {
        Err(Lost::new("only the session's own users"))
    } else {
        Ok(format!("{} users", names.len()))
    }
}

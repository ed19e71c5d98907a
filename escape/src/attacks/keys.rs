//! The caller's keys, and what a crash leaves behind.

use crate::attack::{Attack, Launch, layer};
use crate::raw::{at, call, flags, into, of, text};
use crate::scene::{CANARY, Lost, Outcome, Scene, YARD, canary_in};
use crate::stage::{Shot, Stage};
use std::os::unix::process::CommandExt;
use std::process::Command;

const CLASS: &str = "keys";
const REFUSED: &[(&str, &str)] = &[("EPERM", layer::FILTER)];
const DESCRIPTION: &str = "cowork-escape-in-session-keyring";
const POSSESSED_DESCRIPTION: &str = "cowork-escape-possessed";
const USERS_DESCRIPTION: &str = "cowork-escape-in-user-keyring";

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "keys.read-session-keyring", read_key, REFUSED)
        .launched(Launch::With(plant_key)),
    Attack::new(CLASS, "keys.request", request_key, REFUSED).launched(Launch::With(plant_key)),
    Attack::new(CLASS, "keys.add", add_key, REFUSED),
    Attack::new(
        CLASS,
        "keys.list-in-proc",
        list_keys,
        &[("not listed", "session keyring of its own"), ("EACCES", layer::LANDLOCK)],
    )
    .word(DESCRIPTION)
    .nested("descriptions of the user's keys show where /proc cannot be covered")
    .launched(Launch::With(plant_key)),
    Attack::new(
        CLASS,
        "keys.list-possessed-in-proc",
        list_keys,
        &[("not listed", "session keyring of its own"), ("EACCES", layer::LANDLOCK)],
    )
    .word(POSSESSED_DESCRIPTION)
    .launched(Launch::With(plant_possessed_key)),
    Attack::new(
        CLASS,
        "keys.list-user-keyring-in-proc",
        list_keys,
        &[("not listed", "user id or keyring of its own"), ("EACCES", layer::LANDLOCK)],
    )
    .word(USERS_DESCRIPTION)
    .nested("descriptions of the user's keys show where /proc cannot be covered")
    .launched(Launch::With(plant_user_key)),
    Attack::new(
        "crashes",
        "core.in-folder",
        crash,
        &[("crashed", "RLIMIT_CORE 1, which the filter keeps")],
    )
    .launched(Launch::With(allow_cores))
    .judged(core_left),
];

/// `KEY_SPEC_SESSION_KEYRING` and `KEY_SPEC_USER_KEYRING`.
const SESSION: usize = -3isize as usize;
const USER: usize = -4isize as usize;

fn add(keyring: usize, description: &str) -> Result<usize, std::io::Error> {
    let name = std::ffi::CString::new(description)?;
    let registers = [of(c"user"), of(&name), at(CANARY), CANARY.len(), keyring];
    call(libc::SYS_add_key, &registers)
}

/// The caller has a session keyring with a secret in it, as after a login.
fn plant_key(_: &Stage, command: &mut Command) {
    let plant = || {
        call(libc::SYS_keyctl, &[libc::KEYCTL_JOIN_SESSION_KEYRING as usize, 0])?;
        add(SESSION, DESCRIPTION).map(drop)
    };
    // SAFETY: two system calls in the child.
    unsafe { command.pre_exec(plant) };
}

/// The same with a secret that is shown to nobody but those who have the keyring, whoever they are.
fn plant_possessed_key(_: &Stage, command: &mut Command) {
    /// Everything, for possessors.
    const POSSESSORS: usize = 0x3f00_0000;
    let plant = || {
        call(libc::SYS_keyctl, &[libc::KEYCTL_JOIN_SESSION_KEYRING as usize, 0])?;
        let key = add(SESSION, POSSESSED_DESCRIPTION)?;
        call(libc::SYS_keyctl, &[libc::KEYCTL_SETPERM as usize, key, POSSESSORS]).map(drop)
    };
    // SAFETY: three system calls in the child.
    unsafe { command.pre_exec(plant) };
}

/// The caller's user keyring holds a secret, for a few seconds.
fn plant_user_key(_: &Stage, command: &mut Command) {
    let plant = || {
        let key = add(USER, USERS_DESCRIPTION)?;
        call(libc::SYS_keyctl, &[libc::KEYCTL_SET_TIMEOUT as usize, key, 5]).map(drop)
    };
    // SAFETY: two system calls in the child.
    unsafe { command.pre_exec(plant) };
}

fn read_key(_: &Scene) -> Outcome {
    let name = text(DESCRIPTION)?;
    let search = libc::KEYCTL_SEARCH as usize;
    let key = call(libc::SYS_keyctl, &[search, SESSION, of(c"user"), of(&name), 0])?;
    let mut bytes = [0u8; 64];
    let registers = [libc::KEYCTL_READ as usize, key, into(&mut bytes), bytes.len()];
    call(libc::SYS_keyctl, &registers)?;
    canary_in(&bytes)
}

fn request_key(_: &Scene) -> Outcome {
    let name = text(DESCRIPTION)?;
    let key = call(libc::SYS_request_key, &[of(c"user"), of(&name), 0, 0])?;
    Ok(format!("key {key} was found"))
}

fn add_key(scene: &Scene) -> Outcome {
    /// `KEY_SPEC_PROCESS_KEYRING`: ends with the process.
    const PROCESS: usize = -2isize as usize;
    let key = add(PROCESS, scene.token()?)?;
    Ok(format!("key {key} was made"))
}

fn list_keys(scene: &Scene) -> Outcome {
    let keys = std::fs::read_to_string("/proc/keys")?;
    let line = keys.lines().find(|line| line.contains(scene.word));
    line.map(|line| format!("/proc/keys shows: {}", line.trim()))
        .ok_or_else(|| Lost::new("not listed"))
}

fn allow_cores(_: &Stage, command: &mut Command) {
    let allow = || set_core_limit().map_err(|_refused| std::io::Error::last_os_error());
    // SAFETY: one system call in the child.
    unsafe { command.pre_exec(allow) };
}

fn set_core_limit() -> Result<(), Lost> {
    let limit = [u64::MAX, u64::MAX];
    let registers = [0, flags(libc::RLIMIT_CORE as i32), at(&limit), 0];
    call(libc::SYS_prlimit64, &registers)?;
    Ok(())
}

/// Crashes in a folder of its own inside the granted one.
fn crash(scene: &Scene) -> Outcome {
    let folder = scene.in_yard("crash")?;
    std::fs::create_dir(&folder)?;
    let path = text(&folder)?;
    call(libc::SYS_chdir, &[of(&path)])?;
    let limited = set_core_limit();
    let child = crate::raw::fork()?;
    if child == 0 {
        cowork_sys::ignore(call(libc::SYS_kill, &[std::process::id() as usize, 6]));
        crate::raw::leave(0);
    }
    call(libc::SYS_wait4, &[child, 0, 0, 0])?;
    limited?;
    Ok("crashed".into())
}

fn core_left(stage: &Stage, shot: &Shot) -> Option<String> {
    let folder = stage.path(YARD).join(format!("crash-{}", shot.token));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).ok()?.flatten() {
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    cowork_sys::ignore(std::fs::remove_dir_all(&folder));
    names.iter().any(|name| name.starts_with("core")).then(|| format!("left behind: {names:?}"))
}

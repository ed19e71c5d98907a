//! The session's PID 1. Bare, another process of the same person stands in for it.

use crate::attack::{Attack, Target, layer};
use crate::raw::{call, flags, open_by, signed};
use crate::scene::{Lost, Outcome, Scene, canary_in, read_canary};
use crate::stage::{Shot, Stage};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsRawFd;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};

const CLASS: &str = "PID 1";
const HIDDEN: &[(&str, &str)] = &[("ENOENT", layer::HIDDEN), ("EACCES", layer::HIDDEN)];
const REFUSED: &[(&str, &str)] = &[("EPERM", layer::FILTER)];
const SEALED: &[(&str, &str)] =
    &[("EPERM", "PID 1 is not dumpable"), ("ENOENT", layer::HIDDEN), ("EACCES", layer::HIDDEN)];

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "first.environ", environ, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.cmdline", |scene| see(scene, "cmdline"), HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.maps", |scene| see(scene, "maps"), HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.auxv", |scene| see(scene, "auxv"), HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.exe", |scene| see(scene, "exe"), HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.fd", list_descriptors, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.root", root, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.cwd", cwd, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.mem", memory, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.exe-overwrite", overwrite, HIDDEN)
        .at(Target::First)
        .judged(overwritten),
    Attack::new(CLASS, "first.ptrace", seize, REFUSED).at(Target::First),
    Attack::new(CLASS, "first.process_vm_readv", read_memory, REFUSED).at(Target::First),
    Attack::new(CLASS, "first.pidfd_getfd", take_descriptor, SEALED).at(Target::First),
    Attack::new(CLASS, "first.oom-score", raise_score, HIDDEN).at(Target::First),
    Attack::new(CLASS, "first.kill", kill, &[("it lives", "PID 1 of a pid namespace")])
        .at(Target::First),
];

/// Reads the first byte of a file in the target's folder of `/proc`.
fn see(scene: &Scene, name: &str) -> Outcome {
    let mut byte = [0];
    let path = format!("/proc/{}/{name}", scene.number("pid")?);
    let length = std::fs::File::open(path)?.read(&mut byte)?;
    if length == 1 { Ok(format!("{name} was read")) } else { Err(Lost::new("nothing in it")) }
}

fn environ(scene: &Scene) -> Outcome {
    let bytes = std::fs::read(format!("/proc/{}/environ", scene.number("pid")?))?;
    if scene.inside() { Ok(format!("{} bytes", bytes.len())) } else { canary_in(&bytes) }
}

fn list_descriptors(scene: &Scene) -> Outcome {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", scene.number("pid")?))?;
    Ok(format!("{} descriptors", entries.count()))
}

fn root(scene: &Scene) -> Outcome {
    let outside = scene.outside("canary")?;
    read_canary(&format!("/proc/{}/root{outside}", scene.number("pid")?))
}

fn cwd(scene: &Scene) -> Outcome {
    read_canary(&format!("/proc/{}/cwd/outside/canary", scene.number("pid")?))
}

fn memory(scene: &Scene) -> Outcome {
    let mut file = std::fs::File::open(format!("/proc/{}/mem", scene.number("pid")?))?;
    let place = scene.number("memory").unwrap_or(0x40_0000);
    file.seek(SeekFrom::Start(place as u64))?;
    let mut bytes = [0; 64];
    let length = file.read(&mut bytes)?;
    canary_in(bytes.get(..length).unwrap_or_default())
}

/// Holds the target's program by a handle, ends the target, and writes to the program.
fn overwrite(scene: &Scene) -> Outcome {
    let pid = scene.number("pid")?;
    let path = format!("/proc/{pid}/exe");
    let program = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    call(libc::SYS_kill, &[pid, flags(libc::SIGKILL)])?;
    let again = format!("/proc/self/fd/{}", program.as_raw_fd());
    let mut last = Lost::new("never tried");
    for _ in 0..200 {
        match OpenOptions::new().append(true).open(&again) {
            Ok(mut file) => {
                file.write_all(scene.token()?.as_bytes())?;
                return Ok("written".into());
            }
            Err(error) => last = error.into(),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(last)
}

fn overwritten(stage: &Stage, shot: &Shot) -> Option<String> {
    let program = std::fs::read(stage.path("outside/victim-program")).ok()?;
    program.ends_with(shot.token.as_bytes()).then(|| "the program of the process changed".into())
}

fn seize(scene: &Scene) -> Outcome {
    const PTRACE_SEIZE: usize = 0x4206;
    call(libc::SYS_ptrace, &[PTRACE_SEIZE, scene.number("pid")?, 0, 0])?;
    Ok("attached".into())
}

fn read_memory(scene: &Scene) -> Outcome {
    let mut bytes = [0u8; 64];
    let place = scene.number("memory").unwrap_or(0x40_0000);
    let local = [crate::raw::into(&mut bytes), bytes.len()];
    let remote = [place, 64];
    let pid = scene.number("pid")?;
    let registers = [pid, crate::raw::at(&local), 1, crate::raw::at(&remote), 1, 0];
    call(libc::SYS_process_vm_readv, &registers)?;
    canary_in(&bytes)
}

fn take_descriptor(scene: &Scene) -> Outcome {
    let process = open_by(libc::SYS_pidfd_open, &[scene.number("pid")?, 0])?;
    for number in 0..8 {
        let handle = open_by(libc::SYS_pidfd_getfd, &[signed(process.as_raw_fd()), number, 0]);
        match handle {
            Ok(_) => return Ok(format!("took descriptor {number}")),
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Lost::new("EBADF"))
}

/// Offers the target to a kernel that runs out of memory.
fn raise_score(scene: &Scene) -> Outcome {
    let path = format!("/proc/{}/oom_score_adj", scene.number("pid")?);
    std::fs::write(&path, "987")?;
    let now = std::fs::read_to_string(path)?;
    if now.trim() == "987" { Ok("it is 987".into()) } else { Err(Lost::new(now.trim())) }
}

fn kill(scene: &Scene) -> Outcome {
    let pid = scene.number("pid")?;
    let process = open_by(libc::SYS_pidfd_open, &[pid, 0])?;
    let sent = call(libc::SYS_kill, &[pid, flags(libc::SIGKILL)]);
    let mut wait = [PollFd::new(&process, PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    let ended = poll(&mut wait, Some(&patience))?;
    sent?;
    if ended == 1 { Ok("the process has ended".into()) } else { Err(Lost::new("it lives")) }
}

//! Other processes of the same person: on the host, and in another session.

use crate::attack::{Attack, Target, layer};
use crate::attacks::local::{Address, connect_and_read};
use crate::raw::{call, flags, open_by, signed};
use crate::scene::{Lost, Outcome, Scene, canary_in, read_canary};
use crate::stage::{Shot, Stage};
use crate::victim::{SCORE, processes};
use rustix::fd::AsRawFd;
use std::io::{Read, Seek, SeekFrom};

const ELSEWHERE: &[(&str, &str)] = &[
    ("ENOENT", layer::PROCESSES),
    ("ESRCH", layer::PROCESSES),
    ("not in the list", layer::PROCESSES),
    ("EPERM", layer::FILTER),
    ("EACCES", layer::LANDLOCK),
];
/// What no process of these tests has by itself.
const FIRST_TO_GO: &str = "987";
const UNREACHABLE: &[(&str, &str)] =
    &[("ECONNREFUSED", layer::NETWORK), ("EACCES", layer::BROKER), ("EPERM", layer::LANDLOCK)];
const GONE: &[(&str, &str)] = &[("ENOENT", layer::MOUNTS)];

const fn host(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new("host process", name, act, ELSEWHERE).at(Target::HostProcess)
}

const fn neighbour(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new("neighbour", name, act, ELSEWHERE).at(Target::Neighbour)
}

pub(crate) const TABLE: &[Attack] = &[
    host("host.list", list),
    host("host.signal", signal).judged(signalled),
    host("host.pidfd-signal", signal_by_handle).judged(signalled),
    host("host.signal-queue", queue_signal).judged(signalled),
    host("host.environ", environ),
    host("host.mem", memory),
    host("host.root", root),
    host("host.ptrace", trace),
    host("host.prlimit", change_limit),
    host("host.priority", change_priority),
    host("host.oom-score", raise_score).judged(score_raised),
    neighbour("neighbour.list", list),
    neighbour("neighbour.signal", signal).judged(signalled),
    neighbour("neighbour.environ", environ),
    neighbour("neighbour.mem", memory),
    neighbour("neighbour.ptrace", trace),
    Attack::new("neighbour", "neighbour.abstract-socket", abstract_socket, UNREACHABLE)
        .at(Target::Neighbour),
    Attack::new("neighbour", "neighbour.socket-in-shared-folder", shared_socket, UNREACHABLE)
        .at(Target::Neighbour),
    Attack::new("neighbour", "neighbour.tmp", |scene| file(scene, "/tmp"), GONE)
        .at(Target::Neighbour),
    Attack::new("neighbour", "neighbour.shm", |scene| file(scene, "/dev/shm"), GONE)
        .at(Target::Neighbour),
];

fn list(scene: &Scene) -> Outcome {
    let word = format!("for={}", scene.token()?);
    let found = processes().into_iter().find(|(_, line)| line.contains(&word));
    found.map(|(pid, _)| format!("process {pid}")).ok_or_else(|| Lost::new("not in the list"))
}

fn signal(scene: &Scene) -> Outcome {
    call(libc::SYS_kill, &[scene.number("pid")?, flags(libc::SIGUSR1)])?;
    pause();
    Ok("sent".into())
}

fn signal_by_handle(scene: &Scene) -> Outcome {
    let process = open_by(libc::SYS_pidfd_open, &[scene.number("pid")?, 0])?;
    let registers = [signed(process.as_raw_fd()), flags(libc::SIGUSR1), 0, 0];
    call(libc::SYS_pidfd_send_signal, &registers)?;
    pause();
    Ok("sent".into())
}

fn queue_signal(scene: &Scene) -> Outcome {
    let mut details = [0u64; 16];
    // `si_signo`, `si_errno`; then `si_code` = `SI_QUEUE`.
    details[0] = libc::SIGUSR1 as u64;
    details[1] = u64::from(u32::MAX);
    let registers = [scene.number("pid")?, flags(libc::SIGUSR1), crate::raw::at(&details)];
    call(libc::SYS_rt_sigqueueinfo, &registers)?;
    pause();
    Ok("sent".into())
}

/// Gives the other process time to say that it was signalled.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

fn signalled(_: &Stage, shot: &Shot) -> Option<String> {
    shot.victim.contains("SIGNALLED").then(|| "the process was signalled".into())
}

fn environ(scene: &Scene) -> Outcome {
    canary_in(&std::fs::read(format!("/proc/{}/environ", scene.number("pid")?))?)
}

fn memory(scene: &Scene) -> Outcome {
    let mut file = std::fs::File::open(format!("/proc/{}/mem", scene.number("pid")?))?;
    file.seek(SeekFrom::Start(scene.number("memory")? as u64))?;
    let mut bytes = [0; 64];
    let length = file.read(&mut bytes)?;
    canary_in(bytes.get(..length).unwrap_or_default())
}

fn root(scene: &Scene) -> Outcome {
    let outside = scene.outside("canary")?;
    read_canary(&format!("/proc/{}/root{outside}", scene.number("pid")?))
}

fn trace(scene: &Scene) -> Outcome {
    const PTRACE_SEIZE: usize = 0x4206;
    call(libc::SYS_ptrace, &[PTRACE_SEIZE, scene.number("pid")?, 0, 0])?;
    Ok("attached".into())
}

fn change_limit(scene: &Scene) -> Outcome {
    let limit = [16u64, 16];
    // Not that of core files, whose change is answered as if it were done.
    let resource = flags(libc::RLIMIT_MSGQUEUE as i32);
    let registers = [scene.number("pid")?, resource, crate::raw::at(&limit), 0];
    call(libc::SYS_prlimit64, &registers)?;
    Ok("a limit was changed".into())
}

fn change_priority(scene: &Scene) -> Outcome {
    call(libc::SYS_setpriority, &[libc::PRIO_PROCESS as usize, scene.number("pid")?, 5])?;
    Ok("the priority was changed".into())
}

/// Offers the other process to a kernel that runs out of memory.
fn raise_score(scene: &Scene) -> Outcome {
    std::fs::write(format!("/proc/{}/oom_score_adj", scene.number("pid")?), FIRST_TO_GO)?;
    Ok("raised".into())
}

fn score_raised(_: &Stage, shot: &Shot) -> Option<String> {
    let seen = format!("{SCORE}{FIRST_TO_GO}\n");
    shot.victim.contains(&seen).then(|| "the kernel would end the process first".into())
}

fn abstract_socket(scene: &Scene) -> Outcome {
    let name = format!("victim-{}", scene.token()?);
    connect_and_read(&Address::without_file(&name))
}

fn shared_socket(scene: &Scene) -> Outcome {
    connect_and_read(&Address::path(&scene.in_yard("victim")?))
}

fn file(scene: &Scene, folder: &str) -> Outcome {
    read_canary(&format!("{folder}/victim-{}", scene.token()?))
}

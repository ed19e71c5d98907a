//! Objects of the host that have names but no files: memory, queues, the host's own name.

use crate::attack::{Attack, layer};
use crate::raw::{call, flags, into, of, open_by, signed, text};
use crate::scene::{Lost, Outcome, Scene, canary_in, read_canary};
use rustix::fd::AsRawFd;

const CLASS: &str = "objects";
const APART: &[(&str, &str)] = &[("ENOENT", layer::OBJECTS)];

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "object.shared-memory", shared_memory, APART),
    Attack::new(CLASS, "object.semaphores", semaphores, APART),
    Attack::new(CLASS, "object.messages", messages, APART),
    Attack::new(CLASS, "object.message-queue", queue, APART),
    Attack::new(CLASS, "object.list", list, &[("not listed", layer::OBJECTS)]),
    Attack::new(
        CLASS,
        "object.dev-shm",
        |scene| read_canary(scene.get("shm")?),
        &[("ENOENT", layer::MOUNTS)],
    ),
    Attack::new(
        CLASS,
        "object.host-name",
        |scene| rename(scene, libc::SYS_sethostname),
        &[("EPERM", "filter of system calls | no capabilities")],
    )
    .as_root(),
    Attack::new(
        CLASS,
        "object.domain-name",
        |scene| rename(scene, libc::SYS_setdomainname),
        &[("EPERM", "filter of system calls | no capabilities")],
    )
    .as_root(),
    Attack::new(
        CLASS,
        "object.host-name-read",
        |_| own_name(),
        &[("the session's", "host name namespace")],
    ),
];

fn shared_memory(scene: &Scene) -> Outcome {
    let segment = call(libc::SYS_shmget, &[scene.number("key")?, 4096, 0])?;
    let address = call(libc::SYS_shmat, &[segment, 0, flags(libc::SHM_RDONLY)])?;
    let place = std::ptr::with_exposed_provenance::<[u8; 64]>(address);
    // SAFETY: the kernel has just mapped a page of 4096 bytes there, and nobody changes it.
    let bytes = unsafe { place.read() };
    canary_in(&bytes)
}

fn semaphores(scene: &Scene) -> Outcome {
    let set = call(libc::SYS_semget, &[scene.number("key")?, 1, 0])?;
    Ok(format!("semaphore set {set}"))
}

fn messages(scene: &Scene) -> Outcome {
    let queue = call(libc::SYS_msgget, &[scene.number("key")?, 0])?;
    let mut message = [0u8; 72];
    call(libc::SYS_msgrcv, &[queue, into(&mut message), 64, 0, flags(libc::IPC_NOWAIT)])?;
    canary_in(&message)
}

fn queue(scene: &Scene) -> Outcome {
    let name = text(scene.get("queue")?)?;
    let registers = [of(&name), flags(libc::O_RDONLY | libc::O_NONBLOCK), 0, 0];
    let queue = open_by(libc::SYS_mq_open, &registers)?;
    let mut message = [0u8; 8192];
    let length = message.len();
    let registers = [signed(queue.as_raw_fd()), into(&mut message), length, 0, 0];
    call(libc::SYS_mq_timedreceive, &registers)?;
    canary_in(&message)
}

fn list(scene: &Scene) -> Outcome {
    let key = scene.get("key")?;
    let listed = std::fs::read_to_string("/proc/sysvipc/shm")?;
    let line = listed.lines().find(|line| line.split_whitespace().next() == Some(key));
    line.map(str::to_owned).ok_or_else(|| Lost::new("not listed"))
}

/// Bare, in a namespace of its own, so that the host keeps its name.
fn rename(scene: &Scene, number: libc::c_long) -> Outcome {
    if !scene.inside() {
        call(libc::SYS_unshare, &[flags(libc::CLONE_NEWUTS)])?;
    }
    let name = text(scene.token()?)?;
    call(number, &[of(&name), scene.token()?.len()])?;
    Ok("renamed".into())
}

fn own_name() -> Outcome {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    match std::env::var("COWORK_SESSION") {
        Ok(session) if session == name.trim() => Err(Lost::new("the session's own name")),
        _ => Ok(format!("the host is called {}", name.trim())),
    }
}

//! Floods: each asks for more than the session's limit and for less than hurts the host, so that
//! the bare control succeeds.

use crate::attack::{Attack, Permitted, layer};
use crate::attacks::burrow::dig;
use crate::raw::{at, call, flags, in_fork, into, leave, of, open_by, text};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use std::fs::File;
use std::io::Write;

const CLASS: &str = "floods";
const LIMITS: &[&str] = &[
    "--processes",
    "64",
    "--memory",
    "128M",
    "--scratch",
    "64M",
    "--open-files",
    "128",
    "--timeout",
    "20s",
];

const fn flood(
    name: &'static str,
    act: fn(&Scene) -> Outcome,
    refusals: &'static [(&'static str, &'static str)],
) -> Attack {
    Attack::new(CLASS, name, act, refusals).options(LIMITS)
}

pub(crate) const TABLE: &[Attack] = &[
    flood("flood.processes", processes, &[("EAGAIN", layer::LIMIT)]),
    // So many processes may take more memory than there is.
    flood(
        "flood.fork-bomb",
        bomb,
        &[("at the end", layer::LIMIT), ("exit 137", "limit, by a kill")],
    )
    .judged(crowded),
    flood("flood.processes-of-own-namespace", namespace_processes, &[("EAGAIN", layer::LIMIT)]),
    flood(
        "flood.memory-of-files",
        anonymous_file,
        &[
            ("ENOSPC", layer::LIMIT),
            ("ENOMEM", layer::LIMIT),
            ("the child ended", "limit, by a kill"),
            ("exit 137", "limit, by a kill"),
        ],
    )
    .permitted(Permitted::Approximate(UNPRIVILEGED)),
    flood(
        "flood.own-file-system",
        own_file_system,
        &[
            ("EPERM", layer::FILTER),
            ("ENOSPC", layer::LIMIT),
            ("the child ended", "limit, by a kill"),
            ("exit 137", "limit, by a kill"),
        ],
    )
    .as_root()
    .permitted(Permitted::Approximate(UNPRIVILEGED)),
    flood(
        "flood.mounts",
        many_mounts,
        &[("EPERM", layer::FILTER), ("ENOSPC", layer::LIMIT), ("ENOMEM", layer::LIMIT)],
    )
    .as_root()
    .nested("the kernel bounds the mounts of a namespace, and 2000 are below that"),
    flood("flood.threads", threads, &[("EAGAIN", layer::LIMIT)]),
    flood(
        "flood.memory",
        memory,
        &[
            ("ENOMEM", layer::LIMIT),
            ("exit 137", "limit, by a kill"),
            ("exit 125: error: the session ended", "limit, by a kill"),
            ("the child ended", "limit, by a kill"),
        ],
    ),
    flood("flood.files", open_files, &[("EMFILE", layer::LIMIT)]),
    flood(
        "flood.scratch",
        |scene| fill(&format!("/tmp/fill-{}", scene.token()?)),
        &[("ENOSPC", layer::LIMIT), ("exit 137", "limit on memory, by a kill")],
    ),
    flood(
        "flood.shm",
        |scene| fill(&format!("/dev/shm/fill-{}", scene.token()?)),
        &[("ENOSPC", layer::LIMIT), ("exit 137", "limit on memory, by a kill")],
    ),
    flood("flood.inodes", inodes, &[("ENOSPC", layer::LIMIT)]),
    flood("flood.raise-own-limits", raise, &[("EPERM", layer::NO_PRIVILEGE)])
        .as_root()
        .on_some_hosts("the supervisor keeps CAP_SYS_RESOURCE"),
];

const UNPRIVILEGED: &str = "an ordinary user without cgroups limits only what each process \
                            allocates, and was told so: best effort";

/// Children that have children of their own: 420 in all, so that the host survives a session
/// without limits. Whoever is refused tries again.
fn bomb(_: &Scene) -> Outcome {
    const CHILDREN: usize = 20;
    let begin = std::time::Instant::now();
    let mut generation = 0;
    let mut made = 0;
    while begin.elapsed() < std::time::Duration::from_secs(2) {
        if made == CHILDREN || generation == 2 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        match crate::raw::fork() {
            Ok(0) => (generation, made) = (generation + 1, 0),
            Ok(_) => made += 1,
            Err(_) => {}
        }
    }
    if generation > 0 {
        leave(0);
    }
    Err(Lost::new("at the end"))
}

fn crowded(_: &Stage, shot: &Shot) -> Option<String> {
    (shot.most > 100).then(|| format!("{} processes at once on the host", shot.most))
}

/// In a user namespace of its own, which counts its processes anew.
fn namespace_processes(scene: &Scene) -> Outcome {
    cowork_sys::ignore(call(libc::SYS_unshare, &[flags(libc::CLONE_NEWUSER)]));
    processes(scene)
}

/// Files that lie nowhere but in memory.
fn anonymous_file(_: &Scene) -> Outcome {
    in_fork(|| {
        let file = File::from(open_by(libc::SYS_memfd_create, &[of(c"flood"), 0])?);
        fill_with(file, 256)
    })
}

/// A folder that the attack may mount on, if it may mount.
fn own_mounts(scene: &Scene) -> Result<String, Lost> {
    dig(scene)?;
    let place = format!("/tmp/own-{}", scene.token()?);
    std::fs::create_dir(&place)?;
    Ok(place)
}

/// A file system of the attack's own, which no limit of the session's scratch counts.
fn own_file_system(scene: &Scene) -> Outcome {
    in_fork(|| {
        let place = own_mounts(scene)?;
        let target = text(&place)?;
        let registers = [of(c"none"), of(&target), of(c"tmpfs"), 0, of(c"size=512m")];
        let filled = call(libc::SYS_mount, &registers)
            .map_err(Lost::from)
            .and_then(|_| fill_with(File::create(format!("{place}/file"))?, 256));
        cowork_sys::ignore(call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)]));
        std::fs::remove_dir(&place)?;
        filled
    })
}

fn many_mounts(scene: &Scene) -> Outcome {
    in_fork(|| {
        let place = own_mounts(scene)?;
        let target = text(&place)?;
        let mut outcome = Ok("2000 mounts".to_owned());
        let mut count = 0;
        while count < 2000 && outcome.is_ok() {
            let registers = [of(c"none"), of(&target), of(c"tmpfs"), 0, 0];
            outcome = call(libc::SYS_mount, &registers)
                .map(|_| "2000 mounts".to_owned())
                .map_err(|error| Lost::new(format!("{} after {count}", Lost::from(error))));
            count += 1;
        }
        while call(libc::SYS_umount2, &[of(&target), flags(libc::MNT_DETACH)]).is_ok() {}
        std::fs::remove_dir(&place)?;
        outcome
    })
}

/// Keeps 200 children alive at once.
fn processes(_: &Scene) -> Outcome {
    let mut children = Vec::new();
    let mut last = Ok("200 processes at once".to_owned());
    while children.len() < 200 {
        match crate::raw::fork() {
            Ok(0) => {
                std::thread::sleep(std::time::Duration::from_secs(5));
                leave(0);
            }
            Ok(child) => children.push(child),
            Err(error) => {
                last = Err(Lost::new(format!("{} after {}", Lost::from(error), children.len())));
                break;
            }
        }
    }
    for child in children {
        call(libc::SYS_kill, &[child, flags(libc::SIGKILL)])?;
        call(libc::SYS_wait4, &[child, 0, 0, 0])?;
    }
    last
}

fn threads(_: &Scene) -> Outcome {
    for count in 0..200 {
        let started = std::thread::Builder::new().stack_size(64 * 1024).spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(5));
        });
        if let Err(error) = started {
            return Err(Lost::new(format!("{} after {count}", Lost::from(error))));
        }
    }
    Ok("200 threads at once".into())
}

/// Fills 256 MiB in a child, so that this process can tell.
fn memory(_: &Scene) -> Outcome {
    in_fork(|| {
        let mut held: Vec<Vec<u8>> = Vec::new();
        for _ in 0..256 {
            let mut block = Vec::new();
            if block.try_reserve_exact(1 << 20).is_err() {
                return Err(Lost::new(format!("ENOMEM after {} MiB", held.len())));
            }
            block.resize(1 << 20, 1);
            held.push(block);
        }
        Ok(format!("{} MiB", std::hint::black_box(&held).len()))
    })
}

fn open_files(_: &Scene) -> Outcome {
    let mut limit = [0u64; 2];
    let files = flags(libc::RLIMIT_NOFILE as i32);
    call(libc::SYS_prlimit64, &[0, files, 0, into(&mut limit)])?;
    let [_, hard] = limit;
    let raised = [hard, hard];
    call(libc::SYS_prlimit64, &[0, files, at(&raised), 0])?;
    let mut open = Vec::new();
    while open.len() < 2000 {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => {
                return Err(Lost::new(format!("{} after {}", Lost::from(error), open.len())));
            }
        }
    }
    Ok("2000 files at once".into())
}

/// Writes 128 MiB.
fn fill(path: &str) -> Outcome {
    let outcome = fill_with(File::create(path)?, 128);
    std::fs::remove_file(path)?;
    outcome
}

fn fill_with(mut file: File, mebibytes: usize) -> Outcome {
    let block = vec![1; 1 << 20];
    for count in 0..mebibytes {
        if let Err(error) = file.write_all(&block) {
            return Err(Lost::new(format!("{} after {count} MiB", Lost::from(error))));
        }
    }
    Ok(format!("{mebibytes} MiB"))
}

fn inodes(scene: &Scene) -> Outcome {
    let folder = format!("/tmp/inodes-{}", scene.token()?);
    std::fs::create_dir(&folder)?;
    let mut outcome = Ok("20000 files".to_owned());
    for count in 0..20_000 {
        if let Err(error) = File::create(format!("{folder}/{count}")) {
            outcome = Err(Lost::new(format!("{} after {count}", Lost::from(error))));
            break;
        }
    }
    std::fs::remove_dir_all(&folder)?;
    outcome
}

/// Raises the limit of processes above the hard one, by one.
fn raise(_: &Scene) -> Outcome {
    let processes = flags(libc::RLIMIT_NPROC as i32);
    let mut limit = [0u64; 2];
    call(libc::SYS_prlimit64, &[0, processes, 0, into(&mut limit)])?;
    let [_, hard] = limit;
    let raised = [hard.saturating_add(1); 2];
    call(libc::SYS_prlimit64, &[0, processes, at(&raised), 0])?;
    Ok(format!("the limit is above {hard}"))
}

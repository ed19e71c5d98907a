//! Files of the kernel: settings, memory, devices.

use crate::attack::{Attack, Permitted, layer};
use crate::scene::{Lost, Outcome, Scene};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;

const CLASS: &str = "kernel files";
const OWNED: &[(&str, &str)] = &[
    ("EACCES", "Landlock | the host owns it"),
    ("EPERM", layer::NO_PRIVILEGE),
    ("ENOENT", layer::MOUNTS),
    ("EIO", layer::NO_PRIVILEGE),
    ("EROFS", layer::READ_ONLY),
];
const GONE: &[(&str, &str)] = &[("ENOENT", layer::MOUNTS), ("EACCES", layer::LANDLOCK)];

const fn writes(name: &'static str, path: &'static str) -> Attack {
    Attack::new(CLASS, name, open_for_writing, OWNED).word(path).as_root()
}

const fn reads(name: &'static str, path: &'static str) -> Attack {
    Attack::new(CLASS, name, read_something, OWNED).word(path).as_root()
}

pub(crate) const TABLE: &[Attack] = &[
    writes("write.sysrq-trigger", "/proc/sysrq-trigger").on_some_hosts("the kernel has no SysRq"),
    writes("write.core_pattern", "/proc/sys/kernel/core_pattern"),
    writes("write.modprobe", "/proc/sys/kernel/modprobe")
        .on_some_hosts("the kernel has no modules"),
    writes("write.drop_caches", "/proc/sys/vm/drop_caches"),
    writes("write.panic", "/proc/sys/kernel/panic"),
    writes("write.randomize_va_space", "/proc/sys/kernel/randomize_va_space"),
    writes("write.suid_dumpable", "/proc/sys/fs/suid_dumpable"),
    writes("write.protected_symlinks", "/proc/sys/fs/protected_symlinks"),
    writes("write.hostname", "/proc/sys/kernel/hostname"),
    Attack::new(CLASS, "write.binfmt_misc", register_interpreter, OWNED)
        .as_root()
        .on_some_hosts("the kernel has no binfmt_misc"),
    Attack::new(CLASS, "write.max_user_namespaces", allow_namespaces, OWNED),
    writes("write.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
    writes("write.irq", "/proc/irq/default_smp_affinity"),
    reads("read.kcore", "/proc/kcore").on_some_hosts("the kernel does not show its memory"),
    reads("read.kmsg", "/proc/kmsg"),
    reads("read.kpageflags", "/proc/kpageflags"),
    reads("read.slabinfo", "/proc/slabinfo"),
    reads("read.vmallocinfo", "/proc/vmallocinfo"),
    reads("read.timer_list", "/proc/timer_list"),
    Attack::new(
        CLASS,
        "read.kallsyms-addresses",
        kernel_addresses,
        &[("only zeroes", layer::NO_PRIVILEGE), ("EACCES", layer::LANDLOCK)],
    )
    .as_root(),
    Attack::new(CLASS, "sys.present", |_| read("/sys/kernel/uevent_seqnum"), GONE),
    Attack::new(CLASS, "sys.uevent_helper", release_agent, GONE).as_root(),
    Attack::new(CLASS, "sys.cgroups", |_| list("/sys/fs/cgroup"), GONE),
    Attack::new(CLASS, "dev.disk", disk, GONE)
        .as_root()
        .on_some_hosts("there is no disk, or the supervisor keeps it"),
    Attack::new(CLASS, "dev.mem", |_| read("/dev/mem"), GONE)
        .as_root()
        .on_some_hosts("the kernel does not show the memory"),
    Attack::new(CLASS, "dev.kmsg", |_| read("/dev/kmsg"), GONE).as_root(),
    Attack::new(
        CLASS,
        "oom-score-below-the-host",
        lower_score,
        &[("EACCES", layer::NO_PRIVILEGE), ("EPERM", layer::NO_PRIVILEGE)],
    )
    .as_root()
    .on_some_hosts("the supervisor keeps CAP_SYS_RESOURCE"),
    Attack::new(
        CLASS,
        "oom-score-of-the-host",
        take_score_back,
        &[("EACCES", "its floor, which the keeper set")],
    )
    .permitted(Permitted::WithoutResources(
        "the kernel keeps a floor only for who has CAP_SYS_RESOURCE",
    )),
];

/// The limit belongs to a user namespace. Bare, to one of the attack's own.
fn allow_namespaces(scene: &Scene) -> Outcome {
    if !scene.inside() {
        crate::raw::call(libc::SYS_unshare, &[crate::raw::flags(libc::CLONE_NEWUSER)])?;
    }
    OpenOptions::new().write(true).open("/proc/sys/user/max_user_namespaces")?;
    Ok("open for writing".into())
}

/// Where the kernel can be told which program executes a file. Bare, it is mounted first, where
/// nobody else sees it. What is written is no interpreter.
fn register_interpreter(scene: &Scene) -> Outcome {
    const FOLDER: &std::ffi::CStr = c"/proc/sys/fs/binfmt_misc";
    if !scene.inside() && std::fs::metadata("/proc/sys/fs/binfmt_misc/register").is_err() {
        crate::raw::call(libc::SYS_unshare, &[crate::raw::flags(libc::CLONE_NEWNS)])?;
        let kind = crate::raw::of(c"binfmt_misc");
        let folder = crate::raw::of(FOLDER);
        let private = (libc::MS_REC | libc::MS_PRIVATE) as usize;
        crate::raw::call(libc::SYS_mount, &[0, crate::raw::of(c"/"), 0, private, 0])?;
        crate::raw::call(libc::SYS_mount, &[kind, folder, kind, 0, 0])?;
    }
    let mut register = OpenOptions::new().write(true).open("/proc/sys/fs/binfmt_misc/register")?;
    match register.write(b"no interpreter") {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok("the kernel reads what is written there".into())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok("written".into()),
    }
}

/// Opens and writes nothing.
fn open_for_writing(scene: &Scene) -> Outcome {
    OpenOptions::new().write(true).open(scene.word)?;
    Ok("open for writing".into())
}

fn read_something(scene: &Scene) -> Outcome {
    read(scene.word)
}

fn read(path: &str) -> Outcome {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = [0; 8192];
    match file.read(&mut bytes) {
        Ok(0) => Err(Lost::new("nothing in it")),
        Ok(length) => Ok(format!("{length} bytes of {path}")),
        // Open, with nothing to say at the moment.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(format!("{path} is open")),
        Err(error) => Err(error.into()),
    }
}

fn list(path: &str) -> Outcome {
    Ok(format!("{} names in {path}", std::fs::read_dir(path)?.count()))
}

fn kernel_addresses(_: &Scene) -> Outcome {
    let symbols = std::fs::read_to_string("/proc/kallsyms")?;
    let address = symbols.lines().find_map(|line| {
        let address = line.split(' ').next()?;
        address.bytes().any(|digit| digit != b'0').then_some(address)
    });
    address.map(str::to_owned).ok_or_else(|| Lost::new("only zeroes"))
}

/// Files through which the kernel can be told to start a program.
fn release_agent(_: &Scene) -> Outcome {
    let mut last = Lost::new("ENOENT");
    let mut paths = vec!["/sys/kernel/uevent_helper".to_owned()];
    for entry in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        paths.push(format!("{}/release_agent", entry.path().display()));
    }
    for path in paths {
        match OpenOptions::new().write(true).open(&path) {
            Ok(_) => return Ok(format!("{path} is open for writing")),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// The device under the root file system, by any of its usual names.
fn disk(_: &Scene) -> Outcome {
    let mut last = Lost::new("ENOENT");
    for path in ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/dm-0"] {
        match read(path) {
            Ok(seen) => return Ok(seen),
            Err(lost) => last = lost,
        }
    }
    Err(last)
}

fn lower_score(_: &Scene) -> Outcome {
    std::fs::write("/proc/self/oom_score_adj", "-900")?;
    let now = std::fs::read_to_string("/proc/self/oom_score_adj")?;
    if now.trim() == "-900" { Ok("it is -900".into()) } else { Err(Lost::new(now.trim())) }
}

/// As likely to be ended as a program of the host's. Bare, it is made likelier first, as sessions are.
fn take_score_back(scene: &Scene) -> Outcome {
    const OWN: &str = "/proc/self/oom_score_adj";
    let usual = scene.get("oom-score")?;
    if !scene.inside() {
        std::fs::write(OWN, "500")?;
    }
    let before = std::fs::read_to_string(OWN)?;
    std::fs::write(OWN, usual)?;
    let now = std::fs::read_to_string(OWN)?;
    if now.trim() == usual && before != now {
        return Ok(format!("it was {}, and is {usual}", before.trim()));
    }
    Err(Lost::new(format!("it was {}, and is {}", before.trim(), now.trim())))
}

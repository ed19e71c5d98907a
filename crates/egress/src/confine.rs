//! The process gives up everything that it does not need, for good, before the first byte of the
//! session reaches it.
//!
//! It keeps: sockets of the internet, the files that looking up a name reads, and threads. It loses:
//! root, capabilities, every other file, other programs, other processes, debugging, namespaces and
//! mounts. What is in force is observed afterwards; a process that is not held does not begin.
//!
//! A file that is replaced by another one of the same name (`/etc/resolv.conf` on some systems) cannot
//! be read any more: what was opened to it is the file, not the name. That is noticed before a name is
//! looked up, and the process leaves; the next one can read it. In the folders below it is the folder
//! that was opened, and whatever comes into it can be read.

use cowork_policy::seccomp::{Arch, Debugging, Policy, Profile};
use cowork_sys::Errno;
use cowork_sys::seccomp::{Instruction, install};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

/// Who the process becomes when it was started by root: nobody.
const NOBODY: u32 = 65_534;
/// Most descriptors it asks for.
const DESCRIPTORS: u64 = 128 * 1024;
/// The files and folders that looking up a name reads; not every system has all of them.
const FILES: [&str; 18] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/netconfig",
    "/run/connman",
    "/run/dhcpcd",
    "/run/nscd",
];
/// Those of them that decide what comes of it.
const NAMES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];
/// How many filters of system calls there are of ours.
const OURS: u32 = 2;
/// What everybody may read and only Landlock forbids.
const CANARY: &str = "/etc/passwd";

/// Confines this process, which has one thread. Says what holds it.
pub fn confine() -> Result<Vec<String>, String> {
    let status =
        rustix::fs::open("/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("read the status of this process"))?;
    limit()?;
    become_nobody()?;
    rustix::thread::set_no_new_privs(true).map_err(failed("give up gaining privileges"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(failed("forbid dumps"))?;
    let abi = raise_walls()?;
    let before = filters_in_force(&Status::read(&status)?);
    for filter in filters()? {
        install(&filter).map_err(failed("install the filter of system calls"))?;
    }
    observe(&Status::read(&status)?, abi, before)
}

fn failed(step: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("cannot {step}: {errno}")
}

/// The file that looking up a name reads and that cannot be read any more, if there is one.
pub(crate) fn unreadable() -> Option<&'static str> {
    NAMES.into_iter().find(|path| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(*path, flags, Mode::empty()).is_err_and(|errno| errno == Errno::ACCESS)
    })
}

fn limit() -> Result<(), String> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("forbid core dumps"))?;
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    let files = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Nofile, files).map_err(failed("limit open files"))
}

fn become_nobody() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        cowork_sys::identity::empty_bounding_set().map_err(failed("empty the bounding set"))?;
        rustix::thread::set_thread_groups(&[]).map_err(failed("leave all groups"))?;
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_res_gid(group, group, group).map_err(failed("leave root"))?;
        rustix::thread::set_thread_res_uid(user, user, user).map_err(failed("leave root"))?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(failed("drop capabilities"))
}

/// Restricts files, signals and local sockets. Returns the version of Landlock.
fn raise_walls() -> Result<u32, String> {
    let Some(number) = cowork_sys::identity::landlock_abi() else {
        return Err("this kernel has no Landlock: what faces a session cannot be confined".into());
    };
    let abi = abi_of(number);
    let refused = |error: landlock::RulesetError| format!("cannot raise the walls: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(refused)?;
    if number >= 6 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(refused)?;
    }
    let mut created = ruleset.create().map_err(refused)?;
    for path in FILES {
        // What a system does not have needs no leave.
        let Ok(handle) = PathFd::new(path) else { continue };
        created = created.add_rule(PathBeneath::new(handle, rights(path, abi))).map_err(refused)?;
    }
    created.restrict_self().map_err(refused)?;
    Ok(number)
}

fn rights(path: &str, abi: ABI) -> BitFlags<AccessFs> {
    let is_folder = rustix::fs::stat(path)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
    let mut rights = BitFlags::from(AccessFs::ReadFile);
    if is_folder {
        rights |= AccessFs::ReadDir;
    }
    if is_folder && path.starts_with("/run/") {
        // The host's own resolvers are asked over a socket.
        rights |= AccessFs::ResolveUnix;
    }
    rights & AccessFs::from_all(abi)
}

fn abi_of(number: u32) -> ABI {
    match number {
        0 | 1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => ABI::V9,
    }
}

/// What a session's own programs may not do either, and then: no other program, no other process.
fn filters() -> Result<[Vec<Instruction>; OURS as usize], String> {
    let arch = Arch::native().ok_or("there is no filter of system calls for this machine")?;
    let guard = Policy::guard(Profile::Strict, Debugging::Forbidden)
        .assemble(arch)
        .map_err(|error| error.to_string())?;
    let same = |one: &cowork_policy::seccomp::Instruction| Instruction {
        code: one.code,
        jt: one.jt,
        jf: one.jf,
        k: one.k,
    };
    Ok([guard.instructions().iter().map(same).collect(), alone(arch)])
}

/// Refuses every way to start a program or a process. Threads are let pass. Other architectures
/// were refused by the filter before this one.
fn alone(arch: Arch) -> Vec<Instruction> {
    /// Loads a word of what the kernel tells about a call.
    const LOAD: u16 = 0x20;
    /// Compares with a number.
    const EQUALS: u16 = 0x15;
    /// Compares bits.
    const HAS_BITS: u16 = 0x45;
    /// Gives the verdict.
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const NOT_PERMITTED: u32 = 0x0005_0001;
    /// `ENOSYS`: the C library then uses `clone`, whose flags can be seen.
    const MISSING: u32 = 0x0005_0026;
    /// `CLONE_THREAD`.
    const THREAD: u32 = 0x0001_0000;
    /// Where the number of a call is.
    const NUMBER: u32 = 0;
    /// Where the low half of its first argument is.
    const FIRST: u32 = 16;

    let plain = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let unless = |code, k, jf| Instruction { code, jt: 0, jf, k };
    let mut code = vec![plain(LOAD, NUMBER)];
    for (call, verdict) in [
        ("execve", NOT_PERMITTED),
        ("execveat", NOT_PERMITTED),
        ("fork", NOT_PERMITTED),
        ("vfork", NOT_PERMITTED),
        ("clone3", MISSING),
    ] {
        if let Some(number) = arch.number_of(call) {
            code.push(unless(EQUALS, number, 1));
            code.push(plain(RETURN, verdict));
        }
    }
    if let Some(number) = arch.number_of("clone") {
        code.push(unless(EQUALS, number, 3));
        code.push(plain(LOAD, FIRST));
        code.push(Instruction { code: HAS_BITS, jt: 1, jf: 0, k: THREAD });
        code.push(plain(RETURN, NOT_PERMITTED));
    }
    code.push(plain(RETURN, ALLOW));
    code
}

/// What the kernel says about this process.
struct Status(String);

impl Status {
    fn read(file: &OwnedFd) -> Result<Self, String> {
        let mut buffer = vec![0; 8192];
        let read = rustix::io::pread(file, &mut buffer, 0);
        buffer.truncate(read.map_err(failed("read the status of this process"))?);
        Ok(Self(String::from_utf8_lossy(&buffer).into_owned()))
    }

    fn line(&self, name: &str) -> String {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// How many filters of system calls there are, where the kernel counts them (Linux 5.9).
fn filters_in_force(status: &Status) -> Option<u32> {
    status.line("Seccomp_filters").parse().ok()
}

/// Looks at what is in force. There were `before` filters before ours.
fn observe(status: &Status, abi: u32, before: Option<u32>) -> Result<Vec<String>, String> {
    let line = |name| status.line(name);
    let user = rustix::process::geteuid();
    let none = "0000000000000000";
    if user.is_root() || line("CapEff") != none || line("CapPrm") != none {
        return Err("this process still has privileges".into());
    }
    if line("NoNewPrivs") != "1" || line("Seccomp") != "2" {
        return Err("the filter of system calls is not in force".into());
    }
    let canary = rustix::fs::open(CANARY, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    if canary.is_ok() {
        return Err(format!("Landlock is not in force: {CANARY} can be read"));
    }
    if cowork_sys::identity::probe_add_key() != Errno::PERM {
        return Err("the filter of system calls lets a forbidden call pass".into());
    }
    let probes = [cowork_sys::identity::probe_exec(), cowork_sys::identity::probe_fork()];
    if probes != [Errno::PERM; 2] {
        return Err("the filter of system calls lets programs or processes start".into());
    }
    if before.map(|before| before + OURS) != filters_in_force(status) {
        return Err("not all filters of system calls are in force".into());
    }
    Ok(vec![
        format!("user {}, no capabilities, no new privileges", user.as_raw()),
        format!("Landlock {abi}: reads what looking up a name needs, writes nothing"),
        format!("seccomp, {} filters: no programs, no processes", line("Seccomp_filters")),
        "not dumpable".into(),
    ])
}

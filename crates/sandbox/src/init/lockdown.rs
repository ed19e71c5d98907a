//! The one-way door: limits, Landlock and the filters, in this order, and a look at the result.

use crate::kernel::{Failed, Step, path_of};
use cowork_api::guest::{Began, Begin, Probe};
use cowork_api::plan::{Right, Wall};
use cowork_sys::Errno;
use cowork_sys::seccomp::{Instruction, Waiting, install, install_with_listener};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// What came of it.
pub(crate) struct Locked {
    pub(crate) began: Began,
    /// Where calls go that the broker decides.
    pub(crate) listener: OwnedFd,
}

/// Applies every layer to this process, for good.
pub(crate) fn lock_down(begin: &Begin, walls: Option<Walls>) -> Result<Locked, Failed> {
    set_limits(begin)?;
    rustix::process::umask(Mode::from_raw_mode(cowork_sys::spawn::USUAL_MASK));
    let guard = instructions(&begin.guard)?;
    let door = instructions(&begin.door)?;
    let outside = Outside::make();
    // Those that were made for others are of no use.
    let landlock_abi = match walls.filter(|made| made.wanted == begin.walls) {
        Some(walls) => walls.raise()?,
        None => raise_walls(&begin.walls)?,
    };
    // The filter would hand the call to the broker.
    let scopes = outside.map_or(Probe::Untested, |outside| outside.try_scopes());
    install(&guard).step(|| "install the filter of system calls".into())?;
    let (listener, waiting) =
        install_with_listener(&door).step(|| "install the filter of the broker".into())?;
    let began = Began::Locked {
        landlock_abi,
        canary: try_canary(begin),
        forbidden_call: try_forbidden_call(),
        killable: waiting == Waiting::Killable,
        scopes,
    };
    Ok(Locked { began, listener })
}

fn set_limits(begin: &Begin) -> Result<(), Failed> {
    let exactly = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let set = |resource, value| {
        setrlimit(resource, exactly(value)).step(|| format!("limit {resource:?}"))
    };
    // No core file is as small as that, and it is the one limit with which the kernel starts no crash
    // handler of the host's either (`fs/coredump.c`). The filter keeps it. An ordinary user whose own
    // limit is nothing cannot have that one.
    set(Resource::Core, 1).or_else(|_refused| set(Resource::Core, 0))?;
    if let Some(processes) = begin.processes {
        set(Resource::Nproc, processes.into())?;
    }
    // What the caller may do beyond others is not handed on.
    set(Resource::Rtprio, 0)?;
    set(Resource::Nice, 0)?;
    // A program may raise its own soft limit of open files up to the hard one; most expect a low
    // soft limit, because some close every descriptor up to it.
    let files = u64::from(begin.open_files);
    let soft = files.min(1024);
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(files) })
        .step(|| "limit open files".into())?;
    match begin.data_bytes {
        Some(bytes) => set(Resource::Data, bytes),
        None => Ok(()),
    }
}

fn instructions(bytes: &[u8]) -> Result<Vec<Instruction>, Failed> {
    let (whole, rest) = bytes.as_chunks::<8>();
    if whole.is_empty() || !rest.is_empty() {
        return Err(Failed::new("read the filter", Errno::BADMSG));
    }
    Ok(whole
        .iter()
        .map(|[c0, c1, jt, jf, k @ ..]| Instruction {
            code: u16::from_ne_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes(*k),
        })
        .collect())
}

/// Walls of Landlock that hold nobody yet. They are about the files that lie at their paths when they are
/// made; what is put in the place of one of those later is not reached through them.
pub(crate) struct Walls {
    wanted: Vec<Wall>,
    abi: u32,
    ruleset: RulesetCreated,
}

fn refused(_error: RulesetError) -> Failed {
    Failed::new("raise the Landlock walls", Errno::INVAL)
}

/// Restricts this process by Landlock, to the highest ABI that the kernel has. Returns it.
fn raise_walls(walls: &[Wall]) -> Result<u32, Failed> {
    Walls::make(walls)?.map_or(Ok(0), Walls::raise)
}

impl Walls {
    /// `None` where the kernel has none that could hold.
    pub(crate) fn make(walls: &[Wall]) -> Result<Option<Self>, Failed> {
        let Some(number) = cowork_sys::identity::landlock_abi() else { return Ok(None) };
        let made = make_ruleset(walls, number)?;
        Ok(made.map(|ruleset| Self { wanted: walls.to_vec(), abi: number, ruleset }))
    }

    fn raise(self) -> Result<u32, Failed> {
        self.ruleset.restrict_self().map_err(refused)?;
        Ok(self.abi)
    }
}

fn make_ruleset(walls: &[Wall], number: u32) -> Result<Option<RulesetCreated>, Failed> {
    let abi = abi_of(number);
    let files = if walls.is_empty() { BitFlags::empty() } else { AccessFs::from_all(abi) };
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if !files.is_empty() {
        ruleset = ruleset.handle_access(files).map_err(refused)?;
    }
    if number >= 6 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(refused)?;
    } else if files.is_empty() {
        return Ok(None);
    }
    let mut created = ruleset.create().map_err(refused)?;
    for wall in walls {
        let path = path_of(&wall.beneath);
        let handle = PathFd::new(path)
            .map_err(|_error| Failed::new(format!("open {}", path.display()), Errno::NOENT))?;
        let mut rights = rights(wall.right, abi);
        let stat = rustix::fs::fstat(&handle).step(|| format!("look at {}", path.display()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            rights &= AccessFs::from_file(abi);
        }
        created = created.add_rule(PathBeneath::new(handle, rights)).map_err(refused)?;
    }
    Ok(Some(created))
}

/// No right lets a session resolve a UNIX socket by its path (ABI 9): what it bound itself it
/// reaches without one, and everything else is not its own.
fn rights(right: Right, abi: ABI) -> BitFlags<AccessFs> {
    let all = AccessFs::from_all(abi) & !BitFlags::from(AccessFs::ResolveUnix);
    match right {
        Right::List => AccessFs::ReadDir.into(),
        Right::Read => AccessFs::from_read(abi) & all,
        Right::Everything => all,
    }
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

/// An abstract socket that lies outside of the walls: a socket is for ever on the side on which it was
/// made. Signals have no such object, and their scope is raised by the same call or not at all.
struct Outside {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

impl Outside {
    /// Before the walls are raised.
    fn make() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        // The network is the session's own, and nobody else is in it yet.
        let address = SocketAddrUnix::new_abstract_name(b"outside").ok()?;
        bind(&socket, &address).ok()?;
        Some(Self { socket, address })
    }

    /// Connects it to itself, which only a scope forbids.
    fn try_scopes(&self) -> Probe {
        match connect(&self.socket, &self.address) {
            Err(Errno::PERM) => Probe::Refused,
            Ok(()) => Probe::Passed,
            Err(_) => Probe::Untested,
        }
    }
}

/// Reads a file that everybody may read and that only Landlock forbids.
fn try_canary(begin: &Begin) -> Probe {
    if begin.walls.is_empty() {
        return Probe::Untested;
    }
    let path = path_of(&begin.canary);
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS) => Probe::Refused,
        Ok(_) => Probe::Passed,
        // It is not there to be read: nothing was tested.
        Err(_) => Probe::Untested,
    }
}

/// Makes a call that the filter refuses, with arguments that the kernel itself refuses otherwise.
fn try_forbidden_call() -> Probe {
    if cowork_sys::identity::probe_add_key() == Errno::PERM {
        Probe::Refused
    } else {
        Probe::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::{Outside, Probe, raise_walls};

    /// Landlock holds the thread that raises it, so that each trial has one of its own.
    #[test]
    fn scopes_are_what_refuses_the_socket() {
        let trial = |raise: bool| {
            let trial = std::thread::spawn(move || {
                let outside = Outside::make().expect("there are sockets");
                let abi = if raise { raise_walls(&[]).expect("walls can be raised") } else { 0 };
                (abi, outside.try_scopes())
            });
            trial.join().expect("it ends well")
        };
        assert_eq!(trial(false), (0, Probe::Passed));
        let (abi, probe) = trial(true);
        assert_eq!(probe, if abi >= 6 { Probe::Refused } else { Probe::Passed });
    }
}

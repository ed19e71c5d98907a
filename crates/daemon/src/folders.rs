//! The folders of the daemon: what it keeps, and where it is reached. Both are its user's alone.

use crate::trouble::Trouble;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{PidfdFlags, pidfd_open};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where things are.
#[derive(Debug)]
pub(crate) struct Folders {
    /// What is kept.
    pub(crate) state: PathBuf,
    /// Sockets, the lock and the log.
    pub(crate) runtime: PathBuf,
    /// Held as long as the daemon runs: there is one per state folder.
    _lock: OwnedFd,
    _runtime_lock: OwnedFd,
}

impl Folders {
    /// Makes what is missing and takes the lock.
    pub(crate) fn prepare() -> Result<Self, Trouble> {
        let refused = |error: cowork_client::places::PlaceError| {
            Trouble::host(error.to_string(), crate::trouble::chain(&error))
        };
        let runtime = cowork_client::places::runtime_folder().map_err(refused)?;
        let state = cowork_client::places::state_folder().map_err(refused)?;
        make_private(&state)?;
        let runtime_lock = lock(&runtime)?;
        let lock = lock(&state)?;
        for folder in ["sessions", "audit", "trash"] {
            make(&state.join(folder))?;
        }
        Ok(Self { state, runtime, _lock: lock, _runtime_lock: runtime_lock })
    }

    /// The folder of a session.
    pub(crate) fn session(&self, id: &str) -> PathBuf {
        self.state.join("sessions").join(id)
    }

    /// Where what is to be removed lies until it is.
    pub(crate) fn trash(&self) -> PathBuf {
        self.state.join("trash")
    }

    /// The socket of the API.
    pub(crate) fn api(&self) -> PathBuf {
        self.runtime.join("api.sock")
    }

    /// The socket of the keeper.
    pub(crate) fn keeper(&self) -> PathBuf {
        self.runtime.join("keeper.sock")
    }
}

/// Makes a folder with those above it; it must be this user's alone.
fn make_private(path: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let sentence = || format!("cannot make the folder `{}`", path.display());
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Trouble::host(sentence(), error))?;
    let metadata =
        std::fs::symlink_metadata(path).map_err(|error| Trouble::host(sentence(), error))?;
    let own = rustix::process::getuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != own {
        let sentence = format!("`{}` is not a folder of this user", path.display());
        return Err(Trouble::refused("bad-folder", sentence)
            .with_hint("name another one in COWORK_STATE_DIR"));
    }
    if metadata.mode() & 0o077 != 0 {
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(path, private)
            .map_err(|error| Trouble::host(sentence(), error))?;
    }
    Ok(())
}

/// Makes a folder for this user alone, if it is not there.
pub(crate) fn make(path: &Path) -> Result<(), Trouble> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => {
            let sentence = format!("cannot make the folder `{}`", path.display());
            Err(Trouble::of_disk(sentence, &std::io::Error::from(errno)))
        }
    }
}

/// Takes the lock. One that no daemon serves under is waited for: a daemon that is about to leave has
/// no socket any more; one that was killed while it started the keeper left a process that holds
/// what it held, until that process executes its program.
fn wait_for(lock: &OwnedFd, socket: &Path) -> Result<(), rustix::io::Errno> {
    /// Longest that a daemon takes to leave.
    const PATIENCE: Duration = Duration::from_secs(8);
    const PAUSE: Duration = Duration::from_millis(10);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK)
                if !is_served(socket) && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Whether the process that listens at a socket lives.
fn is_served(socket: &Path) -> bool {
    let connected = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let end = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)?;
        socket_peercred(&end)
    };
    match connected() {
        Ok(peer) => pidfd_open(peer.pid, PidfdFlags::empty()).is_ok_and(|process| {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            poll(&mut ended, Some(&Timespec::default())) == Ok(0)
        }),
        // It has more to do than it can.
        Err(errno) => errno == rustix::io::Errno::AGAIN,
    }
}

fn lock(folder: &Path) -> Result<OwnedFd, Trouble> {
    let path = folder.join("coworkd.lock");
    let sentence = || format!("cannot use the folder `{}`", folder.display());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| Trouble::host(sentence(), std::io::Error::from(errno)))?;
    match wait_for(&lock, &folder.join("api.sock")) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Trouble::conflict(
            "running",
            format!("another coworkd uses `{}` already", folder.display()),
        )
        .with_hint("use that one, or stop it with `cowork daemon --stop`")),
        Err(errno) => Err(Trouble::host(sentence(), std::io::Error::from(errno))),
    }
}

//! Where the daemon of a user is found: the runtime folder with its socket, and the folder with
//! what it keeps. Client and daemon ask here, so that they cannot disagree.
//!
//! Invariant: the runtime folder is a folder of this user's that nobody else can enter, and no
//! link. Whoever could put a socket there could answer in the daemon's place.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names the runtime folder, in place of the usual one.
pub const RUNTIME_VARIABLE: &str = "COWORK_RUNTIME_DIR";
/// Names the state folder, in place of the usual one.
pub const STATE_VARIABLE: &str = "COWORK_STATE_DIR";

/// The daemon's socket, in the runtime folder.
const SOCKET: &str = "api.sock";
/// What the daemon has to say when nobody listens, in the runtime folder.
const LOG: &str = "coworkd.log";

/// The runtime folder of the system's daemon.
const SYSTEM_RUNTIME: &str = "/run/cowork";
/// The state folder of the system's daemon, which its unit has made.
const SYSTEM_STATE: &str = "/var/lib/cowork";

/// Longest path of a socket, its final zero included (unix(7)).
const MAX_SOCKET_PATH: usize = 108;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A variable says where, but not from the root.
    #[error("`{variable}` is `{}`, which is not an absolute path", .path.display())]
    Relative {
        /// Which variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// Somebody else could put something there.
    #[error("the runtime folder `{}` cannot be trusted: {why}", .path.display())]
    Untrusted {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A socket in it would have a path that the kernel refuses.
    #[error("the runtime folder `{}` has too long a path for a socket", .path.display())]
    TooLong {
        /// Which folder.
        path: PathBuf,
    },
    /// It cannot be made or looked at.
    #[error("cannot use the runtime folder `{}`", .path.display())]
    Kernel {
        /// Which folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Neither a variable nor the list of users says where the user's home is.
    #[error("this user has no home to keep state in")]
    NoHome,
}

/// The folder with the daemon's socket. It is made if it is missing, and refused if somebody else
/// could put something there.
pub fn runtime_folder() -> Result<PathBuf, PlaceError> {
    let user = rustix::process::geteuid().as_raw();
    let path = choose(Found::look(user), user)?;
    if path.as_os_str().len() + 1 + SOCKET.len() >= MAX_SOCKET_PATH {
        return Err(PlaceError::TooLong { path });
    }
    trust(&path, user)?;
    Ok(path)
}

/// Every folder in which a program of this user may look for the daemon's socket: the one that it
/// looks in here, and those that are there and count in another environment, such as a timer's.
pub fn runtime_folders() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let found = Found::look(user);
    let session = found.session.as_deref().map(|session| session.join("cowork"));
    let elsewhere = session.into_iter().chain(usual(user));
    let elsewhere = elsewhere.filter(|path| path.is_absolute() && rustix::fs::lstat(path).is_ok());
    let elsewhere: Vec<PathBuf> = elsewhere.collect();
    choose(found, user).into_iter().chain(elsewhere).collect()
}

/// The daemon's socket in a runtime folder.
pub fn socket_in(runtime: &Path) -> PathBuf {
    runtime.join(SOCKET)
}

/// The daemon's log in a runtime folder.
pub fn log_in(runtime: &Path) -> PathBuf {
    runtime.join(LOG)
}

/// The folder with everything that the daemon keeps. It is not made here.
pub fn state_folder() -> Result<PathBuf, PlaceError> {
    if let Some(path) = variable(STATE_VARIABLE) {
        return absolute(STATE_VARIABLE, path);
    }
    let user = rustix::process::geteuid().as_raw();
    if variable(RUNTIME_VARIABLE).is_none() && is_of_system(user, Path::new(SYSTEM_STATE)) {
        return Ok(SYSTEM_STATE.into());
    }
    // Relative paths are to be ignored there (XDG Base Directory Specification).
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| home().map(|home| home.join(".local/state")));
    state.map(|state| state.join("cowork")).ok_or(PlaceError::NoHome)
}

/// The user's home: what `HOME` says, else what the list of users says.
pub fn home() -> Option<PathBuf> {
    variable("HOME").filter(|home| home.is_absolute()).or_else(|| {
        let own = rustix::process::getuid().as_raw().to_string();
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let mut users = users.lines().map(|line| line.split(':'));
        users.find_map(|mut user| (user.nth(2)? == own).then(|| user.nth(2).map(PathBuf::from))?)
    })
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from)
}

fn absolute(variable: &'static str, path: PathBuf) -> Result<PathBuf, PlaceError> {
    if path.is_absolute() { Ok(path) } else { Err(PlaceError::Relative { variable, path }) }
}

/// What is known about the runtime folder.
struct Found {
    /// What cowork's own variable says.
    own: Option<PathBuf>,
    /// What the user's login says.
    session: Option<PathBuf>,
    /// Whether the daemon that is meant is the system's.
    owner: Owner,
}

/// Whose daemon is meant where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The user's own.
    User,
    /// The system's, which a unit starts as root.
    System,
}

impl Found {
    fn look(user: u32) -> Self {
        let own = variable(RUNTIME_VARIABLE);
        let is_said = own.is_some() || variable(STATE_VARIABLE).is_some();
        let of_system = !is_said && is_of_system(user, Path::new(SYSTEM_STATE));
        let owner = if of_system { Owner::System } else { Owner::User };
        Self { own, session: variable("XDG_RUNTIME_DIR"), owner }
    }
}

/// Whether a user who says nothing else means the system's daemon: root, once its unit has made the
/// state folder. That stays so while the daemon does not run: what root sees must not depend on it.
fn is_of_system(user: u32, state: &Path) -> bool {
    user == 0 && is_folder_of(state, user)
}

fn is_folder_of(path: &Path, user: u32) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_uid == user
    })
}

fn choose(found: Found, user: u32) -> Result<PathBuf, PlaceError> {
    if let Some(path) = found.own {
        return absolute(RUNTIME_VARIABLE, path);
    }
    if found.owner == Owner::System {
        return Ok(SYSTEM_RUNTIME.into());
    }
    if let Some(session) = found.session.filter(|path| path.is_absolute()) {
        return Ok(session.join("cowork"));
    }
    let [login, fallback] = usual(user);
    let is_login = login.parent().is_some_and(|login| is_folder_of(login, user));
    Ok(if user == 0 || is_login { login } else { fallback })
}

/// Where the runtime folder is if nothing is said: with a login's, and without.
fn usual(user: u32) -> [PathBuf; 2] {
    if user == 0 {
        return [SYSTEM_RUNTIME.into(), SYSTEM_RUNTIME.into()];
    }
    [format!("/run/user/{user}/cowork").into(), format!("/tmp/cowork-{user}").into()]
}

/// Makes the folder if it is missing, and looks at it without following a link.
fn trust(path: &Path, user: u32) -> Result<(), PlaceError> {
    let failed = |errno: Errno| PlaceError::Kernel { path: path.into(), source: errno.into() };
    let untrusted = |why| Err(PlaceError::Untrusted { path: path.into(), why });
    let made = match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(failed(errno)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A slash at the end would make the kernel follow a link after all.
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    let folder =
        match rustix::fs::openat(CWD, bytes.get(..end).unwrap_or(bytes), flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::LOOP | Errno::NOTDIR) => return untrusted("it is not a folder, or a link"),
            Err(errno) => return Err(failed(errno)),
        };
    let stat = rustix::fs::fstat(&folder).map_err(failed)?;
    if stat.st_uid != user {
        return untrusted("it belongs to another user");
    }
    if made {
        // Whatever mask this process has: its owner needs all of it.
        rustix::fs::fchmod(&folder, Mode::RWXU).map_err(failed)?;
    } else if stat.st_mode & 0o7777 != 0o700 {
        return untrusted("its permissions are not 0700");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Found, Owner, PlaceError, choose, is_of_system, trust};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    fn chosen(own: Option<&str>, session: Option<&str>, user: u32) -> Result<PathBuf, String> {
        chosen_of(Owner::User, own, session, user)
    }

    fn chosen_of(
        owner: Owner,
        own: Option<&str>,
        session: Option<&str>,
        user: u32,
    ) -> Result<PathBuf, String> {
        let found = Found { own: own.map(Into::into), session: session.map(Into::into), owner };
        choose(found, user).map_err(|error| error.to_string())
    }

    #[test]
    fn root_means_the_daemon_of_the_system_where_there_is_one() {
        let of_system = |own, session| chosen_of(Owner::System, own, session, 0);
        assert_eq!(of_system(None, Some("/run/user/0")), Ok("/run/cowork".into()));
        assert_eq!(of_system(Some("/a"), Some("/run/user/0")), Ok("/a".into()));
        let scratch = Scratch::new("system");
        let owner = rustix::process::geteuid().as_raw();
        assert_eq!(is_of_system(0, &scratch.0), owner == 0);
        assert!(!is_of_system(7, &scratch.0));
        assert!(!is_of_system(0, &scratch.0.join("missing")));
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink("/", &link).expect("it is ours");
        assert!(!is_of_system(0, &link));
    }

    #[test]
    fn the_most_explicit_place_wins() {
        assert_eq!(chosen(Some("/a"), Some("/b"), 0), Ok("/a".into()));
        assert_eq!(chosen(None, Some("/b"), 7), Ok("/b/cowork".into()));
        assert_eq!(chosen(None, Some("b"), 0), Ok("/run/cowork".into()));
        assert_eq!(chosen(None, None, 0), Ok("/run/cowork".into()));
        assert_eq!(chosen(None, None, 4_000_000), Ok("/tmp/cowork-4000000".into()));
        assert_eq!(
            chosen(Some("a"), None, 0),
            Err("`COWORK_RUNTIME_DIR` is `a`, which is not an absolute path".into())
        );
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("places-{}-{name}", std::process::id()));
            std::fs::create_dir(&path).expect("the folder for temporary files is writable");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn why(path: &Path) -> Option<&'static str> {
        match trust(path, rustix::process::geteuid().as_raw()) {
            Err(PlaceError::Untrusted { why, .. }) => Some(why),
            _ => None,
        }
    }

    #[test]
    fn a_missing_folder_is_made_for_its_owner_alone() {
        let scratch = Scratch::new("made");
        let path = scratch.0.join("run");
        trust(&path, rustix::process::geteuid().as_raw()).expect("it can be made");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        trust(&path, rustix::process::geteuid().as_raw()).expect("it can be used again");
    }

    #[test]
    fn folders_of_others_files_and_links_are_refused() {
        let scratch = Scratch::new("refused");
        let open = scratch.0.join("open");
        std::fs::create_dir(&open).expect("it is ours");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("it is ours");
        assert_eq!(why(&open), Some("its permissions are not 0700"));
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o700)).expect("it is ours");
        assert_eq!(why(&open), None);
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&open, &link).expect("it is ours");
        assert_eq!(why(&link), Some("it is not a folder, or a link"));
        assert_eq!(why(&scratch.0.join("link/")), Some("it is not a folder, or a link"));
        let file = scratch.0.join("file");
        std::fs::write(&file, "").expect("it is ours");
        assert_eq!(why(&file), Some("it is not a folder, or a link"));
        let other = trust(&open, rustix::process::geteuid().as_raw() + 1);
        assert!(matches!(other, Err(PlaceError::Untrusted { why, .. }) if why.contains("another")));
    }
}

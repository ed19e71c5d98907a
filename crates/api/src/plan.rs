//! The plan of a session: what policy compiles to and the engine carries out, step by step.
//!
//! The engine has no decision left to make: a folder that is not named here does not exist in the
//! session. Paths of the host and of the session are both bytes here; `cowork-policy` is where
//! they are different types.

use crate::{Text, files};
use serde::{Deserialize, Serialize};

/// Everything about one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPlan {
    /// Its id: host name, folder name and cgroup name.
    pub id: String,
    /// Which system calls and walls it gets.
    pub profile: Profile,
    /// Whether its processes may inspect each other.
    pub debugging: Debugging,
    /// The part of its file system that is the same for every session of a keeper.
    pub root: Vec<RootStep>,
    /// The part of its file system that is its own.
    pub own: Vec<OwnStep>,
    /// Folders of the host that it sees from the start.
    pub grants: Vec<Grant>,
    /// What Landlock allows beneath which path; empty where the profile has no file rules.
    pub walls: Vec<Wall>,
    /// What it may use.
    pub limits: Limits,
    /// Layers that must be observed in force before anything runs.
    pub floor: Vec<Layer>,
    /// Which calls the broker decides.
    pub door: Door,
    /// What it sees of the host's files beside all that.
    pub view: View,
}

/// What a session sees of the host's files beside what its steps and grants name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// Nothing.
    #[default]
    Own,
    /// The host's own tree of files, read-only at its own paths, but for some places.
    Host(HostView),
}

/// The host's tree of files as a session sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Files and folders at the top of the host's tree that are seen, with everything below them. The
    /// steps of the root make their mount points.
    pub trees: Vec<Text>,
    /// Where it is different. Each path is there once, and comes after those that it lies below.
    pub places: Vec<Place>,
}

/// A path of the host's tree, in the session as on the host, at which there is something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The path, free of symbolic links.
    pub path: Text,
    /// What is there, and below.
    pub shows: Shows,
}

/// What a session sees at a place of the host's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shows {
    /// Nothing: an empty folder or file, by whatever mount of the host it could be reached. What is
    /// not there stays away.
    Nothing,
    /// A file with these contents, read-only; also by other mounts. What is not there stays away.
    Contents(Vec<u8>),
    /// A private folder in the session's memory.
    Scratch,
    /// What is there on the host, read-only.
    Read(Identity),
    /// What is there on the host, writable without a record.
    Direct(Identity),
    /// The folder that is there on the host, changed by way of the broker.
    Write(Box<Writable>),
}

/// A folder of the host's tree that is changed by way of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writable {
    /// A name for it among the session's folders.
    pub name: String,
    /// The folder that was meant.
    pub folder: Identity,
    /// Where its changes are recorded; nothing is, and nothing can be undone, without it.
    pub store: Option<files::Kept>,
    /// What is allowed.
    pub rules: files::Rules,
}

/// Which calls of a session its broker decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Door {
    /// Connections, and changes of files by name.
    #[default]
    Writes,
    /// Connections only: folders can be granted read-only, direct or staged.
    Connections,
}

/// A set of walls and system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// No namespaces and no mounts inside; Landlock rules for files.
    #[default]
    Strict,
    /// For programs that bring a sandbox of their own.
    Nested,
}

/// Whether processes of a session may trace each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Debugging {
    /// `ptrace` and its relatives are refused.
    #[default]
    Forbidden,
    /// Debuggers work, inside the session.
    Allowed,
}

/// A step of building the shared part of the file system, carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootStep {
    /// An empty folder.
    Folder {
        /// Where, in the session.
        at: Text,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where, in the session.
        at: Text,
        /// What it says.
        to: Text,
    },
    /// A file with these contents.
    File {
        /// Where, in the session.
        at: Text,
        /// What is in it.
        contents: Vec<u8>,
    },
    /// A folder or file of the host's system, read-only.
    System {
        /// Where on the host.
        from: Text,
        /// Where in the session.
        at: Text,
    },
    /// A device of the host.
    Device {
        /// Where on the host.
        from: Text,
        /// Where in the session.
        at: Text,
    },
}

/// A step of building a session's own part of the file system, carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnStep {
    /// A view of the session's own processes.
    Processes {
        /// Where, in the session.
        at: Text,
    },
    /// Terminals of the session's own.
    Terminals {
        /// Where, in the session.
        at: Text,
    },
    /// A folder in the session's memory, writable.
    Scratch {
        /// Where, in the session.
        at: Text,
        /// Permission bits.
        mode: u32,
        /// Whether the session may write there.
        access: Access,
    },
    /// A folder of files in the session's memory, read-only.
    Notes {
        /// Where, in the session.
        at: Text,
        /// The files: name and contents.
        files: Vec<(String, Vec<u8>)>,
    },
    /// The session's home, kept in a folder of the host between sessions.
    Home {
        /// Where on the host.
        from: Text,
        /// Where in the session.
        at: Text,
    },
    /// The folder that granted folders appear in, read-only itself.
    Grants {
        /// Where, in the session.
        at: Text,
        /// Names that exist in it from the start, for steps that follow.
        folders: Vec<String>,
    },
    /// An empty file in place of one that tells of the host.
    Blank {
        /// Where, in the session.
        at: Text,
    },
    /// A symbolic link in a folder that this session made; what is there already stays.
    Link {
        /// Where, in the session.
        at: Text,
        /// What it says.
        to: Text,
    },
}

/// A folder of the host made visible in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name below the folder of grants.
    pub name: String,
    /// Where on the host, free of symbolic links.
    pub path: Text,
    /// The folder that was meant when the user granted it.
    pub folder: Identity,
    /// What the session may do with it.
    pub access: Access,
    /// How its changes are recorded, where they are: with `Write` and `Staged`.
    pub writing: Option<Writing>,
}

/// How changes of a folder are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writing {
    /// The folder of the host in which that is done, for all folders of a session; nothing is
    /// recorded, and nothing can be undone, without one.
    pub store: Option<files::Kept>,
    /// What is allowed.
    pub rules: files::Rules,
    /// Folders below it that are writable without being recorded.
    pub direct: Vec<Text>,
}

/// Which folder a path led to when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The file system, as `st_dev`.
    pub device: u64,
    /// The file, as `st_ino`.
    pub inode: u64,
}

/// What a session may do with a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and list.
    #[default]
    Read,
    /// Also create, change and delete, by way of the broker, which records it.
    Write,
    /// Also create, change and delete, without a record.
    Direct,
    /// Changes stay beside the folder until they are applied.
    Staged,
}

/// What Landlock allows beneath a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// The path, in the session.
    pub beneath: Text,
    /// What is allowed there.
    pub right: Right,
}

/// A set of Landlock rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Right {
    /// List folders.
    List,
    /// Read, list and execute.
    Read,
    /// Everything the mount itself allows.
    Everything,
}

/// What a session may use. Each value is in force by the best means the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads.
    pub processes: Limit<u32>,
    /// Bytes of memory.
    pub memory: Limit<u64>,
    /// Thousandths of a CPU.
    pub cpus: Limit<u32>,
    /// Open files of one process.
    pub open_files: Limit<u32>,
    /// Bytes of scratch: home, `/tmp` and the like, together.
    pub scratch: Limit<u64>,
    /// Milliseconds until the session is ended.
    pub wall: Option<u64>,
}

/// A limit, and whether the user named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit<T> {
    /// How much.
    pub value: T,
    /// Whether the session may start when the host can only approximate it.
    pub demand: Demand,
}

/// How strictly a limit is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Demand {
    /// The best the host can do is good enough.
    BestEffort,
    /// Without enforcement the session must not start.
    Enforced,
}

/// One layer of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Layer {
    /// Its own user namespace.
    UserNamespace,
    /// Its own mounts.
    MountNamespace,
    /// Its own process ids.
    PidNamespace,
    /// Its own network.
    NetworkNamespace,
    /// Its own System V and POSIX message queues.
    IpcNamespace,
    /// Its own host name.
    UtsNamespace,
    /// Its own view of cgroups.
    CgroupNamespace,
    /// No capability in any set, and none to be gained.
    NoCapabilities,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// The filter of system calls.
    SystemCalls,
    /// The broker for connections to sockets in the file system.
    ConnectBroker,
    /// Landlock rules for files.
    LandlockFiles,
    /// Landlock scopes for signals and abstract sockets.
    LandlockScopes,
    /// PID 1 cannot be inspected.
    SealedInit,
    /// A user id of the session's own.
    OwnUser,
}

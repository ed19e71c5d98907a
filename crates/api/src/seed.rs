//! Messages between a keeper, its seed, and the first process of a session that the seed makes.

use crate::Text;
use crate::plan::{OwnStep, Place, Profile, Wall};
use serde::{Deserialize, Serialize};

/// From the keeper to the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSeed {
    /// Make the first process of a session, and map its ids. Beside this come its two sockets, then the
    /// cgroup v2 folder that it is born in if there is one, then the network and the cradle that it and
    /// those after it are born in, if these are others than before.
    Sow {
        /// Who it is.
        ids: Ids,
        /// Whether there is such a folder.
        birthplace: Beside,
        /// Whether there is such a network.
        network: Beside,
        /// Whether there is such a cradle.
        cradle: Beside,
    },
    /// Move to the network beside this: the sessions from now on are born in it. Not answered.
    Move,
}

/// Who the processes of a session are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// The user and the group, as they see it.
    pub inside: (u32, u32),
    /// The same, as the keeper does.
    pub outside: (u32, u32),
    /// What becomes of the groups that they are born with.
    pub groups: Groups,
}

/// Whether something travels beside a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beside {
    /// It does.
    There,
    /// It does not.
    Absent,
}

/// From the seed to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSeed {
    /// It was made, as a child of the keeper. Beside this comes a handle on it.
    Born {
        /// Its id on the host.
        pid: i32,
    },
    /// It could not be made. If it was born all the same, a handle on it comes beside this.
    Failed {
        /// What the kernel said.
        errno: i32,
    },
}

/// From the keeper to a first process that was just born: what it is to carry out before it is told
/// which session it is. Beside this come a handle on the keeper and the files through which it enters
/// cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groundwork {
    /// The first steps of the part of the file system that is its own; none if it is to wait as it is.
    pub own: Vec<OwnStep>,
    /// Bytes of its scratch.
    pub scratch: u64,
    /// What its walls are to allow, if that can be said before the other steps.
    pub walls: Vec<Wall>,
}

/// From the keeper to the first process of a session: what to make of the new namespaces. Beside
/// this come the session's copy of its folder of grants, and the mount of its home if the steps have
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Furnishing {
    /// The session's id.
    pub id: String,
    /// The part of the file system that is its own; it begins with what was carried out already.
    pub own: Vec<OwnStep>,
    /// Bytes of its scratch.
    pub scratch: u64,
    /// Which profile it has.
    pub profile: Profile,
    /// The host's tree, if it sees that; the mounts come in messages of their own.
    pub outlook: Option<Outlook>,
}

/// What becomes of supplementary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Groups {
    /// They stay, since an ordinary user may not give them up; they are mapped to nobody.
    Kept,
    /// None is left.
    Dropped,
}

/// The host's tree as a session is about to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// Files and folders at the top of the host's tree.
    pub trees: Vec<Text>,
    /// Places of the plan, and other names of what is hidden, each after those it lies below.
    pub places: Vec<Place>,
}

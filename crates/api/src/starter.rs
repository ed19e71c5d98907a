//! Messages between a keeper and its starter, the process that starts egress processes for it.

use serde::{Deserialize, Serialize};

/// From the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStarter {
    /// Start an egress process. What it has to say goes to the descriptor beside this, if there is
    /// one. Answered in order.
    Start,
    /// End one that was started, if it is still there. Not answered.
    End {
        /// Which.
        pid: i32,
    },
}

/// To the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStarter {
    /// It was started. Beside this come the other end of its line, then a handle on it.
    Started {
        /// Its id on the host.
        pid: i32,
    },
    /// It could not be started.
    Failed {
        /// What the kernel said.
        errno: i32,
    },
}

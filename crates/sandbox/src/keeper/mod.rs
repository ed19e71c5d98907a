//! The keeper: holds the host's view, makes sessions, grants to them, and ends them.
//!
//! One thread, one loop: messages of its client, deaths of sessions, calls that need a broker,
//! and deadlines. It starts no process but sessions, brokers and the carriers of id maps. When its
//! client closes the conversation it ends every session and leaves; when it dies, the kernel ends
//! every session, because each first process asked to die with it.

mod cgroup;
mod create;
mod filters;
mod grant;
mod grounds;
mod ids;
mod limits;
mod network;
mod observe;
mod serve;
mod session;
mod stage;
pub mod survey;
mod template;
mod tree;

pub use serve::{KeeperError, main};
pub(crate) use session::{BrokerState, Session};

/// Removes what keepers left behind that were killed: empty cgroups. Everything else of theirs, the
/// kernel has already taken away.
pub fn sweep() {
    /// Longest wait for processes that are still ending.
    const TRIES: u32 = 400;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    for _ in 0..TRIES {
        if cgroup::Cgroups::find().sweep() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

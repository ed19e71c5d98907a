//! The keeper: holds the host's view, makes sessions, grants to them, and ends them.
//!
//! One thread, one loop: messages of its clients, deaths of sessions, calls that need a broker,
//! and deadlines. It starts no process but sessions, brokers, the carriers of id maps, those that
//! make sockets in a session's network, those that do something with whole folders of the host, and,
//! before anything else, the starter, whose children egress processes are.
//! A keeper of one client ends every session and leaves when the client closes the conversation; a
//! resident one outlives its clients, and leaves when it is asked to or has nothing to keep. When it
//! dies, the kernel ends every session, because each first process asked to die with it.

mod bound;
mod brokers;
mod cgroup;
mod change;
mod clients;
mod commons;
mod create;
mod deposits;
mod door;
mod egress;
mod errand;
mod filters;
mod folders;
mod grant;
mod grounds;
mod ids;
mod interfaces;
mod limits;
mod measure;
mod netlink;
mod network;
mod newborn;
mod nft;
mod nursery;
mod observe;
mod obstacles;
mod register;
mod requests;
mod revoke;
mod serve;
mod session;
mod sockets;
pub(crate) mod stage;
mod staged;
mod still;
pub mod survey;
mod template;
mod tree;
mod trials;
mod view;
mod watch;

pub(crate) use brokers::BrokerState;
pub use clients::Service;
pub use serve::{KeeperError, main};
pub(crate) use session::Session;
pub(crate) use tree::descendants;

/// The argument that makes a keeper a resident one: its standard input is then a socket that
/// listens.
pub const RESIDENT: &str = "--resident";

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

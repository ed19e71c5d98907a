//! Network namespaces, made before they are needed.
//!
//! Making one is the largest single cost of a session, and nothing in it depends on the session. The
//! keeper has no use for a network of its own, so it lives in the one that the next session will
//! get: a session is cloned into it, and the keeper makes and enters another while it has nothing
//! else to do. The namespaces are owned by the keeper's user namespace: no process of a session has
//! any right over them. (An ordinary user's keeper could not go back to the host's network anyway.)

use crate::kernel::{Failed, Step};
use cowork_sys::process::{Leave, SingleThreaded, unshare};

/// The network that the next session gets.
#[derive(Debug)]
pub(crate) struct Networks {
    /// The network that the keeper was started in, as the kernel names it.
    host: String,
    /// Whether the network that the keeper is in is nobody's yet.
    present: Present,
}

/// Whose the network is that the keeper is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    /// The host's, or a session's.
    Taken,
    /// The next session's.
    Free,
}

impl Networks {
    pub(crate) fn new() -> Result<Self, Failed> {
        let host = name().step(|| "read the name of the host's network".into())?;
        Ok(Self { host, present: Present::Taken })
    }

    /// The network that the keeper was started in, as the kernel names it.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Enters a new network, if the present one is taken.
    pub(crate) fn prepare(&mut self, proof: &SingleThreaded) -> Result<(), Failed> {
        if self.present == Present::Taken {
            unshare(proof, Leave::Network).step(|| "make a network namespace".into())?;
            cowork_sys::net::bring_up_loopback().step(|| "bring up the loopback device".into())?;
            self.present = Present::Free;
        }
        Ok(())
    }

    /// Makes sure that a process cloned now is in a network of its own.
    pub(crate) fn take(&mut self, proof: &SingleThreaded) -> Result<(), Failed> {
        self.prepare(proof)?;
        self.present = Present::Taken;
        Ok(())
    }
}

fn name() -> Result<String, rustix::io::Errno> {
    let link = rustix::fs::readlink("/proc/self/ns/net", Vec::new())?;
    Ok(link.to_string_lossy().into_owned())
}

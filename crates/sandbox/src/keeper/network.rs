//! Network namespaces, made before they are needed.
//!
//! Making one is the largest single cost of a session, and nothing in it depends on the session. The
//! keeper has no use for a network of its own, so it lives in the one that the next session will
//! get: a session is cloned into it, and the keeper makes and enters another while it has nothing
//! else to do. It keeps a further one for whoever comes right after. The namespaces are owned by the
//! keeper's user namespace: no process of a session has any right over them. (An ordinary user's
//! keeper could not go back to the host's network anyway.)

use crate::kernel::{Failed, Step};
use cowork_sys::process::{Leave, SingleThreaded, unshare};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The networks that the next sessions get.
#[derive(Debug)]
pub(crate) struct Networks {
    /// The network that the keeper was started in, as the kernel names it.
    host: String,
    /// Whether the network that the keeper is in is nobody's yet.
    present: Present,
    /// Another one that is nobody's.
    spare: Option<OwnedFd>,
    /// How many networks the keeper has been in since.
    entered: u64,
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
        Ok(Self { host, present: Present::Taken, spare: None, entered: 0 })
    }

    /// The network that the keeper was started in, as the kernel names it.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// A number for the network that the keeper is in, which no other one has.
    pub(crate) fn present(&self) -> u64 {
        self.entered
    }

    /// A handle on the network that the keeper is in.
    pub(crate) fn handle() -> Result<OwnedFd, Failed> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/ns/net", flags, Mode::empty())
            .step(|| "hold a network namespace".into())
    }

    /// Makes one of the networks that are missing; whether none is missing now.
    pub(crate) fn prepare(&mut self, proof: &SingleThreaded) -> Result<bool, Failed> {
        if self.present == Present::Free && self.spare.is_none() {
            let held = Self::handle()?;
            self.renew(proof)?;
            self.spare = Some(held);
        } else if self.present == Present::Taken {
            self.renew(proof)?;
        }
        Ok(self.spare.is_some())
    }

    /// Enters a new network.
    fn renew(&mut self, proof: &SingleThreaded) -> Result<(), Failed> {
        unshare(proof, Leave::Network).step(|| "make a network namespace".into())?;
        self.entered += 1;
        // Should it stay down, it is not the one that a session gets.
        self.present = Present::Taken;
        cowork_sys::net::bring_up_loopback().step(|| "bring up the loopback device".into())?;
        reuse_ports();
        send_at_once();
        self.present = Present::Free;
        Ok(())
    }

    /// Makes sure that a process cloned now is in a network of its own.
    pub(crate) fn take(&mut self, proof: &SingleThreaded) -> Result<(), Failed> {
        if self.present == Present::Taken {
            match self.spare.take() {
                Some(spare) => {
                    move_into_link_name_space(spare.as_fd(), Some(LinkNameSpaceType::Network))
                        .step(|| "enter a network namespace".into())?;
                    self.entered += 1;
                }
                None => self.renew(proof)?,
            }
        }
        self.present = Present::Taken;
        Ok(())
    }
}

/// Lets ports of connections that have ended be used again after a second, as the kernel does by
/// itself for addresses of the loopback only. Those that stand for names are none: without it a
/// session that has made some ten thousand connections within a minute searches long for a free port,
/// and then finds none. Both ends are within the network, so nothing of an old connection is on its way
/// any more. Where it cannot be set, that stays so.
fn reuse_ports() {
    cowork_sys::ignore(std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1"));
}

/// Has connections in this network sent as fast as they are taken. A host may pace its connections,
/// which is for wires that lose packets: within one machine it halves what a connection carries. The
/// one algorithm that every kernel has, and that any network may choose, does not pace. Where it
/// cannot be set, that stays so.
fn send_at_once() {
    cowork_sys::ignore(std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno"));
}

fn name() -> Result<String, rustix::io::Errno> {
    let link = rustix::fs::readlink("/proc/self/ns/net", Vec::new())?;
    Ok(link.to_string_lossy().into_owned())
}

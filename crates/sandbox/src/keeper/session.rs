//! One session as the keeper holds it, its broker, and its end.
//!
//! A session costs the keeper as few descriptors as it can: each is copied with every process that
//! the keeper makes. What can be opened again when it is needed is not held.

use crate::channel::Channel;
use crate::keeper::cgroup::{Frozen, Group};
use crate::keeper::create::HubFolder;
use crate::keeper::deposits::Deposits;
use crate::keeper::grounds::Standing;
use crate::keeper::ids::PoolId;
use crate::keeper::sockets::Sockets;
use crate::keeper::tree;
use crate::kernel::{Failed, Step};
use cowork_api::Text;
use cowork_api::keeper::{Enforced, LimitState, Status};
use cowork_api::plan::{Identity, Limits, Profile};
use cowork_sys::Errno;
use cowork_sys::identity::{ASIDE, hand_over};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, execute, fork, leave};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space};
use std::time::Instant;

/// A session that was born. Dropping it ends every process in it, then takes its mounts and its
/// cgroups away: the order is that of [`Session::drop`] and of the fields.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) pid: i32,
    pub(crate) handle: OwnedFd,
    /// The socket to init that is there until it is ready.
    pub(crate) control: Option<Channel>,
    /// The client's end of the command socket, kept for the next client.
    pub(crate) commands: OwnedFd,
    /// The socket on which requests from inside arrive.
    pub(crate) requests: Option<OwnedFd>,
    /// The session's file system in memory.
    pub(crate) scratch: Option<OwnedFd>,
    /// What init and those it buried read from storage and wrote to it; only where the keeper cannot
    /// open it itself.
    pub(crate) storage: Option<OwnedFd>,
    /// Descriptors of commands that a client left here.
    pub(crate) deposits: Deposits,
    /// What was made in its network, kept for the next client.
    pub(crate) network: Sockets,
    pub(crate) standing: Standing,
    pub(crate) profile: Profile,
    pub(crate) broker: BrokerState,
    pub(crate) hub: HubFolder,
    pub(crate) group: Group,
    pub(crate) limits: Vec<LimitState>,
    /// What the limits are to be.
    pub(crate) wanted: Limits,
    /// Most bytes of memory that were measured.
    pub(crate) peak: u64,
    /// The folder of the host that its home is kept in.
    pub(crate) home: Option<Identity>,
    pub(crate) grants: Vec<String>,
    pub(crate) submounts: Vec<Text>,
    pub(crate) mappings: Vec<((u32, u32), OwnedFd)>,
    pub(crate) enforcement: Vec<Enforced>,
    pub(crate) frozen: Frozen,
    /// Processes that were stopped by signal, where there is no cgroup to freeze.
    pub(crate) stopped: Vec<i32>,
    pub(crate) deadline: Option<Instant>,
    /// Given back last: until then no other session has this id.
    pub(crate) ids: Option<PoolId>,
}

impl Session {
    /// The process id of the session's PID 1, on the host.
    pub(crate) fn init_pid(&self) -> i32 {
        self.pid
    }

    /// What is in force.
    pub(crate) fn status(&self) -> Status {
        Status {
            session: self.id.clone(),
            init: self.pid,
            enforcement: self.enforcement.clone(),
            limits: self.limits.clone(),
            grants: self.grants.clone(),
            submounts: self.submounts.clone(),
            frozen: self.frozen == Frozen::Yes,
        }
    }

    /// Copies of the sockets that a client needs: that of commands, then that of requests.
    pub(crate) fn sockets(&self) -> Vec<OwnedFd> {
        let sockets = [Some(&self.commands), self.requests.as_ref()];
        sockets.into_iter().flatten().filter_map(|socket| socket.try_clone().ok()).collect()
    }

    /// Whether namespaces can be made in it, in which copies of its mounts live on.
    pub(crate) fn is_nested(&self) -> bool {
        self.profile == Profile::Nested
    }

    /// Stops every process of the session where it is, or lets them go on. Init goes on where
    /// there is no cgroup: it only answers.
    pub(crate) fn set_frozen(&mut self, frozen: Frozen) -> Result<(), Failed> {
        if (self.frozen, frozen) == (Frozen::Yes, Frozen::Yes) {
            return Ok(());
        }
        match self.group.freeze(frozen) {
            Some(result) => result.step(|| "freeze the session's cgroup".into())?,
            None if frozen == Frozen::Yes => self.stopped = tree::stop(self.pid),
            None => tree::resume(self.pid, &std::mem::take(&mut self.stopped)),
        }
        self.frozen = frozen;
        Ok(())
    }
}

impl Session {
    /// Does something while the session stands still. That makes it quick, not sure: in a session
    /// that cannot be frozen it is done all the same.
    pub(crate) fn while_frozen<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let was_frozen = self.frozen;
        cowork_sys::ignore(self.set_frozen(Frozen::Yes));
        let result = work(self);
        if was_frozen == Frozen::No {
            // Whatever came of it, the session goes on: a thaw that fails is reported by the next
            // freeze or by the session's end.
            drop(self.set_frozen(Frozen::No));
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // With PID 1 the kernel kills every process of its namespace, and PID 1 is not reaped
        // before all of them are gone.
        cowork_sys::ignore(pidfd_send_signal(&self.handle, Signal::KILL));
        cowork_sys::ignore(waitid(WaitId::PidFd(self.handle.as_fd()), WaitIdOptions::EXITED));
    }
}

/// The broker of a session: not started before the first call that needs one.
#[derive(Debug, Default)]
pub(crate) struct BrokerState {
    /// The keeper's copy of the listener: it outlives any broker.
    pub(crate) listener: Option<OwnedFd>,
    /// The device number of the session's scratch.
    pub(crate) scratch: Option<u64>,
    /// Calls received and not answered: one number each, so that the next broker can answer them if
    /// this one dies.
    pub(crate) in_flight: Option<OwnedFd>,
    /// The running broker.
    pub(crate) process: Option<OwnedFd>,
    /// How often one was started.
    pub(crate) starts: u32,
}

impl Drop for BrokerState {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            cowork_sys::ignore(pidfd_send_signal(process, Signal::KILL));
            cowork_sys::ignore(waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED));
        }
    }
}

impl BrokerState {
    /// Starts a broker on this session's listener. `init` is the session's PID 1.
    pub(crate) fn start(
        &mut self,
        proof: &SingleThreaded,
        program: BorrowedFd<'_>,
        user: Option<u32>,
        init: i32,
    ) -> Result<(), Failed> {
        let named = || "start the broker of a session".to_owned();
        if self.in_flight.is_none() {
            self.in_flight = Some(in_flight_table().step(named)?);
        }
        let missing = Errno::BADF;
        let listener = self.listener.as_ref().ok_or(missing).step(named)?;
        let in_flight = self.in_flight.as_ref().ok_or(missing).step(named)?;
        match fork(proof, Namespaces::Inherited, None).step(named)? {
            Forked::Parent { handle, .. } => {
                self.process = Some(handle);
                self.starts += 1;
                Ok(())
            }
            Forked::Child => {
                let scratch = self.scratch.unwrap_or(u64::MAX);
                if let Ok(diagnostics) = enter_network(init) {
                    let handles = [listener.as_fd(), in_flight.as_fd(), diagnostics.as_fd()];
                    cowork_sys::ignore(become_broker(program, handles, scratch, user));
                }
                leave(1)
            }
        }
    }
}

fn in_flight_table() -> Result<OwnedFd, Errno> {
    let table = rustix::fs::memfd_create(c"cowork-in-flight", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&table, crate::broker::TABLE_BYTES)?;
    Ok(table)
}

/// Enters the network of a session, and opens a socket that lists the UNIX sockets in it.
fn enter_network(init: i32) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{init}/ns/net");
    let network = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    rustix::net::socket_with(
        rustix::net::AddressFamily::NETLINK,
        rustix::net::SocketType::RAW,
        rustix::net::SocketFlags::CLOEXEC,
        Some(rustix::net::netlink::SOCK_DIAG),
    )
}

/// Executes this program again in the role of a broker, with the one capability it needs.
fn become_broker(
    program: BorrowedFd<'_>,
    [listener, in_flight, diagnostics]: [BorrowedFd<'_>; 3],
    scratch: u64,
    user: Option<u32>,
) -> Result<std::convert::Infallible, Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(user) = user {
        let (uid, gid) =
            (rustix::process::Uid::from_raw(user), rustix::process::Gid::from_raw(user));
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    // The exec leaves exactly the ambient set. What can be inherited must be set while the bounding
    // set still allows it, and emptying that needs a capability of its own.
    let needed = CapabilitySet::SYS_PTRACE;
    let now = needed | CapabilitySet::SETPCAP;
    let sets = CapabilitySets { effective: now, permitted: now, inheritable: needed };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::configure_capability_in_ambient_set(needed, true)?;
    cowork_sys::identity::empty_bounding_set()?;
    rustix::thread::set_no_new_privs(true)?;
    // The hub has no devices: an empty memory file serves as the standard streams.
    let empty = rustix::fs::memfd_create(c"empty", MemfdFlags::CLOEXEC)?;
    let null = empty.as_fd();
    // Handing over puts other files at low numbers: the program must not lie there.
    let program = rustix::io::fcntl_dupfd_cloexec(program, ASIDE)?;
    hand_over(&[null, null, null, listener, in_flight, diagnostics])?;
    let number = std::ffi::CString::new(scratch.to_string()).unwrap_or_default();
    execute(program.as_fd(), &[c"cowork-broker".into(), number], &[])
}

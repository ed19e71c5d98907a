//! One session as the keeper holds it, its broker, and its end.

use crate::keeper::cgroup::{Frozen, Group};
use crate::keeper::create::HubFolder;
use crate::keeper::grounds::Standing;
use crate::keeper::ids::PoolId;
use crate::keeper::tree;
use crate::kernel::{Failed, Step};
use cowork_api::Text;
use cowork_api::keeper::{Enforced, LimitState, Status};
use cowork_api::plan::Profile;
use cowork_sys::identity::{ASIDE, hand_over};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, execute, fork, leave};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::time::Instant;

/// A session that was born. Dropping it ends every process in it, then takes its mounts and its
/// cgroups away: the order is that of [`Session::drop`] and of the fields.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) pid: i32,
    pub(crate) handle: OwnedFd,
    pub(crate) control: crate::channel::Channel,
    /// The client's end of the command socket, kept for the next client.
    pub(crate) commands: OwnedFd,
    pub(crate) standing: Standing,
    pub(crate) profile: Profile,
    pub(crate) broker: BrokerState,
    pub(crate) hub: HubFolder,
    pub(crate) group: Group,
    pub(crate) limits: Vec<LimitState>,
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
        }
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

impl Drop for Session {
    fn drop(&mut self) {
        // With PID 1 the kernel kills every process of its namespace, and PID 1 is not reaped
        // before all of them are gone.
        cowork_sys::ignore(pidfd_send_signal(&self.handle, Signal::KILL));
        cowork_sys::ignore(waitid(WaitId::PidFd(self.handle.as_fd()), WaitIdOptions::EXITED));
    }
}

/// The broker of a session: not started before the first call that needs one.
#[derive(Debug)]
pub(crate) struct BrokerState {
    /// The keeper's copy of the listener: it outlives any broker.
    pub(crate) listener: Option<OwnedFd>,
    /// A socket that lists the UNIX sockets of the session's network.
    pub(crate) diagnostics: Option<OwnedFd>,
    /// The device number of the session's scratch.
    pub(crate) scratch: Option<u64>,
    /// Calls received and not answered.
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
    /// None yet, for a session whose network `diagnostics` tells about.
    pub(crate) fn new(diagnostics: OwnedFd) -> Self {
        Self {
            listener: None,
            diagnostics: Some(diagnostics),
            scratch: None,
            in_flight: None,
            process: None,
            starts: 0,
        }
    }

    /// Starts a broker on this session's listener.
    pub(crate) fn start(
        &mut self,
        proof: &SingleThreaded,
        program: BorrowedFd<'_>,
        user: Option<u32>,
    ) -> Result<(), Failed> {
        let named = || "start the broker of a session".to_owned();
        let missing = rustix::io::Errno::BADF;
        let listener = self.listener.as_ref().ok_or(missing).step(named)?;
        let in_flight = self.in_flight.as_ref().ok_or(missing).step(named)?;
        let diagnostics = self.diagnostics.as_ref().ok_or(missing).step(named)?;
        match fork(proof, Namespaces::Inherited, None).step(named)? {
            Forked::Parent { handle, .. } => {
                self.process = Some(handle);
                self.starts += 1;
                Ok(())
            }
            Forked::Child => {
                let scratch = self.scratch.unwrap_or(u64::MAX);
                let handles = [listener.as_fd(), in_flight.as_fd(), diagnostics.as_fd()];
                cowork_sys::ignore(become_broker(program, handles, scratch, user));
                leave(1)
            }
        }
    }
}

/// Executes this program again in the role of a broker, with the one capability it needs.
fn become_broker(
    program: BorrowedFd<'_>,
    [listener, in_flight, diagnostics]: [BorrowedFd<'_>; 3],
    scratch: u64,
    user: Option<u32>,
) -> Result<std::convert::Infallible, rustix::io::Errno> {
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
    let empty = rustix::fs::memfd_create(c"empty", rustix::fs::MemfdFlags::CLOEXEC)?;
    let null = empty.as_fd();
    // Handing over puts other files at low numbers: the program must not lie there.
    let program = rustix::io::fcntl_dupfd_cloexec(program, ASIDE)?;
    hand_over(&[null, null, null, listener, in_flight, diagnostics])?;
    let number = std::ffi::CString::new(scratch.to_string()).unwrap_or_default();
    execute(program.as_fd(), &[c"cowork-broker".into(), number], &[])
}

//! One session as the keeper holds it, and its end.
//!
//! A session costs the keeper as few descriptors as it can: each is copied with every process that
//! the keeper makes. What can be opened again when it is needed is not held.

use crate::channel::Channel;
use crate::keeper::brokers::BrokerState;
use crate::keeper::cgroup::{Frozen, Group};
use crate::keeper::create::HubFolder;
use crate::keeper::deposits::Deposits;
use crate::keeper::door::Doors;
use crate::keeper::grant::Granted;
use crate::keeper::grounds::Standing;
use crate::keeper::ids::{Maps, PoolId};
use crate::keeper::sockets::Sockets;
use crate::keeper::still;
use crate::kernel::{Failed, Step};
use cowork_api::Text;
use cowork_api::keeper::{Enforced, LimitState, Status};
use cowork_api::plan::{Identity, Limits, Profile};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::time::Instant;

/// A session that was born. Dropping it ends every process in it, then takes its mounts and its
/// cgroups away: the order is that of [`Session::end`] and of the fields.
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
    /// Whether it sees the host's tree; then its folders are what they were when it was made.
    pub(crate) sees_host: bool,
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
    pub(crate) grants: Vec<Granted>,
    /// Where its recorded changes go through.
    pub(crate) doors: Doors,
    pub(crate) submounts: Vec<Text>,
    pub(crate) mappings: Maps,
    pub(crate) enforcement: Vec<Enforced>,
    pub(crate) frozen: Frozen,
    /// Processes that were stopped by signal, where there is no cgroup to freeze.
    pub(crate) stopped: Vec<i32>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) life: Life,
    /// Given back last: until then no other session has this id.
    pub(crate) ids: Option<PoolId>,
}

/// How far a session has come.
#[derive(Debug)]
pub(crate) enum Life {
    On,
    /// Nothing of it runs, and nobody can reach anything of it.
    Over {
        /// Its mounts, of which nobody but the keeper has any more. To take them apart is the longest
        /// that the kernel does at the end of a session, and nobody has to wait for it.
        _mounts: Option<OwnedFd>,
    },
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
            grants: self.folders(),
            submounts: self.submounts.clone(),
            frozen: self.frozen == Frozen::Yes,
        }
    }

    /// The names of its folders, with those of the host's tree that its broker changes.
    fn folders(&self) -> Vec<String> {
        let granted = self.grants.iter().map(|granted| granted.name.as_str());
        let mut names: Vec<String> = granted.map(str::to_owned).collect();
        for door in &self.doors.open {
            if !names.iter().any(|name| name == door.name()) {
                names.push(door.name().to_owned());
            }
        }
        names
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
            None if frozen == Frozen::Yes => self.stopped = still::stop(self.pid),
            None => still::resume(self.pid, &std::mem::take(&mut self.stopped)),
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

impl Session {
    /// Ends every process of the session, and takes away what others could see of it: its folders and
    /// its cgroups. What is left is memory that the keeper alone holds, and goes with the value.
    pub(crate) fn end(&mut self) {
        if let Life::Over { .. } = self.life {
            return;
        }
        self.life = Life::Over { _mounts: self.own_mounts() };
        // PID 1 is half gone before it ends the others: they can be dying by then.
        self.group.kill();
        // With PID 1 the kernel kills every process of its namespace, and PID 1 is not reaped
        // before all of them are gone.
        cowork_sys::ignore(pidfd_send_signal(&self.handle, Signal::KILL));
        // What they have of folders can go while they end.
        self.hub.detach();
        self.doors.open.clear();
        self.doors.store = None;
        cowork_sys::ignore(waitid(WaitId::PidFd(self.handle.as_fd()), WaitIdOptions::EXITED));
        self.broker.end();
        self.group.remove();
    }

    /// Its mounts, if none of them is of the user's: those are gone when the session is.
    fn own_mounts(&self) -> Option<OwnedFd> {
        if self.home.is_some() || self.sees_host {
            return None;
        }
        let path = format!("/proc/{}/ns/mnt", self.pid);
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

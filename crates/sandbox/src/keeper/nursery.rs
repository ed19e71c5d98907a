//! The keeper's side of its seed, by which the first process of every session is made.
//!
//! The seed is the program of PID 1, started when the keeper begins. One that died is replaced when it
//! is needed next.

use crate::channel::{Channel, Packet};
use crate::keeper::create::{PATIENCE, explain_fork, next_packet, unable};
use crate::keeper::grounds::Standing;
use crate::keeper::network::Networks;
use crate::keeper::newborn::{Newborn, Usual};
use crate::keeper::template::Cradle;
use crate::kernel::{Failed, Step};
use cowork_api::keeper::Failure;
use cowork_api::seed::{Beside, FromSeed, Ids, ToSeed};
use cowork_sys::Errno;
use cowork_sys::identity::{ASIDE, hand_over};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, execute, fork, leave};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use std::convert::Infallible;
use std::time::Instant;

/// Where first processes come from.
#[derive(Debug)]
pub(crate) struct Nursery {
    /// The program of PID 1.
    program: OwnedFd,
    null: OwnedFd,
    seed: Option<Seed>,
    /// One that waits for the next session.
    newborn: Option<Newborn>,
    /// What the last session wanted.
    usual: Option<Usual>,
}

#[derive(Debug)]
struct Seed {
    line: Channel,
    process: OwnedFd,
    /// The network that it is in, if that is one of the keeper's making.
    network: Option<u64>,
    /// The cradle that it is in, if it is in one.
    cradle: Option<usize>,
}

impl Drop for Seed {
    fn drop(&mut self) {
        // It holds nothing that would have to be let go of.
        bury(&self.process);
    }
}

/// What a first process is given when it is made.
pub(crate) struct Birth<'a> {
    /// Who it is.
    pub(crate) ids: Ids,
    /// Where it is born.
    pub(crate) cradle: Cradle<'a>,
    /// The cgroup v2 folder that it is born in.
    pub(crate) birthplace: Option<BorrowedFd<'a>>,
}

/// The keeper's ends of the sockets of a first process.
#[derive(Debug)]
pub(crate) struct Lines {
    /// On which it is told what to make of itself.
    pub(crate) control: Channel,
    /// The client's end of the command socket.
    pub(crate) commands: Channel,
}

/// A first process: a child of the keeper, which ends with the value.
#[derive(Debug)]
pub(crate) struct Born {
    pid: i32,
    /// Nothing when somebody else looks after it.
    handle: Option<OwnedFd>,
}

impl Born {
    /// Its id on the host, and a handle on it: from here on the caller ends it.
    pub(crate) fn adopt(mut self) -> Option<(i32, OwnedFd)> {
        Some((self.pid, self.handle.take()?))
    }
}

impl Drop for Born {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            bury(handle);
        }
    }
}

/// Why there is no first process.
pub(crate) enum Unborn {
    /// The seed is gone, or what it made. What that was handed may be in use, and serves no other.
    Gone,
    Refused(Failure),
}

impl From<Failure> for Unborn {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Nursery {
    /// `program` is that of PID 1; `null` is the null device of the host.
    pub(crate) fn new(program: OwnedFd, null: OwnedFd) -> Self {
        Self { program, null, seed: None, newborn: None, usual: None }
    }

    /// The first process that waits for a session like this, if there is one.
    pub(crate) fn take(&mut self, usual: Usual) -> Option<Newborn> {
        let limits = usual.limits;
        let fits = |newborn: &mut Newborn| newborn.fits(&usual);
        let newborn = self.newborn.take_if(fits);
        self.usual = Some(usual);
        let mut newborn = newborn?;
        // One whose groups take no other limits is of no use.
        newborn.limit(&limits).ok().map(|()| newborn)
    }

    /// What the next one would be like: the last.
    pub(crate) fn usual(&self) -> Option<Usual> {
        self.usual.clone()
    }

    /// Keeps one for the next session.
    pub(crate) fn keep(&mut self, newborn: Newborn) {
        self.newborn = Some(newborn);
    }

    /// Whether one waits that serves the usual session.
    pub(crate) fn expects(&self) -> bool {
        match (&self.newborn, &self.usual) {
            (Some(newborn), Some(usual)) => newborn.fits(usual),
            (newborn, usual) => newborn.is_none() && usual.is_none(),
        }
    }

    /// Starts the seed if there is none.
    pub(crate) fn plant(
        &mut self,
        proof: &SingleThreaded,
        standing: Standing,
    ) -> Result<(), Failed> {
        if self.seed.is_some() {
            return Ok(());
        }
        let named = || "start the program of PID 1".to_owned();
        let (line, theirs) = Channel::pair().step(named)?;
        match fork(proof, Namespaces::Inherited, None).step(named)? {
            Forked::Child => {
                // There is nobody to tell but by ending: the keeper sees the line close.
                cowork_sys::ignore(self.become_seed(standing, theirs.as_fd()));
                leave(1)
            }
            Forked::Parent { handle, .. } => {
                let seed = Seed { line, process: handle, network: None, cradle: None };
                self.seed = Some(seed);
                Ok(())
            }
        }
    }

    fn become_seed(&self, standing: Standing, line: BorrowedFd<'_>) -> Result<Infallible, Errno> {
        // When the host runs out of memory its kernel takes a session before anything of the user's.
        std::fs::write("/proc/self/oom_score_adj", "500")
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Handing over puts other files at low numbers: the program must not lie there.
        let program = rustix::io::fcntl_dupfd_cloexec(&self.program, ASIDE)?;
        if let Standing::User { .. } = standing {
            keep_capabilities()?;
        }
        let null = self.null.as_fd();
        // The order of these handles is what `seed::main` expects.
        hand_over(&[null, null, null, line])?;
        execute(program.as_fd(), &[c"cowork-init".into()], &[])
    }

    /// Has the seed move to the network that the next session gets, while nobody waits for it.
    pub(crate) fn follow(&mut self, networks: &Networks) {
        let Some(seed) = &mut self.seed else { return };
        if seed.network == Some(networks.present()) {
            return;
        }
        let Ok(network) = Networks::handle() else { return };
        let order = cowork_api::encode(&ToSeed::Move);
        // One that is gone is replaced when it is needed.
        if seed.line.send(&order, &[network.as_fd()]).is_ok() {
            seed.network = Some(networks.present());
        }
    }

    /// Has the first process of a session made, in the network that the keeper is in. It is there when
    /// [`Nursery::born`] says so.
    pub(crate) fn sow(
        &mut self,
        (proof, standing): (&SingleThreaded, Standing),
        networks: &Networks,
        birth: &Birth<'_>,
    ) -> Result<Lines, Unborn> {
        self.plant(proof, standing).map_err(unable)?;
        let seed = self.seed.as_mut().ok_or(Unborn::Gone)?;
        let refused = |errno| unable(Failed::new("make a session", errno));
        let (control, their_control) = Channel::pair().map_err(refused)?;
        let (commands, their_commands) = Channel::pair().map_err(refused)?;
        let present = networks.present();
        let network = if seed.network == Some(present) {
            None
        } else {
            Some(Networks::handle().map_err(unable)?)
        };
        let beside = |there| if there { Beside::There } else { Beside::Absent };
        let number = birth.cradle.number;
        let cradle = (seed.cradle != Some(number)).then_some(birth.cradle.namespace);
        let order = ToSeed::Sow {
            ids: birth.ids,
            birthplace: beside(birth.birthplace.is_some()),
            network: beside(network.is_some()),
            cradle: beside(cradle.is_some()),
        };
        let sockets = [Some(their_control.as_fd()), Some(their_commands.as_fd())];
        let handles = sockets.into_iter().chain([birth.birthplace]);
        let handles = handles.chain([network.as_ref().map(AsFd::as_fd), cradle]);
        let handles: Vec<_> = handles.flatten().collect();
        if seed.line.send(&cowork_api::encode(&order), &handles).is_err() {
            self.seed = None;
            return Err(Unborn::Gone);
        }
        (seed.network, seed.cradle) = (Some(present), Some(number));
        Ok(Lines { control, commands })
    }

    /// Waits for the first process that was asked for.
    pub(crate) fn born(&mut self) -> Result<Born, Unborn> {
        let seed = self.seed.as_ref().ok_or(Unborn::Gone)?;
        let answer = next_packet(&seed.line, Instant::now() + PATIENCE);
        let born = answer.map_err(|_closed| Unborn::Gone).and_then(born);
        if let Err(Unborn::Gone) = born {
            self.seed = None;
        }
        born
    }
}

/// Ends a child that comes to nothing.
fn bury(child: &OwnedFd) {
    cowork_sys::ignore(pidfd_send_signal(child, Signal::KILL));
    cowork_sys::ignore(waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED));
}

fn born(answer: Packet) -> Result<Born, Unborn> {
    let handle = answer.handles.into_iter().next();
    match (cowork_api::decode::<FromSeed>(&answer.bytes), handle) {
        (Ok(FromSeed::Born { pid }), Some(handle)) => Ok(Born { pid, handle: Some(handle) }),
        (Ok(FromSeed::Failed { errno }), handle) => {
            let errno = Errno::from_raw_os_error(errno);
            let Some(handle) = handle else { return Err(explain_fork(errno).into()) };
            bury(&handle);
            Err(unable(Failed::new("map the ids of a session", errno)).into())
        }
        (Ok(FromSeed::Born { .. }) | Err(_), _) => Err(Unborn::Gone),
    }
}

/// Has an ordinary user's process keep, over the exec, what it takes to enter other namespaces of the
/// keeper's. These are capabilities over what the keeper made, not over the host.
fn keep_capabilities() -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_CHROOT, true)
}

//! The broker of a session: decides, from outside, system calls that a filter cannot decide.
//!
//! One process per session, started by the first call that needs it. It reads a call's arguments
//! once, acts on its own copy, and answers; it never tells the kernel to go on with the original
//! call, whose memory and descriptors the session can change meanwhile. It runs with the session's
//! own user id and one capability, `CAP_SYS_PTRACE`, to look at the session's processes.
//!
//! The numbers of calls that were received and not answered are kept in a file that outlives the
//! process: if it dies, the next broker answers them as interrupted.

mod bound;
mod connect;

use bound::BoundSockets;
use cowork_sys::Errno;
use cowork_sys::identity::take_over;
use cowork_sys::seccomp::{Answer, Notification, answer, receive, wake_synchronously};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most calls that are in work at once; a further one is answered with `EAGAIN`. Each may wait for
/// somebody else (a connection to a full queue), so each has a thread.
const SLOTS: u32 = 256;
/// Size of the table of calls in work.
pub(crate) const TABLE_BYTES: u64 = SLOTS as u64 * 8;
/// Threads that wait for calls when nothing is stuck.
const IDLE: usize = 2;

/// What every thread of a broker shares.
struct Broker {
    listener: OwnedFd,
    in_flight: OwnedFd,
    sockets: BoundSockets,
    /// The device number of the session's scratch.
    scratch: u64,
    /// Threads that wait for a call.
    idle: AtomicUsize,
    /// Threads there are.
    threads: AtomicUsize,
}

/// Serves until the session is gone. `scratch` is the device number of the session's scratch.
pub fn main(scratch: Option<OsString>) -> ExitCode {
    match run(scratch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(scratch: Option<OsString>) -> Result<(), Errno> {
    let scratch = scratch.and_then(|text| text.to_str()?.parse().ok()).ok_or(Errno::INVAL)?;
    let broker = Broker {
        listener: take_over(3)?,
        in_flight: take_over(4)?,
        sockets: BoundSockets::new(take_over(5)?),
        scratch,
        idle: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
    };
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Older kernels wake this process on any CPU, which costs time and nothing else.
    cowork_sys::ignore(wake_synchronously(broker.listener.as_fd()));
    broker.answer_orphans()?;
    std::thread::scope(|scope| broker.work(scope, 0))
}

impl Broker {
    /// Answers the calls that a broker before this one left unanswered.
    fn answer_orphans(&self) -> Result<(), Errno> {
        for slot in 0..SLOTS {
            let mut number = [0; 8];
            rustix::io::pread(&self.in_flight, &mut number, offset(slot))?;
            let id = u64::from_ne_bytes(number);
            if id != 0 {
                // The call may have been carried out or not. `EINTR` says just that of a connect:
                // a second one succeeds, or tells that the socket is connected.
                cowork_sys::ignore(answer(self.listener.as_fd(), id, Answer::Error(Errno::INTR)));
                self.note(slot, 0)?;
            }
        }
        Ok(())
    }

    /// Writes down which call a slot has in work.
    fn note(&self, slot: u32, id: u64) -> Result<(), Errno> {
        rustix::io::pwrite(&self.in_flight, &id.to_ne_bytes(), offset(slot)).map(|_| ())
    }

    /// One thread: receives calls and answers them. Each thread owns one slot of the table.
    fn work<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        slot: u32,
    ) -> Result<(), Errno> {
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            let received = receive(self.listener.as_fd());
            let idle_left = self.idle.fetch_sub(1, Ordering::SeqCst) - 1;
            let call = match received {
                Ok(call) => call,
                Err(Errno::INTR) => continue,
                // Either this caller died, or the last process under the filter did.
                Err(Errno::NOENT) if !self.is_over() => continue,
                Err(errno) => return Err(errno),
            };
            self.note(slot, call.id)?;
            if idle_left < IDLE {
                self.reinforce(scope);
            }
            self.answer(&call);
            self.note(slot, 0)?;
        }
    }

    /// Whether no process is left that could make a call.
    fn is_over(&self) -> bool {
        let mut listener = [PollFd::new(&self.listener, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        cowork_sys::ignore(poll(&mut listener, Some(&now)));
        listener.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
    }

    /// Starts a further thread, so that calls that are stuck never keep others waiting.
    fn reinforce<'scope, 'env>(&'env self, scope: &'scope std::thread::Scope<'scope, 'env>) {
        let slot = self.threads.load(Ordering::SeqCst);
        let Some(slot) = u32::try_from(slot).ok().filter(|slot| *slot < SLOTS) else { return };
        let taken = self.threads.compare_exchange(
            slot as usize,
            slot as usize + 1,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if taken.is_ok() {
            let thread = std::thread::Builder::new().stack_size(128 * 1024);
            let spawned =
                thread.spawn_scoped(scope, move || cowork_sys::ignore(self.work(scope, slot)));
            if spawned.is_err() {
                self.threads.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn answer(&self, call: &Notification) {
        let full = self.threads.load(Ordering::SeqCst) >= SLOTS as usize
            && self.idle.load(Ordering::SeqCst) == 0;
        let outcome = if full {
            // Every other thread is stuck; this one must stay free to say so.
            Answer::Error(Errno::AGAIN)
        } else {
            connect::decide(self, call)
        };
        // A caller that died meanwhile needs no answer.
        cowork_sys::ignore(answer(self.listener.as_fd(), call.id, outcome));
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * 8
}

//! Handing a descriptor to a caller, without sending both of them across processors.
//!
//! Whoever hands out a descriptor sleeps until the caller has taken it, and the kernel wakes either
//! on a processor that idles, if there is one. Where an idle processor takes long to wake, as in a
//! virtual machine, most of the time of an opening goes there. So while a descriptor changes hands
//! both are kept on the processor that the broker runs on: neither could run beside the other anyway.
//!
//! Whether that is worth its system calls is measured, not assumed: a handover in a while is made
//! without, and only after a slow one are the next ones made together.
//!
//! Deliberately absent: any effect beyond the handover. The processors of the caller are put back
//! before its call is answered; should this process be killed in between, by the next broker
//! ([`release`]).

use cowork_sys::Errno;
use cowork_sys::seccomp::{AtExec, Notification, give};
use rustix::fd::BorrowedFd;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A handover that takes longer went across processors.
const SLOW: Duration = Duration::from_micros(15);
/// How many are made together after a slow one, before one is made without again.
const TOGETHER: u32 = 256;

/// How descriptors are handed out.
#[derive(Debug)]
pub(super) struct Handover {
    /// How many of the next ones are made together.
    together: AtomicU32,
    /// The processors of this process; nothing where there is no choice.
    own: Option<CpuSet>,
}

impl Handover {
    pub(super) fn new() -> Self {
        let own = sched_getaffinity(None).ok().filter(|own| own.count() > 1);
        Self { together: AtomicU32::new(0), own }
    }

    /// Gives the caller a descriptor of `file`, and says its number.
    pub(super) fn give(
        &self,
        listener: BorrowedFd<'_>,
        call: &Notification,
        file: BorrowedFd<'_>,
        at_exec: AtExec,
    ) -> Result<i64, Errno> {
        let Some(own) = &self.own else { return give(listener, call.id, file, at_exec) };
        let left = self.together.load(Ordering::Relaxed);
        if left > 0 {
            self.together.store(left - 1, Ordering::Relaxed);
            let kept = Together::with(call.thread, own);
            let given = give(listener, call.id, file, at_exec);
            drop(kept);
            return given;
        }
        let start = Instant::now();
        let given = give(listener, call.id, file, at_exec);
        if start.elapsed() > SLOW {
            self.together.store(TOGETHER, Ordering::Relaxed);
        }
        given
    }
}

/// This thread and a caller on one processor, until it is dropped.
struct Together<'a> {
    own: &'a CpuSet,
    /// The caller, and the processors that it had, if there were others.
    kept: Option<(Pid, CpuSet)>,
}

impl<'a> Together<'a> {
    /// Nothing where the caller may not run on this processor.
    fn with(thread: u32, own: &'a CpuSet) -> Option<Self> {
        let caller = number_of(thread)?;
        let its = sched_getaffinity(Some(caller)).ok()?;
        let mut here = CpuSet::new();
        let processor = sched_getcpu();
        if !its.is_set(processor) {
            return None;
        }
        here.set(processor);
        let kept = if its == here {
            None
        } else {
            sched_setaffinity(Some(caller), &here).ok()?;
            Some((caller, its))
        };
        let together = Self { own, kept };
        sched_setaffinity(None, &here).ok()?;
        Some(together)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if let Some((caller, its)) = self.kept {
            // A caller that died meanwhile needs none.
            cowork_sys::ignore(sched_setaffinity(Some(caller), &its));
        }
        cowork_sys::ignore(sched_setaffinity(None, self.own));
    }
}

/// Gives a caller that the last broker may have kept on one processor all of them.
pub(super) fn release(thread: u32) {
    let Some(caller) = number_of(thread) else { return };
    if sched_getaffinity(Some(caller)).is_ok_and(|its| its.count() == 1)
        && let Ok(own) = sched_getaffinity(None)
    {
        cowork_sys::ignore(sched_setaffinity(Some(caller), &own));
    }
}

fn number_of(thread: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(thread).ok()?)
}

//! Stopping the processes of a session by signals, where there is no cgroup to freeze.
//!
//! A process to which the signal was sent makes no child any more: the kernel lets no fork come to its
//! end while a signal waits (`copy_process`). So its children are asked for after it was sent. A list
//! of children that is read while one of them ends may lack another; it is taken for whole if everybody
//! on it is there afterwards, under the same parent.
//!
//! Parents come before their children, so that a shell does not see its jobs stop. Who was stopped
//! before is left alone, and stays stopped afterwards.

use crate::keeper::tree::{children_of, descendants_by_parents, descends};
use crate::kernel::told_of;
use cowork_sys::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

/// Stops every process below `init`, until none is left running. Returns those that this call
/// stopped, for [`resume`].
pub(crate) fn stop(init: i32) -> Vec<i32> {
    /// Rounds until a session that forks faster than it can be stopped is given up on.
    const ROUNDS: u32 = 100;
    /// Rounds without a pause: what is still on its way in one stands still in the next.
    const AT_ONCE: u32 = 4;
    /// A process inside a long system call stops when it comes out of it.
    const PAUSE: Duration = Duration::from_millis(1);
    let mut stopping = Stopping { init, stopped: Vec::new(), living: Vec::new() };
    let mut quiet = 0;
    for round in 0..ROUNDS {
        if round >= AT_ONCE {
            std::thread::sleep(PAUSE);
        }
        let (calm, enough) = match stopping.go_through(round) {
            Some(calm) => (calm, 1),
            None => (stopping.go_through_all(round), 2),
        };
        // Nobody new was there, and all stand still. Who was seen to could have been let go on by
        // somebody who was seen later: all are looked at once more.
        let calm = calm == Calm::Yes && stopping.living.iter().all(|pid| is_still(*pid));
        quiet = if calm { quiet + 1 } else { 0 };
        if quiet == enough {
            break;
        }
    }
    stopping.stopped.into_iter().map(|(pid, _)| pid).collect()
}

/// Lets processes go on that [`stop`] stopped.
pub(crate) fn resume(init: i32, stopped: &[i32]) {
    // Children first: a shell that goes on must not see its jobs stopped.
    for pid in stopped.iter().rev() {
        // One that has ended meanwhile needs nothing.
        cowork_sys::ignore(open(*pid).and_then(|handle| send(&handle, *pid, init, Signal::CONT)));
    }
}

struct Stopping {
    init: i32,
    /// Whom the signal was sent to, and in which round.
    stopped: Vec<(i32, u32)>,
    /// Everybody whom the last round met.
    living: Vec<i32>,
}

/// Whether a round found nothing to do, and all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calm {
    Yes,
    No,
}

/// What came of meeting a process.
enum Met {
    /// It stood still.
    Still(Look),
    /// It was sent the signal.
    Sent(Look),
    /// It has ended, and waits for its parent to hear of it.
    Dead,
    /// It is not there, or not where it was listed.
    Gone,
}

impl Stopping {
    /// One round, generation by generation. `None` where the kernel does not list children.
    fn go_through(&mut self, round: u32) -> Option<Calm> {
        let mut calm = Calm::Yes;
        self.living.clear();
        let mut families = vec![(self.init, children_of(self.init)?)];
        while !families.is_empty() {
            let mut met = Vec::new();
            for (parent, children) in families {
                for pid in children {
                    match self.meet(pid, Some(parent), round) {
                        Met::Still(look) => met.push((pid, look)),
                        Met::Sent(look) => {
                            calm = Calm::No;
                            met.push((pid, look));
                        }
                        Met::Gone => calm = Calm::No,
                        Met::Dead => {}
                    }
                }
            }
            families = Vec::new();
            for (pid, look) in met {
                self.living.push(pid);
                let mut children = look.children_of(pid)?;
                // Its children must not stop before it does. Threads that end hand their children on.
                if (!children.is_empty() || look.threads > 1) && !await_still(pid) {
                    calm = Calm::No;
                }
                if look.threads > 1 {
                    children = look.children_of(pid)?;
                }
                if !children.is_empty() {
                    families.push((pid, children));
                }
            }
        }
        Some(calm)
    }

    /// The same, told by the parents that all processes of the host name.
    fn go_through_all(&mut self, round: u32) -> Calm {
        let mut calm = Calm::Yes;
        self.living.clear();
        for pid in descendants_by_parents(self.init) {
            match self.meet(pid, None, round) {
                Met::Still(_) => self.living.push(pid),
                Met::Sent(_) => {
                    calm = Calm::No;
                    self.living.push(pid);
                    await_still(pid);
                }
                Met::Gone => calm = Calm::No,
                Met::Dead => {}
            }
        }
        calm
    }

    /// Looks at a process that `parent` lists, and stops it if it runs.
    fn meet(&mut self, pid: i32, parent: Option<i32>, round: u32) -> Met {
        let known = self.stopped.iter().position(|(known, _)| *known == pid);
        // The handle is taken first: what is seen then is the process that it leads to.
        let handle = if known.is_none() { open(pid).ok() } else { None };
        let Some(look) = Look::at(pid).filter(|look| parent.is_none_or(|it| it == look.parent))
        else {
            return Met::Gone;
        };
        if look.is_dead() {
            return Met::Dead;
        }
        let before = known.and_then(|index| self.stopped.get(index)).map(|(_, round)| *round);
        // Somebody who was sent it in the last round may need a moment.
        let on_its_way = before.is_some_and(|before| before + 1 == round);
        if look.is_still(pid) || (on_its_way && await_still(pid)) {
            return Met::Still(look);
        }
        let sent = match handle {
            // A child of PID 1, whose own id is not given to another while the session is there.
            Some(handle) if look.parent == self.init => pidfd_send_signal(&handle, Signal::STOP),
            Some(handle) => send(&handle, pid, self.init, Signal::STOP),
            None => open(pid).and_then(|handle| send(&handle, pid, self.init, Signal::STOP)),
        };
        if sent.is_err() {
            return Met::Gone;
        }
        if known.is_none() {
            self.stopped.push((pid, round));
        }
        Met::Sent(look)
    }
}

fn open(pid: i32) -> Result<rustix::fd::OwnedFd, Errno> {
    pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

/// Sends a signal to a process that still descends from `init`: if its id was reused before the handle
/// was taken, its owner is not a descendant.
fn send(handle: &rustix::fd::OwnedFd, pid: i32, init: i32, signal: Signal) -> Result<(), Errno> {
    if descends(pid, init) { pidfd_send_signal(handle, signal) } else { Err(Errno::SRCH) }
}

/// What the kernel tells of a process.
#[derive(Clone, Copy, Debug)]
struct Look {
    state: char,
    parent: i32,
    threads: u32,
}

impl Look {
    fn at(pid: i32) -> Option<Self> {
        Self::parse(&told_of(pid, "stat")?)
    }

    /// Reads it from a line of `stat`, in which the name of the process may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 20 of the line; the state is the third.
        Some(Self { state, parent, threads: fields.nth(15)?.parse().ok()? })
    }

    /// Whether nobody of it is left. The first thread may end before the others.
    fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// Whether every thread stands still.
    fn is_still(self, pid: i32) -> bool {
        if self.threads <= 1 {
            return stands(self.state);
        }
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        threads.flatten().all(|thread| {
            let path = format!("{pid}/task/{}", thread.file_name().display());
            // One that is gone meanwhile does nothing more.
            told_of(path, "stat")
                .and_then(|stat| Self::parse(&stat))
                .is_none_or(|look| stands(look.state))
        })
    }

    fn children_of(self, pid: i32) -> Option<Vec<i32>> {
        if self.threads > 1 {
            return children_of(pid);
        }
        match told_of(format!("{pid}/task/{pid}"), "children") {
            Some(list) => Some(list.split(' ').filter_map(|pid| pid.parse().ok()).collect()),
            // It is gone, or there are no such lists.
            None => children_of(pid),
        }
    }
}

fn stands(state: char) -> bool {
    matches!(state, 'T' | 't' | 'Z' | 'X')
}

/// Whether a process stands still, or is no more.
fn is_still(pid: i32) -> bool {
    Look::at(pid).is_none_or(|look| look.is_still(pid))
}

/// Waits a moment until a process stands still; says whether it does.
fn await_still(pid: i32) -> bool {
    /// How often it is looked at.
    const TRIES: u32 = 200;
    /// On a host that does other things too it takes a while until a process gets to stop.
    const PAUSE: Duration = Duration::from_micros(100);
    for attempt in 0..TRIES {
        match Look::at(pid) {
            None => return true,
            Some(look) if look.is_still(pid) => return true,
            // It stops when it comes out of its system call, and is not waited for.
            Some(look) if look.state == 'D' => return false,
            Some(_) if attempt < TRIES / 2 => std::thread::yield_now(),
            Some(_) => std::thread::sleep(PAUSE),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::Look;

    #[test]
    fn a_process_whose_first_thread_has_ended_is_not_dead() {
        let line = |state, threads| {
            format!(
                "7 (a) b) {state} 3 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0 0 0 0"
            )
        };
        let look = |state, threads| Look::parse(&line(state, threads)).unwrap();
        assert_eq!((look('S', 1).parent, look('S', 4).threads), (3, 4));
        assert!(look('Z', 1).is_dead() && look('X', 0).is_dead());
        assert!(!look('Z', 2).is_dead() && !look('T', 1).is_dead());
    }
}

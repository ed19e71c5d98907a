//! The broker of a session: decides, from outside, system calls that a filter cannot decide.
//!
//! One process per session, started by the first call that needs it. It reads a call's arguments
//! once, acts on its own copy, and answers. It tells the kernel to go on with the original call, whose
//! memory and descriptors the session can change meanwhile, only where something else refuses what
//! it must not do: for changes of files, the session's mounts (`files`); for connections
//! (`connect`) nothing does. It runs with the session's own user id and one capability,
//! `CAP_SYS_PTRACE`, to look at the session's processes.
//!
//! Calls that were received and not answered are kept in a file that outlives the process, into
//! which the kernel writes them: if it dies, the next broker makes a connection again, and answers
//! other calls as interrupted.

pub(crate) mod bound;
mod connect;
mod files;
mod handover;
mod turn;

use bound::{BoundSockets, NOTES};
use cowork_policy::seccomp::Arch;
use cowork_sys::Errno;
use cowork_sys::identity::take_over;
use cowork_sys::memory::Numbers;
use cowork_sys::process::own_mask_and_folder;
use cowork_sys::seccomp::{
    Answer, NUMBERS_PER_CALL, Notification, answer, receive, received, wake_synchronously,
};
use files::{Files, Outcome};
use handover::Handover;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use turn::Turn;

/// Most calls that are in work at once: each has a thread, and a slot in the table.
const SLOTS: usize = 256;
/// Most connections that wait for their other end at once; a further one is answered with `EAGAIN`.
const MAX_CONNECTING: usize = 192;
/// Most calls that wait for the user at once; a further one is taken for refused. Together with the
/// connections they leave threads for the calls that wait for nobody.
const MAX_ASKING: usize = 32;
/// Where the keeper counts, behind the table, what it has told this process.
const TOLD: usize = SLOTS * NUMBERS_PER_CALL;
/// Where this process notes, behind that, which sockets it has bound.
const BOUND: usize = TOLD + 1;
/// Numbers in the whole table.
const TABLE: usize = BOUND + NOTES;
/// Size of the table of calls in work, behind which the keeper counts.
pub(crate) const TABLE_BYTES: u64 = (SLOTS * NUMBERS_PER_CALL * size_of::<u64>()) as u64;
/// Where in the whole table bound sockets are noted, in bytes, and how large it is.
pub(crate) const NOTES_AT: u64 = (BOUND * size_of::<u64>()) as u64;
pub(crate) const WHOLE_BYTES: u64 = (TABLE * size_of::<u64>()) as u64;
/// Threads for calls that wait for nobody, beside one for each processor: one that hands out a
/// descriptor does not receive until the caller has taken it.
const SPARE: usize = 2;

/// What every thread of a broker shares.
struct Broker {
    /// Itself, for the threads that it starts.
    own: Weak<Self>,
    listener: OwnedFd,
    in_flight: Numbers,
    sockets: BoundSockets,
    /// The device number of the session's scratch.
    scratch: u64,
    /// The number of `connect`.
    connect: u32,
    /// What changes files; nothing where there is no line to the keeper.
    files: Option<Files>,
    /// Threads for calls that wait for nobody.
    wanted: usize,
    /// Connections that wait for their other end.
    connecting: AtomicUsize,
    /// Calls that wait for the user.
    asking: AtomicUsize,
    /// Threads there are.
    threads: AtomicUsize,
    /// Which of them wait for calls.
    turn: Turn,
    handover: Handover,
}

/// Serves until the session is gone. The arguments are the device number of the session's scratch,
/// `store` or `none`, the session's id, and the number of its first process.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    match run(&arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(arguments: &[String]) -> Result<(), Errno> {
    let scratch = arguments.first().and_then(|text| text.parse().ok()).ok_or(Errno::INVAL)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (listener, in_flight, diagnostics) = (take_over(3)?, take_over(4)?, take_over(5)?);
    let in_flight = Numbers::map(in_flight.as_fd(), TABLE)?;
    let connect = Arch::native().and_then(|arch| arch.number_of("connect")).ok_or(Errno::NOSYS)?;
    let broker = Arc::new_cyclic(|own| Broker {
        own: Weak::clone(own),
        listener,
        in_flight,
        sockets: BoundSockets::new(diagnostics),
        scratch,
        connect,
        files: files_of(arguments),
        wanted: SPARE + cores,
        connecting: AtomicUsize::new(0),
        asking: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        turn: Turn::default(),
        handover: Handover::new(),
    });
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Older kernels wake this process on any CPU, which costs time and nothing else.
    cowork_sys::ignore(wake_synchronously(broker.listener.as_fd()));
    broker.interrupt_orphans();
    if let Some(files) = &broker.files {
        files.wait_for_folders();
        let own = Arc::clone(&broker);
        let tended = start(move || own.files.as_ref().map(|files| files.tend(&own)));
        tended.map_err(|_no_thread| Errno::AGAIN)?;
    }
    broker.take_over()?;
    broker.work(0)
}

/// Starts a thread that ends with the process.
fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}

/// What changes files, if the keeper passed what it takes.
fn files_of(arguments: &[String]) -> Option<Files> {
    let [_, kept, _session, init] = arguments else { return None };
    let line = take_over(6).ok()?;
    let store = take_over(7).ok().filter(|_| kept == "store");
    Files::new(line, store, init.parse().ok()?).ok()
}

impl Broker {
    /// Answers the calls that a broker before this one left unanswered and that need no more than that:
    /// the keeper has the session stand still before it says which folders there are, and no process
    /// does that in such a call.
    fn interrupt_orphans(&self) {
        let is_no_connection =
            |slot: &usize| self.left(*slot).is_some_and(|call| !self.is_connect(&call));
        for slot in (0..SLOTS).filter(is_no_connection) {
            self.answer_orphan(slot);
        }
    }

    /// Takes over the connections that a broker before this one left unanswered. Each is in the slot
    /// of the thread that received it, so that there are as many threads again.
    fn take_over(self: &Arc<Self>) -> Result<(), Errno> {
        let left = (0..SLOTS).rfind(|slot| self.left(*slot).is_some()).unwrap_or(0);
        self.threads.store(left + 1, Ordering::SeqCst);
        for slot in 1..=left {
            let own = Arc::clone(self);
            start(move || own.work(slot)).map_err(|_no_thread| Errno::AGAIN)?;
        }
        Ok(())
    }

    /// The call in a slot of the table.
    fn left(&self, slot: usize) -> Option<Notification> {
        received(&self.in_flight, slot * NUMBERS_PER_CALL)
    }

    /// Answers the call that the last broker left in a slot. It may have been carried out or not. A
    /// connection is made again, which tells whether it was made: many programs take `EINTR` for
    /// one that is under way, and wait for it. Of other calls only `EINTR` says the truth.
    fn answer_orphan(&self, slot: usize) {
        let Some(call) = self.left(slot) else { return };
        handover::release(call.thread);
        let outcome = match self.is_connect(&call).then(|| connect::decide(self, &call)) {
            // The last broker has made it, or has begun to.
            Some(Answer::Error(Errno::ISCONN)) => Answer::Value(0),
            Some(Answer::Error(Errno::ALREADY)) => Answer::Error(Errno::INPROGRESS),
            Some(outcome) => outcome,
            None => Answer::Error(Errno::INTR),
        };
        // A caller that died meanwhile needs no answer.
        cowork_sys::ignore(answer(self.listener.as_fd(), call.id, outcome));
        self.release(slot);
    }

    /// One thread: receives calls and answers them. Each thread owns one slot of the table.
    fn work(&self, slot: usize) -> Result<(), Errno> {
        own_mask_and_folder()?;
        self.answer_orphan(slot);
        while self.turn.take() {
            let call = match self.receive(slot) {
                Ok(call) => call,
                Err(errno) => {
                    self.turn.end();
                    return Err(errno);
                }
            };
            self.turn.leave();
            self.reinforce();
            self.answer(&call);
            self.release(slot);
        }
        Ok(())
    }

    /// The next call, into this slot of the table.
    fn receive(&self, slot: usize) -> Result<Notification, Errno> {
        loop {
            match receive(self.listener.as_fd(), &self.in_flight, slot * NUMBERS_PER_CALL) {
                Err(Errno::INTR) => {}
                // Either this caller died, or the last process under the filter did.
                Err(Errno::NOENT) if !self.is_over() => {}
                received => return received,
            }
        }
    }

    /// Takes a call that was answered out of the table.
    fn release(&self, slot: usize) {
        self.in_flight.clear(slot * NUMBERS_PER_CALL, NUMBERS_PER_CALL);
    }

    /// Whether no process is left that could make a call.
    fn is_over(&self) -> bool {
        let mut listener = [PollFd::new(&self.listener, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        cowork_sys::ignore(poll(&mut listener, Some(&now)));
        listener.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
    }

    /// Starts a further thread if too few are left beside those that wait for somebody.
    fn reinforce(&self) {
        let count = self.threads.load(Ordering::SeqCst);
        let waiting = self.connecting.load(Ordering::SeqCst) + self.asking.load(Ordering::SeqCst);
        if count >= SLOTS.min(self.wanted + waiting) {
            return;
        }
        let Some(own) = self.own.upgrade() else { return };
        let (now, then) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.threads.compare_exchange(count, count + 1, now, then).is_err() {
            // Another thread has just started one.
            return;
        }
        if start(move || cowork_sys::ignore(own.work(count))).is_err() {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Counts one more among those who wait for somebody, if that is not more than `most`, and sees
    /// to it that others do not have to wait for it.
    fn wait<'a>(&self, count: &'a AtomicUsize, most: usize) -> Option<Waiting<'a>> {
        let waiting = Waiting(count);
        if count.fetch_add(1, Ordering::SeqCst) >= most {
            return None;
        }
        self.reinforce();
        Some(waiting)
    }

    fn answer(&self, call: &Notification) {
        let decided = self.files.as_ref().and_then(|files| files.decide(self, call));
        let outcome = match decided {
            Some((Outcome::File(file, at_exec), _begun)) => {
                // Giving and answering in one step would be quicker. But should this process be killed
                // in between, the kernel takes the file back and not the answer: the caller would
                // be told that its file has number 0.
                let listener = self.listener.as_fd();
                match self.handover.give(listener, call, file.as_fd(), at_exec) {
                    Ok(number) => {
                        // The caller must not be done with the file before this process is: what
                        // is open for writing cannot be executed, stays locked, and is not yet
                        // closed to those who watch it.
                        drop(file);
                        Answer::Value(number)
                    }
                    Err(Errno::NOENT) => return,
                    // The caller may have no more descriptors.
                    Err(errno) => Answer::Error(errno),
                }
            }
            Some((Outcome::Continue, _)) => Answer::Continue,
            Some((Outcome::Done(outcome), _)) => outcome.map_or_else(Answer::Error, Answer::Value),
            None => self.other(call),
        };
        // A caller that died meanwhile needs no answer.
        cowork_sys::ignore(answer(self.listener.as_fd(), call.id, outcome));
    }

    /// Notes that a socket is about to be bound in a folder, and returns where its file is noted.
    fn note_socket(&self, folder: &str, socket: u64) -> usize {
        bound::note(&self.in_flight, BOUND, folder, socket)
    }

    fn note_file(&self, place: usize, file: (u64, u64)) {
        bound::note_file(&self.in_flight, place, file);
    }

    /// How often the keeper has told this process something.
    fn told(&self) -> u64 {
        self.in_flight.get(TOLD)
    }

    fn is_connect(&self, call: &Notification) -> bool {
        i32::try_from(self.connect).is_ok_and(|number| number == call.number)
    }

    /// A call that is not about files.
    fn other(&self, call: &Notification) -> Answer {
        if self.is_connect(call) {
            connect::decide(self, call)
        } else {
            // Only calls about files come here beside connections: without folders that are
            // changed here, the session's mounts decide.
            Answer::Continue
        }
    }
}

/// One of those who wait for somebody, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stack of a thread: paths are at most a few pages long.
const STACK: usize = 256 * 1024;

/// A handle on a thread, or on its process where the kernel has handles of processes only.
fn thread_handle_of(thread: u32) -> Result<OwnedFd, Errno> {
    match exact_handle_of(thread) {
        Err(Errno::INVAL) => {
            let pid = i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            pidfd_open(leader_of(thread).unwrap_or(pid), PidfdFlags::empty())
        }
        result => result,
    }
}

/// A handle on a thread itself, which may have descriptors of its own (Linux 6.9).
fn exact_handle_of(thread: u32) -> Result<OwnedFd, Errno> {
    /// `PIDFD_THREAD`.
    const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
    let number = i32::try_from(thread).map_err(|_overflow| Errno::SRCH)?;
    pidfd_open(Pid::from_raw(number).ok_or(Errno::SRCH)?, THREAD)
}

/// The process that a thread belongs to.
fn leader_of(thread: u32) -> Option<Pid> {
    let status = crate::kernel::told_of(thread, "status")?;
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(leader.trim().parse().ok()?)
}

/// System call arguments that are `int` are the low half of the register.
fn low_half(argument: u64) -> u32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

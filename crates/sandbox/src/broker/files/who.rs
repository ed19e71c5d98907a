//! Whose call it is: the command that the caller belongs to, and with it the set of its changes.
//!
//! A command is a child of the session's init and everything that descends from it. Who was seen
//! once is known again by a number that the kernel never gives to another process. A process whose
//! parents are gone belongs to the command that began its session of processes.

use super::Files;
use super::call::Call;
use crate::broker::{exact_handle_of, thread_handle_of};
use cowork_api::Text;
use cowork_api::files::SetKind;
use cowork_journal::hand::By;
use cowork_sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most threads and processes that are remembered; beyond, they are found out again.
const MAX_KNOWN: usize = 4096;
/// Most threads to which a handle is kept; beyond, they are opened again.
const MAX_CALLERS: usize = 256;
/// Most generations from a process up to its command.
const MAX_DEPTH: u32 = 4096;
/// Most arguments of a process that are recorded, and most bytes of each.
const MAX_ARGUMENTS: usize = 16;
const MAX_ARGUMENT: usize = 256;
/// How long the arguments of a process are taken for granted: it may execute another program.
const FRESH: Duration = Duration::from_millis(50);
/// `PID_FS_MAGIC`: handles on processes have inode numbers that are never used again (Linux 6.9).
const PIDFS: i64 = 0x5049_4446;

/// What `/proc/PID/status` says about a thread.
pub(super) struct Status {
    /// The process it belongs to, on the host.
    pub(super) process: u32,
    /// Its number in the session.
    pub(super) inside: u32,
    /// Its mask of permission bits.
    pub(super) mask: u32,
}

impl Status {
    pub(super) fn of(thread: u32) -> Result<Self, Errno> {
        let text = std::fs::read(format!("/proc/{thread}/status"));
        let text = text.map_err(|_gone| Errno::SRCH)?;
        Self::parse(&String::from_utf8_lossy(&text)).ok_or(Errno::SRCH)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        Some(Self {
            process: field("Tgid:")?.trim().parse().ok()?,
            inside: field("NSpid:")?.split_whitespace().last()?.parse().ok()?,
            mask: field("Umask:").and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())?,
        })
    }
}

/// The parent and the session of a process, as the host numbers them.
fn ancestry(process: u32) -> Result<(u32, u32), Errno> {
    let text = stat_of(process)?;
    parse_ancestry(&String::from_utf8_lossy(&text)).ok_or(Errno::SRCH)
}

fn parse_ancestry(text: &str) -> Option<(u32, u32)> {
    // The name before may contain anything, also a parenthesis.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some((parent, session))
}

/// What the kernel says about one thread. About a whole process it would add up all its threads.
fn stat_of(thread: u32) -> Result<Vec<u8>, Errno> {
    std::fs::read(format!("/proc/{thread}/task/{thread}/stat")).map_err(|_gone| Errno::SRCH)
}

/// When a thread was started, in ticks since the machine was.
fn start_of(thread: u32) -> Result<u64, Errno> {
    let text = stat_of(thread)?;
    let text = String::from_utf8_lossy(&text);
    let fields = text.rsplit_once(") ").map(|(_, fields)| fields);
    let start = fields.and_then(|fields| fields.split(' ').nth(19)?.parse().ok());
    start.ok_or(Errno::SRCH)
}

/// The arguments of a process, as far as they are recorded.
fn arguments_of(process: u32) -> Vec<Text> {
    use std::io::Read;
    /// Enough for all that are kept, of usual length.
    const MOST: u64 = 16 * 1024;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{process}/cmdline")) {
        // What cannot be read is left out.
        cowork_sys::ignore(file.take(MOST).read_to_end(&mut bytes));
    }
    split_arguments(&bytes)
}

fn split_arguments(bytes: &[u8]) -> Vec<Text> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let cut = |argument: &[u8]| argument.get(..MAX_ARGUMENT).unwrap_or(argument).to_vec();
    bytes.split(|byte| *byte == 0).take(MAX_ARGUMENTS).map(cut).collect()
}

/// A thread that made a call.
pub(super) struct Caller {
    /// A handle on it.
    pub(super) handle: OwnedFd,
    /// A number that names it and never another one.
    pub(super) key: u64,
}

impl Caller {
    /// Whether the thread has ended. Until then its number is nobody else's.
    fn is_gone(&self) -> bool {
        let mut watched = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)) != Ok(0)
    }
}

/// Who was seen, and the sets that are open.
pub(super) struct Ledger {
    /// The session's first process.
    init: u32,
    numbered: OnceLock<bool>,
    /// Threads that called, by their number, which is looked at again before it is believed.
    callers: Mutex<HashMap<u32, Arc<Caller>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Threads, and the process of each.
    threads: HashMap<u64, u64>,
    processes: HashMap<u64, Known>,
    sets: Vec<Open>,
}

impl State {
    /// Remembers which process a thread belongs to.
    fn remember(&mut self, thread: u64, process: u64) {
        if self.threads.len() >= MAX_KNOWN {
            self.threads.clear();
        }
        self.threads.insert(thread, process);
    }
}

/// A process that was seen.
struct Known {
    by: By,
    number: u32,
    arguments: Vec<Text>,
    looked: Instant,
}

/// A set that is open.
struct Open {
    set: u32,
    /// The command's first process.
    root: u32,
    /// Processes of it that may still be there.
    members: HashMap<u64, u32>,
}

/// What is found out about a caller before the ledger is locked.
struct Found {
    key: u64,
    number: u32,
    inside: u32,
    root: (u32, u64),
    root_inside: u32,
    session: u32,
}

impl Ledger {
    pub(super) fn new(init: u32) -> Self {
        let (numbered, callers) = (OnceLock::new(), Mutex::default());
        Self { init, numbered, callers, state: Mutex::default() }
    }

    /// Who has this number now.
    pub(super) fn caller(&self, thread: u32) -> Result<Arc<Caller>, Errno> {
        let known = self.callers().get(&thread).map(Arc::clone);
        if let Some(known) = known.filter(|known| !known.is_gone()) {
            return Ok(known);
        }
        let handle = match exact_handle_of(thread) {
            Err(Errno::INVAL) => {
                let handle = thread_handle_of(thread)?;
                let key = self.key(handle.as_fd(), thread)?;
                return Ok(Arc::new(Caller { handle, key }));
            }
            handle => handle?,
        };
        let key = self.key(handle.as_fd(), thread)?;
        let caller = Arc::new(Caller { handle, key });
        let mut callers = self.callers();
        if callers.len() >= MAX_CALLERS {
            callers.clear();
        }
        callers.insert(thread, Arc::clone(&caller));
        Ok(caller)
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<u32, Arc<Caller>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that names the thread of a handle and never another one.
    pub(super) fn key(&self, handle: BorrowedFd<'_>, thread: u32) -> Result<u64, Errno> {
        let is_pidfs = || rustix::fs::fstatfs(handle).is_ok_and(|stat| stat.f_type == PIDFS);
        if *self.numbered.get_or_init(is_pidfs) {
            return Ok(rustix::fs::fstat(handle)?.st_ino);
        }
        // A number is used again only after all others were; not within one tick.
        Ok(start_of(thread)? << 22 | u64::from(thread))
    }

    fn key_of(&self, thread: u32) -> Result<u64, Errno> {
        let handle = thread_handle_of(thread)?;
        self.key(handle.as_fd(), thread)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set and process of a caller. Begins a set if it is a new command's.
    pub(super) fn identify(&self, call: &Call<'_>) -> Result<By, Errno> {
        let thread = call.key()?;
        if let Some(by) = self.recall(call, thread)? {
            return Ok(by);
        }
        let Some(found) = self.find(call, thread)? else {
            return self.recall(call, thread)?.ok_or(Errno::STALE);
        };
        let arguments = arguments_of(found.number);
        let of_root = if found.root.0 == found.number {
            arguments.clone()
        } else {
            arguments_of(found.root.0)
        };
        call.still_waits()?;
        self.enter(call.files, thread, &found, (arguments, of_root))
    }

    /// The set and process of a thread that is known.
    fn recall(&self, call: &Call<'_>, thread: u64) -> Result<Option<By>, Errno> {
        let (by, number) = {
            let state = self.state();
            let process = state.threads.get(&thread).and_then(|key| state.processes.get(key));
            match process {
                Some(known) if known.looked.elapsed() < FRESH => return Ok(Some(known.by)),
                Some(known) => (known.by, known.number),
                None => return Ok(None),
            }
        };
        let arguments = arguments_of(number);
        call.still_waits()?;
        self.refresh(call.files, thread, by, arguments).map(Some)
    }

    /// Records the arguments of a process again if they are others.
    fn refresh(
        &self,
        files: &Files,
        thread: u64,
        by: By,
        arguments: Vec<Text>,
    ) -> Result<By, Errno> {
        let mut state = self.state();
        let State { threads, processes, .. } = &mut *state;
        let known = threads.get(&thread).and_then(|key| processes.get_mut(key));
        // Otherwise a boundary has passed meanwhile.
        let known = known.filter(|known| known.by == by).ok_or(Errno::STALE)?;
        if known.arguments != arguments && !arguments.is_empty() {
            files.hand()?.process(by, arguments.clone())?;
            known.arguments = arguments;
        }
        known.looked = Instant::now();
        Ok(by)
    }

    /// Finds out which process a caller is, and which command it belongs to. Nothing if the process
    /// is known: from now on so is the thread.
    fn find(&self, call: &Call<'_>, thread: u64) -> Result<Option<Found>, Errno> {
        let status = Status::of(call.note.thread)?;
        let number = status.process;
        let is_first = number == call.note.thread;
        let key = if is_first { thread } else { self.key_of(number)? };
        call.still_waits()?;
        let mut state = self.state();
        if state.processes.contains_key(&key) {
            state.remember(thread, key);
            return Ok(None);
        }
        drop(state);
        let inside = if is_first { status.inside } else { Status::of(number)?.inside };
        let found = self.trace(number, (key, inside))?;
        call.still_waits()?;
        Ok(Some(found))
    }

    /// The command that a process belongs to.
    fn trace(&self, number: u32, (key, inside): (u64, u32)) -> Result<Found, Errno> {
        let (mut parent, session) = ancestry(number)?;
        let mut root = number;
        for _ in 0..MAX_DEPTH {
            if root == self.init || parent == self.init || parent <= 1 {
                break;
            }
            root = parent;
            parent = ancestry(root)?.0;
        }
        let (root_key, root_inside) = if root == number {
            (key, inside)
        } else {
            (self.key_of(root)?, Status::of(root)?.inside)
        };
        Ok(Found { key, number, inside, root: (root, root_key), root_inside, session })
    }

    /// The set and process of somebody who makes no call now, in a session that stands still.
    pub(super) fn identify_still(&self, files: &Files, number: u32) -> Result<By, Errno> {
        let key = self.key_of(number)?;
        let found = self.trace(number, (key, Status::of(number)?.inside))?;
        let arguments = (arguments_of(number), arguments_of(found.root.0));
        self.enter(files, key, &found, arguments)
    }

    /// Every process of the session but the first, by its number on the host.
    pub(super) fn processes(&self) -> Vec<u32> {
        let Ok(init) = i32::try_from(self.init) else { return Vec::new() };
        let all = crate::keeper::descendants(init).into_iter();
        all.filter_map(|pid| u32::try_from(pid).ok()).collect()
    }

    /// Enters a process into the ledger.
    fn enter(
        &self,
        files: &Files,
        thread: u64,
        found: &Found,
        (arguments, of_root): (Vec<Text>, Vec<Text>),
    ) -> Result<By, Errno> {
        let mut state = self.state();
        if state.processes.len() >= MAX_KNOWN {
            state.threads.clear();
            state.processes.clear();
        }
        state.remember(thread, found.key);
        if let Some(by) = state.processes.get(&found.key).map(|known| known.by) {
            return Ok(by);
        }
        let (root, root_key) = found.root;
        let open = state.sets.iter().position(|open| {
            let is_root = open.root == root && open.members.contains_key(&root_key);
            // The number of a session is not given away while a process is in it.
            is_root || open.root == found.session
        });
        let position = if let Some(position) = open {
            position
        } else {
            let set = files.hand()?.begin(SetKind::Command, found.root_inside, of_root)?;
            let members = HashMap::from([(root_key, root)]);
            state.sets.push(Open { set, root, members });
            files.look_after_sets();
            state.sets.len() - 1
        };
        let open = state.sets.get_mut(position).ok_or(Errno::SRCH)?;
        open.members.insert(found.key, found.number);
        let by = By { set: open.set, process: found.inside };
        files.hand()?.process(by, arguments.clone())?;
        let looked = Instant::now();
        state.processes.insert(found.key, Known { by, number: found.number, arguments, looked });
        Ok(by)
    }

    /// Whether a set is open.
    pub(super) fn has_sets(&self) -> bool {
        !self.state().sets.is_empty()
    }

    /// Closes the sets whose processes are all gone.
    pub(super) fn sweep(&self, files: &Files) {
        for set in self.left_alone() {
            if let Ok(mut hand) = files.hand() {
                // A set that cannot be closed (a full disk) is closed by whoever reads the log.
                cowork_sys::ignore(hand.close(set));
            }
        }
    }

    /// Forgets processes that are gone, and the sets that have no other.
    fn left_alone(&self) -> Vec<u32> {
        let mut state = self.state();
        let State { threads, processes, sets } = &mut *state;
        for open in sets.iter_mut() {
            open.members.retain(|key, number| {
                let lives = self.key_of(*number).is_ok_and(|found| found == *key);
                if !lives {
                    processes.remove(key);
                }
                lives
            });
        }
        threads.retain(|_, process| processes.contains_key(process));
        // Somebody who has changed nothing yet may still do so on behalf of the same command.
        let is_over = |open: &Open| open.members.is_empty() && !self.has_more_of(open.root);
        let (left, others) = sets.drain(..).partition(is_over);
        *sets = others;
        let left: Vec<Open> = left;
        left.into_iter().map(|open| open.set).collect()
    }

    /// Whether a process of the session is in the session of processes that `root` began.
    fn has_more_of(&self, root: u32) -> bool {
        let mut all = self.processes().into_iter();
        all.any(|pid| ancestry(pid).is_ok_and(|(_, session)| session == root))
    }

    /// Closes all sets: what is done from now on belongs to new ones.
    pub(super) fn boundary(&self, files: &Files) {
        let mut state = self.state();
        *state = State::default();
        if let Ok(mut hand) = files.hand() {
            // The same: the log's reader finds the set open, and closes it.
            cowork_sys::ignore(hand.boundary());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_ARGUMENT, MAX_ARGUMENTS, Status, parse_ancestry, split_arguments};

    #[test]
    fn a_process_is_described_by_its_status() {
        let text = "Name:\tsh\nUmask:\t0077\nState:\tS\nTgid:\t512\nNgid:\t0\nNSpid:\t513\t7\n";
        let status = Status::parse(text).expect("it is whole");
        assert_eq!((status.process, status.inside, status.mask), (512, 7, 0o77));
        assert!(Status::parse("Name:\tsh\n").is_none());
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parse_ancestry("9 (a) b) S 4 9 8 0 -1"), Some((4, 8)));
        assert_eq!(parse_ancestry("9"), None);
    }

    #[test]
    fn arguments_are_cut() {
        assert_eq!(split_arguments(b"a\0b c\0\0"), [&b"a"[..], b"b c", b""]);
        assert_eq!(split_arguments(b""), Vec::<Vec<u8>>::new());
        let long = vec![b'x'; 5000];
        assert_eq!(split_arguments(&long), [vec![b'x'; MAX_ARGUMENT]]);
        assert_eq!(split_arguments(&b"a\0".repeat(100)).len(), MAX_ARGUMENTS);
    }
}

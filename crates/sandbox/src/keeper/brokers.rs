//! The broker of a session, as the keeper holds it: started by the first call that needs one, told
//! of every folder that it makes changes in, started again when it dies.

use crate::broker::bound::NOTES;
use crate::broker::{NOTES_AT, TABLE_BYTES, WHOLE_BYTES};
use crate::channel::{Channel, Peer};
use crate::keeper::Session;
use crate::keeper::cgroup::Frozen;
use crate::keeper::door::Door;
use crate::keeper::errand::Asker;
use crate::keeper::serve::Keeper;
use crate::keeper::watch::{Interest, Subject};
use crate::kernel::{Failed, Step};
use cowork_api::files::{FromBroker, ToBroker};
use cowork_api::keeper::{Message, Reply};
use cowork_sys::Errno;
use cowork_sys::identity::{ASIDE, hand_over};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, execute, fork, leave};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CString;

/// Most times in a session's life that a broker is started again after it died.
const MAX_BROKER_STARTS: u32 = 100;

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
    /// What it is told, and what it asks.
    pub(crate) line: Option<Channel>,
    /// How much any broker was told, counted behind the calls.
    told: u64,
    /// How often one was started.
    pub(crate) starts: u32,
    /// Whether one was there before, whose files may be open still.
    had_one: bool,
    /// Who waits until sets are closed, by the number that the broker answers with.
    settling: Vec<Settling>,
    /// The next such number.
    settled: u64,
}

impl Drop for BrokerState {
    fn drop(&mut self) {
        self.end();
    }
}

/// Something that waits until sets are closed.
#[derive(Debug)]
struct Settling {
    /// What the broker answers with.
    number: u64,
    /// The client that is answered, if one asked.
    asker: Option<Asker>,
    thaw: Thaw,
}

/// Whether the session goes on afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thaw {
    Yes,
    No,
}

/// What a broker is started with.
pub(crate) struct Start<'a> {
    program: BorrowedFd<'a>,
    /// The session's own user id, in root mode.
    user: Option<u32>,
    /// The session's PID 1.
    init: i32,
    session: &'a str,
    /// Where changes are recorded.
    store: Option<BorrowedFd<'a>>,
}

impl BrokerState {
    /// Starts a broker on this session's listener.
    fn start(&mut self, proof: &SingleThreaded, start: &Start<'_>) -> Result<(), Failed> {
        let named = || "start the broker of a session".to_owned();
        if self.in_flight.is_none() {
            self.in_flight = Some(in_flight_table().step(named)?);
        }
        let missing = Errno::BADF;
        let listener = self.listener.as_ref().ok_or(missing).step(named)?;
        let in_flight = self.in_flight.as_ref().ok_or(missing).step(named)?;
        let (line, theirs) = Channel::pair().step(named)?;
        match fork(proof, Namespaces::Inherited, None).step(named)? {
            Forked::Parent { handle, .. } => {
                self.process = Some(handle);
                self.line = Some(line);
                self.starts += 1;
                Ok(())
            }
            Forked::Child => {
                let scratch = self.scratch.unwrap_or(u64::MAX);
                if let Ok(diagnostics) = enter_network(start.init) {
                    let handles =
                        [listener.as_fd(), in_flight.as_fd(), diagnostics.as_fd(), theirs.as_fd()];
                    cowork_sys::ignore(become_broker(start, handles, scratch));
                }
                leave(1)
            }
        }
    }

    /// Tells the broker something, if one runs; `send` does it. The broker looks for it when it is
    /// counted.
    fn say(&mut self, send: impl FnOnce(&Channel) -> Result<(), Errno>) -> Result<(), Errno> {
        let (Some(line), Some(table)) = (&self.line, &self.in_flight) else { return Ok(()) };
        send(line)?;
        self.told += 1;
        rustix::io::pwrite(table, &self.told.to_ne_bytes(), TABLE_BYTES).map(drop)
    }

    /// What brokers of the session have noted about sockets that they have bound.
    pub(crate) fn notes(&self) -> Result<Vec<u64>, Errno> {
        let Some(table) = &self.in_flight else { return Ok(Vec::new()) };
        let mut bytes = vec![0; NOTES * size_of::<u64>()];
        let read = rustix::io::pread(table, &mut bytes, NOTES_AT)?;
        let numbers = bytes.get(..read).unwrap_or_default().chunks_exact(size_of::<u64>());
        let number =
            |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(numbers.map(number).collect())
    }

    /// Nobody is left who says that sets are closed: the clients that waited for it, and whether the
    /// session stands still for their sake alone.
    pub(crate) fn forget_settling(&mut self) -> (Vec<Asker>, bool) {
        let settling = std::mem::take(&mut self.settling);
        let thaw = settling.iter().any(|waiting| waiting.thaw == Thaw::Yes);
        (settling.into_iter().filter_map(|waiting| waiting.asker).collect(), thaw)
    }

    /// Somebody else decides from now on whether the session stands still.
    pub(crate) fn leave_frozen(&mut self) {
        for waiting in &mut self.settling {
            waiting.thaw = Thaw::No;
        }
    }

    /// Ends the broker; the next call starts another one. Calls that it has in work are answered by
    /// that one as interrupted.
    pub(crate) fn dismiss(&mut self) {
        if let Some(process) = &self.process {
            // Its end is told by its handle, like any other.
            cowork_sys::ignore(pidfd_send_signal(process, Signal::KILL));
            self.starts = self.starts.saturating_sub(1);
        }
    }
}

fn in_flight_table() -> Result<OwnedFd, Errno> {
    let table = rustix::fs::memfd_create(c"cowork-in-flight", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&table, WHOLE_BYTES)?;
    Ok(table)
}

/// Enters the network of a session, and opens a socket that lists the UNIX sockets in it.
pub(crate) fn enter_network(init: i32) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{init}/ns/net");
    let network = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    diagnostics_here()
}

/// A socket that lists the UNIX sockets in the network that this process is in.
pub(crate) fn diagnostics_here() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        rustix::net::AddressFamily::NETLINK,
        rustix::net::SocketType::RAW,
        rustix::net::SocketFlags::CLOEXEC,
        Some(rustix::net::netlink::SOCK_DIAG),
    )
}

/// Executes this program again in the role of a broker, with the one capability it needs.
fn become_broker(
    start: &Start<'_>,
    [listener, in_flight, diagnostics, line]: [BorrowedFd<'_>; 4],
    scratch: u64,
) -> Result<std::convert::Infallible, Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(user) = start.user {
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
    let program = rustix::io::fcntl_dupfd_cloexec(start.program, ASIDE)?;
    let (store, kept) = match start.store {
        Some(store) => (store, c"store"),
        None => (null, c"none"),
    };
    hand_over(&[null, null, null, listener, in_flight, diagnostics, line, store])?;
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let arguments = [
        c"cowork-broker".into(),
        text(&scratch.to_string()),
        kept.into(),
        text(start.session),
        text(&start.init.to_string()),
    ];
    execute(program.as_fd(), &arguments, &[])
}

/// Whether the process of a handle is gone.
fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Session {
    /// Adds the writable side of a folder, and tells the broker of it.
    pub(crate) fn add_door(&mut self, door: Door) {
        self.share(&door.shared);
        self.introduce(&door);
        self.doors.open.push(door);
    }

    /// Tells a broker that was just started of every folder.
    fn introduce_all(&mut self) {
        let doors = std::mem::take(&mut self.doors.open);
        for door in &doors {
            self.introduce(door);
        }
        self.doors.open = doors;
        // It answers no call before it has heard this: it knows every folder then.
        let message = cowork_api::encode(&ToBroker::Boundary);
        if self.broker.say(|line| line.send(&message, &[])).is_err() {
            self.broker.dismiss();
        }
    }

    /// Tells the broker of a folder. Rules are long, and there may be many folders: it is waited
    /// for room, which the broker, a program of the keeper's own, makes at once.
    fn introduce(&mut self, door: &Door) {
        if self.broker.line.is_none() {
            return;
        }
        match door.introduction() {
            Ok((message, handles)) => {
                let handles: Vec<_> = handles.iter().map(AsFd::as_fd).collect();
                let message = cowork_api::encode(&message);
                if self.broker.say(|line| line.send(&message, &handles)).is_err() {
                    self.broker.dismiss();
                }
            }
            // Without its handles nothing can be changed in the folder.
            Err(_errno) => {}
        }
    }

    /// Has the sets closed whose processes are gone. Says whether nothing is to be waited for.
    pub(crate) fn settle(&mut self, asker: Asker) -> bool {
        self.settle_and(Some(asker), Thaw::No)
    }

    /// Begins new sets for everybody. What is open for writing is saved meanwhile, so the session
    /// stands still until that is done. Says whether nothing is to be waited for.
    pub(crate) fn boundary(&mut self, asker: Asker) -> bool {
        if self.broker.line.is_none() || self.doors.open.is_empty() {
            return true;
        }
        let thaw = self.stand_still();
        self.tell_broker(&ToBroker::Boundary, &[]);
        self.settle_and(Some(asker), thaw)
    }

    /// Stops the session while a set ends, and says whether it goes on afterwards. One that cannot be
    /// frozen goes on, and what it writes in between may be lost to an undo.
    fn stand_still(&mut self) -> Thaw {
        let thaw = if self.frozen == Frozen::Yes { Thaw::No } else { Thaw::Yes };
        cowork_sys::ignore(self.set_frozen(Frozen::Yes));
        thaw
    }

    fn settle_and(&mut self, asker: Option<Asker>, thaw: Thaw) -> bool {
        if self.broker.line.is_none() || self.doors.open.is_empty() {
            return true;
        }
        let number = self.broker.settled;
        self.broker.settled += 1;
        self.broker.settling.push(Settling { number, asker, thaw });
        self.tell_broker(&ToBroker::Settle { number }, &[]);
        false
    }

    /// Lets a session go on that stood still for somebody who waited.
    fn settled(&mut self, thaw: Thaw) {
        if thaw == Thaw::Yes {
            // As after any work on a session that stands still.
            cowork_sys::ignore(self.set_frozen(Frozen::No));
        }
    }

    /// Tells the broker something, if one runs. One that does not listen is ended: the next is told
    /// everything anew.
    pub(crate) fn tell_broker(&mut self, message: &ToBroker, handles: &[BorrowedFd<'_>]) {
        if self.broker.line.is_none() {
            return;
        }
        let message = cowork_api::encode(message);
        if self.broker.say(|line| line.try_send(&message, handles)).is_err() {
            self.broker.dismiss();
        }
    }
}

impl Keeper {
    pub(super) fn bury_broker(&mut self, number: u32) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        if let Some(process) = session.broker.process.take() {
            self.watch.remove(&process);
            if let Some(line) = session.broker.line.take() {
                self.watch.remove(&line);
            }
            let status = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
            session.leave_shared();
            // It leaves by itself when nobody is left who could make a call.
            let left = status.ok().flatten().and_then(|status| status.exit_status()) == Some(0);
            let ended = left || has_ended(&session.handle);
            let id = session.id.clone();
            // What it left open is closed by whoever reads the log next.
            let (askers, thaw) = session.broker.forget_settling();
            if thaw {
                session.settled(Thaw::Yes);
            }
            for asker in askers {
                self.answer(asker.client, asker.call, Ok((Reply::Done, Vec::new())));
            }
            if ended {
                // It had nothing more to do; the session's end is told by its own handle.
                return;
            }
            let message = Message::BrokerRestarted { session: id };
            self.start_broker(number);
            self.clients.tell_all(&self.watch, &message);
        }
    }

    /// Starts a broker, or waits for the next call if none can be started.
    pub(super) fn start_broker(&mut self, number: u32) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        let broker = &mut session.broker;
        if let Some(listener) = &broker.listener {
            self.watch.remove(listener);
        }
        if broker.starts >= MAX_BROKER_STARTS {
            // With nobody listening the kernel refuses the calls instead of letting them wait.
            broker.listener = None;
            return;
        }
        let start = Start {
            program: self.own_program.as_fd(),
            user: session.ids.as_ref().map(|ids| ids.id),
            init: session.pid,
            session: &session.id,
            store: session.doors.store.as_ref().map(|store| store.handle.as_fd()),
        };
        let started = broker.start(&self.proof, &start);
        let watched = match (&broker.process, &broker.listener) {
            (Some(process), _) => self
                .watch
                .add(process, Subject::Broker(number), Interest::Reading)
                .and_then(|()| match &broker.line {
                    Some(line) => self.watch.add(line, Subject::Line(number), Interest::Reading),
                    None => Ok(()),
                }),
            (None, Some(listener)) => {
                self.watch.add(listener, Subject::Calls(number), Interest::Reading)
            }
            (None, None) => Ok(()),
        };
        if started.is_err() || watched.is_err() {
            // Counted as a start, so that a host that cannot start one is not asked for ever.
            broker.starts += 1;
        }
        let again = std::mem::replace(&mut session.broker.had_one, true);
        if again && session.broker.line.is_some() && !session.doors.open.is_empty() {
            // Whoever has a file open since before writes on: the set that a dead broker left open
            // ends, and another begins, while nobody does. By now the calls that were in work are
            // answered, or will be in a moment: nobody waits in one that cannot be frozen.
            let thaw = session.stand_still();
            session.introduce_all();
            session.settle_and(None, thaw);
        } else {
            session.introduce_all();
        }
    }

    /// A listener whose processes are gone has nothing more to say; the session's end is told by its
    /// own handle.
    pub(super) fn ignore_calls(&mut self, number: u32) {
        if let Some(listener) =
            self.sessions.get_mut(number).and_then(|session| session.broker.listener.as_ref())
        {
            self.watch.remove(listener);
        }
    }

    /// Hears what a broker asks, and tells everybody.
    pub(super) fn hear_broker(&mut self, number: u32) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        let Some(line) = &session.broker.line else { return };
        let message = match line.try_receive(Peer::Hostile) {
            Ok(Some(packet)) => match cowork_api::decode::<FromBroker>(&packet.bytes) {
                Ok(FromBroker::Settled { number }) => {
                    let settling = &mut session.broker.settling;
                    let known = settling.iter().position(|known| known.number == number);
                    let Some(done) = known.map(|place| settling.swap_remove(place)) else {
                        return;
                    };
                    session.settled(done.thaw);
                    if let Some(asker) = done.asker {
                        self.answer(asker.client, asker.call, Ok((Reply::Done, Vec::new())));
                    }
                    return;
                }
                Ok(FromBroker::Ask(ask)) => Message::FileAsked { session: session.id.clone(), ask },
                Ok(FromBroker::Refused(refusal)) => {
                    Message::FileRefused { session: session.id.clone(), refusal }
                }
                Ok(FromBroker::RefusedMore { count }) => {
                    Message::MoreRefused { session: session.id.clone(), count }
                }
                Ok(FromBroker::Withdrawn { ask }) => {
                    Message::FileWithdrawn { session: session.id.clone(), ask }
                }
                Err(_not_a_message) => return,
            },
            Err(Errno::AGAIN | Errno::INTR) => return,
            // It is gone, which its handle tells as well.
            Ok(None) | Err(_) => {
                self.watch.remove(line);
                session.broker.line = None;
                return;
            }
        };
        self.clients.tell_all(&self.watch, &message);
    }
}

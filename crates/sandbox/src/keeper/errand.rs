//! Work on folders of the host that takes long, each done by a process of its own: the keeper goes
//! on meanwhile, and answers when the work is done.
//!
//! Such a process sees the host, has what the keeper has, and ends with it. It holds nothing of the
//! keeper's but what it works on. A clerk that changes files has the records of its session for
//! itself: the session stands still and has no broker meanwhile, and no other clerk has them.

use crate::broker::TABLE_BYTES;
use crate::clerk;
use crate::folder::{identity, open_exactly};
use crate::keeper::brokers::BrokerState;
use crate::keeper::cgroup::Frozen;
use crate::keeper::grounds::Ground;
use crate::keeper::serve::{Answer, Keeper, malformed};
use crate::keeper::watch::{Interest, Subject};
use crate::keeper::{Session, folders};
use crate::kernel::{Failed, Step, path_of};
use cowork_api::Text;
use cowork_api::files::Order;
use cowork_api::keeper::{Failure, FailureCode, Reply};
use cowork_api::plan::{Identity, OwnStep, SessionPlan};
use cowork_sys::Errno;
use cowork_sys::identity::keep_only;
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, fork, leave};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most errands under way at a time; others wait their turn.
const MAX_RUNNING: usize = 4;
/// Most errands that wait.
const MAX_WAITING: usize = 1024;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Remove a folder with everything in it.
    Remove {
        /// Where.
        path: Text,
        /// Which.
        folder: Identity,
    },
    /// Say how much disk folders take.
    Weigh {
        /// Where.
        folders: Vec<Text>,
        /// Most files to look at.
        most: u64,
    },
    /// Look at recorded changes, or undo them.
    Clerk {
        /// The session that they are of, if it runs.
        session: Option<String>,
        /// What is to be done.
        order: Box<Order>,
    },
}

impl Work {
    /// Whether the two must not be under way together: both are about the records of one session,
    /// one of them adds to these, and the other adds as well or looks at the folders. Whoever reads the
    /// records alone may: a session goes on and adds to them meanwhile, too.
    fn disturbs(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Clerk { order: one, .. }, Self::Clerk { order: other, .. }) => {
                let works = [&one.work, &other.work];
                one.store.folder == other.store.folder
                    && works.into_iter().any(clerk::changes)
                    && !works.into_iter().any(clerk::reads_records_alone)
            }
            _ => false,
        }
    }
}

/// A session that stands still, without a broker, until an errand is done.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: u32,
    /// Whether it stood still before.
    was: Frozen,
}

/// Whom the answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) client: u32,
    pub(crate) call: u32,
}

/// The errands of a keeper.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    running: HashMap<u32, Errand>,
    waiting: VecDeque<(Asker, Work)>,
    /// How many there have been.
    count: u32,
}

#[derive(Debug)]
struct Errand {
    asker: Asker,
    work: Work,
    process: OwnedFd,
    /// Where the process writes what it found: a number of 8 bytes, or a report.
    found: OwnedFd,
    held: Option<Held>,
}

impl Errands {
    /// Whether the work can begin now, with this many waiting before it.
    fn has_room_for(&self, work: &Work, before: usize) -> bool {
        let waiting = self.waiting.iter().take(before).map(|(_, earlier)| earlier);
        let running = self.running.values().map(|errand| &errand.work);
        self.running.len() < MAX_RUNNING
            && !running.chain(waiting).any(|other| other.disturbs(work))
    }

    /// The first of those that wait that can begin now.
    fn next(&mut self) -> Option<(Asker, Work)> {
        let mut waiting = self.waiting.iter().enumerate();
        let (place, _) = waiting.find(|(place, (_, work))| self.has_room_for(work, *place))?;
        self.waiting.remove(place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether a plan names as its home a folder that is being removed.
    pub(crate) fn remove_home_of(&self, plan: &SessionPlan) -> bool {
        let running = self.running.values().map(|errand| &errand.work);
        let mut all = running.chain(self.waiting.iter().map(|(_, work)| work));
        all.any(|work| match work {
            Work::Weigh { .. } | Work::Clerk { .. } => false,
            Work::Remove { path, .. } => plan.own.iter().any(|step| match step {
                OwnStep::Home { from, .. } => from == path,
                _ => false,
            }),
        })
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        // One that is done is only buried.
        cowork_sys::ignore(pidfd_send_signal(&self.process, Signal::KILL));
        cowork_sys::ignore(waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED));
    }
}

impl Keeper {
    /// Sends somebody on an errand, now or when another one is done. Fails if it cannot be done.
    pub(super) fn send_on_errand(&mut self, asker: Asker, work: Work) -> Result<(), Failure> {
        if let Work::Remove { path, folder } = &work
            && let Some(session) = self.sessions.iter().find(|known| known.home == Some(*folder))
        {
            return Err(Failure {
                code: FailureCode::FolderRefused,
                sentence: format!(
                    "`{}` is the home of the session `{}`",
                    path_of(path).display(),
                    session.id
                ),
                errno: 0,
                hint: "stop the session first".into(),
            });
        }
        if self.errands.has_room_for(&work, self.errands.waiting.len()) {
            return self.start_errand(asker, work);
        }
        if self.errands.waiting.len() >= MAX_WAITING {
            return Err(malformed("too much waits to be done already"));
        }
        self.errands.waiting.push_back((asker, work));
        Ok(())
    }

    fn start_errand(&mut self, asker: Asker, work: Work) -> Result<(), Failure> {
        let held = match &work {
            Work::Clerk { session, order } if clerk::changes(&order.work) => {
                self.hold(session.as_deref(), order)?
            }
            _ => None,
        };
        let started = self.start_held(asker, work, held);
        if started.is_err()
            && let Some(held) = held
        {
            self.let_go(held);
        }
        started
    }

    fn start_held(&mut self, asker: Asker, work: Work, held: Option<Held>) -> Result<(), Failure> {
        let failed = |failed: Failed| failed.into_failure(FailureCode::StepFailed);
        let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
        let proof = &self.proof;
        let started = grounds.within(Ground::HostView, || Ok(start(proof, &work)));
        let Some((process, found)) = started.map_err(failed)?? else {
            // There is nothing to be done.
            self.answer(asker.client, asker.call, Ok((Reply::Done, Vec::new())));
            return Ok(());
        };
        let number = self.errands.count;
        self.errands.count += 1;
        let watched = self.watch.add(&process, Subject::Errand(number), Interest::Reading);
        let errand = Errand { asker, work, process, found, held };
        watched.step(|| "wait for the end of an errand".into()).map_err(failed)?;
        self.errands.running.insert(number, errand);
        Ok(())
    }

    /// Answers for an errand that is done, and sends the next one.
    pub(super) fn finish_errand(&mut self, number: u32) {
        let Some(errand) = self.errands.running.remove(&number) else { return };
        self.watch.remove(&errand.process);
        let (asker, held) = (errand.asker, errand.held);
        let outcome = errand.outcome();
        drop(errand);
        if let Some(held) = held {
            self.let_go(held);
        }
        self.answer(asker.client, asker.call, outcome);
        while let Some((asker, work)) = self.errands.next() {
            if let Err(failure) = self.start_errand(asker, work) {
                self.answer(asker.client, asker.call, Err(failure));
            }
        }
    }

    /// Stops the session whose records an order is about where no change of a file is half made, and
    /// ends its broker.
    fn hold(&mut self, session: Option<&str>, order: &Order) -> Result<Option<Held>, Failure> {
        let own = |known: &&Session| {
            known.doors.store.as_ref().is_some_and(|store| store.folder == order.store.folder)
        };
        let id = match (session, self.sessions.iter().find(own)) {
            (Some(id), _) => id.to_owned(),
            (None, Some(session)) => session.id.clone(),
            (None, None) => return Ok(None),
        };
        let number = self.sessions.number(&id)?;
        let session = self.sessions.find(&id)?;
        let was = session.frozen;
        if session.set_frozen(Frozen::Yes).is_err() || !session.broker.is_at_rest() {
            if was == Frozen::No {
                cowork_sys::ignore(session.set_frozen(Frozen::No));
            }
            return Err(Failure {
                code: FailureCode::StepFailed,
                sentence: format!(
                    "a program of `{id}` is in the middle of a change and cannot be stopped there"
                ),
                errno: 0,
                hint: "answer what it asks, or wait until it is done, and try again".into(),
            });
        }
        let broker = &mut session.broker;
        let (askers, thaw) = broker.forget_settling();
        let was = if thaw { Frozen::No } else { was };
        // A call that waits for a broker would start one: nobody listens until the errand is done.
        for watched in [&broker.listener, &broker.process].into_iter().flatten() {
            self.watch.remove(watched);
        }
        if let Some(line) = broker.line.take() {
            self.watch.remove(&line);
        }
        broker.end();
        session.leave_shared();
        for asker in askers {
            self.answer(asker.client, asker.call, Ok((Reply::Done, Vec::new())));
        }
        Ok(Some(Held { number, was }))
    }

    /// Lets a session go on. Its next call that needs a broker starts one.
    fn let_go(&mut self, held: Held) {
        let Some(session) = self.sessions.get_mut(held.number) else { return };
        if session.broker.process.is_none()
            && let Some(listener) = &session.broker.listener
        {
            let subject = Subject::Calls(held.number);
            cowork_sys::ignore(self.watch.add(listener, subject, Interest::Reading));
        }
        if held.was == Frozen::No {
            // As after any work on a session that stands still: the next freeze tells what is wrong.
            cowork_sys::ignore(session.set_frozen(Frozen::No));
        }
    }
}

impl BrokerState {
    /// Whether no call is in work any more, in a session that stands still. One that is gets a
    /// moment to be done.
    fn is_at_rest(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        const PAUSE: Duration = Duration::from_millis(1);
        let (Some(table), Some(_)) = (&self.in_flight, &self.process) else { return true };
        let deadline = Instant::now() + PATIENCE;
        let mut calls = vec![0; usize::try_from(TABLE_BYTES).unwrap_or(0)];
        loop {
            match rustix::io::pread(table, &mut calls, 0) {
                Ok(_) if calls.iter().all(|byte| *byte == 0) => return true,
                Ok(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                _ => return false,
            }
        }
    }

    /// Ends the broker, if there is one. That is no death that counts.
    pub(crate) fn end(&mut self) {
        if let Some(process) = self.process.take() {
            self.starts = self.starts.saturating_sub(1);
            cowork_sys::ignore(pidfd_send_signal(&process, Signal::KILL));
            cowork_sys::ignore(waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED));
        }
    }
}

impl Errand {
    fn outcome(&self) -> Result<Answer, Failure> {
        let status = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let status = status.ok().flatten().and_then(|status| status.exit_status());
        let mut found = [0; 8];
        let read = rustix::io::pread(&self.found, &mut found, 0);
        match (status, &self.work) {
            (Some(0), Work::Remove { .. }) => Ok((Reply::Done, Vec::new())),
            (Some(0), Work::Weigh { .. }) if read == Ok(8) => {
                Ok((Reply::Weighed(u64::from_ne_bytes(found)), Vec::new()))
            }
            (Some(0), Work::Clerk { .. }) => {
                let report = self.found.try_clone().step(|| "hand a report over".into());
                let report =
                    report.map_err(|failed| failed.into_failure(FailureCode::StepFailed))?;
                Ok((Reply::Reported, vec![report]))
            }
            (status, work) => {
                let step = match work {
                    Work::Remove { path, .. } => {
                        format!("remove everything in `{}`", path_of(path).display())
                    }
                    Work::Weigh { .. } => "weigh the folders".to_owned(),
                    Work::Clerk { .. } => "work with the recorded changes".to_owned(),
                };
                let errno = status.map_or(Errno::IO, Errno::from_raw_os_error);
                Err(Failed::new(step, errno).into_failure(FailureCode::StepFailed))
            }
        }
    }
}

/// Opens what the work is about, in the host view, and starts a process that does it. `None` when
/// it is done already.
fn start(proof: &SingleThreaded, work: &Work) -> Result<Option<(OwnedFd, OwnedFd)>, Failure> {
    let failed = |failed: Failed| failed.into_failure(FailureCode::StepFailed);
    let opened = match work {
        Work::Remove { path, folder } => match open_doomed(path_of(path), *folder)? {
            Some(doomed) => vec![doomed.folder, doomed.parent],
            None => return Ok(None),
        },
        // What is not there weighs nothing.
        Work::Weigh { folders, .. } => {
            folders.iter().filter_map(|folder| open_exactly(path_of(folder)).ok()).collect()
        }
        // A clerk says itself what it cannot open.
        Work::Clerk { .. } => Vec::new(),
    };
    let named = || "start an errand".to_owned();
    let found = rustix::fs::memfd_create(c"found", MemfdFlags::CLOEXEC).step(named);
    let found = found.map_err(failed)?;
    let keeper = getpid();
    match fork(proof, Namespaces::Inherited, None).step(named).map_err(failed)? {
        Forked::Parent { handle, .. } => Ok(Some((handle, found))),
        Forked::Child => {
            let status = match run(keeper, work, &opened, &found) {
                Ok(()) => 0,
                Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
            };
            leave(status)
        }
    }
}

/// A folder that is to go, and the one it lies in.
struct Doomed {
    folder: OwnedFd,
    parent: OwnedFd,
}

/// Finds a folder that is to be removed, and makes sure that it is the one that was named. `None`
/// when it is not there.
fn open_doomed(path: &Path, expected: Identity) -> Result<Option<Doomed>, Failure> {
    let refused = |errno| {
        let step = format!("open the folder `{}`", path.display());
        Failed::new(step, errno).into_failure(FailureCode::FolderRefused)
    };
    let folder = match open_exactly(path) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(refused(errno)),
    };
    if identity(folder.as_fd()).map_err(refused)? != expected {
        return Err(Failure {
            code: FailureCode::FolderChanged,
            sentence: format!("`{}` is no longer the folder that was named", path.display()),
            errno: 0,
            hint: "look at what it is now".into(),
        });
    }
    let parent = path.parent().ok_or_else(|| refused(Errno::INVAL))?;
    let parent = open_exactly(parent).map_err(refused)?;
    Ok(Some(Doomed { folder, parent }))
}

/// The life of the process. What is passed is closed here, whoever owns it: the process ends next.
fn run(keeper: Pid, work: &Work, opened: &[OwnedFd], found: &OwnedFd) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(keeper) {
        return Err(Errno::OWNERDEAD);
    }
    let mut handles: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
    handles.push(found.as_fd());
    let mut kept = keep_only(&handles)?;
    let found = kept.pop().ok_or(Errno::BADF)?;
    match work {
        Work::Remove { path, .. } => {
            let [folder, parent] = kept.as_slice() else { return Err(Errno::BADF) };
            let name = path_of(path).file_name().ok_or(Errno::INVAL)?;
            folders::remove(folder.as_fd(), parent.as_fd(), name)
        }
        Work::Weigh { most, .. } => {
            let bytes = folders::weigh(&kept, *most);
            rustix::io::pwrite(&found, &bytes.to_ne_bytes(), 0).map(|_| ())
        }
        Work::Clerk { order, .. } => clerk::work(order, found.as_fd()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Errands, Work};
    use cowork_api::files::{self, Choice, Kept, Order, Selection, Sets};
    use cowork_api::plan::Identity;

    fn clerk(store: u64, work: files::Work) -> Work {
        let folder = Identity { device: 1, inode: store };
        let order = Order {
            store: Kept { path: Vec::new(), folder },
            work,
            names: Vec::new(),
            types: Vec::new(),
        };
        Work::Clerk { session: None, order: Box::new(order) }
    }

    fn redo(store: u64) -> Work {
        clerk(store, files::Work::Redo { choice: Choice::Refuse, rehearsal: false })
    }

    #[test]
    fn who_adds_to_records_has_them_alone_and_in_turn() {
        let meant = Selection { sets: Sets::All, paths: Vec::new() };
        let look = |store| clerk(store, files::Work::Changes(meant.clone()));
        assert!(redo(1).disturbs(&look(1)) && look(1).disturbs(&redo(1)));
        assert!(redo(1).disturbs(&redo(1)));
        assert!(!look(1).disturbs(&look(1)) && !redo(1).disturbs(&redo(2)));

        let asker = |call| Asker { client: 1, call };
        let waiting = [(asker(1), redo(1)), (asker(2), look(1)), (asker(3), redo(2))];
        let mut errands = Errands { waiting: waiting.into(), ..Errands::default() };
        assert!(!errands.has_room_for(&look(1), 3), "one that changes waits before it");
        assert!(errands.has_room_for(&look(3), 3));
        let mut calls = Vec::new();
        while let Some((asker, _)) = errands.next() {
            calls.push(asker.call);
        }
        assert_eq!(calls, [1, 2, 3]);
    }

    #[test]
    fn who_reads_records_alone_holds_nobody_up() {
        let audit = files::Work::Mutations { after: 0, most: 1, looked: 0 };
        let programs = files::Work::Programs { after: 0, selection: None };
        for work in [files::Work::Sets, audit, programs] {
            let read = clerk(1, work);
            assert!(!redo(1).disturbs(&read) && !read.disturbs(&redo(1)), "{read:?}");
        }
    }
}

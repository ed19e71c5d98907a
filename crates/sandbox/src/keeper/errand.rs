//! Work on folders of the host that takes long, each done by a process of its own: the keeper goes
//! on meanwhile, and answers when the work is done.
//!
//! Such a process sees the host, has what the keeper has, and ends with it. It holds nothing of the
//! keeper's but what it works on.

use crate::folder::{identity, open_exactly};
use crate::keeper::folders;
use crate::keeper::grounds::Ground;
use crate::keeper::serve::{Answer, Keeper, malformed};
use crate::keeper::watch::{Interest, Subject};
use crate::kernel::{Failed, Step, path_of};
use cowork_api::Text;
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
    /// Where the process writes what it found: a number of 8 bytes.
    found: OwnedFd,
}

impl Errands {
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether a plan names as its home a folder that is being removed.
    pub(crate) fn remove_home_of(&self, plan: &SessionPlan) -> bool {
        let running = self.running.values().map(|errand| &errand.work);
        let mut all = running.chain(self.waiting.iter().map(|(_, work)| work));
        all.any(|work| match work {
            Work::Weigh { .. } => false,
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
        if self.errands.running.len() < MAX_RUNNING {
            return self.start_errand(asker, work);
        }
        if self.errands.waiting.len() >= MAX_WAITING {
            return Err(malformed("too much waits to be done already"));
        }
        self.errands.waiting.push_back((asker, work));
        Ok(())
    }

    fn start_errand(&mut self, asker: Asker, work: Work) -> Result<(), Failure> {
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
        let errand = Errand { asker, work, process, found };
        watched.step(|| "wait for the end of an errand".into()).map_err(failed)?;
        self.errands.running.insert(number, errand);
        Ok(())
    }

    /// Answers for an errand that is done, and sends the next one.
    pub(super) fn finish_errand(&mut self, number: u32) {
        let Some(errand) = self.errands.running.remove(&number) else { return };
        self.watch.remove(&errand.process);
        let asker = errand.asker;
        let outcome = errand.outcome();
        drop(errand);
        self.answer(asker.client, asker.call, outcome);
        while self.errands.running.len() < MAX_RUNNING
            && let Some((asker, work)) = self.errands.waiting.pop_front()
        {
            if let Err(failure) = self.start_errand(asker, work) {
                self.answer(asker.client, asker.call, Err(failure));
            }
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
            (status, work) => {
                let step = match work {
                    Work::Remove { path, .. } => {
                        format!("remove everything in `{}`", path_of(path).display())
                    }
                    Work::Weigh { .. } => "weigh the folders".to_owned(),
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
    }
}

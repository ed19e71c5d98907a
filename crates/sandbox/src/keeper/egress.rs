//! Egress processes, as far as the keeper has to do with them: it passes on that one is wanted, or not
//! any more, and hands out what comes back.
//!
//! They are children of the starter, which the keeper forks before it leaves the host's namespaces. A
//! keeper whose starter died cannot get another one: it goes on while it has sessions, and then makes
//! room for the next keeper.

use crate::channel::{Channel, Peer};
use crate::keeper::errand::Asker;
use crate::keeper::serve::{Answer, Keeper, malformed};
use crate::keeper::watch::{Interest, Subject, Watch};
use crate::kernel::{Failed, Step};
use crate::starter;
use cowork_api::keeper::{Failure, FailureCode, Reply};
use cowork_api::starter::{FromStarter, ToStarter};
use cowork_sys::Errno;
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::Shutdown;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::VecDeque;
use std::path::PathBuf;

/// Most that wait until the starter has time for them.
const MAX_WAITING: usize = 1024;

/// The keeper's side of its starter.
#[derive(Debug)]
pub(crate) struct Egresses {
    program: PathBuf,
    starter: Option<Starter>,
    /// Whom the starter works for.
    asker: Option<Asker>,
    /// Who comes after that, with the place of messages.
    waiting: VecDeque<(Asker, Option<OwnedFd>)>,
}

#[derive(Debug)]
struct Starter {
    line: Channel,
    process: OwnedFd,
}

impl Drop for Starter {
    fn drop(&mut self) {
        // Whoever has a copy of the line: the starter hears that it is over, and leaves after those
        // that it started.
        cowork_sys::ignore(rustix::net::shutdown(&self.line, Shutdown::Both));
        cowork_sys::ignore(waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED));
    }
}

impl Egresses {
    /// Forks the starter of `program`. The keeper is where it was started still.
    pub(crate) fn begin(proof: &SingleThreaded, program: PathBuf) -> Result<Self, Failed> {
        let begun = starter::begin(proof, &program);
        let (line, process) = begun.step(|| "fork the starter of egress processes".into())?;
        let starter = Some(Starter { line, process });
        Ok(Self { starter, ..Self::none(program) })
    }

    /// Without a starter: for a keeper that is asked for none.
    pub(crate) fn none(program: PathBuf) -> Self {
        Self { program, starter: None, asker: None, waiting: VecDeque::new() }
    }

    /// Hears what the starter answers, from now on.
    pub(crate) fn watch(&self, watch: &Watch) -> Result<(), Failed> {
        let Some(starter) = &self.starter else { return Ok(()) };
        let added = watch.add(&starter.line, Subject::Starter, Interest::Reading);
        added.step(|| "wait for the starter of egress processes".into())
    }

    pub(crate) fn have_starter(&self) -> bool {
        self.starter.is_some()
    }

    /// Has the next one started, if the starter has nothing to do.
    fn go_on(&mut self) {
        let (Some(starter), None) = (&self.starter, self.asker) else { return };
        let Some((asker, log)) = self.waiting.pop_front() else { return };
        let log: Vec<_> = log.iter().map(AsFd::as_fd).collect();
        // A starter that is gone is told by its line.
        cowork_sys::ignore(starter.line.try_send(&cowork_api::encode(&ToStarter::Start), &log));
        self.asker = Some(asker);
    }

    fn failure(&self, errno: Errno) -> Failure {
        Failed::new(format!("start `{}`", self.program.display()), errno)
            .into_failure(FailureCode::HostUnable)
    }
}

impl Keeper {
    /// Has an egress process started. Answered when it is.
    pub(super) fn start_egress(
        &mut self,
        asker: Asker,
        handles: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        let egresses = &mut self.egresses;
        if egresses.starter.is_none() {
            let mut failure = egresses.failure(Errno::SRCH);
            failure.hint =
                "`cowork daemon --stop` ends this keeper; the next one can start it".into();
            return Err(failure);
        }
        if egresses.waiting.len() >= MAX_WAITING {
            return Err(malformed("too much waits to be done already"));
        }
        egresses.waiting.push_back((asker, handles.into_iter().next()));
        egresses.go_on();
        Ok(())
    }

    /// Has an egress process ended that does not leave by itself.
    pub(super) fn end_egress(&self, pid: i32) {
        if let Some(starter) = &self.egresses.starter {
            let order = cowork_api::encode(&ToStarter::End { pid });
            // With the keeper it ends anyway.
            cowork_sys::ignore(starter.line.try_send(&order, &[]));
        }
    }

    /// Hears what came of starting one.
    pub(super) fn hear_starter(&mut self) {
        let Some(starter) = &self.egresses.starter else { return };
        let (answer, handles) = match starter.line.try_receive(Peer::Trusted) {
            Ok(Some(packet)) => match cowork_api::decode::<FromStarter>(&packet.bytes) {
                Ok(answer) => (answer, packet.handles),
                Err(_not_one) => return self.lose_starter(),
            },
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok(None) | Err(_) => return self.lose_starter(),
        };
        let outcome: Result<Answer, Failure> = match answer {
            FromStarter::Started { pid } => Ok((Reply::Egress { pid }, handles)),
            FromStarter::Failed { errno } => {
                Err(self.egresses.failure(Errno::from_raw_os_error(errno)))
            }
        };
        if let Some(asker) = self.egresses.asker.take() {
            self.answer(asker.client, asker.call, outcome);
        }
        self.egresses.go_on();
    }

    /// Nobody starts egress processes any more.
    fn lose_starter(&mut self) {
        if let Some(starter) = self.egresses.starter.take() {
            self.watch.remove(&starter.line);
        }
        let failure = self.egresses.failure(Errno::SRCH);
        let waiting = std::mem::take(&mut self.egresses.waiting);
        let all = self.egresses.asker.take().into_iter();
        for asker in all.chain(waiting.into_iter().map(|(asker, _)| asker)) {
            self.answer(asker.client, asker.call, Err(failure.clone()));
        }
    }
}

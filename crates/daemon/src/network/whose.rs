//! Which process of a session a connection comes from.
//!
//! The egress process tells the kernel's number of the socket; a process that has it open is the one,
//! if it still has. Only the first record of a connection is looked into, and not too often: a name
//! that is missing is no harm.

use super::line::Line;
use crate::daemon::Daemon;
use crate::session::Session;
use cowork_api::egress::{Process, Record, Target, What};
use cowork_api::keeper::{Reply, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most connections whose process is remembered.
const MAX_KNOWN: usize = 1024;
/// Most looks in [`WHILE`].
const MAX_LOOKS: u32 = 20;
const WHILE: Duration = Duration::from_secs(1);

/// Whose the connections of a session are.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    known: BTreeMap<u64, Process>,
    looks: u32,
    since: Option<Instant>,
}

impl Owners {
    /// Whether it may be looked again.
    fn may_look(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > WHILE) {
            self.since = Some(Instant::now());
            self.looks = 0;
        }
        self.looks += 1;
        self.looks <= MAX_LOOKS
    }

    /// Whose a connection is.
    pub(crate) fn of(&self, flow: u64) -> Option<Process> {
        self.known.get(&flow).cloned()
    }

    fn remember(&mut self, flow: u64, process: &Process) {
        if self.known.len() >= MAX_KNOWN {
            self.known.pop_first();
        }
        self.known.insert(flow, process.clone());
    }
}

impl Daemon {
    /// Says in a record whose it is, as far as that is known.
    pub(crate) async fn attribute(
        self: &Arc<Self>,
        session: &Session,
        line: &Line,
        record: &mut Record,
    ) {
        let (flow, ended) = (record.flow, matches!(record.what, What::Ended { .. }));
        let (What::Decided { target, .. }
        | What::Ended { target, .. }
        | What::Noticed { target, .. }
        | What::Captured { target, .. }) = &mut record.what
        else {
            return;
        };
        if flow != 0 {
            self.name_process(session, line, flow, target).await;
        }
        if ended && record.request == 0 {
            line.owners().known.remove(&flow);
        }
    }

    /// Says in a target whose it is; `flow` is 0 for one that is not known by number.
    pub(crate) async fn name_process(
        self: &Arc<Self>,
        session: &Session,
        line: &Line,
        flow: u64,
        target: &mut Target,
    ) {
        let known = line.owners().of(flow);
        if known.is_some() || target.socket == 0 {
            target.process = known;
            return;
        }
        if !line.owners().may_look() {
            return;
        }
        target.process = self.owner(session, target.socket).await;
        if let (Some(process), 1..) = (&target.process, flow) {
            line.owners().remember(flow, process);
        }
    }

    /// The process of a session that has a socket open.
    async fn owner(self: &Arc<Self>, session: &Session, socket: u64) -> Option<Process> {
        let owner = Request::Owner { session: session.id.clone(), socket };
        match self.engine.call(owner).await {
            Ok((Reply::Owner(Some(found)), _)) => {
                Some(Process { pid: found.pid, name: crate::session::plain(&found.name) })
            }
            _ => None,
        }
    }
}

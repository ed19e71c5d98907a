//! Sockets that a session has bound in a folder, when the folder is taken away.
//!
//! The broker bound them, so that they hold nothing that the session sees, and unmounting does not
//! find them: but whoever connects to the name on the host would go on speaking with the session. They
//! are looked for in the kernel's list, by what the broker noted, until none is left; and so are
//! conversations that had begun, which the kernel lists with the network of whoever called: those of
//! the keeper's own network are found, which is that of the host.

use crate::broker::bound::{BoundSockets, Noted};
use crate::keeper::Session;
use crate::keeper::brokers::enter_network;
use crate::keeper::door::Closed;
use crate::keeper::grounds::Grounds;
use crate::keeper::revoke::kill;
use crate::keeper::sockets::delegate;
use crate::keeper::tree;
use crate::kernel::{Failed, Step};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_sys::process::SingleThreaded;
use rustix::fd::AsFd;
use std::time::Duration;

/// Kills whoever has a socket that was bound in the folder, or a connection to one, and notes them.
/// Nobody can bind another one there any more. [`Closed::No`]: somebody has one whom no process shows.
pub(crate) fn silence(
    proof: &SingleThreaded,
    grounds: &Grounds,
    session: &Session,
    name: &str,
    killed: &mut Vec<(i32, String)>,
) -> Result<Closed, Failure> {
    /// Tries after the holders were killed, until the kernel has buried them.
    const TRIES: u32 = 400;
    const PAUSE: Duration = Duration::from_micros(250);
    let step = |failed: Failed| failed.into_failure(FailureCode::StepFailed);
    let named = || format!("find the sockets that were bound in `{name}`");
    let notes = session.broker.notes().step(named).map_err(step)?;
    let Some(mut noted) = Noted::read(&notes, name, session.broker.scratch) else {
        return Ok(Closed::Yes);
    };
    let init = session.init_pid();
    let handles = delegate(proof, |there| {
        let diagnostics = enter_network(init)?;
        let made: Result<(), Failure> = Ok(());
        there.send(&cowork_api::encode(&made), &[diagnostics.as_fd()])
    })?;
    let Some(diagnostics) = handles.into_iter().next() else { return Ok(Closed::No) };
    let sockets = BoundSockets::new(diagnostics);
    for _ in 0..TRIES {
        let mut found = sockets.still_there(&mut noted).step(named).map_err(step)?;
        found.extend(grounds.callers.callers(&noted).step(named).map_err(step)?);
        if found.is_empty() {
            return Ok(Closed::Yes);
        }
        kill(session, killed, |pid| tree::has_socket(*pid, &found));
        std::thread::sleep(PAUSE);
    }
    Ok(Closed::No)
}

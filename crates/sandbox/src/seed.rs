//! The seed: what the first process of every session grows from.
//!
//! It is the program of PID 1, executed once by the keeper, before anybody wants a session: starting a
//! program costs as much as furnishing a session does. For each session it makes a copy of itself in new
//! namespaces, and maps its ids; the copy becomes the session's PID 1 without another exec. It is a child
//! of the keeper, and what the seed has in its memory is this program and nothing of any session: the
//! plan of one is told to its first process alone.
//!
//! It has one thread, hears the keeper and nobody else, and ends with it.

use crate::channel::{Channel, Packet, Peer};
use crate::keeper::stage;
use crate::kernel::{open_folder, write_at};
use cowork_api::seed::{Beside, FromSeed, Groups, Ids, ToSeed};
use cowork_sys::Errno;
use cowork_sys::identity::{keep_only, take_over};
use cowork_sys::process::{Forked, Namespaces, SingleThreaded, fork, leave};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_name};
use std::path::Path;
use std::process::ExitCode;

/// Its name, where processes are listed.
const NAME: &std::ffi::CStr = c"cowork-seed";
/// That of what it makes.
const INIT: &std::ffi::CStr = c"cowork-init";

/// Serves the keeper that executed this program, until that is gone.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> Result<(), Errno> {
    // Should the keeper be dead already, the line is closed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let line: Channel = take_over(3)?.into();
    let seed = Seed {
        proof: SingleThreaded::observe().map_err(|_several| Errno::INVAL)?,
        processes: open_folder(Path::new("/proc"))?,
    };
    set_name(NAME)?;
    // PID 1 of a session inherits it, and sleeps while those below it are stopped.
    cowork_sys::signal::hear_of_ends_alone()?;
    while let Some(packet) = line.receive(Peer::Trusted)? {
        match cowork_api::decode::<ToSeed>(&packet.bytes).map_err(|_not_one| Errno::BADMSG)? {
            // In a network that is not the one meant nothing may be born.
            ToSeed::Move => enter(packet.handles.first(), LinkNameSpaceType::Network)?,
            ToSeed::Sow { ids, birthplace, network, cradle } => {
                let beside = [birthplace, network, cradle];
                let (outcome, handle) = match seed.sow(packet, ids, beside) {
                    Ok((pid, handle, mapped)) => (mapped.map(|()| pid), Some(handle)),
                    Err(errno) => (Err(errno), None),
                };
                let answer = match outcome {
                    Ok(pid) => FromSeed::Born { pid },
                    Err(errno) => FromSeed::Failed { errno: errno.raw_os_error() },
                };
                let handles: Vec<_> = handle.iter().map(AsFd::as_fd).collect();
                line.send(&cowork_api::encode(&answer), &handles)?;
            }
        }
    }
    Ok(())
}

fn enter(namespace: Option<&OwnedFd>, kind: LinkNameSpaceType) -> Result<(), Errno> {
    let namespace = namespace.ok_or(Errno::BADMSG)?;
    move_into_link_name_space(namespace.as_fd(), Some(kind))
}

/// What the seed needs for every session.
struct Seed {
    proof: SingleThreaded,
    /// The host's `/proc`, which is not there where sessions are born.
    processes: OwnedFd,
}

impl Seed {
    /// Makes the first process of a session: its id, a handle on it, and whether it was given its ids.
    fn sow(
        &self,
        packet: Packet,
        ids: Ids,
        [birthplace, network, cradle]: [Beside; 3],
    ) -> Result<(i32, OwnedFd, Result<(), Errno>), Errno> {
        let mut handles = packet.handles.into_iter();
        let control = handles.next().ok_or(Errno::BADMSG)?;
        let commands = handles.next().ok_or(Errno::BADMSG)?;
        let birthplace = match birthplace {
            Beside::There => Some(handles.next().ok_or(Errno::BADMSG)?),
            Beside::Absent => None,
        };
        if network == Beside::There {
            enter(handles.next().as_ref(), LinkNameSpaceType::Network)?;
        }
        if cradle == Beside::There {
            enter(handles.next().as_ref(), LinkNameSpaceType::Mount)?;
        }
        // The first process waits at it until it has its ids.
        let (gate, key) = pipe_with(PipeFlags::CLOEXEC)?;
        let birthplace = birthplace.as_ref().map(AsFd::as_fd);
        match fork(&self.proof, Namespaces::Session, birthplace)? {
            Forked::Parent { pid, handle } => {
                let pid = pid.as_raw_nonzero().get();
                let mapped =
                    self.map(pid, ids).and_then(|()| rustix::io::write(&key, OPEN).map(|_one| ()));
                Ok((pid, handle, mapped))
            }
            Forked::Child => {
                // Nothing else of the seed's stays open: neither its line nor the key.
                let kept = [control.as_fd(), commands.as_fd(), gate.as_fd()];
                let kept = keep_only(&kept).and_then(|kept| {
                    set_name(INIT)?;
                    <[OwnedFd; 3]>::try_from(kept).map_err(|_other_number| Errno::BADF)
                });
                match kept {
                    Ok([control, commands, gate]) => {
                        stage::run(&self.proof, control.into(), commands, (ids, gate))
                    }
                    Err(_) => leave(1),
                }
            }
        }
    }

    fn map(&self, pid: i32, ids: Ids) -> Result<(), Errno> {
        let write = |name: &str, text: &str| {
            write_at(self.processes.as_fd(), &format!("{pid}/{name}"), text)
        };
        if ids.groups == Groups::Kept {
            write("setgroups", "deny")?;
        }
        write("uid_map", &format!("{} {} 1", ids.inside.0, ids.outside.0))?;
        write("gid_map", &format!("{} {} 1", ids.inside.1, ids.outside.1))
    }
}

/// Written when the first process has its ids.
pub(crate) const OPEN: &[u8] = b"1";

//! Which program of a session it is that asks: what the kernel knows of the other end of its
//! connection.
//!
//! The credentials of such a connection are those of the session's broker, which connects for
//! everybody. So the kernel is asked for the socket at the other end, and the keeper for a process
//! that has it open. That is a process of the session; which one may not be the whole truth, since
//! a connection can be handed on, and its name is the one that it has given itself.

use super::Session;
use super::commands::is_running;
use crate::daemon::Daemon;
use cowork_api::egress::Socket;
use cowork_api::keeper::{Process, Reply, Request};
use cowork_client::types::Asker;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::Arc;

/// Most generations from a process up to its command.
const MAX_DEPTH: u32 = 256;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_UNIX: u8 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
/// The attribute with the other end: the number of its socket.
const UNIX_DIAG_PEER: u16 = 2;
/// Bytes of a netlink header, and of the fixed part of an answer.
const HEADER: usize = 16;
const ANSWER: usize = 16;

impl Daemon {
    /// Who is at the other end of a connection, by the number of our socket.
    pub(super) async fn asker(self: &Arc<Self>, session: &Session, socket: u64) -> Option<Asker> {
        let diagnostics = self.diagnostics(session).await?;
        let peer = peer_of(diagnostics.as_fd(), u32::try_from(socket).ok()?).ok()??;
        let owner = Request::Owner { session: session.id.clone(), socket: peer.into() };
        let Ok((Reply::Owner(Some(process)), _)) = self.engine.call(owner).await else {
            return None;
        };
        Some(Asker {
            pid: process.pid,
            inside: (process.inside > 0).then_some(process.inside),
            program: super::plain(&process.name),
            command: command_of(session, &process),
        })
    }

    /// What lists the sockets of a session. It is asked by one at a time.
    async fn diagnostics(self: &Arc<Self>, session: &Session) -> Option<OwnedFd> {
        let listen =
            Request::Listen { session: session.id.clone(), sockets: vec![Socket::Callers] };
        let (_, handles) = self.engine.call(listen).await.ok()?;
        handles.into_iter().next()
    }
}

/// The number of the socket at the other end of ours, if there still is one.
fn peer_of(diagnostics: BorrowedFd<'_>, socket: u32) -> Result<Option<u32>, Errno> {
    send(diagnostics, &request(socket), SendFlags::empty())?;
    let mut buffer = vec![0; 4096];
    // The kernel answers before the question is sent.
    let (length, _) = recv(diagnostics, &mut buffer, RecvFlags::DONTWAIT)?;
    Ok(buffer.get(..length).and_then(peer_in))
}

/// A question about one socket, whatever its state.
fn request(socket: u32) -> Vec<u8> {
    const LENGTH: u32 = 40;
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(socket.to_ne_bytes());
    bytes.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    // Whichever socket has the number.
    bytes.extend([0xff; 8]);
    bytes
}

/// The other end, in an answer.
fn peer_in(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let mut rest = answer.get(HEADER + ANSWER..).filter(|_| kind == SOCK_DIAG_BY_FAMILY)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        if kind == UNIX_DIAG_PEER {
            return Some(u32::from_ne_bytes(*value.first_chunk()?));
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// The command that a process belongs to: the one it descends from, or the one that began its
/// session of processes.
fn command_of(session: &Session, process: &Process) -> Option<u32> {
    let init = session.doc().sandbox?.pid;
    let (mut parent, leader) = ancestry(process.pid)?;
    let mut first = process.pid;
    for _ in 0..MAX_DEPTH {
        if parent == init {
            break;
        }
        first = parent;
        (parent, _) = ancestry(parent)?;
    }
    let running = session.runs().into_iter().map(|run| run.command());
    let running: Vec<_> = running.filter(|command| is_running(command.state)).collect();
    [first, leader].into_iter().find_map(|pid| {
        let inside = inside(pid)?;
        running.iter().find(|command| command.pid == Some(inside)).map(|command| command.number)
    })
}

/// The parent of a process, and the one that began its session, as the host numbers them.
fn ancestry(pid: i32) -> Option<(i32, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything, also a parenthesis.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(1)?.parse().ok()?))
}

/// The number of a process in its session.
fn inside(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::peer_in;

    #[test]
    fn the_other_end_is_read_from_an_answer_and_nothing_from_anything_else() {
        let mut answer = vec![0; 32];
        answer[4] = 20;
        assert_eq!(peer_in(&answer), None);
        // Another attribute first, with a length that is no multiple of four.
        answer.extend([5, 0, 0, 0, 9, 0, 0, 0]);
        answer.extend([8, 0, 2, 0]);
        answer.extend(7u32.to_ne_bytes());
        assert_eq!(peer_in(&answer), Some(7));
        assert_eq!(peer_in(&answer[..answer.len() - 1]), None);
        answer[4] = 2;
        assert_eq!(peer_in(&answer), None);
        assert_eq!(peer_in(&[]), None);
        let mut endless = answer[..32].to_vec();
        endless[4] = 20;
        endless.extend([0, 0, 0, 0]);
        assert_eq!(peer_in(&endless), None);
    }
}

//! Which sockets in the file system were bound inside the session.
//!
//! The kernel lists the UNIX sockets of a network namespace with the file each is bound to. A file
//! that is on the list of the session's namespace was bound by the session; a socket of the host
//! is on the host's list only, wherever its file lies.

use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::{Mutex, PoisonError};

/// Asks the diagnostics of one network namespace.
pub(crate) struct BoundSockets(Mutex<OwnedFd>);

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const AF_UNIX: u8 = 1;
const UDIAG_SHOW_VFS: u32 = 2;
/// The attribute with the file: its inode and its device, 32 bits each.
const UNIX_DIAG_VFS: u16 = 1;
/// Bytes of a netlink header, and of the fixed part of an answer.
const HEADER: usize = 16;
const ANSWER: usize = 16;

impl BoundSockets {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Mutex::new(socket))
    }

    /// Whether a socket of the session's network is bound to this file. The kernel tells the low
    /// 32 bits of the inode and the device as it is encoded in memory.
    pub(crate) fn include(&self, device: u64, inode: u64) -> Result<bool, Errno> {
        if inode > u64::from(u32::MAX) {
            // The kernel tells only the low half: nothing proves that it is this file.
            return Ok(false);
        }
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*socket, &request(), SendFlags::empty())?;
        let mut found = false;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let (length, _) = recv(&*socket, &mut buffer, RecvFlags::empty())?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((kind, body, next)) = next_message(rest) {
                match kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => return Err(Errno::OPNOTSUPP),
                    _ => found |= file_of(body) == Some((encode(device), low(inode))),
                }
                rest = next;
            }
        }
    }
}

/// A request for all UNIX sockets in any state, with their files.
fn request() -> Vec<u8> {
    const LENGTH: u32 = 40;
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(UDIAG_SHOW_VFS.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// The kind and body of the first message, and what follows it.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The device and inode that an answer's socket is bound to.
fn file_of(body: &[u8]) -> Option<(u32, u32)> {
    let mut rest = body.get(ANSWER..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        if kind == UNIX_DIAG_VFS {
            let inode = u32::from_ne_bytes(*value.first_chunk()?);
            let device = u32::from_ne_bytes(*value.get(4..)?.first_chunk()?);
            return Some((device, inode));
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// A device number as the kernel holds it: 12 bits of major above 20 bits of minor.
fn encode(device: u64) -> u32 {
    rustix::fs::major(device) << 20 | rustix::fs::minor(device)
}

/// The low 32 bits.
fn low(inode: u64) -> u32 {
    let [a, b, c, d, ..] = inode.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

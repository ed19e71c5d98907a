//! Which sockets in the file system were bound inside the session, and in which folder.
//!
//! The kernel lists the UNIX sockets of a network namespace with the file each is bound to. A file
//! that is on the list of the session's namespace was bound by the session; a socket of the host
//! is on the host's list only, wherever its file lies.
//!
//! Sockets in folders whose changes go through the broker are bound by it: before it binds one it
//! notes which, for which folder, in a file that outlives it. When the folder is taken away the keeper
//! reads that, and asks the kernel which of them are there still ([`Noted`]).

use cowork_sys::Errno;
use cowork_sys::memory::Numbers;
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Asks the diagnostics of one network namespace.
#[derive(Debug)]
pub(crate) struct BoundSockets(Mutex<OwnedFd>);

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const AF_UNIX: u8 = 1;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_VFS: u32 = 2;
/// The attribute with the name.
const UNIX_DIAG_NAME: u16 = 0;
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
        let wanted = (encode(device), low(inode));
        let mut found = false;
        self.each(|body| found |= file_of(body) == Some(wanted))?;
        Ok(found)
    }

    /// The numbers of all sockets of the session's network that are noted, and of those that are bound
    /// to the same files.
    pub(crate) fn still_there(&self, noted: &mut Noted) -> Result<Vec<u32>, Errno> {
        let mut bound = Vec::new();
        self.each(|body| bound.extend(number_of(body).zip(file_of(body))))?;
        // What the kernel calls a file may be something else than what the file system does.
        let is_noted = |(socket, _): &&(u32, (u32, u32))| noted.sockets.contains(socket);
        let files: Vec<_> = bound.iter().filter(is_noted).map(|(_, file)| *file).collect();
        noted.files.extend(files);
        let is_of = |file: &(u32, u32)| match noted.others {
            Others::Elsewhere => noted.files.contains(file),
            Others::AnywhereBut(device) => Some(file.0) != device,
        };
        let found = bound.into_iter().filter(|(_, file)| is_of(file));
        Ok(found.map(|(socket, _)| socket).collect())
    }

    /// The numbers of connections that were made to sockets that are noted, from this network: to the
    /// kernel they belong to the network of whoever called. A connection that nobody has accepted yet
    /// has no number, and counts as 0.
    pub(crate) fn callers(&self, noted: &Noted) -> Result<Vec<u32>, Errno> {
        let mut found = Vec::new();
        self.each(|body| {
            // The number of a file that is gone may be that of another one, to which somebody else has
            // bound a socket. The broker binds to the last component of a name, others to a path.
            let is_ours = name_of(body).is_some_and(|name| !name.contains(&b'/'));
            if is_ours && file_of(body).is_some_and(|file| noted.files.contains(&file)) {
                found.extend(number_of(body));
            }
        })?;
        Ok(found)
    }

    /// Shows every UNIX socket of the network.
    fn each(&self, mut see: impl FnMut(&[u8])) -> Result<(), Errno> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*socket, &request(), SendFlags::empty())?;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let (length, _) = recv(&*socket, &mut buffer, RecvFlags::empty())?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((kind, body, next)) = next_message(rest) {
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return Err(Errno::OPNOTSUPP),
                    _ => see(body),
                }
                rest = next;
            }
        }
    }
}

/// Most sockets that are noted of a session; a further one takes the place of the oldest.
const MAX_NOTED: usize = 512;
/// What is noted of each: the folder, the socket, and the file that it is bound to once it is.
const PER_SOCKET: usize = 3;
/// How many numbers the notes take. The first counts the sockets.
pub(crate) const NOTES: usize = 1 + MAX_NOTED * PER_SOCKET;

/// What a folder is called in the notes: keeper and broker are one program.
pub(crate) fn key_of(folder: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    hasher.finish()
}

/// Notes that a socket is about to be bound in a folder. `notes` is where the notes begin in `table`.
/// Returns the place where its file is noted afterwards.
pub(crate) fn note(table: &Numbers, notes: usize, folder: &str, socket: u64) -> usize {
    let count = table.get(notes);
    let place = usize::try_from(count).unwrap_or_default() % MAX_NOTED;
    let place = notes + 1 + place * PER_SOCKET;
    let [of, which, file] = [place, place + 1, place + 2];
    table.set(file, 0);
    table.set(of, key_of(folder));
    table.set(which, socket);
    table.set(notes, count + 1);
    file
}

/// Notes which file a socket was bound to.
pub(crate) fn note_file(table: &Numbers, place: usize, (device, inode): (u64, u64)) {
    table.set(place, u64::from(encode(device)) << 32 | u64::from(low(inode)));
}

/// What is noted of one folder.
#[derive(Debug)]
pub(crate) struct Noted {
    sockets: Vec<u32>,
    /// Devices and inodes, as the kernel tells them.
    files: Vec<(u32, u32)>,
    others: Others,
}

/// Where the session's sockets are bound that are not noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// In no folder whose changes go through the broker.
    Elsewhere,
    /// Anywhere but on this file system, the session's own: there were more than fit in.
    AnywhereBut(Option<u32>),
}

impl Noted {
    /// Reads the notes of a folder; nothing if there are none. Where there were more than fit in, every
    /// socket may be one of its that is bound to a file, but for those on `scratch`.
    pub(crate) fn read(notes: &[u64], folder: &str, scratch: Option<u64>) -> Option<Self> {
        let (count, rest) = notes.split_first()?;
        let others = if *count > MAX_NOTED as u64 {
            Others::AnywhereBut(scratch.map(encode))
        } else {
            Others::Elsewhere
        };
        let key = key_of(folder);
        let (mut sockets, mut files) = (Vec::new(), Vec::new());
        for entry in rest.chunks_exact(PER_SOCKET) {
            let [of, socket, file] = entry else { continue };
            if *of == key && *socket != 0 {
                sockets.push(low(*socket));
                if *file != 0 {
                    files.push((low(*file >> 32), low(*file)));
                }
            }
        }
        if sockets.is_empty() && others == Others::Elsewhere {
            return None;
        }
        Some(Self { sockets, files, others })
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
    bytes.extend((UDIAG_SHOW_NAME | UDIAG_SHOW_VFS).to_ne_bytes());
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

/// The number of an answer's socket: that of its inode.
fn number_of(body: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*body.get(4..)?.first_chunk()?))
}

/// The device and inode that an answer's socket is bound to.
fn file_of(body: &[u8]) -> Option<(u32, u32)> {
    let value = attribute(body, UNIX_DIAG_VFS)?;
    let inode = u32::from_ne_bytes(*value.first_chunk()?);
    let device = u32::from_ne_bytes(*value.get(4..)?.first_chunk()?);
    Some((device, inode))
}

/// What an answer's socket was bound to, as whoever bound it wrote it.
fn name_of(body: &[u8]) -> Option<&[u8]> {
    attribute(body, UNIX_DIAG_NAME)
}

/// What is told of a socket beside its number.
fn attribute(body: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = body.get(ANSWER..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        if kind == wanted {
            return Some(value);
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

#[cfg(test)]
mod tests {
    use super::{BoundSockets, MAX_NOTED, NOTES, Noted, Others, note, note_file};
    use cowork_sys::memory::Numbers;
    use rustix::fd::AsFd;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn table() -> (Numbers, impl Fn() -> Vec<u64>) {
        let file = rustix::fs::memfd_create(c"notes", rustix::fs::MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&file, (NOTES * 8) as u64).unwrap();
        let table = Numbers::map(file.as_fd(), NOTES).unwrap();
        (Numbers::map(file.as_fd(), NOTES).unwrap(), move || {
            (0..NOTES).map(|place| table.get(place)).collect()
        })
    }

    /// A listener, and a connection that outlives it.
    #[test]
    fn a_socket_is_there_until_it_and_its_connections_are_closed() {
        // As the broker does: from the folder that the name is in.
        let path = format!("cowork-test-bound-{}", std::process::id());
        let listener = UnixListener::bind(&path).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        std::fs::remove_file(&path).unwrap_or_default();
        let socket = std::fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let (numbers, notes) = table();
        assert!(Noted::read(&notes(), "project", None).is_none());
        let place = note(&numbers, 0, "project", socket.ino());
        note_file(&numbers, place, (about.dev(), about.ino()));
        assert!(Noted::read(&notes(), "another", None).is_none());
        let mut noted = Noted::read(&notes(), "project", None).unwrap();
        let diagnostics = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            rustix::net::SocketType::RAW,
            rustix::net::SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        );
        let sockets = BoundSockets::new(diagnostics.unwrap());
        assert_eq!(sockets.still_there(&mut noted).unwrap(), [super::low(socket.ino())]);
        drop(listener);
        assert!(sockets.still_there(&mut noted).unwrap().is_empty());
        let listener = UnixListener::bind(&path).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        note_file(&numbers, place, (about.dev(), about.ino()));
        let noted = Noted::read(&notes(), "project", None).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let accepted = listener.accept().unwrap();
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sockets.callers(&noted).unwrap().len(), 1);
        drop(accepted);
        assert!(sockets.callers(&noted).unwrap().is_empty());
    }

    #[test]
    fn with_more_than_fit_in_every_socket_of_the_file_system_counts() {
        let (numbers, notes) = table();
        for socket in 1..=MAX_NOTED as u64 {
            note(&numbers, 0, "another", socket);
        }
        assert!(Noted::read(&notes(), "project", Some(1)).is_none());
        note(&numbers, 0, "another", 7);
        let noted = Noted::read(&notes(), "project", Some(1)).unwrap();
        assert!(noted.sockets.is_empty());
        assert_eq!(noted.others, Others::AnywhereBut(Some(super::encode(1))));
    }
}

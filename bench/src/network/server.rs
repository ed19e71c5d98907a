//! The far end: a server that answers at once with as many bytes as it is asked for.
//!
//! One thread, by readiness, so that neither a thread per connection nor the disk is measured. It
//! knows three paths: `/tiny`, `/last` (tiny, and the connection ends), and `/bytes/N`. It is this
//! program again, because its processor time is counted, and it ends when whoever started it does.

use crate::stopped::Stopped;
use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::event::epoll;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// The name that its certificate is for, beside `localhost`.
pub(super) const NAME: &str = cowork_api::egress::HOST_NAME;
/// The certificate of its authority, in the folder that it is given.
pub(super) const CERTIFICATE: &str = "ca.pem";
/// What it sends, over and over.
static BLOCK: [u8; 256 * 1024] = [b'x'; 256 * 1024];
/// Longest head of a request.
const MAX_HEAD: usize = 64 * 1024;
/// The key of the stream that ends with whoever started this.
const STARTER: u64 = u64::MAX;
/// Places to listen: for plain connections, and two for TLS, which are treated differently on the
/// way.
const DOORS: [Speaks; 3] = [Speaks::Plain, Speaks::Tls, Speaks::Tls];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Plain,
    Tls,
}

/// Serves until standard input ends; writes the certificate of its authority, and prints its ports.
pub(super) fn serve(folder: &Path) -> Result<(), Stopped> {
    let failed = |error: std::io::Error| Stopped::at("the server", error);
    super::many_files();
    let (house, ports) = House::open(folder)?;
    house.watch(&std::io::stdin(), STARTER).map_err(failed)?;
    println!("{}", ports.map(|port| port.to_string()).join(" "));
    house.serve().map_err(failed)
}

struct House {
    poll: OwnedFd,
    config: Arc<ServerConfig>,
    doors: Vec<(TcpListener, Speaks)>,
    guests: HashMap<u64, Guest>,
    next: u64,
}

impl House {
    /// Listens; says on which ports.
    fn open(folder: &Path) -> Result<(Self, [u16; 3]), Stopped> {
        let failed = |error: std::io::Error| Stopped::at("the server", error);
        let config = config(folder)?;
        let poll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut house = House { poll, config, doors: Vec::new(), guests: HashMap::new(), next: 0 };
        let mut ports = [0; DOORS.len()];
        for (speaks, port) in DOORS.into_iter().zip(&mut ports) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            *port = listener.local_addr().map_err(failed)?.port();
            house.watch(&listener, house.next).map_err(failed)?;
            house.doors.push((listener, speaks));
            house.next += 1;
        }
        Ok((house, ports))
    }

    fn watch(&self, what: &impl std::os::fd::AsFd, key: u64) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.poll, what, data, epoll::EventFlags::IN)?)
    }

    fn serve(mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            for event in &events {
                let key = event.data.u64();
                if key == STARTER {
                    return Ok(());
                }
                match usize::try_from(key).ok().and_then(|door| self.doors.get(door)) {
                    Some(_) => self.let_in(key)?,
                    None => self.attend(key),
                }
            }
        }
    }

    fn let_in(&mut self, door: u64) -> std::io::Result<()> {
        let door = usize::try_from(door).ok().and_then(|door| self.doors.get(door));
        let Some((listener, speaks)) = door else { return Ok(()) };
        let Ok((stream, _)) = listener.accept() else { return Ok(()) };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let tls = match speaks {
            Speaks::Plain => None,
            Speaks::Tls => {
                let made = ServerConnection::new(Arc::clone(&self.config));
                Some(Box::new(made.map_err(std::io::Error::other)?))
            }
        };
        let key = self.next;
        self.next += 1;
        self.watch(&stream, key)?;
        self.guests.insert(key, Guest::new(stream, tls));
        Ok(())
    }

    fn attend(&mut self, key: u64) {
        let Some(guest) = self.guests.get_mut(&key) else { return };
        let wants = guest.attend();
        let watched = wants.and_then(|flags| {
            if flags != guest.flags {
                let data = epoll::EventData::new_u64(key);
                epoll::modify(&self.poll, &guest.stream, data, flags)?;
                guest.flags = flags;
            }
            Ok(())
        });
        if watched.is_err() {
            self.guests.remove(&key);
        }
    }
}

/// One connection.
struct Guest {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    /// What was read of a request.
    head: Vec<u8>,
    /// What is to be sent first.
    words: Vec<u8>,
    sent: usize,
    /// Bytes to send after it.
    left: u64,
    /// Whether the connection ends with this answer.
    last: bool,
    flags: epoll::EventFlags,
}

impl Guest {
    fn new(stream: TcpStream, tls: Option<Box<ServerConnection>>) -> Self {
        let flags = epoll::EventFlags::IN;
        let (head, words) = (Vec::new(), Vec::new());
        Self { stream, tls, head, words, sent: 0, left: 0, last: false, flags }
    }

    /// Does what can be done now; says what to wait for. An error is the end of the connection.
    fn attend(&mut self) -> std::io::Result<epoll::EventFlags> {
        match self.go_on() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let sending = self.sent < self.words.len() || self.left > 0;
                let pending = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
                let wants_out = sending || pending;
                Ok(if wants_out { epoll::EventFlags::OUT } else { epoll::EventFlags::IN })
            }
            Err(error) => Err(error),
            Ok(()) => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    /// Returns when the connection has ended, or fails when something must be waited for.
    fn go_on(&mut self) -> std::io::Result<()> {
        let mut room = [0; 4096];
        loop {
            while let Some(words) = self.words.get(self.sent..).filter(|words| !words.is_empty()) {
                self.sent += write(&mut self.stream, self.tls.as_deref_mut(), words)?;
            }
            while self.left > 0 {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(BLOCK.len());
                let block = BLOCK.get(..length).unwrap_or(&BLOCK);
                let sent = write(&mut self.stream, self.tls.as_deref_mut(), block)?;
                self.left -= u64::try_from(sent).unwrap_or(0);
            }
            if let Some(tls) = self.tls.as_deref_mut() {
                if self.last {
                    tls.send_close_notify();
                }
                while tls.wants_write() {
                    tls.write_tls(&mut self.stream)?;
                }
            }
            if self.last {
                return Ok(());
            }
            let read = match self.tls.as_deref_mut() {
                None => self.stream.read(&mut room)?,
                Some(tls) => rustls::Stream::new(tls, &mut self.stream).read(&mut room)?,
            };
            if read == 0 || self.head.len() > MAX_HEAD {
                return Ok(());
            }
            self.head.extend_from_slice(room.get(..read).unwrap_or_default());
            self.answer();
        }
    }

    /// Prepares the answer, if a whole request was read.
    fn answer(&mut self) {
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else { return };
        let head: Vec<u8> = self.head.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (words, left) = answer(path);
        (self.words, self.sent, self.left) = (words.into_bytes(), 0, left);
        self.last = path == LAST;
    }
}

/// A small answer.
pub(super) const TINY: &str = "/tiny";
/// A small answer, and the end of the connection.
pub(super) const LAST: &str = "/last";
/// As many bytes as are named after it.
pub(super) const BYTES: &str = "/bytes/";

/// The head of an answer with its body, and how many bytes follow.
fn answer(path: &str) -> (String, u64) {
    const ANSWER: &str = "ok\n";
    let small = |more: &str| {
        let length = ANSWER.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{more}\r\n{ANSWER}")
    };
    match (path, path.strip_prefix(BYTES).and_then(|number| number.parse().ok())) {
        (TINY, _) => (small(""), 0),
        (LAST, _) => (small("connection: close\r\n"), 0),
        (_, Some(number)) => {
            (format!("HTTP/1.1 200 OK\r\ncontent-length: {number}\r\n\r\n"), number)
        }
        (_, None) => ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), 0),
    }
}

fn write(
    stream: &mut TcpStream,
    tls: Option<&mut ServerConnection>,
    bytes: &[u8],
) -> std::io::Result<usize> {
    match tls {
        None => stream.write(bytes),
        Some(tls) => rustls::Stream::new(tls, stream).write(bytes),
    }
}

/// A certificate of an authority that exists for this run.
fn config(folder: &Path) -> Result<Arc<ServerConfig>, Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::at("a certificate for the server", error);
    let made = |error: rcgen::Error| failed(&error);
    let authority_key = KeyPair::generate().map_err(made)?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // One with the name of what it signs would look as if it had signed itself.
    authority.distinguished_name = DistinguishedName::new();
    authority.distinguished_name.push(DnType::CommonName, "cowork-bench");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = authority.self_signed(&authority_key).map_err(made)?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().map_err(made)?;
    let names = vec![NAME.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = CertificateParams::new(names).map_err(made)?;
    let leaf = leaf.signed_by(&key, &issuer).map_err(made)?;
    let file = folder.join(CERTIFICATE);
    std::fs::write(&file, pem(root.der())).map_err(|error| Stopped::at(file.display(), error))?;

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .map_err(|error| failed(&error))?;
    // Every connection is a whole one: nobody resumes an earlier one.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let coded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    for (number, letter) in coded.chars().enumerate() {
        if number > 0 && number % 64 == 0 {
            lines.push('\n');
        }
        lines.push(letter);
    }
    lines + "\n-----END CERTIFICATE-----\n"
}

#[cfg(test)]
pub(super) mod tests {
    use super::House;
    use cowork_testbed::{Folder, Person};

    /// A server for the rest of this process.
    pub(in super::super) fn start() -> (Folder, [u16; 3]) {
        let folder = Folder::new(Person::Root, "server");
        let (house, ports) = House::open(folder.path()).unwrap();
        std::thread::spawn(|| house.serve());
        (folder, ports)
    }
}

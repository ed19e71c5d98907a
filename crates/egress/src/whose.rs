//! The kernel's number of the socket that a connection comes from: by it the daemon finds the process.
//!
//! The number is asked for when a connection arrives, through a socket of the session's own network
//! (`NETLINK_SOCK_DIAG`), while fewer come than the daemon looks for. Deliberately absent: looking at
//! processes, which this process cannot do.

use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `AF_INET`, `AF_INET6`, `IPPROTO_TCP`.
const INET: u8 = 2;
const INET6: u8 = 10;
const TCP: u8 = 6;
/// Length of `nlmsghdr`, and of `inet_diag_req_v2`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
/// Where the number of the socket is in `inet_diag_msg`.
const NUMBER: usize = HEADER + 68;

/// Most numbers that are asked for in [`WHILE`]: the daemon looks for fewer processes.
const MAX_ASKED: u32 = 64;
const WHILE: Duration = Duration::from_secs(1);

/// Who tells the numbers of sockets.
#[derive(Debug, Default)]
pub(crate) struct Registrar(Mutex<Desk>);

#[derive(Debug, Default)]
struct Desk {
    /// A socket of the session's network.
    socket: Option<OwnedFd>,
    /// How many were asked for since then.
    asked: u32,
    since: Option<Instant>,
}

impl Desk {
    /// Whether one more may be asked for.
    fn may_ask(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > WHILE) {
            self.since = Some(Instant::now());
            self.asked = 0;
        }
        self.asked += 1;
        self.asked <= MAX_ASKED
    }
}

impl Registrar {
    /// Asks through this socket from now on.
    pub(crate) fn appoint(&self, socket: OwnedFd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).socket = Some(socket);
    }

    /// The number of the socket at the other end of a connection that came `from` there `to` here; 0
    /// if it cannot be told.
    pub(crate) fn number(&self, from: SocketAddr, to: SocketAddr) -> u64 {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !desk.may_ask() {
            return 0;
        }
        let Some(socket) = &desk.socket else { return 0 };
        let asked = rustix::net::send(socket, &question(from, to), SendFlags::DONTWAIT);
        let mut answer = [0; 512];
        // The kernel answers before the question has returned.
        match asked.and_then(|_| rustix::net::recv(socket, &mut answer, RecvFlags::DONTWAIT)) {
            Ok((length, _)) => read(answer.get(..length).unwrap_or_default()).unwrap_or(0),
            Err(_) => 0,
        }
    }
}

/// Asks for the one socket that is connected from here to there.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if from_ip.is_ipv4() { INET } else { INET6 };
    let length = u32::try_from(HEADER + QUESTION).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER + QUESTION);
    message.extend(length.to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, TCP, 0, 0]);
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    message.extend(words(from_ip));
    message.extend(words(to_ip));
    message.extend(0u32.to_ne_bytes());
    // No cookie.
    message.extend([0xff; 8]);
    message
}

/// An address in the four words that the kernel has for it.
fn words(address: IpAddr) -> [u8; 16] {
    let mut words = [0; 16];
    match address {
        IpAddr::V4(address) => {
            for (word, octet) in words.iter_mut().zip(address.octets()) {
                *word = octet;
            }
        }
        IpAddr::V6(address) => words = address.octets(),
    }
    words
}

fn read(answer: &[u8]) -> Option<u64> {
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    if kind != BY_FAMILY {
        return None;
    }
    let number = answer.get(NUMBER..NUMBER + 4)?.try_into().ok().map(u32::from_ne_bytes)?;
    Some(number.into())
}

#[cfg(test)]
mod tests {
    use super::{Desk, MAX_ASKED, Registrar, WHILE};
    use std::os::fd::AsRawFd as _;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn the_number_is_that_of_the_other_end() {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            rustix::net::SocketType::RAW,
            rustix::net::SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        );
        let registrar = Registrar::default();
        for (place, reach) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::1]:0", "::1")]
        {
            let listener = TcpListener::bind(place).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((reach, port)).await.unwrap();
            let (stream, from) = listener.accept().await.unwrap();
            let to = stream.local_addr().unwrap();
            if place == "127.0.0.1:0" {
                assert_eq!(registrar.number(from, to), 0, "nobody is appointed");
                registrar.appoint(socket.as_ref().unwrap().try_clone().unwrap());
            }
            let number = registrar.number(from, to);
            let link = std::fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd()));
            assert_eq!(link.unwrap().display().to_string(), format!("socket:[{number}]"));
        }
    }

    #[test]
    fn a_crowd_is_not_asked_about() {
        let mut desk = Desk::default();
        let asked = (0..10 * MAX_ASKED).filter(|_| desk.may_ask()).count();
        assert_eq!(asked, usize::try_from(MAX_ASKED).unwrap());
        desk.since = desk.since.and_then(|since| since.checked_sub(2 * WHILE));
        assert!(desk.may_ask(), "a while later");
    }
}

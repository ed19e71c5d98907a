//! The kernel's number of the socket that a connection comes from: by it the daemon finds the process.
//!
//! The number is asked for when a connection arrives, through a socket of the session's own network
//! (`NETLINK_SOCK_DIAG`). Deliberately absent: looking at processes, which this process cannot do.

use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;

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

/// Who tells the numbers of sockets.
#[derive(Debug, Default)]
pub(crate) struct Registrar(Mutex<Option<OwnedFd>>);

impl Registrar {
    /// Asks through this socket from now on.
    pub(crate) fn appoint(&self, socket: OwnedFd) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }

    /// The number of the other end of a connection; 0 if it cannot be told.
    pub(crate) fn number(&self, stream: &TcpStream) -> u64 {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(socket), Ok(from), Ok(to)) =
            (socket.as_ref(), stream.peer_addr(), stream.local_addr())
        else {
            return 0;
        };
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
    use super::Registrar;
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
            let (stream, _) = listener.accept().await.unwrap();
            if place == "127.0.0.1:0" {
                assert_eq!(registrar.number(&stream), 0, "nobody is appointed");
                registrar.appoint(socket.as_ref().unwrap().try_clone().unwrap());
            }
            let number = registrar.number(&stream);
            let link = std::fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd()));
            assert_eq!(link.unwrap().display().to_string(), format!("socket:[{number}]"));
        }
    }
}

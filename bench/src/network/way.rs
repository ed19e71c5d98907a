//! The ways in which a client reaches the server: by an address, by a name, through a proxy; plain
//! or over TLS. Every call waits, and gives up after a while.

use super::server::NAME;
use crate::stopped::Stopped;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest that the other end may be silent.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How the server is reached.
pub(super) struct Way {
    kind: Kind,
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
}

enum Kind {
    /// The address is known before.
    Known(SocketAddr),
    /// The name is looked up for every connection.
    Name,
    /// `CONNECT` of an HTTP proxy.
    Connect(Proxy),
    /// SOCKS5, which looks the name up itself.
    Socks(Proxy),
    /// A proxy is sent whole addresses.
    Forward(Proxy),
}

/// Where a proxy is, and what it wants to be told.
struct Proxy {
    address: SocketAddr,
    /// A line of every head, or nothing.
    authorization: String,
}

impl Way {
    /// By its words: the kind with the proxy's address after `=`, host, port, and files with
    /// authorities, which mean TLS.
    pub(super) fn parse(words: &[String]) -> Result<Self, Stopped> {
        let usage = || Stopped::new("usage: net-client KIND[=PROXY] HOST PORT [AUTHORITIES…]");
        let [kind, host, port, authorities @ ..] = words else { return Err(usage()) };
        let port = port.parse().map_err(|error| Stopped::at(port, error))?;
        let (kind, proxy) = kind.split_once('=').unwrap_or((kind, ""));
        let kind = match kind {
            "known" => Kind::Known(look_up(host, port).map_err(|e| Stopped::at(host, e))?),
            "name" => Kind::Name,
            "connect" => Kind::Connect(Proxy::parse(proxy)?),
            "socks" => Kind::Socks(Proxy::parse(proxy)?),
            "forward" => Kind::Forward(Proxy::parse(proxy)?),
            _ => return Err(usage()),
        };
        let tls = if authorities.is_empty() { None } else { Some(config(authorities)?) };
        Ok(Self { kind, host: host.clone(), port, tls })
    }

    /// Looks the name up, and does nothing with it.
    pub(super) fn look_up(&self) -> std::io::Result<SocketAddr> {
        look_up(&self.host, self.port)
    }

    /// Makes a connection to the server.
    pub(super) fn connect(&self) -> std::io::Result<Connection> {
        let stream = self.reach()?;
        let (host, port) = (&self.host, self.port);
        let (prefix, more) = match &self.kind {
            Kind::Forward(proxy) => (format!("http://{host}:{port}"), proxy.authorization.as_str()),
            Kind::Known(_) | Kind::Name | Kind::Connect(_) | Kind::Socks(_) => (String::new(), ""),
        };
        let after = format!(" HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n");
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(config) => {
                let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
                let made = ClientConnection::new(Arc::clone(config), name);
                let made = made.map_err(std::io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(made, stream)))
            }
        };
        Ok(Connection { stream, prefix, after })
    }

    fn reach(&self) -> std::io::Result<TcpStream> {
        let (host, port) = (&self.host, self.port);
        match &self.kind {
            Kind::Known(address) => open(*address),
            Kind::Name => open(look_up(host, port)?),
            Kind::Forward(proxy) => open(proxy.address),
            Kind::Connect(proxy) => {
                let mut stream = open(proxy.address)?;
                let more = &proxy.authorization;
                let head =
                    format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n");
                stream.write_all(head.as_bytes())?;
                let (head, rest) = read_head(&mut stream)?;
                good(&head)?;
                if rest.is_empty() { Ok(stream) } else { Err(unexpected("bytes after CONNECT")) }
            }
            Kind::Socks(proxy) => {
                let mut stream = open(proxy.address)?;
                stream.write_all(&[5, 1, 0])?;
                let mut chosen = [0; 2];
                stream.read_exact(&mut chosen)?;
                let length = u8::try_from(host.len()).map_err(std::io::Error::other)?;
                let mut wanted = vec![5, 1, 0, 3, length];
                wanted.extend_from_slice(host.as_bytes());
                wanted.extend_from_slice(&port.to_be_bytes());
                stream.write_all(&wanted)?;
                let mut answer = [0; 10];
                stream.read_exact(&mut answer)?;
                match (chosen, answer) {
                    ([5, 0], [5, 0, ..]) => Ok(stream),
                    (_, [_, code, ..]) => Err(unexpected(&format!("SOCKS answered {code}"))),
                }
            }
        }
    }
}

impl Proxy {
    /// An address, or `env` for what `HTTP_PROXY` says.
    fn parse(text: &str) -> Result<Self, Stopped> {
        let said = match text {
            "env" => std::env::var("HTTP_PROXY").map_err(|e| Stopped::at("HTTP_PROXY", e))?,
            _ => text.to_owned(),
        };
        let place = said.trim_start_matches("http://").trim_end_matches('/');
        let (who, place) = place.rsplit_once('@').unwrap_or(("", place));
        let failed = |error: std::io::Error| Stopped::at(format!("the proxy `{place}`"), error);
        let address = place.to_socket_addrs().map_err(failed)?;
        // A proxy of a sandbox is at its loopback, by the older protocol.
        let mut address: Vec<SocketAddr> = address.collect();
        address.sort_by_key(SocketAddr::is_ipv6);
        let address = *address.first().ok_or_else(|| Stopped::at(place, "has no address"))?;
        let authorization = if who.is_empty() {
            String::new()
        } else {
            use base64::Engine as _;
            let coded = base64::engine::general_purpose::STANDARD.encode(who);
            format!("Proxy-Authorization: Basic {coded}\r\n")
        };
        Ok(Self { address, authorization })
    }
}

/// A connection to the server.
pub(super) struct Connection {
    stream: Stream,
    /// What every path follows.
    prefix: String,
    /// The rest of every head.
    after: String,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Asks for something, and reads all of it; says how many bytes came.
    pub(super) fn get(&mut self, path: &str, room: &mut [u8]) -> std::io::Result<u64> {
        let request = format!("GET {}{path}{}", self.prefix, self.after);
        match &mut self.stream {
            Stream::Plain(stream) => get(stream, &request, room),
            Stream::Tls(stream) => get(stream.as_mut(), &request, room),
        }
    }
}

fn get(stream: &mut (impl Read + Write), request: &str, room: &mut [u8]) -> std::io::Result<u64> {
    stream.write_all(request.as_bytes())?;
    let (head, rest) = read_head(stream)?;
    good(&head)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<u64>().ok()).flatten()
    });
    let length = length.ok_or_else(|| unexpected("an answer without a length"))?;
    let mut got = u64::try_from(rest.len()).unwrap_or(u64::MAX);
    while got < length {
        match stream.read(room)? {
            0 => return Err(unexpected("the end in the middle")),
            read => got += u64::try_from(read).unwrap_or(0),
        }
    }
    if got == length { Ok(got) } else { Err(unexpected("more than was asked for")) }
}

/// Reads the head of an answer, and what came with it.
fn read_head(stream: &mut impl Read) -> std::io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut room)?;
        if read == 0 {
            return Err(unexpected("the end instead of an answer"));
        }
        bytes.extend_from_slice(room.get(..read).unwrap_or_default());
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
    }
}

fn good(head: &str) -> std::io::Result<()> {
    let line = head.lines().next().unwrap_or_default();
    let good = line.split(' ').nth(1) == Some("200");
    if good { Ok(()) } else { Err(unexpected(line)) }
}

fn unexpected(what: &str) -> std::io::Error {
    std::io::Error::other(format!("unexpected: {what}"))
}

fn open(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn look_up(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    let mut found = (host, port).to_socket_addrs()?;
    found.next().ok_or_else(|| unexpected("a name without an address"))
}

/// Trusts the authorities in these files, and those that the environment names.
fn config(files: &[String]) -> Result<Arc<ClientConfig>, Stopped> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut roots = RootCertStore::empty();
    for file in files.iter().map(PathBuf::from).chain(named) {
        roots.add_parsable_certificates(certificates(&file)?);
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Stopped> {
    let failed = |error| Stopped::at(file.display(), error);
    let found = CertificateDer::pem_file_iter(file).map_err(failed)?;
    found.map(|certificate| certificate.map_err(failed)).collect()
}

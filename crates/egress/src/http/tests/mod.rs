//! Proof of interception: hosts of our own on the loopback, real clients, nothing in between but
//! what is tested.

mod bounds;
mod carrying;
mod compressed;
mod halves;
mod keys;
mod measuring;
mod refusing;
mod server;
mod slow;

use super::{forward, inspect, undecided};
use crate::house::House;
use crate::prefixed::Prefixed;
use bytes::Bytes;
use cowork_api::egress::{
    Action, Begin, Carrier, Credential, CredentialMode, FromEgress, Hidden, Host, Ports, Quota,
    Renewal, Rule, Rules, Secret, Target, Tls, What,
};
use cowork_policy::egress::{Outcome, Place};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use server::{Server, Speaks};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const VALUE: &str = "real-0123456789abcdef";
const PLACEHOLDER: &str = "fake-0123456789abcdef";

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A rule that allows a port of this machine.
fn rule(port: u16) -> Rule {
    Rule {
        name: "allow host.cowork.internal".into(),
        action: Action::Allow,
        host: Host::Loopback,
        ports: Ports::Some(vec![(port, port)]),
        http: Vec::new(),
        tls: Tls::Inspect,
        resolves_to: Vec::new(),
        credential: None,
        limits: Quota::default(),
    }
}

/// The same, with a secret.
fn with_secret(port: u16, mode: CredentialMode, carrier: Carrier) -> Rule {
    let credential = Some(Credential { secret: "key".into(), mode, carrier });
    Rule { credential, ..rule(port) }
}

fn secret() -> Secret {
    Secret {
        name: "key".into(),
        placeholder: PLACEHOLDER.into(),
        value: Hidden(VALUE.as_bytes().to_vec()),
        renewal: Renewal::Never,
    }
}

/// What is tested, between a client and a host.
struct Bench {
    house: Arc<House>,
    server: Server,
    /// Where a client connects to be inspected.
    entry: SocketAddr,
    /// Where a client finds the proxy.
    proxy: SocketAddr,
}

impl Bench {
    /// For one host, and a rule about it.
    async fn new(speaks: Speaks, rule: impl FnOnce(u16) -> Rule) -> Self {
        let server = Server::start(speaks).await;
        let rules = vec![rule(server.port)];
        let begin = Begin {
            session: "test".into(),
            rules: Rules { generation: 1, rules, ..Rules::default() },
            secrets: vec![secret()],
            roots: vec![server.root.clone()],
            parent: None,
        };
        Self::with(begin, server).await
    }

    async fn with(begin: Begin, server: Server) -> Self {
        Self::to(begin, server, "host.cowork.internal").await
    }

    /// With something changed before it begins.
    async fn changed(begin: Begin, server: Server, change: impl FnOnce(&mut House)) -> Self {
        let mut house = House::new(&begin).unwrap();
        change(Arc::get_mut(&mut house).unwrap());
        Self::open(house, server, "host.cowork.internal").await
    }

    /// Connections are to `host`.
    async fn to(begin: Begin, server: Server, host: &'static str) -> Self {
        Self::open(House::new(&begin).unwrap(), server, host).await
    }

    async fn open(house: Arc<House>, server: Server, host: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let entry = listener.local_addr().unwrap();
        tokio::spawn(inspecting(Arc::clone(&house), listener, (host, server.port)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        tokio::spawn(forwarding(Arc::clone(&house), listener));
        Self { house, server, entry, proxy }
    }

    /// A client of TLS that trusts the session's authority.
    fn trusting(&self, protocols: &[&[u8]]) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.house.interceptor.certificate().into()).unwrap();
        connector(roots, protocols)
    }

    /// A connection over TLS that names `name`.
    async fn tls(
        &self,
        name: &str,
        protocols: &[&[u8]],
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.entry).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        self.trusting(protocols).connect(name, stream).await
    }

    /// Sends a request over TLS, in HTTP/1.1, and gives the whole answer.
    async fn say(&self, request: &str) -> String {
        let stream = self.tls("host.cowork.internal", &[]).await.unwrap();
        talk(stream, request).await
    }

    /// The same, with a path and headers.
    async fn get(&self, path: &str, headers: &str) -> String {
        let port = self.server.port;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: host.cowork.internal:{port}\r\nConnection: close\r\n"
        );
        self.say(&format!("{head}{headers}\r\n")).await
    }

    /// A connection in HTTP/2.
    async fn two(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = self.tls("host.cowork.internal", &[b"h2", b"http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    fn url(&self, path: &str) -> String {
        format!("https://host.cowork.internal:{}{path}", self.server.port)
    }

    /// What was recorded since the last time.
    async fn records(&self) -> Vec<What> {
        let mut records = Vec::new();
        while let Ok(news) =
            tokio::time::timeout(Duration::from_millis(100), self.house.office.news()).await
        {
            if let FromEgress::Record(record) = news {
                self.house.office.acknowledge(record.number);
                records.push(record.what);
            }
        }
        records
    }

    /// The words of what was refused since the last time.
    async fn refused(&self) -> Vec<String> {
        let word = |what| match what {
            What::Decided { decision, .. } if !decision.allowed => Some(decision.code),
            _ => None,
        };
        self.records().await.into_iter().filter_map(word).collect()
    }

    /// The words of what was noticed since the last time.
    async fn noticed(&self) -> Vec<String> {
        let word = |what| match what {
            What::Noticed { code, .. } => Some(code),
            _ => None,
        };
        self.records().await.into_iter().filter_map(word).collect()
    }
}

fn connector(roots: rustls::RootCertStore, protocols: &[&[u8]]) -> TlsConnector {
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn inspecting(house: Arc<House>, listener: TcpListener, to: (&'static str, u16)) {
    let (host, port) = to;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let flow = house.office.arrive();
            let target = Target { host: host.into(), port, ..Target::default() };
            let place: Place = host.parse().unwrap();
            let stream = Prefixed::new(Bytes::new(), stream);
            let asks = house.office.rules().connection(&place, port).outcome == Outcome::Ask;
            if asks {
                return undecided(house, flow, stream, target, place).await;
            }
            let allowed = house.office.connection(&flow, &target, &place).await.unwrap();
            inspect(house, flow, stream, target, allowed).await;
        });
    }
}

async fn forwarding(house: Arc<House>, listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let flow = house.office.arrive();
        tokio::spawn(forward(Arc::clone(&house), flow, Prefixed::new(Bytes::new(), stream)));
    }
}

/// Sends something and reads until the other side ends.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    drop(tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an answer"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// The word that an answer refuses with.
fn code(answer: &str) -> &str {
    let mut lines = answer.lines();
    lines.find_map(|line| line.strip_prefix("x-cowork-deny: ")).unwrap_or("none")
}

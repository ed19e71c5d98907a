//! Hosts of our own.

use super::provider;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_ENCODING, TRAILER, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::ext::ReasonPhrase;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

/// What a host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/1.1, without TLS.
    Plain,
    /// HTTP/1.1.
    One,
    /// HTTP/2, or HTTP/1.1 if a client wants it.
    Two,
}

/// A host.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    /// The certificate of the authority that vouches for it.
    pub(super) root: Vec<u8>,
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) requests: Arc<AtomicUsize>,
    /// Lets the next event go.
    pub(super) release: Arc<Notify>,
}

/// A body that comes piece by piece.
pub(super) struct Flowing {
    pieces: mpsc::Receiver<Frame<Bytes>>,
    length: Option<u64>,
}

impl Body for Flowing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(context).map(|frame| frame.map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// A body, and where its pieces come from.
pub(super) fn flowing(length: Option<u64>) -> (mpsc::Sender<Frame<Bytes>>, Flowing) {
    let (sender, pieces) = mpsc::channel(1);
    (sender, Flowing { pieces, length })
}

type Answer = Response<Flowing>;

fn of(frames: Vec<Frame<Bytes>>, length: Option<u64>) -> Answer {
    let (sender, body) = flowing(length);
    tokio::spawn(async move {
        for frame in frames {
            if sender.send(frame).await.is_err() {
                return;
            }
            // Or they would be sent as one.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    });
    Response::new(body)
}

fn text(text: impl Into<Bytes>) -> Answer {
    let bytes: Bytes = text.into();
    let length = u64::try_from(bytes.len()).unwrap();
    of(vec![Frame::data(bytes)], Some(length))
}

impl Server {
    pub(super) async fn start(speaks: Speaks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().to_vec();
        let issuer = Issuer::new(params, key);
        let leaf = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&leaf, &issuer).unwrap().der().clone();
        let leaf = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], leaf)
            .unwrap();
        if speaks == Speaks::Two {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            root,
            connections: Arc::default(),
            requests: Arc::default(),
            release: Arc::default(),
        };
        tokio::spawn(server.clone().listen(listener, Arc::new(config), speaks));
        server
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    async fn listen(
        self,
        listener: TcpListener,
        config: Arc<rustls::ServerConfig>,
        speaks: Speaks,
    ) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            self.connections.fetch_add(1, Ordering::Relaxed);
            let (server, config) = (self.clone(), Arc::clone(&config));
            tokio::spawn(async move {
                let mut first = [0];
                stream.peek(&mut first).await.unwrap();
                if speaks == Speaks::Plain {
                    let two = first == *b"P" && peeks_two(&stream).await;
                    return server.speak(stream, if two { Speaks::Two } else { Speaks::One }).await;
                }
                let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                server.speak(stream, if two { Speaks::Two } else { Speaks::One }).await;
            });
        }
    }

    async fn speak<S>(self, stream: S, speaks: Speaks)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let io = TokioIo::new(stream);
        if speaks == Speaks::Two {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(io, service).await);
        } else {
            let builder = hyper::server::conn::http1::Builder::new();
            drop(builder.serve_connection(io, service).with_upgrades().await);
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match request.uri().path() {
            "/events" => self.events(),
            "/trailers" => trailers(),
            "/zeros" => zeros(request.uri().query().unwrap().parse().unwrap()),
            "/sink" => sink(request.into_body()).await,
            "/socket" => socket(request),
            "/pieces" => pieces(&request),
            "/gzip" => gzip(&request),
            "/hops" => hops(),
            "/last" => last(),
            "/fresh" if credential(&request) != FRESH => {
                drop(sink(request.into_body()).await);
                let mut answer = text("expired");
                *answer.status_mut() = StatusCode::UNAUTHORIZED;
                answer
            }
            _ => echo(request).await,
        }
    }

    /// Sends one event, and the next when it is let go.
    fn events(&self) -> Answer {
        let (sender, body) = flowing(None);
        let release = Arc::clone(&self.release);
        tokio::spawn(async move {
            let one = Frame::data(Bytes::from_static(b"data: one\n\n"));
            sender.send(one).await.unwrap();
            release.notified().await;
            drop(sender.send(Frame::data(Bytes::from_static(b"data: two\n\n"))).await);
        });
        Response::new(body)
    }
}

async fn peeks_two(stream: &tokio::net::TcpStream) -> bool {
    let mut first = [0; 3];
    stream.peek(&mut first).await.unwrap() == 3 && first == *b"PRI"
}

/// Tells what arrived: the first line, headers, an empty line, the body.
async fn echo(request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let mut said = format!("{} {target} {:?}\n", parts.method, parts.version);
    if let Some(authority) = parts.uri.authority() {
        writeln!(said, ":authority: {authority}").unwrap();
    }
    for (name, value) in &parts.headers {
        writeln!(said, "{name}: {}", value.to_str().unwrap_or("?")).unwrap();
    }
    said.push('\n');
    if let Ok(body) = body.collect().await {
        let trailers = body.trailers().cloned().unwrap_or_default();
        said.push_str(&String::from_utf8_lossy(&body.to_bytes()));
        for (name, value) in &trailers {
            writeln!(said, "\n{name}: {}", value.to_str().unwrap_or("?")).unwrap();
        }
    }
    text(said)
}

fn trailers() -> Answer {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = vec![Frame::data(Bytes::from_static(b"message")), Frame::trailers(map)];
    let mut response = of(frames, None);
    response.headers_mut().insert(TRAILER, HeaderValue::from_static("grpc-status"));
    response
}

fn zeros(count: usize) -> Answer {
    let (sender, body) = flowing(Some(u64::try_from(count).unwrap()));
    tokio::spawn(async move {
        let piece = Bytes::from(vec![0; 64 * 1024]);
        let mut left = count;
        while left > 0 {
            let length = left.min(piece.len());
            if sender.send(Frame::data(piece.slice(..length))).await.is_err() {
                return;
            }
            left -= length;
        }
    });
    Response::new(body)
}

async fn sink(mut body: Incoming) -> Answer {
    let mut count = 0;
    while let Some(Ok(frame)) = body.frame().await {
        count += frame.data_ref().map_or(0, Bytes::len);
    }
    text(format!("{count} bytes"))
}

/// Goes over to another protocol, in which everything is said back.
fn socket(mut request: Request<Incoming>) -> Answer {
    let Some(protocol) = request.headers().get(UPGRADE).cloned() else {
        let mut response = text("no upgrade was asked for");
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let said = reason(&credential(&request));
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgraded.await.unwrap());
        let mut buffer = [0; 1024];
        loop {
            match io.read(&mut buffer).await {
                Ok(count) if count > 0 => io.write_all(&buffer[..count]).await.unwrap(),
                _ => return,
            }
        }
    });
    let mut response = of(Vec::new(), None);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.extensions_mut().insert(said);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, protocol);
    response
}

/// The only token that `/fresh` takes.
pub(super) const FRESH: &str = "new-token-0123456789";

/// The credential that came, bare.
fn credential(request: &Request<Incoming>) -> String {
    let value =
        request.headers().get(AUTHORIZATION).map_or("none", |value| value.to_str().unwrap());
    value.strip_prefix("Bearer ").unwrap_or(value).to_owned()
}

fn reason(text: &str) -> ReasonPhrase {
    ReasonPhrase::try_from(text.as_bytes()).unwrap()
}

/// Says the credential back: after the status, in a header, and in a body that is cut in the middle of it.
fn pieces(request: &Request<Incoming>) -> Answer {
    let secret = credential(request);
    let whole = Bytes::from(format!("before {secret} after"));
    let cut = 7 + secret.len() / 2;
    let length = Some(u64::try_from(whole.len()).unwrap());
    let frames = vec![Frame::data(whole.slice(..cut)), Frame::data(whole.slice(cut..))];
    let mut response = of(frames, length);
    response.headers_mut().insert("x-said", secret.parse().unwrap());
    response.extensions_mut().insert(reason(&secret));
    response
}

/// Says the credential back, compressed.
fn gzip(request: &Request<Incoming>) -> Answer {
    let secret = credential(request);
    let encoded = base64::engine::general_purpose::STANDARD.encode(&secret);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    write!(encoder, "before {secret} and {encoded} done").unwrap();
    let mut response = text(encoder.finish().unwrap());
    let mut coding = request.uri().query().unwrap_or("gzip").replace("%20", " ");
    if coding == "part" {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        coding = "gzip".to_owned();
    }
    response.headers_mut().insert(CONTENT_ENCODING, coding.parse().unwrap());
    response
}

/// Closes the connection after the answer.
fn last() -> Answer {
    let mut response = text("last");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answers with headers that are between two hops.
fn hops() -> Answer {
    let mut response = text("hops");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("x-hop"));
    headers.insert("x-hop", HeaderValue::from_static("1"));
    headers.insert("x-end", HeaderValue::from_static("1"));
    headers.insert("proxy-authenticate", HeaderValue::from_static("Basic"));
    response
}

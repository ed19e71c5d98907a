//! Connections to hosts: made, kept while they are of use, and used again.
//!
//! A connection is used again only for the same host and port, made in the same way under the same
//! generation of the rules: the address it leads to was judged by them.

use super::body::Body;
use super::credentials::Channel;
use super::draft::written;
use super::refuse::refusal;
use crate::dial::{Reached, dial, dial_parent, ms_since};
use crate::house::House;
use crate::office::{Allowed, Refusal};
use cowork_api::egress::{Connection, Spoken, Timings};
use cowork_policy::egress::Place;
use http::header::{HeaderValue, PROXY_AUTHORIZATION};
use http::uri::{Scheme, Uri};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ring::digest;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Most idle connections that are kept to one host, and to all.
const MAX_PER_HOST: usize = 16;
const MAX_IDLE: usize = 128;
/// Longest that a host may take to agree on TLS.
const TIME_FOR_TLS: Duration = Duration::from_secs(10);
/// The amount of an HTTP/2 body that may be under way.
const WINDOW: u32 = 1024 * 1024;

/// Most bytes of headers in HTTP/2.
pub(super) const MAX_HEADERS: u32 = 64 * 1024;

/// The version of HTTP that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Version {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

/// What a host is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Offer {
    /// HTTP/1.1.
    One,
    /// HTTP/2, or else HTTP/1.1; over plain connections HTTP/2.
    Two,
}

/// How a host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    /// Over TLS that proves its name.
    Verified,
    /// Plainly.
    Plain,
    /// Plainly, for requests of HTTP/1.1 that another host, a parent, can carry on.
    Requests,
}

/// Which connections serve for the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    place: Place,
    port: u16,
    way: Way,
    offer: Offer,
    generation: u64,
    /// Where the name may lead to, beside public addresses.
    networks: String,
}

impl Key {
    /// For what was allowed.
    pub(super) fn new(allowed: &Allowed, channel: Channel, offer: Offer) -> Self {
        let networks = allowed.rule().map(|rule| &rule.resolves_to);
        let networks = networks.filter(|networks| !networks.is_empty());
        Self {
            networks: networks.map(|networks| format!("{networks:?}")).unwrap_or_default(),
            place: allowed.place().clone(),
            port: allowed.port(),
            way: match (channel, offer) {
                (Channel::Verified, _) => Way::Verified,
                (Channel::Plain, Offer::One) => Way::Requests,
                (Channel::Plain, Offer::Two) => Way::Plain,
            },
            offer,
            generation: allowed.generation(),
        }
    }

    /// For a request that goes over to another protocol: parents that are sent requests do not.
    pub(super) fn for_upgrade(self) -> Self {
        let way = if self.way == Way::Requests { Way::Plain } else { self.way };
        Self { way, ..self }
    }
}

/// A connection to a host.
#[derive(Debug)]
pub(super) struct Upstream {
    sender: Sender,
    /// How many requests were sent over it, as far as this handle knows.
    uses: u32,
    /// How it was made.
    made: Arc<Made>,
}

/// How a connection was made.
#[derive(Debug)]
struct Made {
    at: Instant,
    reached: Reached,
    /// Milliseconds that agreeing on TLS took, and what came of it.
    tls: Option<u32>,
    alpn: Option<String>,
    certificate: Option<[u8; 32]>,
    /// It leads to a parent, which is sent whole URLs.
    parent: Option<Introduction>,
}

/// What a parent is told with each request.
#[derive(Debug)]
struct Introduction {
    /// The host and port that were decided about, whatever the request says of them.
    authority: String,
    /// Who comes.
    who: Option<HeaderValue>,
}

impl Introduction {
    /// Writes a request for a parent: with the whole URL, and with who comes.
    fn write(&self, request: &mut Request<Body>) {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let whole = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.as_str());
        if let Ok(whole) = whole.path_and_query(path).build() {
            *request.uri_mut() = whole;
        }
        if let Some(value) = &self.who {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
    }
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

/// A request that was not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The connection was of no use any more; the request is whole.
    Again(Box<Request<Body>>),
    /// It failed on a connection that had served before: the host may have closed it meanwhile.
    Stale(hyper::Error),
    /// It failed.
    Failed(hyper::Error),
}

impl Upstream {
    /// What is spoken.
    pub(super) fn version(&self) -> Version {
        match self.sender {
            Sender::One(_) => Version::One,
            Sender::Two(_) => Version::Two,
        }
    }

    /// Another handle of the connection, if many requests can use it at a time.
    pub(super) fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Two(sender) => {
                let sender = Sender::Two(sender.clone());
                Some(Self { sender, uses: self.uses + 1, made: Arc::clone(&self.made) })
            }
        }
    }

    /// The address of the host.
    pub(super) fn address(&self) -> IpAddr {
        self.made.reached.address
    }

    /// Tells what was spoken with the host, and what took how long for something that began then.
    pub(super) fn tell(&self, began: Instant, spoken: &mut Spoken, timings: &mut Timings) {
        spoken.alpn.clone_from(&self.made.alpn);
        spoken.certificate = self.made.certificate;
        if self.uses > 0 {
            *timings = Timings { connection: Connection::Kept, ..Timings::default() };
            return;
        }
        let early = self.made.at < began;
        *timings = Timings {
            connection: if early { Connection::Early } else { Connection::New },
            dns: self.made.reached.dns,
            connect: Some(self.made.reached.connect),
            tls: self.made.tls,
            first: None,
        };
    }

    fn is_open(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_ready(),
            Sender::Two(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Unsent> {
        self.uses += 1;
        if let Some(introduction) = &self.made.parent {
            introduction.write(&mut request);
        }
        let result = match &mut self.sender {
            Sender::One(sender) => sender.try_send_request(request).await,
            Sender::Two(sender) => sender.try_send_request(request).await,
        };
        result.map_err(|mut error| match error.take_message() {
            Some(mut request) => {
                request.headers_mut().remove(PROXY_AUTHORIZATION);
                Unsent::Again(Box::new(request))
            }
            None if self.uses > 1 => Unsent::Stale(error.into_error()),
            None => Unsent::Failed(error.into_error()),
        })
    }

    /// Whether an answer is not the host's: the parent wants to know who comes.
    pub(super) fn is_shut(&self, response: &Response<Incoming>) -> bool {
        let status = response.status();
        self.made.parent.is_some() && status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
    }

    /// Gives the connection back, as soon as it is free.
    pub(super) fn give_back(self, house: &Arc<House>, key: Key) {
        let house = Arc::clone(house);
        match self.sender {
            Sender::Two(_) => {}
            Sender::One(mut sender) => drop(tokio::spawn(async move {
                if sender.ready().await.is_ok() {
                    let sender = Sender::One(sender);
                    let upstream = Self { sender, uses: self.uses, made: self.made };
                    house.interceptor.pool.put(&house, key, upstream);
                }
            })),
        }
    }
}

/// Connections that wait for their next request.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    kept: HashMap<Key, Vec<(Upstream, Instant)>>,
    count: usize,
    /// Whether somebody comes to clear away.
    swept: bool,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection that waits speaks, if one does.
    pub(super) fn speaks(&self, key: &Key) -> Option<Version> {
        let idle = self.idle();
        let kept = idle.kept.get(key)?.iter();
        kept.map(|(upstream, _)| upstream).find(|kept| kept.is_open()).map(Upstream::version)
    }

    /// A connection that waits. One that many requests can use at a time stays as well.
    pub(super) fn take(&self, key: &Key) -> Option<Upstream> {
        let mut idle = self.idle();
        let kept = idle.kept.get_mut(key)?;
        let before = kept.len();
        let mut found = None;
        while let Some((upstream, _)) = kept.pop() {
            if !upstream.is_open() {
                continue;
            }
            if let Some(shared) = upstream.share() {
                kept.push((shared, Instant::now()));
            }
            found = Some(upstream);
            break;
        }
        let gone = before - kept.len();
        if kept.is_empty() {
            idle.kept.remove(key);
        }
        idle.count -= gone;
        found
    }

    /// Keeps a connection.
    pub(super) fn put(&self, house: &Arc<House>, key: Key, upstream: Upstream) {
        let mut idle = self.idle();
        if idle.count >= MAX_IDLE {
            return;
        }
        let kept = idle.kept.entry(key).or_default();
        if kept.len() >= MAX_PER_HOST {
            return;
        }
        kept.push((upstream, Instant::now()));
        idle.count += 1;
        if !idle.swept {
            idle.swept = true;
            drop(tokio::spawn(sweep(Arc::downgrade(house))));
        }
    }

    /// Lets go of connections that were not used for long. Says whether any are left.
    fn clear(&self) -> bool {
        let mut idle = self.idle();
        for kept in idle.kept.values_mut() {
            kept.retain(|(upstream, since)| upstream.is_open() && since.elapsed() < IDLE);
        }
        idle.kept.retain(|_, kept| !kept.is_empty());
        idle.count = idle.kept.values().map(Vec::len).sum();
        idle.swept = idle.count > 0;
        idle.swept
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.idle().count
    }
}

async fn sweep(house: std::sync::Weak<House>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let Some(house) = house.upgrade() else { return };
        if !house.interceptor.pool.clear() {
            return;
        }
    }
}

/// Makes a connection to what was allowed.
pub(super) async fn connect(
    house: &Arc<House>,
    allowed: &Allowed,
    key: &Key,
) -> Result<Upstream, Refusal> {
    let at = Instant::now();
    let (place, offer) = (allowed.place(), key.offer);
    let parent = house.dialer.forwarder(place, allowed.port()).filter(|_| key.way == Way::Requests);
    let dialled = match parent {
        Some(parent) => dial_parent(house, allowed, parent).await?,
        None => dial(house, allowed).await?,
    };
    let reached = dialled.reached;
    let parent = parent.map(|parent| Introduction {
        authority: written(place, allowed.port(), Channel::Plain),
        who: parent.authorization(),
    });
    let mut made = Made { at, reached, tls: None, alpn: None, certificate: None, parent };
    if key.way != Way::Verified {
        let version = if offer == Offer::Two { Version::Two } else { Version::One };
        let sender = shake(dialled.stream, version).await.map_err(|error| broken(place, &error))?;
        return Ok(Upstream { sender, uses: 0, made: Arc::new(made) });
    }
    let greeted = Instant::now();
    let name = match place {
        Place::Name(name) => ServerName::try_from(name.as_str().to_owned()),
        Place::Address(address) => Ok(ServerName::from(*address)),
        Place::HostLoopback => ServerName::try_from("localhost".to_owned()),
    };
    let name = name.map_err(|_cause| {
        let sentence = format!("{place} is no name that a certificate could have");
        refusal("upstream-certificate", sentence, "")
    })?;
    let config = house.interceptor.client_config(offer);
    let connecting = TlsConnector::from(config).connect(name, dialled.stream);
    let stream = match tokio::time::timeout(TIME_FOR_TLS, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(no_tls(place, &error)),
        Err(_elapsed) => {
            let sentence = format!("{place} does not agree on TLS in time");
            return Err(refusal("timed-out", sentence, "try again later"));
        }
    };
    let session = stream.get_ref().1;
    made.tls = Some(ms_since(greeted));
    made.alpn = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let leaf = session.peer_certificates().and_then(<[_]>::first);
    made.certificate =
        leaf.and_then(|leaf| digest::digest(&digest::SHA256, leaf).as_ref().try_into().ok());
    let two = session.alpn_protocol() == Some(b"h2");
    let version = if two { Version::Two } else { Version::One };
    let sender = shake(stream, version).await.map_err(|error| broken(place, &error))?;
    Ok(Upstream { sender, uses: 0, made: Arc::new(made) })
}

async fn shake<S>(stream: S, version: Version) -> hyper::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    Ok(match version {
        Version::One => {
            let (sender, connection) =
                http1::Builder::new().preserve_header_case(true).handshake(io).await?;
            drop(tokio::spawn(connection.with_upgrades()));
            Sender::One(sender)
        }
        Version::Two => {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(4 * WINDOW)
                .max_header_list_size(MAX_HEADERS)
                .handshake(io)
                .await?;
            drop(tokio::spawn(connection));
            Sender::Two(sender)
        }
    })
}

/// The connection failed while it was used.
pub(super) fn broken(place: &Place, error: &hyper::Error) -> Refusal {
    let mut sentence = format!("{place} broke off: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        sentence.push_str(": ");
        sentence.push_str(&inner.to_string());
        cause = inner.source();
    }
    refusal("upstream", sentence, "try again later")
}

fn no_tls(place: &Place, error: &std::io::Error) -> Refusal {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(why)) = inner {
        let sentence = format!("{place} cannot prove that it is {place}: {why:?}");
        let hint =
            "the user can add the authority that vouches for it, or reach it with tls = tunnel";
        return refusal("upstream-certificate", sentence, hint);
    }
    let sentence = format!("{place} does not agree on TLS: {error}");
    refusal("upstream-tls", sentence, "check that it serves TLS on this port")
}

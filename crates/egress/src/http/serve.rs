//! Connections of the session: which protocol they speak, and with whom.

use super::credentials::Channel;
use super::exchange::{exchange, unclear};
use super::framing::Watched;
use super::places::{self, MAX_CONNECTIONS};
use super::refuse::refusal;
use super::upstream::{Key, MAX_HEADERS, Offer, Upstream, Version, connect};
use crate::arrival::others_first;
use crate::flow::Flow;
use crate::house::House;
use crate::office::{Allowed, Refusal};
use crate::prefixed::Prefixed;
use bytes::BytesMut;
use cowork_api::egress::{Ended, SOMEBODY, Target, Timings, What};
use cowork_policy::egress::Place;
use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustls::AlertDescription;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::StartHandshake;

/// Longest that a client may say nothing at all.
const PATIENCE: Duration = Duration::from_mins(2);
/// Longest that a client may take for the head of its next request.
const TIME_FOR_HEAD: Duration = Duration::from_secs(30);
/// Most bytes of the head of a request, and of a body that wait, in HTTP/1.1.
const MAX_BUFFER: usize = 64 * 1024;
/// Longest that it takes to tell a client that it is not served, and most bytes read meanwhile.
const TIME_TO_TURN_AWAY: Duration = Duration::from_secs(2);
const MAX_TURNED_AWAY: u64 = 64 * 1024;
/// Longest that a client may take for each half of its greeting.
const TIME_TO_GREET: Duration = Duration::from_secs(10);
/// How often it is looked whether a client that waits for a person is still there.
const LOOK_WHETHER_IT_LEFT: Duration = Duration::from_millis(100);
/// How often a connection of HTTP/2 is looked at: one without a request is let go after a time.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Longest that a client waits in its greeting for the host: clients give up after ten seconds.
const TIME_TO_MIRROR: Duration = Duration::from_secs(5);
/// Most requests at a time in one connection of HTTP/2.
const MAX_STREAMS: u32 = 32;
/// The amount of bodies of requests that may wait in one connection of HTTP/2.
const WINDOW: u32 = 256 * 1024;
/// `unrecognized_name`, fatal, before anything is agreed on (RFC 8446 §6).
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// A connection of the session.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) house: Arc<House>,
    pub(super) flow: Arc<Flow>,
    /// What is known of every request in it.
    pub(super) base: Target,
    /// Where it was allowed to; nothing for one to the proxy.
    pub(super) place: Option<Place>,
    /// How it is carried on.
    pub(super) channel: Channel,
    /// What its host is offered.
    pub(super) offer: Offer,
    /// The connection to its host that was begun with it.
    early: Mutex<Option<(Key, Early)>>,
    /// The client's end once more, to see whether it is still there.
    ear: Option<OwnedFd>,
    /// Its place among the connections of the session.
    room: Option<Arc<places::Place>>,
}

/// A connection to a host that was begun before its first request came.
#[derive(Debug)]
pub(super) enum Early {
    /// It failed.
    Failed(Refusal),
    /// It is not made yet.
    Pending(Connecting),
}

/// A connection to a host that is being made. It is given up when nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Connecting(JoinHandle<Result<Upstream, Refusal>>);

impl Connecting {
    /// What became of it; nothing if making it failed for no reason of the host.
    pub(super) async fn made(mut self) -> Option<Result<Upstream, Refusal>> {
        (&mut self.0).await.ok()
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Line {
    /// A connection in which nothing was said yet.
    pub(super) fn new(
        house: Arc<House>,
        flow: Arc<Flow>,
        base: Target,
        place: Option<Place>,
    ) -> Self {
        let (channel, offer) = (Channel::Plain, Offer::One);
        let early = Mutex::default();
        Self { house, flow, base, place, channel, offer, early, ear: None, room: None }
    }

    /// Does something for as long as the client may want it: one that has ended its side, and waits
    /// for a person, is as good as gone. Nothing comes of it then.
    pub(super) async fn unless_it_leaves<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            // It waits.
            () = std::future::ready(()) => {}
        }
        let has_left = || self.ear.as_ref().is_some_and(has_left);
        let leaves = async {
            loop {
                tokio::time::sleep(LOOK_WHETHER_IT_LEFT).await;
                if has_left() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            // An answer that comes just after it has left is not for it.
            done = work => (!has_left()).then_some(done),
            () = leaves => None,
        }
    }

    /// The connection that was begun early, if it was not taken yet and serves for `wanted`. One
    /// that was begun for something else is given up.
    pub(super) fn take_early(&self, wanted: &Key) -> Option<Early> {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        early.filter(|(key, _)| key == wanted).map(|(_, early)| early)
    }

    /// Takes a place among the connections of the session, when one is free.
    async fn admit(&mut self) -> Result<(), Refusal> {
        self.room = self.house.interceptor.places.take(&self.flow).await;
        if self.room.is_some() {
            return Ok(());
        }
        let sentence = format!("the session has {MAX_CONNECTIONS} connections already");
        Err(self.refuse("too-many-connections", sentence, "close some, and try again"))
    }

    /// Does something for as long as nobody needs its place more.
    pub(super) async fn unless_needed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let Some(place) = &self.room else { return Some(work.await) };
        tokio::select! {
            biased;
            done = work => return Some(done),
            () = place.is_needed() => {}
        }
        let minutes = places::STILL.as_secs() / 60;
        let sentence = format!(
            "all {MAX_CONNECTIONS} connections were taken: one in which nothing had moved for \
             {minutes} minutes was ended"
        );
        self.notice("gave-way", sentence);
        None
    }

    /// Records that the connection is refused, whatever rules say.
    fn refuse(&self, code: &'static str, sentence: impl Into<String>, hint: &str) -> Refusal {
        let refusal = refusal(code, sentence, hint);
        self.house.office.refuse(&self.flow, 0, &self.base, &refusal);
        refusal
    }

    fn notice(&self, code: &str, sentence: String) {
        let what = What::Noticed { target: self.base.clone(), code: code.to_owned(), sentence };
        self.house.office.record(self.flow.number, 0, what);
    }
}

/// Whether whoever is at the other end sends nothing more.
fn has_left(ear: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(ear, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    cowork_sys::ignore(poll(&mut watched, Some(&now)));
    watched.iter().any(|socket| !socket.revents().is_empty())
}

/// Records the end of a connection. Its bytes are in the records of its requests.
struct Ends {
    house: Arc<House>,
    flow: Arc<Flow>,
    target: Target,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = What::Ended {
            target: self.target.clone(),
            address: None,
            status: None,
            up: 0,
            down: 0,
            ms: self.flow.age(),
            how: self.flow.state().how.take().unwrap_or_else(|| "eof".to_owned()),
            spoken: Box::new(self.flow.spoken(None)),
            timings: Timings::default(),
        };
        self.house.office.record(self.flow.number, 0, ended);
    }
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Tls,
    One,
    Two,
    Nothing,
}

/// Carries a connection to `place`. Where it was allowed already, its host is reached at once, to
/// learn what it speaks.
pub(super) async fn inspect(
    mut line: Line,
    stream: Prefixed<TcpStream>,
    place: &Place,
    allowed: Option<&Allowed>,
) {
    let _ends = Ends {
        house: Arc::clone(&line.house),
        flow: Arc::clone(&line.flow),
        target: line.base.clone(),
    };
    // One that says nothing takes no place away from those who do.
    let (beginning, stream) = match timeout(PATIENCE, begin(stream)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(_)) => return line.flow.ends("reset"),
        Err(_elapsed) => return line.flow.ends("idle"),
    };
    if let Err(refusal) = line.admit().await {
        line.flow.ends("refused: too-many-connections");
        return turn_away(stream, &line.base, &refusal).await;
    }
    line.ear = stream.get_ref().as_fd().try_clone_to_owned().ok();
    match beginning {
        Beginning::Nothing => {}
        Beginning::One => one(stream, Arc::new(line)).await,
        Beginning::Two => two(stream, Arc::new(Line { offer: Offer::Two, ..line })).await,
        Beginning::Tls => {
            tls(stream, Line { channel: Channel::Verified, ..line }, place, allowed).await;
        }
    }
}

/// Carries a connection to the proxy.
pub(super) async fn forward(mut line: Line, stream: Prefixed<TcpStream>) {
    if let Err(refusal) = line.admit().await {
        return turn_away(stream, &line.base, &refusal).await;
    }
    line.ear = stream.get_ref().as_fd().try_clone_to_owned().ok();
    one(stream, Arc::new(line)).await;
}

/// Tells a client in HTTP/1.1 why it is not served. Others find the connection closed.
async fn turn_away(stream: Prefixed<TcpStream>, target: &Target, refusal: &Refusal) {
    let telling = async {
        let Ok((Beginning::One, mut stream)) = begin(stream).await else { return };
        cowork_sys::ignore(stream.write_all(&crate::proxy::refused(refusal, target)).await);
        cowork_sys::ignore(stream.shutdown().await);
        // What the client still sends would reset the connection, and the answer with it.
        cowork_sys::ignore(
            tokio::io::copy(&mut stream.take(MAX_TURNED_AWAY), &mut tokio::io::sink()).await,
        );
    };
    cowork_sys::ignore(timeout(TIME_TO_TURN_AWAY, telling).await);
}

/// Reads just enough to know what a connection speaks.
async fn begin(stream: Prefixed<TcpStream>) -> io::Result<(Beginning, Prefixed<TcpStream>)> {
    let (first, mut stream) = stream.into_parts();
    let mut seen = BytesMut::from(first.as_ref());
    let beginning = loop {
        match seen.first() {
            Some(0x16) => break Beginning::Tls,
            Some(_) if seen.len() >= 4 || !b"PRI ".starts_with(&seen) => {
                break if seen.starts_with(b"PRI ") { Beginning::Two } else { Beginning::One };
            }
            _ => {}
        }
        if stream.read_buf(&mut seen).await? == 0 {
            break if seen.is_empty() { Beginning::Nothing } else { Beginning::One };
        }
    };
    Ok((beginning, Prefixed::new(seen.freeze(), stream)))
}

/// Ends TLS in the place of the host, and serves what is inside.
async fn tls(
    stream: Prefixed<TcpStream>,
    mut line: Line,
    place: &Place,
    allowed: Option<&Allowed>,
) {
    let greeting = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
    let mut start = match timeout(TIME_TO_GREET, greeting).await {
        Ok(Ok(start)) => start,
        Ok(Err(error)) => {
            line.flow.ends(&format!("error: {error}"));
            if error.kind() == io::ErrorKind::InvalidData {
                line.refuse("malformed-tls", "the beginning of TLS is none", "");
            }
            return;
        }
        Err(_elapsed) => return line.flow.ends("timed out"),
    };
    let sni = start.client_hello().server_name().map(str::to_owned);
    line.flow.greeted(Ended::Here, sni.as_deref());
    if !names(sni.as_deref(), place) {
        let sentence = format!("a connection to {place} names another host in TLS, or none");
        line.refuse("sni-mismatch", sentence, "");
        line.flow.ends("refused: sni-mismatch");
        cowork_sys::ignore(start.io.write_all(&UNRECOGNIZED_NAME).await);
        cowork_sys::ignore(start.io.shutdown().await);
        return;
    }
    let two = offers_two(&start.client_hello());
    line.offer = if two { Offer::Two } else { Offer::One };
    let version = match allowed {
        Some(allowed) => mirror(&line, allowed).await,
        None => likely(line.offer),
    };
    let host = match place {
        Place::Address(address) => address.to_string(),
        _ => sni.unwrap_or_default().to_ascii_lowercase(),
    };
    match line.house.interceptor.authority.server(&host, version) {
        Ok(config) => finish(start, config, line, allowed).await,
        Err(sentence) => line.notice("no-certificate", sentence),
    }
}

fn offers_two(greeting: &rustls::server::ClientHello<'_>) -> bool {
    greeting.alpn().into_iter().flatten().any(|protocol| protocol == b"h2")
}

/// Whether the name in a greeting is the host that was allowed. Addresses are not named in TLS.
fn names(sni: Option<&str>, place: &Place) -> bool {
    match (sni, place) {
        (None, Place::Address(_)) => true,
        (None, Place::Name(_) | Place::HostLoopback) => false,
        (Some(name), place) => name.parse::<Place>().is_ok_and(|named| named == *place),
    }
}

async fn finish(
    start: StartHandshake<Prefixed<TcpStream>>,
    config: Arc<rustls::ServerConfig>,
    line: Line,
    allowed: Option<&Allowed>,
) {
    let stream = match timeout(TIME_TO_GREET, start.into_stream(config)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            line.flow.ends(&format!("error: {error}"));
            return untrusted(&line, &error, allowed);
        }
        Err(_elapsed) => return line.flow.ends("timed out"),
    };
    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let line = Arc::new(line);
    if two { self::two(stream, line).await } else { one(stream, line).await }
}

/// Tells of a client that does not trust the session's authority, and what to do about it.
fn untrusted(line: &Line, error: &io::Error, allowed: Option<&Allowed>) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = inner else { return };
    if matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
    ) {
        let host = &line.base.host;
        let refuses = format!("{SOMEBODY} does not trust the session's authority ({alert:?})");
        let rule = line.place.as_ref().map(|place| place.in_rule(line.base.port));
        let rule = rule.unwrap_or_else(|| host.clone());
        let allow = format!("cowork allow {} {rule}", line.house.office.session());
        let sentence = match allowed {
            Some(_) => format!(
                "{refuses}; if it cannot be made to, let it speak to {host} itself: \
                 `{allow} --tls tunnel`"
            ),
            None => {
                format!("{refuses}, so it did not hear that {host} is not allowed yet: `{allow}`")
            }
        };
        line.notice("untrusted-authority", sentence);
    }
}

/// What the host speaks, of what the client does. A connection to it is made if none is at hand, and
/// serves the first request. A client that speaks one version alone is greeted meanwhile.
async fn mirror(line: &Line, allowed: &Allowed) -> Version {
    let likely = likely(line.offer);
    let key = Key::new(allowed, line.channel, line.offer);
    if let Some(version) = line.house.interceptor.pool.speaks(&key) {
        return version;
    }
    let (house, allowed) = (Arc::clone(&line.house), allowed.clone());
    let wanted = key.clone();
    let connecting = async move { connect(&house, &allowed, &wanted).await };
    let mut connecting = Connecting(tokio::spawn(connecting));
    let keep = |early: Early| {
        let mut kept = line.early.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((key.clone(), early));
    };
    if line.offer == Offer::One {
        // The host is greeted first: it answers while this process greets the client.
        others_first().await;
        keep(Early::Pending(connecting));
        return likely;
    }
    match timeout(TIME_TO_MIRROR, &mut connecting.0).await {
        Ok(Ok(Ok(upstream))) => {
            let version = upstream.version();
            line.house.interceptor.pool.put(&line.house, key.clone(), upstream);
            return version;
        }
        Ok(Ok(Err(refusal))) => keep(Early::Failed(refusal)),
        Ok(Err(_panic)) => {}
        Err(_elapsed) => keep(Early::Pending(connecting)),
    }
    likely
}

/// What a host speaks that was not reached yet.
fn likely(offer: Offer) -> Version {
    match offer {
        Offer::One => Version::One,
        Offer::Two => Version::Two,
    }
}

/// Serves HTTP/1.1.
async fn one<S>(stream: S, line: Arc<Line>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let serving = Arc::clone(&line);
    let (stream, clarity) = Watched::new(stream);
    let requests = AtomicU32::new(0);
    let service = service_fn(move |request| {
        let line = Arc::clone(&serving);
        let clear = clarity.is_clear(requests.fetch_add(1, Ordering::Relaxed) + 1);
        async move {
            Ok::<_, Infallible>(if clear {
                Box::pin(exchange(line, request)).await
            } else {
                unclear(&line, request)
            })
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIME_FOR_HEAD)
        // A client may end its side with its last request, and wait for the answer.
        .half_close(true)
        .max_buf_size(MAX_BUFFER)
        .max_header_size(MAX_BUFFER)
        .preserve_header_case(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let Some(Err(error)) = line.unless_needed(connection.with_upgrades()).await else { return };
    if error.is_parse() {
        line.refuse("malformed-request", "a request was refused that is none", "");
    }
    line.flow.ends(&if error.is_timeout() {
        "timed out".to_owned()
    } else if error.is_incomplete_message() || error.is_body_write_aborted() {
        "reset".to_owned()
    } else {
        format!("error: {error}")
    });
}

/// Serves HTTP/2.
async fn two<S>(stream: S, line: Arc<Line>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(AtomicU32::new(0));
    let serving = Arc::clone(&activity);
    let own = Arc::clone(&line);
    let service = service_fn(move |request| {
        let line = Arc::clone(&own);
        let busy = Arc::clone(&serving);
        busy.fetch_add(1, Ordering::Relaxed);
        async move {
            let response = Box::pin(exchange(line, request)).await;
            // Until its last byte is sent a request is under way.
            let hold = move |fault| {
                drop(Arc::clone(&busy));
                fault
            };
            Ok::<_, Infallible>(response.map(|body| body.map_err(hold).boxed_unsync()))
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = line.unless_needed(&mut connection) => {
            if let Some(Err(error)) = ended {
                line.flow.ends(&format!("error: {error}"));
            }
            return;
        }
        () = idle(&activity) => line.flow.ends("idle"),
    }
    connection.as_mut().graceful_shutdown();
    cowork_sys::ignore(timeout(TIME_TO_TURN_AWAY, connection).await);
}

/// Waits until a connection has had no request for long: at first for the time that a head may take,
/// later for the time that a client may say nothing. Every request under way holds `activity`, which
/// counts them; so do the connection and its service.
async fn idle(activity: &Arc<AtomicU32>) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = activity.load(Ordering::Relaxed);
        if now != seen || Arc::strong_count(activity) > 2 {
            (seen, since) = (now, Instant::now());
        }
        let patience = if seen == 0 { TIME_FOR_HEAD } else { PATIENCE };
        if since.elapsed() > patience {
            return;
        }
    }
}

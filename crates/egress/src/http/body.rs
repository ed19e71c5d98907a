//! Bodies on their way: counted, never gathered.

use super::account::Account;
use super::decode::Decoder;
use super::pieces::Pieces;
use super::refuse::refusal;
use super::scrub::Scrub;
use super::sigv4::unsigned;
use super::watch::{Finding, Watch};
use bytes::Bytes;
use cowork_api::egress::Side;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// What goes wrong with a body.
pub(super) type Fault = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(super) type Body = UnsyncBoxBody<Bytes, Fault>;

/// A body that is known already.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Most bytes that are read of a body nobody gets, and the longest that takes.
const MAX_DRAINED: usize = 16 * 1024 * 1024;
const TIME_TO_DRAIN: Duration = Duration::from_secs(10);

/// Reads what is left of a body whose request was answered already: a client that still sends would
/// find the connection reset, and might not see the answer.
pub(super) fn drain<B>(mut body: B)
where
    B: hyper::body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Send,
{
    if body.is_end_stream() {
        return;
    }
    let reading = async move {
        let mut left = MAX_DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    drop(tokio::spawn(tokio::time::timeout(TIME_TO_DRAIN, reading)));
}

/// What becomes of the headers after the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trailers {
    /// They are carried.
    #[default]
    Carried,
    /// They are left out: they could hold a credential.
    Dropped,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Up {
    /// Until this is dropped.
    inner: Option<Incoming>,
    account: Arc<Account>,
    trailers: Trailers,
    /// When the last of it came, and when it is looked whether more has.
    since: Instant,
    until: Pin<Box<Sleep>>,
}

/// The word for a body that stalls.
const STALLED: &str = "stalled";
/// Longest that a client may send nothing in the middle of a body, while its host waits for it.
pub(super) const TIME_FOR_BODY: Duration = Duration::from_mins(2);

impl Up {
    /// Counts a body.
    pub(super) fn new(inner: Incoming, account: &Arc<Account>, trailers: Trailers) -> Self {
        let until = Box::pin(tokio::time::sleep(account.house.interceptor.time_for_body));
        let (inner, account) = (Some(inner), Arc::clone(account));
        Self { inner, account, trailers, since: Instant::now(), until }
    }

    /// Nothing has come: whether that was for too long.
    fn has_stalled(&mut self, context: &mut Context<'_>) -> Option<Fault> {
        if self.until.as_mut().poll(context).is_pending() {
            return None;
        }
        let patience = self.account.house.interceptor.time_for_body;
        let now = Instant::now();
        let waits = self.account.waits();
        if !waits || now < self.since + patience {
            let since = if waits { self.since } else { now };
            self.until.as_mut().reset(since + patience);
            // So that somebody is woken then.
            let woken = self.until.as_mut().poll(context);
            return woken.is_ready().then(|| "it stalled".into());
        }
        let seconds = patience.as_secs();
        let sentence = format!("nothing more of the request's body came for {seconds} seconds");
        let hint = "send it without a pause";
        self.account.cut(refusal(STALLED, sentence.as_str(), hint));
        Some(sentence.into())
    }
}

impl hyper::body::Body for Up {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(context) else {
            let stalled = this.has_stalled(context);
            return stalled.map_or(Poll::Pending, |fault| Poll::Ready(Some(Err(fault))));
        };
        this.since = Instant::now();
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() && this.trailers == Trailers::Dropped => None,
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, length);
                match this.account.sent(bytes) {
                    Ok(()) => {
                        if let Some(data) = frame.data_ref() {
                            this.account.passes(Side::Session, data);
                        }
                        Some(Ok(frame))
                    }
                    Err(refusal) => Some(Err(refusal.sentence.into())),
                }
            }
            Some(Err(error)) => {
                if is_malformed(&error) {
                    let sentence = format!("the body of the request is none: {error}");
                    let malformed = refusal("malformed", sentence, "write it anew");
                    this.account.cut(malformed);
                }
                Some(Err(error.into()))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Up {
    /// A client that is told why its body was cut short may still be sending it.
    fn drop(&mut self) {
        if self.account.refusal().is_some_and(|refusal| refusal.code != STALLED)
            && tokio::runtime::Handle::try_current().is_ok()
            && let Some(inner) = self.inner.take()
        {
            drain(inner);
        }
    }
}

/// The body of a request that is signed anew piece by piece.
#[derive(Debug)]
pub(super) struct Signing {
    inner: Up,
    pieces: Pieces,
}

impl Signing {
    /// Signs a body.
    pub(super) fn new(inner: Up, pieces: Pieces) -> Self {
        Self { inner, pieces }
    }

    fn refuse(&self, why: &str) -> Fault {
        let refusal = unsigned(why);
        let sentence = refusal.sentence.clone();
        self.inner.account.cut(refusal);
        sentence.into()
    }
}

impl hyper::body::Body for Signing {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = self.get_mut();
        loop {
            let data = match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                None => {
                    let end = this.pieces.finish().map_err(|why| this.refuse(why));
                    return Poll::Ready(end.err().map(Err));
                }
                Some(Err(fault)) => return Poll::Ready(Some(Err(fault))),
                Some(Ok(frame)) => frame.into_data(),
            };
            // What follows the body in the protocol is not signed.
            let Ok(data) = data else { continue };
            match this.pieces.push(&data) {
                Ok(out) if out.is_empty() => {}
                Ok(out) => return Poll::Ready(Some(Ok(Frame::data(out)))),
                Err(why) => return Poll::Ready(Some(Err(this.refuse(why)))),
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether a body broke off because of how it is written, and not because its sender is gone.
fn is_malformed(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| {
        matches!(cause.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData)
    })
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Down {
    inner: Incoming,
    account: Arc<Account>,
    reading: Reading,
    /// Trailers that wait for the last bytes before them.
    trailers: Option<HeaderMap>,
    state: State,
}

/// How an answer is read on its way.
#[derive(Debug)]
pub(super) enum Reading {
    /// It is not.
    Not,
    /// Secrets are taken out of it, once it is decoded.
    Scrubbed(Option<Box<Decoder>>, Box<Scrub>),
    /// It is searched, and passes as it came.
    Watched(Box<Watch>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// The last bytes are out; trailers may remain.
    Drained,
    /// Nothing more comes.
    Done,
}

impl Down {
    /// Counts a body, and takes secrets out of it.
    pub(super) fn new(inner: Incoming, account: &Arc<Account>, reading: Reading) -> Self {
        let account = Arc::clone(account);
        Self { inner, account, reading, trailers: None, state: State::Open }
    }

    fn clean(&mut self, bytes: Bytes) -> Result<Bytes, Fault> {
        Ok(match &mut self.reading {
            Reading::Not => bytes,
            Reading::Scrubbed(None, scrub) => scrub.push(bytes),
            Reading::Scrubbed(Some(decoder), scrub) => scrub.push(decoder.push(&bytes)?),
            Reading::Watched(watch) => watch.push(bytes)?,
        })
    }

    fn rest(&mut self) -> Result<Bytes, Fault> {
        Ok(match &mut self.reading {
            Reading::Not => Bytes::new(),
            Reading::Scrubbed(decoder, scrub) => {
                let last = decoder.take().map_or(Ok(Bytes::new()), |decoder| decoder.finish())?;
                let before = scrub.push(last);
                [before, scrub.finish()].concat().into()
            }
            Reading::Watched(watch) => watch.finish()?,
        })
    }

    /// What takes secrets out of trailers.
    fn scrub(&mut self) -> Option<&mut Scrub> {
        match &mut self.reading {
            Reading::Not => None,
            Reading::Scrubbed(_, scrub) => Some(scrub),
            Reading::Watched(watch) => Some(&mut watch.scrub),
        }
    }

    fn fail(&mut self, fault: Fault) -> Fault {
        self.state = State::Done;
        self.account.ended(format!("error: {fault}"));
        fault
    }

    /// What is left once the host has sent everything.
    fn drain(&mut self) -> Option<Result<Frame<Bytes>, Fault>> {
        if self.state == State::Open {
            self.state = State::Drained;
            match self.rest() {
                Ok(rest) if rest.is_empty() => {}
                Ok(rest) => {
                    self.account.received(length(&rest));
                    self.account.passes(Side::Host, &rest);
                    return Some(Ok(Frame::data(rest)));
                }
                Err(fault) => return Some(Err(self.fail(fault))),
            }
        }
        self.state = State::Done;
        self.account.ended("eof");
        self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
    }
}

impl hyper::body::Body for Down {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = self.get_mut();
        loop {
            match this.state {
                State::Open => {}
                State::Drained => return Poll::Ready(this.drain()),
                State::Done => return Poll::Ready(None),
            }
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                None => return Poll::Ready(this.drain()),
                Some(Err(error)) => return Poll::Ready(Some(Err(this.fail(error.into())))),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(bytes) => match this.clean(bytes) {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => {
                        this.account.received(length(&bytes));
                        this.account.passes(Side::Host, &bytes);
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Err(fault) => return Poll::Ready(Some(Err(this.fail(fault)))),
                },
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        if let Some(scrub) = this.scrub() {
                            scrub_headers(scrub, &mut trailers);
                        }
                        this.trailers = Some(trailers);
                        return Poll::Ready(this.drain());
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let simple = match &self.reading {
            Reading::Not => true,
            Reading::Scrubbed(decoder, scrub) => decoder.is_none() && scrub.is_idle(),
            Reading::Watched(_) => false,
        };
        let all = simple && self.trailers.is_none() && self.inner.is_end_stream();
        self.state == State::Done || all
    }

    fn size_hint(&self) -> SizeHint {
        match &self.reading {
            Reading::Scrubbed(Some(_), _) => SizeHint::new(),
            Reading::Scrubbed(None, scrub) if !scrub.keeps_length() => SizeHint::new(),
            _ => self.inner.size_hint(),
        }
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        if self.inner.is_end_stream() {
            self.account.ended("eof");
        }
        match &self.reading {
            Reading::Not => {}
            Reading::Scrubbed(_, scrub) => reflected(&self.account, scrub, HIDDEN),
            Reading::Watched(watch) if watch.finding() == Finding::Secret => {
                reflected(&self.account, &watch.scrub, "its answer was cut before it");
            }
            Reading::Watched(watch) => {
                reflected(&self.account, &watch.scrub, HIDDEN);
            }
        }
    }
}

/// Takes secrets out of headers.
pub(super) fn scrub_headers(scrub: &mut Scrub, headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let clean = scrub.whole(value.as_bytes());
        if let Some(Ok(clean)) = clean.map(http::HeaderValue::from_maybe_shared) {
            *value = clean;
        }
    }
}

/// What became of a secret that came back, mostly.
pub(super) const HIDDEN: &str = "the session got its placeholder";

/// Tells which secrets came back, if any did, and what became of them.
pub(super) fn reflected(account: &Account, scrub: &Scrub, outcome: &str) {
    for secret in scrub.found() {
        let host = &account.target.host;
        let sentence = format!("{host} sent the secret {secret} back; {outcome}");
        account.notice("secret-reflected", sentence);
    }
}

//! Bodies on their way: counted, never gathered.

use super::decode::Decoder;
use super::refuse::refusal;
use super::scrub::Scrub;
use super::serve::Line;
use crate::flow::Flow;
use crate::house::House;
use crate::office::Refusal;
use bytes::Bytes;
use cowork_api::egress::{Http, Rule, Target, What};
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// What goes wrong with a body.
pub(super) type Fault = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(super) type Body = UnsyncBoxBody<Bytes, Fault>;

/// A body that is known already.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// One request, from its decision to its end, which it records.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) house: Arc<House>,
    pub(super) flow: Arc<Flow>,
    pub(super) number: u32,
    pub(super) target: Target,
    pub(super) rule: Option<Arc<Rule>>,
    began: Instant,
    address: OnceLock<IpAddr>,
    status: AtomicU16,
    version: Http,
    up: AtomicU64,
    down: AtomicU64,
    how: Mutex<Option<String>>,
    refusal: OnceLock<Refusal>,
}

impl Account {
    /// Begins one.
    pub(super) fn new(
        line: &Line,
        number: u32,
        target: &Target,
        rule: Option<Arc<Rule>>,
        version: http::Version,
    ) -> Arc<Self> {
        Arc::new(Self {
            house: Arc::clone(&line.house),
            flow: Arc::clone(&line.flow),
            number,
            target: target.clone(),
            rule,
            began: Instant::now(),
            address: OnceLock::new(),
            status: AtomicU16::new(0),
            version: match version {
                http::Version::HTTP_2 => Http::Two,
                http::Version::HTTP_10 => Http::OneZero,
                _ => Http::One,
            },
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            how: Mutex::default(),
            refusal: OnceLock::new(),
        })
    }

    /// The address that was reached.
    pub(super) fn reached(&self, address: IpAddr) {
        self.address.get_or_init(|| address);
    }

    /// The status of the answer.
    pub(super) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Bytes from the session; refused if they are more than the rule lets through.
    pub(super) fn sent(&self, bytes: u64) -> Result<(), Refusal> {
        self.house.quotas.upload(self.rule.as_deref(), bytes).inspect_err(|refusal| {
            self.refusal.get_or_init(|| refusal.clone());
        })?;
        self.counted(bytes);
        Ok(())
    }

    /// Bytes from the session that the rule lets through.
    pub(super) fn counted(&self, bytes: u64) {
        self.up.fetch_add(bytes, Ordering::Relaxed);
        self.flow.up.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes to the session.
    pub(super) fn received(&self, bytes: u64) {
        self.down.fetch_add(bytes, Ordering::Relaxed);
        self.flow.down.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Why the body was cut short, if we did it.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    /// How it ended. The first thing said counts.
    pub(super) fn ended(&self, how: impl Into<String>) {
        self.how.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(how.into());
    }

    /// Something that a person should know.
    pub(super) fn notice(&self, code: &str, sentence: String) {
        let what = What::Noticed { target: self.target.clone(), code: code.to_owned(), sentence };
        self.house.office.record(self.flow.number, self.number, what);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let how = self.how.lock().unwrap_or_else(PoisonError::into_inner).take();
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != 0);
        let ended = What::Ended {
            target: self.target.clone(),
            address: self.address.get().copied(),
            status,
            up: self.up.load(Ordering::Relaxed),
            down: self.down.load(Ordering::Relaxed),
            ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            how: how.unwrap_or_else(|| "closed by the session".to_owned()),
            spoken: self.flow.spoken(Some(self.version)),
        };
        self.house.office.record(self.flow.number, self.number, ended);
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
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
    inner: Incoming,
    account: Arc<Account>,
    trailers: Trailers,
}

impl Up {
    /// Counts a body.
    pub(super) fn new(inner: Incoming, account: &Arc<Account>, trailers: Trailers) -> Self {
        Self { inner, account: Arc::clone(account), trailers }
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
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_trailers() && this.trailers == Trailers::Dropped => None,
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, length);
                match this.account.sent(bytes) {
                    Ok(()) => Some(Ok(frame)),
                    Err(refusal) => Some(Err(refusal.sentence.into())),
                }
            }
            Some(Err(error)) => {
                if is_malformed(&error) {
                    let sentence = format!("the body of the request is none: {error}");
                    let malformed = refusal("malformed", sentence, "write it anew");
                    this.account.refusal.get_or_init(|| malformed);
                }
                Some(Err(error.into()))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
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
    decoder: Option<Box<Decoder>>,
    scrub: Option<Scrub>,
    /// Trailers that wait for the last bytes before them.
    trailers: Option<HeaderMap>,
    state: State,
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
    pub(super) fn new(
        inner: Incoming,
        account: &Arc<Account>,
        decoder: Option<Box<Decoder>>,
        scrub: Option<Scrub>,
    ) -> Self {
        let account = Arc::clone(account);
        Self { inner, account, decoder, scrub, trailers: None, state: State::Open }
    }

    fn clean(&mut self, bytes: Bytes) -> Result<Bytes, Fault> {
        let bytes = match &mut self.decoder {
            Some(decoder) => decoder.push(&bytes)?,
            None => bytes,
        };
        Ok(match &mut self.scrub {
            Some(scrub) => scrub.push(bytes),
            None => bytes,
        })
    }

    fn rest(&mut self) -> Result<Bytes, Fault> {
        let last = match self.decoder.take() {
            Some(decoder) => decoder.finish()?,
            None => Bytes::new(),
        };
        let Some(scrub) = &mut self.scrub else { return Ok(last) };
        let before = scrub.push(last);
        let after = scrub.finish();
        Ok([before, after].concat().into())
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
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Err(fault) => return Poll::Ready(Some(Err(this.fail(fault)))),
                },
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        if let Some(scrub) = &mut this.scrub {
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
        let idle = self.scrub.as_ref().is_none_or(Scrub::is_idle);
        let simple = self.decoder.is_none() && idle && self.trailers.is_none();
        self.state == State::Done || (simple && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.scrub.as_ref().is_none_or(Scrub::keeps_length);
        if kept && self.decoder.is_none() { self.inner.size_hint() } else { SizeHint::new() }
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        if self.inner.is_end_stream() {
            self.account.ended("eof");
        }
        if let Some(scrub) = &self.scrub {
            reflected(&self.account, scrub);
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

/// Tells which secrets came back, if any did.
pub(super) fn reflected(account: &Account, scrub: &Scrub) {
    for secret in scrub.found() {
        let sentence = format!(
            "{} sent the secret {secret} back; the session got its placeholder",
            account.target.host
        );
        account.notice("secret-reflected", sentence);
    }
}

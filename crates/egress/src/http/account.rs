//! One request as it is recorded, from its decision to its end.

use super::headers;
use super::serve::Line;
use super::upstream::Upstream;
use crate::captures::Bodies;
use crate::dial::ms_since;
use crate::flow::Flow;
use crate::house::House;
use crate::office::{Allowed, Refusal};
use cowork_api::egress::{Http, Rule, Side, Spoken, Target, Timings, What};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// One request, from its decision to its end, which it records.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) house: Arc<House>,
    pub(super) flow: Arc<Flow>,
    pub(super) number: u32,
    pub(super) target: Target,
    pub(super) rule: Option<Arc<Rule>>,
    began: Instant,
    status: AtomicU16,
    seen: Mutex<Seen>,
    up: AtomicU64,
    down: AtomicU64,
    how: Mutex<Option<String>>,
    refusal: OnceLock<Refusal>,
    /// Its bodies, if they are kept.
    bodies: Option<Bodies>,
}

/// How the body of a request comes.
#[derive(Clone, Debug, Default)]
pub(super) struct Manner {
    /// How it is encoded.
    encoding: Option<String>,
    pace: Pace,
}

/// How fast the body of a request comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pace {
    /// As the client can: one that stops in the middle of it has stalled.
    #[default]
    Steady,
    /// As the client likes: it is a stream of messages.
    Messages,
}

impl Manner {
    /// As the head of the request has it.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
        let messages = kind.to_ascii_lowercase().starts_with(b"application/grpc");
        let pace = if messages { Pace::Messages } else { Pace::Steady };
        Self { encoding: headers::encoding(headers), pace }
    }
}

/// What is known about a request at a moment.
#[derive(Clone, Debug, Default)]
struct Seen {
    pace: Pace,
    address: Option<IpAddr>,
    spoken: Spoken,
    timings: Timings,
}

impl Account {
    /// Begins one.
    pub(super) fn new(
        line: &Line,
        number: u32,
        target: &Target,
        allowed: &Allowed,
        version: http::Version,
    ) -> Arc<Self> {
        let (place, rule) = (allowed.place(), allowed.rule().cloned());
        let version = match version {
            http::Version::HTTP_2 => Http::Two,
            http::Version::HTTP_10 => Http::OneZero,
            _ => Http::One,
        };
        let spoken = line.flow.spoken(Some(version));
        let bodies = line.house.office.bodies_of(place, target);
        Arc::new(Self {
            house: Arc::clone(&line.house),
            flow: Arc::clone(&line.flow),
            number,
            target: target.clone(),
            rule,
            began: Instant::now(),
            status: AtomicU16::new(0),
            seen: Mutex::new(Seen { spoken, ..Seen::default() }),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            how: Mutex::default(),
            refusal: OnceLock::new(),
            bodies,
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the body of the request comes.
    pub(super) fn comes(&self, manner: Manner) {
        let mut seen = self.seen();
        seen.spoken.encoding = manner.encoding;
        seen.pace = manner.pace;
    }

    /// Whether the host waits for the rest of the body, and nothing else happens until it comes.
    pub(super) fn waits(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0 && self.seen().pace == Pace::Steady
    }

    /// The connection that it is sent over.
    pub(super) fn reached(&self, upstream: &Upstream) {
        let mut seen = self.seen();
        let Seen { address, spoken, timings, .. } = &mut *seen;
        *address = Some(upstream.address());
        upstream.tell(self.began, spoken, timings);
    }

    /// The status of the answer.
    pub(super) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
        self.seen().timings.first = Some(ms_since(self.began));
    }

    /// Both sides go over to another protocol.
    pub(super) fn upgraded(&self, protocol: &http::HeaderValue) {
        self.seen().spoken.upgrade = Some(headers::word(protocol));
    }

    /// Bytes from the session; refused if they are more than the rule lets through.
    pub(super) fn sent(&self, bytes: u64) -> Result<(), Refusal> {
        self.house
            .quotas
            .upload(self.rule.as_deref(), bytes)
            .inspect_err(|refusal| self.cut(refusal.clone()))?;
        self.counted(bytes);
        Ok(())
    }

    /// Bytes from the session that the rule lets through.
    pub(super) fn counted(&self, bytes: u64) {
        self.up.fetch_add(bytes, Ordering::Relaxed);
        self.flow.sent(bytes);
    }

    /// Bytes to the session.
    pub(super) fn received(&self, bytes: u64) {
        self.down.fetch_add(bytes, Ordering::Relaxed);
        self.flow.received(bytes);
    }

    /// Some of a body, as the session sent or gets it.
    pub(super) fn passes(&self, side: Side, bytes: &[u8]) {
        if let Some(bodies) = &self.bodies {
            bodies.take(side, bytes);
        }
    }

    /// The body is cut short, for this. The first thing said counts.
    pub(super) fn cut(&self, refusal: Refusal) {
        self.refusal.get_or_init(|| refusal);
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
        if let Some(bodies) = self.bodies.take() {
            let of = (self.flow.number, self.number);
            self.house.office.captured(bodies, of, &self.target);
        }
        let how = self.how.lock().unwrap_or_else(PoisonError::into_inner).take();
        let seen = std::mem::take(&mut *self.seen());
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != 0);
        let ended = What::Ended {
            target: self.target.clone(),
            address: seen.address,
            status,
            up: self.up.load(Ordering::Relaxed),
            down: self.down.load(Ordering::Relaxed),
            ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            how: how
                .or_else(|| self.flow.state().how.clone())
                .unwrap_or_else(|| "closed by the session".to_owned()),
            spoken: Box::new(seen.spoken),
            timings: seen.timings,
        };
        self.house.office.record(self.flow.number, self.number, ended);
    }
}

//! Requests that are sent once more, with another value of their secret.
//!
//! A host that refuses a token (401) may do so because it has expired. Where the daemon can renew the
//! secret, the request is kept until it is answered: without its secret, and with its body if that is
//! not too long. If there is another value it is sent once more, and the client sees only that.

use super::credentials::{self, Applied, Channel, Draft};
use super::draft::Outgoing;
use super::refuse::refusal;
use crate::house::House;
use crate::office::Refusal;
use crate::renew::expired;
use bytes::Bytes;
use cowork_api::egress::{NotRenewed, Renewal, Rule, Secret};
use http::request::Parts;
use hyper::body::Body as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Longest body that is kept, in bytes.
const MAX_KEPT: u64 = 4 * 1024 * 1024;
/// What is kept of all bodies together, in KiB.
pub(super) const MAX_SPARE: usize = 32 * 1024;

/// A request that can be sent once more.
pub(super) struct Resend {
    pub(super) secret: String,
    pub(super) version: u64,
    /// As it was before it had its secret.
    parts: Parts,
    body: Option<Kept>,
}

struct Kept {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// The secret that a request uses, if it is one that is renewed.
fn renewable<'s>(draft: &Draft, rule: Option<&Rule>, secrets: &'s [Secret]) -> Option<&'s Secret> {
    let used = credentials::uses(draft, rule, secrets)?;
    matches!(used.renewal, Renewal::OnDemand { .. }).then_some(used)
}

/// Waits for another value of the secret that a request uses, if the one that is there has expired.
pub(super) async fn in_time(
    house: &House,
    draft: &Draft,
    rule: Option<&Rule>,
    channel: Channel,
) -> Result<(), Refusal> {
    let secrets = house.office.secrets();
    let Some(secret) = renewable(draft, rule, &secrets) else { return Ok(()) };
    let Some(version) = expired(secret).filter(|_| channel == Channel::Verified) else {
        return Ok(());
    };
    match house.office.renew(&secret.name, version).await {
        Ok(()) | Err(NotRenewed::IsNew) => Ok(()),
        Err(NotRenewed::Failed { sentence }) => Err(not_renewed(&secret.name, &sentence)),
    }
}

/// The answer to a request whose secret is of no use any more.
pub(super) fn not_renewed(secret: &str, why: &str) -> Refusal {
    let sentence = format!("the secret {secret} has expired and cannot be renewed: {why}");
    let hint = "the user can set it anew: `cowork secret import` or `cowork secret set`";
    refusal("credential-expired", sentence, hint)
}

impl Resend {
    /// Keeps a request that is about to get its secret, if that is one that is renewed.
    pub(super) fn of(
        house: &House,
        draft: &Draft,
        rule: Option<&Rule>,
        parts: &Parts,
    ) -> Option<Self> {
        let secrets = house.office.secrets();
        let secret = renewable(draft, rule, &secrets)?;
        let Renewal::OnDemand { version, .. } = secret.renewal else { return None };
        let mut parts = parts.clone();
        parts.headers = draft.headers.clone();
        Some(Self { secret: secret.name.clone(), version, parts, body: None })
    }

    /// Makes room for the body, if it is not too long. Says whether there is some.
    pub(super) fn room_for(
        house: &House,
        body: &hyper::body::Incoming,
    ) -> Option<OwnedSemaphorePermit> {
        let length = body.size_hint().exact().filter(|length| *length <= MAX_KEPT)?;
        let room = u32::try_from(length.div_ceil(1024)).ok()?;
        Arc::clone(&house.interceptor.spare).try_acquire_many_owned(room).ok()
    }

    /// Keeps the body as well.
    pub(super) fn keep(&mut self, bytes: Bytes, room: OwnedSemaphorePermit) {
        self.body = Some(Kept { bytes, _room: room });
    }

    /// Whether it is there whole.
    pub(super) fn is_whole(&self) -> bool {
        self.body.is_some()
    }

    /// Writes the request with the secrets of the moment; its body has none yet.
    pub(super) fn again(
        self,
        house: &House,
        rule: Option<&Rule>,
        outgoing: &mut Outgoing,
    ) -> Result<(Applied, Bytes), Refusal> {
        outgoing.parts = self.parts;
        let mut draft = Draft::of(&mut outgoing.parts);
        let secrets = house.office.secrets();
        let applied = credentials::apply(&mut draft, rule, &secrets, outgoing.channel)?;
        outgoing.fill(draft)?;
        Ok((applied, self.body.map(|kept| kept.bytes).unwrap_or_default()))
    }
}

//! One request: read, decided, given its secrets, sent, answered.

use super::account::{Account, Manner};
use super::body::{Body, Down, Fault, Reading, Signing, Up, drain, full, scrub_headers};
use super::credentials::{self, Applied, Draft};
use super::decode::{Coding, Decoder, coding, coding_of};
use super::draft::{Outgoing, Wanted, describe, read};
use super::headers;
use super::refuse::{answer, refusal};
use super::resend::{Resend, in_time, not_renewed};
use super::scrub::Scrub;
use super::serve::{Early, Line};
use super::sigv4::{Key as AwsKey, MAX_HASHED, Signature, Signed, unsigned};
use super::tunnel::carry;
use super::upstream::{Key, Unsent, Upstream, broken, connect};
use super::watch::Watch;
use crate::house::House;
use crate::office::{Allowed, Refusal};
use bytes::Bytes;
use cowork_api::egress::{CredentialMode, NotRenewed, Used, What};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HOST, HeaderValue, UPGRADE,
};
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

/// Most bytes of a body that secrets are put into.
const MAX_SWAPPED: u64 = 1024 * 1024;
/// How often a request is begun that found its connection closed.
const TRIES: usize = 3;

/// Carries out one request.
pub(super) async fn exchange(line: Arc<Line>, mut request: Request<Incoming>) -> Response<Body> {
    let number = line.flow.next_request();
    let upgraded = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let target = describe(&parts, &line.base);
    let wanted = match read(&parts, &line.base, line.place.as_ref(), line.channel) {
        Ok(wanted) => wanted,
        Err(refusal) => {
            line.house.office.refuse(&line.flow, number, &target, &refusal);
            drain(body);
            return answer(&refusal, &target);
        }
    };
    let target = wanted.target.clone();
    match decide(&line, number, &wanted, parts).await {
        Ok(ready) => ready.carry_out(&line, body, upgraded).await,
        Err(refusal) => {
            drain(body);
            answer(&refusal, &target)
        }
    }
}

/// Refuses a request whose length can be read in two ways, and ends its connection: what follows it
/// may be part of it, or another request.
pub(super) fn unclear(line: &Line, request: Request<Incoming>) -> Response<Body> {
    let number = line.flow.next_request();
    let (parts, body) = request.into_parts();
    let target = describe(&parts, &line.base);
    let sentence = "the request gives its length both as Content-Length and as Transfer-Encoding";
    let refusal = refusal("ambiguous-length", sentence, "give it in one way");
    line.house.office.refuse(&line.flow, number, &target, &refusal);
    drain(body);
    let mut response = answer(&refusal, &target);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A request that was decided, and has its secrets.
struct Ready {
    allowed: Allowed,
    verdict: Option<Verdict>,
    account: Arc<Account>,
    outgoing: Outgoing,
    applied: Applied,
    /// The request once more, if its secret is one that is renewed.
    resend: Option<Resend>,
}

/// The decision about a request, which is recorded once it is known where secrets went.
struct Verdict {
    house: Arc<House>,
    flow: u64,
    number: u32,
    what: Option<What>,
}

impl Verdict {
    /// A secret went into the body.
    fn add(&mut self, secret: &str) {
        if let Some(What::Decided { credentials, .. }) = &mut self.what {
            credentials.push(Used {
                secret: secret.to_owned(),
                mode: CredentialMode::Swap,
                place: "body".to_owned(),
                foreign_removed: false,
            });
        }
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.house.office.record(self.flow, self.number, what);
        }
    }
}

/// Decides about a request, and puts its secrets in.
async fn decide(
    line: &Line,
    number: u32,
    wanted: &Wanted,
    mut parts: Parts,
) -> Result<Ready, Refusal> {
    let office = &line.house.office;
    let upgrade =
        headers::upgrade(&parts.headers).filter(|_| parts.version < http::Version::HTTP_2);
    headers::strip(&mut parts.headers);
    if let Ok(host) = HeaderValue::from_str(&wanted.authority) {
        parts.headers.insert(HOST, host);
    }
    let mut draft = Draft::of(&mut parts);
    let line_length = draft.path.len() + draft.query.as_ref().map_or(0, String::len);
    let weight = headers::weight(&draft.headers) + u64::try_from(line_length).unwrap_or(u64::MAX);
    let target = &wanted.target;
    let allowed = office.request(&line.flow, number, target, &wanted.place);
    let Some(allowed) = line.unless_it_leaves(allowed).await else {
        let sentence = "the client ended its side, and nobody is asked for it any more";
        return Err(refusal("left", sentence, "keep the connection open while the user is asked"));
    };
    let allowed = allowed.map_err(|refusal| explained(refusal, &draft.path))?;
    let more = |refusal: Refusal| {
        let rule = allowed.rule().map(|rule| rule.name.clone());
        let refusal = Refusal { rule: refusal.rule.or(rule), ..refusal };
        office.refuse(&line.flow, number, target, &refusal);
        if refusal.code == "placeholder-misdirected" {
            let code = refusal.code.to_owned();
            let sentence = format!("{}: {}", target.host, refusal.sentence);
            let what = What::Noticed { target: target.clone(), code, sentence };
            office.record(line.flow.number, number, what);
        }
        refusal
    };
    let rule = allowed.rule().map(AsRef::as_ref);
    if rule.is_some_and(|rule| !rule.http.is_empty()) {
        headers::refuse_overrides(&draft.headers).map_err(more)?;
    }
    line.house.quotas.request(rule).map_err(more)?;
    in_time(&line.house, &draft, rule, line.channel).await.map_err(more)?;
    // What is recorded is read before there is a secret in it.
    let manner = Manner::of(&draft.headers);
    let resend = Resend::of(&line.house, &draft, rule, &parts);
    let secrets = office.secrets();
    let applied = credentials::apply(&mut draft, rule, &secrets, line.channel).map_err(more)?;
    line.house.quotas.upload(rule, weight).map_err(more)?;
    let version = parts.version;
    let mut outgoing =
        Outgoing { parts, authority: wanted.authority.clone(), channel: line.channel, upgrade };
    outgoing.fill(draft).map_err(more)?;
    let credentials = applied.used.clone();
    let what = What::Decided { target: target.clone(), decision: allowed.decision(), credentials };
    let house = Arc::clone(&line.house);
    let verdict = Some(Verdict { house, flow: line.flow.number, number, what: Some(what) });
    let account = Account::new(line, number, target, &allowed, version);
    account.counted(weight);
    account.comes(manner);
    Ok(Ready { allowed, verdict, account, outgoing, applied, resend })
}

/// Tells of a path that no rule about paths allows because programs do not agree about it.
fn explained(refusal: Refusal, path: &str) -> Refusal {
    match cowork_policy::egress::target::check(path) {
        Err(why) if refusal.code == "request" => {
            Refusal { hint: format!("{}; {why}", refusal.hint), ..refusal }
        }
        _ => refusal,
    }
}

impl Ready {
    async fn carry_out(
        mut self,
        line: &Arc<Line>,
        body: Incoming,
        client: OnUpgrade,
    ) -> Response<Body> {
        let target = self.account.target.clone();
        match self.send(line, body).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.switch(Arc::clone(line), response, client)
            }
            Ok(response) => self.respond(response).unwrap_or_else(|refusal| {
                self.account.ended(format!("error: {}", refusal.code));
                answer(&refusal, &target)
            }),
            Err(refusal) => {
                self.account.ended(format!("error: {}", refusal.code));
                answer(&refusal, &target)
            }
        }
    }

    /// Sends the request; once more if its host refuses its secret and there is another value.
    async fn send(&mut self, line: &Line, body: Incoming) -> Result<Response<Incoming>, Refusal> {
        let body = self.body(body).await;
        self.verdict = None;
        let response = self.deliver(line, body?).await?;
        match self.resend.take() {
            Some(resend) if response.status() == StatusCode::UNAUTHORIZED => {
                self.send_again(line, resend, response).await
            }
            _ => Ok(response),
        }
    }

    async fn send_again(
        &mut self,
        line: &Line,
        resend: Resend,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, Refusal> {
        if !resend.is_whole() {
            // The client tries again itself, and finds another value.
            let house = Arc::clone(&line.house);
            drop(tokio::spawn(
                async move { house.office.renew(&resend.secret, resend.version).await },
            ));
            return Ok(response);
        }
        match line.house.office.renew(&resend.secret, resend.version).await {
            Err(NotRenewed::IsNew) => Ok(response),
            Err(NotRenewed::Failed { sentence }) => Err(not_renewed(&resend.secret, &sentence)),
            Ok(()) => {
                drop(response);
                let rule = self.allowed.rule().map(AsRef::as_ref);
                let (applied, bytes) = resend.again(&line.house, rule, &mut self.outgoing)?;
                self.applied = applied;
                let body = self.swapped(bytes);
                self.deliver(line, body).await
            }
        }
    }

    /// Sends what is written; tries again where a connection that was kept turns out to be closed.
    async fn deliver(&mut self, line: &Line, body: Body) -> Result<Response<Incoming>, Refusal> {
        let mut body = body;
        let offer = line.offer;
        let mut key = Key::new(&self.allowed, line.channel, offer);
        if self.outgoing.upgrade.is_some() {
            key = key.for_upgrade();
        }
        for _ in 0..TRIES {
            let mut upstream = match self.upstream(line, &key).await {
                Ok(upstream) => upstream,
                Err(refusal) => {
                    drain(body);
                    return Err(refusal);
                }
            };
            self.account.reached(&upstream);
            let spare = self.spare(&body);
            let request = self.outgoing.write(upstream.version(), body)?;
            match upstream.send(request).await {
                Ok(response) if upstream.is_shut(&response) => {
                    let parent =
                        line.house.dialer.forwarder(self.allowed.place(), self.allowed.port());
                    return parent.map_or(Ok(response), |parent| Err(parent.is_shut()));
                }
                Ok(response) => {
                    upstream.give_back(&line.house, key);
                    return Ok(response);
                }
                Err(Unsent::Again(request)) => {
                    let (parts, unsent) = request.into_parts();
                    self.outgoing.parts = parts;
                    body = unsent;
                }
                Err(Unsent::Stale(error)) => {
                    self.outgoing.parts = spare.ok_or_else(|| self.broken(&error))?;
                    body = full(Bytes::new());
                }
                Err(Unsent::Failed(error)) => return Err(self.broken(&error)),
            }
        }
        let sentence = format!("{} closes every connection", self.allowed.place());
        Err(refusal("upstream", sentence, "try again later"))
    }

    /// Why a request broke off: we did it, or the host.
    fn broken(&self, error: &hyper::Error) -> Refusal {
        let ours = self.account.refusal().cloned();
        ours.unwrap_or_else(|| broken(self.allowed.place(), error))
    }

    /// What it takes to send a request once more, if that does no harm.
    fn spare(&self, body: &Body) -> Option<Parts> {
        let harmless = self.outgoing.parts.method.is_safe() && body.is_end_stream();
        harmless.then(|| self.outgoing.parts.clone())
    }

    /// A connection to the host: one that waits, the one that was begun early, or a new one.
    async fn upstream(&self, line: &Line, key: &Key) -> Result<Upstream, Refusal> {
        let pool = &line.house.interceptor.pool;
        if let Some(upstream) = pool.take(key) {
            return Ok(upstream);
        }
        let made = match line.take_early(key) {
            Some(Early::Failed(refusal)) => return Err(refusal),
            Some(Early::Pending(connecting)) => connecting.made().await,
            None => None,
        };
        let made = match made {
            Some(result) => result?,
            None => connect(&line.house, &self.allowed, key).await?,
        };
        if let Some(shared) = made.share() {
            pool.put(&line.house, key.clone(), shared);
        }
        Ok(made)
    }

    /// The body to be sent: flowing, or gathered where a secret goes into it or it is signed.
    async fn body(&mut self, body: Incoming) -> Result<Body, Refusal> {
        let length = body.size_hint().exact();
        if let Some((signature, secret)) = self.applied.sign.take() {
            return self.sign(body, signature, &secret.value.0).await;
        }
        let room = self.resend.as_ref().and_then(|_| Resend::room_for(&self.account.house, &body));
        if let Some(room) = room {
            let bytes = self.gather(body, length.unwrap_or_default()).await?;
            if let Some(resend) = &mut self.resend {
                resend.keep(bytes.clone(), room);
            }
            return Ok(self.swapped(bytes));
        }
        let small = length.is_some_and(|length| (1..=MAX_SWAPPED).contains(&length));
        if small && self.applied.body.is_some() && self.is_legible() {
            let bytes = self.gather(body, MAX_SWAPPED).await?;
            return Ok(self.swapped(bytes));
        }
        Ok(Up::new(body, &self.account, self.applied.trailers).boxed_unsync())
    }

    /// Whether the body can be read.
    fn is_legible(&self) -> bool {
        !matches!(coding(&self.outgoing.parts.headers), Coding::Other)
    }

    /// A body that was gathered, with its secrets where they belong there. One that was compressed is
    /// sent as it is if it has no place for any, and otherwise without being compressed.
    fn swapped(&mut self, bytes: Bytes) -> Body {
        let small = u64::try_from(bytes.len()).is_ok_and(|size| (1..=MAX_SWAPPED).contains(&size));
        let swap = self.applied.body.take().filter(|_| small);
        let headers = &mut self.outgoing.parts.headers;
        let plain = match coding(headers) {
            Coding::Identity => Some(bytes.clone()),
            Coding::Known(decoder) if swap.is_some() => decoder.whole(&bytes, MAX_SWAPPED),
            Coding::Known(_) | Coding::Other => None,
        };
        let (Some(mut swap), Some(plain)) = (swap, plain) else { return full(bytes) };
        let Some(swapped) = swap.whole(&plain) else { return full(bytes) };
        if let Some(verdict) = &mut self.verdict {
            swap.found().for_each(|name| verdict.add(name));
        }
        headers.remove(CONTENT_ENCODING);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(swapped.len()));
        full(swapped)
    }

    async fn sign(
        &mut self,
        body: Incoming,
        signature: Signature,
        value: &[u8],
    ) -> Result<Body, Refusal> {
        let gathered = if Signature::wants_body(&self.outgoing.parts.headers) {
            Err(self.gather(body, MAX_HASHED).await?)
        } else {
            Ok(body)
        };
        let key = std::str::from_utf8(value).ok().and_then(AwsKey::parse);
        let key = key.ok_or_else(|| unsigned("the secret is not id:key"))?;
        let Parts { method, uri, headers, .. } = &mut self.outgoing.parts;
        let signed = Signed {
            method: method.as_str(),
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
            body: gathered.as_ref().err().map(Bytes::as_ref),
        };
        let pieces = signature.renew(headers, signed, key).map_err(unsigned)?;
        let up = |body| Up::new(body, &self.account, self.applied.trailers);
        Ok(match (gathered, pieces) {
            (Ok(body), Some(pieces)) => Signing::new(up(body), pieces).boxed_unsync(),
            (Ok(body), None) => up(body).boxed_unsync(),
            (Err(bytes), _) => full(bytes),
        })
    }

    async fn gather(&self, body: Incoming, most: u64) -> Result<Bytes, Refusal> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let gathered =
            Limited::new(Up::new(body, &self.account, self.applied.trailers), most).collect().await;
        gathered.map(http_body_util::Collected::to_bytes).map_err(|fault: Fault| {
            let ours = self.account.refusal().cloned();
            ours.unwrap_or_else(|| {
                let sentence = format!("the body of the request cannot be read: {fault}");
                refusal("malformed", sentence, "send it anew, in at most 1 MiB")
            })
        })
    }

    /// The answer, as the session gets it.
    fn respond(&mut self, response: Response<Incoming>) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = response.into_parts();
        // The reason after the status is among them: words of the host that nobody needs.
        parts.extensions.clear();
        let mut scrub = self.applied.scrub.take();
        let coding = match &scrub {
            Some(_) if !body.is_end_stream() => self.legible(&parts)?,
            _ => None,
        };
        headers::strip(&mut parts.headers);
        parts.version = http::Version::HTTP_11;
        if let Some(scrub) = &mut scrub {
            scrub_headers(scrub, &mut parts.headers);
        }
        let reading = match (scrub, coding) {
            (None, _) => Reading::Not,
            (Some(scrub), Some(decoder)) if !self.applied.searched => {
                Reading::Watched(Box::new(Watch::new(decoder, scrub)))
            }
            (Some(scrub), decoder) => {
                if decoder.is_some() {
                    parts.headers.remove(CONTENT_ENCODING);
                    parts.headers.remove(ETAG);
                }
                if !body.is_end_stream() && (decoder.is_some() || !scrub.keeps_length()) {
                    parts.headers.remove(CONTENT_LENGTH);
                }
                Reading::Scrubbed(decoder, Box::new(scrub))
            }
        };
        self.account.answered(parts.status.as_u16());
        self.account.received(headers::weight(&parts.headers));
        let body = Down::new(body, &self.account, reading).boxed_unsync();
        Ok(Response::from_parts(parts, body))
    }

    /// What decodes an answer that is to be searched for secrets, if it is encoded. One that cannot
    /// be read does not pass.
    fn legible(&self, parts: &http::response::Parts) -> Result<Option<Box<Decoder>>, Refusal> {
        match coding_of(parts) {
            Coding::Identity => Ok(None),
            Coding::Known(decoder) => Ok(Some(decoder)),
            Coding::Other => {
                let sentence = format!(
                    "{} compresses its answer in a way that cannot be looked into for secrets",
                    self.allowed.place()
                );
                let hint = if self.applied.searched {
                    "ask the user"
                } else {
                    "the user can let it pass as it is: `cowork allow SESSION HOST --tls tunnel`"
                };
                Err(refusal("opaque-answer", sentence, hint))
            }
        }
    }

    /// Both sides go over to another protocol.
    fn switch(
        &mut self,
        line: Arc<Line>,
        mut response: Response<Incoming>,
        client: OnUpgrade,
    ) -> Response<Body> {
        let Some(protocol) = self.outgoing.upgrade.clone() else {
            let sentence = format!("{} changes the protocol unasked", self.allowed.place());
            self.account.ended("error: upstream");
            return answer(&refusal("upstream", sentence, ""), &self.account.target);
        };
        let host = hyper::upgrade::on(&mut response);
        let (mut parts, _nothing) = response.into_parts();
        parts.extensions.clear();
        let protocol = headers::upgrade(&parts.headers).unwrap_or(protocol);
        headers::strip(&mut parts.headers);
        headers::ask_upgrade(&mut parts.headers, protocol);
        let mut scrub: Option<Scrub> = self.applied.scrub.take();
        if let Some(scrub) = &mut scrub {
            scrub_headers(scrub, &mut parts.headers);
        }
        self.account.answered(parts.status.as_u16());
        if let Some(protocol) = parts.headers.get(UPGRADE) {
            self.account.upgraded(protocol);
        }
        let account = Arc::clone(&self.account);
        drop(tokio::spawn(async move {
            // Until then it counts among the connections of the session.
            line.unless_needed(carry(account, client, host, scrub)).await;
        }));
        Response::from_parts(parts, full(Bytes::new()))
    }
}

//! What all flows of a session share: the rules of the moment, the user's answers, the record.

use crate::captures::{Bodies, Captures};
use crate::desk::{Desk, Joined, Scope, Waiting};
use crate::dial::Reached;
use crate::flow::{Flow, Flows, Waits};
use crate::ledger::{Ledger, shorten_target};
use crate::renew::Renewals;
use arc_swap::ArcSwap;
use cowork_api::egress::{
    Answer, Ask, Connection, Decision, FromEgress, MAX_FLOWS, NotRenewed, Rule, Rules, Secret,
    Source, Target, Timings, What,
};
use cowork_policy::egress::{Matcher, Outcome, Place, Treatment, Verdict};
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot, watch};

pub use crate::refusal::Refusal;

/// Longest that something waits for the user. The answer that comes later serves the next try.
pub const PATIENCE: Duration = Duration::from_secs(55);
/// Longest list of flows in one message, in bytes: no message is larger than a packet.
const LIST_BYTES: usize = 48 * 1024;

/// What all flows share.
#[derive(Debug)]
pub struct Office {
    /// The session's id.
    session: String,
    rules: ArcSwap<Matcher>,
    secrets: ArcSwap<Vec<Secret>>,
    desk: Mutex<Desk>,
    ledger: Mutex<Ledger>,
    flows: Arc<Flows>,
    /// There is something to tell the daemon.
    news: Notify,
    /// How often there were other rules or secrets.
    renewed: watch::Sender<u64>,
    /// Secrets that wait for another value.
    pub(crate) renewals: Renewals,
    /// Of what bodies are kept.
    pub(crate) captures: Captures,
}

/// Leave to reach a place: made only by a decision.
#[derive(Clone, Debug)]
pub struct Allowed {
    place: Place,
    port: u16,
    rule: Option<Arc<Rule>>,
    treatment: Treatment,
    generation: u64,
    source: Source,
    held: u64,
}

impl Allowed {
    /// Where to.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The rule that allowed it; none if the user did.
    pub fn rule(&self) -> Option<&Arc<Rule>> {
        self.rule.as_ref()
    }

    /// How it is carried.
    pub fn treatment(&self) -> Treatment {
        self.treatment
    }

    /// The generation of the rules it was allowed under.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The decision, as it is recorded.
    pub(crate) fn decision(&self) -> Decision {
        Decision {
            allowed: true,
            code: "allowed".into(),
            rule: self.rule.as_ref().map(|rule| rule.name.clone()),
            generation: self.generation,
            source: self.source,
            held: self.held,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What rules say about the request `number` of a flow; 0 is the connection itself.
fn verdict<'a>(rules: &'a Matcher, number: u32, target: &Target, place: &Place) -> Verdict<'a> {
    if number == 0 {
        return rules.connection(place, target.port);
    }
    let method = target.method.as_deref().unwrap_or_default();
    let path = target.path.as_deref().unwrap_or_default();
    rules.request(place, target.port, method, path)
}

/// What an answer is about, where rules leave a host to the user.
fn scope_of(rules: &Matcher, place: &Place, port: u16) -> Scope {
    if rules.asks_singly(place, port) { Scope::Request } else { Scope::Host }
}

impl Office {
    /// An office that begins with these rules and secrets.
    pub fn new(session: &str, rules: Rules, secrets: Vec<Secret>) -> Arc<Self> {
        Arc::new(Self {
            session: session.to_owned(),
            rules: ArcSwap::from_pointee(Matcher::new(rules)),
            secrets: ArcSwap::from_pointee(secrets),
            desk: Mutex::default(),
            ledger: Mutex::default(),
            flows: Arc::default(),
            news: Notify::new(),
            renewed: watch::Sender::new(0),
            renewals: Renewals::default(),
            captures: Captures::default(),
        })
    }

    /// The session's id.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// The rules of the moment.
    pub fn rules(&self) -> Arc<Matcher> {
        self.rules.load_full()
    }

    /// Other rules from now on.
    pub fn set_rules(&self, rules: Rules) {
        self.rules.store(Arc::new(Matcher::new(rules)));
        self.renewed.send_modify(|times| *times += 1);
        self.withdraw_settled();
    }

    /// Withdraws questions that nobody waits for any more and that rules have answered, or that would
    /// be asked otherwise.
    fn withdraw_settled(&self) {
        let rules = self.rules();
        let settled = |Waiting { target, scope, .. }: &Waiting| {
            let number = u32::from(target.method.is_some());
            target.host.parse().is_ok_and(|place| {
                verdict(&rules, number, target, &place).outcome != Outcome::Ask
                    || scope_of(&rules, &place, target.port) != *scope
            })
        };
        for number in lock(&self.desk).withdraw_idle(settled) {
            self.withdraw(number);
        }
    }

    /// Waits until rules no longer let a connection pass that they let pass before, as it is carried.
    /// Requests that are under way are ended by themselves; a tunnel would never be.
    pub async fn revoked(&self, place: &Place, port: u16) {
        let mut renewed = self.renewed.subscribe();
        // Rules may have changed since it was decided: a host can take long to be reached.
        loop {
            let rules = self.rules();
            let passes =
                matches!(rules.connection(place, port).outcome, Outcome::Allow | Outcome::Ask);
            if !passes || rules.treatment(place, port) != Treatment::Tunnel {
                return;
            }
            if renewed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The secrets of the moment.
    pub fn secrets(&self) -> Arc<Vec<Secret>> {
        self.secrets.load_full()
    }

    /// Other secrets from now on.
    pub fn set_secrets(&self, secrets: Vec<Secret>) {
        let secrets = Arc::new(secrets);
        self.secrets.store(Arc::clone(&secrets));
        self.renewals.came(&secrets);
        self.renewed.send_modify(|times| *times += 1);
    }

    /// A secret stays as it is.
    pub fn not_renewed(&self, secret: &str, version: u64, why: &NotRenewed) {
        self.renewals.failed(secret, version, why);
    }

    /// A connection has arrived.
    pub fn arrive(&self) -> Arc<Flow> {
        self.flows.arrive()
    }

    /// How many connections there are.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Decides about a connection. Waits for the user where rules say so.
    pub async fn connection(
        &self,
        flow: &Flow,
        target: &Target,
        place: &Place,
    ) -> Result<Allowed, Refusal> {
        self.connection_for(flow, target, place, pending()).await
    }

    /// The same for somebody who waits for the user until `impatience` is there, and no longer.
    pub(crate) async fn connection_for(
        &self,
        flow: &Flow,
        target: &Target,
        place: &Place,
        impatience: impl Future<Output = ()>,
    ) -> Result<Allowed, Refusal> {
        self.decide((flow, 0), target, place, impatience).await
    }

    /// Decides about a request: `target` has its method and path. Waits for the user where rules say
    /// so. An allowance is recorded by whoever carries the request, with the secrets that it gets.
    pub async fn request(
        &self,
        flow: &Flow,
        number: u32,
        target: &Target,
        place: &Place,
    ) -> Result<Allowed, Refusal> {
        self.decide((flow, number), target, place, pending()).await
    }

    /// Decides about the request `number` of a flow; 0 is the connection itself.
    async fn decide(
        &self,
        (flow, number): (&Flow, u32),
        target: &Target,
        place: &Place,
        impatience: impl Future<Output = ()>,
    ) -> Result<Allowed, Refusal> {
        let mut impatience = pin!(impatience);
        let mut shown = target.clone();
        shorten_target(&mut shown);
        flow.state().target.clone_from(&shown);
        let mut held = Duration::ZERO;
        let mut answer = None;
        // Before rules are looked at: no change of them is missed.
        let mut renewed = self.renewed.subscribe();
        loop {
            let answered = matches!(answer, Some(Ok(Answer::Allow | Answer::Deny { .. })));
            let rules = self.rules();
            let verdict = verdict(&rules, number, target, place);
            let rule = verdict.rule;
            let asked = answered && verdict.outcome == Outcome::Ask;
            let source = if asked { Source::User } else { Source::Policy };
            let result = match (verdict.outcome, answer.take()) {
                (Outcome::Allow, _) | (Outcome::Ask, Some(Ok(Answer::Allow))) => Ok(()),
                (Outcome::Ask, Some(Ok(Answer::Deny { reason }))) => {
                    Err(Refusal::rejected(place, &reason))
                }
                (Outcome::Ask, Some(Ok(Answer::Nobody))) => {
                    let refusal = Refusal::nobody(place, target.port);
                    Err(refusal.in_session(&self.session))
                }
                (Outcome::Ask, Some(Err(refusal))) => Err(refusal),
                (Outcome::Ask, None) => {
                    let scope = scope_of(&rules, place, target.port);
                    drop(rules);
                    let began = Instant::now();
                    flow.state().waits = Waits::ForTheUser;
                    answer = tokio::select! {
                        biased;
                        answer = self.ask((&shown, scope), impatience.as_mut()) => Some(answer),
                        () = self.settled(&mut renewed, number, (target, scope), place) => None,
                    };
                    flow.state().waits = Waits::No;
                    held += began.elapsed();
                    continue;
                }
                (outcome, _) => {
                    let refusal = Refusal::by_rules(outcome, place, target.port, rule);
                    Err(refusal.in_session(&self.session))
                }
            };
            // What cannot be recorded does not pass.
            let result = result.and_then(|()| {
                if lock(&self.ledger).has_room() { Ok(()) } else { Err(Refusal::unrecordable()) }
            });
            let held = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
            let decision = Decision {
                allowed: result.is_ok(),
                code: result.as_ref().map_or_else(|refusal| refusal.code, |()| "allowed").into(),
                rule: rule.map(|rule| rule.name.clone()),
                generation: rules.generation(),
                source,
                held,
            };
            flow.state().rule.clone_from(&decision.rule);
            let target = target.clone();
            let treatment = rules.treatment(place, target.port);
            let port = target.port;
            if number == 0 || result.is_err() {
                let decided = What::Decided { target, decision, credentials: Vec::new() };
                self.record(flow.number, number, decided);
            }
            return result.map(|()| Allowed {
                place: place.clone(),
                port,
                treatment,
                rule: rule.map(|rule| Arc::new(rule.clone())),
                generation: rules.generation(),
                source,
                held,
            });
        }
    }

    /// Records that something was refused before rules were asked, or after they had allowed it.
    pub fn refuse(&self, flow: &Flow, request: u32, target: &Target, refusal: &Refusal) {
        let decision = Decision {
            allowed: false,
            code: refusal.code.into(),
            rule: refusal.rule.clone(),
            generation: self.rules.load().generation(),
            source: Source::Guard,
            held: 0,
        };
        let target = target.clone();
        let what = What::Decided { target, decision, credentials: Vec::new() };
        self.record(flow.number, request, what);
    }

    /// Records the end of a connection.
    pub fn ended(&self, flow: &Flow, target: &Target, reached: Option<Reached>, how: &str) {
        let timings = Timings {
            connection: reached.map_or(Connection::None, |_| Connection::New),
            dns: reached.and_then(|reached| reached.dns),
            connect: reached.map(|reached| reached.connect),
            tls: None,
            first: flow.answered(),
        };
        let what = What::Ended {
            target: target.clone(),
            address: reached.map(|reached| reached.address),
            status: None,
            up: flow.up.load(Ordering::Relaxed),
            down: flow.down.load(Ordering::Relaxed),
            ms: flow.age(),
            how: how.to_owned(),
            spoken: Box::new(flow.spoken(None)),
            timings,
        };
        self.record(flow.number, 0, what);
    }

    /// Waits until rules say something themselves about what the user is asked about, or the question
    /// is to be another one.
    async fn settled(
        &self,
        renewed: &mut watch::Receiver<u64>,
        number: u32,
        (target, scope): (&Target, Scope),
        place: &Place,
    ) {
        while renewed.changed().await.is_ok() {
            let rules = self.rules();
            let verdict = verdict(&rules, number, target, place);
            if verdict.outcome == Outcome::Ask {
                if scope_of(&rules, place, target.port) != scope {
                    return;
                }
                continue;
            }
            // Secrets come after the rules that name them.
            let wants = verdict.rule.and_then(|rule| rule.credential.as_ref());
            let has = |secret: &str| self.secrets().iter().any(|known| known.name == secret);
            if wants.is_none_or(|wants| has(&wants.secret)) {
                return;
            }
        }
        pending::<()>().await;
    }

    /// Puts a question to the user and waits. Withdrawn if the one who waits goes away.
    async fn ask(
        &self,
        (target, scope): (&Target, Scope),
        impatience: impl Future<Output = ()>,
    ) -> Result<Answer, Refusal> {
        let (sender, answer) = oneshot::channel();
        let number = match self.join((target, scope), sender) {
            Joined::Waits(number) | Joined::Asks { number, .. } => number,
            Joined::Answered(answer) => return Ok(answer),
            Joined::Full => return Err(Refusal::too_many_asks()),
        };
        let leaves = Leaves { office: self, number };
        let answered = tokio::select! {
            biased;
            answered = tokio::time::timeout(PATIENCE, answer) => answered.ok(),
            () = impatience => None,
        };
        if let Some(Ok(answer)) = answered {
            return Ok(answer);
        }
        lock(&self.desk).put_off(number, target, Instant::now());
        drop(leaves);
        Err(Refusal::unanswered(&target.host))
    }

    /// Joins those who wait for the same, or has the user asked, or finds the answer.
    fn join(&self, (target, scope): (&Target, Scope), sender: oneshot::Sender<Answer>) -> Joined {
        let mut desk = lock(&self.desk);
        let joined = desk.join(target, scope, sender, Instant::now());
        if let Joined::Asks { number, withdrawn } = &joined {
            for gone in withdrawn {
                self.withdraw(*gone);
            }
            self.say(FromEgress::Ask(Ask { ask: *number, target: target.clone() }));
        }
        joined
    }

    /// The user has answered.
    pub fn answer(&self, ask: u64, answer: &Answer) {
        lock(&self.desk).answer(ask, answer, Instant::now());
    }

    /// Writes something down, and tells the daemon.
    pub fn record(&self, flow: u64, request: u32, what: What) {
        lock(&self.ledger).record(flow, request, what);
        self.news.notify_one();
    }

    /// What keeps the bodies of a request that passes, where a rule about it says so: another one may
    /// speak for it.
    pub(crate) fn bodies_of(&self, place: &Place, target: &Target) -> Option<Bodies> {
        if self.captures.are_none() {
            return None;
        }
        let rules = self.rules();
        let method = target.method.as_deref().unwrap_or_default();
        let path = target.path.as_deref().unwrap_or_default();
        let fitting = rules.fitting(place, target.port, (method, path));
        self.captures.of(fitting.iter().map(|rule| rule.name.as_str()))
    }

    /// Bodies that are kept are over.
    pub(crate) fn captured(&self, bodies: Bodies, of: (u64, u32), target: &Target) {
        bodies.end(&mut lock(&self.ledger), of, target);
        self.news.notify_one();
    }

    /// Tells the daemon something that is not recorded.
    pub(crate) fn say(&self, message: FromEgress) {
        lock(&self.ledger).say(message);
        self.news.notify_one();
    }

    fn withdraw(&self, ask: u64) {
        lock(&self.ledger).withdraw(ask);
        self.news.notify_one();
    }

    /// The daemon keeps every record up to this one.
    pub fn acknowledge(&self, upto: u64) {
        lock(&self.ledger).acknowledge(upto);
    }

    /// A daemon has come: what the last one may have missed is said again.
    pub fn greet(&self) {
        let desk = lock(&self.desk);
        lock(&self.ledger).begin_again(desk.asks());
        drop(desk);
        for (secret, version) in self.renewals.open() {
            self.say(FromEgress::Renew { secret, version });
        }
        self.news.notify_one();
    }

    /// Tells what flows now.
    pub fn list(&self, number: u32) {
        let (newest, total) = self.flows.newest(MAX_FLOWS);
        let mut flows = Vec::with_capacity(newest.len());
        let mut bytes = 0;
        for flow in newest {
            let state = flow.state().clone();
            let listed = cowork_api::egress::Flow {
                flow: flow.number,
                target: state.target,
                rule: state.rule,
                up: flow.up.load(Ordering::Relaxed),
                down: flow.down.load(Ordering::Relaxed),
                ms: flow.age(),
                held: state.waits == Waits::ForTheUser,
            };
            bytes += cowork_api::encode(&listed).len();
            if bytes > LIST_BYTES {
                break;
            }
            flows.push(listed);
        }
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        self.say(FromEgress::Flows { number, flows, total });
    }

    /// What the daemon is to be told next, if there is something.
    pub(crate) fn unsaid(&self) -> Option<FromEgress> {
        lock(&self.ledger).next()
    }

    /// Waits for what the daemon is to be told next.
    pub async fn news(&self) -> FromEgress {
        loop {
            let next = lock(&self.ledger).next();
            match next {
                Some(message) => return message,
                None => self.news.notified().await,
            }
        }
    }
}

/// Somebody who waits for an answer: if it was the last one, the question is withdrawn, unless it
/// stands.
struct Leaves<'a> {
    office: &'a Office,
    number: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut desk = lock(&self.office.desk);
        if desk.leave(self.number) {
            self.office.withdraw(self.number);
        }
    }
}

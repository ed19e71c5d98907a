//! The decision about a connection, and about a request inside it.
//!
//! Rules are found by what they are about: a name by itself, a domain by the ends of a name, an
//! address by the ranges it is in. How many rules there are about other hosts does not matter, nor how
//! many there are about other paths of the same host.
//!
//! Where several rules decide alike, the one that speaks for them is the one with a credential,
//! then the one about fewest hosts, then one with limits, then one that names private addresses,
//! then the first.

mod explain;
mod paths;
mod pattern;
mod prepared;

use super::address::{self, Kind};
use super::name::Place;
use cowork_api::egress::{Action, CredentialMode, Otherwise, Ports, Rule, Rules, Tls};
use prepared::{Asked, Fit, Index, List, Prepared, Side};
use std::collections::BTreeSet;

pub use explain::Explanation;

/// Most ports of one range that listeners are made for.
pub const MAX_RANGE: u16 = 256;

/// Rules, ready to be asked.
#[derive(Clone, Debug)]
pub struct Matcher {
    rules: Rules,
    prepared: Vec<Prepared>,
    index: Index,
}

/// Whether something may be looked into, so that the session trusts its own authority: what the user is
/// asked about is, to hold the request and not the greeting.
pub fn inspects(rules: &Rules) -> bool {
    let asks = |rule: &Rule| rule.action == Action::Ask;
    if rules.otherwise == Otherwise::Ask || rules.rules.iter().any(asks) {
        return true;
    }
    rules.rules.iter().any(|rule| match rule.tls {
        Tls::Inspect => true,
        Tls::Tunnel => false,
        Tls::AsNeeded => {
            !rule.http.is_empty() || rule.credential.is_some() || rule.limits.requests.is_some()
        }
    })
}

/// What was decided, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// What becomes of it.
    pub outcome: Outcome,
    /// The rule that decided, if one did.
    pub rule: Option<&'a Rule>,
}

/// What becomes of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes.
    Allow,
    /// The user is asked.
    Ask,
    /// A rule refuses it.
    Deny,
    /// No rule is about it, and what no rule is about is refused.
    NoRule,
    /// Rules allow the host, but not this port.
    OtherPort,
    /// Rules allow the host and port, but not this request.
    OtherRequest,
}

/// How a connection that passes is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Byte by byte; a name in its first bytes must be the one that was decided about.
    Tunnel,
    /// Every request in it is decided.
    Inspect,
}

/// The best rule of each kind that was found.
#[derive(Default)]
struct Found<'a> {
    deny: Option<&'a Prepared>,
    allow: Option<&'a Prepared>,
    ask: Option<&'a Prepared>,
    other_request: Option<&'a Prepared>,
    other_port: Option<&'a Prepared>,
}

fn better<'a>(place: &mut Option<&'a Prepared>, candidate: &'a Prepared) {
    if place.is_none_or(|best| candidate.rank < best.rank) {
        *place = Some(candidate);
    }
}

impl Matcher {
    /// Prepares rules.
    pub fn new(rules: Rules) -> Self {
        let prepared = prepared::prepare(&rules.rules);
        let index = Index::of(&rules.rules, &prepared);
        Self { rules, prepared, index }
    }

    /// The generation of the rules.
    pub fn generation(&self) -> u64 {
        self.rules.generation
    }

    /// The rules, as they were given.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether a name could be reached or asked about, on any port.
    pub fn knows(&self, place: &Place) -> bool {
        // If any port passes, then so does the first of some rule, or one just behind a denial.
        let mut ports = vec![1];
        for prepared in self.about(place) {
            let Some(rule) = self.rule(prepared) else { continue };
            let first = prepared.side != Side::Deny;
            let edge = |&(from, to): &(u16, u16)| if first { from } else { to.saturating_add(1) };
            ports.extend(ranges(&rule.ports).iter().map(edge));
        }
        let passes = |port: &u16| {
            matches!(self.connection(place, *port).outcome, Outcome::Allow | Outcome::Ask)
        };
        ports.sort_unstable();
        ports.dedup();
        ports.iter().any(passes)
    }

    /// The decision about a connection.
    ///
    /// What is said about requests is not decided here: a denial of some requests does not refuse
    /// the connection, and an allowance of some lets it pass, to be looked into.
    pub fn connection(&self, place: &Place, port: u16) -> Verdict<'_> {
        self.decide(place, port, None)
    }

    /// The decision about a request. The query of its path does not matter.
    ///
    /// A path that is ambiguous (see [`super::target`]) is not what an allowance of paths means, and
    /// is what every denial of paths means. A path of more than 8 KiB counts as ambiguous. A denial is
    /// also about what a path is for a server that decodes it twice.
    ///
    /// Whatever other rules allow, a request passes neither with the method of a rule in another
    /// case, nor without the credential that a rule pins for what may be the same request.
    pub fn request(&self, place: &Place, port: u16, method: &str, path: &str) -> Verdict<'_> {
        self.decide(place, port, Some(&Asked::new(method, path)))
    }

    /// How a connection that passes, or that the user let pass, is carried.
    ///
    /// It is looked into where a rule about it needs that. A rule that lets every request pass in a
    /// tunnel makes rules that allow some of them needless.
    pub fn treatment(&self, place: &Place, port: u16) -> Treatment {
        let mut allowances = false;
        let mut tunnel = false;
        for prepared in self.about(place) {
            if !self.rule(prepared).is_some_and(|rule| has_port(&rule.ports, port)) {
                continue;
            }
            match prepared.needs {
                prepared::Needs::Nothing => {}
                prepared::Needs::Tunnel => tunnel = true,
                prepared::Needs::Requests => allowances = true,
                prepared::Needs::Inspection => return Treatment::Inspect,
            }
        }
        if allowances && !tunnel { Treatment::Inspect } else { Treatment::Tunnel }
    }

    /// Whether the user is asked about each request to a host and port by itself, and not about all of
    /// them together: rules tell some of them from others, or give one a secret.
    pub fn asks_singly(&self, place: &Place, port: u16) -> bool {
        self.about(place).any(|prepared| {
            self.rule(prepared).is_some_and(|rule| {
                has_port(&rule.ports, port) && (!rule.http.is_empty() || rule.credential.is_some())
            })
        })
    }

    /// The rules that are about a request and do not refuse it, whichever of them speaks.
    pub fn fitting(&self, place: &Place, port: u16, request: (&str, &str)) -> Vec<&Rule> {
        let asked = Asked::new(request.0, request.1);
        let fits = |prepared: &&Prepared| prepared.side != Side::Deny && prepared.fits(&asked);
        let fitting = self.about(place).filter(fits).filter_map(|prepared| self.rule(prepared));
        fitting.filter(|rule| has_port(&rule.ports, port)).collect()
    }

    /// Whether something may be looked into, by any of the rules.
    pub fn inspects(&self) -> bool {
        inspects(&self.rules)
    }

    /// The ports that listeners are needed for, where not every port arrives: those that rules
    /// name, and 80 and 443 where a rule names none or the user may be asked. Of a range with more
    /// than [`MAX_RANGE`] ports there are none.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports = BTreeSet::new();
        if self.rules.otherwise == Otherwise::Ask {
            ports.extend([80, 443]);
        }
        let reachable = self.prepared.iter().filter(|prepared| prepared.side != Side::Deny);
        for rule in reachable.filter_map(|prepared| self.rule(prepared)) {
            match &rule.ports {
                Ports::Web | Ports::All => ports.extend([80, 443]),
                Ports::Some(ranges) => {
                    let narrow = |(from, to): &&(u16, u16)| to.saturating_sub(*from) < MAX_RANGE;
                    ports.extend(ranges.iter().filter(narrow).flat_map(|(from, to)| *from..=*to));
                }
            }
        }
        ports.remove(&0);
        ports.into_iter().collect()
    }

    /// The names of the secrets that rules use.
    pub fn secrets(&self) -> BTreeSet<&str> {
        let credentials = self.rules.rules.iter().filter_map(|rule| rule.credential.as_ref());
        credentials.map(|credential| credential.secret.as_str()).collect()
    }

    fn rule(&self, prepared: &Prepared) -> Option<&Rule> {
        self.rules.rules.get(prepared.number)
    }

    fn side(&self, number: usize) -> Option<Side> {
        self.prepared.get(number).map(|prepared| prepared.side)
    }

    fn about(&self, place: &Place) -> impl Iterator<Item = &Prepared> {
        self.index.about(place).flat_map(|list| self.of(list))
    }

    fn of<'a>(&'a self, list: &'a List) -> impl Iterator<Item = &'a Prepared> {
        list.numbers.iter().filter_map(|number| self.prepared.get(*number))
    }

    fn decide(&self, place: &Place, port: u16, request: Option<&Asked<'_>>) -> Verdict<'_> {
        let mut found = self.find(place, port, request);
        if found.deny.is_none() {
            // Some servers decode a path twice: a denial is about what they serve as well.
            let again = request.and_then(Asked::again);
            found.deny = again.and_then(|again| self.find(place, port, Some(&again)).deny);
        }
        let otherwise = match self.rules.otherwise {
            Otherwise::Ask if is_askable(place) => Some(Outcome::Ask),
            Otherwise::Ask | Otherwise::Deny => None,
        };
        let decided = |outcome, prepared| (outcome, Some(prepared));
        let (outcome, prepared) = None
            .or(found.deny.map(|prepared| decided(Outcome::Deny, prepared)))
            .or(found.allow.map(|prepared| decided(Outcome::Allow, prepared)))
            .or(found.ask.map(|prepared| decided(Outcome::Ask, prepared)))
            .or(otherwise.map(|outcome| (outcome, None)))
            .or(found.other_request.map(|prepared| decided(Outcome::OtherRequest, prepared)))
            .or(found.other_port.map(|prepared| decided(Outcome::OtherPort, prepared)))
            .unwrap_or((Outcome::NoRule, None));
        let passes = matches!(outcome, Outcome::Allow | Outcome::Ask);
        let (outcome, prepared) = request
            .filter(|_| passes)
            .and_then(|request| self.evaded(place, port, request, prepared))
            .map_or((outcome, prepared), |evaded| decided(Outcome::OtherRequest, evaded));
        Verdict { outcome, rule: prepared.and_then(|prepared| self.rule(prepared)) }
    }

    /// The rule that a request would get round if it passed by `winner`.
    fn evaded(
        &self,
        place: &Place,
        port: u16,
        request: &Asked<'_>,
        winner: Option<&Prepared>,
    ) -> Option<&Prepared> {
        let pins = |prepared: &Prepared| {
            let credential = self.rule(prepared).and_then(|rule| rule.credential.as_ref());
            credential.is_some_and(|credential| credential.mode == CredentialMode::Pin)
        };
        let pinned = winner.is_some_and(pins);
        let is_evaded = |prepared: &&Prepared| {
            prepared.side != Side::Deny
                && self.rule(prepared).is_some_and(|rule| has_port(&rule.ports, port))
                && (prepared.is_misspelled(request)
                    || !pinned && pins(prepared) && prepared.fit(request) == Fit::Perhaps)
        };
        // Where the path is clear and no method is misspelled, nothing fits perhaps.
        let clear = |list: &&List| {
            let paths = list.paths.as_ref();
            paths.is_some_and(|paths| request.decoded().is_some() && !paths.is_misspelled(request))
        };
        let lists = self.index.about(place).filter(|list| !clear(list));
        lists.flat_map(|list| self.of(list)).filter(is_evaded).min_by_key(|prepared| prepared.rank)
    }

    fn find(&self, place: &Place, port: u16, request: Option<&Asked<'_>>) -> Found<'_> {
        let mut found = Found::default();
        for list in self.index.about(place) {
            let path = request.and_then(Asked::decoded);
            match (&list.paths, request, path) {
                (Some(paths), Some(request), Some(path)) => {
                    let places = paths.about(path);
                    self.look_up(list, places, &mut found, (port, request));
                }
                _ => self.search(list, &mut found, port, request),
            }
        }
        found
    }

    /// Looks at those rules of a list that can be about the path of a request, for the one that wins.
    fn look_up<'a>(
        &'a self,
        list: &'a List,
        places: impl Iterator<Item = usize>,
        found: &mut Found<'a>,
        (port, request): (u16, &Asked<'_>),
    ) {
        let rule_at = |place: usize| self.prepared.get(*list.numbers.get(place)?);
        let has_port = |prepared: &Prepared| {
            self.rule(prepared).is_some_and(|rule| has_port(&rule.ports, port))
        };
        let decides = |place: usize| {
            rule_at(place).is_some_and(|prepared| has_port(prepared) && prepared.fits(request))
        };
        let mut first: Option<usize> = None;
        for place in places {
            if first.is_none_or(|first| place < first) && decides(place) {
                first = Some(place);
            }
        }
        if let Some(prepared) = first.and_then(rule_at) {
            return match prepared.side {
                Side::Deny => better(&mut found.deny, prepared),
                Side::Allow => better(&mut found.allow, prepared),
                Side::Ask => better(&mut found.ask, prepared),
            };
        }
        // No rule decides: what is said about it is said by the best allowance, or else the best ask.
        for side in [Side::Allow, Side::Ask] {
            let before = |number: &usize| self.side(*number).is_some_and(|known| known < side);
            let begin = list.numbers.partition_point(before);
            let of_side = || {
                let rest = list.numbers.iter().skip(begin);
                rest.map_while(|number| self.prepared.get(*number).filter(|of| of.side == side))
            };
            if let Some(prepared) = of_side().find(|prepared| has_port(prepared)) {
                better(&mut found.other_request, prepared);
            } else if let Some(prepared) = of_side().next() {
                better(&mut found.other_port, prepared);
            }
        }
    }

    /// Looks through one list, up to the first that decides: what follows it does not win over it.
    fn search<'a>(
        &'a self,
        list: &'a List,
        found: &mut Found<'a>,
        port: u16,
        request: Option<&Asked<'_>>,
    ) {
        for prepared in self.of(list) {
            let denies = prepared.side == Side::Deny;
            if !self.rule(prepared).is_some_and(|rule| has_port(&rule.ports, port)) {
                if !denies {
                    better(&mut found.other_port, prepared);
                }
                continue;
            }
            let fits = match request {
                Some(request) => prepared.fits(request),
                None => prepared.wanted.is_empty() || !denies,
            };
            match prepared.side {
                Side::Deny if fits => return better(&mut found.deny, prepared),
                Side::Allow if fits => return better(&mut found.allow, prepared),
                Side::Ask if fits => return better(&mut found.ask, prepared),
                Side::Deny => {}
                Side::Allow | Side::Ask => better(&mut found.other_request, prepared),
            }
        }
    }
}

/// Whether the user is asked about a place that no rule is about. This host and private addresses
/// are reached by a rule that names them, or not at all.
fn is_askable(place: &Place) -> bool {
    match place {
        Place::Name(_) => true,
        Place::Address(address) => address::kind(*address) == Kind::Public,
        Place::HostLoopback => false,
    }
}

fn ranges(ports: &Ports) -> &[(u16, u16)] {
    match ports {
        Ports::Web => &[(80, 80), (443, 443)],
        Ports::Some(ranges) => ranges,
        Ports::All => &[(1, u16::MAX)],
    }
}

fn has_port(ports: &Ports, port: u16) -> bool {
    ranges(ports).iter().any(|(from, to)| (*from..=*to).contains(&port))
}

#[cfg(test)]
mod tests;

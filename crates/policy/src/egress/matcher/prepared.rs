//! Rules in the form in which they are asked, and the way to those that are about a place.

use super::super::address::leading;
use super::super::name::Place;
use super::super::target;
use super::paths::Paths;
use super::pattern::Pattern;
use cowork_api::egress::{Action, CredentialMode, Host, Network, Request, Rule, Tls};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// Longest path that is compared with patterns; a longer one is ambiguous.
const MAX_PATH: usize = 8 * 1024;

/// A rule, ready to be asked.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// Which rule.
    pub(super) number: usize,
    /// Of several that decide alike, the lowest speaks.
    pub(super) rank: usize,
    pub(super) side: Side,
    /// Which requests; none means all.
    pub(super) wanted: Vec<Wanted>,
    pub(super) needs: Needs,
}

/// What becomes of what a rule is about; each wins over those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Deny,
    Allow,
    Ask,
}

/// What a rule needs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// That it is not looked into: every request passes.
    Tunnel,
    /// That requests are known, to tell those that pass.
    Requests,
    /// That it is looked into, whatever other rules say.
    Inspection,
}

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    methods: Vec<String>,
    paths: Vec<Pattern>,
}

/// A request, as it is decided about.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    /// Without a value if the path is ambiguous.
    decoded: OnceCell<Option<Cow<'a, [u8]>>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(method: &'a str, path: &'a str) -> Self {
        Self { method, path, decoded: OnceCell::new() }
    }

    pub(super) fn method(&self) -> &str {
        self.method
    }

    /// The request as a server understands it that decodes paths twice, if that is another one.
    pub(super) fn again(&self) -> Option<Self> {
        let twice = target::decode_again(self.decoded()?)?;
        let decoded = OnceCell::from(Some(Cow::Owned(twice)));
        Some(Self { method: self.method, path: self.path, decoded })
    }

    /// The bytes of the path, unless it is ambiguous.
    pub(super) fn decoded(&self) -> Option<&[u8]> {
        let decode = || {
            let (path, _) = target::check(self.path).ok()?;
            if path.len() > MAX_PATH { None } else { target::decode(path).ok() }
        };
        self.decoded.get_or_init(decode).as_deref()
    }
}

/// Whether a request is one of those that a rule is about, or a method or a path one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    No,
    /// For some servers: the path is ambiguous, or the method is written in another case.
    Perhaps,
    Yes,
}

impl Prepared {
    /// Whether the rule decides about a request. What it is perhaps about is refused with it, and
    /// not allowed with it.
    pub(super) fn fits(&self, request: &Asked<'_>) -> bool {
        match self.fit(request) {
            Fit::Yes => true,
            Fit::Perhaps => self.side == Side::Deny,
            Fit::No => false,
        }
    }

    /// Whether the rule is about a request.
    pub(super) fn fit(&self, request: &Asked<'_>) -> Fit {
        let fits = self.wanted.iter().map(|wanted| match wanted.method(request) {
            Fit::No => Fit::No,
            method => method.min(wanted.path(request)),
        });
        // None means all.
        fits.max().unwrap_or(Fit::Yes)
    }

    /// What the paths begin with that the rule is about.
    pub(super) fn beginnings(&self) -> impl Iterator<Item = &[u8]> {
        // None means all.
        let every = self.wanted.is_empty() || self.wanted.iter().any(|want| want.paths.is_empty());
        let patterns = self.wanted.iter().flat_map(|wanted| &wanted.paths);
        every.then_some(&b""[..]).into_iter().chain(patterns.map(Pattern::beginning))
    }

    /// The methods that the rule names.
    pub(super) fn methods(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().flat_map(|wanted| &wanted.methods).map(String::as_str)
    }

    /// Whether a request has a method of the rule in another case: `pOST` for `POST`.
    pub(super) fn is_misspelled(&self, request: &Asked<'_>) -> bool {
        self.wanted.iter().any(|wanted| wanted.method(request) == Fit::Perhaps)
    }
}

impl Wanted {
    fn new(request: &Request) -> Self {
        let paths = request.paths.iter().map(|path| Pattern::new(path)).collect();
        Self { methods: request.methods.clone(), paths }
    }

    fn method(&self, request: &Asked<'_>) -> Fit {
        let same = |method: &String| match method {
            method if method == request.method => Fit::Yes,
            method if method.eq_ignore_ascii_case(request.method) => Fit::Perhaps,
            _ => Fit::No,
        };
        // None means all.
        self.methods.iter().map(same).max().unwrap_or(Fit::Yes)
    }

    fn path(&self, request: &Asked<'_>) -> Fit {
        if self.paths.is_empty() {
            return Fit::Yes;
        }
        match request.decoded() {
            Some(path) if self.paths.iter().any(|pattern| pattern.matches(path)) => Fit::Yes,
            Some(_) => Fit::No,
            None => Fit::Perhaps,
        }
    }
}

/// Prepares every rule, in the order that they are in.
pub(super) fn prepare(rules: &[Rule]) -> Vec<Prepared> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|number| rules.get(*number).map(precedence));
    let mut ranks = vec![0; rules.len()];
    for (rank, number) in order.into_iter().enumerate() {
        if let Some(place) = ranks.get_mut(number) {
            *place = rank;
        }
    }
    let both = rules.iter().zip(ranks).enumerate();
    both.map(|(number, (rule, rank))| Prepared {
        number,
        rank,
        side: side(rule),
        wanted: rule.http.iter().map(Wanted::new).collect(),
        needs: needs(rule),
    })
    .collect()
}

fn side(rule: &Rule) -> Side {
    match rule.action {
        Action::Allow => Side::Allow,
        Action::Ask => Side::Ask,
        Action::Deny { .. } => Side::Deny,
    }
}

fn needs(rule: &Rule) -> Needs {
    if rule.tls == Tls::Inspect || rule.credential.is_some() || rule.limits.requests.is_some() {
        return Needs::Inspection;
    }
    match (side(rule), rule.http.is_empty(), rule.tls) {
        (Side::Allow, true, Tls::Tunnel) => Needs::Tunnel,
        (_, true, _) => Needs::Nothing,
        (Side::Allow, false, _) => Needs::Requests,
        // What is refused or asked among what passes has to be found.
        (Side::Ask | Side::Deny, false, _) => Needs::Inspection,
    }
}

/// What makes a rule speak for others, the foremost first.
fn precedence(rule: &Rule) -> impl Ord {
    let credential = rule.credential.as_ref().map(|credential| match credential.mode {
        CredentialMode::Swap => 0,
        CredentialMode::Inject => 1,
        CredentialMode::Pin => 2,
    });
    let labels = |name: &str| (plain(name).matches('.').count() + 1) * 2;
    let narrow = match &rule.host {
        Host::Any => 0,
        Host::Domain(name) => labels(name),
        Host::Below(name) => labels(name) + 1,
        Host::Network(network) => network.bits.into(),
        Host::Name(_) | Host::Loopback => usize::MAX,
    };
    let limits = &rule.limits;
    let limited =
        limits.upload.is_some() || limits.requests.is_some() || limits.connections.is_some();
    Reverse((credential, narrow, limited, !rule.resolves_to.is_empty()))
}

/// Rules about one place.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// Their numbers. What wins comes first: denials, then allowances, then asks, each by its rank.
    pub(super) numbers: Vec<usize>,
    /// The way to those about a path, if there are several.
    pub(super) paths: Option<Paths>,
}

impl List {
    fn push(&mut self, number: usize) {
        self.numbers.push(number);
    }

    fn prepare(&mut self, prepared: &[Prepared]) {
        self.numbers.sort_by_key(|number| prepared.get(*number).map(|rule| (rule.side, rule.rank)));
        let rules = self.numbers.iter().filter_map(|number| prepared.get(*number));
        self.paths = (self.numbers.len() > 1).then(|| Paths::of(rules));
    }
}

/// The way from a place to the rules about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    names: HashMap<Box<str>, List>,
    /// By the name that others are below.
    domains: HashMap<Box<str>, List>,
    /// By the number of leading bits, then by those.
    networks: Vec<(u8, HashMap<IpAddr, List>)>,
    loopback: List,
    any: List,
    /// Denials of everything, which are about addresses and the host's loopback as well.
    any_denials: List,
}

impl Index {
    /// Of rules, which were prepared.
    pub(super) fn of(rules: &[Rule], prepared: &[Prepared]) -> Self {
        let mut index = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            match &rule.host {
                Host::Name(name) => index.names.entry(plain(name)).or_default().push(number),
                Host::Below(name) => index.domains.entry(plain(name)).or_default().push(number),
                Host::Domain(name) => {
                    index.names.entry(plain(name)).or_default().push(number);
                    index.domains.entry(plain(name)).or_default().push(number);
                }
                Host::Network(network) => index.network(network, number),
                Host::Loopback => index.loopback.push(number),
                Host::Any => {
                    index.any.push(number);
                    if side(rule) == Side::Deny {
                        index.any_denials.push(number);
                    }
                }
            }
        }
        let Self { names, domains, networks, loopback, any, any_denials } = &mut index;
        let named = names.values_mut().chain(domains.values_mut());
        let ranges = networks.iter_mut().flat_map(|(_, ranges)| ranges.values_mut());
        for list in named.chain(ranges).chain([loopback, any, any_denials]) {
            list.prepare(prepared);
        }
        index
    }

    fn network(&mut self, network: &Network, number: usize) {
        let (address, bits) = match (network.address, network.address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(inner)) if network.bits >= 96 => {
                (IpAddr::V4(inner), network.bits.min(128) - 96)
            }
            (address @ IpAddr::V4(_), _) => (address, network.bits.min(32)),
            (address @ IpAddr::V6(_), _) => (address, network.bits.min(128)),
        };
        let first = leading(address, bits);
        let known = self.networks.iter().position(|(known, _)| *known == bits);
        let place = known.unwrap_or_else(|| {
            self.networks.push((bits, HashMap::new()));
            self.networks.len() - 1
        });
        if let Some((_, ranges)) = self.networks.get_mut(place) {
            ranges.entry(first).or_default().push(number);
        }
    }

    /// The rules about a place, in lists.
    pub(super) fn about(&self, place: &Place) -> impl Iterator<Item = &List> {
        let (name, address, loopback) = match place {
            Place::Name(name) => (Some(name.as_str()), None, None),
            Place::Address(address) => (None, Some(address.to_canonical()), None),
            Place::HostLoopback => (None, None, Some(&self.loopback)),
        };
        let exact = name.and_then(|name| self.names.get(name));
        let domains = name.into_iter().flat_map(|name| {
            let above = name.match_indices('.').filter_map(|(dot, _)| name.get(dot + 1..));
            above.filter_map(|above| self.domains.get(above))
        });
        let networks = address.into_iter().flat_map(|address| {
            let ranges = self.networks.iter();
            ranges.filter_map(move |(bits, ranges)| ranges.get(&leading(address, *bits)))
        });
        let any = if name.is_some() { &self.any } else { &self.any_denials };
        exact.into_iter().chain(domains).chain(networks).chain(loopback).chain([any])
    }
}

/// A name as places have it.
fn plain(name: &str) -> Box<str> {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().into()
}

//! Which addresses a connection may be made to.
//!
//! A name leads to public addresses, and to those that its rule says it may lead to. It never
//! leads to this host, to its neighbours on the wire, or to what serves a cloud machine's own
//! secrets. An address that carries an IPv4 address inside it is judged by the one inside. A rule
//! that names addresses instead of names is the only other way to one.
//!
//! Deliberately absent: looking anything up. What was judged is what is dialled.

use cowork_api::egress::{Host, Network, Rule, SYNTHETIC_V6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// Loopback, link-local, unspecified, multicast, broadcast, an address of this host, or one that
    /// serves a cloud machine's own secrets.
    Local,
    /// An address of a private network that the rule does not name.
    Private,
}

impl Forbidden {
    /// A stable word for it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Local => "local-address",
            Self::Private => "private-address",
        }
    }
}

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anybody's.
    Public,
    /// Inside some organisation or test, as RFC 1918 and its likes say.
    Private,
    /// Of a network that this machine is directly on.
    LinkLocal,
    /// A machine's own.
    Loopback,
    /// Where clouds hand a machine its secrets.
    Metadata,
    /// No single machine's: unspecified, multicast, broadcast, reserved.
    Nobody,
}

/// Whether what `rule` allows may lead to `address`. `own` are the addresses of this host.
pub fn judge(rule: &Rule, address: IpAddr, own: &[IpAddr]) -> Result<(), Forbidden> {
    match &rule.host {
        Host::Network(network) => literal(network, address, own),
        Host::Loopback if address.to_canonical().is_loopback() => Ok(()),
        Host::Loopback => Err(Forbidden::Local),
        Host::Name(_) | Host::Below(_) | Host::Domain(_) | Host::Any => {
            named(&rule.resolves_to, address, own)
        }
    }
}

/// Whether a name that no rule is about, but the user let pass, may lead to `address`.
pub fn judge_without_rule(address: IpAddr, own: &[IpAddr]) -> Result<(), Forbidden> {
    named(&[], address, own)
}

fn named(resolves_to: &[Network], address: IpAddr, own: &[IpAddr]) -> Result<(), Forbidden> {
    if is_own(address, own) {
        return Err(Forbidden::Local);
    }
    let says = |address| resolves_to.iter().any(|network| contains(network, address));
    match kind(address) {
        Kind::Public => Ok(()),
        Kind::Private if says(address.to_canonical()) || inside(address).any(says) => Ok(()),
        Kind::Private => Err(Forbidden::Private),
        Kind::LinkLocal | Kind::Loopback | Kind::Metadata | Kind::Nobody => Err(Forbidden::Local),
    }
}

/// A rule that names addresses means all of them, except those that only a rule for exactly one
/// address can mean, and those that are nobody's.
fn literal(network: &Network, address: IpAddr, own: &[IpAddr]) -> Result<(), Forbidden> {
    let address = address.to_canonical();
    if !contains(network, address) {
        return Err(Forbidden::Private);
    }
    let exact = network.bits == if address.is_ipv4() { 32 } else { 128 };
    match kind(address) {
        Kind::Nobody => Err(Forbidden::Local),
        Kind::Metadata | Kind::Loopback if !exact => Err(Forbidden::Local),
        _ if is_own(address, own) && !exact => Err(Forbidden::Local),
        _ => Ok(()),
    }
}

fn is_own(address: IpAddr, own: &[IpAddr]) -> bool {
    let is = |address: IpAddr| own.iter().any(|own| own.to_canonical() == address);
    is(address.to_canonical()) || inside(address).any(is)
}

/// What an address is for. Where it carries other addresses, the one that least may be reached
/// decides.
pub fn kind(address: IpAddr) -> Kind {
    match address.to_canonical() {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => {
            let whole = kind_v6(address);
            let all = inside(IpAddr::V6(address)).map(kind);
            all.fold(whole, |worst, kind| if graver(kind) > graver(worst) { kind } else { worst })
        }
    }
}

fn graver(kind: Kind) -> u8 {
    match kind {
        Kind::Public => 0,
        Kind::Private => 1,
        Kind::LinkLocal => 2,
        Kind::Loopback => 3,
        Kind::Metadata => 4,
        Kind::Nobody => 5,
    }
}

/// Ranges of IPv4 that are not public, and what they are for. The first that fits decides.
const RANGES_V4: [([u8; 4], u8, Kind); 20] = [
    ([169, 254, 169, 254], 32, Kind::Metadata),
    ([169, 254, 170, 2], 32, Kind::Metadata),
    ([100, 100, 100, 200], 32, Kind::Metadata),
    ([168, 63, 129, 16], 32, Kind::Metadata),
    ([192, 0, 0, 192], 32, Kind::Metadata),
    ([0, 0, 0, 0], 8, Kind::Nobody),
    ([127, 0, 0, 0], 8, Kind::Loopback),
    ([169, 254, 0, 0], 16, Kind::LinkLocal),
    ([224, 0, 0, 0], 4, Kind::Nobody),
    ([240, 0, 0, 0], 4, Kind::Nobody),
    ([10, 0, 0, 0], 8, Kind::Private),
    ([172, 16, 0, 0], 12, Kind::Private),
    ([192, 168, 0, 0], 16, Kind::Private),
    ([100, 64, 0, 0], 10, Kind::Private),
    ([192, 0, 0, 0], 24, Kind::Private),
    // Benchmarks; the synthetic addresses of sessions are of this range.
    ([198, 18, 0, 0], 15, Kind::Private),
    // Documentation: nobody's in the world, somebody's in a laboratory.
    ([192, 0, 2, 0], 24, Kind::Private),
    ([198, 51, 100, 0], 24, Kind::Private),
    ([203, 0, 113, 0], 24, Kind::Private),
    // Relays from IPv6, given up.
    ([192, 88, 99, 0], 24, Kind::Private),
];

/// Ranges of IPv6 that are not public, and what they are for. The first that fits decides.
const RANGES_V6: [([u16; 8], u8, Kind); 19] = [
    ([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0], 32, Kind::Metadata),
    ([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254], 128, Kind::Metadata),
    ([0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, Kind::Metadata),
    ([0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042], 128, Kind::Metadata),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Kind::Nobody),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Kind::Loopback),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Kind::LinkLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Kind::Nobody),
    // Discards what it gets.
    ([0x0100, 0, 0, 0, 0, 0, 0, 0], 64, Kind::Nobody),
    (SYNTHETIC_V6.0, SYNTHETIC_V6.1, Kind::Private),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Kind::Private),
    // Site-local, given up.
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Kind::Private),
    // Translation within one organisation: where the IPv4 address is in it, only that one knows.
    ([0x0064, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Kind::Private),
    // Benchmarks.
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Kind::Private),
    // Cryptographic identifiers, given up and current.
    ([0x2001, 0x0010, 0, 0, 0, 0, 0, 0], 28, Kind::Private),
    ([0x2001, 0x0020, 0, 0, 0, 0, 0, 0], 28, Kind::Private),
    // Documentation.
    ([0x2001, 0x0db8, 0, 0, 0, 0, 0, 0], 32, Kind::Private),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Kind::Private),
    // Segments of a router's program.
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Kind::Private),
];

fn kind_v4(address: Ipv4Addr) -> Kind {
    let address = IpAddr::V4(address);
    let fits = |(first, bits, _): &&([u8; 4], u8, Kind)| {
        contains(&Network { address: Ipv4Addr::from(*first).into(), bits: *bits }, address)
    };
    RANGES_V4.iter().find(fits).map_or(Kind::Public, |(_, _, kind)| *kind)
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let address = IpAddr::V6(address);
    let fits = |(first, bits, _): &&([u16; 8], u8, Kind)| {
        contains(&Network { address: Ipv6Addr::from(*first).into(), bits: *bits }, address)
    };
    RANGES_V6.iter().find(fits).map_or(Kind::Public, |(_, _, kind)| *kind)
}

/// The IPv4 addresses that an IPv6 address carries: mapped, compatible, translated (SIIT, NAT64),
/// 6to4, Teredo (its server and its client), ISATAP.
fn inside(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let found = match address {
        IpAddr::V4(_) => [None, None],
        IpAddr::V6(address) => carried(address),
    };
    found.into_iter().flatten().map(IpAddr::V4)
}

fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // The unspecified address and loopback are themselves.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            [v4(high, low), None]
        }
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => [v4(high, low), None],
        [0x2002, high, low, ..] => [v4(high, low), None],
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            [v4(high, low), v4(!client_high, !client_low)]
        }
        [_, _, _, _, 0x0000 | 0x0200, 0x5efe, high, low] => [v4(high, low), None],
        _ => [None, None],
    }
}

/// An address with all but its leading bits cleared.
pub(super) fn leading(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// Whether no name can lead into a range, whatever its rule says.
pub(super) fn is_never_reached(network: &Network) -> bool {
    let first = leading(network.address, network.bits);
    let (last, most) = match first {
        IpAddr::V4(first) => {
            let rest = u32::MAX.checked_shr(network.bits.into()).unwrap_or(0);
            (kind_v4(Ipv4Addr::from(u32::from(first) | rest)), 32)
        }
        IpAddr::V6(first) => {
            let rest = u128::MAX.checked_shr(network.bits.into()).unwrap_or(0);
            (kind_v6(Ipv6Addr::from(u128::from(first) | rest)), 128)
        }
    };
    let local = |kind| graver(kind) > graver(Kind::Private);
    let begins = match first {
        IpAddr::V4(first) => kind_v4(first),
        IpAddr::V6(first) => kind_v6(first),
    };
    match network.bits {
        // All there is.
        0 => false,
        bits if bits >= most => local(kind(first)),
        _ => local(begins) && local(last),
    }
}

/// Whether a range has an address.
pub fn contains(network: &Network, address: IpAddr) -> bool {
    match (network.address, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let shift = 32_u32.saturating_sub(network.bits.into());
            u32::from(first).checked_shr(shift) == u32::from(address).checked_shr(shift)
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let shift = 128_u32.saturating_sub(network.bits.into());
            u128::from(first).checked_shr(shift) == u128::from(address).checked_shr(shift)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

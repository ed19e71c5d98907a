//! Ranges of addresses.

use cowork_api::egress::Network;
use cowork_policy::egress::address::contains;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address or a range of them, as `10.0.0.0/8`, `192.168.1.10`, `fc00::/7`. Bits behind the
/// range do not matter.
pub fn range(text: &str) -> Option<Network> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = most(address);
    let bits = match bits {
        Some(bits) => {
            let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            bits.parse().ok().filter(|bits| plain && *bits <= most)?
        }
        None => most,
    };
    let network = match address.to_canonical() {
        inner @ IpAddr::V4(_) if address.is_ipv6() => {
            Network { address: inner, bits: bits.checked_sub(96)? }
        }
        _ => Network { address, bits },
    };
    Some(Network { address: first(network.address, network.bits), bits: network.bits })
}

fn most(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address with all but its leading bits cleared.
fn first(address: IpAddr, bits: u8) -> IpAddr {
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

/// The ranges that are left of one without an address; the range itself if it does not have it.
pub fn without(range: &Network, hole: IpAddr) -> Vec<Network> {
    if !contains(range, hole) {
        return vec![*range];
    }
    let mut left = Vec::new();
    let mut bits = range.bits;
    while bits < most(range.address) {
        bits += 1;
        let (low, high) = halves(first(hole, bits - 1), bits);
        let other = if first(hole, bits) == low { high } else { low };
        left.push(Network { address: other, bits });
    }
    left
}

/// The two halves, of so many bits, of the range that begins at an address.
fn halves(start: IpAddr, bits: u8) -> (IpAddr, IpAddr) {
    let upper = match start {
        IpAddr::V4(address) => {
            let bit = 1_u32.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) | bit).into()
        }
        IpAddr::V6(address) => {
            let bit = 1_u128.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) | bit).into()
        }
    };
    (start, upper)
}

/// As a rule writes it.
pub fn shown(range: &Network) -> String {
    let Network { address, bits } = range;
    match address {
        _ if *bits == most(*address) && address.is_ipv4() => address.to_string(),
        _ if *bits == most(*address) => format!("[{address}]"),
        _ => format!("{address}/{bits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{range, shown, without};
    use cowork_policy::egress::address::contains;

    #[test]
    fn ranges_are_read_and_written() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("192.168.1.10", "192.168.1.10"),
            ("fc00::/7", "fc00::/7"),
            ("2001:db8::1", "[2001:db8::1]"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(range(text).as_ref().map(shown).as_deref(), Some(expected), "{text}");
        }
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "[::1]", "::/129", "a", "10.0.0.0/+8"]
        {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn a_hole_is_the_only_address_that_is_missing() {
        for (text, hole) in [
            ("10.0.0.0/8", "10.20.30.40"),
            ("192.168.1.0/30", "192.168.1.3"),
            ("192.168.1.1", "192.168.1.1"),
            ("fc00::/7", "fd00::1"),
            ("0.0.0.0/0", "127.0.0.1"),
        ] {
            let whole = range(text).unwrap();
            let hole: std::net::IpAddr = hole.parse().unwrap();
            let left = without(&whole, hole);
            assert!(left.iter().all(|part| !contains(part, hole)), "{text}");
            assert!(left.iter().all(|part| contains(&whole, part.address)), "{text}");
            // Parts that do not meet and whose sizes add up to all but one are the rest.
            let most = u32::from(super::most(hole));
            let size = |bits: u8| 1_u128.checked_shl(most - u32::from(bits)).unwrap_or(0);
            let sum = left.iter().fold(0_u128, |sum, part| sum.wrapping_add(size(part.bits)));
            assert_eq!(sum, size(whole.bits).wrapping_sub(1), "{text}");
        }
        let whole = range("10.0.0.0/8").unwrap();
        assert_eq!(without(&whole, "11.0.0.1".parse().unwrap()), [whole]);
    }
}

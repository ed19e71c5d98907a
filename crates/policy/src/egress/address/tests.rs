//! Every range at its edges, and what carries an address inside it.

use super::{Forbidden, Kind, contains, judge, judge_without_rule, kind};
use cowork_api::egress::{Action, Host, Network, Ports, Quota, Rule, Tls};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn network(text: &str) -> Network {
    let (address, bits) = text.split_once('/').unwrap();
    Network { address: address.parse().unwrap(), bits: bits.parse().unwrap() }
}

fn rule(host: Host, resolves_to: &[&str]) -> Rule {
    Rule {
        name: "a rule".into(),
        action: Action::Allow,
        host,
        ports: Ports::Web,
        http: Vec::new(),
        tls: Tls::AsNeeded,
        resolves_to: resolves_to.iter().map(|text| network(text)).collect(),
        credential: None,
        limits: Quota::default(),
    }
}

fn name(resolves_to: &[&str]) -> Rule {
    rule(Host::Name("a.example".into()), resolves_to)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The first and last address of every range, with its neighbours where those are public.
const TABLE: &[(&str, Kind)] = &[
    ("0.0.0.0", Kind::Nobody),
    ("0.255.255.255", Kind::Nobody),
    ("1.0.0.0", Kind::Public),
    ("9.255.255.255", Kind::Public),
    ("10.0.0.0", Kind::Private),
    ("10.255.255.255", Kind::Private),
    ("11.0.0.0", Kind::Public),
    ("100.63.255.255", Kind::Public),
    ("100.64.0.0", Kind::Private),
    ("100.100.100.199", Kind::Private),
    ("100.100.100.200", Kind::Metadata),
    ("100.127.255.255", Kind::Private),
    ("100.128.0.0", Kind::Public),
    ("126.255.255.255", Kind::Public),
    ("127.0.0.0", Kind::Loopback),
    ("127.0.0.1", Kind::Loopback),
    ("127.255.255.255", Kind::Loopback),
    ("128.0.0.0", Kind::Public),
    ("168.63.129.15", Kind::Public),
    ("168.63.129.16", Kind::Metadata),
    ("169.253.255.255", Kind::Public),
    ("169.254.0.0", Kind::LinkLocal),
    ("169.254.169.254", Kind::Metadata),
    ("169.254.170.2", Kind::Metadata),
    ("169.254.255.255", Kind::LinkLocal),
    ("169.255.0.0", Kind::Public),
    ("172.15.255.255", Kind::Public),
    ("172.16.0.0", Kind::Private),
    ("172.31.255.255", Kind::Private),
    ("172.32.0.0", Kind::Public),
    ("192.0.0.0", Kind::Private),
    ("192.0.0.192", Kind::Metadata),
    ("192.0.0.255", Kind::Private),
    ("192.0.1.0", Kind::Public),
    ("192.0.2.1", Kind::Private),
    ("192.88.99.1", Kind::Private),
    ("192.167.255.255", Kind::Public),
    ("192.168.0.0", Kind::Private),
    ("192.168.255.255", Kind::Private),
    ("192.169.0.0", Kind::Public),
    ("198.17.255.255", Kind::Public),
    ("198.18.0.0", Kind::Private),
    ("198.19.255.255", Kind::Private),
    ("198.20.0.0", Kind::Public),
    ("198.51.100.7", Kind::Private),
    ("203.0.113.7", Kind::Private),
    ("223.255.255.255", Kind::Public),
    ("224.0.0.0", Kind::Nobody),
    ("239.255.255.255", Kind::Nobody),
    ("240.0.0.0", Kind::Nobody),
    ("255.255.255.255", Kind::Nobody),
    ("::", Kind::Nobody),
    ("::1", Kind::Loopback),
    ("::2", Kind::Nobody),
    ("::127.0.0.1", Kind::Loopback),
    ("::10.1.2.3", Kind::Private),
    ("::8.8.8.8", Kind::Public),
    ("::ffff:127.0.0.1", Kind::Loopback),
    ("::ffff:169.254.169.254", Kind::Metadata),
    ("::ffff:8.8.8.8", Kind::Public),
    ("::ffff:0:127.0.0.1", Kind::Loopback),
    ("::ffff:0:10.0.0.1", Kind::Private),
    ("64:ff9b::7f00:1", Kind::Loopback),
    ("64:ff9b::a9fe:a9fe", Kind::Metadata),
    ("64:ff9b::a00:1", Kind::Private),
    ("64:ff9b::808:808", Kind::Public),
    ("64:ff9b:1::808:808", Kind::Private),
    ("100::1", Kind::Nobody),
    ("100:0:0:1::1", Kind::Public),
    // Teredo: the server's address is in front, the client's, inverted, behind.
    ("2001:0:a00:1::", Kind::Nobody),
    ("2001:0:0808:0808:0:0:f7f7:f7f7", Kind::Public),
    ("2001:0:0808:0808:0:0:80ff:fffe", Kind::Loopback),
    ("2001:0:7f00:1:0:0:f7f7:f7f7", Kind::Loopback),
    ("2001:2::1", Kind::Private),
    ("2001:2:1::1", Kind::Public),
    ("2001:10::1", Kind::Private),
    ("2001:2f::1", Kind::Private),
    ("2001:30::1", Kind::Public),
    ("2001:db8::1", Kind::Private),
    ("2001:4860:4860::8888", Kind::Public),
    ("2002:7f00:1::1", Kind::Loopback),
    ("2002:a9fe:a9fe::1", Kind::Metadata),
    ("2002:c0a8:1::1", Kind::Private),
    ("2002:808:808::1", Kind::Public),
    ("2606:4700::5efe:7f00:1", Kind::Loopback),
    ("2606:4700::200:5efe:a00:1", Kind::Private),
    ("3fff::1", Kind::Private),
    ("5f00::1", Kind::Private),
    ("fbff::1", Kind::Public),
    ("fc00::1", Kind::Private),
    ("fd63:6f77:6f72:6b00::1", Kind::Private),
    ("fd00:ec2::254", Kind::Metadata),
    ("fd00:ec2:ffff::", Kind::Metadata),
    ("fd20:ce::254", Kind::Metadata),
    ("fd00:c1::a9fe:a9fe", Kind::Metadata),
    ("fd00:42::42", Kind::Metadata),
    ("fdff:ffff::1", Kind::Private),
    ("fe80::1", Kind::LinkLocal),
    ("febf:ffff::1", Kind::LinkLocal),
    ("fec0::1", Kind::Private),
    ("ff02::1", Kind::Nobody),
];

#[test]
fn every_range_is_known_for_what_it_is() {
    for (text, expected) in TABLE {
        assert_eq!(kind(ip(text)), *expected, "{text}");
    }
}

#[test]
fn a_name_leads_to_public_addresses_only() {
    for (text, kind) in TABLE {
        let expected = match kind {
            Kind::Public => Ok(()),
            Kind::Private => Err(Forbidden::Private),
            _ => Err(Forbidden::Local),
        };
        assert_eq!(judge(&name(&[]), ip(text), &[]), expected, "{text}");
        assert_eq!(judge_without_rule(ip(text), &[]), expected, "{text}");
    }
}

#[test]
fn a_rule_can_name_private_addresses_and_never_local_ones() {
    let everything = name(&["0.0.0.0/0", "::/0"]);
    for (text, kind) in TABLE {
        let expected = match kind {
            Kind::Public | Kind::Private => Ok(()),
            _ => Err(Forbidden::Local),
        };
        assert_eq!(judge(&everything, ip(text), &[]), expected, "{text}");
    }
    let some = name(&["10.20.0.0/16", "fd12::/16"]);
    assert_eq!(judge(&some, ip("10.20.255.1"), &[]), Ok(()));
    assert_eq!(judge(&some, ip("10.21.0.1"), &[]), Err(Forbidden::Private));
    assert_eq!(judge(&some, ip("fd12:1::1"), &[]), Ok(()));
    assert_eq!(judge(&some, ip("fd13::1"), &[]), Err(Forbidden::Private));
}

#[test]
fn what_carries_a_private_address_may_be_named_by_either() {
    let inner = name(&["10.0.0.0/8"]);
    let outer = name(&["64:ff9b::/96"]);
    for text in ["64:ff9b::a00:1", "::ffff:10.0.0.1", "2002:a00:1::1"] {
        assert_eq!(judge(&inner, ip(text), &[]), Ok(()), "{text}");
    }
    assert_eq!(judge(&outer, ip("64:ff9b::a00:1"), &[]), Ok(()));
    assert_eq!(judge(&outer, ip("64:ff9b::7f00:1"), &[]), Err(Forbidden::Local));
}

#[test]
fn this_host_is_not_reached_by_name() {
    let own = [ip("93.184.216.34"), ip("2606:4700::1"), ip("10.0.0.5")];
    for text in ["93.184.216.34", "::ffff:93.184.216.34", "2606:4700::1", "10.0.0.5"] {
        let all = name(&["0.0.0.0/0", "::/0"]);
        assert_eq!(judge(&all, ip(text), &own), Err(Forbidden::Local), "{text}");
    }
    assert_eq!(judge(&name(&[]), ip("64:ff9b::5db8:d822"), &own), Err(Forbidden::Local));
    assert_eq!(judge(&name(&[]), ip("93.184.216.35"), &own), Ok(()));
}

#[test]
fn a_rule_for_addresses_means_what_it_names() {
    let own = [ip("192.168.1.10")];
    let judged = |text: &str, address: &str| {
        judge(&rule(Host::Network(network(text)), &[]), ip(address), &own)
    };
    let table = [
        ("10.0.0.0/8", "10.1.2.3", Ok(())),
        ("10.0.0.0/8", "11.1.2.3", Err(Forbidden::Private)),
        ("10.0.0.0/8", "::ffff:10.1.2.3", Ok(())),
        ("169.254.0.0/16", "169.254.1.1", Ok(())),
        ("169.254.0.0/16", "169.254.169.254", Err(Forbidden::Local)),
        ("169.254.169.254/32", "169.254.169.254", Ok(())),
        ("127.0.0.0/8", "127.0.0.1", Err(Forbidden::Local)),
        ("127.0.0.1/32", "127.0.0.1", Ok(())),
        ("::1/128", "::1", Ok(())),
        ("::/0", "::1", Err(Forbidden::Local)),
        ("::/0", "64:ff9b::7f00:1", Err(Forbidden::Local)),
        ("64:ff9b::7f00:1/128", "64:ff9b::7f00:1", Ok(())),
        ("192.168.0.0/16", "192.168.1.11", Ok(())),
        ("192.168.0.0/16", "192.168.1.10", Err(Forbidden::Local)),
        ("192.168.1.10/32", "192.168.1.10", Ok(())),
        ("0.0.0.0/32", "0.0.0.0", Err(Forbidden::Local)),
        ("224.0.0.0/4", "224.0.0.1", Err(Forbidden::Local)),
        ("255.255.255.255/32", "255.255.255.255", Err(Forbidden::Local)),
        ("0.0.0.0/0", "8.8.8.8", Ok(())),
    ];
    for (text, address, expected) in table {
        assert_eq!(judged(text, address), expected, "{text} {address}");
    }
}

#[test]
fn the_loopback_rule_is_for_loopback() {
    let rule = rule(Host::Loopback, &[]);
    for text in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(judge(&rule, ip(text), &[]), Ok(()), "{text}");
    }
    for text in ["10.0.0.1", "8.8.8.8", "0.0.0.0", "::"] {
        assert_eq!(judge(&rule, ip(text), &[]), Err(Forbidden::Local), "{text}");
    }
}

#[test]
fn ranges_begin_and_end_where_they_say() {
    let table = [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("1.2.3.4/32", "1.2.3.4", true),
        ("1.2.3.4/32", "1.2.3.5", false),
        ("::/0", "ffff::", true),
        ("::/0", "1.2.3.4", false),
        ("2001:db8::/33", "2001:db8:7fff::", true),
        ("2001:db8::/33", "2001:db8:8000::", false),
        ("1.2.3.4/255", "1.2.3.4", true),
    ];
    for (text, address, expected) in table {
        assert_eq!(contains(&network(text), ip(address)), expected, "{text} {address}");
    }
}

proptest! {
    /// However an IPv4 address is dressed, a name may lead to it exactly if it may undressed.
    #[test]
    fn dressing_an_address_changes_nothing(bits: u32, own: u32, near in any::<bool>()) {
        let plain = Ipv4Addr::from(bits);
        let own = [IpAddr::V4(Ipv4Addr::from(if near { bits } else { own }))];
        let [a, b, c, d] = plain.octets();
        let pair = |x: u8, y: u8| u16::from_be_bytes([x, y]);
        let (high, low) = (pair(a, b), pair(c, d));
        let dresses = [
            [0, 0, 0, 0, 0, 0xffff, high, low],
            [0, 0, 0, 0, 0xffff, 0, high, low],
            [0x64, 0xff9b, 0, 0, 0, 0, high, low],
            [0x2002, high, low, 0, 0, 0, 0, 1],
            [0x2001, 0, 0x0808, 0x0808, 0, 0, !high, !low],
            [0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low],
        ];
        let expected = judge(&name(&[]), plain.into(), &own);
        for dress in dresses {
            let dressed = IpAddr::V6(Ipv6Addr::from(dress));
            prop_assert_eq!(judge(&name(&[]), dressed, &own), expected, "{}", dressed);
        }
        if high != 0 {
            let compatible = IpAddr::V6(Ipv6Addr::from([0, 0, 0, 0, 0, 0, high, low]));
            prop_assert_eq!(judge(&name(&[]), compatible, &own), expected);
        }
    }

    /// No address that the standard library knows to be special is reached by a name.
    #[test]
    fn what_std_calls_special_is_refused(bits: u128, four: u32, pick in 0_usize..12) {
        let octets = four.to_be_bytes();
        let v4 = match pick {
            0 => Ipv4Addr::new(127, octets[1], octets[2], octets[3]),
            1 => Ipv4Addr::new(10, octets[1], octets[2], octets[3]),
            2 => Ipv4Addr::new(172, 0x10 | (octets[1] & 0x0f), octets[2], octets[3]),
            3 => Ipv4Addr::new(192, 168, octets[2], octets[3]),
            4 => Ipv4Addr::new(169, 254, octets[2], octets[3]),
            5 => Ipv4Addr::new(0xe0 | (octets[0] & 0x1f), octets[1], octets[2], octets[3]),
            _ => Ipv4Addr::from(four),
        };
        let special = v4.is_private() || v4.is_loopback() || v4.is_link_local()
            || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified()
            || v4.is_multicast();
        prop_assert!(!special || judge(&name(&[]), v4.into(), &[]).is_err(), "{}", v4);
        let top: u128 = match pick { 6 => 0xfe80, 7 => 0xfc00, 8 => 0xff02, 9 => 0xfd00, _ => 0 };
        let v6 = if top == 0 { bits } else { (bits & (u128::MAX >> 16)) | (top << 112) };
        let v6 = Ipv6Addr::from(v6);
        let special = v6.is_loopback() || v6.is_multicast() || v6.is_unique_local()
            || v6.is_unicast_link_local() || v6.is_unspecified();
        prop_assert!(!special || judge(&name(&[]), v6.into(), &[]).is_err(), "{}", v6);
    }

    /// A range contains what shares its leading bits, counted one by one.
    #[test]
    fn a_range_is_its_leading_bits(first: u128, other: u128, bits in 0_u8..=128, flip in 0_u32..128) {
        let leading = |value: u128| (0..bits).map(|bit| value >> (127 - bit) & 1).collect::<Vec<_>>();
        let range = Network { address: Ipv6Addr::from(first).into(), bits };
        for other in [other, first ^ (1 << flip)] {
            let expected = leading(first) == leading(other);
            prop_assert_eq!(contains(&range, Ipv6Addr::from(other).into()), expected);
        }
    }
}

//! The rules by which connections to every port of a synthetic address reach one listener.
//!
//! Packets to a synthetic address come back in through the loopback device, since the address is
//! the network's own. There the kernel is told to give those that begin a connection to the
//! listener, whatever their port: the accepted socket has the address and port that the connection
//! was made to. Nothing is rewritten, and no connection is tracked.
//!
//! The rules are in a table of the network that they are about, and go with it. They are made by
//! messages to the kernel: no program of the host is needed.

use crate::keeper::netlink::{ACK, Attributes, CREATE, EXCL, Family, LOOPBACK, Messages, Netlink};
use cowork_api::egress::{SYNTHETIC_V4, SYNTHETIC_V6};
use cowork_sys::Errno;

/// The name of the table.
const TABLE: &str = "cowork";
/// The name of the chain.
const CHAIN: &str = "capture";

/// Messages about tables, as the kernel numbers them.
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// Both families of addresses in one table.
const INET: u8 = 1;
/// Rules are carried out with no other place to keep a value in.
const REGISTER: u32 = 1;
/// The place of the verdict.
const VERDICT: u32 = 0;

/// Leads every connection to a synthetic address, on this network's loopback device, to the
/// transparent listener on `port`. All of it is in force afterwards, or nothing is.
pub(super) fn capture(port: u16) -> Result<(), Errno> {
    let netlink = Netlink::netfilter()?;
    match netlink.ask(&batch(port, Former::None), 1) {
        // The kernel takes long to be done with one that is replaced: only if there is one.
        Err(Errno::EXIST) => Netlink::netfilter()?.ask(&batch(port, Former::Replaced), 1),
        result => result,
    }
}

/// Whether the network has the table already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Former {
    /// It must not.
    None,
    /// It may; that one goes.
    Replaced,
}

fn batch(port: u16, former: Former) -> Messages {
    let fixed = [INET, 0, 0, 0];
    let [high, low] = SUBSYSTEM.to_be_bytes();
    let table = Attributes::default().text(1, TABLE);
    let mut messages = Messages::default();
    messages.add(BATCH_BEGIN, 0, &[0, 0, high, low], &Attributes::default());
    if former == Former::Replaced {
        // To be deleted it must be there.
        messages.add(NEW_TABLE, CREATE, &fixed, &table);
        messages.add(DELETE_TABLE, 0, &fixed, &table);
    }
    messages.add(NEW_TABLE, CREATE | EXCL, &fixed, &table);
    messages.add(NEW_CHAIN, CREATE, &fixed, &chain());
    for (family, flags) in [(Family::V4, 0), (Family::V6, ACK)] {
        messages.add(NEW_RULE, flags | CREATE, &fixed, &rule(family, port));
    }
    messages.add(BATCH_END, 0, &[0, 0, high, low], &Attributes::default());
    messages
}

/// A chain that sees what arrives before it is routed, where packets are marked.
fn chain() -> Attributes {
    const PREROUTING: u32 = 0;
    const MANGLE: i32 = -150;
    let hook = Attributes::default().number(1, PREROUTING).number(2, MANGLE.cast_unsigned());
    Attributes::default().text(1, TABLE).text(3, CHAIN).nested(4, &hook).text(7, "filter")
}

/// What arrives from the loopback device for a synthetic address by TCP is given to the listener.
/// Packets that belong to a connection end at the socket that has it, in either direction.
fn rule(family: Family, port: u16) -> Attributes {
    const DEVICE: u32 = 4;
    const FAMILY: u32 = 15;
    const PROTOCOL: u32 = 16;
    const TCP: u8 = 6;
    const ACCEPT: u32 = 1;
    let number = family.number();
    let mut parts = vec![
        meta(DEVICE),
        equals(&LOOPBACK.to_ne_bytes()),
        meta(FAMILY),
        equals(&[number]),
        meta(PROTOCOL),
        equals(&[TCP]),
    ];
    parts.extend(destination(family));
    parts.push(immediate(REGISTER, &Attributes::default().with(1, &port.to_be_bytes())));
    let tproxy = Attributes::default().number(1, u32::from(number)).number(3, REGISTER);
    parts.push(expression("tproxy", &tproxy));
    let accept = Attributes::default().number(1, ACCEPT);
    parts.push(immediate(VERDICT, &Attributes::default().nested(2, &accept)));
    let expressions =
        parts.iter().fold(Attributes::default(), |expressions, part| expressions.nested(1, part));
    Attributes::default().text(1, TABLE).text(2, CHAIN).nested(4, &expressions)
}

/// The destination is in the synthetic range.
fn destination(family: Family) -> [Attributes; 3] {
    match family {
        Family::V4 => {
            let (prefix, length) = SYNTHETIC_V4;
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            [payload(16, 4), masked(&mask.to_be_bytes()), equals(&prefix)]
        }
        Family::V6 => {
            let (prefix, length) = SYNTHETIC_V6;
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let prefix: Vec<u8> = prefix.iter().flat_map(|part| part.to_be_bytes()).collect();
            [payload(24, 16), masked(&mask.to_be_bytes()), equals(&prefix)]
        }
    }
}

fn expression(name: &str, data: &Attributes) -> Attributes {
    Attributes::default().text(1, name).nested(2, data)
}

/// Loads what is known of a packet beside its bytes.
fn meta(key: u32) -> Attributes {
    expression("meta", &Attributes::default().number(1, REGISTER).number(2, key))
}

/// Loads bytes of the network header.
fn payload(offset: u32, length: u32) -> Attributes {
    const NETWORK_HEADER: u32 = 1;
    let data = Attributes::default().number(1, REGISTER).number(2, NETWORK_HEADER);
    expression("payload", &data.number(3, offset).number(4, length))
}

/// Keeps those bits of the register that are in the mask.
fn masked(mask: &[u8]) -> Attributes {
    let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
    let zeroes = vec![0; mask.len()];
    let data = Attributes::default().number(1, REGISTER).number(2, REGISTER).number(3, length);
    let data = data
        .nested(4, &Attributes::default().with(1, mask))
        .nested(5, &Attributes::default().with(1, &zeroes));
    expression("bitwise", &data)
}

/// The rule goes on if the register has this value.
fn equals(value: &[u8]) -> Attributes {
    const EQUAL: u32 = 0;
    let data = Attributes::default().number(1, REGISTER).number(2, EQUAL);
    expression("cmp", &data.nested(3, &Attributes::default().with(1, value)))
}

/// Sets a register.
fn immediate(register: u32, value: &Attributes) -> Attributes {
    expression("immediate", &Attributes::default().number(1, register).nested(2, value))
}

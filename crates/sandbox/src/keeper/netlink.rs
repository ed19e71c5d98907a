//! Messages of the kernel's netlink families, and the routes and addresses that are made with them.
//!
//! Only what this program says is here: a message is built whole, sent, and what the kernel answers
//! about it is read at once, for it has answered when the send returns.

use cowork_api::egress::{SYNTHETIC_V4, SYNTHETIC_V6};
use cowork_sys::Errno;
use rustix::fd::OwnedFd;
use rustix::net::netlink::NETFILTER;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// It is a request.
pub(super) const REQUEST: u16 = 0x1;
/// It is answered, whatever comes of it.
pub(super) const ACK: u16 = 0x4;
/// What is there already is an error.
pub(super) const EXCL: u16 = 0x200;
/// What is not there is made.
pub(super) const CREATE: u16 = 0x400;

/// The type of an answer.
const ERROR: u16 = 2;
/// Marks an attribute that has attributes in it.
const NESTED: u16 = 0x8000;
/// Bytes of the header of a message.
const HEADER: usize = 16;

/// The index of the loopback device: it is the first of every network.
pub(super) const LOOPBACK: u32 = 1;

/// Attributes, one after the other.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        // No value here is longer than a few hundred bytes.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute that has attributes in it.
    pub(super) fn nested(self, kind: u16, within: &Self) -> Self {
        self.with(kind | NESTED, &within.0)
    }

    /// Adds a number in the order of the network.
    pub(super) fn number(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_be_bytes())
    }

    /// Adds a text, which ends with a zero.
    pub(super) fn text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), b"\0"].concat())
    }
}

/// Several messages that are sent in one piece.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    last: u32,
}

impl Messages {
    /// Adds a message with the fixed part of its family and its attributes.
    pub(super) fn add(&mut self, kind: u16, flags: u16, fixed: &[u8], attributes: &Attributes) {
        self.last += 1;
        let length = u32::try_from(HEADER + fixed.len() + attributes.0.len()).unwrap_or(u32::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | REQUEST).to_ne_bytes());
        self.bytes.extend(self.last.to_ne_bytes());
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend(fixed);
        self.bytes.extend(&attributes.0);
    }
}

/// A conversation with the kernel.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    /// About routes.
    pub(super) fn route() -> Result<Self, Errno> {
        // It has the number zero, which is that of no protocol.
        Self::new(None)
    }

    /// About the filters of packets.
    pub(super) fn netfilter() -> Result<Self, Errno> {
        Self::new(Some(NETFILTER))
    }

    fn new(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map(Self)
    }

    /// Sends messages of which `acknowledged` ask for an answer, and reads as many. The first that
    /// is a failure is the result.
    pub(super) fn ask(&self, messages: &Messages, acknowledged: u32) -> Result<(), Errno> {
        send(&self.0, &messages.bytes, SendFlags::empty())?;
        for _ in 0..acknowledged {
            let mut answer = [0; 4096];
            let (_, length) = recv(&self.0, &mut answer, RecvFlags::DONTWAIT)?;
            let answer = answer.get(..length).ok_or(Errno::MSGSIZE)?;
            refused(answer).map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

/// What an answer says is wrong, if anything.
fn refused(answer: &[u8]) -> Option<Errno> {
    let kind = answer.get(4..6)?.try_into().map(u16::from_ne_bytes).ok()?;
    let code = answer.get(HEADER..HEADER + 4)?.try_into().map(i32::from_ne_bytes).ok()?;
    match (kind, code) {
        (ERROR, 0) => None,
        (ERROR, code) => Some(Errno::from_raw_os_error(code.saturating_neg())),
        _ => Some(Errno::BADMSG),
    }
}

/// Makes every synthetic address one of this network's own, so that connections to it arrive here.
/// Without IPv6 only those of IPv4 are.
///
/// The loopback device bears one of them: a family of which it has no address but that of the
/// loopback is taken for missing by programs that ask only for names they could reach.
pub(super) fn add_synthetic_addresses() -> Result<(), Errno> {
    let netlink = Netlink::route()?;
    let (prefix, length) = SYNTHETIC_V4;
    add_range(&netlink, Family::V4, &prefix, length)?;
    let (prefix, length) = SYNTHETIC_V6;
    let prefix: Vec<u8> = prefix.iter().flat_map(|part| part.to_be_bytes()).collect();
    match add_range(&netlink, Family::V6, &prefix, length) {
        Err(errno) if !lacks_v6(errno) => Err(errno),
        _ => Ok(()),
    }
}

fn add_range(netlink: &Netlink, family: Family, prefix: &[u8], length: u8) -> Result<(), Errno> {
    add_local_route(netlink, family, prefix, length)?;
    let mut first = prefix.to_vec();
    if let Some(last) = first.last_mut() {
        *last |= 1;
    }
    add_address(netlink, family, &first)
}

/// Whether this is what the kernel says when it has no IPv6, or has it switched off.
pub(super) fn lacks_v6(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NODEV | Errno::ADDRNOTAVAIL
    )
}

/// The two families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The kernel's number for it.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }
}

/// A route by which addresses that begin with `prefix` are this network's own.
fn add_local_route(
    netlink: &Netlink,
    family: Family,
    prefix: &[u8],
    length: u8,
) -> Result<(), Errno> {
    const NEW_ROUTE: u16 = 24;
    const DESTINATION: u16 = 1;
    const DEVICE: u16 = 4;
    /// The table of the addresses that are this network's own.
    const TABLE_LOCAL: u8 = 255;
    /// Made by an administrator, as opposed to the kernel.
    const STATIC: u8 = 4;
    const TYPE_LOCAL: u8 = 2;
    // In IPv6 routes have no scope.
    let scope = match family {
        Family::V4 => 254,
        Family::V6 => 0,
    };
    let fixed = [family.number(), length, 0, 0, TABLE_LOCAL, STATIC, scope, TYPE_LOCAL, 0, 0, 0, 0];
    let attributes =
        Attributes::default().with(DESTINATION, prefix).with(DEVICE, &LOOPBACK.to_ne_bytes());
    add(netlink, NEW_ROUTE, &fixed, &attributes)
}

/// One address of the loopback device.
fn add_address(netlink: &Netlink, family: Family, address: &[u8]) -> Result<(), Errno> {
    const NEW_ADDRESS: u16 = 20;
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    /// Nobody else can have it, so nobody is asked.
    const NO_DETECTION: u8 = 2;
    let (length, flags) = match family {
        Family::V4 => (32, 0),
        Family::V6 => (128, NO_DETECTION),
    };
    let mut fixed = vec![family.number(), length, flags, 0];
    fixed.extend(LOOPBACK.to_ne_bytes());
    let attributes = Attributes::default().with(LOCAL, address).with(ADDRESS, address);
    add(netlink, NEW_ADDRESS, &fixed, &attributes)
}

/// Makes what is not there yet.
fn add(netlink: &Netlink, kind: u16, fixed: &[u8], attributes: &Attributes) -> Result<(), Errno> {
    let mut messages = Messages::default();
    messages.add(kind, ACK | CREATE | EXCL, fixed, attributes);
    match netlink.ask(&messages, 1) {
        Err(Errno::EXIST) => Ok(()),
        result => result,
    }
}

//! Reaching a host that was allowed.
//!
//! A name is looked up once, by the host's own means, and only after it was allowed. Addresses that
//! it may not lead to are dropped; one of the others is dialled, and it is the very address that was
//! judged. Behind a parent proxy it is the parent that looks names up: then the name is judged, and
//! the address is the parent's.

use crate::house::House;
use crate::lookup::look_up;
use crate::office::{Allowed, Refusal};
use cowork_api::egress::Begin;
use cowork_policy::egress::address::{Forbidden, judge, judge_without_rule};
use cowork_policy::egress::{Outcome, Place};
use cowork_sys::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::parent::ParentProxy;

/// Longest that looking up and connecting may take together.
pub const TIME_TO_CONNECT: Duration = Duration::from_secs(10);
/// How long the next address waits for the one before it.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);
/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// A host that was reached.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub stream: TcpStream,
    /// How it was reached.
    pub reached: Reached,
}

/// How a host was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The address that was judged and dialled.
    pub address: IpAddr,
    /// Milliseconds that looking its name up took, if it was looked up.
    pub dns: Option<u32>,
    /// Milliseconds that connecting took.
    pub connect: u32,
}

/// Milliseconds from a moment on.
pub(crate) fn ms_since(moment: Instant) -> u32 {
    u32::try_from(moment.elapsed().as_millis()).unwrap_or(u32::MAX)
}

/// Reaches hosts.
#[derive(Debug)]
pub struct Dialer {
    parent: Option<ParentProxy>,
}

impl Dialer {
    /// What reaches hosts for a session.
    pub(crate) fn new(begin: &Begin) -> Result<Self, String> {
        let parent = begin.parent.as_ref().map(|parent| ParentProxy::new(parent, &begin.roots));
        Ok(Self { parent: parent.transpose()? })
    }

    /// The parent that a port of a place is reached through.
    fn parent(&self, place: &Place, port: u16) -> Option<&ParentProxy> {
        self.parent.as_ref().filter(|parent| parent.serves(place, port))
    }

    /// The parent that is sent plain requests to a port of a place, one by one.
    pub(crate) fn forwarder(&self, place: &Place, port: u16) -> Option<&ParentProxy> {
        self.parent(place, port).filter(|parent| parent.forwards())
    }
}

/// Reaches what was allowed.
pub async fn dial(house: &House, allowed: &Allowed) -> Result<Dialled, Refusal> {
    let place = allowed.place();
    let reach = async {
        if let Some(parent) = house.dialer.parent(place, allowed.port()) {
            if let Place::Address(address) = place {
                judged(house, allowed, *address)?;
            }
            return parent.reach(place, allowed.port()).await;
        }
        let began = Instant::now();
        let addresses = addresses(house, allowed).await?;
        let dns = matches!(place, Place::Name(_)).then(|| ms_since(began));
        let mut dialled = connect(place, addresses).await?;
        dialled.reached.dns = dns;
        Ok(dialled)
    };
    in_time(place, reach).await
}

/// Reaches the parent that is sent the plain requests to what was allowed.
pub(crate) async fn dial_parent(
    house: &House,
    allowed: &Allowed,
    parent: &ParentProxy,
) -> Result<Dialled, Refusal> {
    if let Place::Address(address) = allowed.place() {
        judged(house, allowed, *address)?;
    }
    in_time(allowed.place(), parent.open()).await
}

async fn in_time(
    place: &Place,
    reach: impl Future<Output = Result<Dialled, Refusal>>,
) -> Result<Dialled, Refusal> {
    timeout(TIME_TO_CONNECT, reach).await.unwrap_or_else(|_elapsed| Err(timed_out(place)))
}

/// The addresses that may be dialled for what was allowed.
async fn addresses(house: &House, allowed: &Allowed) -> Result<Vec<SocketAddr>, Refusal> {
    let port = allowed.port();
    match allowed.place() {
        Place::HostLoopback => {
            Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()])
        }
        Place::Address(address) => {
            judged(house, allowed, *address)?;
            Ok(vec![(*address, port).into()])
        }
        Place::Name(name) => {
            let found = look_up(allowed.place(), name.as_str(), port).await?;
            survivors(house, allowed, found)
        }
    }
}

/// Drops the addresses that a name may not lead to.
fn survivors(
    house: &House,
    allowed: &Allowed,
    found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, Refusal> {
    let mut forbidden = None;
    let mut kept = Vec::new();
    for address in found {
        match judged(house, allowed, address.ip()) {
            Ok(()) if kept.contains(&address) => {}
            Ok(()) => kept.push(address),
            Err(refusal) => forbidden = Some(refusal),
        }
    }
    kept.truncate(MAX_ADDRESSES);
    match forbidden {
        Some(refusal) if kept.is_empty() => Err(refusal),
        _ => Ok(kept),
    }
}

/// Judges an address that something allowed leads to. A denial of an address is about names that lead
/// there as well.
fn judged(house: &House, allowed: &Allowed, address: IpAddr) -> Result<(), Refusal> {
    let address = address.to_canonical();
    let rules = house.office.rules();
    let verdict = rules.connection(&Place::Address(address), allowed.port());
    if verdict.outcome == Outcome::Deny {
        return Err(Refusal::by_rules(
            Outcome::Deny,
            allowed.place(),
            allowed.port(),
            verdict.rule,
        ));
    }
    let own: &[IpAddr] = if is_own(address) { &[address] } else { &[] };
    let verdict = match allowed.rule() {
        Some(rule) => judge(rule, address, own),
        None => judge_without_rule(address, own),
    };
    verdict.map_err(|why| not_there(allowed.place(), address, why))
}

/// Whether an address is one of this host: a socket can have it. If that cannot be told, it is.
fn is_own(address: IpAddr) -> bool {
    /// Nobody's: where a socket can have this one, it can have any (`ip_nonlocal_bind`).
    const NOBODYS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    static ANY: OnceLock<bool> = OnceLock::new();
    let can_have = |address: IpAddr| match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    };
    if *ANY.get_or_init(|| can_have(NOBODYS.into())) {
        return is_source(address);
    }
    can_have(address)
}

/// Whether what is sent from here to an address is sent from the address itself. Nothing is sent.
fn is_source(address: IpAddr) -> bool {
    let from: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    source().map_or_else(
        |error| error.kind() != io::ErrorKind::NetworkUnreachable,
        |source| source.ip() == address,
    )
}

/// Connects to one of several addresses: each is given a little time before the next is tried too.
pub(crate) async fn connect(place: &Place, addresses: Vec<SocketAddr>) -> Result<Dialled, Refusal> {
    let began = Instant::now();
    let place = Arc::new(place.clone());
    let mut rest = addresses.into_iter();
    let mut tries = JoinSet::new();
    let mut last = None;
    loop {
        if let Some(address) = rest.next() {
            match begin(address) {
                Ok(Begun::Connected(stream)) => return Ok(dialled(stream, address, began)),
                Ok(Begun::Waits(stream)) => {
                    tries.spawn(async move { (address, finish(stream).await) });
                }
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            }
        } else if tries.is_empty() {
            let error = last.unwrap_or_else(|| io::ErrorKind::NotFound.into());
            return Err(not_reached(&place, &error));
        }
        let next = async {
            if rest.len() == 0 {
                tries.join_next().await
            } else {
                timeout(NEXT_ADDRESS, tries.join_next()).await.ok().flatten()
            }
        };
        match next.await {
            Some(Ok((address, Ok(stream)))) => return Ok(dialled(stream, address, began)),
            Some(Ok((_, Err(error)))) => last = Some(error),
            Some(Err(_)) | None => {}
        }
    }
}

/// A connection that was begun.
enum Begun {
    /// It is made.
    Connected(TcpStream),
    /// The other end has not answered yet.
    Waits(TcpStream),
}

/// Begins a connection. One to this host itself is made when the call returns, and nobody has to be
/// woken for it.
fn begin(address: SocketAddr) -> io::Result<Begun> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    let connected = match rustix::net::connect(&socket, &address) {
        // The answer came while the first call still had the socket: the second one finds it.
        Err(Errno::INPROGRESS) if address.ip().to_canonical().is_loopback() => {
            rustix::net::connect(&socket, &address)
        }
        result => result,
    };
    let is_made = match connected {
        Ok(()) => true,
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => false,
        Err(errno) => return Err(errno.into()),
    };
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket))?;
    Ok(if is_made { Begun::Connected(stream) } else { Begun::Waits(stream) })
}

/// Waits for a connection that was begun.
async fn finish(stream: TcpStream) -> io::Result<TcpStream> {
    stream.writable().await?;
    stream.take_error()?.map_or(Ok(stream), Err)
}

fn dialled(stream: TcpStream, address: SocketAddr, began: Instant) -> Dialled {
    cowork_sys::ignore(stream.set_nodelay(true));
    let address = address.ip().to_canonical();
    if address.is_loopback() {
        // Nothing is lost on the way, so it need not be paced, as the host may want it.
        cowork_sys::ignore(set_tcp_congestion(&stream, "reno"));
    }
    let reached = Reached { address, dns: None, connect: ms_since(began) };
    Dialled { stream, reached }
}

fn timed_out(place: &Place) -> Refusal {
    let sentence = format!("{place} does not answer within {} s", TIME_TO_CONNECT.as_secs());
    Refusal::new("timed-out", sentence, "it may be down, or a firewall may drop what is sent to it")
}

pub(crate) fn no_such_name(place: &Place, error: &io::Error) -> Refusal {
    let sentence = format!("{place} has no address: {error}");
    Refusal::new("no-such-name", sentence, "check its spelling")
}

fn not_reached(place: &Place, error: &io::Error) -> Refusal {
    let code = match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused-by-host",
        io::ErrorKind::TimedOut => "timed-out",
        _ => "unreachable",
    };
    let hint = match code {
        "refused-by-host" => "nothing listens on this port there",
        _ => "check that the host's own network works",
    };
    Refusal::new(code, format!("{place} cannot be reached: {error}"), hint)
}

fn not_there(place: &Place, address: IpAddr, why: Forbidden) -> Refusal {
    let (what, hint) = match why {
        Forbidden::Local => (
            "an address of this host or its surroundings",
            "the user can allow a port of the host itself: `cowork allow SESSION host:PORT`",
        ),
        Forbidden::Private => (
            "an address of a private network",
            "the user can allow it with a rule that names the network it may lead to",
        ),
    };
    Refusal::new(why.code(), format!("{place} leads to {address}, {what}"), hint)
}

#[cfg(test)]
mod tests {
    use super::is_own;

    #[test]
    fn own_addresses_are_known_without_a_list() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }
}

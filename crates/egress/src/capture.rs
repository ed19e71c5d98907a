//! Connections that arrive: from the proxies, and those that were made to an address that stands for
//! a name.

use crate::arrival::{Arrival, notice, others_first, reset};
use crate::descriptors::room;
use crate::flow::Flow;
use crate::house::House;
use crate::names::is_synthetic;
use crate::office::Refusal;
use bytes::Bytes;
use cowork_api::egress::{Target, Via};
use cowork_policy::egress::Place;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

/// How long it waits after a connection could not be accepted.
const BREATH: Duration = Duration::from_millis(50);
/// How often it is recorded that there are too many connections.
const AGAIN: Duration = Duration::from_mins(1);

/// Somebody who has come and not said yet what they want.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) house: Arc<House>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) stream: TcpStream,
}

/// Which way somebody comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The HTTP proxy.
    Http,
    /// The SOCKS proxy.
    Socks,
    /// An address that stands for a name.
    Capture,
}

/// Lets connections in for as long as the listener lives.
pub(crate) async fn serve(house: Arc<House>, listener: TcpListener, door: Door) {
    let most = room();
    let mut crowd = Crowd::default();
    loop {
        let (stream, from) = accept(&listener).await;
        if house.office.flows() >= most {
            crowd.turn_away(&house, &stream, most);
            continue;
        }
        cowork_sys::ignore(stream.set_nodelay(true));
        let flow = house.office.arrive();
        let Ok(to) = stream.local_addr() else { continue };
        flow.socket.store(house.registrar.number(from, to), Ordering::Relaxed);
        flow.listener.store(to.port(), Ordering::Relaxed);
        let visitor = Visitor { house: Arc::clone(&house), flow, stream };
        match door {
            Door::Http => drop(tokio::spawn(crate::proxy::serve(visitor))),
            Door::Socks => drop(tokio::spawn(crate::socks::serve(visitor))),
            Door::Capture => drop(tokio::spawn(captured(visitor, to))),
        }
        // It is decided about and dialled, with a turn for whoever tells the daemon in between, before
        // another one is looked for: there seldom is one.
        others_first().await;
        others_first().await;
    }
}

/// The next connection. One that cannot be accepted is left to the kernel for a moment.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

/// Connections that were turned away.
#[derive(Debug, Default)]
struct Crowd {
    count: u64,
    told: Option<Instant>,
}

impl Crowd {
    fn turn_away(&mut self, house: &House, stream: &TcpStream, most: usize) {
        reset(stream);
        self.count += 1;
        let count = self.count;
        if self.told.is_none_or(|told| told.elapsed() >= AGAIN) {
            self.told = Some(Instant::now());
            let sentence = format!("{most} connections are open; {count} more were turned away");
            notice(house, 0, Target::default(), "too-many-connections", sentence);
        }
    }
}

/// Serves a connection that was made to an address that stands for a name.
async fn captured(visitor: Visitor, to: SocketAddr) {
    let Visitor { house, flow, stream } = visitor;
    let (host, port) = (to.ip().to_canonical(), to.port());
    let target = Target { host: host.to_string(), port, via: Via::Capture, ..flow.unsaid() };
    let place = if is_synthetic(host) {
        place_of(&house, &target.host)
    } else {
        Err(Refusal::new(
            "unknown-address",
            format!("{host} stands for no name"),
            "connect to a name, or through the proxy",
        ))
    };
    match place {
        Ok(place) => {
            let target = Target { host: place.to_string(), ..target };
            let first = Bytes::new();
            Arrival { house, flow, stream, first, target, place }.serve().await;
        }
        Err(refusal) => {
            house.office.refuse(&flow, 0, &target, &refusal);
            reset(&stream);
        }
    }
}

/// Where a host is that a program has named: an address that stands for a name is that name.
pub fn place_of(house: &House, host: &str) -> Result<Place, Refusal> {
    let place: Place = host.parse().map_err(|error| Refusal::no_host(host, &error))?;
    let Place::Address(address) = place else { return Ok(place) };
    if !is_synthetic(address) {
        return Ok(place);
    }
    let name = house.names.name(address).and_then(|name| name.parse().ok());
    name.ok_or_else(|| {
        Refusal::new(
            "unknown-address",
            format!("{address} stands for no name any more"),
            "look the name up again",
        )
    })
}

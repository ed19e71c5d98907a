//! Ports of the session that the host's loopback shows.
//!
//! The process is not in the session's network: it connects into it through sockets that were made
//! there and handed out, one for each connection.

use crate::arrival::reset;
use crate::capture::accept;
use crate::flow::Flow;
use crate::house::House;
use crate::relay::{Passage, relay};
use bytes::Bytes;
use cowork_api::egress::{FromEgress, Target, Via};
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// When fewer sockets than this are left, more are asked for.
const FEW: usize = 4;
/// Most sockets that are kept.
const MAX_SOCKETS: usize = 256;
/// Most connections through one published port at a time.
const MAX_CONNECTIONS: usize = 1024;
/// Longest that a connection waits for a socket, and for the session to take it.
const TIME_TO_ENTER: Duration = Duration::from_secs(10);

/// Published ports, and sockets to serve them.
#[derive(Debug, Default)]
pub(crate) struct Published {
    ports: Mutex<HashMap<u16, AbortHandle>>,
    sockets: Mutex<Sockets>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Sockets {
    free: VecDeque<OwnedFd>,
    supply: Supply,
}

/// Whether more sockets are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Supply {
    /// Nobody was asked.
    #[default]
    Idle,
    /// The daemon was asked.
    Asked,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the end of a connection, also of one that is let go of with its port.
struct Ends<'a> {
    house: &'a House,
    flow: &'a Flow,
    target: &'a Target,
    how: String,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.house.office.ended(self.flow, self.target, None, &self.how);
    }
}

impl Published {
    /// Another socket that leads inwards.
    pub(crate) fn add(&self, socket: OwnedFd) {
        let mut sockets = lock(&self.sockets);
        sockets.supply = Supply::Idle;
        if sockets.free.len() < MAX_SOCKETS {
            sockets.free.push_back(socket);
        }
        drop(sockets);
        self.more.notify_one();
    }

    /// Publishes a port, and says at which port of the host.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        house: &Arc<House>,
        inside: u16,
        outside: u16,
    ) -> Result<u16, String> {
        let failed = |error: io::Error| format!("cannot listen on 127.0.0.1:{outside}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, outside)).await.map_err(failed)?;
        let outside = listener.local_addr().map_err(failed)?.port();
        let (this, house) = (Arc::clone(self), Arc::clone(house));
        let task = tokio::spawn(async move { this.serve(&house, listener, inside).await });
        lock(&self.ports).insert(outside, task.abort_handle());
        Ok(outside)
    }

    /// Lets go of a port, and of everything that flows through it.
    pub(crate) fn unpublish(&self, outside: u16) {
        if let Some(task) = lock(&self.ports).remove(&outside) {
            task.abort();
        }
    }

    async fn serve(self: &Arc<Self>, house: &Arc<House>, listener: TcpListener, inside: u16) {
        // Ends with this task.
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = accept(&listener).await;
            while connections.try_join_next().is_some() {}
            if connections.len() >= MAX_CONNECTIONS {
                reset(&stream);
                continue;
            }
            cowork_sys::ignore(stream.set_nodelay(true));
            let (this, house) = (Arc::clone(self), Arc::clone(house));
            connections.spawn(async move { this.enter(&house, stream, inside).await });
        }
    }

    /// Carries one connection into the session.
    async fn enter(&self, house: &House, outer: TcpStream, inside: u16) {
        let flow = house.office.arrive();
        let host = Ipv4Addr::LOCALHOST.to_string();
        let listener = outer.local_addr().map_or(0, |address| address.port());
        let target =
            Target { host, port: inside, via: Via::Published, listener, ..Target::default() };
        flow.state().target = target.clone();
        let mut ends = Ends { house, flow: &flow, target: &target, how: "unpublished".into() };
        let connect = async {
            let socket = std::net::TcpStream::from(self.take(house).await);
            socket.set_nonblocking(true)?;
            let to = (Ipv4Addr::LOCALHOST, inside).into();
            TcpSocket::from_std_stream(socket).connect(to).await
        };
        let inner = match timeout(TIME_TO_ENTER, connect).await {
            Ok(Ok(inner)) => inner,
            Ok(Err(error)) => {
                reset(&outer);
                ends.how = format!("error: {error}");
                return;
            }
            Err(_elapsed) => {
                reset(&outer);
                "error: no way in".clone_into(&mut ends.how);
                return;
            }
        };
        cowork_sys::ignore(inner.set_nodelay(true));
        let passage = Passage { flow: &flow, quotas: &house.quotas, rule: None, name: None };
        ends.how = relay(&inner, &outer, Bytes::new(), &passage).await.how();
    }

    /// Waits for a socket that leads inwards.
    async fn take(&self, house: &House) -> OwnedFd {
        loop {
            match self.try_take(house) {
                Some(socket) => return socket,
                None => self.more.notified().await,
            }
        }
    }

    /// A socket that leads inwards, if there is one; asks for more when few are left.
    fn try_take(&self, house: &House) -> Option<OwnedFd> {
        let mut sockets = lock(&self.sockets);
        let socket = sockets.free.pop_front();
        let few = sockets.free.len() < FEW;
        if few && std::mem::replace(&mut sockets.supply, Supply::Asked) == Supply::Idle {
            house.office.say(FromEgress::WantInward);
        }
        socket
    }
}

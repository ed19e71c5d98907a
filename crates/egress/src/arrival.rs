//! A connection that has said where it wants to go: it is decided, reached and carried.

use crate::dial::{Dialled, dial};
use crate::flow::Flow;
use crate::house::House;
use crate::http;
use crate::office::{Allowed, Refusal};
use crate::prefixed::Prefixed;
use crate::relay::{End, Passage, relay};
use bytes::Bytes;
use cowork_api::egress::{Target, Via, What};
use cowork_policy::egress::{Outcome, Place, Treatment};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest that a refusal may take to be read.
const TIME_TO_READ: Duration = Duration::from_secs(5);
/// Most bytes that are swallowed from somebody who was refused.
const MOST_TO_SWALLOW: usize = 256 * 1024;
/// How often a connection that has said something is looked at while it waits.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A record of the TLS handshake begins with this byte.
const TLS: u8 = 22;

/// A connection that has said where it wants to go.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) house: Arc<House>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) stream: TcpStream,
    /// What was read of it beyond what it said.
    pub(crate) first: Bytes,
    pub(crate) target: Target,
    pub(crate) place: Place,
}

impl Arrival {
    /// Decides about it, and carries it to its end.
    pub(crate) async fn serve(self) {
        if self.speaks_http() {
            let stream = Prefixed::new(self.first, self.stream);
            return http::undecided(self.house, self.flow, stream, self.target, self.place).await;
        }
        let decided = self.unless_it_leaves(self.house.office.connection(
            &self.flow,
            &self.target,
            &self.place,
        ));
        let allowed = match decided.await {
            Some(Ok(allowed)) => allowed,
            Some(Err(refusal)) => return self.tell(&refusal).await,
            None => return self.house.office.ended(&self.flow, &self.target, None, "left"),
        };
        let rule = allowed.rule().map(AsRef::as_ref);
        let ticket = match self.house.quotas.connection(rule) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                self.house.office.refuse(&self.flow, 0, &self.target, &refusal);
                return self.tell(&refusal).await;
            }
        };
        match allowed.treatment() {
            Treatment::Inspect => self.inspect(allowed).await,
            Treatment::Tunnel => self.tunnel(&allowed).await,
        }
        drop(ticket);
    }

    /// Whether it is better answered request by request: captured, to a port of HTTP, and not allowed
    /// as it is. Programs give up a greeting that takes long, and wait for an answer; and only an
    /// answer can say why something is refused.
    fn speaks_http(&self) -> bool {
        let Target { via, port, .. } = self.target;
        via == Via::Capture
            && matches!(port, 80 | 443)
            && self.house.office.rules().connection(&self.place, port).outcome != Outcome::Allow
    }

    async fn inspect(mut self, allowed: Allowed) {
        if self.grant().await.is_err() {
            return self.house.office.ended(&self.flow, &self.target, None, "left");
        }
        let stream = Prefixed::new(self.first, self.stream);
        http::inspect(self.house, self.flow, stream, self.target, allowed).await;
    }

    async fn tunnel(mut self, allowed: &Allowed) {
        let house = Arc::clone(&self.house);
        let dialled = match self.unless_it_leaves(dial(&house, allowed)).await {
            Some(Ok(dialled)) => dialled,
            Some(Err(refusal)) => return self.not_reached(&refusal).await,
            None => return house.office.ended(&self.flow, &self.target, None, "left"),
        };
        let Dialled { stream: far, reached } = dialled;
        if self.grant().await.is_err() {
            return house.office.ended(&self.flow, &self.target, Some(reached), "left");
        }
        let name = match &self.place {
            Place::Name(name) => Some(name.as_str()),
            Place::Address(_) | Place::HostLoopback => None,
        };
        let rule = allowed.rule().map(AsRef::as_ref);
        let passage = Passage { flow: &self.flow, quotas: &house.quotas, rule, name };
        let first = std::mem::take(&mut self.first);
        let end = tokio::select! {
            end = relay(&self.stream, &far, first, &passage) => end,
            () = house.office.revoked(&self.place, self.target.port) => {
                reset(&self.stream);
                End::Refused(Refusal::revoked(&self.place))
            }
        };
        if let End::Refused(refusal) = &end {
            house.office.refuse(&self.flow, 0, &self.target, refusal);
        }
        house.office.ended(&self.flow, &self.target, Some(reached), &end.how());
    }

    /// Tells that what was allowed could not be reached.
    async fn not_reached(self, refusal: &Refusal) {
        let office = &self.house.office;
        if matches!(refusal.code, "private-address" | "local-address") {
            office.refuse(&self.flow, 0, &self.target, refusal);
        } else {
            office.ended(&self.flow, &self.target, None, &format!("error: {}", refusal.sentence));
        }
        self.tell(refusal).await;
    }

    /// Does something for as long as the connection is there.
    async fn unless_it_leaves<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = leaves(&self.stream) => None,
        }
    }

    /// Says that it may go on.
    async fn grant(&mut self) -> io::Result<()> {
        let words: &[u8] = match self.target.via {
            Via::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Via::Socks => &crate::socks::granted(),
            _ => return Ok(()),
        };
        self.stream.write_all(words).await
    }

    /// Says why it does not pass, in its own protocol, and lets go of it.
    async fn tell(self, refusal: &Refusal) {
        let words = match self.target.via {
            Via::Connect => crate::proxy::refused(refusal, &self.target),
            Via::Socks => crate::socks::refused(refusal.socks()).to_vec(),
            _ => return reset(&self.stream),
        };
        say_last(self.stream, &words).await;
    }
}

/// Sends the last words of a connection so that they are read: what still comes is swallowed, because
/// a connection that is closed with unread bytes is reset.
pub(crate) async fn say_last(mut stream: TcpStream, words: &[u8]) {
    let farewell = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        let mut swallowed = 0;
        while swallowed < MOST_TO_SWALLOW {
            match stream.read(&mut rest).await? {
                0 => break,
                read => swallowed += read,
            }
        }
        io::Result::Ok(())
    };
    // Whoever does not listen is not waited for.
    cowork_sys::ignore(timeout(TIME_TO_READ, farewell).await);
}

/// Breaks a connection: the other end learns it at once.
pub(crate) fn reset(stream: &TcpStream) {
    // It may be gone already.
    cowork_sys::ignore(stream.set_zero_linger());
}

/// Waits until a connection goes away while nothing is read from it. One that has sent something and
/// ended its side may still wait for an answer, unless it is TLS, which nobody ends like that.
pub(crate) async fn leaves(stream: &TcpStream) {
    loop {
        let Ok(ready) = stream.ready(Interest::READABLE | Interest::ERROR).await else { return };
        if ready.is_error() || ready.is_write_closed() {
            return;
        }
        if ready.is_read_closed() {
            let mut first = [0];
            let peeked = rustix::net::recv(stream, &mut first, rustix::net::RecvFlags::PEEK);
            match peeked {
                Ok((0, _)) | Err(_) => return,
                Ok(_) if first == [TLS] => return,
                Ok(_) => {}
            }
        }
        // There is something to read, which is not for here: whether more happens is looked at from
        // time to time. To wait for it would be to forget what came.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Records something that a person should know.
pub(crate) fn notice(house: &House, flow: u64, target: Target, code: &str, sentence: String) {
    house.office.record(flow, 0, What::Noticed { target, code: code.into(), sentence });
}

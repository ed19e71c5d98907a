//! A connection that has said where it wants to go: it is decided, reached and carried.

use crate::dial::{Dialled, dial};
use crate::flow::Flow;
use crate::house::House;
use crate::http;
use crate::office::{Allowed, Refusal};
use crate::prefixed::Prefixed;
use crate::relay::{End, Passage, relay};
use bytes::{Bytes, BytesMut};
use cowork_api::egress::{Target, Tls, Via, What};
use cowork_policy::egress::{Outcome, Place, Treatment};
use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::Poll;
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
/// Longest that a greeting in TLS waits for the user: many programs give one up after ten seconds.
const TIME_TO_GREET: Duration = Duration::from_secs(8);
/// A record of the TLS handshake begins with this byte.
const TLS: u8 = 22;
/// The ports of HTTP, plain and inside TLS.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// `access_denied`, fatal, before anything is agreed on (RFC 8446 §6).
const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
/// How long something is waited for that says what is spoken on it.
const TIME_TO_SPEAK: Duration = Duration::from_secs(1);

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
    pub(crate) async fn serve(mut self) {
        if self.speaks_http() {
            let stream = Prefixed::new(self.first, self.stream);
            return http::undecided(self.house, self.flow, stream, self.target, self.place).await;
        }
        let decided = self.unless_it_leaves(self.house.office.connection_for(
            &self.flow,
            &self.target,
            &self.place,
            self.greets_too_long(),
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
        // The daemon is told of the decision before anything is dialled.
        others_first().await;
        match allowed.treatment() {
            Treatment::Inspect => self.inspect(allowed).await,
            Treatment::Tunnel if self.is_for_parent(&allowed).await => self.inspect(allowed).await,
            Treatment::Tunnel => self.tunnel(&allowed).await,
        }
        drop(ticket);
    }

    /// Whether it is better answered request by request: captured, to a port of HTTP, and not allowed
    /// as it is. Programs give up a greeting that takes long, and wait for an answer; and only an
    /// answer can say why something is refused.
    fn speaks_http(&self) -> bool {
        let Target { via, port, .. } = self.target;
        let rules = self.house.office.rules();
        // Nobody would believe an answer inside TLS where the session does not know its authority.
        via == Via::Capture
            && (port == HTTP || (port == HTTPS && rules.inspects()))
            && rules.connection(&self.place, port).outcome != Outcome::Allow
    }

    /// Waits until a program has waited for as long as it waits for an answer to its greeting. It never
    /// does where it was captured and greets nobody, or where something else than an answer tells it
    /// that it waits.
    async fn greets_too_long(&self) {
        let mut first = [0];
        let greets = self.target.via == Via::Capture
            && matches!(self.stream.peek(&mut first).await, Ok(1..))
            && first == [TLS];
        if !greets {
            pending::<()>().await;
        }
        tokio::time::sleep(TIME_TO_GREET).await;
    }

    /// Whether it begins with a greeting in TLS, as it should soon.
    async fn greets(&self) -> bool {
        let mut first = [0];
        let peeked = timeout(TIME_TO_SPEAK, self.stream.peek(&mut first)).await;
        matches!(peeked, Ok(Ok(1..))) && first == [TLS]
    }

    /// Whether it is plain HTTP that the parent is sent request by request: such parents seldom lead
    /// to the port of HTTP. Then it is looked into, unless a rule says that it is not.
    async fn is_for_parent(&mut self, allowed: &Allowed) -> bool {
        let Target { via, port, .. } = self.target;
        let barred = allowed.rule().is_some_and(|rule| rule.tls == Tls::Tunnel);
        let forwarder = self.house.dialer.forwarder(&self.place, port);
        if via != Via::Capture || port != HTTP || barred || forwarder.is_none() {
            return false;
        }
        let mut first = BytesMut::from(self.first.as_ref());
        let is_http = loop {
            if let Some(answer) = begins_http(&first) {
                break answer;
            }
            match timeout(TIME_TO_SPEAK, self.stream.read_buf(&mut first)).await {
                Ok(Ok(1..)) => {}
                // Nothing comes, as where the host speaks first.
                _ => break false,
            }
        };
        self.first = first.freeze();
        is_http
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
            // Before anything is carried: what waits already must not pass after the rules changed.
            biased;
            () = house.office.revoked(&self.place, self.target.port) => {
                reset(&self.stream);
                End::Refused(Refusal::revoked(&self.place))
            }
            end = relay(&self.stream, &far, first, &passage) => end,
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
            _ if self.target.port == HTTPS && self.greets().await => ACCESS_DENIED.to_vec(),
            _ => return reset(&self.stream),
        };
        say_last(self.stream, &words).await;
    }
}

/// Goes on when everybody else has who could: whoever tells the daemon is one of them.
pub(crate) async fn others_first() {
    let mut passed = false;
    poll_fn(|context| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Whether something begins as a request of HTTP/1 does; nothing as long as that cannot be told.
fn begins_http(first: &[u8]) -> Option<bool> {
    /// The longest method that is looked for.
    const LONGEST: usize = 16;
    let method = first.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match first.get(method) {
        // `PRI` begins HTTP/2.
        Some(b' ') => Some(method > 0 && !first.starts_with(b"PRI ")),
        Some(_) => Some(false),
        None => (method > LONGEST).then_some(false),
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

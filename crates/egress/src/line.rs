//! The conversation with the daemon, from the first message to the end of the line.
//!
//! The line outlives a daemon: its other end is kept by the keeper. Its end is the end of the
//! session, and of this process.

use crate::capture::{Door, serve};
use crate::confine::{confine, unreadable};
use crate::dns::Answerer;
use crate::errand;
use crate::house::House;
use crate::lookup::{LOOKUPS, blind};
use crate::publish::Published;
use cowork_api::egress::{Begin, Errand, FromEgress, Socket, Target, ToEgress, What};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A channel as `AsyncFd` wants it.
struct Held(Channel);

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Serves a session over `line`, until it ends.
pub fn run(line: OwnedFd) -> Result<(), String> {
    let channel = Channel::from(line);
    let begun = begin(&channel);
    let (house, work) = match begun {
        Ok(Some(begun)) => begun,
        Ok(None) => return Ok(()),
        Err(sentence) => {
            let failed = FromEgress::Failed { sentence: sentence.clone() };
            // Nobody may be left to hear it.
            cowork_sys::ignore(channel.send(&cowork_api::encode(&failed), &[]));
            return Err(sentence);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUPS)
        .build()
        .map_err(|error| format!("cannot wait for events: {error}"))?;
    let ended = match work {
        // As a task of its own: to wake the one that a runtime was started with takes a system call.
        Work::Session(ready) => runtime
            .block_on(async { tokio::spawn(converse(channel, house, *ready)).await })
            .unwrap_or_else(|error| Err(io::Error::other(error))),
        Work::Errand(errand) => {
            let returned = FromEgress::Returned(runtime.block_on(errand::run(&house, *errand)));
            channel.send(&cowork_api::encode(&returned), &[]).map_err(Into::into)
        }
    };
    // Look-ups that still wait for an answer are not waited for.
    runtime.shutdown_background();
    ended.map_err(|error| error.to_string())
}

/// What a process is there for.
enum Work {
    /// A session; this is told when it begins.
    Session(Box<FromEgress>),
    /// One request.
    Errand(Box<Errand>),
}

/// Hears the first message, prepares, and confines the process. `None` if the line ends before.
fn begin(channel: &Channel) -> Result<Option<(Arc<House>, Work)>, String> {
    let heard = channel.receive(Peer::Trusted).map_err(|errno| format!("cannot hear: {errno}"))?;
    let Some(packet) = heard else { return Ok(None) };
    let begin: Box<Begin> = match cowork_api::decode(&packet.bytes) {
        Ok(ToEgress::Begin(begin)) => begin,
        Ok(ToEgress::Errand(errand)) => {
            let house = errand::prepare(&errand)?;
            confine()?;
            return Ok(Some((house, Work::Errand(errand))));
        }
        Ok(_) => return Err("the first message was another one".into()),
        Err(error) => return Err(format!("cannot understand the first message: {error}")),
    };
    let house = House::new(&begin)?;
    let confinement = confine()?;
    let authority = house.interceptor.certificate();
    let ready = Box::new(FromEgress::Ready { authority, confinement });
    Ok(Some((house, Work::Session(ready))))
}

async fn converse(channel: Channel, house: Arc<House>, ready: FromEgress) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&channel)?;
    rustix::fs::fcntl_setfl(&channel, flags | rustix::fs::OFlags::NONBLOCK)?;
    let line = watched(Held(channel), Interest::READABLE)?;
    house.office.say(ready);
    let answerer = Answerer::new(Arc::clone(&house));
    let clerk = Clerk { house: Arc::clone(&house), answerer, published: Arc::default() };
    let ended = tokio::select! {
        ended = tell(&line, &house) => ended,
        ended = clerk.hear(&line) => ended,
        () = tidy_up(&house) => Ok(()),
        () = blind() => {
            house.office.record(0, 0, replaced());
            Ok(())
        }
    };
    // What is recorded is told before it leaves, if anybody listens still.
    cowork_sys::ignore(tokio::time::timeout(FAREWELL, tell_the_rest(&line, &house)).await);
    ended
}

/// What is noticed where a file of the name look-up was replaced.
fn replaced() -> What {
    let file = unreadable().unwrap_or("/etc/resolv.conf");
    let sentence = format!(
        "{file} was replaced, and its successor cannot be read by a process that is confined already: \
         another one takes over, and connections that were open are cut"
    );
    What::Noticed { target: Target::default(), code: "resolver-replaced".into(), sentence }
}

async fn tell_the_rest(line: &AsyncFd<Held>, house: &House) -> io::Result<()> {
    let unsaid = || house.quotas.unsaid().map(FromEgress::Spent).or_else(|| house.office.unsaid());
    while let Some(message) = unsaid() {
        send(line, &cowork_api::encode(&message)).await?;
    }
    Ok(())
}

/// Longest that it goes on telling when nobody has anything to say to it any more.
const FAREWELL: Duration = Duration::from_secs(2);

/// Gives memory back when a rush is over: the process is there as long as its session.
async fn tidy_up(house: &House) {
    /// How often it is looked whether one is.
    const OFTEN: Duration = Duration::from_secs(5);
    /// How many connections make a rush.
    const RUSH: usize = 32;
    let mut most = 0;
    loop {
        tokio::time::sleep(OFTEN).await;
        let now = house.office.flows();
        most = most.max(now);
        if most >= RUSH && now <= most / 2 {
            cowork_sys::memory::give_back();
            most = now;
        }
    }
}

/// Waits for a descriptor that its holder owns until it is dropped.
#[expect(deprecated, reason = "its successor differs only by being unsafe to call")]
fn watched(held: Held, interest: Interest) -> io::Result<AsyncFd<Held>> {
    AsyncFd::with_interest(held, interest)
}

/// Tells the daemon what there is to tell, as fast as it listens.
async fn tell(line: &AsyncFd<Held>, house: &House) -> io::Result<()> {
    loop {
        let message = tokio::select! {
            biased;
            spent = house.quotas.news() => FromEgress::Spent(spent),
            message = house.office.news() => message,
        };
        match send(line, &cowork_api::encode(&message)).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Sends the daemon a message. Room for it is waited for by another descriptor: a line that is watched
/// for room wakes this process whenever the daemon has read something.
async fn send(line: &AsyncFd<Held>, message: &[u8]) -> io::Result<()> {
    match line.get_ref().0.try_send(message, &[]) {
        Err(Errno::AGAIN) => {}
        sent => return Ok(sent?),
    }
    let copy = line.get_ref().0.as_fd().try_clone_to_owned()?;
    let room = watched(Held(copy.into()), Interest::WRITABLE)?;
    let send = |held: &Held| held.0.try_send(message, &[]).map_err(Into::into);
    room.async_io(Interest::WRITABLE, send).await
}

/// Does what the daemon says.
struct Clerk {
    house: Arc<House>,
    answerer: Arc<Answerer>,
    published: Arc<Published>,
}

impl Clerk {
    /// Hears the daemon until it falls silent. A message that cannot be understood is the end as well:
    /// it may have been about rules, and what the daemon takes back must not go on.
    async fn hear(&self, line: &AsyncFd<Held>) -> io::Result<()> {
        loop {
            let receive = |held: &Held| held.0.try_receive(Peer::Trusted).map_err(Into::into);
            match line.async_io(Interest::READABLE, receive).await {
                Ok(Some(packet)) => {
                    let message = cowork_api::decode(&packet.bytes).map_err(|error| {
                        let sentence = format!("cannot understand the daemon: {error}");
                        io::Error::new(io::ErrorKind::InvalidData, sentence)
                    })?;
                    self.heed(message, packet.handles).await;
                }
                Ok(None) => return Ok(()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::CONNRESET) => return Ok(()),
                    Some(Errno::BADMSG) if is_silent(&line.get_ref().0) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    async fn heed(&self, message: ToEgress, handles: Vec<OwnedFd>) {
        let office = &self.house.office;
        match message {
            // It has begun.
            ToEgress::Begin(_) | ToEgress::Errand(_) => {}
            ToEgress::Sockets { sockets } => {
                for (socket, handle) in sockets.into_iter().zip(handles) {
                    // A socket that cannot be waited for serves nobody: its port refuses.
                    cowork_sys::ignore(self.open(socket, handle));
                }
            }
            ToEgress::Rules(rules) => office.set_rules(*rules),
            ToEgress::Secrets(secrets) => office.set_secrets(secrets),
            ToEgress::NotRenewed { secret, version, why } => {
                office.not_renewed(&secret, version, &why);
            }
            ToEgress::Answer { ask, answer } => office.answer(ask, &answer),
            ToEgress::Acknowledge { upto } => office.acknowledge(upto),
            ToEgress::Greet => {
                office.greet();
                self.house.quotas.tell_all();
            }
            ToEgress::Spent(spent) => self.house.quotas.restore(spent),
            ToEgress::Captures(captures) => office.captures.set(captures),
            ToEgress::Names => {
                // Without them names are learned as they are asked for.
                let file = handles.into_iter().next();
                cowork_sys::ignore(file.map(|file| self.house.names.keep_in(file)).transpose());
            }
            ToEgress::Flows { number } => office.list(number),
            ToEgress::Publish { number, inside, outside } => {
                let outside = self.published.publish(&self.house, inside, outside).await;
                office.say(FromEgress::Published { number, outside });
            }
            ToEgress::Unpublish { outside } => self.published.unpublish(outside),
        }
    }

    /// Serves a socket of the session's network.
    fn open(&self, socket: Socket, handle: OwnedFd) -> io::Result<()> {
        let house = Arc::clone(&self.house);
        let door = match socket {
            Socket::HttpProxy => Door::Http,
            Socket::Socks => Door::Socks,
            Socket::Port(_) | Socket::AllPorts => Door::Capture,
            Socket::DnsUdp => {
                let socket = std::net::UdpSocket::from(handle);
                socket.set_nonblocking(true)?;
                let socket = tokio::net::UdpSocket::from_std(socket)?;
                tokio::spawn(Arc::clone(&self.answerer).udp(socket));
                return Ok(());
            }
            Socket::DnsTcp => {
                tokio::spawn(Arc::clone(&self.answerer).tcp(listener(handle)?));
                return Ok(());
            }
            Socket::Inward => {
                self.published.add(handle);
                return Ok(());
            }
            // That is for the daemon.
            Socket::Callers => return Ok(()),
            Socket::Diagnostics => {
                house.registrar.appoint(handle);
                return Ok(());
            }
        };
        tokio::spawn(serve(house, listener(handle)?, door));
        Ok(())
    }
}

/// Whether the other end sends nothing more. It may still listen.
fn is_silent(channel: &Channel) -> bool {
    let mut watched = [PollFd::new(channel, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    cowork_sys::ignore(poll(&mut watched, Some(&now)));
    watched.iter().any(|socket| socket.revents().contains(PollFlags::RDHUP))
}

fn listener(handle: OwnedFd) -> io::Result<tokio::net::TcpListener> {
    let listener = std::net::TcpListener::from(handle);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use super::converse;
    use crate::house::House;
    use cowork_api::egress::{Begin, FromEgress, ToEgress};
    use cowork_sandbox::channel::Channel;
    use rustix::net::{SendFlags, Shutdown};
    use std::io;
    use std::time::Duration;

    /// How a conversation ends in which the daemon does this.
    async fn end_of(daemon: impl FnOnce(&Channel)) -> io::Result<()> {
        let (ours, theirs) = Channel::pair().unwrap();
        let house = House::new(&Begin::default()).unwrap();
        let ready = FromEgress::Ready { authority: Vec::new(), confinement: Vec::new() };
        daemon(&ours);
        let end = converse(theirs, house, ready);
        tokio::time::timeout(Duration::from_secs(10), end).await.expect("it goes on")
    }

    #[tokio::test]
    async fn what_cannot_be_understood_ends_it() {
        let rules = cowork_api::encode(&ToEgress::Rules(Box::default()));
        let short = &rules[..rules.len() - 1];
        let long = vec![rules[0]; 70_000];
        for message in [b"\x00?", short, b"", b"\xff", &long] {
            let send = |channel: &Channel| {
                rustix::net::send(channel, message, SendFlags::empty()).unwrap();
            };
            assert!(end_of(send).await.is_err(), "{} bytes", message.len());
        }
    }

    #[tokio::test]
    async fn a_silent_daemon_ends_it_well() {
        let silent = |channel: &Channel| {
            channel.send(&cowork_api::encode(&ToEgress::Greet), &[]).unwrap();
            rustix::net::shutdown(channel, Shutdown::Write).unwrap();
        };
        end_of(silent).await.unwrap();
    }
}

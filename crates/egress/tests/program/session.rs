//! A session as its egress process sees it, played by the tests.

use cowork_api::egress::{
    Action, Begin, FromEgress, HOST_NAME, Host, Otherwise, Ports, Quota, Record, Rule, Rules,
    Socket, Tls, ToEgress, What,
};
use cowork_sandbox::channel::{Channel, Peer};
use cowork_testbed::Person;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longest that anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Heard {
    messages: Mutex<Vec<FromEgress>>,
    more: Condvar,
}

/// An egress process, with both ends of what it holds.
pub(crate) struct Session {
    pub(crate) child: Child,
    pub(crate) channel: Option<Arc<Channel>>,
    heard: Arc<Heard>,
    pub(crate) http: SocketAddr,
    pub(crate) socks: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) dns_tcp: SocketAddr,
    pub(crate) confinement: Vec<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn hear(channel: &Channel, heard: &Heard) {
    while let Ok(Some(packet)) = channel.receive(Peer::Hostile) {
        let message = cowork_api::decode(&packet.bytes).unwrap();
        heard.messages.lock().unwrap().push(message);
        heard.more.notify_all();
    }
}

impl Session {
    /// Starts a process with these rules, and hands it its usual sockets.
    pub(crate) fn start(rules: Rules) -> Self {
        Self::start_as(Person::Root, rules)
    }

    /// The same for a process of somebody.
    pub(crate) fn start_as(person: Person, rules: Rules) -> Self {
        Self::start_by(person, Begin { rules, session: "test".into(), ..Begin::default() })
    }

    pub(crate) fn start_by(person: Person, begin: Begin) -> Self {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut command = person.command(env!("CARGO_BIN_EXE_cowork-egress"));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        drop(command);
        let channel = Arc::new(ours);
        let heard = Arc::new(Heard::default());
        let ears = (Arc::clone(&channel), Arc::clone(&heard));
        std::thread::spawn(move || hear(&ears.0, &ears.1));
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (http, socks, dns_tcp) = (listen(), listen(), listen());
        let dns = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut session = Self {
            child,
            channel: Some(channel),
            heard,
            http: http.local_addr().unwrap(),
            socks: socks.local_addr().unwrap(),
            dns: dns.local_addr().unwrap(),
            dns_tcp: dns_tcp.local_addr().unwrap(),
            confinement: Vec::new(),
        };
        session.send(&ToEgress::Begin(Box::new(begin)));
        session.hand_over(&[
            (Socket::HttpProxy, http.as_fd()),
            (Socket::Socks, socks.as_fd()),
            (Socket::DnsUdp, dns.as_fd()),
            (Socket::DnsTcp, dns_tcp.as_fd()),
        ]);
        session.confinement = session.wait(|message| match message {
            FromEgress::Ready { confinement, .. } => Some(confinement.clone()),
            FromEgress::Failed { sentence } => panic!("{sentence}"),
            _ => None,
        });
        session
    }

    pub(crate) fn send(&self, message: &ToEgress) {
        self.send_with(message, &[]);
    }

    fn send_with(&self, message: &ToEgress, handles: &[BorrowedFd<'_>]) {
        let channel = self.channel.as_ref().unwrap();
        channel.send(&cowork_api::encode(message), handles).unwrap();
    }

    /// Hands over sockets.
    pub(crate) fn hand_over(&self, sockets: &[(Socket, BorrowedFd<'_>)]) {
        let handles: Vec<_> = sockets.iter().map(|(_, handle)| *handle).collect();
        let sockets = sockets.iter().map(|(socket, _)| *socket).collect();
        self.send_with(&ToEgress::Sockets { sockets }, &handles);
    }

    /// Waits for the first message, of all that ever came, that `pick` picks.
    pub(crate) fn wait<T>(&self, pick: impl Fn(&FromEgress) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut messages = self.heard.messages.lock().unwrap();
        loop {
            if let Some(picked) = messages.iter().find_map(&pick) {
                return picked;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing like it came: {messages:#?}");
            messages = self.heard.more.wait_timeout(messages, left).unwrap().0;
        }
    }

    /// How many messages there were of a kind.
    pub(crate) fn count(&self, kind: impl Fn(&FromEgress) -> bool) -> usize {
        self.heard.messages.lock().unwrap().iter().filter(|message| kind(message)).count()
    }

    /// What `pick` picks of all messages that came so far.
    pub(crate) fn all<T>(&self, pick: impl Fn(&FromEgress) -> Option<T>) -> Vec<T> {
        self.heard.messages.lock().unwrap().iter().filter_map(pick).collect()
    }

    /// All records that came so far.
    pub(crate) fn records(&self) -> Vec<Record> {
        let messages = self.heard.messages.lock().unwrap();
        let record = |message: &FromEgress| match message {
            FromEgress::Record(record) => Some(record.clone()),
            _ => None,
        };
        messages.iter().filter_map(record).collect()
    }

    /// The codes of what was refused so far.
    pub(crate) fn refused(&self) -> Vec<String> {
        let code = |record: Record| match record.what {
            What::Decided { decision, .. } if !decision.allowed => Some(decision.code),
            _ => None,
        };
        self.records().into_iter().filter_map(code).collect()
    }

    /// Waits for a record about a host.
    pub(crate) fn decided(&self, host: &str) -> cowork_api::egress::Decision {
        self.wait(|message| match message {
            FromEgress::Record(Record { what: What::Decided { target, decision, .. }, .. })
                if target.host == host =>
            {
                Some(decision.clone())
            }
            _ => None,
        })
    }

    /// Waits for the end of a connection to a port; how, and the bytes both ways.
    pub(crate) fn ended(&self, wanted: u16) -> (String, u64, u64) {
        self.wait(|message| match message {
            FromEgress::Record(Record {
                what: What::Ended { target, how, up, down, .. }, ..
            }) if target.port == wanted => Some((how.clone(), *up, *down)),
            _ => None,
        })
    }

    /// A connection to the host's port by `CONNECT`.
    pub(crate) fn connect(&self, host: &str, port: u16) -> TcpStream {
        let mut stream = reach(self.http);
        write!(stream, "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let head = head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }

    /// What a line of `/proc/PID/status` says.
    pub(crate) fn status(&self, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// How much memory the process has that is its own, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let anonymous = self.status("RssAnon");
        anonymous.strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// How much time the process has computed, in hundredths of a second.
    pub(crate) fn computed(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let times = rest.split_whitespace().skip(11).take(2);
        times.map(|time| time.parse::<u64>().unwrap()).sum()
    }

    /// How many descriptors the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

/// A connection to one of the process's listeners.
pub(crate) fn reach(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads up to the empty line of an HTTP answer.
pub(crate) fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let read = stream.read(&mut byte).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A rule about hosts.
pub(crate) fn rule(action: Action, host: Host, ports: Ports) -> Rule {
    Rule {
        name: format!("{action:?} {host:?}"),
        action,
        host,
        ports,
        http: Vec::new(),
        tls: Tls::AsNeeded,
        resolves_to: Vec::new(),
        credential: None,
        limits: Quota::default(),
    }
}

/// A rule that allows a port of the host's loopback.
pub(crate) fn allow_loopback(port: u16) -> Rule {
    rule(Action::Allow, Host::Loopback, Ports::Some(vec![(port, port)]))
}

/// A rule that allows a name on the usual ports.
pub(crate) fn allow_name(name: &str) -> Rule {
    rule(Action::Allow, Host::Name(name.into()), Ports::Web)
}

/// Rules that refuse the rest.
pub(crate) fn rules(rules: impl IntoIterator<Item = Rule>) -> Rules {
    Rules { generation: 1, otherwise: Otherwise::Deny, rules: rules.into_iter().collect() }
}

/// The host's loopback, as a session names it.
pub(crate) const LOOPBACK: &str = HOST_NAME;

/// A server of the tests, on the loopback: `serve` gets each connection, in a thread of its own.
pub(crate) fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let serve = Arc::clone(&serve);
            let thread = std::thread::Builder::new().stack_size(128 * 1024);
            thread.spawn(move || serve(stream)).unwrap();
        }
    });
    port
}

/// A server that sends back what it gets.
pub(crate) fn echo() -> u16 {
    server(|mut stream| {
        let mut buffer = [0; 8192];
        while let Ok(read) = stream.read(&mut buffer) {
            if read == 0 || stream.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    })
}

/// Sends something and expects it back.
pub(crate) fn expect_echo(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    let mut back = vec![0; words.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, words);
}

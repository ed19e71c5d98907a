//! Messages between the daemon and the egress process of a session, and the rules it goes by.
//!
//! The egress process owns the listeners that were made in the session's network, the key of the
//! session's authority, and the secrets that its rules name. It decides by its rules alone; the
//! daemon is told of every decision, and answers what the rules leave to the user. Records are
//! numbered and kept until the daemon has acknowledged them, so that a daemon that comes after
//! another one misses none.

mod record;

use crate::Text;
use serde::{Deserialize, Serialize};

pub use record::{
    Bodied, Connection, Decision, Ended, Http, Record, Source, Spoken, Timings, Used, What,
};

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToEgress {
    /// Everything an egress process needs to begin. Sent first, once.
    Begin(Box<Begin>),
    /// More sockets of the session's network, in the order of the descriptors beside this.
    Sockets {
        /// What each is.
        sockets: Vec<Socket>,
    },
    /// Other rules, from now on. What was allowed before ends under the rules it began with.
    Rules(Box<Rules>),
    /// The secrets that rules name; all of them, each time.
    Secrets(Vec<Secret>),
    /// The user's answer to an ask.
    Answer {
        /// Which.
        ask: u64,
        /// What was said.
        answer: Answer,
    },
    /// Every record up to this one is kept by the daemon.
    Acknowledge {
        /// The number of the last one.
        upto: u64,
    },
    /// A daemon has come, perhaps after another one: asks that wait and records that were not
    /// acknowledged are sent again.
    Greet,
    /// What flows now.
    Flows {
        /// Comes back in the answer.
        number: u32,
    },
    /// Make a port of the session reachable at the host's loopback.
    Publish {
        /// Comes back in the answer.
        number: u32,
        /// The port in the session.
        inside: u16,
        /// The port at the host's loopback; 0 for any that is free.
        outside: u16,
    },
    /// Let go of a published port, and of what flows through it.
    Unpublish {
        /// The port at the host's loopback.
        outside: u16,
    },
    /// A secret has no other value, although one was asked for.
    NotRenewed {
        /// The secret's name.
        secret: String,
        /// The number of the value that stays.
        version: u64,
        /// Why.
        why: NotRenewed,
    },
    /// Instead of [`Self::Begin`]: one request is made, answered with [`FromEgress::Returned`], and
    /// the process ends.
    Errand(Box<Errand>),
    /// What was used of what rules limit, as an earlier process told it. Sent before the first socket.
    Spent(Vec<Spent>),
    /// The names that addresses of the session stand for are in the file beside this, of [`KEPT_NAMES`]
    /// bytes, and are written there. Sent before the first socket.
    Names,
    /// The rules of whose requests bodies are kept; all of them, each time.
    Captures(Vec<Capture>),
}

/// Of the requests of a rule bodies are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The rule's name.
    pub rule: String,
    /// How much of each body, at most [`MAX_CAPTURE`].
    pub bytes: u64,
}

/// Most bytes of a body that are kept.
pub const MAX_CAPTURE: u64 = 1024 * 1024;

/// What was used of what a rule limits, in the windows of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The rule's name.
    pub rule: String,
    /// Bytes that were sent, if they are limited.
    pub upload: Option<Window>,
    /// Requests, if they are limited.
    pub requests: Option<Window>,
}

/// A time that something is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When it began, in milliseconds since 1970.
    pub since: u64,
    /// How much was used in it.
    pub used: u64,
}

/// Why a secret has no other value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotRenewed {
    /// It was renewed moments ago, or is not one that is renewed: whoever refuses it has another
    /// reason.
    IsNew,
    /// Whoever renews it does not, or cannot be reached.
    Failed {
        /// For people, without any value.
        sentence: String,
    },
}

/// A request that the host makes for itself, over verified TLS: for the renewal of a secret.
///
/// It is made by a process that serves no session, so that what is in it never is where something
/// hostile is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// The host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path, with its query.
    pub path: String,
    /// What the body is.
    pub content_type: String,
    /// The body.
    pub body: Hidden,
    /// Certificates of authorities, in DER, that servers are verified by, beside those of the host.
    pub roots: Vec<Vec<u8>>,
    /// The proxy that everything goes through, if there is one.
    pub parent: Option<Parent>,
}

/// What came back from an errand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Hidden,
}

/// What an egress process needs to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The session's id.
    pub session: String,
    /// The rules.
    pub rules: Rules,
    /// The secrets that rules name.
    pub secrets: Vec<Secret>,
    /// Certificates of authorities, in DER, that servers are verified by, beside those of the host.
    pub roots: Vec<Vec<u8>>,
    /// The proxy that everything goes through, if there is one.
    pub parent: Option<Parent>,
}

/// A proxy between the host and the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it is spoken to over TLS.
    pub tls: bool,
    /// What it is sent as `Proxy-Authorization`, if anything.
    pub authorization: Option<Hidden>,
    /// Names and networks that are reached without it, as in `NO_PROXY`.
    pub except: Vec<String>,
    /// Who comes, if it speaks SOCKS 5 rather than HTTP.
    pub socks: Option<Socks>,
}

/// Who comes to a proxy of SOCKS 5. Both are empty where it does not ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socks {
    /// The user.
    pub user: Hidden,
    /// The password.
    pub password: Hidden,
}

/// A socket of the session's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Socket {
    /// Listens for HTTP proxy requests, in the session's loopback.
    HttpProxy,
    /// Listens for SOCKS requests, in the session's loopback.
    Socks,
    /// Receives DNS questions over UDP.
    DnsUdp,
    /// Listens for DNS questions over TCP.
    DnsTcp,
    /// Listens on one port of every address of the synthetic range.
    Port(u16),
    /// Listens on all ports of the synthetic range: the address a connection was made to is the
    /// accepted socket's own.
    AllPorts,
    /// Not connected: serves to connect to the session's loopback.
    Inward,
    /// Lists the sockets of the session's network (`NETLINK_SOCK_DIAG`).
    Diagnostics,
    /// The same for the daemon, which asks who is at the other end of a connection. Not kept.
    Callers,
}

/// Addresses that stand for names: the fourth part of the benchmarking range.
pub const SYNTHETIC_V4: ([u8; 4], u8) = ([198, 18, 0, 0], 15);
/// Addresses that stand for names: a unique local prefix.
pub const SYNTHETIC_V6: ([u16; 8], u8) = ([0xfd63, 0x6f77, 0x6f72, 0x6b00, 0, 0, 0, 0], 96);
/// How long the file is in which the names of a session are kept: 256 bytes for each address of
/// [`SYNTHETIC_V4`].
pub const KEPT_NAMES: u64 = 256 << (32 - SYNTHETIC_V4.1);
/// The port of the HTTP proxy, in the session's loopback.
pub const HTTP_PROXY_PORT: u16 = 3128;
/// The port of the SOCKS proxy, in the session's loopback.
pub const SOCKS_PORT: u16 = 1080;
/// How a sentence begins that is about the program behind a connection: an egress process does not
/// know its name, and the daemon puts it there.
pub const SOMEBODY: &str = "a program";
/// The name of the host's own loopback, for sessions that may reach a port of it.
pub const HOST_NAME: &str = "host.cowork.internal";

/// What a session may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Counts changes; told in every record.
    pub generation: u64,
    /// What becomes of what no rule is about.
    pub otherwise: Otherwise,
    /// Each is about some hosts; a denial wins over an allowance, an allowance over an ask.
    pub rules: Vec<Rule>,
}

/// What becomes of what no rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Otherwise {
    /// It is refused.
    #[default]
    Deny,
    /// The user is asked.
    Ask,
}

/// A rule about some hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What people know it by: `allow api.example.com`, `preset github`.
    pub name: String,
    /// What becomes of what it is about.
    pub action: Action,
    /// Which hosts.
    pub host: Host,
    /// Which ports; none means those of HTTP and HTTPS.
    pub ports: Ports,
    /// Which requests; none means all. Only where HTTP is looked into.
    pub http: Vec<Request>,
    /// Whether what is inside TLS is looked into.
    pub tls: Tls,
    /// Which addresses its names may lead to, beside public ones, as `10.0.0.0/8`.
    pub resolves_to: Vec<Network>,
    /// The secret that its requests get.
    pub credential: Option<Credential>,
    /// How much.
    pub limits: Quota,
}

/// What becomes of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// It passes.
    Allow,
    /// The user is asked.
    Ask,
    /// It is refused.
    Deny {
        /// Told to whoever is refused; may be empty.
        reason: String,
    },
}

/// Which hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    /// This name.
    Name(String),
    /// Every name below this one.
    Below(String),
    /// This name and every name below it.
    Domain(String),
    /// Addresses, where a program names an address and no name.
    Network(Network),
    /// The loopback of the host.
    Loopback,
    /// Every name.
    Any,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The first one.
    pub address: std::net::IpAddr,
    /// How many leading bits all of them share.
    pub bits: u8,
}

/// Which ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ports {
    /// 80 and 443.
    Web,
    /// These, from and to, both included.
    Some(Vec<(u16, u16)>),
    /// All.
    All,
}

/// Which requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Their methods; none means all.
    pub methods: Vec<String>,
    /// Their paths; `*` stands for anything within one part, `**` for anything; none means all.
    pub paths: Vec<String>,
}

/// Whether what is inside TLS is looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Where a rule needs it: for methods, paths, credentials, requests per time.
    #[default]
    AsNeeded,
    /// Always.
    Inspect,
    /// Never.
    Tunnel,
}

/// How a secret is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The secret's name.
    pub secret: String,
    /// What is done.
    pub mode: CredentialMode,
    /// Where it is put, for modes that put it somewhere.
    pub carrier: Carrier,
}

/// What is done with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CredentialMode {
    /// The placeholder that the session knows is replaced where it appears.
    Swap,
    /// Every request gets it.
    Inject,
    /// Every request gets it, and a request that brings another credential is refused.
    Pin,
}

/// Where a secret is put in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    /// `Authorization: Bearer`.
    Bearer,
    /// `Authorization: Basic`, with this user name.
    Basic {
        /// The user name.
        user: String,
    },
    /// A header of this name.
    Header(String),
    /// A parameter of the query of this name.
    Query(String),
    /// The signature of a request to AWS: the secret is `id:key` or `id:key:token`.
    AwsSignature,
}

/// How much a rule lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes that may be sent, and in how many seconds.
    pub upload: Option<(u64, u32)>,
    /// Requests, and in how many seconds.
    pub requests: Option<(u64, u32)>,
    /// Connections at a time.
    pub connections: Option<u32>,
}

/// A secret, with what stands for it in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// What the session knows instead of it.
    pub placeholder: String,
    /// The value.
    pub value: Hidden,
    /// Whether there will be another value.
    pub renewal: Renewal,
}

/// Whether a secret gets another value by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Renewal {
    /// It does not.
    #[default]
    Never,
    /// The daemon gets one when it is asked to.
    OnDemand {
        /// Counts values.
        version: u64,
        /// Until when this one is of use, in milliseconds since 1970, if that is known.
        expires: Option<u64>,
    },
}

/// Bytes that are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden(pub Text);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What the user says to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// What waits may pass, and whatever the rules of the moment allow from then on.
    Allow,
    /// It is refused, with these words.
    Deny {
        /// Told to whoever is refused; may be empty.
        reason: String,
    },
    /// It is refused: nobody is there to be asked.
    Nobody,
}

/// To the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromEgress {
    /// Confined, and at work.
    Ready {
        /// The certificate of the session's authority, in DER.
        authority: Vec<u8>,
        /// What holds the process: for people.
        confinement: Vec<String>,
    },
    /// It cannot begin.
    Failed {
        /// Why.
        sentence: String,
    },
    /// Something waits for the user.
    Ask(Ask),
    /// Nothing waits for this any more.
    Withdraw {
        /// Which ask.
        ask: u64,
    },
    /// Something was decided, or ended.
    Record(Record),
    /// What flows now.
    Flows {
        /// As sent.
        number: u32,
        /// The flows; at most [`MAX_FLOWS`], the newest.
        flows: Vec<Flow>,
        /// How many there are.
        total: u32,
    },
    /// A port is published, or not.
    Published {
        /// As sent.
        number: u32,
        /// The port at the host's loopback, or why not.
        outside: Result<u16, String>,
    },
    /// Few sockets are left that connect inwards: the daemon sends more.
    WantInward,
    /// The value of a secret has expired, or its host refuses it: the daemon sends another one, or
    /// [`ToEgress::NotRenewed`].
    Renew {
        /// The secret's name.
        secret: String,
        /// The number of the value.
        version: u64,
    },
    /// What came of an errand, or why nothing did.
    Returned(Result<Returned, String>),
    /// What was used of what some rules limit has changed: the daemon keeps it for the next process.
    Spent(Vec<Spent>),
    /// A part of a body that is kept. Sent before the record that tells of it, in order.
    Body(Piece),
}

/// A part of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The connection that it belongs to.
    pub flow: u64,
    /// The request in it.
    pub request: u32,
    /// Whose it is.
    pub side: Side,
    /// What it is: as the session sent it or got it.
    pub bytes: Hidden,
}

/// Who sent a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The session.
    Session,
    /// The host.
    Host,
}

/// Most flows that are listed.
pub const MAX_FLOWS: usize = 1024;

/// Something that waits for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number, never used again by this process.
    pub ask: u64,
    /// What it is about.
    pub target: Target,
}

/// What a program wants to reach, as far as it is known when it is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// A name, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method of an HTTP request, if it is known.
    pub method: Option<String>,
    /// Its path without the query, if it is known.
    pub path: Option<String>,
    /// The names of what is in its query, without the values; some of them, if there are many.
    pub query: Vec<String>,
    /// Who wants to reach it, if it could be found out. An egress process leaves it to the daemon.
    pub process: Option<Process>,
    /// The kernel's number of the socket that it came from; 0 if it is not known.
    pub socket: u64,
    /// How it arrived.
    pub via: Via,
    /// The port that it arrived at; 0 if it came by no connection.
    pub listener: u16,
}

/// A process of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id on the host.
    pub pid: i32,
    /// Its name, as it calls itself.
    pub name: String,
}

/// How something arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Via {
    /// A connection to an address that stands for a name.
    #[default]
    Capture,
    /// `CONNECT` of the HTTP proxy.
    Connect,
    /// A request to the HTTP proxy.
    Forward,
    /// The SOCKS proxy.
    Socks,
    /// A question for a name.
    Dns,
    /// A published port: from the host into the session.
    Published,
}

/// Something that flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Its number.
    pub flow: u64,
    /// Where to.
    pub target: Target,
    /// The rule that let it through.
    pub rule: Option<String>,
    /// Bytes from the session.
    pub up: u64,
    /// Bytes to the session.
    pub down: u64,
    /// Milliseconds from its beginning.
    pub ms: u64,
    /// Whether it waits for the user.
    pub held: bool,
}

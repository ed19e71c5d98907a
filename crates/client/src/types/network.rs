//! What a session may reach, what it reaches, and the secrets it uses without knowing them.

use super::NAME;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of what no rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    /// It is refused.
    #[default]
    Deny,
    /// The user is asked.
    Ask,
}

/// What becomes of what a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// It passes.
    #[default]
    Allow,
    /// The user is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// Whether what is inside TLS is looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsTreatment {
    /// Where the rule needs it: for methods, paths, a secret, requests per time.
    #[default]
    Auto,
    /// Always.
    Inspect,
    /// Never.
    Tunnel,
}

/// A rule about some hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkRule {
    /// What becomes of it.
    pub action: RuleAction,
    /// Which hosts: `api.example.com`, `*.example.com` (below it), `**.example.com` (it and below
    /// it), `10.0.0.0/8`, `host` (the host's own loopback); each with `:port`, `:from-to` or `:*`
    /// where the ports are not 80 and 443.
    #[schemars(length(min = 1, max = 300))]
    pub host: String,
    /// Which methods; all without this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub methods: Vec<String>,
    /// Which paths, `*` for anything within one part and `**` for anything; all without this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub paths: Vec<String>,
    /// Whether what is inside TLS is looked into.
    pub tls: TlsTreatment,
    /// Which private addresses its names may lead to, e.g. `10.20.0.0/16`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resolves_to: Vec<String>,
    /// The name of a secret that its requests get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub secret: Option<String>,
    /// Told to whoever a denial refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
    /// Bytes that may be sent in a time, e.g. `200M/1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// Requests in a time, e.g. `120/1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    /// Connections at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub connections: Option<u32>,
    /// How much of each body is kept of its requests and their answers, e.g. `64KB`; nothing without
    /// this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
}

/// What a session may reach. Without any of it a session has no network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WantedNetwork {
    /// What becomes of what no rule is about.
    pub otherwise: Otherwise,
    /// Lists of hosts that belong together, by name, e.g. `github`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub presets: Vec<String>,
    /// The rules; a denial wins over an allowance, an allowance over an ask.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub rules: Vec<NetworkRule>,
    /// Secrets that it uses, by name: their hosts are reached with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub secrets: Vec<String>,
    /// Nobody is there to be asked: what would wait for an answer is refused at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,
    /// The proxy between this host and the world that it goes through, in place of the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentProxy>,
}

/// A proxy between a host and the world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParentProxy {
    /// Where it is: `http://host:port` or `https://host:port`, without a password.
    #[schemars(length(min = 1, max = 300), regex(pattern = "^https?://"))]
    pub url: String,
    /// Hosts, domains and ranges of addresses that are reached without it, divided by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub except: String,
}

/// The network of a session, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
pub struct NetworkBrief {
    /// What becomes of what no rule is about.
    pub otherwise: Otherwise,
    /// Whether nobody is there to be asked: what would wait for an answer is refused at once.
    #[serde(default)]
    pub headless: bool,
    /// How many rules it has, with those of its presets and secrets.
    pub rules: u32,
    /// Whether the process that is its way out is there; without it nothing passes.
    pub up: bool,
}

/// A list of hosts that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preset {
    /// Its name, e.g. `github`.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its hosts, as in a rule.
    pub hosts: Vec<String>,
}

/// More of the network for a running session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkChange {
    /// What becomes of what no rule is about, from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Otherwise>,
    /// Rules to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub add: Vec<NetworkRule>,
    /// Presets to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub presets: Vec<String>,
    /// Rules and presets to take away, by the names that they are shown with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub remove: Vec<String>,
    /// Secrets to use as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub secrets: Vec<String>,
}

/// The network of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Network {
    /// What becomes of what no rule is about.
    pub otherwise: Otherwise,
    /// Whether nobody is there to be asked: what would wait for an answer is refused at once.
    #[serde(default)]
    pub headless: bool,
    /// Its presets.
    pub presets: Vec<String>,
    /// Its rules, each with the name it is known by.
    pub rules: Vec<NamedRule>,
    /// Counts changes.
    pub generation: u64,
    /// The process that is its way out, while there is one.
    pub egress: Option<Egress>,
    /// Ports of the session that the host's loopback reaches.
    pub published: Vec<PublishedPort>,
}

/// A rule with the name it is known by.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NamedRule {
    /// The name, e.g. `allow api.example.com`.
    pub name: String,
    /// The rule.
    pub rule: NetworkRule,
}

/// The process that is a session's way out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Egress {
    /// Its process id.
    pub pid: i32,
    /// How often it was started again.
    pub restarts: u32,
    /// What holds it.
    pub confinement: Vec<String>,
    /// Whether every port of an allowed name arrives there; else only those that rules name.
    pub all_ports: bool,
}

/// A port to publish.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The port in the session.
    #[schemars(range(min = 1, max = 65535))]
    pub inside: u16,
    /// The port at the host's loopback; a free one is chosen without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub outside: Option<u16>,
}

/// A published port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedPort {
    /// The port in the session.
    pub inside: u16,
    /// The port at the host's loopback.
    pub outside: u16,
}

/// Something that flows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetworkFlow {
    /// Its number.
    pub flow: u64,
    /// Where to.
    pub target: NetworkTarget,
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

/// What a program wants to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkTarget {
    /// A name, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method of an HTTP request, if it is known.
    pub method: Option<String>,
    /// Its path without the query, if it is known.
    pub path: Option<String>,
    /// The program that wants it, and its process id on the host, if that could be found out.
    pub process: Option<String>,
    /// How it arrived: `capture`, `connect`, `forward`, `socks`, `dns`, `published`.
    pub via: String,
}

/// Something that was refused.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRefusal {
    /// When it last happened.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What was wanted.
    pub target: NetworkTarget,
    /// A stable word for the reason.
    pub code: String,
    /// The rule that refused it.
    pub rule: Option<String>,
    /// How often.
    pub times: u64,
}

/// Something that a person should know.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetworkNotice {
    /// When it last happened.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What it is about.
    pub target: NetworkTarget,
    /// A stable word for it: `untrusted-authority`, `gave-way`, `secret-reflected`, ….
    pub code: String,
    /// The sentence, with what to do about it where something can be done.
    pub sentence: String,
    /// How often.
    pub times: u64,
}

/// What went to a host, and came from it, since the session was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTraffic {
    /// The host.
    pub host: String,
    /// Bytes from the session.
    pub up: u64,
    /// Bytes to the session.
    pub down: u64,
    /// Requests, and connections that were not looked into.
    pub requests: u64,
}

/// What a session reaches.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// What was refused, the newest first.
    pub refused: Vec<NetworkRefusal>,
    /// What a person should know, the newest first: a client that does not trust the session's
    /// authority, a secret that came back in an answer.
    #[serde(default)]
    pub noticed: Vec<NetworkNotice>,
    /// What flows now.
    pub flows: Vec<NetworkFlow>,
    /// What went where, the most first. What reached nobody is not in it, nor what came in by a
    /// published port.
    pub hosts: Vec<HostTraffic>,
}

/// Whether something would pass, and by which rule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetworkExplanation {
    /// `allow`, `ask` or `deny`.
    #[schemars(extend("enum" = ["allow", "ask", "deny"]))]
    pub outcome: String,
    /// A stable word for the reason.
    pub code: String,
    /// The rule that decides.
    pub rule: Option<String>,
    /// `inspect` or `tunnel`, where it passes.
    pub tls: Option<String>,
    /// The sentence.
    pub sentence: String,
}
